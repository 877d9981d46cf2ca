//! Estimates with their 95 % intervals.

use super::histogram::LevelHistogram;
use super::model::{information, weight};

/// Largest estimate and interval end, 2^64 flows. A saturated sketch has no finite estimate; this
/// value represents it, since JSON has no infinity and sums should stay finite.
pub const CEILING: f64 = 18_446_744_073_709_551_616.0;

pub(super) use crate::number::Z95;

/// Number of distinct flows with its 95 % interval; `0 <= low <= value <= high <=` [`CEILING`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Estimated number of flows.
    pub value: f64,
    /// Lower end of the 95 % interval, flows.
    pub low: f64,
    /// Upper end of the 95 % interval, flows.
    pub high: f64,
}

impl Estimate {
    /// No flow at all, with certainty.
    pub const ZERO: Self = Self { value: 0.0, low: 0.0, high: 0.0 };

    /// Caps all three numbers at an upper bound on the flows; zero means that there is no bound.
    pub(in super::super) fn at_most(self, flows: u64) -> Self {
        let cap = |number: f64| if flows == 0 { number } else { number.min(flows as f64) };
        Self { value: cap(self.value), low: cap(self.low), high: cap(self.high) }
    }

    /// Caps all three numbers, and widens the interval to contain the value.
    pub(super) fn ordered(value: f64, low: f64, high: f64) -> Self {
        let value = value.clamp(0.0, CEILING);
        Self { value, low: low.clamp(0.0, value), high: high.clamp(value, CEILING) }
    }
}

/// Returns `value` with the interval around `centre` flows of the standard error `relative`.
///
/// The interval is symmetric on the logarithmic scale, where the estimators' errors are nearly
/// normal for every m. Registers are discrete: half a flow on both sides is the continuity
/// correction, and the high end is at least one flow higher, since one collision hides a flow.
/// `certain` is a number of flows that were certainly seen; with few flows it is the low end.
pub(super) fn around(centre: f64, relative: f64, value: f64, certain: f64) -> Estimate {
    if !centre.is_finite() || centre >= CEILING {
        return Estimate::ordered(value, certain, CEILING);
    }
    let spread = (Z95 * relative).exp();
    let low = (centre / spread - 0.5).max(certain);
    let high = (centre * spread + 0.5).max(centre + 1.0);
    Estimate::ordered(value, low, high)
}

/// Returns the interval of an estimator that reaches the bound of the likelihood: Ertl's two.
pub(super) fn efficient(histogram: &LevelHistogram, value: f64) -> Estimate {
    let relative = relative_error(value, histogram.m(), histogram.last() - 1);
    around(value, relative, value, f64::from(histogram.occupied()))
}

/// Returns the interval of a sketch with every register at the last level: open above, and from the
/// fewest flows that cause this in 2.5 % of all sketches.
pub(super) fn saturated(histogram: &LevelHistogram, value: f64) -> Estimate {
    let m = histogram.m();
    let each = (0.025_f64.ln() / m).exp();
    let fewest = -(-each).ln_1p() * m / weight(histogram.last() - 1);
    Estimate::ordered(value, fewest, CEILING)
}

/// Returns the relative standard error of an efficient estimate of `flows` in `m` registers.
///
/// The Fisher information is that of a Poisson number of flows; by the law of total variance the
/// variance of that number, 1/n relative, does not belong to the error about the true number. With
/// linear counting this is exactly (e^t - t - 1) / (m t^2).
fn relative_error(flows: f64, m: f64, q: u8) -> f64 {
    let information = m * information(flows / m, q);
    (1.0 / information - 1.0 / flows).max(0.0).sqrt()
}
