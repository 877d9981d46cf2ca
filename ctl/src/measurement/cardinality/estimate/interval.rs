//! Estimates with their 95 % intervals.

use super::histogram::Histogram;
use super::model::{information, weight};

/// The largest estimate and interval end, 2^64 flows. A saturated sketch has no finite estimate;
/// this stands for it, as JSON knows no infinity and sums of it stay finite.
pub const CEILING: f64 = 18_446_744_073_709_551_616.0;

pub(super) use crate::number::Z95;

/// A number of distinct flows with its 95 % interval; `0 <= low <= value <= high <=` [`CEILING`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Flows, estimated.
    pub value: f64,
    /// Lower end of the 95 % interval, flows.
    pub low: f64,
    /// Upper end of the 95 % interval, flows.
    pub high: f64,
}

impl Estimate {
    /// No flow at all, with certainty.
    pub const ZERO: Self = Self { value: 0.0, low: 0.0, high: 0.0 };

    /// Caps the three, and widens the interval to hold the value.
    pub(super) fn ordered(value: f64, low: f64, high: f64) -> Self {
        let value = value.clamp(0.0, CEILING);
        Self { value, low: low.clamp(0.0, value), high: high.clamp(value, CEILING) }
    }
}

/// `value` with the interval about `centre` flows of the standard error `relative`.
///
/// The interval is even on the logarithmic scale, where the estimators' errors are nearly normal
/// for every m. Registers are discrete: half a flow on both sides is the continuity correction, and
/// the high end lies one flow up at least, since one collision hides a flow. `certain` is a number
/// of flows that were certainly seen; with few flows the low end is that.
pub(super) fn around(centre: f64, relative: f64, value: f64, certain: f64) -> Estimate {
    if !centre.is_finite() || centre >= CEILING {
        return Estimate::ordered(value, certain, CEILING);
    }
    let spread = (Z95 * relative).exp();
    let low = (centre / spread - 0.5).max(certain);
    let high = (centre * spread + 0.5).max(centre + 1.0);
    Estimate::ordered(value, low, high)
}

/// The interval of an estimator as good as the likelihood allows: Ertl's two.
pub(super) fn efficient(histogram: &Histogram, value: f64) -> Estimate {
    let relative = relative_error(value, histogram.m(), histogram.last() - 1);
    around(value, relative, value, f64::from(histogram.occupied()))
}

/// The interval of a sketch with every register at the last level: open above, and below it the
/// fewest flows that bring this about in 2.5 % of all sketches.
pub(super) fn saturated(histogram: &Histogram, value: f64) -> Estimate {
    let m = histogram.m();
    let each = (0.025_f64.ln() / m).exp();
    let fewest = -(-each).ln_1p() * m / weight(histogram.last() - 1);
    Estimate::ordered(value, fewest, CEILING)
}

/// Relative standard error of an efficient estimate of `flows` in `m` registers.
///
/// The Fisher information belongs to a Poisson number of flows; by the law of total variance that
/// number's own variance, 1/n relative, is no part of the error about the true number. With linear
/// counting this is exactly (e^t - t - 1) / (m t^2).
fn relative_error(flows: f64, m: f64, q: u8) -> f64 {
    let information = m * information(flows / m, q);
    (1.0 / information - 1.0 / flows).max(0.0).sqrt()
}
