//! Percentiles of delays: raw, and corrected for the delays that were not seen.
//!
//! A delay that was seen stands for `w` delays, where `w` is the reciprocal of the probability that
//! its request was admitted and not overwritten (dissertation, §2.2.2). The sum of these weights is
//! an unbiased estimate of the number of delays in a bucket, and the sum of `w (w - 1)` is one of
//! its variance (Horvitz and Thompson 1952). A percentile certainly lies beyond a bucket if the
//! sums up to the bucket and beyond it, within their bounds, exclude its proportion. The bounds are
//! combined as Zou and Donner (2008) do. Because weights are unequal and long delays are few, they
//! are bounds of a gamma distribution, and allow for one unseen delay beyond those seen (Fay and
//! Feuer 1997). Where that one would be enough, a percentile has no upper bound.
//!
//! Several fridges are weighted by the reciprocals of their variances (§2.3.2), estimated from the
//! delays around a bucket. These weights depend on the delays seen, so the result may be biased.
//!
//! Weights assume that each insertion takes any slot with the same probability, and that nothing
//! else does. [`Miscount`] bounds the error if requests were repeated: intervals end at the bounds
//! for the fewest and for the most requests that can have taken a slot, and `crowded` marks a
//! distribution whose bounds differ too much.

use crate::figure::{Number, Z95};
use flowgauge_core::delay::histogram::{BUCKETS, Bucket, Histogram, least};
use flowgauge_core::delay::weights::{CLASS_BITS, SQUARE_BITS, WEIGHT_BITS};
use flowgauge_core::delay::{Counts, DelayKind, Settings};

/// Reported percentiles, and their names.
pub const PERCENTILES: [(f64, &str); 5] =
    [(0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99"), (0.999, "p99.9")];

/// Buckets on either side of a bucket from which the variance of a fridge is estimated.
const AROUND: usize = 32;

/// Weight of a delay whose request survived four times as many others as there are slots: `e^4`.
/// With larger weights, intervals held the truth in 87 to 95 % of trials instead of 92 to 100 %
/// (`tests::intervals_hold_the_truth`, with other slots and shares).
const CROWDED: f64 = 54.6;

/// Largest relative error of the weight that stands for a class, if the delays of a bucket are not
/// spread over the class: half of its width, in logarithms.
const CLASS_ERROR: f64 = 0.5 / (1 << CLASS_BITS) as f64;

/// Share of requests that may have lost their slots without an insertion, or kept them in spite of
/// one, from which on intervals are too narrow.
const MISCOUNTED: f64 = 1.0 / 32.0;

/// Logarithm of the weight up to which intervals hold although repeated requests are not counted:
/// the weight of the first class. Larger ones may account for requests that were not lost, or for
/// too few of those that were.
const UNKNOWN: f64 = 1.0 / (1 << CLASS_BITS) as f64;

/// Reciprocal of the precision of powers of weights, whose last bits depend on the CPU. It is far
/// below the error of a weight.
const POWER_STEPS: f64 = (1 << 24) as f64;

/// Share of delays of timestamps that may have larger weights.
const UNKNOWN_SHARE: f64 = 0.01;

/// Standard deviations of a bound of that share: 97.7 % of samples are below.
const BOUND: f64 = 2.0;

/// Percentile in nanoseconds, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentile {
    /// Estimate.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound; `None` if too few delays were seen, or if the weights of some are bounded.
    pub high: Option<f64>,
}

/// Content of a fridge.
#[derive(Clone, Copy)]
pub struct Fridge<'a> {
    /// Histogram of its delays.
    pub histogram: &'a Histogram,
    /// Share of requests that it admits, over 0 and up to 1.
    pub admitted: f64,
}

/// Requests of a table that were counted wrongly because they were repeated, per insertion.
///
/// An insertion that took no slot raises the weight of all delays without reason. A slot that was
/// taken without an insertion lost a request that no weight accounts for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Miscount {
    /// Count of both.
    Counted {
        /// Share of both.
        share: f64,
        /// Standard deviation of the share by chance.
        deviation: f64,
        /// Requests that were no insertion.
        repeated: f64,
    },
    /// No count, because the kind remembers no requests: any insertion may be a repeated one.
    Unknown {
        /// Share of delays that may have a weight beyond the first class. `None` if no interval
        /// holds.
        tolerated: Option<f64>,
    },
}

