//! `flowgauge run --backend tofino` on a model of a switch, over gRPC on loopback, with live
//! packets.

use crate::common::lake::{self, generate};
use crate::common::{
    Outcome, Running, Scratch, assert_has, check, command, execute, finish, float, json_lines,
    number, of_kind, parse, text, windows_in_sequence,
};
use flowgauge_bfruntime::proto::bf_runtime_server::{BfRuntime, BfRuntimeServer};
use flowgauge_bfruntime::proto::{self, data_field, entity};
use flowgauge_bfruntime::server::{
    Costs, Ledger, MAX_MESSAGE, Pace, RunningServer, Server, Target,
};
use flowgauge_ctl::filter::MatchExpression;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_p4_model::Switch;
use flowgauge_testing::chance::DEVIATIONS;
use flowgauge_testing::extent;
use flowgauge_testing::faults::{Faulty, Proxy, Reads, Tampering};
use flowgauge_testing::frames;
use flowgauge_testing::model;
use flowgauge_testing::wait::{until, until_some};
use flowgauge_traffic::frame::{Ip, UDP, echo, udp};
use flowgauge_traffic::{Generator, Profile, Sources};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tonic::Status;

/// Model behind a server that can damage answers, behind a proxy that can close connections.
struct Lab {
    switch: Arc<Switch>,
    running: Option<RunningServer>,
    tampering: Tampering,
    proxy: Proxy,
    /// Number of packets sent, each from another source.
    sent: AtomicU64,
    generator: Generator,
}

/// Returns a switch whose program has these macros, without their prefix.
fn switch(definitions: &[(&str, u32)]) -> Arc<Switch> {
    let all = [("PRECISION", 9)].into_iter().chain(definitions.iter().copied());
    model::switch(all.map(|(name, value)| (&*format!("FLOWGAUGE_{name}").leak(), value)))
}

/// Serves on a free port.
fn serve<S: BfRuntime>(service: BfRuntimeServer<S>) -> RunningServer {
    RunningServer::start_service(([127, 0, 0, 1], 0).into(), None, service).unwrap()
}

impl Lab {
    fn new() -> Self {
        Lab::with(&[])
    }

    fn with(definitions: &[(&str, u32)]) -> Self {
        let (switch, generator) =
            (switch(definitions), Generator::new(Profile::new(Sources::Unique)));
        let (tampering, proxy, sent) = (Tampering::default(), Proxy::start(), AtomicU64::new(0));
        let mut lab = Lab { switch, running: None, tampering, proxy, sent, generator };
        lab.power_on();
        lab
    }

    fn power_on(&mut self) {
        let server = Server::new(Arc::clone(&self.switch) as Arc<dyn Target>).unwrap();
        let service = BfRuntimeServer::new(Faulty::new(server, &self.tampering))
            .max_encoding_message_size(MAX_MESSAGE);
        let service = service.max_decoding_message_size(MAX_MESSAGE);
        let running = serve(service);
        self.proxy.lead_to(Some(running.address()));
        self.running = Some(running);
    }

    /// Ends the switch's process, which loses its state.
    fn power_off(&mut self) {
        self.proxy.lead_to(None);
        self.running = None;
        self.switch = switch(&[]);
    }

    fn send(&self, packets: u64) {
        let first = self.sent.fetch_add(packets, Ordering::Relaxed);
        let mut frame = self.generator.template().to_vec();
        let mut entrance = self.switch.enter();
        for index in first..first + packets {
            self.generator.fill(index, &mut frame);
            entrance.arrive(self.switch.port(index as usize), &frame).unwrap();
        }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the command of a run with these options.
    fn command(&self, options: &str) -> Command {
        let fixed = "run --backend tofino --registers 512 --format json --address";
        command(&format!("{fixed} {} {options}", self.proxy.address))
    }

    fn start(&self, options: &str) -> Running {
        Running::of(&mut self.command(options))
    }

    /// Starts a run that counts what matches.
    fn start_matching(&self, expression: &str, options: &str) -> Running {
        Running::of(self.command(options).args(["--match", expression]))
    }

    /// Starts a run, which has installed its tables when its first window is over.
    fn counting(&self, options: &str) -> Run {
        let mut run = Run { running: self.start(options), windows: Vec::new() };
        run.window();
        run
    }
}

/// A run with all windows that it has printed.
struct Run {
    running: Running,
    windows: Vec<Value>,
}

impl Run {
    /// Reads the next window.
    fn window(&mut self) {
        self.windows.push(window(&mut self.running));
    }

    /// Reads windows until the complete ones have this many packets in total.
    fn windows_until(&mut self, packets: u64) {
        // A packet that was sent is in the open window, or in the next one.
        for _ in 0..100 {
            if self.counted() >= packets {
                break;
            }
            self.window();
        }
        assert_eq!(self.counted(), packets);
    }

    fn counted(&self) -> u64 {
        self.windows.iter().map(|window| number(window, "packets")).sum()
    }

