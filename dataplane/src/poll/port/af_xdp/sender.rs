//! Sending packets from an interface through an AF_XDP socket.

use super::interface::Interface;
use super::socket::{Config, Socket, Task};
use super::{HEADROOM, LINK_HEADER, advice, opened};
use crate::error::Error;
use crate::xdp::{DeviceCounters, device};
use std::io;

/// Packets that the kernel sends for one call.
const BATCH: u32 = 32;
const FRAMES: u32 = 2048;

/// Sends packets from an interface as they are. They pass no queueing discipline, no firewall and no egress hook.
pub struct FrameSender {
    interface: String,
    socket: Socket,
    largest: usize,
    before: DeviceCounters,
}

impl FrameSender {
    /// Sends from an interface of this thread's network namespace; needs no program there.
    ///
    /// # Errors
    /// [`Error::Kernel`] if there is no such interface, or the kernel refuses the socket.
    pub fn new(interface: &str) -> Result<Self, Error> {
        Self::on_queue(interface, 0)
    }

    /// The same on a send queue.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if there is no such queue.
    pub fn on_queue(interface: &str, queue: u32) -> Result<Self, Error> {
        let refused = |problem: String| Error::Kernel { interface: interface.to_owned(), problem };
        let there = device::index(interface).zip(DeviceCounters::read(interface)).zip(Interface::new(interface).ok());
        let ((index, before), device) =
            there.ok_or_else(|| refused("there is no such interface; `ip link` lists them".to_owned()))?;
        let mtu = device.mtu().map_err(|error| refused(format!("cannot read its MTU: {error}")))?;
        let largest = (mtu + LINK_HEADER).min(4096 - HEADROOM);
        let frame_size = if largest + HEADROOM <= 2048 { 2048 } else { 4096 };
        let config = Config { frames: FRAMES, frame_size, zero_copy: None, pieces: false, task: Task::Send };
        let socket = opened(index, queue, &config)
            .map_err(|error| refused(format!("cannot open a socket to send: {}", advice(&error, &config))))?;
        Ok(FrameSender { interface: interface.to_owned(), socket, largest: largest as usize, before })
    }

    /// Bytes of the largest packet, without frame check sequence.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.largest
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::Kernel {
            interface: self.interface.clone(),
            problem: format!("cannot send: {error}; is it up (`ip link set … up`)?"),
        }
    }

    /// Sends up to `most` packets. `fill` writes each of them and gives its length in bytes; none may be longer than
    /// [`largest`](Self::largest). Returns how many the kernel took now.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the interface is down or gone.
    pub fn send(&mut self, most: u32, fill: impl FnMut(&mut [u8]) -> usize) -> Result<u32, Error> {
        self.socket.send(most.min(BATCH), fill).map_err(|error| self.failed(&error))
    }

    /// Returns once the interface has taken or dropped every packet.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn finish(&mut self) -> Result<(), Error> {
        while self.socket.unsent() > 0 {
            self.socket.push().map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// Packets that the interface was to send since this was made, by anyone, and dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        DeviceCounters::read(&self.interface).map_or(0, |now| now.send_dropped - self.before.send_dropped.min(now.send_dropped))
    }
}
