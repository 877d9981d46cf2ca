//! Live runs, signals, and readers that disconnect.

use crate::common::{
    Outcome, Running, SECOND, Scratch, assert_has, check, command, finish, flowgauge, in_shell,
    number, of_kind, packets, parse, pcap, run, text, total, windows_in_sequence,
};
use flowgauge_testing::skip;
use flowgauge_testing::wait::until;
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::io::{Read, Write, pipe};
use std::process::{Command, Stdio};

/// An endless run in a window that does not end.
const ENDLESS: &str = "run --port memory:unique,rate=10k --window 1h --format json --sample-every";

/// Interrupts a command after its first line, and returns that line and the rest.
fn interrupted(arguments: &str) -> (Value, Outcome) {
    let mut running = Running::with(arguments);
    let first = running.record();
    check(&first);
    (first, running.end())
}

#[test]
fn an_interrupt_closes_the_window_of_a_live_run() {
    for workers in ["1", "3"] {
        let (first, outcome) = interrupted(&format!("{ENDLESS} 50ms --workers {workers}"));
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
fn an_interrupt_ends_a_run_without_windows_with_a_last_sample() {
    let (_, outcome) = interrupted(
        "run --port memory:unique,rate=10k --staggered 1h --sample-every 50ms --format json",
    );
    let records = parse(&outcome.live());
    assert_eq!(
        records.iter().rev().map(|record| text(record, "record")).take(2).collect::<Vec<_>>(),
        ["total", "sample"]
    );
}

#[test]
fn an_interrupt_closes_the_window_of_a_replay() {
    let scratch = Scratch::new("interrupt-replay");
    // A sample for every packet: it is still running when the signal comes, since the pipe holds a
    // few hundred lines.
    let file = scratch.write("long.pcap", pcap(&packets(0..10_000, SECOND / 100)));
    let (first, outcome) =
        interrupted(&format!("replay {file} --window 1h --sample-every 1us --format json"));
    let mut records = vec![first];
    records.extend(parse(&outcome.quiet()));
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
    // Without samples, time stops at the end of a window whenever the signal comes.
    let (first, outcome) =
        interrupted(&format!("replay {file} --window 10us --sample-every never --format json"));
    assert_eq!(text(&first, "record"), "window");
    let mut records = vec![first];
    records.extend(parse(&outcome.ended(0).stdout));
    let windows = of_kind(&records, "window");
    assert!(windows.iter().rev().skip(1).all(|window| window["complete"] == true));
    assert_eq!(windows.last().unwrap()["complete"], false);
    total(&records);
}

#[test]
fn an_interrupt_ends_the_replay_of_a_pipe_that_has_gone_silent() {
    let arguments =
        ["replay", "-", "--window", "1s", "--sample-every", "never", "--format", "json"];
    let (stdin, mut pipe) = pipe().unwrap();
    let mut running = Running::start_with(&arguments, stdin);
    pipe.write_all(&pcap(&packets(0..35, SECOND / 10))).unwrap();
    let mut records = Vec::new();
    // The fourth window is open, since more packets may follow.
    for _ in 0..3 {
        records.extend(parse(&running.line()));
    }
    records.extend(parse(&running.end().quiet()));
    drop(pipe);
    assert_eq!(of_kind(&records, "window").len(), 4);
    // The signal may come before the packets of the open window were counted.
    assert!((30..=35).contains(&number(total(&records), "packets")), "{records:?}");
}

#[test]
fn a_duration_ends_a_live_run() {
    let arguments = "run --port memory:zipf,rate=50k --window 100ms --duration 300ms --format json";
    let records = parse(&run(arguments.split(' ')).live());
    let windows = of_kind(&records, "window");
    // The first window is short, and so is the last one.
    assert!((3..=4).contains(&windows_in_sequence(&windows)), "{windows:?}");
    for window in &windows[..windows.len() - 1] {
        assert_eq!(
            (number(window, "end_ns") - number(window, "late_ns")) % 100_000_000,
            0,
            "{window}"
        );
    }
    assert!(windows.iter().filter(|window| window["complete"] == false).count() <= 2);
    assert!(total(&records)["cardinality"].get("truth").is_none());
    assert!(of_kind(&records, "sample").is_empty(), "samples are off by default");
}

#[test]
fn traffic_that_ends_ends_the_run_with_every_packet_counted() {
    for workers in ["1", "4"] {
        let port = "memory:unique,packets=5000,rate=max";
        let arguments = format!("run --port {port} --truth --format json --workers {workers}");
        let records = parse(&run(arguments.split(' ')).live());
        let total = total(&records);
        assert_eq!([&total["packets"], &total["cardinality"]["truth"]], [5000; 2]);
    }
}

#[test]
fn a_capture_runs_at_its_own_pace() {
    let scratch = Scratch::new("own-pace");
    let file = scratch.write("short.pcap", pcap(&packets(0..50, SECOND / 500)));
    let arguments = format!("run --port pcap:{file} --truth --format json");
    let records = parse(&run(arguments.split(' ')).live());
    let total = total(&records);
    assert_eq!((number(total, "packets"), &total["cardinality"]["truth"]), (50, &50.into()));
    let lasted = number(total, "end_ns") - number(total, "start_ns");
    assert!(lasted >= 49 * SECOND / 500, "{lasted} ns");
}

#[test]
fn the_demonstration_shows_the_truth() {
    // Without a command there are no options, but there is an environment.
    let text = finish(flowgauge().env("FLOWGAUGE_DURATION", "200ms")).live();
    assert!(text.contains("truth") && text.contains("memory:zipf"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // With so few packets per second, the cost of one is meaningless.
    assert!(!text.contains("CPU"), "{text}");
}

#[test]
fn live_times_are_those_of_clocks_on_the_wall() {
    let shown = |options: &[&str], zone: &str| {
        let arguments = ["run", "--port", "memory:unique,packets=10,rate=max", "--window", "1h"];
        let outcome = finish(flowgauge().env("TZ", zone).args(arguments).args(options));
        outcome.live().lines().next().unwrap().to_owned()
    };
    assert!(shown(&[], "XYZ-2").ends_with(", times are local (UTC+2)"), "{}", shown(&[], "XYZ-2"));
    assert!(shown(&["--utc"], "XYZ-2").ends_with(", times are UTC"));
}

/// Returns the output of a command on a terminal with this many columns; `None` if there is no
/// program that creates one.
fn on_terminal(columns: usize, arguments: &str) -> Option<String> {
    let command =
        format!("stty cols {columns}; exec '{}' {arguments}", env!("CARGO_BIN_EXE_flowgauge"));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).stdin(Stdio::null());
    script.env_remove("NO_COLOR").env_remove("RUST_LOG");
    script.env("FLOWGAUGE_STATUS_DIR", "/dev/null/nowhere").env("TERM", "xterm");
    // The width of the terminal takes precedence.
    script.env("COLUMNS", "200");
    let output = script.output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap().replace('\r', ""))
}

#[test]
fn a_terminal_gets_its_width_colours_and_samples_of_long_windows() {
    let port = "run --port memory:unique,rate=10k --duration 1s --truth";
    let Some(long) = on_terminal(60, &format!("{port} --window 1h")) else {
        return skip("script (bsdutils)");
    };
    assert_has(&long, &[" sample ", "counting; one line per 1h, Ctrl-C stops", "\u{1b}"]);
    assert!(
        long.lines().filter(|line| !line.contains("WARN")).all(|line| line.chars().count() <= 60),
        "{long}"
    );
    let [short, plain] = ["--window 10s", "--window 10s --color never"]
        .map(|options| on_terminal(100, &format!("{port} {options}")).unwrap());
    assert!(!short.contains(" sample ") && short.contains('\u{1b}'), "{short}");
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let header = short.lines().find(|line| line.contains("window")).unwrap();
    assert!(header.chars().count() > 80, "{header}");
    let quiet = on_terminal(80, &format!("{port} -q")).unwrap();
    assert!(!quiet.contains("counting") && !quiet.contains("WARN"), "{quiet}");
}

#[test]
fn a_live_run_takes_its_port_from_the_configuration_file() {
    let scratch = Scratch::new("live-config");
    let config = scratch.write(
        "run.toml",
        "backend = \"poll\"\nport = \"memory:unique,packets=700,rate=max\"\nformat = \"json\"\nread-every = \"never\"\n",
    );
    for (options, packets) in [("", 700), ("--port memory:unique,packets=300,rate=max", 300)] {
        let outcome = finish(&mut command(&format!("run --config {config} {options}")));
        let records = parse(&outcome.quiet());
        assert_eq!(number(total(&records), "packets"), packets, "{options}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let scratch = Scratch::new("enough");
    let file = scratch.write("long.pcap", pcap(&packets(0..10_000, SECOND / 100)));
    for format in ["json", "csv", "table"] {
        let mut running =
            Running::start(&["replay", &file, "--window", "10ms", "--format", format]);
        assert!(!running.line().is_empty());
        gone(running);
    }
    let mut running = Running::start(&["generate", "unique,packets=10M", "--to", "-"]);
    running.stdout.as_mut().unwrap().read_exact(&mut [0; 24]).unwrap();
    gone(running);
}

/// Closes the pipe; the command must notice and end silently.
#[track_caller]
fn gone(mut running: Running) {
    running.stdout = None;
    running.outcome().live();
}

/// A live run reports that it ended, since the user expected it to continue.
#[test]
fn a_run_whose_reader_is_gone_says_so() {
    for format in ["json", "csv", "table"] {
        let arguments = "run --port memory:unique,rate=10k --sample-every 1ms --format";
        let mut running = Running::with(&format!("{arguments} {format}"));
        assert!(!running.line().is_empty());
        running.stdout = None;
        let outcome = running.outcome().ended(1);
        assert_eq!(
            outcome.complaint(),
            "error: standard output was closed by its reader; the run has ended"
        );
    }
}

/// Messages are lost then, and nothing else: `flowgauge run 2>&1 | head`.
#[test]
fn a_run_whose_messages_nobody_reads_ends_as_usual() {
    let scratch = Scratch::new("live-unread");
    let config = scratch.write(
        "run.toml",
        "[[source]]\nname = 'a'\nport = 'memory:unique,packets=10,rate=max'\n\n[[source]]\nname = 'b'\nport = 'pcap:/does/not/exist'\n",
    );
    let port = "memory:unique,packets=10,rate=max";
    for (arguments, code) in [
        (vec!["run", "--window", "soon"], 2),
        (vec!["run", "--frobnicate"], 2),
        (vec!["replay", "/does/not/exist"], 1),
        (vec!["run", "--port", port, "--listen", "127.0.0.1:0"], 0),
        (vec!["run", "--config", &config], 1),
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let mut command = flowgauge();
        command.args(&arguments).stdout(Stdio::null()).stderr(writer);
        assert_eq!(command.status().unwrap().code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_signal_that_comes_twice_is_one() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        for _ in 0..5 {
            let mut running = Running::with(&format!("{ENDLESS} 20ms"));
            let first = running.line();
            running.signal(signal);
            running.signal(signal);
            let records = parse(&running.outcome().live());
            assert_eq!(of_kind(&records, "window").len(), 1, "{records:?} after {first}");
            assert!(number(total(&records), "packets") > 0);
        }
    }
}

#[test]
fn other_signals_do_not_end_a_run() {
    let mut running = Running::with(&format!("{ENDLESS} 20ms"));
    running.line();
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGUSR1] {
        running.signal(signal);
        for _ in 0..3 {
            assert_eq!(running.line().lines().count(), 1, "it continues after {signal}");
        }
    }
    let outcome = running.end().ended(0);
    total(&parse(&outcome.stdout));
    for signal in ["SIGUSR1", "SIGUSR2", "SIGALRM"] {
        let reported = format!("ignoring {signal}");
        let lines = outcome.stderr.lines().filter(|line| line.contains(&reported));
        assert_eq!(lines.count(), 1, "{}", outcome.stderr);
    }
}

/// A reader that has stopped without disconnecting.
#[test]
fn an_interrupt_ends_a_run_that_nobody_reads() {
    let (reader, writer) = pipe().unwrap();
    let mut command = command(&format!("{ENDLESS} 100us"));
    command.stdout(writer.try_clone().unwrap()).stderr(Stdio::piped());
    let running = Running { child: command.spawn().unwrap(), stdout: None };
    // Fill the pipe.
    let has_room = || {
        poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&Timespec::default())).unwrap() > 0
    };
    until(|| !has_room());
    let lost = "the reader of standard output is gone; the last records are missing there";
    running.end().ended_with(1, &[lost]);
    drop(reader);
}

#[test]
fn a_capture_in_its_own_pace_ends_a_run_of_short_windows() {
    let scratch = Scratch::new("short-windows");
    let file = scratch.write("short.pcap", pcap(&packets(0..50, SECOND / 500)));
    let arguments = format!("run --port pcap:{file} --window 5ms --format json");
    let records = parse(&run(arguments.split(' ')).live());
    assert_eq!(number(total(&records), "packets"), 50);
}

#[test]
fn a_full_disk_leaves_whole_records_in_the_files_and_all_on_standard_output() {
    let scratch = Scratch::new("full");
    let file = scratch.write("long.pcap", pcap(&packets(0..1000, SECOND)));
    let directory = scratch.path("out");
    // Files are limited to some KiB, which is like a full disk.
    let mut limited = in_shell("ulimit -f 16; exec");
    limited.args(["replay", &file, "--format", "json", "--window", "10s", "--out"]);
    let outcome = finish(limited.arg(&directory)).ended(1);
    let printed = parse(&outcome.stdout);
    assert_eq!(
        (of_kind(&printed, "window").len(), number(total(&printed), "packets")),
        (100, 1000)
    );
    let complaints: Vec<&str> = outcome.stderr.lines().collect();
    assert!((1..=2).contains(&complaints.len()), "{complaints:?}");
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.is_empty() || written.ends_with('\n'), "{}", path.display());
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.ends_with("jsonl") {
            let records = parse(&written);
            assert!((1..printed.len()).contains(&records.len()), "{} records", records.len());
            assert_eq!(records, printed[..records.len()]);
            let reported = complaints.iter().filter(|line| {
                line.contains(name) && line.contains("records from now on are not in it")
            });
            assert_eq!(reported.count(), 1, "{complaints:?}");
        }
    }
}

#[test]
fn a_reader_that_never_was_is_no_error_of_what_ends_by_itself() {
    let scratch = Scratch::new("never");
    let file = scratch.write("short.pcap", pcap(&packets(0..10, SECOND)));
    for arguments in [
        &["replay", &file][..],
        &["replay", &file, "--format", "csv"],
        &["tables"],
        &["tables", "--format", "json"],
        &["generate", "unique,packets=10", "--to", "-"],
        &["--help"],
        &["--version"],
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let outcome = finish(flowgauge().args(arguments).stdout(writer).stderr(Stdio::piped()));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
