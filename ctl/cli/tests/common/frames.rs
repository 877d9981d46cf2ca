//! Builders of frames between the addresses of these tests.

use super::START;
use flowgauge_dataplane::capture::build::CapturePacket;
pub(crate) use flowgauge_traffic::frame::ethernet;
use flowgauge_traffic::frame::{self, Ip};

pub(crate) const DESTINATION4: [u8; 4] = [192, 0, 2, 7];

/// Returns an IPv4 packet without options, not fragmented.
pub(crate) fn ipv4(source: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    Ip::new(source, DESTINATION4, protocol).packet(payload)
}

/// Returns an IPv4 packet with options (a multiple of four bytes) and this field of fragment flags
/// and offset.
pub(crate) fn ipv4_with(
    source: [u8; 4],
    options: &[u8],
    fragment: u16,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    Ip { options, fragment, ..Ip::new(source, DESTINATION4, protocol) }.packet(payload)
}

/// Returns the address 2001:db8::host.
pub(crate) fn address6(host: u32) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    address[12..].copy_from_slice(&host.to_be_bytes());
    address
}

/// Returns an IPv6 packet. Extension headers are part of the payload.
pub(crate) fn ipv6(source: u32, next_header: u8, payload: &[u8]) -> Vec<u8> {
    Ip::new(address6(source), address6(0xffff_0002), next_header).packet(payload)
}

/// Returns a UDP datagram between ports without a registered protocol.
pub(crate) fn udp(payload: &[u8]) -> Vec<u8> {
    frame::udp([0xc001, 0xc002], payload)
}

pub(crate) fn arp() -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2];
    bytes.extend([10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    bytes
}

/// Returns packets with these frames, one every `interval` nanoseconds.
pub(crate) fn timed(
    frames: impl IntoIterator<Item = Vec<u8>>,
    interval: u64,
) -> Vec<CapturePacket> {
    let packets = frames.into_iter().zip(0..);
    packets.map(|(frame, index)| CapturePacket::new(START + index * interval, frame)).collect()
}
