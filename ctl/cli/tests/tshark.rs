//! Comparison with tshark on the same captures: packets, families and exact numbers of distinct
//! addresses must agree.
//!
//! `TEST_CAPTURES=DIR` adds every *.pcap and *.pcapng in a directory.

use crate::common::frames::timed;
use crate::common::tshark::{Counted, Distinct, at_hand, by_flowgauge, dissect, has_tshark};
use crate::common::{SECOND, Scratch, frames, replay};
use flowgauge_dataplane::capture::build::{
    self, CapturePacket, ExtraBlock, InterfaceOptions, PacketBlock, PcapNgOptions, PcapOptions,
    PcapVariant,
};
use flowgauge_dataplane::capture::{Resolution, link_type};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Layers that may precede the network header: those that flowgauge decodes. Behind any other
/// layer, an IP header is not that of the frame.
#[rustfmt::skip]
const LINK_LAYERS: &[&str] = &[
    "eth", "ethertype", "vlan", "ieee8021ad", "ieee8021ah", "ieee8021cb", "etag", "vntag", "hsr", "cmd", "cfp", "trill", "macsec", "llc",
    "pppoes", "ppp", "mpls", "pwach", "pwethheuristic", "pwethcw", "pwethnocw", "sll", "null", "raw",
    // Only in captures.
    "tr", "fddi", "ipfc", "ap1394", "netanalyzer", "ipoib", "chdlc", "fr", "nflog",
    "wlan", "wlan_radio", "wlan_aggregate", "radiotap", "prism", "wlancap", "ppi", "pcap_pktdata",
];

/// IPv6 headers behind which the protocol of a packet is searched, by tshark's names: the layer,
/// and its field with the next one.
const EXTENSIONS: [(&str, &str); 8] = [
    ("ipv6.hopopts", "ipv6.hopopts.nxt"),
    ("ipv6.dstopts", "ipv6.dstopts.nxt"),
    ("ipv6.routing", "ipv6.routing.nxt"),
    ("ipv6.fraghdr", "ipv6.fraghdr.nxt"),
    ("ah", "ah.next_header"),
    ("mipv6", "mip6.proto"),
    ("hip", "hip.proto"),
    ("shim6", "shim6.nxt"),
];

/// Layers with ports, and their fields.
const PORTS: [(&str, [&str; 2]); 4] = [
    ("tcp", ["tcp.srcport", "tcp.dstport"]),
    ("udp", ["udp.srcport", "udp.dstport"]),
    ("udplite", ["udp.srcport", "udp.dstport"]),
    ("sctp", ["sctp.srcport", "sctp.dstport"]),
];

/// Line of tshark: the requested fields with all their values.
struct Line<'a>(HashMap<&'a str, &'a str>);

impl<'a> Line<'a> {
    /// Returns a value of a field; empty if there is none.
    fn value(&self, field: &str, number: usize) -> &'a str {
        self.0.get(field).and_then(|values| values.split(',').nth(number)).unwrap_or_default()
    }

    fn first(&self, field: &str) -> &'a str {
        self.value(field, 0)
    }

    /// Returns protocol and ports of the outermost packet, whose network header is layer number
    /// `network`.
    fn transport(&self, network: usize) -> String {
        let mut layers = self.first("frame.protocols").split(':').skip(network);
        let is_v6 = layers.next() == Some("ipv6");
        let mut protocol = self.first(if is_v6 { "ipv6.nxt" } else { "ip.proto" });
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for layer in layers {
            if let Some((_, next)) = EXTENSIONS.iter().find(|(name, _)| is_v6 && *name == layer) {
                let number = seen.entry(next).or_default();
                protocol = self.value(next, *number);
                *number += 1;
                continue;
            }
            let Some((_, [source, destination])) = PORTS.iter().find(|(name, _)| *name == layer)
            else {
                break;
            };
            let ports = (self.first(source), self.first(destination));
            return format!("{protocol} {} {}", ports.0, ports.1);
        }
        format!("{protocol} 0 0")
    }
}

/// Counts with tshark; `None` if it does not recognize the capture.
fn by_tshark(file: &Path) -> Option<Counted> {
    by_tshark_each(file, |_| 0).map(|mut counted| counted.remove(&0).unwrap_or_default())
}

