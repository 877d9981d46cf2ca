//! Programs that several counting points share: each counts in memory of its own, as with programs
//! of its own.

use crate::common::devices::on_veth_with;
use crate::common::kernel::{MODES, counted, installed, leaving, pinned, started, warns};
use aya::programs::loaded_programs;
use flowgauge_core::delay::{DelayKind, Kinds};
use flowgauge_core::{Settings, WindowTotals, sketch};
use flowgauge_dataplane::xdp::{DIRECTORY, Mode, Options, ProgramSets, Xdp};
use flowgauge_dataplane::{CountingPoint, Dataplane};
use flowgauge_testing::on_veth;
use flowgauge_testing::wait::until;
use flowgauge_traffic::veth::{self, ip};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;

/// Names of a pair of devices and their addresses, the sender first.
struct Pair {
    sender: (String, String),
    receiver: (String, String),
}

impl Pair {
    fn new(number: usize) -> Self {
        let pair = Pair {
            sender: (format!("s{number}"), format!("10.80.{number}.1")),
            receiver: (format!("r{number}"), format!("10.80.{number}.2")),
        };
        pair.create();
        pair
    }

    fn create(&self) {
        let Pair { sender: (sender, from), receiver: (receiver, to) } = self;
        veth::pair((sender, from), (receiver, to)).unwrap();
    }

    /// Sends packets of as many flows.
    fn send(&self, packets: u16) {
        for port in 0..packets {
            let socket = UdpSocket::bind((self.sender.1.as_str(), 20_000 + port)).unwrap();
            socket.send_to(&[0; 18], (self.receiver.1.as_str(), 9)).unwrap();
        }
    }

    fn ingress(&self) -> CountingPoint {
        CountingPoint::ingress(&self.receiver.0)
    }

    fn egress(&self) -> CountingPoint {
        leaving(&self.sender.0)
    }
}

/// Returns settings with memory of each kind: of a CPU, of all CPUs, and beyond windows.
fn everything() -> Settings {
    let mut settings = Settings::default();
    settings.heavy.algorithm = flowgauge_core::heavy::Algorithm::HashPipe;
    settings.delay.kinds = Kinds::NONE.with(DelayKind::Dns).with(DelayKind::TcpHandshake);
    let [entropy, _] = &mut settings.entropy;
    entropy.mode = sketch::Mode::CountSketch;
    settings
}

fn options(mode: Mode, sets: Option<&ProgramSets>) -> Options {
    Options { mode: Some(mode), sets: sets.cloned(), ..Options::new(everything()) }
}

/// Returns a window of this many packets, with every packet counted.
#[track_caller]
fn window(xdp: &mut Xdp, packets: u16) -> Arc<WindowTotals> {
    until(|| counted(&xdp.sample().unwrap()) >= packets.into());
    let snapshot = xdp.rotate().unwrap();
    assert_eq!((counted(&snapshot), snapshot.complete), (packets.into(), true));
    xdp.published(0).unwrap();
    snapshot.bank
}

/// Returns the instructions that the verifier processed for the attached program, if the kernel
/// reports them.
fn verified(xdp: &Xdp) -> Option<u32> {
    let number = xdp.status().programs[0].program.unwrap();
    let attached = loaded_programs().filter_map(Result::ok).find(|program| program.id() == number);
    attached.unwrap().verified_instruction_count()
}

#[test]
fn members_of_a_set_count_apart_and_as_a_lone_interface_does() {
    on_veth_with(MODES, |mode| {
        let pairs: Vec<Pair> = (0..3).map(Pair::new).collect();
        let sets = ProgramSets::default();
        let mut members: Vec<Xdp> = pairs
            .iter()
            .map(|pair| started(vec![pair.ingress()], options(mode, Some(&sets))))
            .collect();
        for (number, pair) in (0..).zip(&pairs) {
            pair.send(100 + number);
        }
        for round in 0..3 {
            for (number, xdp) in (0..).zip(&mut members) {
                let packets = if round == 0 { 100 + number } else { 10 * round + number };
                window(xdp, packets);
                pairs[usize::from(number)].send(10 * (round + 1) + number);
            }
        }
        for xdp in &mut members {
            assert!(!warns(&xdp.events().unwrap(), ""));
        }
        drop(members);
        // The same packets on the same CPU give the same bits.
        let mut cpus = CpuSet::new();
        cpus.set(0).unwrap();
        sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
        let pair = &pairs[0];
        let [alone, shared] = [None, Some(&sets)].map(|sets| {
            let mut xdp = started(vec![pair.ingress()], options(mode, sets));
            pair.send(200);
            (xdp.status().programs[0].form.clone(), window(&mut xdp, 200))
        });
        // One program, or one for each measurement.
        assert_eq!(alone.0, shared.0, "{mode:?}");
        assert!(alone.0.is_some() && alone.1 == shared.1, "{mode:?}");
    });
}

