//! Open connections of a server: how many there may be, and which of them gives way to a new one.
//!
//! Three sets have bounds: the connections of one peer, those of all peers that are not this
//! machine, and all together. If one that a newcomer would be in is full, the oldest connection in
//! it without a request that is answered gives way; if there is none, the newcomer is refused.
//! Whoever holds connections without asking for anything keeps nobody away, and who asks from far
//! away leaves places for this machine, with its probes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Connections at the same time.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Of all peers but this machine.
const MAX_REMOTE: usize = MAX_CONNECTIONS - 8;
/// Of one peer that is not this machine.
const MAX_PER_PEER: usize = 8;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// This machine: it asks from the address that it asks. Its users and what they forward
    /// (`ssh -L`, a proxy) are not told apart.
    Local,
    /// An address; of IPv6 the network, since whoever has one address there has them all.
    Remote(IpAddr),
}

impl Peer {
    pub(super) fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        match (peer.ip().to_canonical(), local.ip().to_canonical()) {
            (peer, local) if peer == local => Peer::Local,
            (IpAddr::V6(address), _) => {
                Peer::Remote(IpAddr::from((address.to_bits() >> 64 << 64).to_be_bytes()))
            }
            (peer, _) => Peer::Remote(peer),
        }
    }

    fn is_remote(self) -> bool {
        self != Peer::Local
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It had no request that is answered.
    Waiting,
    /// It had one.
    Admitted,
    /// It has to give way.
    Evicted,
}

/// Whether a connection had a request that is answered.
#[derive(Clone)]
pub(super) struct Admission(watch::Sender<Stage>);

impl Admission {
    pub(super) fn give(&self) {
        self.0.send_if_modified(|stage| {
            let is_first = *stage == Stage::Waiting;
            *stage = if is_first { Stage::Admitted } else { *stage };
            is_first
        });
    }

    pub(super) fn is_given(&self) -> bool {
        *self.0.borrow() == Stage::Admitted
    }

    /// Comes back once it is given.
    pub(super) async fn given(&self) {
        let _ = self.0.subscribe().wait_for(|stage| *stage == Stage::Admitted).await;
    }

    /// Comes back once the connection has to give way.
    pub(super) async fn evicted(&self) {
        let _ = self.0.subscribe().wait_for(|stage| *stage == Stage::Evicted).await;
    }
}

/// Connections that are open, by age; clones are of the same ones.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, (Peer, Admission)>,
}

/// A place among the connections, until it is dropped.
pub(super) struct Place {
    number: u64,
    pub(super) admission: Admission,
    connections: Connections,
}

/// What becomes of a newcomer where all places are taken.
pub(super) struct Full {
    /// Its place, if another connection gave way.
    pub(super) place: Option<Place>,
    /// How many connections are open.
    pub(super) open: usize,
    /// Whose they are.
    pub(super) whose: &'static str,
}

/// Connections that have a bound in common.
struct Set {
    max: usize,
    whose: &'static str,
    has: fn(newcomer: Peer, other: Peer) -> bool,
}

/// Those of which a newcomer may be, the smallest first.
const SETS: [Set; 3] = [
    Set {
        max: MAX_PER_PEER,
        whose: "from one address",
        has: |newcomer, other| newcomer.is_remote() && other == newcomer,
    },
    Set {
        max: MAX_REMOTE,
        whose: "from other machines",
        has: |newcomer, other| newcomer.is_remote() && other.is_remote(),
    },
    Set { max: MAX_CONNECTIONS, whose: "in all", has: |_, _| true },
];

impl Connections {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a new connection.
    pub(super) fn enter(&self, peer: Peer) -> Result<Place, Full> {
        let mut open = self.open();
        let count =
            |set: &Set| open.by_age.values().filter(|(other, _)| (set.has)(peer, *other)).count();
        let Some((set, count)) =
            SETS.iter().map(|set| (set, count(set))).find(|(set, count)| count >= &set.max)
        else {
            return Ok(open.add(peer, self));
        };
        // Nobody from elsewhere takes a place of this machine.
        let gives_way = |other: Peer, admission: &Admission| {
            (set.has)(peer, other)
                && (other.is_remote() || !peer.is_remote())
                && !admission.is_given()
        };
        let oldest = open
            .by_age
            .iter()
            .find(|(_, (other, admission))| gives_way(*other, admission))
            .map(|(number, _)| *number);
        let place = oldest.and_then(|number| open.by_age.remove(&number)).map(|(_, evicted)| {
            evicted.0.send_replace(Stage::Evicted);
            open.add(peer, self)
        });
        Err(Full { place, open: count, whose: set.whose })
    }
}

