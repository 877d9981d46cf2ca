//! Probabilities of all pairs of levels, and their derivatives.

use super::super::histogram::LEVELS;
use super::super::model::{for_each_level, weight};

/// Flows per register: only in the first sketch, only in the second, in both.
pub(super) type Rates = [f64; 3];
/// Symmetric matrix, in the order of [`Rates`].
pub(super) type Matrix = [[f64; 3]; 3];

/// Number of occurrences of each pair of levels: all that the likelihood depends on.
pub(super) struct PairCounts {
    pairs: Vec<(u8, u8, f64)>,
    m: f64,
    q: u8,
}

impl PairCounts {
    /// Counts the pairs of two sketches of equal length with levels 0..=q + 1.
    pub(super) fn new(a: &[u8], b: &[u8], q: u8) -> Self {
        let mut counts = [[0_u32; LEVELS]; LEVELS];
        for (&a, &b) in a.iter().zip(b) {
            counts[usize::from(a)][usize::from(b)] += 1;
        }
        let pairs = (0..=q + 1)
            .flat_map(|a| (0..=q + 1).map(move |b| (a, b)))
            .map(|(a, b)| (a, b, f64::from(counts[usize::from(a)][usize::from(b)])))
            .filter(|&(_, _, count)| count > 0.0)
            .collect();
        Self { pairs, m: a.len() as f64, q }
    }

    /// Returns the log-likelihood, its gradient and the expected information, the latter two by the
    /// logarithms of the rates.
    pub(super) fn evaluate(&self, rates: Rates) -> (f64, Rates, Matrix) {
        let cells = LevelDistribution::new(&rates, self.q);
        let mut likelihood = 0.0;
        let mut gradient = [0.0; 3];
        for &(a, b, count) in &self.pairs {
            let (p, slopes) = cells.at(a, b);
            likelihood += count * p.ln();
            for ((g, slope), rate) in gradient.iter_mut().zip(slopes).zip(rates) {
                *g += count * slope * rate / p;
            }
        }
        let information = cells.information().map(|row| row.map(|value| value * self.m));
        (likelihood, gradient, information)
    }
}

/// exp(-rate 2^-k) and its complement for k in 0..=q.
struct Decay {
    e: [f64; LEVELS],
    u: [f64; LEVELS],
}

impl Decay {
    fn new(rate: f64, q: u8) -> Self {
        let (mut e, mut u) = ([0.0; LEVELS], [0.0; LEVELS]);
        for_each_level(rate, q, |k, _, exponential, complement| {
            e[usize::from(k)] = exponential;
            u[usize::from(k)] = complement;
        });
        Self { e, u }
    }

    /// Returns the probability of a register's level at this rate, and its derivative by the rate.
    fn level(&self, k: u8, q: u8) -> (f64, f64) {
        let (e, u) = self.at(k.min(q));
        let y = weight(k.min(q));
        match k {
            0 => (e, -e),
            k if k > q => (u, y * e),
            _ => (e * u, y * e * (e - u)),
        }
    }

    fn at(&self, k: u8) -> (f64, f64) {
        (self.e[usize::from(k)], self.u[usize::from(k)])
    }
}

/// Distribution of a pair of levels at given rates (Ertl 2017, section 5.1).
pub(super) struct LevelDistribution {
    rates: Rates,
    q: u8,
    a: Decay,
    b: Decay,
    x: Decay,
    a_x: Decay,
    b_x: Decay,
}

impl LevelDistribution {
    /// Computes the distribution at `rates`: flows per register, each over 0.
    pub(super) fn new(rates: &Rates, q: u8) -> Self {
        let [a, b, x] = *rates;
        Self {
            rates: *rates,
            q,
            a: Decay::new(a, q),
            b: Decay::new(b, q),
            x: Decay::new(x, q),
            a_x: Decay::new(a + x, q),
            b_x: Decay::new(b + x, q),
        }
    }

    /// Returns the probability of a pair and its derivatives by the three rates. If the levels
    /// differ, it is a product of two independent ones: flows in both sketches reach at most the
    /// lower level, so the higher one is due to a flow in that sketch alone.
    fn at(&self, k1: u8, k2: u8) -> (f64, Rates) {
        match k1.cmp(&k2) {
            std::cmp::Ordering::Less => {
                let (p1, d1) = self.a_x.level(k1, self.q);
                let (p2, d2) = self.b.level(k2, self.q);
                (p1 * p2, [d1 * p2, p1 * d2, d1 * p2])
            }
            std::cmp::Ordering::Greater => {
                let (p1, d1) = self.a.level(k1, self.q);
                let (p2, d2) = self.b_x.level(k2, self.q);
                (p1 * p2, [d1 * p2, p1 * d2, p1 * d2])
            }
            std::cmp::Ordering::Equal => self.equal(k1),
        }
    }

