//! Staggered HyperLogLog (Cornacchia et al. 2022): registers reset one after another.
//!
//! Every 2 W / m seconds (a slot) one register is reset, in turn, where W is the window. A register
//! of age i slots has seen the last i slots, an exposure of e = 2 i / m windows, so under the
//! Poisson model its rate is (n / m) e with n flows per window.

use super::ertl::lower_bound;
use super::flajolet::alpha;
use super::histogram::{check, last_level, precision};
use super::model::{Moments, match_mean, moments, weight};
use super::{CEILING, Estimate, EstimateError, around};

/// Share of the youngest registers that the harmonic estimator discards: their levels are too low
/// for its asymptotic constant.
const DISCARDED: f64 = 0.125;

const MAX_STEPS: u32 = 60;

/// Estimator of the flows per window from registers of different ages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StaggeredEstimator {
    /// Most likely n, with each register at its own exposure: usable from the first flow on.
    #[default]
    Mle,
    /// Estimator of the source: the harmonic mean of the registers older than 12.5 % of m, scaled
    /// by their exposures. Too high if the youngest of them saw few flows: with m = 2048 by 96 % at
    /// 1,000 flows per window, 7 % at 5,000, 0.1 % at 20,000. Below about 5 m flows prefer `Mle`.
    Harmonic,
}

impl StaggeredEstimator {
    /// All estimators, the default first.
    pub const ALL: [Self; 2] = [Self::Mle, Self::Harmonic];

    /// Returns the name used in configurations and outputs: `mle` or `harmonic`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mle => "mle",
            Self::Harmonic => "harmonic",
        }
    }
}

/// Estimates the number of new flows per window W from a staggered sketch.
///
/// `levels`: one for each register, m = 2^p of them, p in 4..=16, each 0..=33 - p. `ages`: slots of
/// 2 W / m since each register's reset, fractions allowed, 0 < age <= m. A register not yet reset
/// since the start has the age of the measurement.
///
/// The estimate is a rate, the arrivals of flows that a register has not seen since its reset, and
/// assumes that it was constant over the last 2 W. Persistent flows are seen again by a register
/// soon after its reset, so with them the value is above the number of distinct flows in W. The
/// interval is about that rate, so it includes the arrivals' own Poisson spread and is wide enough
/// for the number of arrivals in the last W too. If all registers are 0, the value is 0, and the
/// high end is the largest rate that leaves them so in 2.5 % of all cases. Saturated registers give
/// [`CEILING`], as in [`super::estimate_from`].
///
/// # Errors
/// [`EstimateError::Length`], [`EstimateError::Level`], [`EstimateError::Ages`],
/// [`EstimateError::Age`]; and with [`StaggeredEstimator::Harmonic`] [`EstimateError::Immature`] if
/// no register is older than m / 8 slots.
pub fn staggered(
    levels: &[u8],
    ages: &[f64],
    estimator: StaggeredEstimator,
) -> Result<Estimate, EstimateError> {
    let last = last_level(precision(levels.len())?);
    check(levels, last)?;
    check_ages(levels.len(), ages)?;
    let m = levels.len() as f64;
    let registers = |youngest: f64| -> Vec<Register> {
        levels
            .iter()
            .zip(ages)
            .filter(|&(_, &age)| age > youngest)
            .map(|(&level, &age)| Register { level, exposure: 2.0 * age / m })
            .collect()
    };
    match estimator {
        StaggeredEstimator::Mle => Ok(most_likely(&registers(0.0), m, last - 1)),
        StaggeredEstimator::Harmonic => {
            let youngest = DISCARDED * m;
            let mature = registers(youngest);
            if mature.is_empty() {
                return Err(EstimateError::Immature { youngest });
            }
            let alpha = alpha(levels.len() as u32);
            Ok(harmonic(&mature, m, last - 1, alpha))
        }
    }
}

fn check_ages(registers: usize, ages: &[f64]) -> Result<(), EstimateError> {
    if ages.len() != registers {
        return Err(EstimateError::Ages { registers, ages: ages.len() });
    }
    let within = |age: f64| age > 0.0 && age <= registers as f64;
    match ages.iter().position(|&age| !within(age)) {
        None => Ok(()),
        Some(register) => Err(EstimateError::Age { register, age: ages[register], max: registers }),
    }
}

