//! Port that measures its worker's time.
//!
//! The clock is read after empty polls and after the first poll with packets: a worker that never
//! runs out of packets never reads it.

use super::cpu;
use super::meter::{LoadMeter, WorkerActivity, increase};
use super::port::{Port, PortFrame, Received};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Port that accounts for its worker's time.
pub(super) struct TimedPort<P> {
    port: P,
    meter: Arc<LoadMeter>,
    /// Time up to which time was accounted for.
    accounted: Instant,
    /// Consecutive polls that found packets, at most two.
    streak: u8,
}

impl<P: Port> TimedPort<P> {
    /// Creates the port, in the worker's thread; accounting starts now.
    pub(super) fn new(port: P, meter: Arc<LoadMeter>) -> Self {
        let now = Instant::now();
        meter.thread.store(cpu::thread_number(), Ordering::Relaxed);
        let accounted = *meter.started.get_or_init(|| now);
        TimedPort { port, meter, accounted, streak: 0 }
    }

    fn account(&mut self, doing: WorkerActivity) {
        let now = Instant::now();
        self.meter.add(doing, now - self.accounted);
        self.accounted = now;
    }

    #[inline]
    fn found_packets(&mut self) {
        increase(&self.meter.batches, 1);
        if self.streak == 0 {
            self.account(WorkerActivity::WithPackets);
            self.meter.begin(WorkerActivity::WithPackets);
        }
        self.streak = 2.min(self.streak + 1);
    }

    fn found_nothing(&mut self) {
        // The first busy poll is already accounted for; only this one remains.
        self.account(if self.streak > 1 {
            WorkerActivity::WithPackets
        } else {
            WorkerActivity::Polling
        });
        if self.streak > 0 {
            self.meter.begin(WorkerActivity::Polling);
            self.streak = 0;
        }
    }
}

impl<P: Port> TimedPort<P> {
    #[inline(always)]
    pub(super) fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let received = self.port.receive(sink);
        match received {
            Received::Frames => self.found_packets(),
            Received::Idle | Received::Ended => self.found_nothing(),
        }
        received
    }

    pub(super) fn wait(&mut self, most: Duration) {
        self.meter.begin(WorkerActivity::Asleep);
        self.port.wait(most);
        self.account(WorkerActivity::Asleep);
        self.meter.begin(WorkerActivity::Polling);
    }
}
