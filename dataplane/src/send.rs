//! Sending: what generated and captured packets leave through.
//!
//! Senders are where their sockets and programs are: [`FrameSender`](crate::poll::port::FrameSender) (AF_XDP),
//! [`LiveSender`](crate::xdp::LiveSender) (in the kernel) and `DpdkSender` in [`poll::port`](crate::poll::port).

use crate::error::Error;

/// What packets leave through, as they are.
pub trait Outlet {
    /// What it is called in outputs.
    fn interface(&self) -> &str;

    /// Bytes of the largest packet, without frame check sequence.
    fn largest(&self) -> usize;

    /// Sends a packet of up to [`largest`](Self::largest) bytes; it is on its way when [`flush`](Self::flush) returns, or when some
    /// more were sent.
    ///
    /// # Errors
    /// It is too large, or the interface is down or gone.
    fn send(&mut self, packet: &[u8]) -> Result<(), Error>;

    /// Returns once every packet is on its way.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn flush(&mut self) -> Result<(), Error>;

    /// Returns once every packet was sent or dropped.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn finish(&mut self) -> Result<(), Error>;

    /// Packets that the interface was to send since this was made, by anyone, and dropped.
    fn dropped(&self) -> u64;
}
