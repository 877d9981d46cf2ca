use proptest::prelude::*;

use super::super::{
    CEILING, Estimate, Estimator, LevelHistogram, StaggeredEstimator, estimate, joint, staggered,
};

/// Generates levels that a sketch can have, likely or not, of any spread around any mean.
fn levels(p: u8) -> impl Strategy<Value = Vec<u8>> {
    (0..=33 - p, 1..=33_u8).prop_flat_map(move |(lowest, spread)| {
        let highest = (33 - p).min(lowest.saturating_add(spread));
        prop::collection::vec(lowest..=highest, 1 << p)
    })
}

fn sketch() -> impl Strategy<Value = Vec<u8>> {
    (4..=9_u8).prop_flat_map(levels)
}

fn two_sketches() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    (4..=8_u8).prop_flat_map(|p| (levels(p), levels(p)))
}

fn is_ordered(estimate: Estimate) -> bool {
    0.0 <= estimate.low
        && estimate.low <= estimate.value
        && estimate.value <= estimate.high
        && estimate.high <= CEILING
}

fn merge(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(&a, &b)| a.max(b)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: prop::test_runner::RngSeed::Fixed(0x5eed),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn histograms_count_every_register(levels in sketch()) {
        let histogram = LevelHistogram::new(&levels).unwrap();
        prop_assert_eq!(histogram.counts().iter().sum::<u32>(), histogram.registers());
        for (level, &count) in histogram.counts().iter().enumerate() {
            let direct = levels.iter().filter(|&&l| usize::from(l) == level).count();
            prop_assert_eq!(count as usize, direct);
        }
    }

    #[test]
    fn estimates_are_ordered_and_no_less_than_certain(levels in sketch()) {
        let occupied = levels.iter().filter(|&&level| level > 0).count() as f64;
        for estimator in Estimator::ALL {
            let estimate = estimate(&levels, estimator).unwrap();
            prop_assert!(is_ordered(estimate), "{estimator:?}: {estimate:?}");
            prop_assert!(estimate.low >= occupied, "{estimator}: {estimate:?}");
        }
    }

    #[test]
    fn one_hidden_collision_is_always_allowed_for(occupied in 1..40_usize, level in 1..=22_u8) {
        let mut levels = vec![0; 2048];
        levels[..occupied].fill(level.min(2));
        levels[0] = level;
        for estimator in Estimator::ALL {
            let estimate = estimate(&levels, estimator).unwrap();
            prop_assert!(estimate.low <= (estimate.value - 1.0).max(occupied as f64), "{estimate:?}");
            prop_assert!(estimate.high >= estimate.value + 1.0, "{estimate:?}");
        }
    }

    // Except `flajolet`, which decreases where the raw estimate takes over from linear counting.
    #[test]
    fn merging_never_lowers_ertl_or_mle((a, b) in two_sketches()) {
        let merged = merge(&a, &b);
        for estimator in [Estimator::Ertl, Estimator::Mle] {
            let value = |levels: &[u8]| estimate(levels, estimator).unwrap().value;
            let least = value(&a).max(value(&b)) * (1.0 - 1e-5);
            prop_assert!(value(&merged) >= least, "{estimator}");
        }
    }

    #[test]
    fn the_order_of_registers_is_nothing(levels in sketch(), turn in 0..16_usize) {
        let mut turned = levels.clone();
        turned.rotate_left(turn);
        for estimator in Estimator::ALL {
            prop_assert_eq!(estimate(&levels, estimator), estimate(&turned, estimator));
        }
    }

    #[test]
    fn joint_numbers_are_ordered_and_add_up((a, b) in two_sketches()) {
        let joint = joint(&a, &b).unwrap();
        for number in [joint.only_a, joint.only_b, joint.both, joint.union] {
            prop_assert!(is_ordered(number), "{joint:?}");
        }
        let sum = joint.only_a.value + joint.only_b.value + joint.both.value;
        prop_assert!((sum - joint.union.value).abs() <= 1e-9 * sum || sum > CEILING);
        prop_assert!((0.0..=1.0).contains(&joint.jaccard));
        let higher = a.iter().zip(&b).filter(|(a, b)| a > b).count() as f64;
        prop_assert!(joint.only_a.low >= higher.min(joint.only_a.value), "{joint:?}");
    }

    #[test]
    fn staggered_estimates_are_ordered(levels in sketch(), youngest in 0.01..1.0_f64) {
        let m = levels.len() as f64;
        let slots = (0..levels.len()).map(|i| i as f64);
        let ages: Vec<f64> = slots.map(|i| youngest + i * (m - youngest) / m).collect();
        for estimator in StaggeredEstimator::ALL {
            let estimate = staggered(&levels, &ages, estimator).unwrap();
            prop_assert!(is_ordered(estimate), "{estimator:?}: {estimate:?}");
        }
    }
}
