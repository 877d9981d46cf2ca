//! What counting on a device of DPDK's costs, next to DPDK's own testpmd, which receives packets and frees them (`rxonly`).
//!
//! `cargo bench -p flowgauge-bench --features dpdk --bench dpdk [ROUNDS]`, as root, with `dpdk-testpmd` (package dpdk) and 256 MiB of
//! hugepages: without them all buffers fall into the same lines of the first-level cache. `FLOWGAUGE_EAL` holds other arguments for
//! DPDK. Both take turns; times are CPU time of the thread that polls. The device is `net_null`, whose buffers arrive as they are: zeros, or
//! IPv4 frames written there before.
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark")]

use flowgauge_bench::statistics::median;
use flowgauge_core::{HashMode, Settings};
use flowgauge_dataplane::poll::Options;
use flowgauge_dataplane::poll::port::dpdk_device;
use flowgauge_dataplane::traffic::{Generator, Profile, Sources};
use flowgauge_dataplane::{Dataplane, Poll, Tables};
use flowgauge_dpdk::{Device, Eal, Queues};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

const ROUND: Duration = Duration::from_secs(2);

fn arguments() -> Vec<String> {
    let given = env::var("FLOWGAUGE_EAL").unwrap_or_else(|_| "--in-memory -m 128".to_owned());
    given.split_ascii_whitespace().chain(["--no-pci", "--no-telemetry"]).map(str::to_owned).collect()
}

/// CPU time of the thread of this name, in nanoseconds.
fn cpu_ns(process: &Path, name: &str) -> Option<u64> {
    fs::read_dir(process.join("task")).ok()?.flatten().find_map(|task| {
        let comm = fs::read_to_string(task.path().join("comm")).ok()?;
        let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        (comm.trim() == name).then(|| schedstat.split(' ').next()?.parse().ok())?
    })
}

/// CPU nanoseconds a packet of testpmd; `None` where it is not installed.
fn testpmd(device: &str) -> Option<f64> {
    let mut command = Command::new("dpdk-testpmd");
    command.args(arguments()).args(["--vdev", device, "-l", "0,1", "--"]);
    command.args(["--forward-mode=rxonly", "--total-num-mbufs=8192", "--nb-cores=1", "--burst=64"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    thread::sleep(ROUND + Duration::from_secs(1));
    let process = Path::new("/proc").join(child.id().to_string());
    let used = cpu_ns(&process, "rte-worker-1").or_else(|| cpu_ns(&process, "lcore-worker-1"))?;
    // Enter ends it, with a summary.
    child.stdin.take()?.write_all(b"\n").ok()?;
    let mut said = String::new();
    child.stdout.take()?.read_to_string(&mut said).ok()?;
    child.wait().ok()?;
    let (_, received) = said.rsplit_once("RX-packets: ")?;
    let received: f64 = received.split_ascii_whitespace().next()?.parse().ok()?;
    Some(used as f64 / received)
}

/// CPU nanoseconds a packet of our worker.
fn counted(eal: &Eal, device: &str, hash: HashMode, frames: Option<&Generator>) -> f64 {
    let mut device = Device::open(eal, device, Queues { receive: 1, send: 0 }).expect("the device");
    if let Some(generator) = frames {
        let mut index = 0;
        device.fill_buffers(|buffer| {
            let frame = &mut buffer[..generator.frame_length()];
            frame.copy_from_slice(generator.template());
            generator.fill(index, frame);
            index += 1;
        });
    }
    let mut settings = Settings::default();
    settings.cardinality.hash = hash;
    let mut poll = Poll::new(dpdk_device(device), Options { settings, ..Options::default() });
    poll.install(&Tables::new(&settings, 1)).expect("a worker");
    let mut look = || {
        let window = poll.rotate().expect("a window");
        assert!(frames.is_none() || window.bank.counters.non_ip == 0, "the device does not hand its buffers out as they are");
        (cpu_ns(Path::new("/proc/self"), "worker-0").expect("the worker's CPU time"), window.packets_after)
    };
    let (before, _) = look();
    thread::sleep(ROUND);
    let (after, packets) = look();
    (after - before) as f64 / packets as f64
}

/// Figures of one device: the names, and a measurement a round.
struct Series(Vec<(&'static str, Vec<f64>)>);

impl Series {
    fn add(&mut self, name: &'static str, value: Option<f64>) {
        let Some(value) = value else { return };
        match self.0.iter_mut().find(|(other, _)| *other == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name, vec![value])),
        }
    }

    fn print(&self, device: &str) {
        let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
        let base = self.0.iter().find(|(name, _)| *name == TESTPMD).map(|(_, values)| of(values));
        println!("{device}");
        for (name, values) in &self.0 {
            let rate = base.map_or(String::new(), |base| format!("{:8.2} of its rate", base / of(values)));
            println!("  {name:<42} {:6.2} ns CPU a packet {rate}", of(values));
        }
    }
}

const TESTPMD: &str = "testpmd rxonly";

fn main() {
    // Cargo passes --bench.
    let rounds: usize = env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(5);
    let mut all = arguments();
    all.push("--lcores=0".to_owned());
    let eal = Eal::start_once(&all).expect("DPDK, with hugepages");
    let generator = Generator::new(Profile::new(Sources::Unique));
    let mut series = Series(Vec::new());
    for _ in 0..rounds {
        series.add(TESTPMD, testpmd("net_null0"));
        series.add("counting frames of zeros, crc32", Some(counted(&eal, "net_null0", HashMode::Crc32, None)));
        series.add("counting IPv4 sources, crc32", Some(counted(&eal, "net_null0", HashMode::Crc32, Some(&generator))));
        series.add("counting IPv4 sources, tabulated", Some(counted(&eal, "net_null0", HashMode::Tabulated, Some(&generator))));
    }
    series.print("net_null, 64-byte frames");
}
