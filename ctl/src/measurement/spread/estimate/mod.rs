//! Number of distinct others of the keys with the most.
//!
//! A key's pairs raise the same registers of its cell in every row, so the minimum over these cells
//! contains all of them. It also contains noise: pairs of other keys that share cells in every row.
//! With n others, m registers and the noise's distribution function G, the minimum of a register is
//! at most k with the probability
//!
//! ```text
//! exp(-(n / m) 2^-k) G(k),    G(k) = 1 - product over rows of (1 - exp(-l 2^-k))
//! ```
//!
//! The rate l of the noise in a row's cell is known from the cell itself: a register above the
//! minimum of the *other* rows shows the noise alone, and one that is not bounds it by that minimum.
//! That is a likelihood of censored registers, which does not depend on n. The rates of rows of
//! other traffic, such as the mean of a row, are of no use where traffic is heavy-tailed: in
//! simulations their 95 % intervals contained 40 to 80 % of true numbers. The rates have errors of
//! their own, so the likelihood of n is a mean over them.
//!
//! n is where the likelihood is greatest, and its 95 % interval where it is at most 1.92 lower in
//! the logarithm. The model's number of pairs is Poisson, but a key has exactly n of them: that part
//! of the variance is taken out, as in the intervals of distinct flows. Simulated intervals contain
//! the true number in 93 to 98 % of cases, from 30 to 1,000,000 others among 10^4 to 10^7 pairs.
//!
//! A key whose lower end is less than half of its estimate does not stand out from the noise,
//! and is not listed. Among many such keys some have large estimates by chance.

use crate::figure::{Number, Z95};
use crate::measurement::cardinality::estimate::{
    self as cardinality, CEILING, EstimateError, Estimator, most_likely_rate,
};
use flowgauge_core::spread::{Candidate, MAX_ROWS, SpreadSketch};
use flowgauge_core::{FlowKey, Grid};

/// Maximum number of estimated keys, those with the largest minima of registers.
const MAX_ESTIMATED: usize = 256;
/// Number of consecutive keys that do not stand out from the noise, after which no more are
/// estimated.
const MAX_UNLISTED: usize = 16;
/// Minimum of the lower end of a listed key, as a share of its estimate.
const LEAST_SHARE: f64 = 0.5;
/// Probability that a key with more than the rest is not listed.
const MISSED: f64 = 0.05;
/// Levels of registers and of candidates, from 0 on.
const LEVELS: usize = 32;
/// Smallest estimate above zero.
const LEAST: f64 = 0.1;
/// Ratio of successive intervals of the golden section.
const GOLDEN: f64 = 0.618_033_988_749_895;
/// Steps of the golden section and of the bisection: from a factor of 4, and of 2, to about 0.2 %.
const STEPS: u32 = 14;
const HALVINGS: u32 = 8;
/// Largest standard deviation of the logarithm of a rate: that of a row without noise.
const MAX_DEVIATION: f64 = 3.0;
/// Precision of the noise's rates, relative.
const TOLERANCE: f64 = 1e-3;

/// Nodes of the normal distribution with their probabilities: Gauss-Hermite quadrature of order 3.
const NODES: [(f64, f64); 3] =
    [(-1.732_050_807_568_877, 1.0 / 6.0), (0.0, 2.0 / 3.0), (1.732_050_807_568_877, 1.0 / 6.0)];

/// Key with its number of distinct others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spreader {
    /// Key; [`KeyText`](crate::flow::KeyText) formats it.
    pub key: FlowKey,
    /// Distinct others, with the 95 % interval.
    pub others: Number,
}

/// Keys with the most distinct others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Top {
    /// Keys, the one with the most others first; for equal numbers the lower key first.
    pub keys: Vec<Spreader>,
    /// Number that no other key exceeds, with a probability of 95 %.
    pub rest: f64,
}

impl Top {
    /// Returns the number that no key but the first `shown` exceeds.
    #[must_use]
    pub fn rest_beyond(&self, shown: usize) -> f64 {
        self.keys.iter().skip(shown).map(|key| key.others.high).fold(self.rest, f64::max)
    }
}

/// Candidate with the columns of its cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedKey {
    key: FlowKey,
    columns: [usize; MAX_ROWS],
}

impl PlacedKey {
    pub(crate) fn of(candidate: &Candidate, shape: Grid) -> Self {
        let columns = std::array::from_fn(|row| candidate.column(row, shape));
        PlacedKey { key: *candidate.key(), columns }
    }

