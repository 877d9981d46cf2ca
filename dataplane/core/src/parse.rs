//! From a frame to addresses, protocol and ports.
//!
//! Only what flow keys need is read, and only a network header that is missing or contradicts
//! itself rejects a frame: a cut-off transport header or an unknown extension header leaves the
//! ports at zero, so that a packet's class never depends on the key in use. What lies between the
//! link and the network is opened ([`crate::encapsulation`]); tunnels, which have a network header
//! of their own, are not, unless [settings](Settings) ask for it: the outermost network header
//! counts.

use crate::encapsulation::{self, IPV4, IPV6, is_vlan};
use crate::frame::Frame;
use crate::link::Link;
use crate::tunnel;

/// VLAN tags that are skipped where the compiler sees them; what comes then is an
/// [`encapsulation`].
const PLAIN_TAGS: usize = 4;
/// IPv6 extension headers followed to find the transport header; behind more, ports are zero.
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
const SCTP: u8 = 132;
const MOBILITY: u8 = 135;
const UDP_LITE: u8 = 136;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// Which network header of a frame counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Settings {
    /// The innermost in [tunnels](crate::tunnel), not the outermost.
    pub inner: bool,
    /// No padding.
    reserved: [u8; 3],
}

impl Settings {
    /// As [`Default`], for statics: the outermost.
    pub const DEFAULT: Settings = Settings { inner: false, reserved: [0; 3] };
    /// The innermost.
    pub const INNER: Settings = Settings { inner: true, reserved: [0; 3] };
}

/// Why a frame belongs to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Neither IPv4 nor IPv6, but this EtherType, which is not opened; zero where the frame has
    /// none.
    NonIp(u16),
    /// The link header or the fixed network header is cut off.
    Truncated,
    /// Wrong IP version, a header length under 20 bytes, or a total length shorter than the header.
    BadHeader,
}

/// A sound network header. Fields are read where they are used: most keys need few of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// IPv4.
    V4(Ipv4<'a>),
    /// IPv6.
    V6(Ipv6<'a>),
}

/// A sound IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4<'a> {
    header: &'a [u8; 20],
    /// Where it begins in the frame.
    offset: usize,
}

/// A sound IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6<'a> {
    header: &'a [u8; 40],
    /// Where it begins in the frame.
    offset: usize,
}

impl Packet<'_> {
    /// Bytes from this header on, as it says; zero if it does not.
    #[inline(always)]
    #[must_use]
    pub fn total_length(&self) -> u32 {
        match self {
            Packet::V4(ip) => ip.total_length(),
            Packet::V6(ip) => ip.total_length(),
        }
    }

    /// Where the header begins in the frame.
    #[inline(always)]
    #[must_use]
    pub fn offset(&self) -> usize {
        match self {
            Packet::V4(ip) => ip.offset,
            Packet::V6(ip) => ip.offset,
        }
    }
}

/// Bytes of a header, at an offset within it.
#[inline(always)]
fn field<const N: usize>(header: &[u8], offset: usize) -> [u8; N] {
    header.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

impl Ipv4<'_> {
    /// Source address.
    #[inline(always)]
    #[must_use]
    pub fn src(&self) -> [u8; 4] {
        field(self.header, 12)
    }

    /// Destination address.
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

    /// Bytes from this header on, as it says; zero where a device is still to split it and nobody
    /// has set it.
    #[inline(always)]
    fn total_length(&self) -> u32 {
        u32::from(u16::from_be_bytes(field(self.header, 2)))
    }

    /// Bytes from the start of this header to the transport header.
    #[inline(always)]
    fn length(&self) -> usize {
        let [version_ihl] = field(self.header, 0);
        usize::from(version_ihl & 0x0f) * 4
    }

    /// Offset of the transport header in the frame; `None` in a fragment that is not the first.
    #[inline(always)]
    fn transport(&self) -> Option<usize> {
        let fragment_offset = u16::from_be_bytes(field(self.header, 6)) & 0x1fff;
        (fragment_offset == 0).then(|| self.offset + self.length())
    }
}

impl Ipv6<'_> {
    /// Source address.
    #[inline(always)]
    #[must_use]
    pub fn src(&self) -> [[u8; 4]; 4] {
        self.address(8)
    }

    /// Destination address.
    #[inline(always)]
    #[must_use]
    pub fn dst(&self) -> [[u8; 4]; 4] {
        self.address(24)
    }

    /// Bytes from this header on, as it says; zero where only an option does (RFC 2675).
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
    /// Source and destination port; zero for other protocols, later fragments and cut-off headers.
    pub ports: [u8; 4],
}

impl Transport {
    /// As [`Default`]: what keys without ports have to know.
    pub const NONE: Transport = Transport { protocol: 0, ports: NO_PORTS };
}