    /// Ends it, and returns the rest of its output and all windows.
    fn end(mut self) -> (Outcome, Vec<Value>) {
        let outcome = self.running.end().ended(0);
        self.windows.extend(of_kind(&parse(&outcome.stdout), "window").into_iter().cloned());
        (outcome, self.windows)
    }
}

/// Returns the next record of a kind.
fn next(running: &mut Running, kind: &str) -> Value {
    running.record_that(|record| {
        check(record);
        record["record"] == kind
    })
}

fn window(running: &mut Running) -> Value {
    next(running, "window")
}

/// Returns the packets of the total in the rest of a run's output, and whether it is complete.
fn total_of(outcome: &Outcome) -> (u64, bool) {
    let records = parse(&outcome.stdout);
    let total = of_kind(&records, "total")[0];
    (number(total, "packets"), total["complete"].as_bool().unwrap())
}

#[test]
fn many_windows_hold_every_packet_once() {
    let lab = Arc::new(Lab::new());
    let mut run = lab.counting("--window 50ms --sample-every 150ms");
    let stop = Arc::new(AtomicBool::new(false));
    let sender = thread::spawn({
        let (lab, stop) = (Arc::clone(&lab), Arc::clone(&stop));
        move || {
            while !stop.load(Ordering::Relaxed) {
                lab.send(50);
                thread::sleep(Duration::from_millis(2));
            }
        }
    });
    while run.windows.len() < extent(70, 210) {
        run.window();
    }
    stop.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    run.windows_until(lab.sent());
    let (outcome, windows) = run.end();
    assert!(outcome.stderr.lines().all(|line| line.contains("late")), "{}", outcome.stderr);
    let counted: u64 = windows.iter().map(|window| number(window, "packets")).sum();
    assert_eq!(counted, lab.sent());
    let rest = parse(&outcome.stdout);
    let total = rest.last().unwrap();
    assert_eq!((total["record"].as_str(), number(total, "packets")), (Some("total"), lab.sent()));
    assert!(lab.sent() > 1000, "{}", lab.sent());
    windows_in_sequence(&windows.iter().collect::<Vec<_>>());
    windows.iter().skip(1).for_each(|window| assert_eq!(window["drops"], json!({}), "{window}"));
    // Every packet has a source of its own, so that the truth is the number of packets.
    let close = windows.iter().filter(|window| {
        let [low, high] = ["low", "high"].map(|end| float(&window["cardinality"], end));
        (low..=high).contains(&(number(window, "packets") as f64))
    });
    assert!(close.count() * 10 >= windows.len() * 8);
}

/// Received by the ports = counted + all losses, to the packet.
#[test]
fn the_ledger_of_a_switch_balances_whatever_its_ports_lose() {
    let lab = Lab::new();
    let mut run = lab.counting("--window 150ms --sample-every never");
    lab.send(1000);
    {
        let (mut entrance, ports) = (lab.switch.enter(), [0, 1].map(|pipe| lab.switch.port(pipe)));
        entrance.arrive_damaged(ports[0], 7);
        entrance.arrive_without_room(ports[1], 5);
        entrance.arrive_pause(ports[1], 9);
    }
    run.windows_until(1000);
    // Without traffic.
    (0..3).for_each(|_| run.window());
    let (outcome, windows) = run.end();
    let sum = |key: &str| {
        windows.iter().map(|window| window["ledger"][key].as_i64().unwrap()).sum::<i64>()
    };
    assert_eq!(["received", "counted", "lost", "unaccounted"].map(sum), [1012, 1000, 12, 0]);
    let total = parse(&outcome.stdout).pop().unwrap();
    let expected = json!({"received": 1012, "low": 1012, "high": 1012, "counted": 1000, "unmatched": 0, "lost": 12, "unaccounted": 0});
    assert_eq!(total["ledger"], expected);
    assert_eq!(total["drops"], json!({"device": 5, "device_error": 7}));
}

/// A switch and two servers that each see a part of the traffic, in one lake: the registers are
/// those of one machine that saw everything.
#[test]
fn a_switch_and_servers_are_in_one_union() {
    let (scratch, lab) = (Scratch::new("tofino-lake"), Lab::new());
    let (lake, alone) = (scratch.path("lake"), scratch.path("alone"));
    let options = "--window 100ms --seed 1 --host switch --lake";
    let mut run = lab.counting(&format!("{options} {}", lake.display()));
    for _ in 0..5 {
        lab.send(1000);
        run.window();
    }
    run.windows_until(lab.sent());
    run.end();
    // The servers see some sources that the switch sees, and others.
    for (host, packets, seed) in [("one", 7000, 1), ("two", 3000, 2), ("all", 5000, 1)] {
        let profile = format!("unique,packets={packets},rate=1k,seed={seed}");
        let capture = generate(&scratch, &profile, &format!("{host}.pcap"));
        // The switch's traffic, counted by a third server in a lake without a switch.
        for lake in [&lake, &alone].into_iter().skip(usize::from(host == "all")) {
            let options = "--window 1s --registers 512 --seed 1";
            lake::replay(lake, host, &capture, options).ended(0);
        }
    }
    let [with_switch, without] = [&lake, &alone].map(|lake| lake::unions(lake, "").remove(0));
    assert_eq!(with_switch["cardinality"], without["cardinality"]);
    let hosts = number(&with_switch["united"], "hosts");
    assert_eq!((number(&with_switch, "packets"), hosts), (15_000, 3));
    let [low, high] = ["low", "high"].map(|end| with_switch["cardinality"][end].as_f64().unwrap());
    assert!(low <= 10_000.0 && 10_000.0 <= high, "{low} … {high}");
}

#[test]
fn a_switch_started_anew_is_a_gap_and_never_a_wrong_number() {
    let mut lab = Lab::new();
    let mut run = lab.counting("--window 50ms --sample-every never");
    lab.send(500);
    run.windows_until(500);
    lab.power_off();
    lab.power_on();
    // Packets before the tables are installed again are lost, and the window says so.
    lab.send(100);
    let lost = loop {
        run.window();
        let window = run.windows.last().unwrap();
        if window["complete"] == false {
            break number(window, "packets");
        }
        assert_eq!(number(window, "packets"), 0);
    };
    assert!(lost == 0 || lost == 100, "{lost}");
    lab.send(300);
    run.windows_until(800 + lost);
    let incomplete = run.windows.iter().skip(1).filter(|window| window["complete"] == false);
    assert_eq!(incomplete.count(), 1);
    let outcome = run.end().0;
    assert_has(&outcome.stderr, &["lacks what came before"]);
    assert_eq!(total_of(&outcome), (800 + lost, false));
}

#[test]
fn lost_connections_and_damaged_answers_lose_nothing() {
    let lab = Lab::new();
    let mut run = lab.counting("--window 50ms --sample-every 60ms");
    let mut round = 0_u64;
    lab.tampering.reads(move |_, answer| {
        round += 1;
        damage(round, answer)
    });
    while run.windows.len() < 60 {
        lab.send(40);
        if run.windows.len() % 10 == 5 {
            lab.proxy.cut();
        }
        lab.send(60);
        run.window();
    }
    lab.tampering.stop();
    run.windows_until(lab.sent());
    let outcome = run.end().0;
    assert_has(&outcome.stderr, &["nothing is missing"]);
    assert_eq!(total_of(&outcome), (lab.sent(), true));
}

/// Damages every seventh answer, in varying ways.
fn damage(round: u64, mut answer: proto::ReadResponse) -> Reads {
    if !round.is_multiple_of(7) {
        return Reads::Answer(vec![answer], None);
    }
    let entries = answer.entities.iter_mut().filter_map(|entity| match &mut entity.entity {
        Some(entity::Entity::TableEntry(entry)) => Some(entry),
        _ => None,
    });
    match round / 7 % 6 {
        0 => answer.entities.clear(),
        1 => entries.for_each(|entry| entry.table_id ^= 1),
        2 => entries.filter_map(|entry| entry.data.as_mut()).for_each(|data| {
            let fields = data.fields.iter_mut().filter_map(|field| field.value.as_mut());
            fields.for_each(|value| {
                if let data_field::Value::Stream(bytes) = value {
                    bytes.push(0);
                }
            });
        }),
        3 => {
            let half = answer.entities.len() / 2;
            answer.entities.truncate(half);
            return Reads::Answer(vec![answer], Some(Status::unavailable("cut off")));
        }
        4 => thread::sleep(Duration::from_millis(70)),
        _ => answer.entities.reverse(),
    }
    Reads::Answer(vec![answer], None)
}

/// Delays by group and direction, as samples and in windows, with adaptive shares, while
/// connections are closed.
#[test]
fn delays_of_groups_come_one_by_one_and_in_windows() {
    let definitions = ["DELAY", "DELAY_ICMP", "DELAY_GROUP_BITS", "DELAY_LOCAL", "DELAY_SAMPLES"];
    let lab = Lab::with(&definitions.map(|name| (name, 1)));
    let scratch = Scratch::new("tofino-delays");
    let groups = scratch.write("groups.txt", "near 10.0.0.0/8\n");
    let samples = scratch.path("samples.jsonl").display().to_string();
    let options = format!(
        "--measure cardinality,delay --delay icmp --delay-groups {groups} --delay-local 10.1.0.0/16 --delay-samples {samples} --delay-admit auto --window 100ms --sample-every 250ms"
    );
    let mut run = lab.counting(&options);
    let (client, near, far) = ([10, 1, 0, 1], [10, 2, 0, 1], [198, 18, 0, 1]);
    let mut sent = 0_u32;
    for round in 0..8 {
        for number in (0..300).map(|number| round * 300 + number) {
            let mut entrance = lab.switch.enter();
            let (from, to, delay_ms) =
                [(client, near, 1), (client, far, 80), (far, client, 5)][number as usize % 3];
            let at = u64::from(number) * 200_000_000;
            for (at, frame) in [
                (at, echo(from, to, number, false)),
                (at + delay_ms * 1_000_000, echo(to, from, number, true)),
            ] {
                entrance.set_clock(at);
                entrance.arrive(lab.switch.port(0), &frame).unwrap();
            }
            sent += 1;
        }
        if round == 4 {
            lab.proxy.cut();
        }
        run.window();
    }
    run.windows_until(u64::from(2 * sent));
    let records = parse(&run.end().0.stdout);
    let total = of_kind(&records, "total")[0]["delay"].as_array().unwrap();
    let of = |direction: &str, group: Option<&str>| {
        let is_it =
            |delay: &&Value| delay["direction"] == direction && delay["group"].as_str() == group;
        total.iter().find(is_it).unwrap_or_else(|| panic!("{direction} {group:?} of {total:?}"))
    };
    for (direction, group, requests, ms) in [
        ("egress", Some("near"), sent / 3, 1.0),
        ("egress", Some("others"), sent / 3, 80.0),
        ("ingress", Some("near"), sent / 3, 5.0),
    ] {
        let delay = of(direction, group);
        assert_eq!(number(delay, "requests"), u64::from(requests), "{delay}");
        let median = delay["corrected"]["p50"]["value"].as_f64().unwrap();
        assert!((median / (ms * 1e6) - 1.0).abs() < 0.03, "{delay}");
    }
    assert_eq!(number(of("egress", None), "requests"), u64::from(2 * sent / 3));
    let lines = json_lines(&std::fs::read_to_string(&samples).unwrap());
    let (delays, windows) = (of_kind(&lines, "delay-sample"), of_kind(&lines, "window"));
    let printed = |key: &str| windows.iter().map(|window| number(window, key)).sum::<u64>();
    assert_eq!(printed("samples"), delays.len() as u64);
    let answers: u64 =
        ["egress", "ingress"].map(|direction| number(of(direction, None), "answers")).iter().sum();
    assert_eq!(printed("samples") + printed("missing"), answers);
    // Only what was in flight on the closed connection is missing.
    assert!(printed("missing") <= 600, "{}", printed("missing"));
    for delay in delays {
        let expected = match (delay["direction"].as_str(), delay["group"].as_str()) {
            (Some("egress"), Some("near")) => 1_000_000,
            (Some("egress"), Some("others")) => 80_000_000,
            (Some("ingress"), Some("near")) => 5_000_000,
            _ => panic!("{delay}"),
        };
        assert!(number(delay, "delay_ns").abs_diff(expected) <= 64, "{delay}");
    }
}

/// A sample covers the last half second, also when packets stop.
#[test]
fn staggered_registers_count_and_forget() {
    let lab = Lab::with(&[("CARDINALITY", 2), ("SLOT_BITS", 21)]);
    for (options, advice) in [
        ("--staggered 1.073741824s", "-DFLOWGAUGE_SLOT_BITS=22"),
        ("--window 1s", "-DFLOWGAUGE_CARDINALITY=1"),
    ] {
        lab.start(options).outcome().failed(1, &[advice]);
    }
    let mut running = lab.start("--staggered 0.536870912s --sample-every 20ms");
    let mut estimate = || next(&mut running, "sample")["cardinality"]["estimate"].as_f64().unwrap();
    assert_eq!(estimate(), 0.0);
    lab.send(2000);
    let most = (0..20).map(|_| estimate()).fold(0.0, f64::max);
    assert!(most > 200.0, "{most}");
    // Two rounds later every register has restarted.
    let begin = std::time::Instant::now();
    while estimate() > 0.0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is forgotten");
    }
}

