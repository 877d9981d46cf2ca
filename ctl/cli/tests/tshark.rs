//! The same captures counted by tshark: packets, families and exact numbers of distinct addresses must agree.
//!
//! `FLOWGAUGE_CAPTURES=DIR` adds every *.pcap and *.pcapng in a directory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{SECOND, START, Scratch, frames, number, parse, replay, total};
use flowgauge_dataplane::capture::build::{self, InterfaceOptions, Packet, PacketBlock, PcapNgOptions, PcapOptions, PcapVariant};
use flowgauge_dataplane::capture::{Resolution, link_type};
use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What both programs find in a capture.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    packets: u64,
    ipv4: u64,
    ipv6: u64,
    sources: u64,
    destinations: u64,
    pairs: u64,
}

fn tshark() -> Command {
    let mut command = Command::new("tshark");
    // No configuration, no names, and no complaints about running as root.
    command.env("HOME", "/tmp").env("WIRESHARK_CONFIG_DIR", "/nonexistent").arg("-n");
    command
}

fn has_tshark() -> bool {
    let found = tshark().arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: needs tshark");
    }
    found
}

/// Layers that may precede the network header: what is opened. Behind anything else an IP header is not the frame's own.
#[rustfmt::skip]
const LINK_LAYERS: &[&str] = &[
    "eth", "ethertype", "vlan", "ieee8021ad", "ieee8021ah", "ieee8021cb", "etag", "vntag", "hsr", "cmd", "cfp", "trill", "macsec", "llc",
    "pppoes", "ppp", "mpls", "pwach", "pwethheuristic", "pwethcw", "pwethnocw", "sll", "null", "raw",
];

