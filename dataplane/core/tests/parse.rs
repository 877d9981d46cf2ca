//! Hand-made packets: link layers, tags, options, extension headers, fragments, and rejects.

use flowgauge_core::parse::{
    Packet, Reject, Transport, network, plain_ipv4, plain_ipv6, tagged_ipv4, transport, unopened,
};
use flowgauge_core::{
    Arrival, Context, Frame, KeyKind, Link, Settings, Shared, Sharing, State, Tabulation, Zeroed,
    hash,
};
use flowgauge_traffic::frame::{Ip, ethernet};
use proptest::prelude::*;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Static, because it is too large for a stack.
static COUNTING: LazyLock<Mutex<(Box<State>, Box<Shared>)>> =
    LazyLock::new(|| Mutex::new((State::boxed(), Shared::boxed())));

fn nothing_counted(settings: &Settings) -> MutexGuard<'static, (Box<State>, Box<Shared>)> {
    let mut counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    counting.0.banks.iter_mut().for_each(|bank| bank.clear(settings));
    counting
}

const SRC4: [u8; 4] = [10, 0, 0, 1];
const DST4: [u8; 4] = [192, 0, 2, 7];
const PORTS: [u8; 4] = [0x30, 0x39, 0x00, 0x50];

fn address6(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    address[15] = last;
    address
}

fn ipv4(options: usize, fragment: u16, protocol: u8) -> Vec<u8> {
    let ip = Ip { fragment, options: &vec![1; options], ..Ip::new(SRC4, DST4, protocol) };
    ip.packet(&[PORTS, [0; 4]].concat())
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    Ip::new(address6(1), address6(2), next_header).packet(payload)
}

fn parse(link: Link, frame: &[u8]) -> Result<(Packet<'_>, Transport), Reject> {
    network(frame, link).map(|packet| (packet, transport(frame, &packet)))
}

fn sources(packet: &Packet) -> Vec<u8> {
    match packet {
        Packet::V4(ip) => ip.src().to_vec(),
        Packet::V6(ip) => ip.src().concat(),
    }
}

#[test]
fn every_link_layer_leads_to_the_same_packet() {
    let header = |tags: &[u16], ethertype| ethernet(tags, ethertype, &[]);
    let cases: Vec<(Link, Vec<u8>, bool)> = vec![
        (Link::Ethernet, header(&[], 0x0800), false),
        (Link::Ethernet, header(&[0x8100], 0x0800), false),
        (Link::Ethernet, header(&[0x88a8, 0x8100], 0x0800), false),
        (Link::Ethernet, header(&[0x9100, 0x8100, 0x8100, 0x8100], 0x86dd), true),
        (Link::Ethernet, header(&[0x8100; 16], 0x0800), false),
        (Link::EtherType, vec![0x08, 0x00], false),
        (Link::PaddedEtherType, vec![0x86, 0xdd, 0, 0], true),
        (Link::Llc, vec![0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0x00], false),
        (Link::Snap, vec![0, 0, 0, 0x86, 0xdd], true),
        (Link::Ppp, vec![0xff, 0x03, 0x00, 0x21], false),
        (Link::Ppp, vec![0x57], true),
        (Link::Ppp, vec![0x0f, 0x00, 0x08, 0x00], false),
        (Link::Ip, vec![], false),
        (Link::Ip, vec![], true),
        (Link::LinuxSll, sll(0x0800), false),
        (Link::LinuxSll2, sll2(0x86dd), true),
        (Link::Null, vec![2, 0, 0, 0], false),
        (Link::Null, vec![0, 0, 0, 2], false),
        (Link::Null, vec![30, 0, 0, 0], true),
    ];
    for (link, header, is_ipv6) in cases {
        let packet = if is_ipv6 { ipv6(17, &PORTS) } else { ipv4(0, 0, 17) };
        assert_is_found(link, &[header, packet].concat(), is_ipv6, "a link layer");
    }
}

