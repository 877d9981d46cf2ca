//! Quantiles of packet lengths, from counts by bucket.

use flowgauge_core::sizes::{BUCKETS, ExactSizes, MAX_LENGTH, SizesTotals, greatest, least};

/// Quantiles to report, in percent.
pub const PERCENT: [u8; 6] = [5, 25, 50, 75, 95, 99];
/// Indices of the median and of the 95th percentile.
pub(super) const MEDIAN: usize = 2;
pub(super) const P95: usize = 4;

/// Quantile: the shortest length that this share of the packets, or of the bytes, does not exceed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Mean of its bucket, in bytes; exact if all packets in it have one length.
    pub value: f64,
    /// Lower bound.
    pub low: u32,
    /// Upper bound.
    pub high: u32,
}

/// Packets and bytes in a range of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthRange {
    /// Minimum length, in bytes.
    pub low: u32,
    /// Maximum length, in bytes.
    pub high: u32,
    /// Number of packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
}

/// Distribution of packet lengths.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthDistribution {
    /// Packets whose header contains the length.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets whose header contains no length.
    pub unknown: u64,
    /// Mean with its bounds; exact unless counters are full.
    pub mean: Quantile,
    /// Quantiles of packets, one for each of [`PERCENT`].
    pub by_packets: [Quantile; PERCENT.len()],
    /// Quantiles of bytes, one for each of [`PERCENT`].
    pub by_bytes: [Quantile; PERCENT.len()],
    /// Non-empty buckets.
    pub buckets: Vec<LengthRange>,
}

/// Computes the distribution of lengths; `None` if no packet has a length.
///
/// Every bucket except that of packets without a length has exact packets and bytes, so the bucket
/// of a quantile is known, and bounds it. If counters are full, the only bounds are the minimum and
/// the maximum length seen.
#[must_use]
pub fn estimate(counts: &SizesTotals) -> Option<LengthDistribution> {
    let range = |bucket: usize| {
        let packets = *counts.packets.get(bucket)?;
        let (low, high) = (least(bucket), greatest(bucket).min(MAX_LENGTH));
        // In a read that is not atomic, a packet may be counted before its length is.
        let excess =
            (*counts.excess.get(bucket)?).min(packets.saturating_mul(u64::from(high - low)));
        let bytes = packets.saturating_mul(u64::from(low)).saturating_add(excess);
        (packets > 0).then_some(LengthRange { low, high, packets, bytes })
    };
    let unknown = counts.packets.first().copied().unwrap_or(0);
    let buckets: Vec<LengthRange> = (1..BUCKETS).filter_map(range).collect();
    let (first, last) = (buckets.first()?, buckets.last()?);
    let (packets, bytes) = buckets.iter().fold((0, 0_u64), |(packets, bytes), range| {
        (packets + range.packets, bytes.saturating_add(range.bytes))
    });
    let bounded = |quantile: Quantile| match counts.full {
        0 => quantile,
        _ => Quantile { low: first.low, high: last.high, ..quantile },
    };
    let quantile = |all: u64, of: fn(&LengthRange) -> u64, percent: u8| {
        let rank = rank(all, percent);
        let mut below = 0_u64;
        let found = buckets.iter().find(|range| {
            below = below.saturating_add(of(range));
            below >= rank
        });
        let LengthRange { low, high, packets, bytes } = *found.unwrap_or(last);
        bounded(Quantile { value: bytes as f64 / packets as f64, low, high })
    };
    let mean = bytes as f64 / packets as f64;
    Some(LengthDistribution {
        packets,
        bytes,
        unknown,
        mean: bounded(Quantile { value: mean, low: mean.floor() as u32, high: mean.ceil() as u32 }),
        by_packets: PERCENT.map(|percent| quantile(packets, |range| range.packets, percent)),
        by_bytes: PERCENT.map(|percent| quantile(bytes, |range| range.bytes, percent)),
        buckets,
    })
}

/// Returns the rank of a percentile among `all` items, at least 1.
fn rank(all: u64, percent: u8) -> u64 {
    (u128::from(all) * u128::from(percent)).div_ceil(100).max(1) as u64
}

/// Exact quantiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LengthTruth {
    /// Corresponds to [`LengthDistribution::by_packets`].
    pub by_packets: [u32; PERCENT.len()],
    /// Corresponds to [`LengthDistribution::by_bytes`].
    pub by_bytes: [u32; PERCENT.len()],
}

