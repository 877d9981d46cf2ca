//! How far chance moves what a simulation counts: bounds of tests come from here, with a stated
//! probability of being wrong.

use std::ops::RangeInclusive;

/// The probability with which a correct program falls on the wrong side of a bound. Seeds are
/// fixed: it is that of one that was never run.
pub const WRONG: f64 = 1e-4;

/// Standard deviations that a normal variable exceeds, on one side, with a probability of
/// [`WRONG`].
pub const DEVIATIONS: f64 = 3.72;

/// How often something of this probability happens in so many trials: seldom less and seldom more,
/// each with [`WRONG`].
#[must_use]
pub fn binomial(trials: u64, probability: f64) -> RangeInclusive<u64> {
    let ratio = probability / (1.0 - probability);
    // The logarithm of the probability of none, and from one number to the next.
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

/// How often something happens that happens so often on average.
#[must_use]
pub fn poisson(mean: f64) -> RangeInclusive<u64> {
    // A thousandth of a per cent of difference at any mean.
    let trials = (mean * 1e5).ceil().max(1.0);
    binomial(trials as u64, mean / trials)
}

/// The largest difference of a mean from what is expected of it, by chance: `deviation` is that of
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
        // By hand: of ten coins, none or ten heads have 2^-10 each, which is more.
        assert_eq!(binomial(10, 0.5), 0..=10);
        // Twenty: none 9.5e-7, one 1.9e-5, two 1.8e-4, together 2.0e-4.
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
