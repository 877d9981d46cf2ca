//! Comparison of filter expressions with tcpdump, packet for packet.
//!
//! Expressions are drawn from a grammar with a seed, in two spellings: flowgauge's, and one for
//! tcpdump that means the same where the languages differ on purpose (`docs/match.md`): `host` is
//! about IP only, and TCP flags are also those of IPv6. Packets are generated in two forms as well:
//! as they are, and for tcpdump without VLAN tags and IPv6 extension headers, which it would not
//! look behind. What `vlan` means in tcpdump has a test of its own.
//!
//! `TEST_CAPTURES=DIR` adds every *.pcap and *.pcapng in a directory.

use flowgauge_core::{Link, parse};
use flowgauge_ctl::filter::{FilterError, MatchExpression};
use flowgauge_dataplane::capture::{Walker, Writer, link_type};
use flowgauge_testing::frames::captures_at_hand;
use flowgauge_testing::scratch::Scratch;
use flowgauge_testing::skip;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs::{self, File};
use std::io::BufWriter;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

/// Expressions per set of packets.
const EXPRESSIONS: usize = 200;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Returns a directory for a test, which is skipped without tcpdump.
fn scratch(test: &str) -> Option<Scratch> {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        skip("tcpdump");
        return None;
    }
    Some(Scratch::new(test))
}

/// Generated packet.
struct Packet {
    /// The frame on the wire.
    frame: Vec<u8>,
    /// The frame without what tcpdump does not look behind.
    plain: Vec<u8>,
    /// Ids of its VLAN tags, the outermost first.
    tags: Vec<u16>,
    /// Whether only tags distinguish both forms.
    is_simple: bool,
}

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
const V4: [[u8; 4]; 6] =
    [[10, 0, 0, 1], [10, 0, 0, 2], [10, 1, 2, 3], [10, 128, 0, 1], [192, 168, 1, 1], [8, 8, 8, 8]];
const V6: [u128; 5] = [
    0x2001_0db8_0000_0000_0000_0000_0000_0001,
    0x2001_0db8_0000_0000_0000_0000_0000_0002,
    0x2001_0db8_0001_0000_0000_0000_0000_0001,
    0xfe80_0000_0000_0000_0000_0000_0000_0001,
    1,
];
const PORTS: [u16; 10] = [20, 22, 53, 80, 443, 1023, 1024, 8080, 33000, 65535];
const VLANS: [u16; 3] = [1, 10, 4095];

fn any<T: Copy>(of: &[T], random: &mut ChaCha8Rng) -> T {
    *of.choose(random).unwrap()
}

/// Returns a transport header with some payload.
fn transport(random: &mut ChaCha8Rng, protocol: u8) -> Vec<u8> {
    let mut header: Vec<u8> = (0..8).map(|_| random.random()).collect();
    if matches!(protocol, TCP | UDP | SCTP) {
        for port in [0, 2] {
            header[port..port + 2].copy_from_slice(&any(&PORTS, random).to_be_bytes());
        }
    }
    if protocol == TCP {
        let flags = any(&[2, 16, 18, 17, 4, 24, 0], random);
        let flags = if random.random_bool(0.2) { random.random() } else { flags };
        header.extend([0, 0, 0, 0, 5 << 4, flags, 1, 0, 0, 0, 0, 0]);
    }
    header.resize(header.len() + random.random_range(4..200), 0x5a);
    header
}

