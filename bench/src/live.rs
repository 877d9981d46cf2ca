//! Cost of live ports, whose packets keep coming: a worker polls on one CPU, and its CPU time per
//! packet is measured. Everything else runs on the other CPU.

use crate::turns::{stay_on, thread_time, usable_cpus};
#[cfg(feature = "dpdk")]
use crate::{findings::Failure, machine};
use flowgauge_core::Settings;
use flowgauge_dataplane::poll::port::{AfXdp, AfXdpPort, Port, Ports, Received, af_xdp};
use flowgauge_dataplane::poll::{self, Options};
use flowgauge_dataplane::{Dataplane, Error, Poll, Tables};
use flowgauge_traffic::kernel::Sender;
use flowgauge_traffic::veth::{RECEIVER, SENDER};
use flowgauge_traffic::{Generator, Profile, Sources};
use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// CPU of the polling thread, and CPU of everything else.
#[derive(Clone, Copy)]
pub(crate) struct CpuPair {
    pub(crate) polling: usize,
    pub(crate) other: usize,
}

impl CpuPair {
    /// Returns the first two usable CPUs; `None` if there is only one.
    pub(crate) fn find() -> Option<Self> {
        match *usable_cpus() {
            [polling, other, ..] => Some(CpuPair { polling, other }),
            _ => None,
        }
    }
}

/// Returns the CPU nanoseconds per packet of a worker that counts.
pub(crate) fn cost_of_counting<P: Port>(
    ports: Ports<P>,
    settings: Settings,
    cpus: CpuPair,
    time: Duration,
) -> Result<f64, Error> {
    let mut poll = Poll::new(
        ports,
        Options { settings, cpus: vec![cpus.polling], ..poll::Options::default() },
    );
    poll.install(&Tables::new(&settings, 1))?;
    thread::sleep(time / 4);
    poll.rotate()?;
    thread::sleep(time);
    let window = poll.rotate()?;
    Ok(window.cpu_ns.map_or(f64::NAN, |used| used as f64 / window.packets_after as f64))
}

/// Returns the CPU nanoseconds per packet of a worker that discards what it receives.
pub(crate) fn cost_of_receiving<P: Port>(ports: Ports<P>, cpus: CpuPair, time: Duration) -> f64 {
    // Empty polls before a wait, as in a worker.
    const MAX_EMPTY_POLLS: u32 = 200;
    let idle = if P::SIGNALS { Duration::from_millis(100) } else { Duration::from_micros(50) };
    let Some(mut port) = ports.ports.into_iter().next() else { return f64::NAN };
    let mut receive_for = move |time: Duration| {
        let (mut packets, mut empty_polls, start) = (0_u64, 0, Instant::now());
        let cpu_before = thread_time();
        while start.elapsed() < time {
            let received = port.receive(&mut |frame| {
                packets += 1;
                black_box(frame);
            });
            match received {
                Received::Frames => empty_polls = 0,
                Received::Idle if P::SIGNALS && empty_polls < MAX_EMPTY_POLLS => empty_polls += 1,
                Received::Idle | Received::Ended => port.wait(idle),
            }
        }
        (thread_time() - cpu_before).as_nanos() as f64 / packets as f64
    };
    let worker = move || {
        stay_on(&[cpus.polling]);
        // The first result warms up and is dropped.
        receive_for(time / 4);
        receive_for(time)
    };
    thread::scope(|scope| scope.spawn(worker).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Continuous traffic to the receiver of this network namespace, from the other CPU.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<(), Error>>,
}

impl Traffic {
    pub(crate) fn start(cpus: CpuPair) -> Result<Self, Error> {
        let generator = Generator::new(Profile::new(Sources::Unique));
        let mut sender = Sender::new(SENDER.0, generator.template(), 1 << 20)?;
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            stay_on(&[cpus.other]);
            while !stopped.load(Ordering::Relaxed) {
                sender.send(1 << 14)?;
            }
            Ok(())
        });
        Ok(Traffic { stop, sender })
    }

    pub(crate) fn stop(self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Runs one turn on an AF_XDP socket at the receiver of this network namespace, with continuous
/// traffic.
pub(crate) fn on_af_xdp(
    cpus: CpuPair,
    turn: impl FnOnce(Ports<AfXdpPort>) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let ports = af_xdp(&AfXdp::new(RECEIVER.0), None)?;
    let traffic = Traffic::start(cpus)?;
    let cost = turn(ports)?;
    traffic.stop()?;
    Ok(cost)
}

/// EAL arguments for memory without hugepages.
pub(crate) const WITHOUT_HUGEPAGES: [&str; 4] = ["--no-huge", "--no-shconf", "-m", "256"];

/// Returns EAL arguments for memory. Two programs are compared: both have hugepages if there are
/// enough for two, and neither has them otherwise.
#[cfg(feature = "dpdk")]
pub(crate) fn memory_arguments() -> Vec<&'static str> {
    use std::fs;

    const BYTES_PER_PROGRAM: u64 = 256 << 20;
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let number = |name| machine::field(&meminfo, name)?.trim_end_matches(" kB").parse::<u64>().ok();
    let free = number("HugePages_Free")
        .zip(number("Hugepagesize"))
        .map_or(0, |(pages, size)| pages * size * 1024);
    if free >= 2 * BYTES_PER_PROGRAM {
        vec!["--in-memory", "-m", "256"]
    } else {
        WITHOUT_HUGEPAGES.to_vec()
    }
}

/// DPDK device `net_null`, which returns its buffers unchanged.
#[cfg(feature = "dpdk")]
pub(crate) struct NetNull(flowgauge_dpdk::Eal);

#[cfg(feature = "dpdk")]
impl NetNull {
    pub(crate) const DEVICE: &'static str = "net_null0";

    pub(crate) fn start(cpus: CpuPair) -> Result<Self, Failure> {
        let other_core = format!("--lcores=0@{}", cpus.other);
        let memory = memory_arguments();
        let arguments: Vec<&str> = ["--no-pci", "--no-telemetry", &other_core]
            .into_iter()
            .chain(memory.iter().copied())
            .collect();
        Ok(NetNull(flowgauge_dpdk::Eal::start_once(&arguments).map_err(Self::error)?))
    }

    /// Returns its ports, with IPv4 frames in their buffers, or with zeros.
    pub(crate) fn ports(&self, has_frames: bool) -> Result<Ports<impl Port + use<>>, Error> {
        use flowgauge_dataplane::poll::port::dpdk_device;
        use flowgauge_dpdk::{Device, Queues};

        let generator = Generator::new(Profile::new(Sources::Unique));
        let mut device = Device::open(&self.0, Self::DEVICE, Queues { receive: 1, send: 0 })
            .map_err(Self::error)?;
        let mut index = 0;
        if has_frames {
            device.fill_buffers(|buffer| {
                if let Some(frame) = buffer.get_mut(..generator.frame_length()) {
                    frame.copy_from_slice(generator.template());
                    generator.fill(index, frame);
                    index += 1;
                }
            });
        }
        Ok(dpdk_device(device))
    }

    fn error(error: flowgauge_dpdk::Error) -> Error {
        Error::Port { port: format!("dpdk:{}", Self::DEVICE), problem: error.to_string() }
    }
}
