//! Parser: finds the network header that defines a frame's flow.
//!
//! A frame passes through up to three steps: headers between link and network are skipped
//! ([`crate::encapsulation`]), the outermost IPv4 or IPv6 header is read and checked
//! ([`crate::packet`]), and if [settings](Settings) ask for it, tunnels are opened down to the
//! innermost network header ([`crate::tunnel`]). The result is a [`Packet`]; its transport header
//! is read later, and only if a key or a measurement needs it ([`transport`]).
//!
//! A frame is rejected ([`Reject`]) only if its network header is missing or contradicts itself, so
//! that the class of a packet never depends on the key in use.
//!
//! [`counted`] is the entry point. `plain` is the fast path of user space for IPv4 or IPv6 directly
//! over Ethernet, and `any` handles all other frames.

use crate::encapsulation::{self, IPV4, IPV6, encapsulated, is_vlan};
use crate::frame::Frame;
use crate::link::Link;
use crate::packet::{Ipv4, Ipv6, field, ipv4, ipv6};
use crate::tunnel;
use zerocopy::{Immutable, IntoBytes};

pub use crate::packet::{MAX_EXTENSION_HEADERS, Packet, Reject, Transport, headers, transport};

/// Number of VLAN tags skipped inline; [`encapsulation`] skips any further ones.
const PLAIN_TAGS: usize = 4;

/// Selection of the network header that defines the flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C, align(4))]
pub struct Settings {
    /// Select the innermost header in [tunnels](crate::tunnel) instead of the outermost one.
    pub inner: bool,
    /// Explicit, so that there is no padding.
    reserved: [u8; 3],
}

impl Settings {
    /// The outermost header; the same as [`Default`], usable in statics.
    pub const DEFAULT: Settings = Settings { inner: false, reserved: [0; 3] };
    /// The innermost header.
    pub const INNER: Settings = Settings { inner: true, reserved: [0; 3] };
}

/// Finds and checks the network header that defines a frame's flow. The kernel's programs open no
/// tunnels.
///
/// # Errors
/// Returns the [`Reject`] reason if the frame belongs to no flow.
#[inline(always)]
pub fn counted<'a, F: Frame + ?Sized>(
    frame: &'a F,
    link: Link,
    settings: &Settings,
) -> Result<Packet<'a>, Reject> {
    let outermost = network(frame, link)?;
    if settings.inner {
        return Ok(tunnel::innermost(frame, outermost));
    }
    Ok(outermost)
}

/// Returns the packet of a plain frame: IPv4 or IPv6 over Ethernet, without tags. `None` implies
/// nothing about any other frame. An `Option`, because a `Result` would put the packet into memory
/// in pieces of other sizes than those by which it is read.
#[inline(always)]
pub(crate) fn plain<F: Frame + ?Sized>(
    frame: &F,
    link: Link,
    settings: Settings,
) -> Option<Packet<'_>> {
    let may_be = !cfg!(target_arch = "bpf") && link == Link::Ethernet && !settings.inner;
    if !may_be {
        return None;
    }
    match plain_ipv4(frame) {
        Some(ip) => Some(Packet::V4(ip)),
        None => plain_ipv6(frame).map(Packet::V6),
    }
}

/// As [`counted`], for frames that are not plain: a separate function in user space, to keep the
/// code of plain frames short. Takes settings by value: a reference would put constants into
/// memory.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[cfg_attr(not(target_arch = "bpf"), inline(never))]
pub(crate) fn any<F: Frame + ?Sized>(
    frame: &F,
    link: Link,
    settings: Settings,
) -> Result<Packet<'_>, Reject> {
    counted(frame, link, &settings)
}

/// Finds and checks the outermost network header of a frame.
///
/// # Errors
/// Returns the [`Reject`] reason if the frame belongs to no flow.
#[inline(always)]
pub fn network<F: Frame + ?Sized>(frame: &F, link: Link) -> Result<Packet<'_>, Reject> {
    match link {
        Link::Ethernet => match plain_ipv4(frame) {
            Some(ip) => Ok(Packet::V4(ip)),
            None => behind_ethertype(frame, 12),
        },
        Link::LinuxSll => behind_ethertype(frame, 14),
        Link::LinuxSll2 => {
            let protocol = frame.number(0).ok_or(Reject::Truncated)?;
            ethertype(frame, protocol, 20)
        }
        Link::Ip => match *frame.bytes(0).ok_or(Reject::Truncated)? {
            [first, _, _, _] if first >> 4 == 4 => ipv4(frame, 0),
            [first, _, _, _] if first >> 4 == 6 => ipv6(frame, 0),
            _ => Err(Reject::BadHeader),
        },
        // The family has the byte order of the capturing machine: of the four bytes, either the
        // first three or the last three are zero.
        Link::Null => match *frame.bytes(0).ok_or(Reject::Truncated)? {
            [family, 0, 0, 0] | [0, 0, 0, family] => address_family(frame, family),
            _ => Err(Reject::NonIp(0)),
        },
        Link::EtherType => behind_ethertype(frame, 0),
        Link::PaddedEtherType => {
            let protocol = frame.number(0).ok_or(Reject::Truncated)?;
            ethertype(frame, protocol, 4)
        }
        Link::Llc | Link::Snap | Link::Ppp => without_ethertype(frame, link),
        Link::Unsupported => Err(Reject::NonIp(0)),
    }
}