#[test]
fn what_the_switch_cannot_do_is_refused_with_the_reason() {
    let refused = |options: &str, code: i32, advice: &str| {
        let outcome = execute(&format!("run {options}"));
        let printed = (outcome.code, &*outcome.stdout);
        assert_eq!(printed, (Some(code), ""), "{options}: {}", outcome.stderr);
        assert!(outcome.complaint().contains(advice), "{options}: {}", outcome.stderr);
    };
    refused("--backend tofino", 2, "--address HOST:PORT");
    refused("--address switch", 2, "[2001:db8::1]:50052");
    let somewhere = "--address 192.0.2.1:50052";
    for (options, advice) in [
        ("-i eth0 --backend tofino", "not for --backend tofino"),
        ("-i eth0", "--backend tofino"),
        ("--backend poll", "--backend tofino"),
        ("--adopt --backend tofino", "not for --backend tofino"),
        ("--port memory:unique", "--port is not for --backend tofino"),
        ("--truth", "memory for every flow"),
        ("--staggered 10s", "the nearest is --staggered 8.589934592s"),
        ("--staggered 13s", "the nearest is --staggered 17.179869184s"),
        ("--staggered 1d --registers 65536", "the nearest is --staggered 8796.093022208s"),
        ("--staggered 1ms --registers 65536", "the nearest is --staggered 33.554432ms"),
        ("--workers 2", "which counts on the switch"),
        ("--tls-cert cert.pem", "must be given together"),
        ("--tls-cert cert.pem --tls-key key.pem", "require --tls-ca"),
        ("--switch-port 132", "132:100g:rs"),
        ("--switch-port 132:3g", "1g, 10g"),
        ("--forward 1", "132-140"),
        ("--forward 1-1", "132-140"),
    ] {
        refused(&format!("{somewhere} {options}"), 2, advice);
    }
    let missing = format!("{somewhere} --tls-ca /does/not/exist.pem");
    refused(&missing, 1, "cannot read /does/not/exist.pem");
    let lab = Lab::new();
    for (options, advice) in [
        ("--registers 2048", "-DFLOWGAUGE_PRECISION=11"),
        ("--registers 512 --key five-tuple --hash crc32", "-DFLOWGAUGE_KEY"),
        ("--registers 512 --staggered 8.589934592s", "-DFLOWGAUGE_CARDINALITY=2"),
        ("--registers 512 --program other", "there is no program other"),
        ("--registers 512 --match tcp", "-DFLOWGAUGE_MATCH=1"),
        ("--measure delay --delay icmp --delay-samples /dev/null", "-DFLOWGAUGE_DELAY_SAMPLES=1"),
        ("--measure delay --delay icmp --delay-local 10.0.0.0/8", "-DFLOWGAUGE_DELAY_LOCAL=1"),
        ("--registers 512 --forward 1-2,2-3", "port 2 is in two pairs"),
    ] {
        refused(&format!("--address {} {options}", lab.proxy.address), 1, advice);
    }
}

