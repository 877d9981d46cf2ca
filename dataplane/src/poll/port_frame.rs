//! Frames that ports deliver.

use flowgauge_core::Link;

/// A frame to be counted.
#[derive(Clone, Copy, Debug)]
pub struct PortFrame<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Length on the wire, in bytes.
    pub wire_length: u32,
    /// Time of arrival, in nanoseconds; the origin depends on the source.
    pub timestamp: u64,
    /// Link layer.
    pub link: Link,
}

/// Result of [`Port::receive`](crate::poll::port::Port::receive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Frames were delivered.
    Frames,
    /// No frames now.
    Idle,
    /// No frames any more.
    Ended,
}