fn packet(random: &mut ChaCha8Rng) -> Packet {
    let tags: Vec<u16> = (0..any(&[0, 0, 1, 1, 2], random)).map(|_| any(&VLANS, random)).collect();
    let (ethertype, (bytes, plain)) = match random.random_range(0..20) {
        0 => {
            // ARP of an address that expressions ask for.
            let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
            arp.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
            (0x0806_u16, (arp.clone(), arp))
        }
        1 => (0x88cc, (vec![0; 46], vec![0; 46])),
        2..=10 => {
            let packet = ipv4(random);
            (0x0800, (packet.clone(), packet))
        }
        _ => (0x86dd, ipv6(random)),
    };
    let is_simple = bytes == plain;
    let mut frame = MACS.to_vec();
    for (index, tag) in tags.iter().enumerate() {
        let outer = index + 1 < tags.len();
        frame.extend(if outer { 0x88a8_u16 } else { 0x8100 }.to_be_bytes());
        frame.extend((random.random_range(0..8_u16) << 13 | tag).to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(bytes);
    let plain = [&MACS[..], &ethertype.to_be_bytes(), &plain].concat();
    Packet { frame, plain, tags, is_simple }
}

fn ipv4(random: &mut ChaCha8Rng) -> Vec<u8> {
    let protocol = any(&[TCP, TCP, UDP, UDP, SCTP, 1, 47, 58], random);
    let payload = transport(random, protocol);
    let words = any(&[5, 5, 5, 6, 15], random);
    // Whole, first fragment, later fragment, do not fragment.
    let fragment: u16 = any(&[0, 0, 0, 0x2000, 0x2003, 0x0007, 0x4000], random);
    let length = ((words * 4 + payload.len()) as u16).to_be_bytes();
    let addresses = [0; 2].map(|_| any(&V4, random)).concat();
    let no_operations = vec![1_u8; words * 4 - 20];
    let first = [&[0x40 | words as u8, 0][..], &length, &[0, 7], &fragment.to_be_bytes()].concat();
    [&first[..], &[64, protocol, 0, 0], &addresses, &no_operations, &payload].concat()
}

/// Returns a packet, and what it is for tcpdump.
fn ipv6(random: &mut ChaCha8Rng) -> (Vec<u8>, Vec<u8>) {
    let protocol = any(&[TCP, TCP, UDP, UDP, SCTP, 58, 47], random);
    let payload = transport(random, protocol);
    let addresses = [0; 2].map(|_| any(&V6, random).to_be_bytes()).concat();
    let assemble = |headers: &[u8], first: u8| {
        let [high, low] = ((headers.len() + payload.len()) as u16).to_be_bytes();
        let fixed = [0x60, 0, 0, 0, high, low, first, 64];
        [&fixed[..], &addresses, headers, &payload].concat()
    };
    // Extension headers: hop-by-hop, routing, destination options, authentication.
    let mut kinds: Vec<u8> =
        (0..any(&[0, 0, 1, 2], random)).map(|_| any(&[0, 43, 60, 51], random)).collect();
    let fragment: Option<u16> = any(&[None, None, Some(0), Some(1), Some(8), Some(0x99)], random);
    kinds.extend(fragment.map(|_| 44));
    let (mut headers, mut at_end) = (Vec::new(), Vec::new());
    for (index, kind) in kinds.iter().enumerate() {
        let next = kinds.get(index + 1).copied().unwrap_or(protocol);
        let words = random.random_range(0..3_u8);
        let header = match kind {
            44 => {
                let [high, low] = fragment.unwrap_or_default().to_be_bytes();
                vec![next, 0, high, low, 0, 0, 0, 9]
            }
            // In words of four bytes, less two.
            51 => [vec![next, words + 2], vec![0; 14 + usize::from(words) * 4]].concat(),
            _ => [vec![next, words], vec![0; 6 + usize::from(words) * 8]].concat(),
        };
        if *kind == 44 {
            at_end.clone_from(&header);
        }
        headers.extend(header);
    }
    let packet = assemble(&headers, kinds.first().copied().unwrap_or(protocol));
    // tcpdump looks behind one fragment header for the protocol, but not for ports.
    let is_later = fragment.is_some_and(|fragment| fragment >> 3 != 0);
    let plain = if is_later { assemble(&at_end, 44) } else { assemble(&[], protocol) };
    (packet, plain)
}

/// An expression, as flowgauge and as tcpdump spell it.
#[derive(Clone)]
struct Spelling {
    ours: String,
    theirs: String,
}

/// How VLAN tags are spelled for tcpdump.
#[derive(Clone, Copy, PartialEq)]
enum Vlans {
    /// Not at all.
    None,
    /// As what is true of frames whose outermost tag has this id, if there is one.
    Known(Option<u16>),
}

/// Returns a spelling that is the same in both.
fn same(text: String) -> Spelling {
    Spelling { ours: text.clone(), theirs: text }
}

/// Returns a spelling that is about IP or IPv6 only.
fn only(version: &str, text: String) -> Spelling {
    Spelling { theirs: format!("({version} {text})"), ours: text }
}

fn end(random: &mut ChaCha8Rng) -> &'static str {
    any(&["", "", "src ", "dst ", "src or dst ", "src and dst "], random)
}

fn primitive(random: &mut ChaCha8Rng, vlans: Vlans) -> Spelling {
    match random.random_range(0..if vlans == Vlans::None { 12 } else { 13 }) {
        0 => same(any(&["ip", "ip6", "tcp", "udp", "sctp", "icmp", "icmp6"], random).to_owned()),
        1 => {
            let version = any(&["", "ip ", "ip6 "], random);
            same(format!("{version}proto {}", any(&[6, 17, 132, 1, 58, 47, 50], random)))
        }
        2 | 3 => {
            let address = Ipv4Addr::from(any(&V4, random));
            only("ip", format!("{}host {address}", end(random)))
        }
        4 => {
            let (end, bits) = (end(random), random.random_range(0..=32));
            let address = u32::from_be_bytes(any(&V4, random));
            let network = address & u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            only("ip", format!("{end}net {}/{bits}", Ipv4Addr::from(network)))
        }
        5 => {
            let (end, bits) = (end(random), any(&[0, 3, 16, 32, 33, 48, 64, 127, 128], random));
            let network = any(&V6, random) & u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            let network = Ipv6Addr::from(network);
            let is_host = bits == 128 && random.random_bool(0.5);
            let host = format!("{end}host {network}");
            only("ip6", if is_host { host } else { format!("{end}net {network}/{bits}") })
        }
        6 | 7 => {
            let protocol = any(&["", "tcp ", "udp ", "sctp "], random);
            same(format!("{protocol}{}port {}", end(random), any(&PORTS, random)))
        }
        8 => {
            let protocol = any(&["", "tcp ", "udp "], random);
            let (one, other) = (any(&PORTS, random), any(&PORTS, random));
            let end = any(&["", "src ", "dst "], random);
            same(format!("{protocol}{end}portrange {}-{}", one.min(other), one.max(other)))
        }
        9 => {
            // The extremes are true of all packets, or of none.
            let length = any(&[random.random_range(40..400), 0, 65535], random);
            same(format!("{} {length}", any(&["greater", "less"], random)))
        }
        10 | 11 => flags(random),
        _ => {
            let wanted = random.random_bool(0.7).then(|| any(&VLANS, random));
            let Vlans::Known(tag) = vlans else { unreachable!() };
            let is_true = tag.is_some_and(|tag| wanted.is_none_or(|wanted| tag == wanted));
            Spelling {
                ours: wanted.map_or("vlan".to_owned(), |id| format!("vlan {id}")),
                theirs: (if is_true { "greater 0" } else { "less 0" }).to_owned(),
            }
        }
    }
}

/// Returns a condition on TCP flags, which tcpdump has for IPv4 only.
fn flags(random: &mut ChaCha8Rng) -> Spelling {
    let (name, bit) = any(&[("fin", 1), ("syn", 2), ("rst", 4), ("ack", 16)], random);
    let (ours, condition) = match random.random_range(0..4) {
        0 => (format!("tcp[{name}]"), format!("& {bit} != 0")),
        1 => (format!("tcp[tcpflags] & tcp-{name} == 0"), format!("& {bit} = 0")),
        2 => ("tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn".to_owned(), "& 18 = 2".to_owned()),
        _ => {
            let value: u8 = any(&[2, 18, 16, 24], random);
            (format!("tcp[13] != {value}"), format!("!= {value}"))
        }
    };
    let ipv6 = format!("ip6 and ip6[6] = 6 and ip6[53] {condition}");
    Spelling { ours, theirs: format!("((ip and tcp[13] {condition}) or ({ipv6}))") }
}

/// Returns a random expression. Operators are also chained without parentheses.
fn expression(random: &mut ChaCha8Rng, depth: usize, vlans: Vlans) -> Spelling {
    let operands = if depth == 0 { 1 } else { random.random_range(1..4) };
    let operand = |random: &mut ChaCha8Rng| {
        let negated = random.random_bool(0.25);
        let Spelling { ours, theirs } = if depth > 0 && random.random_bool(0.4) {
            let Spelling { ours, theirs } = expression(random, depth - 1, vlans);
            Spelling { ours: format!("({ours})"), theirs: format!("({theirs})") }
        } else {
            primitive(random, vlans)
        };
        if negated {
            Spelling { ours: format!("not {ours}"), theirs: format!("not ({theirs})") }
        } else {
            Spelling { ours, theirs }
        }
    };
    let mut all = operand(random);
    for _ in 1..operands {
        let operator = any(&["and", "or", "&&", "||"], random);
        let Spelling { ours, theirs } = operand(random);
        all.ours += &format!(" {operator} {ours}");
        all.theirs += &format!(" {operator} {theirs}");
    }
    all
}

/// Returns the expression, or `None` if it takes too many rules. One that contradicts itself
/// matches nothing.
fn parsed(text: &str) -> Option<Option<MatchExpression>> {
    match text.parse() {
        Ok(expression) => Some(Some(expression)),
        Err(FilterError::MatchesNothing) => Some(None),
        Err(FilterError::TooManyRules { .. } | FilterError::TooComplex { .. }) => None,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// Captured bytes of a frame, and its length on the wire.
type Frame<'a> = (&'a [u8], u32);

/// Writes a capture whose packets have their numbers as timestamps, in seconds.
fn write(path: &Path, link_type: u16, frames: &[Frame<'_>]) {
    let mut writer = Writer::new(BufWriter::new(File::create(path).unwrap()), link_type).unwrap();
    for (number, (frame, wire)) in frames.iter().enumerate() {
        writer.write((number as u64 + 1) * 1_000_000_000, frame, *wire).unwrap();
    }
    writer.finish().unwrap();
}

/// Returns the numbers of the packets that tcpdump selects; none if it finds that an expression
/// cannot be true.
fn by_tcpdump(file: &Path, expression: &str) -> Vec<usize> {
    let mut tcpdump = Command::new("tcpdump");
    let output = tcpdump.args(["-n", "-w", "-", "-r"]).arg(file).arg(expression).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert!(errors.contains("expression rejects all packets"), "{expression}: {errors}");
        return Vec::new();
    }
    let packets = Walker::new().packets_in(&output.stdout);
    packets.map(|(record, _)| (record.timestamp / 1_000_000_000) as usize - 1).collect()
}

/// Returns the numbers of the frames that match.
fn by_us(expression: Option<&MatchExpression>, link: Link, frames: &[Frame<'_>]) -> Vec<usize> {
    let Some(expression) = expression else { return Vec::new() };
    let is_match = |number: &usize| {
        let (frame, wire) = frames[*number];
        expression.filter.matches(parse::Settings::DEFAULT, link, frame, wire)
    };
    (0..frames.len()).filter(is_match).collect()
}

fn whole(frame: &[u8]) -> Frame<'_> {
    (frame, frame.len() as u32)
}

#[test]
fn generated_packets_match_as_in_tcpdump() {
    let Some(scratch) = scratch("tcpdump-generated") else { return };
    let mut random = ChaCha8Rng::seed_from_u64(44);
    let packets: Vec<Packet> = (0..2000).map(|_| packet(&mut random)).collect();
    let outermost = [None].into_iter().chain(VLANS.map(Some));
    let groups: Vec<_> = outermost
        .map(|tag| {
            let of_tag = |packet: &&Packet| packet.tags.first().copied() == tag;
            let group: Vec<&Packet> = packets.iter().filter(of_tag).collect();
            assert!(group.len() > 100, "{tag:?}");
            let file = scratch.join(format!("{tag:?}.pcap"));
            let frames: Vec<_> = group.iter().map(|packet| whole(&packet.frame)).collect();
            // The length is that of the frame.
            let plain =
                group.iter().zip(&frames).map(|(packet, frame)| (&packet.plain[..], frame.1));
            write(&file, link_type::ETHERNET, &plain.collect::<Vec<_>>());
            (tag, frames, file)
        })
        .collect();
    let (mut compared, mut matched, mut decided) = (0, 0, 0);
    while compared < EXPRESSIONS {
        // The same expression, spelled for each group.
        let seed = random.random();
        let spelling = |tag| expression(&mut ChaCha8Rng::seed_from_u64(seed), 3, Vlans::Known(tag));
        let text = spelling(None).ours;
        let Some(expression) = parsed(&text) else { continue };
        compared += 1;
        for (tag, frames, file) in &groups {
            let Spelling { ours, theirs } = spelling(*tag);
            assert_eq!(ours, text);
            let expected = by_tcpdump(file, &theirs);
            let found = by_us(expression.as_ref(), Link::Ethernet, frames);
            for number in found.iter().chain(&expected) {
                let (here, frame) = (found.contains(number), frames[*number].0);
                assert_eq!(here, expected.contains(number), "{ours}\n{theirs}\n{frame:02x?}");
            }
            matched += found.len();
            decided += frames.len();
        }
    }
    println!("{compared} expressions, {matched} of {decided} packets match");
    assert!(matched * 10 > decided && matched * 10 < 9 * decided, "{matched} of {decided}");
}

/// In tcpdump `vlan` also moves what follows behind the tag. With the tag asked for first, both
/// mean the same.
#[test]
fn what_follows_vlan_is_behind_the_tag_as_in_tcpdump() {
    let Some(scratch) = scratch("tcpdump-vlan") else { return };
    let mut random = ChaCha8Rng::seed_from_u64(45);
    let packets: Vec<Packet> = (0..2000)
        .map(|_| packet(&mut random))
        .filter(|packet| packet.is_simple && packet.tags.len() < 2)
        .collect();
    let file = scratch.join("tagged.pcap");
    let frames: Vec<_> = packets.iter().map(|packet| whole(&packet.frame)).collect();
    write(&file, link_type::ETHERNET, &frames);
    let (mut compared, mut matched) = (0, 0);
    while compared < 50 {
        let Spelling { ours, theirs } = expression(&mut random, 2, Vlans::None);
        let tag = any(&["vlan", "vlan 1", "vlan 10"], &mut random);
        let Some(expression) = parsed(&format!("{tag} and ({ours})")) else { continue };
        compared += 1;
        let found = by_us(expression.as_ref(), Link::Ethernet, &frames);
        assert_eq!(found, by_tcpdump(&file, &format!("{tag} and ({theirs})")), "{tag} and {ours}");
        matched += found.len();
    }
    assert!(matched > 1000, "{matched}");
}

/// Returns whether both languages mean the same of a frame: IP directly behind the link header
/// without IPv6 extension headers, whose transport header was captured, or another EtherType.
fn is_comparable(link: Link, frame: &[u8]) -> bool {
    let (ethertype, ip) = match link {
        Link::Ethernet => match frame.split_at_checked(14) {
            Some(([.., high, low], ip)) => (u16::from_be_bytes([*high, *low]), ip),
            _ => return false,
        },
        Link::Ip => match frame.first().map(|first| first >> 4) {
            Some(4) => (0x0800, frame),
            Some(6) => (0x86dd, frame),
            _ => return false,
        },
        _ => return false,
    };
    let has = |header: usize, protocol: u8| {
        let least = match protocol {
            TCP => 20,
            UDP | SCTP => 8,
            _ => 0,
        };
        ip.len() >= header + least
    };
    match (ethertype, ip) {
        (0x0800, [first, _, high, low, _, _, fragment_high, fragment_low, _, protocol, ..]) => {
            let header = usize::from(first & 15) * 4;
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let is_later = fragment_high & 0x1f != 0 || *fragment_low != 0;
            first >> 4 == 4
                && header >= 20
                && (length == 0 || length >= header)
                && (is_later || has(header, *protocol))
        }
        (0x86dd, [first, _, _, _, _, _, next, ..]) => {
            let is_extension = [0, 43, 44, 51, 60, 135, 139, 140].contains(next);
            first >> 4 == 6 && !is_extension && has(40, *next)
        }
        (0x0806 | 0x88cc | 0x0027 | 0x8892, _) => true,
        _ => false,
    }
}

/// Frames of a capture that both languages mean the same of, and the number of others.
fn comparable(file: &Path) -> (Link, u16, Vec<(Vec<u8>, u32)>, usize) {
    let bytes = fs::read(file).unwrap();
    let (mut link, mut kind, mut frames, mut others) =
        (Link::Ethernet, link_type::ETHERNET, Vec::new(), 0);
    for (record, frame) in Walker::new().packets_in(&bytes) {
        if is_comparable(record.link, frame) && (frames.is_empty() || record.link == link) {
            (link, kind) = (record.link, record.link_type);
            frames.push((frame.to_vec(), record.wire));
        } else {
            others += 1;
        }
    }
    (link, kind, frames, others)
}

#[test]
fn captures_at_hand_match_as_in_tcpdump() {
    let Some(scratch) = scratch("tcpdump-captures") else { return };
    let Some(files) = captures_at_hand() else { return };
    let (mut compared, mut others, mut matched, mut expressions) = (0, 0, 0, 0);
    for path in files {
        let (link, kind, frames, left_out) = comparable(&path);
        others += left_out;
        if frames.is_empty() {
            continue;
        }
        let file = scratch.join("capture.pcap");
        let frames: Vec<_> = frames.iter().map(|(frame, wire)| (&frame[..], *wire)).collect();
        write(&file, kind, &frames);
        let mut random = ChaCha8Rng::seed_from_u64(46);
        let mut tried = 0;
        while tried < EXPRESSIONS {
            let Spelling { ours, theirs } = expression(&mut random, 2, Vlans::Known(None));
            let Some(expression) = parsed(&ours) else { continue };
            tried += 1;
            let found = by_us(expression.as_ref(), link, &frames);
            assert_eq!(found, by_tcpdump(&file, &theirs), "{}: {ours}", path.display());
            matched += found.len();
        }
        expressions += tried;
        compared += frames.len() * tried;
    }
    println!(
        "{expressions} expressions, {compared} packets, {matched} match; {others} frames left out"
    );
    assert!(compared > 0 && matched > 0);
}
