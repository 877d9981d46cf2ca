//! Order of a capture's packets: which of them may be counted now.
//!
//! The [walk](RecordWalk) passes over the record headers of one chunk after the other, up to the
//! limit of the gate. Beyond it, it looks ahead for packets that belong before the limit, as far as
//! the lateness of the gate requires, and moves the others to the [reorder buffer](ReorderBuffer).

use super::buffer::CHUNK;
use super::input::Chunk;
use super::reorder::{self, ChunkRange, ReorderBuffer};
use crate::capture::{
    Damage, Granularity, PacketRecord, PacketRun, PassResult, Step, StopReason, TimeRange, Walker,
};
use crate::poll::gate::Gate;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum size of a buffered run, in bytes: splitting a run walks over all of it.
const RUN_BYTES: usize = 1 << 16;
/// Minimum packets of a buffered run.
const RUN: u64 = 8;
/// Packets that are copied one by one before a run is tried again.
const COPIED: usize = 1024;
/// Timestamps examined to find the clock step, in the first [`CHUNK`] bytes and in each later
/// chunk: a small part of a full chunk. In fast traffic the first timestamps alone lie within one
/// step.
const FIRST_TIMESTAMPS: usize = 4096;
const TIMESTAMPS: usize = 64;

/// State of the walk over the records.
#[derive(Default)]
pub(super) struct RecordWalk {
    /// [`Input::witnesses`](super::input::Input::witnesses).
    witnesses: usize,
    pub(super) walker: Walker,
    /// Start of a record that continues in the next chunk.
    carry: Vec<u8>,
    first_timestamp: Option<u64>,
    pub(super) ended: bool,
    pub(super) clock: CaptureClock,
    /// Packets that are not due yet.
    pub(super) buffered: ReorderBuffer,
    /// Packets that arrived after their window was closed.
    pub(super) late: u64,
    /// Packets of link types that are not supported, per link type.
    pub(super) unsupported: BTreeMap<u16, u64>,
    /// Problems of the capture.
    pub(super) warnings: Vec<String>,
    /// Whether it ended without an error and without packets; reported once.
    pub(super) empty: bool,
}

/// Clock of a capture, as derived from its timestamps.
#[derive(Default)]
pub(super) struct CaptureClock {
    granularity: Granularity,
    /// Unit of the file's timestamps: the coarsest of its interfaces.
    unit_ns: u64,
    /// Last chunk that was examined.
    chunk: Option<u64>,
    /// Bytes of all chunks so far.
    bytes: usize,
    /// Timestamps examined in the first [`CHUNK`] bytes.
    first: usize,
}

impl CaptureClock {
    /// Returns the step, in nanoseconds.
    pub(super) fn step_ns(&self) -> u64 {
        self.granularity.step_ns(self.unit_ns)
    }

    /// Examines the first timestamps of a chunk; `unread` is the part after the walk's position.
    fn examine(&mut self, chunk: Option<u64>, mut walker: Walker, mut unread: &[u8]) {
        let is_first = self.bytes < CHUNK;
        let mut left = if is_first { FIRST_TIMESTAMPS - self.first } else { TIMESTAMPS };
        (self.chunk, self.bytes) = (chunk, self.bytes.saturating_add(unread.len()));
        while left > 0 {
            let consumed = match walker.next(unread) {
                Step::Packet { record, consumed } => {
                    self.granularity.add(record.timestamp);
                    left -= 1;
                    self.first += usize::from(is_first);
                    consumed
                }
                Step::Skip { consumed } => consumed,
                Step::NeedMore { .. } | Step::Damaged(_) => break,
            };
            unread = unread.get(consumed..).unwrap_or_default();
        }
        self.unit_ns = self.unit_ns.max(walker.unit_ns());
    }
}

/// Reason why the walk stopped.
pub(super) enum WalkEnd {
    /// The next packet is at or beyond the gate's limit, and there is nothing to count before it.
    Blocked { next: u64, limit: u64 },
    /// Count the due packets before continuing in this chunk.
    More,
    /// Count these buffered packets.
    Released(Vec<ChunkRange>),
    /// The chunk was walked to its end.
    Done,
    /// The capture ends here, regularly or not.
    Ended,
}

impl RecordWalk {
    /// Creates the walk at the start of an [input](super::input::Input).
    pub(super) fn new(witnesses: usize, unit_ns: u64) -> Self {
        let clock = CaptureClock { unit_ns, ..CaptureClock::default() };
        RecordWalk { witnesses, clock, ..RecordWalk::default() }
    }

