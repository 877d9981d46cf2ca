//! Keys with the most distinct others: floods, scans, merges, and what the alarm makes of them.

use crate::common::lake::{self, generate, unions};
use crate::common::tshark::{has_tshark, tshark};
use crate::common::{
    SECOND, START, Scratch, assert_has, csv_rows, execute, float, list, of_kind, pcap, records,
    text, total,
};
use crate::measurements::flooded;
use flowgauge_dataplane::capture::build::CapturePacket;
use flowgauge_traffic::frame::{Ip, UDP, udp};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::PermissionsExt;

/// 192.0.2.1 and 192.0.2.7.
const VICTIM: u32 = 0xc000_0201;
const SCANNER: u32 = 0xc000_0207;
/// Others of the scanner and of the victim.
const MANY: u32 = 3000;

/// Returns a UDP packet to a port, at a microsecond.
fn packet(micros: u64, source: u32, destination: u32, port: u16) -> CapturePacket {
    let ip = Ip::new(source.to_be_bytes(), destination.to_be_bytes(), UDP);
    CapturePacket::new(START + micros * 1000, ip.frame(&udp([0xc001, port], &[0; 4])))
}

fn random(number: u32) -> u32 {
    let number = number.wrapping_mul(0x9e37_79b1);
    (number ^ number >> 15).wrapping_mul(0x85eb_ca6b)
}

/// Returns 20,000 packets among 400 sources and 400 destinations.
fn background(micros: u64) -> impl Iterator<Item = CapturePacket> {
    (0..20_000_u32).map(move |index| {
        let mixed = random(index) >> 8;
        let (source, destination) = (0x0a00_0000 + mixed % 400, 0x0b00_0000 + mixed / 400 % 400);
        packet(micros + u64::from(index), source, destination, 53)
    })
}

/// Returns packets of a scan of a network, two to each address.
fn scan(micros: u64) -> impl Iterator<Item = CapturePacket> {
    (0..2 * MANY).map(move |index| {
        packet(micros + u64::from(index), SCANNER, 0xc612_0000 + index % MANY, 22)
    })
}

/// Returns packets of a flood from random sources.
fn flood(micros: u64) -> impl Iterator<Item = CapturePacket> {
    (0..MANY).map(move |index| packet(micros + u64::from(index), random(index), VICTIM, 80))
}

/// Returns packets to all ports of a host up to [`MANY`].
fn port_scan(micros: u64) -> impl Iterator<Item = CapturePacket> {
    (0..MANY).map(move |index| packet(micros + u64::from(index), SCANNER, VICTIM, index as u16))
}

/// Checks the first flow of a sketch, its exact number, and that this is inside the interval.
fn assert_first(spread: &Value, flow: &str, truth: u32) {
    let first = &spread["flows"][0];
    assert_eq!((text(first, "flow"), &first["truth"]), (flow, &Value::from(truth)), "{spread}");
    let [low, others, high] = ["low", "others", "high"].map(|name| float(first, name));
    let truth = f64::from(truth);
    assert!(low <= others && others <= high && low <= truth && truth <= high, "{spread}");
    assert!(float(spread, "rest_truth") <= float(spread, "rest"), "{spread}");
}

#[test]
fn scanner_and_victim_come_first_with_the_exact_number_inside_the_interval() {
    let scratch = Scratch::new("spread");
    let (scan, flood) = (scan(30_000), flood(40_000));
    let trace: Vec<CapturePacket> = background(0).chain(scan).chain(flood).collect();
    let file = scratch.write("both.pcap", pcap(&trace));
    let records = records(
        &file,
        "--measure spread --spread by=dst,of=src --spread by=src,of=dst --truth --window 1h",
    );
    let windows = of_kind(&records, "window");
    let [victims, scanners] = list(windows[0], "spread") else { panic!("{}", windows[0]) };
    assert_eq!((&victims["key"], &victims["of"]), (&Value::from("dst"), &Value::from("src")));
    assert_eq!((&scanners["key"], &scanners["of"]), (&Value::from("src"), &Value::from("dst")));
    assert_first(victims, "192.0.2.1", MANY);
    assert_first(scanners, "192.0.2.7", MANY);
    // A total has the registers of all windows, and no exact numbers.
    let of_total = &total(&records)["spread"][0];
    assert_eq!(of_total["flows"][0]["others"], victims["flows"][0]["others"]);
    assert!(of_total["flows"][0].get("truth").is_none(), "{of_total}");
}

