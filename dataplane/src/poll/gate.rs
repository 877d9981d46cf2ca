//! Gate that limits how far the traffic may advance.
//!
//! A source delivers packets with timestamps below the limit. In trace time the controller moves
//! the limit: once `advance(t)` returns, every packet before `t` has been counted, so a replay is
//! reproducible to the bit. In real time the limit follows the clock; with [`Pace::Open`] there is
//! none.

use super::threads::lock;
use crate::capture::TimeRange;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Driver of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The controller, through [`Gate::advance`].
    Trace,
    /// The clock: packets are spaced as their timestamps are.
    RealTime,
    /// No limit: packets are counted as fast as possible.
    Open,
}

/// Position of the traffic after [`Gate::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// All packets before the limit were counted; more packets follow.
    Reached {
        /// Timestamp of the next packet, in nanoseconds.
        next: u64,
    },
    /// All packets were counted.
    Ended {
        /// Timestamp of the last packet, in nanoseconds; `None` if there was no packet.
        last: Option<u64>,
    },
    /// A worker died; waiting longer is pointless.
    Failed,
    /// [`Gate::interrupt`] was called. Only packets delivered before are counted.
    Interrupted {
        /// Timestamp of the last packet counted, in nanoseconds; `None` if there was none.
        last: Option<u64>,
    },
}

/// Gate between the traffic of one source and its workers; the controller moves the limit.
#[derive(Debug)]
pub struct Gate {
    pace: Pace,
    /// Maximum lateness of a packet, in nanoseconds.
    lateness: AtomicU64,
    /// Whether results are independent of the order of packets within a window.
    any_order: AtomicBool,
    /// Whether workers wait for the start of the first window.
    held: AtomicBool,
    /// Time from which packets are due in real time.
    released_at: OnceLock<Instant>,
    /// Time at which the first packet is due in real time, and its timestamp.
    first_due: OnceLock<(Instant, u64)>,
    progress: Mutex<Progress>,
    /// Notified when `progress` may have settled.
    changed: Condvar,
    /// Threads of the workers, to wake them.
    workers: Mutex<Vec<Thread>>,
}

/// Position of the traffic. Timestamps are in nanoseconds.
#[derive(Debug, Default)]
struct Progress {
    /// Exclusive upper bound of timestamps, in trace time.
    limit: u64,
    /// End of the last closed window: earlier packets are late.
    closed: u64,
    /// Number of batches delivered and not yet counted.
    pending_batches: usize,
    /// Timestamp of the next packet, once known to be at or beyond the limit.
    blocked: Option<u64>,
    /// Whether the source has delivered its last packet.
    ended: bool,
    /// Timestamp of the latest packet counted.
    last: Option<u64>,
    /// Whether a worker died.
    failed: bool,
    interrupted: bool,
}

impl Progress {
    /// Returns the position of the traffic, unless something is still pending.
    fn settled(&self) -> Option<Advance> {
        if self.failed {
            return Some(Advance::Failed);
        }
        if self.pending_batches > 0 {
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
    /// Creates a gate with the limit zero, which no packet passes in trace time.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Gate {
            pace,
            lateness: AtomicU64::new(0),
            any_order: AtomicBool::new(false),
            held: AtomicBool::new(false),
            released_at: OnceLock::new(),
            first_due: OnceLock::new(),
            progress: Mutex::default(),
            changed: Condvar::new(),
            workers: Mutex::default(),
        }
    }

