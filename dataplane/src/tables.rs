//! The match tables that a controller computes and a dataplane holds.

use flowgauge_core::cardinality::{RankEntry, rank_table};
use flowgauge_core::{HashIdentity, Precision, Settings, Tabulation};

/// Match tables, computed once from settings and seed.
///
/// Switches need every entry; software backends compute ranks themselves but check what they are given, so that wrong tables
/// fail everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    /// Identity of the hash that the tables make.
    pub hash: HashIdentity,
    /// Words of the four tabulation tables.
    pub tabulation: Tabulation,
    /// Longest-prefix-match entries from rank bits to level.
    pub rank: Vec<RankEntry>,
}

impl Tables {
    /// The tables for these settings and this seed.
    #[must_use]
    pub fn new(settings: &Settings, seed: u64) -> Self {
        Tables {
            hash: HashIdentity::new(settings.cardinality.hash, seed),
            tabulation: Tabulation::from_seed(seed),
            rank: rank_table(settings.cardinality.precision).collect(),
        }
    }

    /// Checks that the rank table gives every hash the level that `precision` asks for.
    ///
    /// # Errors
    /// A description of the first entry that differs.
    pub fn check_rank(&self, precision: Precision) -> Result<(), String> {
        let expected: Vec<RankEntry> = rank_table(precision).collect();
        if self.rank.len() != expected.len() {
            let (given, wanted) = (self.rank.len(), expected.len());
            return Err(format!("{given} entries given, {wanted} needed for {} registers", precision.registers()));
        }
        match self.rank.iter().zip(&expected).find(|(given, wanted)| given != wanted) {
            Some((given, wanted)) => Err(format!("entry {given:?} given, {wanted:?} needed")),
            None => Ok(()),
        }
    }
}
