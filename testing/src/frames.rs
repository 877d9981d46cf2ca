//! Frames to feed: built by hand, random from a seed, numbered ones with unique sources, and those of
//! captures.

use flowgauge_core::Link;
use flowgauge_dataplane::capture::build::{self, CapturePacket, PcapOptions, PcapVariant};
use flowgauge_dataplane::capture::{PacketRecord, Step, Walker};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_traffic::frame::TAG;
pub use flowgauge_traffic::frame::{IPV4, IPV6, Ip, ethernet};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ARP: u16 = 0x0806;
const SERVICE_TAG: u16 = 0x88a8;
const OLD_TAG: u16 = 0x9100;

const PORTS: [u8; 8] = [0x30, 0x39, 0x00, 0x50, 0, 8, 0, 0];

/// Builds a UDP packet from `src`, in a frame of 60 bytes.
pub fn from_source(src: [u8; 4]) -> OwnedFrame {
    let mut frame = Ip::new(src, [192, 0, 2, 7], 17).frame(&PORTS);
    frame.resize(60, 0);
    OwnedFrame::ethernet(frame)
}

/// Builds packet `number`, with a source that no other number below 2^32 has, and one of a thousand
/// lengths.
pub fn unique(number: u64) -> OwnedFrame {
    // Odd, so a bijection.
    let source = (number as u32).wrapping_mul(0x9e37_79b1);
    let mut frame = from_source(source.to_be_bytes());
    frame.bytes.resize(60 + (number % 1000) as usize, 0);
    OwnedFrame::ethernet(frame.bytes)
}

/// Builds the packets with these numbers.
pub fn uniques(numbers: Range<u64>) -> Arc<[OwnedFrame]> {
    numbers.map(unique).collect()
}

/// Builds an IPv6 extension header of `words` times 8 bytes.
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

/// Builds one Ethernet frame of each kind that parsers treat differently.
pub fn kinds() -> Vec<OwnedFrame> {
    let v4 = |options, fragment, protocol| {
        let ip = Ip::new([10, 1, 2, 3], [192, 0, 2, 7], protocol);
        Ip { fragment, options: &vec![1; options], ..ip }.packet(&PORTS)
    };
    let address = |last| [0x2001, 0x0db8, 0, 0, 0, 0, 0, last];
    let v6 = |next, parts: &[&[u8]]| {
        let payload = [parts.concat(), PORTS.to_vec()].concat();
        Ip::new(address(1), address(2), next).packet(&payload)
    };
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
        ethernet(
            &[],
            IPV6,
            &v6(135, &[&extension(139, 1), &extension(140, 1), &extension(132, 1)]),
        ),
        ethernet(&[], IPV6, &v6(60, &[&extension(60, 1).repeat(6), &extension(17, 1)])),
        ethernet(&[], IPV6, &v6(60, &[&extension(60, 1).repeat(7), &extension(17, 1)])),
        ethernet(&[], IPV6, &damaged(v6(17, &[]), 0, 0x40)),
    ];
    let encapsulated = encapsulations().into_iter().enumerate().map(|(at, (ethertype, header))| {
        let packet =
            if header.ends_with(&[0x86, 0xdd]) || at % 5 == 4 { v6(17, &[]) } else { v4(0, 0, 17) };
        ethernet(if at % 3 == 0 { &[TAG] } else { &[] }, ethertype, &[header, packet].concat())
    });
    frames.into_iter().chain(encapsulated).map(OwnedFrame::ethernet).collect()
}

