//! Port on frames in memory that are a function of their number.

use super::{Port, PortFrame, PortSource, Ports, Received, Worker};
use crate::poll::gate::{BatchGuard, Gate, Pace};
use crate::poll::threads::lock;
use flowgauge_core::Link;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Packets that a worker claims at once. Claims of several workers exclude each other.
const BATCH: u64 = 4096;
/// Packets that are generated at once: frames of 64 bytes fit the first-level cache.
const POOL: usize = 256;

/// Frames that are a function of their number, all of one length.
pub trait NumberedFrames: Send + Sync {
    /// Returns the name of the source in outputs.
    fn name(&self) -> String;

    /// Returns the number of frames; `None` if there is no end.
    fn packets(&self) -> Option<u64>;

    /// Returns whether frames have times. Without, they are counted as fast as possible.
    fn is_timed(&self) -> bool;

    /// Returns the time of a frame, in nanoseconds; no earlier than that of the frame before.
    fn timestamp(&self, index: u64) -> u64;

    /// Returns a frame for [`fill`](Self::fill).
    fn template(&self) -> &[u8];

    /// Turns consecutive templates, or earlier frames, into frame `first` and the following ones,
    /// and writes their times.
    fn fill(&self, first: u64, frames: &mut [u8], timestamps: &mut [u64]);
}

struct Shared {
    /// Number of the next packet.
    next: Mutex<u64>,
    gate: Arc<Gate>,
    frames: Arc<dyn NumberedFrames>,
}

impl PortSource for Shared {
    fn progress(&self) -> Option<(u64, u64)> {
        let done = *lock(&self.next);
        self.frames.packets().map(|packets| (done, packets))
    }
}

/// Creates ports that share the frames among `workers`.
#[must_use]
pub fn memory(frames: Arc<dyn NumberedFrames>, workers: usize, pace: Pace) -> Ports<MemoryPort> {
    let pace = if frames.is_timed() { pace } else { Pace::Open };
    let gate = Arc::new(Gate::new(pace));
    let interface = frames.name();
    let shared = Arc::new(Shared { next: Mutex::new(0), gate: Arc::clone(&gate), frames });
    let port = || MemoryPort {
        pool: shared.frames.template().repeat(POOL),
        timestamps: [0; POOL],
        shared: Arc::clone(&shared),
    };
    Ports {
        ports: (0..workers).map(|_| port()).collect(),
        source: Arc::clone(&shared) as Arc<dyn PortSource>,
        gate,
        interface,
    }
}

/// One worker's share of the frames.
pub struct MemoryPort {
    /// Frames, rewritten in place so that they stay in the cache.
    pool: Vec<u8>,
    timestamps: [u64; POOL],
    shared: Arc<Shared>,
}

impl Shared {
    /// Takes the numbers of the next frames.
    fn claim(&self) -> Result<(Range<u64>, BatchGuard<'_>), Received> {
        let mut next = lock(&self.next);
        let first = *next;
        let left = self.frames.packets().map_or(u64::MAX, |packets| packets.saturating_sub(first));
        if left == 0 {
            self.gate.end();
            return Err(Received::Ended);
        }
        let limit = self.gate.limit(0);
        let mut batch = left.min(BATCH);
        if self.frames.timestamp(first + batch - 1) >= limit {
            let due = |count: &u64| self.frames.timestamp(first + count - 1) < limit;
            batch = partition_point(batch, due);
        }
        if batch == 0 {
            self.gate.block(self.frames.timestamp(first), limit);
            return Err(Received::Idle);
        }
        *next += batch;
        let mut busy = self.gate.begin();
        busy.last = Some(self.frames.timestamp(*next - 1));
        Ok((first..*next, busy))
    }
}

/// Returns the largest count in `0..=most` for which `holds`, given that it holds up to some count
/// and not beyond.
fn partition_point(most: u64, holds: impl Fn(&u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if holds(&middle) { low = middle } else { high = middle - 1 }
    }
    low
}

impl Port for MemoryPort {
    #[inline(always)]
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let (packets, _busy) = match self.shared.claim() {
            Ok(claimed) => claimed,
            Err(nothing) => return nothing,
        };
        let generated = &*self.shared.frames;
        let length = self.pool.len() / POOL;
        for first in packets.clone().step_by(POOL) {
            let count = (packets.end - first).min(POOL as u64) as usize;
            let (frames, timestamps) =
                (&mut self.pool[..count * length], &mut self.timestamps[..count]);
            generated.fill(first, frames, timestamps);
            for (bytes, &timestamp) in frames.chunks_exact(length).zip(&*timestamps) {
                sink(PortFrame {
                    bytes,
                    wire_length: length as u32,
                    timestamp,
                    link: Link::Ethernet,
                });
            }
        }
        Received::Frames
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}
