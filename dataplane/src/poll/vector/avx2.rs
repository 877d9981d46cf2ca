//! Registers and levels of many keys, with the AVX2 instructions of x86 CPUs since 2013.
//!
//! Half a byte of a key gives a byte of the CRC by a table of 16 bytes, which is one instruction
//! for 32 keys. Tabulation is faster one by one: tables of 256 words are too large for registers,
//! and gathers are slower than loads. AVX2 cannot count leading zeros; the exponent of the number
//! converted to a float gives their number.
#![allow(
    unsafe_code,
    reason = "instructions that not every CPU has; this module calls them only where they were found, and reads and writes whole arrays"
)]

use super::KeyWords;
use super::changes::{self, OfHalf};
use super::{RegisterUpdates, Vectors};
use flowgauge_core::{
    Active, Context, CountFrames as _, HashMode, Listed, Observation, Precision, SingleFrame,
    Tabulation,
};
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm_loadu_si128, _mm256_add_epi32, _mm256_and_si256,
    _mm256_andnot_si256, _mm256_broadcastsi128_si256, _mm256_castps_si256, _mm256_cvtepi32_ps,
    _mm256_loadu_si256, _mm256_or_si256, _mm256_packus_epi16, _mm256_packus_epi32,
    _mm256_permute2x128_si256, _mm256_set1_epi8, _mm256_set1_epi32, _mm256_setr_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srl_epi32, _mm256_srli_epi16,
    _mm256_srli_epi32, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_unpackhi_epi8,
    _mm256_unpackhi_epi16, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi8,
    _mm256_unpacklo_epi16, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

/// Keys that are hashed at once.
pub(super) const GROUP: usize = 32;

/// Keys whose table lookups are interleaved. Two took a tenth less time than one, four still less.
const AT_ONCE: usize = 4;

/// Bias of the exponent of a float.
const EXPONENT_BIAS: u32 = 127;

/// Hash of keys of one length. Created only if the CPU has the instructions, so a value proves that
/// it has them.
pub(super) struct Avx2 {
    /// Tables per byte of the key: of its lower half and of its upper half.
    tables: Vec<[OfHalf; 2]>,
    /// The CRC of a key of zeros.
    constant: [u8; 4],
    key_bytes: usize,
    hash: HashMode,
    precision: Precision,
}

/// Returns whether this CPU has the instructions of [`Avx2`] and of [`measure_by`].
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
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
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn measure_with<M: Listed>(
    active: &mut Active<'_>,
    context: &Context<'_>,
    packets: &[Observation],
) {
    active.measure_by::<M, SingleFrame>(context, packets);
}

impl Vectors for Avx2 {
    fn split(
        &self,
        columns: &[KeyWords],
        groups: usize,
        tabulation: &Tabulation,
        updates: &mut RegisterUpdates,
    ) {
        // Whole batches at a time: loading a vector of hashes right after they were stored one by
        // one would stall until the last store. Halves of signatures take fewer instructions to
        // compute and to split into bytes than whole ones.
        match self.hash {
            HashMode::Crc32 => self.signatures(columns, groups, updates),
            HashMode::Tabulated => {
                self.signatures(columns, groups, updates);
                let [lower, upper] =
                    updates.halves.each_ref().map(|halves| halves.as_chunks::<AT_ONCE>().0);
                let hashes = updates.hashes.as_chunks_mut::<AT_ONCE>().0.iter_mut();
                for ((hashes, lower), upper) in
                    hashes.zip(lower).zip(upper).take(groups * (GROUP / AT_ONCE))
                {
                    for ((hash, lower), upper) in hashes.iter_mut().zip(lower).zip(upper) {
                        let ([h0, h1], [h2, h3]) = (lower.to_le_bytes(), upper.to_le_bytes());
                        *hash = tabulation.hash_bytes([h0, h1, h2, h3]);
                    }
                }
            }
            // Signatures were computed one by one as whole words, and are looked up in pairs.
            HashMode::Keyed => {
                let signatures =
                    columns.first().map_or(&[][..], |column| column.as_chunks::<2>().0);
                let pairs = updates
                    .hashes
                    .as_chunks_mut::<2>()
                    .0
                    .iter_mut()
                    .zip(signatures)
                    .take(groups * (GROUP / 2));
                pairs.for_each(|(pair, signatures)| {
                    *pair = signatures.map(|signature| tabulation.hash(signature))
                });
            }
        }
        // SAFETY: `new` has checked for every instruction of this function.
        unsafe { self.split_hashes(groups, updates) }
    }
}

