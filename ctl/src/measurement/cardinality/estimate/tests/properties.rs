//! Errors and limits of the estimates, and properties for any input.

use super::super::{
    CEILING, Estimate, EstimateError, Estimator, LevelHistogram, StaggeredEstimator, estimate,
    flajolet_large_range, joint, staggered,
};
use proptest::prelude::*;

#[test]
fn histogram_counts_every_register() {
    let mut levels = vec![0; 64];
    levels[..5].copy_from_slice(&[27, 1, 1, 3, 27]);
    let histogram = LevelHistogram::new(&levels).unwrap();
    let mut expected = vec![0; 28];
    (expected[0], expected[1], expected[3], expected[27]) = (59, 2, 1, 2);
    assert_eq!(histogram.counts(), expected);
    assert_eq!(histogram.occupied(), 5);
    assert_eq!(histogram.registers(), 64);
}

#[test]
fn lengths_outside_the_range_are_refused() {
    for registers in [0, 1, 8, 15, 17, 2047, 131_072] {
        let result = estimate(&vec![0; registers], Estimator::Ertl);
        assert_eq!(result, Err(EstimateError::Length { registers }));
    }
    for p in 4..=16 {
        assert_eq!(estimate(&vec![0; 1 << p], Estimator::Ertl), Ok(Estimate::ZERO));
    }
}

#[test]
fn the_first_level_too_high_is_named() {
    for p in 4..=16_u8 {
        let mut levels = vec![33 - p; 1 << p];
        assert!(LevelHistogram::new(&levels).is_ok());
        levels[9] = 34 - p;
        levels[12] = 255;
        let error = EstimateError::Level { register: 9, level: 34 - p, max: 33 - p };
        assert_eq!(LevelHistogram::new(&levels), Err(error));
        assert_eq!(joint(&vec![0; 1 << p], &levels), Err(error));
        let ages = vec![1.0; 1 << p];
        assert_eq!(staggered(&levels, &ages, StaggeredEstimator::Mle), Err(error));
    }
}

#[test]
fn sketches_of_different_lengths_have_no_joint_estimate() {
    let error = EstimateError::Mismatch { a: 16, b: 32 };
    assert_eq!(joint(&[0; 16], &[0; 32]), Err(error));
}

#[test]
fn ages_must_be_one_a_register_and_in_range() {
    let levels = [1; 16];
    for estimator in StaggeredEstimator::ALL {
        let count = staggered(&levels, &[1.0; 15], estimator);
        let error = EstimateError::Ages { registers: 16, ages: 15 };
        assert_eq!(count, Err(error));
        for age in [0.0, -1.0, 16.001, f64::INFINITY] {
            let mut ages = [16.0; 16];
            ages[4] = age;
            let error = EstimateError::Age { register: 4, age, max: 16 };
            assert_eq!(staggered(&levels, &ages, estimator), Err(error));
        }
        let not_a_number = staggered(&levels, &[f64::NAN; 16], estimator);
        assert!(matches!(not_a_number, Err(EstimateError::Age { register: 0, .. })));
    }
}

#[test]
fn harmonic_needs_a_register_older_than_an_eighth() {
    let levels = [1; 16];
    let error = EstimateError::Immature { youngest: 2.0 };
    let young = staggered(&levels, &[2.0; 16], StaggeredEstimator::Harmonic);
    assert_eq!(young, Err(error));
    assert!(staggered(&levels, &[2.5; 16], StaggeredEstimator::Harmonic).is_ok());
    assert!(staggered(&levels, &[0.5; 16], StaggeredEstimator::Mle).is_ok());
}

#[test]
fn names_are_those_of_the_options() {
    assert_eq!(Estimator::ALL.map(Estimator::name), ["ertl", "flajolet", "mle"]);
    assert_eq!(Estimator::default(), Estimator::Ertl);
    assert_eq!(StaggeredEstimator::default(), StaggeredEstimator::Mle);
}

#[test]
fn saturated_sketches_stay_finite() {
    for p in 4..=16_u8 {
        let levels = vec![33 - p; 1 << p];
        for estimator in Estimator::ALL {
            let full = estimate(&levels, estimator).unwrap();
            assert_eq!(full.high, CEILING);
            assert!(full.low > 4e9 && full.low <= full.value, "{full:?}");
        }
        assert_eq!(estimate(&levels, Estimator::Ertl).unwrap().value, CEILING);
        assert_eq!(estimate(&levels, Estimator::Mle).unwrap().value, CEILING);
        assert!(estimate(&levels, Estimator::Flajolet).unwrap().value < 7e9);
        let both = joint(&levels, &levels).unwrap();
        for number in [both.only_a, both.only_b, both.both, both.union] {
            assert!(number.low <= number.value && number.value <= number.high);
            assert_eq!(number.high, CEILING);
        }
        assert!(both.jaccard.is_finite());
        let ages = vec![f64::from(1_u32 << p); 1 << p];
        for estimator in StaggeredEstimator::ALL {
            let full = staggered(&levels, &ages, estimator).unwrap();
            assert_eq!((full.value, full.high), (CEILING, CEILING));
            assert!(full.low > 2e9 && full.low.is_finite());
        }
    }
}

#[test]
fn one_register_below_saturation_bounds_the_number_again() {
    let mut levels = vec![22; 2048];
    levels[77] = 21;
    for estimator in Estimator::ALL {
        let estimate = estimate(&levels, estimator).unwrap();
        assert!(estimate.high < 1e11, "{estimator}: {estimate:?}");
    }
}

#[test]
fn large_range_correction_undoes_collisions_of_32_bit_hashes() {
    let hashes = 2.0_f64.powi(32);
    assert_eq!(flajolet_large_range(1e8), 1e8);
    for flows in [2e8_f64, 1e9, 1e10] {
        let distinct = hashes * (1.0 - (-flows / hashes).exp());
        let corrected = flajolet_large_range(distinct);
        assert!((corrected / flows - 1.0).abs() < 1e-6);
    }
    assert!((flajolet_large_range(1e9) / 1e9 - 1.138).abs() < 1e-3);
    assert_eq!(flajolet_large_range(hashes), CEILING);
    assert_eq!(flajolet_large_range(f64::INFINITY), CEILING);
}

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
    [0.0, estimate.low, estimate.value, estimate.high, CEILING].is_sorted()
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