/// Computes exact quantiles from a count for each length; `None` if no packet has a length.
#[must_use]
pub fn exact(counts: &ExactSizes) -> Option<LengthTruth> {
    let lengths =
        || counts.packets.iter().zip(0_u32..).skip(1).filter(|(packets, _)| **packets > 0);
    let all = |weight: fn(u64, u32) -> u64| {
        lengths().map(|(packets, length)| weight(*packets, length)).sum::<u64>()
    };
    let quantiles = |weight: fn(u64, u32) -> u64| {
        let all = all(weight);
        PERCENT.map(|percent| {
            let mut below = 0;
            let found = lengths().find(|(packets, length)| {
                below += weight(**packets, *length);
                below >= rank(all, percent)
            });
            found.map_or(0, |(_, length)| length)
        })
    };
    lengths().next()?;
    let bytes = |packets, length| packets * u64::from(length);
    Some(LengthTruth { by_packets: quantiles(|packets, _| packets), by_bytes: quantiles(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::Zeroed;
    use flowgauge_core::sizes::{Bucket, bucket};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Counts the same lengths by bucket and one by one.
    fn counted(lengths: impl Iterator<Item = u32>) -> (Box<SizesTotals>, Box<ExactSizes>) {
        let (mut wide, mut exact) = (SizesTotals::boxed(), ExactSizes::boxed());
        for length in lengths {
            let index = bucket(length);
            wide.add(index, Bucket { packets: 1, excess: length - least(index) });
            exact.add(length, 1);
        }
        (wide, exact)
    }

    #[test]
    fn bounds_hold_every_quantile_and_are_within_two_percent() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for round in 0..200 {
            let number = random.random_range(1..2000);
            let modes: Vec<u32> = (0..random.random_range(1..6))
                .map(|_| random.random_range(20..=MAX_LENGTH))
                .collect();
            let spread = if round % 2 == 0 { 1 } else { 500 };
            let lengths: Vec<u32> = (0..number)
                .map(|_| {
                    (modes[random.random_range(0..modes.len())] + random.random_range(0..spread))
                        .min(MAX_LENGTH)
                })
                .collect();
            let (wide, counts) = counted(lengths.iter().copied());
            let (estimated, truth) = (estimate(&wide).unwrap(), exact(&counts).unwrap());
            assert_eq!(
                (estimated.packets, estimated.bytes),
                (number as u64, lengths.iter().map(|length| u64::from(*length)).sum())
            );
            let pairs = estimated
                .by_packets
                .iter()
                .zip(truth.by_packets)
                .chain(estimated.by_bytes.iter().zip(truth.by_bytes));
            for (quantile, truth) in pairs {
                assert!(
                    (quantile.low..=quantile.high).contains(&truth),
                    "{quantile:?}, not {truth}"
                );
                assert!(
                    f64::from(quantile.low) <= quantile.value
                        && quantile.value <= f64::from(quantile.high),
                    "{quantile:?}"
                );
                assert!(
                    (quantile.value / f64::from(truth) - 1.0).abs() <= 0.02,
                    "{quantile:?}, not {truth}"
                );
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_their_definition() {
        // Of 100 packets the 50th is the median, and the 95th bounds 95 of them.
        let (wide, counts) = counted((1..=100).map(|rank| {
            if rank <= 50 {
                40
            } else if rank <= 95 {
                100
            } else {
                1500
            }
        }));
        let estimated = estimate(&wide).unwrap();
        assert_eq!(
            estimated.by_packets.map(|quantile| quantile.value),
            [40.0, 40.0, 40.0, 100.0, 100.0, 1500.0]
        );
        // 2,000 of 14,000 bytes are in packets of 40 bytes, 4,500 in packets of 100.
        assert_eq!(
            estimated.by_bytes.map(|quantile| quantile.value),
            [40.0, 100.0, 1500.0, 1500.0, 1500.0, 1500.0]
        );
        assert_eq!(estimated.mean.value, 140.0);
        let truth = exact(&counts).unwrap();
        assert_eq!(
            (truth.by_packets, truth.by_bytes),
            ([40, 40, 40, 100, 100, 1500], [40, 100, 1500, 1500, 1500, 1500])
        );
    }

    #[test]
    fn packets_without_a_length_are_counted_separately() {
        let (wide, counts) = counted([0, 0, 0].into_iter());
        assert_eq!((estimate(&wide), exact(&counts)), (None, None));
        let (wide, _) = counted([0, 0, 60].into_iter());
        let estimated = estimate(&wide).unwrap();
        assert_eq!((estimated.packets, estimated.bytes, estimated.unknown), (1, 60, 2));
    }

    #[test]
    fn full_counters_leave_no_more_than_what_was_seen() {
        let (mut wide, _) = counted([60, 9000].into_iter());
        wide.add(bucket(1500), Bucket { packets: u32::MAX, excess: 0 });
        let estimated = estimate(&wide).unwrap();
        for quantile in
            estimated.by_packets.iter().chain(&estimated.by_bytes).chain([&estimated.mean])
        {
            assert_eq!((quantile.low, quantile.high), (60, greatest(bucket(9000))));
        }
    }
}
