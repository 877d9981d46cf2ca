//! IP in every supported encapsulation, compared with tshark: packets, families, and exact numbers
//! of distinct addresses and five-tuples must agree.

use crate::common::frames::timed;
use crate::common::tshark::{Counted, Distinct, by_flowgauge, dissect, has_tshark};
use crate::common::{SECOND, Scratch, assert_has, frames, parse, replay};
use flowgauge_dataplane::capture::build::{self, PcapOptions};
use flowgauge_traffic::frame;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Network header that counts, if there are several.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    Outermost,
    Innermost,
}

impl Header {
    /// Returns the value of the header that counts, of those of all headers.
    fn pick<'a>(self, mut values: impl DoubleEndedIterator<Item = &'a str>) -> &'a str {
        let value = match self {
            Header::Outermost => values.next(),
            Header::Innermost => values.next_back(),
        };
        value.unwrap_or_default()
    }
}

/// Lines of tshark, one a packet.
fn dissected(file: &Path) -> Vec<String> {
    let fields = ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "udp.srcport", "udp.dstport"];
    let fields = [&["frame.protocols"], &fields[..]].concat();
    let output = dissect(file, &fields).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn by_tshark(lines: &[String], header: Header) -> Counted {
    let mut distinct = Distinct::default();
    for line in lines {
        let [protocols, rest @ ..] = &line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        distinct.add_packet();
        let families = protocols.split(':').filter(|layer| ["ip", "ipv6"].contains(layer));
        let family = header.pick(families);
        let addresses = match family {
            "ip" => &rest[..2],
            "ipv6" => &rest[2..4],
            _ => continue,
        };
        let addresses = [0, 1].map(|end| header.pick(addresses[end].split(',')));
        // Layers behind the header that counts; further layers may have other ports.
        let mut behind = protocols.split(':').skip_while(|layer| *layer != family).skip(1);
        let transport = match header {
            Header::Outermost => behind.find(|layer| !layer.starts_with("ipv6.")),
            Header::Innermost => protocols.split(':').find(|layer| *layer == "udp"),
        };
        let ports = if transport == Some("udp") {
            [4, 5].map(|field| header.pick(rest[field].split(',')))
        } else {
            [""; 2]
        };
        distinct.add_header(family, addresses, &format!("{transport:?} {ports:?}"));
    }
    distinct.counted()
}

/// Writes a capture of frames.
fn write(scratch: &Scratch, name: &str, frames: Vec<Vec<u8>>, interval: u64) -> PathBuf {
    let capture = build::pcap(&PcapOptions::default(), &timed(frames, interval));
    scratch.write(&format!("{}.pcap", name.replace(' ', "-")), capture).into()
}

