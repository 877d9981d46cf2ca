//! Packets: network and transport headers.
//!
//! Only the fields that flow keys need are read. If the transport header is truncated or an
//! extension header unknown, ports are zero.

use crate::branchless::opaque;
use crate::frame::Frame;

/// Maximum number of IPv6 extension headers before the transport header; after more, ports are
/// zero.
pub const MAX_EXTENSION_HEADERS: usize = 8;

const HOP_BY_HOP: u8 = 0;
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
pub(crate) const ICMPV6: u8 = 58;
const DESTINATION_OPTIONS: u8 = 60;
pub(crate) const SCTP: u8 = 132;
const MOBILITY: u8 = 135;
const UDP_LITE: u8 = 136;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// Reason why a frame belongs to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Neither IPv4 nor IPv6. Has the EtherType that was not opened; zero if the frame has none.
    NonIp(u16),
    /// The link header or the fixed network header is truncated.
    Truncated,
    /// Wrong IP version, a header length under 20 bytes, or a total length shorter than the header.
    BadHeader,
}

/// A valid network header. Fields are read on use: most keys need few of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// IPv4.
    V4(Ipv4<'a>),
    /// IPv6.
    V6(Ipv6<'a>),
}

/// A valid IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4<'a> {
    pub(crate) header: &'a [u8; 20],
    /// Offset of the header in the frame.
    pub(crate) offset: usize,
}

/// A valid IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6<'a> {
    pub(crate) header: &'a [u8; 40],
    /// Offset of the header in the frame.
    pub(crate) offset: usize,
}

impl Packet<'_> {
    /// Returns the bytes from this header on, as it declares; zero if it does not.
    #[inline(always)]
    #[must_use]
    pub fn total_length(&self) -> u32 {
        match self {
            Packet::V4(ip) => ip.total_length(),
            Packet::V6(ip) => ip.total_length(),
        }
    }

    /// Returns the offset of the header in the frame.
    #[inline(always)]
    #[must_use]
    pub fn offset(&self) -> usize {
        match self {
            Packet::V4(ip) => ip.offset,
            Packet::V6(ip) => ip.offset,
        }
    }
}

/// Returns `N` bytes of a header, at an offset within it; zeros if they are out of bounds.
#[inline(always)]
pub(crate) fn field<const N: usize>(header: &[u8], offset: usize) -> [u8; N] {
    header.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

impl Ipv4<'_> {
    /// Returns the source address.
    #[inline(always)]
    #[must_use]
    pub fn src(&self) -> [u8; 4] {
        field(self.header, 12)
    }

    /// Returns the destination address.
    #[inline(always)]
    #[must_use]
    pub fn dst(&self) -> [u8; 4] {
        field(self.header, 16)
    }

    #[inline(always)]
    fn protocol(&self) -> u8 {
        let [protocol] = field(self.header, 9);
        protocol
    }

    /// Returns the bytes from this header on, as it declares; zero in a packet before segmentation
    /// offload whose length was never set.
    #[inline(always)]
    pub(crate) fn total_length(&self) -> u32 {
        u32::from(u16::from_be_bytes(field(self.header, 2)))
    }

    /// Returns the bytes from the start of this header to the transport header.
    #[inline(always)]
    fn length(&self) -> usize {
        let [version_ihl] = field(self.header, 0);
        usize::from(version_ihl & 0x0f) * 4
    }

    /// Returns the offset of the transport header in the frame; `None` for a fragment other than
    /// the first.
    #[inline(always)]
    fn transport(&self) -> Option<usize> {
        let fragment_offset = u16::from_be_bytes(field(self.header, 6)) & 0x1fff;
        (fragment_offset == 0).then(|| self.offset + self.length())
    }
}

impl Ipv6<'_> {
    /// Returns the source address.
    #[inline(always)]
    #[must_use]
    pub fn src(&self) -> [[u8; 4]; 4] {
        self.address(8)
    }

    /// Returns the destination address.
    #[inline(always)]
    #[must_use]
    pub fn dst(&self) -> [[u8; 4]; 4] {
        self.address(24)
    }

    /// Returns the bytes from this header on, as it declares; zero where only an option does (RFC
    /// 2675).
    #[inline(always)]
    fn total_length(&self) -> u32 {
        match field(self.header, 4) {
            [0, 0, HOP_BY_HOP] => 0,
            [high, low, _] => u32::from(u16::from_be_bytes([high, low])) + 40,
        }
    }

    #[inline(always)]
    fn address(&self, offset: usize) -> [[u8; 4]; 4] {
        [0, 4, 8, 12].map(|word| field(self.header, offset + word))
    }
}

const NO_PORTS: [u8; 4] = [0; 4];

/// Transport protocol and ports of a packet, as a five-tuple needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Protocol number of the transport header, or of the last header that could be read.
    pub protocol: u8,
    /// Source and destination port; zero for other protocols, later fragments and truncated
    /// headers.
    pub ports: [u8; 4],
}