/// Builds headers that lead to IP, each with its EtherType, and some that do not.
pub fn encapsulations() -> Vec<(u16, Vec<u8>)> {
    let inner = |ethertype: u16| [&[2; 12][..], &ethertype.to_be_bytes()].concat();
    let label = |bottom: u8| vec![0, 6, 0x40 | bottom, 64];
    let pppoe = |protocol: &[u8]| [&[0x11, 0, 0, 1, 0, 0], protocol].concat();
    let parts = |parts: &[Vec<u8>]| parts.concat();
    let nsh = |words: u8, metadata: u8, next: u8| {
        [
            vec![0x0f, 0xc0 | words, metadata, next, 0, 0, 7, 255],
            vec![0; usize::from(words) * 4 - 8],
        ]
        .concat()
    };
    vec![
        (0x8864, pppoe(&[0, 0x21])),
        (0x8864, pppoe(&[0x21])),
        (0x8864, pppoe(&[0x57])),
        (0x8864, pppoe(&[0xc0, 0x21])),
        (0x8864, pppoe(&[0, 0x57])),
        (0x8864, parts(&[pppoe(&[2, 0x81]), label(1)])),
        (0x8847, label(1)),
        (0x8847, parts(&[label(0), label(0), label(1)])),
        (0x8848, parts(&[label(0), label(1)])),
        // The last one is followed by IPv6, like every fifth.
        (0x8847, label(1)),
        (0x8847, parts(&[label(1), vec![0; 4], inner(IPV4)])),
        (0x8847, parts(&[label(1), inner(IPV4)])),
        (0x8847, parts(&[label(1), inner(IPV6)])),
        (0x8847, parts(&[label(1), inner(TAG), vec![0, 7, 8, 0]])),
        (0x8847, parts(&[label(1), vec![0x10, 0, 0, 0x57]])),
        (0x8847, parts(&[label(1), vec![0x20]])),
        (0x8847, parts(&[label(0).repeat(15), label(1)])),
        (0x8847, parts(&[label(0).repeat(16), label(1)])),
        (46, vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
        (46, vec![0xaa, 0xaa, 3, 0, 0, 0xf8, 0x86, 0xdd]),
        (46, vec![0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0]),
        (46, vec![0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0, 0, 7, 8, 0]),
        (1500, vec![6, 6, 3]),
        (0x8870, vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
        (46, vec![6, 6, 3]),
        (38, vec![0x42, 0x42, 3]),
        (0x88e5, vec![0, 0, 0, 0, 0, 1, 8, 0]),
        (0x88e5, vec![0x20, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x86, 0xdd]),
        (0x88e5, vec![0x0c, 0, 0, 0, 0, 1, 8, 0]),
        (0x88e5, vec![0x80, 0, 0, 0, 0, 1, 0x86, 0xdd]),
        (0x8903, parts(&[vec![0, 0x64], inner(IPV4)])),
        (0x8903, parts(&[vec![0, 0x64], inner(TAG), vec![0, 7, 0x86, 0xdd]])),
        (0x8903, parts(&[vec![0, 0x64], inner(ARP)])),
        (0x88e7, parts(&[vec![0, 0, 0x12, 0x34], inner(IPV4)])),
        (0x8909, vec![1, 1, 0, 1, 0, 5, 0x86, 0xdd]),
        (0x892f, vec![0, 50, 0, 1, 8, 0]),
        (0xf1c1, vec![0, 0, 0, 1, 8, 0]),
        (0x8926, vec![0, 1, 0, 2, 8, 0]),
        (0x893f, vec![0, 1, 0, 2, 0, 0, 8, 0]),
        (0x6558, inner(IPV6)),
        (0x22f3, parts(&[vec![0, 0x3f, 0, 1, 0, 2], inner(IPV4)])),
        (0x22f3, parts(&[vec![0, 0x7f, 0, 1, 0, 2, 0, 0, 0, 0], inner(IPV4)])),
        (0x894f, nsh(6, 1, 1)),
        (0x894f, parts(&[nsh(4, 2, 3), inner(IPV6)])),
        (0x894f, parts(&[nsh(2, 2, 4), nsh(6, 1, 5), label(1)])),
        (0x894f, parts(&[nsh(2, 1, 1), vec![0; 16]])),
        (0x894f, nsh(2, 2, 9)),
        (TAG, parts(&[vec![0, 7, 0x89, 0x4f], nsh(63, 2, 1)])),
        (TAG, parts(&[vec![0, 7, 0x88, 0x47], label(1)])),
        (TAG, [[0, 7, 0x81, 0].repeat(15), vec![0, 7, 8, 0]].concat()),
        (TAG, [[0, 7, 0x81, 0].repeat(16), vec![0, 7, 0x86, 0xdd]].concat()),
        (0x88cc, vec![2, 7, 4]),
    ]
}

/// Builds the same packets with the link layers that only captures have.
pub fn other_links() -> Vec<OwnedFrame> {
    let ip = Ip::new([10, 4, 5, 6], [192, 0, 2, 7], 17);
    let v4 = Ip { options: &[1; 4], ..ip }.packet(&PORTS);
    let v6 = Ip::new([0x21; 16], [0x22; 16], 6).packet(&PORTS);
    let sll =
        |protocol: u16, packet: &[u8]| [&[0; 14], &protocol.to_be_bytes()[..], packet].concat();
    let sll2 =
        |protocol: u16, packet: &[u8]| [&protocol.to_be_bytes()[..], &[0; 18], packet].concat();
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
        (Link::EtherType, tagged_v6[12..].to_vec()),
        (Link::EtherType, vec![0x08]),
        (Link::PaddedEtherType, [&[0x86, 0xdd, 0, 0], &v6[..]].concat()),
        (Link::PaddedEtherType, [&[0x08, 0x06, 0, 0], &[0; 28][..]].concat()),
        (Link::Llc, [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &v4[..]].concat()),
        (Link::Llc, [&[6, 6, 3], &v6[..]].concat()),
        (Link::Llc, [&[0x42, 0x42, 3], &v6[..]].concat()),
        (Link::Snap, [&[0, 0, 0, 0x86, 0xdd], &v6[..]].concat()),
        (Link::Snap, [&[0, 0, 0x0c, 0x20, 0], &v6[..]].concat()),
        (Link::Ppp, [&[0xff, 3, 0, 0x21], &v4[..]].concat()),
        (Link::Ppp, [&[0, 0x57], &v6[..]].concat()),
        (Link::Ppp, [&[0x21], &v4[..]].concat()),
        (Link::Ppp, [&[0x0f, 0, 8, 0], &v4[..]].concat()),
        (Link::Ppp, [&[0x8f, 0, 0x86, 0xdd], &v6[..]].concat()),
        (Link::Ppp, [&[0xff, 3, 0xc0, 0x21], &v4[..]].concat()),
    ];
    frames.extend([2].map(|family| (Link::Null, null(family, &v4))));
    frames.extend([2].map(|family| (Link::Null, loopback(family, &v4))));
    frames.extend([10, 23, 24, 28, 30].map(|family| (Link::Null, null(family, &v6))));
    frames.extend([7, 0x0002_0000].map(|family| (Link::Null, null(family, &v4))));
    let owned = |(link, bytes)| OwnedFrame { link, ..OwnedFrame::ethernet(bytes) };
    frames.into_iter().map(owned).collect()
}

/// Returns every prefix of these frames, as a capture with a snapshot length would truncate them:
/// the length on the wire stays.
pub fn cut_everywhere(frames: &[OwnedFrame]) -> Vec<OwnedFrame> {
    let cuts = |frame: &OwnedFrame| {
        let frame = frame.clone();
        (0..frame.bytes.len()).map(move |length| OwnedFrame {
            bytes: frame.bytes[..length].to_vec(),
            ..frame.clone()
        })
    };
    frames.iter().flat_map(cuts).collect()
}

/// Builds plausible Ethernet frames, some of them damaged or truncated.
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
            let protocol =
                if rng.random_bool(0.8) { pick(rng, &[1, 6, 17, 132, 136]) } else { rng.random() };
            let ip = Ip::new(rng.random::<[u8; 4]>(), rng.random::<[u8; 4]>(), protocol);
            let ip = Ip { fragment, options: &vec![1; options], ..ip };
            (IPV4, ip.packet(&payload))
        }
        _ => {
            let transport = pick(rng, &[6, 17, 58, 132, 136]);
            let (next, extensions) = random_extensions(rng, transport);
            let ip = Ip::new(rng.random::<[u8; 16]>(), rng.random::<[u8; 16]>(), next);
            (IPV6, ip.packet(&[extensions, payload].concat()))
        }
    };
    let tags: Vec<u16> = (0..rng.random_range(0..8_usize).saturating_sub(3))
        .map(|_| *[TAG, SERVICE_TAG, OLD_TAG].choose(rng).unwrap())
        .collect();
    let (ethertype, packet) = match rng.random_bool(0.1) {
        true => {
            let (outer, header) = encapsulations().choose(rng).cloned().unwrap();
            (outer, [header, packet].concat())
        }
        false => (ethertype, packet),
    };
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

