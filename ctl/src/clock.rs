//! Clocks of the controller: they return the time, and wait.
//!
//! All times are nanoseconds since the Unix epoch, or since a trace's own origin.

use flowgauge_dataplane::poll::{Advance, Gate};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Reason for the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// The deadline was reached.
    Reached,
    /// The operator requested the end of the run.
    Interrupted,
    /// The trace is over: the time is just after its last packet.
    Ended,
    /// A worker died.
    Failed,
}

/// A clock that drives a schedule.
pub trait Clock {
    /// Returns the time, in nanoseconds.
    fn now(&self) -> u64;

    /// Waits until `deadline`, in nanoseconds.
    fn wait_until(&mut self, deadline: u64) -> WakeReason;

    /// Waits before a failed call is repeated. No trace time passes.
    fn back_off(&mut self, delay: Duration);

    /// Returns the time of the next packet, on a clock that knows it.
    fn next_packet(&self) -> Option<u64> {
        None
    }

    /// Returns the offset of the wall clock from this one, in nanoseconds, on a clock that follows
    /// it.
    fn drift(&self) -> i64 {
        0
    }

    /// Moves the clock by some nanoseconds, forward or back.
    fn shift(&mut self, by: i64) {
        let _ = by;
    }

    /// Announces that every window before `time` is closed: earlier packets that still arrive are
    /// late.
    fn closed(&mut self, time: u64) {
        let _ = time;
    }
}

/// A request to end, from a signal handler or another thread.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<(Mutex<bool>, Condvar)>);

impl Interrupt {
    /// Requests the end.
    pub fn trigger(&self) {
        let (triggered, changed) = &*self.0;
        *triggered.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Whether the end was requested.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the end is requested, for at most `duration`. Returns whether it was requested.
    fn sleep(&self, duration: Duration) -> bool {
        let (triggered, changed) = &*self.0;
        let guard = triggered.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = changed
            .wait_timeout_while(guard, duration, |triggered| !*triggered)
            .unwrap_or_else(PoisonError::into_inner);
        *guard
    }
}

/// Live time: a monotonic clock. The controller compares it with the wall clock and corrects it by
/// [`Clock::shift`], so that the time never jumps by itself.
#[derive(Debug)]
pub struct Wall {
    started: Instant,
    /// Unix time at `started`, with later corrections.
    started_unix_ns: u64,
    interrupt: Interrupt,
}

impl Wall {
    /// Starts a clock at the current time.
    #[must_use]
    pub fn new(interrupt: Interrupt) -> Self {
        Wall { started: Instant::now(), started_unix_ns: unix_ns(), interrupt }
    }
}

/// Returns the time of the wall clock.
pub(crate) fn unix_ns() -> u64 {
    nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl Clock for Wall {
    fn now(&self) -> u64 {
        self.started_unix_ns.saturating_add(nanoseconds(self.started.elapsed()))
    }

    fn wait_until(&mut self, deadline: u64) -> WakeReason {
        let left = Duration::from_nanos(deadline.saturating_sub(self.now()));
        if self.interrupt.sleep(left) { WakeReason::Interrupted } else { WakeReason::Reached }
    }

    fn back_off(&mut self, delay: Duration) {
        self.interrupt.sleep(delay);
    }

    fn drift(&self) -> i64 {
        unix_ns().wrapping_sub(self.now()) as i64
    }

    fn shift(&mut self, by: i64) {
        self.started_unix_ns = self.started_unix_ns.saturating_add_signed(by);
    }
}

/// Trace time: waiting until `t` counts every packet with a timestamp before `t`. It begins at the
/// earliest timestamp among the packets that the source examines first, which the gate's lateness
/// determines.
///
/// A 22-minute experiment replays in seconds and is repeatable to the bit.
#[derive(Debug)]
pub struct Trace {
    gate: Arc<Gate>,
    now: u64,
    next_packet: Option<u64>,
}

impl Trace {
    /// Creates a clock at the first packet that `gate` limits. Its workers must be running.
    #[must_use]
    pub fn new(gate: Arc<Gate>) -> Self {
        let next_packet = match gate.advance(0) {
            Advance::Reached { next } => Some(next),
            Advance::Ended { .. } | Advance::Failed | Advance::Interrupted { .. } => None,
        };
        Trace { gate, now: next_packet.unwrap_or(0), next_packet }
    }
}

impl Clock for Trace {
    fn now(&self) -> u64 {
        self.now
    }

    fn wait_until(&mut self, deadline: u64) -> WakeReason {
        match self.gate.advance(deadline) {
            Advance::Reached { next } => {
                self.now = self.now.max(deadline);
                self.next_packet = Some(next);
                WakeReason::Reached
            }
            Advance::Ended { last } => {
                self.next_packet = None;
                self.now = self.now.max(last.map_or(0, |last| last.saturating_add(1)));
                WakeReason::Ended
            }
            Advance::Failed => WakeReason::Failed,
            Advance::Interrupted { last } => {
                self.now = self.now.max(last.map_or(0, |last| last.saturating_add(1)));
                WakeReason::Interrupted
            }
        }
    }

    fn back_off(&mut self, _: Duration) {}

    fn next_packet(&self) -> Option<u64> {
        self.next_packet
    }

    fn closed(&mut self, time: u64) {
        self.gate.close(time);
    }
}

/// Converts a duration to nanoseconds, saturated at 584 years.
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
