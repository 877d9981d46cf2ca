//! The level of a hash as a longest-prefix-match table, for switches that cannot count leading
//! zeros (W-HLL thesis §3.3.3).

use super::Precision;

/// One entry: hashes whose rank bits start with `value` over `prefix_length` bits have `level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankEntry {
    /// Rank bits, right-aligned in a field of `32 - p` bits.
    pub value: u32,
    /// Bits of the prefix.
    pub prefix_length: u32,
    /// Level that the entry gives.
    pub level: u8,
}

/// The `32 - p` disjoint entries of level 1 to `32 - p`; a miss means level `33 - p`.
pub fn rank_table(precision: Precision) -> impl Iterator<Item = RankEntry> {
    let bits = precision.rank_bits();
    (1..=bits).map(move |level| RankEntry {
        value: 1_u32 << (bits - level),
        prefix_length: level,
        level: level as u8,
    })
}