/// Expressions that a switch can match, over all fields.
const EXPRESSIONS: &[&str] = &[
    "tcp port 80",
    "udp port 53 or tcp port 53",
    "src net 128.0.0.0/1 and not dst net 128.0.0.0/1",
    "not src net 0.0.0.0/2 and not src port 12345",
    "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
    "tcp[rst]",
    "tcp[tcpflags] != tcp-syn",
    "icmp or icmp6",
    "vlan 100 and dst portrange 0-1000",
    "vlan",
    "not vlan and not ip",
    "ip6 net 8000::/1 or ip proto 132",
    "not (sctp or portrange 1-65534)",
    "src and dst portrange 1024-50000",
    "not tcp",
    "ip6 and not tcp and not udp",
];

/// Packets that match are counted and the others are unmatched, exactly as in software.
#[test]
fn expressions_leave_out_what_they_leave_out_in_software() {
    let lab = Lab::with(&[("MATCH", 1)]);
    let frames = [frames::random(3, 3000), frames::kinds()].concat().into_iter().filter(|frame| {
        frame.wire_length as usize == frame.bytes.len()
            && frames::within_reach_of_a_switch(&frame.bytes)
    });
    let frames: Vec<OwnedFrame> = frames.collect();
    for expression in EXPRESSIONS {
        let filter = expression.parse::<MatchExpression>().unwrap();
        let is_match = |frame: &&OwnedFrame| {
            let (bytes, length) = (frame.bytes.as_slice(), frame.wire_length);
            filter.filter.matches(Default::default(), frame.link, bytes, length)
        };
        let mut running = lab.start_matching(expression, "--window 50ms");
        // It counts once a window has ended.
        window(&mut running);
        let mut entrance = lab.switch.enter();
        for (index, frame) in frames.iter().enumerate() {
            entrance.arrive(lab.switch.port(index), &frame.bytes).unwrap();
        }
        drop(entrance);
        let mut sums = [0; 4];
        while sums[0] + sums[2] < frames.len() as u64 {
            let window = window(&mut running);
            for (at, counts) in [&window, &window["unmatched"]].into_iter().enumerate() {
                sums[2 * at] += number(counts, "packets");
                sums[2 * at + 1] += number(counts, "bytes");
            }
        }
        running.end().ended(0);
        let (matching, others): (Vec<&OwnedFrame>, Vec<&OwnedFrame>) =
            frames.iter().partition(is_match);
        assert!(matching.len() > 3 && others.len() > 3, "{expression}: {}", matching.len());
        let expected = [&matching, &others].map(|frames| {
            [frames.len() as u64, frames.iter().map(|frame| u64::from(frame.wire_length)).sum()]
        });
        assert_eq!(sums, expected.concat()[..], "{expression}");
    }
    lab.start("--match greater").outcome().ended(2);
    lab.start_matching("ip6 and greater 1000", "").outcome().failed(1, &["(greater, less)"]);
}

