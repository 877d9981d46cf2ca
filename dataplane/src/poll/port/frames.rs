//! Port for frames supplied by the embedding program, and for tests that know every packet.

use super::{Port, PortFrame, PortSource, Ports, Received, Worker};
use crate::poll::gate::{Gate, Pace};
use crossbeam::channel::{Receiver, Sender, TryRecvError, unbounded};
use crossbeam::sync::WaitGroup;
use flowgauge_core::Link;
use std::sync::Arc;

/// A frame that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedFrame {
    /// The captured bytes.
    pub bytes: Vec<u8>,
    /// Length on the wire, in bytes.
    pub wire_length: u32,
    /// Time of arrival, in nanoseconds.
    pub timestamp: u64,
    /// Link layer.
    pub link: Link,
}

impl OwnedFrame {
    /// Creates a completely captured Ethernet frame.
    #[must_use]
    pub fn ethernet(bytes: Vec<u8>) -> Self {
        OwnedFrame { wire_length: bytes.len() as u32, bytes, timestamp: 0, link: Link::Ethernet }
    }
}

struct Batch {
    frames: Arc<[OwnedFrame]>,
    _done: WaitGroup,
}

struct Shared;

impl PortSource for Shared {}

/// Creates ports that take batches from an [`Injector`]; each batch goes to any idle worker.
#[must_use]
pub fn frames(workers: usize) -> (Injector, Ports<FramesPort>) {
    let (sender, receiver) = unbounded();
    let gate = Arc::new(Gate::new(Pace::Open));
    let port = || FramesPort { batches: receiver.clone(), gate: Arc::clone(&gate) };
    let ports = (0..workers).map(|_| port()).collect();
    let injector = Injector { batches: sender, gate: Arc::clone(&gate) };
    (injector, Ports { ports, source: Arc::new(Shared), gate, interface: "frames".to_owned() })
}

/// Sending end; dropping it ends the traffic.
pub struct Injector {
    batches: Sender<Batch>,
    gate: Arc<Gate>,
}

impl Injector {
    /// Queues frames and returns at once.
    pub fn send(&self, frames: impl Into<Arc<[OwnedFrame]>>) {
        self.send_watched(frames.into(), WaitGroup::new());
    }

    /// Queues frames and waits until they were counted.
    pub fn feed(&self, frames: impl Into<Arc<[OwnedFrame]>>) {
        let done = WaitGroup::new();
        self.send_watched(frames.into(), done.clone());
        done.wait();
    }

    fn send_watched(&self, frames: Arc<[OwnedFrame]>, done: WaitGroup) {
        // Without workers the batch is returned, and dropping it lets `feed` return.
        let _ = self.batches.send(Batch { frames, _done: done });
        self.gate.wake();
    }
}

/// One worker's receiving end.
pub struct FramesPort {
    batches: Receiver<Batch>,
    gate: Arc<Gate>,
}

impl Port for FramesPort {
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let batch = match self.batches.try_recv() {
            Ok(batch) => batch,
            Err(TryRecvError::Empty) => return Received::Idle,
            Err(TryRecvError::Disconnected) => {
                self.gate.end();
                return Received::Ended;
            }
        };
        for OwnedFrame { bytes, wire_length, timestamp, link } in batch.frames.iter() {
            sink(PortFrame {
                bytes,
                wire_length: *wire_length,
                timestamp: *timestamp,
                link: *link,
            });
        }
        Received::Frames
    }

    fn is_drained(&self) -> bool {
        self.batches.is_empty()
    }

    // Instantiated by the crate that uses it: other programs, and tests.
    #[inline]
    fn work(self, worker: Worker) {
        worker.run(self);
    }
}