impl Miscount {
    /// Returns the share among the requests of a kind, of all labels together: they share tables.
    #[must_use]
    pub fn of(settings: &Settings, kind: DelayKind, counts: &Counts) -> Self {
        if settings.weighs() && !settings.remembers(kind) {
            // Each connection takes one slot for all of its rounds. So two that share a slot lose
            // many rounds by few insertions, and a share of the requests is a share of connections.
            let tolerated = match kind {
                DelayKind::QuicSpin => {
                    (settings.fridges() == 1 && settings.admit_log2 == 0).then_some(0.0)
                }
                _ => Some(UNKNOWN_SHARE),
            };
            return Miscount::Unknown { tolerated };
        }
        // Each slot that is taken without an insertion was taken by one before, but perhaps in an
        // earlier window.
        let (inserted, miscounted) = (counts.inserted.max(1) as f64, counts.miscounted as f64);
        let repeated = counts.admitted.saturating_sub(counts.inserted) as f64;
        Miscount::Counted {
            share: miscounted / inserted,
            deviation: miscounted.sqrt() / inserted,
            repeated: repeated / inserted,
        }
    }

    /// Returns whether intervals are too narrow, for delays of this [mean weight](mean_weight).
    /// `heavier`: returns the share of delays with a larger weight.
    ///
    /// A request certainly loses no more than the share. Nor does it lose more than the repeated
    /// requests that come to its slot before its answer: as the logarithm of a weight is the
    /// expected number of insertions into a slot, their number is its product with the repeated
    /// requests per insertion. Each keepalive takes its own slot for a short time. Where weights
    /// are small, keepalives therefore do not make a table crowded.
    fn is_crowded(&self, mean: f64, heavier: impl Fn(f64) -> f64) -> bool {
        match *self {
            Miscount::Counted { share, deviation, repeated } => {
                let certain = share - BOUND * deviation;
                certain > MISCOUNTED && (share + repeated) * mean.ln() > MISCOUNTED
            }
            Miscount::Unknown { tolerated } => {
                tolerated.is_none_or(|tolerated| heavier(UNKNOWN.exp()) > tolerated)
            }
        }
    }

    /// Returns the minimum and the maximum of requests that can have taken slots, per insertion,
    /// for delays of this mean weight.
    fn bounds(&self, mean: f64) -> [f64; 2] {
        // As many insertions more as would lose a share of the requests.
        let losing = |share: f64| share / mean.ln().max(CLASS_ERROR);
        match *self {
            Miscount::Counted { share, deviation, repeated } => {
                let most = share + BOUND * deviation;
                [(1.0 - most).max(0.0), 1.0 + losing(most).min(repeated)]
            }
            Miscount::Unknown { .. } => [0.0, 1.0 + losing(MISCOUNTED)],
        }
    }
}

/// Distribution of the delays of answers.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayDistribution {
    /// Number of delays seen.
    pub samples: u64,
    /// Number of them whose weight is bounded, and therefore too small.
    pub beyond: u64,
    /// Whether the bounds are too narrow: some weights are so large that most requests are
    /// overwritten long before such answers arrive, or requests are [repeated](Self::repeated).
    pub crowded: bool,
    /// Whether too many insertions were [miscounted](Miscount) for the weights to hold, because
    /// requests were repeated. False for kinds that remember no requests.
    pub repeated: bool,
    /// Upper bound of the delays seen, in nanoseconds.
    pub longest: f64,
    /// Maximum error of a delay, in either direction, if the steps of the clock are longer than a
    /// tick, in nanoseconds; else zero.
    pub step_ns: f64,
    /// Maximum error of a delay, in either direction, because packets were timestamped late, in
    /// nanoseconds.
    pub gap_ns: f64,
    /// Percentiles of the delays seen, in nanoseconds.
    pub raw: [f64; PERCENTILES.len()],
    /// Estimated number of delays, seen or not.
    pub answered: Number,
    /// Percentiles of all delays, seen or not.
    pub corrected: [Percentile; PERCENTILES.len()],
}