/// Finds the network header for link types without an EtherType. Not inlined, because only captures
/// have them.
#[cold]
#[cfg_attr(not(target_arch = "bpf"), inline(never))]
fn without_ethertype<F: Frame + ?Sized>(frame: &F, link: Link) -> Result<Packet<'_>, Reject> {
    let (ethertype, offset) = match link {
        Link::Llc => encapsulation::llc(frame, 0)?,
        Link::Snap => encapsulation::snap(frame, 0)?,
        _ => encapsulation::ppp_in_hdlc(frame, 0)?,
    };
    encapsulated(frame, ethertype, offset, 0)
}

/// Returns the packet of a frame with IPv4 over Ethernet, without tags and options, at constant
/// offsets. `None` implies nothing about any other frame.
#[inline(always)]
pub fn plain_ipv4<F: Frame + ?Sized>(frame: &F) -> Option<Ipv4<'_>> {
    let whole: &[u8; 34] = frame.bytes(0)?;
    let header = whole.last_chunk()?;
    let is_plain = u32::from_be_bytes(field(whole, 12)) >> 8 == 0x0008_0045;
    let ip = Ipv4 { header, offset: 14 };
    (is_plain && ip.total_length() >= 20).then_some(ip)
}

/// As [`plain_ipv4`], after one VLAN tag.
#[inline(always)]
pub fn tagged_ipv4<F: Frame + ?Sized>(frame: &F) -> Option<Ipv4<'_>> {
    let whole: &[u8; 38] = frame.bytes(0)?;
    let header = whole.last_chunk()?;
    let is_plain = u32::from_be_bytes(field(whole, 16)) >> 8 == 0x0008_0045;
    let ip = Ipv4 { header, offset: 18 };
    (is_plain && is_vlan(u16::from_be_bytes(field(whole, 12))) && ip.total_length() >= 20)
        .then_some(ip)
}

/// As [`plain_ipv4`], for IPv6 without tags.
#[inline(always)]
pub fn plain_ipv6<F: Frame + ?Sized>(frame: &F) -> Option<Ipv6<'_>> {
    let whole: &[u8; 54] = frame.bytes(0)?;
    let header = whole.last_chunk()?;
    let is_plain = u32::from_be_bytes(field(whole, 12)) >> 12 == 0x8_6dd6;
    is_plain.then_some(Ipv6 { header, offset: 14 })
}

/// Returns the EtherType of an Ethernet frame that [`network`] does not open. `None` implies
/// nothing about any other frame.
#[inline(always)]
pub fn unopened<F: Frame + ?Sized>(frame: &F) -> Option<u16> {
    let ethertype = frame.number(12)?;
    let is_opened = matches!(ethertype, IPV4 | IPV6) || encapsulation::opens(ethertype);
    (!is_opened).then_some(ethertype)
}

#[inline(always)]
fn address_family<F: Frame + ?Sized>(frame: &F, family: u8) -> Result<Packet<'_>, Reject> {
    match family {
        2 => ipv4(frame, 4),
        // AF_INET6 on Linux, Windows, NetBSD/OpenBSD, FreeBSD and Darwin.
        10 | 23 | 24 | 28 | 30 => ipv6(frame, 4),
        _ => Err(Reject::NonIp(0)),
    }
}

/// Reads the EtherType at `offset`, and then the payload or VLAN tag that follows it.
#[inline(always)]
fn behind_ethertype<F: Frame + ?Sized>(frame: &F, offset: usize) -> Result<Packet<'_>, Reject> {
    let first = frame.number(offset).ok_or(Reject::Truncated)?;
    ethertype(frame, first, offset + 2)
}

#[inline(always)]
fn ethertype<F: Frame + ?Sized>(
    frame: &F,
    mut ethertype: u16,
    mut offset: usize,
) -> Result<Packet<'_>, Reject> {
    let mut tags = 0;
    while is_vlan(ethertype) && tags < PLAIN_TAGS {
        ethertype = frame.number(offset + 2).ok_or(Reject::Truncated)?;
        offset += 4;
        tags += 1;
    }
    match ethertype {
        IPV4 => ipv4(frame, offset),
        IPV6 => ipv6(frame, offset),
        _ if encapsulation::opens(ethertype) => encapsulated(frame, ethertype, offset, tags),
        _ => Err(Reject::NonIp(ethertype)),
    }
}
