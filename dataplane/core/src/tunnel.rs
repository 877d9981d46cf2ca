//! Tunnels: network headers in the payload of other network headers.
//!
//! Tunnels are opened only if [settings](crate::parse::Settings) ask for it. The innermost header
//! that can be found then defines the flow. If the inner part of a tunnel is truncated, encrypted
//! or not IP, the header around it counts, so that no packet is dropped for being in a tunnel.

use crate::encapsulation::{self, IPV4, IPV6, TRANSPARENT_ETHERNET, encapsulated};
use crate::frame::Frame;
use crate::packet::{Packet, Transport, UDP, locate, transport};

/// Maximum number of nested tunnels that are opened; deeper ones are ignored.
pub const MAX_TUNNELS: usize = 4;

/// Maximum number of GTP-U extension headers; a tunnel with more is not opened.
const MAX_GTP_EXTENSIONS: usize = 4;

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;

const GTP_USER_PORT: u16 = 2152;
const VXLAN_PORT: u16 = 4789;
const VXLAN_GPE_PORT: u16 = 4790;
const GENEVE_PORT: u16 = 6081;

const PPP_IN_GRE: u16 = 0x880b;
const ERSPAN: u16 = 0x88be;
const ERSPAN_3: u16 = 0x22eb;

/// EtherType and offset of the header inside a tunnel.
type InnerHeader = Option<(u16, usize)>;

/// Returns whether a packet may be a tunnel, so that most packets need no further look. False only
/// if [`innermost`] finds none.
#[inline(always)]
pub fn may_be<F: Frame + ?Sized>(frame: &F, packet: &Packet<'_>) -> bool {
    let Transport { protocol, ports: [_, _, high, low] } = transport(frame, packet);
    match protocol {
        UDP => matches!(
            u16::from_be_bytes([high, low]),
            GTP_USER_PORT | VXLAN_PORT | VXLAN_GPE_PORT | GENEVE_PORT
        ),
        protocol => matches!(protocol, IPV4_IN_IP | IPV6_IN_IP | GRE),
    }
}

/// Returns the innermost network header of a packet.
#[inline(never)]
pub fn innermost<'a, F: Frame + ?Sized>(frame: &'a F, outermost: Packet<'a>) -> Packet<'a> {
    let mut packet = outermost;
    for _ in 0..MAX_TUNNELS {
        match inside(frame, &packet) {
            Some(inner) => packet = inner,
            None => break,
        }
    }
    packet
}

fn inside<'a, F: Frame + ?Sized>(frame: &'a F, packet: &Packet<'_>) -> Option<Packet<'a>> {
    let (protocol, Some(offset)) = locate(frame, packet) else { return None };
    let (ethertype, offset) = match protocol {
        IPV4_IN_IP => (IPV4, offset),
        IPV6_IN_IP => (IPV6, offset),
        GRE => generic(frame, offset)?,
        UDP => datagram(frame, offset)?,
        _ => return None,
    };
    encapsulated(frame, ethertype, offset, 0).ok()
}

/// Opens GRE with checksum, key and sequence number (RFC 2890), which may carry Ethernet (also
/// NVGRE), ERSPAN and MPLS, and the GRE of PPTP (RFC 2637). Source routes, which RFC 2784 removed,
/// are not opened.
fn generic<F: Frame + ?Sized>(frame: &F, offset: usize) -> InnerHeader {
    let [flags, version, high, low] = *frame.bytes(offset)?;
    let ethertype = u16::from_be_bytes([high, low]);
    let optional = |flags: u8, bit: u8| if flags & bit == 0 { 0 } else { 4 };
    let behind = |length: usize| offset + length;
    let sequence: usize = optional(flags, 0x10);
    match (version & 7, flags & 0x40) {
        (0, 0) => {
            let end = behind(sequence + 4 + optional(flags, 0x80) + optional(flags, 0x20));
            match ethertype {
                // ERSPAN type I has neither a sequence number nor a header of its own.
                ERSPAN if sequence == 0 => Some((TRANSPARENT_ETHERNET, end)),
                ERSPAN => Some((TRANSPARENT_ETHERNET, end + 8)),
                ERSPAN_3 => {
                    let [.., last] = *frame.bytes::<12>(end)?;
                    let platform = if last & 1 == 0 { 0 } else { 8 };
                    Some((TRANSPARENT_ETHERNET, end + 12 + platform))
                }
                PPP_IN_GRE => encapsulation::ppp_in_hdlc(frame, end).ok(),
                _ => Some((ethertype, end)),
            }
        }
        (1, 0) if ethertype == PPP_IN_GRE => {
            let length = sequence + 8 + optional(version, 0x80);
            encapsulation::ppp_in_hdlc(frame, behind(length)).ok()
        }
        _ => None,
    }
}

/// Opens tunnels in UDP, by destination port only: a packet from such a port may be an answer to
/// anything.
fn datagram<F: Frame + ?Sized>(frame: &F, offset: usize) -> InnerHeader {
    let payload = offset + 8;
    match frame.number(offset + 2)? {
        VXLAN_PORT => Some((TRANSPARENT_ETHERNET, payload + 8)),
        VXLAN_GPE_PORT => {
            let [_, _, _, next] = *frame.bytes(payload)?;
            Some((encapsulation::next_protocol(next).ok()?, payload + 8))
        }
        GENEVE_PORT => {
            let [first, _, high, low] = *frame.bytes(payload)?;
            let options = usize::from(first & 0x3f) * 4;
            let is_known = first >> 6 == 0;
            is_known.then(|| (u16::from_be_bytes([high, low]), payload + 8 + options))
        }
        GTP_USER_PORT => gtp(frame, payload),
        _ => None,
    }
}

/// Opens a user packet in GTP version 1 (3GPP TS 29.281), after optional fields and extension
/// headers.
fn gtp<F: Frame + ?Sized>(frame: &F, offset: usize) -> InnerHeader {
    const USER_PACKET: u8 = 0xff;
    let [flags, message] = *frame.bytes(offset)?;
    if flags & 0xf0 != 0x30 || message != USER_PACKET {
        return None;
    }
    let mut end = offset + 8;
    if flags & 7 != 0 {
        end += 4;
        let [mut next] = *frame.bytes(end - 1)?;
        // Without the E bit the field is present but has no meaning.
        if flags & 4 == 0 {
            next = 0;
        }
        for _ in 0..MAX_GTP_EXTENSIONS {
            if next == 0 {
                break;
            }
            let [words] = *frame.bytes(end)?;
            if words == 0 {
                return None;
            }
            end += usize::from(words) * 4;
            [next] = *frame.bytes(end - 1)?;
        }
        if next != 0 {
            return None;
        }
    }
    encapsulation::ip(frame, end).ok()
}
