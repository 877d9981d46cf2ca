//! Sketches, cell by cell: entropies with their sums, frequencies, membership.

use crate::conformance::backend::{Backend, Breadth, SEED, Setup, start};
use crate::conformance::sketches::Sketches;
use flowgauge_core::heavy::{Algorithm, CountUnit};
use flowgauge_core::{Grid, sketch};
use flowgauge_core::{
    HashMode, KeyKind, Settings, SketchKind, cardinality, heavy, membership, parse,
};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::{Capabilities, MeasurementKind, Snapshot};
use flowgauge_testing::frames::{from_source, kinds, random};

/// Returns flows of all sizes: the source of every other frame, of every fourth, and so on, among
/// frames of every kind.
fn skewed(seed: u64, count: u32) -> Vec<OwnedFrame> {
    let flow = |number: u32| from_source([10, 9, seed as u8, (number.trailing_zeros() * 7) as u8]);
    let flows = (1..=count).map(flow);
    flows.chain(kinds()).chain(random(seed, 300)).chain(kinds()).collect()
}

fn sketch(kind: SketchKind, key: KeyKind, rows: usize, columns: usize) -> sketch::Settings {
    sketch::Settings { mode: kind.into(), key, shape: Grid::of_counters(rows, columns).unwrap() }
}

fn filter(key: KeyKind, rows: usize, bits: usize) -> membership::Settings {
    membership::Settings { on: true, key, shape: Grid::of_bits(rows, bits).unwrap() }
}

fn held(snapshot: &Snapshot, settings: &Settings) -> Sketches {
    let entropy = &snapshot.bank.entropy;
    let cells = |index: usize| entropy.sketches[index].cells(settings.entropy[index].shape);
    Sketches {
        sums: entropy.sums.map(|entropy| entropy.sum),
        entropy: [0, 1].map(|index| cells(index).to_vec()),
        frequency: snapshot.bank.frequency.cells(settings.frequency.shape).to_vec(),
        membership: snapshot.bank.membership.words(settings.membership.shape).to_vec(),
    }
}

/// Asserts that a snapshot equals the merge of the packets of all cores. For packets that several
/// cores count at the same time, only sums depend on the order.
#[track_caller]
fn assert_holds(
    backend: &dyn Backend,
    snapshot: &Snapshot,
    settings: &Settings,
    frames: &[OwnedFrame],
    what: &str,
) {
    let mut expected = Sketches::nothing(settings);
    for sharing in backend.sharing(frames) {
        expected.merge(&Sketches::of(settings, SEED, sharing));
    }
    let mut held = held(snapshot, settings);
    if backend.at_once() > 1 {
        let bounds = Sketches::sums(settings, SEED, frames, backend.at_once());
        for ((sum, right), bounds) in held.sums.iter_mut().zip(expected.sums).zip(bounds) {
            let is_bounded = bounds.contains(&*sum) && bounds.contains(&right);
            assert!(is_bounded, "a sum of {sum}, {right} by one core, not in {bounds:?}: {what}");
            *sum = right;
        }
    }
    assert_eq!(held.sums, expected.sums, "sums: {what}");
    for (held, expected) in held.entropy.iter().zip(&expected.entropy) {
        assert_cells(held, expected, &format!("cell of entropy: {what}"));
    }
    assert_cells(&held.frequency, &expected.frequency, &format!("cell of frequency: {what}"));
    assert_cells(&held.membership, &expected.membership, &format!("word of membership: {what}"));
    if settings.heavy.algorithm != Algorithm::Off {
        super::heavy::assert_holds(backend, &snapshot.bank.heavy, settings, frames, what);
    }
}

#[track_caller]
fn assert_cells<T: PartialEq + std::fmt::Debug>(held: &[T], expected: &[T], what: &str) {
    assert_eq!(held.len(), expected.len(), "{what}");
    if let Some(index) = (0..held.len()).find(|&index| held[index] != expected[index]) {
        panic!("{index} is {:?} and not {:?}: {what}", held[index], expected[index]);
    }
}

fn check(backend: &dyn Backend, setup: &Setup) {
    let Some(mut rig) = start(backend, setup) else { return };
    for window in 0..2 {
        let frames = backend.possible(skewed(40 + window, 700));
        rig.feed(&frames[..]);
        let what = format!("window {window}, {:?}", setup.settings);
        assert_holds(backend, &rig.sample(), &setup.settings, &frames, &what);
        assert_holds(backend, &rig.rotate(), &setup.settings, &frames, &what);
    }
}

/// Checks what `change` turns on.
fn check_only(backend: &dyn Backend, change: impl FnOnce(&mut Settings)) {
    check(backend, &Setup::only(change));
}

const SHAPES: [(usize, usize); 7] =
    [(1, 16), (2, 64), (3, 1024), (4, 1024), (5, 256), (8, 2048), (12, 1024)];

fn keys(backend: &dyn Backend) -> &'static [KeyKind] {
    if backend.breadth() > Breadth::Few { &KeyKind::ALL } else { &[KeyKind::FiveTuple] }
}

fn shapes(backend: &dyn Backend) -> &'static [(usize, usize)] {
    if backend.breadth() > Breadth::Few { &SHAPES } else { &[(4, 1024)] }
}

pub fn entropy_of_every_key_and_shape(backend: &dyn Backend) {
    for kind in SketchKind::ALL {
        for &key in keys(backend) {
            check_only(backend, |settings| settings.entropy[0] = sketch(kind, key, 3, 1024));
        }
        for &(rows, columns) in shapes(backend) {
            check_only(backend, |settings| {
                settings.entropy[0] = sketch(kind, KeyKind::SrcDst, rows, columns)
            });
        }
    }
}