impl DelayDistribution {
    /// Returns the percentiles of the delays seen, with the error of their times.
    pub(super) fn seen(&self) -> [Percentile; PERCENTILES.len()] {
        let error = self.step_ns + self.gap_ns;
        self.raw.map(|value| Percentile { value, low: value, high: Some(value) }.loosened(error))
    }
}

/// Estimated number of delays in each bucket, and its variance.
struct BucketEstimate {
    delays: Vec<f64>,
    variances: Vec<f64>,
}

/// Estimates the distribution of delays; `None` if no delay was seen. `tick_ns`: nanoseconds per
/// tick; `clock_ns`: nanoseconds per step of the clock; `gap_ns`: nanoseconds by which times may be
/// late.
#[must_use]
pub fn estimate(
    fridges: &[Fridge<'_>],
    miscount: Miscount,
    tick_ns: f64,
    clock_ns: f64,
    gap_ns: f64,
) -> Option<DelayDistribution> {
    let step_ns = if clock_ns > tick_ns { clock_ns } else { 0.0 };
    let all = || fridges.iter().flat_map(|fridge| fridge.histogram.buckets());
    let samples: u64 = all().map(|bucket| u64::from(bucket.samples)).sum();
    if samples == 0 {
        return None;
    }
    let mut seen = vec![0.0; BUCKETS];
    for fridge in fridges {
        seen.iter_mut()
            .zip(fridge.histogram.buckets())
            .for_each(|(sum, bucket)| *sum += f64::from(bucket.samples));
    }
    let estimated = counted(fridges, 1.0);
    let mean = fridges.iter().map(mean_weight).fold(1.0, f64::max);
    let miscounts = miscount.bounds(mean).into_iter().filter(|insertions| *insertions != 1.0);
    let bounds: Vec<_> = miscounts.clone().map(|insertions| counted(fridges, insertions)).collect();
    let estimates = || [&estimated].into_iter().chain(&bounds);
    // Of all delays together, so that the number and its bounds depend on weights and not on times,
    // which differ from one machine that sees a packet to the next.
    let [low, high] = [1.0]
        .into_iter()
        .chain(miscounts.clone())
        .map(|insertions| {
            let answers = estimated.total().scaled(power(mean, insertions - 1.0));
            let [low, high] = answers.bounds(answers.heaviest);
            [low - CLASS_ERROR * answers.number, high + CLASS_ERROR * answers.number]
        })
        .fold([f64::INFINITY, 0.0], |[least, most], [low, high]| [least.min(low), most.max(high)]);
    let answered = Number { value: estimated.total().number, low: low.max(samples as f64), high };
    let heavier = |weight: f64| {
        let buckets = all().filter(|bucket| bucket.samples > 0 && heaviness(bucket) > weight);
        buckets.map(|bucket| u64::from(bucket.samples)).sum::<u64>() as f64 / samples as f64
    };
    let is_miscounted = miscount.is_crowded(mean, heavier);
    let beyond: u64 = all().map(|bucket| u64::from(bucket.beyond)).sum();
    // Delays with a bounded weight stand for an unknown number of others that are as long, so
    // percentiles, and the number of all delays, may be higher.
    let bounded = |percentile: Percentile| {
        if beyond > 0 { Percentile { high: None, ..percentile } } else { percentile }
    };
    let raw = PERCENTILES.map(|(share, _)| {
        quantile(&seen, share).map_or(0.0, |at| nearest(at.middle * tick_ns, step_ns))
    });
    Some(DelayDistribution {
        samples,
        beyond,
        repeated: is_miscounted && matches!(miscount, Miscount::Counted { .. }),
        crowded: beyond > 0 || is_miscounted || heavier(CROWDED) > 0.0,
        longest: seen
            .iter()
            .rposition(|delays| *delays > 0.0)
            .map_or(0.0, |last| f64::from(least(last + 1)) * tick_ns),
        step_ns,
        gap_ns,
        raw,
        answered,
        corrected: PERCENTILES.map(|(share, _)| {
            let all = estimates().map(|estimate| percentile(estimate, share, tick_ns));
            let widest = all.reduce(Percentile::or).unwrap_or(Percentile::UNKNOWN);
            bounded(widest.widened(step_ns).loosened(gap_ns))
        }),
    })
}

/// Returns the times in nanoseconds within which these shares of all delays lie; `None` if no delay
/// was seen. `tick_ns`: nanoseconds per tick.
#[must_use]
pub fn quantiles(fridges: &[Fridge<'_>], shares: &[f64], tick_ns: f64) -> Option<Vec<f64>> {
    let counted = counted(fridges, 1.0);
    shares
        .iter()
        .map(|share| quantile(&counted.delays, *share).map(|at| at.middle * tick_ns))
        .collect()
}

/// Estimates the delays in each bucket from all fridges, if there were `insertions` times as many
/// insertions as were counted.
fn counted(fridges: &[Fridge<'_>], insertions: f64) -> BucketEstimate {
    // Mean weight of the delays around each bucket, by fridge; `None` where no delay was seen.
    let weights: Vec<Vec<Option<f64>>> = match fridges {
        [_] => Vec::new(),
        _ => fridges
            .iter()
            .map(|fridge| around(fridge.histogram.buckets(), fridge.admitted))
            .collect(),
    };
    let (mut delays, mut variances) = (vec![0.0; BUCKETS], vec![0.0; BUCKETS]);
    for index in 0..BUCKETS {
        let precision = |number: usize| match weights.get(number) {
            None => 1.0,
            Some(weights) => {
                weights.get(index).copied().flatten().map_or(0.0, |weight| 1.0 / weight)
            }
        };
        let sum: f64 = (0..fridges.len()).map(precision).sum();
        for (number, fridge) in fridges.iter().enumerate() {
            let Some(bucket) =
                fridge.histogram.buckets().get(index).filter(|bucket| bucket.samples > 0)
            else {
                continue;
            };
            let share = precision(number) / sum;
            let (number, squares) = weigh(bucket, fridge.admitted);
            // The logarithm of a weight is proportional to the insertions.
            let factor = power(heaviness(bucket), insertions - 1.0);
            let (number, squares) = (number * factor, squares * factor * factor);
            delays[index] += share * number;
            variances[index] += share * share * (squares - number).max(0.0);
        }
    }
    BucketEstimate { delays, variances }
}

/// Returns the mean weight of a fridge's delays among admitted requests, in which a delay counts by
/// its weight. Its logarithm is at least that mean of the logarithms (Jensen).
fn mean_weight(fridge: &Fridge<'_>) -> f64 {
    let all = |part: fn(&Bucket) -> u64, bits: u32| {
        let sum: u128 =
            fridge.histogram.buckets().iter().map(|bucket| u128::from(part(bucket))).sum();
        sum as f64 / f64::from(1_u32 << bits)
    };
    let squares = all(|bucket| bucket.squares, SQUARE_BITS);
    squares / all(|bucket| bucket.weight, WEIGHT_BITS).max(1.0)
}

/// Returns a power of a weight, with as many bits as it has on any CPU.
fn power(weight: f64, exponent: f64) -> f64 {
    (weight.powf(exponent) * POWER_STEPS).round() / POWER_STEPS
}

/// Returns the mean weight of a bucket's delays, among admitted requests.
fn heaviness(bucket: &Bucket) -> f64 {
    bucket.weight as f64 / f64::from(1_u32 << WEIGHT_BITS) / f64::from(bucket.samples)
}

/// Returns the sum of a bucket's weights, and the sum of their squares.
fn weigh(bucket: &Bucket, admitted: f64) -> (f64, f64) {
    let weight = bucket.weight as f64 / f64::from(1_u32 << WEIGHT_BITS) / admitted;
    let squares = bucket.squares as f64 / f64::from(1_u32 << SQUARE_BITS) / (admitted * admitted);
    (weight, squares)
}

/// Returns the mean weight of the delays around each bucket, weighted by the weights themselves;
/// `None` where no delay was seen.
fn around(buckets: &[Bucket], admitted: f64) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0.0)];
    for bucket in buckets {
        let (last, (weight, squares)) = (sums[sums.len() - 1], weigh(bucket, admitted));
        sums.push((last.0 + weight, last.1 + squares));
    }
    let mean = |index: usize| {
        let (from, to) = (index.saturating_sub(AROUND), (index + AROUND + 1).min(buckets.len()));
        let (weight, squares) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
        (weight > 0.0).then(|| squares / weight)
    };
    (0..buckets.len()).map(mean).collect()
}

