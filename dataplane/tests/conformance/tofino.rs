//! The Tofino backend, over gRPC on loopback, with a model of a switch of two pipes that executes
//! `p4/flowgauge.p4`.

use crate::conformance::backend::{
    Backend, Breadth, Feeder, Replay, Rig, Setup, not_for_this_backend,
};
use crate::conformance::cases::filtering::rule;
use flowgauge_bfruntime::proto::bf_runtime_server::BfRuntimeServer;
use flowgauge_bfruntime::server::{RunningServer, Server, Target};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::filter::fields::{ADDRESSES, HAS_PORTS, PROTOCOL};
use flowgauge_core::packet::Packet;
use flowgauge_core::{Filter, Link, Precision, Zeroed, parse};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::tofino::{definitions, nearest_slot, unmatchable};
use flowgauge_dataplane::{Dataplane, Event, Tofino};
use flowgauge_testing::extent;
use flowgauge_testing::faults::{Faulty, Proxy, Tampering, Writes};
use flowgauge_testing::frames::{
    from_source, kinds, opened_by_a_switch, random, within_reach_of_a_switch,
};
use flowgauge_testing::model::{self, ServedSwitch};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub struct OnModel;

struct Wire {
    served: ServedSwitch,
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
    definitions.extend(setup.filters.then_some(("FLOWGAUGE_MATCH", 1)));
    definitions
        .extend((setup.slot_ns != 0).then(|| ("FLOWGAUGE_SLOT_BITS", setup.slot_ns.ilog2())));
    let served = ServedSwitch::new(definitions);
    let mut options = served.options();
    if setup.slot_ns != 0 {
        options.slot_ns = setup.slot_ns;
    }
    Some((Tofino::connect(options, setup.settings).unwrap(), Wire { served }))
}

impl Backend for OnModel {
    fn open(&self, setup: &Setup) -> Option<Rig> {
        let (dataplane, feeder) = connected(setup)?;
        Some(Rig { dataplane: Box::new(dataplane), feeder: Arc::new(feeder) })
    }

    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame> {
        // Only captures contain less of a frame than was on the wire.
        let possible = |frame: &OwnedFrame| {
            frame.link == Link::Ethernet
                && frame.wire_length as usize == frame.bytes.len()
                && within_reach_of_a_switch(&frame.bytes)
        };
        frames.into_iter().filter(possible).collect()
    }

