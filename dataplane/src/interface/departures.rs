//! Interfaces that leave the network namespace, whether or not they return, and notifications of
//! these and other changes.
//!
//! The kernel closes an interface before it announces that it leaves, and queues the announcement.
//! A reader of the queue learns that the interface was away even if it is back, and so that packets
//! may have crossed it elsewhere.

use super::netlink::{RTM_DELLINK, messages};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

/// Interfaces that left a network namespace since the last look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departures {
    /// Their indexes. An interface that returns usually has the same one again.
    left: BTreeSet<u32>,
    /// Whether announcements were dropped, so that any interface may have left.
    incomplete: bool,
}

impl Departures {
    /// Adds the interfaces that left according to a datagram of the kernel.
    fn add(&mut self, datagram: &[u8]) {
        self.left.extend(messages(datagram).filter_map(|(kind, body)| departed(kind, body)));
    }

    /// Returns whether the interface of this index is known to have left. It may be back.
    #[must_use]
    pub fn has(&self, index: u32) -> bool {
        self.left.contains(&index)
    }

    /// Returns whether interfaces may have left that are not known.
    #[must_use]
    pub fn are_incomplete(&self) -> bool {
        self.incomplete
    }
}

/// Returns the index of the interface that has left according to a message; `None` for others.
fn departed(kind: u16, body: &[u8]) -> Option<u32> {
    // A port that leaves its bridge is announced alike, in the family of bridges.
    let is_of_interface = body.first().copied().map(i32::from) == Some(libc::AF_UNSPEC);
    let index = u32::from_ne_bytes(*body.get(4..)?.first_chunk()?);
    (kind == RTM_DELLINK && is_of_interface).then_some(index)
}

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
                Err(_) => {
                    departures.incomplete = true;
                    return;
                }
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
            Ok(_) | Err(Errno::NOBUFS) => departures.incomplete = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::netlink::{IFINFOMSG, attribute};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const RTM_NEWLINK: u16 = 16;
    const IFLA_IFNAME: u16 = 3;

    fn message(kind: u16, family: i32, index: u32) -> Vec<u8> {
        let mut body = vec![0; IFINFOMSG];
        body[0] = family as u8;
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body.extend(attribute(IFLA_IFNAME, b"eth1\0"));
        let mut message = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    /// Draws a change of an interface, and returns the messages by which the kernel announces it.
    fn drawn(random: &mut ChaCha8Rng, left: &mut BTreeSet<u32>) -> Vec<u8> {
        let index = random.random_range(1..8);
        let changed = || message(RTM_NEWLINK, libc::AF_UNSPEC, index);
        let leaves = || message(RTM_DELLINK, libc::AF_UNSPEC, index);
        match random.random_range(0..5) {
            // It appears, returns, goes up or down, or gets another name.
            0 | 1 => changed(),
            // It moves or is removed.
            2 => {
                left.insert(index);
                [changed(), leaves()].concat()
            }
            // It moves and returns.
            3 => {
                left.insert(index);
                [changed(), leaves(), changed(), changed()].concat()
            }
            // It leaves its bridge.
            _ => [changed(), message(RTM_DELLINK, libc::AF_BRIDGE, index)].concat(),
        }
    }

    #[test]
    fn the_next_look_finds_what_left_whatever_else_happened() {
        let mut random = ChaCha8Rng::seed_from_u64(56);
        let mut departures = Departures::default();
        let (mut left, mut dropped) = (BTreeSet::new(), false);
        for _ in 0..100_000 {
            match random.random_range(0..50) {
                0..5 => {
                    let found = std::mem::take(&mut departures);
                    let indexes: BTreeSet<u32> =
                        (0..10).filter(|index| found.has(*index)).collect();
                    assert_eq!((indexes, found.are_incomplete()), (left, dropped));
                    (left, dropped) = (BTreeSet::new(), false);
                }
                5 => {
                    // The queue is full: this change is not announced.
                    drawn(&mut random, &mut BTreeSet::new());
                    departures.incomplete = true;
                    dropped = true;
                }
                _ => departures.add(&drawn(&mut random, &mut left)),
            }
        }
    }

    #[test]
    fn announcements_that_are_cut_anywhere_are_survived() {
        let whole = message(RTM_DELLINK, libc::AF_UNSPEC, 7);
        for length in 0..=whole.len() {
            let mut departures = Departures::default();
            departures.add(&whole[..length]);
            assert_eq!(departures.has(7), length == whole.len(), "{length}");
        }
        assert_eq!(departed(RTM_DELLINK, &[]), None);
        assert_eq!(departed(RTM_DELLINK, &[0; 7]), None);
    }
}
