//! Several sources in one run, origins of options, changes without a gap, interfaces that are added
//! and removed, notifications to a service manager, and alerts.

use crate::common;
use crate::common::served::Served;
use crate::common::{
    Outcome, Running, Scratch, assert_has, command, finish, flowgauge, in_shell, number, of_kind,
    parse, run, send, text, windows_in_sequence,
};
use flowgauge_testing::namespace::OtherNamespace;
use flowgauge_testing::wait::until;
use flowgauge_testing::{extent, on_veth, skip};
use flowgauge_traffic::veth::{self, RECEIVER, SENDER};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Returns the records of one source.
fn of_source(records: &[Value], name: &str) -> Vec<Value> {
    records.iter().filter(|record| record["source"] == name).cloned().collect()
}

/// Returns a source of a configuration that generates packets.
fn generated(name: &str, profile: &str) -> String {
    format!("[[source]]\nname = '{name}'\nport = 'memory:{profile}'\n")
}

#[test]
fn sources_are_counted_side_by_side_and_every_record_says_its_own() {
    let scratch = Scratch::new("agent-sources");
    let left = generated("left", "unique,packets=3000,rate=20k");
    let right = generated("right", "zipf,packets=5000,rate=30k");
    let options = "measure = 'cardinality,sizes'\nkey = 'five-tuple'\n";
    let config = scratch
        .write("run.toml", format!("format = 'json'\nwindow = '20ms'\n\n{left}\n{right}{options}"));
    let outcome = run(["run", "--config", &config]).ended(0);
    // Every line is a complete JSON object.
    let records = parse(&outcome.stdout);
    for (name, packets, key, sizes) in
        [("left", 3000, "src", false), ("right", 5000, "five-tuple", true)]
    {
        let own = of_source(&records, name);
        assert_eq!(number(common::total(&own), "packets"), packets);
        assert!(windows_in_sequence(&of_kind(&own, "window")) > 0);
        assert!(
            own.iter().all(|record| record["cardinality"]["key"] == key
                && record.get("sizes").is_some() == sizes)
        );
    }
    assert!(records.iter().all(|record| record.get("source").is_some()));
    assert_has(&outcome.stderr, &["source left has ended"]);
    let table = run(["run", "--config", &config, "--format", "table"]);
    assert!(
        table.stdout.lines().all(|line| line.is_empty()
            || line.starts_with("left | ")
            || line.starts_with("right | ")),
        "{}",
        table.stdout
    );
    run(["run", "--config", &config, "--format", "csv"]).failed(2, &["--format json"]);
    run(["run", "--config", &config, "-i", "eth1"])
        .failed(2, &["interface cannot be combined with [[source]] tables"]);
}

#[test]
fn sources_of_similar_names_have_files_of_their_own() {
    let scratch = Scratch::new("agent-names");
    let out = scratch.path("out");
    let names = ["eth0.1", "eth0-1", "eth0_1"];
    let sources = names.map(|name| generated(name, "unique,packets=2000,rate=20k")).concat();
    let config =
        scratch.write("names.toml", format!("window = '1s'\nout = '{}'\n{sources}", out.display()));
    run(["config", "check", &config]).quiet();
    run(["run", "--config", &config]).ended(0);
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
    let refused = |command: &mut Command, wanted: &str| {
        let Outcome { code, stdout, stderr } = finish(command);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{command:?}: {stderr}");
        assert!(stderr.contains(wanted), "{command:?}: {stderr}");
    };
    for arguments in [
        &["run"][..],
        &["run", "--window", "1s"],
        &["run", "--config", &config],
        &["run", "--config", &source],
        &["config", "check", &config],
    ] {
        let is_of_table = arguments.contains(&source.as_str());
        let wanted = if is_of_table {
            "a [[source]] needs one of: interface, port, address"
        } else {
            "nothing to count: give an interface with -i"
        };
        refused(flowgauge().args(arguments), wanted);
        if arguments[0] == "run" {
            refused(
                flowgauge().env("FLOWGAUGE_INTERFACES", "eth1").args(arguments),
                "did you mean FLOWGAUGE_INTERFACE?",
            );
        }
    }
    assert!(!lake.exists());
}

