//! Decision whether a new flow replaces the smallest count.

use crate::hash::Crc32;

/// Returns the coin of a packet: the CRC, in network order, of its signature and of the number of
/// packets so far, including this one.
#[inline(always)]
pub(super) fn coin(signature: u32, packets: u32) -> u32 {
    Crc32::new().words([signature.to_be_bytes(), packets.to_be_bytes()]).finish()
}

/// Admits with probability w/(c + w), to 32 bits: always over a count of zero.
#[inline(always)]
pub(super) fn admits(coin: u32, count: u64, weight: u64) -> bool {
    let sum = count + weight;
    let (high, low) = (sum >> 32, sum & 0xffff_ffff);
    // The upper 64 of the 96 bits of coin * sum: below w for a share of w / sum of all coins.
    let coin = u64::from(coin);
    (coin * high + ((coin * low) >> 32)) < weight
}

/// Admits with probability 2^-j, j being the smallest with 2^j w > c: j zero bits of the coin. If
/// packets are counted, this is the largest power of two that is not above 1/(c + 1).
#[inline(always)]
pub(super) fn admits_by_power(coin: u32, count: u64, weight: u64) -> bool {
    let bits = |value: u64| 64_u32 - value.leading_zeros();
    let shift = bits(count).saturating_sub(bits(weight));
    let shift = if (weight << shift) > count { shift } else { shift + 1 };
    coin & coin_mask(shift) == 0
}

/// Returns a mask of the coin's bits that must be zero.
#[inline(always)]
const fn coin_mask(bits: u32) -> u32 {
    if bits < 32 { (1_u32 << bits) - 1 } else { u32::MAX }
}

/// Entry of the admission table: counts that equal `count` in the bits of `count_mask` are replaced
/// where the coin has zeros in the bits of `coin_mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionEntry {
    /// Smallest count, in the bits that are compared.
    pub count: u32,
    /// Bits of the count that are compared.
    pub count_mask: u32,
    /// Bits of the coin that must be zero.
    pub coin_mask: u32,
}

/// Returns the 33 disjoint entries by which [`Precision`](super::Algorithm::Precision) admits a
/// packet over the smaller of two counts of packets; a miss means that the packet is not admitted.
/// For switches that cannot divide. A switch that stores counts plus one, because zero indicates a
/// hit, looks up the smaller one minus one.
pub fn admission_table() -> impl Iterator<Item = AdmissionEntry> {
    (0..=32_u32).map(|bits| AdmissionEntry {
        // Counts of this number of bits: from 2^(bits - 1) to 2^bits - 1.
        count: if bits == 0 { 0 } else { 1_u32 << (bits - 1) },
        count_mask: if bits == 0 { u32::MAX } else { u32::MAX << (bits - 1) },
        coin_mask: coin_mask(bits),
    })
}
