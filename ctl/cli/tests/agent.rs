//! Several sources in one run, origins of options, changes without a gap, interfaces that are added
//! and removed, notifications to a service manager, and alerts.

use crate::common;
use crate::common::served::Served;
use crate::common::{
    Outcome, Running, Scratch, flowgauge, number, of_kind, parse, text, windows_in_sequence,
};
use flowgauge_testing::namespace::OtherNamespace;
use flowgauge_testing::wait::until;
use flowgauge_testing::{extent, on_veth, skip};
use flowgauge_traffic::veth::{self, RECEIVER, SENDER};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

fn run(arguments: &[&str]) -> Outcome {
    flowgauge().args(arguments).output().unwrap().into()
}

#[test]
fn sources_are_counted_side_by_side_and_every_record_says_its_own() {
    let scratch = Scratch::new("agent-sources");
    let config = scratch.write(
        "run.toml",
        "format = 'json'\nwindow = '20ms'\n\n[[source]]\nname = 'left'\nport = 'memory:unique,packets=3000,rate=20k'\n\n[[source]]\nname = \
         'right'\nport = 'memory:zipf,packets=5000,rate=30k'\nmeasure = 'cardinality,sizes'\nkey = 'five-tuple'\n",
    );
    let outcome = run(&["run", "--config", &config]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    // Every line is a complete JSON object.
    let records = parse(&outcome.stdout);
    for (name, packets, key, sizes) in
        [("left", 3000, "src", false), ("right", 5000, "five-tuple", true)]
    {
        let own: Vec<Value> =
            records.iter().filter(|record| record["source"] == name).cloned().collect();
        assert_eq!(number(common::total(&own), "packets"), packets);
        assert!(windows_in_sequence(&of_kind(&own, "window")) > 0);
        assert!(
            own.iter().all(|record| record["cardinality"]["key"] == key
                && record.get("sizes").is_some() == sizes)
        );
    }
    assert!(records.iter().all(|record| record.get("source").is_some()));
    assert!(outcome.stderr.contains("source left has ended"), "{}", outcome.stderr);
    let table = run(&["run", "--config", &config, "--format", "table"]);
    assert!(
        table.stdout.lines().all(|line| line.is_empty()
            || line.starts_with("left | ")
            || line.starts_with("right | ")),
        "{}",
        table.stdout
    );
    let refused = run(&["run", "--config", &config, "--format", "csv"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.complaint().contains("--format json"), "{}", refused.stderr);
    let refused = run(&["run", "--config", &config, "-i", "eth1"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.complaint().contains("interface cannot be combined with [[source]] tables"),
        "{}",
        refused.stderr
    );
}

#[test]
fn sources_of_similar_names_have_files_of_their_own() {
    let scratch = Scratch::new("agent-names");
    let out = scratch.path("out");
    let names = ["eth0.1", "eth0-1", "eth0_1"];
    let source = |name| {
        format!("[[source]]\nname = '{name}'\nport = 'memory:unique,packets=2000,rate=20k'\n")
    };
    let sources = names.map(source).concat();
    let config =
        scratch.write("names.toml", format!("window = '1s'\nout = '{}'\n{sources}", out.display()));
    run(&["config", "check", &config]).quiet();
    let outcome = run(&["run", "--config", &config]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let files = fs::read_dir(&out).unwrap();
    let files: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files.len(), 6, "{files:?}");
    for name in names {
        let of_source = files.iter().filter(|file| {
            file.ends_with(&format!("-{name}.csv")) || file.ends_with(&format!("-{name}.jsonl"))
        });
        assert_eq!(of_source.count(), 2, "{name}: {files:?}");
    }
}

#[test]
fn a_run_without_a_source_counts_nothing() {
    let scratch = Scratch::new("agent-nothing");
    let lake = scratch.path("lake");
    let config =
        scratch.write("nothing.toml", format!("window = '1s'\nlake = '{}'\n", lake.display()));
    let source = scratch.write("source.toml", "[[source]]\nname = 'a'\nwindow = '1s'\n");
    for arguments in [
        &["run"][..],
        &["run", "--window", "1s"],
        &["run", "--config", &config],
        &["run", "--config", &source],
        &["config", "check", &config],
    ] {
        let output = flowgauge().args(arguments).output().unwrap();
        let reported = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(2), &b""[..]),
            "{arguments:?}: {reported}"
        );
        let is_of_table = arguments.contains(&source.as_str());
        let wanted = if is_of_table {
            "a [[source]] needs one of: interface, port, address"
        } else {
            "nothing to count: give an interface with -i"
        };
        assert!(reported.contains(wanted), "{reported}");
        if arguments[0] == "run" {
            let output =
                flowgauge().env("FLOWGAUGE_INTERFACES", "eth1").args(arguments).output().unwrap();
            let reported = String::from_utf8(output.stderr).unwrap();
            assert_eq!(
                (output.status.code(), output.stdout.as_slice()),
                (Some(2), &b""[..]),
                "{arguments:?}: {reported}"
            );
            assert!(reported.contains("did you mean FLOWGAUGE_INTERFACE?"), "{reported}");
        }
    }
    assert!(!lake.exists());
}

#[test]
fn a_source_that_fails_is_told_and_ends_alone() {
    let scratch = Scratch::new("agent-fails");
    let good = "[[source]]\nname = 'good'\nport = 'memory:unique,packets=2000,rate=20k'\n";
    let bad = |name: &str| {
        format!("[[source]]\nname = '{name}'\nport = 'pcap:/does/not/exist/{name}.pcap'\n")
    };
    let config = scratch.write("one.toml", format!("format = 'json'\n{}{good}", bad("bad")));
    let outcome = run(&["run", "--config", &config]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("error: source bad: ")
            && outcome.stderr.contains("1 of 2 sources failed: bad"),
        "{}",
        outcome.stderr
    );
    assert_eq!(number(common::total(&parse(&outcome.stdout)), "packets"), 2000);
    let config =
        scratch.write("all.toml", format!("format = 'json'\n{}{}", bad("one"), bad("two")));
    let outcome = run(&["run", "--config", &config]);
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome.stderr.contains("all sources failed: one, two")
            || outcome.stderr.contains("all sources failed: two, one"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_signal_ends_all_sources_with_what_they_counted() {
    let scratch = Scratch::new("agent-signal");
    let source =
        |name: &str| format!("[[source]]\nname = '{name}'\nport = 'memory:unique,rate=20k'\n");
    let config = scratch.write(
        "run.toml",
        format!("format = 'json'\nwindow = '10ms'\n{}{}", source("a"), source("b")),
    );
    let mut running = Running::start(&["run", "--config", &config]);
    let mut seen = Vec::new();
    while !["a", "b"].iter().all(|name| seen.iter().any(|line: &Value| line["source"] == *name)) {
        seen.extend(parse(&running.line()));
    }
    running.interrupt();
    let outcome = running.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    seen.extend(parse(&outcome.stdout));
    for name in ["a", "b"] {
        let own: Vec<Value> =
            seen.iter().filter(|record| record["source"] == name).cloned().collect();
        assert!(number(common::total(&own), "packets") > 0);
    }
}

#[test]
fn a_configuration_is_checked_and_told_with_its_origins() {
    let scratch = Scratch::new("agent-config");
    let content = "window = '1m'\nread-every = '1s'\n\n[[source]]\nname = 'uplink'\ninterface = 'eth1,eth2'\nkey = ['src', 'heavy=dst']\nmeasure = 'cardinality,heavy'\nadopt = true\n";
    let config = scratch.write("run.toml", content);
    assert_eq!(run(&["config", "check", &config]).quiet(), format!("{config}: ok, 1 source\n"));
    let output = flowgauge()
        .env_remove("FLOWGAUGE_HOST")
        .env("FLOWGAUGE_SAMPLE_EVERY", "2s")
        .args(["config", "print", "--origin", "--config", &config, "--window", "10s"])
        .output();
    let expected = format!(
        "sample-every = \"2s\"  # FLOWGAUGE_SAMPLE_EVERY in the environment\nwindow = \"10s\"  # --window on the command line\n\n[[source]]\nname = \
         \"uplink\"  # {config}:5\ninterface = [\"eth1\", \"eth2\"]  # {config}:6\nkey = [\"src\", \"heavy=dst\"]  # {config}:7\nmeasure = \
         \"cardinality,heavy\"  # {config}:8\nadopt = true  # {config}:9\n"
    );
    assert_eq!(Outcome::from(output.unwrap()).quiet(), expected);
    // The output is a valid configuration.
    let printed = flowgauge()
        .env_remove("FLOWGAUGE_HOST")
        .args(["config", "print", "--config", &config])
        .output()
        .unwrap();
    let again = scratch.write("again.toml", printed.stdout);
    assert_eq!(run(&["config", "check", &again]).code, Some(0));
    for (content, complaint) in [
        ("windw = '1m'\n", "line 1: unknown option 'windw'; did you mean 'window'?"),
        (
            "[[source]]\ninterface = 'eth1'\nadot = true\n",
            "line 3: unknown option 'adot'; did you mean 'adopt'?",
        ),
        (
            "[[source]]\nname = 'x'\ninterface = 'eth1'\nhash-key = 'k'\nhash = 'crc32'\n",
            "source x (",
        ),
    ] {
        let config = scratch.write("wrong.toml", content);
        let outcome = run(&["config", "check", &config]);
        assert_eq!(outcome.code, Some(2), "{content}");
        assert!(outcome.complaint().contains(complaint), "{content}: {}", outcome.stderr);
    }
}

#[test]
fn the_environment_goes_before_the_file_and_the_command_line_before_both() {
    let scratch = Scratch::new("agent-environment");
    let config =
        scratch.write("run.toml", "port = 'memory:unique,packets=100,rate=max'\nformat = 'csv'\n");
    let packets = |port: &str, arguments: &[&str]| {
        let mut command = flowgauge();
        command
            .env("FLOWGAUGE_CONFIG", &config)
            .env("FLOWGAUGE_FORMAT", "json")
            .env("FLOWGAUGE_PORT", port)
            .arg("run")
            .args(arguments);
        number(common::total(&parse(&Outcome::from(command.output().unwrap()).live())), "packets")
    };
    assert_eq!(packets("", &[]), 100);
    assert_eq!(packets("memory:unique,packets=200,rate=max", &[]), 200);
    assert_eq!(
        packets(
            "memory:unique,packets=200,rate=max",
            &["--port", "memory:unique,packets=300,rate=max"]
        ),
        300
    );
    let output = flowgauge().env("FLOWGAUGE_WINDOW", "soon").arg("run").output().unwrap();
    let outcome = Outcome::from(output);
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.complaint().contains("FLOWGAUGE_WINDOW: invalid value 'soon'"),
        "{}",
        outcome.stderr
    );
}

/// Datagrams that a thread sends in bursts, each beginning when the one before has been sent and
/// another one is asked for.
struct Bursts {
    ask: mpsc::SyncSender<()>,
    sender: thread::JoinHandle<u64>,
}

/// A socket has room for several, even if its reader gets no processor meanwhile.
const BURST: u64 = 500;

impl Bursts {
    fn new() -> Self {
        let (ask, asked) = mpsc::sync_channel(0);
        // In this thread's network.
        let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
        let burst = move |()| {
            let send = |_: &u64| socket.send_to(&[0; 18], (RECEIVER.1, 9)).is_ok();
            (0..BURST).filter(send).count() as u64
        };
        Bursts { ask, sender: thread::spawn(move || asked.into_iter().map(burst).sum()) }
    }

    fn ask(&self) {
        self.ask.send(()).unwrap();
    }

    /// Returns the number of datagrams sent.
    fn end(self) -> u64 {
        drop(self.ask);
        self.sender.join().unwrap()
    }
}

/// Changes a configuration many times under traffic, the filter included: windows are numbered,
/// nothing is lost, every packet is in a window, and all packets of a window passed one filter.
fn reloads(source: &'static str) {
    let reloads = extent(100, 200);
    let scratch = Scratch::new(if source.contains("af_xdp") {
        "agent-reload-af-xdp"
    } else {
        "agent-reload-xdp"
    });
    let content = |round: usize| {
        let (window, read) = (5 + round % 7, if round.is_multiple_of(2) { "never" } else { "3ms" });
        let alert = if round.is_multiple_of(3) { "alert = ['packets > 1G']\n" } else { "" };
        let filter = ["udp", "tcp", "udp and less 100"][round / 2 % 3];
        format!(
            "format = 'json'\n{source}\nmatch = '{filter}'\nwindow = '{window}ms'\nread-every = '{read}'\n{alert}"
        )
    };
    let config = scratch.write("run.toml", content(0));
    let mut command = flowgauge();
    command.args(["run", "--config", &config]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reported = BufReader::new(child.stderr.take().unwrap());
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let begun = Arc::new(AtomicBool::new(false));
    let beginning = Arc::clone(&begun);
    let reader = thread::spawn(move || {
        let lines = stdout.lines().map(|line| {
            beginning.store(true, Ordering::Release);
            serde_json::from_str(&line.unwrap()).unwrap()
        });
        lines.collect::<Vec<Value>>()
    });
    until(|| begun.load(Ordering::Acquire));
    let bursts = Bursts::new();
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    for round in 1..=reloads {
        let next = scratch.write("next.toml", content(round));
        fs::rename(next, &config).unwrap();
        bursts.ask();
        nix::sys::signal::kill(pid, Signal::SIGHUP).unwrap();
        let mut line = String::new();
        while !line.contains("changed between two windows") {
            line.clear();
            assert!(reported.read_line(&mut line).unwrap() > 0, "it ended after {round} reloads");
            assert!(!line.contains("cannot reload"), "{line}");
        }
        assert!(line.contains("; 0 packets lost"), "{line}");
    }
    let sent = bursts.end();
    // Wait until packets in flight have arrived according to the device.
    until(|| veth_received() >= sent);
    nix::sys::signal::kill(pid, Signal::SIGINT).unwrap();
    let mut rest = String::new();
    reported.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    let records = reader.join().unwrap();
    let windows = of_kind(&records, "window");
    windows_in_sequence(&windows);
    let counted: u64 = windows.iter().map(|window| number(window, "packets")).sum();
    let dropped: u64 = windows
        .iter()
        .flat_map(|window| window["drops"].as_object().unwrap().values())
        .map(|drops| drops.as_u64().unwrap())
        .sum();
    println!(
        "{source}: {sent} sent, {counted} counted, {dropped} lost, {} windows, {reloads} reloads",
        windows.len()
    );
    let unmatched = |window: &Value| window["unmatched"]["packets"].as_u64().unwrap();
    let left_out: u64 = windows.iter().map(|window| unmatched(window)).sum();
    for window in &windows {
        let other =
            if window["match"] == "tcp" { number(window, "packets") } else { unmatched(window) };
        assert_eq!(other, 0, "{window}");
    }
    assert!(counted > 0 && left_out > 0, "{counted} {left_out}");
    assert_eq!((counted + left_out, dropped), (sent, 0));
    assert_eq!(number(common::total(&records), "packets"), counted);
    let ledger = &common::total(&records)["ledger"];
    assert_eq!(ledger["unaccounted"], 0, "{ledger}");
}

fn veth_received() -> u64 {
    flowgauge_dataplane::xdp::DeviceCounters::read(RECEIVER.0).unwrap().received
}

#[test]
fn changes_under_traffic_lose_nothing_in_the_kernel() {
    on_veth(|| reloads("interface = 'rx'"));
}

#[test]
fn changes_under_traffic_lose_nothing_on_a_socket() {
    on_veth(|| reloads("port = 'af_xdp:rx,from-host'"));
}

#[test]
fn what_cannot_change_stays_and_is_told() {
    let scratch = Scratch::new("agent-stays");
    let content = |key: &str, window: &str| {
        format!(
            "format = 'json'\nport = 'memory:unique,rate=10k'\nkey = '{key}'\nwindow = '{window}'\n"
        )
    };
    let config = scratch.write("run.toml", content("src", "10ms"));
    let mut running = Running::start(&["run", "--config", &config]);
    let mut reported = BufReader::new(running.child.stderr.take().unwrap());
    running.line();
    scratch.write("run.toml", content("dst", "20ms"));
    running.signal(Signal::SIGHUP);
    let mut line = String::new();
    reported.read_line(&mut line).unwrap();
    assert!(line.contains("key cannot change during a run"), "{line}");
    line.clear();
    reported.read_line(&mut line).unwrap();
    assert!(
        line.contains("changed between two windows") && line.contains("; 0 packets lost"),
        "{line}"
    );
    scratch.write("run.toml", "windw = '1s'\n");
    running.signal(Signal::SIGHUP);
    line.clear();
    reported.read_line(&mut line).unwrap();
    assert!(
        line.contains("did you mean 'window'?")
            && line.contains("continues with the previous configuration"),
        "{line}"
    );
    // Without its source, the run continues with the current one and does not generate traffic.
    scratch.write("run.toml", "format = 'json'\nkey = 'src'\nwindow = '10ms'\n");
    running.signal(Signal::SIGHUP);
    line.clear();
    reported.read_line(&mut line).unwrap();
    assert!(
        line.contains("nothing to count")
            && line.contains("continues with the previous configuration"),
        "{line}"
    );
    running.interrupt();
    let mut rest = String::new();
    running.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    let records = parse(&rest);
    assert_eq!(common::of_kind(&records, "total")[0]["cardinality"]["key"], "src");
}

/// Reads lines until one is of this source and has packets.
fn counted_at(running: &mut Running, source: &str, packets: u64) {
    let mut counted = 0;
    while counted < packets {
        let line: Value = serde_json::from_str(&running.line()).unwrap();
        if line["source"] == source && line["record"] == "window" {
            counted += number(&line, "packets");
        }
    }
    assert_eq!(counted, packets);
}

#[test]
fn interfaces_of_a_pattern_are_counted_also_those_that_come_later() {
    on_veth(|| {
        let send = |port: u16, address: &str| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            (0..50)
                .for_each(|_| assert_eq!(socket.send_to(&[0; 18], (address, port)).unwrap(), 18));
        };
        let mut running = Running::start(&[
            "run",
            "-i",
            "rx*",
            "--xdp-mode",
            "skb",
            "--window",
            "10ms",
            "--sample-every",
            "never",
            "--format",
            "json",
        ]);
        let first: Value = serde_json::from_str(&running.line()).unwrap();
        assert_eq!(text(&first, "source"), "rx");
        send(9, RECEIVER.1);
        counted_at(&mut running, "rx", 50);
        // A source that begins two seconds after the run is reported.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2100) {
            running.line();
        }
        for round in 0..2 {
            veth::ip("link add rx9 type veth peer name tx9").unwrap();
            for device in ["rx9", "tx9"] {
                veth::ip(&format!("link set dev {device} addrgenmode none")).unwrap();
                veth::ip(&format!("link set dev {device} up")).unwrap();
            }
            veth::ip("addr add 10.78.0.1/24 dev tx9").unwrap();
            veth::ip("neigh add 10.78.0.2 lladdr 02:00:00:00:00:09 dev tx9 nud permanent").unwrap();
            // The interface is counted once a line says so.
            let mut line = Value::Null;
            while line["source"] != "rx9" {
                line = serde_json::from_str(&running.line()).unwrap();
            }
            send(9, "10.78.0.2");
            counted_at(&mut running, "rx9", 50);
            veth::ip("link del rx9").unwrap();
            // The total of a source that has ended.
            while line["source"] != "rx9" || line["record"] != "total" {
                line = serde_json::from_str(&running.line()).unwrap();
            }
            assert_eq!(number(&line, "packets"), 50, "round {round}");
        }
        running.interrupt();
        let outcome = running.outcome();
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(
            outcome.stderr.contains("rx9: interface removed; counting resumes when it is back"),
            "{}",
            outcome.stderr
        );
        let late = outcome.stderr.lines().find(|line| line.contains("source rx9 began "));
        assert!(late.is_some_and(|line| line.ends_with(" s after the run")), "{}", outcome.stderr);
    });
}

/// Adds pairs of veth devices, `many0` and `peer0` and so on.
fn add_pairs(number: usize) {
    for pair in 0..number {
        veth::ip(&format!("link add many{pair} type veth peer name peer{pair}")).unwrap();
        for device in [format!("many{pair}"), format!("peer{pair}")] {
            veth::ip(&format!("link set dev {device} addrgenmode none")).unwrap();
            veth::ip(&format!("link set dev {device} up")).unwrap();
        }
    }
}

/// Starts a run on the devices of [`add_pairs`] under a limit of open files, given as options of
/// `ulimit`.
fn with_open_files(limit: &str) -> Running {
    let flowgauge = flowgauge();
    let mut shell = Command::new("sh");
    for (name, value) in flowgauge.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let limited = format!("ulimit {limit} && exec \"$@\"");
    shell.args(["-c", &limited, "sh"]).arg(flowgauge.get_program());
    shell.args(["-v", "run", "-i", "many*", "--window", "100ms", "--sample-every", "never"]);
    Running::of(shell.args(["--format", "json"]).stdin(Stdio::null()))
}

/// Counts on that many devices of [`add_pairs`] under a limit of open files, until each has a
/// record.
fn counted_with_open_files(interfaces: usize, limit: &str) -> Outcome {
    let mut running = with_open_files(limit);
    let mut sources = BTreeSet::new();
    while sources.len() < interfaces {
        let line: Value = serde_json::from_str(&running.line()).unwrap();
        sources.insert(text(&line, "source").to_owned());
    }
    running.interrupt();
    let outcome = running.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    outcome
}

/// An interface takes at least two descriptors, its array and its link or program, and all that are
/// loaded when it starts, some 15.
#[test]
fn a_run_raises_its_soft_limit_of_open_files_and_reports_its_memory() {
    on_veth(|| {
        let interfaces = extent(8, 150);
        add_pairs(interfaces);
        let outcome = counted_with_open_files(interfaces, "-S -n 32");
        // Printed before the memory is taken.
        let taken = format!("{interfaces} interfaces: the kernel's arrays take ");
        assert!(outcome.stderr.contains(&taken), "{}", outcome.stderr);
    });
}

/// What is loaded is closed once it is attached: at most five descriptors an interface, which were 14
/// and more.
#[test]
fn many_interfaces_take_few_open_files() {
    on_veth(|| {
        // Up to 16 that start at once have ten more, and the run itself has less than 32.
        let interfaces = extent(24, 300);
        add_pairs(interfaces);
        let limit = (5 * interfaces).max(4 * interfaces + 16 * 10 + 32);
        counted_with_open_files(interfaces, &format!("-n {limit}"));
    });
}

#[test]
fn memory_is_reported_by_interface_and_not_by_source() {
    on_veth(|| {
        let scratch = Scratch::new("agent-memory");
        let config = scratch.write(
            "run.toml",
            "format = 'json'\nwindow = '100ms'\n\n[[source]]\ninterface = ['rx', 'tx']\n",
        );
        let mut running =
            Running::start(&["-v", "run", "--config", &config, "--sample-every", "never"]);
        running.line();
        running.interrupt();
        let outcome = running.outcome();
        let taken = "2 interfaces: the kernel's arrays take ";
        assert!(outcome.stderr.contains(taken), "{}", outcome.stderr);
    });
}

#[test]
fn too_many_open_files_are_named_as_such() {
    on_veth(|| {
        add_pairs(16);
        let mut running = with_open_files("-n 40");
        let mut reported = BufReader::new(running.child.stderr.take().unwrap());
        let mut stderr = String::new();
        while !stderr.contains("error: source ") {
            assert!(reported.read_line(&mut stderr).unwrap() > 0, "{stderr}");
        }
        running.interrupt();
        reported.read_to_string(&mut stderr).unwrap();
        running.stdout.take().unwrap().read_to_string(&mut String::new()).unwrap();
        assert_eq!(running.child.wait().unwrap().code(), Some(1), "{stderr}");
        for line in stderr.lines().filter(|line| line.starts_with("error: source ")) {
            assert!(line.contains("Too many open files") && line.contains("`ulimit -n`"), "{line}");
        }
        for lie in ["sysfs", "no such interface", "interface removed", "is gone"] {
            assert!(!stderr.contains(lie), "{lie}: {stderr}");
        }
    });
}

#[test]
fn a_port_whose_interface_moves_is_counted_again_when_it_is_back() {
    for is_back_at_once in [false, true] {
        a_port_moves(is_back_at_once);
    }
}

/// Moves the interface of a port to another namespace and back: before the run has noticed, or
/// after.
fn a_port_moves(is_back_at_once: bool) {
    on_veth(move || {
        let scratch = Scratch::new("agent-port-moves");
        let config = scratch.write(
            "run.toml",
            "format = 'json'\nwindow = '100ms'\n\n[[source]]\nname = 'port'\nport = 'af_xdp:rx'\n\n[[source]]\nname = \
             'rest'\nport = 'memory:unique,rate=1k'\n",
        );
        let mut running = Running::start(&["run", "--config", &config, "--sample-every", "never"]);
        let mut reported = BufReader::new(running.child.stderr.take().unwrap());
        let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
        let send = || {
            let sent = |_: &u64| socket.send_to(&[0; 18], (RECEIVER.1, 9)).is_ok();
            assert_eq!((0..50).filter(sent).count(), 50);
        };
        let until_record = |running: &mut Running, record: &str| {
            let mut line = Value::Null;
            while line["source"] != "port" || line["record"] != record {
                line = serde_json::from_str(&running.line()).unwrap();
            }
        };
        until_record(&mut running, "window");
        send();
        counted_at(&mut running, "port", 50);
        let other = OtherNamespace::start();
        other.take(RECEIVER.0);
        if is_back_at_once {
            other.give_back(RECEIVER.0);
        }
        until_record(&mut running, "total");
        let (mut said, mut line) = (String::new(), String::new());
        while !line.contains("port: interface removed; counting resumes when it is back") {
            line.clear();
            assert!(reported.read_line(&mut line).unwrap() > 0, "{said}");
            said += &line;
        }
        assert!(said.contains("rx: the interface moved to another network namespace"), "{said}");
        if !is_back_at_once {
            send();
            other.give_back(RECEIVER.0);
        }
        until_record(&mut running, "window");
        send();
        counted_at(&mut running, "port", 50);
        running.interrupt();
        running.stdout.take().unwrap().read_to_string(&mut String::new()).unwrap();
        running.child.wait().unwrap();
    });
}

/// Starts a run on these interfaces that prints JSON. With classifiers, since the kernel refuses an
/// XDP program on an interface below one that has one.
fn on_interfaces(names: &str) -> Running {
    let options = "--xdp-mode clsact --window 10ms --sample-every never --format json";
    let mut arguments = vec!["run", "-i", names];
    arguments.extend(options.split_ascii_whitespace());
    Running::start(&arguments)
}

/// Reads a record and returns its source.
fn source_of_next(running: &mut Running) -> String {
    let record: Value = serde_json::from_str(&running.line()).unwrap();
    text(&record, "source").to_owned()
}

#[test]
fn a_pattern_leaves_out_a_bridge_whose_ports_it_matches() {
    on_veth(|| {
        if let Err(problem) = veth::ip("link add rbr type bridge") {
            skip(format!("bridges ({problem})"));
            return;
        }
        veth::ip("link set dev rbr addrgenmode none").unwrap();
        veth::ip("link set dev rx master rbr").unwrap();
        veth::ip("link set dev rbr up").unwrap();
        let end = |running: Running| {
            running.interrupt();
            let outcome = running.outcome();
            assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
            outcome
        };
        let mut running = on_interfaces("r*");
        assert_eq!(source_of_next(&mut running), "rx");
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        (0..50).for_each(|_| assert_eq!(socket.send_to(&[0; 18], (RECEIVER.1, 9)).unwrap(), 18));
        counted_at(&mut running, "rx", 50);
        let outcome = end(running);
        let records = parse(&outcome.stdout);
        assert!(records.iter().all(|record| record["source"] == "rx"), "{}", outcome.stdout);
        assert!(
            outcome.stderr.contains("left out of the pattern")
                && outcome.stderr.contains("rbr (above rx)"),
            "{}",
            outcome.stderr
        );
        // Names and a pattern that matches no port ask for it.
        for names in ["rx,rbr", "r*,rbr"] {
            let mut running = on_interfaces(names);
            running.line();
            let outcome = end(running);
            assert!(outcome.stderr.contains("twice: rbr (above rx)"), "{}", outcome.stderr);
        }
        let mut running = on_interfaces("rb*");
        assert_eq!(source_of_next(&mut running), "rbr");
        assert!(!end(running).stderr.contains("above rx"));
        // A bridge is counted until it has a port.
        veth::ip("link set dev rx nomaster").unwrap();
        let mut running = on_interfaces("r*");
        let mut seen = BTreeSet::new();
        while seen.len() < 2 {
            seen.insert(source_of_next(&mut running));
        }
        veth::ip("link set dev rx master rbr").unwrap();
        let mut record = Value::Null;
        while record["source"] != "rbr" || record["record"] != "total" {
            record = serde_json::from_str(&running.line()).unwrap();
        }
        end(running);
    });
}

/// Sends requests until the answer is this one.
fn wait_for(served: &Served, path: &str, status: u16, part: &str) {
    until(|| {
        let (found, _, body) = served.get(path);
        found == status && body.contains(part)
    });
}

/// Ends a run and returns the packets in its totals, by source or interface.
fn totals(mut served: Served, key: &str) -> BTreeMap<String, u64> {
    served.running.interrupt();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    served.running.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    served.stderr.read_to_string(&mut stderr).unwrap();
    served.running.child.wait().unwrap();
    let records = parse(&stdout);
    let mut packets = BTreeMap::new();
    for total in of_kind(&records, "total") {
        *packets.entry(text(total, key).to_owned()).or_default() += number(total, "packets");
    }
    assert!(!packets.is_empty(), "{stderr}");
    packets
}

/// Removes one of two interfaces: probes report it, and the other is counted to the packet, also by
/// a run that starts without the first.
fn one_of_two_interfaces_goes(
    test: &str,
    configuration: &'static str,
    key: &'static str,
    problem: &'static str,
) {
    let scratch = Scratch::new(test);
    let config = scratch.write("run.toml", configuration);
    let test = move || {
        veth::ip("link set dev lo up").unwrap();
        let (sender, receiver) = (("tx9", "10.78.0.1"), ("rx9", "10.78.0.2"));
        veth::pair(sender, receiver).unwrap();
        let send = |address: &str, packets: u32| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            (0..packets)
                .for_each(|_| assert_eq!(socket.send_to(&[0; 18], (address, 9)).unwrap(), 18));
        };
        let is_alive = |served: &Served| {
            assert_eq!(served.get("/live"), (200, served.get("/live").1, "alive\n".to_owned()))
        };
        let served = Served::start(&format!("--config {config} --xdp-mode skb"));
        wait_for(&served, "/ready", 200, "ready");
        send(receiver.1, 30);
        send(RECEIVER.1, 100);
        veth::ip("link del dev rx9").unwrap();
        wait_for(&served, "/ready", 503, problem);
        assert_eq!(served.get("/health").0, 503);
        is_alive(&served);
        send(RECEIVER.1, 11);
        let counted = totals(served, key);
        assert_eq!((counted.get("rx"), counted.get("rx9")), (Some(&111), Some(&30)), "{counted:?}");
        // The run is restarted without it, and counts it when it appears.
        let served = Served::start(&format!("--config {config} --xdp-mode skb"));
        wait_for(&served, "/ready", 503, problem);
        // It reports what it waits for, and counts the other.
        while served.get("/ready").2.lines().count() > 1 {}
        is_alive(&served);
        send(RECEIVER.1, 50);
        veth::pair(sender, receiver).unwrap();
        wait_for(&served, "/ready", 200, "ready");
        send(receiver.1, 20);
        let counted = totals(served, key);
        assert_eq!((counted.get("rx"), counted.get("rx9")), (Some(&50), Some(&20)), "{counted:?}");
    };
    on_veth(test);
}