#[test]
fn a_configuration_file_names_the_switch_its_ports_and_pairs() {
    let lab = Lab::new();
    let scratch = Scratch::new("tofino-config");
    let config = format!(
        "backend = \"tofino\"\naddress = \"{}\"\nregisters = 512\nswitch-port = [\"0:100g:rs\", \"4:10g\"]\nforward = \"0-4\"\n\
         window = \"50ms\"\nread-every = \"never\"\nformat = \"json\"\n",
        lab.proxy.address
    );
    let config = scratch.write("switch.toml", config);
    let running = Running::with(&format!("run --config {config}"));
    let mut run = Run { running, windows: vec![] };
    run.window();
    let frame = lab.generator.template().to_vec();
    let sent = |port| {
        let sent = lab.switch.enter().arrive(port, &frame).unwrap();
        sent.into_iter().map(|sent| sent.port).collect::<Vec<_>>()
    };
    assert_eq!([sent(0), sent(4), sent(8)], [vec![4], vec![0], vec![]]);
    run.windows_until(3);
    assert_eq!(total_of(&run.end().0).0, 3);
}

#[test]
fn the_status_tells_whether_the_switch_is_there() {
    let mut lab = Lab::new();
    let scratch = Scratch::new("status-switch");
    let runs = scratch.path("runs");
    let status = |connected: bool| {
        until_some(|| {
            let outcome =
                finish(command("status --format json").env("FLOWGAUGE_STATUS_DIR", &runs));
            let found: Value = serde_json::from_str(&outcome.stdout).unwrap();
            let is_wanted = found[0]["switch"]["connected"] == connected;
            is_wanted.then(|| (outcome.code, found[0].clone()))
        })
    };
    let mut counting = lab.command("--window 50ms --sample-every never");
    let mut running = Running::of(counting.env("FLOWGAUGE_STATUS_DIR", &runs));
    window(&mut running);
    let (code, run) = status(true);
    assert_eq!((code, &run["problems"]), (Some(0), &json!([])));
    assert_eq!(run["switch"]["address"], lab.proxy.address.to_string());
    assert!(number(&run["switch"], "pipes") > 0, "{run}");
    lab.power_off();
    let (code, run) = status(false);
    assert_eq!((code, run["problems"].as_array().unwrap().len()), (Some(1), 1), "{run}");
    lab.power_on();
    let (_, run) = status(true);
    assert_eq!(run["problems"], json!([]));
    assert_has(text(&run["last_warning"], "text"), &[&lab.proxy.address.to_string()]);
    running.end();
}

