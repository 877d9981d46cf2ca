//! Notifications of interfaces that appear, disappear or change.

use super::departures::Departures;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;
use std::os::fd::OwnedFd;

/// `RTMGRP_LINK`.
const LINKS: u32 = 1;

/// Memory for notifications that were not read yet, in bytes: for about two thousand.
const QUEUE_BYTES: usize = 1 << 22;

/// Subscription to changes of the interfaces in this thread's network namespace.
pub struct LinkChanges(OwnedFd);

impl LinkChanges {
    /// Subscribes to all changes from now on.
    ///
    /// # Errors
    /// The kernel refuses the subscription.
    pub fn open() -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        // Without the right to it there is room for about fifty.
        let _ = set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES);
        bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(LinkChanges(socket))
    }

    /// Waits until an interface appears, disappears or changes. Returns those that left, as far as
    /// it is known: the kernel may drop notifications when there are many.
    ///
    /// # Errors
    /// The socket fails.
    pub fn wait(&self) -> io::Result<Departures> {
        let mut departures = Departures::default();
        match self.receive(RecvFlags::empty(), &mut departures) {
            Ok(()) | Err(Errno::INTR) => Ok(departures),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds the interfaces that left since the last call, without waiting.
    pub(crate) fn read(&self, departures: &mut Departures) {
        loop {
            match self.receive(RecvFlags::DONTWAIT, departures) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => return departures.miss(),
            }
        }
    }

    /// Adds the interfaces that left according to the next datagram.
    fn receive(&self, flags: RecvFlags, departures: &mut Departures) -> rustix::io::Result<()> {
        let mut buffer = [0_u8; 1 << 14];
        match recv(&self.0, &mut buffer[..], flags | RecvFlags::TRUNC) {
            Ok((length, whole)) if length == whole => {
                departures.add(buffer.get(..length).unwrap_or_default());
            }
            // Cut off, or dropped by the kernel for lack of room.
            Ok(_) | Err(Errno::NOBUFS) => departures.miss(),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
