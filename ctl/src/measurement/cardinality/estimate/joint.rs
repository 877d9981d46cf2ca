//! Overlap of two sketches: Ertl's joint maximum likelihood estimate (2017, section 5).
//!
//! With a, b, x flows per register only in the first sketch, only in the second and in both, a pair
//! of levels has P(K1 <= k1, K2 <= k2) = exp(-a 2^-k1 - b 2^-k2 - x 2^-min(k1, k2)), where 2^-k
//! becomes 0 at the last level. Inclusion and exclusion of three single estimates would discard
//! most of the information in the pairs of levels.

mod cells;

use self::cells::{LevelDistribution, Matrix, PairCounts, Rates};
use super::ertl::maximum_likelihood;
use super::{CEILING, Estimate, EstimateError, LevelHistogram, around};
use crate::figure::Z95;

/// Flows in two sketches, each number with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JointEstimate {
    /// Flows only in the first sketch.
    pub only_a: Estimate,
    /// Flows only in the second sketch.
    pub only_b: Estimate,
    /// Flows in both sketches.
    pub both: Estimate,
    /// Flows in either sketch: `only_a + only_b + both`.
    pub union: Estimate,
    /// `both / union`, in 0..=1; 0 for two empty sketches.
    pub jaccard: f64,
}

/// Threshold under which a number of flows is taken as 0: a maximum of the likelihood at 0 is only
/// approached in the logarithm.
const NONE: f64 = 1e-3;

const MAX_STEPS: u32 = 200;

/// Estimates the flows that two sketches share and do not share.
///
/// `a`, `b`: levels of sketches with the same hash and the same m = 2^p registers, p in 4..=16,
/// each level 0..=33 - p. `low` of `only_a` and `only_b` is at least the number of registers that
/// are higher in that sketch, since these flows are certain. A sketch with every register at its
/// last level contains no information about the other: the split is then arbitrary, and its
/// intervals reach up to [`CEILING`].
///
/// # Errors
/// [`EstimateError::Mismatch`], [`EstimateError::Length`], [`EstimateError::Level`].
pub fn joint(a: &[u8], b: &[u8]) -> Result<JointEstimate, EstimateError> {
    if a.len() != b.len() {
        return Err(EstimateError::Mismatch { a: a.len(), b: b.len() });
    }
    let (in_a, in_b) = (LevelHistogram::new(a)?, LevelHistogram::new(b)?);
    let merged: Vec<u8> = a.iter().zip(b).map(|(&a, &b)| a.max(b)).collect();
    let in_either = LevelHistogram::new(&merged)?;
    if in_either.occupied() == 0 {
        let [only_a, only_b, both, union] = [Estimate::ZERO; 4];
        return Ok(JointEstimate { only_a, only_b, both, union, jaccard: 0.0 });
    }
    let pairs = PairCounts::new(a, b, in_either.last() - 1);
    let fit = RateFit {
        m: in_either.m(),
        rates: maximise(&pairs, start(&in_a, &in_b, &in_either)),
        q: in_either.last() - 1,
    };
    let higher = |one: &[u8], other: &[u8]| one.iter().zip(other).filter(|(o, t)| o > t).count();
    let only_a = fit.estimate(0, higher(a, b) as f64);
    let only_b = fit.estimate(1, higher(b, a) as f64);
    let both = fit.estimate(2, 0.0);
    let union = fit.union(f64::from(in_either.occupied()));
    let jaccard = (both.value / union.value).clamp(0.0, 1.0);
    Ok(JointEstimate { only_a, only_b, both, union, jaccard })
}

/// Returns starting values: inclusion and exclusion of the single estimates, at least one flow
/// each, as flows per register.
fn start(in_a: &LevelHistogram, in_b: &LevelHistogram, in_either: &LevelHistogram) -> Rates {
    let flows = |histogram: &LevelHistogram| match histogram.occupied() {
        0 => 0.0,
        _ => maximum_likelihood(histogram).min(CEILING),
    };
    let (a, b, union) = (flows(in_a), flows(in_b), flows(in_either));
    let m = in_either.m();
    [union - b, union - a, a + b - union].map(|flows| flows.max(1.0) / m)
}

/// Maximises the likelihood by Fisher scoring in the logarithms of the rates with Marquardt's
/// damping, so that every accepted step raises the likelihood. A rate whose maximum is at 0
/// decreases until it is negligible.
fn maximise(pairs: &PairCounts, start: Rates) -> Rates {
    let mut rates = start;
    let mut damping = 1e-3;
    let (mut likelihood, mut gradient, mut information) = pairs.evaluate(rates);
    for _ in 0..MAX_STEPS {
        let Some(step) = scoring_step(&gradient, &information, damping) else {
            damping *= 10.0;
            continue;
        };
        let gain: f64 = gradient.iter().zip(step).map(|(g, s)| g * s).sum();
        if gain < 1e-8 {
            break;
        }
        let trial: Rates = std::array::from_fn(|i| rates[i] * step[i].clamp(-2.0, 2.0).exp());
        let at_trial = pairs.evaluate(trial);
        if at_trial.0 > likelihood {
            rates = trial;
            (likelihood, gradient, information) = at_trial;
            damping = (damping * 0.1).max(1e-9);
        } else {
            damping *= 10.0;
            if damping > 1e12 {
                break;
            }
        }
    }
    rates
}

