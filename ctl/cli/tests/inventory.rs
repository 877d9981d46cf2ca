//! Exact contents of captures in reports, against tshark's statistics of the same captures.
//!
//! `TEST_CAPTURES=DIR` adds every *.pcap and *.pcapng in a directory, for hosts and conversations.

use crate::common::tshark::{at_hand, has_tshark, tshark};
use crate::common::{
    SECOND, START, Scratch, finish, flowgauge, frames, generated, list, number, numbers, page_data,
    text,
};
use flowgauge_dataplane::capture::Writer;
use flowgauge_dataplane::capture::link_type;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the contents in a report of a capture.
fn contents(scratch: &Scratch, capture: &Path) -> Value {
    let page = scratch.path("page.html");
    let mut command = flowgauge();
    command.args(["report", "--force", "--measure", "cardinality", "--window", "100d", "--to"]);
    let outcome = finish(command.args([&page, capture]));
    // Damage is reported; both programs read up to it.
    assert!(matches!(outcome.code, Some(0 | 1)), "{outcome:?}");
    page_data(page)["about"]["contents"].clone()
}

fn volume(value: &Value) -> [u64; 2] {
    numbers(value, ["packets", "bytes"])
}

fn rows<'a>(contents: &'a Value, table: &str) -> &'a [Value] {
    assert_eq!(contents[table]["others"], 0, "{table}");
    list(&contents[table], "rows")
}

/// Returns the lines of one of tshark's statistics, in words.
fn statistics(capture: &Path, which: &str) -> Vec<Vec<String>> {
    let printed = finish(tshark().args(["-q", "-z", which, "-r"]).arg(capture)).stdout;
    printed.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn integers(words: &[String]) -> Option<Vec<u64>> {
    words.iter().map(|word| word.parse().ok()).collect()
}

/// Returns packets and bytes of hosts: all, sent, received.
fn hosts_by_tshark(capture: &Path) -> BTreeMap<String, Vec<u64>> {
    let lines = ["endpoints,ip", "endpoints,ipv6"].map(|which| statistics(capture, which));
    let hosts = lines.iter().flatten().filter(|words| words.len() == 7);
    hosts.filter_map(|words| Some((words[0].clone(), integers(&words[1..])?))).collect()
}

/// Returns packets and bytes of hosts as tshark does: of a packet from a host to itself, it counts
/// both ends among all.
fn hosts_by_flowgauge(contents: &Value) -> BTreeMap<String, Vec<u64>> {
    let to_itself = |address: &Value| {
        let mut pairs = rows(contents, "conversations").iter();
        let pair = pairs.find(|row| row["addresses"] == Value::from(vec![address.clone(); 2]));
        pair.map_or([0; 2], |row| volume(&row["all"]))
    };
    let host = |row: &Value| {
        let address = &row["address"];
        let [all, sent, received] = ["all", "sent", "received"].map(|key| volume(&row[key]));
        let both = [0, 1].map(|unit| all[unit] + to_itself(address)[unit]);
        (text(row, "address").to_owned(), [both, sent, received].concat())
    };
    rows(contents, "hosts").iter().map(host).collect()
}

/// Formats bytes as tshark's conversations do.
fn size(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// Returns frames and sizes of conversations: to the first host, from it, both.
fn conversations_by_tshark(capture: &Path) -> BTreeMap<[String; 2], Vec<String>> {
    let lines = ["conv,ip", "conv,ipv6"].map(|which| statistics(capture, which));
    let conversations =
        lines.iter().flatten().filter(|words| words.get(1).is_some_and(|it| it == "<->"));
    let conversation = |words: &Vec<String>| {
        let mut numbers: Vec<String> = words[3..12]
            .chunks(3)
            .map(|part| format!("{} {} {}", part[0], part[1], part[2]))
            .collect();
        let mut ends = [words[0].clone(), words[2].clone()];
        let address = |text: &String| text.parse::<std::net::IpAddr>().unwrap();
        if address(&ends[0]) > address(&ends[1]) {
            ends.reverse();
            numbers.swap(0, 1);
        }
        (ends, numbers)
    };
    conversations.map(conversation).collect()
}

fn conversations_by_flowgauge(contents: &Value) -> BTreeMap<[String; 2], Vec<String>> {
    let conversation = |row: &Value| {
        let ends = [0, 1].map(|at| row["addresses"][at].as_str().unwrap().to_owned());
        let of = |key: &str| {
            let [packets, bytes] = volume(&row[key]);
            format!("{packets} {}", size(bytes))
        };
        (ends, ["back", "forth", "all"].map(of).to_vec())
    };
    rows(contents, "conversations").iter().map(conversation).collect()
}

/// Names by which tshark's hierarchy has what these tests generate, below the link layer.
const LAYERS: [&str; 9] = ["ip", "ipv6", "arp", "tcp", "udp", "icmp", "icmpv6", "igmp", "sctp"];

/// Returns packets and bytes of protocols, by path. Link layers are left out, and so is everything
/// above the transport.
fn protocols_by_tshark(capture: &Path) -> BTreeMap<String, [u64; 2]> {
    let mut command = tshark();
    // Fragments are not reassembled.
    command.args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
    let printed = finish(command.args(["-q", "-z", "io,phs", "-r"]).arg(capture)).stdout;
    let (mut path, mut all): (Vec<&str>, _) = (Vec::new(), BTreeMap::<String, [u64; 2]>::new());
    for line in printed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, frames, bytes] = words[..] else { continue };
        let (Some(frames), Some(bytes)) =
            (frames.strip_prefix("frames:"), bytes.strip_prefix("bytes:"))
        else {
            continue;
        };
        path.truncate((line.len() - line.trim_start().len()) / 2);
        path.push(name);
        let known: Vec<&str> = path.iter().copied().filter(|it| LAYERS.contains(it)).collect();
        if !LAYERS.contains(&name)
            || path.iter().any(|it| ["icmp", "icmpv6"].contains(it) && *it != name)
        {
            continue;
        }
        let [all_frames, all_bytes] = all.entry(known.join(":")).or_default();
        *all_frames += frames.parse::<u64>().unwrap();
        *all_bytes += bytes.parse::<u64>().unwrap();
    }
    all
}