#[test]
fn a_source_that_fails_is_told_and_ends_alone() {
    let scratch = Scratch::new("agent-fails");
    let good = generated("good", "unique,packets=2000,rate=20k");
    let bad = |name: &str| {
        format!("[[source]]\nname = '{name}'\nport = 'pcap:/does/not/exist/{name}.pcap'\n")
    };
    let config = scratch.write("one.toml", format!("format = 'json'\n{}{good}", bad("bad")));
    let parts = ["error: source bad: ", "1 of 2 sources failed: bad"];
    let outcome = run(["run", "--config", &config]).ended_with(1, &parts);
    assert_eq!(number(common::total(&parse(&outcome.stdout)), "packets"), 2000);
    let config =
        scratch.write("all.toml", format!("format = 'json'\n{}{}", bad("one"), bad("two")));
    let outcome = run(["run", "--config", &config]).ended(1);
    let failed = ["one, two", "two, one"].map(|names| format!("all sources failed: {names}"));
    assert!(failed.iter().any(|line| outcome.stderr.contains(line)), "{}", outcome.stderr);
}

#[test]
fn a_signal_ends_all_sources_with_what_they_counted() {
    let scratch = Scratch::new("agent-signal");
    let sources = ["a", "b"].map(|name| generated(name, "unique,rate=20k")).concat();
    let config = scratch.write("run.toml", format!("format = 'json'\nwindow = '10ms'\n{sources}"));
    let mut running = Running::start(&["run", "--config", &config]);
    let mut seen = Vec::new();
    while !["a", "b"].iter().all(|name| seen.iter().any(|line: &Value| line["source"] == *name)) {
        seen.extend(parse(&running.line()));
    }
    seen.extend(parse(&running.end().ended(0).stdout));
    for name in ["a", "b"] {
        assert!(number(common::total(&of_source(&seen, name)), "packets") > 0);
    }
}

