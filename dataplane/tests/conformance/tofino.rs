//! The Tofino backend, over gRPC on loopback, with a model of a switch of two pipes that executes
//! `p4/flowgauge.p4`.

use crate::backend::{Backend, Breadth, Feeder, Replay, Rig, Setup, not_for_this_backend};
use crate::frames::within_reach_of_a_switch;
use flowgauge_bfruntime::server::{RunningServer, Target};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{Link, Precision};
use flowgauge_dataplane::Tofino;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::tofino::{Options, definitions, nearest_slot};
use flowgauge_p4_model::{Model, Switch};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub struct OnModel;

struct Wire {
    switch: Arc<Switch>,
    _running: RunningServer,
}

/// Returns the program compiled with these definitions.
fn compiled(definitions: Vec<(&'static str, u32)>) -> Model {
    let options = flowgauge_p4_model::Options::default();
    Model::flowgauge(
        &definitions
            .into_iter()
            .fold(options, |options, (name, value)| options.define(name, value)),
    )
    .unwrap()
}

/// Returns a dataplane that counts on a switch with this program, and the wire to it.
fn connected(setup: &Setup) -> Option<(Tofino, Wire)> {
    let mut definitions = match definitions(&setup.settings) {
        Ok(definitions) => definitions,
        Err(why) => {
            not_for_this_backend(format_args!("a program for a switch that does this: {why}"));
            return None;
        }
    };
    definitions
        .extend((setup.slot_ns != 0).then(|| ("FLOWGAUGE_SLOT_BITS", setup.slot_ns.ilog2())));
    let switch = Arc::new(Switch::new(compiled(definitions), "flowgauge"));
    let running = RunningServer::start(
        ([127, 0, 0, 1], 0).into(),
        None,
        Arc::clone(&switch) as Arc<dyn Target>,
    )
    .unwrap();
    let mut options = Options::new(running.address().to_string());
    // Frames are counted one by one, so none is in flight when the bank changes.
    options.transit = Duration::ZERO;
    // No timeouts on a busy machine.
    options.deadline = Duration::from_secs(600);
    if setup.slot_ns != 0 {
        options.slot_ns = setup.slot_ns;
    }
    Some((Tofino::connect(options, setup.settings).unwrap(), Wire { switch, _running: running }))
}

impl Backend for OnModel {
    fn open(&self, setup: &Setup) -> Option<Rig> {
        let (dataplane, feeder) = connected(setup)?;
        Some(Rig { dataplane: Box::new(dataplane), feeder: Arc::new(feeder) })
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        // Only captures contain less of a frame than was on the wire.
        let whole = |frame: &OwnedFrame| {
            frame.link == Link::Ethernet && frame.wire_length as usize == frame.bytes.len()
        };
        frames
            .into_iter()
            .filter(|frame| whole(frame) && within_reach_of_a_switch(&frame.bytes))
            .collect()
    }

    /// Pipes have their own sketches.
    fn sharing(&self, frames: &[OwnedFrame]) -> Vec<Vec<OwnedFrame>> {
        self.cores(frames)
    }

    fn cores(&self, frames: &[OwnedFrame]) -> Vec<Vec<OwnedFrame>> {
        (0..2).map(|pipe| frames.iter().skip(pipe).step_by(2).cloned().collect()).collect()
    }

    // Each rotation is a hundred requests of registers over gRPC.
    fn rotations(&self) -> u64 {
        100
    }

    // Every combination is a program of its own.
    fn breadth(&self) -> Breadth {
        Breadth::Values
    }

    fn longest_slot(&self, precision: Precision) -> u64 {
        nearest_slot(precision, u64::MAX)
    }

    /// A switch has the time of its own clock, which defines slots of registers; it has no other
    /// use here.
    fn replay(&self, setup: &Setup, frames: &[OwnedFrame]) -> Option<Replay> {
        if setup.settings.cardinality.mode != Mode::Staggered {
            not_for_this_backend("trace time, which a switch has not");
            return None;
        }
        let (dataplane, wire) = connected(setup)?;
        let (frames, next) = (frames.to_vec(), Mutex::new(0));
        let advance = move |limit| {
            // Captured as a whole, so that the server keeps running.
            let wire = &wire;
            let mut next = next.lock().unwrap();
            let mut entrance = wire.switch.enter();
            while let Some(frame) = frames.get(*next).filter(|frame| frame.timestamp < limit) {
                entrance.set_clock(frame.timestamp);
                entrance.arrive(wire.switch.port(*next), &frame.bytes).unwrap();
                *next += 1;
            }
        };
        Some(Replay { dataplane: Box::new(dataplane), advance: Box::new(advance) })
    }
}

impl Feeder for Wire {
    fn send(&self, frames: Arc<[OwnedFrame]>) {
        self.feed(frames);
        // Leaves the processor to the control plane: the test is about rotations between packets.
        thread::sleep(Duration::from_micros(500));
    }

    fn feed(&self, frames: Arc<[OwnedFrame]>) {
        let mut entrance = self.switch.enter();
        // At the pipes in turn.
        for (pipe, frame) in frames.iter().enumerate() {
            entrance.arrive(self.switch.port(pipe), &frame.bytes).unwrap();
        }
    }
}