#[test]
fn a_pattern_that_matches_nothing_is_waited_for_until_the_run_ends() {
    let begun = Instant::now();
    let outcome = run(&["run", "-i", "nosuch*", "--duration", "300ms"]);
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""), "{}", outcome.stderr);
    let last = outcome.stderr.lines().last();
    assert_eq!(
        last,
        Some("error: no interface matched nosuch* until the end of the run; nothing was counted")
    );
}

#[test]
fn a_source_whose_interface_is_gone_is_waited_for() {
    let configuration = "[[source]]\ninterface = 'rx'\n[[source]]\ninterface = 'rx9'\n";
    one_of_two_interfaces_goes(
        "agent-gone-source",
        configuration,
        "source",
        "rx9: rx9: no such interface; counting starts when it exists",
    );
}

#[test]
fn an_interface_of_a_source_that_is_gone_is_waited_for() {
    let configuration = "interface = ['rx', 'rx9']\n";
    one_of_two_interfaces_goes(
        "agent-gone-place",
        configuration,
        "interface",
        "rx9 ingress: not counted: the interface was removed",
    );
}

/// Service manager that receives notifications, one message after the other.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        Manager(UnixDatagram::bind(path).unwrap())
    }

    fn hear(&self) -> String {
        let mut message = [0; 256];
        let length = self.0.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    /// Returns the messages received since the last call.
    fn heard(&self) -> Vec<String> {
        self.0.set_nonblocking(true).unwrap();
        let mut message = [0; 256];
        let next = || {
            self.0
                .recv(&mut message)
                .ok()
                .map(|length| String::from_utf8_lossy(&message[..length]).into_owned())
        };
        std::iter::from_fn(next).collect()
    }

    fn wait_for(&self, part: &str) -> String {
        loop {
            let heard = self.hear();
            if heard.contains(part) {
                return heard;
            }
        }
    }
}