    /// Walks over a chunk up to the gate's limit, and ahead to packets that belong before it.
    /// Returns the packets that may be counted. With `unwalked`, no one is waiting for the end of
    /// the walk, so that this many bytes may be counted without it.
    pub(super) fn advance(
        &mut self,
        gate: &Gate,
        chunk: &mut Chunk,
        unwalked: Option<usize>,
    ) -> (WalkEnd, ChunkRange) {
        if let Some(walker) = chunk.walker.take() {
            self.walker = walker;
        }
        let lateness = gate.lateness();
        let mut range = self.first_timestamp.map(|first| gate.range(first));
        let mut due = ChunkRange::walked(
            Arc::clone(&chunk.buffer),
            chunk.position..chunk.position,
            Walker::new(),
            PacketRun::default(),
        );
        loop {
            // Until the first packet is known, stop at any packet.
            let within = range.unwrap_or_default();
            let (floor, limit) = (within.floor(), within.limit());
            let released = self.buffered.release(limit);
            if !released.is_empty() {
                return (WalkEnd::Released(released), due);
            }
            if let Some(next) = self.buffered.next()
                && range.is_some()
                && (chunk.exhausted || self.is_past(lateness, limit, next))
            {
                let blocked = WalkEnd::Blocked { next, limit };
                return (if due.is_empty() { blocked } else { WalkEnd::More }, due);
            }
            if chunk.exhausted {
                return (WalkEnd::Ended, due);
            }
            if !self.carry.is_empty() {
                if self.complete_carry(gate, chunk, &mut range) {
                    return (WalkEnd::Done, due);
                }
                continue;
            }
            if self.clock.chunk != chunk.index {
                let unread = &chunk.buffer[chunk.position..];
                self.clock.examine(chunk.index, self.walker.clone(), unread);
            }
            if due.is_empty() {
                due.walker.clone_from(&self.walker);
                due.place = chunk.position..chunk.position;
            }
            // Fast path: counting finds the boundary.
            if let (Some(_), Some(most), true) = (range, unwalked, due.is_empty()) {
                let end = chunk.buffer.len().min(chunk.position.saturating_add(most));
                let bytes = &chunk.buffer[chunk.position..end];
                let plain = self.walker.plain_in(bytes, within);
                if plain.is_some_and(|mut plain| plain.next().is_some()) {
                    (due.place.end, due.unwalked) = (end, Some(within));
                    return (WalkEnd::More, due);
                }
            }
            let PassResult { consumed, run, stop } =
                self.walker.pass(&chunk.buffer[chunk.position..], within);
            chunk.position += consumed;
            due.place.end = chunk.position;
            due.run.add(run);
            match stop {
                StopReason::Limit { next } if range.is_none() => {
                    range = Some(self.begin(gate, next))
                }
                // The due packets must be one contiguous range.
                StopReason::Limit { .. } if !due.is_empty() => return (WalkEnd::More, due),
                StopReason::Limit { next } if next < floor => self.skip_late(chunk),
                StopReason::Limit { next } => match lateness {
                    Some(lateness) => {
                        if !self.buffer_run(chunk, lateness, next) {
                            self.buffer_copies(chunk, within, lateness);
                        }
                    }
                    None => return (WalkEnd::Blocked { next, limit }, due),
                },
                StopReason::NeedMore { .. } => {
                    self.carry.extend_from_slice(&chunk.buffer[chunk.position..]);
                    chunk.position = chunk.buffer.len();
                    if !chunk.last {
                        return (WalkEnd::Done, due);
                    }
                    self.end(chunk);
                }
                StopReason::Damaged(damage) => self.fail(chunk, &damage),
            }
        }
    }

    /// Returns whether no packet before `limit` is expected any more; `next` is the earliest
    /// buffered timestamp.
    fn is_past(&self, lateness: Option<u64>, limit: u64, next: u64) -> bool {
        let beyond = |lateness: u64| self.buffered.beyond(limit.max(next).saturating_add(lateness));
        self.buffered.bytes >= reorder::MAX_BYTES
            || lateness.is_none_or(|lateness| beyond(lateness) >= self.witnesses)
    }

    /// Reads on in a record that started in the previous chunk, and buffers its packet. Returns
    /// whether the chunk ends before the record does.
    fn complete_carry(
        &mut self,
        gate: &Gate,
        chunk: &mut Chunk,
        range: &mut Option<TimeRange>,
    ) -> bool {
        match self.walker.next(&self.carry) {
            Step::Packet { record, consumed } => {
                let rest = self.carry.split_off(consumed);
                let bytes = std::mem::replace(&mut self.carry, rest);
                if record.timestamp < range.unwrap_or_default().floor() {
                    self.late += 1;
                } else {
                    self.buffered.push(ChunkRange::sorted(vec![(record, record.frame(&bytes))]));
                    if range.is_none() {
                        *range = Some(self.begin(gate, record.timestamp));
                    }
                }
            }
            Step::Skip { consumed } => drop(self.carry.drain(..consumed)),
            Step::NeedMore { at_least } => {
                let unread = &chunk.buffer[chunk.position..];
                let missing = at_least.saturating_sub(self.carry.len()).max(1);
                let taken = missing.min(unread.len());
                self.carry.extend_from_slice(&unread[..taken]);
                chunk.position += taken;
                if taken < missing && chunk.last {
                    self.end(chunk);
                } else if taken < missing {
                    return true;
                }
            }
            Step::Damaged(damage) => self.fail(chunk, &damage),
        }
        false
    }

