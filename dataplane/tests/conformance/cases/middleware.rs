//! Wrapped dataplanes: as exact as the wrapped ones.

use crate::common::{lines, persist};
use crate::conformance::backend::{Backend, SEED, Setup, Traffic, assert_same, start};
use flowgauge_dataplane::middleware::{FaultInjector, Faults, Recorder};
use flowgauge_dataplane::{Dataplane, Snapshot};
use flowgauge_testing::definitions::Expected;
use flowgauge_testing::frames::{random, unique, uniques};
use serde_json::Value;

const FAULTS: Faults = Faults { request_lost: 0.3, answer_lost: 0.3 };

pub fn faults_neither_lose_nor_double(backend: &dyn Backend) {
    let setup = Setup::default();
    let Some(rig) = start(backend, &setup) else { return };
    let (mut dataplane, feeder) = (FaultInjector::new(rig.dataplane, FAULTS, 1), rig.feeder);
    let (mut packets, mut total) = (0, Expected::nothing(setup.precision()));
    let mut add = |window: Snapshot| {
        packets += window.packets_after;
        total.unite(&Expected::held(&window.bank, setup.precision()));
    };
    let traffic = Traffic::start(&feeder, uniques);
    let rounds = (backend.rotations() * 3 / 2).min(1500);
    for _ in 0..rounds {
        let window = dataplane.rotate().unwrap_or_else(|error| {
            assert!(error.is_transient(), "{error}");
            // A sample between two attempts at one rotation must not disturb it.
            persist(|| dataplane.sample());
            persist(|| dataplane.rotate())
        });
        add(window);
        persist(|| dataplane.events());
        assert_eq!(persist(|| dataplane.losses()).total(), 0);
    }
    let sent = traffic.stop();
    add(persist(|| dataplane.rotate()));
    let expected = setup.model().expect((0..sent).map(unique));
    let failed = dataplane.injected();
    assert_eq!((packets, total.counters), (sent, expected.counters), "{failed} calls failed");
    assert_eq!(total.levels, expected.levels);
    assert!(failed > rounds * 2 / 3, "{failed} calls failed");
    println!("{} rotations, {failed} failed calls, {sent} packets", rounds + 1);
}

pub fn a_failed_sample_is_no_zero(backend: &dyn Backend) {
    let setup = Setup::default();
    let Some(rig) = start(backend, &setup) else { return };
    let (mut dataplane, feeder) = (FaultInjector::new(rig.dataplane, FAULTS, 2), rig.feeder);
    let model = setup.model();
    let frames = backend.possible(random(8, 1000));
    let (mut calls, mut failed, mut fed) = (0, 0, 0);
    for part in frames.chunks(100) {
        feeder.feed(part.into());
        fed += part.len();
        let expected = model.expect(&frames[..fed]);
        for _ in 0..50 {
            calls += 1;
            // Either an error or the present state; never empty, and never the result of an
            // earlier, failed call.
            match dataplane.sample() {
                Ok(sample) => assert_same(&sample, &expected, "a sample among failed ones"),
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    failed += 1;
                }
            }
        }
    }
    assert_eq!(dataplane.injected(), failed);
    let is_half = failed > calls / 4 && failed < calls * 3 / 4;
    assert!(is_half, "{failed} of {calls} failed, about half should");
}

fn hex(levels: &[u8]) -> String {
    levels.iter().map(|level| format!("{level:02x}")).collect()
}

/// Returns what a recorder must have written of a snapshot.
fn described(snapshot: &Snapshot, setup: &Setup) -> Value {
    let counters = &snapshot.bank.counters;
    serde_json::json!({
        "packets_before": snapshot.packets_before,
        "packets_after": snapshot.packets_after,
        "counters": {
            "bytes": counters.bytes, "ipv4": counters.ipv4, "ipv6": counters.ipv6,
            "non_ip": counters.non_ip, "truncated": counters.truncated, "bad_header": counters.bad_header,
            "unmatched": counters.unmatched, "unmatched_bytes": counters.unmatched_bytes,
            "merged": counters.merged,
        },
        "hash": { "mode": "tabulated", "polynomial": "0x790900f3", "seed": SEED },
        "registers": hex(snapshot.bank.cardinality.levels(setup.precision())),
        "staggered": null,
        "entropy": [],
        "frequency": null,
        "membership": null,
        "heavy": null,
        "spread": [],
        "truth": snapshot.truth.map(|truth| serde_json::json!({ "window": truth.window, "total": truth.total, "entropy": [null, null] })),
        "parts": [],
    })
}

