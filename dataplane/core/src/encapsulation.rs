//! Headers between the link and the network header that have no network header of their own.
//!
//! Each header names its successor by an EtherType, or by a number that maps to one. Headers are
//! therefore opened one after the other, in any order, until IPv4 or IPv6 follows. EtherTypes are
//! interpreted as in Wireshark; where Wireshark uses more than the frame (Ethernet in MPLS without
//! a control word), the comment at the function gives the rule.

use crate::frame::Frame;
use crate::packet::{Packet, Reject, ipv4, ipv6};

/// Maximum number of headers, VLAN tags and MPLS labels included; a frame with more counts as
/// non-IP.
pub const MAX_HEADERS: usize = 16;

/// EtherType of IPv4.
pub(crate) const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;

const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
const OLD_QINQ: u16 = 0x9100;
const TRILL: u16 = 0x22f3;
/// Bridged Ethernet.
pub(crate) const TRANSPARENT_ETHERNET: u16 = 0x6558;
const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE: u16 = 0x8864;
/// LLC in frames longer than a length field can express.
const JUMBO_LLC: u16 = 0x8870;
const MACSEC: u16 = 0x88e5;
const BACKBONE_SERVICE: u16 = 0x88e7;
const FABRIC_PATH: u16 = 0x8903;
const CISCO_METADATA: u16 = 0x8909;
const VN_TAG: u16 = 0x8926;
const HSR: u16 = 0x892f;
const E_TAG: u16 = 0x893f;
const NSH: u16 = 0x894f;
const REDUNDANCY_TAG: u16 = 0xf1c1;
/// Largest value that is a length (of an LLC header and its payload) and not an EtherType.
const LONGEST: u16 = 1500;

const ETHERNET: usize = 14;

/// EtherType and offset of the next header.
type Next = Result<(u16, usize), Reject>;

/// Returns whether an EtherType is that of a VLAN tag.
#[inline(always)]
pub(crate) fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, VLAN | SERVICE_VLAN | OLD_QINQ)
}

/// Returns whether [`open`] knows headers of this EtherType.
#[inline(always)]
pub(crate) fn opens(ethertype: u16) -> bool {
    is_vlan(ethertype)
        || matches!(
            ethertype,
            1..=LONGEST
                | TRILL
                | TRANSPARENT_ETHERNET
                | MPLS
                | MPLS_MULTICAST
                | PPPOE
                | JUMBO_LLC
                | MACSEC
        )
        || matches!(
            ethertype,
            BACKBONE_SERVICE
                | FABRIC_PATH
                | CISCO_METADATA
                | VN_TAG
                | HSR
                | E_TAG
                | NSH
                | REDUNDANCY_TAG
        )
}

/// Opens encapsulations from `ethertype` on and reads the network header after them. Not inlined in
/// user space, to keep it out of hot code.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[cfg_attr(not(target_arch = "bpf"), cold, inline(never))]
pub(crate) fn encapsulated<F: Frame + ?Sized>(
    frame: &F,
    ethertype: u16,
    offset: usize,
    headers: usize,
) -> Result<Packet<'_>, Reject> {
    match open(frame, ethertype, offset, headers)? {
        (IPV4, offset) => ipv4(frame, offset),
        (_, offset) => ipv6(frame, offset),
    }
}

