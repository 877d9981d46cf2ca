//! Flow hashes: 32 bits from a flow key.
//!
//! A key first becomes a signature of 32 bits, computed once per packet and shared by all
//! measurements: the [`Crc32`] of the key, or its [`Multilinear`] hash in mode `keyed`. Simple
//! tabulation ([`Tabulation`]) then derives from the signature the hash that selects registers, and
//! the row hashes of sketches and filters.
//!
//! [`HashMode`] selects the functions:
//!
//! - `crc32` is the W-HLL thesis' hash (§3.3.2), unchanged, for comparison with its switch. It is
//!   linear, and so maps structured address plans to structured registers: sequential sources give
//!   errors of +99 % at 5,000 flows, one host per /24 gives -71 % at 2,000.
//! - `tabulated` breaks the linearity with simple tabulation of the CRC's four bytes.
//! - `keyed` is for traffic that an adversary may have chosen. The other two are public: solving
//!   linear equations finds keys of equal CRC, whatever the seed, and these count as one flow. The
//!   signature and the tables of `keyed` are derived from a secret.
//!
//! Sketches can be merged only if their [`HashIdentity`] is equal.

mod crc32;
mod multilinear;
mod tabulation;

pub(crate) use crc32::WordCrc32;
pub use crc32::{Crc32, POLYNOMIAL, crc32};
pub use multilinear::{MULTILINEAR_WORDS, Multilinear};
pub use tabulation::{BLOCKS, MAX_ROWS, ROWS_PER_BLOCK, Tabulation, row};

use crate::flow_key::FlowKey;
use zerocopy::{Immutable, IntoBytes};

/// Function that turns a flow key into 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(u8)]
pub enum HashMode {
    /// CRC32 alone (the thesis).
    Crc32 = 0,
    /// CRC32, then simple tabulation with seeded tables.
    #[default]
    Tabulated = 1,
    /// A strongly universal hash of the whole key, then simple tabulation, both with secret words.
    Keyed = 2,
}

impl HashMode {
    /// All modes.
    pub const ALL: [HashMode; 3] = [HashMode::Crc32, HashMode::Tabulated, HashMode::Keyed];

    /// Modes whose signature is a CRC: a switch can compute it, and it gives the same numbers in
    /// every run.
    pub const PUBLIC: [HashMode; 2] = [HashMode::Crc32, HashMode::Tabulated];

    /// Returns the register hash of a signature: its tabulation, or the signature itself for
    /// [`HashMode::Crc32`].
    #[inline(always)]
    #[must_use]
    pub fn hash(self, signature: u32, tabulation: &Tabulation) -> u32 {
        match self {
            HashMode::Crc32 => signature,
            HashMode::Tabulated | HashMode::Keyed => tabulation.hash(signature),
        }
    }

    /// Returns the signature of a key given as bytes.
    #[must_use]
    pub fn signature(self, key: &FlowKey, tabulation: &Tabulation) -> u32 {
        match self {
            HashMode::Crc32 | HashMode::Tabulated => crc32(key.as_bytes()),
            HashMode::Keyed => tabulation.multilinear().hash(key),
        }
    }

    /// Returns the name used in options, outputs and sketches.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HashMode::Crc32 => "crc32",
            HashMode::Tabulated => "tabulated",
            HashMode::Keyed => "keyed",
        }
    }
}

/// Identity of a flow hash. Sketches can be merged only if theirs is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashIdentity {
    /// Mode of the hash.
    pub mode: HashMode,
    /// CRC polynomial in normal form; zero for [`HashMode::Keyed`], which has none.
    pub polynomial: u32,
    /// Seed of the tabulation tables; zero for modes without one.
    pub seed: u64,
    /// Fingerprint that distinguishes the secret of [`HashMode::Keyed`] from others without
    /// revealing it; zero for the other modes.
    pub fingerprint: u64,
}

impl HashIdentity {
    /// Creates the identity of a mode. `origin`: the seed of its tables, or the fingerprint of the
    /// secret.
    #[must_use]
    pub fn new(mode: HashMode, origin: u64) -> Self {
        let (polynomial, seed, fingerprint) = match mode {
            HashMode::Crc32 => (POLYNOMIAL, 0, 0),
            HashMode::Tabulated => (POLYNOMIAL, origin, 0),
            HashMode::Keyed => (0, 0, origin),
        };
        HashIdentity { mode, polynomial, seed, fingerprint }
    }
}
