//! From a frame to addresses, protocol and ports.
//!
//! Only what flow keys need is read, and only a network header that is missing or contradicts itself rejects a frame: a
//! cut-off transport header or an unknown extension header leaves the ports at zero, so that a packet's class never depends
//! on the key in use. Encapsulations (MPLS, PPPoE, tunnels) are not opened: the outermost network header counts.

use crate::frame::{Frame, Word};
use crate::link::Link;

/// 802.1Q, 802.1ad and 0x9100 tags skipped in front of the network header; a frame with more is non-IP.
pub const MAX_VLAN_TAGS: usize = 4;
/// IPv6 extension headers followed to find the transport header; behind more, ports are zero.
pub const MAX_EXTENSION_HEADERS: usize = 8;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const SCTP: u8 = 132;
const MOBILITY: u8 = 135;
const UDP_LITE: u8 = 136;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// Why a frame belongs to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Neither IPv4 nor IPv6.
    NonIp,
    /// The link header or the fixed network header is cut off.
    Truncated,
    /// Wrong IP version, a header length under 20 bytes, or a total length shorter than the header.
    BadHeader,
}

/// A sound network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// IPv4.
    V4 {
        /// Source address.
        src: Word,
        /// Destination address.
        dst: Word,
        /// Protocol number.
        protocol: u8,
        /// Offset of the transport header in the frame; `None` in a fragment that is not the first.
        transport: Option<usize>,
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: [Word; 4],
        /// Destination address.
        dst: [Word; 4],
        /// Next header of the fixed header: a transport protocol or the first extension header.
        next_header: u8,
        /// Offset behind the fixed header.
        payload: usize,
    },
}

/// Transport protocol and ports of a packet, as a five-tuple needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Protocol number of the transport header, or of the last header that could be read.
    pub protocol: u8,
    /// Source and destination port; zero for other protocols, later fragments and cut-off headers.
    pub ports: Word,
}

/// Finds and checks the network header of a frame.
///
/// # Errors
/// A [`Reject`] says why the frame belongs to no flow.
#[inline(always)]
pub fn network<F: Frame>(frame: &F, link: Link) -> Result<Packet, Reject> {
    match link {
        Link::Ethernet => behind_ethertype(frame, 12),
        Link::LinuxSll => behind_ethertype(frame, 14),
        Link::LinuxSll2 => {
            let protocol = frame.number(0).ok_or(Reject::Truncated)?;
            ethertype(frame, protocol, 20)
        }
        Link::Ip => match first_byte(frame).ok_or(Reject::Truncated)? >> 4 {
            4 => ipv4(frame, 0),
            6 => ipv6(frame, 0),
            _ => Err(Reject::BadHeader),
        },
        // The family is in the byte order of the machine that captured: of the four bytes, one end is zero.
        Link::Null => match frame.words(0).ok_or(Reject::Truncated)?.map(Word::to_ne_bytes) {
            [[family, 0, 0, 0] | [0, 0, 0, family]] => address_family(frame, family),
            _ => Err(Reject::NonIp),
        },
        Link::Unsupported => Err(Reject::NonIp),
    }
}

#[inline(always)]
fn first_byte<F: Frame>(frame: &F) -> Option<u8> {
    let [[first, ..]] = frame.words(0)?.map(Word::to_ne_bytes);
    Some(first)
}

#[inline(always)]
fn address_family<F: Frame>(frame: &F, family: u8) -> Result<Packet, Reject> {
    match family {
        2 => ipv4(frame, 4),
        // AF_INET6 of Linux, Windows, NetBSD/OpenBSD, FreeBSD, Darwin.
        10 | 23 | 24 | 28 | 30 => ipv6(frame, 4),
        _ => Err(Reject::NonIp),
    }
}

/// Reads the EtherType at `offset`, which the payload (or a VLAN tag) follows.
#[inline(always)]
fn behind_ethertype<F: Frame>(frame: &F, offset: usize) -> Result<Packet, Reject> {
    let first = frame.number(offset).ok_or(Reject::Truncated)?;
    ethertype(frame, first, offset.wrapping_add(2))
}

