//! Errors and coverage of the joint estimate, by seeded simulation.

use super::super::{Estimate, Estimator, JointEstimate, estimate, joint};
use super::Source;
use flowgauge_testing::chance::{binomial, of_mean};

/// Returns two sketches with `only_a`, `only_b` and `both` flows.
fn pair(only_a: u32, only_b: u32, both: u32, p: u8, seed: u64) -> (Vec<u8>, Vec<u8>) {
    let mut source = Source::new(seed);
    let (mut a, mut b) = (vec![0; 1 << p], vec![0; 1 << p]);
    source.add(only_a.into(), &mut [&mut a], p);
    source.add(only_b.into(), &mut [&mut b], p);
    source.add(both.into(), &mut [&mut a, &mut b], p);
    (a, b)
}

fn holds(estimate: Estimate, truth: u32) -> u64 {
    let truth = f64::from(truth);
    u64::from(estimate.low <= truth && truth <= estimate.high)
}

/// Trials of every simulation.
const TRIALS: u64 = 200;

/// Returns whether 95 % intervals contain the truth as often as they claim, within what chance
/// allows.
fn are_honest(held: [u64; 4]) -> bool {
    held.iter().all(|held| held >= binomial(TRIALS, 0.95).start())
}

/// Maximum difference of two estimates of one likelihood, in standard errors: each ends within 1e-4
/// of its maximum. The joint one accepts no step that gains less than 1e-8, which is the square of
/// its length; the single one ends with a step of 1e-4.
const CONVERGED: f64 = 2e-4;

/// Returns the relative error of a union in `registers` registers.
fn error(registers: u32) -> f64 {
    1.04 / f64::from(registers).sqrt()
}

fn numbers(joint: &JointEstimate) -> [Estimate; 4] {
    [joint.only_a, joint.only_b, joint.both, joint.union]
}

/// Returns how many intervals of only_a, only_b, both and union contain the truth, and the errors
/// of the intersection in every trial: of the joint estimate, and of inclusion and exclusion.
fn simulate(only_a: u32, only_b: u32, both: u32) -> ([u64; 4], Vec<[f64; 2]>) {
    let truth = [only_a, only_b, both, only_a + only_b + both];
    let (mut held, mut errors) = ([0; 4], Vec::new());
    for trial in 0..TRIALS {
        let seed = trial * 7919 + u64::from(only_a + only_b * 3 + both * 5);
        let (a, b) = pair(only_a, only_b, both, 11, seed);
        let joint = joint(&a, &b).unwrap();
        for ((held, number), truth) in held.iter_mut().zip(numbers(&joint)).zip(truth) {
            *held += holds(number, truth);
        }
        let merged: Vec<u8> = a.iter().zip(&b).map(|(&a, &b)| a.max(b)).collect();
        let flows = |levels: &[u8]| estimate(levels, Estimator::Mle).unwrap().value;
        let difference = flows(&a) + flows(&b) - flows(&merged);
        errors.push([joint.both.value, difference].map(|value| value - f64::from(both)));
    }
    (held, errors)
}

/// Returns the mean and the standard deviation.
fn spread(values: &[f64]) -> (f64, f64) {
    let mean_of = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / TRIALS as f64;
    let mean = mean_of(&mut values.iter().copied());
    (mean, mean_of(&mut values.iter().map(|value| (value - mean).powi(2))).sqrt())
}

#[test]
fn intersections_beat_inclusion_and_exclusion() {
    for (only, both) in [(50_000, 0), (45_000, 5_000), (25_000, 25_000)] {
        let (held, errors) = simulate(only, only, both);
        assert!(are_honest(held), "{both} of {only}: {held:?}");
        // Both use the same registers: the squares of their errors differ by more than chance would
        // give for two equally good estimates.
        let squares = errors.iter().map(|errors| errors.map(|error| error.powi(2)));
        let gains: Vec<f64> = squares.map(|[jointly, separately]| separately - jointly).collect();
        let (gain, deviation) = spread(&gains);
        let chance = of_mean(deviation, TRIALS);
        assert!(gain > chance, "{both} of {only}: {gain} with a deviation of {deviation}");
    }
}

