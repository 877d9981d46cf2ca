//! What a frame brings beside its bytes.

/// How many packets on the wire a frame stands for: a type of its own for one, so that it costs
/// nothing where it is never another number.
pub trait Packets: Copy {
    /// The number, at least 1.
    fn number(self) -> u32;

    /// When they came, in nanoseconds since the Unix epoch. `timestamp`: what the arrival says,
    /// which is ignored where a look at a clock is put off until somebody asks.
    #[inline(always)]
    fn time(self, timestamp: u64) -> u64 {
        timestamp
    }

    /// Lengths of all packets but the last, and of the last, from their network headers on.
    /// `header`: what the frame's header says.
    #[inline(always)]
    fn lengths(self, header: u32) -> (u32, u32) {
        (0, header)
    }
}

/// A frame that is one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct One;

impl Packets for One {
    #[inline(always)]
    fn number(self) -> u32 {
        1
    }
}

/// A frame that a device sends in several segments (segmentation offload), or put together from
/// several (receive offload).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// How many. Zero is taken for one.
    pub number: u32,
    /// Bytes of each from its network header on, but for the last one; ignored of a single packet.
    pub full: u32,
    /// Bytes of the last one from its network header on; ignored of a single packet.
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

/// What is known of a frame beside its bytes. What it does to a state is what its packets do one
/// after the other, none between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<P = One> {
    /// Bytes on the wire of all its packets together; a capture may have cut the frame.
    pub wire_length: u32,
    /// Packets on the wire.
    pub packets: P,
    /// When it came, in nanoseconds since the Unix epoch. Ignored unless a measurement
    /// [needs](crate::Needs::TIME) it.
    pub timestamp: u64,
    /// At which interface, as its number in the run. Ignored, as whether it leaves, unless a
    /// measurement [needs](crate::Needs::PLACE) it.
    pub interface: u16,
    /// Whether it leaves there; it arrives if not.
    pub leaves: bool,
}

impl Arrival {
    /// One packet that arrives at the first interface.
    #[inline(always)]
    #[must_use]
    pub const fn new(wire_length: u32, timestamp: u64) -> Self {
        Arrival { wire_length, packets: One, timestamp, interface: 0, leaves: false }
    }
}
