//! The poll-mode backend: frames arrive through its injector, replays from a capture.

use crate::conformance::backend::{Backend, Feeder, Replay, Rig, Setup};
use flowgauge_core::Link;
use flowgauge_dataplane::Poll;
use flowgauge_dataplane::capture::build::CapturePacket;
use flowgauge_dataplane::poll::port::{Injector, OwnedFrame, Port, Ports, frames, pcap_reader};
use flowgauge_dataplane::poll::{Advance, Options, Pace};
use flowgauge_testing::frames::pcap;
use std::io::Cursor;
use std::sync::Arc;

pub struct Workers(pub usize);

impl Backend for Workers {
    fn open(&self, setup: &Setup) -> Option<Rig> {
        let (injector, ports) = frames(self.0);
        Some(rig(setup, ports, injector))
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        frames
    }

    // Any worker may take a batch; a single worker takes all of them in order.
    fn in_order(&self) -> bool {
        self.0 == 1
    }

    fn replay(&self, setup: &Setup, frames: &[OwnedFrame]) -> Option<Replay> {
        let mut links = frames.iter().map(|frame| frame.link);
        assert!(links.all(|link| link == Link::Ethernet), "the capture made here is of Ethernet");
        let packet = |frame: &OwnedFrame| CapturePacket {
            wire: frame.wire_length,
            ..CapturePacket::new(frame.timestamp, frame.bytes.clone())
        };
        let packets: Vec<CapturePacket> = frames.iter().map(packet).collect();
        let file = Cursor::new(pcap(&packets));
        let ports = pcap_reader(file, "replay", self.0, Pace::Trace).unwrap();
        let poll = Poll::new(ports, options(setup));
        let gate = poll.gate();
        let advance = move |limit| {
            let stands = gate.advance(limit);
            let is_reached = matches!(stands, Advance::Reached { .. } | Advance::Ended { .. });
            assert!(is_reached, "{stands:?}");
        };
        Some(Replay { dataplane: Box::new(poll), advance: Box::new(advance) })
    }
}

/// Returns workers of these ports, and what feeds them.
pub fn rig<P: Port>(setup: &Setup, ports: Ports<P>, feeder: impl Feeder + 'static) -> Rig {
    let dataplane = Box::new(Poll::new(ports, options(setup)));
    Rig { dataplane, feeder: Arc::new(feeder) }
}

fn options(setup: &Setup) -> Options {
    let usual = Options::default();
    let slot_ns = if setup.slot_ns == 0 { usual.slot_ns } else { setup.slot_ns };
    Options { settings: setup.settings, truth: setup.truth, slot_ns, ..usual }
}

impl Feeder for Injector {
    fn send(&self, frames: Arc<[OwnedFrame]>) {
        Injector::send(self, frames);
    }

    // Workers take batches in order and answer between two batches: once the last one is counted,
    // none can be missing.
    fn feed(&self, frames: Arc<[OwnedFrame]>) {
        Injector::feed(self, frames);
    }
}
