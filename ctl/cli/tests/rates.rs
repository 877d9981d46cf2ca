//! The rate in a lake and in what is merged of it: packets over the time in which they were counted.
//! `rates` of `flowgauge-ctl` has the outputs of a run.

use crate::common::{SECOND, Scratch, json_lines, lake, number, packets, pcap, text};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Time between packets, in nanoseconds.
const INTERVAL: u64 = 1_000_000;
const SENT: f64 = (SECOND / INTERVAL) as f64;

/// Checks the rate of each record: at most 1 % off, and one packet at its end.
#[track_caller]
fn check(what: &str, lines: &str) -> usize {
    let records = json_lines(lines);
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
            let is_aligned = random.random_bool(0.5);
            let mut options = format!("--format json --window {window}ms --align={is_aligned}");
            if random.random_bool(0.5) {
                options += &format!(" --duration {}ms", random.random_range(500..9000));
            }
            let replayed = lake::replay(&lake, host, &capture, &options).ended(0).stdout;
            assert!(check("replay", &replayed) > 1, "seed {seed}");
        }
        let merge =
            |options: &str| lake::merge(&lake, &format!("--format json {options}")).ended(0).stdout;
        let hosts = merge("--by host");
        assert_eq!(check("by host", &hosts), 2, "seed {seed}");
        let hosts = json_lines(&hosts);
        let names: Vec<&str> = hosts.iter().map(|host| text(host, "interface")).collect();
        assert_eq!(names, ["a", "b"]);
        for host in ["a", "b"] {
            assert_eq!(check("all of a host", &merge(&format!("--host {host}"))), 1, "seed {seed}");
            let windows = merge(&format!("--host {host} --by window"));
            assert!(check("by window", &windows) > 0, "seed {seed}");
            assert_eq!(text(&json_lines(&windows)[0], "record"), "window");
        }
    }
}