    /// Buffers the next packets as one run, up to the first that is later by the lateness, or
    /// earlier than all buffered ones; `next` is the timestamp of the first packet, beyond the
    /// limit. Returns false if there are too few for a run.
    ///
    /// The packets that this and [`buffer_copies`](Self::buffer_copies) buffer do not depend on how
    /// the capture is split into chunks.
    fn buffer_run(&mut self, chunk: &mut Chunk, lateness: u64, next: u64) -> bool {
        let next = self.buffered.next().map_or(next, |buffered| buffered.min(next));
        // A buffered packet takes at most twice the size of its record in the file, whose header
        // has 16 bytes.
        const { assert!(size_of::<PacketRecord>() <= 32) };
        let most = RUN_BYTES.min(reorder::MAX_BYTES.saturating_sub(self.buffered.bytes) / 2);
        let unread = &chunk.buffer[chunk.position..];
        let unread = &unread[..unread.len().min(most)];
        let mut after = self.walker.clone();
        let PassResult { consumed, run, .. } =
            after.pass(unread, TimeRange::new(next, next.saturating_add(lateness)));
        if run.packets < RUN {
            return false;
        }
        let walker = std::mem::replace(&mut self.walker, after);
        let place = chunk.position..chunk.position + consumed;
        let buffer = Arc::clone(&chunk.buffer);
        self.buffered.push(ChunkRange::walked(buffer, place, walker, run));
        chunk.position += consumed;
        true
    }

    /// Buffers copies of the next packets, until the limit can be considered as passed.
    fn buffer_copies(&mut self, chunk: &mut Chunk, within: TimeRange, lateness: u64) {
        let (floor, limit) = (within.floor(), within.limit());
        let unread = &chunk.buffer[chunk.position..];
        let (mut consumed, mut bytes) = (0, self.buffered.bytes);
        let mut packets: Vec<(PacketRecord, &[u8])> = Vec::new();
        let horizon = |next: u64| limit.max(next).saturating_add(lateness);
        let mut next = self.buffered.next().unwrap_or(u64::MAX);
        let mut beyond = self.buffered.beyond(horizon(next));
        while packets.is_empty()
            || (beyond < self.witnesses && bytes < reorder::MAX_BYTES && packets.len() < COPIED)
        {
            match self.walker.next(&unread[consumed..]) {
                Step::Packet { record, consumed: length } => {
                    let timestamp = record.timestamp;
                    if timestamp < floor {
                        self.late += 1;
                    } else {
                        packets.push((record, record.frame(&unread[consumed..])));
                    }
                    if timestamp >= limit {
                        bytes += reorder::cost(&PacketRun::from(&record));
                        if timestamp < next {
                            next = timestamp;
                            let horizon = horizon(next);
                            let later =
                                packets.iter().filter(|(record, _)| record.timestamp >= horizon);
                            beyond = self.buffered.beyond(horizon) + later.count();
                        } else {
                            beyond += usize::from(timestamp >= horizon(next));
                        }
                    }
                    consumed += length;
                }
                Step::Skip { consumed: length } => consumed += length,
                // The walk handles this position again.
                Step::NeedMore { .. } | Step::Damaged(_) => break,
            }
        }
        self.buffered.push(ChunkRange::sorted(packets));
        chunk.position += consumed;
    }

    /// Ends the walk at damage.
    fn fail(&mut self, chunk: &mut Chunk, damage: &Damage) {
        self.warnings.push(damage.to_string());
        chunk.exhausted = true;
    }

    /// Ends the walk at the end of the input.
    fn end(&mut self, chunk: &mut Chunk) {
        let problem = match chunk.failure.take() {
            Some(error) => Some(format!("cannot read on: {error}")),
            None => self.walker.finish(&self.carry).err().map(|damage| damage.to_string()),
        };
        self.empty = problem.is_none() && self.first_timestamp.is_none();
        self.warnings.extend(problem);
        chunk.exhausted = true;
    }

    /// Sets the first timestamp and returns the gate's range.
    fn begin(&mut self, gate: &Gate, timestamp: u64) -> TimeRange {
        self.first_timestamp = Some(timestamp);
        gate.range(timestamp)
    }

    /// Skips the late packet at the walk's position.
    fn skip_late(&mut self, chunk: &mut Chunk) {
        if let Step::Packet { consumed, .. } = self.walker.next(&chunk.buffer[chunk.position..]) {
            self.late += 1;
            chunk.position += consumed;
        }
    }
}