/// Builds a chain of IPv6 extension headers that ends in `transport`; returns the first header's
/// number and the headers.
fn random_extensions(rng: &mut impl Rng, transport: u8) -> (u8, Vec<u8>) {
    let mut next = transport;
    let mut chain = Vec::new();
    for _ in 0..rng.random_range(0..12_usize).saturating_sub(2) {
        let kind = *[0, 43, 44, 51, 60, 135, 139, 140].choose(rng).unwrap();
        let header = match kind {
            44 => {
                fragment(next, if rng.random_bool(0.2) { rng.random_range(0..0x2000) } else { 0 })
            }
            51 => authentication(next, rng.random_range(2..8)),
            _ => extension(next, rng.random_range(1..4)),
        };
        chain = [header, chain].concat();
        next = kind;
    }
    (next, chain)
}

/// Returns the EtherType after the first four tags, and the offset of its payload.
fn after_tags(frame: &[u8]) -> (Option<u16>, usize) {
    let tags = frame.get(12..).unwrap_or_default().chunks(4).take(4);
    let tags = tags
        .take_while(|tag| matches!(tag, [0x81, 0, ..] | [0x88, 0xa8, ..] | [0x91, 0, ..]))
        .count();
    let network = 14 + 4 * tags;
    (
        frame.get(network - 2..network).map(|bytes| u16::from(bytes[0]) << 8 | u16::from(bytes[1])),
        network,
    )
}

