//! The XDP backend: frames run through its programs in the kernel, without an interface.

use crate::conformance::backend::{Backend, Breadth, Feeder, Rig, Setup, arriving};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::xdp::{Mode, Options, ProgramInjector, Xdp};
use flowgauge_dataplane::{Dataplane, Direction, Error};
use flowgauge_testing::extent;
use flowgauge_testing::skip;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::{Arc, OnceLock};

#[derive(PartialEq, Eq)]
pub struct Injected(pub Direction, pub Mode);

/// Lengths of frames for which the kernel runs a program: at least an Ethernet header, at most what
/// fits into a page.
const LENGTHS: std::ops::RangeInclusive<usize> = 14..=3000;

/// Returns the minimum length for a test run of a TCX program, which rejects packets that are empty
/// or truncated inside an IP header: they never reach the kernel's hooks.
fn shortest_skb(frame: &[u8]) -> usize {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => 14 + 20,
        Some([0x86, 0xdd]) => 14 + 40,
        _ => 15,
    }
}

/// Returns why the kernel refuses programs; known only after an attempt.
fn refusal() -> Option<&'static str> {
    static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
    let ask = || match Xdp::detached(Direction::Ingress, Options::new(Setup::default().settings))
        .install(&Setup::default().tables())
    {
        Ok(_) => None,
        Err(Error::Kernel { problem, .. }) if problem.contains("it takes root") => Some(problem),
        Err(error) => panic!("{error}"),
    };
    REFUSAL.get_or_init(ask).as_deref()
}

impl Injected {
    /// Returns whether this is TCX on ingress, which runs the same program as on egress.
    fn is_twin(&self) -> bool {
        *self == Injected(Direction::Ingress, Mode::Tcx)
    }

    fn is_tcx(&self) -> bool {
        self.0 == Direction::Egress || self.1 == Mode::Tcx
    }

    fn options(&self, setup: &Setup) -> Options {
        Options { mode: Some(self.1), slot_ns: setup.slot_ns, ..Options::new(setup.settings) }
    }
}

impl Backend for Injected {
    fn open(&self, setup: &Setup) -> Option<Rig> {
        if let Some(problem) = refusal() {
            skip(format_args!("the right to load XDP programs: {problem}"));
            return None;
        }
        let dataplane = Xdp::detached(self.0, self.options(setup));
        let feeder = Arc::new(dataplane.injector());
        Some(Rig { dataplane: Box::new(dataplane), feeder })
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        let shortest = |bytes: &[u8]| if self.is_tcx() { shortest_skb(bytes) } else { 0 };
        arriving(frames, |bytes| LENGTHS.contains(&bytes.len()) && bytes.len() >= shortest(bytes))
    }

    fn cores(&self, frames: &[OwnedFrame]) -> Vec<Vec<OwnedFrame>> {
        parts(frames, &sched_getaffinity(None).unwrap()).map(<[OwnedFrame]>::to_vec).collect()
    }

    // Each waits for a grace period of the kernel, some 20 ms.
    fn rotations(&self) -> u64 {
        if self.is_twin() { extent(60, 200) } else { extent(300, 1000) }
    }

    fn at_a_time(&self) -> usize {
        4
    }

    // Every combination is a program that the kernel verifies; it counts with the same code as a
    // worker. Programs of TCX are built from the same functions as those of XDP.
    fn breadth(&self) -> Breadth {
        if self.is_twin() {
            Breadth::Few
        } else if self.is_tcx() {
            extent(Breadth::Few, Breadth::Values)
        } else {
            Breadth::Values
        }
    }
}

impl Feeder for ProgramInjector {
    fn send(&self, frames: Arc<[OwnedFrame]>) {
        frames.iter().for_each(|frame| self.inject(&frame.bytes).unwrap());
    }

    /// Feeds a part of the frames on each CPU, so that counts per core are distinguished from
    /// shared ones.
    fn feed(&self, frames: Arc<[OwnedFrame]>) {
        let usable = sched_getaffinity(None).unwrap();
        for (cpu, part) in cpus(&usable).into_iter().zip(parts(&frames, &usable)) {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).unwrap();
            self.send(part.into());
        }
        sched_setaffinity(None, &usable).unwrap();
    }
}

fn cpus(usable: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| usable.is_set(cpu)).take(4).collect()
}

/// Returns a part for each CPU.
fn parts<'a>(frames: &'a [OwnedFrame], usable: &CpuSet) -> std::slice::Chunks<'a, OwnedFrame> {
    frames.chunks(frames.len().div_ceil(cpus(usable).len()).max(1))
}
