//! The XDP backend: frames run through its programs in the kernel, without an interface.

use crate::backend::{Backend, Feeder, Replay, Rig, Setup};
use flowgauge_core::Link;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::xdp::{Injector, Options, Xdp};
use flowgauge_dataplane::{Dataplane, Direction, Error};
use std::sync::Arc;

pub struct Injected(pub Direction);

/// The kernel runs no program on less than an Ethernet header, nor on more than a page holds.
const LENGTHS: std::ops::RangeInclusive<usize> = 14..=3000;

/// A test run of an egress program takes no packet that is empty or cut inside an IP header: none such is ever sent.
fn shortest_skb(frame: &[u8]) -> usize {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => 14 + 20,
        Some([0x86, 0xdd]) => 14 + 40,
        _ => 15,
    }
}

impl Backend for Injected {
    fn open(&self, setup: &Setup) -> Option<Rig> {
        // Whether the kernel lets us is known only when it is asked.
        match Xdp::detached(self.0, Options::new(Setup::default().settings)).install(&Setup::default().tables()) {
            Ok(_) => {}
            Err(Error::Kernel { problem, .. }) if problem.contains("it takes root") => {
                println!("skipped: needs the right to load XDP programs: {problem}");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let options = Options { slot_ns: setup.slot_ns, ..Options::new(setup.settings) };
        let dataplane = Xdp::detached(self.0, options);
        let feeder = Arc::new(dataplane.injector());
        Some(Rig { dataplane: Box::new(dataplane), feeder })
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        let shortest = |frame: &OwnedFrame| if self.0 == Direction::Egress { shortest_skb(&frame.bytes) } else { *LENGTHS.start() };
        let whole = |frame: &OwnedFrame| {
            let length = frame.bytes.len();
            frame.link == Link::Ethernet && LENGTHS.contains(&length) && length >= shortest(frame)
        };
        let arrived = |frame: OwnedFrame| OwnedFrame { wire_length: frame.bytes.len() as u32, ..frame };
        frames.into_iter().filter(whole).map(arrived).collect()
    }

    // Each waits for a grace period of the kernel, some 20 ms.
    fn rotations(&self) -> u64 {
        1000
    }

    fn replay(&self, _: &Setup, _: &[OwnedFrame]) -> Option<Replay> {
        println!("skipped: needs trace time, which a kernel has not");
        None
    }
}

impl Feeder for Injector {
    fn send(&self, frames: Arc<[OwnedFrame]>) {
        frames.iter().for_each(|frame| self.inject(&frame.bytes).unwrap());
    }

    fn feed(&self, frames: Arc<[OwnedFrame]>) {
        self.send(frames);
    }
}
