//! `flowgauge generate`: what is written can be replayed, and holds what was asked for.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Outcome, Scratch, flowgauge, number, of_kind, records, run, total};
use flowgauge_dataplane::traffic::{Generator, Profile};
use flowgauge_testing::skip;
use std::collections::HashSet;
use std::fs::{self, File};

#[test]
fn generated_traffic_replays_with_its_exact_counts() {
    let scratch = Scratch::new("round-trip");
    for (index, (profile, family)) in [
        ("unique,packets=3000", "ipv4_packets"),
        ("sequential,packets=3000,rate=1k", "ipv4_packets"),
        ("subnets,packets=3000,size=1500,seed=7", "ipv4_packets"),
        ("zipf,packets=20k,flows=500,alpha=1.3,rate=1k", "ipv4_packets"),
        ("burst,packets=5k,flows=100,rate=500", "ipv4_packets"),
        ("unique,packets=3000,ipv6,size=100", "ipv6_packets"),
        ("zipf,packets=3000,ipv6,vlan=7,size=100", "ipv6_packets"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = scratch.path(&format!("{index}.pcap"));
        assert_eq!(run(["generate", profile, "--to", file.to_str().unwrap()]).quiet(), "");
        let generator = Generator::new(profile.parse::<Profile>().unwrap());
        let packets = generator.profile().packets.unwrap();
        let sources: HashSet<u32> = (0..packets).map(|index| generator.source(index)).collect();
        for options in ["--window 3s", "--window 1h --workers 2"] {
            let records = records(&file, &format!("--truth --read-every never {options}"));
            let total = total(&records);
            assert_eq!((number(total, "packets"), number(total, family)), (packets, packets), "{profile}");
            assert_eq!(number(total, "bytes"), packets * generator.frame_length() as u64, "{profile}");
            assert_eq!(total["cardinality"]["truth"], sources.len(), "{profile}");
        }
    }
}

#[test]
fn the_thesis_experiment_has_22_minutes_of_100_packets_a_second() {
    let scratch = Scratch::new("thesis");
    let file = scratch.path("thesis.pcap");
    run(["generate", "unique", "--to", file.to_str().unwrap()]).quiet();
    let records = records(&file, "--truth --window 10s --read-every never");
    let windows = of_kind(&records, "window");
    assert_eq!(windows.len(), 132);
    assert!(windows.iter().all(|window| window["packets"] == 1000 && window["cardinality"]["truth"] == 1000));
    assert_eq!(total(&records)["cardinality"]["truth"], 132_000);
}

#[test]
fn an_attack_that_says_no_number_of_packets_ends_with_its_first_flood() {
    let scratch = Scratch::new("attack-default");
    let file = scratch.path("attack.pcap");
    run(["generate", "attack,rate=100,share=1,every=20s,lasting=5s", "--to", file.to_str().unwrap()]).quiet();
    let records = records(&file, "--truth --key dst --window 5s --read-every never");
    let windows: Vec<_> =
        of_kind(&records, "window").into_iter().map(|window| (&window["packets"], &window["cardinality"])).collect();
    assert_eq!(windows.len(), 4);
    assert!(windows.iter().all(|(packets, _)| **packets == 500));
    // All packets of the flood go to one destination, those before it to many.
    assert_eq!(windows.iter().map(|(_, told)| told["truth"] == 1).collect::<Vec<_>>(), [false, false, false, true]);
    // A minute of 10,000 packets a second, of 64 bytes with 16 of the record's header, behind 24 of the file's.
    run(["generate", "attack", "--to", file.to_str().unwrap(), "--force"]).quiet();
    assert_eq!(fs::metadata(&file).unwrap().len(), 24 + 600_000 * (16 + 64));
    let refused = run(["generate", "attack", "--to", "af_xdp:none", "--rate", "max"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("--rate max leaves attack no times for its floods"), "{}", refused.stderr);
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let scratch = Scratch::new("force");
    let file = scratch.write("kept.pcap", "precious");
    let refused = run(["generate", "unique,packets=10", "--to", &file]);
    assert_eq!(refused.code, Some(1));
    assert_eq!(refused.complaint(), format!("error: {file} exists; --force replaces it"));
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    run(["generate", "unique,packets=10", "--to", &file, "--force"]).quiet();
    assert_eq!(number(total(&records(&file, "")), "packets"), 10);
}

#[test]
fn standard_output_gets_what_a_file_would() {
    let scratch = Scratch::new("stdout");
    let file = scratch.path("file.pcap");
    let profile = "zipf,packets=5000,seed=3";
    run(["generate", profile, "--to", file.to_str().unwrap()]).quiet();
    let output = flowgauge().args(["generate", profile, "--to", "-"]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    assert!(output.stdout == fs::read(&file).unwrap());
    // Into a pipe and out of it again.
    let mut generate = flowgauge().args(["generate", profile, "--to", "-"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let replay = flowgauge().args(["replay", "-", "--format", "csv"]).stdin(generate.stdout.take().unwrap()).output().unwrap();
    assert!(generate.wait().unwrap().success());
    let from_file = flowgauge().args(["replay", "-", "--format", "csv"]).stdin(File::open(&file).unwrap()).output().unwrap();
    assert_eq!(Outcome::from(replay).quiet(), Outcome::from(from_file).quiet());
}

#[test]
fn what_cannot_be_written_is_told_in_one_line() {
    let scratch = Scratch::new("cannot");
    let missing = scratch.path("no/such/directory.pcap");
    let outcome = run(["generate", "unique,packets=10", "--to", missing.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.complaint().starts_with("error: cannot create "), "{}", outcome.stderr);
    // Timestamps of a pcap file end in 2106.
    let late = scratch.path("late.pcap");
    let outcome = run(["generate", "unique,packets=100,rate=0.00000001", "--to", late.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.complaint().contains("does not fit into a pcap file"), "{}", outcome.stderr);
    if File::options().write(true).open("/dev/full").is_err() {
        skip("/dev/full");
        return;
    }
    let outcome = run(["generate", "unique,packets=10", "--to", "/dev/full", "--force"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.complaint().starts_with("error: cannot write /dev/full: "), "{}", outcome.stderr);
}
