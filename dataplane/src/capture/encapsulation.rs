//! Link types with headers of variable length: location of the network layer.
//!
//! The parser of the packet path supports a few link layers with fixed offsets. Here a frame of
//! another link type is cut to one of those, so that the packet path stays unchanged. Nothing is
//! reassembled or decrypted: later fragments of 802.11, protected frames and compressed headers of
//! PPP have no readable network header and count as non-IP.

use super::link_type;
use flowgauge_core::Link;

/// A link layer of the parser, and the rest of a frame from its start.
type InnerFrame<'a> = (Link, &'a [u8]);

/// Returns a link layer that the parser supports, and the rest of `frame` from its start; `None` if
/// the link type is not supported.
///
/// A frame truncated before the end of its network header is [`Link::Ip`] without bytes, which
/// counts as truncated, and one without a network header is [`Link::Unsupported`].
///
/// ```
/// use flowgauge_core::Link;
/// use flowgauge_dataplane::capture::{link_type, open};
///
/// let packet = [0x45; 20];
/// let frame = [&[0x18, 0x41, 3, 0xcc][..], &packet].concat();
/// assert_eq!(open(link_type::FRELAY, &frame), Some((Link::Ip, &packet[..])));
/// ```
#[must_use]
pub fn open(link_type: u16, frame: &[u8]) -> Option<(Link, &[u8])> {
    let skip = |bytes: usize, link: Link| Some((link, frame.get(bytes..)?));
    let opened = match link_type {
        link_type::PPI => {
            let inner = field(frame, 4).map(u32::from_le_bytes);
            let after = field(frame, 2)
                .and_then(|length| frame.get(usize::from(u16::from_le_bytes(length))..));
            match (inner.map(u16::try_from), after) {
                (Some(Ok(link_type::PPI) | Err(_)), _) => return None,
                (Some(Ok(inner)), Some(after)) => return open(inner, after),
                _ => None,
            }
        }
        link_type::PPP | link_type::PPP_HDLC => ppp_hdlc(frame),
        link_type::PPP_ETHER => pppoe(frame),
        // A direction byte, in place of the address or before it.
        link_type::PPP_PPPD => skip(2, Link::Ppp),
        link_type::PPP_WITH_DIR => frame.get(1..).and_then(ppp_hdlc),
        // Address, control, EtherType.
        link_type::C_HDLC => skip(2, Link::EtherType),
        link_type::C_HDLC_WITH_DIR => skip(3, Link::EtherType),
        link_type::FRELAY => frame_relay(frame),
        link_type::FRELAY_WITH_DIR => frame.get(1..).and_then(frame_relay),
        link_type::NFLOG => nflog(frame),
        link_type::IEEE802_11 => ieee_802_11(frame, false),
        link_type::IEEE802_11_RADIOTAP => radiotap(frame),
        link_type::IEEE802_11_PRISM => prism(frame),
        link_type::IEEE802_11_AVS => avs(frame),
        // After the 40 bytes of a global route header, as in pcap.
        link_type::IPOIB => skip(40, Link::PaddedEtherType),
        link_type::IEEE802_5 => token_ring(frame),
        link_type::FDDI => skip(13, Link::Llc),
        link_type::ATM_RFC1483 => skip(0, Link::Llc),
        link_type::IP_OVER_FC => skip(16, Link::Llc),
        link_type::APPLE_IP_OVER_IEEE1394 => skip(16, Link::EtherType),
        link_type::NETANALYZER => skip(4, Link::Ethernet),
        link_type::MPLS => mpls(frame),
        _ => match link_type::link(link_type) {
            Link::Unsupported => return None,
            link => Some((link, frame)),
        },
    };
    Some(opened.unwrap_or((Link::Ip, &[])))
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Returns a frame without a network header.
fn no_packet(frame: &[u8]) -> Option<InnerFrame<'_>> {
    Some((Link::Unsupported, frame))
}