/// Returns the link layer of a capture of any device, before a packet of this EtherType.
fn sll(ethertype: u16) -> Vec<u8> {
    [&[0; 14], &ethertype.to_be_bytes()[..]].concat()
}

/// As above, in its second version.
fn sll2(ethertype: u16) -> Vec<u8> {
    [&ethertype.to_be_bytes()[..], &[0; 18]].concat()
}

/// Asserts that a frame holds the UDP packet of [`ipv6`] or [`ipv4`].
#[track_caller]
fn assert_is_found(link: Link, frame: &[u8], is_ipv6: bool, name: &str) {
    let found = parse(link, frame).map(|(packet, transport)| (sources(&packet), transport));
    let source = if is_ipv6 { address6(1).to_vec() } else { SRC4.to_vec() };
    let expected = (source, Transport { protocol: 17, ports: PORTS });
    assert_eq!(found, Ok(expected), "{name}, {link:?}: {frame:02x?}");
}

#[test]
fn rejects_are_told_apart() {
    let v4 = ipv4(0, 0, 6);
    let damaged = |mut packet: Vec<u8>, at: usize, value: u8| {
        packet[at] = value;
        packet
    };
    let (wrong_version, short_header) =
        (damaged(v4.clone(), 0, 0x65), damaged(v4.clone(), 0, 0x44));
    let (short_total, v6_as_v4) = (damaged(v4.clone(), 3, 19), damaged(ipv6(6, &[]), 0, 0x40));
    let cases = [
        (Link::Ethernet, vec![], Reject::Truncated),
        (Link::Ethernet, vec![2; 13], Reject::Truncated),
        (Link::Ethernet, ethernet(&[0x8100], 0x0800, &[]), Reject::Truncated),
        (Link::Ethernet, ethernet(&[], 0x8100, &[1, 2, 3]), Reject::Truncated),
        (Link::Ethernet, ethernet(&[], 0x0800, &v4[..19]), Reject::Truncated),
        (Link::Ethernet, ethernet(&[], 0x86dd, &ipv6(6, &[])[..39]), Reject::Truncated),
        (Link::Ethernet, ethernet(&[], 0x0806, &[0; 28]), Reject::NonIp(0x0806)),
        (Link::Ethernet, ethernet(&[0x8100, 0x88a8], 0x88cc, &[0; 28]), Reject::NonIp(0x88cc)),
        (Link::Ethernet, ethernet(&[0x8100; 17], 0x0800, &v4), Reject::NonIp(0x8100)),
        (Link::Ethernet, ethernet(&[], 0x9200, &[0x20, 0x64, 0x08, 0x00]), Reject::NonIp(0x9200)),
        (Link::Ethernet, ethernet(&[], 0x0800, &wrong_version), Reject::BadHeader),
        (Link::Ethernet, ethernet(&[], 0x0800, &short_header), Reject::BadHeader),
        (Link::Ethernet, ethernet(&[], 0x0800, &short_total), Reject::BadHeader),
        (Link::Ethernet, ethernet(&[], 0x86dd, &v6_as_v4), Reject::BadHeader),
        (Link::Ip, vec![0x50; 40], Reject::BadHeader),
        (Link::Null, vec![7, 0, 0, 0, 1], Reject::NonIp(0)),
        (Link::Null, vec![2, 0, 1, 0, 1], Reject::NonIp(0)),
        (Link::Null, vec![2, 0, 0], Reject::Truncated),
        (Link::Unsupported, ethernet(&[], 0x0800, &v4), Reject::NonIp(0)),
    ];
    for (link, frame, reject) in cases {
        assert_eq!(parse(link, &frame).unwrap_err(), reject, "{link:?} {frame:02x?}");
    }
}

