//! The match tables that a controller computes and a dataplane holds.

use crate::error::Error;
use flowgauge_core::cardinality::{RankEntry, rank_table};
use flowgauge_core::{HashIdentity, HashMode, Precision, Settings, Tabulation};

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

    /// Checks that these tables make the hash and the levels that `settings` ask for, before `target` counts with them.
    ///
    /// # Errors
    /// [`Error::Table`] with the first thing that differs.
    pub fn check(&self, settings: &Settings, target: &str) -> Result<(), Error> {
        let misfit = |table, problem| Error::Table { target: target.to_owned(), table, problem };
        let cardinality = settings.cardinality;
        if self.hash.mode != cardinality.hash {
            let problem = format!("tables are for {}, settings for {}", self.hash.mode.name(), cardinality.hash.name());
            return Err(misfit("tabulation", problem));
        }
        // Whoever merges sketches goes by the identity, so it must be that of the hash that will be computed.
        let hash = HashIdentity::new(cardinality.hash, self.hash.seed);
        if self.hash != hash {
            return Err(misfit("tabulation", format!("tables are for {:?}, {hash:?} is computed", self.hash)));
        }
        if cardinality.hash == HashMode::Tabulated && self.tabulation != Tabulation::from_seed(hash.seed) {
            return Err(misfit("tabulation", format!("words are not those of seed {}", hash.seed)));
        }
        self.check_rank(cardinality.precision).map_err(|problem| misfit("rank", problem))
    }

    fn check_rank(&self, precision: Precision) -> Result<(), String> {
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