#[test]
fn a_run_that_cannot_begin_was_never_ready() {
    let scratch = Scratch::new("agent-never-ready");
    let socket = scratch.path("notify");
    let manager = Manager::at(&socket);
    let output = flowgauge()
        .env("NOTIFY_SOCKET", &socket)
        .args(["run", "-i", "no-such-device"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(manager.heard(), Vec::<String>::new());
}

#[test]
fn a_service_manager_hears_how_it_goes() {
    let scratch = Scratch::new("agent-service");
    let socket = scratch.path("notify");
    let manager = Manager::at(&socket);
    let config = scratch
        .write("run.toml", "format = 'json'\nport = 'memory:unique,rate=10k'\nwindow = '10ms'\n");
    let mut command = flowgauge();
    command
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "400000")
        .args(["run", "--config", &config]);
    let mut running = Running::of(&mut command);
    let stdout = running.stdout.take().unwrap();
    let reader = thread::spawn(move || stdout.lines().count());
    assert!(manager.hear().contains("READY=1"));
    manager.wait_for("WATCHDOG=1");
    running.signal(Signal::SIGHUP);
    assert!(manager.wait_for("RELOADING=1").contains("MONOTONIC_USEC="));
    manager.wait_for("READY=1");
    manager.wait_for("WATCHDOG=1");
    running.interrupt();
    manager.wait_for("STOPPING=1");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(reader.join().unwrap() > 0);
}

/// A controller whose output is not read makes no progress, and the watchdog is not notified.
#[test]
fn a_controller_that_stands_still_does_not_feed_the_watchdog() {
    let scratch = Scratch::new("agent-watchdog");
    let socket = scratch.path("notify");
    let manager = Manager::at(&socket);
    let mut command = flowgauge();
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "80000");
    command.args([
        "run",
        "--port",
        "memory:unique,rate=10k",
        "--window",
        "1h",
        "--sample-every",
        "100us",
        "--format",
        "json",
    ]);
    let mut running = Running::of(&mut command);
    manager.wait_for("WATCHDOG=1");
    // The pipe fills up eventually; from then on there are no notifications.
    manager.0.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut message = [0; 256];
    while manager.0.recv(&mut message).is_ok() {}
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

#[test]
fn an_alert_is_told_in_records_and_log() {
    let outcome = run(&[
        "run",
        "--port",
        "memory:unique,packets=20000,rate=max",
        "--format",
        "json",
        "--alert",
        "distinct_flows > 10k",
        "--alert",
        "distinct_flows > 1M",
    ]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let records = parse(&outcome.stdout);
    let fired: BTreeMap<String, bool> = of_kind(&records, "window")
        .iter()
        .flat_map(|window| window["alerts"].as_array().unwrap())
        .fold(BTreeMap::new(), |mut fired, alert| {
            *fired.entry(text(alert, "rule").to_owned()).or_default() |= alert["firing"] == true;
            fired
        });
    assert_eq!(
        fired,
        [("distinct_flows > 10k".to_owned(), true), ("distinct_flows > 1M".to_owned(), false)]
            .into()
    );
    assert!(outcome.stderr.contains("ALERT distinct_flows > 10k: it is "), "{}", outcome.stderr);
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let outcome = run(&["run", "--alert", "distinct_flows"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("FIGURE > NUMBER"), "{}", outcome.stderr);
}

#[test]
fn alerts_about_figures_that_a_run_does_not_have_are_refused() {
    let scratch = Scratch::new("agent-alerts");
    let port = "port = 'memory:unique,packets=10,rate=max'";
    for (options, rule, advice) in [
        ("", "distinct_flowz > 1", "did you mean 'distinct_flows'?"),
        ("", "entropy{key=src} < 3", "those are distinct_flows, full, late_packets, "),
        ("measure = 'entropy'", "entropy{key=src} < 3", "its labels are key=src-dst"),
        (
            "staggered = '10s'",
            "distinct_flows > 1",
            "judges windows, which --staggered does not have",
        ),
        ("", "received_packets > 1", "is about no figure of this run"),
        ("", "lost_packets{cause=devise} > 1", "cause=capture, cause=device, "),
    ] {
        let config = scratch.write("run.toml", format!("{port}\nalert = '{rule}'\n{options}\n"));
        for arguments in [["run", "--config", &config], ["config", "check", &config]] {
            let outcome = run(&arguments);
            assert_eq!(outcome.code, Some(2), "{rule}: {}", outcome.stderr);
            assert!(outcome.complaint().contains(advice), "{rule}: {}", outcome.stderr);
        }
    }
    // A rule for all sources is about those that have its figure.
    let sources = "[[source]]\nname = 'a'\nport = 'memory:unique'\nmeasure = 'entropy'\n[[source]]\nname = 'b'\nport = 'memory:unique'\n";
    for (rule, code) in [("entropy < 3", 0), ("membership_false_positive > 1", 2)] {
        let config = scratch.write("run.toml", format!("alert = '{rule}'\n{sources}"));
        let outcome = run(&["config", "check", &config]);
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
    }
    let outcome = run(&["replay", "/does/not/exist.pcap", "--alert", "entropy < 3"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    let right = "measure = 'entropy'\nkey = 'entropy=src'\nalert = 'entropy{key=src} < 3'\n";
    let config = scratch.write("run.toml", format!("{port}\n{right}"));
    let outcome = run(&["config", "check", &config]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}
