//! Requests to the kernel over netlink: rtnetlink and generic netlink. [`ask`] is for what changes
//! nothing, `change` for what does.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};
use std::io;
use std::time::Duration;

/// Asks for the interfaces, or one of them.
pub const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_GETQDISC: u16 = 38;
/// Length of `struct ifinfomsg`, which is before a link's attributes.
pub const IFINFOMSG: usize = 16;
/// Length of `struct tcmsg`, which is before the attributes of a queueing discipline or filter.
pub(crate) const TCMSG: usize = 20;

/// `NETLINK_ROUTE` is zero, which the library takes as no protocol.
pub const ROUTE: Option<Protocol> = None;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// What the request names.
    One,
    /// All there are.
    All,
}

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
/// Flags of [`change`]: makes what is not there yet; and only that, if something is there.
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Flags in an attribute's type.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Sends one request and collects what answers it, without headers.
///
/// # Errors
/// If there is no such protocol, or the kernel refuses or does not answer.
pub fn ask(
    protocol: Option<Protocol>,
    kind: u16,
    which: Which,
    body: &[u8],
) -> io::Result<Vec<Vec<u8>>> {
    // Answers end with a message of their own: after a dump by itself, else by an acknowledgement.
    exchange(protocol, kind, if which == Which::All { NLM_F_DUMP } else { NLM_F_ACK }, body)
}

/// Sends one request that changes something, and waits until that is done.
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

/// An error of zero is the acknowledgement that ends the answers to a request that is no dump.
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

/// Types and bodies of the messages in a datagram, up to the first that is damaged.
fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?);
        let body = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Types and values of attributes, up to the first that is damaged.
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

/// The value of the first attribute of a type.
pub fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// An attribute that a number of 32 bits is.
pub fn word(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// An attribute with its header, as requests take it.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut attribute = Vec::with_capacity(4 + value.len());
    attribute.extend(((4 + value.len()) as u16).to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
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
    fn messages_of_one_datagram_are_told_apart() {
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
}
