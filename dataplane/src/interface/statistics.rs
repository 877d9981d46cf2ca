//! An interface's counters, over netlink: `/proc/net/dev` adds up what has to be told apart.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::io;
use std::time::Duration;

const NLM_F_REQUEST: u16 = 0x1;
const NLMSG_ERROR: u16 = 2;
const RTM_GETLINK: u16 = 18;
/// Length of `struct nlmsghdr`, and of `struct ifinfomsg`.
const HEADER: usize = 16;
const IFINFOMSG: usize = 16;
const IFLA_STATS64: u16 = 23;
const IFLA_LINK_NETNSID: u16 = 37;
/// Flags in an attribute's type.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// What `struct rtnl_link_stats64` says, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) errors: u64,
    /// By the driver, and by the kernel's network stack.
    pub(super) dropped: u64,
    pub(super) send_dropped: u64,
    /// No room in the device's queue, or in the host's memory.
    pub(super) overrun: u64,
    pub(super) missed: u64,
    /// Whether the device that it is linked with is in another network namespace.
    pub(super) linked_elsewhere: bool,
}

/// The counters of the interface with this number.
pub(super) fn read(index: u32) -> io::Result<Statistics> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // The kernel answers at once or never.
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
    sendto(&socket, &request(index), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = vec![0; 1 << 16];
    let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
    let answer = buffer.get(..length).unwrap_or_default();
    statistics(answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn request(index: u32) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + IFINFOMSG);
    message.extend(((HEADER + IFINFOMSG) as u32).to_ne_bytes());
    message.extend(RTM_GETLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]);
    message.extend(index.to_ne_bytes());
    message.extend([0; 8]);
    message
}

fn statistics(message: &[u8]) -> Option<Statistics> {
    let length = u32::from_ne_bytes(*message.first_chunk()?) as usize;
    if u16::from_ne_bytes(*message.get(4..)?.first_chunk()?) == NLMSG_ERROR {
        return None;
    }
    let mut rest = message.get(HEADER + IFINFOMSG..length)?;
    let (mut found, mut linked_elsewhere) = (None, false);
    while let (Some(length), Some(kind)) = (rest.first_chunk(), rest.get(2..).and_then(|rest| rest.first_chunk())) {
        let (length, kind) = (usize::from(u16::from_ne_bytes(*length)), u16::from_ne_bytes(*kind) & NLA_TYPE_MASK);
        let Some(value) = rest.get(4..length) else { break };
        match kind {
            IFLA_STATS64 => found = Some(of_words(value)),
            IFLA_LINK_NETNSID => linked_elsewhere = true,
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found.map(|found| Statistics { linked_elsewhere, ..found })
}

/// In the order of `struct rtnl_link_stats64`; older kernels have fewer words.
fn of_words(value: &[u8]) -> Statistics {
    let word =
        |index: usize| value.get(8 * index..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word));
    Statistics {
        received: word(0),
        sent: word(1),
        errors: word(4),
        dropped: word(6),
        send_dropped: word(7),
        overrun: word(14),
        missed: word(15),
        linked_elsewhere: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<u8> {
        let mut answer = vec![0; HEADER + IFINFOMSG];
        let words: Vec<u8> = (100..124_u64).flat_map(u64::to_ne_bytes).collect();
        answer.extend(((4 + words.len()) as u16).to_ne_bytes());
        answer.extend(IFLA_STATS64.to_ne_bytes());
        answer.extend(words);
        answer.extend([8, 0, 37, 0, 0, 0, 0, 0]);
        let length = (answer.len() as u32).to_ne_bytes();
        answer[..4].copy_from_slice(&length);
        answer
    }

    #[test]
    fn counters_are_where_the_kernel_has_them() {
        let expected = Statistics {
            received: 100,
            sent: 101,
            errors: 104,
            dropped: 106,
            send_dropped: 107,
            overrun: 114,
            missed: 115,
            linked_elsewhere: true,
        };
        assert_eq!(statistics(&answer()), Some(expected));
    }

    #[test]
    fn answers_that_are_cut_anywhere_are_survived() {
        let whole = answer();
        for length in 0..whole.len() {
            assert!(statistics(&whole[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn loopback_is_read() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        assert!(!read(index).unwrap().linked_elsewhere);
        assert!(read(u32::MAX >> 1).is_err());
    }
}
