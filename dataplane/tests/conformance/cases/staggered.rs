//! Staggered registers: each contains what arrived since its round began.

use crate::common::staggered_levels;
use crate::conformance::backend::{Backend, Setup, assert_levels, not_for_this_backend, start};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{HashMode, Precision};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::definitions::{Effect, Expected, Model};
use flowgauge_testing::frames::{from_source, random, unique};
use std::collections::HashSet;

/// With a slot longer than the test, staggered registers are plain ones that rotations do not
/// clear.
pub fn within_one_slot(backend: &dyn Backend) {
    let mut setup = Setup::with(|cardinality| cardinality.mode = Mode::Staggered);
    setup.settings.cardinality.precision = Precision::new(6).unwrap();
    setup.slot_ns = backend.longest_slot(setup.precision());
    let Some(mut rig) = start(backend, &setup) else { return };
    let model = setup.model();
    let mut fed = Vec::new();
    for round in 0..4 {
        let frames = backend.possible(random(300 + round, 200));
        rig.feed(&frames[..]);
        fed.extend(frames.iter().cloned());
        let sample = rig.sample();
        let levels = staggered_levels(&sample, setup.precision(), 0);
        assert_levels(&levels, &model.expect(&fed).levels, "staggered registers");
        let windowed = sample.bank.cardinality.levels(setup.precision());
        assert_levels(windowed, &vec![0; levels.len()], "windowed registers");
        assert_eq!(rig.rotate().bank.counters, model.expect(&frames).counters);
    }
}

/// A power of two, as a switch requires.
const SLOT_NS: u64 = 1024;

/// Returns the expected value of register `j` in `slot`: the highest level since slot `slot - (slot
/// - j) mod m`.
fn last_round(model: &Model, frames: &[OwnedFrame], slot: u64) -> Vec<u8> {
    let m = model.precision.registers() as u64;
    let mut levels = Expected::nothing(model.precision).levels;
    for frame in frames {
        let Effect { register: Some((index, level)), .. } = model.effect(frame) else { continue };
        let age = (slot + m - index as u64 % m) % m;
        if slot - frame.timestamp / SLOT_NS <= age {
            levels[index] = levels[index].max(level);
        }
    }
    levels
}

pub fn last_round_in_trace_time(backend: &dyn Backend) {
    for (p, hash) in [(4, HashMode::Crc32), (6, HashMode::Tabulated)] {
        let mut setup = Setup {
            slot_ns: SLOT_NS,
            truth: true,
            ..Setup::with(|cardinality| cardinality.mode = Mode::Staggered)
        };
        setup.settings.cardinality.precision = Precision::new(p).unwrap();
        setup.settings.hash = hash;
        let m = setup.precision().registers() as u64;
        let packets = 1500;
        // Starts in the middle of a round; some flows return, some slots stay empty.
        let at = |number: u64| {
            1_000_000_000_000 + number * number % 7 + number * SLOT_NS * m * 6 / packets
        };
        let timed = |number: u64| {
            let frame = if number.is_multiple_of(3) {
                from_source([10, 0, 0, (number / 3 % 50) as u8])
            } else {
                unique(number)
            };
            OwnedFrame { timestamp: at(number), ..frame }
        };
        let mut frames: Vec<OwnedFrame> = (0..packets).map(timed).collect();
        frames.sort_by_key(|frame| frame.timestamp);
        let Some(mut replay) = backend.replay(&setup, &frames) else { return };
        if !replay.dataplane.capabilities().staggered {
            not_for_this_backend("staggered registers");
            return;
        }
        replay.dataplane.install(&setup.tables()).unwrap();
        let model = setup.model();
        let (mut limit, mut windows) = (at(0) - SLOT_NS, 0);
        let step = SLOT_NS * m * 6 / 90 + 1;
        // Continue after the last packet, until every register has restarted.
        while limit < at(packets) + 2 * m * SLOT_NS {
            limit += step;
            (replay.advance)(limit);
            let before = &frames[..frames.partition_point(|frame| frame.timestamp < limit)];
            let slot = limit / SLOT_NS;
            let sample = replay.dataplane.sample().unwrap();
            let levels = staggered_levels(&sample, setup.precision(), slot as u32);
            assert_levels(&levels, &last_round(&model, before, slot), "staggered registers");
            if let Some(truth) = sample.truth {
                // Time stops after the last packet.
                let now = limit.min(frames[frames.len() - 1].timestamp + 1);
                let covered =
                    before.iter().filter(|frame| frame.timestamp >= now - SLOT_NS * m / 2);
                let flows: HashSet<&[u8]> = covered.map(|frame| &frame.bytes[26..30]).collect();
                let what = "flows in the time that registers cover";
                assert_eq!(truth.window, Some(flows.len() as u64), "{what}");
            }
            if limit % 5 == 0 {
                windows += replay.dataplane.rotate().unwrap().packets_after;
            }
        }
        assert_eq!(windows + replay.dataplane.rotate().unwrap().packets_after, packets);
    }
}
