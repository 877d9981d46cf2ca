//! Consecutive packets: their summary, and lists of packets that were taken out of captures.

use super::{PacketRecord, Walker};

/// A range of timestamps, in nanoseconds since 1970, tested with one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    floor: u64,
    length: u64,
}

impl TimeRange {
    /// All possible timestamps.
    pub const ALL: Self = TimeRange { floor: 0, length: u64::MAX };

    /// Creates the range of timestamps from `floor` on and before `limit`.
    #[must_use]
    pub fn new(floor: u64, limit: u64) -> Self {
        TimeRange { floor, length: limit.saturating_sub(floor) }
    }

    /// Returns the earliest timestamp.
    #[must_use]
    pub fn floor(self) -> u64 {
        self.floor
    }

    /// Returns the exclusive upper bound.
    #[must_use]
    pub fn limit(self) -> u64 {
        self.floor + self.length
    }

    /// Returns whether a timestamp is in the range.
    #[inline(always)]
    #[must_use]
    pub fn contains(self, timestamp: u64) -> bool {
        timestamp.wrapping_sub(self.floor) < self.length
    }
}

/// Consecutive packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRun {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of their frames in the file.
    pub captured: u64,
    /// Earliest timestamp, in nanoseconds since 1970; `u64::MAX` without packets.
    pub earliest: u64,
    /// Latest timestamp, in nanoseconds since 1970; 0 without packets.
    pub latest: u64,
}

impl Default for PacketRun {
    fn default() -> Self {
        PacketRun { packets: 0, captured: 0, earliest: u64::MAX, latest: 0 }
    }
}

impl PacketRun {
    /// Adds other packets.
    #[inline(always)]
    pub fn add(&mut self, other: PacketRun) {
        self.packets += other.packets;
        self.captured += other.captured;
        self.earliest = self.earliest.min(other.earliest);
        self.latest = self.latest.max(other.latest);
    }
}

impl From<&PacketRecord> for PacketRun {
    #[inline(always)]
    fn from(record: &PacketRecord) -> Self {
        PacketRun {
            packets: 1,
            captured: record.captured.into(),
            earliest: record.timestamp,
            latest: record.timestamp,
        }
    }
}

/// Copies of packets: their frames, one after the other, with their records.
///
/// Read by a [`Walker`] like a capture, but without parsing.
#[derive(Clone, Debug, Default)]
pub struct PacketList {
    /// Frames.
    pub(crate) bytes: Vec<u8>,
    /// Records, in the order in which packets were added.
    pub(crate) records: Vec<PacketRecord>,
    /// Summary of the packets.
    pub(crate) run: PacketRun,
}

impl PacketList {
    /// Creates an empty list that reuses `memory`, whose contents are discarded.
    #[must_use]
    pub fn with_memory(mut memory: Vec<u8>) -> Self {
        memory.clear();
        PacketList { bytes: memory, ..Self::default() }
    }

    /// Adds a copy of a packet.
    pub fn push(&mut self, record: &PacketRecord, frame: &[u8]) {
        let record = PacketRecord { start: 0, captured: frame.len() as u32, ..*record };
        self.bytes.extend_from_slice(frame);
        self.bytes.resize(self.bytes.len() + Self::length(&record) - frame.len(), 0);
        self.records.push(record);
        self.run.add(PacketRun::from(&record));
    }

    /// Returns the bytes that a packet takes in the list: a step of a walk consumes at least one.
    pub(super) fn length(record: &PacketRecord) -> usize {
        record.captured.max(1) as usize
    }

    /// Returns the bytes and the parser state before them.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Walker) {
        (self.bytes, Walker::listed(self.records))
    }
}

impl<'a> FromIterator<(PacketRecord, &'a [u8])> for PacketList {
    fn from_iter<I: IntoIterator<Item = (PacketRecord, &'a [u8])>>(packets: I) -> Self {
        let mut list = PacketList::default();
        packets.into_iter().for_each(|(record, frame)| list.push(&record, frame));
        list
    }
}
