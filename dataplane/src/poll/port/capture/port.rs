//! Workers of a capture port.
//!
//! The walk passes from chunk to chunk in turn, while workers read and count chunks in parallel. A
//! worker whose walk no one is waiting for counts as it walks. Packets that were
//! [buffered](super::reorder) at the end of a window are counted first, by all workers if order is
//! irrelevant.

use super::buffer::Buffer;
use super::input::{Chunk, Input};
use super::order::{RecordWalk, WalkEnd};
use super::reorder::ChunkRange;
use crate::capture::{PacketRecord, link_type, open};
use crate::losses::{LossCause, Losses};
use crate::poll::gate::{BatchGuard, Gate};
use crate::poll::port::{Port, PortFrame, PortSource, Ports, Received, Worker};
use crate::poll::threads::lock;
use crossbeam::queue::SegQueue;
use flowgauge_core::Link;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Bytes that a worker counts between checks whether another one is waiting for its turn.
const BLOCK: usize = 1 << 18;
/// Checks of a worker for its turn before it sleeps.
const TURN_SPINS: u32 = 2000;

/// Creates ports on an input for `workers`.
pub(super) fn ports(input: Input, workers: usize, gate: Arc<Gate>) -> Ports<PcapPort> {
    let interface = input.path.display().to_string();
    let walk = RecordWalk::new(input.witnesses, input.unit_ns);
    let shared = Arc::new(Shared {
        input,
        gate: Arc::clone(&gate),
        turn: AtomicU64::new(0),
        read: AtomicU64::new(0),
        workers,
        released: SegQueue::new(),
        spare: SegQueue::new(),
        walk: Mutex::new(walk),
    });
    let port = || PcapPort { shared: Arc::clone(&shared), chunk: Chunk::default() };
    Ports {
        ports: (0..workers).map(|_| port()).collect(),
        source: Arc::clone(&shared) as Arc<dyn PortSource>,
        gate,
        interface,
    }
}

/// One worker's port on a capture.
pub struct PcapPort {
    shared: Arc<Shared>,
    chunk: Chunk,
}

struct Shared {
    input: Input,
    gate: Arc<Gate>,
    /// Number of the chunk that may be walked.
    turn: AtomicU64,
    /// Highest number of a chunk that was read.
    read: AtomicU64,
    workers: usize,
    /// Buffered packets that are now due, to be counted before anything else: by any idle worker,
    /// or by the worker whose turn it is if order matters. Only that worker adds to the queue.
    released: SegQueue<ChunkRange>,
    /// Chunks whose buffered packets were counted, for reuse: the kernel would have to zero new
    /// memory.
    spare: SegQueue<Buffer>,
    walk: Mutex<RecordWalk>,
}

impl Shared {
    /// Returns the packets that a worker is to count next; `chunk` is the worker's own.
    fn due(&self, chunk: &mut Chunk) -> Result<(ChunkRange, BatchGuard<'_>), Received> {
        if let Some(due) = self.take_released(chunk.index) {
            return Ok(due);
        }
        let index = match chunk.index {
            Some(index) => index,
            None => self.read_chunk(chunk)?,
        };
        self.read.fetch_max(index, Ordering::Relaxed);
        let mut spins = 0;
        while self.turn.load(Ordering::Acquire) != index {
            if let Some(due) = self.take_released(None) {
                return Ok(due);
            }
            if spins == TURN_SPINS {
                let ended = lock(&self.walk).ended;
                return Err(if ended { Received::Ended } else { Received::Idle });
            }
            spins += 1;
            std::hint::spin_loop();
        }
        self.walk_chunk(chunk, index)
    }

    /// Takes a part of the released packets, unless it is reserved for another worker than that of
    /// chunk `index`. It is registered with the gate before it is taken: when the queue is empty,
    /// the gate knows all uncounted packets.
    fn take_released(&self, index: Option<u64>) -> Option<(ChunkRange, BatchGuard<'_>)> {
        let is_turn = || index == Some(self.turn.load(Ordering::Acquire));
        if self.released.is_empty() || !(self.gate.allows_any_order() || is_turn()) {
            return None;
        }
        let mut busy = self.gate.begin();
        let segment = self.released.pop()?;
        busy.last = segment.last();
        Some((segment, busy))
    }

    /// Reads the next chunk and returns its number.
    fn read_chunk(&self, chunk: &mut Chunk) -> Result<u64, Received> {
        let mut walk = lock(&self.walk);
        if walk.ended {
            return Err(Received::Ended);
        }
        if Arc::strong_count(&chunk.buffer) > 1 {
            walk.buffered.settle();
        }
        drop(walk);
        if Arc::strong_count(&chunk.buffer) > 1 {
            chunk.buffer = Arc::new(self.spare.pop().unwrap_or_default());
        }
        self.input.read(chunk).then_some(chunk.index).flatten().ok_or(Received::Idle)
    }

