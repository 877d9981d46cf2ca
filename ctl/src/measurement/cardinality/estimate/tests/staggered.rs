//! Errors and coverage of the staggered estimates, by seeded simulation.

use super::super::{StaggeredEstimator, staggered};
use super::sampling::{Source, Summary, staggered_sketch, summarise};

fn simulate(flows: f64, p: u8, estimator: StaggeredEstimator, trials: u64) -> Summary {
    let trials: Vec<_> = (0..trials)
        .map(|trial| {
            let mut source = Source::new(trial * 7919 + flows as u64);
            let (levels, ages) = staggered_sketch(flows, p, &mut source);
            let estimate = staggered(&levels, &ages, estimator).unwrap();
            (estimate.value, estimate.low, estimate.high)
        })
        .collect();
    summarise(flows, &trials)
}

#[test]
fn likelihood_is_unbiased_and_honest_from_a_hundred_flows() {
    for (flows, trials) in [(100.0, 2000), (1000.0, 500), (20_000.0, 300), (1e6, 300)] {
        let summary = simulate(flows, 11, StaggeredEstimator::Mle, trials);
        assert!(summary.bias.abs() <= summary.chance(), "{flows}: {summary:?}");
        assert!(summary.is_honest(), "{flows}: {summary:?}");
        let widest = 1.2 * 1.96 * summary.rmse;
        assert!(summary.half_width <= widest, "{flows}: {summary:?}");
    }
}

#[test]
fn likelihood_intervals_hold_a_handful_of_flows() {
    for flows in [1.0, 3.0, 10.0, 30.0] {
        for p in [4, 11] {
            let summary = simulate(flows, p, StaggeredEstimator::Mle, 400);
            assert!(summary.is_honest(), "{flows} {p}: {summary:?}");
        }
    }
}

#[test]
fn harmonic_has_no_bias_at_many_flows() {
    for flows in [20_000.0, 100_000.0] {
        let summary = simulate(flows, 11, StaggeredEstimator::Harmonic, 300);
        assert!(summary.bias.abs() <= summary.chance(), "{flows}: {summary:?}");
        assert!(summary.is_honest(), "{flows}: {summary:?}");
        assert!(summary.half_width <= 1.2 * 1.96 * summary.rmse, "{summary:?}");
    }
    let summary = simulate(1e7, 11, StaggeredEstimator::Harmonic, 200);
    assert!(summary.is_honest(), "{summary:?}");
}

#[test]
fn likelihood_is_better_than_the_harmonic_mean_at_few_flows() {
    let harmonic = simulate(1000.0, 11, StaggeredEstimator::Harmonic, 100);
    let likelihood = simulate(1000.0, 11, StaggeredEstimator::Mle, 100);
    assert!(harmonic.is_honest(), "{harmonic:?}");
    assert!(likelihood.rmse < 0.1 * harmonic.rmse, "{likelihood:?} {harmonic:?}");
}

#[test]
fn no_flow_leaves_room_for_three() {
    let ages: Vec<f64> = (1..=2048).map(f64::from).collect();
    for estimator in StaggeredEstimator::ALL {
        let none = staggered(&[0; 2048], &ages, estimator).unwrap();
        assert_eq!((none.value, none.low), (0.0, 0.0));
        assert!((3.0..4.0).contains(&none.high), "{none:?}");
    }
}
