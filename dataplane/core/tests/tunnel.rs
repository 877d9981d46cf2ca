//! Tunnels in hand-made packets: the header that defines the flow, frames truncated at every
//! length, and arbitrary bytes.

use flowgauge_core::Link;
use flowgauge_core::parse::{Packet, Reject, Settings, counted, transport};
use flowgauge_core::tunnel::MAX_TUNNELS;
use flowgauge_traffic::frame::{self, Ip};
use proptest::prelude::*;

const PORTS: [u8; 4] = [0xc0, 0x01, 0xc0, 0x02];

fn ipv4(source: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    Ip::new([10, 0, 0, source], [192, 0, 2, 7], protocol).packet(payload)
}

fn ipv6(source: u8, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let address = |host: u16| [0x2001, 0x0db8, 0, 0, 0, 0, 0, host];
    Ip::new(address(source.into()), address(0x0101), next_header).packet(payload)
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    frame::udp([0xc009, port], payload)
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    frame::ethernet(&[], ethertype, payload)
}

/// Returns the last byte of the source address that defines the flow, and the ports of its packet.
fn source(packet: &[u8], settings: &Settings) -> Result<(u8, [u8; 4]), Reject> {
    let found = counted(packet, Link::Ip, settings)?;
    let ports = transport(packet, &found).ports;
    Ok(match found {
        Packet::V4(ip) => (ip.src()[3], ports),
        Packet::V6(ip) => (ip.src()[3][3], ports),
    })
}

/// Returns the last byte of the source address alone.
fn host(packet: &[u8], settings: &Settings) -> Result<u8, Reject> {
    source(packet, settings).map(|(host, _)| host)
}