#[test]
fn a_configuration_is_checked_and_told_with_its_origins() {
    let scratch = Scratch::new("agent-config");
    let content = "window = '1m'\nread-every = '1s'\n\n[[source]]\nname = 'uplink'\ninterface = 'eth1,eth2'\nkey = ['src', 'heavy=dst']\nmeasure = 'cardinality,heavy'\nadopt = true\n";
    let config = scratch.write("run.toml", content);
    assert_eq!(run(["config", "check", &config]).quiet(), format!("{config}: ok, 1 source\n"));
    let mut print = command("config print --origin --window 10s");
    print.env_remove("FLOWGAUGE_HOST").env("FLOWGAUGE_SAMPLE_EVERY", "2s");
    let printed = finish(print.args(["--config", &config])).quiet();
    let expected = format!(
        "sample-every = \"2s\"  # FLOWGAUGE_SAMPLE_EVERY in the environment\nwindow = \"10s\"  # --window on the command line\n\n[[source]]\nname = \
         \"uplink\"  # {config}:5\ninterface = [\"eth1\", \"eth2\"]  # {config}:6\nkey = [\"src\", \"heavy=dst\"]  # {config}:7\nmeasure = \
         \"cardinality,heavy\"  # {config}:8\nadopt = true  # {config}:9\n"
    );
    assert_eq!(printed, expected);
    // The output is a valid configuration.
    let mut print = command("config print");
    let printed = finish(print.env_remove("FLOWGAUGE_HOST").args(["--config", &config]));
    let again = scratch.write("again.toml", printed.stdout);
    run(["config", "check", &again]).ended(0);
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
        run(["config", "check", &config]).failed(2, &[complaint]);
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
        number(common::total(&parse(&finish(&mut command).live())), "packets")
    };
    assert_eq!(packets("", &[]), 100);
    assert_eq!(packets("memory:unique,packets=200,rate=max", &[]), 200);
    let port = ["--port", "memory:unique,packets=300,rate=max"];
    assert_eq!(packets("memory:unique,packets=200,rate=max", &port), 300);
    finish(flowgauge().env("FLOWGAUGE_WINDOW", "soon").arg("run"))
        .failed(2, &["FLOWGAUGE_WINDOW: invalid value 'soon'"]);
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
    let mut running = Running::start(&["run", "--config", &config]);
    let mut messages = running.messages();
    let stdout = running.stdout.take().unwrap();
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
    for round in 1..=reloads {
        let next = scratch.write("next.toml", content(round));
        fs::rename(next, &config).unwrap();
        bursts.ask();
        running.signal(Signal::SIGHUP);
        let mut line = messages.line();
        while !line.contains("changed between two windows") {
            assert!(!line.contains("cannot reload"), "{line}");
            line = messages.line();
        }
        assert!(line.contains("; 0 packets lost"), "{line}");
    }
    let sent = bursts.end();
    // Wait until packets in flight have arrived according to the device.
    until(|| veth_received() >= sent);
    running.interrupt();
    messages.outcome(running).ended(0);
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
    let mut messages = running.messages();
    running.line();
    scratch.write("run.toml", content("dst", "20ms"));
    running.signal(Signal::SIGHUP);
    assert_has(&messages.line(), &["key cannot change during a run"]);
    assert_has(&messages.line(), &["changed between two windows", "; 0 packets lost"]);
    for (content, problem) in [
        ("windw = '1s'\n", "did you mean 'window'?"),
        // Without its source, the run continues with the current one and does not generate traffic.
        ("format = 'json'\nkey = 'src'\nwindow = '10ms'\n", "nothing to count"),
    ] {
        scratch.write("run.toml", content);
        running.signal(Signal::SIGHUP);
        assert_has(&messages.line(), &[problem, "continues with the previous configuration"]);
    }
    running.interrupt();
    let records = parse(&messages.outcome(running).ended(0).stdout);
    assert_eq!(common::of_kind(&records, "total")[0]["cardinality"]["key"], "src");
}

/// Reads records up to one of this source and kind.
fn next_of(running: &mut Running, source: &str, kind: &str) -> Value {
    running.record_that(|record| record["source"] == source && record["record"] == kind)
}

/// Reads windows of this source until they have these packets.
fn counted_at(running: &mut Running, source: &str, packets: u64) {
    let mut counted = 0;
    while counted < packets {
        counted += number(&next_of(running, source, "window"), "packets");
    }
    assert_eq!(counted, packets);
}

#[test]
fn interfaces_of_a_pattern_are_counted_also_those_that_come_later() {
    on_veth(|| {
        let mut running = Running::with(
            "run -i rx* --xdp-mode skb --window 10ms --sample-every never --format json",
        );
        assert_eq!(source_of_next(&mut running), "rx");
        send(RECEIVER.1, 50);
        counted_at(&mut running, "rx", 50);
        // A source that begins two seconds after the run is reported.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2100) {
            running.line();
        }
        for round in 0..2 {
            add_pair("rx9", "tx9");
            veth::ip("addr add 10.78.0.1/24 dev tx9").unwrap();
            veth::ip("neigh add 10.78.0.2 lladdr 02:00:00:00:00:09 dev tx9 nud permanent").unwrap();
            // The interface is counted once a line says so.
            running.record_that(|record| record["source"] == "rx9");
            send("10.78.0.2", 50);
            counted_at(&mut running, "rx9", 50);
            veth::ip("link del rx9").unwrap();
            // The total of a source that has ended.
            let total = next_of(&mut running, "rx9", "total");
            assert_eq!(number(&total, "packets"), 50, "round {round}");
        }
        let removed = "rx9: interface removed; counting resumes when it is back";
        let outcome = running.end().ended_with(0, &[removed]);
        let late = outcome.stderr.lines().find(|line| line.contains("source rx9 began "));
        assert!(late.is_some_and(|line| line.ends_with(" s after the run")), "{}", outcome.stderr);
    });
}

