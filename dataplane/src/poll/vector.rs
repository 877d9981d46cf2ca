//! Many keys at once, with instructions that not every CPU has.

use super::instructions::Instructions;
use super::lot::{CAPACITY, Column};
use flowgauge_core::{Tabulation, cardinality};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod changes;
#[cfg(target_arch = "aarch64")]
mod neon;

/// Where keys belong.
#[repr(C, align(64))]
pub(super) struct Places {
    /// Their registers.
    pub(super) indices: [u16; CAPACITY],
    /// And what these are raised to.
    pub(super) levels: [u8; CAPACITY],
    /// Their hashes, where all of them are made before they are cut into register and level.
    #[allow(dead_code, reason = "of AVX2 and NEON, which other architectures lack")]
    hashes: [u32; CAPACITY],
    /// Lower and upper halves of signatures, apart, where signatures are hashed by tables.
    #[allow(dead_code, reason = "of AVX2, which other architectures lack")]
    halves: [[u16; CAPACITY]; 2],
}

impl Places {
    pub(super) const EMPTY: Places = Places {
        indices: [0; CAPACITY],
        levels: [0; CAPACITY],
        hashes: [0; CAPACITY],
        halves: [[0; CAPACITY]; 2],
    };
}

/// The hash of keys of one length, for groups of them.
pub(super) trait Vectors: Send {
    /// Keys of a group.
    fn group(&self) -> usize;

    /// Finds where the keys of the first `groups` groups belong, in an order of its own within each
    /// group. The tables are those that it was made for.
    fn split(
        &self,
        columns: &[Column],
        groups: usize,
        tabulation: &Tabulation,
        places: &mut Places,
    );
}

/// Whether this CPU has some instructions.
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

/// What hashes keys of so many bytes with some instructions. There is none where keys are hashed
/// one by one, and where this CPU lacks them.
#[allow(unused_variables, reason = "some instructions need them, of some architectures")]
pub(super) fn vectors(
    instructions: Instructions,
    key_bytes: usize,
    settings: cardinality::Settings,
    tables: &Tabulation,
) -> Option<Box<dyn Vectors>> {
    match instructions {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => Some(Box::new(avx2::Avx2::new(key_bytes, settings)?)),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => Some(Box::new(avx512::Avx512::new(key_bytes, settings, tables)?)),
        #[cfg(target_arch = "aarch64")]
        Instructions::Neon => Some(Box::new(neon::Neon::new(key_bytes, settings)?)),
        _ => None,
    }
}