    fn refuses(&self, filter: &Filter) -> bool {
        unmatchable(filter).is_some()
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
        extent(30, 100)
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
            let mut entrance = wire.served.switch.enter();
            while let Some(frame) = frames.get(*next).filter(|frame| frame.timestamp < limit) {
                entrance.set_clock(frame.timestamp);
                entrance.arrive(wire.served.switch.port(*next), &frame.bytes).unwrap();
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
        model::arrive(&self.served.switch, &frames);
    }
}

/// A packet behind extension headers that the parser does not follow is left out, and reported, if
/// its verdict depends on what is behind them.
#[test]
fn undecided_packets_are_reported() {
    let backend = OnModel;
    let is_hidden = |frame: &OwnedFrame| {
        let packet = parse::counted(frame.bytes.as_slice(), frame.link, &Default::default());
        opened_by_a_switch(&frame.bytes)
            && !within_reach_of_a_switch(&frame.bytes)
            && matches!(packet, Ok(Packet::V6(_)))
    };
    let frames = [random(1, 4000), kinds()].concat();
    let hidden: Vec<OwnedFrame> = frames.into_iter().filter(is_hidden).collect();
    let top = 1 << 31;
    let is_high = |frame: &&OwnedFrame| {
        let packet = parse::counted(frame.bytes.as_slice(), frame.link, &Default::default());
        matches!(packet, Ok(Packet::V6(ip)) if ip.src()[0][0] & 0x80 != 0)
    };
    let high = hidden.iter().filter(is_high).count() as u64;
    let low = hidden.len() as u64 - high;
    assert!(high > 100 && low > 100, "{high} {low}");
    let [address, no_address] =
        [true, false].map(|verdict| rule(&[(ADDRESSES, top, top)], verdict));
    let [ports, no_ports] =
        [true, false].map(|verdict| rule(&[(PROTOCOL, HAS_PORTS, HAS_PORTS)], verdict));
    for (rules, otherwise, counted, undecided) in [
        (vec![address], false, high, 0),
        (vec![no_address], true, low, 0),
        (vec![address, ports], false, high, low),
        (vec![no_address, no_ports], true, 0, low),
        (vec![ports, address], false, 0, high + low),
        (vec![], true, high + low, 0),
    ] {
        let mut filter = Filter::boxed();
        filter.ipv6.write(&rules, otherwise).unwrap();
        let setup = Setup { filters: true, ..Setup::default() };
        let mut rig = backend.open(&setup).unwrap();
        rig.dataplane.install(&setup.tables().with_filter(Some(Arc::from(filter)))).unwrap();
        rig.feed(hidden.clone());
        let counters = rig.rotate().bank.counters;
        let what = format!("{rules:?}, {otherwise}: {counters:?}");
        assert_eq!((counters.ipv6, counters.packets()), (counted, counted), "{what}");
        assert_eq!(counters.unmatched, high + low - counted, "{what}");
        let events = rig.dataplane.events().unwrap();
        let warning = match &events[..] {
            [] => None,
            [Event::Warning(text)] => text.split_once(": ").map(|(_, text)| text),
            others => panic!("{others:?}"),
        };
        let number = warning.map_or(0, |text| text.split(' ').next().unwrap().parse().unwrap());
        assert_eq!(number, undecided, "{what}, {warning:?}");
    }
}

/// Connections break in the middle of changes of the filter, after some of its entries have been
/// written. No packet is counted by a mixture of two filters, and none is lost.
#[test]
fn a_change_of_a_filter_that_breaks_off_is_repeated() {
    let setup = Setup { filters: true, ..Setup::default() };
    let mut compiled_for = definitions(&setup.settings).unwrap();
    compiled_for.push(("FLOWGAUGE_MATCH", 1));
    let switch = model::switch(compiled_for);
    let (tampering, proxy) = (Tampering::default(), Proxy::start());
    let server = Server::new(Arc::clone(&switch) as Arc<dyn Target>).unwrap();
    let service = BfRuntimeServer::new(Faulty::new(server, &tampering));
    let running = RunningServer::start_service(([127, 0, 0, 1], 0).into(), None, service).unwrap();
    proxy.lead_to(Some(running.address()));
    let mut options = model::options(proxy.address);
    options.back_off = Duration::from_millis(1);
    // Each entry is a write of its own, so that a change can break off between two.
    options.batch = 1;
    let mut dataplane = Tofino::connect(options, setup.settings).unwrap();
    dataplane.install(&setup.tables()).unwrap();
    // Prefixes of sources, each in several rules.
    let filter = |number: u32| {
        let rules =
            (0..6).map(|part| rule(&[(ADDRESSES, 0xf800_0000, number << 30 | part << 27)], true));
        let mut filter = Filter::boxed();
        filter.ipv4.write(&rules.collect::<Vec<_>>(), false).unwrap();
        Arc::<Filter>::from(filter)
    };
    let filters: Vec<Arc<Filter>> = (0..4).map(filter).collect();
    let frames: Vec<OwnedFrame> = (0..64).map(|top| from_source([top << 2, 0, 0, 1])).collect();
    let admitted = |filter: Option<&Arc<Filter>>| {
        let is_match = |frame: &&OwnedFrame| {
            let (bytes, length) = (frame.bytes.as_slice(), frame.wire_length);
            filter.is_none_or(|it| it.matches(Default::default(), frame.link, bytes, length))
        };
        frames.iter().filter(is_match).count() as u64
    };
    let (mut broken, mut current) = (0, None);
    for round in 0..24_u32 {
        let next = (round % 5 < 4).then(|| &filters[(round % 4) as usize]);
        dataplane.set_filter(next).unwrap();
        let (scissors, mut writes) = (proxy.handle(), 0);
        tampering.writes(move |_| {
            writes += 1;
            let is_last = writes == round % 11 + 1;
            if is_last { Writes::AnswerLost(scissors.clone()) } else { Writes::CarriedOut }
        });
        model::arrive(&switch, &frames);
        let mut fed = 1;
        let window = loop {
            match dataplane.rotate() {
                Ok(window) => break window,
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    broken += 1;
                }
            }
            // Until a rotation has closed the window, packets are in one window or the other.
            if round % 2 == 0 && fed == 1 {
                model::arrive(&switch, &frames);
                fed += 1;
            }
        };
        tampering.stop();
        assert!(window.complete, "round {round}");
        let counters = window.bank.counters;
        let of_current = admitted(current);
        assert!([64, 128].contains(&counters.seen()), "round {round}: {counters:?}");
        assert_eq!(counters.packets(), counters.seen() / 64 * of_current, "round {round}");
        current = next;
        // Packets after the switch of banks.
        let late = fed - counters.seen() / 64;
        let rest = dataplane.rotate().unwrap().bank.counters;
        assert_eq!((rest.seen(), rest.packets()), (late * 64, late * admitted(current)), "{round}");
    }
    assert!(broken > 10, "{broken}");
}