/// Headers between Ethernet and the network header: EtherType, bytes, and whether IPv6 follows. The
/// command line's tests compare them with Wireshark.
fn encapsulations() -> Vec<(&'static str, u16, Vec<u8>, bool)> {
    let inner = |ethertype: u16| [&[2; 12][..], &ethertype.to_be_bytes()].concat();
    let pppoe = |protocol: &[u8]| [&[0x11, 0, 0, 1, 0, 0][..], protocol].concat();
    let label = |bottom: u8| vec![0, 6, 0x40 | bottom, 64];
    let then = |first: &[u8], second: Vec<u8>| [first, &second].concat();
    let nsh = |words: u8, metadata: u8, next: u8| {
        let metadata_bytes = vec![0; usize::from(words) * 4 - 8];
        then(&[0x0f, 0xc0 | words, metadata, next, 0, 0, 7, 255], metadata_bytes)
    };
    let options = then(&[0; 4], inner(0x86dd));
    let control_word = then(&[0; 4], inner(0x0800));
    let channel = vec![1, 2, 3, 4, 5, 6, 7, 8, 0x86, 0xdd];
    let tagged = then(&inner(0x8100), vec![0, 7, 8, 0]);
    vec![
        ("PPPoE", 0x8864, pppoe(&[0, 0x21]), false),
        ("PPPoE, IPv6", 0x8864, pppoe(&[0, 0x57]), true),
        ("PPPoE, a compressed protocol", 0x8864, pppoe(&[0x21]), false),
        ("PPPoE, MPLS in PPP", 0x8864, then(&pppoe(&[2, 0x81]), label(1)), false),
        ("PPPoE behind a tag", 0x8100, then(&[0, 7, 0x88, 0x64], pppoe(&[0, 0x21])), false),
        ("MPLS", 0x8847, label(1), false),
        ("MPLS, three labels", 0x8847, [label(0), label(0), label(1)].concat(), true),
        ("MPLS, multicast", 0x8848, label(1), false),
        ("MPLS, Ethernet behind a control word", 0x8847, then(&label(1), control_word), false),
        ("MPLS, Ethernet without a control word", 0x8847, then(&label(1), inner(0x86dd)), true),
        ("MPLS, an associated channel", 0x8847, then(&label(1), vec![0x10, 0, 0, 0x21]), false),
        ("SNAP", 46, vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0], false),
        ("SNAP of 802.1H", 46, vec![0xaa, 0xaa, 3, 0, 0, 0xf8, 0x86, 0xdd], true),
        ("SNAP behind a tag", 0x8100, vec![0, 7, 0, 46, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], false),
        ("a tag behind SNAP", 46, vec![0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0, 0, 7, 8, 0], false),
        ("LLC, SAP of IP", 46, vec![6, 6, 3], false),
        ("LLC in a jumbo frame", 0x8870, vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0], false),
        ("MACsec", 0x88e5, vec![0, 0, 0, 0, 0, 1, 8, 0], false),
        ("MACsec with a channel", 0x88e5, then(&[0x20, 0, 0, 0, 0, 1], channel), true),
        ("FabricPath", 0x8903, then(&[0, 0x64], inner(0x0800)), false),
        ("FabricPath and a tag", 0x8903, then(&[0, 0x64], tagged), false),
        ("802.1ah", 0x88e7, then(&[0, 0, 0x12, 0x34], inner(0x0800)), false),
        ("Cisco MetaData", 0x8909, vec![1, 1, 0, 1, 0, 5, 8, 0], false),
        ("HSR", 0x892f, vec![0, 50, 0, 1, 8, 0], false),
        ("802.1CB", 0xf1c1, vec![0, 0, 0, 1, 0x86, 0xdd], true),
        ("VN-Tag", 0x8926, vec![0, 1, 0, 2, 8, 0], false),
        ("802.1BR", 0x893f, vec![0, 1, 0, 2, 0, 0, 8, 0], false),
        ("transparent Ethernet bridging", 0x6558, inner(0x0800), false),
        ("TRILL", 0x22f3, then(&[0, 0x3f, 0, 1, 0, 2], inner(0x0800)), false),
        ("NSH", 0x894f, nsh(6, 1, 1), false),
        ("NSH, IPv6 behind metadata of variable length", 0x894f, nsh(4, 2, 2), true),
        ("NSH, no metadata", 0x894f, nsh(2, 2, 1), false),
        ("NSH, Ethernet", 0x894f, then(&nsh(6, 1, 3), inner(0x86dd)), true),
        ("NSH in NSH, MPLS", 0x894f, [nsh(2, 2, 4), nsh(6, 1, 5), label(1)].concat(), false),
        ("NSH behind a tag", 0x8100, then(&[0, 7, 0x89, 0x4f], nsh(6, 1, 1)), false),
        ("TRILL with options", 0x22f3, then(&[0, 0x7f, 0, 1, 0, 2], options), true),
    ]
}

