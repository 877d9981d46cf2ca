//! Registers and levels of many keys, with the NEON instructions of aarch64 CPUs.
//!
//! Half a byte of a key gives a byte of the CRC by a table of 16 bytes, which is one instruction
//! for 16 keys. The CPU's CRC instructions have other polynomials. Tabulation is done one by one: a
//! table of 256 bytes would take four instructions that read four registers each.
#![allow(
    unsafe_code,
    reason = "loads and stores of whole arrays, which take their bytes apart and put them together"
)]

use super::changes::{self, OfHalf};
use super::{CAPACITY, KeyWords};
use super::{RegisterUpdates, Vectors};
use flowgauge_core::{HashMode, Precision, Tabulation};
use std::arch::aarch64::{
    uint8x16_t, uint8x16x4_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vld4q_u8, vqtbl1q_u8,
    vshrq_n_u8, vst4q_u8,
};
use std::arch::is_aarch64_feature_detected;

/// Keys that are hashed at once.
pub(super) const GROUP: usize = 16;

/// Hash of keys of one length. Created only if the CPU has the instructions, so a value proves that
/// it has them.
pub(super) struct Neon {
    /// Tables per byte of the key: of its lower half and of its upper half.
    tables: Vec<[OfHalf; 2]>,
    /// The CRC of a key of zeros.
    constant: [u8; 4],
    key_bytes: usize,
    tabulated: bool,
    precision: Precision,
}

/// Returns whether this CPU has the instructions of [`Neon`], as all that Linux runs on do. In
/// big-endian byte order a word's first byte would be its highest one.
pub(super) fn is_available() -> bool {
    is_aarch64_feature_detected!("neon") && cfg!(target_endian = "little")
}

impl Vectors for Neon {
    fn split(
        &self,
        columns: &[KeyWords],
        groups: usize,
        tabulation: &Tabulation,
        updates: &mut RegisterUpdates,
    ) {
        // SAFETY: `new` has checked for every instruction of these functions.
        unsafe {
            match self.key_bytes {
                4 => self.signatures::<4>(columns, groups, &mut updates.hashes),
                8 => self.signatures::<8>(columns, groups, &mut updates.hashes),
                13 => self.signatures::<13>(columns, groups, &mut updates.hashes),
                16 => self.signatures::<16>(columns, groups, &mut updates.hashes),
                32 => self.signatures::<32>(columns, groups, &mut updates.hashes),
                _ => self.signatures::<37>(columns, groups, &mut updates.hashes),
            }
        }
        if self.tabulated {
            updates
                .hashes
                .iter_mut()
                .take(groups * GROUP)
                .for_each(|hash| *hash = tabulation.hash(*hash));
        }
        self.split_hashes(groups, updates);
    }
}

impl Neon {
    /// Creates the hash; `None` without the instructions, and for a keyed hash: it has no CRC, and
    /// its tables, registers and levels take fewer instructions one by one.
    pub(super) fn new(key_bytes: usize, hash: HashMode, precision: Precision) -> Option<Self> {
        if !is_available() || hash == HashMode::Keyed {
            return None;
        }
        let tabulated = hash == HashMode::Tabulated;
        Some(Neon {
            tables: changes::halves(key_bytes),
            constant: changes::constant(key_bytes),
            key_bytes,
            tabulated,
            precision,
        })
    }

    #[target_feature(enable = "neon")]
    fn signatures<const BYTES: usize>(
        &self,
        columns: &[KeyWords],
        groups: usize,
        signatures: &mut [u32; CAPACITY],
    ) {
        for (group, signatures) in
            signatures.as_chunks_mut::<GROUP>().0.iter_mut().enumerate().take(groups)
        {
            let mut crc = self.constant.map(|byte| vdupq_n_u8(byte));
            for ((column, tables), first) in
                columns.iter().zip(self.tables.as_chunks::<4>().0).zip((0..BYTES).step_by(4))
            {
                for (plane, [lower, upper]) in
                    planes(column, group).into_iter().zip(tables).take(BYTES - first)
                {
                    let (low, high) = (vandq_u8(plane, vdupq_n_u8(0x0f)), vshrq_n_u8::<4>(plane));
                    for ((crc, lower), upper) in crc.iter_mut().zip(lower).zip(upper) {
                        let changed =
                            veorq_u8(vqtbl1q_u8(table(lower), low), vqtbl1q_u8(table(upper), high));
                        *crc = veorq_u8(*crc, changed);
                    }
                }
            }
            let [b0, b1, b2, b3] = crc;
            // SAFETY: the array is as long as what is written, and does not have to be aligned.
            unsafe { vst4q_u8(signatures.as_mut_ptr().cast(), uint8x16x4_t(b0, b1, b2, b3)) }
        }
    }

    /// Splits hashes into register and level. The compiler vectorises this: every 64-bit CPU has
    /// the instructions.
    fn split_hashes(&self, groups: usize, updates: &mut RegisterUpdates) {
        let (bits, rank_bits) = (self.precision.bits(), self.precision.rank_bits());
        // A one after the rank bits stops the count if all are zero.
        let sentinel = 1 << (bits - 1);
        let hashes = updates.hashes.as_chunks::<GROUP>().0.iter().take(groups);
        let indices = updates.indices.as_chunks_mut::<GROUP>().0.iter_mut();
        let levels = updates.levels.as_chunks_mut::<GROUP>().0.iter_mut();
        for ((hashes, indices), levels) in hashes.zip(indices).zip(levels) {
            *indices = hashes.map(|hash| (hash >> rank_bits) as u16);
            *levels = hashes.map(|hash| ((hash << bits) | sentinel).leading_zeros() as u8 + 1);
        }
    }
}

/// Returns the first, second, third and fourth bytes of a group's words.
#[inline]
#[target_feature(enable = "neon")]
fn planes(column: &KeyWords, group: usize) -> [uint8x16_t; 4] {
    let words: &[u32; GROUP] = &column.as_chunks().0[group];
    // SAFETY: the array is as long as what is read, and does not have to be aligned. It is one of
    // integers, without padding.
    let uint8x16x4_t(b0, b1, b2, b3) = unsafe { vld4q_u8(words.as_ptr().cast()) };
    [b0, b1, b2, b3]
}

#[inline]
#[target_feature(enable = "neon")]
fn table(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the array is as long as what is read, and does not have to be aligned.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}