impl Avx2 {
    pub(super) fn new(key_bytes: usize, hash: HashMode, precision: Precision) -> Option<Self> {
        is_available().then(|| Avx2 {
            tables: changes::halves(key_bytes),
            constant: changes::constant(key_bytes),
            key_bytes,
            hash,
            precision,
        })
    }

    /// Computes signatures: whole ones where they are the hashes, otherwise halves.
    fn signatures(&self, columns: &[KeyWords], groups: usize, updates: &mut RegisterUpdates) {
        // SAFETY: `new` has checked for every instruction of these functions.
        unsafe {
            match self.key_bytes {
                4 => self.signatures_of::<4>(columns, groups, updates),
                8 => self.signatures_of::<8>(columns, groups, updates),
                13 => self.signatures_of::<13>(columns, groups, updates),
                16 => self.signatures_of::<16>(columns, groups, updates),
                32 => self.signatures_of::<32>(columns, groups, updates),
                _ => self.signatures_of::<37>(columns, groups, updates),
            }
        }
    }

    /// Splits hashes into register and level.
    #[target_feature(enable = "avx2")]
    fn split_hashes(&self, groups: usize, updates: &mut RegisterUpdates) {
        let rank_bits = self.precision.rank_bits();
        let by_index = _mm_cvtsi32_si128(rank_bits.cast_signed());
        // Rank bits, followed by a one that stops the count if all are zero. The higher the highest
        // one bit, the lower the level.
        let rank = _mm256_set1_epi32((1 << (rank_bits + 1)) - 1);
        let one = _mm256_set1_epi32(1);
        let highest = _mm256_set1_epi32((EXPONENT_BIAS + 1 + rank_bits).cast_signed());
        let groups_of_hashes = updates.hashes.as_chunks::<GROUP>().0.iter().take(groups);
        let indices = updates.indices.as_chunks_mut::<GROUP>().0.iter_mut();
        let levels = updates.levels.as_chunks_mut::<GROUP>().0.iter_mut();
        for ((hashes, indices), levels) in groups_of_hashes.zip(indices).zip(levels) {
            let (mut index, mut level) = ([_mm256_setzero_si256(); 4], [_mm256_setzero_si256(); 4]);
            for ((hash, index), level) in
                hashes.as_chunks().0.iter().zip(&mut index).zip(&mut level)
            {
                let hash = load(hash);
                *index = _mm256_srl_epi32(hash, by_index);
                let ranked =
                    _mm256_or_si256(_mm256_and_si256(_mm256_add_epi32(hash, hash), rank), one);
                // Clear the bit below the highest one, so that rounding cannot reach the next power
                // of two.
                let steep = _mm256_andnot_si256(_mm256_srli_epi32::<1>(ranked), ranked);
                let exponent =
                    _mm256_srli_epi32::<23>(_mm256_castps_si256(_mm256_cvtepi32_ps(steep)));
                *level = _mm256_sub_epi32(highest, exponent);
            }
            let ([i0, i1, i2, i3], [l0, l1, l2, l3]) = (index, level);
            let (low, high) = (_mm256_packus_epi32(i0, i1), _mm256_packus_epi32(i2, i3));
            // In the order in which packing twice leaves the levels.
            let halves = [
                _mm256_permute2x128_si256::<0x20>(low, high),
                _mm256_permute2x128_si256::<0x31>(low, high),
            ];
            store_all::<_, 16, 2>(indices, halves);
            store(
                levels,
                _mm256_packus_epi16(_mm256_packus_epi32(l0, l1), _mm256_packus_epi32(l2, l3)),
            );
        }
    }

