//! Requests to the kernel over netlink (rtnetlink and generic netlink): [`ask`] for queries,
//! `change` for modifications; and what answers describe: whether a link is virtual, and the packets
//! in its queueing discipline. `/sys` is no source for these: it describes the network namespace in
//! which it was mounted.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};
use std::io;
use std::time::Duration;

/// Message type of a query for one or all interfaces.
pub const RTM_GETLINK: u16 = 18;
/// Message type by which the kernel announces that an interface is gone from the namespace.
pub(super) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETQDISC: u16 = 38;
/// Length of `struct ifinfomsg`, which precedes a link's attributes.
pub const IFINFOMSG: usize = 16;
/// Length of `struct tcmsg`, which precedes the attributes of a queueing discipline or filter.
pub(crate) const TCMSG: usize = 20;

/// Protocol of rtnetlink: `NETLINK_ROUTE` is zero, which the library represents as `None`.
pub const ROUTE: Option<Protocol> = None;

/// Scope of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryScope {
    /// The object named by the request.
    One,
    /// All objects (a dump).
    All,
}

/// Attributes of a link that several modules read.
pub(super) const IFLA_LINKINFO: u16 = 18;
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_LINK_NETNSID: u16 = 37;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
/// Flags of [`change`]: `NLM_F_CREATE` creates a missing object, and with `NLM_F_EXCL` an existing
/// one is an error.
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Mask that removes the flags from an attribute's type.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Sends one request and returns the bodies of the answers.
///
/// # Errors
/// The protocol does not exist, or the kernel refuses or does not answer.
pub fn ask(
    protocol: Option<Protocol>,
    kind: u16,
    which: QueryScope,
    body: &[u8],
) -> io::Result<Vec<Vec<u8>>> {
    // Answers end with a message of their own: a dump by itself, others with an acknowledgement.
    exchange(protocol, kind, if which == QueryScope::All { NLM_F_DUMP } else { NLM_F_ACK }, body)
}

/// Returns the description of the interface with this index, as of [`RTM_GETLINK`].
pub(super) fn link(index: u32) -> io::Result<Vec<u8>> {
    let mut body = [0; IFINFOMSG];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    let answers = ask(ROUTE, RTM_GETLINK, QueryScope::One, &body)?;
    answers.into_iter().next().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sends one request that modifies something, and waits for its acknowledgement.
///
/// # Errors
/// As [`ask`].
pub(crate) fn change(
    protocol: Option<Protocol>,
    kind: u16,
    flags: u16,
    body: &[u8],
) -> io::Result<()> {
    exchange(protocol, kind, NLM_F_ACK | flags, body).map(drop)
}

fn exchange(
    protocol: Option<Protocol>,
    kind: u16,
    flags: u16,
    body: &[u8],
) -> io::Result<Vec<Vec<u8>>> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    // The kernel answers at once or never.
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
    sendto(
        &socket,
        &request(kind, flags, body),
        SendFlags::empty(),
        &SocketAddrNetlink::new(0, 0),
    )?;
    let mut answers = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        for (kind, body) in messages(buffer.get(..length).unwrap_or_default()) {
            match kind {
                NLMSG_DONE => return Ok(answers),
                NLMSG_ERROR => return acknowledged(body).map(|()| answers),
                _ => answers.push(body.to_vec()),
            }
        }
        if length == 0 {
            return Ok(answers);
        }
    }
}

/// Checks the message that ends the answers to a request other than a dump: error code zero is the
/// acknowledgement.
fn acknowledged(body: &[u8]) -> io::Result<()> {
    match body.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) => Err(Errno::from_raw_os_error(code.saturating_neg()).into()),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((flags | NLM_F_REQUEST).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Returns types and bodies of the messages in a datagram, up to the first malformed one.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?);
        let body = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Returns types and values of attributes, up to the first malformed one.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

