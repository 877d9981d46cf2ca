//! The XDP backend: frames run through the program in the kernel, without an interface.

use crate::backend::{Backend, Feeder, Replay, Rig, Setup};
use flowgauge_core::Link;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::xdp::{Injector, Xdp};
use flowgauge_dataplane::{Dataplane, Error};
use std::sync::Arc;

pub struct Injected;

/// The kernel runs no program on less than an Ethernet header, nor on more than a page holds.
const LENGTHS: std::ops::RangeInclusive<usize> = 14..=3000;

impl Backend for Injected {
    fn open(&self, setup: &Setup) -> Option<Rig> {
        // Whether the kernel lets us is known only when it is asked.
        match Xdp::detached(Setup::default().settings).install(&Setup::default().tables()) {
            Ok(()) => {}
            Err(Error::Kernel { problem, .. }) => {
                println!("skipped: needs a kernel and the right to load XDP programs: {problem}");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let dataplane = Xdp::detached(setup.settings);
        let feeder = Arc::new(dataplane.injector());
        Some(Rig { dataplane: Box::new(dataplane), feeder })
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        let whole = |frame: &OwnedFrame| frame.link == Link::Ethernet && LENGTHS.contains(&frame.bytes.len());
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
