//! Port on generated traffic, in memory.

use super::{Duty, Frame, Port, Ports, Received, Source};
use crate::poll::gate::{Busy, Gate, Pace};
use crate::traffic::{Generator, Profile};
use flowgauge_core::Link;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Packets that a worker claims at once. Claims of several workers exclude each other.
const BATCH: u64 = 4096;
/// Packets that are generated at once: frames of 64 bytes fit the first-level cache.
const POOL: usize = 256;

struct Shared {
    /// Number of the next packet.
    next: Mutex<u64>,
    gate: Arc<Gate>,
    profile: Profile,
}

impl Source for Shared {
    fn progress(&self) -> Option<(u64, u64)> {
        let done = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.profile.packets.map(|packets| (done, packets))
    }
}

/// Creates ports that share the packets of one profile among `workers`.
#[must_use]
pub fn memory(profile: Profile, workers: usize, pace: Pace) -> Ports<MemoryPort> {
    let pace = if profile.rate.is_none() { Pace::Open } else { pace };
    let gate = Arc::new(Gate::new(pace));
    let interface = format!("memory:{profile}");
    let generator = Generator::new(profile.clone());
    let shared = Arc::new(Shared { next: Mutex::new(0), gate: Arc::clone(&gate), profile });
    let port = || MemoryPort {
        pool: generator.template().repeat(POOL),
        generator: generator.clone(),
        shared: Arc::clone(&shared),
    };
    Ports {
        ports: (0..workers).map(|_| port()).collect(),
        source: Arc::clone(&shared) as Arc<dyn Source>,
        gate,
        interface,
    }
}

/// One worker's share of generated traffic.
pub struct MemoryPort {
    generator: Generator,
    /// Frames, rewritten in place so that they stay in the cache.
    pool: Vec<u8>,
    shared: Arc<Shared>,
}

enum Claim<'a> {
    Packets(Range<u64>, Busy<'a>),
    Nothing(Received),
}

impl Shared {
    fn claim(&self) -> Claim<'_> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *next;
        let left = self.profile.packets.map_or(u64::MAX, |packets| packets.saturating_sub(first));
        if left == 0 {
            self.gate.end();
            return Claim::Nothing(Received::Ended);
        }
        let limit = self.gate.limit(0);
        let mut batch = left.min(BATCH);
        if self.profile.timestamp(first + batch - 1) >= limit {
            let due = |count: &u64| self.profile.timestamp(first + count - 1) < limit;
            batch = partition_point(batch, due);
        }
        if batch == 0 {
            self.gate.block(self.profile.timestamp(first), limit);
            return Claim::Nothing(Received::Idle);
        }
        *next += batch;
        let mut busy = self.gate.begin();
        busy.last = Some(self.profile.timestamp(*next - 1));
        Claim::Packets(first..*next, busy)
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
    fn receive(&mut self, sink: &mut impl FnMut(Frame<'_>)) -> Received {
        let (packets, _busy) = match self.shared.claim() {
            Claim::Packets(packets, busy) => (packets, busy),
            Claim::Nothing(received) => return received,
        };
        let length = self.generator.frame_length();
        for first in packets.clone().step_by(POOL) {
            let count = (packets.end - first).min(POOL as u64) as usize;
            let frames = &mut self.pool[..count * length];
            self.generator.fill_all(first, frames);
            for (index, bytes) in (first..).zip(frames.chunks_exact(length)) {
                let timestamp = self.shared.profile.timestamp(index);
                sink(Frame { bytes, wire_length: length as u32, timestamp, link: Link::Ethernet });
            }
        }
        Received::Frames
    }

    fn work(self, duty: Duty) {
        duty.run(self);
    }
}