    #[target_feature(enable = "avx2")]
    fn signatures_of<const BYTES: usize>(
        &self,
        columns: &[KeyWords],
        groups: usize,
        updates: &mut RegisterUpdates,
    ) {
        let half = _mm256_set1_epi8(0x0f);
        let words = updates.hashes.as_chunks_mut::<GROUP>().0.iter_mut();
        let [lower, upper] =
            updates.halves.each_mut().map(|halves| halves.as_chunks_mut::<GROUP>().0.iter_mut());
        for (group, ((words, lower), upper)) in words.zip(lower).zip(upper).enumerate().take(groups)
        {
            let mut crc = self.constant.map(|byte| _mm256_set1_epi8(byte.cast_signed()));
            for ((column, tables), first) in
                columns.iter().zip(self.tables.as_chunks::<4>().0).zip((0..BYTES).step_by(4))
            {
                for (plane, [lower, upper]) in
                    planes(column, group).into_iter().zip(tables).take(BYTES - first)
                {
                    let low = _mm256_and_si256(plane, half);
                    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(plane), half);
                    for ((crc, lower), upper) in crc.iter_mut().zip(lower).zip(upper) {
                        let changed = _mm256_xor_si256(
                            _mm256_shuffle_epi8(table(lower), low),
                            _mm256_shuffle_epi8(table(upper), high),
                        );
                        *crc = _mm256_xor_si256(*crc, changed);
                    }
                }
            }
            let [b0, b1, b2, b3] = crc;
            let lowers = [_mm256_unpacklo_epi8(b0, b1), _mm256_unpackhi_epi8(b0, b1)];
            let uppers = [_mm256_unpacklo_epi8(b2, b3), _mm256_unpackhi_epi8(b2, b3)];
            if self.hash == HashMode::Crc32 {
                for ((to, lower), upper) in
                    words.as_chunks_mut::<16>().0.iter_mut().zip(lowers).zip(uppers)
                {
                    let halves =
                        [_mm256_unpacklo_epi16(lower, upper), _mm256_unpackhi_epi16(lower, upper)];
                    store_all::<_, 8, 2>(to, halves);
                }
            } else {
                store_all::<_, 16, 2>(lower, lowers);
                store_all::<_, 16, 2>(upper, uppers);
            }
        }
    }
}

/// Returns the first, second, third and fourth bytes of a group's words; keys are in the same order
/// in all four.
#[inline]
#[target_feature(enable = "avx2")]
fn planes(column: &KeyWords, group: usize) -> [__m256i; 4] {
    let by_place = _mm256_setr_epi8(
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10,
        14, 3, 7, 11, 15,
    );
    let mut words = [_mm256_setzero_si256(); 4];
    let chunks: &[[u32; 8]] = column[group * GROUP..][..GROUP].as_chunks().0;
    for (vector, chunk) in words.iter_mut().zip(chunks) {
        *vector = _mm256_shuffle_epi8(load(chunk), by_place);
    }
    let [w0, w1, w2, w3] = words;
    let (a, b) = (_mm256_unpacklo_epi32(w0, w1), _mm256_unpackhi_epi32(w0, w1));
    let (c, d) = (_mm256_unpacklo_epi32(w2, w3), _mm256_unpackhi_epi32(w2, w3));
    [
        _mm256_unpacklo_epi64(a, c),
        _mm256_unpackhi_epi64(a, c),
        _mm256_unpacklo_epi64(b, d),
        _mm256_unpackhi_epi64(b, d),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(values: &[u32; 8]) -> __m256i {
    // SAFETY: the array is as long as what is read, and does not have to be aligned. It is one of
    // integers, without padding.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store<T: Copy, const N: usize>(to: &mut [T; N], values: __m256i) {
    const { assert!(size_of::<[T; N]>() == size_of::<__m256i>()) };
    // SAFETY: the array is as long as what is written, and does not have to be aligned.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), values) }
}

/// Stores vectors one after the other, of `N` values each.
#[inline]
#[target_feature(enable = "avx2")]
fn store_all<T: Copy, const N: usize, const VECTORS: usize>(
    to: &mut [T],
    vectors: [__m256i; VECTORS],
) {
    for (to, values) in to.as_chunks_mut::<N>().0.iter_mut().zip(vectors) {
        store(to, values);
    }
}

/// Loads a table into both halves of a vector.
#[inline]
#[target_feature(enable = "avx2")]
fn table(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: the array is as long as what is read, and does not have to be aligned.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}
