//! The Tofino backend, over gRPC, on a switch of two pipes in memory.

use crate::backend::{Backend, Feeder, Replay, Rig, Setup};
use crate::switch::Switch;
use flowgauge_bfruntime::server::Running;
use flowgauge_core::Link;
use flowgauge_core::cardinality::Mode;
use flowgauge_dataplane::Tofino;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::tofino::Options;
use std::sync::Arc;
use std::time::Duration;

pub struct InMemory;

struct Wire {
    switch: Switch,
    _running: Running,
}

impl Backend for InMemory {
    fn open(&self, setup: &Setup) -> Option<Rig> {
        if setup.settings.cardinality.mode == Mode::Staggered {
            println!("skipped: needs staggered registers, which tofino has not");
            return None;
        }
        let switch = Switch::new(setup.settings, 2);
        let running = switch.serve();
        let mut options = Options::new(running.address().to_string());
        // Frames are counted one by one, so that none is in flight when the bank changes.
        options.transit = Duration::ZERO;
        // No time limits on a busy machine.
        options.deadline = Duration::from_secs(600);
        let dataplane = Tofino::connect(options, setup.settings).unwrap();
        Some(Rig { dataplane: Box::new(dataplane), feeder: Arc::new(Wire { switch, _running: running }) })
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        // Only captures hold less of a frame than there was.
        let whole = |frame: &OwnedFrame| frame.link == Link::Ethernet && frame.wire_length as usize == frame.bytes.len();
        frames.into_iter().filter(whole).collect()
    }

    // Each is a hundred requests' worth of registers over gRPC.
    fn rotations(&self) -> u64 {
        50
    }

    fn replay(&self, _: &Setup, _: &[OwnedFrame]) -> Option<Replay> {
        println!("skipped: needs trace time, which a switch has not");
        None
    }
}

impl Feeder for Wire {
    fn send(&self, frames: Arc<[OwnedFrame]>) {
        self.switch.count(&frames);
    }

    fn feed(&self, frames: Arc<[OwnedFrame]>) {
        self.send(frames);
    }
}
