//! Exact counts in addition to registers.

use crate::conformance::backend::{Backend, Setup, not_for_this_backend, start};
use flowgauge_core::KeyKind;
use flowgauge_dataplane::Truth;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::frames::random;
use std::collections::HashSet;

pub fn windows_and_total_for_every_key(backend: &dyn Backend) {
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
            let so_far = Truth {
                window: Some(model.flows(first).len() as u64),
                total: Some(total.len() as u64),
                ..Truth::default()
            };
            assert_eq!(rig.sample().truth, Some(so_far), "{}, sample in round {round}", key.name());
            rig.feed(second);
            let window = model.flows(&frames);
            total.extend(window.iter().cloned());
            let exact = Truth {
                window: Some(window.len() as u64),
                total: Some(total.len() as u64),
                ..Truth::default()
            };
            assert_eq!(rig.rotate().truth, Some(exact), "{}, window {round}", key.name());
            assert_eq!(
                rig.sample().truth,
                Some(Truth { window: Some(0), ..exact }),
                "{}, after window {round}",
                key.name()
            );
        }
    }
}
