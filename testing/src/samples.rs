//! Comparison of individual delays with the counted ones.

use flowgauge_core::WindowTotals;
use flowgauge_core::delay::Settings;
use flowgauge_core::delay::histogram::{BUCKETS, bucket};
use flowgauge_dataplane::DelaySample;
use std::collections::HashMap;

/// Returns the individual delays of a window, and the number of missing ones. Checks that both add
/// up to the counted delays of each kind, direction and fridge; without missing ones also bucket by
/// bucket, with their weights.
#[track_caller]
pub fn passed_on(bank: &WindowTotals, settings: &Settings, delays: &[DelaySample]) -> (u64, u64) {
    let mut rows: HashMap<(usize, usize), Vec<[u64; 3]>> = HashMap::new();
    for sample in delays {
        let buckets = rows
            .entry((sample.row.into(), sample.fridge.into()))
            .or_insert_with(|| vec![[0; 3]; BUCKETS]);
        let sums = &mut buckets[bucket(sample.delay)];
        [1, sample.weight.into(), sample.beyond.into()]
            .into_iter()
            .zip(sums)
            .for_each(|(term, sum): (u64, _)| *sum += term);
    }
    let (mut passed, mut missing) = (0, 0);
    for (rank, kind) in settings.kinds.each().enumerate() {
        for label in 0..settings.labels() {
            let lost = bank.delay.counts(settings, kind, label == 1).unsampled;
            let (mut counted, mut found) = (0, 0);
            for fridge in 0..settings.fridges() {
                let row = rows
                    .remove(&(rank * settings.labels() + label, fridge))
                    .unwrap_or_else(|| vec![[0; 3]; BUCKETS]);
                let histogram = bank.delay.histogram(settings, kind, label == 1, fridge).unwrap();
                let held: Vec<[u64; 3]> = histogram
                    .buckets()
                    .iter()
                    .map(|bucket| [bucket.samples.into(), bucket.weight, bucket.beyond.into()])
                    .collect();
                if lost == 0 {
                    assert_eq!(row, held, "{kind:?}, direction {label}, fridge {fridge}");
                }
                counted += held.iter().map(|[samples, ..]| samples).sum::<u64>();
                found += row.iter().map(|[samples, ..]| samples).sum::<u64>();
            }
            assert_eq!(found + lost, counted, "{kind:?}, direction {label}");
            (passed, missing) = (passed + found, missing + lost);
        }
    }
    assert!(rows.is_empty(), "delays of a kind that is not measured: {:?}", rows.keys());
    (passed, missing)
}