impl Open {
    fn add(&mut self, peer: Peer, connections: &Connections) -> Place {
        let (number, admission) = (self.next, Admission(watch::Sender::new(Stage::Waiting)));
        self.next += 1;
        self.by_age.insert(number, (peer, admission.clone()));
        Place { number, admission, connections: connections.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open().by_age.remove(&self.number);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn remote(number: u8) -> Peer {
        Peer::Remote(IpAddr::from([192, 0, 2, number]))
    }

    /// Places that are taken, in order; of a connection for which none is left, whether it was
    /// refused.
    fn entered(connections: &Connections, peer: Peer, count: usize) -> (Vec<Place>, usize) {
        let (mut places, mut refused) = (Vec::new(), 0);
        for _ in 0..count {
            match connections.enter(peer) {
                Ok(place) | Err(Full { place: Some(place), .. }) => places.push(place),
                Err(Full { place: None, .. }) => refused += 1,
            }
        }
        (places, refused)
    }

    fn is_evicted(place: &Place) -> bool {
        *place.admission.0.borrow() == Stage::Evicted
    }

    fn evicted(places: &[Place]) -> Vec<bool> {
        places.iter().map(is_evicted).collect()
    }

    #[test]
    fn a_peer_has_eight_places_and_its_oldest_idle_connection_gives_way() {
        let connections = Connections::default();
        let (bystander, _) = entered(&connections, remote(2), 1);
        let (places, refused) = entered(&connections, remote(1), 11);
        assert_eq!((evicted(&places), refused), ([vec![true; 3], vec![false; 8]].concat(), 0));
        assert!(!is_evicted(&bystander[0]), "others are none of its business");
        // Those that have asked stay, and then no more are taken.
        places[3..].iter().for_each(|place| place.admission.give());
        let Err(full) = connections.enter(remote(1)) else { panic!("a ninth place") };
        assert!(full.place.is_none() && (full.open, full.whose) == (8, "from one address"));
        assert!(!evicted(&places[3..]).contains(&true));
        // Who leaves makes room.
        drop(places);
        assert!(connections.enter(remote(1)).is_ok());
    }

    #[test]
    fn other_machines_leave_places_for_this_one() {
        let connections = Connections::default();
        let filled: Vec<Place> =
            (0..7).flat_map(|number| entered(&connections, remote(number), 8).0).collect();
        assert_eq!((filled.len(), evicted(&filled).contains(&true)), (56, false));
        filled.iter().for_each(|place| place.admission.give());
        assert_eq!(entered(&connections, remote(9), 1).1, 1, "all of their places are in use");
        let (local, refused) = entered(&connections, Peer::Local, 8);
        assert_eq!((local.len(), refused), (8, 0));
        // Neither do they take those that this machine has, though it asks for nothing there.
        assert_eq!(entered(&connections, remote(9), 1).1, 1);
        assert!(!evicted(&local).contains(&true));
        assert_eq!(connections.open().by_age.len(), MAX_CONNECTIONS);
        // Of this machine's own the oldest gives way.
        let (more, _) = entered(&connections, Peer::Local, 1);
        assert_eq!(
            (evicted(&local)[..2].to_vec(), is_evicted(&more[0])),
            (vec![true, false], false)
        );
    }

    #[test]
    fn idle_connections_of_others_give_way_to_all() {
        let connections = Connections::default();
        let filled: Vec<Place> =
            (0..7).flat_map(|number| entered(&connections, remote(number), 8).0).collect();
        let (newcomer, _) = entered(&connections, remote(9), 1);
        assert_eq!(
            (evicted(&filled)[..2].to_vec(), is_evicted(&newcomer[0])),
            (vec![true, false], false)
        );
        // This machine fills what is left, and then takes theirs.
        let (local, _) = entered(&connections, Peer::Local, 9);
        assert_eq!(
            (evicted(&filled)[..3].to_vec(), evicted(&local).contains(&true)),
            (vec![true, true, false], false)
        );
        assert_eq!(connections.open().by_age.len(), MAX_CONNECTIONS);
    }

    #[test]
    fn a_machine_is_known_by_asking_itself_and_a_network_is_one_peer() {
        let peer = |peer: &str, local: &str| {
            Peer::new(
                SocketAddr::new(peer.parse().unwrap(), 1),
                SocketAddr::new(local.parse().unwrap(), 9420),
            )
        };
        for (remote, local) in
            [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("192.0.2.1", "::ffff:192.0.2.1")]
        {
            assert_eq!(peer(remote, local), Peer::Local, "{remote} {local}");
        }
        assert_eq!(peer("127.0.0.2", "127.0.0.1"), Peer::Remote("127.0.0.2".parse().unwrap()));
        assert_eq!(
            peer("2001:db8:0:1:2::3", "2001:db8::1"),
            peer("2001:db8:0:1:ffff::", "2001:db8::1")
        );
        assert_ne!(peer("2001:db8:0:1::1", "2001:db8::1"), peer("2001:db8:0:2::1", "2001:db8::1"));
        assert_eq!(peer("::ffff:192.0.2.7", "::1"), remote(7));
    }
}