/// Level of a register, and its exposure in windows.
#[derive(Clone, Copy, Debug)]
struct Register {
    level: u8,
    exposure: f64,
}

/// Returns the estimate if no register saw a flow: P = exp(-(n / m) * sum of exposures).
fn nothing_seen(registers: &[Register], m: f64) -> Estimate {
    let exposure: f64 = registers.iter().map(|register| register.exposure).sum();
    Estimate::ordered(0.0, 0.0, -0.025_f64.ln() * m / exposure)
}

/// Returns the estimate if every register is at its last level: open above; the low end is the
/// lowest rate that causes this in 2.5 % of all cases if all registers were as old as the oldest.
fn saturated(registers: &[Register], m: f64, q: u8) -> Estimate {
    let oldest = registers.iter().fold(0.0_f64, |oldest, register| oldest.max(register.exposure));
    let each = (0.025_f64.ln() / registers.len() as f64).exp();
    let low = -(-each).ln_1p() * m / (weight(q) * oldest);
    Estimate::ordered(CEILING, low, CEILING)
}

/// Solves Ertl's likelihood equation (2017, section 4.1) with a separate rate for each register.
/// The left side is concave in t = n / m as before, so Newton from the lower bound does not pass
/// the root. The last step also yields the observed information about ln t.
fn most_likely(registers: &[Register], m: f64, q: u8) -> Estimate {
    let occupied = registers.iter().filter(|r| r.level > 0).count() as f64;
    if occupied == 0.0 {
        return nothing_seen(registers, m);
    }
    let below: f64 =
        registers.iter().filter(|r| r.level <= q).map(|r| r.exposure * weight(r.level)).sum();
    if below == 0.0 {
        return saturated(registers, m, q);
    }
    let grown: Vec<f64> = registers
        .iter()
        .filter(|r| r.level > 0)
        .map(|r| r.exposure * weight(r.level.min(q)))
        .collect();
    let mut t = lower_bound(occupied, below, grown.iter().sum());
    let mut information = occupied;
    for _ in 0..MAX_STEPS {
        let (mut score, mut slope) = (occupied - t * below, t * below);
        for factor in &grown {
            let x = t * factor;
            let rest = x / x.exp_m1();
            score -= 1.0 - rest;
            slope += rest * (x + rest - 1.0);
        }
        information = slope;
        let step = score / slope;
        t *= 1.0 + step;
        if step < 1e-7 {
            break;
        }
    }
    around(m * t, information.sqrt().recip(), m * t, 0.0)
}

/// Returns n = alpha m k / sum(2^-level e) over the k given registers. The interval is about the
/// value corrected for its bias, from the registers' spread at their exposures, and widened to
/// contain the value.
fn harmonic(registers: &[Register], m: f64, q: u8, alpha: f64) -> Estimate {
    if registers.iter().all(|register| register.level == 0) {
        return nothing_seen(registers, m);
    }
    if registers.iter().all(|register| register.level > q) {
        return saturated(registers, m, q);
    }
    let sum: f64 =
        registers.iter().map(|register| register.exposure * weight(register.level)).sum();
    let raw = alpha * registers.len() as f64 / sum;
    let matched = match_mean(sum, raw, |t| equalised(registers, t, q));
    match matched {
        None => Estimate::ordered(m * raw, 0.0, CEILING),
        Some((t, moments)) => {
            let relative = moments.variance.sqrt() / moments.slope.abs();
            around(m * t, relative, m * raw, 0.0)
        }
    }
}

/// Returns the moments of sum(2^-level e) at t flows per register and window.
fn equalised(registers: &[Register], t: f64, q: u8) -> Moments {
    let zero = Moments { mean: 0.0, slope: 0.0, variance: 0.0 };
    registers.iter().fold(zero, |total, register| {
        let e = register.exposure;
        let one = moments(t * e, q);
        Moments {
            mean: total.mean + e * one.mean,
            slope: total.slope + e * one.slope,
            variance: total.variance + e * e * one.variance,
        }
    })
}