/// Payloads of the outermost header: name, protocol, bytes before the inner packet, and its IP
/// version.
fn tunnels() -> Vec<(&'static str, u8, Vec<u8>, u8)> {
    let gre = |flags: u16, protocol: u16, rest: &[u8]| {
        [&flags.to_be_bytes()[..], &protocol.to_be_bytes(), rest].concat()
    };
    let bridged = |before: &[u8], ethertype: u16| [before, &ethernet(ethertype, &[])].concat();
    let (vxlan, geneve) = ([8, 0, 0, 0, 0, 0, 0x64, 0], |options: u8, protocol: u16| {
        let [high, low] = protocol.to_be_bytes();
        [vec![options, 0, high, low, 0, 0, 0x64, 0], vec![0; usize::from(options & 0x3f) * 4]]
            .concat()
    });
    let subheader = [&[0_u8; 15][..], &[1], &[0; 8]].concat();
    let pptp = |rest: &[u8]| [&[0, 9, 0, 1, 0, 0, 0, 1], rest].concat();
    let tagged = [bridged(&vxlan, 0x8100), vec![0, 7, 0x86, 0xdd]].concat();
    let gpe = |next: u8| [0x0c, 0, 0, next, 0, 0, 0x64, 0];
    let nsh = [0x0f, 0xc2, 2, 2, 0, 0, 7, 255];
    let gtp = |flags: u8, rest: &[u8]| [&[flags, 0xff, 0, 0, 0, 0, 0, 1], rest].concat();
    let extended = |rest: &[u8]| udp(2152, &gtp(0x34, &[&[0, 0, 0, 0x85], rest].concat()));
    let two = [1, 0x10, 9, 0x40, 2, 0, 0, 0, 0, 0, 0, 0];
    vec![
        ("IPv4 in IP", 4, vec![], 4),
        ("IPv6 in IP", 41, vec![], 6),
        ("GRE", 47, gre(0, 0x0800, &[]), 4),
        ("GRE, IPv6", 47, gre(0, 0x86dd, &[]), 6),
        ("GRE, checksum, key and sequence number", 47, gre(0xb000, 0x0800, &[0; 12]), 4),
        ("NVGRE", 47, gre(0x2000, 0x6558, &bridged(&[0; 4], 0x0800)), 4),
        ("GRE, MPLS", 47, gre(0, 0x8847, &[0, 6, 0x41, 64]), 6),
        ("ERSPAN I", 47, gre(0, 0x88be, &bridged(&[], 0x0800)), 4),
        ("ERSPAN II", 47, gre(0x1000, 0x88be, &bridged(&[0; 12], 0x0800)), 4),
        ("ERSPAN III", 47, gre(0x1000, 0x22eb, &bridged(&[0; 16], 0x86dd)), 6),
        ("ERSPAN III with a subheader", 47, gre(0x1000, 0x22eb, &bridged(&subheader, 0x86dd)), 6),
        ("GRE, PPP", 47, gre(0, 0x880b, &[0, 0x21]), 4),
        ("PPTP", 47, gre(0x3001, 0x880b, &pptp(&[0xff, 3, 0, 0x57])), 6),
        ("PPTP, acknowledging", 47, gre(0x3081, 0x880b, &pptp(&[0, 0, 0, 1, 0x21])), 4),
        ("VXLAN", 17, udp(4789, &bridged(&vxlan, 0x0800)), 4),
        ("VXLAN, a tag", 17, udp(4789, &tagged), 6),
        ("VXLAN-GPE", 17, udp(4790, &gpe(1)), 4),
        ("VXLAN-GPE, Ethernet", 17, udp(4790, &bridged(&gpe(3), 0x86dd)), 6),
        ("VXLAN-GPE, NSH", 17, udp(4790, &[gpe(4), nsh].concat()), 6),
        ("GRE, NSH", 47, gre(0, 0x894f, &nsh), 6),
        ("Geneve", 17, udp(6081, &bridged(&geneve(0, 0x6558), 0x0800)), 4),
        ("Geneve, options", 17, udp(6081, &bridged(&geneve(3, 0x6558), 0x86dd)), 6),
        ("Geneve, IP", 17, udp(6081, &geneve(0, 0x0800)), 4),
        ("GTP", 17, udp(2152, &gtp(0x30, &[])), 4),
        ("GTP, a sequence number", 17, udp(2152, &gtp(0x32, &[0, 1, 0, 0x85])), 6),
        ("GTP, an extension header", 17, extended(&[1, 0x10, 9, 0]), 4),
        ("GTP, two extension headers", 17, extended(&two), 6),
    ]
}

fn inner(version: u8) -> Vec<u8> {
    if version == 4 { ipv4(2, 17, &PORTS) } else { ipv6(2, 17, &PORTS) }
}

#[test]
fn the_innermost_header_counts_if_asked_for_and_the_outermost_otherwise() {
    for (name, protocol, before, version) in tunnels() {
        let payload = [before, inner(version)].concat();
        let extended = [&[protocol, 0, 1, 4, 0, 0, 0, 0][..], &payload].concat();
        let behind_extension = ipv6(1, 60, &extended);
        for packet in [ipv4(1, protocol, &payload), ipv6(1, protocol, &payload), behind_extension] {
            assert_eq!(source(&packet, &Settings::INNER), Ok((2, PORTS)), "{name}");
            assert_eq!(host(&packet, &Settings::DEFAULT), Ok(1), "{name}");
        }
    }
}

#[test]
fn a_tunnel_that_is_cut_off_counts_by_the_header_around_it() {
    for (name, protocol, before, version) in tunnels() {
        let packet = ipv4(1, protocol, &[before.clone(), inner(version)].concat());
        let whole = 20 + before.len() + if version == 4 { 20 } else { 40 };
        for length in 20..packet.len() {
            let expected = if length < whole { 1 } else { 2 };
            let found = host(&packet[..length], &Settings::INNER);
            assert_eq!(found, Ok(expected), "{name}, {length} bytes");
        }
    }
}

