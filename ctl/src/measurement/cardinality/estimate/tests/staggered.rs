//! Errors and coverage of the staggered estimates, by seeded simulation.

use super::super::flajolet::alpha;
use super::super::model::{information, moments};
use super::super::{StaggeredEstimator, staggered};
use super::sampling::{Source, Summary, scatter, staggered_sketch, summarise};
use flowgauge_testing::chance::of_mean;

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
        assert!(summary.is_narrow(), "{flows}: {summary:?}");
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
        assert!(summary.is_narrow(), "{flows}: {summary:?}");
    }
    let summary = simulate(1e7, 11, StaggeredEstimator::Harmonic, 200);
    assert!(summary.is_honest(), "{summary:?}");
}

/// If most registers are empty the harmonic mean is far too high, as the model of a register
/// predicts. The error of the likelihood is the minimum for any unbiased estimator: the inverse of
/// the information in all registers.
#[test]
fn likelihood_is_better_than_the_harmonic_mean_at_few_flows() {
    const FLOWS: f64 = 1000.0;
    let (p, q, m) = (11, 21, 2048.0);
    let (_, ages) = staggered_sketch(FLOWS, p, &mut Source::new(0));
    let exposures = || ages.iter().map(|age| 2.0 * age / m);
    // Without the youngest eighth.
    let mature = || exposures().filter(|exposure| *exposure > 0.25);
    let sum: f64 = mature().map(|exposure| exposure * moments(FLOWS / m * exposure, q).mean).sum();
    let expected = alpha(2048) * m * mature().count() as f64 / sum / FLOWS - 1.0;
    let least = exposures()
        .map(|exposure| information(FLOWS / m * exposure, q))
        .sum::<f64>()
        .sqrt()
        .recip();

    let harmonic = simulate(FLOWS, p, StaggeredEstimator::Harmonic, 100);
    let likelihood = simulate(FLOWS, p, StaggeredEstimator::Mle, 100);
    assert!(harmonic.is_honest(), "{harmonic:?}");
    let deviation = (harmonic.rmse.powi(2) - harmonic.bias.powi(2)).sqrt();
    // Both formulas are asymptotic: the remainder is of the order of one over the number of
    // registers.
    let (allowed, rest) = (of_mean(deviation, harmonic.trials), 1.0 / m);
    assert!((harmonic.bias - expected).abs() <= allowed + rest, "{expected}: {harmonic:?}");
    assert!(
        (likelihood.rmse / least - 1.0).abs() <= scatter(likelihood.trials) + rest,
        "{least}: {likelihood:?}"
    );
    assert!(likelihood.rmse < expected, "{likelihood:?} {harmonic:?}");
}

/// Largest number of flows that leaves no trace in 2.5 % of all cases: `exp(-n) = 0.025` if all
/// registers are exposed for one window each in total.
#[test]
fn no_flow_leaves_room_for_three() {
    let ages: Vec<f64> = (1..=2048).map(f64::from).collect();
    let mean = |youngest: f64| {
        let ages = ages.iter().filter(|age| **age > youngest);
        ages.map(|age| 2.0 * age / 2048.0).sum::<f64>() / 2048.0
    };
    for (estimator, youngest) in
        [(StaggeredEstimator::Mle, 0.0), (StaggeredEstimator::Harmonic, 256.0)]
    {
        let none = staggered(&[0; 2048], &ages, estimator).unwrap();
        assert_eq!((none.value, none.low), (0.0, 0.0));
        let most = -0.025_f64.ln() / mean(youngest);
        assert!((none.high / most - 1.0).abs() < 1e-12, "{none:?}, {most}");
    }
}
