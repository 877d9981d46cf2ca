//! Packet lengths: number of packets and bytes by length.
//!
//! A length is the one declared by the network header, which includes that header. Lengths below
//! 128 have a bucket each. Above, each power of two is divided into 64 buckets of equal width, as
//! in HdrHistogram, so that no bucket is wider than 1/64 of its lowest length. A bucket counts its
//! packets and the bytes by which they exceed its lowest length; their total bytes follow from
//! both. Packets whose header declares no length are in bucket 0.

#[cfg(not(target_arch = "bpf"))]
mod host;

#[cfg(not(target_arch = "bpf"))]
pub use host::{ExactSizes, SizesTotals};

use crate::arrival::Packets;
use crate::bits::ilog2;
use crate::key::KeyKind;
use crate::measurement::{
    MAX_KEYS, MeasureContext, Measurement, MeasurementMemory, Toggle, UsedBytes,
};
use crate::observation::Observed;
use zerocopy::FromZeros;

/// Buckets in use.
pub const BUCKETS: usize = 704;
/// Largest length with a bucket of its own range, the maximum of IPv4. Longer packets (IPv6, by at
/// most 40 bytes) count as this length.
pub const MAX_LENGTH: u32 = 65_535;

/// Buckets in memory: a power of two, so that a mask bounds an index.
const ROOM: usize = 1024;
/// Lengths below `2^LINEAR_BITS` have a bucket each; longer ones share buckets.
const LINEAR_BITS: u32 = 7;

/// The measurement has no options beside on and off.
pub type Settings = Toggle;

/// Returns the bucket of a length; the last one for lengths above [`MAX_LENGTH`].
#[inline(always)]
#[must_use]
pub const fn bucket(length: u32) -> usize {
    let length = if length > MAX_LENGTH { MAX_LENGTH } else { length };
    let shift = shift(length);
    ((shift << (LINEAR_BITS - 1)) + (length >> shift)) as usize
}

/// Returns the width of the bucket of a length, as a power of two.
#[inline(always)]
const fn shift(length: u32) -> u32 {
    ilog2(length).saturating_sub(LINEAR_BITS - 1)
}

/// Returns the lowest length of a bucket.
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

/// Returns the highest length of a bucket.
#[must_use]
pub const fn greatest(bucket: usize) -> u32 {
    least(bucket + 1) - 1
}

/// Counters of one bucket. They saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Bucket {
    /// Packets.
    pub packets: u32,
    /// Bytes by which all its packets exceed the bucket's lowest length.
    pub excess: u32,
}

/// Per-core counters.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Sizes {
    buckets: [Bucket; ROOM],
}

impl Sizes {
    /// Counts `packets` packets of one length.
    #[inline(always)]
    pub fn update(&mut self, length: u32, packets: u32) {
        let length = if length > MAX_LENGTH { MAX_LENGTH } else { length };
        let beyond = length & ((1_u32 << shift(length)) - 1);
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let bucket = &mut self.buckets[bucket(length) & (ROOM - 1)];
        bucket.packets = bucket.packets.saturating_add(packets);
        bucket.excess = bucket.excess.saturating_add(beyond.saturating_mul(packets));
    }

    /// Returns the buckets in use.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        self.buckets.get(..BUCKETS).unwrap_or(&self.buckets)
    }
}

impl Measurement for Sizes {
    const NAME: &'static str = "sizes";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::OFF;
    type PerCore = Sizes;
    type Persistent = ();
    type Shared = ();
    type SharedPersistent = ();

    #[inline(always)]
    fn keys(_: &Settings) -> [Option<KeyKind>; MAX_KEYS] {
        [None; MAX_KEYS]
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.on
    }

    #[inline(always)]
    fn used(settings: &Settings) -> UsedBytes {
        UsedBytes { own: if settings.on { size_of::<Sizes>() } else { 0 }, ..UsedBytes::default() }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        _: &Settings,
        parts: MeasurementMemory<'_, Self>,
        _: &MeasureContext<'_>,
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
}