#[test]
fn ports_are_counted_with_their_protocol() {
    let scratch = Scratch::new("spread-ports");
    let trace: Vec<CapturePacket> = background(0).chain(port_scan(30_000)).collect();
    let file = scratch.write("ports.pcap", pcap(&trace));
    let records = records(
        &file,
        "--measure spread --spread by=src-dst,of=dst-port --spread by=src,of=dst-port --spread-registers 128 --truth --window 1h",
    );
    let spread = &of_kind(&records, "window")[0]["spread"];
    assert_first(&spread[0], "192.0.2.7 > 192.0.2.1", MANY);
    assert_first(&spread[1], "192.0.2.7", MANY);
    assert_eq!(spread[1]["registers"], 128);
}

#[test]
fn exact_numbers_of_others_are_those_of_tshark() {
    if !has_tshark() {
        return;
    }
    let scratch = Scratch::new("spread-tshark");
    let attacks = scan(30_000).chain(flood(40_000)).chain(port_scan(50_000));
    let trace: Vec<CapturePacket> = background(0).chain(attacks).collect();
    let file = scratch.write("attacks.pcap", pcap(&trace));
    let fields = ["-e", "ip.src", "-e", "ip.dst", "-e", "ip.proto", "-e", "udp.dstport"];
    let output = tshark()
        .args(["-r", &file, "-T", "fields", "-E", "occurrence=f"])
        .args(fields)
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.lines().count(), trace.len());
    let mut by_tshark: [HashMap<&str, HashSet<String>>; 3] = Default::default();
    for line in lines.lines() {
        let words: [&str; 4] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let [source, destination, protocol, port] = words;
        let found = [
            (destination, source.to_owned()),
            (source, destination.to_owned()),
            (source, format!("{protocol} {port}")),
        ];
        for (others, (key, other)) in by_tshark.iter_mut().zip(found) {
            others.entry(key).or_default().insert(other);
        }
    }
    let mut spreads = Vec::new();
    for options in ["--spread by=dst,of=src --spread by=src,of=dst", "--spread by=src,of=dst-port"]
    {
        let options = format!("--measure spread {options} --spread-top 256 --truth --window 1h");
        let records = records(&file, &options);
        spreads.extend(list(of_kind(&records, "window")[0], "spread").to_vec());
    }
    assert_eq!(spreads.len(), by_tshark.len());
    for (spread, others) in spreads.iter().zip(&by_tshark) {
        let flows = list(spread, "flows");
        assert!(!flows.is_empty(), "{spread}");
        let listed: HashSet<&str> = flows.iter().map(|flow| text(flow, "flow")).collect();
        for flow in flows {
            let number = others.get(text(flow, "flow")).map(|others| others.len() as u64);
            assert_eq!(flow["truth"].as_u64(), number, "{flow}");
        }
        let unlisted = others.iter().filter(|(key, _)| !listed.contains(*key));
        let rest = unlisted.map(|(_, others)| others.len() as u64).max().unwrap_or(0);
        assert_eq!(spread["rest_truth"].as_u64(), Some(rest), "{spread}");
    }
}

#[test]
fn the_table_and_the_csv_have_the_first_keys() {
    let scratch = Scratch::new("spread-table");
    let trace: Vec<CapturePacket> = background(0).chain(flood(30_000)).collect();
    let file = scratch.write("flood.pcap", pcap(&trace));
    let replay = |options: &str| {
        let fixed = "--measure spread --spread-top 1 --window 1h";
        execute(&format!("replay {file} {fixed} {options}")).quiet()
    };
    let table = replay("");
    let line = table.lines().find(|line| line.contains("192.0.2.1 ")).unwrap();
    assert!(line.contains(" sources  ("), "{line}");
    assert!(table.contains("    no other destination has more than "), "{table}");
    assert!(!table.contains("    11.0.0."), "{table}");
    let csv = replay("--format csv");
    let row = csv_rows(&csv).remove(0);
    let columns = ["spread_key", "spread_of", "spread_flow", "spread2_key"];
    assert_eq!(columns.map(|name| row[name]), ["dst", "src", "192.0.2.1", ""]);
    assert!(row["spread_others_low"].parse::<f64>().unwrap() > 1000.0);
}