/// Decodes PPP, with or without HDLC-like framing, or Cisco HDLC.
fn ppp_hdlc(frame: &[u8]) -> Option<InnerFrame<'_>> {
    // The start of an address and control field, without a protocol.
    (frame != [0xff]).then_some((Link::Ppp, frame))
}

/// Decodes a PPPoE session (RFC 2516): version and type, code, session, length, then PPP.
fn pppoe(frame: &[u8]) -> Option<InnerFrame<'_>> {
    let [_, code] = field(frame, 0)?;
    if code != 0 {
        return no_packet(frame);
    }
    Some((Link::Ppp, frame.get(6..)?))
}

/// Skips labels (RFC 3032) up to the bottom of the stack. The type of the payload is not encoded;
/// IP is recognised by its version.
fn mpls(frame: &[u8]) -> Option<InnerFrame<'_>> {
    let mut rest = frame;
    loop {
        let (label, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        if label[2] & 1 == 1 {
            break;
        }
    }
    match rest.first()? >> 4 {
        4 | 6 => Some((Link::Ip, rest)),
        _ => no_packet(frame),
    }
}

/// Decodes Q.922: an address whose last byte has its lowest bit set, then RFC 2427 or Cisco's
/// EtherType.
fn frame_relay(frame: &[u8]) -> Option<InnerFrame<'_>> {
    let address = frame.iter().position(|byte| byte & 1 == 1)? + 1;
    let after = frame.get(address..)?;
    let [control] = field(after, 0)?;
    // Signalling on circuit 0, and exchange of identifications.
    let is_circuit_0 = matches!(frame, [0 | 2, second, ..] if address == 2 && second & 0xf0 == 0);
    match control {
        3 => nlpid(after.get(1..)?),
        0xaf => no_packet(frame),
        _ if is_circuit_0 => no_packet(frame),
        _ => Some((Link::EtherType, after)),
    }
}

/// Decodes RFC 2427: the number of a protocol, possibly after one byte of padding.
fn nlpid(frame: &[u8]) -> Option<InnerFrame<'_>> {
    match frame {
        [0] => None,
        [0, nlpid, payload @ ..] | [nlpid, payload @ ..] => match nlpid {
            0xcc | 0x8e => Some((Link::Ip, payload)),
            0xcf => Some((Link::Ppp, payload)),
            0x80 => Some((Link::Snap, payload)),
            _ => no_packet(frame),
        },
        _ => None,
    }
}

/// Decodes a record of Linux netfilter's log: a family, then attributes in the byte order of the
/// capturing machine. One attribute contains the packet.
fn nflog(frame: &[u8]) -> Option<InnerFrame<'_>> {
    const PAYLOAD: u16 = 9;
    const INET: u8 = 2;
    const INET6: u8 = 10;
    let ([family], attributes) = (field(frame, 0)?, frame.get(4..)?);
    if !matches!(family, INET | INET6) {
        return no_packet(frame);
    }
    // One of the two bytes of an attribute's number is zero, and no attribute is that long.
    let big_endian = matches!(attributes, [_, _, kind, _, ..] if kind & 0x7f == 0);
    let number = if big_endian { u16::from_be_bytes } else { u16::from_le_bytes };
    let mut rest = attributes;
    loop {
        let (&[a, b, c, d], value) = rest.split_first_chunk()?;
        let (length, kind) = (usize::from(number([a, b])), number([c, d]) & 0x7fff);
        if length < 4 {
            return no_packet(frame);
        }
        if kind == PAYLOAD {
            return Some((Link::Ip, value.get(..length - 4).unwrap_or(value)));
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// Decodes a radiotap header, whose flags include whether the 802.11 header is padded.
fn radiotap(frame: &[u8]) -> Option<InnerFrame<'_>> {
    const EXTENDED: u32 = 1 << 31;
    const TIMER: u32 = 1;
    const FLAGS: u32 = 2;
    const PADDED: u8 = 0x20;
    let after = frame.get(usize::from(u16::from_le_bytes(field(frame, 2)?))..)?;
    let present = u32::from_le_bytes(field(frame, 4)?);
    let mut at = 8;
    let mut more = present;
    while more & EXTENDED != 0 {
        more = u32::from_le_bytes(field(frame, at)?);
        at += 4;
    }
    if present & TIMER != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let flags =
        if present & FLAGS == 0 { 0 } else { field(frame, at).map_or(0, |[flags]: [u8; 1]| flags) };
    ieee_802_11(after, flags & PADDED != 0)
}

/// Decodes a Prism header: a message code and the length of the header, in the byte order of the
/// capturing machine. Some drivers wrote AVS headers under this link type.
fn prism(frame: &[u8]) -> Option<InnerFrame<'_>> {
    let (code, length) = (field(frame, 0)?, field(frame, 4)?);
    if u32::from_be_bytes(code) >> 4 == 0x0802_1100 {
        return avs(frame);
    }
    let length = if u32::from_le_bytes(code) < 0x1_0000 {
        u32::from_le_bytes(length)
    } else {
        u32::from_be_bytes(length)
    };
    ieee_802_11(frame.get(length as usize..)?, false)
}

