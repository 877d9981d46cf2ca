//! Counters of an interface, over netlink: `/proc/net/dev` merges some that are needed separately.

use super::netlink::{IFINFOMSG, QueryScope, ROUTE, RTM_GETLINK, ask, attributes};
use std::io;

const IFLA_STATS64: u16 = 23;
const IFLA_LINK_NETNSID: u16 = 37;

/// The fields of `struct rtnl_link_stats64` that are used here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) errors: u64,
    /// Dropped by the driver or by the kernel's network stack.
    pub(super) dropped: u64,
    pub(super) send_errors: u64,
    pub(super) send_dropped: u64,
    /// Dropped for lack of room in the device's queue; `missed`: in host memory.
    pub(super) overrun: u64,
    pub(super) missed: u64,
    /// Whether the linked device (a veth peer) is in another network namespace.
    pub(super) linked_elsewhere: bool,
}

/// Reads the counters of the interface with this index.
pub(super) fn read(index: u32) -> io::Result<Statistics> {
    let mut body = [0; IFINFOMSG];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    let answers = ask(ROUTE, RTM_GETLINK, QueryScope::One, &body)?;
    answers
        .first()
        .and_then(|answer| statistics(answer))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn statistics(answer: &[u8]) -> Option<Statistics> {
    let (mut found, mut linked_elsewhere) = (None, false);
    for (kind, value) in attributes(answer.get(IFINFOMSG..)?) {
        match kind {
            IFLA_STATS64 => found = Some(of_words(value)),
            IFLA_LINK_NETNSID => linked_elsewhere = true,
            _ => {}
        }
    }
    found.map(|found| Statistics { linked_elsewhere, ..found })
}

/// Decodes the words of `struct rtnl_link_stats64`; older kernels have fewer.
fn of_words(value: &[u8]) -> Statistics {
    let word = |index: usize| {
        value
            .get(8 * index..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |word| u64::from_ne_bytes(*word))
    };
    Statistics {
        received: word(0),
        sent: word(1),
        errors: word(4),
        dropped: word(6),
        send_errors: word(5),
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
        let mut answer = vec![0; IFINFOMSG];
        let words: Vec<u8> = (100..124_u64).flat_map(u64::to_ne_bytes).collect();
        answer.extend(((4 + words.len()) as u16).to_ne_bytes());
        answer.extend(IFLA_STATS64.to_ne_bytes());
        answer.extend(words);
        answer.extend([8, 0, 37, 0, 0, 0, 0, 0]);
        answer
    }

    #[test]
    fn counters_are_where_the_kernel_has_them() {
        let expected = Statistics {
            received: 100,
            sent: 101,
            errors: 104,
            dropped: 106,
            send_errors: 105,
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
        let statistics_end = whole.len() - 8;
        for length in 0..statistics_end {
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