    /// Returns the registers of its cells, by row.
    fn cells<'a>(&self, sketch: &SpreadSketch<'a>) -> Vec<&'a [u8]> {
        let rows = self.columns.iter().take(sketch.settings().shape.rows()).enumerate();
        rows.map(|(row, column)| sketch.registers(row, *column)).collect()
    }

    /// Returns the minimum of each register over its cells.
    fn minimum(&self, sketch: &SpreadSketch<'_>) -> Vec<u8> {
        let mut minimum = vec![u8::MAX; sketch.settings().registers.registers()];
        for cell in self.cells(sketch) {
            for (least, level) in minimum.iter_mut().zip(cell) {
                *least = (*least).min(*level);
            }
        }
        minimum
    }
}

/// Returns the level of each cell's candidate, row by row; 0 if it has none.
pub(crate) fn levels(sketch: &SpreadSketch<'_>) -> Vec<u8> {
    let shape = sketch.settings().shape;
    let cells =
        (0..shape.rows()).flat_map(|row| (0..shape.columns()).map(move |column| (row, column)));
    let level = |(row, column)| sketch.candidate(row, column).map_or(0, Candidate::level);
    cells.map(level).collect()
}

/// Estimates the others of a sketch's candidates. `packets` is the number of packets that were
/// counted, which no number of others exceeds.
///
/// # Errors
/// [`EstimateError::Level`] for a register that no traffic can produce.
pub fn estimate(sketch: &SpreadSketch<'_>, packets: u64) -> Result<Top, EstimateError> {
    let shape = sketch.settings().shape;
    let candidates = sketch.candidates().map(|candidate| PlacedKey::of(candidate, shape));
    top(sketch, candidates.collect(), &levels(sketch), packets)
}

/// Estimates the others of candidates. `levels` are those of the cells' candidates, row by row;
/// `packets` is the number of packets that were counted, which no number of others exceeds.
///
/// # Errors
/// [`EstimateError::Level`] for a register that no traffic can produce.
pub(crate) fn top(
    sketch: &SpreadSketch<'_>,
    candidates: Vec<PlacedKey>,
    levels: &[u8],
    packets: u64,
) -> Result<Top, EstimateError> {
    let shape = sketch.settings().shape;
    // The noise is alike in all cells: a key with larger registers has more others.
    let sum = |level: &u8| 0.5_f64.powi(i32::from(*level));
    let screened = candidates.into_iter();
    let screened =
        screened.map(|placed| (placed.minimum(sketch).iter().map(sum).sum::<f64>(), placed));
    let mut screened: Vec<(f64, PlacedKey)> = screened.collect();
    screened.sort_by(|(one, first), (other, second)| {
        one.total_cmp(other).then_with(|| first.key.cmp(&second.key))
    });
    let pairs = all_pairs(sketch)?;
    let mut rest = bound_of_missed(levels, shape.columns(), pairs);
    let (mut keys, mut unlisted) = (Vec::new(), 0);
    for (index, (_, placed)) in screened.iter().enumerate() {
        // It contains the noise.
        let largest = cardinality::estimate(&placed.minimum(sketch), Estimator::Ertl)?;
        if index == MAX_ESTIMATED || unlisted == MAX_UNLISTED {
            rest = rest.max(largest.high);
            break;
        }
        let last = sketch.settings().registers.max_level();
        let likelihood = Likelihood::new(&placed.cells(sketch), last)?;
        let others = likelihood.estimate(largest.value, packets as f64);
        if others.value > 0.0 && others.low >= LEAST_SHARE * others.value {
            keys.push(Spreader { key: placed.key, others });
            unlisted = 0;
        } else {
            rest = rest.max(others.high);
            unlisted += 1;
        }
    }
    keys.sort_by(|one, other| {
        other.others.value.total_cmp(&one.others.value).then_with(|| one.key.cmp(&other.key))
    });
    Ok(Top { keys, rest: rest.min(packets as f64) })
}

/// Returns the number of all pairs, at the upper end of its interval. A row has each pair once.
fn all_pairs(sketch: &SpreadSketch<'_>) -> Result<f64, EstimateError> {
    let settings = sketch.settings();
    let mut union = vec![0_u8; settings.registers.registers()];
    for column in 0..settings.shape.columns() {
        for (greatest, level) in union.iter_mut().zip(sketch.registers(0, column)) {
            *greatest = (*greatest).max(*level);
        }
    }
    Ok(cardinality::estimate(&union, Estimator::Ertl)?.high)
}