#[test]
fn a_slow_way_and_one_that_swallows_everything_for_a_while_lose_nothing() {
    let lab = Lab::new();
    let mut run = lab.counting("--window 100ms --sample-every never --deadline 1s");
    lab.proxy.slow_down(Duration::from_millis(3));
    while run.windows.len() < 4 {
        lab.send(40);
        run.window();
    }
    lab.proxy.slow_down(Duration::ZERO);
    lab.proxy.swallow(true);
    lab.send(100);
    // Until the command gives up the connection and tries another one.
    let accepted = lab.proxy.accepted();
    until(|| lab.proxy.accepted() > accepted);
    lab.send(100);
    lab.proxy.swallow(false);
    run.windows_until(lab.sent());
    let (running, windows) = (run.running, run.windows);
    let outcome = running.end();
    assert_has(&outcome.stderr, &["connected again; the switch counted on, nothing is missing"]);
    assert_eq!(total_of(&outcome), (lab.sent(), true));
    // While nothing passed, no window could end: there is one long window, which says how late it
    // is, and then the schedule continues.
    assert_has(&outcome.stderr, &["ended late", "had ended by then"]);
    let length = |window: &Value| number(window, "end_ns") - number(window, "start_ns");
    let stalled: Vec<&Value> =
        windows.iter().filter(|window| number(window, "late_ns") >= 500_000_000).collect();
    assert!(
        matches!(stalled.as_slice(), [window] if length(window) > number(window, "late_ns")),
        "{windows:?}"
    );
    let behind =
        windows.iter().skip_while(|window| number(window, "late_ns") < 500_000_000).skip(1);
    assert!(
        behind.clone().filter(|window| length(window) < 50_000_000).count() <= 1,
        "{windows:?}"
    );
}

/// The switch does not notice that a controller's connection is gone: the controller continues, and
/// another one gets an error that explains what to do.
#[test]
fn a_half_open_connection_is_taken_over_by_its_own_run_and_told_to_others() {
    let lab = Lab::new();
    let options = "--window 50ms --sample-every never";
    let mut run = lab.counting(options);
    for _ in 0..3 {
        lab.send(50);
        lab.proxy.lose();
        lab.send(50);
        run.window();
    }
    run.windows_until(lab.sent());
    // Its machine loses power.
    lab.proxy.lose();
    run.running.child.kill().unwrap();
    let outcome = run.running.outcome();
    assert_has(&outcome.stderr, &["going on as the client that it was"]);
    assert!(!outcome.stderr.contains("installed again"), "{}", outcome.stderr);

    let free = format!(
        "end its connection with `ss -K dst ADDRESS sport = :{}`",
        lab.proxy.address.port()
    );
    for (other, expected) in [
        ("", "or take another number with --client"),
        ("--client 2", "the program is bound to client 1"),
    ] {
        lab.start(&format!("{options} {other}")).outcome().failed(1, &[&free, expected]);
    }
    lab.proxy.notice();
    // The switch needs a moment.
    let mut running = loop {
        let mut running = lab.start(options);
        if !running.line().is_empty() {
            break running;
        }
        assert_has(running.outcome().complaint(), &[&free]);
    };
    window(&mut running);
    running.end().ended(0);
}

#[test]
fn a_port_that_is_there_otherwise_and_a_certificate_that_is_none_are_told() {
    let lab = Lab::new();
    let options = "--window 50ms --sample-every never --switch-port 0:100g:rs";
    let mut running = lab.start(options);
    window(&mut running);
    running.end();
    let outcome = not_subscribed(|| lab.start(&options.replace("100g:rs", "40g")).outcome());
    let differences = "port 0 is there with $SPEED BF_SPEED_100G and not BF_SPEED_40G and $FEC BF_FEC_TYP_REED_SOLOMON and not";
    outcome.failed(1, &[differences, "bfrt.port.port.delete(0)"]);

    let scratch = Scratch::new("tofino-pem");
    for (name, content) in [
        ("ca.der", &[0x30, 0x82, 0xff, 0x01][..]),
        ("ca.txt", b"nonsense"),
        ("key.pem", b"-----BEGIN PRIVATE KEY-----\n"),
    ] {
        let file = scratch.write(name, content);
        let expected = format!(
            "{file} is not a certificate in PEM format; if it is DER, convert it with `openssl x509 -inform der -in {file}`"
        );
        lab.start(&format!("--tls-ca {file}")).outcome().failed(1, &[&expected]);
    }
}

/// Repeats a command while the switch has not noticed that the previous client is gone.
fn not_subscribed(attempt: impl Fn() -> Outcome) -> Outcome {
    loop {
        let outcome = attempt();
        if !outcome.stderr.contains("subscribed already") {
            return outcome;
        }
    }
}

