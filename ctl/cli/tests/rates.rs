//! The rate in a lake and in what is merged of it: packets over the time in which they were counted.
//! `rates` of `flowgauge-ctl` has the outputs of a run.

use crate::common::{SECOND, Scratch, finish, flowgauge, number, packets, pcap, text};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// Time between packets, in nanoseconds.
const INTERVAL: u64 = 1_000_000;
const SENT: f64 = (SECOND / INTERVAL) as f64;

/// Checks the rate of each record: at most 1 % off, and one packet at its end.
#[track_caller]
fn check(what: &str, lines: &str) -> usize {
    let records: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for record in &records {
        let seconds = (number(record, "end_ns") - number(record, "start_ns")) as f64 / 1e9;
        let off = number(record, "packets") as f64 - SENT * seconds;
        assert!(off.abs() <= 0.01 * SENT * seconds + 1.0, "{what}: {off} packets off in {record}");
    }
    records.len()
}

/// Two hosts whose captures begin and end at different times, in windows of one length.
#[test]
fn merged_windows_have_the_rate_at_which_packets_were_sent() {
    for seed in 0..10 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let scratch = Scratch::new(&format!("rates-{seed}"));
        let lake = scratch.path("lake");
        let window = random.random_range(100..3000);
        for host in ["a", "b"] {
            let number = random.random_range(2000..9000);
            let capture = scratch.write(
                &format!("{host}.pcap"),
                pcap(&packets((0..number).map(|it| it % 500), INTERVAL)),
            );
            let mut replay = flowgauge();
            replay.env("FLOWGAUGE_RUN", format!("run-of-{host}"));
            replay.args(["replay", &capture, "--host", host, "--format", "json", "--lake"]);
            replay.arg(&lake).args(["--window", &format!("{window}ms")]);
            replay.arg(format!("--align={}", random.random_bool(0.5)));
            if random.random_bool(0.5) {
                replay.args(["--duration", &format!("{}ms", random.random_range(500..9000))]);
            }
            assert!(check("replay", &finish(&mut replay).ended(0).stdout) > 1, "seed {seed}");
        }
        let merge = |options: &[&str]| {
            let mut command = flowgauge();
            command.arg("merge").arg(&lake).args(["--format", "json"]).args(options);
            finish(&mut command).ended(0).stdout
        };
        let hosts = merge(&["--by", "host"]);
        assert_eq!(check("by host", &hosts), 2, "seed {seed}");
        let names: Vec<Value> = hosts
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["interface"].clone())
            .collect();
        assert_eq!(names, ["a", "b"]);
        for host in ["a", "b"] {
            assert_eq!(check("all of a host", &merge(&["--host", host])), 1, "seed {seed}");
            let windows = merge(&["--host", host, "--by", "window"]);
            assert!(check("by window", &windows) > 0, "seed {seed}");
            let first: Value = serde_json::from_str(windows.lines().next().unwrap()).unwrap();
            assert_eq!(text(&first, "record"), "window");
        }
    }
}