/// Adds a pair of veth devices.
fn add_pair(one: &str, other: &str) {
    veth::ip(&format!("link add {one} type veth peer name {other}")).unwrap();
    for device in [one, other] {
        veth::ip(&format!("link set dev {device} addrgenmode none")).unwrap();
        veth::ip(&format!("link set dev {device} up")).unwrap();
    }
}

/// Adds pairs of veth devices, `many0` and `peer0` and so on.
fn add_pairs(number: usize) {
    (0..number).for_each(|pair| add_pair(&format!("many{pair}"), &format!("peer{pair}")));
}

/// Starts a run on the devices of [`add_pairs`] under a limit of open files, given as options of
/// `ulimit`.
fn with_open_files(limit: &str) -> Running {
    let options = "-v run -i many* --window 100ms --sample-every never --format json";
    Running::of(in_shell(&format!("ulimit {limit} && exec")).args(options.split(' ')))
}

/// Counts on that many devices of [`add_pairs`] under a limit of open files, until each has a
/// record.
fn counted_with_open_files(interfaces: usize, limit: &str) -> Outcome {
    let mut running = with_open_files(limit);
    let mut sources = BTreeSet::new();
    while sources.len() < interfaces {
        sources.insert(source_of_next(&mut running));
    }
    running.end().ended(0)
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
        assert_has(&outcome.stderr, &[&taken]);
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
        assert_has(&running.end().stderr, &["2 interfaces: the kernel's arrays take "]);
    });
}

