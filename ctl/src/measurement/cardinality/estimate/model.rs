//! Level of one register if its number of flows is Poisson (Ertl 2017, section 2.3).
//!
//! With t flows per register on average, P(level <= k) = exp(-t 2^-k) for k in 0..=q, and 1 for q +
//! 1.

/// Returns 2^-k, exact for every level.
pub(super) fn weight(level: u8) -> f64 {
    1.0 / (1_u64 << level) as f64
}

/// Calls `f(x, e, u)` for k = q, q - 1, .. 0 with x = t 2^-k, e = exp(-x) and u = 1 - e.
///
/// Two exponentials in all: doubling x turns u into u (2 - u) and squares e. Squaring also doubles
/// the relative error, so e is computed from u as long as 1 - u is precise.
pub(super) fn for_each_level(t: f64, q: u8, mut f: impl FnMut(u8, f64, f64, f64)) {
    let mut x = t * weight(q);
    let mut u = -(-x).exp_m1();
    let mut e = (-x).exp();
    for k in (0..=q).rev() {
        f(k, x, e, u);
        x *= 2.0;
        u *= 2.0 - u;
        e = if u < 0.5 { 1.0 - u } else { e * e };
    }
}

/// Returns the Fisher information of one register about ln t, t > 0; at most t, and about 0.93 in
/// the middle of the range.
pub(super) fn information(t: f64, q: u8) -> f64 {
    let mut information = 0.0;
    for_each_level(t, q, |k, x, e, u| {
        if k == q {
            information += (x * e).powi(2) / u;
        }
        information += if k == 0 {
            x * x * e
        } else {
            // P(level = k) = e - e^2 = e u, and its derivative by ln t is x e (2e - 1).
            let slope = x * (e - u);
            slope * slope * e / u
        };
    });
    information
}

/// Mean and variance of 2^-level of one register, and the derivative of the mean by ln t.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    pub(super) mean: f64,
    /// d mean / d ln t, not positive.
    pub(super) slope: f64,
    pub(super) variance: f64,
}

/// Returns the moments of 2^-level at t flows per register, summed by parts over the distribution
/// function.
pub(super) fn moments(t: f64, q: u8) -> Moments {
    let last = 0.5 * weight(q);
    let (mut mean, mut slope, mut square) = (last, 0.0, last * last);
    for_each_level(t, q, |k, x, e, _| {
        let w = weight(k);
        mean += 0.5 * w * e;
        slope -= 0.5 * w * x * e;
        square += 0.75 * w * w * e;
    });
    Moments { mean, slope, variance: (square - mean * mean).max(0.0) }
}

const MAX_STEPS: u32 = 60;

/// Returns the rate t whose mean is `target`, and the moments there: Newton in ln t from `start`,
/// at most a factor e per step. `None` if no finite rate has that mean.
pub(super) fn match_mean(
    target: f64,
    start: f64,
    moments_at: impl Fn(f64) -> Moments,
) -> Option<(f64, Moments)> {
    let mut t = start;
    for _ in 0..MAX_STEPS {
        let moments = moments_at(t);
        let step = (target - moments.mean) / moments.slope;
        if !step.is_finite() {
            return None;
        }
        if step.abs() < 1e-8 {
            return Some((t, moments));
        }
        t *= step.clamp(-1.0, 1.0).exp();
    }
    None
}
