//! How long packets are: how many there are of each length, and how many bytes those have.
//!
//! A length is that of the network header, which includes it. Lengths below 128 have a bucket each.
//! From there on, each doubling is cut into 64 buckets of equal width, as in HdrHistogram, so that
//! no bucket is wider than 1/64 of its least length. A bucket counts its packets and what they are
//! longer than its least length, from which follow their bytes. Packets whose header has no length
//! are in bucket 0.

use crate::arrival::Packets;
use crate::key::KeyKind;
use crate::measurement::{Empty, Measurement, OnOff, Parts, Pass, Used};
use crate::observation::Observation;
use crate::observation::Observed;

/// Buckets in use.
pub const BUCKETS: usize = 704;
/// The longest length that is told apart, which is that of IPv4. What is longer (IPv6, by at most
/// 40 bytes) counts as this.
pub const MAX_LENGTH: u32 = 65_535;

/// A power of two, so that a mask keeps what is out of bounds in them.
const ROOM: usize = 1024;
/// Doublings begin to be cut above `2^LINEAR_BITS`.
const LINEAR_BITS: u32 = 7;

/// There is nothing to choose.
pub type Settings = OnOff;

/// The bucket of a length; the last one if it is longer than [`MAX_LENGTH`].
#[inline(always)]
#[must_use]
pub const fn bucket(length: u32) -> usize {
    let length = if length > MAX_LENGTH { MAX_LENGTH } else { length };
    let shift = shift(length);
    ((shift << (LINEAR_BITS - 1)) + (length >> shift)) as usize
}

/// Bits by which the buckets around a length are wide.
#[inline(always)]
const fn shift(length: u32) -> u32 {
    let bits = u32::BITS - length.leading_zeros();
    bits.saturating_sub(LINEAR_BITS)
}

/// The least length of a bucket.
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

/// The greatest length of a bucket.
#[must_use]
pub const fn greatest(bucket: usize) -> u32 {
    least(bucket + 1) - 1
}

/// What is counted of the packets of one bucket. Counters stop at their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Bucket {
    /// Packets.
    pub packets: u32,
    /// By how many bytes all of them together are longer than the bucket's least length.
    pub excess: u32,
}

impl Empty for Bucket {
    const EMPTY: Self = Bucket { packets: 0, excess: 0 };
}

/// A core's counts.
#[derive(Clone, PartialEq, Eq)]
#[repr(C)]
pub struct Sizes {
    buckets: [Bucket; ROOM],
}

impl Default for Sizes {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Sizes {
    /// Counts so many packets of one length.
    #[inline(always)]
    pub fn update(&mut self, length: u32, packets: u32) {
        let length = if length > MAX_LENGTH { MAX_LENGTH } else { length };
        let beyond = length & ((1_u32 << shift(length)) - 1);
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let bucket = &mut self.buckets[bucket(length) & (ROOM - 1)];
        bucket.packets = bucket.packets.saturating_add(packets);
        bucket.excess = bucket.excess.saturating_add(beyond.saturating_mul(packets));
    }

    /// The buckets in use.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        self.buckets.get(..BUCKETS).unwrap_or(&self.buckets)
    }
}

impl Empty for Sizes {
    const EMPTY: Self = Sizes { buckets: [Bucket::EMPTY; ROOM] };
}

/// What cores, places and windows have counted together.
#[derive(Clone, PartialEq, Eq)]
pub struct WideSizes {
    /// Packets by bucket.
    pub packets: [u64; BUCKETS],
    /// As [`Bucket::excess`].
    pub excess: [u64; BUCKETS],
    /// Counters, of all buckets and of whoever counts, that are full and so count no more.
    pub full: u64,
}

impl Empty for WideSizes {
    const EMPTY: Self = WideSizes { packets: [0; BUCKETS], excess: [0; BUCKETS], full: 0 };
}

impl WideSizes {
    /// Adds a bucket that somebody has counted in.
    pub fn add(&mut self, index: usize, bucket: Bucket) {
        if let (Some(packets), Some(excess)) =
            (self.packets.get_mut(index), self.excess.get_mut(index))
        {
            *packets += u64::from(bucket.packets);
            *excess += u64::from(bucket.excess);
            let full = u64::from(bucket.packets == u32::MAX) + u64::from(bucket.excess == u32::MAX);
            self.full += full;
        }
    }
}

/// Packets by length, each on its own.
pub struct ExactSizes {
    /// By length, up to [`MAX_LENGTH`].
    pub packets: [u64; MAX_LENGTH as usize + 1],
}

impl Empty for ExactSizes {
    const EMPTY: Self = ExactSizes { packets: [0; MAX_LENGTH as usize + 1] };
}

impl ExactSizes {
    /// Counts so many packets of one length.
    pub fn add(&mut self, length: u32, packets: u32) {
        if let Some(counted) = self.packets.get_mut(length.min(MAX_LENGTH) as usize) {
            *counted += u64::from(packets);
        }
    }
}

impl Measurement for Sizes {
    const NAME: &'static str = "sizes";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::OFF;
    type Own = Sizes;
    type Lasting = ();
    type Shared = ();
    type SharedLasting = ();
    type Sum = WideSizes;
    type Exact = ExactSizes;

    fn key(_: &Settings, _: usize) -> Option<KeyKind> {
        None
    }

    #[inline(always)]
    fn uses(_: &Settings, _: KeyKind) -> bool {
        false
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.on
    }

    #[inline(always)]
    fn used(settings: &Settings) -> Used {
        Used { own: if settings.on { size_of::<Sizes>() } else { 0 }, ..Used::default() }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        _: &Settings,
        parts: Parts<'_, Self>,
        _: &Pass<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        for packet in packets.each() {
            let (full, last) = packet.lengths();
            parts.own.update(last, 1);
            let others = packet.number() - 1;
            if others > 0 {
                parts.own.update(full, others);
            }
        }
    }

    fn clear(own: &mut Sizes, settings: &Settings) {
        if settings.on {
            own.buckets.fill(Bucket::EMPTY);
        }
    }

    fn clear_sum(sum: &mut WideSizes, settings: &Settings) {
        if settings.on {
            *sum = WideSizes::EMPTY;
        }
    }

    fn merge(sum: &mut WideSizes, own: &Sizes, settings: &Settings) {
        if settings.on {
            own.buckets().iter().enumerate().for_each(|(index, bucket)| sum.add(index, *bucket));
        }
    }

    fn unite(sum: &mut WideSizes, other: &WideSizes, settings: &Settings) {
        if settings.on {
            let add = |(mine, theirs): (&mut u64, &u64)| *mine += theirs;
            sum.packets.iter_mut().zip(&other.packets).for_each(add);
            sum.excess.iter_mut().zip(&other.excess).for_each(add);
            sum.full += other.full;
        }
    }

    fn has_exact(settings: &Settings) -> bool {
        settings.on
    }

    fn measure_exactly(exact: &mut ExactSizes, packet: &Observation) {
        let (_, length) = packet.lengths();
        exact.add(length, 1);
    }

    fn tell(sum: &WideSizes, settings: &Settings, told: &mut dyn FnMut(&'static str, &[u64])) {
        if settings.on {
            told("packets", &sum.packets);
            told("excess", &sum.excess);
        }
    }
}