#[test]
fn too_many_open_files_are_named_as_such() {
    on_veth(|| {
        add_pairs(16);
        let mut running = with_open_files("-n 40");
        let mut messages = running.messages();
        messages.line_with("error: source ");
        running.interrupt();
        let Outcome { stderr, .. } = messages.outcome(running).ended(1);
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
        on_veth(move || a_port_moves(is_back_at_once));
    }
}

/// Moves the interface of a port to another namespace and back: before the run has noticed, or
/// after.
fn a_port_moves(is_back_at_once: bool) {
    let scratch = Scratch::new("agent-port-moves");
    let port = "[[source]]\nname = 'port'\nport = 'af_xdp:rx'\n";
    let rest = generated("rest", "unique,rate=1k");
    let config =
        scratch.write("run.toml", format!("format = 'json'\nwindow = '100ms'\n\n{port}\n{rest}"));
    let mut running = Running::start(&["run", "--config", &config, "--sample-every", "never"]);
    let mut messages = running.messages();
    next_of(&mut running, "port", "window");
    send(RECEIVER.1, 50);
    counted_at(&mut running, "port", 50);
    let other = OtherNamespace::start();
    other.take(RECEIVER.0);
    if is_back_at_once {
        other.give_back(RECEIVER.0);
    }
    next_of(&mut running, "port", "total");
    messages.line_with("port: interface removed; counting resumes when it is back");
    assert_has(&messages.text, &["rx: the interface moved to another network namespace"]);
    if !is_back_at_once {
        send(RECEIVER.1, 50);
        other.give_back(RECEIVER.0);
    }
    next_of(&mut running, "port", "window");
    send(RECEIVER.1, 50);
    counted_at(&mut running, "port", 50);
    running.interrupt();
    messages.outcome(running);
}

/// Starts a run on these interfaces that prints JSON. With classifiers, since the kernel refuses an
/// XDP program on an interface below one that has one.
fn on_interfaces(names: &str) -> Running {
    Running::with(&format!(
        "run -i {names} --xdp-mode clsact --window 10ms --sample-every never --format json"
    ))
}

/// Reads a record and returns its source.
fn source_of_next(running: &mut Running) -> String {
    text(&running.record(), "source").to_owned()
}

#[test]
fn a_pattern_leaves_out_a_bridge_whose_ports_it_matches() {
    on_veth(|| {
        if let Err(problem) = veth::ip("link add rbr type bridge") {
            return skip(format!("bridges ({problem})"));
        }
        veth::ip("link set dev rbr addrgenmode none").unwrap();
        veth::ip("link set dev rx master rbr").unwrap();
        veth::ip("link set dev rbr up").unwrap();
        let mut running = on_interfaces("r*");
        assert_eq!(source_of_next(&mut running), "rx");
        send(RECEIVER.1, 50);
        counted_at(&mut running, "rx", 50);
        let outcome = running.end().ended(0);
        let records = parse(&outcome.stdout);
        assert!(records.iter().all(|record| record["source"] == "rx"), "{}", outcome.stdout);
        assert_has(&outcome.stderr, &["left out of the pattern", "rbr (above rx)"]);
        // Names and a pattern that matches no port ask for it.
        for names in ["rx,rbr", "r*,rbr"] {
            let mut running = on_interfaces(names);
            running.line();
            assert_has(&running.end().ended(0).stderr, &["twice: rbr (above rx)"]);
        }
        let mut running = on_interfaces("rb*");
        assert_eq!(source_of_next(&mut running), "rbr");
        assert!(!running.end().ended(0).stderr.contains("above rx"));
        // A bridge is counted until it has a port.
        veth::ip("link set dev rx nomaster").unwrap();
        let mut running = on_interfaces("r*");
        let mut seen = BTreeSet::new();
        while seen.len() < 2 {
            seen.insert(source_of_next(&mut running));
        }
        veth::ip("link set dev rx master rbr").unwrap();
        next_of(&mut running, "rbr", "total");
        running.end().ended(0);
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
fn totals(served: Served, key: &str) -> BTreeMap<String, u64> {
    let Outcome { stdout, stderr, .. } = served.outcome();
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
fn one_of_two_interfaces_goes(configuration: &str, key: &str, problem: &str) {
    let scratch = Scratch::new(&format!("agent-gone-{key}"));
    let config = scratch.write("run.toml", configuration);
    veth::ip("link set dev lo up").unwrap();
    let (sender, receiver) = (("tx9", "10.78.0.1"), ("rx9", "10.78.0.2"));
    veth::pair(sender, receiver).unwrap();
    let served = Served::start(&format!("--config {config} --xdp-mode skb"));
    wait_for(&served, "/ready", 200, "ready");
    send(receiver.1, 30);
    send(RECEIVER.1, 100);
    veth::ip("link del dev rx9").unwrap();
    wait_for(&served, "/ready", 503, problem);
    assert_eq!(served.get("/health").0, 503);
    served.answers("/live", 200, "alive\n");
    send(RECEIVER.1, 11);
    let counted = totals(served, key);
    assert_eq!(
        (counted.get("rx"), counted.get("rx9")),
        (Some(&111), Some(&30)),
        "{key}: {counted:?}"
    );
    // The run is restarted without it, and counts it when it appears.
    let served = Served::start(&format!("--config {config} --xdp-mode skb"));
    wait_for(&served, "/ready", 503, problem);
    // It reports what it waits for, and counts the other.
    while served.get("/ready").2.lines().count() > 1 {}
    served.answers("/live", 200, "alive\n");
    send(RECEIVER.1, 50);
    veth::pair(sender, receiver).unwrap();
    wait_for(&served, "/ready", 200, "ready");
    send(receiver.1, 20);
    let counted = totals(served, key);
    assert_eq!(
        (counted.get("rx"), counted.get("rx9")),
        (Some(&50), Some(&20)),
        "{key}: {counted:?}"
    );
}

#[test]
fn a_pattern_that_matches_nothing_is_waited_for_until_the_run_ends() {
    let begun = Instant::now();
    let outcome = run(["run", "-i", "nosuch*", "--duration", "300ms"]).ended(1);
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert_eq!(outcome.stdout, "", "{}", outcome.stderr);
    let last = outcome.stderr.lines().last();
    assert_eq!(
        last,
        Some("error: no interface matched nosuch* until the end of the run; nothing was counted")
    );
}

#[test]
fn a_source_whose_interface_is_gone_is_waited_for() {
    for (configuration, key, problem) in [
        (
            "[[source]]\ninterface = 'rx'\n[[source]]\ninterface = 'rx9'\n",
            "source",
            "rx9: rx9: no such interface; counting starts when it exists",
        ),
        (
            "interface = ['rx', 'rx9']\n",
            "interface",
            "rx9 ingress: not counted: the interface was removed",
        ),
    ] {
        on_veth(move || one_of_two_interfaces_goes(configuration, key, problem));
    }
}

/// Service manager that receives notifications, one message after the other.
struct Manager {
    scratch: Scratch,
    socket: UnixDatagram,
}

impl Manager {
    fn new(test: &str) -> Self {
        let scratch = Scratch::new(test);
        let socket = UnixDatagram::bind(scratch.path("notify")).unwrap();
        Manager { scratch, socket }
    }

    /// Returns the command with these arguments, which notifies this manager.
    fn command(&self, arguments: &str) -> Command {
        let mut command = command(arguments);
        command.env("NOTIFY_SOCKET", self.scratch.path("notify"));
        command
    }

    fn receive(&self) -> io::Result<String> {
        let mut message = [0; 256];
        let length = self.socket.recv(&mut message)?;
        Ok(String::from_utf8_lossy(&message[..length]).into_owned())
    }

    fn hear(&self) -> String {
        self.receive().unwrap()
    }

    /// Returns the messages received since the last call.
    fn heard(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| self.receive().ok()).collect()
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
    let manager = Manager::new("agent-never-ready");
    finish(&mut manager.command("run -i no-such-device")).ended(1);
    assert_eq!(manager.heard(), Vec::<String>::new());
}

#[test]
fn a_service_manager_hears_how_it_goes() {
    let manager = Manager::new("agent-service");
    let config = manager
        .scratch
        .write("run.toml", "format = 'json'\nport = 'memory:unique,rate=10k'\nwindow = '10ms'\n");
    let mut command = manager.command(&format!("run --config {config}"));
    let mut running = Running::of(command.env("WATCHDOG_USEC", "400000"));
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
    let manager = Manager::new("agent-watchdog");
    let mut command = manager.command(
        "run --port memory:unique,rate=10k --window 1h --sample-every 100us --format json",
    );
    let mut running = Running::of(command.env("WATCHDOG_USEC", "80000"));
    manager.wait_for("WATCHDOG=1");
    // The pipe fills up eventually; from then on there are no notifications.
    manager.socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    while manager.receive().is_ok() {}
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

#[test]
fn an_alert_is_told_in_records_and_log() {
    let mut command = command("run --port memory:unique,packets=20000,rate=max --format json");
    command.args(["--alert", "distinct_flows > 10k", "--alert", "distinct_flows > 1M"]);
    let outcome = finish(&mut command).ended(0);
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
    assert_has(&outcome.stderr, &["ALERT distinct_flows > 10k: it is "]);
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    run(["run", "--alert", "distinct_flows"]).ended_with(2, &["FIGURE > NUMBER"]);
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
            run(arguments).failed(2, &[advice]);
        }
    }
    // A rule for all sources is about those that have its figure.
    let sources = "[[source]]\nname = 'a'\nport = 'memory:unique'\nmeasure = 'entropy'\n[[source]]\nname = 'b'\nport = 'memory:unique'\n";
    for (rule, code) in [("entropy < 3", 0), ("membership_false_positive > 1", 2)] {
        let config = scratch.write("run.toml", format!("alert = '{rule}'\n{sources}"));
        run(["config", "check", &config]).ended(code);
    }
    run(["replay", "/does/not/exist.pcap", "--alert", "entropy < 3"]).ended(2);
    let right = "measure = 'entropy'\nkey = 'entropy=src'\nalert = 'entropy{key=src} < 3'\n";
    let config = scratch.write("run.toml", format!("{port}\n{right}"));
    run(["config", "check", &config]).ended(0);
}
