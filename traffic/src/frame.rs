//! Builders of single frames, for tests: headers around a payload, from the inside out.
//!
//! A DNS query is `Ip::new(client, server, UDP).frame(&udp([40_000, 53], &dns(7, false)))`.
//! Lengths are those of the payload. Checksums are zero: nothing that counts packets verifies them.
//! Tests that need an invalid frame change its bytes.

use std::net::{IpAddr, Ipv6Addr};

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of an 802.1Q tag.
pub const TAG: u16 = 0x8100;

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMP over IPv6.
pub const ICMPV6: u8 = 58;

/// Flags of TCP.
pub mod flag {
    #![allow(missing_docs, reason = "names of RFC 9293")]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
}

/// Priority and ID in every tag: VLAN 100, priority 1.
const TAG_CONTROL: [u8; 2] = [0x20, 0x64];
/// Hops that IP packets may take.
const HOPS: u8 = 64;

/// Builds an Ethernet frame with tags of these EtherTypes.
#[must_use]
pub fn ethernet(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend(TAG_CONTROL);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Header of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip<'a> {
    /// Source address.
    pub source: IpAddr,
    /// Destination address. The packet is IPv4 if both addresses are.
    pub destination: IpAddr,
    /// Protocol, or in IPv6 the next header.
    pub protocol: u8,
    /// Flags and offset of a fragment, in IPv4.
    pub fragment: u16,
    /// Options of IPv4, a multiple of 4 bytes. Extension headers of IPv6 are part of the payload.
    pub options: &'a [u8],
}

impl Ip<'_> {
    /// Creates a header without options, for a packet in one piece.
    #[must_use]
    pub fn new(
        source: impl Into<IpAddr>,
        destination: impl Into<IpAddr>,
        protocol: u8,
    ) -> Ip<'static> {
        let (source, destination) = (source.into(), destination.into());
        Ip { source, destination, protocol, fragment: 0, options: &[] }
    }

    /// Returns the EtherType of the packet.
    #[must_use]
    pub fn ethertype(&self) -> u16 {
        if self.source.is_ipv4() && self.destination.is_ipv4() { IPV4 } else { IPV6 }
    }

    /// Builds the packet with this payload.
    #[must_use]
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let Ip { source, destination, protocol, fragment, options } = *self;
        let mut packet = Vec::new();
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) {
            let header = 20 + options.len();
            packet.extend([0x40 | (header / 4) as u8, 0]);
            packet.extend(((header + payload.len()) as u16).to_be_bytes());
            packet.extend([0, 1]);
            packet.extend(fragment.to_be_bytes());
            packet.extend([HOPS, protocol, 0, 0]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            packet.extend(options);
        } else {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([protocol, HOPS]);
            packet.extend(v6(source).octets());
            packet.extend(v6(destination).octets());
        }
        packet.extend(payload);
        packet
    }

    /// Builds the packet with this payload, in an Ethernet frame without tags.
    #[must_use]
    pub fn frame(&self, payload: &[u8]) -> Vec<u8> {
        ethernet(&[], self.ethertype(), &self.packet(payload))
    }
}

pub(crate) fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Header of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp<'a> {
    /// Source and destination port.
    pub ports: [u16; 2],
    /// [Flags](flag).
    pub flags: u8,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Options, a multiple of 4 bytes.
    pub options: &'a [u8],
}

impl Tcp<'_> {
    /// Builds the segment with these data.
    #[must_use]
    pub fn segment(&self, data: &[u8]) -> Vec<u8> {
        let Tcp { ports: [source, destination], flags, sequence, acknowledgement, options } = *self;
        let mut segment = Vec::new();
        segment.extend(source.to_be_bytes());
        segment.extend(destination.to_be_bytes());
        segment.extend(sequence.to_be_bytes());
        segment.extend(acknowledgement.to_be_bytes());
        segment.extend([(((20 + options.len()) / 4) << 4) as u8, flags, 0, 0, 0, 0, 0, 0]);
        segment.extend(options);
        segment.extend(data);
        segment
    }
}

/// Builds a UDP datagram between these ports, source and destination.
#[must_use]
pub fn udp([source, destination]: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    datagram.extend(source.to_be_bytes());
    datagram.extend(destination.to_be_bytes());
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

/// Builds the header of a DNS message about one question, for port 53.
#[must_use]
pub fn dns(id: u16, is_answer: bool) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    vec![high, low, if is_answer { 0x81 } else { 1 }, 0, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// Builds an Ethernet frame with an echo request, or a reply. `token` is identifier and sequence
/// number.
#[must_use]
pub fn echo(
    source: impl Into<IpAddr>,
    destination: impl Into<IpAddr>,
    token: u32,
    is_reply: bool,
) -> Vec<u8> {
    let ip = Ip::new(source, destination, ICMP);
    let (protocol, kind) = match (ip.ethertype() == IPV6, is_reply) {
        (false, false) => (ICMP, 8),
        (false, true) => (ICMP, 0),
        (true, false) => (ICMPV6, 128),
        (true, true) => (ICMPV6, 129),
    };
    let [a, b, c, d] = token.to_be_bytes();
    Ip { protocol, ..ip }.frame(&[kind, 0, 0, 0, a, b, c, d])
}
