//! Cost of the AF_XDP port over veth, with packets that arrive as fast as the kernel can send them
//! from another CPU. Needs two CPUs and root. `flowgauge bench peers` runs DPDK's testpmd on the
//! same devices.
//!
//! `cargo run --release -p flowgauge-bench --example af_xdp`

use flowgauge_core::{HashMode, Settings, cardinality};
use flowgauge_dataplane::poll::port::{
    AfXdpPort, Port, PortFrame, Ports, Received, Waker, Worker, af_xdp,
};
use flowgauge_dataplane::poll::{Options, PollMode};
use flowgauge_dataplane::{Dataplane, Poll, Tables};
use flowgauge_traffic::Generator;
use flowgauge_traffic::kernel::Sender;
use flowgauge_traffic::veth::{SENDER, isolated};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WORKER: usize = 0;
const SENDING: usize = 1;
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Port that measures how long its worker processes packets: the time of the calls that returned
/// some.
struct TimedPort {
    port: AfXdpPort,
    busy_ns: Arc<AtomicU64>,
    batches: Arc<AtomicU64>,
}

impl Port for TimedPort {
    const SIGNALS: bool = AfXdpPort::SIGNALS;

    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
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

    fn is_drained(&self) -> bool {
        self.port.is_drained()
    }

    fn waker(&self) -> Option<Waker> {
        self.port.waker()
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

/// Continuous traffic from a CPU of its own.
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
            let pinned = cpus
                .set(SENDING)
                .and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus));
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
        // The thread has printed why it ended.
        let _ = self.sender.join();
    }
}

fn flowgauge(what: &str, port: &str, settings: Settings, poll_mode: PollMode) -> Outcome<()> {
    let Ports { ports, source, gate, interface } = af_xdp(&port.parse()?, None)?;
    let (busy, batches) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let timed =
        |port| TimedPort { port, busy_ns: Arc::clone(&busy), batches: Arc::clone(&batches) };
    let ports = Ports { ports: ports.into_iter().map(timed).collect(), source, gate, interface };
    let mut poll =
        Poll::new(ports, Options { settings, poll_mode, cpus: vec![WORKER], ..Options::default() });
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
    let (busy, batches) =
        (busy.load(Ordering::Relaxed) - before.0, batches.load(Ordering::Relaxed) - before.1);
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

fn compare() -> Outcome<()> {
    println!(
        "{:<44} {:>6} {:>7} {:>8} {:>9} {:>9} {:>8}",
        "", "Mpps", "lost", "CPU %", "ns/packet", "busy ns", "batch"
    );
    let with = |change: fn(&mut cardinality::Settings)| {
        let mut settings = Settings::default();
        change(&mut settings.cardinality);
        settings
    };
    let off = with(|settings| settings.mode = cardinality::Mode::Off);
    let crc32 = Settings::default().with_hash(HashMode::Crc32);
    let tabulated = Settings::default();
    for _ in 0..ROUNDS {
        flowgauge("packets alone", "rx", off, PollMode::Adaptive)?;
        flowgauge("cardinality of src, crc32", "rx", crc32, PollMode::Adaptive)?;
        flowgauge("cardinality of src, tabulated", "rx", tabulated, PollMode::Adaptive)?;
        flowgauge("cardinality of src, tabulated, busy", "rx", tabulated, PollMode::Busy)?;
        flowgauge(
            "cardinality of src, tabulated, interrupt",
            "rx",
            tabulated,
            PollMode::Interrupt,
        )?;
        flowgauge(
            "cardinality of src, tabulated, 1024 frames",
            "rx,frames=1024",
            tabulated,
            PollMode::Adaptive,
        )?;
        flowgauge(
            "cardinality of src, tabulated, 65536 frames",
            "rx,frames=65536",
            tabulated,
            PollMode::Adaptive,
        )?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    isolated(compare)?
}
