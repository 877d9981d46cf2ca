//! Ertl's estimators (2017): the improved raw one (section 3.4, algorithm 6), and maximum
//! likelihood (section 4, algorithm 8).
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

/// Returns the improved raw estimate; infinite if every register is at the last level.
pub(super) fn improved_raw(histogram: &LevelHistogram) -> f64 {
    let m = histogram.m();
    let last = histogram.last();
    let mut z = m * tau(1.0 - histogram.count(last) / m);
    for level in (1..last).rev() {
        z = 0.5 * (z + histogram.count(level));
    }
    z += m * sigma(histogram.count(0) / m);
    0.5 * std::f64::consts::LOG2_E * m * m / z
}

/// Returns sigma(x) = x + sum over k >= 1 of x^(2^k) 2^(k-1), x in 0..=1: the contribution of the
/// registers at 0.
fn sigma(x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut scale, mut z) = (x, 1.0, x);
    loop {
        let before = z;
        power *= power;
        z += power * scale;
        scale += scale;
        if z == before {
            return z;
        }
    }
}

/// Returns tau(x) = (1 - x - sum over k >= 1 of (1 - x^(2^-k))^2 2^-k) / 3, x in 0..=1: the
/// contribution of the registers at the last level.
fn tau(x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut root, mut scale, mut z) = (x, 1.0, 1.0 - x);
    loop {
        let before = z;
        root = root.sqrt();
        scale *= 0.5;
        z -= (1.0 - root).powi(2) * scale;
        if z == before {
            return z / 3.0;
        }
    }
}

/// Returns the most likely number of flows; infinite if every register is at the last level.
pub(super) fn maximum_likelihood(histogram: &LevelHistogram) -> f64 {
    let m = histogram.m();
    let last = histogram.last();
    let count = |level| histogram.count(level);
    let below: f64 = (0..last).map(|k| count(k) * weight(k)).sum();
    m * most_likely_rate(last, count, below, EPSILON / m.sqrt())
}

/// Returns the most likely rate t, flows per register, of registers up to level `last`; infinite if
/// nothing limits it.
///
/// `count` is the number of registers at each level from 1 on. `below` is the sum of 2^-k over all
/// registers at a level k below the last one, also over those that are known to be at most at
/// level k. `tolerance` is relative.
pub(in crate::measurement) fn most_likely_rate(
    last: u8,
    count: impl Fn(u8) -> f64,
    below: f64,
    tolerance: f64,
) -> f64 {
    let q = last - 1;
    let occupied: f64 = (1..=last).map(&count).sum();
    if occupied == 0.0 {
        return 0.0;
    }
    if below == 0.0 {
        return f64::INFINITY;
    }
    let above: f64 = (1..=q).map(|k| count(k) * weight(k)).sum::<f64>() + count(last) * weight(q);
    let mut t = lower_bound(occupied, below, above);
    let mut step = t;
    let mut before = 0.0;
    for _ in 0..MAX_STEPS {
        let value = t * below + helper_sum(last, &count, t);
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
    t
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
fn helper_sum(last: u8, count: impl Fn(u8) -> f64, t: f64) -> f64 {
    let q = last - 1;
    let mut sum = 0.0;
    for_each_level(t, q, |k, x, e, u| {
        let count = match k {
            0 => 0.0,
            k if k == q => count(q) + count(last),
            k => count(k),
        };
        sum += count * (1.0 - x * e / u);
    });
    sum
}
