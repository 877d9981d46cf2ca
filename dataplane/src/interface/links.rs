//! Notifications of interfaces that appear, disappear or change.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;
use std::os::fd::OwnedFd;

/// `RTMGRP_LINK`.
const LINKS: u32 = 1;

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
        bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(LinkChanges(socket))
    }

    /// Waits until an interface appears, disappears or changes. It does not return which one: the
    /// kernel may drop notifications when there are many.
    ///
    /// # Errors
    /// The socket fails.
    pub fn wait(&self) -> io::Result<()> {
        let mut buffer = [0; 1 << 14];
        match recv(&self.0, &mut buffer[..], RecvFlags::TRUNC) {
            // `NOBUFS`: the kernel dropped notifications, so something has changed.
            Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::NOBUFS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