/// `None` if it is no capture to tshark.
fn by_tshark(file: &Path) -> Option<Counted> {
    let mut counted = Counted::default();
    let [mut sources, mut destinations, mut pairs] = [const { Vec::new() }; 3];
    let fields = ["frame.protocols", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst"];
    let output = tshark()
        .arg("-r")
        .arg(file)
        .args(["-T", "fields", "-E", "occurrence=f", "-E", "separator=/t"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .unwrap();
    // A capture that is cut is a failure as well, but has packets before the cut.
    if output.stdout.is_empty() && !output.status.success() {
        return None;
    }
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let [protocols, source4, destination4, source6, destination6] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        counted.packets += 1;
        // In a tunnel or an ICMP error, the outer header is the one that comes first.
        let network = protocols.split(':').find(|layer| !LINK_LAYERS.contains(layer));
        let (family, source, destination) = match network {
            Some("ip") => (&mut counted.ipv4, source4, destination4),
            Some("ipv6") => (&mut counted.ipv6, source6, destination6),
            _ => continue,
        };
        // tshark names the layer also where it cannot read the header.
        if source.is_empty() || destination.is_empty() {
            continue;
        }
        *family += 1;
        sources.push(source.to_owned());
        destinations.push(destination.to_owned());
        pairs.push(format!("{source} {destination}"));
    }
    [counted.sources, counted.destinations, counted.pairs] =
        [sources, destinations, pairs].map(|all| all.into_iter().collect::<HashSet<String>>().len() as u64);
    Some(counted)
}

fn by_flowgauge(file: &Path) -> Counted {
    let [counted, by_destination, by_pair] = [("src", 1), ("dst", 1), ("src-dst", 3)].map(|(key, workers)| {
        let options = format!("--truth --window 100days --read-every never --format json --key {key} --workers {workers}");
        // Damage is not the matter here: both programs read up to it.
        let outcome = replay(file, &options);
        let records = parse(&outcome.stdout);
        let total = total(&records);
        let [packets, ipv4, ipv6] = ["packets", "ipv4_packets", "ipv6_packets"].map(|key| number(total, key));
        Counted { packets, ipv4, ipv6, sources: number(&total["cardinality"], "truth"), ..Counted::default() }
    });
    Counted { destinations: by_destination.sources, pairs: by_pair.sources, ..counted }
}

#[track_caller]
fn agree(files: &[PathBuf]) {
    let compare = |file: &PathBuf| {
        let expected = by_tshark(file).unwrap_or_else(|| panic!("tshark cannot read {}", file.display()));
        let counted = by_flowgauge(file);
        (counted != expected).then(|| format!("{}\n  tshark    {expected:?}\n  flowgauge {counted:?}", file.display()))
    };
    let differences: Vec<String> = files.iter().filter_map(compare).collect();
    assert!(differences.is_empty(), "{} of {} captures differ:\n{}", differences.len(), files.len(), differences.join("\n"));
}

/// An IPv4 header with a field set wrong.
fn broken(packet: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut broken = packet.to_vec();
    broken[at..at + bytes.len()].copy_from_slice(bytes);
    broken
}

/// IPv4 packets of every kind.
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
        frames::ipv4(source(2), 6, &[0xc0, 1, 0xc0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0x20, 0, 0, 0, 0, 0]),
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
        // Before segmentation offload a sending host sees no total length.
        broken(&frames::ipv4(source(14), 17, &udp), 2, &[0, 0]),
        // More promised than there is.
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

/// IPv6 packets of every kind.
fn ipv6_packets() -> Vec<Vec<u8>> {
    let udp = frames::udp(b"telemetry");
    let padding = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let fragment = |next: u8, offset: u16, more: u8| [next, 0, (offset >> 5) as u8, (offset << 3) as u8 | more, 0, 0, 0, 9];
    let authentication = [17, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let inner = frames::ipv6(99, 17, &udp);
    let icmp_error = [&[1, 4, 0, 0, 0, 0, 0, 0][..], &inner].concat();
    vec![
        frames::ipv6(1, 17, &udp),
        frames::ipv6(1, 17, &udp),
        frames::ipv6(2, 0, &[&padding(17)[..], &udp].concat()),
        frames::ipv6(3, 0, &[&padding(60)[..], &padding(43), &[17, 0, 4, 0, 0, 0, 0, 0], &udp].concat()),
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
        // More promised than there is.
        broken(&frames::ipv6(13, 17, &udp), 4, &[5, 0xdc]),
    ]
}

/// Every packet behind an Ethernet header, tagged or not, and what is no IP.
fn ethernet_frames() -> Vec<Vec<u8>> {
    let (v4, v6) = (ipv4_packets(), ipv6_packets());
    let udp = frames::udp(&[]);
    let tagged = |tags: &[u16], host: u8| {
        [
            frames::ethernet(tags, 0x0800, &frames::ipv4([10, 9, 9, host], 17, &udp)),
            frames::ethernet(tags, 0x86dd, &frames::ipv6(900 + u32::from(host), 17, &udp)),
        ]
    };
    let mut all: Vec<Vec<u8>> = v4.iter().map(|packet| frames::ethernet(&[], 0x0800, packet)).collect();
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

fn timed(frames: Vec<Vec<u8>>) -> Vec<Packet> {
    frames.into_iter().zip(0..).map(|(frame, i)| Packet::new(START + i * SECOND, frame)).collect()
}

/// Every packet cut to a snapshot length, without those cut inside IPv4 options: tshark takes the destination from behind them
/// (a source route may change it) and then has none, while a flow key needs no more than the fixed header.
fn cut(packets: &[Packet], network: usize, snaplen: usize) -> impl Iterator<Item = Packet> {
    let whole = move |frame: &[u8]| {
        let options = match frame[network] {
            version_ihl @ 0x46..=0x4f => network + 20..network + usize::from(version_ihl & 0x0f) * 4,
            _ => 0..0,
        };
        frame.len() <= snaplen || !options.contains(&snaplen)
    };
    packets
        .iter()
        .filter(move |packet| whole(&packet.frame))
        .map(move |packet| Packet { frame: packet.frame[..packet.frame.len().min(snaplen)].to_vec(), ..packet.clone() })
}

/// Frames of every link type that is understood, with the length of its header.
fn links() -> Vec<(&'static str, u16, usize, Vec<Packet>)> {
    let both: Vec<(u16, u32, Vec<u8>)> = ipv4_packets()
        .into_iter()
        .map(|packet| (0x0800, 2, packet))
        .chain(ipv6_packets().into_iter().map(|packet| (0x86dd, 30, packet)))
        .collect();
    let every = |header: &dyn Fn(u16, u32) -> Vec<u8>| {
        timed(both.iter().map(|(ethertype, family, packet)| [&header(*ethertype, *family)[..], packet].concat()).collect())
    };
    let sll = |protocol: u16| [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &protocol.to_be_bytes()].concat();
    let sll2 = |protocol: u16| [&protocol.to_be_bytes()[..], &[0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]].concat();
    let mut cooked = every(&|ethertype, _| sll(ethertype));
    cooked.extend(timed(vec![
        [sll(0x8100), vec![0, 5, 8, 0], ipv4_packets()[0].clone()].concat(),
        [sll(0x0806), frames::arp()].concat(),
        [sll(0x0004), vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat(),
    ]));
    let mut cooked2 = every(&|ethertype, _| sll2(ethertype));
    cooked2.extend(timed(vec![[sll2(0x0806), frames::arp()].concat()]));
    // Families of IPv6 on the systems that have this link type, and one of no IP.
    let mut loopback = every(&|_, family| family.to_le_bytes().to_vec());
    loopback.extend(timed(
        [24, 28, 30, 7].iter().map(|family: &u32| [&family.to_le_bytes()[..], &frames::ipv6(*family, 59, &[])].concat()).collect(),
    ));
    vec![
        ("ethernet", link_type::ETHERNET, 14, timed(ethernet_frames())),
        ("raw", link_type::RAW, 0, every(&|_, _| Vec::new())),
        ("ipv4", link_type::IPV4, 0, timed(ipv4_packets())),
        ("ipv6", link_type::IPV6, 0, timed(ipv6_packets())),
        ("sll", link_type::LINUX_SLL, 16, cooked),
        ("sll2", link_type::LINUX_SLL2, 20, cooked2),
        ("null", link_type::NULL, 4, loopback),
        ("loop", link_type::LOOP, 4, every(&|_, family| family.to_be_bytes().to_vec())),
    ]
}

#[test]
fn every_link_type_counts_as_in_tshark() {
    if !has_tshark() {
        return;
    }
    let scratch = Scratch::new("tshark-links");
    let files = links().into_iter().map(|(name, link_type, _, packets)| {
        let options = PcapOptions { network: link_type.into(), ..PcapOptions::default() };
        scratch.write(&format!("{name}.pcap"), build::pcap(&options, &packets)).into()
    });
    agree(&files.collect::<Vec<PathBuf>>());
}

#[test]
fn every_format_counts_as_in_tshark() {
    if !has_tshark() {
        return;
    }
    let scratch = Scratch::new("tshark-formats");
    let packets = timed(ethernet_frames());
    let mut files: Vec<PathBuf> = Vec::new();
    for big_endian in [false, true] {
        for variant in [PcapVariant::Microseconds, PcapVariant::Nanoseconds, PcapVariant::Modified] {
            let options = PcapOptions { variant, big_endian, ..PcapOptions::default() };
            files.push(scratch.write(&format!("{variant:?}-{big_endian}.pcap"), build::pcap(&options, &packets)).into());
        }
        for block in [PacketBlock::Enhanced, PacketBlock::Simple, PacketBlock::Obsolete] {
            let packets: Vec<Packet> = packets.iter().map(|packet| Packet { block, ..packet.clone() }).collect();
            let options = PcapNgOptions { big_endian, comment: "as it came".to_owned(), ..PcapNgOptions::default() };
            files.push(scratch.write(&format!("{block:?}-{big_endian}.pcapng"), build::pcapng(&options, &packets)).into());
        }
    }
    // All link types in one file, each with another resolution, in two sections of different byte orders.
    let resolutions = [None, Some(Resolution::NANOSECONDS), Some(Resolution::PowerOf10(3)), Some(Resolution::PowerOf2(20))];
    let mut interfaces = Vec::new();
    let mut packets = Vec::new();
    for (index, (name, link_type, _, frames)) in links().into_iter().enumerate() {
        let resolution = resolutions[index % resolutions.len()];
        interfaces.push(InterfaceOptions { link_type, name: Some(name.to_owned()), resolution, ..InterfaceOptions::default() });
        packets.extend(frames.into_iter().map(|packet| Packet { interface: index as u32, ..packet }));
    }
    let mut mixed = Vec::new();
    for big_endian in [false, true] {
        let options = PcapNgOptions { big_endian, interfaces: interfaces.clone(), ..PcapNgOptions::default() };
        mixed.extend(build::pcapng(&options, &packets));
    }
    files.push(scratch.write("mixed.pcapng", mixed).into());
    agree(&files);
}

#[test]
fn every_snapshot_length_counts_as_in_tshark() {
    if !has_tshark() {
        return;
    }
    let scratch = Scratch::new("tshark-snaplen");
    // All lengths in one file, up to beyond the headers of the longest frames.
    let files = links().into_iter().map(|(name, link_type, network, packets)| {
        let packets: Vec<Packet> = (0..120).flat_map(|snaplen| cut(&packets, network, snaplen)).collect();
        let options = PcapOptions { network: link_type.into(), ..PcapOptions::default() };
        PathBuf::from(scratch.write(&format!("{name}.pcap"), build::pcap(&options, &packets)))
    });
    agree(&files.collect::<Vec<PathBuf>>());
}

#[test]
fn captures_at_hand_count_as_in_tshark() {
    let Some(directory) = env::var_os("FLOWGAUGE_CAPTURES") else {
        println!("skipped: needs FLOWGAUGE_CAPTURES=DIR");
        return;
    };
    if !has_tshark() {
        return;
    }
    let mut files: Vec<PathBuf> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng"));
    files.retain(|file| {
        let readable = by_tshark(file).is_some();
        if !readable {
            println!("skipped: needs a capture that tshark can read, not {}", file.display());
        }
        readable
    });
    assert!(!files.is_empty(), "no captures in {}", directory.display());
    agree(&files);
}