/// Counts with tshark by a number that each interface of a capture has.
fn by_tshark_each(file: &Path, group: impl Fn(usize) -> usize) -> Option<HashMap<usize, Counted>> {
    let mut groups: HashMap<usize, Distinct> = HashMap::new();
    let mut fields = vec!["frame.interface_id", "frame.protocols", "nflog.family"];
    fields.extend(["ip.src", "ip.dst", "ip.proto", "ipv6.src", "ipv6.dst", "ipv6.nxt"]);
    fields.extend(EXTENSIONS.map(|(_, next)| next));
    fields.extend(["tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport"]);
    fields.extend(["sctp.srcport", "sctp.dstport"]);
    let output = dissect(file, &fields)
        // Do not reassemble fragments.
        .args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"])
        .output()
        .unwrap();
    // A truncated capture is a failure too, but has packets before the damage.
    if output.stdout.is_empty() && !output.status.success() {
        return None;
    }
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line = Line(fields.iter().copied().zip(line.split('\t')).collect());
        let interface = line.first("frame.interface_id").parse().unwrap_or_default();
        let distinct = groups.entry(group(interface)).or_default();
        distinct.add_packet();
        // In a tunnel or an ICMP error, the outer header comes first.
        let mut layers = line.first("frame.protocols").split(':').enumerate();
        let network = layers.find(|(_, layer)| !LINK_LAYERS.contains(layer));
        // tshark passes everything that netfilter logs to its IPv4 dissector, which detects the
        // version.
        let network = match network {
            Some((_, "ip")) if line.first("nflog.family") == "10" => layers.next(),
            network => network,
        };
        let Some((at, layer @ ("ip" | "ipv6"))) = network else { continue };
        let addresses = ["src", "dst"].map(|end| line.first(&format!("{layer}.{end}")));
        // tshark names the layer even if it cannot read the header.
        if !addresses.contains(&"") {
            distinct.add_header(layer, addresses, &line.transport(at));
        }
    }
    Some(groups.into_iter().map(|(group, distinct)| (group, distinct.counted())).collect())
}

#[track_caller]
fn agree(files: &[PathBuf]) {
    let expected = files.iter().map(|file| by_tshark(file));
    compare(files.iter().zip(expected), |counted| counted);
}

/// Compares captures of one link type each. tshark, which takes long to start, reads one with all.
#[track_caller]
fn agree_on_links(scratch: &Scratch, links: &[Frames], part: impl Fn(Counted) -> Counted) {
    let interfaces = links.iter().map(|links| InterfaceOptions {
        link_type: links.link_type,
        ..InterfaceOptions::default()
    });
    let options = PcapNgOptions { interfaces: interfaces.collect(), ..PcapNgOptions::default() };
    let on = |(interface, links): (u32, &Frames)| {
        let packets = links.packets.clone().into_iter();
        packets.map(move |packet| CapturePacket { interface, ..packet }).collect::<Vec<_>>()
    };
    let all: Vec<CapturePacket> = (0..).zip(links).flat_map(on).collect();
    let all = scratch.write("all.pcapng", build::pcapng(&options, &all));
    let mut expected = by_tshark_each(Path::new(&all), |interface| interface).unwrap();
    let files: Vec<PathBuf> = links.iter().map(|links| links.write(scratch)).collect();
    let expected = (0..files.len()).map(|interface| expected.remove(&interface));
    compare(files.iter().zip(expected), part);
}

