//! IP in every supported encapsulation, compared with tshark: packets, families, and exact numbers
//! of distinct addresses and five-tuples must agree.

use crate::common::tshark::{has_tshark, tshark};
use crate::common::{SECOND, START, Scratch, frames, number, parse, replay, total};
use flowgauge_dataplane::capture::build::{self, CapturePacket, PcapOptions};
use flowgauge_traffic::frame;
use std::collections::HashSet;
use std::path::Path;

#[derive(Debug, PartialEq, Eq)]
struct Counted {
    packets: u64,
    ipv4: u64,
    ipv6: u64,
    sources: u64,
    destinations: u64,
    five_tuples: u64,
}

/// Network header that counts, if there are several.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    Outermost,
    Innermost,
}

/// Lines of tshark, one a packet.
fn dissected(file: &Path) -> Vec<String> {
    let fields = [
        "frame.protocols",
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "udp.srcport",
        "udp.dstport",
    ];
    let output = tshark()
        .arg("-r")
        .arg(file)
        .args(["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-E", "separator=/t"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn by_tshark(lines: &[String], header: Header) -> Counted {
    let [mut packets, mut ipv4, mut ipv6] = [0; 3];
    let (mut sources, mut destinations) = (HashSet::new(), HashSet::new());
    let mut five_tuples = HashSet::new();
    for line in lines {
        let [protocols, rest @ ..] = &line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        packets += 1;
        let pick = |values: &str| {
            let mut values = values.split(',').map(str::to_owned);
            match header {
                Header::Outermost => values.next(),
                Header::Innermost => values.next_back(),
            }
        };
        let mut families = protocols.split(':').filter(|layer| ["ip", "ipv6"].contains(layer));
        let family = match header {
            Header::Outermost => families.next(),
            Header::Innermost => families.next_back(),
        };
        let addresses = match family {
            Some("ip") => &rest[..2],
            Some(_) => &rest[2..4],
            None => continue,
        };
        *if family == Some("ip") { &mut ipv4 } else { &mut ipv6 } += 1;
        let [source, destination] = [pick(addresses[0]), pick(addresses[1])];
        // Layers behind the header that counts; further layers may have other ports.
        let mut behind = protocols.split(':').skip_while(|layer| Some(*layer) != family).skip(1);
        let transport = match header {
            Header::Outermost => behind.find(|layer| !layer.starts_with("ipv6.")),
            Header::Innermost => protocols.split(':').find(|layer| *layer == "udp"),
        };
        let ports = if transport == Some("udp") {
            [pick(rest[4]), pick(rest[5])]
        } else {
            [const { None }; 2]
        };
        five_tuples.insert((
            source.clone(),
            destination.clone(),
            transport.map(str::to_owned),
            ports,
        ));
        sources.insert(source);
        destinations.insert(destination);
    }
    let [sources, destinations, five_tuples] =
        [sources.len(), destinations.len(), five_tuples.len()].map(|n| n as u64);
    Counted { packets, ipv4, ipv6, sources, destinations, five_tuples }
}

fn by_flowgauge(file: &Path, options: &str) -> Counted {
    let [by_source, destinations, five_tuples] = ["src", "dst", "five-tuple"].map(|key| {
        let options = format!(
            "--truth --window 100days --sample-every never --format json --key {key} {options}"
        );
        let records = parse(&replay(file, &options).stdout);
        let total = total(&records);
        let [packets, ipv4, ipv6] =
            ["packets", "ipv4_packets", "ipv6_packets"].map(|key| number(total, key));
        let truth = number(&total["cardinality"], "truth");
        Counted { packets, ipv4, ipv6, sources: truth, destinations: truth, five_tuples: truth }
    });
    Counted {
        destinations: destinations.destinations,
        five_tuples: five_tuples.five_tuples,
        ..by_source
    }
}

/// Compares both programs. Each list of frames is a capture of its own, and all its frames have IP.
/// tshark, which takes long to start, reads one capture with all of them.
#[track_caller]
fn agree(scratch: &Scratch, captures: Vec<(String, Vec<Vec<u8>>)>, header: Header, options: &str) {
    let write = |name: &str, frames: &[&Vec<u8>]| {
        let packets: Vec<CapturePacket> = frames
            .iter()
            .zip(0..)
            .map(|(frame, i)| CapturePacket::new(START + i * SECOND, frame.to_vec()))
            .collect();
        scratch.write(
            &format!("{}.pcap", name.replace(' ', "-")),
            build::pcap(&PcapOptions::default(), &packets),
        )
    };
    let all: Vec<&Vec<u8>> = captures.iter().flat_map(|(_, frames)| frames).collect();
    let lines = dissected(Path::new(&write("all", &all)));
    assert_eq!(lines.len(), all.len());
    let mut lines = &lines[..];
    let mut differences = Vec::new();
    for (name, frames) in &captures {
        let file = write(name, &frames.iter().collect::<Vec<_>>());
        let expected = by_tshark(lines.split_off(..frames.len()).unwrap(), header);
        let counted = by_flowgauge(Path::new(&file), options);
        if counted != expected || counted.ipv4 + counted.ipv6 != frames.len() as u64 {
            differences.push(format!("{name}\n  tshark    {expected:?}\n  flowgauge {counted:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn udp(host: u16) -> Vec<u8> {
    frame::udp([0xc000 | host, 0xc002], &[1, 2, 3, 4])
}

fn v4(host: u8) -> Vec<u8> {
    frames::ipv4([10, 0, 0, host], 17, &udp(host.into()))
}

fn v6(host: u8) -> Vec<u8> {
    frames::ipv6(host.into(), 17, &udp(host.into()))
}

/// Returns a network service header with this number of words and type of metadata.
fn nsh(words: u8, metadata: u8, next: u8) -> Vec<u8> {
    let mut header = vec![0x0f, 0xc0 | words, metadata, next, 0, 0, 7, 255];
    if metadata == 2 && words > 2 {
        // A single variable piece of metadata fills it.
        header.extend([0, 1, 1, (words - 3) * 4]);
    }
    header.resize(usize::from(words) * 4, 0);
    header
}

/// Returns the protocol number of this packet in a network service header and VXLAN-GPE.
fn version_of(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { 1 } else { 2 }
}

/// Returns an Ethernet header with addresses of vendors, by which tshark recognizes Ethernet in
/// MPLS.
fn inner(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [
        &[0x00, 0x1b, 0x21, 0xaa, 0xbb, 0xcc, 0x00, 0xe0, 0x4c, 0x11, 0x22, 0x33][..],
        &ethertype.to_be_bytes(),
        packet,
    ]
    .concat()
}

/// Returns six packets of both families. `frame` gets the EtherType and PPP protocol number of
/// each.
fn each(frame: impl Fn(u16, u8, &[u8]) -> Vec<u8>) -> Vec<Vec<u8>> {
    let four = [1, 2, 2, 3].map(|host| frame(0x0800, 0x21, &v4(host)));
    let six = [1, 4].map(|host| frame(0x86dd, 0x57, &v6(host)));
    four.into_iter().chain(six).collect()
}

fn in_ethernet(ethertype: u16, header: &[u8], rest: &[u8]) -> Vec<u8> {
    frames::ethernet(&[], ethertype, &[header, rest].concat())
}

fn encapsulations() -> Vec<(String, Vec<Vec<u8>>)> {
    let with_type = |header: &[u8], ethertype: u16| [header, &ethertype.to_be_bytes()].concat();
    let length = |rest: &[u8]| u16::try_from(rest.len()).unwrap();
    let pppoe = |protocol: &[u8], packet: &[u8]| {
        let payload = [protocol, packet].concat();
        [&[0x11, 0, 0, 1], &length(&payload).to_be_bytes()[..], &payload].concat()
    };
    let label = |bottom: u8| [0, 6, 0x40 | bottom, 64];
    let snap = |organisation: u8, ethertype: u16, packet: &[u8]| {
        [&[0xaa, 0xaa, 3, 0, 0, organisation], &ethertype.to_be_bytes()[..], packet].concat()
    };
    let macsec = |header: &[u8], ethertype: u16, packet: &[u8]| {
        in_ethernet(0x88e5, &with_type(header, ethertype), &[packet, &[0xee; 16]].concat())
    };
    let fixed = |outer: u16, header: &'static [u8]| {
        each(|ethertype, _, packet| in_ethernet(outer, &with_type(header, ethertype), packet))
    };
    let bridged = |outer: u16, header: &'static [u8]| {
        each(|ethertype, _, packet| in_ethernet(outer, header, &inner(ethertype, packet)))
    };
    let mpls = |header: &[u8]| {
        each(|_, _, packet| in_ethernet(0x8847, &[header, &label(1)].concat(), packet))
    };
    let captures = [
        (
            "pppoe",
            each(|_, protocol, packet| in_ethernet(0x8864, &[], &pppoe(&[0, protocol], packet))),
        ),
        (
            "pppoe compressed",
            each(|_, protocol, packet| in_ethernet(0x8864, &[], &pppoe(&[protocol], packet))),
        ),
        (
            "pppoe behind a tag",
            each(|_, protocol, packet| {
                in_ethernet(0x8100, &[0, 7, 0x88, 0x64], &pppoe(&[0, protocol], packet))
            }),
        ),
        (
            "pppoe mpls",
            each(|_, _, packet| {
                in_ethernet(0x8864, &[], &pppoe(&[&[2, 0x81][..], &label(1)].concat(), packet))
            }),
        ),
        ("mpls", mpls(&[])),
        ("mpls of ten labels", mpls(&label(0).repeat(9))),
        ("mpls multicast", each(|_, _, packet| in_ethernet(0x8848, &label(1), packet))),
        (
            "mpls padded",
            each(|_, _, packet| in_ethernet(0x8847, &label(1), &[packet, &[0; 3]].concat())),
        ),
        (
            "mpls control word",
            each(|ethertype, _, packet| {
                in_ethernet(
                    0x8847,
                    &[&label(1)[..], &[0, 0, 0, 1]].concat(),
                    &inner(ethertype, packet),
                )
            }),
        ),
        (
            "mpls no control word",
            each(|ethertype, _, packet| in_ethernet(0x8847, &label(1), &inner(ethertype, packet))),
        ),
        (
            "mpls channel",
            each(|_, protocol, packet| {
                in_ethernet(0x8847, &[&label(1)[..], &[0x10, 0, 0, protocol]].concat(), packet)
            }),
        ),
        (
            "snap",
            each(|ethertype, _, packet| {
                in_ethernet(length(packet) + 8, &[], &snap(0, ethertype, packet))
            }),
        ),
        (
            "snap 802.1h",
            each(|ethertype, _, packet| {
                in_ethernet(length(packet) + 8, &[], &snap(0xf8, ethertype, packet))
            }),
        ),
        (
            "snap behind a tag",
            each(|ethertype, _, packet| {
                in_ethernet(
                    0x8100,
                    &with_type(&[0, 7], length(packet) + 8),
                    &snap(0, ethertype, packet),
                )
            }),
        ),
        // tshark takes IPv6 for a layer of IPv4 there.
        (
            "llc of ip",
            [1, 2, 2, 3]
                .map(v4)
                .iter()
                .map(|packet| in_ethernet(length(packet) + 3, &[6, 6, 3], packet))
                .collect(),
        ),
        (
            "llc jumbo",
            each(|ethertype, _, packet| in_ethernet(0x8870, &[], &snap(0, ethertype, packet))),
        ),
        ("macsec", each(|ethertype, _, packet| macsec(&[0, 0, 0, 0, 0, 1], ethertype, packet))),
        (
            "macsec sci",
            each(|ethertype, _, packet| {
                macsec(&[0x20, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 0, 1], ethertype, packet)
            }),
        ),
        (
            "sixteen tags",
            each(|ethertype, _, packet| frames::ethernet(&[0x8100; 16], ethertype, packet)),
        ),
        ("fabricpath", bridged(0x8903, &[0x04, 0x64])),
        (
            "fabricpath and a tag",
            each(|ethertype, _, packet| {
                in_ethernet(
                    0x8903,
                    &[0x04, 0x64],
                    &inner(0x8100, &[&with_type(&[0, 7], ethertype)[..], packet].concat()),
                )
            }),
        ),
        ("802.1ah", bridged(0x88e7, &[0, 0, 0x12, 0x34])),
        (
            "802.1ah behind a tag",
            each(|ethertype, _, packet| {
                in_ethernet(
                    0x88a8,
                    &[0, 7, 0x88, 0xe7, 0, 0, 0x12, 0x34],
                    &inner(ethertype, packet),
                )
            }),
        ),
        ("cisco metadata", fixed(0x8909, &[1, 1, 0, 1, 0, 5])),
        ("hsr", fixed(0x892f, &[0, 50, 0, 1])),
        ("802.1cb", fixed(0xf1c1, &[0, 0, 0, 1])),
        ("vn-tag", fixed(0x8926, &[0, 1, 0, 2])),
        ("802.1br", fixed(0x893f, &[0, 1, 0, 2, 0, 0])),
        ("bridged ethernet", bridged(0x6558, &[])),
        ("trill", bridged(0x22f3, &[0, 0x3f, 0, 1, 0, 2])),
        ("nsh", each(|_, _, packet| in_ethernet(0x894f, &nsh(6, 1, version_of(packet)), packet))),
        (
            "nsh with variable metadata",
            each(|_, _, packet| in_ethernet(0x894f, &nsh(4, 2, version_of(packet)), packet)),
        ),
        (
            "nsh without metadata",
            each(|_, _, packet| in_ethernet(0x894f, &nsh(2, 2, version_of(packet)), packet)),
        ),
        (
            "nsh of ethernet",
            each(|ethertype, _, packet| {
                in_ethernet(0x894f, &nsh(6, 1, 3), &inner(ethertype, packet))
            }),
        ),
        (
            "nsh in nsh",
            each(|_, _, packet| {
                in_ethernet(0x894f, &[nsh(2, 2, 4), nsh(6, 1, version_of(packet))].concat(), packet)
            }),
        ),
        (
            "nsh of mpls",
            each(|_, _, packet| {
                in_ethernet(0x894f, &nsh(6, 1, 5), &[&[0, 6, 0x41, 64], packet].concat())
            }),
        ),
        (
            "nsh behind a tag",
            each(|_, _, packet| {
                in_ethernet(
                    0x8100,
                    &[&[0, 7, 0x89, 0x4f], &nsh(6, 1, version_of(packet))[..]].concat(),
                    packet,
                )
            }),
        ),
        ("trill with options", bridged(0x22f3, &[0, 0x7f, 0, 1, 0, 2, 0, 0, 0, 0])),
    ];
    captures.into_iter().map(|(name, frames)| (name.to_owned(), frames)).collect()
}

#[test]
fn ip_behind_every_encapsulation_counts_as_in_tshark() {
    if !has_tshark() {
        return;
    }
    agree(&Scratch::new("encapsulations"), encapsulations(), Header::Outermost, "");
}

/// Returns a UDP packet to a port, from a port without a registered protocol.
fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    [&[0xc0, 0x09], &port.to_be_bytes()[..], &length.to_be_bytes(), &[0, 0], payload].concat()
}

/// Returns tunnels with the same outer header and different content.
fn tunnels() -> Vec<(String, Vec<Vec<u8>>)> {
    let outer = |protocol: u8, payload: &[u8]| {
        frames::ethernet(&[], 0x0800, &frames::ipv4([10, 9, 9, 9], protocol, payload))
    };
    let outer6 = |protocol: u8, payload: &[u8]| {
        frames::ethernet(&[], 0x86dd, &frames::ipv6(999, protocol, payload))
    };
    let gre = |flags: u16, ethertype: u16, rest: &[u8]| {
        [&flags.to_be_bytes(), &ethertype.to_be_bytes()[..], rest].concat()
    };
    let vxlan = |rest: &[u8]| datagram(4789, &[&[8, 0, 0, 0, 0, 0, 0x64, 0], rest].concat());
    let gpe = |next: u8, rest: &[u8]| {
        datagram(4790, &[&[0x0c, 0, 0, next, 0, 0, 0x64, 0], rest].concat())
    };
    let geneve = |words: u8, ethertype: u16, rest: &[u8]| {
        let header = [&[words, 0], &ethertype.to_be_bytes()[..], &[0, 0, 0x64, 0]].concat();
        datagram(6081, &[header, vec![0; usize::from(words) * 4], rest.to_vec()].concat())
    };
    let gtp = |flags: u8, fields: &[u8], rest: &[u8]| {
        let length = u16::try_from(fields.len() + rest.len()).unwrap();
        datagram(
            2152,
            &[&[flags, 0xff], &length.to_be_bytes()[..], &[0, 0, 0, 1], fields, rest].concat(),
        )
    };
    let version = |ethertype: u16| if ethertype == 0x0800 { 4 } else { 41 };
    let captures = [
        ("ip in ip", each(|ethertype, _, packet| outer(version(ethertype), packet))),
        ("ip in ipv6", each(|ethertype, _, packet| outer6(version(ethertype), packet))),
        (
            "ip in ipv6 behind an extension header",
            each(|ethertype, _, packet| {
                outer6(60, &[&[version(ethertype), 0, 1, 4, 0, 0, 0, 0], packet].concat())
            }),
        ),
        ("gre", each(|ethertype, _, packet| outer(47, &gre(0, ethertype, packet)))),
        ("gre in ipv6", each(|ethertype, _, packet| outer6(47, &gre(0, ethertype, packet)))),
        (
            "gre with all fields",
            each(|ethertype, _, packet| {
                outer(47, &gre(0xb000, ethertype, &[&[0; 12], packet].concat()))
            }),
        ),
        (
            "nvgre",
            each(|ethertype, _, packet| {
                outer(47, &gre(0x2000, 0x6558, &[vec![0; 4], inner(ethertype, packet)].concat()))
            }),
        ),
        (
            "gre mpls",
            each(|_, _, packet| outer(47, &gre(0, 0x8847, &[&[0, 6, 0x41, 64], packet].concat()))),
        ),
        (
            "gre ppp",
            each(|_, protocol, packet| {
                outer(47, &gre(0, 0x880b, &[&[0, protocol], packet].concat()))
            }),
        ),
        (
            "erspan 1",
            each(|ethertype, _, packet| outer(47, &gre(0, 0x88be, &inner(ethertype, packet)))),
        ),
        (
            "erspan 2",
            each(|ethertype, _, packet| {
                let header = vec![0, 0, 0, 1, 0x10, 1, 0, 0, 0, 0, 0, 0];
                outer(47, &gre(0x1000, 0x88be, &[header, inner(ethertype, packet)].concat()))
            }),
        ),
        (
            "erspan 3",
            each(|ethertype, _, packet| {
                let header = vec![0, 0, 0, 1, 0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                outer(47, &gre(0x1000, 0x22eb, &[header, inner(ethertype, packet)].concat()))
            }),
        ),
        (
            "pptp",
            each(|_, protocol, packet| {
                let length = u16::try_from(packet.len() + 4).unwrap().to_be_bytes();
                outer(
                    47,
                    &gre(
                        0x3001,
                        0x880b,
                        &[&length[..], &[0, 1, 0, 0, 0, 1, 0xff, 3, 0, protocol], packet].concat(),
                    ),
                )
            }),
        ),
        ("vxlan", each(|ethertype, _, packet| outer(17, &vxlan(&inner(ethertype, packet))))),
        (
            "vxlan in ipv6",
            each(|ethertype, _, packet| outer6(17, &vxlan(&inner(ethertype, packet)))),
        ),
        (
            "vxlan and a tag",
            each(|ethertype, _, packet| {
                outer(
                    17,
                    &vxlan(&inner(
                        0x8100,
                        &[&[0, 7], &ethertype.to_be_bytes()[..], packet].concat(),
                    )),
                )
            }),
        ),
        ("vxlan-gpe", each(|_, _, packet| outer(17, &gpe(version_of(packet), packet)))),
        (
            "vxlan-gpe of ethernet",
            each(|ethertype, _, packet| outer(17, &gpe(3, &inner(ethertype, packet)))),
        ),
        (
            "vxlan-gpe of nsh",
            each(|_, _, packet| {
                outer(17, &gpe(4, &[nsh(6, 1, version_of(packet)), packet.to_vec()].concat()))
            }),
        ),
        (
            "vxlan-gpe of ethernet in nsh",
            each(|ethertype, _, packet| {
                outer(17, &gpe(4, &[nsh(2, 2, 3), inner(ethertype, packet)].concat()))
            }),
        ),
        (
            "gre of nsh",
            each(|_, _, packet| {
                outer(
                    47,
                    &gre(0, 0x894f, &[nsh(6, 1, version_of(packet)), packet.to_vec()].concat()),
                )
            }),
        ),
        (
            "geneve",
            each(|ethertype, _, packet| outer(17, &geneve(0, 0x6558, &inner(ethertype, packet)))),
        ),
        (
            "geneve with options",
            each(|ethertype, _, packet| outer(17, &geneve(2, 0x6558, &inner(ethertype, packet)))),
        ),
        ("geneve of ip", each(|ethertype, _, packet| outer(17, &geneve(0, ethertype, packet)))),
        ("gtp", each(|_, _, packet| outer(17, &gtp(0x30, &[], packet)))),
        (
            "gtp with a sequence number",
            each(|_, _, packet| outer(17, &gtp(0x32, &[0, 1, 0, 0], packet))),
        ),
        (
            "gtp with an extension header",
            each(|_, _, packet| outer(17, &gtp(0x34, &[0, 0, 0, 0x85, 1, 0x10, 9, 0], packet))),
        ),
        (
            "three tunnels",
            each(|ethertype, _, packet| {
                let gre = frames::ipv4(
                    [10, 9, 9, 8],
                    47,
                    &gre(0, 0x0800, &frames::ipv4([10, 9, 9, 7], version(ethertype), packet)),
                );
                outer(17, &vxlan(&inner(0x0800, &gre)))
            }),
        ),
        ("no tunnel", each(|ethertype, _, packet| frames::ethernet(&[], ethertype, packet))),
        (
            "arp in vxlan",
            (1..4).map(|_| outer(17, &vxlan(&inner(0x0806, &frames::arp())))).collect(),
        ),
    ];
    captures.into_iter().map(|(name, frames)| (name.to_owned(), frames)).collect()
}

#[test]
fn with_inner_the_last_ip_header_of_tshark_counts() {
    if !has_tshark() {
        return;
    }
    agree(&Scratch::new("inner"), tunnels(), Header::Innermost, "--inner");
}

#[test]
fn without_inner_the_first_ip_header_of_tshark_counts() {
    if !has_tshark() {
        return;
    }
    agree(&Scratch::new("outer"), tunnels(), Header::Outermost, "");
}

#[test]
fn records_say_that_the_innermost_header_counts() {
    let scratch = Scratch::new("inner-said");
    let packets: Vec<CapturePacket> =
        tunnels().remove(0).1.into_iter().map(|frame| CapturePacket::new(START, frame)).collect();
    let file = scratch.write("tunnels.pcap", build::pcap(&PcapOptions::default(), &packets));
    for (options, said) in [("--inner", Some(true)), ("--inner=false", None), ("", None)] {
        let records = parse(
            &replay(Path::new(&file), &format!("--format json --sample-every never {options}"))
                .stdout,
        );
        assert!(!records.is_empty());
        assert!(
            records
                .iter()
                .all(|record| record.get("inner").and_then(serde_json::Value::as_bool) == said),
            "{options}: {records:?}"
        );
    }
}

#[test]
fn an_ethertype_of_most_frames_that_is_not_opened_is_named_once() {
    let scratch = Scratch::new("unopened");
    let frame = |ethertype: u16| frames::ethernet(&[], ethertype, &[0; 46]);
    let write = |name: &str, frames: Vec<Vec<u8>>| {
        let packets: Vec<CapturePacket> = frames
            .into_iter()
            .zip(0..)
            .map(|(frame, i)| CapturePacket::new(START + i * 1_000_000, frame))
            .collect();
        scratch.write(name, build::pcap(&PcapOptions::default(), &packets))
    };
    let mostly = write(
        "mostly.pcap",
        (0..1000).map(|i| frame(if i % 50 == 0 { 0x0800 } else { 0x88cc })).collect(),
    );
    let warnings = |file: &str| {
        let outcome = replay(Path::new(file), "--format json --sample-every never --window 250ms");
        outcome
            .stderr
            .lines()
            .filter(|line| line.contains("EtherType"))
            .map(str::to_owned)
            .collect::<Vec<String>>()
    };
    let said = warnings(&mostly);
    let [warning] = &said[..] else { panic!("{said:?}") };
    assert!(
        warning.contains("most frames (at least 98 %) are of EtherType 0x88cc (LLDP)"),
        "{warning}"
    );
    let few = write("few.pcap", (0..90).map(|_| frame(0x88cc)).collect());
    let half = write(
        "half.pcap",
        (0..1000).map(|i| frame(if i % 2 == 0 { 0x88cc } else { 0x0806 })).collect(),
    );
    assert_eq!([warnings(&few), warnings(&half)], [const { Vec::<String>::new() }; 2]);
}
