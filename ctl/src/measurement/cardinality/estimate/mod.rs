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
mod interval;
mod joint;
mod mle;
mod model;
mod staggered;
#[cfg(test)]
mod tests;

use std::fmt;

pub use flajolet::flajolet_large_range;
pub use histogram::LevelHistogram;
pub use interval::{CEILING, Estimate};
pub use joint::{JointEstimate, joint};
pub(in crate::measurement) use mle::most_likely_rate;
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
        _ if full => interval::saturated(histogram, CEILING),
        Estimator::Ertl => interval::efficient(histogram, ertl::improved_raw(histogram)),
        Estimator::Mle => interval::efficient(histogram, mle::maximum_likelihood(histogram)),
    }
}
