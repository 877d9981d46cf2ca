//! Ports on DPDK devices: network cards of any driver, and DPDK's software devices.

mod sender;

pub use sender::DpdkSender;

use super::{Port, PortFrame, PortSource, Ports, Received, Worker};
use crate::error::Error;
use crate::losses::{LossCause, Losses};
use crate::poll::gate::{Gate, Pace};
use crate::poll::threads::lock;
use crate::tally::{CountRange, Odometer};
use flowgauge_core::Link;
use flowgauge_dpdk::{BURST, Control, Device, Eal, Queues, ReceiveQueue, Stats, arguments};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Default arguments of DPDK: no files, so that several processes do not conflict.
pub const EAL: &str = "--in-memory";

/// Bursts received per call if that many packets are ready: one batch of counting.
const BURSTS: usize = 4;

/// Driver of devices that read captures, whose packets wait until they are received.
const CAPTURE_DRIVER: &str = "net_pcap";

/// Empty polls before the thread yields its CPU.
const SPINS: u32 = 256;

/// Creates ports on a DPDK device, one per receive queue. `devargs` is a bus address or the name of
/// a software device, with options after commas: `0000:03:00.0`, `net_pcap0,rx_pcap=trace.pcap`.
///
/// `eal` replaces [`EAL`] with other arguments of DPDK, separated by spaces. DPDK starts once per
/// process, with the arguments of the first port. Unless they say otherwise, only the named device
/// is taken from the kernel's drivers, and no threads are started for other cores.
///
/// Such a source never ends: a device without packets may receive some later.
///
/// # Errors
/// [`Error::Port`] with DPDK's message.
pub fn dpdk(devargs: &str, eal: Option<&str>, workers: usize) -> Result<Ports<DpdkPort>, Error> {
    let receive = u16::try_from(workers).unwrap_or(u16::MAX);
    open(devargs, eal, Queues { receive, send: 0 }).map(dpdk_device)
}

fn open(devargs: &str, eal: Option<&str>, queues: Queues) -> Result<Device, Error> {
    let opened = Eal::start_once(&arguments(devargs, eal.unwrap_or(EAL)))
        .and_then(|eal| Device::open(&eal, devargs, queues));
    opened.map_err(|error| failed(devargs, &error))
}

fn failed(devargs: &str, error: &flowgauge_dpdk::Error) -> Error {
    Error::Port { port: format!("dpdk:{devargs}"), problem: problem(error) }
}

/// Creates ports on an open device, one per receive queue.
#[must_use]
pub fn dpdk_device(device: Device) -> Ports<DpdkPort> {
    let Device { control, receive, .. } = device;
    if receive.len() > 1 && !control.has_rss() {
        tracing::info!(
            "dpdk:{}: its driver ({}) does not spread packets by a hash over its queues",
            control.name(),
            control.driver()
        );
    }
    let interface = format!("dpdk:{}", bus_name(control.name()));
    let odometer = Mutex::new(Odometer::new(0, 0));
    let is_device = control.driver() != CAPTURE_DRIVER;
    Ports {
        ports: receive
            .into_iter()
            .map(|queue| DpdkPort { queue, is_device, empty: 0, drained: true })
            .collect(),
        source: Arc::new(Shared { control, seen: Mutex::default(), odometer }),
        gate: Arc::new(Gate::new(Pace::Open)),
        interface,
    }
}

/// Returns a device's description without options.
fn bus_name(devargs: &str) -> &str {
    devargs.split(',').next().unwrap_or(devargs)
}

/// Describes an error, with the remedy where it is known.
fn problem(error: &flowgauge_dpdk::Error) -> String {
    use flowgauge_dpdk::Error as Dpdk;
    match error {
        Dpdk::Start { why } if why.to_ascii_lowercase().contains("hugepage") => {
            format!(
                "{error}; reserve hugepages (`flowgauge doctor` says how), or do without: --eal '--no-huge --no-shconf -m 512'"
            )
        }
        Dpdk::Device { operation, why, .. } => format!("DPDK cannot {operation}: {why}"),
        Dpdk::Queues { driver, way, most, wanted, .. } => {
            format!(
                "driver {driver} has {most} of the {wanted} {way} queues asked for; use --workers {most}"
            )
        }
        Dpdk::InUse { .. } => "is in use by this process already".to_owned(),
        _ => error.to_string(),
    }
}

/// Port on one receive queue.
pub struct DpdkPort {
    queue: ReceiveQueue,
    /// Whether packets arrive whether or not they are received.
    is_device: bool,
    /// Consecutive polls without packets.
    empty: u32,
    /// Whether the last poll found fewer packets than it would have taken.
    drained: bool,
}

impl Port for DpdkPort {
    #[inline]
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let mut received = Received::Idle;
        self.drained = false;
        for _ in 0..BURSTS {
            let count = self.queue.burst(|bytes, wire_length| {
                sink(PortFrame { bytes, wire_length, timestamp: 0, link: Link::Ethernet })
            });
            if count > 0 {
                self.empty = 0;
                received = Received::Frames;
            }
            if count < BURST {
                self.drained = true;
                break;
            }
        }
        received
    }

    fn is_drained(&self) -> bool {
        self.drained
    }

    fn is_device(&self) -> bool {
        self.is_device
    }

    /// Spins or yields, but never sleeps, whatever the mode: at line rate a queue fills faster than
    /// a sleeping thread wakes.
    fn wait(&mut self, _: Duration) {
        self.empty = self.empty.saturating_add(1);
        if self.empty < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

struct Shared {
    control: Arc<Control>,
    seen: Mutex<LastState>,
    odometer: Mutex<Odometer>,
}

impl Shared {
    /// Returns all packets that arrived at the device since it was opened; `None` if it does not
    /// report them.
    fn arrived(&self) -> Option<u64> {
        let Stats { received, missed, errors, no_buffer, .. } = self.control.stats().ok()?;
        Some(received + missed + errors + no_buffer)
    }
}

/// Last known state of the device.
#[derive(Default)]
struct LastState {
    link_up: bool,
    removed: bool,
}

impl PortSource for Shared {
    fn losses(&self) -> Losses {
        let stats = self.control.stats().unwrap_or_default();
        let mut losses = Losses::default();
        losses.add(LossCause::Device, stats.missed);
        losses.add(LossCause::DeviceError, stats.errors);
        losses.add(LossCause::NoBuffer, stats.no_buffer);
        losses
    }

    fn rotating(&self) {
        lock(&self.odometer).rotate(Instant::now(), self.control.waiting());
    }

    fn received(&self) -> Option<CountRange> {
        let arrived = self.arrived()?;
        lock(&self.odometer).tally(arrived)
    }

    fn exclude(&self, packets: u64) {
        lock(&self.odometer).exclude(packets);
    }

    fn warnings(&self) -> Vec<String> {
        if let Some(arrived) = self.arrived() {
            lock(&self.odometer).read(Instant::now(), arrived);
        }
        let mut seen = lock(&self.seen);
        let mut warnings = Vec::new();
        let name = bus_name(self.control.name());
        if !seen.removed && self.control.is_removed() {
            seen.removed = true;
            warnings.push(format!("dpdk:{name}: the device was removed; nothing more is counted"));
        }
        if !seen.removed
            && let Ok(up) = self.control.link_is_up()
        {
            // A link that has never been up may still be coming up.
            if seen.link_up && !up {
                warnings.push(format!(
                    "dpdk:{name}: the link went down; nothing is counted until it is up again"
                ));
            }
            seen.link_up = up;
        }
        warnings
    }
}