/// Rounds a delay to whole steps, as all measured delays are; without steps returns it unchanged.
fn nearest(delay_ns: f64, step_ns: f64) -> f64 {
    if step_ns > 0.0 { (delay_ns / step_ns).round() * step_ns } else { delay_ns }
}

impl Percentile {
    const UNKNOWN: Percentile = Percentile { value: 0.0, low: 0.0, high: None };

    /// Widens the interval to that of another estimate.
    fn or(self, other: Percentile) -> Percentile {
        let high = self.high.zip(other.high).map(|(one, other)| one.max(other));
        Percentile { value: self.value, low: self.low.min(other.low), high }
    }

    /// Widens the interval by a step of the clock and rounds the estimate: the clock truncates both
    /// times of a delay to whole steps.
    fn widened(self, step_ns: f64) -> Percentile {
        Percentile { value: nearest(self.value, step_ns), ..self.loosened(step_ns) }
    }

    /// Widens the interval by an error of each delay: a percentile is wrong by no more.
    fn loosened(self, error_ns: f64) -> Percentile {
        let Percentile { value, low, high } = self;
        let high = high.map(|high| high + error_ns);
        Percentile { value, low: (low - error_ns).max(0.0), high }
    }
}

/// Position in a distribution, in ticks.
struct DistributionPosition {
    /// Position within the bucket, interpolated.
    middle: f64,
    /// Lower end of the bucket, less a tick.
    low: f64,
    /// Upper end of the bucket.
    high: f64,
}

