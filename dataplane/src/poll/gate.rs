//! How far the traffic may advance.
//!
//! A source hands out packets with timestamps below the gate's limit. In trace time the controller
//! moves the limit: waiting until `t` means that every packet before `t` has been counted, so that
//! a replay is repeatable to the bit. In real time the limit follows the clock, and an open gate
//! has none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// What moves the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The controller, through [`Gate::advance`].
    Trace,
    /// The clock: packets come as far apart as their timestamps.
    RealTime,
    /// Nothing: packets come as fast as they can be counted.
    Open,
}

/// Where the traffic stands after [`Gate::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// All packets before the limit were counted; the next one has this timestamp.
    Reached {
        /// Timestamp of the next packet, in nanoseconds.
        next: u64,
    },
    /// All packets there are were counted.
    Ended {
        /// Timestamp of the last packet, in nanoseconds; `None` if there was no packet at all.
        last: Option<u64>,
    },
    /// A worker died; waiting longer is of no use.
    Failed,
    /// [`Gate::interrupt`] was called. What was handed out by then is counted, and no more.
    Interrupted {
        /// Timestamp of the last packet counted, in nanoseconds; `None` if there was none.
        last: Option<u64>,
    },
}

/// The times of packets that a source may hand out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Packets from before it come too late: their window is closed.
    pub floor: u64,
    /// What packets must stay below.
    pub limit: u64,
}

/// Shared by the workers of one source and the controller.
#[derive(Debug)]
pub struct Gate {
    pace: Pace,
    /// How late a packet may come, in nanoseconds.
    lateness: AtomicU64,
    /// Whether the order of packets within a window changes nothing.
    any_order: AtomicBool,
    opened: OnceLock<(Instant, u64)>,
    progress: Mutex<Progress>,
    changed: Condvar,
    workers: Mutex<Vec<Thread>>,
}

#[derive(Debug, Default)]
struct Progress {
    limit: u64,
    floor: u64,
    /// Batches handed out and not yet counted.
    busy: usize,
    /// Timestamp of the next packet, once it was found to lie at or beyond the limit.
    blocked: Option<u64>,
    ended: bool,
    last: Option<u64>,
    failed: bool,
    interrupted: bool,
}

