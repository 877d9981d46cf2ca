//! Wrapped dataplanes: as exact as the wrapped ones.

use crate::conformance::backend::{Backend, Setup, Traffic, assert_same, start};
use flowgauge_dataplane::middleware::{FaultInjector, Faults, Recorder};
use flowgauge_dataplane::{Dataplane, Error, Snapshot};
use flowgauge_testing::frames::{random, unique, uniques};
use serde_json::Value;

const FAULTS: Faults = Faults { request_lost: 0.3, answer_lost: 0.3 };

/// Repeats a call while it fails transiently, like the controller.
fn persist<T>(mut call: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match call() {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}

pub fn faults_neither_lose_nor_double(backend: &dyn Backend) {
    let setup = Setup::default();
    let Some(rig) = start(backend, &setup) else { return };
    let (mut dataplane, feeder) = (FaultInjector::new(rig.dataplane, FAULTS, 1), rig.feeder);
    let mut levels = vec![0; setup.precision().registers()];
    let (mut packets, mut bytes) = (0, 0);
    let mut add = |window: Snapshot| {
        packets += window.packets_after;
        bytes += window.bank.counters.bytes;
        for (all, level) in levels.iter_mut().zip(window.bank.cardinality.levels(setup.precision()))
        {
            *all = (*all).max(*level);
        }
        (packets, bytes)
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
    let (packets, bytes) = add(persist(|| dataplane.rotate()));
    let expected = setup.model().expect((0..sent).map(unique));
    let failed = dataplane.injected();
    assert_eq!((packets, bytes), (sent, expected.counters.bytes), "{failed} calls failed");
    assert_eq!(levels, expected.levels);
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
    assert!(
        failed > calls / 4 && failed < calls * 3 / 4,
        "{failed} of {calls} failed, about half should"
    );
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
        "hash": { "mode": "tabulated", "polynomial": "0x790900f3", "seed": crate::conformance::backend::SEED },
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

fn lines(log: &[u8]) -> Vec<Value> {
    std::str::from_utf8(log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
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
    let hash = serde_json::json!({ "mode": "tabulated", "polynomial": "0x790900f3", "seed": crate::conformance::backend::SEED });
    note(
        "install",
        serde_json::json!({ "ok": { "hash": hash, "rank_entries": 21, "filter": null, "adopted": null } }),
    );
    for round in 0..3 {
        let frames = backend.possible(random(400 + round, 300));
        let packets = frames.len() as u64;
        feeder.feed(frames.into());
        let sample = dataplane.sample().unwrap();
        note("sample", serde_json::json!({ "ok": described(&sample, &setup) }));
        let window = dataplane.rotate().unwrap();
        assert!(
            window.packets_after == packets
                && hex(window.bank.cardinality.levels(setup.precision())).len() == 4096
        );
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
