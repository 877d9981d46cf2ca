//! Variation of a simulation's counts by chance. Tests take their bounds from here, with a known
//! probability of error.

use std::ops::RangeInclusive;

/// Probability that a correct program falls on the wrong side of a bound. Seeds are fixed, so this
/// is the probability for a seed that was never run.
pub const WRONG: f64 = 1e-4;

/// Standard deviations that a normal variable exceeds, on one side, with a probability of
/// [`WRONG`].
pub const DEVIATIONS: f64 = 3.72;

/// Returns the range of how often an event of this probability occurs in this many trials. Smaller
/// and larger numbers have a probability of [`WRONG`] each.
#[must_use]
pub fn binomial(trials: u64, probability: f64) -> RangeInclusive<u64> {
    let ratio = probability / (1.0 - probability);
    // Logarithm of the probability of zero, and from each number to the next.
    let mut term = trials as f64 * (1.0 - probability).ln();
    let mut below = 0.0;
    let mut range = None;
    for count in 0..=trials {
        let up_to = below + term.exp();
        if range.is_none() && up_to > WRONG {
            range = Some(count);
        }
        if 1.0 - up_to <= WRONG {
            return range.unwrap_or(count)..=count;
        }
        below = up_to;
        term += (ratio * (trials - count) as f64 / (count + 1) as f64).ln();
    }
    range.unwrap_or(0)..=trials
}

/// Returns the range of how often an event with this mean occurs.
#[must_use]
pub fn poisson(mean: f64) -> RangeInclusive<u64> {
    // Accurate to a thousandth of a percent at any mean.
    let trials = (mean * 1e5).ceil().max(1.0);
    binomial(trials as u64, mean / trials)
}

/// Returns the largest difference of a mean from its expectation by chance. `deviation` is that of
/// one of `count` values.
#[must_use]
pub fn of_mean(deviation: f64, count: u64) -> f64 {
    DEVIATIONS * deviation / (count as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_the_quantiles() {
        // By hand: none or ten heads of ten coins have 2^-10 each, which is more.
        assert_eq!(binomial(10, 0.5), 0..=10);
        // Twenty: none 9.5e-7, one 1.9e-5, two 1.8e-4, in total 2.0e-4.
        assert_eq!(binomial(20, 0.5), 2..=18);
        assert_eq!(binomial(1000, 0.0), 0..=0);
        // Near the normal distribution.
        let (low, high) = binomial(1_000_000, 0.5).into_inner();
        assert!(
            [500_000 - low, high - 500_000].iter().all(|half| half.abs_diff(1860) <= 2),
            "{low} {high}"
        );
        // P(X <= 2) is 3.9e-5, P(X <= 3) 2.1e-4.
        assert_eq!(*poisson(15.0).start(), 3);
    }
}
