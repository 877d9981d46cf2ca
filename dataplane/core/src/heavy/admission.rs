//! Whether a newcomer replaces the smallest count.

use crate::hash::Crc32;

/// The coin of a packet: the CRC of its signature and of the number of packets so far, itself
/// included, in network order.
#[inline(always)]
pub(super) fn coin(signature: u32, packets: u32) -> u32 {
    Crc32::new().words([signature.to_be_bytes(), packets.to_be_bytes()]).finish()
}

/// Admission with probability w/(c + w), to 32 bits: always over a count of zero.
#[inline(always)]
pub(super) fn admits(coin: u32, count: u64, weight: u64) -> bool {
    let sum = count + weight;
    let (high, low) = (sum >> 32, sum & 0xffff_ffff);
    // The upper 64 of the 96 bits of coin * sum: below w for a share of w / sum of all coins.
    let coin = u64::from(coin);
    (coin * high + ((coin * low) >> 32)) < weight
}

/// Admission with probability 2^-j, j being the smallest with 2^j w > c: j zero bits of the coin.
/// Where packets are counted this is the largest power of two that is not above 1/(c + 1).
#[inline(always)]
pub(super) fn admits_by_power(coin: u32, count: u64, weight: u64) -> bool {
    let bits = |value: u64| 64_u32 - value.leading_zeros();
    let shift = bits(count).saturating_sub(bits(weight));
    let shift = if (weight << shift) > count { shift } else { shift + 1 };
    coin & coin_mask(shift) == 0
}

/// The coin's bits that must be zero.
#[inline(always)]
const fn coin_mask(bits: u32) -> u32 {
    if bits < 32 { (1_u32 << bits) - 1 } else { u32::MAX }
}

/// One entry: counts that equal `count` in the bits of `count_mask` are replaced where the coin has
/// zeros in the bits of `coin_mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionEntry {
    /// The smallest count, as far as it is looked at.
    pub count: u32,
    /// Its bits that are looked at.
    pub count_mask: u32,
    /// The coin's bits that must be zero.
    pub coin_mask: u32,
}

/// The 33 disjoint entries by which [`Precision`](super::Algorithm::Precision) admits a packet over
/// the smaller of two counts of packets; a miss means that it does not. For switches that cannot
/// divide. A switch that keeps counts plus one, because zero tells it of a hit, looks up the
/// smaller one less one.
pub fn admission_table() -> impl Iterator<Item = AdmissionEntry> {
    (0..=32_u32).map(|bits| AdmissionEntry {
        // Counts of so many bits: from 2^(bits - 1) to 2^bits - 1.
        count: if bits == 0 { 0 } else { 1_u32 << (bits - 1) },
        count_mask: if bits == 0 { u32::MAX } else { u32::MAX << (bits - 1) },
        coin_mask: coin_mask(bits),
    })
}
