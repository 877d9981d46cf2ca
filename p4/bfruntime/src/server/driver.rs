//! Simulated time of a chip's driver, for targets that need none.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time that a driver takes per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Reading one element of a register or counter from the chip.
    pub index: Duration,
    /// Copying all elements of a register or counter from the chip.
    pub sync: Duration,
    /// Writing one entry or element in a batch.
    pub update: Duration,
    /// Waiting until the chip has applied a batch.
    pub completion: Duration,
}

impl Costs {
    /// Costs of a switch that read 2,048 registers in 245 ms. Those of writes are assumed.
    pub const SWITCH: Costs = Costs {
        index: Duration::from_micros(120),
        sync: Duration::from_millis(1),
        update: Duration::from_micros(2),
        completion: Duration::from_micros(100),
    };
}

/// Whether requests wait as long as a driver would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Requests wait.
    Real,
    /// Requests do not wait; the time is only added up.
    Noted,
}

/// Time that a driver was busy, with the operations that took it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ledger {
    /// Time of all requests.
    pub total: Duration,
    /// Time of the longest request.
    pub longest: Duration,
    /// Number of elements read from the chip.
    pub indices: u64,
    /// Number of tables copied from the chip.
    pub syncs: u64,
    updates: u64,
    requests: u64,
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ledger { total, longest, indices, syncs, updates, requests } = self;
        write!(
            f,
            "{requests} requests took {total:.1?}, the longest one {longest:.1?}: {syncs} tables synced, "
        )?;
        write!(f, "{indices} elements read from the chip, {updates} entries written")
    }
}

/// Driver that takes time.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) costs: Costs,
    pub(super) pace: Pace,
    pub(super) ledger: Arc<Mutex<Ledger>>,
}

/// Operations of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) indices: u64,
    pub(super) syncs: u64,
    pub(super) updates: u64,
    /// Whether it waits for the chip.
    pub(super) completes: bool,
}

impl Driver {
    /// Waits for the time of a request.
    pub(super) async fn take(&self, work: Work) {
        let Work { indices, syncs, updates, completes } = work;
        let Costs { index, sync, update, completion } = self.costs;
        let times = |cost: Duration, number: u64| {
            cost.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX))
        };
        let time = times(index, indices)
            + times(sync, syncs)
            + times(update, updates)
            + times(completion, completes.into());
        {
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.total += time;
            ledger.longest = ledger.longest.max(time);
            ledger.indices += indices;
            ledger.syncs += syncs;
            ledger.updates += updates;
            ledger.requests += 1;
        }
        if self.pace == Pace::Real && !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }
}
