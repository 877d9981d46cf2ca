//! Counters and registers, bit by bit, for frames of every kind.

use crate::conformance::backend::{
    Backend, Breadth, Setup, assert_same, not_for_this_backend, start,
};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{HashMode, KeyKind, Precision};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::extent;
use flowgauge_testing::frames::{
    self, captured, cut_everywhere, from_source, kinds, other_links, random,
};
use std::thread;

/// Counts each frame in a window of its own, so that no frame can be masked by another of the same
/// flow.
fn check_each(backend: &dyn Backend, setup: &Setup, frames: &[OwnedFrame]) {
    let check = |frames: &[OwnedFrame]| {
        let Some(mut rig) = start(backend, setup) else { return };
        let (model, key) = (setup.model(), setup.settings.cardinality.key.name());
        for frame in frames {
            rig.feed([frame.clone()]);
            assert_same(&rig.rotate(), &model.expect([frame]), &format!("{key}, {frame:02x?}"));
        }
    };
    thread::scope(|scope| {
        frames
            .chunks(frames.len().div_ceil(backend.at_a_time()).max(1))
            .for_each(|part| _ = scope.spawn(move || check(part)));
    });
}

/// Feeds frames and compares; on a difference, feeds them one by one to name the first that
/// differs.
fn check(backend: &dyn Backend, setup: &Setup, frames: &[OwnedFrame]) {
    let Some(mut rig) = start(backend, setup) else { return };
    let cardinality = setup.settings.cardinality;
    let what = format!(
        "{}, {}, {} registers",
        cardinality.key.name(),
        setup.settings.hash.name(),
        cardinality.precision.registers()
    );
    let model = setup.model();
    let expected = model.expect(frames);
    rig.feed(frames);
    let window = rig.rotate();
    if window.bank.counters == expected.counters
        && window.bank.cardinality.levels(setup.precision()) == expected.levels
    {
        return;
    }
    check_each(backend, setup, frames);
    assert_same(&window, &expected, &what);
}

pub fn every_key_hash_and_precision(backend: &dyn Backend) {
    const PRECISIONS: [u8; 4] = [4, 8, 11, 16];
    let frames = backend.possible([random(1, 3000), kinds()].concat());
    for (row, key) in KeyKind::ALL.into_iter().enumerate() {
        for (column, hash) in HashMode::ALL.into_iter().enumerate() {
            // Two precisions per key and hash are enough for all four to meet every key and every
            // hash; one per key for each value to be tried.
            let is_usual = extent(true, false);
            let meets = |number: usize| match backend.breadth() {
                Breadth::Combinations => true,
                Breadth::Few if is_usual => {
                    number == row % PRECISIONS.len() && column == row % HashMode::ALL.len()
                }
                Breadth::Few | Breadth::Values => (row + column + number).is_multiple_of(2),
            };
            for p in PRECISIONS
                .into_iter()
                .enumerate()
                .filter(|(number, _)| meets(*number))
                .map(|(_, p)| p)
            {
                let setup = Setup::with(|cardinality| {
                    cardinality.key = key;
                    cardinality.precision = Precision::new(p).unwrap();
                })
                .with_hash(hash);
                check(backend, &setup, &frames);
            }
        }
    }
}

pub fn every_beginning_of_every_kind(backend: &dyn Backend) {
    // Where only few are tried, each is a call of the kernel or of a driver.
    let step = if backend.breadth() == Breadth::Few { extent(5, 1) } else { 1 };
    let cut = cut_everywhere(&kinds()).into_iter().step_by(step).collect();
    let frames = backend.possible([kinds(), cut].concat());
    check_each(backend, &Setup::with(|cardinality| cardinality.key = KeyKind::FiveTuple), &frames);
}

pub fn every_link_layer(backend: &dyn Backend) {
    let frames = backend.possible([other_links(), cut_everywhere(&other_links())].concat());
    if frames.is_empty() {
        not_for_this_backend("captures, which alone have other link layers than Ethernet");
        return;
    }
    check_each(backend, &Setup::with(|cardinality| cardinality.key = KeyKind::FiveTuple), &frames);
}

/// A capture may contain less of a frame than was on the wire.
pub fn length_on_the_wire(backend: &dyn Backend) {
    let cut = [60, 61, 1514, 9018, 65_549]
        .map(|wire_length| OwnedFrame { wire_length, ..from_source([10, 0, 0, 1]) });
    check(backend, &Setup::default(), &backend.possible(cut.to_vec()));
}

pub fn cardinality_off(backend: &dyn Backend) {
    let setup = Setup::with(|cardinality| cardinality.mode = Mode::Off);
    let Some(mut rig) = start(backend, &setup) else { return };
    let frames = backend.possible(random(2, 500));
    rig.feed(&frames[..]);
    let mut expected = setup.model().expect(&frames);
    expected.levels.fill(0);
    assert_same(&rig.rotate(), &expected, "counters without registers");
}

/// Real traffic, if available: `TEST_CAPTURES=DIR` names a directory of captures.
pub fn captures_at_hand(backend: &dyn Backend) {
    let Some(files) = frames::captures_at_hand() else { return };
    let mut captures = 0;
    for file in &files {
        let frames = backend.possible(captured(file));
        captures += usize::from(!frames.is_empty());
        for key in KeyKind::ALL {
            check(backend, &Setup::with(|cardinality| cardinality.key = key), &frames);
        }
    }
    println!("{captures} captures");
    assert!(captures > 0, "no captures in {files:?}");
}
