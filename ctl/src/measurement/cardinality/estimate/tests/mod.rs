//! Seeded simulations and properties of the estimators, with sketches of random flows.

mod accuracy;
mod formulas;
mod joint;
mod properties;

use super::Estimate;
use crate::figure::Z95;
use flowgauge_testing::chance::{DEVIATIONS, binomial, of_mean};
use flowgauge_testing::definitions::split_mix;

/// Steele, Lea and Flood's SplitMix64: fast enough to add flows one by one.
struct Source(u64);

impl Source {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn word(&mut self) -> u64 {
        let word = split_mix(self.0, 0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word
    }

    /// Returns a random number in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Adds new flows to every sketch of `sketches`.
    fn add(&mut self, flows: u64, sketches: &mut [&mut [u8]], p: u8) {
        for _ in 0..flows {
            let hash = (self.word() >> 32) as u32;
            let register = (hash >> (32 - p)) as usize;
            let rank = hash << p;
            let level = rank.leading_zeros().min(u32::from(32 - p)) as u8 + 1;
            for sketch in &mut *sketches {
                sketch[register] = sketch[register].max(level);
            }
        }
    }

    /// Draws the level of one register at `rate` flows on average, by the inverse of its
    /// distribution.
    fn level(&mut self, rate: f64, p: u8) -> u8 {
        let rounds = (rate / -self.unit().ln()).log2().ceil();
        rounds.clamp(0.0, f64::from(33 - p)) as u8
    }
}

/// Returns a sketch of exactly `flows` flows.
fn sketch(flows: u64, p: u8, source: &mut Source) -> Vec<u8> {
    let mut levels = vec![0; 1 << p];
    source.add(flows, &mut [&mut levels], p);
    levels
}

/// Returns a sketch of a Poisson number of flows, `flows` on average: equivalent to an exact number
/// if 1/sqrt(n) is far below the estimators' error, and fast for any n.
fn large_sketch(flows: f64, p: u8, source: &mut Source) -> Vec<u8> {
    let rate = flows / f64::from(1_u32 << p);
    (0..1 << p).map(|_| source.level(rate, p)).collect()
}

/// Returns a staggered sketch at `flows` new flows per window, with ages of whole slots.
fn staggered_sketch(flows: f64, p: u8, source: &mut Source) -> (Vec<u8>, Vec<f64>) {
    let m = 1_u32 << p;
    (0..m)
        .map(|register| {
            let age = f64::from(register * 5 % m + 1);
            let rate = flows / f64::from(m) * 2.0 * age / f64::from(m);
            (source.level(rate, p), age)
        })
        .unzip()
}

/// Results of repeated estimates of one true number.
#[derive(Debug)]
struct Summary {
    /// Mean error, relative to the truth.
    bias: f64,
    /// Root mean square error, relative to the truth.
    rmse: f64,
    /// Number of intervals that contain the truth.
    held: u64,
    /// Number of trials.
    trials: u64,
    /// Standard deviation of the logarithm of the estimates.
    spread: f64,
    /// Mean half width of the intervals, relative to the estimates.
    half_width: f64,
    /// One flow, relative to the truth.
    one: f64,
}

impl Summary {
    /// Returns whether 95 % intervals contain the truth as often as they claim, within what chance
    /// allows.
    fn is_honest(&self) -> bool {
        self.held >= *binomial(self.trials, 0.95).start()
    }

    /// Returns whether intervals are no wider than the errors require. They extend 1.96 deviations
    /// both ways on the logarithmic scale, and at most one flow more because flows are whole. One
    /// that is corrected for a bias may have to be wider to contain the estimate. The deviation
    /// over the trials may be too small by chance by as much as [`scatter`] allows.
    fn is_narrow(&self) -> bool {
        let half = (Z95 * self.spread * (1.0 + scatter(self.trials))).sinh();
        self.half_width <= half.max(0.5 * (half + self.bias.abs())) + self.one
    }

    /// Returns the largest mean error by chance of an unbiased estimator over these trials.
    fn chance(&self) -> f64 {
        of_mean(self.rmse, self.trials)
    }
}

/// Returns how far chance changes a standard deviation, or a root mean square error, over `trials`
/// trials, relative to it.
fn scatter(trials: u64) -> f64 {
    DEVIATIONS / (2.0 * trials as f64).sqrt()
}

/// Summarises repeated trials.
fn summarise(truth: f64, trials: &[Estimate]) -> Summary {
    let mean =
        |f: &dyn Fn(&Estimate) -> f64| trials.iter().map(f).sum::<f64>() / trials.len() as f64;
    let logarithm = mean(&|it| (it.value / truth).ln());
    Summary {
        bias: mean(&|it| it.value / truth - 1.0),
        rmse: mean(&|it| (it.value / truth - 1.0).powi(2)).sqrt(),
        held: trials.iter().filter(|it| it.low <= truth && truth <= it.high).count() as u64,
        trials: trials.len() as u64,
        spread: mean(&|it| ((it.value / truth).ln() - logarithm).powi(2)).sqrt(),
        half_width: mean(&|it| 0.5 * (it.high - it.low) / it.value),
        one: 1.0 / truth,
    }
}
