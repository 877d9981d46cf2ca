//! Windows: their contents, exact counts in addition to registers, and that no packet falls between
//! windows.

use crate::conformance::backend::{
    Backend, Setup, Traffic, assert_levels, assert_same, counts_in_order, not_for_this_backend,
    start,
};
use flowgauge_core::{HashMode, KeyKind, Precision};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::{Snapshot, Truth};
use flowgauge_testing::definitions::Expected;
use flowgauge_testing::extent;
use flowgauge_testing::frames::{random, unique, uniques};
use std::collections::HashSet;

pub fn windows_are_separate(backend: &dyn Backend) {
    let setup = Setup::default();
    let Some(mut rig) = start(backend, &setup) else { return };
    let model = setup.model();
    let nothing = Expected::nothing(setup.precision());
    assert_same(&rig.sample(), &nothing, "at first");
    for round in 0..6 {
        let frames = backend.possible(random(100 + round, 300));
        rig.feed(&frames[..]);
        let window = rig.rotate();
        assert_same(&window, &model.expect(&frames), "a window");
        assert_eq!(window.hash, setup.tables().hash);
        // An odd number of rotations at times, so that windows of either bank follow either bank.
        for _ in 0..round % 3 {
            assert_same(&rig.sample(), &nothing, "a sample of an empty window");
            assert_same(&rig.rotate(), &nothing, "an empty window");
        }
    }
}

/// Every packet has its own source, so registers identify the packets they contain.
pub fn many_rotations_lose_nothing(backend: &dyn Backend) {
    let setup = Setup::with(|cardinality| cardinality.precision = Precision::new(13).unwrap());
    let Some(mut rig) = start(backend, &setup) else { return };
    let mut total = Expected::nothing(setup.precision());
    let mut add = |window: Snapshot| {
        total.unite(&Expected::held(&window.bank, setup.precision()));
        u64::from(window.packets_after > 0)
    };
    let traffic = Traffic::start(&rig.feeder, uniques);
    let (mut rotations, mut filled) = (0, 0);
    // However the threads are scheduled, some rotations must meet packets.
    while rotations < backend.rotations() || filled < backend.rotations() / 10 {
        filled += add(rig.rotate());
        rotations += 1;
    }
    let sent = traffic.stop();
    add(rig.rotate());
    let lost = rig.dataplane.losses().unwrap().total();
    assert_eq!(lost, 0, "the feeder must not go faster than the dataplane");
    let expected = setup.model().expect((0..sent).map(unique));
    let what = format!("{sent} packets sent, {filled} windows with packets");
    assert_eq!(total.counters, expected.counters, "{what}");
    assert_levels(&total.levels, &expected.levels, "union of all windows");
    println!("{rotations} rotations, {filled} of them with packets, {sent} packets");
}

/// If packets are counted in order, a snapshot with `n` packets must contain the registers of
/// exactly the next `n` packets.
pub fn registers_belong_to_the_counter(backend: &dyn Backend) {
    // The CRC of an address is a bijection: no two packets look alike.
    let setup = Setup::default().with_hash(HashMode::Crc32);
    let Some(mut rig) = start(backend, &setup) else { return };
    if !counts_in_order(rig.dataplane.capabilities()) {
        not_for_this_backend("one worker with atomic snapshots");
        return;
    }
    let traffic = Traffic::start(&rig.feeder, uniques);
    // Checked afterwards: traffic would run far ahead of a slow model.
    let seen = |snapshot: Snapshot| Expected::held(&snapshot.bank, setup.precision());
    let (mut windows, mut fresh) = (Vec::new(), 0);
    let fewest = extent(100, 500);
    while windows.len() < 2 * fewest || fresh < fewest {
        let window =
            [seen(rig.sample()), seen(rig.sample()), seen(rig.sample()), seen(rig.rotate())];
        fresh += window.windows(2).filter(|pair| pair[0].packets() < pair[1].packets()).count();
        windows.push(window.to_vec());
    }
    let sent = traffic.stop();
    windows.push(vec![seen(rig.rotate())]);

    let model = setup.model();
    let mut counted = 0;
    for snapshots in &windows {
        let mut expected = Expected::nothing(setup.precision());
        for seen in snapshots {
            let more = counted + expected.packets()..counted + seen.packets();
            more.for_each(|number| expected.add(&model.effect(&unique(number))));
            assert_eq!(seen.counters, expected.counters);
            assert_levels(&seen.levels, &expected.levels, "registers that belong to the counter");
        }
        counted += expected.packets();
    }
    assert_eq!(counted, sent);
    println!(
        "{} windows of four snapshots, {fresh} snapshots with packets that the one before had not, {sent} packets",
        windows.len()
    );
}

/// Since every packet is a flow of its own, the exact counts add up like the packets.
pub fn exact_counts_under_traffic(backend: &dyn Backend) {
    let setup = Setup { truth: true, ..Setup::default() };
    let Some(mut rig) = start(backend, &setup) else { return };
    if rig.sample().truth.is_none() {
        not_for_this_backend("exact counts");
        return;
    }
    let traffic = Traffic::start(&rig.feeder, uniques);
    let mut counted = 0;
    let mut check = |window: Snapshot| {
        counted += window.packets_after;
        let truth = window.truth.unwrap();
        assert_eq!((truth.window, truth.total), (Some(window.packets_after), Some(counted)));
        counted
    };
    let rotations = extent(200, 1000);
    for _ in 0..rotations {
        check(rig.rotate());
    }
    let sent = traffic.stop();
    assert_eq!(check(rig.rotate()), sent);
    println!("{} rotations, {sent} packets", rotations + 1);
}

/// Returns the exact counts of a window with these flows.
fn truth(window: &HashSet<Vec<u8>>, total: &HashSet<Vec<u8>>) -> Truth {
    let count = |flows: &HashSet<Vec<u8>>| Some(flows.len() as u64);
    Truth { window: count(window), total: count(total), ..Truth::default() }
}

pub fn exact_windows_and_total_for_every_key(backend: &dyn Backend) {
    for key in KeyKind::ALL {
        let mut setup = Setup::with(|cardinality| cardinality.key = key);
        setup.truth = true;
        let Some(mut rig) = start(backend, &setup) else { continue };
        if rig.sample().truth.is_none() {
            not_for_this_backend("exact counts");
            return;
        }
        let model = setup.model();
        let pool = backend.possible(random(7, 600));
        let mut total: HashSet<Vec<u8>> = HashSet::new();
        for round in 0..8 {
            // Windows overlap, and every third packet repeats within its window.
            let frames: Vec<OwnedFrame> =
                (0..300).map(|i| pool[(round * 60 + i - i % 3 / 2) % pool.len()].clone()).collect();
            let (first, second) = frames.split_at(120);
            rig.feed(first);
            let so_far = truth(&model.flows(first), &total);
            assert_eq!(rig.sample().truth, Some(so_far), "{}, sample in round {round}", key.name());
            rig.feed(second);
            let window = model.flows(&frames);
            total.extend(window.iter().cloned());
            let exact = truth(&window, &total);
            assert_eq!(rig.rotate().truth, Some(exact), "{}, window {round}", key.name());
            let empty = truth(&HashSet::new(), &total);
            assert_eq!(rig.sample().truth, Some(empty), "{}, after window {round}", key.name());
        }
    }
}