/// Returns the position where a share of the delays ends; `None` without delays.
fn quantile(delays: &[f64], share: f64) -> Option<DistributionPosition> {
    let wanted = share.clamp(0.0, 1.0) * delays.iter().sum::<f64>();
    let mut before = 0.0;
    let mut last = None;
    for (bucket, &number) in delays.iter().enumerate().filter(|(_, number)| **number > 0.0) {
        let part = ((wanted - before) / number).min(1.0);
        // A difference of times in whole ticks is off by up to a tick in either direction.
        let (low, next) = (f64::from(least(bucket)), f64::from(least(bucket + 1)));
        let middle = (low - 0.5 + part * (next - low)).max(0.0);
        let at = DistributionPosition { middle, low: (low - 1.0).max(0.0), high: next };
        before += number;
        if before >= wanted {
            return Some(at);
        }
        last = Some(at);
    }
    last
}

/// Returns the delay within which a share of the delays lies, with its 95 % interval.
fn percentile(counted: &BucketEstimate, share: f64, tick_ns: f64) -> Percentile {
    let Some(at) = quantile(&counted.delays, share) else {
        return Percentile::UNKNOWN;
    };
    let (mut below, mut above) = (Sum::default(), Sum::default());
    counted.sums().for_each(|sum| above.add(&sum));
    let heaviest = above.heaviest;
    // Last bucket that certainly ends before the percentile, and first that certainly ends beyond.
    let (mut last, mut first) = (None, None);
    for (bucket, sum) in counted.sums().enumerate() {
        below.add(&sum);
        above.take(&sum, counted, bucket + 1);
        // Zero at the percentile, positive before it.
        let difference = share * above.number - (1.0 - share) * below.number;
        let [above_low, above_high] =
            above.bounds(heaviest).map(|bound| share * (bound - above.number));
        let [below_low, below_high] =
            below.bounds(below.heaviest).map(|bound| (1.0 - share) * (bound - below.number));
        if difference - above_low.hypot(below_high) > 0.0 {
            last = Some(bucket);
        }
        if first.is_none() && difference + above_high.hypot(below_low) <= 0.0 {
            first = Some(bucket);
        }
    }
    // As in `quantile`, a difference in whole ticks is off by up to a tick.
    let low = last.map_or(0.0, |bucket| f64::from(least(bucket + 1)) - 1.0).min(at.low);
    let high = first.map(|bucket| f64::from(least(bucket + 1)).max(at.high) * tick_ns);
    Percentile { value: at.middle * tick_ns, low: low * tick_ns, high }
}

