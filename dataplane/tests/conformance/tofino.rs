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
        let options = Options::new(running.address().to_string());
        let dataplane = Tofino::connect(options, setup.settings).unwrap();
        Some(Rig { dataplane: Box::new(dataplane), feeder: Arc::new(Wire { switch, _running: running }) })
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        frames.into_iter().filter(|frame| frame.link == Link::Ethernet).collect()
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