/// Opens headers up to the network header; `headers` were opened before. Returns the EtherType of
/// IPv4 or IPv6, and the offset.
#[inline(always)]
pub(crate) fn open<F: Frame + ?Sized>(
    frame: &F,
    mut ethertype: u16,
    mut offset: usize,
    mut headers: usize,
) -> Next {
    loop {
        offset = frame.forget(offset);
        let next = match ethertype {
            IPV4 | IPV6 => return Ok((ethertype, offset)),
            _ if headers >= MAX_HEADERS => return Err(Reject::NonIp(ethertype)),
            1..=LONGEST | JUMBO_LLC => llc(frame, offset),
            MPLS | MPLS_MULTICAST => mpls(frame, ethertype, offset),
            PPPOE => ppp(frame, offset + 6),
            VLAN | SERVICE_VLAN | OLD_QINQ => behind(frame, offset, 4),
            HSR | REDUNDANCY_TAG | VN_TAG => behind(frame, offset, 6),
            E_TAG | CISCO_METADATA => behind(frame, offset, 8),
            TRANSPARENT_ETHERNET => behind(frame, offset, ETHERNET),
            // An outer header in place of an Ethernet header, and two more bytes.
            FABRIC_PATH => behind(frame, offset, 2 + ETHERNET),
            BACKBONE_SERVICE => behind(frame, offset, 4 + ETHERNET),
            TRILL => trill(frame, offset),
            MACSEC => macsec(frame, offset),
            NSH => service(frame, offset),
            _ => return Err(Reject::NonIp(ethertype)),
        };
        (ethertype, offset) = next?;
        headers += 1;
    }
}

/// Skips a header of `length` bytes, the last two of which are an EtherType.
#[inline(always)]
fn behind<F: Frame + ?Sized>(frame: &F, offset: usize, length: usize) -> Next {
    let end = offset + length;
    let ethertype = frame.number(end - 2).ok_or(Reject::Truncated)?;
    Ok((ethertype, end))
}

/// Determines the IP version from the first four bits.
#[inline(always)]
pub(crate) fn ip<F: Frame + ?Sized>(frame: &F, offset: usize) -> Next {
    let [first] = *frame.bytes(offset).ok_or(Reject::Truncated)?;
    match first >> 4 {
        4 => Ok((IPV4, offset)),
        6 => Ok((IPV6, offset)),
        _ => Err(Reject::NonIp(0)),
    }
}

/// Opens IEEE 802.2: SNAP, or IP directly (SAP 6).
#[inline(always)]
pub(crate) fn llc<F: Frame + ?Sized>(frame: &F, offset: usize) -> Next {
    match *frame.bytes(offset).ok_or(Reject::Truncated)? {
        [0xaa, 0xaa, 3] => snap(frame, offset + 3),
        [6, _, 3] => ip(frame, offset + 3),
        _ => Err(Reject::NonIp(0)),
    }
}

/// Opens SNAP: an organisation and its protocol number. Organisations zero (RFC 1042) and 0x0000f8
/// (802.1H) use EtherTypes.
#[inline(always)]
pub(crate) fn snap<F: Frame + ?Sized>(frame: &F, offset: usize) -> Next {
    match *frame.bytes(offset).ok_or(Reject::Truncated)? {
        [0, 0, 0 | 0xf8] => behind(frame, offset, 5),
        _ => Err(Reject::NonIp(0)),
    }
}

/// Opens PPP: the protocol number has two bytes, or one, which is odd (RFC 1661 section 6.5).
#[inline(always)]
pub(crate) fn ppp<F: Frame + ?Sized>(frame: &F, offset: usize) -> Next {
    let [first] = *frame.bytes(offset).ok_or(Reject::Truncated)?;
    let (protocol, length) = match first & 1 {
        1 => (u16::from(first), 1),
        _ => (frame.number(offset).ok_or(Reject::Truncated)?, 2),
    };
    Ok((ethertype_of(protocol)?, offset + length))
}

/// Maps a PPP protocol number to an EtherType.
#[inline(always)]
fn ethertype_of(protocol: u16) -> Result<u16, Reject> {
    match protocol {
        0x0021 => Ok(IPV4),
        0x0057 => Ok(IPV6),
        0x0281 => Ok(MPLS),
        0x0283 => Ok(MPLS_MULTICAST),
        _ => Err(Reject::NonIp(0)),
    }
}

/// Opens PPP as on serial lines: after an optional address and control byte (RFC 1662); or Cisco's
/// HDLC, which has an EtherType there.
#[inline(always)]
pub(crate) fn ppp_in_hdlc<F: Frame + ?Sized>(frame: &F, offset: usize) -> Next {
    match frame.bytes(offset) {
        Some([0xff, 3]) => ppp(frame, offset + 2),
        Some([0x0f | 0x8f, 0]) => behind(frame, offset, 4),
        _ => ppp(frame, offset),
    }
}