/// Compares both programs. Each list of frames is a capture of its own, and all its frames have IP.
/// tshark, which takes long to start, reads one capture with all of them.
#[track_caller]
fn agree(scratch: &Scratch, captures: Vec<(String, Vec<Vec<u8>>)>, header: Header, options: &str) {
    let all: Vec<Vec<u8>> = captures.iter().flat_map(|(_, frames)| frames).cloned().collect();
    let sent = all.len();
    let lines = dissected(&write(scratch, "all", all, SECOND));
    assert_eq!(lines.len(), sent);
    let mut lines = &lines[..];
    let mut differences = Vec::new();
    for (name, frames) in captures {
        let sent = frames.len();
        let expected = by_tshark(lines.split_off(..sent).unwrap(), header);
        let counted = by_flowgauge(&write(scratch, &name, frames, SECOND), options);
        if counted != expected || counted.ipv4 + counted.ipv6 != sent as u64 {
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

/// An IP packet to encapsulate, with the numbers of its version in headers before it.
struct Packet {
    bytes: Vec<u8>,
    ethertype: u16,
    ppp: u8,
    /// In network service headers and VXLAN-GPE.
    nsh: u8,
    /// In IP.
    protocol: u8,
}

impl Packet {
    fn v4(host: u8) -> Self {
        Packet { bytes: v4(host), ethertype: 0x0800, ppp: 0x21, nsh: 1, protocol: 4 }
    }

    fn v6(host: u8) -> Self {
        Packet { bytes: v6(host), ethertype: 0x86dd, ppp: 0x57, nsh: 2, protocol: 41 }
    }

    /// Returns it behind LLC and SNAP with the number of an organization.
    fn snap(&self, organisation: u8) -> Vec<u8> {
        let header = with_type(&[0xaa, 0xaa, 3, 0, 0, organisation], self.ethertype);
        [&header[..], &self.bytes].concat()
    }

    /// Returns it in Ethernet.
    fn bridged(&self) -> Vec<u8> {
        inner(self.ethertype, &[&self.bytes])
    }

    /// Returns it in Ethernet with a tag.
    fn tagged(&self) -> Vec<u8> {
        inner(0x8100, &[&with_type(&[0, 7], self.ethertype), &self.bytes])
    }
}

/// Returns an Ethernet header with addresses of vendors, by which tshark recognizes Ethernet in
/// MPLS, and what is behind it.
fn inner(ethertype: u16, parts: &[&[u8]]) -> Vec<u8> {
    let addresses = [0x00, 0x1b, 0x21, 0xaa, 0xbb, 0xcc, 0x00, 0xe0, 0x4c, 0x11, 0x22, 0x33];
    [with_type(&addresses, ethertype), parts.concat()].concat()
}

fn with_type(header: &[u8], ethertype: u16) -> Vec<u8> {
    [header, &ethertype.to_be_bytes()].concat()
}

/// Returns six packets of both families in a frame.
fn each(frame: impl Fn(&Packet) -> Vec<u8>) -> Vec<Vec<u8>> {
    let packets = [1, 2, 2, 3].map(Packet::v4).into_iter().chain([1, 4].map(Packet::v6));
    packets.map(|packet| frame(&packet)).collect()
}

fn in_ethernet(ethertype: u16, parts: &[&[u8]]) -> Vec<u8> {
    frames::ethernet(&[], ethertype, &parts.concat())
}

/// Returns an MPLS label.
fn label(bottom: u8) -> [u8; 4] {
    [0, 6, 0x40 | bottom, 64]
}

fn named(captures: Vec<(&str, Vec<Vec<u8>>)>) -> Vec<(String, Vec<Vec<u8>>)> {
    captures.into_iter().map(|(name, frames)| (name.to_owned(), frames)).collect()
}

fn encapsulations() -> Vec<(String, Vec<Vec<u8>>)> {
    let length = |rest: &[u8]| u16::try_from(rest.len()).unwrap();
    let pppoe = |protocol: &[u8], ip: &Packet| {
        let payload = [protocol, &ip.bytes].concat();
        [&[0x11, 0, 0, 1], &length(&payload).to_be_bytes()[..], &payload].concat()
    };
    let macsec = |header: &[u8], ip: &Packet| {
        in_ethernet(0x88e5, &[&with_type(header, ip.ethertype), &ip.bytes, &[0xee; 16]])
    };
    let fixed = |outer: u16, header: &'static [u8]| {
        each(|ip| in_ethernet(outer, &[&with_type(header, ip.ethertype), &ip.bytes]))
    };
    let bridged =
        |outer: u16, header: &'static [u8]| each(|ip| in_ethernet(outer, &[header, &ip.bridged()]));
    let mpls = |header: &[u8]| each(|ip| in_ethernet(0x8847, &[header, &label(1), &ip.bytes]));
    let llc = |organisation: u8| {
        each(|ip| {
            let frame = ip.snap(organisation);
            in_ethernet(length(&frame), &[&frame])
        })
    };
    named(vec![
        ("pppoe", each(|ip| in_ethernet(0x8864, &[&pppoe(&[0, ip.ppp], ip)]))),
        ("pppoe compressed", each(|ip| in_ethernet(0x8864, &[&pppoe(&[ip.ppp], ip)]))),
        (
            "pppoe behind a tag",
            each(|ip| in_ethernet(0x8100, &[&[0, 7, 0x88, 0x64], &pppoe(&[0, ip.ppp], ip)])),
        ),
        (
            "pppoe mpls",
            each(|ip| in_ethernet(0x8864, &[&pppoe(&[&[2, 0x81][..], &label(1)].concat(), ip)])),
        ),
        ("mpls", mpls(&[])),
        ("mpls of ten labels", mpls(&label(0).repeat(9))),
        ("mpls multicast", each(|ip| in_ethernet(0x8848, &[&label(1), &ip.bytes]))),
        ("mpls padded", each(|ip| in_ethernet(0x8847, &[&label(1), &ip.bytes, &[0; 3]]))),
        (
            "mpls control word",
            each(|ip| in_ethernet(0x8847, &[&label(1), &[0, 0, 0, 1], &ip.bridged()])),
        ),
        ("mpls no control word", each(|ip| in_ethernet(0x8847, &[&label(1), &ip.bridged()]))),
        (
            "mpls channel",
            each(|ip| in_ethernet(0x8847, &[&label(1), &[0x10, 0, 0, ip.ppp], &ip.bytes])),
        ),
        ("snap", llc(0)),
        ("snap 802.1h", llc(0xf8)),
        (
            "snap behind a tag",
            each(|ip| {
                let frame = ip.snap(0);
                in_ethernet(0x8100, &[&with_type(&[0, 7], length(&frame)), &frame])
            }),
        ),
        // tshark takes IPv6 for a layer of IPv4 there.
        (
            "llc of ip",
            [1, 2, 2, 3]
                .map(v4)
                .iter()
                .map(|packet| in_ethernet(length(packet) + 3, &[&[6, 6, 3], packet]))
                .collect(),
        ),
        ("llc jumbo", each(|ip| in_ethernet(0x8870, &[&ip.snap(0)]))),
        ("macsec", each(|ip| macsec(&[0, 0, 0, 0, 0, 1], ip))),
        ("macsec sci", each(|ip| macsec(&[0x20, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 0, 1], ip))),
        ("sixteen tags", each(|ip| frames::ethernet(&[0x8100; 16], ip.ethertype, &ip.bytes))),
        ("fabricpath", bridged(0x8903, &[0x04, 0x64])),
        ("fabricpath and a tag", each(|ip| in_ethernet(0x8903, &[&[0x04, 0x64], &ip.tagged()]))),
        ("802.1ah", bridged(0x88e7, &[0, 0, 0x12, 0x34])),
        ("802.1ah behind a tag", bridged(0x88a8, &[0, 7, 0x88, 0xe7, 0, 0, 0x12, 0x34])),
        ("cisco metadata", fixed(0x8909, &[1, 1, 0, 1, 0, 5])),
        ("hsr", fixed(0x892f, &[0, 50, 0, 1])),
        ("802.1cb", fixed(0xf1c1, &[0, 0, 0, 1])),
        ("vn-tag", fixed(0x8926, &[0, 1, 0, 2])),
        ("802.1br", fixed(0x893f, &[0, 1, 0, 2, 0, 0])),
        ("bridged ethernet", bridged(0x6558, &[])),
        ("trill", bridged(0x22f3, &[0, 0x3f, 0, 1, 0, 2])),
        ("nsh", each(|ip| in_ethernet(0x894f, &[&nsh(6, 1, ip.nsh), &ip.bytes]))),
        (
            "nsh with variable metadata",
            each(|ip| in_ethernet(0x894f, &[&nsh(4, 2, ip.nsh), &ip.bytes])),
        ),
        ("nsh without metadata", each(|ip| in_ethernet(0x894f, &[&nsh(2, 2, ip.nsh), &ip.bytes]))),
        ("nsh of ethernet", each(|ip| in_ethernet(0x894f, &[&nsh(6, 1, 3), &ip.bridged()]))),
        (
            "nsh in nsh",
            each(|ip| in_ethernet(0x894f, &[&nsh(2, 2, 4), &nsh(6, 1, ip.nsh), &ip.bytes])),
        ),
        ("nsh of mpls", each(|ip| in_ethernet(0x894f, &[&nsh(6, 1, 5), &label(1), &ip.bytes]))),
        (
            "nsh behind a tag",
            each(|ip| in_ethernet(0x8100, &[&[0, 7, 0x89, 0x4f], &nsh(6, 1, ip.nsh), &ip.bytes])),
        ),
        ("trill with options", bridged(0x22f3, &[0, 0x7f, 0, 1, 0, 2, 0, 0, 0, 0])),
    ])
}

#[test]
fn ip_behind_every_encapsulation_counts_as_in_tshark() {
    if !has_tshark() {
        return;
    }
    agree(&Scratch::new("encapsulations"), encapsulations(), Header::Outermost, "");
}

/// Returns a UDP packet to a port, from a port without a registered protocol.
fn datagram(port: u16, parts: &[&[u8]]) -> Vec<u8> {
    let payload = parts.concat();
    let length = u16::try_from(8 + payload.len()).unwrap();
    [&[0xc0, 0x09], &port.to_be_bytes()[..], &length.to_be_bytes(), &[0, 0], &payload].concat()
}

/// Returns tunnels with the same outer header and different content.
fn tunnels() -> Vec<(String, Vec<Vec<u8>>)> {
    let outer = |protocol: u8, payload: &[u8]| {
        frames::ethernet(&[], 0x0800, &frames::ipv4([10, 9, 9, 9], protocol, payload))
    };
    let outer6 = |protocol: u8, payload: &[u8]| {
        frames::ethernet(&[], 0x86dd, &frames::ipv6(999, protocol, payload))
    };
    let gre_header = |flags: u16, ethertype: u16, parts: &[&[u8]]| {
        [&flags.to_be_bytes(), &ethertype.to_be_bytes()[..], &parts.concat()].concat()
    };
    let gre = |flags: u16, ethertype: u16, parts: &[&[u8]]| {
        outer(47, &gre_header(flags, ethertype, parts))
    };
    let vxlan = |rest: &[u8]| datagram(4789, &[&[8, 0, 0, 0, 0, 0, 0x64, 0], rest]);
    let gpe = |next: u8, parts: &[&[u8]]| {
        outer(17, &datagram(4790, &[&[0x0c, 0, 0, next, 0, 0, 0x64, 0], &parts.concat()]))
    };
    let geneve = |words: u8, ethertype: u16, rest: &[u8]| {
        let header = with_type(&[words, 0], ethertype);
        let options = vec![0_u8; usize::from(words) * 4];
        outer(17, &datagram(6081, &[&header, &[0, 0, 0x64, 0], &options, rest]))
    };
    let gtp = |flags: u8, fields: &[u8], ip: &Packet| {
        let length = u16::try_from(fields.len() + ip.bytes.len()).unwrap().to_be_bytes();
        outer(17, &datagram(2152, &[&[flags, 0xff], &length, &[0, 0, 0, 1], fields, &ip.bytes]))
    };
    let extension = |ip: &Packet| [ip.protocol, 0, 1, 4, 0, 0, 0, 0];
    named(vec![
        ("ip in ip", each(|ip| outer(ip.protocol, &ip.bytes))),
        ("ip in ipv6", each(|ip| outer6(ip.protocol, &ip.bytes))),
        (
            "ip in ipv6 behind an extension header",
            each(|ip| outer6(60, &[&extension(ip)[..], &ip.bytes].concat())),
        ),
        ("gre", each(|ip| gre(0, ip.ethertype, &[&ip.bytes]))),
        ("gre in ipv6", each(|ip| outer6(47, &gre_header(0, ip.ethertype, &[&ip.bytes])))),
        ("gre with all fields", each(|ip| gre(0xb000, ip.ethertype, &[&[0; 12], &ip.bytes]))),
        ("nvgre", each(|ip| gre(0x2000, 0x6558, &[&[0; 4], &ip.bridged()]))),
        ("gre mpls", each(|ip| gre(0, 0x8847, &[&label(1), &ip.bytes]))),
        ("gre ppp", each(|ip| gre(0, 0x880b, &[&[0, ip.ppp], &ip.bytes]))),
        ("erspan 1", each(|ip| gre(0, 0x88be, &[&ip.bridged()]))),
        (
            "erspan 2",
            each(|ip| {
                let header = [0, 0, 0, 1, 0x10, 1, 0, 0, 0, 0, 0, 0];
                gre(0x1000, 0x88be, &[&header, &ip.bridged()])
            }),
        ),
        (
            "erspan 3",
            each(|ip| {
                let header = [0, 0, 0, 1, 0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                gre(0x1000, 0x22eb, &[&header, &ip.bridged()])
            }),
        ),
        (
            "pptp",
            each(|ip| {
                let length = u16::try_from(ip.bytes.len() + 4).unwrap().to_be_bytes();
                let header = [0, 1, 0, 0, 0, 1, 0xff, 3, 0, ip.ppp];
                gre(0x3001, 0x880b, &[&length, &header, &ip.bytes])
            }),
        ),
        ("vxlan", each(|ip| outer(17, &vxlan(&ip.bridged())))),
        ("vxlan in ipv6", each(|ip| outer6(17, &vxlan(&ip.bridged())))),
        ("vxlan and a tag", each(|ip| outer(17, &vxlan(&ip.tagged())))),
        ("vxlan-gpe", each(|ip| gpe(ip.nsh, &[&ip.bytes]))),
        ("vxlan-gpe of ethernet", each(|ip| gpe(3, &[&ip.bridged()]))),
        ("vxlan-gpe of nsh", each(|ip| gpe(4, &[&nsh(6, 1, ip.nsh), &ip.bytes]))),
        ("vxlan-gpe of ethernet in nsh", each(|ip| gpe(4, &[&nsh(2, 2, 3), &ip.bridged()]))),
        ("gre of nsh", each(|ip| gre(0, 0x894f, &[&nsh(6, 1, ip.nsh), &ip.bytes]))),
        ("geneve", each(|ip| geneve(0, 0x6558, &ip.bridged()))),
        ("geneve with options", each(|ip| geneve(2, 0x6558, &ip.bridged()))),
        ("geneve of ip", each(|ip| geneve(0, ip.ethertype, &ip.bytes))),
        ("gtp", each(|ip| gtp(0x30, &[], ip))),
        ("gtp with a sequence number", each(|ip| gtp(0x32, &[0, 1, 0, 0], ip))),
        ("gtp with an extension header", each(|ip| gtp(0x34, &[0, 0, 0, 0x85, 1, 0x10, 9, 0], ip))),
        (
            "three tunnels",
            each(|ip| {
                let ip_in_ip = frames::ipv4([10, 9, 9, 7], ip.protocol, &ip.bytes);
                let in_gre = gre_header(0, 0x0800, &[&ip_in_ip]);
                outer(17, &vxlan(&inner(0x0800, &[&frames::ipv4([10, 9, 9, 8], 47, &in_gre)])))
            }),
        ),
        ("no tunnel", each(|ip| in_ethernet(ip.ethertype, &[&ip.bytes]))),
        (
            "arp in vxlan",
            (1..4).map(|_| outer(17, &vxlan(&inner(0x0806, &[&frames::arp()])))).collect(),
        ),
    ])
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
    // All at once.
    let file = write(&scratch, "tunnels", tunnels().remove(0).1, 0);
    for (options, said) in [("--inner", Some(true)), ("--inner=false", None), ("", None)] {
        let options = format!("--format json --sample-every never {options}");
        let records = parse(&replay(&file, &options).stdout);
        assert!(!records.is_empty());
        let mut inner = records.iter().map(|record| record.get("inner").and_then(Value::as_bool));
        assert!(inner.all(|inner| inner == said), "{options}: {records:?}");
    }
}

#[test]
fn an_ethertype_of_most_frames_that_is_not_opened_is_named_once() {
    let scratch = Scratch::new("unopened");
    let frame = |ethertype: u16| frames::ethernet(&[], ethertype, &[0; 46]);
    let warnings = |name: &str, ethertypes: Vec<u16>| {
        let frames = ethertypes.into_iter().map(frame).collect();
        let file = write(&scratch, name, frames, 1_000_000);
        let outcome = replay(file, "--format json --sample-every never --window 250ms");
        let warnings = outcome.stderr.lines().filter(|line| line.contains("EtherType"));
        warnings.map(str::to_owned).collect::<Vec<String>>()
    };
    // One of `every` frames has another EtherType.
    let mixed = |most: u16, other: u16, every: usize| -> Vec<u16> {
        (0..1000).map(|i| if i % every == 0 { other } else { most }).collect()
    };
    let said = warnings("mostly", mixed(0x88cc, 0x0800, 50));
    let [warning] = &said[..] else { panic!("{said:?}") };
    assert_has(warning, &["most frames (at least 98 %) are of EtherType 0x88cc (LLDP)"]);
    let few = warnings("few", vec![0x88cc; 90]);
    let half = warnings("half", mixed(0x0806, 0x88cc, 2));
    assert_eq!([few, half], [const { Vec::<String>::new() }; 2]);
}
