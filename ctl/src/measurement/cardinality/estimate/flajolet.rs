//! Estimator of the thesis (section 3.5.1; Flajolet et al. 2007, figure 3).

use super::histogram::LevelHistogram;
use super::model::{match_mean, moments, weight};
use super::{CEILING, Estimate, around, saturated};

/// 1 / (2 ln 2), the limit of alpha for large m.
const ALPHA_LIMIT: f64 = 0.5 * std::f64::consts::LOG2_E;

const HASHES: f64 = 4_294_967_296.0;

/// Returns the constant that corrects the bias of the raw estimate for m registers (Flajolet et al.
/// 2007, figure 3; the thesis' equation 3.4).
pub(super) fn alpha(registers: u32) -> f64 {
    match registers {
        16 => 0.673,
        32 => 0.697,
        64 => 0.709,
        m => 0.7213 / (1.0 + 1.079 / f64::from(m)),
    }
}

/// Returns the estimate, with the interval of the branch that produced it.
pub(super) fn with_interval(histogram: &LevelHistogram) -> Estimate {
    let m = histogram.m();
    let zeros = histogram.count(0);
    let certain = f64::from(histogram.occupied());
    let harmonic: f64 = (0..=histogram.last()).map(|k| histogram.count(k) * weight(k)).sum();
    let raw = alpha(histogram.registers()) * m * m / harmonic;
    if raw <= 2.5 * m && zeros > 0.0 {
        let flows = m * (m / zeros).ln();
        around(flows, linear_counting_error(flows / m, m), flows, certain)
    } else if histogram.count(histogram.last()) == m {
        saturated(histogram, raw)
    } else {
        raw_interval(raw, m, histogram.last() - 1, certain)
    }
}

/// Returns the relative standard error of linear counting at t flows per register (Whang et al.
/// 1990).
fn linear_counting_error(t: f64, m: f64) -> f64 {
    ((t.exp_m1() - t).max(0.0) / m).sqrt() / t
}

/// Returns the raw estimate, with an interval corrected for its bias: about 2 % at 2.5 flows per
/// register, where it takes over from linear counting.
fn raw_interval(raw: f64, m: f64, q: u8, certain: f64) -> Estimate {
    let per_register = raw / m;
    let matched = match_mean(ALPHA_LIMIT / per_register, per_register, |t| moments(t, q));
    match matched {
        None => Estimate::ordered(raw, certain, CEILING),
        Some((t, moments)) => {
            let poissonised = moments.variance / (m * moments.slope.powi(2));
            // The number of flows is fixed, not Poisson: see `relative_error`.
            let relative = (poissonised - 1.0 / (m * t)).max(0.0).sqrt();
            around(m * t, relative, raw, certain)
        }
    }
}

/// Returns Flajolet's correction for collisions of 32-bit hashes above 2^32 / 30 flows (2007,
/// figure 3): -2^32 ln(1 - E / 2^32), in flows; [`CEILING`] from E = 2^32 on.
///
/// No estimator here applies it. It assumes that different flows can share a hash. A CRC-32 of a
/// 32-bit key is a bijection: no two sources share one, so there is nothing to correct, and the
/// correction makes the estimate worse, by 14 % at 10^9 sources. It is right only for keys longer
/// than 32 bits, and then only for `flajolet`, as the source states it. (The thesis, section 3.5,
/// names it for use beyond 2^32 flows, where it has no finite value.)
#[must_use]
pub fn flajolet_large_range(estimate: f64) -> f64 {
    if estimate <= HASHES / 30.0 {
        estimate
    } else if estimate >= HASHES {
        CEILING
    } else {
        -HASHES * (-estimate / HASHES).ln_1p()
    }
}