    /// Returns the driver of the limit.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Sets the reordering tolerance: before the source considers a time as passed, it reads ahead
    /// for out-of-order packets up to this much later. Must be called before the workers start; no
    /// effect in real time.
    pub fn set_lateness(&self, lateness: Duration) {
        self.lateness
            .store(u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the reordering tolerance, in nanoseconds; `None` for no tolerance.
    #[must_use]
    pub fn lateness(&self) -> Option<u64> {
        let lateness = self.lateness.load(Ordering::Relaxed);
        (self.pace == Pace::Trace && lateness > 0).then_some(lateness)
    }

    /// Lets workers count packets in any order, since no measurement depends on the order.
    pub(super) fn allow_any_order(&self) {
        self.any_order.store(true, Ordering::Relaxed);
    }

    /// Returns whether results are independent of the order of packets within a window.
    pub(super) fn allows_any_order(&self) -> bool {
        self.any_order.load(Ordering::Relaxed)
    }

    /// Makes workers count nothing until [`release`](Self::release). Must be called before they
    /// start; no effect in trace time, where the limit does so.
    pub(super) fn hold(&self) {
        self.held.store(self.pace != Pace::Trace, Ordering::Release);
    }

    /// Lets workers count after [`hold`](Self::hold). In real time the first packet is due from now
    /// on.
    pub(super) fn release(&self) {
        if self.is_held() {
            self.released_at.get_or_init(Instant::now);
            self.held.store(false, Ordering::Release);
        }
    }

    /// Returns whether workers wait for the start of the first window.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Closes every window before `time`, in nanoseconds. Earlier packets that are still to come
    /// are late.
    pub fn close(&self, time: u64) {
        let mut progress = lock(&self.progress);
        progress.closed = progress.closed.max(time);
    }

    /// Raises the limit, in nanoseconds, and waits until every packet with an earlier timestamp was
    /// counted. A lower limit than before has no effect.
    pub fn advance(&self, limit: u64) -> Advance {
        let mut progress = lock(&self.progress);
        if limit > progress.limit {
            progress.limit = limit;
            // If the next packet is beyond the new limit too, the source need not look again.
            progress.blocked = progress.blocked.filter(|&next| next >= limit);
        }
        if progress.blocked.is_none() {
            drop(progress);
            self.wake();
            progress = lock(&self.progress);
        }
        loop {
            if let Some(advance) = progress.settled() {
                return advance;
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the time in the trace: the limit or, after the last packet, the time just after it.
    /// `None` unless the pace is [`Pace::Trace`].
    #[must_use]
    pub fn trace_time(&self) -> Option<u64> {
        let progress = lock(&self.progress);
        let end = progress.last.map_or(0, |last| last.saturating_add(1));
        let now = if progress.ended { progress.limit.min(end) } else { progress.limit };
        (self.pace == Pace::Trace).then_some(now)
    }

    /// Returns whether the source is exhausted and all packets were counted.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let progress = lock(&self.progress);
        progress.ended && progress.pending_batches == 0
    }

    /// Wakes workers that wait for packets.
    pub fn wake(&self) {
        lock(&self.workers).iter().for_each(Thread::unpark);
    }

    /// Adds the thread of a worker, which [`wake`](Self::wake) then wakes.
    pub(super) fn add_worker(&self, worker: Thread) {
        lock(&self.workers).push(worker);
    }

    /// Notifies a waiting controller that a worker died.
    pub(super) fn fail(&self) {
        lock(&self.progress).failed = true;
        self.changed.notify_all();
    }

    /// Stops the traffic permanently and makes [`advance`](Self::advance) return.
    pub fn interrupt(&self) {
        lock(&self.progress).interrupted = true;
        self.changed.notify_all();
    }

    /// Returns the exclusive upper bound of timestamps. `first` is the timestamp of the source's
    /// first packet: in real time it is due at once.
    pub fn limit(&self, first: u64) -> u64 {
        match self.pace {
            Pace::Trace => {
                let progress = lock(&self.progress);
                if progress.interrupted { 0 } else { progress.limit }
            }
            Pace::Open => u64::MAX,
            Pace::RealTime => {
                let released_at = || *self.released_at.get_or_init(Instant::now);
                let (due, origin) = *self.first_due.get_or_init(|| (released_at(), first));
                let elapsed = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
                origin.saturating_add(elapsed).saturating_add(1)
            }
        }
    }

    /// Returns the range of timestamps that may be delivered. Earlier packets are late, since their
    /// window is closed. `first` as for [`limit`](Self::limit).
    pub fn range(&self, first: u64) -> TimeRange {
        let limit = self.limit(first);
        let closed = if self.pace == Pace::Trace { lock(&self.progress).closed } else { 0 };
        // After an interruption the range is empty.
        TimeRange::new(closed.min(limit), limit)
    }

    /// Registers a batch that is about to be counted. A source calls this before it lets other
    /// workers take the next batch.
    pub fn begin(&self) -> BatchGuard<'_> {
        lock(&self.progress).pending_batches += 1;
        BatchGuard { gate: self, last: None }
    }

    /// Registers that the next packet, at `next`, is at or beyond `limit`, a result of
    /// [`limit`](Self::limit).
    pub fn block(&self, next: u64, limit: u64) {
        let mut progress = lock(&self.progress);
        if progress.limit == limit {
            progress.blocked = Some(next);
            drop(progress);
            self.changed.notify_all();
        }
    }

    /// Registers the end of the source.
    pub fn end(&self) {
        lock(&self.progress).ended = true;
        self.changed.notify_all();
    }
}

/// Guard of a batch that is being counted; dropping it marks the batch as done.
#[derive(Debug)]
pub struct BatchGuard<'a> {
    gate: &'a Gate,
    /// Timestamp of its latest packet, in nanoseconds.
    pub last: Option<u64>,
}

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        let mut progress = lock(&self.gate.progress);
        progress.last = progress.last.max(self.last);
        progress.pending_batches -= 1;
        if thread::panicking() {
            // Set before any thread can consider this batch as counted.
            progress.failed = true;
        }
        // Wake the controller only when there is a result: with one worker, every batch ends here.
        if progress.settled().is_some() {
            drop(progress);
            self.gate.changed.notify_all();
        }
    }
}
