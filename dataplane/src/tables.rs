//! Match tables that a controller computes and a dataplane installs.

use crate::capabilities::Capabilities;
use crate::error::Error;
use crate::hash_key::{HashKey, HashWords};
use flowgauge_core::cardinality::{RankEntry, rank_table};
use flowgauge_core::delay::prefixes::{self, MAX_PREFIXES, PrefixOwner};
use flowgauge_core::heavy::{AdmissionEntry, admission_table};
use flowgauge_core::logarithm::{self, LogarithmEntry};
use flowgauge_core::{Filter, HashIdentity, HashMode, Settings, Tabulation};
use std::sync::Arc;

/// Match tables, computed once from settings and seed.
///
/// Switches need every entry. Software backends compute ranks themselves and only check the tables,
/// so that a wrong table fails on every backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    /// Seed of the hash words.
    pub seed: u64,
    /// Secret of the hash words, for a keyed hash.
    pub key: Option<HashKey>,
    /// Identity of the register hash.
    pub hash: HashIdentity,
    /// Words of the hashes of registers and of sketch rows.
    pub tabulation: HashWords,
    /// Longest-prefix-match entries from rank bits to level.
    pub rank: Vec<RankEntry>,
    /// Longest-prefix-match entries from a flow's count to its logarithm.
    pub logarithm: Vec<LogarithmEntry>,
    /// Ternary entries from the smaller count and a random value to whether a flow becomes a heavy
    /// hitter.
    pub admission: Vec<AdmissionEntry>,
    /// Prefixes of address groups and of the local side.
    pub prefixes: Vec<PrefixOwner>,
    /// Ternary entries from header fields to whether a packet is counted; `None` counts all.
    pub filter: Option<Arc<Filter>>,
}

impl Tables {
    /// Creates the tables for these settings and this seed. A keyed hash gets a key derived from
    /// the seed, which is not secret: for tests and benchmarks.
    #[must_use]
    pub fn new(settings: &Settings, seed: u64) -> Self {
        let key = (settings.hash == HashMode::Keyed).then(|| HashKey::from_seed(seed));
        Self::with_key(settings, seed, key)
    }

    /// Creates the tables for these settings and this secret. Only a keyed hash uses the secret.
    #[must_use]
    pub fn keyed(settings: &Settings, seed: u64, key: &HashKey) -> Self {
        Self::with_key(settings, seed, (settings.hash == HashMode::Keyed).then(|| key.clone()))
    }

    fn with_key(settings: &Settings, seed: u64, key: Option<HashKey>) -> Self {
        let identity = key.as_ref().map_or(seed, HashKey::fingerprint);
        let tabulation =
            key.as_ref().map_or_else(|| Tabulation::from_seed(seed).into(), HashKey::tabulation);
        Tables {
            seed,
            hash: HashIdentity::new(settings.hash, identity),
            tabulation,
            key,
            rank: rank_table(settings.cardinality.precision).collect(),
            logarithm: logarithm::PER_PACKET.table().collect(),
            admission: admission_table().collect(),
            prefixes: Vec::new(),
            filter: None,
        }
    }

    /// Returns the tables with these prefixes.
    #[must_use]
    pub fn with_prefixes(self, prefixes: &[PrefixOwner]) -> Self {
        Tables { prefixes: prefixes.to_vec(), ..self }
    }

    /// Returns the tables with this filter.
    #[must_use]
    pub fn with_filter(self, filter: Option<Arc<Filter>>) -> Self {
        Tables { filter, ..self }
    }

    /// Returns the identity of the hash of sketch and filter rows. Rows are tabulated even where
    /// registers use the plain CRC: with a linear hash, the same flows would collide in every row.
    #[must_use]
    pub fn row_hash(&self) -> HashIdentity {
        match self.hash.mode {
            HashMode::Crc32 | HashMode::Tabulated => {
                HashIdentity::new(HashMode::Tabulated, self.seed)
            }
            HashMode::Keyed => self.hash,
        }
    }

    /// Checks that these tables produce the hash and the levels that `settings` require, and that
    /// a dataplane can filter if they have a filter, before it counts with them.
    ///
    /// # Errors
    /// [`Error::Table`] with the first difference; [`Error::Unsupported`].
    pub fn check(&self, settings: &Settings, capabilities: &Capabilities) -> Result<(), Error> {
        let target = &capabilities.interface;
        let misfit = |table, problem| Error::Table { target: target.clone(), table, problem };
        if self.filter.is_some() && !capabilities.filter {
            return Err(Error::Unsupported {
                backend: capabilities.backend,
                what: "filter packets (--match)".to_owned(),
                advice: "leave out --match, or count with --backend poll".to_owned(),
            });
        }
        if self.hash.mode != settings.hash {
            let problem = format!(
                "tables are for {}, settings for {}",
                self.hash.mode.name(),
                settings.hash.name()
            );
            return Err(misfit("tabulation", problem));
        }
        // Merging of sketches relies on the identity, so it must be that of the computed hash.
        let computed = Self::with_key(settings, self.seed, self.key.clone());
        if self.hash != computed.hash {
            let problem =
                format!("tables are for {:?}, {:?} is computed", self.hash, computed.hash);
            return Err(misfit("tabulation", problem));
        }
        if self.tabulation != computed.tabulation {
            let whose = self.key.as_ref().map_or_else(
                || format!("seed {}", self.seed),
                |key| format!("key {:016x}", key.fingerprint()),
            );
            return Err(misfit("tabulation", format!("words are not those of {whose}")));
        }
        same(&self.rank, &computed.rank).map_err(|problem| misfit("rank", problem))?;
        same(&self.logarithm, &computed.logarithm)
            .map_err(|problem| misfit("logarithm", problem))?;
        same(&self.admission, &computed.admission)
            .map_err(|problem| misfit("admission", problem))?;
        let (given, needed) = (self.prefixes.as_slice(), settings.delay.prefixes);
        if given.len() > MAX_PREFIXES {
            let problem =
                format!("{} entries given, at most {MAX_PREFIXES} are possible", given.len());
            return Err(misfit("prefixes", problem));
        }
        let fingerprint = if given.is_empty() { 0 } else { prefixes::fingerprint(given) };
        if fingerprint != needed {
            let problem = "the prefixes given are not those that settings have the fingerprint of";
            return Err(misfit("prefixes", problem.to_owned()));
        }
        Ok(())
    }
}

/// Checks that a table has exactly the required entries.
fn same<T: PartialEq + std::fmt::Debug>(given: &[T], needed: &[T]) -> Result<(), String> {
    if given.len() != needed.len() {
        return Err(format!("{} entries given, {} needed", given.len(), needed.len()));
    }
    match given.iter().zip(needed).find(|(given, needed)| given != needed) {
        Some((given, needed)) => Err(format!("entry {given:?} given, {needed:?} needed")),
        None => Ok(()),
    }
}