impl Transport {
    /// No protocol and no ports, for keys that need neither; the same as [`Default`].
    pub const NONE: Transport = Transport { protocol: 0, ports: NO_PORTS };
}

#[inline(always)]
pub(crate) fn ipv4<F: Frame + ?Sized>(frame: &F, offset: usize) -> Result<Packet<'_>, Reject> {
    let header = frame.bytes(offset).ok_or(Reject::Truncated)?;
    let ip = Ipv4 { header, offset };
    let ([version_ihl], header_length) = (field(header, 0), ip.length());
    let total_length = ip.total_length() as usize;
    if version_ihl >> 4 != 4 || header_length < 20 {
        return Err(Reject::BadHeader);
    }
    // Captures on a sending host show segments before offload with a total length of zero.
    if total_length < header_length && total_length != 0 {
        return Err(Reject::BadHeader);
    }
    Ok(Packet::V4(ip))
}

#[inline(always)]
pub(crate) fn ipv6<F: Frame + ?Sized>(frame: &F, offset: usize) -> Result<Packet<'_>, Reject> {
    let header = frame.bytes(offset).ok_or(Reject::Truncated)?;
    let [version] = field(header, 0);
    if version >> 4 == 6 { Ok(Packet::V6(Ipv6 { header, offset })) } else { Err(Reject::BadHeader) }
}

/// Returns protocol and ports, following IPv6 extension headers.
#[inline(always)]
pub fn transport<F: Frame + ?Sized>(frame: &F, packet: &Packet<'_>) -> Transport {
    let (protocol, offset) = locate(frame, packet);
    ports(frame, protocol, offset)
}

/// Returns the protocol and the offset of the transport header, following IPv6 extension headers.
/// There is no offset for a fragment other than the first, and for truncated headers.
#[inline(always)]
pub(crate) fn locate<F: Frame + ?Sized>(frame: &F, packet: &Packet<'_>) -> (u8, Option<usize>) {
    match packet {
        Packet::V4(ip) => (ip.protocol(), ip.transport()),
        Packet::V6(ip) => {
            let [next_header] = field(ip.header, 6);
            behind_extensions(frame, next_header, ip.offset + ip.header.len())
        }
    }
}

/// Returns the bytes of all headers that every segment of a super-packet repeats: up to the payload
/// for TCP and UDP, up to their own header for other protocols, and up to the last readable header
/// for fragments.
#[inline(always)]
pub fn headers<F: Frame + ?Sized>(frame: &F, packet: &Packet<'_>) -> usize {
    let (protocol, start) = match packet {
        Packet::V4(ip) => (ip.protocol(), ip.offset + ip.length()),
        Packet::V6(ip) => {
            let ([next_header], behind) = (field(ip.header, 6), ip.offset + ip.header.len());
            match behind_extensions(frame, next_header, behind) {
                (protocol, Some(start)) => (protocol, start),
                (_, None) => return behind,
            }
        }
    };
    let length = match protocol {
        TCP => {
            let [data_offset] = frame.bytes(start + 12).copied().unwrap_or([5 << 4]);
            usize::from(data_offset >> 4) * 4
        }
        UDP | UDP_LITE => 8,
        _ => 0,
    };
    start + length
}

/// Returns the protocol and the offset of the transport header; no offset for a later fragment and
/// for truncated headers.
#[inline(always)]
fn behind_extensions<F: Frame + ?Sized>(
    frame: &F,
    mut protocol: u8,
    mut offset: usize,
) -> (u8, Option<usize>) {
    let mut headers = 0;
    while headers < MAX_EXTENSION_HEADERS {
        let length_unit = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6 => 8,
            FRAGMENT => 0,
            AUTHENTICATION => 4,
            _ => return (protocol, Some(offset)),
        };
        let Some(&[next, length, fragment_high, fragment_low]) = frame.bytes(offset) else {
            break;
        };
        if protocol == FRAGMENT && (fragment_high != 0 || fragment_low & 0xf8 != 0) {
            return (next, None);
        }
        // RFC 4302 §2.2 counts the authentication header in 32-bit words less two, RFC 8200 §4 all
        // others in 64-bit words less one; the fragment header is always 8 bytes long.
        offset = opaque(offset + 8 + (usize::from(length) * length_unit));
        protocol = next;
        headers += 1;
    }
    (protocol, None)
}

/// Returns protocol and ports of the transport header at `offset`, if it has one.
#[inline(always)]
pub(crate) fn ports<F: Frame + ?Sized>(
    frame: &F,
    protocol: u8,
    offset: Option<usize>,
) -> Transport {
    let ports = match (protocol, offset) {
        (TCP | UDP | SCTP | UDP_LITE, Some(offset)) => {
            frame.bytes(offset).copied().unwrap_or(NO_PORTS)
        }
        _ => NO_PORTS,
    };
    Transport { protocol, ports }
}
