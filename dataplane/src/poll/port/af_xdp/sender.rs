//! Transmission through an AF_XDP socket.

use super::socket::{Socket, SocketConfig, SocketDirection};
use super::{Copies, HEADROOM, LINK_HEADER, advice, opened};
use crate::error::Error;
use crate::interface::{DeviceCounters, Interface, device};
use crate::poll::port::Outlet;

/// Packets that the kernel sends per call.
const BATCH: u32 = 32;
const FRAMES: u32 = 2048;

/// Sender of unmodified packets through an interface. They bypass queueing disciplines, firewalls
/// and egress hooks.
pub struct FrameSender {
    interface: String,
    socket: Socket,
    largest: usize,
    before: DeviceCounters,
    /// Packets queued since the kernel was last notified.
    queued: u32,
}

impl FrameSender {
    /// Opens a sender on an interface of this thread's network namespace; needs no program there.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the interface does not exist, or the kernel refuses the socket.
    pub fn new(interface: &str) -> Result<Self, Error> {
        Self::on_queue(interface, 0)
    }

    /// Opens a sender on one send queue.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the queue does not exist.
    pub fn on_queue(interface: &str, queue: u32) -> Result<Self, Error> {
        let failed =
            |problem, source| Error::Kernel { interface: interface.to_owned(), problem, source };
        let (index, before) = device::existing(interface, DeviceCounters::find(interface))?;
        let device = device::existing(interface, Interface::new(interface).map(Some))?;
        let mtu = device
            .mtu()
            .map_err(|error| failed(format!("cannot read its MTU: {error}"), Some(error)))?;
        let largest = (mtu + LINK_HEADER).min(4096 - HEADROOM);
        let frame_size = if largest + HEADROOM <= 2048 { 2048 } else { 4096 };
        let config = SocketConfig {
            frames: FRAMES,
            frame_size,
            copies: Copies::Auto,
            pieces: false,
            task: SocketDirection::Send,
        };
        let socket = opened(index, queue, &config).map_err(|error| {
            failed(
                format!("cannot open a socket to send: {}", advice(&error, &config)),
                Some(error),
            )
        })?;
        Ok(FrameSender {
            interface: interface.to_owned(),
            socket,
            largest: largest as usize,
            before,
            queued: 0,
        })
    }

    fn push(&mut self) -> Result<(), Error> {
        self.queued = 0;
        self.socket.push().map_err(|error| {
            let problem = format!("cannot send: {error}; is it up (`ip link set … up`)?");
            Error::Kernel { interface: self.interface.clone(), problem, source: Some(error) }
        })
    }
}

impl Outlet for FrameSender {
    fn interface(&self) -> &str {
        &self.interface
    }

    fn largest(&self) -> usize {
        self.largest
    }

    fn send(&mut self, packet: &[u8]) -> Result<(), Error> {
        if packet.len() > self.largest {
            let problem = format!(
                "cannot send a packet of {} bytes: its MTU allows {}",
                packet.len(),
                self.largest
            );
            return Err(Error::Kernel { interface: self.interface.clone(), problem, source: None });
        }
        while !self.socket.queue(packet) {
            self.push()?;
        }
        self.queued += 1;
        if self.queued >= BATCH { self.push() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        while self.queued > 0 || self.socket.unqueued() > 0 {
            self.push()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        while self.socket.unsent() > 0 {
            self.push()?;
        }
        Ok(())
    }

    fn dropped(&self) -> u64 {
        DeviceCounters::read(&self.interface)
            .map_or(0, |now| now.send_dropped - self.before.send_dropped.min(now.send_dropped))
    }
}
