//! Live runs, signals, and readers that go away.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Outcome, Running, SECOND, Scratch, check, flowgauge, number, of_kind, packets, parse, pcap, run, text, total};
use serde_json::Value;
use std::io::{Read, Write, pipe};
use std::process::Stdio;

/// Interrupts a command after its first line; gives that line and the rest.
fn interrupted(arguments: &[&str]) -> (Value, Outcome) {
    let mut running = Running::start(arguments);
    let first = running.line();
    running.interrupt();
    let first = serde_json::from_str(&first).unwrap();
    check(&first);
    (first, running.outcome())
}

#[test]
fn an_interrupt_closes_the_window_of_a_live_run() {
    for workers in ["1", "3"] {
        let (first, outcome) = interrupted(&[
            "run",
            "--port",
            "memory:unique,rate=10k",
            "--window",
            "1h",
            "--read-every",
            "50ms",
            "--format",
            "json",
            "--workers",
            workers,
        ]);
        assert_eq!(text(&first, "record"), "sample");
        let records = parse(&outcome.live());
        let windows = of_kind(&records, "window");
        let [window] = windows[..] else { panic!("{} windows", windows.len()) };
        assert_eq!(window["complete"], false);
        assert!(number(window, "packets") >= number(&first, "packets"));
        assert!(number(window, "end_ns") > number(&first, "end_ns"));
        assert_eq!(number(window, "start_ns"), number(&first, "start_ns"));
        assert_eq!(number(total(&records), "packets"), number(window, "packets"));
    }
}

#[test]
fn an_interrupt_ends_a_run_without_windows_with_a_last_read() {
    let (_, outcome) =
        interrupted(&["run", "--port", "memory:unique,rate=10k", "--staggered", "1h", "--read-every", "50ms", "--format", "json"]);
    let records = parse(&outcome.live());
    assert_eq!(records.iter().rev().map(|record| text(record, "record")).take(2).collect::<Vec<_>>(), ["total", "sample"]);
}