#[test]
fn short_ways_lead_where_the_long_one_does() {
    let agrees = |frame: &[u8]| {
        let found = network(frame, Link::Ethernet);
        let short = plain_ipv4(frame)
            .or_else(|| tagged_ipv4(frame))
            .map(Packet::V4)
            .or_else(|| plain_ipv6(frame).map(Packet::V6));
        assert!(short.is_none_or(|packet| found == Ok(packet)), "{frame:02x?}");
        let named = unopened(frame).map(|ethertype| Err(Reject::NonIp(ethertype)));
        assert!(named.is_none_or(|named| found == named), "{frame:02x?}");
        short.is_some()
    };
    for ethertype in 0..=u16::MAX {
        for payload in [ipv4(0, 0, 6), ipv6(6, &PORTS)] {
            agrees(&ethernet(&[], ethertype, &payload));
            agrees(&ethernet(&[0x8100], ethertype, &payload));
            agrees(&ethernet(&[ethertype], 0x0800, &payload));
        }
    }
    for (tags, ethertype, payload) in [
        (&[][..], 0x0800, ipv4(0, 0, 6)),
        (&[0x8100], 0x0800, ipv4(0, 0, 6)),
        (&[0x88a8], 0x0800, ipv4(0, 0, 6)),
        (&[], 0x86dd, ipv6(6, &PORTS)),
    ] {
        let frame = ethernet(tags, ethertype, &payload);
        assert!(agrees(&frame), "no short way: {frame:02x?}");
        (0..frame.len()).for_each(|length| _ = agrees(&frame[..length]));
    }
    // Other options, lengths and versions.
    let mut random = 1_u32;
    let frames =
        [ethernet(&[], 0x0800, &ipv4(0, 0, 6)), ethernet(&[0x8100], 0x0800, &ipv4(4, 0, 6))];
    for frame in frames.iter().cycle().take(20_000) {
        let mut frame = frame.clone();
        for _ in 0..2 {
            random = random.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            let at = 12 + (random >> 16) as usize % 10;
            frame[at] = (random >> 8) as u8;
        }
        agrees(&frame);
    }
}

#[test]
fn encapsulations_of_live_links_are_opened_and_cut_ones_are_truncated() {
    for (name, ethertype, headers, is_ipv6) in encapsulations() {
        let packet = if is_ipv6 { ipv6(17, &PORTS) } else { ipv4(0, 0, 17) };
        let behind = [headers, packet].concat();
        for (link, header) in [
            (Link::Ethernet, ethernet(&[], ethertype, &[])),
            (Link::Ethernet, ethernet(&[0x88a8, 0x8100], ethertype, &[])),
            (Link::LinuxSll, sll(ethertype)),
            (Link::LinuxSll2, sll2(ethertype)),
            (Link::EtherType, ethertype.to_be_bytes().to_vec()),
        ] {
            assert_is_found(link, &[&header[..], &behind].concat(), is_ipv6, name);
        }
        let frame = ethernet(&[], ethertype, &behind);
        let end = frame.len() - if is_ipv6 { 44 - 40 } else { 28 - 20 };
        for length in 0..end {
            // A truncated Ethernet header in MPLS may look like a control word; the frame is
            // truncated in either case.
            let reject = parse(Link::Ethernet, &frame[..length]).unwrap_err();
            assert_eq!(reject, Reject::Truncated, "{name}, {length} bytes");
        }
        assert!(parse(Link::Ethernet, &frame[..end]).is_ok(), "{name}");
    }
}

