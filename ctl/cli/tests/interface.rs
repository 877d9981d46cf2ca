//! `flowgauge run -i` on veth devices, from the first packet to the operator's last resort.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::flowgauge;
use flowgauge_dataplane::traffic::{Generator, Profile, Sources};
use flowgauge_dataplane::xdp::veth::{RECEIVER, SENDER, isolated};
use flowgauge_dataplane::xdp::{DIRECTORY, DeviceCounters, Sender};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Runs a test in a network of its own. Prints why it cannot where it cannot.
fn on_veth(test: impl FnOnce() + Send + 'static) {
    if let Err(need) = isolated(test) {
        println!("skipped: needs {need}");
    }
}

/// A run that prints JSON lines.
struct Run {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Run {
    fn start(arguments: &str) -> Self {
        let mut command = flowgauge();
        command.arg("run").args(arguments.split_ascii_whitespace()).args(["--read-every", "never", "--format", "json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Run { child, lines }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in '{line}': {}", self.complaints()))
    }

    fn complaints(&mut self) -> String {
        let mut complaints = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        complaints
    }

    /// Ends the run with a signal; gives the lines that it had written or still wrote. One that the signal cut off is none.
    fn end(mut self, signal: Signal) -> Vec<Value> {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        self.child.wait().unwrap();
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Packets by window. A window may be told twice, by the run that was killed right after it and by the one that took over.
#[derive(Default)]
struct Windows(BTreeMap<u64, u64>);

impl Windows {
    fn add(&mut self, line: &Value) {
        if line["record"] == "window" {
            let (window, packets) = (line["window"].as_u64().unwrap(), line["packets"].as_u64().unwrap());
            let earlier = self.0.insert(window, packets);
            assert!(earlier.is_none_or(|earlier| earlier == packets), "window {window}: {earlier:?} and {packets}");
        }
    }

    fn packets(&self) -> u64 {
        assert!(self.0.keys().copied().eq(0..self.0.len() as u64), "windows are missing: {:?}", self.0.keys());
        self.0.values().sum()
    }
}

#[test]
fn killing_the_controller_loses_no_packet() {
    on_veth(|| {
        let mut windows = Windows::default();
        let arguments = "-i rx --window 7ms --adopt";
        let mut run = Run::start(arguments);
        windows.add(&run.line());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let traffic = thread::spawn(move || {
            let mut sender = Sender::new(SENDER.0, Generator::new(Profile::new(Sources::Unique)).template(), 1 << 20).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                sender.send(1 << 12).unwrap();
            }
        });
        for round in 0..20 {
            for _ in 0..round % 5 + 1 {
                windows.add(&run.line());
            }
            run.end(Signal::SIGKILL).iter().for_each(|line| windows.add(line));
            run = Run::start(arguments);
        }
        windows.add(&run.line());
        stop.store(true, Ordering::Relaxed);
        traffic.join().unwrap();
        run.end(Signal::SIGINT).iter().for_each(|line| windows.add(line));
        let received = DeviceCounters::read(RECEIVER.0).unwrap().received;
        println!("{received} received; {} windows of 21 runs", windows.0.len());
        assert_eq!(windows.packets(), received);
        assert!(!Path::new(DIRECTORY).exists(), "a regular end leaves nothing behind");
    });
}

fn send(packets: u64) {
    let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
    (0..packets).for_each(|_| assert_eq!(socket.send_to(&[0; 18], (RECEIVER.1, 9)).unwrap(), 18));
}

#[test]
fn both_directions_and_all_together() {
    on_veth(|| {
        let mut run = Run::start("-i rx,tx --direction both --window 20ms");
        let records = |run: &mut Run| -> Vec<Value> { (0..5).map(|_| run.line()).collect() };
        let first = records(&mut run);
        let places: Vec<_> = first.iter().map(|record| (record["interface"].as_str(), record["direction"].as_str())).collect();
        let expected = [("rx", "ingress"), ("rx", "egress"), ("tx", "ingress"), ("tx", "egress"), ("rx,tx", "both")];
        assert_eq!(places, expected.map(|(interface, direction)| (Some(interface), Some(direction))));
        send(50);
        let totals = run.end(Signal::SIGTERM);
        let packets = |record: &Value| record["packets"].as_u64().unwrap();
        let totals: Vec<u64> = totals.iter().filter(|record| record["record"] == "total").map(packets).collect();
        assert_eq!(totals, [50, 0, 0, 50, 100]);
    });
}

#[test]
fn a_killed_run_is_named_and_can_be_ended() {
    on_veth(|| {
        let mut run = Run::start("-i rx --window 10ms");
        run.line();
        run.end(Signal::SIGKILL);
        let mut again = Run::start("-i rx");
        let complaint = again.complaints();
        assert_eq!(again.child.wait().unwrap().code(), Some(1));
        assert!(complaint.contains("--adopt") && complaint.lines().count() == 1, "{complaint}");
        let detach = || String::from_utf8(flowgauge().arg("detach").output().unwrap().stdout).unwrap();
        assert_eq!(detach(), "rx ingress: no longer counted\n");
        assert_eq!(detach(), "nothing was left counting\n");
        let mut run = Run::start("-i rx --window 10ms");
        run.line();
        run.end(Signal::SIGINT);
    });
}

#[test]
fn staggered_registers_count_on_an_interface() {
    on_veth(|| {
        let run = Run::start("-i rx --staggered 1m --adopt");
        // Without windows and reads, the first output comes at the end: wait until the program is attached.
        while !Path::new(DIRECTORY).join("rx-ingress/link").exists() {
            thread::yield_now();
        }
        send(20);
        run.end(Signal::SIGKILL);
        let mut run = flowgauge();
        run.args("run -i rx --staggered 1m --adopt --read-every never --duration 1ms --format json".split(' '));
        let output = run.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let total: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        assert_eq!(total["packets"], 20);
    });
}
