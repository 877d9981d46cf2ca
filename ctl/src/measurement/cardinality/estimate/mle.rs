//! Ertl's maximum likelihood estimator (2017, section 4, algorithm 8).
//!
//! The derivative of the log-likelihood by t, the flows per register, is zero where t * sum(C_k
//! 2^-k, k = 0..=q) + sum(C_k h(t 2^-min(k, q)), k = 1..=q+1) = m - C_0, h(x) = 1 - x / (e^x - 1).
//! The left side rises and is concave, so the secant from 0 through a lower bound approaches the
//! root without passing it.

use super::histogram::LevelHistogram;
use super::model::{for_each_level, weight};

/// Ertl's delta = epsilon / sqrt(m) with epsilon = 10^-4: far below the statistical error.
const EPSILON: f64 = 1e-4;
const MAX_STEPS: u32 = 64;

/// Returns the estimate; infinite if every register is at the last level.
pub(super) fn maximum_likelihood(histogram: &LevelHistogram) -> f64 {
    let m = histogram.m();
    let last = histogram.last();
    let q = last - 1;
    let below: f64 = (0..=q).map(|k| histogram.count(k) * weight(k)).sum();
    let above: f64 = (1..=q).map(|k| histogram.count(k) * weight(k)).sum::<f64>()
        + histogram.count(last) * weight(q);
    if below == 0.0 {
        return f64::INFINITY;
    }
    let occupied = f64::from(histogram.occupied());
    let tolerance = EPSILON / m.sqrt();
    let mut t = lower_bound(occupied, below, above);
    let mut step = t;
    let mut before = 0.0;
    for _ in 0..MAX_STEPS {
        let value = t * below + helper_sum(histogram, t);
        if value <= before || value >= occupied {
            break;
        }
        step *= (occupied - value) / (value - before);
        t += step;
        before = value;
        if step <= t * tolerance {
            break;
        }
    }
    m * t
}

/// Returns a lower bound of the root by Jensen's inequality (Ertl 2017, section 4.2): `below` and
/// `above` are the sums of 2^-k over the registers at 0..=q and, saturated at q, over those at
/// 1..=q+1. It is valid for any positive weights in both sums.
pub(super) fn lower_bound(occupied: f64, below: f64, above: f64) -> f64 {
    occupied / above * (above / below).ln_1p()
}

/// Returns sum(C_k h(t 2^-min(k, q))). Ertl's recursion for h has a division in every step that
/// depends on the previous one; with exp(-x) of every level available the divisions are
/// independent.
fn helper_sum(histogram: &LevelHistogram, t: f64) -> f64 {
    let last = histogram.last();
    let q = last - 1;
    let mut sum = 0.0;
    for_each_level(t, q, |k, x, e, u| {
        let count = match k {
            0 => 0.0,
            k if k == q => histogram.count(q) + histogram.count(last),
            k => histogram.count(k),
        };
        sum += count * (1.0 - x * e / u);
    });
    sum
}
