//! Questions to the kernel over netlink (`NETLINK_ROUTE`), none of which changes anything.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::io;
use std::time::Duration;

pub(super) const RTM_GETLINK: u16 = 18;
pub(super) const RTM_GETQDISC: u16 = 38;
/// Asks for all there are.
pub(super) const NLM_F_DUMP: u16 = 0x300;
/// Length of `struct ifinfomsg`, and of `struct tcmsg`.
pub(super) const IFINFOMSG: usize = 16;
pub(super) const TCMSG: usize = 20;

const NLM_F_REQUEST: u16 = 0x1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Flags in an attribute's type.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Sends one request and collects what answers it, without headers.
pub(super) fn ask(kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // The kernel answers at once or never.
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
    sendto(&socket, &request(kind, flags, body), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answers = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        for (kind, body) in messages(buffer.get(..length).unwrap_or_default()) {
            match kind {
                NLMSG_DONE => return Ok(answers),
                NLMSG_ERROR => return Err(refused(body)),
                _ => answers.push(body.to_vec()),
            }
        }
        if length == 0 || flags & NLM_F_DUMP == 0 {
            return Ok(answers);
        }
    }
}

fn refused(body: &[u8]) -> io::Error {
    match body.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
        Some(code) if code != 0 => Errno::from_raw_os_error(code.saturating_neg()).into(),
        _ => io::ErrorKind::InvalidData.into(),
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
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}
