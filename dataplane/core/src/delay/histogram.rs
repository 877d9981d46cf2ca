//! Histograms of delays, both as seen and weighted.
//!
//! Delays below 64 ticks have a bucket each. Above, each doubling is divided into 32 buckets of
//! equal width, as in HdrHistogram: no bucket is wider than 1/32 of its smallest delay, so that its
//! midpoint is within 1.6 % of every delay in it.

use super::weights::Weight;
use crate::bits::ilog2;
use zerocopy::FromZeros;

/// Buckets in use: delays have 31 bits.
pub const BUCKETS: usize = 864;

/// Length of the array: a power of two, so that a mask keeps an index in bounds.
const ROOM: usize = 1024;
/// Bits of the delays with a bucket each; doublings are divided from `2^LINEAR_BITS` on.
const LINEAR_BITS: u32 = 6;

/// Returns the bucket of a delay in ticks, below 2^31.
#[inline(always)]
#[must_use]
pub const fn bucket(delay: u32) -> usize {
    let shift = ilog2(delay).saturating_sub(LINEAR_BITS - 1);
    ((shift << (LINEAR_BITS - 1)) + (delay >> shift)) as usize
}

/// Returns the smallest delay of a bucket, in ticks.
#[must_use]
pub const fn least(bucket: usize) -> u32 {
    let bucket = bucket as u32;
    if bucket < 1 << LINEAR_BITS {
        return bucket;
    }
    let half = 1 << (LINEAR_BITS - 1);
    let shift = (bucket >> (LINEAR_BITS - 1)) - 1;
    (bucket & (half - 1) | half) << shift
}

/// Counts of the delays of one bucket. They saturate instead of wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Bucket {
    /// Sum of [weights](super::weights).
    pub weight: u64,
    /// Sum of the squares of the weights.
    pub squares: u64,
    /// Number of delays.
    pub samples: u32,
    /// Number of delays that should weigh more than the largest weight.
    pub beyond: u32,
}

impl Bucket {
    /// Returns the counts as if each delay represented `2^doublings` times as many; at most 16
    /// doublings.
    fn raised(self, doublings: u32) -> Bucket {
        let by = |doublings: u32| 1_u64 << doublings;
        let (weight, squares) = (
            self.weight.saturating_mul(by(doublings)),
            self.squares.saturating_mul(by(doublings * 2)),
        );
        Bucket { weight, squares, ..self }
    }

    /// Adds the counts of another bucket.
    pub fn merge(&mut self, other: &Bucket) {
        self.weight = self.weight.saturating_add(other.weight);
        self.squares = self.squares.saturating_add(other.squares);
        self.samples = self.samples.saturating_add(other.samples);
        self.beyond = self.beyond.saturating_add(other.beyond);
    }
}

/// Delays of one kind, group, direction and fridge.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Histogram {
    buckets: [Bucket; ROOM],
}

impl Histogram {
    /// Returns the sum of several histograms.
    #[must_use]
    pub fn sum<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Self {
        histograms.fold(Self::new_zeroed(), |mut sum, histogram| {
            sum.merge(histogram);
            sum
        })
    }

    /// Counts a delay in ticks, below 2^31.
    #[inline(always)]
    pub(crate) fn add(&mut self, delay: u32, weight: Weight, is_beyond: bool) {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let bucket = &mut self.buckets[bucket(delay) & (ROOM - 1)];
        bucket.weight = bucket.weight.saturating_add(u64::from(weight.weight));
        bucket.squares = bucket.squares.saturating_add(u64::from(weight.square));
        bucket.samples = bucket.samples.saturating_add(1);
        bucket.beyond = bucket.beyond.saturating_add(u32::from(is_beyond));
    }

    /// Returns the buckets in use.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        self.buckets.get(..BUCKETS).unwrap_or(&self.buckets)
    }

    /// Returns a bucket, to be filled from a device.
    pub fn bucket_mut(&mut self, index: usize) -> Option<&mut Bucket> {
        self.buckets.get_mut(index)
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.merge_raised(other, 0);
    }

    /// Adds another histogram as [`merge`](Self::merge), each of whose delays represents
    /// `2^doublings` times as many.
    pub(crate) fn merge_raised(&mut self, other: &Histogram, doublings: u32) {
        self.buckets
            .iter_mut()
            .zip(other.buckets())
            .for_each(|(mine, theirs)| mine.merge(&theirs.raised(doublings)));
    }

    /// Makes each delay represent `2^doublings` times as many.
    pub(crate) fn raise(&mut self, doublings: u32) {
        if doublings > 0 {
            self.buckets.iter_mut().for_each(|bucket| *bucket = bucket.raised(doublings));
        }
    }

    /// Clears all buckets.
    pub fn clear(&mut self) {
        self.buckets.zero();
    }
}