/// Decodes an AVS header: version and length of the header.
fn avs(frame: &[u8]) -> Option<InnerFrame<'_>> {
    let length = u32::from_be_bytes(field(frame, 4)?);
    ieee_802_11(frame.get(length as usize..)?, false)
}

/// Decodes IEEE 802.11. Only the first packet of an aggregate (A-MSDU) is used: it is one frame on
/// the air.
fn ieee_802_11(frame: &[u8], padded: bool) -> Option<InnerFrame<'_>> {
    const TO_AND_FROM: u16 = 0x0300;
    const FROM: u16 = 0x0200;
    const PROTECTED: u16 = 0x4000;
    const HT_CONTROL: u16 = 0x8000;
    const QOS: u16 = 0x80;
    const NO_DATA: u16 = 0x40;
    let control = u16::from_le_bytes(field(frame, 0)?);
    let is_data = control & 0x000f == 0x0008 && control & NO_DATA == 0;
    if !is_data || control & PROTECTED != 0 {
        return no_packet(frame);
    }
    let [sequence] = field(frame, 22)?;
    if sequence & 0x0f != 0 {
        // A later fragment.
        return no_packet(frame);
    }
    let mut length = if control & TO_AND_FROM == TO_AND_FROM { 30 } else { 24 };
    let mut qos = 0;
    if control & QOS != 0 {
        qos = u16::from_le_bytes(field(frame, length)?);
        length += if control & HT_CONTROL != 0 { 6 } else { 2 };
    }
    if padded {
        length = length.next_multiple_of(4);
    }
    let body = frame.get(length..)?;
    if qos & 0x0080 != 0 {
        // Two addresses and a length.
        return Some((Link::Llc, body.get(14..)?));
    }
    let is_mesh = qos & 0x0100 != 0 && control & FROM != 0 && matches!(body, [0..=2, ..]);
    match body {
        [extension, ..] if is_mesh => {
            Some((Link::Llc, body.get(6 + 6 * usize::from(*extension)..)?))
        }
        _ => Some((Link::Llc, body)),
    }
}

/// Decodes IEEE 802.5: access control, frame control, two addresses, an optional route, then LLC.
fn token_ring(frame: &[u8]) -> Option<InnerFrame<'_>> {
    let [frame_control] = field(frame, 1)?;
    if frame_control & 0xc0 != 0x40 {
        return no_packet(frame);
    }
    let [source] = field(frame, 8)?;
    let route = match source & 0x80 {
        0 => 0,
        _ => usize::from(field::<1>(frame, 14)?[0] & 0x1f),
    };
    Some((Link::Llc, frame.get(14 + route..)?))
}
