//! Vectorised hashing of many keys, with instructions that not every CPU has.

use flowgauge_core::{HashMode, Precision, Tabulation};
use instructions::Instructions;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod changes;
pub(super) mod instructions;
#[cfg(target_arch = "aarch64")]
mod neon;

/// Buffered keys; a power of two. The more keys, the less the wait for the last store matters.
pub(super) const CAPACITY: usize = 256;

/// One word of four bytes of each key, as it is in memory.
pub(super) type KeyWords = [u32; CAPACITY];

/// Register updates of a batch of keys.
#[repr(C, align(64))]
pub(super) struct RegisterUpdates {
    /// Register indices.
    pub(super) indices: [u16; CAPACITY],
    /// Levels that the registers are raised to.
    pub(super) levels: [u8; CAPACITY],
    /// Hashes, where all of them are computed before they are split into register and level.
    #[allow(dead_code, reason = "of AVX2 and NEON, which other architectures lack")]
    hashes: [u32; CAPACITY],
    /// Lower and upper halves of signatures, for tabulated hashes.
    #[allow(dead_code, reason = "of AVX2, which other architectures lack")]
    halves: [[u16; CAPACITY]; 2],
}

impl RegisterUpdates {
    pub(super) const EMPTY: RegisterUpdates = RegisterUpdates {
        indices: [0; CAPACITY],
        levels: [0; CAPACITY],
        hashes: [0; CAPACITY],
        halves: [[0; CAPACITY]; 2],
    };
}

/// Hash of keys of one length, computed for groups of keys.
pub(super) trait Vectors: Send {
    /// Computes the updates of the keys of the first `groups` groups, in any order within a group.
    /// The tables are those that it was created for.
    fn split(
        &self,
        columns: &[KeyWords],
        groups: usize,
        tabulation: &Tabulation,
        updates: &mut RegisterUpdates,
    );
}

/// Returns whether this CPU has some instructions.
pub(super) fn has(instructions: Instructions) -> bool {
    match instructions {
        Instructions::Scalar => true,
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => avx2::is_available(),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => avx512::is_available(),
        #[cfg(target_arch = "aarch64")]
        Instructions::Neon => neon::is_available(),
        _ => false,
    }
}

/// Creates the hash of keys of `key_bytes` bytes with some instructions, and returns the keys per
/// group and the hash. `None` where keys are hashed one by one, or where this CPU lacks the
/// instructions.
#[allow(unused_variables, reason = "some instructions need them, of some architectures")]
pub(super) fn vectors(
    instructions: Instructions,
    key_bytes: usize,
    hash: HashMode,
    precision: Precision,
    tables: &Tabulation,
) -> Option<(usize, Box<dyn Vectors>)> {
    match instructions {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => {
            Some((avx2::GROUP, Box::new(avx2::Avx2::new(key_bytes, hash, precision)?)))
        }
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => {
            let hash = avx512::Avx512::new(key_bytes, hash, precision, tables)?;
            Some((avx512::GROUP, Box::new(hash)))
        }
        #[cfg(target_arch = "aarch64")]
        Instructions::Neon => {
            Some((neon::GROUP, Box::new(neon::Neon::new(key_bytes, hash, precision)?)))
        }
        _ => None,
    }
}