/// Opens an MPLS label. After the last label, the first four bits distinguish IP from other
/// payloads (RFC 4928).
#[inline(always)]
fn mpls<F: Frame + ?Sized>(frame: &F, ethertype: u16, offset: usize) -> Next {
    let [_, _, bottom, _] = *frame.bytes(offset).ok_or(Reject::Truncated)?;
    let end = offset + 4;
    if bottom & 1 == 0 {
        return Ok((ethertype, end));
    }
    let [first] = *frame.bytes(end).ok_or(Reject::Truncated)?;
    match first >> 4 {
        0 => pseudo_wire(frame, end),
        // An associated channel (RFC 4385), whose channel types equal PPP protocol numbers for IP.
        1 => {
            let channel = frame.number(end + 2).ok_or(Reject::Truncated)?;
            Ok((ethertype_of(channel)?, end + 4))
        }
        4 => Ok((IPV4, end)),
        6 => Ok((IPV6, end)),
        _ => Err(Reject::NonIp(ethertype)),
    }
}

/// Opens Ethernet after a control word, as RFC 8469 requires; without a control word if IP or a
/// VLAN tag is where the Ethernet header would then have its EtherType. Wireshark checks the
/// vendors of the addresses, too.
#[inline(always)]
fn pseudo_wire<F: Frame + ?Sized>(frame: &F, offset: usize) -> Next {
    let without = frame.bytes(offset + 12).is_some_and(|&[high, low, version]| {
        match u16::from_be_bytes([high, low]) {
            IPV4 => version >> 4 == 4,
            IPV6 => version >> 4 == 6,
            ethertype => is_vlan(ethertype),
        }
    });
    let control_word = if without { 0 } else { 4 };
    behind(frame, offset, ETHERNET + control_word)
}

/// Opens TRILL: six bytes, options, and an Ethernet header (RFC 6325 section 3.2).
#[inline(always)]
fn trill<F: Frame + ?Sized>(frame: &F, offset: usize) -> Next {
    let flags = frame.number(offset).ok_or(Reject::Truncated)?;
    let options = usize::from(flags >> 6 & 0x1f) * 4;
    behind(frame, offset, options + (6 + ETHERNET))
}

/// Opens a MACsec tag in front of payload that is signed but not encrypted: bits E and C and the
/// version are zero. Bit SC indicates an explicit channel identifier. The signature is at the end
/// of the frame.
#[inline(always)]
fn macsec<F: Frame + ?Sized>(frame: &F, offset: usize) -> Next {
    let [control] = *frame.bytes(offset).ok_or(Reject::Truncated)?;
    match (control & 0x8c, control & 0x20) {
        (0, 0) => behind(frame, offset, 8),
        (0, _) => behind(frame, offset, 16),
        _ => Err(Reject::NonIp(MACSEC)),
    }
}

/// Opens a network service header (RFC 8300): its length in words of four bytes, metadata type and
/// next protocol.
#[inline(always)]
fn service<F: Frame + ?Sized>(frame: &F, offset: usize) -> Next {
    let [_, length, metadata, next] = *frame.bytes(offset).ok_or(Reject::Truncated)?;
    let length = match metadata {
        // Always four words of metadata, after two other words.
        1 => 24,
        _ => (usize::from(length & 0x3f) * 4).max(8),
    };
    Ok((next_protocol(next)?, offset + length))
}

/// Maps a next protocol of the network service header to an EtherType. VXLAN-GPE uses the same
/// numbers.
#[inline(always)]
pub(crate) fn next_protocol(number: u8) -> Result<u16, Reject> {
    match number {
        1 => Ok(IPV4),
        2 => Ok(IPV6),
        3 => Ok(TRANSPARENT_ETHERNET),
        4 => Ok(NSH),
        5 => Ok(MPLS),
        _ => Err(Reject::NonIp(NSH)),
    }
}