#[test]
fn an_interrupt_closes_the_window_of_a_replay() {
    let scratch = Scratch::new("interrupt-replay");
    // A hundred million reads: it has not finished when the signal comes, since the pipe holds a few hundred.
    let file = scratch.write("long.pcap", pcap(&packets(0..10_000, SECOND / 100)));
    let (first, outcome) = interrupted(&["replay", &file, "--window", "1h", "--read-every", "1us", "--format", "json"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let mut records = vec![first];
    records.extend(parse(&outcome.stdout));
    assert!(records.len() < 100_000, "{} records", records.len());
    let total = total(&records);
    let windows = of_kind(&records, "window");
    assert_eq!(windows.len(), 1);
    assert_eq!(windows[0]["complete"], false);
    let last = of_kind(&records, "sample").last().map(|sample| number(sample, "packets")).unwrap();
    assert!((last..=10_000).contains(&number(total, "packets")), "{total}");
}

#[test]
fn an_interrupt_between_two_windows_of_a_replay_loses_no_packet_counted() {
    let scratch = Scratch::new("interrupt-windows");
    let file = scratch.write("long.pcap", pcap(&packets(0..10_000, SECOND / 100)));
    // Without reads, time stands at the end of a window whenever the signal comes.
    let (first, outcome) = interrupted(&["replay", &file, "--window", "10us", "--read-every", "never", "--format", "json"]);
    assert_eq!(text(&first, "record"), "window");
    assert_eq!(outcome.code, Some(0));
    let mut records = vec![first];
    records.extend(parse(&outcome.stdout));
    let windows = of_kind(&records, "window");
    assert!(windows.iter().rev().skip(1).all(|window| window["complete"] == true));
    assert_eq!(windows.last().unwrap()["complete"], false);
    total(&records);
}

#[test]
fn an_interrupt_ends_the_replay_of_a_pipe_that_has_gone_silent() {
    let arguments = ["replay", "-", "--window", "1s", "--read-every", "never", "--format", "json"];
    let (stdin, mut pipe) = pipe().unwrap();
    let mut running = Running::start_with(&arguments, stdin);
    pipe.write_all(&pcap(&packets(0..35, SECOND / 10))).unwrap();
    let mut records = Vec::new();
    // The fourth window is open, as nobody knows what would come.
    for _ in 0..3 {
        records.extend(parse(&running.line()));
    }
    running.interrupt();
    records.extend(parse(&running.outcome().quiet()));
    drop(pipe);
    assert_eq!(of_kind(&records, "window").len(), 4);
    // The signal may come before the packets of the open window were counted.
    assert!((30..=35).contains(&number(total(&records), "packets")), "{records:?}");
}

#[test]
fn a_duration_ends_a_live_run() {
    let outcome = run(["run", "--port", "memory:zipf,rate=50k", "--window", "100ms", "--duration", "300ms", "--format", "json"]);
    let records = parse(&outcome.live());
    assert_eq!(of_kind(&records, "window").iter().map(|window| number(window, "window")).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(total(&records)["cardinality"].get("truth").is_none());
    assert!(of_kind(&records, "sample").is_empty(), "nobody asked for reads");
}

#[test]
fn traffic_that_ends_ends_the_run_with_every_packet_counted() {
    for workers in ["1", "4"] {
        let outcome =
            run(["run", "--port", "memory:unique,packets=5000,rate=max", "--truth", "--format", "json", "--workers", workers]);
        let records = parse(&outcome.live());
        let total = total(&records);
        assert_eq!((number(total, "packets"), &total["cardinality"]["truth"]), (5000, &5000.into()));
    }
}

#[test]
fn a_capture_runs_at_its_own_pace() {
    let scratch = Scratch::new("own-pace");
    let file = scratch.write("short.pcap", pcap(&packets(0..50, SECOND / 500)));
    let port = format!("pcap:{file}");
    let outcome = run(["run", "--port", &port, "--truth", "--format", "json"]);
    let records = parse(&outcome.live());
    let total = total(&records);
    assert_eq!((number(total, "packets"), &total["cardinality"]["truth"]), (50, &50.into()));
    let lasted = number(total, "end_ns") - number(total, "start_ns");
    assert!(lasted >= 49 * SECOND / 500, "{lasted} ns");
}

#[test]
fn the_demonstration_shows_the_truth() {
    let outcome = run(["run", "--duration", "200ms"]);
    let text = outcome.live();
    assert!(text.contains("truth") && text.contains("memory:zipf"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // So few packets a second are counted between naps, and what one costs means nothing.
    assert!(!text.contains("CPU"), "{text}");
}

#[test]
fn live_times_are_those_of_clocks_on_the_wall() {
    let shown = |options: &[&str], zone: &str| {
        let arguments = ["run", "--port", "memory:unique,packets=10,rate=max", "--window", "1h"];
        let output = flowgauge().env("TZ", zone).args(arguments).args(options).output().unwrap();
        Outcome::from(output).live().lines().next().unwrap().to_owned()
    };
    assert!(shown(&[], "XYZ-2").ends_with(", times are local (UTC+2)"), "{}", shown(&[], "XYZ-2"));
    assert!(shown(&["--utc"], "XYZ-2").ends_with(", times are UTC"));
}

#[test]
fn a_live_run_takes_its_port_from_the_configuration_file() {
    let scratch = Scratch::new("live-config");
    let config = scratch.write(
        "run.toml",
        "backend = \"poll\"\nport = \"memory:unique,packets=700,rate=max\"\nformat = \"json\"\nread-every = \"never\"\n",
    );
    let records = parse(&run(["run", "--config", &config]).quiet());
    assert_eq!(number(total(&records), "packets"), 700);
    let records = parse(&run(["run", "--config", &config, "--port", "memory:unique,packets=300,rate=max"]).quiet());
    assert_eq!(number(total(&records), "packets"), 300);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let scratch = Scratch::new("enough");
    let file = scratch.write("long.pcap", pcap(&packets(0..10_000, SECOND / 100)));
    let endless = ["run", "--port", "memory:unique,rate=10k", "--read-every", "1ms"];
    let replay = ["replay", &file, "--read-every", "1us"];
    for format in ["json", "csv", "table"] {
        for arguments in [&endless[..], &replay] {
            let mut running = Running::start(&[arguments, &["--format", format]].concat());
            assert!(!running.line().is_empty());
            gone(running);
        }
    }
    let mut running = Running::start(&["generate", "unique,packets=10M", "--to", "-"]);
    running.stdout.as_mut().unwrap().read_exact(&mut [0; 24]).unwrap();
    gone(running);
}

/// Stops reading; the command must notice and end in silence.
#[track_caller]
fn gone(mut running: Running) {
    running.stdout = None;
    running.outcome().live();
}

#[test]
fn a_reader_that_never_was_is_no_error() {
    let scratch = Scratch::new("never");
    let file = scratch.write("short.pcap", pcap(&packets(0..10, SECOND)));
    for arguments in [
        &["replay", &file][..],
        &["replay", &file, "--format", "csv"],
        &["run", "--duration", "50ms"],
        &["tables"],
        &["tables", "--format", "json"],
        &["generate", "unique,packets=10", "--to", "-"],
        &["--help"],
        &["--version"],
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = flowgauge().args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let outcome = Outcome::from(output);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