pub fn entropies_of_sources_and_destinations(backend: &dyn Backend) {
    check_only(backend, |settings| {
        settings.entropy =
            [KeyKind::Src, KeyKind::Dst].map(|key| sketch(SketchKind::CountSketch, key, 3, 1024));
    });
}

pub fn frequency_of_every_key_and_shape(backend: &dyn Backend) {
    for kind in SketchKind::ALL {
        for &key in keys(backend) {
            check_only(backend, |settings| settings.frequency = sketch(kind, key, 3, 1024));
        }
        for &(rows, columns) in shapes(backend) {
            check_only(backend, |settings| {
                settings.frequency = sketch(kind, KeyKind::Src, rows, columns)
            });
        }
    }
}

pub fn membership_of_every_key_and_shape(backend: &dyn Backend) {
    for &key in keys(backend) {
        check_only(backend, |settings| settings.membership = filter(key, 3, 1 << 16));
    }
    let shapes = [(4, 1 << 16), (1, 64), (3, 1 << 10), (8, 1 << 16), (12, 1 << 13)];
    for (rows, bits) in
        shapes.into_iter().take(if backend.breadth() > Breadth::Few { 5 } else { 1 })
    {
        check_only(backend, |settings| settings.membership = filter(KeyKind::Src, rows, bits));
    }
}

/// Algorithm and unit that every backend supports.
const HEAVY: heavy::Settings = heavy::Settings {
    algorithm: Algorithm::Precision,
    unit: CountUnit::Packets,
    slots_log2: 6,
    key: KeyKind::FiveTuple,
};

/// Measures everything at once that a backend supports.
pub fn everything_together(backend: &dyn Backend) {
    let entropy = sketch(SketchKind::CountSketch, KeyKind::SrcDst, 3, 1024);
    let settings = Settings {
        cardinality: cardinality::Settings::DEFAULT,
        entropy: [entropy, sketch::Settings::DEFAULT],
        frequency: sketch(SketchKind::CountMin, KeyKind::Src, 3, 1024),
        membership: filter(KeyKind::Src, 3, 1 << 16),
        heavy: HEAVY,
        ..Settings::DEFAULT
    };
    let setup = Setup { settings, ..Setup::default() };
    check(backend, &setup);
    let Some(mut rig) = start(backend, &setup) else { return };
    let frames = backend.possible(skewed(50, 700));
    rig.feed(&frames[..]);
    rig.assert_window(&setup, &frames, "registers beside sketches");
}

/// Measures everything with a keyed hash, which all measurements share, with and without distinct
/// flows.
pub fn everything_by_a_keyed_hash(backend: &dyn Backend) {
    let keyed = |mode| cardinality::Settings { mode, ..cardinality::Settings::DEFAULT };
    for (mode, key) in [
        (cardinality::Mode::Windowed, KeyKind::FiveTuple),
        (cardinality::Mode::Off, KeyKind::SrcDst),
    ] {
        check_only(backend, |settings| {
            *settings = settings.with_hash(HashMode::Keyed);
            settings.cardinality = keyed(mode);
            settings.entropy = [KeyKind::SrcDst, KeyKind::Dst]
                .map(|key| sketch(SketchKind::CountSketch, key, 4, 1024));
            settings.frequency = sketch(SketchKind::CountMin, key, 4, 1024);
            settings.membership = filter(key, 4, 1 << 16);
            settings.heavy = HEAVY;
        });
    }
}

/// Unsupported settings are refused before counting starts, with the alternative.
pub fn what_cannot_be_is_refused(backend: &dyn Backend) {
    let Some(rig) = backend.open(&Setup::default()) else { return };
    let capabilities = rig.dataplane.capabilities();
    let backend = capabilities.backend;
    let assert_refused = |setup: &Setup, why: &str, change: fn(&mut Capabilities)| {
        let mut changed = capabilities.clone();
        changed.keys = KeyKind::ALL.to_vec();
        changed.measurements = MeasurementKind::ALL.to_vec();
        (changed.entropies, changed.rows) = (2, 1..=12);
        change(&mut changed);
        let refused = changed.check(&setup.settings).unwrap_err().to_string();
        assert_eq!(refused, format!("{backend} cannot {why}"));
    };
    let entropy = Setup::only(|settings| {
        settings.entropy[0] = sketch(SketchKind::CountSketch, KeyKind::Src, 4, 1024)
    });
    assert_refused(&entropy, "measure entropy; it can measure cardinality", |changed| {
        changed.measurements = vec![MeasurementKind::Cardinality];
    });
    assert_refused(&entropy, "use sketches of 4 rows; it can use 3 to 3", |changed| {
        changed.rows = 3..=3;
    });
    assert_refused(&entropy, "measure entropy by src; it has the keys dst", |changed| {
        changed.keys = vec![KeyKind::Dst];
    });
    assert_eq!(capabilities.inner, backend == "poll", "tunnels are opened by workers alone");
    let inner = Setup::only(|settings| settings.headers = parse::Settings::INNER);
    let why = "look into tunnels (--inner); leave out --inner, or count with --backend poll";
    assert_refused(&inner, why, |changed| changed.inner = false);
    let two = Setup::only(|settings| {
        settings.entropy = [sketch(SketchKind::CountSketch, KeyKind::Src, 3, 1024); 2]
    });
    let why = "measure 2 entropies; it can measure 1";
    assert_refused(&two, why, |changed| changed.entropies = 1);
}