/// Compares the part of the counts that `part` selects with what tshark counted.
#[track_caller]
fn compare<'a>(
    files: impl Iterator<Item = (&'a PathBuf, Option<Counted>)>,
    part: impl Fn(Counted) -> Counted,
) {
    let mut compared = 0;
    let differences: Vec<String> = files
        .filter_map(|(file, expected)| {
            compared += 1;
            let Some(expected) = expected.map(&part) else {
                return Some(format!("{}: tshark cannot read it", file.display()));
            };
            let counted = part(by_flowgauge(file, ""));
            (counted != expected).then(|| {
                format!("{}\n  tshark    {expected:?}\n  flowgauge {counted:?}", file.display())
            })
        })
        .collect();
    assert!(
        differences.is_empty(),
        "{} of {compared} captures differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// Returns an IPv4 header with an invalid field.
fn broken(packet: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut broken = packet.to_vec();
    broken[at..at + bytes.len()].copy_from_slice(bytes);
    broken
}

/// Returns IPv4 packets of every kind.
fn ipv4_packets() -> Vec<Vec<u8>> {
    let source = |host: u8| [10, 1, 2, host];
    let udp = frames::udp(b"telemetry");
    let plain = frames::ipv4(source(1), 17, &udp);
    let inner = frames::ipv4([172, 16, 0, 1], 17, &udp);
    let icmp_error = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &inner].concat();
    let timestamps = [0x44, 12, 5, 0, 0, 0, 0, 1, 0, 0, 0, 2];
    vec![
        plain.clone(),
        plain.clone(),
        frames::ipv4(
            source(2),
            6,
            &[0xc0, 1, 0xc0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0x20, 0, 0, 0, 0, 0],
        ),
        frames::ipv4_with(source(3), &[1; 40], 0, 17, &udp),
        frames::ipv4_with(source(4), &timestamps, 0, 17, &udp),
        frames::ipv4_with(source(5), &[], 0x2000, 17, &[&udp[..], &[0; 7]].concat()),
        frames::ipv4_with(source(5), &[], 0x0003, 17, &[0; 8]),
        frames::ipv4_with(source(6), &[], 0x1fff, 6, &[0xff; 8]),
        frames::ipv4_with(source(7), &[], 0x4000, 47, &[0, 0, 0x08, 0, 0x45]),
        frames::ipv4(source(8), 1, &icmp_error),
        frames::ipv4(source(9), 1, &[8, 0, 0, 0, 0, 1, 0, 1]),
        frames::ipv4(source(10), 4, &inner),
        frames::ipv4(source(11), 41, &frames::ipv6(77, 17, &udp)),
        frames::ipv4(source(12), 253, &[1, 2, 3]),
        frames::ipv4(source(13), 17, &[]),
        // Before segmentation offload, a sending host has no total length.
        broken(&frames::ipv4(source(14), 17, &udp), 2, &[0, 0]),
        // The header promises more than there is.
        broken(&frames::ipv4(source(15), 17, &udp), 2, &[5, 0xdc]),
        // Ethernet padding behind the packet.
        [&frames::ipv4(source(16), 17, &frames::udp(&[]))[..], &[0; 18]].concat(),
        // Contradictions: a header of 16 bytes, and a total length shorter than the header.
        broken(&frames::ipv4(source(17), 17, &udp), 0, &[0x44]),
        broken(&frames::ipv4(source(18), 17, &udp), 2, &[0, 19]),
        broken(&frames::ipv4_with(source(19), &[1; 8], 0, 17, &udp), 2, &[0, 27]),
        [0, 0, 0, 0].iter().chain(&plain[4..]).copied().collect(),
    ]
}

/// Returns IPv6 packets of every kind.
fn ipv6_packets() -> Vec<Vec<u8>> {
    let udp = frames::udp(b"telemetry");
    let padding = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let fragment = |next: u8, offset: u16, more: u8| {
        [next, 0, (offset >> 5) as u8, (offset << 3) as u8 | more, 0, 0, 0, 9]
    };
    let authentication = [17, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let inner = frames::ipv6(99, 17, &udp);
    let icmp_error = [&[1, 4, 0, 0, 0, 0, 0, 0][..], &inner].concat();
    vec![
        frames::ipv6(1, 17, &udp),
        frames::ipv6(1, 17, &udp),
        frames::ipv6(2, 0, &[&padding(17)[..], &udp].concat()),
        frames::ipv6(
            3,
            0,
            &[&padding(60)[..], &padding(43), &[17, 0, 4, 0, 0, 0, 0, 0], &udp].concat(),
        ),
        frames::ipv6(4, 44, &[&fragment(17, 0, 1)[..], &udp, &[0; 7]].concat()),
        frames::ipv6(4, 44, &[&fragment(17, 3, 0)[..], &[0; 8]].concat()),
        frames::ipv6(5, 51, &[&authentication[..], &udp].concat()),
        frames::ipv6(6, 58, &icmp_error),
        frames::ipv6(7, 58, &[128, 0, 0, 0, 0, 1, 0, 1]),
        frames::ipv6(8, 4, &frames::ipv4([172, 16, 0, 1], 17, &udp)),
        frames::ipv6(9, 41, &inner),
        frames::ipv6(10, 59, &[]),
        frames::ipv6(11, 17, &[]),
        frames::ipv6(12, 253, &[1, 2, 3]),
        // The header promises more than there is.
        broken(&frames::ipv6(13, 17, &udp), 4, &[5, 0xdc]),
    ]
}

/// Returns every packet behind an Ethernet header, tagged or not, and frames without IP.
fn ethernet_frames() -> Vec<Vec<u8>> {
    let (v4, v6) = (ipv4_packets(), ipv6_packets());
    let udp = frames::udp(&[]);
    let tagged = |tags: &[u16], host: u8| {
        [
            frames::ethernet(tags, 0x0800, &frames::ipv4([10, 9, 9, host], 17, &udp)),
            frames::ethernet(tags, 0x86dd, &frames::ipv6(900 + u32::from(host), 17, &udp)),
        ]
    };
    let mut all: Vec<Vec<u8>> =
        v4.iter().map(|packet| frames::ethernet(&[], 0x0800, packet)).collect();
    all.extend(v6.iter().map(|packet| frames::ethernet(&[], 0x86dd, packet)));
    all.extend(
        [&[0x8100][..], &[0x88a8], &[0x88a8, 0x8100], &[0x8100, 0x8100], &[0x8100; 4]]
            .iter()
            .zip(1..)
            .flat_map(|(tags, host)| tagged(tags, host)),
    );
    let mpls = [&[0, 1, 1, 64][..], &v4[0]].concat();
    let pppoe = [&[0x11, 0, 0, 1, 0, 42, 0, 0x21][..], &v4[0]].concat();
    let llc = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &v4[0]].concat();
    all.extend([
        frames::ethernet(&[], 0x0806, &frames::arp()),
        frames::ethernet(&[0x8100], 0x0806, &frames::arp()),
        frames::ethernet(&[], 0x88cc, &[0, 0]),
        frames::ethernet(&[], 0x8847, &mpls),
        frames::ethernet(&[], 0x8864, &pppoe),
        frames::ethernet(&[], llc.len() as u16, &llc),
        frames::ethernet(&[], 0x88b5, &v4[0]),
    ]);
    all
}

/// Returns every packet truncated to a snapshot length, except within IPv4 options: tshark takes
/// the destination from behind them (a source route may change it) and then has none, while a flow
/// key only needs the fixed header.
fn cut(
    packets: &[CapturePacket],
    network: usize,
    snaplen: usize,
) -> impl Iterator<Item = CapturePacket> {
    let whole = move |frame: &[u8]| {
        let options = match frame[network] {
            version_ihl @ 0x46..=0x4f => {
                network + 20..network + usize::from(version_ihl & 0x0f) * 4
            }
            _ => 0..0,
        };
        frame.len() <= snaplen || !options.contains(&snaplen)
    };
    packets.iter().filter(move |packet| whole(&packet.frame)).map(move |packet| CapturePacket {
        frame: packet.frame[..packet.frame.len().min(snaplen)].to_vec(),
        ..packet.clone()
    })
}

/// Frames of one link type. To add an encapsulation, add one of these to [`links`], and the names
/// of its layers in tshark to [`LINK_LAYERS`].
struct Frames {
    name: &'static str,
    link_type: u16,
    /// Offset of the network header in all of them, if there is one: they are truncated there as
    /// well.
    network: Option<usize>,
    packets: Vec<CapturePacket>,
}

impl Frames {
    fn new(
        name: &'static str,
        link_type: u16,
        network: Option<usize>,
        frames: impl IntoIterator<Item = Vec<u8>>,
    ) -> Self {
        Frames { name, link_type, network, packets: timed(frames, SECOND) }
    }

    /// Returns every packet behind a header of some length, which is made from an EtherType.
    fn behind(name: &'static str, link_type: u16, header: impl Fn(u16) -> Vec<u8>) -> Self {
        Frames::new(name, link_type, Some(header(0x0800).len()), behind(header))
    }

    /// Appends more frames.
    fn and(self, more: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let frames = self.packets.into_iter().map(|packet| packet.frame).chain(more);
        Frames::new(self.name, self.link_type, self.network, frames)
    }

    /// Writes them to a capture.
    fn write(&self, scratch: &Scratch) -> PathBuf {
        let options = PcapOptions { network: self.link_type.into(), ..PcapOptions::default() };
        scratch.write(&format!("{}.pcap", self.name), build::pcap(&options, &self.packets)).into()
    }
}

/// Returns every packet behind a header, which is made from an EtherType.
fn behind(header: impl Fn(u16) -> Vec<u8>) -> Vec<Vec<u8>> {
    every_packet().map(|(ethertype, packet)| [header(ethertype), packet].concat()).collect()
}

/// Returns every packet with its EtherType.
fn every_packet() -> impl Iterator<Item = (u16, Vec<u8>)> {
    let v4 = ipv4_packets().into_iter().map(|packet| (0x0800, packet));
    v4.chain(ipv6_packets().into_iter().map(|packet| (0x86dd, packet)))
}

/// Returns frames of every supported link type.
fn links() -> Vec<Frames> {
    let (v4, v6) = (ipv4_packets()[0].clone(), ipv6_packets()[0].clone());
    let family = |ethertype: u16| if ethertype == 0x0800 { 2_u32 } else { 30 };
    let sll = |protocol: u16| {
        [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &protocol.to_be_bytes()].concat()
    };
    let sll2 = |protocol: u16| {
        [&protocol.to_be_bytes()[..], &[0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]]
            .concat()
    };
    let cooked = [
        [sll(0x8100), vec![0, 5, 8, 0], v4.clone()].concat(),
        [sll(0x0806), frames::arp()].concat(),
        [sll(0x0004), vec![0x42, 0x42, 3, 0, 0, 0, 0, 0]].concat(),
    ];
    // Values for IPv6 on the systems with this link type, and one without IP.
    let loopback = [24, 28, 30, 7]
        .map(|family: u32| [&family.to_le_bytes()[..], &frames::ipv6(family, 59, &[])].concat());
    let (snap, token_ring) =
        (|ethertype| llc(&[0, 0, 0], ethertype), [0x10, 0x40, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    // With a frame check sequence.
    let checked = ethernet_frames();
    let checked = checked.iter().map(|frame| [&[0, 4, 0, 0][..], frame, &[0; 4]].concat());
    let mut all = vec![
        Frames::new("ethernet", link_type::ETHERNET, Some(14), ethernet_frames()),
        Frames::behind("raw", link_type::RAW, |_| Vec::new()),
        Frames::new("ipv4", link_type::IPV4, Some(0), ipv4_packets()),
        Frames::new("ipv6", link_type::IPV6, Some(0), ipv6_packets()),
        Frames::behind("sll", link_type::LINUX_SLL, sll).and(cooked),
        Frames::behind("sll2", link_type::LINUX_SLL2, sll2)
            .and([[sll2(0x0806), frames::arp()].concat()]),
        Frames::behind("null", link_type::NULL, |ethertype| {
            family(ethertype).to_le_bytes().to_vec()
        })
        .and(loopback),
        Frames::behind("loop", link_type::LOOP, |ethertype| {
            family(ethertype).to_be_bytes().to_vec()
        }),
        Frames::behind("cisco-hdlc", link_type::C_HDLC, |ethertype| {
            numbered(&[0x0f, 0], ethertype)
        }),
        Frames::behind("ipoib", link_type::IPOIB, |ethertype| {
            [numbered(&[0; 40], ethertype), vec![0, 0]].concat()
        }),
        Frames::behind("token-ring", link_type::IEEE802_5, |ethertype| {
            [token_ring.to_vec(), snap(ethertype)].concat()
        }),
        Frames::behind("fddi", link_type::FDDI, |ethertype| {
            [vec![0x54; 13], snap(ethertype)].concat()
        }),
        Frames::behind("atm", link_type::ATM_RFC1483, snap),
        Frames::behind("fibre-channel", link_type::IP_OVER_FC, |ethertype| {
            [vec![2; 16], snap(ethertype)].concat()
        }),
        Frames::behind("firewire", link_type::APPLE_IP_OVER_IEEE1394, |ethertype| {
            numbered(&[2; 16], ethertype)
        }),
        Frames::new("netanalyzer", link_type::NETANALYZER, None, checked),
    ];
    all.extend(point_to_point(&v4, &v6));
    all.extend(frame_relay(&v4));
    all.extend(logged());
    all.extend(wireless(&v4, &v6));
    all
}

fn numbered(before: &[u8], number: u16) -> Vec<u8> {
    [before, &number.to_be_bytes()].concat()
}

/// Returns LLC and SNAP with the number of an organization.
fn llc(organisation: &[u8], ethertype: u16) -> Vec<u8> {
    numbered(&[&[0xaa, 0xaa, 3], organisation].concat(), ethertype)
}

fn point_to_point(v4: &[u8], v6: &[u8]) -> Vec<Frames> {
    let ppp = |ethertype| if ethertype == 0x0800 { 0x0021 } else { 0x0057 };
    let lcp = [0xc0, 0x21, 9, 1, 0, 8, 0, 0, 0, 1];
    let others = [
        [&[0x21][..], v4].concat(),
        [&[0x57][..], v6].concat(),
        [&[0xff, 3, 0x57][..], v6].concat(),
        [&[0, 0x21][..], v4].concat(),
        [&[0xff, 3][..], &lcp].concat(),
        lcp.to_vec(),
        [&[0xff, 3, 2, 0x81, 0, 1, 1, 64][..], v4].concat(),
        [&[0x0f, 0, 8, 0][..], v4].concat(),
        [&[0x8f, 0, 0x86, 0xdd][..], v6].concat(),
    ];
    let framed = move |ethertype| numbered(&[0xff, 3], ppp(ethertype));
    let session = |(ethertype, packet): (u16, Vec<u8>)| {
        let header = numbered(&numbered(&[0x11, 0, 0, 1], packet.len() as u16 + 2), ppp(ethertype));
        [header, packet].concat()
    };
    let directed = behind(framed).into_iter().map(|frame| [&[1][..], &frame].concat());
    vec![
        Frames::behind("ppp", link_type::PPP, framed),
        Frames::new("ppp-others", link_type::PPP, None, others.to_vec()),
        Frames::behind("ppp-hdlc", link_type::PPP_HDLC, framed),
        Frames::new("ppp-hdlc-others", link_type::PPP_HDLC, None, others.to_vec()),
        Frames::new("ppp-ether", link_type::PPP_ETHER, Some(8), every_packet().map(session)),
        Frames::new("ppp-with-dir", link_type::PPP_WITH_DIR, None, directed),
    ]
}

fn frame_relay(v4: &[u8]) -> Vec<Frames> {
    let nlpid = |ethertype| if ethertype == 0x0800 { 0xcc } else { 0x8e };
    let circuit = [0x18, 0x41];
    let others = vec![
        // Signalling, an exchange of identifications, an address of four bytes, PPP, and bridged
        // Ethernet.
        [&[0x00, 0x01, 3, 0xcc][..], v4].concat(),
        vec![0x00, 0x01, 0x03, 0x08, 0x00, 0x75, 0x95, 0x01, 0x01, 0x01],
        [&circuit[..], &[0xaf, 0x82, 0x80, 0, 0]].concat(),
        [&[0x18, 0x40, 0x10, 0x01, 3, 0xcc][..], v4].concat(),
        [&circuit[..], &[3, 0xcf, 0, 0x21], v4].concat(),
        [&circuit[..], &[3, 0, 0xcc], v4].concat(),
    ];
    vec![
        Frames::behind("frame-relay", link_type::FRELAY, |ethertype| {
            vec![0x18, 0x41, 3, nlpid(ethertype)]
        }),
        Frames::behind("frame-relay-snap", link_type::FRELAY, |ethertype| {
            numbered(&[0x18, 0x41, 3, 0, 0x80, 0, 0, 0], ethertype)
        }),
        Frames::behind("frame-relay-cisco", link_type::FRELAY, |ethertype| {
            numbered(&circuit, ethertype)
        }),
        Frames::new("frame-relay-others", link_type::FRELAY, None, others),
    ]
}

/// Returns frames logged by netfilter, and frames with a PPI header.
fn logged() -> Vec<Frames> {
    // In the byte order of the machine, which tshark assumes.
    let attribute = |kind: u16, value: &[u8]| {
        let mut bytes =
            [&(value.len() as u16 + 4).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let nflog = |(ethertype, packet): (u16, Vec<u8>)| {
        let family = if ethertype == 0x0800 { 2 } else { 10 };
        let before =
            [&[family, 0, 0, 7][..], &attribute(1, &[8, 0, 3, 0]), &attribute(10, b"log\0\0")]
                .concat();
        [before, attribute(9, &packet), attribute(4, &[0, 0, 0, 2])].concat()
    };
    let ppi = |name, inner: u16, frames: Vec<Vec<u8>>| {
        let header =
            [&[0, 0, 20, 0][..], &u32::from(inner).to_le_bytes(), &[0x30, 0x75, 8, 0], &[0; 8]]
                .concat();
        let frames = frames.into_iter().map(|frame| [&header[..], &frame].concat());
        Frames::new(name, link_type::PPI, None, frames)
    };
    let radio = wireless_frames(&ipv4_packets()[0], &ipv6_packets()[0]);
    let ppp = behind(|ethertype| vec![if ethertype == 0x0800 { 0x21 } else { 0x57 }]);
    vec![
        Frames::new("nflog", link_type::NFLOG, None, every_packet().map(nflog)),
        ppi("ppi-ethernet", link_type::ETHERNET, ethernet_frames()),
        ppi("ppi-wireless", link_type::IEEE802_11, radio),
        ppi("ppi-ppp", link_type::PPP, ppp),
    ]
}

/// Returns an 802.11 header with this frame control: three addresses or four, and the fields that
/// the flags require behind them.
fn wireless_header(control: u16, qos: u16) -> Vec<u8> {
    let mut header = [&control.to_le_bytes()[..], &[0, 0], &[2; 18], &[0x10, 0]].concat();
    if control & 0x0300 == 0x0300 {
        header.extend([2, 0, 0, 0, 0, 9]);
    }
    if control & 0x0080 != 0 {
        header.extend(qos.to_le_bytes());
        if control & 0x8000 != 0 {
            header.extend([0; 4]);
        }
    }
    header
}

/// Returns every kind of 802.11 frame.
fn wireless_frames(v4: &[u8], v6: &[u8]) -> Vec<Vec<u8>> {
    let snap = |ethertype| llc(&[0, 0, 0], ethertype);
    let data = |control, qos| [wireless_header(control, qos), snap(0x0800), v4.to_vec()].concat();
    // Two packets in one frame, the first one padded to four bytes.
    let part = |ethertype, packet: &[u8]| {
        let mut part =
            [numbered(&[2; 12], packet.len() as u16 + 8), snap(ethertype), packet.to_vec()]
                .concat();
        part.resize(part.len().next_multiple_of(4), 0);
        part
    };
    let mut last_fragment = [wireless_header(0x0008, 0), vec![0x55; 30]].concat();
    last_fragment[22] = 1;
    let mesh = |flags: u8| [vec![flags, 31, 1, 0, 0, 0], vec![2; 6 * usize::from(flags)]].concat();
    vec![
        data(0x0008, 0),
        data(0x0108, 0),
        data(0x0208, 0),
        data(0x0308, 0),
        data(0x0088, 0),
        data(0x0188, 5),
        data(0x0388, 0),
        // With an HT control field.
        data(0x8188, 0),
        // Protected, and without data.
        data(0x4188, 0),
        wireless_header(0x0148, 0),
        wireless_header(0x01c8, 0),
        [wireless_header(0x0208, 0), llc(&[0, 0, 0xf8], 0x86dd), v6.to_vec()].concat(),
        [wireless_header(0x0208, 0), snap(0x888e), vec![1, 1, 0, 0]].concat(),
        [wireless_header(0x0208, 0), snap(0x0806), frames::arp()].concat(),
        [wireless_header(0x0208, 0), vec![0x42, 0x42, 3], vec![0; 35]].concat(),
        [wireless_header(0x0288, 0x0080), part(0x0800, v4), part(0x86dd, v6)].concat(),
        [wireless_header(0x0388, 0x0100), mesh(0), snap(0x0800), v4.to_vec()].concat(),
        [wireless_header(0x0388, 0x0100), mesh(1), snap(0x86dd), v6.to_vec()].concat(),
        // A beacon and an acknowledgement.
        [wireless_header(0x0080, 0), vec![0; 12]].concat(),
        vec![0xd4, 0, 0, 0, 2, 0, 0, 0, 0, 1],
        last_fragment,
    ]
}

fn wireless(v4: &[u8], v6: &[u8]) -> Vec<Frames> {
    let station = |ethertype| [wireless_header(0x0188, 0), llc(&[0, 0, 0], ethertype)].concat();
    let within = |header: Vec<u8>| {
        let frames = behind(station).into_iter().chain(wireless_frames(v4, v6));
        frames.map(move |frame| [&header[..], &frame].concat())
    };
    // A timer, flags, a rate and a channel. The timer is at a multiple of eight bytes, and two
    // words say which fields are present.
    let radiotap = |flags: u8| {
        let present = [&0x8000_000f_u32.to_le_bytes()[..], &0_u32.to_le_bytes()].concat();
        [&[0, 0, 32, 0][..], &present, &[0; 4], &[7; 8], &[flags, 2], &[0x6c, 9, 0xa0, 0], &[0; 2]]
            .concat()
    };
    let padded = |ethertype| {
        let header = [wireless_header(0x0188, 0), vec![0, 0], llc(&[0, 0, 0], ethertype)].concat();
        [radiotap(0x20), header].concat()
    };
    let empty_radiotap = vec![0, 0, 8, 0, 0, 0, 0, 0];
    let prism = [&0x44_u32.to_le_bytes()[..], &144_u32.to_le_bytes(), &[0; 136]].concat();
    let avs = [&0x8021_1001_u32.to_be_bytes()[..], &64_u32.to_be_bytes(), &[0; 56]].concat();
    vec![
        Frames::behind("wireless", link_type::IEEE802_11, station),
        Frames::new("wireless-others", link_type::IEEE802_11, None, wireless_frames(v4, v6)),
        Frames::new("radiotap", link_type::IEEE802_11_RADIOTAP, None, within(empty_radiotap)),
        Frames::new("radiotap-fields", link_type::IEEE802_11_RADIOTAP, None, within(radiotap(0))),
        Frames::new("radiotap-padded", link_type::IEEE802_11_RADIOTAP, None, behind(padded)),
        Frames::new("prism", link_type::IEEE802_11_PRISM, None, within(prism)),
        Frames::new("avs", link_type::IEEE802_11_AVS, None, within(avs.clone())),
        Frames::new("avs-as-prism", link_type::IEEE802_11_PRISM, None, within(avs)),
    ]
}

#[test]
fn every_link_type_counts_as_in_tshark() {
    if !has_tshark() {
        return;
    }
    agree_on_links(&Scratch::new("tshark-links"), &links(), |counted| counted);
}

#[test]
fn every_format_counts_as_in_tshark() {
    if !has_tshark() {
        return;
    }
    let scratch = Scratch::new("tshark-formats");
    let packets = timed(ethernet_frames(), SECOND);
    let mut files: Vec<PathBuf> = Vec::new();
    let mut write = |name: &str, capture: Vec<u8>| files.push(scratch.write(name, capture).into());
    for big_endian in [false, true] {
        for variant in [PcapVariant::Microseconds, PcapVariant::Nanoseconds, PcapVariant::Modified]
        {
            let options = PcapOptions { variant, big_endian, ..PcapOptions::default() };
            write(&format!("{variant:?}-{big_endian}.pcap"), build::pcap(&options, &packets));
        }
        for block in [PacketBlock::Enhanced, PacketBlock::Simple, PacketBlock::Obsolete] {
            let packets: Vec<CapturePacket> =
                packets.iter().map(|packet| CapturePacket { block, ..packet.clone() }).collect();
            let options = PcapNgOptions {
                big_endian,
                comment: "as it came".to_owned(),
                ..PcapNgOptions::default()
            };
            write(&format!("{block:?}-{big_endian}.pcapng"), build::pcapng(&options, &packets));
        }
    }
    // Versions whose records have the two lengths swapped, with truncated packets.
    let cut: Vec<CapturePacket> = packets
        .iter()
        .map(|packet| CapturePacket { wire: packet.wire + 400, ..packet.clone() })
        .collect();
    for (version, original_first) in
        [((2, 0), true), ((2, 2), true), ((2, 3), false), ((2, 3), true)]
    {
        let options = PcapOptions { version, original_first, ..PcapOptions::default() };
        write(&format!("{version:?}-{original_first}.pcap"), build::pcap(&options, &cut));
    }
    // Features that few programs write: clocks of any resolution, many interfaces, long comments,
    // and other blocks of any length.
    use Resolution::{PowerOf2, PowerOf10};
    let clocks = (0..=12).map(PowerOf10).chain((0..=34).map(PowerOf2));
    let mut interfaces: Vec<InterfaceOptions> = clocks
        .map(|clock| InterfaceOptions { resolution: Some(clock), ..InterfaceOptions::default() })
        .collect();
    interfaces.extend((0..300).map(|hours| InterfaceOptions {
        offset_seconds: hours * 3600,
        ..InterfaceOptions::default()
    }));
    let spread: Vec<CapturePacket> = (0..interfaces.len() as u32)
        .zip(packets.iter().cycle())
        .map(|(interface, packet)| CapturePacket { interface, ..packet.clone() })
        .collect();
    // Name resolution, secrets, and two unknown types.
    let extra = [(3, 4, 4), (9, 10, 8), (20, 0x7777, 3 << 20), (400, 0x8000_0001, 40)].map(
        |(before, block_type, length)| ExtraBlock { before, block_type, body: vec![0; length] },
    );
    let options = PcapNgOptions {
        interfaces,
        extra: extra.to_vec(),
        comment: "long ".repeat(12_000),
        ..PcapNgOptions::default()
    };
    write("odd.pcapng", build::pcapng(&options, &spread));
    // All link types in one file, each with another resolution, in two sections of different byte
    // orders.
    let resolutions = [
        None,
        Some(Resolution::NANOSECONDS),
        Some(Resolution::PowerOf10(3)),
        Some(Resolution::PowerOf2(20)),
    ];
    let mut interfaces = Vec::new();
    let mut packets = Vec::new();
    for (index, Frames { name, link_type, packets: frames, .. }) in links().into_iter().enumerate()
    {
        let resolution = resolutions[index % resolutions.len()];
        interfaces.push(InterfaceOptions {
            link_type,
            name: Some(name.to_owned()),
            resolution,
            ..InterfaceOptions::default()
        });
        packets.extend(
            frames.into_iter().map(|packet| CapturePacket { interface: index as u32, ..packet }),
        );
    }
    let mut mixed = Vec::new();
    for big_endian in [false, true] {
        let options = PcapNgOptions {
            big_endian,
            interfaces: interfaces.clone(),
            ..PcapNgOptions::default()
        };
        // In a big-endian section, tshark assumes that netfilter's log is big-endian too.
        let nflog = |packet: &CapturePacket| {
            interfaces
                .get(packet.interface as usize)
                .is_some_and(|one| one.link_type == link_type::NFLOG)
        };
        let packets: Vec<CapturePacket> =
            packets.iter().filter(|packet| !big_endian || !nflog(packet)).cloned().collect();
        mixed.extend(build::pcapng(&options, &packets));
    }
    write("mixed.pcapng", mixed);
    agree(&files);
}

#[test]
fn every_snapshot_length_counts_as_in_tshark() {
    if !has_tshark() {
        return;
    }
    // All lengths in one file, up to beyond the headers of the longest frames.
    let links: Vec<Frames> = links()
        .into_iter()
        .filter_map(|Frames { name, link_type, network, packets }| {
            let start = network?;
            let packets = (0..120).flat_map(|snaplen| cut(&packets, start, snaplen)).collect();
            Some(Frames { name, link_type, network, packets })
        })
        .collect();
    // tshark reports the ports of a truncated transport header as far as they go.
    let no_ports = |counted| Counted { tuples: 0, ..counted };
    agree_on_links(&Scratch::new("tshark-snaplen"), &links, no_ports);
}

/// By default, the output of a run is read by people.
#[test]
fn no_capture_prints_hundreds_of_lines_by_default() {
    let scratch = Scratch::new("tshark-lines");
    let mut files: Vec<PathBuf> = links().iter().map(|links| links.write(&scratch)).collect();
    files.extend(at_hand());
    for file in files {
        let outcome = replay(&file, "");
        let lines = outcome.stdout.lines().count() + outcome.stderr.lines().count();
        assert!(lines < 500, "{lines} lines about {}", file.display());
    }
}

#[test]
fn captures_at_hand_count_as_in_tshark() {
    if !has_tshark() {
        return;
    }
    let mut files = at_hand();
    let all = files.len();
    files.retain(|file| {
        let readable = by_tshark(file).is_some();
        if !readable {
            println!("not compared: tshark cannot read {}", file.display());
        }
        readable
    });
    assert!(files.len() * 2 >= all, "tshark reads {} of {all} captures", files.len());
    agree(&files);
}