#[test]
fn what_is_encrypted_or_no_ip_stays_non_ip_and_is_named() {
    let v4 = ipv4(0, 0, 17);
    let cases: [(&str, u16, &[u8], u16); 14] = [
        ("MACsec, encrypted", 0x88e5, &[0x0c, 0, 0, 0, 0, 1, 8, 0], 0x88e5),
        ("MACsec, changed", 0x88e5, &[0x04, 0, 0, 0, 0, 1, 8, 0], 0x88e5),
        ("MACsec of another version", 0x88e5, &[0x80, 0, 0, 0, 0, 1, 8, 0], 0x88e5),
        ("PPPoE, LCP", 0x8864, &[0x11, 0, 0, 1, 0, 0, 0xc0, 0x21], 0),
        ("PPPoE discovery", 0x8863, &[0x11, 9, 0, 0, 0, 0], 0x8863),
        ("MPLS, neither IP nor a control word", 0x8847, &[0, 6, 0x41, 64, 0x20], 0x8847),
        ("MPLS, another channel", 0x8847, &[0, 6, 0x41, 64, 0x10, 0, 0, 7], 0),
        ("SNAP of another organisation", 46, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0], 0),
        ("spanning tree", 38, &[0x42, 0x42, 3], 0),
        ("no length", 0, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], 0),
        ("neither length nor EtherType", 1501, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], 1501),
        ("HSR, LLDP", 0x892f, &[0, 50, 0, 1, 0x88, 0xcc], 0x88cc),
        ("FabricPath, ARP", 0x8903, &[0, 0x64, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8, 6], 0x0806),
        ("AVTP", 0x22f0, &[0; 24], 0x22f0),
    ];
    for (name, ethertype, headers, unopened) in cases {
        let frame = ethernet(&[], ethertype, &[headers, &v4].concat());
        assert_eq!(parse(Link::Ethernet, &frame).unwrap_err(), Reject::NonIp(unopened), "{name}");
    }
}

#[test]
fn sixteen_headers_are_opened_of_whatever_kind() {
    let labels = |count: usize| {
        [[0, 6, 0x40, 64].repeat(count - 1), vec![0, 6, 0x41, 64], ipv4(0, 0, 17)].concat()
    };
    let not_opened = Some(Reject::NonIp(0x8847));
    let cases = [(0, 16, None), (6, 10, None), (0, 17, not_opened), (7, 10, not_opened)];
    for (tags, number, expected) in cases {
        let frame = ethernet(&vec![0x8100; tags], 0x8847, &labels(number));
        let reject = parse(Link::Ethernet, &frame).err();
        assert_eq!(reject, expected, "{tags} tags, {number} labels");
    }
}

#[test]
fn offloaded_segments_with_zero_total_length_count() {
    let mut v4 = ipv4(0, 0, 6);
    v4[2..4].copy_from_slice(&[0, 0]);
    assert!(parse(Link::Ip, &v4).is_ok());
}

#[test]
fn ports_lie_behind_ipv4_options() {
    let (_, transport) = parse(Link::Ip, &ipv4(40, 0, 6)).unwrap();
    assert_eq!(transport, Transport { protocol: 6, ports: PORTS });
}

#[test]
fn later_fragments_and_portless_protocols_have_no_ports() {
    for (fragment, protocol) in [(0x2001, 17), (0x0001, 17), (0x1fff, 6), (0, 1), (0, 47)] {
        let (_, transport) = parse(Link::Ip, &ipv4(0, fragment, protocol)).unwrap();
        assert_eq!(transport, Transport { protocol, ports: [0; 4] });
    }
    let (_, first) = parse(Link::Ip, &ipv4(0, 0x2000, 17)).unwrap();
    assert_eq!(first.ports, PORTS);
    let (_, cut) = parse(Link::Ip, &ipv4(0, 0, 17)[..23]).unwrap();
    assert_eq!(cut, Transport { protocol: 17, ports: [0; 4] });
}

