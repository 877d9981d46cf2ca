//! Samples: the open window so far, which they leave unchanged.

use crate::conformance::backend::{Backend, Setup, Traffic, assert_same, start};
use flowgauge_core::Counters;
use flowgauge_dataplane::Snapshot;
use flowgauge_testing::frames::{random, uniques};

pub fn a_sample_changes_nothing(backend: &dyn Backend) {
    let setup = Setup::default();
    let Some(mut rig) = start(backend, &setup) else { return };
    let model = setup.model();
    for round in 0..4 {
        let frames = backend.possible(random(200 + round, 400));
        let mut fed = 0;
        for part in frames.chunks(100) {
            rig.feed(part);
            fed += part.len();
            let expected = model.expect(&frames[..fed]);
            for _ in 0..=fed / 100 {
                assert_same(&rig.sample(), &expected, "a sample");
            }
        }
        assert_same(&rig.rotate(), &model.expect(&frames), "the window that was sampled");
    }
}

/// A sample is never less than the previous one, and never more than the final window, in any
/// counter and any register.
pub fn samples_grow_within_their_window(backend: &dyn Backend) {
    let setup = Setup::default();
    let Some(mut rig) = start(backend, &setup) else { return };
    let grows = |earlier: &Snapshot, later: &Snapshot| {
        assert!(earlier.packets_before <= earlier.packets_after);
        assert!(earlier.packets_after <= later.packets_before);
        let values = |snapshot: &Snapshot| {
            let Counters { bytes, ipv4, ipv6, non_ip, truncated, bad_header, .. } =
                snapshot.bank.counters;
            [bytes, ipv4, ipv6, non_ip, truncated, bad_header]
        };
        assert!(
            values(earlier).iter().zip(values(later)).all(|(earlier, later)| *earlier <= later)
        );
        let levels =
            |snapshot: &Snapshot| snapshot.bank.cardinality.levels(setup.precision()).to_vec();
        assert!(
            levels(earlier).iter().zip(levels(later)).all(|(earlier, later)| *earlier <= later)
        );
    };
    let traffic = Traffic::start(&rig.feeder, uniques);
    let (mut counted, mut rotations, mut grown) = (0, 0, 0);
    let enough = (backend.rotations() / 4).min(500);
    while rotations < enough || grown < enough / 5 {
        let mut last = rig.sample();
        for _ in 0..4 {
            let sample = rig.sample();
            grows(&last, &sample);
            grown += u64::from(last.packets_after < sample.packets_after);
            last = sample;
        }
        let window = rig.rotate();
        grows(&last, &window);
        counted += window.packets_after;
        rotations += 1;
    }
    let sent = traffic.stop();
    counted += rig.rotate().packets_after;
    assert_eq!(counted, sent);
}