    /// Walks over the chunk whose turn it is.
    fn walk_chunk(
        &self,
        chunk: &mut Chunk,
        index: u64,
    ) -> Result<(ChunkRange, BatchGuard<'_>), Received> {
        let began = *chunk.turn_began.get_or_insert_with(Instant::now);
        let mut walk = lock(&self.walk);
        if walk.ended {
            return Err(Received::Ended);
        }
        // Counting finds the ends of packets without a separate walk, but one chunk after the
        // other. That is free as long as it takes less time than the others need to read their next
        // chunks.
        let others = self.workers as u32 - 1;
        let is_waited_for =
            self.read.load(Ordering::Relaxed) > index && began.elapsed() * others > chunk.reading;
        let block = if others == 0 { usize::MAX } else { BLOCK };
        let (outcome, segment) = walk.advance(&self.gate, chunk, (!is_waited_for).then_some(block));
        let mut busy = self.gate.begin();
        busy.last = segment.last();
        let (mut nothing, mut wakes) = (Received::Frames, false);
        match outcome {
            WalkEnd::Blocked { next, limit } => {
                self.gate.block(next, limit);
                nothing = Received::Idle;
            }
            WalkEnd::More => {}
            WalkEnd::Released(segments) => {
                segments.into_iter().for_each(|segment| self.released.push(segment));
                wakes = true;
            }
            WalkEnd::Done => {
                chunk.index = None;
                self.turn.store(index + 1, Ordering::Release);
                wakes = true;
            }
            WalkEnd::Ended => {
                walk.ended = true;
                self.gate.end();
                (nothing, wakes) = (Received::Ended, true);
            }
        }
        drop(walk);
        if wakes && self.workers > 1 {
            self.gate.wake();
        }
        if segment.is_empty() { Err(nothing) } else { Ok((segment, busy)) }
    }
}

impl Port for PcapPort {
    // In each of the worker's loops, so that a loop keeps its variables in registers.
    #[inline(always)]
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let Self { shared, chunk } = self;
        let (segment, mut busy) = match shared.due(chunk) {
            Ok(due) => due,
            Err(nothing) => return nothing,
        };
        let mut packets = segment.packets();
        let mut plain = match segment.unwalked {
            Some(range) => packets.take_plain().within(range),
            None => packets.take_plain(),
        };
        // A dynamic call for each, so that the hot loop, which nearly always has plain frames,
        // keeps its variables in registers.
        let others: &mut dyn Iterator<Item = (PacketRecord, &[u8])> = &mut packets;
        let mut unsupported = BTreeMap::new();
        // One loop with one call, so that the sink is inlined; passed in parts, a frame need not be
        // in memory.
        loop {
            let (bytes, wire_length, timestamp, link) = match plain.next() {
                Some((record, bytes)) => (bytes, record.wire, record.timestamp, Link::Ethernet),
                None => {
                    let Some((record, bytes)) = others.next() else { break };
                    let (link, bytes) = match record.link {
                        Link::Unsupported => opened(record.link_type, bytes, &mut unsupported),
                        link => (link, bytes),
                    };
                    (bytes, record.wire, record.timestamp, link)
                }
            };
            sink(PortFrame { bytes, wire_length, timestamp, link });
        }
        if !unsupported.is_empty() {
            let mut walk = lock(&shared.walk);
            for (link_type, packets) in unsupported {
                *walk.unsupported.entry(link_type).or_default() += packets;
            }
        }
        if segment.unwalked.is_some() {
            let (left, taken) = plain.left();
            let consumed = segment.place.len() - left;
            chunk.position += consumed;
            busy.last = busy.last.max(Some(taken.latest));
            lock(&shared.walk).walker.took(consumed, taken.packets);
        }
        if let Some(room) = Arc::into_inner(segment.buffer).filter(Buffer::has_room) {
            shared.spare.push(room);
        }
        Received::Frames
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

/// Returns the link layer and bytes of a frame whose link type needs decoding; counts unknown types
/// in `unsupported`.
// Out of the hot loop, which nearly always reads Ethernet.
#[cold]
#[inline(never)]
fn opened<'a>(
    link_type: u16,
    frame: &'a [u8],
    unsupported: &mut BTreeMap<u16, u64>,
) -> (Link, &'a [u8]) {
    open(link_type, frame).unwrap_or_else(|| {
        *unsupported.entry(link_type).or_insert(0) += 1;
        (Link::Unsupported, frame)
    })
}

impl PortSource for Shared {
    fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        let walk = lock(&self.walk);
        let drops = match &self.input.drops {
            Some(drops) => drops.load(Ordering::Relaxed),
            None => walk.walker.drops(),
        };
        losses.add(LossCause::Capture, drops);
        losses.add(LossCause::Late, walk.late);
        losses
    }

    fn warnings(&self) -> Vec<String> {
        let ended = self.gate.has_ended();
        let path = self.input.path.display();
        let mut walk = lock(&self.walk);
        let mut warnings: Vec<String> =
            walk.warnings.drain(..).map(|warning| format!("{path}: {warning}")).collect();
        warnings.append(&mut lock(&self.input.warnings));
        if ended {
            warnings.extend(std::mem::take(&mut walk.unsupported).into_iter().map(|(link_type, packets)| {
                let name = link_type::name(link_type);
                format!("{path}: {packets} packets of link type {link_type} ({name}), which is not understood, count as non-IP")
            }));
        }
        warnings
    }

    fn notices(&self) -> Vec<String> {
        let empty = std::mem::take(&mut lock(&self.walk).empty);
        let notice = || format!("{}: the capture has no packets", self.input.path.display());
        empty.then(notice).into_iter().collect()
    }

    fn clock_step_ns(&self) -> u64 {
        lock(&self.walk).clock.step_ns()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.input.progress(lock(&self.walk).walker.offset())
    }
}