#[test]
fn ipv6_extension_headers_are_followed() {
    let hop_by_hop = |next: u8| vec![next, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let destination = |next: u8| vec![next, 0, 0, 0, 0, 0, 0, 0];
    let authentication = |next: u8| [&[next, 4][..], &[0; 22]].concat();
    let fragment = |next: u8, offset: u16| {
        let [high, low] = (offset << 3).to_be_bytes();
        vec![next, 0, high, low, 0, 0, 0, 1]
    };
    let udp = PORTS.to_vec();
    let with_ports = |protocol| Transport { protocol, ports: PORTS };
    let without = |protocol| Transport { protocol, ports: [0; 4] };
    let cases = [
        (0, [hop_by_hop(17), udp.clone()].concat(), with_ports(17)),
        (0, [hop_by_hop(60), destination(43), destination(6), udp.clone()].concat(), with_ports(6)),
        (51, [authentication(17), udp.clone()].concat(), with_ports(17)),
        (44, [fragment(17, 0), udp.clone()].concat(), with_ports(17)),
        (44, [fragment(17, 1), udp.clone()].concat(), without(17)),
        (44, [fragment(6, 0x1fff), udp.clone()].concat(), without(6)),
        (60, [destination(60).repeat(7), destination(17), udp.clone()].concat(), without(17)),
        (60, [destination(60).repeat(6), destination(17), udp].concat(), with_ports(17)),
        (0, vec![17, 0], without(0)),
        (59, vec![], without(59)),
    ];
    for (next_header, payload, expected) in cases {
        let (_, transport) = parse(Link::Ip, &ipv6(next_header, &payload)).unwrap();
        assert_eq!(transport, expected, "next header {next_header}, {payload:02x?}");
    }
}

#[test]
fn keys_hold_their_fields_in_order() {
    let frame: &[u8] = &ipv4(0, 0, 6);
    let packet = network(frame, Link::Ip).unwrap();
    let key = |kind: KeyKind| kind.extract(&packet, transport(frame, &packet));
    assert_eq!(key(KeyKind::Src).as_bytes(), SRC4);
    assert_eq!(key(KeyKind::Dst).as_bytes(), DST4);
    assert_eq!(key(KeyKind::SrcDst).as_bytes(), [SRC4, DST4].concat());
    assert_eq!(key(KeyKind::FiveTuple).as_bytes(), [&SRC4[..], &DST4, &PORTS, &[6]].concat());
    let frame: &[u8] = &ipv6(6, &PORTS);
    let packet = network(frame, Link::Ip).unwrap();
    assert_eq!(KeyKind::FiveTuple.extract(&packet, transport(frame, &packet)).as_bytes().len(), 37);
}

#[test]
fn one_frame_raises_one_counter_and_one_register() {
    let tabulation = Tabulation::from_seed(1);
    let context = Context::new(Settings::default(), &tabulation, Sharing::Alone);
    let mut counting = nothing_counted(&context.settings);
    let (state, shared) = &mut *counting;
    let frame: &[u8] = &ethernet(&[], 0x0800, &ipv4(0, 0, 6));
    state.active(shared, 1).record(&context, Link::Ethernet, frame, Arrival::new(1514, 0));
    let bank = &state.banks[1];
    assert_eq!((bank.counters.ipv4, bank.counters.packets(), bank.counters.bytes), (1, 1, 1514));
    let (index, level) = context.settings.cardinality.precision.split(tabulation.hash(0xa757_b578));
    let levels = bank.cardinality.levels(context.settings.cardinality.precision);
    assert_eq!(levels[index], level);
    assert_eq!(levels.iter().filter(|&&level| level > 0).count(), 1);
    assert_eq!(state.banks[0].counters.packets(), 0);
}

/// Frame that checks every load against its length.
struct Guarded<'a>(&'a [u8]);

