//! Frames to feed: by hand, at random from a seed, and numbered ones with a source of their own.

use flowgauge_core::Link;
use flowgauge_dataplane::poll::port::OwnedFrame;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;
use std::sync::Arc;

pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
const OLD_TAG: u16 = 0x9100;

const PORTS: [u8; 8] = [0x30, 0x39, 0x00, 0x50, 0, 8, 0, 0];

pub fn ethernet(tags: &[u16], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0x20, 0x64]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

pub fn ipv4_packet(src: [u8; 4], dst: [u8; 4], options: usize, fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header_length = 20 + options;
    let mut packet = vec![0x40 | (header_length / 4) as u8, 0];
    packet.extend(((header_length + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(src);
    packet.extend(dst);
    packet.extend(vec![1; options]);
    packet.extend(payload);
    packet
}

pub fn ipv6_packet(src: [u8; 16], dst: [u8; 16], next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    packet.extend(src);
    packet.extend(dst);
    packet.extend(payload);
    packet
}

/// A UDP packet from `src`, in a frame of 60 bytes.
pub fn from_source(src: [u8; 4]) -> OwnedFrame {
    let mut frame = ethernet(&[], IPV4, &ipv4_packet(src, [192, 0, 2, 7], 0, 0, 17, &PORTS));
    frame.resize(60, 0);
    OwnedFrame::ethernet(frame)
}

/// Packet `number`, with a source that no other number below 2^32 has, and one of a thousand lengths.
pub fn unique(number: u64) -> OwnedFrame {
    // Odd, so a bijection.
    let source = (number as u32).wrapping_mul(0x9e37_79b1);
    let mut frame = from_source(source.to_be_bytes());
    frame.bytes.resize(60 + (number % 1000) as usize, 0);
    OwnedFrame::ethernet(frame.bytes)
}

/// The packets with these numbers.
pub fn uniques(numbers: Range<u64>) -> Arc<[OwnedFrame]> {
    numbers.map(unique).collect()
}

/// An IPv6 extension header of `words` times 8 bytes.
fn extension(next: u8, words: u8) -> Vec<u8> {
    let mut header = vec![next, words - 1];
    header.resize(usize::from(words) * 8, 0);
    header
}

fn authentication(next: u8, words: u8) -> Vec<u8> {
    let mut header = vec![next, words - 2];
    header.resize(usize::from(words) * 4, 0xaa);
    header
}

fn fragment(next: u8, offset: u16) -> Vec<u8> {
    let [high, low] = (offset << 3 | 1).to_be_bytes();
    vec![next, 0, high, low, 0, 0, 0, 1]
}

/// One Ethernet frame of each kind that parsers treat differently.
pub fn kinds() -> Vec<OwnedFrame> {
    let v4 = |options, fragment, protocol| ipv4_packet([10, 1, 2, 3], [192, 0, 2, 7], options, fragment, protocol, &PORTS);
    let address = |last| {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        address[15] = last;
        address
    };
    let v6 = |next, parts: &[&[u8]]| ipv6_packet(address(1), address(2), next, &[parts.concat(), PORTS.to_vec()].concat());
    let damaged = |mut packet: Vec<u8>, at: usize, value: u8| {
        packet[at] = value;
        packet
    };
    let frames = vec![
        ethernet(&[], IPV4, &v4(0, 0, 17)),
        ethernet(&[TAG], IPV4, &v4(0, 0, 6)),
        ethernet(&[SERVICE_TAG, TAG], IPV4, &v4(12, 0, 132)),
        ethernet(&[OLD_TAG, SERVICE_TAG, TAG, TAG], IPV4, &v4(40, 0, 136)),
        ethernet(&[TAG; 5], IPV4, &v4(0, 0, 17)),
        ethernet(&[], IPV4, &v4(0, 0x2000, 17)),
        ethernet(&[], IPV4, &v4(0, 0x2001, 17)),
        ethernet(&[], IPV4, &v4(4, 0x1fff, 6)),
        ethernet(&[], IPV4, &v4(0, 0x4000, 6)),
        ethernet(&[], IPV4, &v4(0, 0, 1)),
        ethernet(&[], IPV4, &damaged(v4(0, 0, 17), 0, 0x65)),
        ethernet(&[], IPV4, &damaged(v4(0, 0, 17), 0, 0x44)),
        ethernet(&[], IPV4, &damaged(v4(0, 0, 17), 3, 19)),
        ethernet(&[], IPV4, &damaged(v4(0, 0, 17), 3, 0)),
        ethernet(&[], ARP, &[0; 28]),
        ethernet(&[TAG], ARP, &[0; 28]),
        ethernet(&[], 0x05dc, &v4(0, 0, 17)),
        ethernet(&[], IPV6, &v6(17, &[])),
        ethernet(&[SERVICE_TAG, TAG], IPV6, &v6(6, &[])),
        ethernet(&[], IPV6, &v6(58, &[])),
        ethernet(&[], IPV6, &v6(0, &[&extension(17, 2)])),
        ethernet(&[], IPV6, &v6(0, &[&extension(60, 1), &extension(43, 3), &extension(6, 1)])),
        ethernet(&[], IPV6, &v6(51, &[&authentication(17, 6)])),
        ethernet(&[], IPV6, &v6(44, &[&fragment(17, 0)])),
        ethernet(&[], IPV6, &v6(44, &[&fragment(17, 1)])),
        ethernet(&[], IPV6, &v6(44, &[&fragment(17, 0x1000)])),
        ethernet(&[], IPV6, &v6(135, &[&extension(139, 1), &extension(140, 1), &extension(132, 1)])),
        ethernet(&[], IPV6, &v6(60, &[&extension(60, 1).repeat(6), &extension(17, 1)])),
        ethernet(&[], IPV6, &v6(60, &[&extension(60, 1).repeat(7), &extension(17, 1)])),
        ethernet(&[], IPV6, &damaged(v6(17, &[]), 0, 0x40)),
    ];
    frames.into_iter().map(OwnedFrame::ethernet).collect()
}

/// The same packets behind the link layers that only captures have.
pub fn other_links() -> Vec<OwnedFrame> {
    let v4 = ipv4_packet([10, 4, 5, 6], [192, 0, 2, 7], 4, 0, 17, &PORTS);
    let v6 = ipv6_packet([0x21; 16], [0x22; 16], 6, &PORTS);
    let sll = |protocol: u16, packet: &[u8]| [&[0; 14], &protocol.to_be_bytes()[..], packet].concat();
    let sll2 = |protocol: u16, packet: &[u8]| [&protocol.to_be_bytes()[..], &[0; 18], packet].concat();
    let null = |family: u32, packet: &[u8]| [&family.to_le_bytes()[..], packet].concat();
    let loopback = |family: u32, packet: &[u8]| [&family.to_be_bytes()[..], packet].concat();
    let tagged_v6 = ethernet(&[TAG], IPV6, &v6);
    let mut frames = vec![
        (Link::Ip, v4.clone()),
        (Link::Ip, v6.clone()),
        (Link::Ip, vec![0x50; 40]),
        (Link::LinuxSll, sll(IPV4, &v4)),
        (Link::LinuxSll, [&[0; 14], &tagged_v6[12..]].concat()),
        (Link::LinuxSll, sll(ARP, &[0; 28])),
        (Link::LinuxSll2, sll2(IPV6, &v6)),
        (Link::LinuxSll2, sll2(IPV4, &v4)),
        (Link::LinuxSll2, sll2(TAG, &tagged_v6[14..])),
        (Link::LinuxSll2, sll2(4, &v4)),
        (Link::Unsupported, ethernet(&[], IPV4, &v4)),
    ];
    frames.extend([2].map(|family| (Link::Null, null(family, &v4))));
    frames.extend([2].map(|family| (Link::Null, loopback(family, &v4))));
    frames.extend([10, 23, 24, 28, 30].map(|family| (Link::Null, null(family, &v6))));
    frames.extend([7, 0x0002_0000].map(|family| (Link::Null, null(family, &v4))));
    let owned = |(link, bytes)| OwnedFrame { link, ..OwnedFrame::ethernet(bytes) };
    frames.into_iter().map(owned).collect()
}

/// Every beginning of these frames, as a capture with a snapshot length would cut them: the length on the wire stays.
pub fn cut_everywhere(frames: &[OwnedFrame]) -> Vec<OwnedFrame> {
    let cuts = |frame: &OwnedFrame| {
        let frame = frame.clone();
        (0..frame.bytes.len()).map(move |length| OwnedFrame { bytes: frame.bytes[..length].to_vec(), ..frame.clone() })
    };
    frames.iter().flat_map(cuts).collect()
}

/// Plausible Ethernet frames, some of them damaged or cut.
pub fn random(seed: u64, count: usize) -> Vec<OwnedFrame> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| random_frame(&mut rng)).collect()
}

fn random_frame(rng: &mut impl Rng) -> OwnedFrame {
    let mut payload = vec![0; rng.random_range(0..80)];
    rng.fill_bytes(&mut payload);
    let pick = |rng: &mut _, from: &[u8]| from.choose(rng).copied().unwrap();
    let (ethertype, packet) = match rng.random_range(0..20) {
        0 => (ARP, payload),
        1 => (rng.random(), payload),
        2..12 => {
            let options = if rng.random_bool(0.3) { rng.random_range(0..=10) * 4 } else { 0 };
            let fragment = if rng.random_bool(0.2) { rng.random() } else { 0x4000 };
            let protocol = if rng.random_bool(0.8) { pick(rng, &[1, 6, 17, 132, 136]) } else { rng.random() };
            (IPV4, ipv4_packet(rng.random(), rng.random(), options, fragment, protocol, &payload))
        }
        _ => {
            let transport = pick(rng, &[6, 17, 58, 132, 136]);
            let (next, extensions) = random_extensions(rng, transport);
            (IPV6, ipv6_packet(rng.random(), rng.random(), next, &[extensions, payload].concat()))
        }
    };
    let tags: Vec<u16> =
        (0..rng.random_range(0..8_usize).saturating_sub(3)).map(|_| *[TAG, SERVICE_TAG, OLD_TAG].choose(rng).unwrap()).collect();
    let mut bytes = ethernet(&tags, ethertype, &packet);
    if rng.random_bool(0.1) {
        let header = bytes.len().min(60);
        bytes[rng.random_range(0..header)] = rng.random();
    }
    let wire_length = bytes.len() as u32;
    if rng.random_bool(0.1) {
        bytes.truncate(rng.random_range(0..bytes.len()));
    }
    OwnedFrame { bytes, wire_length, timestamp: 0, link: Link::Ethernet }
}

/// A chain of IPv6 extension headers that ends in `transport`; gives the first header's number and the headers.
fn random_extensions(rng: &mut impl Rng, transport: u8) -> (u8, Vec<u8>) {
    let mut next = transport;
    let mut chain = Vec::new();
    for _ in 0..rng.random_range(0..12_usize).saturating_sub(2) {
        let kind = *[0, 43, 44, 51, 60, 135, 139, 140].choose(rng).unwrap();
        let header = match kind {
            44 => fragment(next, if rng.random_bool(0.2) { rng.random_range(0..0x2000) } else { 0 }),
            51 => authentication(next, rng.random_range(2..8)),
            _ => extension(next, rng.random_range(1..4)),
        };
        chain = [header, chain].concat();
        next = kind;
    }
    (next, chain)
}

/// Whether a switch can follow this frame to its ports: core follows more, and longer, IPv6 extension headers than a parser
/// without loops and with 32 bytes of sight (p4/README.md).
pub fn within_reach_of_a_switch(frame: &[u8]) -> bool {
    let tags = frame.get(12..).unwrap_or_default().chunks(4);
    let tags = tags.take_while(|tag| matches!(tag, [0x81, 0, ..] | [0x88, 0xa8, ..] | [0x91, 0, ..])).count();
    let network = 14 + 4 * tags;
    let Some([0x86, 0xdd]) = frame.get(network - 2..network) else { return true };
    let (mut next, mut at) = (frame.get(network + 6).copied().unwrap_or(59), network + 40);
    for followed in 0.. {
        let known = matches!(next, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140);
        if !known {
            return true;
        }
        let Some(&[kind, length, high, low]) = frame.get(at..at + 4) else { return false };
        let long = next != 44 && length != 0;
        if followed == 4 || next == 51 || long || at + 8 > frame.len() {
            return false;
        }
        if next == 44 && (high != 0 || low & 0xf8 != 0) {
            return true;
        }
        next = kind;
        at += 8;
    }
    unreachable!()
}
