//! Tests of the controller and of estimates on captures.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod controller;
mod delay;
mod delay_loads;
mod entropy;
mod rates;
mod tcpdump;

use flowgauge_ctl::clock::{Clock, Trace, WakeReason, nanoseconds};
use flowgauge_ctl::controller::{Controller, Plan, Sink};
use flowgauge_ctl::record::Record;
use flowgauge_dataplane::capture::build::CapturePacket;
use flowgauge_dataplane::poll::port::pcap_reader;
use flowgauge_dataplane::poll::{Options, Pace, Poll};
use flowgauge_testing::frames::pcap;
use std::io::{self, Cursor};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Virtual time: waiting takes no real time. Clones share one time, so that a test can advance it.
#[derive(Clone, Debug, Default)]
struct Virtual(Arc<Mutex<u64>>, Arc<Mutex<Vec<(u64, i64)>>>);

impl Virtual {
    /// Creates a clock at `now` nanoseconds.
    fn at(now: u64) -> Self {
        Virtual(Arc::new(Mutex::new(now)), Arc::default())
    }

    /// Schedules steps of the wall clock: each pair is the time on this clock and the step in
    /// nanoseconds.
    fn stepping(self, steps: &[(u64, i64)]) -> Self {
        *self.1.lock().unwrap() = steps.to_vec();
        self
    }

    /// Advances the time.
    fn advance(&self, nanoseconds: u64) {
        *self.0.lock().unwrap() += nanoseconds;
    }
}

impl Clock for Virtual {
    fn now(&self) -> u64 {
        *self.0.lock().unwrap()
    }

    fn wait_until(&mut self, deadline: u64) -> WakeReason {
        let mut now = self.0.lock().unwrap();
        *now = deadline.max(*now);
        WakeReason::Reached
    }

    fn back_off(&mut self, delay: Duration) {
        self.advance(nanoseconds(delay));
    }

    fn drift(&self) -> i64 {
        let steps = self.1.lock().unwrap();
        steps.first().filter(|(at, _)| *at <= self.now()).map_or(0, |(_, by)| *by)
    }

    fn shift(&mut self, by: i64) {
        let mut steps = self.1.lock().unwrap();
        if steps.first().is_some_and(|(_, step)| *step == by) {
            steps.remove(0);
        }
        let mut now = self.0.lock().unwrap();
        *now = now.saturating_add_signed(by);
    }
}

/// Virtual clock whose waits a function makes.
struct Hooked<F: FnMut(&mut Virtual, u64) -> WakeReason>(Virtual, F);

impl<F: FnMut(&mut Virtual, u64) -> WakeReason> Clock for Hooked<F> {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn wait_until(&mut self, deadline: u64) -> WakeReason {
        (self.1)(&mut self.0, deadline)
    }

    fn back_off(&mut self, delay: Duration) {
        self.0.back_off(delay);
    }
}

/// Sink that passes each record to a function.
struct Each<F: FnMut(&Record) -> io::Result<()>>(F);

impl<F: FnMut(&Record) -> io::Result<()>> Sink for Each<F> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        (self.0)(record)
    }
}

/// Returns a capture of empty frames with these timestamps.
fn capture_of(times: &[u64]) -> Vec<u8> {
    let packet = |&time: &u64| CapturePacket::new(time, vec![0; 60]);
    pcap(&times.iter().map(packet).collect::<Vec<_>>())
}

/// Returns the poll backend of a capture in trace time.
fn replaying(capture: &[u8], workers: usize, options: Options) -> Poll {
    let capture = Cursor::new(capture.to_vec());
    Poll::new(pcap_reader(capture, "trace", workers, Pace::Trace).unwrap(), options)
}

/// Starts a controller in trace time.
fn start_in_trace_time(poll: Poll, plan: Plan) -> Controller {
    let gate = poll.gate();
    Controller::start(poll, plan, || Trace::new(gate)).unwrap()
}
