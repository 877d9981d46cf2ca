//! Interfaces that come, go and change, as the kernel tells.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;
use std::os::fd::OwnedFd;

/// `RTMGRP_LINK`.
const LINKS: u32 = 1;

/// Changes of the interfaces of this thread's network namespace.
pub struct LinkChanges(OwnedFd);

impl LinkChanges {
    /// Hears of all changes from now on.
    ///
    /// # Errors
    /// If the kernel does not let it.
    pub fn open() -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(LinkChanges(socket))
    }

    /// Waits until an interface has come, gone or changed. Which one it does not say: of many
    /// changes at once some are not told one by one.
    ///
    /// # Errors
    /// If the kernel tells no more.
    pub fn wait(&self) -> io::Result<()> {
        let mut buffer = [0; 1 << 14];
        match recv(&self.0, &mut buffer[..], RecvFlags::TRUNC) {
            // Too many to keep: something has changed.
            Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::NOBUFS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