#[test]
fn what_holds_no_ip_counts_by_the_header_around_it() {
    let mut later_fragment = ipv4(1, 4, &inner(4));
    later_fragment[7] = 1;
    let behind = |header: &[u8], packet: &[u8]| [header, packet].concat();
    let before = |header: &[u8]| behind(header, &inner(4));
    let vxlan = |ethertype, packet: &[u8]| {
        behind(&[8, 0, 0, 0, 0, 0, 0x64, 0], &ethernet(ethertype, packet))
    };
    let ipv4_in_vxlan = vxlan(0x0800, &inner(4));
    let from_port = behind(&[0x12, 0xb5, 0xc0, 9, 0, 0, 0, 0], &ipv4_in_vxlan);
    let unknown = [0x0c, 0, 0, 9, 0, 0, 0x64, 0];
    let source_route = [0x40, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let without_length = [0x34, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 0];
    let in_udp = |port, payload: &[u8]| ipv4(1, 17, &udp(port, payload));
    let packets = [
        ("a later fragment", later_fragment),
        ("ARP in VXLAN", in_udp(4789, &vxlan(0x0806, &[0; 28]))),
        ("an unknown protocol in VXLAN-GPE", in_udp(4790, &before(&unknown))),
        ("from the port of VXLAN", ipv4(1, 17, &from_port)),
        ("the port of VXLAN in TCP", ipv4(1, 6, &udp(4789, &ipv4_in_vxlan))),
        ("another version in IP in IP", ipv4(1, 4, &inner(6))),
        ("GRE with a source route", ipv4(1, 47, &before(&source_route))),
        ("GRE of another version", ipv4(1, 47, &before(&[0, 2, 8, 0]))),
        ("Geneve of another version", in_udp(6081, &before(&[0x40, 0, 8, 0, 0, 0, 0, 0]))),
        ("GTP, an echo", in_udp(2152, &before(&[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0]))),
        ("GTP, version 2", in_udp(2152, &before(&[0x50, 0xff, 0, 0, 0, 0, 0, 1]))),
        ("GTP, an extension without length", in_udp(2152, &before(&without_length))),
        ("an error message of ICMP", ipv4(1, 1, &before(&[3, 1, 0, 0, 0, 0, 0, 0]))),
    ];
    for (name, packet) in packets {
        assert_eq!(host(&packet, &Settings::INNER), Ok(1), "{name}");
    }
}

#[test]
fn tunnels_are_opened_up_to_a_depth() {
    let nested = |tunnels: usize| {
        (0..tunnels).rev().fold(ipv4(100, 17, &PORTS), |packet, at| ipv4(at as u8, 4, &packet))
    };
    assert_eq!(host(&nested(MAX_TUNNELS), &Settings::INNER), Ok(100));
    assert_eq!(host(&nested(MAX_TUNNELS + 1), &Settings::INNER), Ok(MAX_TUNNELS as u8));
}

#[test]
fn a_rejected_frame_is_rejected_for_the_same_reason() {
    let mut wrong = ipv4(1, 4, &inner(4));
    wrong[0] = 0x44;
    assert_eq!(source(&wrong, &Settings::INNER), Err(Reject::BadHeader));
    assert_eq!(source(&wrong[..3], &Settings::INNER), Err(Reject::Truncated));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// The family may differ from that of the outermost header, and nothing else: tunnels reject no
    /// packet.
    #[test]
    fn any_bytes_count_with_tunnels_as_often_as_without(
        chosen in prop::sample::select(tunnels()), tail in prop::collection::vec(any::<u8>(), 0..80),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in any::<prop::sample::Index>()
    ) {
        let (_, protocol, before, version) = chosen;
        let mut packet = ipv4(1, protocol, &[before, inner(version), tail].concat());
        for (at, value) in edits {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        packet.truncate(cut.index(packet.len() * 2).max(1));
        let frame = packet.as_slice();
        let (outer, inner) = (counted(frame, Link::Ip, &Settings::DEFAULT), counted(frame, Link::Ip, &Settings::INNER));
        prop_assert_eq!(outer.err(), inner.err());
    }
}
