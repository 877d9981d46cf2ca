//! Clocks: what time it is for the controller, and how to wait.
//!
//! All times are nanoseconds since the Unix epoch, or since a trace's own origin.

use flowgauge_dataplane::poll::{Advance, Gate};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Why waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time has come.
    Reached,
    /// The operator wants an end.
    Interrupted,
    /// The trace is over; it ended at this time.
    Ended {
        /// Just behind the last packet, in nanoseconds.
        at: u64,
    },
    /// The traffic broke off: a worker died.
    Failed,
}

/// A clock to run a schedule by.
pub trait Clock {
    /// The time, in nanoseconds.
    fn now(&self) -> u64;

    /// Waits until `deadline`, in nanoseconds.
    fn wait_until(&mut self, deadline: u64) -> Woken;

    /// Waits before a failed call is repeated. No trace time passes.
    fn back_off(&mut self, delay: Duration);

    /// When the next packet is due, on a clock that can know.
    fn next_packet(&self) -> Option<u64> {
        None
    }

    /// How far the wall clock is from this one, in nanoseconds, on a clock that goes by it.
    fn drift(&self) -> i64 {
        0
    }

    /// Goes on as many nanoseconds later, or earlier.
    fn shift(&mut self, by: i64) {
        let _ = by;
    }

    /// Every window before `time` is closed: a packet from before it that is still to come is late.
    fn closed(&mut self, time: u64) {
        let _ = time;
    }
}

/// A request to end, from a signal handler or another thread.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<(Mutex<bool>, Condvar)>);

impl Interrupt {
    /// Asks for an end.
    pub fn trigger(&self) {
        let (triggered, changed) = &*self.0;
        *triggered.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Whether an end was asked for.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps, unless an end is asked for; says whether it was.
    fn sleep(&self, duration: Duration) -> bool {
        let (triggered, changed) = &*self.0;
        let guard = triggered.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = changed
            .wait_timeout_while(guard, duration, |triggered| !*triggered)
            .unwrap_or_else(PoisonError::into_inner);
        *guard
    }
}

/// Live time: a monotonic clock that is told how far it is from the wall clock, so that nothing
/// jumps by surprise.
#[derive(Debug)]
pub struct Wall {
    started: Instant,
    /// The time then, corrected since.
    started_unix_ns: u64,
    interrupt: Interrupt,
}

impl Wall {
    /// A clock that starts now.
    #[must_use]
    pub fn new(interrupt: Interrupt) -> Self {
        Wall { started: Instant::now(), started_unix_ns: unix_ns(), interrupt }
    }
}

fn unix_ns() -> u64 {
    nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl Clock for Wall {
    fn now(&self) -> u64 {
        self.started_unix_ns.saturating_add(nanoseconds(self.started.elapsed()))
    }

    fn wait_until(&mut self, deadline: u64) -> Woken {
        let left = Duration::from_nanos(deadline.saturating_sub(self.now()));
        if self.interrupt.sleep(left) { Woken::Interrupted } else { Woken::Reached }
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

/// Trace time: waiting until `t` means counting every packet with a timestamp before `t`. It begins
/// at the earliest timestamp among the packets that the gate's lateness makes the source look at
/// first.
///
/// A 22-minute experiment replays in seconds and is repeatable to the bit.
#[derive(Debug)]
pub struct Trace {
    gate: Arc<Gate>,
    now: u64,
    next_packet: Option<u64>,
}

impl Trace {
    /// A clock at the first packet behind `gate`, whose workers must be running.
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

    fn wait_until(&mut self, deadline: u64) -> Woken {
        match self.gate.advance(deadline) {
            Advance::Reached { next } => {
                self.now = self.now.max(deadline);
                self.next_packet = Some(next);
                Woken::Reached
            }
            Advance::Ended { last } => {
                self.next_packet = None;
                self.now = self.now.max(last.map_or(0, |last| last.saturating_add(1)));
                Woken::Ended { at: self.now }
            }
            Advance::Failed => Woken::Failed,
            Advance::Interrupted { last } => {
                self.now = self.now.max(last.map_or(0, |last| last.saturating_add(1)));
                Woken::Interrupted
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

/// Virtual time: waiting takes none. Clones share one time, so that a test can let it pass
/// elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Virtual(Arc<Mutex<u64>>, Arc<Mutex<Vec<(u64, i64)>>>);

impl Virtual {
    /// A clock at `now` nanoseconds.
    #[must_use]
    pub fn at(now: u64) -> Self {
        Virtual(Arc::new(Mutex::new(now)), Arc::default())
    }

    /// Sets the wall clock when this one comes to a time, once for each.
    #[must_use]
    pub fn stepping(self, steps: &[(u64, i64)]) -> Self {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = steps.to_vec();
        self
    }

    /// Lets time pass.
    pub fn advance(&self, nanoseconds: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += nanoseconds;
    }
}

impl Clock for Virtual {
    fn now(&self) -> u64 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&mut self, deadline: u64) -> Woken {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = deadline.max(*now);
        Woken::Reached
    }

    fn back_off(&mut self, delay: Duration) {
        self.advance(nanoseconds(delay));
    }

    fn drift(&self) -> i64 {
        let steps = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        steps.first().filter(|(at, _)| *at <= self.now()).map_or(0, |(_, by)| *by)
    }

    fn shift(&mut self, by: i64) {
        let mut steps = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.first().is_some_and(|(_, step)| *step == by) {
            steps.remove(0);
        }
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.saturating_add_signed(by);
    }
}

/// A duration in nanoseconds; 584 years at most.
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
