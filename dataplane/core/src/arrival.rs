//! Metadata of a frame: wire length, packets, arrival time, direction.

/// Number of wire packets in a frame. A type of its own for one packet ([`SingleFrame`]) makes the common
/// case a compile-time constant.
pub trait Packets: Copy {
    /// Returns the number of packets, at least 1.
    fn number(self) -> u32;

    /// Returns the arrival time in nanoseconds since the Unix epoch. `timestamp`: time from the
    /// [`Arrival`]; ignored by types that read a clock only when a measurement needs the time.
    #[inline(always)]
    fn time(self, timestamp: u64) -> u64 {
        timestamp
    }

    /// Returns the length of each packet but the last, and of the last, from the network header on.
    /// `header`: length from the frame's network header.
    #[inline(always)]
    fn lengths(self, header: u32) -> (u32, u32) {
        (0, header)
    }
}

/// A frame that is one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SingleFrame;

impl Packets for SingleFrame {
    #[inline(always)]
    fn number(self) -> u32 {
        1
    }
}

/// A frame that a device splits into several segments (segmentation offload) or has merged from
/// several (receive offload).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Number of segments. Zero counts as one.
    pub number: u32,
    /// Bytes of each segment but the last, from its network header on; ignored for a single packet.
    pub full: u32,
    /// Bytes of the last segment, from its network header on; ignored for a single packet.
    pub last: u32,
}

impl Segments {
    /// A frame that is one packet.
    pub const ONE: Segments = Segments { number: 1, full: 0, last: 0 };
}

impl Packets for Segments {
    #[inline(always)]
    fn number(self) -> u32 {
        self.number.max(1)
    }

    #[inline(always)]
    fn lengths(self, header: u32) -> (u32, u32) {
        if self.number > 1 { (self.full, self.last) } else { (0, header) }
    }
}

/// Metadata of a frame. A frame of several packets changes the state as these packets would one by
/// one, with no others between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<P = SingleFrame> {
    /// Wire bytes of all its packets; a capture may have truncated the frame.
    pub wire_length: u32,
    /// Packets on the wire.
    pub packets: P,
    /// Arrival time in nanoseconds since the Unix epoch. Ignored unless a measurement
    /// [needs](crate::RequiredFields::TIME) it.
    pub timestamp: u64,
    /// Whether the frame leaves at the interface; otherwise it arrives. Ignored unless a measurement
    /// [needs](crate::RequiredFields::DIRECTION) it.
    pub leaves: bool,
}

impl Arrival {
    /// Creates the metadata of one packet that arrives.
    #[inline(always)]
    #[must_use]
    pub const fn new(wire_length: u32, timestamp: u64) -> Self {
        Arrival { wire_length, packets: SingleFrame, timestamp, leaves: false }
    }
}
