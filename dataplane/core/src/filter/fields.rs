//! Layout of the header fields that rules compare.
//!
//! | word | bits | field |
//! | --- | --- | --- |
//! | [`FRAME`] | 28 | whether the frame has a VLAN tag |
//! | | 16 to 27 | id in the outermost VLAN tag |
//! | | 0 to 15 | length on the wire; 65,535 for longer frames |
//! | [`PROTOCOL`] | 24 to 31 | protocol number, behind IPv6 extension headers |
//! | | 16 to 23 | flags of a TCP header |
//! | | 1 | whether there are TCP flags |
//! | | 0 | whether there are ports: TCP, UDP or SCTP, in no later fragment |
//! | [`PORTS`] | | source port, then destination port |
//! | [`ADDRESSES`] on | | source address, then destination address |
//!
//! A field that the packet does not have, or that was not captured, is zero.

use crate::encapsulation::is_vlan;
use crate::frame::Frame;
use crate::link::Link;
use crate::packet::{Packet, Reject, SCTP, TCP, UDP, locate};

/// Word with the VLAN tag and the length.
pub const FRAME: usize = 0;
/// Word with the protocol and what is known of its header.
pub const PROTOCOL: usize = 1;
/// Word with the ports.
pub const PORTS: usize = 2;
/// First word of the source address.
pub const ADDRESSES: usize = 3;

/// Words of a frame without an IP packet.
pub const COMMON_WORDS: usize = 1;
/// Words of an IPv4 packet.
pub const IPV4_WORDS: usize = ADDRESSES + 2;
/// Words of an IPv6 packet.
pub const IPV6_WORDS: usize = ADDRESSES + 8;

/// Bit of [`FRAME`]: there is a VLAN tag.
pub const TAGGED: u32 = 1 << 28;
/// Position of the VLAN id in [`FRAME`].
pub const VLAN_SHIFT: u32 = 16;
/// Mask of a VLAN id.
pub const VLAN_MASK: u32 = 0xfff;
/// Mask of the length in [`FRAME`], and the largest one that it can hold.
pub const LENGTH_MASK: u32 = 0xffff;
/// Position of the protocol number in [`PROTOCOL`].
pub const PROTOCOL_SHIFT: u32 = 24;
/// Position of the TCP flags in [`PROTOCOL`].
pub const FLAGS_SHIFT: u32 = 16;
/// Bit of [`PROTOCOL`]: there are TCP flags.
pub const HAS_FLAGS: u32 = 2;
/// Bit of [`PROTOCOL`]: there are ports.
pub const HAS_PORTS: u32 = 1;

/// Offset of the flags in a TCP header.
const FLAGS: usize = 13;

/// Fields of a frame, by which any filter can decide. The kernel's programs find all of them before
/// they decide. Otherwise the verifier would follow the rules once for each path through the parser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MatchFields {
    /// Rules that apply.
    pub(super) rules: u32,
    /// Words of an IPv6 packet; the first ones of others.
    pub(super) words: [u32; IPV6_WORDS],
}

impl MatchFields {
    pub(super) const OF_IPV4: u32 = 0;
    pub(super) const OF_IPV6: u32 = 1;
    pub(super) const OF_NON_IP: u32 = 2;
    const OF_UNREADABLE: u32 = 3;

    /// Writes the fields of a packet; `word` is the word [`FRAME`] of its frame.
    #[inline(always)]
    pub fn write<F: Frame + ?Sized>(&mut self, frame: &F, packet: &Packet<'_>, word: u32) {
        let [first, protocol, ports, addresses @ ..] = &mut self.words;
        *first = word;
        [*protocol, *ports] = transport(frame, packet);
        match packet {
            Packet::V4(ip) => {
                let [src, dst, ..] = addresses;
                [*src, *dst] = [ip.src(), ip.dst()].map(u32::from_be_bytes);
                self.rules = Self::OF_IPV4;
            }
            Packet::V6(ip) => {
                let [s0, s1, s2, s3] = ip.src().map(u32::from_be_bytes);
                let [d0, d1, d2, d3] = ip.dst().map(u32::from_be_bytes);
                *addresses = [s0, s1, s2, s3, d0, d1, d2, d3];
                self.rules = Self::OF_IPV6;
            }
        }
    }

    /// Writes the fields of a frame without a packet; `word` is its word [`FRAME`].
    #[inline(always)]
    pub fn write_rejected(&mut self, reject: Reject, word: u32) {
        let [first, ..] = &mut self.words;
        *first = word;
        self.rules = match reject {
            Reject::NonIp(_) => Self::OF_NON_IP,
            Reject::Truncated | Reject::BadHeader => Self::OF_UNREADABLE,
        };
    }

    /// Returns the words of an IPv4 packet.
    #[inline(always)]
    pub(super) fn ipv4(&self) -> [u32; IPV4_WORDS] {
        let [frame, protocol, ports, src, dst, ..] = self.words;
        [frame, protocol, ports, src, dst]
    }
}

/// Returns the word of a frame.
#[inline(always)]
pub fn frame<F: Frame + ?Sized>(frame: &F, link: Link, wire_length: u32) -> u32 {
    tag(frame, link) | wire_length.min(LENGTH_MASK)
}

/// Returns the bits of a VLAN tag. The lowest bits of `tag` are the id.
#[inline(always)]
#[must_use]
pub fn tagged(tag: u32) -> u32 {
    TAGGED | (tag & VLAN_MASK) << VLAN_SHIFT
}

/// Returns the bits of the outermost VLAN tag, on the link layers that have an EtherType.
#[inline(always)]
fn tag<F: Frame + ?Sized>(frame: &F, link: Link) -> u32 {
    let (ethertype, tag) = match link {
        Link::Ethernet => (12, 14),
        Link::LinuxSll => (14, 16),
        Link::LinuxSll2 => (0, 20),
        Link::EtherType => (0, 2),
        Link::PaddedEtherType => (0, 4),
        _ => return 0,
    };
    match (frame.number(ethertype), frame.number(tag)) {
        (Some(ethertype), Some(tag)) if is_vlan(ethertype) => tagged(tag.into()),
        _ => 0,
    }
}

/// Returns the words of a packet's transport header.
#[inline(always)]
pub(super) fn transport<F: Frame + ?Sized>(frame: &F, packet: &Packet<'_>) -> [u32; 2] {
    let (protocol, offset) = locate(frame, packet);
    let mut word = u32::from(protocol) << PROTOCOL_SHIFT;
    let Some(offset) = offset.filter(|_| matches!(protocol, TCP | UDP | SCTP)) else {
        return [word, 0];
    };
    let mut ports = 0;
    if let Some(bytes) = frame.bytes(offset) {
        ports = u32::from_be_bytes(*bytes);
        word |= HAS_PORTS;
    }
    if protocol == TCP
        && let Some([flags]) = frame.bytes(offset + FLAGS)
    {
        word |= HAS_FLAGS | u32::from(*flags) << FLAGS_SHIFT;
    }
    [word, ports]
}