fn scoring_step(gradient: &Rates, information: &Matrix, damping: f64) -> Option<Rates> {
    let mut damped = *information;
    for (i, row) in damped.iter_mut().enumerate() {
        row[i] += damping * (row[i] + 1e-9);
    }
    let inverse = invert(&damped)?;
    Some(std::array::from_fn(|i| inverse[i].iter().zip(gradient).map(|(c, g)| c * g).sum()))
}

/// Inverts a symmetric positive definite matrix by cofactors, after scaling to a unit diagonal.
/// `None` if it is singular.
fn invert(matrix: &Matrix) -> Option<Matrix> {
    let scale: Rates = std::array::from_fn(|i| matrix[i][i].sqrt().recip());
    if scale.iter().any(|s| !s.is_finite()) {
        return None;
    }
    let c: Matrix =
        std::array::from_fn(|i| std::array::from_fn(|j| matrix[i][j] * scale[i] * scale[j]));
    let cofactor = |i: usize, j: usize| {
        let (i1, i2, j1, j2) = ((i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3);
        c[i1][j1] * c[i2][j2] - c[i1][j2] * c[i2][j1]
    };
    let determinant: f64 = (0..3).map(|j| c[0][j] * cofactor(0, j)).sum();
    if determinant.is_nan() || determinant < 1e-13 {
        return None;
    }
    Some(std::array::from_fn(|i| {
        std::array::from_fn(|j| cofactor(j, i) / determinant * scale[i] * scale[j])
    }))
}

/// Most likely rates, with the inputs for their errors.
struct RateFit {
    m: f64,
    rates: Rates,
    q: u8,
}

impl RateFit {
    fn flows(&self, i: usize) -> f64 {
        let flows = self.m * self.rates[i];
        if flows < NONE { 0.0 } else { flows }
    }

    /// Returns the covariance of the three numbers of flows at `rates`, by the expected
    /// information. The numbers are fixed, not Poisson, so their own variances are subtracted; see
    /// `relative_error`.
    fn covariance(&self, rates: &Rates) -> Option<Matrix> {
        let information = LevelDistribution::new(rates, self.q).information();
        let per_register = information.map(|row| row.map(|value| value * self.m));
        let logarithmic = invert(&per_register)?;
        Some(std::array::from_fn(|i| {
            std::array::from_fn(|j| {
                let own = if i == j { self.m * rates[i] } else { 0.0 };
                self.m * self.m * rates[i] * rates[j] * logarithmic[i][j] - own
            })
        }))
    }

    /// Returns the half width of the interval if the true number `i` were `flows`, with the
    /// sketches' own numbers of flows unchanged. Close to 0 flows in common, the information comes
    /// mostly from coincidences too rare to occur in m registers, which makes the width too small;
    /// each number is therefore taken as at least half of its estimate.
    fn half_width(&self, i: usize, flows: f64) -> f64 {
        let mut rates = self.rates;
        let change = flows / self.m - rates[i];
        match i {
            2 => {
                rates[0] -= change;
                rates[1] -= change;
            }
            _ => rates[2] -= change,
        }
        rates[i] += change;
        let rates: Rates =
            std::array::from_fn(|j| rates[j].max(0.5 * self.rates[j]).max(NONE / self.m));
        match self.covariance(&rates) {
            Some(covariance) => Z95 * covariance[i][i].max(0.0).sqrt(),
            None => CEILING,
        }
    }

    /// Returns number `i` with the interval of the numbers that a test at 5 % does not reject. The
    /// standard error at the estimate itself would be 0 for an estimate of 0.
    fn estimate(&self, i: usize, certain: f64) -> Estimate {
        let value = self.flows(i);
        let resolution = 0.01 * self.half_width(i, value) + 1e-3;
        let below = |flows: f64| value - flows > self.half_width(i, flows);
        let low = if below(0.0) { bisect(0.0, value, resolution, below) } else { 0.0 };
        let not_above = |flows: f64| flows - value <= self.half_width(i, flows);
        let mut above = 2.0 * value + 4.0 * resolution;
        while above < CEILING && not_above(above) {
            above *= 2.0;
        }
        let high =
            if above < CEILING { bisect(value, above, resolution, not_above) } else { CEILING };
        let low = (low - 0.5).min(value - 1.0).max(certain);
        let high = (high + 0.5).max(value + 1.0);
        Estimate::ordered(value, low, high)
    }

    fn union(&self, certain: f64) -> Estimate {
        let value: f64 = (0..3).map(|i| self.flows(i)).sum();
        match self.covariance(&self.rates) {
            None => Estimate::ordered(value, certain, CEILING),
            Some(covariance) => {
                let variance: f64 = covariance.iter().flatten().sum();
                around(value, variance.max(0.0).sqrt() / value, value, certain)
            }
        }
    }
}

/// Returns the end of the range in which `holds`, true at `from` and false at `to`, within
/// `resolution`.
fn bisect(from: f64, to: f64, resolution: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut from, mut to) = (from, to);
    while to - from > resolution {
        let middle = 0.5 * (from + to);
        if middle <= from || middle >= to {
            break;
        }
        if holds(middle) {
            from = middle;
        } else {
            to = middle;
        }
    }
    0.5 * (from + to)
}
