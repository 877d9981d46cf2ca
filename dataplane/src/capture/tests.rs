use flowgauge_core::Link;
use flowgauge_core::parse::{Reject, network};
use proptest::{collection::vec, prelude::*, sample::Index};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use super::{
    build::{
        self, CapturePacket, ExtraBlock, InterfaceOptions, PacketBlock, PcapNgOptions, PcapOptions,
        PcapVariant,
    },
    *,
};

/// Result of a walk: each packet with its frame, then the end.
#[derive(Debug, PartialEq, Eq)]
struct Walk {
    packets: Vec<(PacketRecord, Vec<u8>)>,
    end: Result<(), Damage>,
    interfaces: Vec<CaptureInterface>,
    drops: u64,
}

impl Walk {
    fn timestamps(&self) -> Vec<u64> {
        self.packets.iter().map(|(r, _)| r.timestamp).collect()
    }

    fn damage(&self) -> String {
        self.end.as_ref().unwrap_err().to_string()
    }
}

/// Walks over `file`, supplied in pieces of the lengths in `pieces`, repeatedly.
fn walk_in_pieces(file: &[u8], pieces: &[usize]) -> Walk {
    let mut walker = Walker::new();
    let mut packets = Vec::new();
    let mut pieces = pieces.iter().cycle();
    let (mut from, mut to) = (0, 0);
    let end = loop {
        let unread = &file[from..to];
        assert_eq!(walker.offset(), from as u64);
        match walker.next(unread) {
            Step::Packet { record, consumed } => {
                assert!((1..=unread.len()).contains(&consumed));
                assert!((record.start + record.captured) as usize <= consumed);
                assert!(record.captured <= MAX_CAPTURED && record.wire >= record.captured);
                packets.push((record, record.frame(unread).to_vec()));
                from += consumed;
            }
            Step::Skip { consumed } => {
                assert!((1..=unread.len()).contains(&consumed));
                from += consumed;
            }
            Step::NeedMore { at_least } => {
                assert!(at_least > unread.len() && at_least <= MAX_NEED);
                if to == file.len() {
                    break walker.finish(unread);
                }
                to = (to + pieces.next().unwrap()).min(file.len());
            }
            Step::Damaged(damage) => {
                assert_eq!(walker.clone().next(unread), Step::Damaged(damage.clone()));
                assert_eq!(walker.finish(unread), Err(damage.clone()));
                break Err(damage);
            }
        }
    };
    assert_eq!(walker.packets(), packets.len() as u64);
    Walk { packets, end, interfaces: walker.interfaces().to_vec(), drops: walker.drops() }
}

fn walk(file: &[u8]) -> Walk {
    walk_in_pieces(file, &[1 << 18])
}

/// Walks over an undamaged file.
#[track_caller]
fn walk_whole(file: &[u8]) -> Walk {
    let walk = walk(file);
    assert_eq!(walk.end, Ok(()));
    walk
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|d| (d[0] << 4 | d[1]) as u8).collect()
}

fn record(start: u32, captured: u32, wire: u32, timestamp: u64) -> PacketRecord {
    let (link, link_type) = (Link::Ethernet, link_type::ETHERNET);
    PacketRecord { start, captured, wire, timestamp, link, link_type, interface: 0 }
}

/// Returns the record with another link layer.
fn on_link(link: Link, link_type: u16, record: PacketRecord) -> PacketRecord {
    PacketRecord { link, link_type, ..record }
}

