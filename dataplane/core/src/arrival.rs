//! What a frame brings beside its bytes.

/// How many packets on the wire a frame stands for: a type of its own for one, so that it costs nothing where it is never another number.
pub trait Packets: Copy {
    /// The number, at least 1.
    fn number(self) -> u32;
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

/// A frame that a device sends in so many segments (segmentation offload), or put together from so many (receive offload). Zero is taken
/// for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments(pub u32);

impl Packets for Segments {
    #[inline(always)]
    fn number(self) -> u32 {
        self.0.max(1)
    }
}

/// What is known of a frame beside its bytes. What it does to a state is what its packets do one after the other, none between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<P = One> {
    /// Bytes on the wire of all its packets together; a capture may have cut the frame.
    pub wire_length: u32,
    /// Packets on the wire.
    pub packets: P,
    /// The current slot of staggered registers (see [`Staggered`](crate::cardinality::Staggered)); ignored otherwise.
    pub slot: u32,
}

impl Arrival {
    /// One packet.
    #[inline(always)]
    #[must_use]
    pub const fn new(wire_length: u32, slot: u32) -> Self {
        Arrival { wire_length, packets: One, slot }
    }
}