/// Returns the number of others that no key exceeds without being a candidate, with a probability
/// of 95 %.
///
/// A key with n others has a level of at most k with the probability exp(-n 2^-k). It is no
/// candidate if each of its cells has at least its level. At most `pairs / n` keys have n others.
fn bound_of_missed(levels: &[u8], columns: usize, pairs: f64) -> f64 {
    // Probability that all cells of a key have at least this level.
    let mut reached = [1.0; LEVELS];
    for row in levels.chunks(columns.max(1)) {
        for (level, reached) in reached.iter_mut().enumerate() {
            let cells = row.iter().filter(|of_cell| usize::from(**of_cell) >= level).count();
            *reached *= cells as f64 / row.len() as f64;
        }
    }
    let missed = |others: f64| {
        let (mut sum, mut below) = (0.0, 0.0);
        for (level, reached) in reached.iter().enumerate().skip(1) {
            let is_last = level + 1 == LEVELS;
            let at_most = if is_last { 1.0 } else { (-others * 0.5_f64.powi(level as i32)).exp() };
            sum += (at_most - below) * reached;
            below = at_most;
        }
        sum
    };
    let (mut bound, mut others) = (0.0, 1.0_f64);
    while others <= pairs && pairs / others * missed(others) > MISSED {
        bound = others;
        others *= 1.1;
    }
    if bound > 0.0 { others.min(pairs) } else { 0.0 }
}

/// Registers of one row that show its noise.
#[derive(Clone, Copy)]
struct RowNoise {
    /// Registers with noise of each level.
    counts: [f64; LEVELS],
    /// Sum of 2^-k over all registers below the last level whose noise is k or at most k.
    below: f64,
}

impl RowNoise {
    /// Returns the most likely rate, pairs per register, and the variance of its logarithm.
    fn rate(&self, last: u8) -> (f64, f64) {
        let q = last - 1;
        let count = |level: u8| self.counts.get(usize::from(level)).copied().unwrap_or(0.0);
        // If all registers are at the last level nothing limits the rate.
        let rate =
            most_likely_rate(last, count, self.below, TOLERANCE).min(2_f64.powi(last.into()));
        // Fisher information about the logarithm, as observed.
        let curvature = |level: u8| {
            let x = rate * 0.5_f64.powi(level.min(q).into());
            let full = -(-x).exp_m1();
            count(level) * (x * (-x).exp() / full) * (x / full - 1.0)
        };
        let occupied = (1..=last).filter(|level| count(*level) > 0.0);
        let information = rate * self.below + occupied.map(curvature).sum::<f64>();
        (rate, (1.0 / information).min(MAX_DEVIATION * MAX_DEVIATION))
    }
}

/// Likelihood of a key's number of others.
struct Likelihood {
    /// Levels of the minimum, with the number of registers at each.
    minimum: Vec<(usize, f64)>,
    registers: f64,
    last: usize,
    /// Distribution functions of the noise, for each of [`NODES`].
    noise: [[f64; LEVELS]; NODES.len()],
}

impl Likelihood {
    /// Creates the likelihood from the registers of a key's cells, up to level `last`.
    fn new(cells: &[&[u8]], last: u8) -> Result<Self, EstimateError> {
        let registers = cells.first().map_or(0, |cell| cell.len());
        let mut counts = [0.0; LEVELS];
        let mut rows = vec![RowNoise { counts, below: 0.0 }; cells.len()];
        for register in 0..registers {
            let levels = || cells.iter().map(move |cell| cell.get(register).copied().unwrap_or(0));
            let (mut least, mut second, mut row_of_least) = (u8::MAX, u8::MAX, 0);
            for (row, level) in levels().enumerate() {
                if level > last {
                    return Err(EstimateError::Level { register, level, max: last });
                }
                if level < least {
                    (second, least, row_of_least) = (least, level, row);
                } else {
                    second = second.min(level);
                }
            }
            counts[usize::from(least)] += 1.0;
            for (row, level) in levels().enumerate() {
                let others = if row == row_of_least { second } else { least };
                let bound = level.max(others);
                if level > others {
                    rows[row].counts[usize::from(level)] += 1.0;
                }
                if bound < last {
                    rows[row].below += 0.5_f64.powi(bound.into());
                }
            }
        }
        let occupied = counts.iter().copied().enumerate().filter(|(_, count)| *count > 0.0);
        Ok(Likelihood {
            minimum: occupied.collect(),
            registers: registers as f64,
            last: usize::from(last),
            noise: noise(&rows, last),
        })
    }

    /// Returns the logarithm of the likelihood.
    fn logarithm(&self, others: f64) -> f64 {
        let own = self.own(others);
        let given = |noise: &[f64; LEVELS], probability: f64| {
            let mut sum = probability.ln();
            for &(level, count) in &self.minimum {
                let at_most = own[level] * noise[level];
                let below = if level > 0 { own[level - 1] * noise[level - 1] } else { 0.0 };
                sum += count * (at_most - below).max(f64::MIN_POSITIVE).ln();
            }
            sum
        };
        let parts: [f64; NODES.len()] =
            std::array::from_fn(|node| given(&self.noise[node], NODES[node].1));
        let most = parts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        most + parts.iter().map(|part| (part - most).exp()).sum::<f64>().ln()
    }

    /// Returns the probabilities that the key's own pairs raise a register to at most each level.
    fn own(&self, others: f64) -> [f64; LEVELS] {
        let q = self.last - 1;
        let mut own = [1.0; LEVELS];
        let mut at_most = (-others / self.registers * 0.5_f64.powi(q as i32)).exp();
        for own in own[..=q].iter_mut().rev() {
            *own = at_most;
            at_most *= at_most;
        }
        own
    }