#[test]
fn known_pcap_little_endian_microseconds() {
    let file = hex("d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000
         01000000 02000000 03000000 3c000000 aabbcc
         ffffffff 40420f00 00000000 00000000");
    let walk = walk_whole(&file);
    let expected = [
        (record(16, 3, 60, 1_000_002_000), vec![0xaa, 0xbb, 0xcc]),
        // An excess fraction of a million microseconds is added.
        (record(16, 0, 0, 4_294_967_296_000_000_000), vec![]),
    ];
    assert_eq!(walk.packets, expected);
    let [interface] = &walk.interfaces[..] else { panic!() };
    assert_eq!((interface.link_type, interface.snaplen), (1, 65535));
    assert_eq!(interface.resolution, Resolution::MICROSECONDS);
    assert_eq!(link_type::name(interface.link_type), "ETHERNET");
}

#[test]
fn known_pcap_little_endian_nanoseconds_with_frame_check_sequence() {
    let file = hex("4d3cb2a1 0200 0400 00000000 00000000 00000400 71000024
         01000000 02000000 01000000 05000000 ee");
    let walk = walk_whole(&file);
    let expected = on_link(Link::LinuxSll, link_type::LINUX_SLL, record(16, 1, 5, 1_000_000_002));
    assert_eq!(walk.packets, [(expected, vec![0xee])]);
    assert_eq!(walk.interfaces[0].link_type, 113);
}

#[test]
fn known_pcap_big_endian() {
    let microseconds = hex("a1b2c3d4 0002 0004 00000000 00000000 0000ffff 00000065
         00000001 00000002 00000002 00000001 4500");
    let walked = walk_whole(&microseconds);
    // The original length is less than the captured one.
    let expected = on_link(Link::Ip, link_type::RAW, record(16, 2, 2, 1_000_002_000));
    assert_eq!(walked.packets, [(expected, vec![0x45, 0])]);

    let nanoseconds = hex("a1b23c4d 0002 0004 00000000 00000000 0000ffff 00000001
         00000001 00000002 00000001 00000001 ff");
    assert_eq!(walk(&nanoseconds).timestamps(), [1_000_000_002]);
}

#[test]
fn known_pcap_modified() {
    let file = hex("34cdb2a1 0200 0400 00000000 00000000 ffff0000 01000000
         01000000 02000000 01000000 3c000000 07000000 0008 04 00 aa
         02000000 00000000 00000000 3c000000 07000000 0008 04 00");
    let walk = walk_whole(&file);
    let expected = [
        (record(24, 1, 60, 1_000_002_000), vec![0xaa]),
        (record(24, 0, 60, 2_000_000_000), vec![]),
    ];
    assert_eq!(walk.packets, expected);
}

/// Section header, then two interfaces: eth0 in nanoseconds, and raw IPv4 in 2^-20 seconds from 10
/// seconds on.
const PCAPNG_LITTLE: &str = "
    0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000
    01000000 28000000 0100 0000 00000100 0200 0400 65746830 0900 0100 09000000 0000 0000 28000000
    01000000 2c000000 e400 0000 00000000 0900 0100 94000000 0e00 0800 0a00000000000000 0000 0000
    2c000000";

#[test]
fn known_pcapng_little_endian() {
    let file = hex(&[
        PCAPNG_LITTLE,
        // An enhanced packet with a comment.
        "06000000 30000000 00000000 00000000 05000000 05000000 40000000
         a1a2a3a4 a5000000 0100 0200 68690000 30000000",
        "06000000 24000000 01000000 00000000 00001800 01000000 01000000 45000000 24000000",
        // The obsolete packet, with a drop count of 7.
        "02000000 24000000 0100 0700 00000000 00000800 02000000 00000000 45460000 24000000",
        // Name resolution and an unknown block, both empty, and a simple packet.
        "04000000 0c000000 0c000000 99000080 0c000000 0c000000",
        "03000000 14000000 02000000 b1b20000 14000000",
        // Statistics: interface 1 dropped 9; interface 5 does not exist.
        "05000000 28000000 01000000 00000000 00000000 0500 0800 0900000000000000 0000 0000 28000000",
        "05000000 28000000 05000000 00000000 00000000 0500 0800 0900000000000000 0000 0000 28000000",
    ]
    .concat());
    let walk = walk_whole(&file);
    let raw = |record| PacketRecord { interface: 1, ..on_link(Link::Ip, link_type::IPV4, record) };
    let expected = [
        (record(28, 5, 64, 5), vec![0xa1, 0xa2, 0xa3, 0xa4, 0xa5]),
        (raw(record(28, 1, 1, 11_500_000_000)), vec![0x45]),
        (raw(record(28, 2, 2, 10_500_000_000)), vec![0x45, 0x46]),
        (record(12, 2, 2, 10_500_000_000), vec![0xb1, 0xb2]),
    ];
    assert_eq!(walk.packets, expected);
    let [first, second] = &walk.interfaces[..] else { panic!() };
    assert_eq!(first.name.as_deref(), Some("eth0"));
    assert_eq!((first.snaplen, first.drops), (65536, 0));
    assert_eq!(first.resolution, Resolution::NANOSECONDS);
    assert_eq!(second.name, None);
    assert_eq!((second.link_type, link_type::name(second.link_type)), (228, "IPV4"));
    assert_eq!((second.resolution, second.offset_seconds), (Resolution::PowerOf2(20), 10));
    assert_eq!((second.drops, walk.drops), (9, 9));
}

#[test]
fn known_pcapng_sections_of_both_orders() {
    let big = "0a0d0d0a 0000001c 1a2b3c4d 0001 0002 0000000000000000 0000001c
         00000001 00000014 0114 0000 00000003 00000014
         00000003 00000014 00000009 c1c2c300 00000014
         00000006 00000024 00000000 00000000 00000007 00000001 00000001 d1000000 00000024
         00000005 00000024 00000000 00000000 00000000 0005 0008 0000000000000004 00000024";
    let little = "06000000 20000000 00000000 01000000 00000000 00000000 00000000 20000000";
    let file = hex(&[big, PCAPNG_LITTLE, little].concat());
    let walk = walk_whole(&file);
    let cooked = |record| on_link(Link::LinuxSll2, link_type::LINUX_SLL2, record);
    let expected = [
        // The snapshot length is 3.
        (cooked(record(12, 3, 9, 0)), vec![0xc1, 0xc2, 0xc3]),
        (cooked(record(28, 1, 1, 7000)), vec![0xd1]),
        (record(28, 0, 0, 1 << 32), vec![]),
    ];
    assert_eq!(walk.packets, expected);
    assert_eq!((walk.interfaces.len(), walk.drops), (2, 4));
}

#[test]
fn link_types() {
    let expected = [
        (0, Link::Null),
        (1, Link::Ethernet),
        (12, Link::Ip),
        (14, Link::Ip),
        (101, Link::Ip),
        (108, Link::Null),
        (113, Link::LinuxSll),
        (228, Link::Ip),
        (229, Link::Ip),
        (276, Link::LinuxSll2),
    ];
    for link_type in 0..=u16::MAX {
        let known = expected.iter().find(|(number, _)| *number == link_type);
        let link = known.map_or(Link::Unsupported, |(_, link)| *link);
        assert_eq!(link_type::link(link_type), link, "{link_type}");
    }
    assert_eq!(link_type::name(105), "IEEE802_11");
    assert_eq!(link_type::name(9999), "unknown");
}

#[test]
fn files_that_are_no_captures() {
    // 2001-09-09, type Ethernet, 82 bytes including 64 of the frame; then a second one a second
    // later.
    let erf = |second: u8| {
        [&[0, 0, 0, 0, second, 0xca, 0x9a, 0x3b, 2, 4, 0, 82, 0, 0, 0, 64][..], &[0; 66]].concat()
    };
    let two = [erf(0), erf(1)].concat();
    let elsewhere = [erf(0), vec![7; 82]].concat();
    let cases: [(&[u8], &str); 18] = [
        (b"", "is empty"),
        (b"../../default/pcap/teams.pcap", "is text"),
        (b"hi", "is text"),
        ("überraschend lang".as_bytes(), "is text"),
        (
            b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            "is compressed with gzip, decompress it first: gunzip",
        ),
        (b"\x1f\x8b\x08\0", "is compressed with gzip, decompress it first: gunzip"),
        // Invalid method or flags of gzip.
        (b"\x1f\x8b\x07\0\0\0\0\0", "begins with 1f 8b 07 00"),
        (b"\x1f\x8b\x08\x80\0\0\0\0", "begins with 1f 8b 08 80"),
        (b"\x28\xb5\x2f\xfd\0", "is compressed with Zstandard, decompress it first: unzstd"),
        (b"BZh91AY&SY\0\x01", "is compressed with bzip2, decompress it first: bunzip2"),
        (b"BZh9\0\x01\x02\x03\x04\x05", "begins with 42 5a 68 39"),
        (
            b"snoop\0\0\0\0\0\0\x02\0\0\0\x04",
            "is a snoop capture, convert it first: editcap -F pcap",
        ),
        (&two[..82], "looks like an ERF capture, convert it first: editcap -F pcap"),
        (&two, "looks like an ERF capture, convert it first: editcap -F pcap"),
        (&two[..90], "begins with 00 00 00 00"),
        (&elsewhere, "begins with 00 00 00 00"),
        (b"\xd4\xc3\xb2", "begins with d4 c3 b2 00"),
        (&[0xff; 64], "begins with ff ff ff ff"),
    ];
    for (file, guess) in cases {
        let expected = format!("not a capture: the file {guess}; expected pcap or pcapng");
        assert_eq!(walk(file).damage(), expected);
        assert_eq!(walk_in_pieces(file, &[1]).damage(), expected);
    }
}

/// Random bytes are not recognised as a format because some of them match.
#[test]
fn random_bytes_are_of_no_format() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for number in 0..20_000 {
        let mut file = vec![0; if number % 100 == 0 { 5000 } else { 16 + number % 200 }];
        rng.fill_bytes(&mut file);
        let [a, b, c, d] = [file[0], file[1], file[2], file[3]];
        let start = format!("begins with {a:02x} {b:02x} {c:02x} {d:02x}");
        let expected = format!("not a capture: the file {start}; expected pcap or pcapng");
        assert_eq!(walk(&file).damage(), expected, "{number}");
    }
}

/// Returns `PCAPNG_LITTLE`, a packet without bytes, then `rest`, and the place where `rest` begins.
fn after_a_packet(rest: &str) -> (Vec<u8>, DamagePosition) {
    let packet = "06000000 20000000 00000000 01000000 00000000 00000000 00000000 20000000";
    let mut file = hex(&[PCAPNG_LITTLE, packet].concat());
    let at = DamagePosition { offset: file.len() as u64, packets: 1 };
    file.extend(hex(rest));
    (file, at)
}

#[test]
fn damaged_pcapng_is_reported() {
    // Reports, without the place at the asterisk.
    let cases = [
        (
            "06000000 1c000000 00000000",
            "length 28 of a block of type 0x00000006*: expected 32 or more",
        ),
        (
            "0b000000 feffffff 00000000",
            "length 4294967294 of a block of type 0x0000000b*: expected 12 or more",
        ),
        (
            "0b000000 00000000 00000000",
            "length 0 of a block of type 0x0000000b*: expected 12 or more",
        ),
        (
            "01000000 00000080 00000000",
            "length 2147483648 of a block of type 0x00000001*: expected 16777216 at most",
        ),
        (
            "0b000000 14000000 00000000 00000000 15000000",
            "a block* ends with length 21: expected 20 as at its beginning",
        ),
        (
            "03000000 10000000 00000000 11000000",
            "a block* ends with length 17: expected 16 as at its beginning",
        ),
        (
            "06000000 20000000 00000000 00000000 00000000 00000000 00000000 24000000",
            "a block* ends with length 36: expected 32 as at its beginning",
        ),
        (
            "06000000 24000000 00000000 00000000 00000000 05000000 05000000 00000000 24000000",
            "captured length 5 in a block*: expected 4 at most, the room in the block",
        ),
        (
            "06000000 20000000 00000000 00000000 00000000 01000400 05000000 20000000",
            "captured length 262145*: expected 262144 at most",
        ),
        (
            "06000000 20000000 02000000 00000000 00000000 00000000 00000000 20000000",
            "interface 2 of a packet*: expected one of the 2 described so far",
        ),
        (
            "0a0d0d0a 1c000000 4d3c2b1b 0100 0000",
            "byte-order magic 0x1b2b3c4d of a section header*: expected 0x1a2b3c4d",
        ),
        ("0a0d0d0a 1c000000 4d3c2b1a 0200 0000", "version 2.0 of pcapng*: expected 1.0"),
        (
            "01000000 1c000000 0100 0000 00000000 0200 0900 61000000 1c000000",
            "option 2 of an interface* has length 9: expected 4 at most",
        ),
        ("0b000000 14000000 0000", "the file ends inside a block*: 10 bytes of 20"),
        ("06000000 20000000 0000", "the file ends inside a block*: 10 bytes of 32"),
    ];
    for (rest, text) in cases {
        let (file, _) = after_a_packet(rest);
        let text = text.replace('*', " at byte 144, after 1 packet");
        for pieces in [1, 7, 1 << 18] {
            let walk = walk_in_pieces(&file, &[pieces]);
            assert_eq!((walk.damage(), walk.packets.len()), (text.clone(), 1));
        }
    }
}

#[test]
fn damaged_pcap_is_reported() {
    let header = "d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000";
    let cases = [
        (
            [header, "00000000 00000000 01000400 01000400"].concat(),
            "captured length 262145 at byte 24, after 0 packets: expected 262144 at most",
        ),
        (
            [header, "00000000 00000000 3c000000 3c000000 00000000"].concat(),
            "the file ends inside a record at byte 24, after 0 packets: 20 bytes of 76",
        ),
        (
            header.replace("0200 0400", "0100 0300"),
            "version 1.3 of pcap at byte 0, after 0 packets: expected 2.4",
        ),
        (
            header[..18].to_owned(),
            "the file ends inside a file header at byte 0, after 0 packets: 8 bytes of 24",
        ),
    ];
    for (file, expected) in cases {
        assert_eq!(walk(&hex(&file)).damage(), expected);
    }
}

fn in_both_formats(packets: &[CapturePacket]) -> [Vec<u8>; 2] {
    [
        build::pcap(&PcapOptions::default(), packets),
        build::pcapng(&PcapNgOptions::default(), packets),
    ]
}

#[test]
fn the_longest_packet_passes() {
    let packets = [CapturePacket::new(0, vec![7; MAX_CAPTURED as usize])];
    for file in in_both_formats(&packets) {
        let walk = walk_in_pieces(&file, &[4099]);
        assert_eq!(walk.end, Ok(()));
        assert_eq!(walk.packets[0].1, packets[0].frame);
    }
}

#[test]
fn hot_loops_get_their_packets() {
    let packets = vec![CapturePacket::new(1000, vec![1, 2, 3]); 9];
    for file in in_both_formats(&packets) {
        let mut walker = Walker::new();
        let mut unread = &file[..];
        assert_eq!(walker.next_packet(unread), None);
        while let Step::Skip { consumed } = walker.clone().next(unread) {
            assert_eq!(walker.next_packet(unread), None);
            assert_eq!(walker.next(unread), Step::Skip { consumed });
            unread = &unread[consumed..];
        }
        for _ in &packets {
            assert_eq!(walker.next_packet(&unread[..18]), None);
            let step = walker.clone().next(unread);
            let (record, consumed) = walker.next_packet(unread).unwrap();
            assert_eq!(step, Step::Packet { record, consumed });
            assert_eq!(record.frame(unread), [1, 2, 3]);
            unread = &unread[consumed..];
        }
        assert_eq!(walker.next_packet(unread), None);
        assert_eq!(walker.offset(), file.len() as u64);
        assert_eq!(walker.finish(unread), Ok(()));
    }
}

#[test]
fn a_huge_block_is_skipped_without_being_kept() {
    let length = u32::MAX - 3;
    let (mut file, at) = after_a_packet("0b000000");
    file.extend(length.to_le_bytes());
    let mut walker = Walker::new();
    let mut unread = &file[..];
    while let Step::Packet { consumed, .. } | Step::Skip { consumed } = walker.next(unread) {
        unread = &unread[consumed..];
    }
    assert!(unread.is_empty());
    let zeros = vec![0; 1 << 20];
    let mut left = length as usize - 8 - 4;
    while left > 0 {
        let piece = &zeros[..left.min(zeros.len())];
        assert_eq!(walker.next(piece), Step::Skip { consumed: piece.len() });
        left -= piece.len();
    }
    let ended = format!("the file ends inside a block {at}: {} bytes of {length}", length - 4);
    assert_eq!(walker.finish(&[]), Err(Damage(ended)));
    assert_eq!(walker.next(&length.to_le_bytes()), Step::Skip { consumed: 4 });
    assert_eq!(walker.offset(), at.offset + u64::from(length));
    assert_eq!(walker.finish(&[]), Ok(()));
}

#[test]
fn a_packet_inside_a_skipped_block_is_ignored() {
    let inner = "06000000 20000000 00000000 00000000 00000000 00000000 00000000 20000000";
    let (file, _) = after_a_packet(&["0b000000 2c000000", inner, "2c000000"].concat());
    for pieces in 1..file.len() {
        let walk = walk_in_pieces(&file, &[pieces]);
        assert_eq!(walk.end, Ok(()));
        assert_eq!(walk.packets.len(), 1);
    }
    let up_to_inner = file.len() - 4 - 32;
    assert_eq!(walk_in_pieces(&file, &[up_to_inner, 36]).packets.len(), 1);
}

/// Padding not included in the lengths exists nevertheless.
#[test]
fn block_lengths_without_padding_are_rounded_up() {
    let block = |leading: u32, trailing: u32| {
        let mut file = after_a_packet("06000000").0;
        file.extend(leading.to_le_bytes());
        file.extend(hex("00000000 00000000 00000000 01000000 01000000 ab000000"));
        file.extend(trailing.to_le_bytes());
        [file, after_a_packet("").0].concat()
    };
    for (leading, trailing) in [(36, 36), (33, 33), (35, 36)] {
        for pieces in [1, 7, 1 << 18] {
            let walk = walk_in_pieces(&block(leading, trailing), &[pieces]);
            assert_eq!((walk.end, walk.packets.len()), (Ok(()), 3), "{leading} and {trailing}");
            assert_eq!(walk.packets[1].1, [0xab]);
        }
    }
    for (leading, trailing) in [(36, 37), (36, 33), (33, 34), (33, 40)] {
        let damage = walk(&block(leading, trailing)).damage();
        let lengths = format!("ends with length {trailing}: expected 36 as at its beginning");
        assert!(damage.ends_with(&lengths), "{damage}");
    }
}

/// A packet with a comment of any length is read, without buffering its block.
#[test]
fn packets_in_huge_blocks_are_read() {
    let block = |block_type: u32, length: u32, trailing: u32| {
        let mut file = after_a_packet("").0;
        file.extend([block_type, length].map(u32::to_le_bytes).concat());
        let body = file.len();
        match block_type {
            3 => file.extend(hex("03000000 aabbcc00")),
            _ => file.extend(hex("00000000 02000000 00000000 03000000 03000000 aabbcc00")),
        }
        file.resize(body + length as usize - 12, 0x55);
        file.extend(trailing.to_le_bytes());
        [file, after_a_packet("").0].concat()
    };
    for block_type in [2, 3, 6] {
        for length in [1 << 20, (1 << 20) + 4, 3 << 20, 17 << 20] {
            for pieces in [99_991, 1 << 21] {
                let walk = walk_in_pieces(&block(block_type, length, length), &[pieces]);
                assert_eq!((walk.end, walk.packets.len()), (Ok(()), 3), "{length}");
                assert_eq!(walk.packets[1].1, [0xaa, 0xbb, 0xcc]);
            }
        }
    }
    let long = (1 << 20) + 4;
    let damage = walk(&block(6, long, long + 4)).damage();
    let lengths = format!("ends with length {}: expected {long} as at its beginning", long + 4);
    assert!(damage.ends_with(&lengths), "{damage}");
    // A walk that stops before such a packet can continue with it.
    let file = block(6, long, long);
    let mut walker = Walker::new();
    let PassResult { consumed: passed, stop, .. } = walker.pass(&file, TimeRange::new(0, 2 << 32));
    assert_eq!((stop, walker.packets()), (StopReason::Limit { next: 2 << 32 }, 1));
    let again = walker.pass(&file[passed..], TimeRange::new(0, 2 << 32));
    let stop = StopReason::Limit { next: 2 << 32 };
    assert_eq!(again, PassResult { consumed: 0, run: PacketRun::default(), stop });
    let PassResult { consumed: rest, .. } =
        walker.pass(&file[passed..], TimeRange::new(0, u64::MAX));
    assert_eq!((passed + rest, walker.packets()), (file.len(), 3));
}

/// Like Wireshark: an option with an invalid length is ignored.
#[test]
fn options_of_odd_lengths_are_passed_over() {
    let described = |option: &str, length: u32| {
        let block = format!("01000000 {0} 0100 0000 00000000 {option} {0}", hexed(length));
        walk(&after_a_packet(&block).0).interfaces.last().cloned().unwrap()
    };
    assert_eq!(described("0900 0200 09000000", 28).resolution, Resolution::MICROSECONDS);
    assert_eq!(described("0900 0000", 24).resolution, Resolution::MICROSECONDS);
    assert_eq!(described("0e00 0400 01000000", 28).offset_seconds, 0);
    assert_eq!(described("0900 0100 09000000", 28).resolution, Resolution::NANOSECONDS);
}

fn hexed(number: u32) -> String {
    number.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn interfaces_are_limited() {
    let interfaces = vec![InterfaceOptions::default(); (1 << 18) + 1];
    let options = PcapNgOptions { interfaces, ..PcapNgOptions::default() };
    let walk = walk(&build::pcapng(&options, &[]));
    assert_eq!(walk.interfaces.len(), 1 << 18);
    let damage = walk.damage();
    assert!(damage.starts_with("one more interface"), "{damage}");
    assert!(damage.ends_with("expected 262144 in a section at most"), "{damage}");
}

/// The rules of libpcap: before 2.3 the original length comes first, in 2.3 the shorter one is the
/// captured one.
#[test]
fn old_versions_of_pcap_have_their_lengths_the_other_way_round() {
    let packets = [
        CapturePacket { wire: 60, ..CapturePacket::new(1000, vec![1, 2, 3]) },
        CapturePacket::new(2000, vec![4; 7]),
    ];
    for big_endian in [false, true] {
        let original_first =
            [(2, 0), (2, 1), (2, 2), (2, 3), (543, 0)].map(|version| (version, true));
        let captured_first = [(2, 3), (2, 4), (2, 9)].map(|version| (version, false));
        for (version, original_first) in original_first.into_iter().chain(captured_first) {
            let options =
                PcapOptions { version, original_first, big_endian, ..PcapOptions::default() };
            let file = build::pcap(&options, &packets);
            for pieces in [1, 7, 1 << 18] {
                let walk = walk_in_pieces(&file, &[pieces]);
                let expected = [
                    (record(16, 3, 60, 1000), vec![1, 2, 3]),
                    (record(16, 7, 7, 2000), vec![4; 7]),
                ];
                assert_eq!((walk.end, &walk.packets[..]), (Ok(()), &expected[..]), "{version:?}");
            }
            // A worker counts exactly what the walk before it has passed.
            let mut walker = Walker::new();
            let PassResult { consumed: passed, run, stop } =
                walker.pass(&file, TimeRange::new(0, 2000));
            assert_eq!((stop, walker.packets()), (StopReason::Limit { next: 2000 }, 1));
            assert_eq!(run, PacketRun { packets: 1, captured: 3, earliest: 1000, latest: 1000 });
            let counted: usize =
                Walker::new().packets_in(&file[..passed]).map(|(_, frame)| frame.len()).sum();
            assert_eq!(counted, 3);
        }
    }
}

/// Counting without a previous walk covers what the walk would have passed, and the next walk
/// continues after it.
#[test]
fn plain_packets_end_where_a_walk_over_them_does() {
    let times = [5, 3, 9, 3, 7, 20, 6, 8, 1, 30, 8];
    let packets: Vec<CapturePacket> = times
        .iter()
        .map(|&time| CapturePacket::new(time * 1000, vec![time as u8; time as usize]))
        .collect();
    let file = build::pcap(&PcapOptions::default(), &packets);
    let header = Walker::new().next(&file);
    let Step::Skip { consumed: header } = header else { panic!("{header:?}") };
    let to_nine = [0, 3000, 4000].map(|floor| (floor, 9000));
    let bounds = [(0, u64::MAX), (3000, 21_000), (7000, 7000), (9000, 3000)];
    let bounds = [&bounds[..], &to_nine].concat();
    for length in header..=file.len() {
        for &(floor, limit) in &bounds {
            let (mut walked, mut counted) = (Walker::new(), Walker::new());
            walked.next(&file);
            counted.next(&file);
            let mut unread = &file[header..length];
            while !unread.is_empty() {
                let passed = walked.pass(unread, TimeRange::new(floor, limit));
                let mut plain = counted.plain_in(unread, TimeRange::new(floor, limit)).unwrap();
                let frames: Vec<_> = plain
                    .by_ref()
                    .map(|(record, frame)| (record.timestamp, frame.len() as u64 * 1000))
                    .collect();
                let times = || frames.iter().map(|(timestamp, _)| *timestamp);
                let run = PacketRun {
                    packets: frames.len() as u64,
                    captured: times().sum::<u64>() / 1000,
                    earliest: times().min().unwrap_or(u64::MAX),
                    latest: times().max().unwrap_or(0),
                };
                let (left, taken) = plain.left();
                counted.took(unread.len() - left, taken.packets);
                assert!(frames.iter().all(|(timestamp, bytes)| timestamp == bytes));
                assert_eq!((unread.len() - left, taken), (passed.consumed, run));
                assert_eq!(passed.run, run);
                let place = |walker: &Walker| (walker.offset(), walker.packets());
                assert_eq!(place(&walked), place(&counted));
                // Skip the packet that is out of bounds.
                let Some((_, consumed)) = walked.next_packet(&unread[passed.consumed..]) else {
                    break;
                };
                counted.next_packet(&unread[passed.consumed..]).unwrap();
                unread = &unread[passed.consumed + consumed..];
            }
        }
    }
    for options in [
        PcapOptions { big_endian: true, ..PcapOptions::default() },
        PcapOptions { version: (2, 3), ..PcapOptions::default() },
        PcapOptions { network: u32::from(link_type::RAW), ..PcapOptions::default() },
        PcapOptions { variant: PcapVariant::Modified, ..PcapOptions::default() },
    ] {
        let file = build::pcap(&options, &packets);
        let mut walker = Walker::new();
        walker.next(&file);
        assert!(walker.plain_in(&file[header..], TimeRange::new(0, u64::MAX)).is_none());
    }
}

#[test]
fn names_are_repaired() {
    let name = |name: &str| {
        let interface =
            InterfaceOptions { name: Some(name.to_owned()), ..InterfaceOptions::default() };
        let options = PcapNgOptions { interfaces: vec![interface], ..PcapNgOptions::default() };
        let mut file = build::pcapng(&options, &[]);
        file.iter_mut().filter(|byte| **byte == b'!').for_each(|byte| *byte = 0xff);
        walk(&file).interfaces[0].name.clone().unwrap()
    };
    assert_eq!(name("eth0\0\0junk"), "eth0");
    assert_eq!(name("et!h0"), "et\u{fffd}h0");
    assert_eq!(name(&"x".repeat(1000)), "x".repeat(255));
}

#[test]
fn timestamps_saturate() {
    let at = |resolution, offset_seconds, ticks| {
        CaptureInterface::new(None, 1, 0, resolution, offset_seconds).nanoseconds(ticks)
    };
    assert_eq!(at(Resolution::PowerOf10(0), 0, u64::MAX), u64::MAX - 1);
    assert_eq!(at(Resolution::MICROSECONDS, 0, u64::MAX), u64::MAX - 1);
    assert_eq!(at(Resolution::NANOSECONDS, 0, u64::MAX), u64::MAX - 1);
    assert_eq!(at(Resolution::NANOSECONDS, 1, u64::MAX), u64::MAX - 1);
    assert_eq!(at(Resolution::NANOSECONDS, -1, u64::MAX), u64::MAX - SECOND);
    assert_eq!(at(Resolution::NANOSECONDS, -1, 5), 0);
    assert_eq!(at(Resolution::PowerOf10(0), i64::MAX, u64::MAX), u64::MAX - 1);
    assert_eq!(at(Resolution::PowerOf10(0), i64::MIN, u64::MAX), u64::MAX - 1);
    assert_eq!(at(Resolution::PowerOf10(127), i64::MIN, u64::MAX), 0);
    assert_eq!(at(Resolution::PowerOf10(28), 0, u64::MAX), 1);
    assert_eq!(at(Resolution::PowerOf10(29), 0, u64::MAX), 0);
    assert_eq!(at(Resolution::PowerOf2(0), 0, 3), 3 * SECOND);
    assert_eq!(at(Resolution::PowerOf2(64), 0, u64::MAX), SECOND - 1);
    assert_eq!(at(Resolution::PowerOf2(127), 0, u64::MAX), 0);
}

#[test]
fn the_writer_writes_what_the_walker_reads() {
    let mut writer = Writer::new(Vec::new(), link_type::RAW).unwrap();
    writer.write(1_234_567_890_123_456_789, &[0x45, 1], 60).unwrap();
    writer.write(0, &[], 0).unwrap();
    writer.write(u64::from(u32::MAX) * SECOND + 999_999_999, &[1, 2], 1).unwrap();
    let too_late = writer.write(u64::MAX, &[], 0).unwrap_err();
    assert_eq!(too_late.kind(), std::io::ErrorKind::InvalidInput);
    let too_long = writer.write(0, &vec![0; MAX_CAPTURED as usize + 1], 0).unwrap_err();
    let limit = "a frame of 262145 bytes does not fit into a pcap file: 262144 at most";
    assert_eq!(too_long.to_string(), limit);
    let file = writer.finish().unwrap();
    let expected = hex("4d3cb2a1 0200 0400 00000000 00000000 00000400 65000000
         d2029649 15cd5b07 02000000 3c000000 4501");
    assert_eq!(file[..expected.len()], expected);
    let walk = walk_whole(&file);
    let raw = |record| on_link(Link::Ip, link_type::RAW, record);
    let expected = [
        (raw(record(16, 2, 60, 1_234_567_890_123_456_789)), vec![0x45, 1]),
        (raw(record(16, 0, 0, 0)), vec![]),
        (raw(record(16, 2, 2, 4_294_967_295_999_999_999)), vec![1, 2]),
    ];
    assert_eq!(walk.packets, expected);
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..90)
}

/// Early enough to fit into 64 bits of picoseconds, and so far from both ends that any offset below
/// is valid.
const TIMESTAMPS: std::ops::Range<u64> = 1_000_000_000_000_000..17_000_000_000_000_000;
const OFFSETS: std::ops::RangeInclusive<i64> = -1_000_000..=1_000_000;

fn pcap_options() -> impl Strategy<Value = PcapOptions> {
    use PcapVariant::{Microseconds, Modified, Nanoseconds};
    let variant = prop_oneof![Just(Microseconds), Just(Nanoseconds), Just(Modified)];
    let versions = prop_oneof![Just(((2, 4), false)), Just(((2, 2), true)), Just(((543, 0), true))];
    (variant, any::<bool>(), versions, any::<u32>(), any::<u32>()).prop_map(
        |(variant, big_endian, (version, original_first), snaplen, network)| PcapOptions {
            variant,
            big_endian,
            version,
            original_first,
            snaplen,
            network,
        },
    )
}

fn packets() -> impl Strategy<Value = Vec<CapturePacket>> {
    let packet = (0..u64::from(u32::MAX) * SECOND, frame(), any::<u32>()).prop_map(
        |(timestamp, frame, wire)| CapturePacket { wire, ..CapturePacket::new(timestamp, frame) },
    );
    vec(packet, 0..20)
}

fn pcap_file() -> impl Strategy<Value = (PcapOptions, Vec<CapturePacket>)> {
    (pcap_options(), packets())
}

fn interface() -> impl Strategy<Value = InterfaceOptions> {
    use Resolution::{PowerOf2, PowerOf10};
    let of_10 = [0, 3, 6, 9, 12].map(|power| Some(PowerOf10(power)));
    let of_2 = [10, 20, 32].map(|power| Some(PowerOf2(power)));
    let resolutions = [&[None][..], &of_10, &of_2].concat();
    (
        prop_oneof![Just(1), Just(101), Just(113), Just(105), any::<u16>()],
        prop_oneof![Just(0), 1..100_u32, Just(262_144)],
        proptest::option::of("[a-z]{0,9}"),
        proptest::sample::select(resolutions),
        prop_oneof![Just(0), OFFSETS],
        proptest::option::of(any::<u64>()),
    )
        .prop_map(|(link_type, snaplen, name, resolution, offset_seconds, drops)| {
            InterfaceOptions { link_type, snaplen, name, resolution, offset_seconds, drops }
        })
}

fn extra_block() -> impl Strategy<Value = ExtraBlock> {
    let block_types = vec![4, 10, 11, 0xbad, 0x4000_0bad, 0x8000_0001, 0x7777_7777];
    (0..25_usize, proptest::sample::select(block_types), frame())
        .prop_map(|(before, block_type, body)| ExtraBlock { before, block_type, body })
}

fn pcapng_packet(interfaces: Vec<InterfaceOptions>) -> impl Strategy<Value = CapturePacket> {
    use PacketBlock::{Enhanced, Obsolete, Simple};
    let blocks = prop_oneof![Just(Enhanced), Just(Simple), Just(Obsolete)];
    (TIMESTAMPS, frame(), any::<u32>(), any::<Index>(), blocks).prop_map(
        move |(timestamp, mut frame, mut wire, index, block)| {
            let mut interface = index.index(interfaces.len()) as u32;
            if block == Simple {
                interface = 0;
                match interfaces[0].snaplen as usize {
                    0 => wire = frame.len() as u32,
                    snaplen if frame.len() < snaplen => wire = frame.len() as u32,
                    snaplen => {
                        frame.truncate(snaplen);
                        wire = wire.max(snaplen as u32);
                    }
                }
            }
            CapturePacket { timestamp, wire, frame, interface, block }
        },
    )
}

fn section() -> impl Strategy<Value = (PcapNgOptions, Vec<CapturePacket>)> {
    let interfaces = vec(interface(), 1..4);
    (any::<bool>(), 0..3_u16, interfaces, "[a-z]{0,9}", vec(extra_block(), 0..4))
        .prop_map(|(big_endian, minor_version, interfaces, comment, extra)| PcapNgOptions {
            big_endian,
            minor_version,
            interfaces,
            comment,
            extra,
        })
        .prop_flat_map(|options| {
            let packets = vec(pcapng_packet(options.interfaces.clone()), 0..12);
            (Just(options), packets)
        })
}

fn pcapng_file() -> impl Strategy<Value = Vec<(PcapNgOptions, Vec<CapturePacket>)>> {
    vec(section(), 1..4)
}

fn join(sections: &[(PcapNgOptions, Vec<CapturePacket>)]) -> Vec<u8> {
    sections.iter().flat_map(|(options, packets)| build::pcapng(options, packets)).collect()
}

fn any_file() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        pcap_file().prop_map(|(options, packets)| build::pcap(&options, &packets)),
        pcapng_file().prop_map(|sections| join(&sections)),
    ]
}

/// Returns a timestamp after rounding to the resolution of a file.
fn rounded(timestamp: u64, resolution: Option<Resolution>, offset_seconds: i64) -> u64 {
    let since_offset = timestamp.wrapping_sub((offset_seconds * 1_000_000_000) as u64);
    let since_offset = match resolution.unwrap_or(Resolution::MICROSECONDS) {
        Resolution::PowerOf10(power) => {
            let unit = [1_000_000_000, 0, 0, 1_000_000, 0, 0, 1000]
                .get(usize::from(power))
                .copied()
                .unwrap_or(1);
            since_offset - since_offset % unit
        }
        Resolution::PowerOf2(power) => {
            let per_second = 1_u128 << power;
            let ticks = u128::from(since_offset) * per_second / 1_000_000_000;
            (ticks * 1_000_000_000 / per_second) as u64
        }
    };
    since_offset.wrapping_add((offset_seconds * 1_000_000_000) as u64)
}

/// Returns the offsets at which `file`, a valid capture, has a record, block or header begin or
/// end.
fn boundaries(file: &[u8]) -> Vec<(usize, usize)> {
    let mut walker = Walker::new();
    let mut found = Vec::new();
    let mut from = 0;
    loop {
        match walker.next(&file[from..]) {
            Step::Packet { consumed, .. } | Step::Skip { consumed } => {
                from += consumed;
                found.push((from, walker.packets() as usize));
            }
            Step::NeedMore { .. } => return found,
            Step::Damaged(damage) => panic!("{damage}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn built_pcap_is_read_back((options, packets) in pcap_file()) {
        let walk = walk(&build::pcap(&options, &packets));
        prop_assert_eq!(walk.end, Ok(()));
        prop_assert_eq!(walk.packets.len(), packets.len());
        let nanoseconds = options.variant == PcapVariant::Nanoseconds;
        prop_assert_eq!(walk.interfaces[0].link_type, options.network as u16);
        prop_assert_eq!(walk.interfaces[0].snaplen, options.snaplen);
        for (packet, (record, frame)) in packets.iter().zip(&walk.packets) {
            let resolution = Resolution::PowerOf10(if nanoseconds { 9 } else { 6 });
            prop_assert_eq!(frame, &packet.frame);
            prop_assert_eq!(record.wire, packet.wire.max(frame.len() as u32));
            prop_assert_eq!(record.timestamp, rounded(packet.timestamp, Some(resolution), 0));
            prop_assert_eq!(record.link, link_type::link(options.network as u16));
        }
    }

    #[test]
    fn built_pcapng_is_read_back(sections in pcapng_file()) {
        let walk = walk(&join(&sections));
        prop_assert_eq!(walk.end, Ok(()));
        let mut found = walk.packets.iter();
        let mut previous = 0;
        let mut drops = 0_u64;
        for (options, packets) in &sections {
            for packet in packets {
                let (record, frame) = found.next().unwrap();
                let interface = &options.interfaces[packet.interface as usize];
                let InterfaceOptions { resolution, offset_seconds, .. } = *interface;
                if packet.block != PacketBlock::Simple {
                    previous = rounded(packet.timestamp, resolution, offset_seconds);
                }
                prop_assert_eq!(frame, &packet.frame);
                prop_assert_eq!(record.wire, packet.wire.max(frame.len() as u32));
                prop_assert_eq!(record.timestamp, previous);
                prop_assert_eq!(record.link, link_type::link(interface.link_type));
                prop_assert_eq!(record.interface, packet.interface);
            }
            for interface in &options.interfaces {
                drops = drops.saturating_add(interface.drops.unwrap_or(0));
            }
        }
        prop_assert!(found.next().is_none());
        prop_assert_eq!(walk.drops, drops);
        let (last, _) = sections.last().unwrap();
        for (interface, options) in walk.interfaces.iter().zip(&last.interfaces) {
            prop_assert_eq!(&interface.name, &options.name);
            prop_assert_eq!(interface.link_type, options.link_type);
            prop_assert_eq!(interface.snaplen, options.snaplen);
            prop_assert_eq!(interface.drops, options.drops.unwrap_or(0));
            prop_assert_eq!(interface.offset_seconds, options.offset_seconds);
            let resolution = options.resolution.unwrap_or(Resolution::MICROSECONDS);
            prop_assert_eq!(interface.resolution, resolution);
        }
    }

    #[test]
    fn pieces_do_not_matter(file in any_file(), pieces in vec(1..70_usize, 1..20)) {
        prop_assert_eq!(walk_in_pieces(&file, &pieces), walk(&file));
    }

    #[test]
    fn the_writer_is_read_back(packets in packets(), link_type in any::<u16>()) {
        let mut writer = Writer::new(Vec::new(), link_type).unwrap();
        for CapturePacket { timestamp, frame, wire, .. } in &packets {
            writer.write(*timestamp, frame, *wire).unwrap();
        }
        let walk = walk(&writer.finish().unwrap());
        prop_assert_eq!(walk.end, Ok(()));
        prop_assert_eq!(walk.packets.len(), packets.len());
        for (packet, (record, frame)) in packets.iter().zip(&walk.packets) {
            prop_assert_eq!(record.timestamp, packet.timestamp);
            prop_assert_eq!(record.wire, packet.wire.max(record.captured));
            prop_assert_eq!(frame, &packet.frame);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_cut_keeps_the_whole_records_before_it(file in any_file()) {
        let whole = walk(&file);
        let boundaries = boundaries(&file);
        for cut in 0..file.len() {
            let walk = walk(&file[..cut]);
            let (begin, packets) = boundaries
                .iter()
                .rfind(|(end, _)| *end <= cut)
                .copied()
                .unwrap_or_default();
            prop_assert_eq!(&walk.packets[..], &whole.packets[..packets]);
            if cut == begin && cut > 0 {
                prop_assert_eq!(walk.end, Ok(()));
                continue;
            }
            let damage = walk.damage();
            if damage.starts_with("not a capture") {
                prop_assert!(cut < 4);
                continue;
            }
            let at = DamagePosition { offset: begin as u64, packets: packets as u64 };
            let (inside, lengths) = damage.split_once(&format!(" {at}: ")).unwrap();
            prop_assert!(inside.starts_with("the file ends inside a "), "{}", damage);
            let (present, needed) = lengths.split_once(" bytes of ").unwrap();
            prop_assert_eq!(present, (cut - begin).to_string());
            prop_assert!(needed.parse::<usize>().unwrap() > cut - begin);
        }
    }
}

/// Generates the starts of the formats, so that arbitrary bytes get past them.
fn beginning() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        pcap_options().prop_map(|options| build::pcap(&options, &[])),
        section().prop_map(|(options, _)| build::pcapng(&options, &[])),
    ]
}

/// Generates block headers with plausible types and lengths, followed by arbitrary bytes.
fn blocks() -> impl Strategy<Value = Vec<u8>> {
    let block = (0..8_u32, 0..20_u32, vec(0..4_u8, 0..64), any::<bool>()).prop_map(
        |(block_type, words, mut body, honest)| {
            let length = if honest { 12 + body.len() as u32 / 4 * 4 } else { words * 4 };
            body.truncate(body.len() / 4 * 4);
            let ends = length.to_le_bytes();
            [&block_type.to_le_bytes()[..], &ends, &body, &ends].concat()
        },
    );
    vec(block, 0..6).prop_map(|blocks| blocks.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn arbitrary_bytes_are_survived(
        mut file in beginning(),
        rest in prop_oneof![vec(any::<u8>(), 0..200), vec(0..3_u8, 0..200), blocks()],
        pieces in vec(1..70_usize, 1..5),
    ) {
        file.extend(rest);
        prop_assert_eq!(walk_in_pieces(&file, &pieces), walk(&file));
    }

    #[test]
    fn mutated_captures_are_survived(
        mut file in any_file(),
        mutations in vec((any::<Index>(), any::<u8>(), 0..4_u8), 1..8),
        pieces in vec(1..70_usize, 1..5),
    ) {
        for (index, value, kind) in mutations {
            let index = index.index(file.len());
            match kind {
                0 => file[index] = value,
                1 => file[index] ^= 1 << (value % 8),
                2 => file.insert(index, value),
                _ => file.truncate(index.max(1)),
            }
        }
        prop_assert_eq!(walk_in_pieces(&file, &pieces), walk(&file));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// The remainder is always a suffix of the frame.
    #[test]
    fn arbitrary_frames_of_every_link_type_are_survived(
        link_type in prop_oneof![0..300_u16, any::<u16>()],
        frame in prop_oneof![vec(any::<u8>(), 0..90), vec(0..10_u8, 0..90)],
        inner in 0..300_u16,
    ) {
        let mut frame = frame;
        if link_type == link_type::PPI && frame.len() > 8 {
            frame[4..8].copy_from_slice(&u32::from(inner).to_le_bytes());
        }
        if let Some((_, rest)) = open(link_type, &frame) {
            prop_assert!(frame.ends_with(rest));
        }
    }
}

#[test]
fn frames_cut_anywhere_in_a_link_header_are_truncated() {
    let packet = [0x45; 20];
    let headers: [(u16, &str); 17] = [
        (link_type::PPP, "ff030021"),
        (link_type::PPP_PPPD, "01030021"),
        (link_type::PPP_WITH_DIR, "01ff030021"),
        (link_type::C_HDLC_WITH_DIR, "010f000800"),
        (link_type::FRELAY_WITH_DIR, "01184103cc"),
        // Big-endian.
        (link_type::NFLOG, "02000000 00180009"),
        (link_type::PPP_ETHER, "1100000100160021"),
        (link_type::C_HDLC, "0f000800"),
        (link_type::FRELAY, "184103cc"),
        (link_type::FRELAY, "1841030080000000 0800"),
        (link_type::NFLOG, "02000000 18000900"),
        (
            link_type::IEEE802_11,
            "88010000 020000000000 020000000000 020000000000 1000 0000 aaaa03000000 0800",
        ),
        (
            link_type::IEEE802_11_RADIOTAP,
            "00000800 00000000 08000000 020000000000 020000000000 020000000000 1000 aaaa03000000 0800",
        ),
        (link_type::PPI, "00000800 09000000 0021"),
        (link_type::MPLS, "00010040 00020140"),
        (link_type::IEEE802_5, "1040 020000000001 820000000002 0670 0011 0020 aaaa03000000 0800"),
        (link_type::APPLE_IP_OVER_IEEE1394, "0102030405060708 0102030405060709 0800"),
    ];
    for (link_type, header) in headers {
        let frame = [hex(header), packet.to_vec()].concat();
        for length in 0..=frame.len() {
            let (link, rest) = open(link_type, &frame[..length]).unwrap_or((Link::Ip, &[]));
            let class = network(rest, link);
            match length == frame.len() {
                true => assert!(class.is_ok(), "{link_type}: {class:?}"),
                false => assert_eq!(class, Err(Reject::Truncated), "{link_type} cut at {length}"),
            }
        }
    }
}