/// Returns the output of `tables --read-times`.
fn read_times(running: &RunningServer, format: &str) -> String {
    let arguments =
        format!("tables --read-times --address {} --format {format}", running.address());
    not_subscribed(|| execute(&arguments)).quiet()
}

/// Serves a switch whose driver takes time.
fn driver_like(switch: Arc<Switch>) -> (RunningServer, Arc<Mutex<Ledger>>) {
    let costs = Costs { sync: Duration::from_millis(3), ..Costs::SWITCH };
    let (server, ledger) = Server::driver_like(switch, costs, Pace::Real).unwrap();
    (serve(server.service()), ledger)
}

#[test]
fn read_times_tell_which_windows_are_possible() {
    let (running, ledger) = driver_like(switch(&[]));
    let measure = |format| read_times(&running, format);
    let times: Value = serde_json::from_str(&measure("json")).unwrap();
    let tables = times["tables"].as_array().unwrap();
    assert_eq!(tables.iter().map(|table| number(table, "elements")).collect::<Vec<_>>(), [8, 512]);
    assert_eq!(tables[1]["table"], "pipe.Ingress.flowgauge.cardinality_by_src.registers");
    for table in tables {
        assert!(number(table, "sync_ns") >= 3_000_000, "{table}");
        assert!(number(table, "clear_ns") >= number(table, "elements") * 2_000, "{table}");
    }
    // Counters are synced twice.
    assert!(number(&times, "rotation_ns") >= 9_000_000);
    assert!(number(&times, "shortest_window_ns") >= 2 * number(&times, "rotation_ns"));
    assert_eq!(ledger.lock().unwrap().indices, 0);
    assert!(measure("table").contains("\na rotation takes up to "));
    assert_eq!(measure("csv").lines().count(), 3);
    for wrong in ["tables --read-times", "tables --address switch:50052"] {
        execute(wrong).ended(2);
    }
}

/// Staggered registers have no windows: the output says how often they can be read, and they are
/// not cleared.
#[test]
fn read_times_tell_how_often_staggered_registers_can_be_read() {
    let staggered = &[("CARDINALITY", 2), ("KEY", 3), ("SLOT_BITS", 20)];
    let prefix = "pipe.Ingress.flowgauge.cardinality_by_five_tuple";
    let name = format!("{prefix}.staggered");
    for (with, measured) in [(&[][..], 3), (&[("SIZES", 1)], 4)] {
        let lab = Lab::with(&[staggered, with].concat());
        lab.send(700);
        let (running, ledger) = driver_like(Arc::clone(&lab.switch));
        let measure = |format| read_times(&running, format);
        let held = || {
            [0, 1].map(|field| {
                lab.switch.enter().model().register_range(&name, field, 0..512, 0).unwrap()
            })
        };
        let before = held();
        let times: Value = serde_json::from_str(&measure("json")).unwrap();
        let tables = times["tables"].as_array().unwrap();
        assert_eq!(tables.len(), measured, "{times}");
        let [.., registers, latest] = &tables[..] else { panic!("{times}") };
        assert_eq!(registers["table"], name);
        assert_eq!(latest["table"], format!("{prefix}.latest20"));
        assert_eq!([registers, latest].map(|table| number(table, "elements")), [512, 1]);
        for persistent in [registers, latest] {
            assert!(
                persistent["clear_ns"].is_null() && number(persistent, "sync_ns") >= 3_000_000,
                "{persistent}"
            );
        }
        // Counters are synced twice.
        let [sample, every] =
            ["sample_ns", "shortest_sample_every_ns"].map(|key| number(&times, key));
        assert!(sample >= 3_000_000 * (measured as u64 + 1) && every >= 2 * sample, "{times}");
        assert_eq!(held(), before, "registers that last are not touched");
        let text = measure("table");
        assert_has(&text, &["\na sample takes up to ", "; --sample-every "]);
        assert_eq!(text.contains("a rotation takes up to"), measured == 4, "{text}");
        let csv = measure("csv");
        assert_eq!(csv.lines().filter(|line| line.ends_with(',')).count(), 2, "{csv}");
        assert_eq!(ledger.lock().unwrap().indices, 0);
    }
}

/// Returns an empty UDP datagram.
fn datagram(src: u32, dst: u32) -> Vec<u8> {
    let mut frame = Ip::new(src.to_be_bytes(), dst.to_be_bytes(), UDP).frame(&udp([0; 2], &[]));
    frame.resize(60, 0);
    frame
}

/// Returns the entropy of values in bits.
fn entropy(values: &[u32]) -> f64 {
    let mut counts = HashMap::<u32, f64>::new();
    values.iter().for_each(|value| *counts.entry(*value).or_default() += 1.0);
    let all = values.len() as f64;
    counts.values().map(|count| count / all * (all / count).log2()).sum()
}