/// Returns whether a switch finds the network header of this frame, if it has one: core parses more
/// headers (p4/README.md).
pub fn opened_by_a_switch(frame: &[u8]) -> bool {
    let (ethertype, _) = after_tags(frame);
    ethertype.is_none_or(|ethertype| {
        !encapsulations().iter().any(|(opened, _)| *opened == ethertype || ethertype <= 1500)
    })
}

/// Returns whether a switch can parse this frame up to its ports: core follows more and longer IPv6
/// extension headers than a parser without loops that sees 32 bytes (p4/README.md).
pub fn within_reach_of_a_switch(frame: &[u8]) -> bool {
    let (ethertype, network) = after_tags(frame);
    if !opened_by_a_switch(frame) {
        return false;
    }
    if ethertype != Some(IPV6) {
        return true;
    }
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

/// Returns the frames of a capture file, up to its end or to damage.
pub fn captured(path: &Path) -> Vec<OwnedFrame> {
    let bytes = std::fs::read(path).unwrap();
    let (mut walker, mut rest, mut frames) = (Walker::new(), &bytes[..], Vec::new());
    loop {
        let consumed = match walker.next(rest) {
            Step::Packet { record, consumed } => {
                let PacketRecord { wire: wire_length, timestamp, link, .. } = record;
                frames.push(OwnedFrame {
                    bytes: record.frame(rest).to_vec(),
                    wire_length,
                    timestamp,
                    link,
                });
                consumed
            }
            Step::Skip { consumed } => consumed,
            Step::NeedMore { .. } | Step::Damaged(_) => return frames,
        };
        rest = &rest[consumed..];
    }
}

/// Builds a capture with timestamps in nanoseconds.
pub fn pcap(packets: &[CapturePacket]) -> Vec<u8> {
    let options = PcapOptions { variant: PcapVariant::Nanoseconds, ..PcapOptions::default() };
    build::pcap(&options, packets)
}

/// Returns the files in the directory that `TEST_CAPTURES` names, sorted. Skips the test if there is
/// none.
#[track_caller]
pub fn captures_at_hand() -> Option<Vec<PathBuf>> {
    let Some(directory) = std::env::var_os("TEST_CAPTURES") else {
        crate::skip("TEST_CAPTURES=DIR");
        return None;
    };
    let entries = std::fs::read_dir(directory).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    Some(files)
}
