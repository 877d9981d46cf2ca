//! Registers and levels of many keys, with AVX-512 instructions. CPUs since Ice Lake and Zen 4 have
//! them.
//!
//! An 8-by-8 bit matrix maps a byte of each key to its part of a byte of the CRC, by one
//! instruction for 64 keys. A table of 256 bytes is in four vectors, and is looked up by two
//! instructions for 64 keys.
#![allow(
    unsafe_code,
    reason = "instructions that not every CPU has; this module calls them only where they were found, and reads and writes whole arrays"
)]

use super::{CAPACITY, KeyWords, RegisterUpdates, Vectors, changes};
use flowgauge_core::{
    Active, Context, CountFrames as _, HashMode, Listed, Observation, Precision, SingleFrame,
    Tabulation,
};
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m512i, _mm_cvtsi32_si128, _mm_setr_epi8, _mm_storeu_si128, _mm256_storeu_si256,
    _mm512_add_epi32, _mm512_broadcast_i32x4, _mm512_cvtepi32_epi8, _mm512_cvtepi32_epi16,
    _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_lzcnt_epi32,
    _mm512_maskz_permutex2var_epi8, _mm512_movepi8_mask, _mm512_or_si512, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_sll_epi32, _mm512_srl_epi32, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi8,
    _mm512_unpackhi_epi16, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi8,
    _mm512_unpacklo_epi16, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
};

/// Number of words to hash of columns that hold signatures instead of keys.
const SIGNATURES: usize = 0;

/// Matrices from each byte of a word, first index, to each byte of the CRC.
type Matrices = [[u64; 4]; 4];

/// Number of keys that are hashed at once.
pub(super) const GROUP: usize = 64;

/// Hash of keys of one length. Created only if the CPU has the instructions, so a value proves that
/// it has them.
pub(super) struct Avx512 {
    /// Matrices of each word of a key.
    matrices: Vec<Matrices>,
    /// CRC of a key of zeros.
    constant: [u8; 4],
    tables: Box<Tables>,
    hash: HashMode,
    precision: Precision,
}

/// Contribution of each byte of the CRC, first index, to each byte of the hash, as four vectors.
#[repr(C, align(64))]
struct Tables([[[[u8; 64]; 4]; 4]; 4]);

/// Returns whether this CPU has the instructions of [`Avx512`] and of [`measure_by`].
pub(super) fn is_available() -> bool {
    super::avx2::is_available()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("gfni")
}

/// Runs one measurement, compiled for these instructions.
pub(super) fn measure_by<M: Listed>(
    active: &mut Active<'_>,
    context: &Context<'_>,
    packets: &[Observation],
) {
    if !is_available() {
        return super::measure_on_any::<M>(active, context, packets);
    }
    // SAFETY: `is_available` found all of these instructions.
    unsafe { measure_with::<M>(active, context, packets) }
}

#[inline(never)]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt"
)]
fn measure_with<M: Listed>(
    active: &mut Active<'_>,
    context: &Context<'_>,
    packets: &[Observation],
) {
    active.measure_by::<M, SingleFrame>(context, packets);
}

impl Vectors for Avx512 {
    fn split(
        &self,
        columns: &[KeyWords],
        groups: usize,
        _: &Tabulation,
        updates: &mut RegisterUpdates,
    ) {
        // SAFETY: a value exists only if `is_available` found all instructions of these functions.
        unsafe {
            match self.matrices.len() {
                _ if self.hash == HashMode::Keyed => {
                    self.split_words::<SIGNATURES>(columns, groups, updates)
                }
                1 => self.split_words::<1>(columns, groups, updates),
                2 => self.split_words::<2>(columns, groups, updates),
                4 => self.split_words::<4>(columns, groups, updates),
                8 => self.split_words::<8>(columns, groups, updates),
                _ => self.split_words::<10>(columns, groups, updates),
            }
        }
    }
}

impl Avx512 {
    pub(super) fn new(
        key_bytes: usize,
        hash: HashMode,
        precision: Precision,
        tabulation: &Tabulation,
    ) -> Option<Self> {
        is_available().then(|| Avx512 {
            matrices: matrices(key_bytes),
            constant: changes::constant(key_bytes),
            tables: tables(tabulation),
            hash,
            precision,
        })
    }

    /// Splits the keys of whole groups, of `WORDS` words or [`SIGNATURES`].
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vbmi,gfni")]
    fn split_words<const WORDS: usize>(
        &self,
        columns: &[KeyWords],
        groups: usize,
        updates: &mut RegisterUpdates,
    ) {
        for group in 0..groups.min(CAPACITY / GROUP) {
            if WORDS == SIGNATURES {
                self.split_hashes(self.tabulated(planes(&columns[0], group)), group, updates);
                continue;
            }
            let mut crc = self.constant.map(|byte| _mm512_set1_epi8(byte as i8));
            for (column, matrices) in columns.iter().zip(&self.matrices).take(WORDS) {
                for (plane, matrices) in planes(column, group).into_iter().zip(matrices) {
                    for (crc, matrix) in crc.iter_mut().zip(matrices) {
                        let part = _mm512_gf2p8affine_epi64_epi8::<0>(
                            plane,
                            _mm512_set1_epi64(matrix.cast_signed()),
                        );
                        *crc = _mm512_xor_si512(*crc, part);
                    }
                }
            }
            let hash = if self.hash == HashMode::Crc32 { crc } else { self.tabulated(crc) };
            self.split_hashes(hash, group, updates);
        }
    }

