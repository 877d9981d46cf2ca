//! Transmission of packets.

use crate::error::Error;

/// An interface that sends packets unmodified.
///
/// Outlets are defined next to their sockets and programs:
/// [`FrameSender`](crate::poll::port::FrameSender) (AF_XDP) and `DpdkSender` in
/// [`poll::port`](crate::poll::port), and `LiveSender` (in the kernel) in the crate
/// `flowgauge-traffic`.
pub trait Outlet {
    /// Returns the interface name used in outputs.
    fn interface(&self) -> &str;

    /// Returns the size of the largest packet, in bytes without frame check sequence.
    fn largest(&self) -> usize;

    /// Queues a packet of up to [`largest`](Self::largest) bytes. It is handed to the interface
    /// when [`flush`](Self::flush) returns, or after some more packets.
    ///
    /// # Errors
    /// The packet is too large, or the interface is down or gone.
    fn send(&mut self, packet: &[u8]) -> Result<(), Error>;

    /// Hands all queued packets to the interface.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn flush(&mut self) -> Result<(), Error>;

    /// Waits until every packet was sent or dropped.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn finish(&mut self) -> Result<(), Error>;

    /// Returns the packets of any sender that the interface dropped on transmission since this
    /// outlet was created.
    fn dropped(&self) -> u64;
}
