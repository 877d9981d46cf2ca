//! Delays in buckets, as they were seen and as they are weighted.
//!
//! Delays below 64 ticks have a bucket each. From there on, each doubling is cut into 32 buckets of
//! equal width, as in HdrHistogram: none is wider than 1/32 of its least delay, so that its middle
//! is within 1.6 % of every delay in it.

use super::weights::Weight;
use zerocopy::FromZeros;

/// Buckets in use: delays have 31 bits.
pub const BUCKETS: usize = 864;

/// A power of two, so that a mask keeps what is out of bounds in them.
const ROOM: usize = 1024;
/// Doublings begin to be cut above `2^LINEAR_BITS`.
const LINEAR_BITS: u32 = 6;

/// The bucket of a delay in ticks, below 2^31.
#[inline(always)]
#[must_use]
pub const fn bucket(delay: u32) -> usize {
    let bits = u32::BITS - delay.leading_zeros();
    let shift = bits.saturating_sub(LINEAR_BITS);
    ((shift << (LINEAR_BITS - 1)) + (delay >> shift)) as usize
}

/// The least delay of a bucket, in ticks.
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

/// What is counted of the delays of one bucket. Nothing wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Bucket {
    /// Sum of [weights](super::weights).
    pub weight: u64,
    /// Sum of their squares.
    pub squares: u64,
    /// Delays.
    pub samples: u32,
    /// Those of them that should weigh more than any weight does.
    pub beyond: u32,
}

impl Bucket {
    /// The same delays, each of which stands for so many doublings more, at most 16.
    fn raised(self, doublings: u32) -> Bucket {
        let by = |doublings: u32| 1_u64 << doublings;
        let (weight, squares) = (
            self.weight.saturating_mul(by(doublings)),
            self.squares.saturating_mul(by(doublings * 2)),
        );
        Bucket { weight, squares, ..self }
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &Bucket) {
        self.weight = self.weight.saturating_add(other.weight);
        self.squares = self.squares.saturating_add(other.squares);
        self.samples = self.samples.saturating_add(other.samples);
        self.beyond = self.beyond.saturating_add(other.beyond);
    }
}

/// Delays of one kind, one direction and one fridge.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Histogram {
    buckets: [Bucket; ROOM],
}

impl Histogram {
    /// Those of several together.
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

    /// The buckets in use.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        self.buckets.get(..BUCKETS).unwrap_or(&self.buckets)
    }

    /// A bucket, to be filled from a device.
    pub fn bucket_mut(&mut self, index: usize) -> Option<&mut Bucket> {
        self.buckets.get_mut(index)
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &Histogram) {
        self.merge_raised(other, 0);
    }

    /// As [`merge`](Self::merge), of delays each of which stands for so many doublings more.
    pub(crate) fn merge_raised(&mut self, other: &Histogram, doublings: u32) {
        self.buckets
            .iter_mut()
            .zip(other.buckets())
            .for_each(|(mine, theirs)| mine.merge(&theirs.raised(doublings)));
    }

    /// Each delay stands for so many doublings more.
    pub(crate) fn raise(&mut self, doublings: u32) {
        if doublings > 0 {
            self.buckets.iter_mut().for_each(|bucket| *bucket = bucket.raised(doublings));
        }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.buckets.zero();
    }
}