fn protocols_by_flowgauge(contents: &Value) -> BTreeMap<String, [u64; 2]> {
    let rows = list(contents, "protocols").iter();
    let protocol = |row: &Value| {
        let names = list(row, "path").iter();
        let path: Vec<String> = names.map(|it| it.as_str().unwrap().to_lowercase()).collect();
        let is_known = path.iter().all(|it| LAYERS.contains(&it.as_str()));
        is_known.then(|| (path.join(":"), volume(&row["all"])))
    };
    rows.filter_map(protocol).collect()
}

/// Writes frames of every kind that has another place in the tables.
fn all_kinds(scratch: &Scratch) -> String {
    let mut capture = Writer::new(Vec::new(), link_type::ETHERNET).unwrap();
    let udp = frames::udp(b"telemetry");
    let inner = frames::ipv4([172, 16, 0, 1], 17, &udp);
    let error = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &inner].concat();
    let mut to_itself = frames::ipv4([127, 0, 0, 1], 17, &udp);
    to_itself.copy_within(12..16, 16);
    let packets = [
        frames::ethernet(&[], 0x0806, &frames::arp()),
        frames::ethernet(&[0x8100], 0x0800, &frames::ipv4([10, 9, 0, 1], 17, &udp)),
        frames::ethernet(&[], 0x86dd, &frames::ipv6(7, 17, &udp)),
        frames::ethernet(&[], 0x86dd, &frames::ipv6(8, 41, &frames::ipv6(99, 17, &udp))),
        frames::ethernet(&[], 0x0800, &frames::ipv4([10, 9, 0, 2], 4, &inner)),
        frames::ethernet(&[], 0x0800, &frames::ipv4([10, 9, 0, 3], 1, &[8, 0, 0, 0, 0, 1, 0, 1])),
        frames::ethernet(&[], 0x0800, &to_itself),
        // The packet inside an error was not seen here.
        frames::ethernet(&[], 0x0800, &frames::ipv4([10, 9, 0, 4], 1, &error)),
    ];
    for (frame, number) in packets.iter().zip(1..) {
        for repetition in 0..number {
            let time = START + number * SECOND + repetition;
            capture.write(time, frame, frame.len() as u32).unwrap();
        }
    }
    scratch.write("all-kinds.pcap", capture.finish().unwrap())
}

