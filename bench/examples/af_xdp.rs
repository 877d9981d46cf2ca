//! What the AF_XDP port costs over veth, with packets that come as fast as the kernel can send them from another CPU; next to DPDK's
//! testpmd on the same devices, if it is installed. Needs two CPUs and root.
//!
//! `cargo run --release -p flowgauge-bench --example af_xdp`

use flowgauge_core::{HashMode, Settings, cardinality};
use flowgauge_dataplane::poll::port::{AfXdpPort, Frame, Port, Ports, Received, Waker, af_xdp};
use flowgauge_dataplane::poll::{Options, PollMode};
use flowgauge_dataplane::traffic::Generator;
use flowgauge_dataplane::xdp::veth::{RECEIVER, SENDER, isolated};
use flowgauge_dataplane::xdp::{DeviceCounters, Sender};
use flowgauge_dataplane::{Dataplane, Poll, Tables};
use std::error::Error;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WORKER: usize = 0;
const SENDING: usize = 1;
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A port that notes how long its worker is at work on packets: the time of the calls that had some.
struct Timed {
    port: AfXdpPort,
    busy_ns: Arc<AtomicU64>,
    batches: Arc<AtomicU64>,
}

impl Port for Timed {
    const SIGNALS: bool = AfXdpPort::SIGNALS;

    fn receive(&mut self, sink: &mut impl FnMut(Frame<'_>)) -> Received {
        let started = Instant::now();
        let received = self.port.receive(sink);
        if received == Received::Frames {
            self.busy_ns.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
            self.batches.fetch_add(1, Ordering::Relaxed);
        }
        received
    }

    fn wait(&mut self, most: Duration) {
        self.port.wait(most);
    }

    fn waker(&self) -> Option<Waker> {
        self.port.waker()
    }
}

/// Packets that keep coming, from a CPU of their own.
struct Traffic {
    stop: Arc<AtomicBool>,
    sender: thread::JoinHandle<()>,
}

impl Traffic {
    fn start() -> Outcome<Self> {
        let generator = Generator::new("unique".parse()?);
        let mut sender = Sender::new(SENDER.0, generator.template(), 1 << 20)?;
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            let mut cpus = nix::sched::CpuSet::new();
            let pinned = cpus.set(SENDING).and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus));
            if let Err(error) = pinned {
                eprintln!("the sender is not pinned: {error}");
            }
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = sender.send(1 << 14) {
                    return eprintln!("{error}");
                }
            }
        });
        Ok(Traffic { stop, sender })
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // It has said what it died of.
        let _ = self.sender.join();
    }
}

fn flowgauge(what: &str, port: &str, settings: Settings, poll_mode: PollMode) -> Outcome<()> {
    let Ports { ports, source, gate, interface } = af_xdp(&port.parse()?, None)?;
    let (busy, batches) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let timed = |port| Timed { port, busy_ns: Arc::clone(&busy), batches: Arc::clone(&batches) };
    let ports = Ports { ports: ports.into_iter().map(timed).collect(), source, gate, interface };
    let mut poll = Poll::new(ports, Options { settings, poll_mode, cpus: vec![WORKER], ..Options::default() });
    poll.install(&Tables::new(&settings, 1))?;
    let traffic = Traffic::start()?;
    thread::sleep(TIME / 4);
    poll.rotate()?;
    let lost = poll.losses()?.total();
    let before = (busy.load(Ordering::Relaxed), batches.load(Ordering::Relaxed));
    let started = Instant::now();
    thread::sleep(TIME);
    let window = poll.rotate()?;
    let elapsed = started.elapsed();
    let (busy, batches) = (busy.load(Ordering::Relaxed) - before.0, batches.load(Ordering::Relaxed) - before.1);
    let lost = poll.losses()?.total() - lost;
    traffic.stop();
    let packets = window.packets_after as f64;
    let cpu = window.cpu_ns.unwrap_or_default() as f64;
    println!(
        "{what:<44} {:>6.2} {:>7.2} {:>8.1} {:>9.1} {:>9.1} {:>8.1}",
        packets / elapsed.as_secs_f64() / 1e6,
        lost as f64 / elapsed.as_secs_f64() / 1e6,
        cpu / elapsed.as_nanos() as f64 * 100.0,
        cpu / packets,
        busy as f64 / packets,
        packets / batches.max(1) as f64,
    );
    Ok(())
}