impl Progress {
    /// Where the traffic stands, if nothing more is to be waited for.
    fn settled(&self) -> Option<Advance> {
        if self.failed {
            return Some(Advance::Failed);
        }
        if self.busy > 0 {
            return None;
        }
        if self.interrupted {
            return Some(Advance::Interrupted { last: self.last });
        }
        if self.ended {
            return Some(Advance::Ended { last: self.last });
        }
        self.blocked.map(|next| Advance::Reached { next })
    }
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Gate {
            pace,
            lateness: AtomicU64::new(0),
            any_order: AtomicBool::new(false),
            opened: OnceLock::new(),
            progress: Mutex::default(),
            changed: Condvar::new(),
            workers: Mutex::default(),
        }
    }

    /// What moves the limit.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Has the source wait for packets that lie out of order: before it takes a time for passed, it
    /// looks for packets that are as much later as this. Takes effect before the workers start;
    /// nothing changes in real time.
    pub fn set_lateness(&self, lateness: Duration) {
        self.lateness
            .store(u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How late a packet may come, in nanoseconds; `None` where nothing waits for any.
    #[must_use]
    pub fn lateness(&self) -> Option<u64> {
        let lateness = self.lateness.load(Ordering::Relaxed);
        (self.pace == Pace::Trace && lateness > 0).then_some(lateness)
    }

    /// Lets workers share what they would else count in the order of the capture, since nothing is
    /// measured that depends on it.
    pub(super) fn allow_any_order(&self) {
        self.any_order.store(true, Ordering::Relaxed);
    }

    /// Whether the order of packets within a window changes nothing.
    pub(super) fn allows_any_order(&self) -> bool {
        self.any_order.load(Ordering::Relaxed)
    }

    /// Takes note that every window before `time` is closed: a packet from before it that is still
    /// to come is late.
    pub fn close(&self, time: u64) {
        let mut progress = self.progress();
        progress.floor = progress.floor.max(time);
    }

    /// Lets every packet with a timestamp before `limit` through and waits until all of them were
    /// counted.
    pub fn advance(&self, limit: u64) -> Advance {
        let mut progress = self.progress();
        if limit > progress.limit {
            progress.limit = limit;
            // A packet found beyond the old limit may be beyond the new one as well: no need to ask
            // the source again.
            progress.blocked = progress.blocked.filter(|&next| next >= limit);
        }
        if progress.blocked.is_none() {
            drop(progress);
            self.wake();
            progress = self.progress();
        }
        loop {
            if let Some(advance) = progress.settled() {
                return advance;
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The time in the trace: the limit, or just behind the last packet if there are no more.
    /// `None` unless the pace is [`Pace::Trace`].
    #[must_use]
    pub fn trace_time(&self) -> Option<u64> {
        let progress = self.progress();
        let end = progress.last.map_or(0, |last| last.saturating_add(1));
        let now = if progress.ended { progress.limit.min(end) } else { progress.limit };
        (self.pace == Pace::Trace).then_some(now)
    }

    /// Whether all packets there are were counted.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let progress = self.progress();
        progress.ended && progress.busy == 0
    }

    /// Wakes workers that wait for packets.
    pub fn wake(&self) {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Thread::unpark);
    }

    pub(super) fn join(&self, worker: Thread) {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }

    /// Tells a controller that waits that a worker is gone.
    pub(super) fn fail(&self) {
        self.progress().failed = true;
        self.changed.notify_all();
    }

    /// Stops the traffic, for good, and makes [`advance`](Self::advance) return.
    pub fn interrupt(&self) {
        self.progress().interrupted = true;
        self.changed.notify_all();
    }

    /// The timestamp that packets must stay below. `first` is the timestamp of the source's first
    /// packet: in real time it is due at once.
    pub fn limit(&self, first: u64) -> u64 {
        match self.pace {
            Pace::Trace => {
                let progress = self.progress();
                if progress.interrupted { 0 } else { progress.limit }
            }
            Pace::Open => u64::MAX,
            Pace::RealTime => {
                let (opened, origin) = *self.opened.get_or_init(|| (Instant::now(), first));
                let elapsed = u64::try_from(opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
                origin.saturating_add(elapsed).saturating_add(1)
            }
        }
    }

    /// The timestamps that packets may have. `first` is the timestamp of the source's first packet,
    /// as for [`limit`](Self::limit).
    pub fn bounds(&self, first: u64) -> Bounds {
        let limit = self.limit(first);
        let floor = if self.pace == Pace::Trace { self.progress().floor } else { 0 };
        // Once it is interrupted, nothing passes.
        Bounds { floor: floor.min(limit), limit }
    }

    /// Notes a batch that is about to be counted. A source calls this before it lets other workers
    /// take the next one.
    pub fn begin(&self) -> Busy<'_> {
        self.progress().busy += 1;
        Busy { gate: self, last: None }
    }

    /// Notes that the next packet, at `next`, lies at or beyond `limit`, which
    /// [`limit`](Self::limit) gave.
    pub fn block(&self, next: u64, limit: u64) {
        let mut progress = self.progress();
        if progress.limit == limit {
            progress.blocked = Some(next);
            drop(progress);
            self.changed.notify_all();
        }
    }

    /// Notes that there are no more packets.
    pub fn end(&self) {
        self.progress().ended = true;
        self.changed.notify_all();
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch that is being counted; dropped when it is done.
#[derive(Debug)]
pub struct Busy<'a> {
    gate: &'a Gate,
    /// Timestamp of its latest packet, in nanoseconds.
    pub last: Option<u64>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut progress = self.gate.progress();
        progress.last = progress.last.max(self.last);
        progress.busy -= 1;
        if thread::panicking() {
            // Before anyone takes this batch for counted.
            progress.failed = true;
        }
        // Nobody is woken before there is something to return: with one worker this is the only
        // batch, again and again.
        if progress.settled().is_some() {
            drop(progress);
            self.gate.changed.notify_all();
        }
    }
}