#[test]
fn contents_are_those_that_tshark_counts() {
    if !has_tshark() {
        return;
    }
    let scratch = Scratch::new("inventory-tshark");
    let tcp = &["ip:tcp"][..];
    let of_profile = |name: &str, profile: &str| (generated(&scratch, name, profile), tcp);
    let captures = [
        (all_kinds(&scratch), &["arp", "ip:udp", "ip:icmp", "ip:ip:udp", "ipv6:ipv6:udp"][..]),
        of_profile("zipf.pcap", "zipf,flows=500,packets=8k,rate=2k"),
        of_profile("delay.pcap", "delay,shape=conversations,rate=500,requests=500"),
        of_profile("reorder.pcap", "reorder,rate=2k,packets=4k,prefixes=20,heavy=2"),
    ];
    for (capture, paths) in captures {
        let capture = Path::new(&capture);
        let contents = contents(&scratch, capture);
        let hosts = hosts_by_tshark(capture);
        assert!(hosts.len() > 8, "{hosts:?}");
        assert_eq!(hosts_by_flowgauge(&contents), hosts);
        assert_eq!(conversations_by_flowgauge(&contents), conversations_by_tshark(capture));
        let protocols = protocols_by_tshark(capture);
        for path in paths {
            assert!(protocols.contains_key(*path), "{path}: {protocols:?}");
        }
        assert_eq!(protocols_by_flowgauge(&contents), protocols);
    }
}

#[test]
fn hosts_and_conversations_of_real_captures_are_those_that_tshark_counts() {
    let mut files = at_hand();
    if files.is_empty() || !has_tshark() {
        return;
    }
    files.retain(|file| fs::metadata(file).unwrap().len() >= 50);
    let scratch = Scratch::new("inventory-captures");
    let is_different = |file: &&PathBuf| {
        let contents = contents(&scratch, file);
        hosts_by_flowgauge(&contents) != hosts_by_tshark(file)
            || conversations_by_flowgauge(&contents) != conversations_by_tshark(file)
    };
    let different: Vec<&PathBuf> = files.iter().filter(is_different).collect();
    let compared = files.len();
    assert!(compared > 0 && different.is_empty(), "{different:?} of {compared}");
}

/// Round trips of handshakes and classes of segments, against the times and sequence numbers that
/// were written.
#[test]
fn servers_have_the_times_and_segments_that_were_sent() {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let scratch = Scratch::new("inventory-servers");
    let mut capture = Writer::new(Vec::new(), link_type::ETHERNET).unwrap();
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let mut time = START;
    let mut send = |from_client: bool,
                    port: u16,
                    flags: u8,
                    sequence: u32,
                    acknowledged: u32,
                    data: usize,
                    wait: u64| {
        time += wait;
        let ports = if from_client { [port, 443] } else { [443, port] };
        let mut tcp = ports.map(u16::to_be_bytes).concat();
        tcp.extend(sequence.to_be_bytes());
        tcp.extend(acknowledged.to_be_bytes());
        tcp.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
        tcp.resize(20 + data, 7);
        let mut packet = frames::ipv4(if from_client { client } else { server }, 6, &tcp);
        packet[16..20].copy_from_slice(if from_client { &server } else { &client });
        let frame = frames::ethernet(&[], 0x0800, &packet);
        capture.write(time, &frame, frame.len() as u32).unwrap();
    };
    let ms = SECOND / 1000;
    for (port, to_server, to_client) in [(1001, 5, 20), (1002, 9, 30), (1003, 7, 40)] {
        send(true, port, SYN, 100, 0, 0, SECOND);
        send(false, port, SYN | ACK, 500, 101, 0, to_server * ms);
        send(true, port, ACK, 101, 501, 0, to_client * ms);
        send(true, port, ACK, 101, 501, 10, ms);
        // Again; then the second part before the first.
        send(true, port, ACK, 101, 501, 10, ms);
        send(false, port, ACK, 511, 111, 10, ms);
        send(false, port, ACK, 501, 111, 10, ms);
    }
    // Repeated, so that its time is not known; without an answer; and begun before.
    send(true, 1004, SYN, 100, 0, 0, SECOND);
    send(true, 1004, SYN, 100, 0, 0, SECOND);
    send(false, 1004, SYN | ACK, 500, 101, 0, ms);
    send(true, 1005, SYN, 100, 0, 0, SECOND);
    send(false, 1006, ACK, 900, 100, 10, SECOND);
    let path = scratch.write("servers.pcap", capture.finish().unwrap());
    let contents = contents(&scratch, Path::new(&path));
    let [row] = rows(&contents, "servers") else { panic!("{contents}") };
    assert_eq!(row["endpoint"], "10.0.0.2:443");
    assert_eq!(numbers(row, ["connections", "begun_before", "unanswered"]), [6, 1, 1], "{row}");
    assert_eq!(numbers(row, ["segments", "retransmitted", "out_of_order"]), [13, 3, 3], "{row}");
    for (key, expected) in [("to_server", [0.005, 0.007, 0.009]), ("to_client", [0.02, 0.03, 0.04])]
    {
        assert_eq!(row[key], serde_json::json!(expected), "{key}");
    }
    let https = rows(&contents, "ports").iter().find(|row| row["port"] == 443).unwrap();
    assert_eq!(number(&https["all"], "packets"), 26);
}