#[test]
fn machines_that_saw_parts_say_together_what_one_says_that_saw_all() {
    let scratch = Scratch::new("spread-merge");
    let all: Vec<CapturePacket> = background(0).chain(scan(30_000)).chain(flood(40_000)).collect();
    // Every second packet, and both ends, so that all windows have the same ends.
    let half = |odd: usize| -> Vec<CapturePacket> {
        let is_in = |index: usize| index % 2 == odd || index == 0 || index + 1 == all.len();
        let packets = all.iter().enumerate().filter(|(index, _)| is_in(*index));
        packets.map(|(_, packet)| packet.clone()).collect()
    };
    let measure =
        "--measure spread --spread by=dst,of=src --spread by=src,of=dst --window 1s --align";
    let key = scratch.write("key", "ab".repeat(32));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    for (name, hash) in [("tabulated", String::new()), ("keyed", format!("--hash-key {key}"))] {
        let lake = scratch.path(name);
        let of_hosts = |hosts: &str| unions(&lake, &format!("{hosts} {hash}")).remove(0);
        for (host, packets) in [("a", half(0)), ("b", half(1)), ("all", all.clone())] {
            let file = scratch.write(&format!("{name}-{host}.pcap"), pcap(&packets));
            lake::replay(&lake, host, &file, &format!("{measure} {hash}")).ended(0);
        }
        let (parts, whole) = (of_hosts("--exclude all"), of_hosts("--host all"));
        for (sketch, flow) in [(0_usize, "192.0.2.1"), (1, "192.0.2.7")] {
            let [first, of_whole] = [&parts, &whole].map(|it| &it["spread"][sketch]["flows"][0]);
            assert_eq!(text(first, "flow"), flow, "{parts}");
            assert_eq!(first, of_whole, "{name}");
        }
        if name == "keyed" {
            let advice = "--hash-key, or leave spread out with --measure";
            let problem = lake::merge(&lake, "--format json");
            assert_has(problem.complaint(), &["spread needs the secret of the hash, ", advice]);
        }
    }
}

/// Replays a capture with the alarm, which names `victim`, unknown before, first in each window in
/// which it is raised. Returns these windows.
fn windows_with_a_victim(file: &str, window: &str, victim: &str) -> Vec<Value> {
    let options = "--alarm --measure spread --sample-every never --format json";
    let outcome = execute(&format!("replay {file} {options} --window {window}"));
    let sources = format!("; destinations with more sources than usual: {victim} (");
    assert_has(&outcome.stderr, &[&sources]);
    let records = outcome.json();
    let windows = of_kind(&records, "window").into_iter();
    let raised: Vec<Value> =
        windows.filter(|window| window["alarm"]["raised"] == Value::Bool(true)).cloned().collect();
    for window in &raised {
        let [spreaders] = list(&window["alarm"], "spreaders") else { panic!("{window}") };
        assert_eq!((&spreaders["key"], &spreaders["of"]), (&"dst".into(), &"src".into()));
        let first = &spreaders["flows"][0];
        assert_eq!((&first["flow"], &first["usual"]), (&victim.into(), &0.into()));
    }
    raised
}

#[test]
fn the_alarm_names_victims_by_their_sources() {
    let scratch = Scratch::new("spread-alarm");
    // Fifty sources send to fifty destinations; in second 50 each of 400 others sends one packet.
    let raised = windows_with_a_victim(&flooded(&scratch), "1s", "192.0.2.1");
    let [window] = raised.as_slice() else { panic!("{} alarms", raised.len()) };
    assert_eq!(window["start_ns"].as_u64(), Some(START + 50 * SECOND));
}

/// The link of `flowgauge demo` with its attack, from second 22 on.
#[test]
fn an_alarm_of_the_demonstration_names_the_victim_by_its_sources() {
    let scratch = Scratch::new("spread-demo");
    let profile = "attack,rate=8k,flows=3k,share=0.5,every=30s,lasting=8s,packets=240k";
    let file = generate(&scratch, profile, "demo.pcap");
    let raised = windows_with_a_victim(&file, "500ms", "10.0.0.2");
    let numbers: Vec<u64> = raised.iter().filter_map(|window| window["window"].as_u64()).collect();
    assert_eq!(numbers, (44..60).collect::<Vec<u64>>());
}