#[test]
fn the_same_set_twice_is_all_in_both() {
    let (held, errors) = simulate(0, 0, 50_000);
    assert!(are_honest(held), "{held:?}");
    let apart = errors.iter().map(|[jointly, separately]| (jointly - separately).abs());
    let apart = apart.fold(0.0, f64::max);
    assert!(apart <= CONVERGED * error(2048) * 50_000.0, "{apart} flows");
}

#[test]
fn intervals_hold_the_truth_for_unlike_sets() {
    for (only_a, only_b, both) in [
        (50_000, 0, 5_000),
        (1_000, 49_000, 1_000),
        (100_000, 5_000, 0),
        (5_000, 5_000, 50),
        (500, 500, 50),
        (50, 20, 30),
        (1, 1, 50_000),
        (0, 100, 0),
        (3, 2, 1),
    ] {
        let (held, ..) = simulate(only_a, only_b, both);
        assert!(are_honest(held), "{only_a}, {only_b}, {both}: {held:?}");
    }
}

#[test]
fn unions_are_right_in_the_mean_and_within_their_error() {
    for (only, both) in [(50_000, 0), (45_000, 5_000), (25_000, 25_000), (0, 50_000)] {
        let error_of = |p: u8, seed: u64| {
            let (a, b) = pair(only, only, both, p, seed);
            joint(&a, &b).unwrap().union.value / f64::from(2 * only + both) - 1.0
        };
        let mean = (0..40).map(|seed| error_of(11, seed) / 40.0).sum::<f64>();
        assert!(mean.abs() <= of_mean(error(2048), 40), "{only} {both}: {mean} in the mean");
        let one = error_of(12, 7);
        assert!(one.abs() <= of_mean(error(4096), 1), "{only} {both}: {one}");
    }
}

#[test]
fn nothing_in_common_with_an_empty_sketch() {
    let empty = vec![0; 2048];
    let (some, _) = pair(1000, 0, 0, 11, 3);
    let none = joint(&empty, &empty).unwrap();
    assert_eq!(numbers(&none), [Estimate::ZERO; 4]);
    assert_eq!(none.jaccard, 0.0);
    let alone = joint(&some, &empty).unwrap();
    let single = estimate(&some, Estimator::Mle).unwrap().value;
    assert!((alone.only_a.value / single - 1.0).abs() <= CONVERGED * error(2048));
    assert_eq!((alone.only_b.value, alone.both.value), (0.0, 0.0));
    assert!(alone.only_b.high <= 1.0 && alone.both.high <= 1.0);
}

#[test]
fn a_sketch_shares_everything_with_itself() {
    for flows in [1, 30, 1000, 50_000] {
        let (some, _) = pair(flows, 0, 0, 11, 5);
        let same = joint(&some, &some).unwrap();
        let single = estimate(&some, Estimator::Mle).unwrap().value;
        assert!((same.both.value / single - 1.0).abs() <= CONVERGED * error(2048));
        assert_eq!((same.only_a.value, same.only_b.value), (0.0, 0.0));
        assert_eq!(same.jaccard, 1.0);
    }
}

#[test]
fn swapping_the_sketches_swaps_the_numbers() {
    let (a, b) = pair(3000, 800, 500, 11, 9);
    let (one, other) = (joint(&a, &b).unwrap(), joint(&b, &a).unwrap());
    for (x, y) in [(one.only_a, other.only_b), (one.both, other.both), (one.union, other.union)] {
        let half_width = 0.5 * (x.high - x.low);
        assert!((x.value - y.value).abs() <= CONVERGED * half_width, "{x:?} {y:?}");
        // The ends are located to a hundredth of the half width and a thousandth of a flow.
        for (x, y) in [(x.low, y.low), (x.high, y.high)] {
            assert!((x - y).abs() <= (0.01 + CONVERGED) * half_width + 1e-3, "{x} {y}");
        }
    }
    let ratio = one.jaccard / other.jaccard;
    assert!((ratio - 1.0).abs() <= 2.0 * CONVERGED, "{one:?} {other:?}");
}
