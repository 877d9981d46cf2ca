//! Parser of generated frames that shares no code with their generator. It rejects frames that no
//! host would send.

use crate::frame::flag;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A parsed packet.
#[derive(Clone, Debug)]
pub(crate) struct ParsedPacket {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) vlan: Option<u16>,
    pub(crate) transport: ParsedTransport,
}

#[derive(Clone, Debug)]
pub(crate) enum ParsedTransport {
    Tcp(ParsedTcp),
    Udp(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct ParsedTcp {
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    /// `TSval` and `TSecr`.
    pub(crate) stamps: Option<[u32; 2]>,
    pub(crate) data: usize,
}

impl ParsedTcp {
    /// Returns the sequence number after the segment.
    pub(crate) fn end(&self) -> u32 {
        let length = self.data as u32
            + u32::from(self.flags & flag::SYN != 0)
            + u32::from(self.flags & flag::FIN != 0);
        self.sequence.wrapping_add(length)
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Returns whether words add up to all ones (RFC 1071).
fn sums(parts: &[&[u8]]) -> bool {
    let bytes = parts.concat();
    let sum: u64 = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u64::from(*low)))
        .sum();
    sum > 0 && sum.is_multiple_of(0xffff)
}

pub(crate) fn read(frame: &[u8]) -> ParsedPacket {
    assert!(frame.len() >= 60, "{} bytes", frame.len());
    let (vlan, network) =
        if word(frame, 12) == 0x8100 { (Some(word(frame, 14)), 18) } else { (None, 14) };
    let (header, packet) = (word(frame, network - 2), &frame[network..]);
    let (addresses, protocol, source, destination, payload) = match header {
        0x0800 => {
            assert_eq!(packet[0], 0x45);
            assert!(sums(&[&packet[..20]]), "IPv4 checksum");
            let address = |at: usize| IpAddr::V4(Ipv4Addr::from_bits(long(packet, at)));
            (
                &packet[12..20],
                packet[9],
                address(12),
                address(16),
                &packet[20..word(packet, 2) as usize],
            )
        }
        0x86dd => {
            assert_eq!(packet[0] >> 4, 6);
            let address = |at: usize| {
                IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap()))
            };
            (
                &packet[8..40],
                packet[6],
                address(8),
                address(24),
                &packet[40..40 + word(packet, 4) as usize],
            )
        }
        other => panic!("EtherType {other:#x}"),
    };
    // The rest must be padding.
    let used = payload.as_ptr() as usize + payload.len() - frame.as_ptr() as usize;
    assert!(
        frame.len() == used.max(60) && frame[used..].iter().all(|byte| *byte == 0),
        "{used} bytes of {}",
        frame.len()
    );
    let length = (payload.len() as u16).to_be_bytes();
    assert!(
        sums(&[addresses, &[0, protocol], &length, payload]),
        "checksum of protocol {protocol}"
    );
    let transport = match protocol {
        17 => {
            assert_eq!(word(payload, 4) as usize, payload.len());
            ParsedTransport::Udp(payload[8..].to_vec())
        }
        6 => ParsedTransport::Tcp(tcp(payload)),
        other => panic!("protocol {other}"),
    };
    let [source, destination] = [(source, 0), (destination, 2)]
        .map(|(address, at)| SocketAddr::new(address, word(payload, at)));
    ParsedPacket { source, destination, vlan, transport }
}

fn tcp(payload: &[u8]) -> ParsedTcp {
    let header = usize::from(payload[12] >> 4) * 4;
    let (mut options, mut stamps) = (&payload[20..header], None);
    while let [kind, rest @ ..] = options {
        let length = match kind {
            1 => 1,
            _ => usize::from(rest[0]),
        };
        if *kind == 8 {
            stamps = Some([long(options, 2), long(options, 6)]);
        }
        options = &options[length..];
    }
    let flags = payload[13];
    ParsedTcp {
        flags,
        sequence: long(payload, 4),
        acknowledgement: long(payload, 8),
        stamps,
        data: payload.len() - header,
    }
}