    /// Returns the tabulation hashes of signatures, both given byte by byte.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn tabulated(&self, signature: [__m512i; 4]) -> [__m512i; 4] {
        let mut hash = [_mm512_setzero_si512(); 4];
        for (byte, tables) in signature.into_iter().zip(&self.tables.0) {
            let upper = _mm512_movepi8_mask(byte);
            for (hash, [t0, t1, t2, t3]) in hash.iter_mut().zip(tables) {
                let low = _mm512_maskz_permutex2var_epi8(!upper, load(t0), byte, load(t1));
                let high = _mm512_maskz_permutex2var_epi8(upper, load(t2), byte, load(t3));
                // Exclusive or of all three.
                *hash = _mm512_ternarylogic_epi32::<0x96>(*hash, low, high);
            }
        }
        hash
    }

    /// Splits hashes, given byte by byte, into register and level.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd")]
    fn split_hashes(
        &self,
        [b0, b1, b2, b3]: [__m512i; 4],
        group: usize,
        updates: &mut RegisterUpdates,
    ) {
        let (low, high) = (_mm512_unpacklo_epi8(b0, b1), _mm512_unpackhi_epi8(b0, b1));
        let (low_upper, high_upper) = (_mm512_unpacklo_epi8(b2, b3), _mm512_unpackhi_epi8(b2, b3));
        let hashes = [
            _mm512_unpacklo_epi16(low, low_upper),
            _mm512_unpackhi_epi16(low, low_upper),
            _mm512_unpacklo_epi16(high, high_upper),
            _mm512_unpackhi_epi16(high, high_upper),
        ];
        let bits = self.precision.bits();
        let index_bits = _mm_cvtsi32_si128(bits.cast_signed());
        let rank_bits = _mm_cvtsi32_si128(self.precision.rank_bits().cast_signed());
        let sentinel = _mm512_set1_epi32(1 << (bits - 1));
        let indices = updates.indices[group * GROUP..][..GROUP].as_chunks_mut().0.iter_mut();
        let levels = updates.levels[group * GROUP..][..GROUP].as_chunks_mut().0.iter_mut();
        for ((hash, indices), levels) in hashes.into_iter().zip(indices).zip(levels) {
            let rank = _mm512_or_si512(_mm512_sll_epi32(hash, index_bits), sentinel);
            let level = _mm512_add_epi32(_mm512_lzcnt_epi32(rank), _mm512_set1_epi32(1));
            let indices: &mut [u16; 16] = indices;
            let levels: &mut [u8; 16] = levels;
            // SAFETY: both arrays are as long as what is written, and neither has to be aligned.
            unsafe {
                _mm256_storeu_si256(
                    indices.as_mut_ptr().cast(),
                    _mm512_cvtepi32_epi16(_mm512_srl_epi32(hash, rank_bits)),
                );
                _mm_storeu_si128(levels.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(level));
            }
        }
    }
}

/// Returns the first, second, third and fourth bytes of a group's words; keys are in the same order
/// in all four.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn planes(column: &KeyWords, group: usize) -> [__m512i; 4] {
    let by_position =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    let mut words = [_mm512_setzero_si512(); 4];
    let chunks: &[[u32; 16]] = column[group * GROUP..][..GROUP].as_chunks().0;
    for (vector, chunk) in words.iter_mut().zip(chunks) {
        *vector = _mm512_shuffle_epi8(load(chunk), by_position);
    }
    let [w0, w1, w2, w3] = words;
    let (a, b) = (_mm512_unpacklo_epi32(w0, w1), _mm512_unpackhi_epi32(w0, w1));
    let (c, d) = (_mm512_unpacklo_epi32(w2, w3), _mm512_unpackhi_epi32(w2, w3));
    [
        _mm512_unpacklo_epi64(a, c),
        _mm512_unpackhi_epi64(a, c),
        _mm512_unpacklo_epi64(b, d),
        _mm512_unpackhi_epi64(b, d),
    ]
}

/// Loads an array of integers that is as long as a vector.
#[inline]
#[target_feature(enable = "avx512f")]
fn load<T: Copy, const N: usize>(values: &[T; N]) -> __m512i {
    const { assert!(size_of::<[T; N]>() == size_of::<__m512i>()) };
    // SAFETY: the array is as long as what is read, and does not have to be aligned. Callers pass
    // integers, which have no padding: columns of `u32` and tables of `u8`.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

/// Returns the matrices of the CRC of a key, per word.
fn matrices(key_bytes: usize) -> Vec<Matrices> {
    let mut matrices = vec![[[0; 4]; 4]; key_bytes.div_ceil(4)];
    for (matrices, bits) in matrices.as_flattened_mut().iter_mut().zip(changes::bits(key_bytes)) {
        for (bit, changes) in bits.into_iter().enumerate() {
            for (matrix, changed) in matrices.iter_mut().zip(changes) {
                // The row of the result's highest bit is the lowest byte.
                let rows = (0..8).filter(|row| changed >> (7 - row) & 1 == 1);
                *matrix |= rows.fold(0_u64, |matrix, row| matrix | 1 << (8 * row + bit));
            }
        }
    }
    matrices
}

/// Returns the tables of a tabulation hash, byte by byte.
fn tables(tabulation: &Tabulation) -> Box<Tables> {
    let mut tables = Box::new(Tables([[[[0; 64]; 4]; 4]; 4]));
    // The first table is for the CRC's highest byte.
    for (tables, words) in tables.0.iter_mut().rev().zip(tabulation.tables()) {
        for (value, word) in words.iter().enumerate() {
            for (table, byte) in tables.iter_mut().zip(word.to_le_bytes()) {
                table.as_flattened_mut()[value] = byte;
            }
        }
    }
    tables
}