/// Sum of weights.
#[derive(Clone, Copy, Default)]
struct Sum {
    number: f64,
    variance: f64,
    /// Variance of `variance`.
    spread: f64,
    /// Heaviest weight, less one.
    heaviest: f64,
}

impl BucketEstimate {
    fn total(&self) -> Sum {
        Sum::new(self.delays.iter().sum(), self.variances.iter().sum())
    }

    fn sums(&self) -> impl Iterator<Item = Sum> {
        self.delays
            .iter()
            .zip(&self.variances)
            .map(|(&number, &variance)| Sum::new(number, variance))
    }
}

impl Sum {
    fn new(number: f64, variance: f64) -> Self {
        let heaviest = if number > 0.0 { variance / number } else { 0.0 };
        Sum { number, variance, spread: variance * heaviest * heaviest, heaviest }
    }

    /// Returns the sum if each weight were `factor` times as large. The variance is an upper bound
    /// if the delays come from several fridges.
    fn scaled(&self, factor: f64) -> Self {
        let growth = (factor * factor - factor).max(0.0);
        Sum::new(self.number * factor, self.variance * factor * factor + growth * self.number)
    }

    fn add(&mut self, other: &Sum) {
        self.number += other.number;
        self.variance += other.variance;
        self.spread += other.spread;
        self.heaviest = self.heaviest.max(other.heaviest);
    }

    /// Subtracts one bucket; the remaining ones begin at `from`.
    fn take(&mut self, other: &Sum, counted: &BucketEstimate, from: usize) {
        let is_last = counted.delays.iter().skip(from).all(|delays| *delays == 0.0);
        let rest = |all: f64, part: f64| if is_last { 0.0 } else { (all - part).max(0.0) };
        self.number = rest(self.number, other.number);
        self.variance = rest(self.variance, other.variance);
        self.spread = rest(self.spread, other.spread);
    }

    /// Returns the 95 % interval: gamma bounds for weighted sums of small counts (Fay and Feuer
    /// 1997). The upper bound allows for one more, unseen delay, as heavy as the heaviest.
    fn bounds(&self, heaviest: f64) -> [f64; 2] {
        // A variance estimated from few heavy weights is uncertain: deviations are those of
        // Student's t, with degrees of freedom by Satterthwaite.
        let freedom = if self.spread > 0.0 {
            2.0 * self.variance * self.variance / self.spread
        } else {
            f64::INFINITY
        };
        let deviations = Z95 + (Z95.powi(3) + Z95) / (4.0 * freedom.max(1.0));
        let (number, variance) = (self.number + heaviest, self.variance + heaviest * heaviest);
        [gamma(self.number, self.variance, -deviations), gamma(number, variance, deviations)]
    }
}

