//! Summaries of consecutive packets.

use super::PacketRecord;

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