#[test]
fn both_directions_of_a_source_are_members_with_common_state() {
    on_veth(|| {
        let pairs: Vec<Pair> = (0..2).map(Pair::new).collect();
        let sets = ProgramSets::default();
        let mut members: Vec<Xdp> = pairs
            .iter()
            .map(|pair| {
                let places = vec![pair.ingress(), pair.egress()];
                started(places, options(Mode::Native, Some(&sets)))
            })
            .collect();
        for (packets, (pair, xdp)) in [50, 70].into_iter().zip(pairs.iter().zip(&mut members)) {
            pair.send(packets);
            window(xdp, 2 * packets);
            assert_eq!(xdp.status().programs.len(), 2);
        }
    });
}

/// Deletes and creates a pair of devices, until the source counts at it again.
#[track_caller]
fn replace(pair: &Pair, xdp: &mut Xdp) {
    let form = |xdp: &Xdp| {
        let programs = xdp.status().programs.into_iter();
        programs.filter(|program| program.place == pair.ingress()).find_map(|program| program.form)
    };
    let before = form(xdp);
    assert!(before.is_some());
    ip(&format!("link del {}", pair.receiver.0)).unwrap();
    assert!(!xdp.events().unwrap().is_empty());
    pair.create();
    until(|| warns(&xdp.events().unwrap(), "counted again"));
    assert_eq!(form(xdp), before);
    // The window of the gap.
    xdp.rotate().unwrap();
    xdp.published(0).unwrap();
}

#[test]
fn a_member_that_leaves_makes_room_for_another_with_empty_memory() {
    on_veth_with([Mode::Native, Mode::Tcx], |mode| {
        let sets = ProgramSets::default();
        let [stays, leaves, idle] = [0, 1, 2].map(Pair::new);
        let member = |places| started(places, options(mode, Some(&sets)));
        let mut first = member(vec![stays.ingress()]);
        for packets in [30, 20] {
            let mut second = member(vec![leaves.ingress()]);
            leaves.send(packets);
            stays.send(5);
            window(&mut second, packets);
            window(&mut first, 5);
            // Counts of the open window end with the member.
            leaves.send(3);
        }
        // An interface that returns is counted on. Another one keeps the source alive.
        let mut second = member(vec![leaves.ingress(), idle.ingress()]);
        leaves.send(4);
        window(&mut second, 4);
        replace(&leaves, &mut second);
        leaves.send(6);
        window(&mut second, 6);
        stays.send(7);
        window(&mut first, 7);
    });
}

#[test]
fn members_that_a_killed_process_left_are_adopted() {
    on_veth_with([Mode::Native, Mode::Tcx, Mode::Clsact], |mode| {
        let [first, second, idle] = [0, 1, 2].map(Pair::new);
        let places = [vec![first.ingress(), idle.ingress()], vec![second.ingress()]];
        let kept = |adopt, leave, sets: &ProgramSets| Options {
            pins: pinned(adopt, leave),
            ..options(mode, Some(sets))
        };
        let sets = ProgramSets::default();
        let left = places.clone().map(|places| started(places, kept(false, true, &sets)));
        first.send(10);
        second.send(20);
        drop(left);
        second.send(5);
        // Another set: its programs are not those that count.
        let options = kept(true, false, &ProgramSets::default());
        let [mut one, mut other] = places.map(|places| {
            let (xdp, adopted) = installed(places, options.clone());
            assert!(adopted.is_some());
            xdp
        });
        window(&mut one, 10);
        window(&mut other, 25);
        // Programs of its own replace those of the set, which count on for the other.
        replace(&first, &mut one);
        first.send(3);
        second.send(4);
        window(&mut one, 3);
        window(&mut other, 4);
        drop((one, other));
        assert!(!Path::new(DIRECTORY).exists());
    });
}

#[test]
fn forty_members_are_verified_once() {
    const MEMBERS: usize = 40;
    on_veth(|| {
        let pairs: Vec<Pair> = (0..MEMBERS).map(Pair::new).collect();
        let sets = ProgramSets::default();
        let member = |pair: &Pair| started(vec![pair.ingress()], options(Mode::Tcx, Some(&sets)));
        let mut members: Vec<Xdp> = pairs.iter().map(member).collect();
        // The verifier has seen the programs of the set once, and this one for each member.
        assert!(members.iter().filter_map(verified).all(|instructions| instructions < 32));
        pairs.iter().for_each(|pair| pair.send(10));
        members.iter_mut().for_each(|xdp| drop(window(xdp, 10)));
    });
}