    /// Returns the Fisher information of all registers about the logarithm of the number of others.
    fn information(&self, others: f64) -> f64 {
        let (own, noise) = (self.own(others), &self.noise[NODES.len() / 2]);
        let (mut sum, mut before, mut slope_before) = (0.0, 0.0, 0.0);
        for (level, (own, noise)) in own.iter().zip(noise).enumerate().take(self.last + 1) {
            let at_most = own * noise;
            let rate = others / self.registers * 0.5_f64.powi(level as i32);
            let slope = if level == self.last { 0.0 } else { -rate * at_most };
            let (probability, change): (f64, f64) = (at_most - before, slope - slope_before);
            if probability > f64::MIN_POSITIVE {
                sum += change * change / probability;
            }
            (before, slope_before) = (at_most, slope);
        }
        sum * self.registers
    }

    /// Returns the most likely number of others with its 95 % interval; neither exceeds `packets`.
    /// `largest` is an estimate that contains the noise.
    fn estimate(&self, largest: f64, packets: f64) -> Number {
        let value = self.most_likely((2.0 * largest).clamp(1.0, CEILING));
        let most = self.logarithm(value);
        let none = self.logarithm(0.0);
        let (value, most) = if none >= most { (0.0, none) } else { (value, most) };
        // Share of the variance that does not come from the Poisson number of others.
        let share = if value > 0.0 { 1.0 - self.information(value) / value } else { 1.0 };
        let least = most - Z95 * Z95 / 2.0 * share.max(0.0);
        let low = if none >= least { 0.0 } else { self.end(least, value, 0.5) };
        let high = self.end(least, value.max(1.0), 2.0);
        // Registers are discrete, and one collision hides an other.
        let (low, high) = ((low - 0.5).max(0.0), (high + 0.5).max(value + 1.0));
        Number { value: value.min(packets), low: low.min(packets), high: high.min(packets) }
    }

    /// Returns the number from [`LEAST`] to `upper` with the greatest likelihood. For given rates of
    /// the noise the likelihood is concave. `upper` is near for keys that stand out.
    fn most_likely(&self, upper: f64) -> f64 {
        let at = |logarithm: f64| self.logarithm(logarithm.exp());
        let (mut high, mut low, mut likelihood) = (upper, upper / 2.0, self.logarithm(upper));
        while low > LEAST {
            let next = self.logarithm(low);
            if next < likelihood {
                break;
            }
            (high, low, likelihood) = (low, low / 2.0, next);
        }
        let (mut low, mut high) = (low.ln(), (2.0 * high).ln());
        let inner =
            |low: f64, high: f64| (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
        let (mut first, mut second) = inner(low, high);
        let (mut at_first, mut at_second) = (at(first), at(second));
        for _ in 0..STEPS {
            if at_first > at_second {
                high = second;
                (second, at_second) = (first, at_first);
                (first, _) = inner(low, high);
                at_first = at(first);
            } else {
                low = first;
                (first, at_first) = (second, at_second);
                (_, second) = inner(low, high);
                at_second = at(second);
            }
        }
        f64::midpoint(low, high).exp()
    }

    /// Returns where the logarithm falls below `least`, from `value` on in steps of this factor.
    fn end(&self, least: f64, value: f64, factor: f64) -> f64 {
        let (mut inside, mut outside) = (value, value * factor);
        while self.logarithm(outside) >= least && (LEAST * LEAST..CEILING).contains(&outside) {
            (inside, outside) = (outside, outside * factor);
        }
        for _ in 0..HALVINGS {
            let middle = (inside * outside).sqrt();
            if self.logarithm(middle) >= least {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        (inside * outside).sqrt()
    }
}

/// Returns the distribution functions of the minimum of the rows' noise, for each of [`NODES`]. Its
/// upper end depends on the product of the rates, whose logarithm is the sum of theirs.
fn noise(rows: &[RowNoise], last: u8) -> [[f64; LEVELS]; NODES.len()] {
    let rates: Vec<(f64, f64)> = rows.iter().map(|row| row.rate(last)).collect();
    let deviation =
        rates.iter().map(|(_, variance)| variance).sum::<f64>().sqrt() / rates.len().max(1) as f64;
    NODES.map(|(node, _)| {
        let factor = (node * deviation).exp();
        std::array::from_fn(|level| {
            if level >= usize::from(last) {
                return 1.0;
            }
            let above =
                |(rate, _): &(f64, f64)| -(-rate * factor * 0.5_f64.powi(level as i32)).exp_m1();
            1.0 - rates.iter().map(above).product::<f64>()
        })
    })
}

#[cfg(test)]
mod tests;