/// Returns the quantile of a gamma distribution with this mean and variance that corresponds to
/// `deviations` standard deviations of a normal distribution (Wilson and Hilferty 1931).
fn gamma(mean: f64, variance: f64, deviations: f64) -> f64 {
    if variance <= 0.0 {
        return mean;
    }
    let inverse = variance / (9.0 * mean * mean);
    mean * (1.0 - inverse + deviations * inverse.sqrt()).max(0.0).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::Zeroed;
    use flowgauge_core::delay::histogram::bucket;
    use flowgauge_core::delay::weights::{Weight, weights};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// No request is repeated.
    const NONE: Miscount = Miscount::Counted { share: 0.0, deviation: 0.0, repeated: 0.0 };

    /// Draws a delay in ticks, log-uniform over three decades: the dissertation's synthetic recipe.
    fn log_uniform(random: &mut ChaCha8Rng) -> u32 {
        (100.0 * 10_f64.powf(3.0 * random.random::<f64>())) as u32
    }

    /// Draws a delay in ticks, short for most answers and very long for some.
    fn bimodal(random: &mut ChaCha8Rng) -> u32 {
        let (mean, spread) = if random.random_ratio(4, 5) { (500, 100) } else { (40_000, 8_000) };
        mean + random.random_range(0..spread)
    }

    type Shape = fn(&mut ChaCha8Rng) -> u32;

    /// Returns the histogram of a fridge of `2^slots_log2` slots, and the true delays, in order. A
    /// request arrives each tick, and is admitted with a probability of `2^-admit_log2`. `bursty`:
    /// every other thousand requests arrives at once.
    fn fridge(
        seed: u64,
        requests: u32,
        (slots_log2, admit_log2): (u8, u32),
        shape: Shape,
        bursty: bool,
    ) -> (Box<Histogram>, Vec<u32>) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let weights: Vec<Weight> = weights(slots_log2).collect();
        let mut slots = vec![None; 1 << slots_log2];
        // Pending answers, the earliest first.
        let mut answers: BinaryHeap<(Reverse<u32>, usize, u32)> = BinaryHeap::new();
        let (mut histogram, mut truth, mut inserted) = (Histogram::boxed(), Vec::new(), 0_u32);
        for request in 0..requests {
            let now = if bursty {
                request / 2000 * 2000 + (request % 2000).saturating_sub(1000) * 2
            } else {
                request
            };
            while let Some((Reverse(due), slot, number)) =
                answers.peek().copied().filter(|(due, ..)| due.0 <= now)
            {
                answers.pop();
                if let Some((_, stamp, since)) =
                    slots[slot].take_if(|(found, ..): &mut (u32, u32, u32)| *found == number)
                {
                    let class = ((inserted - stamp) >> (slots_log2 - 6)) as usize;
                    let (weight, bucket) = (
                        weights[class.min(511)],
                        histogram.bucket_mut(bucket(due - since)).unwrap(),
                    );
                    bucket.samples += 1;
                    bucket.weight += u64::from(weight.weight);
                    bucket.squares += u64::from(weight.square);
                }
            }
            let is_admitted = random.random_ratio(1, 1 << admit_log2);
            let slot = random.random_range(0..slots.len());
            if is_admitted {
                inserted += 1;
                slots[slot] = Some((request, inserted, now));
            }
            if random.random_ratio(2, 5) {
                let delay = shape(&mut random);
                // Answers after the last request are not counted.
                if now + delay < requests {
                    truth.push(delay);
                    if is_admitted {
                        answers.push((Reverse(now + delay), slot, request));
                    }
                }
            }
        }
        truth.sort_unstable();
        (histogram, truth)
    }

    /// The nominal coverage is 95 %; the guarantee for fridges that are not crowded is 92 %. Seeds
    /// are fixed.
    #[test]
    fn intervals_hold_the_truth() {
        let trials = flowgauge_testing::extent(50, 100);
        for (shape, bursty) in
            [(log_uniform as Shape, false), (bimodal, false), (log_uniform, true)]
        {
            for (slots_log2, admit_log2) in [(8, 8), (10, 4), (10, 6)] {
                let mut held = [0_u64; PERCENTILES.len()];
                for seed in 0..trials {
                    let (histogram, truth) =
                        fridge(seed, 300_000, (slots_log2, admit_log2), shape, bursty);
                    let admitted = 1.0 / f64::from(1_u32 << admit_log2);
                    let told = estimate(
                        &[Fridge { histogram: &histogram, admitted }],
                        NONE,
                        1.0,
                        1.0,
                        0.0,
                    )
                    .unwrap();
                    for (((share, _), percentile), held) in
                        PERCENTILES.iter().zip(told.corrected).zip(&mut held)
                    {
                        let exact = f64::from(
                            truth[((share * truth.len() as f64).ceil() as usize).saturating_sub(1)],
                        );
                        *held += u64::from(
                            percentile.low <= exact
                                && percentile.high.is_none_or(|high| exact <= high),
                        );
                    }
                }
                let what = format!(
                    "2^{slots_log2} slots, 2^-{admit_log2}, bursty {bursty}: {held:?} of {trials}"
                );
                println!("{what}");
                assert!(held.iter().all(|held| held * 100 >= trials * 92), "{what}");
            }
        }
    }

    #[test]
    fn what_is_seen_whole_is_exact() {
        // Many more slots than requests: all weights are nearly one.
        let (histogram, truth) =
            fridge(1, 4000, (16, 0), |random| 100 + random.random_range(0..100), false);
        let told =
            estimate(&[Fridge { histogram: &histogram, admitted: 1.0 }], NONE, 1.0, 1.0, 0.0)
                .unwrap();
        assert!(
            (told.answered.value / truth.len() as f64 - 1.0).abs() < 0.05,
            "{:?} {}",
            told.answered,
            truth.len()
        );
        for ((share, _), (raw, corrected)) in
            PERCENTILES.iter().zip(told.raw.iter().zip(&told.corrected))
        {
            let exact =
                f64::from(truth[((share * truth.len() as f64).ceil() as usize).saturating_sub(1)]);
            assert!(
                (raw / exact - 1.0).abs() < 0.03 && (corrected.value / exact - 1.0).abs() < 0.03,
                "{raw} {corrected:?} {exact}"
            );
        }
    }

    #[test]
    fn few_delays_have_no_upper_bound() {
        let mut histogram = Histogram::boxed();
        for delay in [100, 200, 300] {
            let bucket = histogram.bucket_mut(bucket(delay)).unwrap();
            (bucket.samples, bucket.weight, bucket.squares) =
                (1, 2 << WEIGHT_BITS, 4 << SQUARE_BITS);
        }
        let told =
            estimate(&[Fridge { histogram: &histogram, admitted: 0.25 }], NONE, 64.0, 1.0, 0.0)
                .unwrap();
        assert_eq!((told.samples, told.answered.value), (3, 24.0));
        let [.., p99, p999] = told.corrected;
        assert_eq!((p99.high, p999.high), (None, None));
        assert!(told.corrected.iter().all(|it| it.low <= it.value));
        assert_eq!(
            estimate(
                &[Fridge { histogram: &Histogram::boxed(), admitted: 1.0 }],
                NONE,
                1.0,
                1.0,
                0.0
            ),
            None
        );
    }

    /// Times that are late by up to a gap move each delay by up to the gap, and so any percentile.
    #[test]
    fn intervals_hold_the_truth_although_times_are_late() {
        const GAP: u32 = 300;
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let (mut histogram, mut truth) = (Histogram::boxed(), Vec::new());
        for _ in 0..20_000 {
            let delay = GAP + log_uniform(&mut random);
            let late = |random: &mut ChaCha8Rng| random.random_range(0..=GAP);
            let seen = delay + late(&mut random) - late(&mut random);
            let bucket = histogram.bucket_mut(bucket(seen)).unwrap();
            (bucket.samples, bucket.weight, bucket.squares) = (
                bucket.samples + 1,
                bucket.weight + (1 << WEIGHT_BITS),
                bucket.squares + (1 << SQUARE_BITS),
            );
            truth.push(delay);
        }
        truth.sort_unstable();
        let of_gap = |gap| {
            let fridge = Fridge { histogram: &histogram, admitted: 1.0 };
            estimate(&[fridge], NONE, 1.0, 1.0, gap).unwrap()
        };
        let (none, told) = (of_gap(0.0), of_gap(f64::from(GAP)));
        for (((share, name), before), it) in
            PERCENTILES.iter().zip(none.corrected).zip(told.corrected)
        {
            let exact = f64::from(truth[(share * truth.len() as f64) as usize]);
            assert!(it.low <= exact && it.high.is_none_or(|high| exact <= high), "{name}: {it:?}");
            assert_eq!((it.value, it.low), (before.value, (before.low - 300.0).max(0.0)));
            assert_eq!(it.high, before.high.map(|high| high + 300.0));
        }
    }
}
