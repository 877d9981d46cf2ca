//! DPDK's software devices, in this process.

use crate::common::devices::wrapped;
use flowgauge_dataplane::poll::port::{Port, PortFrame, Ports, Received, Worker};
use flowgauge_dpdk::{Device, Eal, Error, Queues, SendQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// DPDK arguments without cards, hugepages, files and sockets.
pub(crate) const EAL: &str = "--no-pci --no-huge --no-shconf --no-telemetry -m 1024 --lcores=0";

pub(crate) fn eal() -> Eal {
    let arguments: Vec<&str> = EAL.split(' ').collect();
    Eal::start_once(&arguments).unwrap()
}

/// Returns a number that no device of this process has used.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Opens a device: `driver`, a unique number, and options.
pub(crate) fn open(driver: &str, options: &str, queues: Queues) -> Result<Device, Error> {
    Device::open(&eal(), &format!("{driver}{}{options}", number()), queues)
}

/// Port that publishes how many frames were counted.
pub(crate) struct Counted<P> {
    port: P,
    frames: Arc<AtomicU64>,
}

impl<P: Port> Port for Counted<P> {
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let mut frames = 0;
        let received = self.port.receive(&mut |frame| {
            sink(frame);
            frames += 1;
        });
        // The worker answers after this: the number is included in its next answer.
        self.frames.fetch_add(frames, Ordering::Release);
        received
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

/// Wraps ports, and returns the number of their counted frames.
pub(crate) fn counted<P: Port>(ports: Ports<P>) -> (Ports<Counted<P>>, Arc<AtomicU64>) {
    let frames = Arc::<AtomicU64>::default();
    let ports = wrapped(ports, |port| Counted { port, frames: Arc::clone(&frames) });
    (ports, frames)
}

/// Sends the whole batch, however long the device takes.
pub(crate) fn flush(queue: &mut SendQueue) {
    while queue.waiting() > 0 {
        if queue.flush() == 0 {
            thread::yield_now();
        }
    }
}
