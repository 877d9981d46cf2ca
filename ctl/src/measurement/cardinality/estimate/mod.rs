//! Estimates of the number of distinct flows from HyperLogLog registers.
//!
//! A sketch has m = 2^p registers, p in 4..=16. The hash has 32 bits: p select the register and q =
//! 32 - p give the level, leading zeros plus one, so a register is between 0 (no flow) and q + 1
//! (all q bits zero). Every estimate has a 95 % interval.
//!
//! Sources: Flajolet, Fusy, Gandouet, Meunier, *HyperLogLog: the analysis of a near-optimal
//! cardinality estimation algorithm* (2007); Ertl, *New cardinality estimation algorithms for
//! HyperLogLog sketches* (2017, arXiv:1702.01284); Cornacchia, Bianchi, Bianco, Giaccone,
//! *Staggered HLL* (Computer Communications 193, 2022); the W-HLL thesis, section 3.5.

mod ertl;
mod flajolet;
mod histogram;
mod joint;
mod model;
mod staggered;
#[cfg(test)]
mod tests;

use crate::figure::{Number, Z95};
use model::{information, weight};
use std::fmt;

pub(in crate::measurement) use ertl::most_likely_rate;
pub use flajolet::flajolet_large_range;
pub use histogram::LevelHistogram;
pub use joint::{JointEstimate, joint};
pub use staggered::{StaggeredEstimator, staggered};

/// Estimator of the number of distinct flows from the levels of a sketch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Estimator {
    /// Ertl's improved raw estimator (2017, section 3.4, algorithm 6): one formula for every
    /// cardinality, with negligible bias.
    #[default]
    Ertl,
    /// Estimator of the thesis (section 3.5.1): Flajolet et al. (2007, figure 3) with linear
    /// counting up to 2.5 m and without the large-range correction. About 2 % too high on average
    /// just above 2.5 m flows. The thesis truncates to an integer; here the fraction is preserved.
    Flajolet,
    /// Ertl's maximum likelihood estimator (2017, section 4.4, algorithm 8).
    Mle,
}

impl Estimator {
    /// All estimators, the default first.
    pub const ALL: [Self; 3] = [Self::Ertl, Self::Flajolet, Self::Mle];

    /// Returns the name used in configurations and outputs: `ertl`, `flajolet` or `mle`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ertl => "ertl",
            Self::Flajolet => "flajolet",
            Self::Mle => "mle",
        }
    }
}

impl fmt::Display for Estimator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for registers that cannot be estimated from.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum EstimateError {
    /// The number of registers is not a power of two in 16..=65536.
    #[error("a sketch of {registers} registers: not a power of two in 16..=65536")]
    Length {
        /// Number of registers.
        registers: usize,
    },
    /// A level that a 32-bit hash cannot produce with this number of registers.
    #[error("register {register} holds level {level}, over {max}")]
    Level {
        /// Index of the first such register.
        register: usize,
        /// Level of this register.
        level: u8,
        /// Largest possible level, 33 - p.
        max: u8,
    },
    /// Two sketches of different lengths.
    #[error("sketches of {a} and {b} registers cannot be compared")]
    Mismatch {
        /// Registers of the first sketch.
        a: usize,
        /// Registers of the second sketch.
        b: usize,
    },
    /// The number of ages is not the number of registers.
    #[error("{ages} ages for {registers} registers")]
    Ages {
        /// Number of registers.
        registers: usize,
        /// Number of ages.
        ages: usize,
    },
    /// An age that is not in 0 < age <= m.
    #[error("register {register} has an age of {age} slots, not over 0 and up to {max}")]
    Age {
        /// Index of the first such register.
        register: usize,
        /// Age of this register in slots.
        age: f64,
        /// Largest possible age, m slots.
        max: usize,
    },
    /// Every register is among the youngest 12.5 %, which the harmonic estimator discards.
    #[error("no register is older than {youngest} slots, where the harmonic estimator begins")]
    Immature {
        /// Age in slots that a register must exceed.
        youngest: f64,
    },
}