pub fn recorder_writes_what_it_saw(backend: &dyn Backend) {
    let setup = Setup { truth: true, ..Setup::default() };
    let Some(rig) = backend.open(&setup) else { return };
    let feeder = rig.feeder;
    let mut dataplane = Recorder::new(rig.dataplane, Vec::new());
    let mut expected = Vec::new();
    let mut note = |call: &str, outcome: Value| {
        expected.push(serde_json::json!({ "call": call, "outcome": outcome }))
    };
    let early = dataplane.sample().err().unwrap();
    note("sample", serde_json::json!({ "error": early.to_string(), "transient": false }));
    dataplane.install(&setup.tables()).unwrap();
    let hash = serde_json::json!({ "mode": "tabulated", "polynomial": "0x790900f3", "seed": SEED });
    let tables =
        serde_json::json!({ "hash": hash, "rank_entries": 21, "filter": null, "adopted": null });
    note("install", serde_json::json!({ "ok": tables }));
    for round in 0..3 {
        let frames = backend.possible(random(400 + round, 300));
        let packets = frames.len() as u64;
        feeder.feed(frames.into());
        let sample = dataplane.sample().unwrap();
        note("sample", serde_json::json!({ "ok": described(&sample, &setup) }));
        let window = dataplane.rotate().unwrap();
        assert_eq!(window.packets_after, packets);
        assert_eq!(hex(window.bank.cardinality.levels(setup.precision())).len(), 4096);
        note("rotate", serde_json::json!({ "ok": described(&window, &setup) }));
        dataplane.published(round).unwrap();
        note("published", serde_json::json!({ "ok": { "window": round } }));
        dataplane.losses().unwrap();
        note("losses", serde_json::json!({ "ok": [] }));
        assert_eq!(dataplane.events().unwrap(), []);
    }
    let (_, log) = dataplane.into_parts();
    assert_eq!(lines(&log), expected);
}

/// Wrappers nested in either order, as values and as trait objects.
pub fn wrappers_compose(backend: &dyn Backend) {
    let setup = Setup::default();
    let frames = backend.possible(random(9, 900));
    let run = |dataplane: &mut dyn Dataplane, feed: &dyn Fn(Vec<_>)| {
        persist(|| dataplane.install(&setup.tables()));
        for part in frames.chunks(90) {
            feed(part.to_vec());
            let expected = setup.model().expect(part);
            assert_same(&persist(|| dataplane.sample()), &expected, "a sample");
            assert_same(&persist(|| dataplane.rotate()), &expected, "a window");
        }
    };
    let Some(rig) = backend.open(&setup) else { return };
    let feed = |frames: Vec<_>| rig.feeder.feed(frames.into());
    let mut recorder = Recorder::new(FaultInjector::new(rig.dataplane, FAULTS, 3), Vec::new());
    run(&mut recorder, &feed);
    let (injector, log) = recorder.into_parts();
    let outcomes = lines(&log);
    let is_failed = |line: &&Value| line["outcome"]["transient"] == Value::Bool(true);
    let failed = outcomes.iter().filter(is_failed).count() as u64;
    assert!(failed > 0 && failed == injector.injected(), "outside, the recorder sees the faults");
    assert_eq!(outcomes.len(), 1 + 2 * frames.chunks(90).count() + failed as usize);

    let Some(rig) = backend.open(&setup) else { return };
    let feed = |frames: Vec<_>| rig.feeder.feed(frames.into());
    let recorder: Box<dyn Dataplane> = Box::new(Recorder::new(rig.dataplane, std::io::sink()));
    let mut dataplane: Box<dyn Dataplane> = Box::new(FaultInjector::new(recorder, FAULTS, 4));
    run(&mut dataplane, &feed);
}
