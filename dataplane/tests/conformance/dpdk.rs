//! The poll-mode backend on DPDK ports: frames arrive through the same library, over a ring in
//! memory or a pair of veth devices in a network of the test's own.

use crate::conformance::backend::{Backend, Breadth, Feeder, Rig, Setup, arriving};
use crate::conformance::poll;
use crate::dpdk::support::{counted, flush, number, open};
use flowgauge_dataplane::poll::port::{OwnedFrame, dpdk_device};
use flowgauge_dpdk::{BURST, Device, Queues, SendQueue};
use flowgauge_testing::extent;
use flowgauge_testing::on_veth;
use flowgauge_testing::wait::until;
use flowgauge_traffic::veth::pair;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A device whose send queues lead to its receive queues.
#[derive(Clone, Copy)]
pub struct OnRing {
    pub queues: u16,
    /// Segments of memory per frame.
    pub segments: usize,
}

/// Two devices of one driver on a pair of veth devices.
#[derive(Clone, Copy)]
pub struct OnVeth {
    pub driver: &'static str,
    /// Driver option for the interface to receive from.
    pub receive: &'static str,
    /// Driver option for the interface to send to.
    pub send: &'static str,
    /// Whether packets pass the kernel's stack, which removes a VLAN tag and drops packets
    /// truncated within it.
    pub untags: bool,
}

/// Directly from the driver.
pub const AF_XDP: OnVeth =
    OnVeth { driver: "net_af_xdp", receive: "iface", send: "iface", untags: false };
/// Through libpcap, which restores tags. Only arriving packets: it would also see those that the
/// stack sends there.
pub const PCAP: OnVeth =
    OnVeth { driver: "net_pcap", receive: "rx_iface_in", send: "tx_iface", untags: true };

/// Size of a buffer, in bytes.
const BUFFER: usize = 2048;
/// Lengths that veth accepts: at least an Ethernet header, and at most its MTU in addition.
const VETH: RangeInclusive<usize> = 14..=1514;
/// Frames in flight without losses: a ring of veth has room for 256, and libpcap for eight blocks
/// of 256 KiB, which the kernel delivers when they are full or some milliseconds old. Four batches
/// are in at most eight blocks.
const UNDERWAY: u64 = 128;
/// Length of an Ethernet header, a VLAN tag, and the type after it.
const TAGGED: usize = 14 + 4 + 2;

impl Backend for OnRing {
    fn open(&self, setup: &Setup) -> Option<Rig> {
        let mut device =
            open("net_ring", "", Queues { receive: self.queues, send: self.queues }).unwrap();
        let queues = Mutex::new(std::mem::take(&mut device.send));
        let wire = Wire { queues, segments: self.segments, ..Wire::default() };
        Some(rig(setup, device, wire))
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        arriving(frames, |bytes| bytes.len() <= self.segments * BUFFER)
    }

    // DPDK never frees the memory of closed rings.
    fn breadth(&self) -> Breadth {
        Breadth::Few
    }

    fn in_order(&self) -> bool {
        self.queues == 1
    }

    fn at_once(&self) -> usize {
        self.queues as usize
    }
}

impl Backend for OnVeth {
    fn stage(&self, case: fn(&dyn Backend)) {
        let backend = *self;
        on_veth(move || case(&backend));
    }

    fn open(&self, setup: &Setup) -> Option<Rig> {
        // A case may have several dataplanes at a time.
        let number = number();
        let (tx, rx) = (format!("tx{number}"), format!("rx{number}"));
        pair((&tx, "10.78.0.1"), (&rx, "10.78.0.2")).unwrap();
        let OnVeth { driver, receive, send, .. } = self;
        let receiver =
            open(driver, &format!(",{receive}={rx}"), Queues { receive: 1, send: 0 }).unwrap();
        let sender =
            open(driver, &format!(",{send}={tx}"), Queues { receive: 0, send: 1 }).unwrap();
        let (queues, underway) = (Mutex::new(sender.send), Some(UNDERWAY));
        let wire = Wire { queues, segments: 1, underway, ..Wire::default() };
        Some(rig(setup, receiver, wire))
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        let ends_in_a_tag = |bytes: &[u8]| {
            matches!(bytes[12..14], [0x81, 0x00] | [0x88, 0xa8]) && bytes.len() < TAGGED
        };
        arriving(frames, |bytes| {
            VETH.contains(&bytes.len()) && !(self.untags && ends_in_a_tag(bytes))
        })
    }

    // Every frame goes through the kernel, and many rotations meet none.
    fn rotations(&self) -> u64 {
        extent(500, 2000)
    }
}

fn rig(setup: &Setup, device: Device, wire: Wire) -> Rig {
    let (ports, counted) = counted(dpdk_device(device));
    poll::rig(setup, ports, Wire { counted, ..wire })
}

/// Sender on all queues in turn, no faster than the workers count.
#[derive(Default)]
struct Wire {
    queues: Mutex<Vec<SendQueue>>,
    segments: usize,
    /// Maximum frames in flight; `None` if a full device reports it.
    underway: Option<u64>,
    sent: AtomicU64,
    counted: Arc<AtomicU64>,
}

impl Wire {
    fn wait(&self, underway: u64) {
        let counted = || self.counted.load(Ordering::Acquire);
        until(|| counted() + underway >= self.sent.load(Ordering::Relaxed));
    }
}

impl Feeder for Wire {
    fn send(&self, frames: Arc<[OwnedFrame]>) {
        let mut queues = self.queues.lock().unwrap();
        for (batch, queue) in frames.chunks(BURST / 2).zip((0..queues.len()).cycle()) {
            self.underway.into_iter().for_each(|underway| self.wait(underway));
            let queue = &mut queues[queue];
            for frame in batch {
                // Split differently for every frame, also in the middle of every header.
                let size = frame.bytes.len().div_ceil(self.segments).max(1);
                let mut segments: Vec<&[u8]> = frame.bytes.chunks(size).collect();
                segments.resize(self.segments, &[]);
                while !queue.push_segments(&segments) {
                    flush(queue);
                }
            }
            flush(queue);
            self.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
    }

    fn feed(&self, frames: Arc<[OwnedFrame]>) {
        self.send(frames);
        self.wait(0);
    }
}