/// The switch computes the entropy of destinations itself, and reports when it leaves the range
/// that the controller has learned.
#[test]
fn a_flood_is_told_before_its_window_ends() {
    let lab = Lab::with(&[
        ("HEAVY", 1),
        ("ENTROPY", 1),
        ("ENTROPY_KEY", 1),
        ("ENTROPY_SECOND", 1),
        ("ENTROPY_SECOND_KEY", 0),
        ("ENTROPY_BITS", 1),
        ("ENTROPY_ALARM", 1),
        // Few registers: most of a window is left when the last one has been read.
        ("ENTROPY_COLUMN_BITS", 6),
        ("HEAVY_SLOT_BITS", 4),
    ]);
    let options = "--alarm --sketch entropy=count-sketch:3x64 --slots 16";
    let mut running = lab.start(&format!("{options} --window 200ms --sample-every never"));
    // Destinations in the order in which they were sent: a window is a part of it.
    let mut destinations: Vec<u32> = Vec::new();
    let mut send = |datagrams: &mut dyn Iterator<Item = (u32, u32)>| {
        let mut entrance = lab.switch.enter();
        for (src, dst) in datagrams {
            entrance.arrive(lab.switch.port(0), &datagram(src, dst)).unwrap();
            destinations.push(dst);
        }
    };
    // Packets in windows that have ended. From the first window on all are counted.
    let mut ended = number(&window(&mut running), "packets") as usize;
    // Normal traffic: 256 talk to 256. The controller has learned it after 30 windows.
    let mut learned = false;
    while !learned {
        for _ in 0..4 {
            send(&mut (0..512).map(|number| (number % 256, number % 256)));
        }
        let window = window(&mut running);
        ended += number(&window, "packets") as usize;
        assert_ne!(window["alarm"]["raised"], true, "{window}");
        learned = window["alarm"]["judged"] == true;
    }
    // Many send to one, in addition to normal traffic: enough for the switch to compare the entropy,
    // and few enough to arrive well before the window ends.
    let mut sources = (1 << 20..).step_by(1536).take(50);
    let printed = loop {
        let first = sources.next().expect("a flood is reported in its window");
        send(&mut (0..256).map(|number| (number, number)));
        send(&mut (first..first + 1536).map(|source| (source, 7)));
        // Windows follow windows, with a sample in between when there is an alarm.
        let mut record = running.record();
        check(&record);
        if record["record"] == "sample" {
            break record;
        }
        ended += number(&record, "packets") as usize;
        // A flood at the end of a window is reported with that window. Once it is over, there is
        // another flood.
        while record["alarm"]["raised"] == true {
            send(&mut (0..2048).map(|number| (number % 256, number % 256)));
            record = window(&mut running);
            ended += number(&record, "packets") as usize;
        }
    };
    assert_eq!(
        (&printed["alarm"]["raised"], printed["alarm"]["reason"].as_str()),
        (&Value::Bool(true), Some("crossed"))
    );
    // The sample's packets are known, so its entropy is, up to those that arrived while it was read.
    // The interval is one of 95 %, two standard errors to each side.
    let [before, after] = ["packets_before", "packets_after"].map(|key| number(&printed, key));
    let of_first = |packets: u64| entropy(&destinations[ended..ended + packets as usize]);
    let [bits, low, high] =
        ["bits", "low", "high"].map(|key| float(&printed["entropy"]["dst"], key));
    let off = |packets| (bits - of_first(packets)).abs();
    let least = (before..=after).map(off).min_by(f64::total_cmp).unwrap();
    assert!(least <= DEVIATIONS * (high - low) / 4.0, "{least}: {printed}");
    let usual = float(&printed["alarm"]["usual"]["dst"], "mean");
    assert!(of_first(after) < usual - 1.0 && low < usual - 1.0, "{printed}");
    assert!(before < after || bits < usual - 1.0, "{printed}");
    // Its window ends after that.
    let flooded = window(&mut running);
    assert_eq!(flooded["window"], printed["window"]);
    assert!(number(&flooded, "end_ns") >= number(&printed, "end_ns"));
    let outcome = running.end();
    let of_it: Vec<&str> =
        outcome.stderr.lines().filter(|line| line.contains("open window")).collect();
    let [warning] = of_it[..] else { panic!("{}", outcome.stderr) };
    let expected = format!(
        "open window {} may contain a distributed denial-of-service attack: its entropy of dst is unusual",
        printed["window"]
    );
    assert_has(warning, &[&expected, "the entropy of dst is"]);
    // The switch's entropy agrees with its sums.
    assert!(!outcome.stderr.contains("follows from its sum"), "{}", outcome.stderr);
}

/// The warning is logged once, and windows are judged nevertheless.
#[test]
fn a_program_without_alarms_says_how_to_have_them() {
    let of_one = [("HEAVY", 1), ("ENTROPY", 1), ("ENTROPY_KEY", 0)];
    let lab = Lab::with(&[&of_one[..], &[("ENTROPY_SECOND", 1)]].concat());
    let mut run = lab.counting("--alarm --window 50ms --sample-every never");
    lab.send(1000);
    (0..2).for_each(|_| run.window());
    let outcome = run.end().0;
    let advice = "compile it with -DFLOWGAUGE_ENTROPY_BITS=1 -DFLOWGAUGE_ENTROPY_ALARM=1";
    assert_eq!(outcome.stderr.matches(advice).count(), 1, "{}", outcome.stderr);
    let outcome = Lab::with(&of_one).start("--alarm").outcome();
    outcome.failed(1, &["-DFLOWGAUGE_ENTROPY_SECOND=1"]);
}