/// Finds and checks the network header of a frame that counts. The programs in the kernel open no
/// tunnels.
///
/// # Errors
/// A [`Reject`] says why the frame belongs to no flow.
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

/// What nearly all frames are, if this is one. A result would have the packet in memory, in pieces
/// of other sizes than it is read by.
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

/// As [`counted`], of frames that are not plain: away from the code of those that are, where there
/// is such a thing. Settings by value: a reference would have them all in memory, constants or not.
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
/// A [`Reject`] says why the frame belongs to no flow.
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
        // The family is in the byte order of the machine that captured: of the four bytes, one end
        // is zero.
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

/// Apart, because only captures have these.
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

/// What most frames are, at constant offsets: IPv4 over Ethernet, without tags and options. `None`
/// says nothing about any other frame.
#[inline(always)]
pub fn plain_ipv4<F: Frame + ?Sized>(frame: &F) -> Option<Ipv4<'_>> {
    let whole: &[u8; 34] = frame.bytes(0)?;
    let header = whole.last_chunk()?;
    let is_plain = u32::from_be_bytes(field(whole, 12)) >> 8 == 0x0008_0045;
    let ip = Ipv4 { header, offset: 14 };
    (is_plain && ip.total_length() >= 20).then_some(ip)
}

/// As [`plain_ipv4`], behind one tag of a VLAN.
#[inline(always)]
pub fn tagged_ipv4<F: Frame + ?Sized>(frame: &F) -> Option<Ipv4<'_>> {
    let whole: &[u8; 38] = frame.bytes(0)?;
    let header = whole.last_chunk()?;
    let is_plain = u32::from_be_bytes(field(whole, 16)) >> 8 == 0x0008_0045;
    let ip = Ipv4 { header, offset: 18 };
    (is_plain && is_vlan(u16::from_be_bytes(field(whole, 12))) && ip.total_length() >= 20)
        .then_some(ip)
}

/// As [`plain_ipv4`]: IPv6 without tags.
#[inline(always)]
pub fn plain_ipv6<F: Frame + ?Sized>(frame: &F) -> Option<Ipv6<'_>> {
    let whole: &[u8; 54] = frame.bytes(0)?;
    let header = whole.last_chunk()?;
    let is_plain = u32::from_be_bytes(field(whole, 12)) >> 12 == 0x8_6dd6;
    is_plain.then_some(Ipv6 { header, offset: 14 })
}

/// The EtherType of an Ethernet frame behind which [`network`] looks for nothing. `None` says
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
        // AF_INET6 of Linux, Windows, NetBSD/OpenBSD, FreeBSD, Darwin.
        10 | 23 | 24 | 28 | 30 => ipv6(frame, 4),
        _ => Err(Reject::NonIp(0)),
    }
}

/// Reads the EtherType at `offset`, which the payload (or a VLAN tag) follows.
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

/// Away from the hot code, where there is such a thing: the kernel's programs are one function.
#[cfg_attr(target_arch = "bpf", inline(always))]
#[cfg_attr(not(target_arch = "bpf"), cold, inline(never))]
pub(crate) fn encapsulated<F: Frame + ?Sized>(
    frame: &F,
    ethertype: u16,
    offset: usize,
    headers: usize,
) -> Result<Packet<'_>, Reject> {
    match encapsulation::open(frame, ethertype, offset, headers)? {
        (IPV4, offset) => ipv4(frame, offset),
        (_, offset) => ipv6(frame, offset),
    }
}

#[inline(always)]
fn ipv4<F: Frame + ?Sized>(frame: &F, offset: usize) -> Result<Packet<'_>, Reject> {
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
fn ipv6<F: Frame + ?Sized>(frame: &F, offset: usize) -> Result<Packet<'_>, Reject> {
    let header = frame.bytes(offset).ok_or(Reject::Truncated)?;
    let [version] = field(header, 0);
    if version >> 4 == 6 { Ok(Packet::V6(Ipv6 { header, offset })) } else { Err(Reject::BadHeader) }
}

/// Protocol and ports, following IPv6 extension headers.
#[inline(always)]
pub fn transport<F: Frame + ?Sized>(frame: &F, packet: &Packet<'_>) -> Transport {
    let (protocol, offset) = locate(frame, packet);
    ports(frame, protocol, offset)
}

/// Protocol and place of the transport header, following IPv6 extension headers; the protocol alone
/// in a fragment that is not the first, and where headers are cut off.
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

/// Bytes of all headers up to the payload of TCP and UDP, which every segment of a super-packet
/// has; of other protocols up to their own header, and of fragments up to where the headers end
/// that could be read.
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

/// Protocol and place of the transport header, or the protocol alone of a later fragment and where
/// headers are cut off.
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
        offset += 8 + (usize::from(length) * length_unit);
        protocol = next;
        headers += 1;
    }
    (protocol, None)
}

/// Protocol and ports of a transport header that is somewhere, or not to be found.
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
