//! Devices that DPDK drives: network cards of any driver, and the devices that it makes in
//! software.

mod sender;

pub use sender::DpdkSender;

use super::{Duty, Frame, Port, Ports, Received, Source};
use crate::error::Error;
use crate::losses::{LossCause, Losses};
use crate::poll::gate::{Gate, Pace};
use crate::tally::{Odometer, Tally};
use flowgauge_core::Link;
use flowgauge_dpdk::{BURST, Control, Device, Eal, Queues, ReceiveQueue, Stats, arguments};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What DPDK is started with unless the caller says otherwise: no files, so that several processes
/// do not meet.
pub const EAL: &str = "--in-memory";

/// Bursts that are received at once if that many packets are there: as many as are counted
/// together.
const BURSTS: usize = 4;

/// Looks at an empty queue before the other threads of the processor get a chance.
const SPINS: u32 = 256;

/// Ports on a device of DPDK's, one a receive queue. `devargs` is a bus address or a software
/// device's name, and options behind commas: `0000:03:00.0`, `net_pcap0,rx_pcap=trace.pcap`.
///
/// `eal` are DPDK's own arguments, with spaces between, in place of [`EAL`]; it starts once a
/// process, and the arguments of the first port hold. Only the device that is named is taken from
/// the kernel's drivers, and no thread is started for other cores, unless these arguments say so.
///
/// Such a source has no end: a device that has no more packets may get some.
///
/// # Errors
/// [`Error::Port`] with what DPDK says.
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

/// Ports on an open device, one a receive queue.
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
    Ports {
        ports: receive.into_iter().map(|queue| DpdkPort { queue, empty: 0 }).collect(),
        source: Arc::new(Shared { control, seen: Mutex::default(), odometer }),
        gate: Arc::new(Gate::new(Pace::Open)),
        interface,
    }
}

/// A device's description without options.
fn bus_name(devargs: &str) -> &str {
    devargs.split(',').next().unwrap_or(devargs)
}

/// What went wrong, and what to do where that is known.
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

/// One receive queue.
pub struct DpdkPort {
    queue: ReceiveQueue,
    /// Looks in a row that found nothing.
    empty: u32,
}

impl Port for DpdkPort {
    #[inline]
    fn receive(&mut self, sink: &mut impl FnMut(Frame<'_>)) -> Received {
        let mut received = Received::Idle;
        for _ in 0..BURSTS {
            let count = self.queue.burst(|bytes, wire_length| {
                sink(Frame { bytes, wire_length, timestamp: 0, link: Link::Ethernet })
            });
            if count > 0 {
                self.empty = 0;
                received = Received::Frames;
            }
            if count < BURST {
                break;
            }
        }
        received
    }

    /// Does not sleep, whatever the mode: that takes longer than a queue at line rate takes to
    /// fill.
    fn wait(&mut self, _: Duration) {
        self.empty = self.empty.saturating_add(1);
        if self.empty < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
    }

    fn work(self, duty: Duty) {
        duty.run(self);
    }
}

struct Shared {
    control: Arc<Control>,
    seen: Mutex<Seen>,
    odometer: Mutex<Odometer>,
}

impl Shared {
    /// All packets that came to the device since it was opened; nothing if it does not say.
    fn arrived(&self) -> Option<u64> {
        let Stats { received, missed, errors, no_buffer, .. } = self.control.stats().ok()?;
        Some(received + missed + errors + no_buffer)
    }

    fn odometer(&self) -> MutexGuard<'_, Odometer> {
        self.odometer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was seen of the device before.
#[derive(Default)]
struct Seen {
    link_up: bool,
    removed: bool,
}

impl Source for Shared {
    fn losses(&self) -> Losses {
        let stats = self.control.stats().unwrap_or_default();
        let mut losses = Losses::default();
        losses.add(LossCause::Device, stats.missed);
        losses.add(LossCause::DeviceError, stats.errors);
        losses.add(LossCause::NoBuffer, stats.no_buffer);
        losses
    }

    fn rotating(&self) {
        self.odometer().rotate(Instant::now(), self.control.waiting());
    }

    fn received(&self) -> Option<Tally> {
        let arrived = self.arrived()?;
        self.odometer().tally(arrived)
    }

    fn warnings(&self) -> Vec<String> {
        if let Some(arrived) = self.arrived() {
            self.odometer().read(Instant::now(), arrived);
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut warnings = Vec::new();
        let name = bus_name(self.control.name());
        if !seen.removed && self.control.is_removed() {
            seen.removed = true;
            warnings.push(format!("dpdk:{name}: the device was removed; nothing more is counted"));
        }
        if !seen.removed
            && let Ok(up) = self.control.link_is_up()
        {
            // A link that has never been up may just be coming up.
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