/// testpmd with its cores pinned as the worker is, receiving and doing nothing else.
fn testpmd() -> Outcome<()> {
    let prefix = format!("--file-prefix=flowgauge-{}", std::process::id());
    let device = format!("--vdev=net_af_xdp0,iface={}", RECEIVER.0);
    // Its core that takes orders shares the sender's CPU and sleeps.
    let cores = format!("2@{SENDING},3@{WORKER}");
    let mut child = Command::new("dpdk-testpmd")
        .args(["--lcores", &cores, "--main-lcore", "2", "--no-pci", "--no-huge", "-m", "256"])
        .args([
            &prefix,
            &device,
            "--",
            "--forward-mode=rxonly",
            "--burst=64",
            "--interactive",
            "--no-mlockall",
            "--total-num-mbufs=16384",
            "--record-core-cycles",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut orders = child.stdin.take().ok_or("no pipe to testpmd")?;
    writeln!(orders, "start")?;
    thread::sleep(Duration::from_secs(3));
    let traffic = Traffic::start()?;
    thread::sleep(TIME / 4);
    let received = || DeviceCounters::read(RECEIVER.0).map_or((0, 0), |counters| (counters.received, counters.dropped));
    let cpu_before = cpu_of(child.id())?;
    let (before, started) = (received(), Instant::now());
    thread::sleep(TIME);
    let (after, elapsed) = (received(), started.elapsed());
    let cpu = cpu_of(child.id())? - cpu_before;
    traffic.stop();
    writeln!(orders, "stop\nquit")?;
    drop(orders);
    let said = String::from_utf8(child.wait_with_output()?.stdout)?;
    let lost = (after.1 - before.1) as f64;
    let packets = (after.0 - before.0) as f64 - lost;
    println!(
        "{:<44} {:>6.2} {:>7.2} {:>8.1} {:>9.1} {:>9.1}",
        "testpmd rxonly on net_af_xdp",
        packets / elapsed.as_secs_f64() / 1e6,
        lost / elapsed.as_secs_f64() / 1e6,
        cpu / elapsed.as_nanos() as f64 * 100.0,
        cpu / packets,
        busy_ns(&said).unwrap_or(f64::NAN),
    );
    Ok(())
}

/// What testpmd says of the time in which it had packets, in nanoseconds a packet: "CPU cycles/packet=90.5 (… at 2445 MHz Clock".
fn busy_ns(said: &str) -> Option<f64> {
    let line = said.split_once("CPU cycles/packet=")?.1.lines().next()?;
    let cycles: f64 = line.split(' ').next()?.parse().ok()?;
    let megahertz: f64 = line.rsplit_once(" at ")?.1.split(' ').next()?.parse().ok()?;
    Some(cycles / megahertz * 1e3)
}

/// CPU time of all threads of a process, in nanoseconds.
fn cpu_of(process: u32) -> Outcome<f64> {
    let mut sum = 0.0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let line = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += line.split(' ').next().unwrap_or_default().parse::<f64>()?;
    }
    Ok(sum)
}

fn compare() -> Outcome<()> {
    println!("{:<44} {:>6} {:>7} {:>8} {:>9} {:>9} {:>8}", "", "Mpps", "lost", "CPU %", "ns/packet", "busy ns", "batch");
    let with = |change: fn(&mut cardinality::Settings)| {
        let mut settings = Settings::default();
        change(&mut settings.cardinality);
        settings
    };
    let off = with(|settings| settings.mode = cardinality::Mode::Off);
    let crc32 = with(|settings| settings.hash = HashMode::Crc32);
    let tabulated = Settings::default();
    for _ in 0..ROUNDS {
        flowgauge("packets alone", "rx", off, PollMode::Adaptive)?;
        flowgauge("cardinality of src, crc32", "rx", crc32, PollMode::Adaptive)?;
        flowgauge("cardinality of src, tabulated", "rx", tabulated, PollMode::Adaptive)?;
        flowgauge("cardinality of src, tabulated, busy", "rx", tabulated, PollMode::Busy)?;
        flowgauge("cardinality of src, tabulated, interrupt", "rx", tabulated, PollMode::Interrupt)?;
        flowgauge("cardinality of src, tabulated, 1024 frames", "rx,frames=1024", tabulated, PollMode::Adaptive)?;
        flowgauge("cardinality of src, tabulated, 65536 frames", "rx,frames=65536", tabulated, PollMode::Adaptive)?;
        match Command::new("dpdk-testpmd").arg("--version").output() {
            Ok(_) => testpmd()?,
            Err(_) => println!("testpmd is not installed"),
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    isolated(compare)?
}