    /// Returns the probability of two equal levels, and its derivatives. P(K1 = K2 = k) = F d with
    /// F = P(both <= k) and, in sums of positive terms only, d = (1 - A)(1 - B) + E (1 - X); A, B,
    /// X, E are exp of -(a + x), -(b + x), -x, -(a + b + x) times y = 2^-k.
    fn equal(&self, k: u8) -> (f64, Rates) {
        let level = k.min(self.q);
        let y = weight(level);
        let (ea, ua) = self.a.at(level);
        let (_, ub) = self.b.at(level);
        let (_, ux) = self.x.at(level);
        let (ea_x, ua_x) = self.a_x.at(level);
        let (eb_x, ub_x) = self.b_x.at(level);
        let all = ea * eb_x;
        if k == 0 {
            return (all, [-all; 3]);
        }
        let d = ua_x * ub_x + all * ux;
        // A + B - E, with E = A exp(-b y).
        let slopes = [y * ea_x * ub, y * eb_x * ua, y * (ea_x * ub + eb_x)];
        if k > self.q { (d, slopes) } else { (all * d, slopes.map(|slope| all * (slope - y * d))) }
    }

    /// Returns the expected information of one register about the logarithms of the rates.
    pub(super) fn information(&self) -> Matrix {
        let mut information = [[0.0; 3]; 3];
        for k1 in 0..=self.q + 1 {
            for k2 in 0..=self.q + 1 {
                let (p, slopes) = self.at(k1, k2);
                if p < f64::MIN_POSITIVE {
                    continue;
                }
                let relative: Rates = std::array::from_fn(|i| slopes[i] * self.rates[i]);
                for (row, one) in information.iter_mut().zip(relative) {
                    for (value, other) in row.iter_mut().zip(relative) {
                        *value += one * other / p;
                    }
                }
            }
        }
        information
    }
}

#[cfg(test)]
mod tests {
    use super::{LevelDistribution, PairCounts, Rates};

    const CASES: [(Rates, u8); 5] = [
        ([0.01, 0.02, 0.005], 21),
        ([1.0, 2.0, 0.5], 21),
        ([40.0, 3.0, 1e-3], 21),
        ([1e-6, 1e-6, 24.0], 16),
        ([3e4, 2e4, 6e4], 16),
    ];

    #[test]
    fn cells_are_a_distribution() {
        for (rates, q) in CASES {
            let cells = LevelDistribution::new(&rates, q);
            let (mut total, mut slopes) = (0.0, [0.0; 3]);
            for k1 in 0..=q + 1 {
                for k2 in 0..=q + 1 {
                    let (p, by_rate) = cells.at(k1, k2);
                    assert!(p >= 0.0);
                    total += p;
                    for ((sum, slope), rate) in slopes.iter_mut().zip(by_rate).zip(rates) {
                        *sum += slope * rate;
                    }
                }
            }
            assert!((total - 1.0).abs() < 1e-12, "{rates:?}: {total}");
            assert!(slopes.iter().all(|s| s.abs() < 1e-9), "{rates:?}: {slopes:?}");
        }
    }

    #[test]
    fn cells_add_up_to_the_distribution_function() {
        let (rates, q) = ([1.0, 2.0, 0.5], 21);
        let cells = LevelDistribution::new(&rates, q);
        for (k1, k2) in [(0, 0), (2, 5), (4, 4), (21, 3), (22, 1)] {
            let sum: f64 = (0..=k1)
                .flat_map(|i| (0..=k2).map(move |j| (i, j)))
                .map(|(i, j)| cells.at(i, j).0)
                .sum();
            let y = |k: u8| if k > q { 0.0 } else { 0.5_f64.powi(i32::from(k)) };
            let exponent = rates[0] * y(k1) + rates[1] * y(k2) + rates[2] * y(k1.min(k2));
            assert!((sum - (-exponent).exp()).abs() < 1e-12);
        }
    }

    #[test]
    fn gradient_is_that_of_the_likelihood() {
        let a: Vec<u8> = (0..64).map(|i| (i * 7 % 11) as u8).collect();
        let b: Vec<u8> = (0..64).map(|i| (i * 5 % 9) as u8).collect();
        let pairs = PairCounts::new(&a, &b, 26);
        let rates = [4.0, 2.0, 7.0];
        let (_, gradient, _) = pairs.evaluate(rates);
        for (i, slope) in gradient.into_iter().enumerate() {
            let moved = |factor: f64| {
                let mut rates = rates;
                rates[i] *= factor;
                pairs.evaluate(rates).0
            };
            let h: f64 = 1e-5;
            let numeric = (moved(h.exp()) - moved((-h).exp())) / (2.0 * h);
            assert!((slope - numeric).abs() < 1e-5 * numeric.abs().max(1.0));
        }
    }
}
