//! Registers and levels of many keys at once, with the CRC and NEON instructions of aarch64 CPUs.
//!
//! The instructions for CRCs have the polynomial of [`Crc32`](flowgauge_core::hash::Crc32), which those of x86 lack: a word of a key is one
//! instruction.
#![allow(unsafe_code, reason = "instructions that not every CPU has; this module calls them only where they were found")]

use super::super::batch::Keys;
use super::{Places, Vectors};
use flowgauge_core::{HashMode, KeyKind, Precision, Tabulation, cardinality};
use std::arch::aarch64::{__crc32b, __crc32w};
use std::arch::is_aarch64_feature_detected;

/// Keys that are cut into register and level at once.
const GROUP: usize = 16;

/// The hash of a kind of key. There is none where the CPU lacks the instructions: that one exists says that it has them.
pub(super) struct Neon {
    key: KeyKind,
    hash: HashMode,
    precision: Precision,
}

/// Whether this CPU has what [`Neon`] needs. Only the first CPUs of 64 bits have no CRC.
pub(super) fn is_available() -> bool {
    is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("crc")
}

impl Vectors for Neon {
    fn group(&self) -> usize {
        GROUP
    }

    fn split(&self, keys: &Keys, groups: usize, tabulation: &Tabulation, places: &mut Places) {
        let length = groups * GROUP;
        match self.hash {
            HashMode::Crc32 => self.hash_all(keys, length, places, |signature| signature),
            HashMode::Tabulated => self.hash_all(keys, length, places, |signature| tabulation.hash(signature)),
            HashMode::Keyed => {
                let hashed = places.hashes.iter_mut().zip(&keys.words[0]).take(length);
                hashed.for_each(|(hash, signature)| *hash = tabulation.hash(*signature));
            }
        }
        self.place(groups, places);
    }
}

impl Neon {
    pub(super) fn new(settings: cardinality::Settings) -> Option<Self> {
        let cardinality::Settings { key, hash, precision, .. } = settings;
        is_available().then_some(Neon { key, hash, precision })
    }

    #[inline(always)]
    fn hash_all(&self, keys: &Keys, length: usize, places: &mut Places, hash: impl Fn(u32) -> u32) {
        // SAFETY: `new` has found every instruction that these functions are made of.
        unsafe {
            match self.key {
                KeyKind::Src | KeyKind::Dst => hash_words::<4>(keys, length, places, hash),
                KeyKind::SrcDst => hash_words::<8>(keys, length, places, hash),
                KeyKind::FiveTuple => hash_words::<13>(keys, length, places, hash),
            }
        }
    }

    /// Cuts hashes into register and level.
    fn place(&self, groups: usize, places: &mut Places) {
        let (bits, rank_bits) = (self.precision.bits(), self.precision.rank_bits());
        // A one behind the rank bits stops the count if all are zero.
        let sentinel = 1 << (bits - 1);
        let hashes = places.hashes.as_chunks::<GROUP>().0.iter().take(groups);
        let indices = places.indices.as_chunks_mut::<GROUP>().0.iter_mut();
        let levels = places.levels.as_chunks_mut::<GROUP>().0.iter_mut();
        for ((hashes, indices), levels) in hashes.zip(indices).zip(levels) {
            for ((hash, index), level) in hashes.iter().zip(indices).zip(levels) {
                *index = (hash >> rank_bits) as u16;
                *level = ((hash << bits) | sentinel).leading_zeros() as u8 + 1;
            }
        }
    }
}

/// Hashes the first `length` keys of so many bytes.
#[target_feature(enable = "crc")]
fn hash_words<const BYTES: usize>(keys: &Keys, length: usize, places: &mut Places, hash: impl Fn(u32) -> u32) {
    const { assert!(BYTES % 4 <= 1, "a key is of words, and a byte may follow") };
    for (at, to) in places.hashes.iter_mut().enumerate().take(length) {
        let mut crc = !0;
        for word in keys.words.iter().take(BYTES / 4) {
            crc = __crc32w(crc, word[at]);
        }
        for word in keys.words.iter().take(BYTES.div_ceil(4)).skip(BYTES / 4) {
            crc = __crc32b(crc, word[at] as u8);
        }
        *to = hash(!crc);
    }
}
