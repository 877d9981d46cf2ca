use super::super::{
    CEILING, Estimate, EstimateError, Estimator, LevelHistogram, StaggeredEstimator, estimate,
    flajolet_large_range, joint, staggered,
};

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
