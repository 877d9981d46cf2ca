//! Runs on virtual DPDK devices.

use crate::common::{
    Running, Scratch, generated, number, of_kind, of_windows, parse, records, run, text, total,
};

/// Without hugepages, files and sockets.
const EAL: &str = "--no-huge --no-shconf --no-telemetry -m 128";

/// Such a run does not end by itself: it is interrupted once everything is counted.
#[test]
fn a_run_counts_what_the_device_delivers_until_it_is_interrupted() {
    const PACKETS: u64 = 30_000;
    let scratch = Scratch::new("dpdk");
    let capture = generated(&scratch, "in.pcap", &format!("unique,packets={PACKETS}"));
    let port = format!("dpdk:net_pcap0,rx_pcap={capture}");
    let options = ["--window", "1h", "--sample-every", "100ms", "--format", "json", "--truth"];
    let mut running =
        Running::start(&[&["run", "--port", &port, "--eal", EAL][..], &options].concat());
    loop {
        let read = running.record();
        assert_eq!(text(&read, "interface"), "dpdk:net_pcap0");
        if number(&read, "packets") == PACKETS {
            break;
        }
    }
    let records = parse(&running.end().live());
    let windows = of_kind(&records, "window");
    assert_eq!(of_windows(&records, "packets"), [PACKETS]);
    assert_eq!(number(total(&records), "packets"), PACKETS);
    assert_eq!(windows[0]["cardinality"]["truth"], PACKETS);
    assert_eq!(windows[0]["drops"].as_object().unwrap().len(), 0);
}

/// A device sends the same packets as a file of the same profile has.
#[test]
fn generate_sends_every_packet_through_a_device() {
    let scratch = Scratch::new("dpdk-send");
    let profile = "zipf,packets=20k,size=200";
    let written = generated(&scratch, "written.pcap", profile);
    let sent = scratch.argument("sent.pcap");
    let to = format!("dpdk:net_pcap0,tx_pcap={sent}");
    let said = run(["generate", profile, "--rate", "max", "--to", &to, "--eal", EAL]).quiet();
    assert!(
        said.contains("20,000 packets sent") && said.contains("the interface dropped 0"),
        "{said}"
    );
    let total_of = |capture: &str| {
        let records = records(capture, "--key five-tuple --truth");
        let total = total(&records).clone();
        ["packets", "bytes", "ipv4_packets", "cardinality"].map(|key| total[key].clone())
    };
    assert_eq!(total_of(&sent), total_of(&written));
}

#[test]
fn what_dpdk_refuses_is_one_line() {
    for (port, eal, expected) in [
        ("dpdk:net_nosuch0", EAL, "cannot open it: EAL: failed to parse device \"net_nosuch0\""),
        ("dpdk:net_pcap0,rx_pcap=/does/not/exist", EAL, "No such file or directory"),
        ("dpdk:net_null0", "--frobnicate", "cannot start DPDK"),
        ("dpdk:net_null0", "--no-huge --no-shconf --no-telemetry -m 2", "get memory for packets"),
    ] {
        let outcome = run(["run", "--port", port, "--eal", eal, "--duration", "1s"]);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(1), ""),
            "{port} {eal}: {}",
            outcome.stderr
        );
        let line = outcome.complaint();
        assert!(
            line.starts_with(&format!("error: port '{port}': ")) && line.contains(expected),
            "{line}"
        );
    }
    let line = run(["run", "--port", "dpdk:net_null0", "--eal", "--frobnicate"]);
    assert!(line.complaint().contains("'--frobnicate'"), "{}", line.stderr);
}
