//! Simulated time of a chip's driver, for targets that need none.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
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
#[derive(Debug, Default)]
pub struct Ledger {
    total: AtomicU64,
    longest: AtomicU64,
    indices: AtomicU64,
    syncs: AtomicU64,
    updates: AtomicU64,
    requests: AtomicU64,
}

impl Ledger {
    /// Returns the time of all requests.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total.load(Ordering::Relaxed))
    }

    /// Returns the time of the longest request.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    /// Returns the number of elements read from the chip.
    #[must_use]
    pub fn indices(&self) -> u64 {
        self.indices.load(Ordering::Relaxed)
    }

    /// Returns the number of tables copied from the chip.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Resets all counts to zero.
    pub fn reset(&self) {
        for number in
            [&self.total, &self.longest, &self.indices, &self.syncs, &self.updates, &self.requests]
        {
            number.store(0, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [requests, updates] =
            [&self.requests, &self.updates].map(|number| number.load(Ordering::Relaxed));
        let (indices, syncs, total, longest) =
            (self.indices(), self.syncs(), self.total(), self.longest());
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
    costs: Costs,
    pace: Pace,
    pub(super) ledger: std::sync::Arc<Ledger>,
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
    pub(super) fn new(costs: Costs, pace: Pace) -> Self {
        Driver { costs, pace, ledger: std::sync::Arc::default() }
    }

    /// Waits for the time of a request.
    pub(super) async fn take(&self, work: Work) {
        let Costs { index, sync, update, completion } = self.costs;
        let times = |cost: Duration, number: u64| {
            cost.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX))
        };
        let time =
            times(index, work.indices) + times(sync, work.syncs) + times(update, work.updates);
        let time = time + times(completion, work.completes.into());
        let ledger = &self.ledger;
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        ledger.longest.fetch_max(nanoseconds, Ordering::Relaxed);
        let adds = [
            (&ledger.total, nanoseconds),
            (&ledger.indices, work.indices),
            (&ledger.syncs, work.syncs),
            (&ledger.updates, work.updates),
            (&ledger.requests, 1),
        ];
        for (number, more) in adds {
            number.fetch_add(more, Ordering::Relaxed);
        }
        if self.pace == Pace::Real && !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }
}
