//! Comparison of the formulas with slow, direct versions.

use super::super::ertl::{improved_raw, maximum_likelihood};
use super::super::model::{information, match_mean, moments};
use super::super::{Estimator, LevelHistogram, StaggeredEstimator, estimate, staggered};
use super::{Source, large_sketch, sketch};

/// Returns P(level = k) of one register, directly from the distribution function.
fn probability(k: u8, t: f64, q: u8) -> f64 {
    let at_most = |k: i32| match k {
        -1 => 0.0,
        k if k > i32::from(q) => 1.0,
        k => (-t * 0.5_f64.powi(k)).exp(),
    };
    at_most(i32::from(k)) - at_most(i32::from(k) - 1)
}

fn log_likelihood(histogram: &LevelHistogram, t: f64) -> f64 {
    let q = 32 - histogram.registers().ilog2() as u8;
    (0_u8..)
        .zip(histogram.counts())
        .filter(|&(_, &count)| count > 0)
        .map(|(k, &count)| f64::from(count) * probability(k, t, q).ln())
        .sum()
}

fn close(a: f64, b: f64, relative: f64) -> bool {
    (a - b).abs() <= relative * b.abs()
}

#[test]
fn information_is_that_of_the_distribution() {
    for q in [16, 21, 28] {
        for t in [0.01, 0.5, 2.5, 40.0, 3e4, 1e6] {
            let h: f64 = 1e-5;
            let direct: f64 = (0..=q + 1)
                .map(|k| {
                    let p = probability(k, t, q);
                    let up = probability(k, t * h.exp(), q);
                    let down = probability(k, t * (-h).exp(), q);
                    let slope = (up - down) / (2.0 * h);
                    if p > 1e-12 { slope * slope / p } else { 0.0 }
                })
                .sum();
            let information = information(t, q);
            assert!(close(information, direct, 1e-3), "{q} {t}: {information} {direct}");
        }
    }
}

#[test]
fn moments_are_those_of_the_distribution() {
    for q in [16, 21, 28] {
        for t in [0.3, 2.5, 40.0, 3e4, 1e6] {
            let mean_of = |t: f64, power: i32| -> f64 {
                (0..=q + 1).map(|k| probability(k, t, q) * 0.5_f64.powi(i32::from(k) * power)).sum()
            };
            let moments = moments(t, q);
            let mean = mean_of(t, 1);
            assert!(close(moments.mean, mean, 1e-6));
            assert!(close(moments.variance, mean_of(t, 2) - mean * mean, 1e-5));
            let slope = (mean_of(t * 1.0001, 1) - mean_of(t / 1.0001, 1)) / (2.0 * 1.0001_f64.ln());
            assert!(close(moments.slope, slope, 1e-4));
        }
    }
}

#[test]
fn a_rate_is_found_again_from_its_mean() {
    for q in [16, 21, 28] {
        for t in [0.01, 2.5, 100.0, 2.0_f64.powi(i32::from(q))] {
            let target = moments(t, q).mean;
            for start in [t * 0.01, t, t * 100.0] {
                let found = match_mean(target, start, |t| moments(t, q));
                let (found, _) = found.unwrap();
                assert!(close(found, t, 1e-5), "{q} {t} {start}: {found}");
            }
        }
        let floor = 0.5_f64.powi(i32::from(q) + 1);
        assert!(match_mean(0.99 * floor, 10.0, |t| moments(t, q)).is_none());
    }
}

#[test]
fn maximum_likelihood_has_the_highest_likelihood() {
    let mut source = Source::new(11);
    for p in [4, 8, 11, 16] {
        for flows in [3.0, 40.0, 1e3, 2e4, 1e6, 1e8, 6e9] {
            let histogram = LevelHistogram::new(&large_sketch(flows, p, &mut source)).unwrap();
            if histogram.occupied() == 0 {
                continue;
            }
            let m = f64::from(histogram.registers());
            let t = maximum_likelihood(&histogram) / m;
            let at = |factor: f64| log_likelihood(&histogram, t * factor);
            // Far enough from the maximum to lower it by much more than rounding.
            let far = 0.05 / (m * information(t, 32 - p)).sqrt();
            assert!(at(1.0) > at(1.0 + far) && at(1.0) > at(1.0 - far), "{p} {flows}");
        }
    }
}

#[test]
fn without_ends_the_improved_raw_estimate_is_the_harmonic_mean() {
    let levels: Vec<u8> = (0..2048_u32).map(|i| (3 + i % 7) as u8).collect();
    let histogram = LevelHistogram::new(&levels).unwrap();
    let sum: f64 = levels.iter().map(|&k| 0.5_f64.powi(i32::from(k))).sum();
    let harmonic = 2048.0 * 2048.0 / (2.0 * 2.0_f64.ln() * sum);
    assert!(close(improved_raw(&histogram), harmonic, 1e-12));
}

#[test]
fn the_thesis_formula_number_by_number() {
    let is_estimate = |levels: &[u8], expected: f64| {
        close(estimate(levels, Estimator::Flajolet).unwrap().value, expected, 1e-12)
    };
    let mut levels = vec![5; 2048];
    levels[..1000].fill(0);
    assert!(is_estimate(&levels, 2048.0 * (2048.0_f64 / 1000.0).ln()));
    levels[..1000].fill(1);
    let sum = 1000.0 / 2.0 + 1048.0 / 32.0;
    assert!(is_estimate(&levels, 0.7213 / (1.0 + 1.079 / 2048.0) * 2048.0 * 2048.0 / sum));
    for (m, alpha) in [(16, 0.673), (32, 0.697), (64, 0.709), (128, 0.7213 / (1.0 + 1.079 / 128.0))]
    {
        assert!(is_estimate(&vec![4; m], alpha * 16.0 * m as f64), "{m}");
    }
}

#[test]
fn staggered_likelihood_of_even_ages_is_the_plain_one() {
    let mut source = Source::new(12);
    for flows in [5, 300, 20_000, 200_000] {
        let levels = sketch(flows, 11, &mut source);
        let plain = estimate(&levels, Estimator::Mle).unwrap().value;
        for (age, number) in [(1024.0, plain), (512.0, 2.0 * plain)] {
            let window = staggered(&levels, &[age; 2048], StaggeredEstimator::Mle).unwrap();
            assert!(close(window.value, number, 1e-5), "{flows}: {age}");
        }
    }
}
