//! Tables of heavy hitters, slot by slot. The algorithms are tested in the core; these tests check
//! that a backend does the same.

use crate::conformance::backend::{Backend, Breadth, Setup, start};
use flowgauge_core::heavy::{Algorithm, CountUnit, Entry, Item, Settings};
use flowgauge_core::{FlowKey, HashMode, Heavy, KeyKind};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::definitions::{Verdict, crc32, keyed, multilinear, verdict};
use flowgauge_testing::frames::{from_source, kinds, random};
use std::collections::HashMap;

/// Returns more flows than slots, of all sizes: every other frame is of one flow, every fourth of
/// another, and so on.
fn skewed(seed: u64, count: u32) -> Vec<OwnedFrame> {
    let flow = |number: u32| {
        let mut frame =
            from_source([10, seed as u8, (number / 3 % 90) as u8, number.trailing_zeros() as u8]);
        frame.bytes.resize(60 + number as usize % 200, 0);
        OwnedFrame { wire_length: frame.bytes.len() as u32, ..frame }
    };
    (1..=count).map(flow).chain(kinds()).chain(random(seed, 300)).collect()
}

fn packets(frames: &[OwnedFrame], settings: &Settings) -> Vec<(FlowKey, u32)> {
    let packet = |frame: &OwnedFrame| match verdict(frame, settings.key) {
        Verdict::V4(key) | Verdict::V6(key) => Some((FlowKey::new(&key), frame.wire_length)),
        _ => None,
    };
    frames.iter().filter_map(packet).collect()
}

fn check(backend: &dyn Backend, settings: Settings) {
    check_hash(backend, settings, HashMode::Tabulated);
}

fn check_hash(backend: &dyn Backend, settings: Settings, hash: HashMode) {
    let setup = Setup::only(|all| all.heavy = settings).with_hash(hash);
    let Some(mut rig) = start(backend, &setup) else { return };
    for window in 0..2 {
        let frames = backend.possible(skewed(60 + window, 3000));
        let what = format!("window {window}, {settings:?}");
        rig.feed(&frames[..]);
        assert_holds(backend, &rig.sample().bank.heavy, &setup.settings, &frames, &what);
        assert_holds(backend, &rig.rotate().bank.heavy, &setup.settings, &frames, &what);
    }
}

/// Asserts that a table equals the merge of the tables of all cores.
#[track_caller]
pub fn assert_holds(
    backend: &dyn Backend,
    held: &Heavy,
    settings: &flowgauge_core::Settings,
    frames: &[OwnedFrame],
    what: &str,
) {
    let (hash, settings) = (settings.hash, &settings.heavy);
    let mut expected = Box::new(Heavy::new());
    for core in backend.cores(frames) {
        let mut table = Box::new(Heavy::new());
        for (key, bytes) in packets(&core, settings) {
            let signature = match hash {
                HashMode::Keyed => multilinear(&keyed().multilinear().words(), key.as_bytes()),
                HashMode::Crc32 | HashMode::Tabulated => crc32(key.as_bytes()),
            };
            table.update(settings, Item { signature, packets: 1, bytes, key: &key });
        }
        expected.merge(&table, settings);
    }
    let totals = |table: &Heavy| (table.packets(), table.total());
    assert_eq!(totals(held), totals(&expected), "totals: {what}");
    if backend.in_order() {
        let pairs = held.slot_entries(settings).zip(expected.slot_entries(settings));
        for (slot, (held, expected)) in pairs.enumerate() {
            assert_eq!(held, expected, "slot {slot}: {what}");
        }
    }
    bounds_hold(held, settings, &packets(frames, settings), what);
}

/// Asserts that a flow's guaranteed count is not more than what it sent.
fn bounds_hold(held: &Heavy, settings: &Settings, packets: &[(FlowKey, u32)], what: &str) {
    let mut sent: HashMap<FlowKey, u64> = HashMap::new();
    for (key, bytes) in packets {
        *sent.entry(*key).or_default() +=
            if settings.unit == CountUnit::Bytes { u64::from(*bytes) } else { 1 };
    }
    for Entry { key, count, inherited, .. } in held.entries(settings) {
        let own = count - inherited;
        let sent = sent.get(&key).copied().unwrap_or_default();
        assert!(own <= sent, "{own} counted of {key:?}: {what}");
    }
}

pub fn every_algorithm(backend: &dyn Backend) {
    for algorithm in Algorithm::ALL {
        let unit = CountUnit::Packets;
        check(backend, Settings { algorithm, unit, slots_log2: 6, key: KeyKind::Src });
    }
    if backend.breadth() == Breadth::Few {
        return;
    }
    for algorithm in Algorithm::ALL {
        for unit in CountUnit::ALL {
            for slots_log2 in [4, 12] {
                check(backend, Settings { algorithm, unit, slots_log2, key: KeyKind::Src });
            }
        }
    }
}

pub fn every_key(backend: &dyn Backend) {
    if backend.breadth() == Breadth::Few {
        let (algorithm, unit) = (Algorithm::DWayRap, CountUnit::Bytes);
        let key = KeyKind::FiveTuple;
        return check(backend, Settings { algorithm, unit, slots_log2: 5, key });
    }
    for algorithm in
        [Algorithm::SpaceSaving, Algorithm::DWayRap, Algorithm::HashPipe, Algorithm::Precision]
    {
        for key in KeyKind::ALL {
            let settings = Settings { algorithm, unit: CountUnit::Packets, slots_log2: 5, key };
            check(backend, settings);
            check_hash(backend, settings, HashMode::Keyed);
        }
    }
}
