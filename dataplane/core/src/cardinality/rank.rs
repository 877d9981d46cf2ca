//! Longest-prefix-match table from hash to level, for switches that cannot count leading zeros
//! (W-HLL thesis §3.3.3).

use super::Precision;

/// Entry of the table: hashes whose rank bits start with the upper `prefix_length` bits of `value`
/// have `level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankEntry {
    /// Rank bits, right-aligned in a field of `32 - p` bits.
    pub value: u32,
    /// Length of the prefix in bits.
    pub prefix_length: u32,
    /// Level of the entry.
    pub level: u8,
}

/// Returns the `32 - p` disjoint entries of levels 1 to `32 - p`; a miss means level `33 - p`.
pub fn rank_table(precision: Precision) -> impl Iterator<Item = RankEntry> {
    let bits = precision.rank_bits();
    (1..=bits).map(move |level| RankEntry {
        value: 1_u32 << (bits - level),
        prefix_length: level,
        level: level as u8,
    })
}
