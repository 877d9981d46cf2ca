//! Ertl's improved raw estimator (2017, section 3.4, algorithm 6).

use super::histogram::LevelHistogram;

/// Returns the estimate; infinite if every register is at the last level.
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
