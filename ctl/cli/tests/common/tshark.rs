//! tshark, an independent reader of captures.

use super::{number, parse, replay, total};
use flowgauge_testing::frames::captures_at_hand;
use flowgauge_testing::skip;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the command of tshark.
pub(crate) fn tshark() -> Command {
    let mut command = Command::new("tshark");
    // No configuration, no name resolution, and no warnings about running as root.
    command.env("HOME", "/tmp").env("WIRESHARK_CONFIG_DIR", "/nonexistent").arg("-n");
    command
}

/// Whether tshark is installed; reports a skipped test if not.
pub(crate) fn has_tshark() -> bool {
    let found = tshark().arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip("tshark");
    }
    found
}

/// Returns the captures in the directory that `TEST_CAPTURES` names; none if it names none, which
/// is reported as a skipped test.
pub(crate) fn at_hand() -> Vec<PathBuf> {
    let Some(mut files) = captures_at_hand() else { return Vec::new() };
    files.retain(|file| {
        file.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng")
    });
    assert!(!files.is_empty(), "no captures in TEST_CAPTURES");
    files
}

/// Returns the command that prints these fields of each packet of a capture, with all their values.
pub(crate) fn dissect(file: &Path, fields: &[&str]) -> Command {
    let mut command = tshark();
    command
        .arg("-r")
        .arg(file)
        .args(["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-E", "separator=/t"])
        .args(fields.iter().flat_map(|field| ["-e", field]));
    command
}

/// Counts of both programs in a capture.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) packets: u64,
    pub(crate) ipv4: u64,
    pub(crate) ipv6: u64,
    pub(crate) sources: u64,
    pub(crate) destinations: u64,
    pub(crate) pairs: u64,
    /// Pairs with protocol and ports.
    pub(crate) tuples: u64,
}

/// Counts of tshark, with the distinct values so far.
#[derive(Default)]
pub(crate) struct Distinct {
    counted: Counted,
    sources: HashSet<String>,
    destinations: HashSet<String>,
    pairs: HashSet<String>,
    tuples: HashSet<String>,
}

impl Distinct {
    /// Counts a packet, whatever it contains.
    pub(crate) fn add_packet(&mut self) {
        self.counted.packets += 1;
    }

    /// Counts the network header of a packet, a layer of tshark, with what identifies its
    /// transport.
    pub(crate) fn add_header(&mut self, layer: &str, addresses: [&str; 2], transport: &str) {
        let [source, destination] = addresses;
        if layer == "ip" {
            self.counted.ipv4 += 1;
        } else {
            self.counted.ipv6 += 1;
        }
        self.sources.insert(source.to_owned());
        self.destinations.insert(destination.to_owned());
        self.pairs.insert(format!("{source} {destination}"));
        self.tuples.insert(format!("{source} {destination} {transport}"));
    }

    pub(crate) fn counted(self) -> Counted {
        let [sources, destinations, pairs, tuples] =
            [self.sources, self.destinations, self.pairs, self.tuples].map(|all| all.len() as u64);
        Counted { sources, destinations, pairs, tuples, ..self.counted }
    }
}

/// Counts with flowgauge. Messages about damage are ignored: both programs read up to it.
#[track_caller]
pub(crate) fn by_flowgauge(file: &Path, options: &str) -> Counted {
    let keys = [("src", 1), ("dst", 1), ("src-dst", 3), ("five-tuple", 1)];
    let [counted, by_destination, by_pair, by_tuple] = keys.map(|(key, workers)| {
        let options = format!("--key {key} --workers {workers} {options}");
        let fixed = "--truth --window 100days --sample-every never --format json";
        let records = parse(&replay(file, &format!("{fixed} {options}")).stdout);
        let total = total(&records);
        let [packets, ipv4, ipv6] =
            ["packets", "ipv4_packets", "ipv6_packets"].map(|key| number(total, key));
        let sources = number(&total["cardinality"], "truth");
        Counted { packets, ipv4, ipv6, sources, ..Counted::default() }
    });
    let [destinations, pairs, tuples] = [by_destination, by_pair, by_tuple].map(|it| it.sources);
    Counted { destinations, pairs, tuples, ..counted }
}