impl Guarded<'_> {
    fn check<T>(&self, offset: usize, length: usize, loaded: Option<T>) -> Option<T> {
        assert!(offset <= 1 << 15, "offset {offset} cannot be bounded by a verifier");
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.0.len());
        assert_eq!(loaded.is_some(), is_inside);
        loaded
    }
}

impl Frame for Guarded<'_> {
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        self.check(offset, N, self.0.get(offset..).and_then(|rest| rest.first_chunk()))
    }
}

fn any_link() -> impl Strategy<Value = Link> {
    let ethernet =
        [Link::Ethernet, Link::LinuxSll, Link::LinuxSll2, Link::EtherType, Link::PaddedEtherType];
    let others = [Link::Ip, Link::Null, Link::Llc, Link::Snap, Link::Ppp, Link::Unsupported];
    prop::sample::select([&ethernet[..], &others].concat())
}

/// Generates bytes that look like a packet often enough to pass the first checks.
fn plausible_frame() -> impl Strategy<Value = Vec<u8>> {
    let packet =
        prop_oneof![
            (0_usize..=10, any::<u16>(), any::<u8>())
                .prop_map(|(options, fragment, protocol)| ipv4(options * 4, fragment, protocol)),
            (
                prop::sample::select(vec![0, 6, 17, 43, 44, 51, 60, 135]),
                prop::collection::vec(any::<u8>(), 0..80)
            )
                .prop_map(|(next, payload)| ipv6(next, &payload)),
        ];
    let tags = prop::collection::vec(prop::sample::select(vec![0x8100, 0x88a8]), 0..4);
    let framed = (tags, prop::sample::select(vec![0x0800, 0x86dd, 0x0806]), packet)
        .prop_map(|(tags, ethertype, packet)| ethernet(&tags, ethertype, &packet));
    let headers = prop::collection::vec(prop::sample::select(encapsulations()), 1..20);
    let nested = (headers, any::<bool>()).prop_map(|(headers, is_ipv6)| {
        let mut frame = vec![2; 12];
        for (_, ethertype, header, _) in headers {
            // Each declares the next one, if it ends with an EtherType.
            let end = frame.len();
            if end > 12 && frame[end - 2..] == [8, 0] {
                frame.truncate(end - 2);
            }
            frame.extend(ethertype.to_be_bytes());
            frame.extend(header);
        }
        frame.extend(if is_ipv6 { ipv6(17, &PORTS) } else { ipv4(0, 0, 17) });
        frame
    });
    let damaged = (
        prop_oneof![framed, nested],
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(mut frame, edits, cut)| {
            for (at, value) in edits {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            let length = cut.index(frame.len() * 2);
            frame.truncate(length.max(1));
            frame
        });
    prop_oneof![damaged, prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes_are_counted_once_and_never_panic(link in any_link(), bytes in plausible_frame(), key in prop::sample::select(KeyKind::ALL.to_vec())) {
        let frame = Guarded(&bytes);
        let tabulation = Tabulation::from_seed(7);
        let mut settings = Settings::default();
        settings.cardinality.key = key;
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        let mut counting = nothing_counted(&settings);
        let (state, shared) = &mut *counting;
        state.active(shared, 0).record(&context, link, &frame, Arrival::new(60, 0));
        let counters = state.banks[0].counters;
        prop_assert_eq!((counters.packets(), counters.bytes), (1, 60));
        let counted = state.banks[0].cardinality.levels(settings.cardinality.precision).iter().any(|&level| level > 0);
        prop_assert_eq!(counted, counters.rejected() == 0);
        if let Ok(packet) = network(&frame, link) {
            let fields = key.transport(&frame, &packet);
            prop_assert_eq!(key.lay_out(&packet, fields, hash::Crc32::new()), hash::crc32(key.extract(&packet, fields).as_bytes()));
        }
    }
}
