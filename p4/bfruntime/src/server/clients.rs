//! Subscribed clients, and which of them has bound the program.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tonic::Status;

/// Subscribed clients by id, and whether they have bound the program.
#[derive(Clone, Default)]
pub(super) struct Clients(Arc<Mutex<BTreeMap<u32, bool>>>);

/// Subscription of a client, which ends when this is dropped.
pub(super) struct Subscription {
    clients: Clients,
    id: u32,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.clients.locked().remove(&self.id);
    }
}

impl Subscription {
    pub(super) fn is_bound(&self) -> bool {
        self.clients.locked().get(&self.id).copied().unwrap_or_default()
    }
}

impl Clients {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<u32, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(&self, id: u32) -> Result<Subscription, Status> {
        let mut clients = self.locked();
        if clients.contains_key(&id) {
            return Err(Status::invalid_argument(format!(
                "there cannot be two clients with number {id}"
            )));
        }
        clients.insert(id, false);
        Ok(Subscription { clients: self.clone(), id })
    }

    pub(super) fn bind(&self, id: u32) -> Result<(), Status> {
        let mut clients = self.locked();
        if let Some((other, _)) = clients.iter().find(|(other, bound)| **bound && **other != id) {
            return Err(Status::already_exists(format!("the program is bound to client {other}")));
        }
        *clients.get_mut(&id).ok_or_else(|| not_subscribed(id))? = true;
        Ok(())
    }

    pub(super) fn check_bound(&self, id: u32) -> Result<(), Status> {
        match self.locked().get(&id) {
            None => Err(not_subscribed(id)),
            Some(false) => Err(Status::failed_precondition(format!(
                "client {id} has not bound the program; do that first"
            ))),
            Some(true) => Ok(()),
        }
    }
}

fn not_subscribed(id: u32) -> Status {
    Status::unavailable(format!("unknown client {id}; open StreamChannel first"))
}
