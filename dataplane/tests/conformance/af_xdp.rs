//! The poll-mode backend on an AF_XDP port: frames arrive over a pair of veth devices in a network
//! of the test's own.

use crate::conformance::backend::{Backend, Breadth, Feeder, Rig, Setup, arriving};
use crate::conformance::poll::rig;
use flowgauge_dataplane::poll::port::{AfXdp, Copies, FrameSender, Outlet, OwnedFrame, af_xdp};
use flowgauge_testing::extent;
use flowgauge_testing::on_veth;
use flowgauge_testing::wait::until;
use flowgauge_traffic::veth::ip;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy)]
pub struct OnVeth {
    pub queues: u32,
}

/// Lengths that veth accepts: at least an Ethernet header, and at most its MTU with a tag.
const LENGTHS: std::ops::RangeInclusive<usize> = 14..=1514;
/// Frames in flight. The device's own ring has room for 256, the socket's for more.
const UNDERWAY: u64 = 128;

impl Backend for OnVeth {
    fn stage(&self, case: fn(&dyn Backend)) {
        let backend = *self;
        on_veth(move || case(&backend));
    }

    fn open(&self, setup: &Setup) -> Option<Rig> {
        let pair = Pair::new(self.queues);
        let ports =
            af_xdp(&AfXdp { copies: Copies::Copy, ..AfXdp::new(&pair.receiver) }, None).unwrap();
        assert_eq!(ports.ports.len(), self.queues as usize);
        let counted = ports.ports.iter().map(|port| port.received()).collect();
        let senders = (0..self.queues)
            .map(|queue| FrameSender::on_queue(&pair.sender, queue).unwrap())
            .collect();
        let (senders, sent) = (Mutex::new(senders), AtomicU64::new(0));
        let feeder = OverTheWire { senders, counted, sent, _pair: pair };
        Some(rig(setup, ports, feeder))
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        arriving(frames, |bytes| LENGTHS.contains(&bytes.len()))
    }

    // Every frame goes through the kernel, and many rotations meet none.
    fn rotations(&self) -> u64 {
        extent(500, 2000)
    }

    fn in_order(&self) -> bool {
        self.queues == 1
    }

    fn at_once(&self) -> usize {
        self.queues as usize
    }

    // Every combination needs a pair of devices, which the kernel removes slowly. Packets are
    // counted by the same workers as those of captures.
    fn breadth(&self) -> Breadth {
        extent(Breadth::Few, Breadth::Values)
    }
}

/// Two devices: frames sent on a queue of one arrive at the same queue of the other.
struct Pair {
    sender: String,
    receiver: String,
}

impl Pair {
    fn new(queues: u32) -> Self {
        static PAIRS: AtomicU64 = AtomicU64::new(0);
        let number = PAIRS.fetch_add(1, Ordering::Relaxed);
        let pair = Pair { sender: format!("tx-{number}"), receiver: format!("rx-{number}") };
        let Pair { sender, receiver } = &pair;
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!("link add {receiver} {queues} type veth peer name {sender} {queues}")).unwrap();
        for device in [receiver, sender] {
            ip(&format!("link set dev {device} addrgenmode none")).unwrap();
            ip(&format!("link set dev {device} up")).unwrap();
        }
        pair
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // They vanish with the test's network at the latest.
        let _ = ip(&format!("link del {}", self.receiver));
    }
}

/// Sender on all queues in turn, no faster than the workers count.
struct OverTheWire {
    senders: Mutex<Vec<FrameSender>>,
    counted: Vec<Arc<AtomicU64>>,
    sent: AtomicU64,
    _pair: Pair,
}

impl OverTheWire {
    fn wait(&self, underway: u64) {
        let counted =
            || self.counted.iter().map(|counted| counted.load(Ordering::Acquire)).sum::<u64>();
        until(|| counted() + underway >= self.sent.load(Ordering::Relaxed));
    }
}

impl Feeder for OverTheWire {
    fn send(&self, frames: Arc<[OwnedFrame]>) {
        let mut senders = self.senders.lock().unwrap();
        for (batch, sender) in frames.chunks(32).zip((0..senders.len()).cycle()) {
            self.wait(UNDERWAY);
            let sender = &mut senders[sender];
            batch.iter().for_each(|frame| sender.send(&frame.bytes).unwrap());
            sender.finish().unwrap();
            self.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
    }

    fn feed(&self, frames: Arc<[OwnedFrame]>) {
        self.send(frames);
        self.wait(0);
    }
}