/// Returns the value of the first attribute of a type.
pub fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Decodes an attribute that is a 32-bit number.
pub fn word(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// Encodes an attribute with its header, padded.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (4 + value.len()) as u16;
    let mut attribute = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

const IFLA_PARENT_DEV_NAME: u16 = 56;

/// Returns whether a link, as the kernel reports it, is a virtual device: one without hardware
/// queues, such as veth, bridge, macvlan, bond, tun and loopback.
///
/// The kernel names the kind of most virtual devices (`IFLA_INFO_KIND`) and, since Linux 5.14, the
/// hardware behind the others (`IFLA_PARENT_DEV_NAME`, in `/sys` the link `device`). Some drivers
/// of hardware have a kind too.
#[must_use]
pub fn is_virtual_link(link: &[u8]) -> bool {
    let is_loopback = link.get(2..4) == Some(&libc::ARPHRD_LOOPBACK.to_ne_bytes()[..]);
    let attributes = link.get(IFINFOMSG..).unwrap_or_default();
    let has_kind = find(attributes, IFLA_LINKINFO)
        .is_some_and(|information| find(information, IFLA_INFO_KIND).is_some());
    (is_loopback || has_kind) && find(attributes, IFLA_PARENT_DEV_NAME).is_none()
}

/// Parent of the root discipline, which packets enter first (`TC_H_ROOT`).
const ROOT: u32 = u32::MAX;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;

/// Returns the packets waiting in an interface's queueing discipline plus those it dropped since it
/// was created. A discipline includes the counts of its children. Zero without a discipline.
pub(super) fn queued(index: u32) -> io::Result<u64> {
    let answers = ask(ROUTE, RTM_GETQDISC, QueryScope::All, &[0; TCMSG])?;
    Ok(answers.iter().filter_map(|answer| of_root(answer, index)).sum())
}

fn of_root(answer: &[u8], index: u32) -> Option<u64> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    if word(answer, 4)? != index || word(answer, 12)? != ROOT {
        return None;
    }
    let queue = find(find(answer.get(TCMSG..)?, TCA_STATS2)?, TCA_STATS_QUEUE)?;
    let (waiting, dropped) = (word(queue, 0)?, word(queue, 8)?);
    Some(u64::from(waiting) + u64::from(dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_lie_about_their_length_are_survived() {
        let whole = request(1, 0, &attribute(3, b"eth1\0"));
        for lie in 0..=u8::MAX {
            let mut message = whole.clone();
            message[0] = lie;
            assert!(messages(&message).count() <= message.len() / HEADER);
        }
    }

    #[test]
    fn messages_of_one_datagram_are_separated() {
        let datagram = [request(20, 0, &[1, 2, 3, 4]), request(NLMSG_DONE, 0, &[0; 4])].concat();
        assert_eq!(
            messages(&datagram).collect::<Vec<_>>(),
            [(20, &[1, 2, 3, 4][..]), (NLMSG_DONE, &[0; 4][..])]
        );
    }

    #[test]
    fn refusals_are_errors() {
        assert!(acknowledged(&0_i32.to_ne_bytes()).is_ok());
        assert_eq!(
            acknowledged(&(-2_i32).to_ne_bytes()).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(acknowledged(&[]).is_err());
    }

    fn link(hardware: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut link = vec![0; IFINFOMSG];
        link[2..4].copy_from_slice(&hardware.to_ne_bytes());
        link.extend(attributes.concat());
        link
    }

    #[test]
    fn devices_with_a_kind_and_without_hardware_are_virtual() {
        const INFO_SLAVE_KIND: u16 = 4;
        let information =
            |kind, name: &[u8]| attribute(IFLA_LINKINFO | 0x8000, &attribute(kind, name));
        let veth = information(IFLA_INFO_KIND, b"veth\0");
        let parent = attribute(IFLA_PARENT_DEV_NAME, b"0000:00:05.0\0");
        let ethernet = libc::ARPHRD_ETHER;
        assert!(is_virtual_link(&link(ethernet, std::slice::from_ref(&veth))));
        assert!(is_virtual_link(&link(
            libc::ARPHRD_NONE,
            &[information(IFLA_INFO_KIND, b"tun\0")]
        )));
        assert!(is_virtual_link(&link(libc::ARPHRD_LOOPBACK, &[])));
        // Hardware: since Linux 5.14, before, with a kind, and as a part of a bond.
        assert!(!is_virtual_link(&link(ethernet, std::slice::from_ref(&parent))));
        assert!(!is_virtual_link(&link(ethernet, &[])));
        assert!(!is_virtual_link(&link(ethernet, &[veth, parent])));
        assert!(!is_virtual_link(&link(ethernet, &[information(INFO_SLAVE_KIND, b"bond\0")])));
        assert!(!is_virtual_link(&[]));
    }

    #[test]
    fn loopback_is_virtual() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        assert!(is_virtual_link(&super::link(index).unwrap()));
        assert!(super::link(u32::MAX >> 1).is_err());
    }

    fn answer(index: u32, parent: u32) -> Vec<u8> {
        let attribute = |kind: u16, value: &[u8]| {
            [&((4 + value.len()) as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
        };
        let queue: Vec<u8> = [5_u32, 600, 7, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        let head = [0, index, 0, parent, 0].into_iter().flat_map(u32::to_ne_bytes);
        head.chain(attribute(TCA_STATS2 | 0x8000, &attribute(TCA_STATS_QUEUE, &queue))).collect()
    }

    #[test]
    fn only_the_first_discipline_of_the_interface_is_read() {
        assert_eq!(of_root(&answer(9, ROOT), 9), Some(12));
        assert_eq!(of_root(&answer(8, ROOT), 9), None);
        assert_eq!(of_root(&answer(9, 0x8001_0001), 9), None);
        let whole = answer(9, ROOT);
        // The last two words do not matter.
        for length in 0..whole.len() - 8 {
            assert_eq!(of_root(&whole[..length], 9), None, "{length}");
        }
    }

    #[test]
    fn loopback_has_no_queueing_discipline() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        assert_eq!(queued(index).unwrap(), 0);
    }
}