/// Estimates the number of distinct flows in a sketch.
///
/// `levels`: one level for each register, m = 2^p of them, p in 4..=16, each 0..=33 - p.
///
/// # Errors
/// [`EstimateError::Length`] or [`EstimateError::Level`].
pub fn estimate(levels: &[u8], estimator: Estimator) -> Result<Estimate, EstimateError> {
    LevelHistogram::new(levels).map(|histogram| estimate_from(&histogram, estimator))
}

/// Estimates the number of distinct flows from the histogram of a sketch's levels.
///
/// An empty sketch gives 0 with the interval 0..=0. With every register at the last level no number
/// of flows is too high: `high` is then [`CEILING`], and so is `value` with `ertl` and `mle`. `low
/// <= value <= high` always, and `low` is at least the number of registers that are not 0, as each
/// of these has seen a flow.
///
/// The interval is that of the likelihood (Fisher information of the Poisson model, less the
/// variance of a Poisson number of flows). In seeded simulations it contains the true number in 93
/// to 100 % of sketches for m >= 256 and 1 to 10^8 flows; in at least 92 % for m = 16.
///
/// With `flajolet` the interval is about the value corrected for that estimator's known bias, and
/// is widened if necessary to contain the value.
#[must_use]
pub fn estimate_from(histogram: &LevelHistogram, estimator: Estimator) -> Estimate {
    if histogram.occupied() == 0 {
        return Estimate::ZERO;
    }
    let full = histogram.count(histogram.last()) == histogram.m();
    match estimator {
        Estimator::Flajolet => flajolet::with_interval(histogram),
        _ if full => saturated(histogram, CEILING),
        Estimator::Ertl => efficient(histogram, ertl::improved_raw(histogram)),
        Estimator::Mle => efficient(histogram, ertl::maximum_likelihood(histogram)),
    }
}

/// Largest estimate and interval end, 2^64 flows. A saturated sketch has no finite estimate; this
/// value represents it, since JSON has no infinity and sums should stay finite.
pub const CEILING: f64 = 18_446_744_073_709_551_616.0;

/// Number of distinct flows with its 95 % interval; `0 <= low <= value <= high <=` [`CEILING`].
pub type Estimate = Number;

impl Number {
    /// No flow at all, with certainty.
    pub const ZERO: Self = Self { value: 0.0, low: 0.0, high: 0.0 };

    /// Caps all three numbers at an upper bound on the flows; zero means that there is no bound.
    pub(super) fn at_most(self, flows: u64) -> Self {
        let cap = |number: f64| if flows == 0 { number } else { number.min(flows as f64) };
        Self { value: cap(self.value), low: cap(self.low), high: cap(self.high) }
    }

    /// Caps all three numbers, and widens the interval to contain the value.
    fn ordered(value: f64, low: f64, high: f64) -> Self {
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
fn around(centre: f64, relative: f64, value: f64, certain: f64) -> Estimate {
    if !centre.is_finite() || centre >= CEILING {
        return Estimate::ordered(value, certain, CEILING);
    }
    let spread = (Z95 * relative).exp();
    let low = (centre / spread - 0.5).max(certain);
    let high = (centre * spread + 0.5).max(centre + 1.0);
    Estimate::ordered(value, low, high)
}

/// Returns the interval of an estimator that reaches the bound of the likelihood: Ertl's two.
fn efficient(histogram: &LevelHistogram, value: f64) -> Estimate {
    let relative = relative_error(value, histogram.m(), histogram.last() - 1);
    around(value, relative, value, f64::from(histogram.occupied()))
}

/// Returns the interval of a sketch with every register at the last level: open above, and from the
/// fewest flows that cause this in 2.5 % of all sketches.
fn saturated(histogram: &LevelHistogram, value: f64) -> Estimate {
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