#[inline(always)]
fn ethertype<F: Frame>(frame: &F, mut ethertype: u16, mut offset: usize) -> Result<Packet, Reject> {
    let mut tags = 0;
    while is_vlan(ethertype) {
        if tags == MAX_VLAN_TAGS {
            return Err(Reject::NonIp);
        }
        ethertype = frame.number(offset.wrapping_add(2)).ok_or(Reject::Truncated)?;
        offset = offset.wrapping_add(4);
        tags = tags.wrapping_add(1);
    }
    match ethertype {
        ETHERTYPE_IPV4 => ipv4(frame, offset),
        ETHERTYPE_IPV6 => ipv6(frame, offset),
        _ => Err(Reject::NonIp),
    }
}

#[inline(always)]
fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100)
}

#[inline(always)]
fn ipv4<F: Frame>(frame: &F, offset: usize) -> Result<Packet, Reject> {
    let [start, fragmentation, ttl_protocol, src, dst] = frame.words(offset).ok_or(Reject::Truncated)?;
    let [version_ihl, _, length_high, length_low] = start.to_ne_bytes();
    let [_, _, fragment_high, fragment_low] = fragmentation.to_ne_bytes();
    let [_, protocol, _, _] = ttl_protocol.to_ne_bytes();
    let header_length = usize::from(version_ihl & 0x0f).wrapping_mul(4);
    let total_length = usize::from(u16::from_be_bytes([length_high, length_low]));
    if version_ihl >> 4 != 4 || header_length < 20 {
        return Err(Reject::BadHeader);
    }
    // Captures on a sending host show segments before offload with a total length of zero.
    if total_length < header_length && total_length != 0 {
        return Err(Reject::BadHeader);
    }
    let first_fragment = fragment_high & 0x1f == 0 && fragment_low == 0;
    Ok(Packet::V4 { src, dst, protocol, transport: first_fragment.then_some(offset.wrapping_add(header_length)) })
}

#[inline(always)]
fn ipv6<F: Frame>(frame: &F, offset: usize) -> Result<Packet, Reject> {
    let [start, length_next, s0, s1, s2, s3, d0, d1, d2, d3] = frame.words(offset).ok_or(Reject::Truncated)?;
    let [version, ..] = start.to_ne_bytes();
    let [_, _, next_header, _] = length_next.to_ne_bytes();
    if version >> 4 != 6 {
        return Err(Reject::BadHeader);
    }
    Ok(Packet::V6 { src: [s0, s1, s2, s3], dst: [d0, d1, d2, d3], next_header, payload: offset.wrapping_add(40) })
}

/// Protocol and ports, following IPv6 extension headers.
#[inline(always)]
pub fn transport<F: Frame>(frame: &F, packet: &Packet) -> Transport {
    match *packet {
        Packet::V4 { protocol, transport: Some(offset), .. } => ports(frame, protocol, offset),
        Packet::V4 { protocol, transport: None, .. } => Transport { protocol, ports: 0 },
        Packet::V6 { next_header, payload, .. } => behind_extensions(frame, next_header, payload),
    }
}

#[inline(always)]
fn behind_extensions<F: Frame>(frame: &F, mut protocol: u8, mut offset: usize) -> Transport {
    let mut headers = 0;
    while headers < MAX_EXTENSION_HEADERS {
        let length_unit = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6 => 8,
            FRAGMENT => 0,
            AUTHENTICATION => 4,
            _ => return ports(frame, protocol, offset),
        };
        let Some([start]) = frame.words(offset) else {
            break;
        };
        let [next, length, fragment_high, fragment_low] = start.to_ne_bytes();
        if protocol == FRAGMENT && (fragment_high != 0 || fragment_low & 0xf8 != 0) {
            return Transport { protocol: next, ports: 0 };
        }
        // RFC 4302 §2.2 counts the authentication header in 32-bit words less two, RFC 8200 §4 all others in 64-bit words
        // less one; the fragment header is always 8 bytes long.
        offset = offset.wrapping_add(8).wrapping_add(usize::from(length).wrapping_mul(length_unit));
        protocol = next;
        headers = headers.wrapping_add(1);
    }
    Transport { protocol, ports: 0 }
}

#[inline(always)]
fn ports<F: Frame>(frame: &F, protocol: u8, offset: usize) -> Transport {
    let ports = match protocol {
        TCP | UDP | SCTP | UDP_LITE => frame.words(offset).map_or(0, |[ports]| ports),
        _ => 0,
    };
    Transport { protocol, ports }
}
