//! CRC32 with the thesis' polynomial, by slicing: up to 16 bytes at once.

use crate::branchless::opaque;
use crate::flow_key::{KeyConsumer, KeyWordList};

/// Polynomial in normal form (W-HLL thesis §3.3.2).
pub const POLYNOMIAL: u32 = 0x7909_00f3;

/// `SLICES[k][b]` is the remainder of byte `!b` followed by `k` zero bytes, combined with
/// constants: the tables include the initial value and the final XOR (both all ones), so that no
/// inversion is needed at run time.
static SLICES: [[u32; 256]; SLICE_COUNT] = complemented(&slices(POLYNOMIAL));

const SLICE_COUNT: usize = 16;

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "evaluated at compile time, where a panic is a compile error"
)]
const fn slices<const N: usize>(polynomial: u32) -> [[u32; 256]; N] {
    let reflected = polynomial.reverse_bits();
    let mut tables = [[0; 256]; N];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder =
                if remainder & 1 == 1 { (remainder >> 1) ^ reflected } else { remainder >> 1 };
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut slice = 1;
    while slice < N {
        let mut byte = 0;
        while byte < 256 {
            let previous: u32 = tables[slice - 1][byte];
            tables[slice][byte] = (previous >> 8) ^ tables[0][(previous & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

/// Returns tables for a state that is the CRC so far, not its complement. The constants of the
/// first four tables, which take part in every word, add up to the final XOR. The constant of the
/// first table alone is the final XOR for a single byte, which shifts ones into the state's highest
/// byte.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "evaluated at compile time, where a panic is a compile error"
)]
const fn complemented(tables: &[[u32; 256]; SLICE_COUNT]) -> [[u32; 256]; SLICE_COUNT] {
    let mut constants = [0; SLICE_COUNT];
    constants[0] = 0xff00_0000;
    constants[3] = 0x00ff_ffff;
    let mut ours = [[0; 256]; SLICE_COUNT];
    let mut slice = 0;
    while slice < SLICE_COUNT {
        let mut byte = 0;
        while byte < 256 {
            ours[slice][byte] = tables[slice][255 - byte] ^ constants[slice];
            byte += 1;
        }
        slice += 1;
    }
    ours
}

/// CRC computation in progress: reflected in and out, initial value and final XOR all ones.
///
/// The Tofino form is
/// `CRCPolynomial<bit<32>>(32w0x790900f3, true, false, false, 32w0xFFFFFFFF, 32w0xFFFFFFFF)`.
#[derive(Clone, Copy, Debug)]
pub struct Crc32(u32);

impl Default for Crc32 {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc32 {
    /// Starts a computation.
    #[inline(always)]
    #[must_use]
    pub const fn new() -> Self {
        Crc32(0)
    }

    /// Appends `N` words of four bytes, at most four. Their lookups are independent of each other.
    #[inline(always)]
    #[must_use]
    pub fn words<const N: usize>(self, words: [[u8; 4]; N]) -> Self {
        self.words_and_bytes::<N, 0>(words, [0; 4])
    }

    /// Appends `N` words, at least one, and the first `B` bytes of `left`, at most 16 bytes in
    /// total. Their lookups are independent of each other.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the compiler checks that there are tables for N words and B bytes, and a byte cannot exceed a table of 256"
    )]
    fn words_and_bytes<const N: usize, const B: usize>(
        self,
        words: [[u8; 4]; N],
        left: [u8; 4],
    ) -> Self {
        const { assert!(N > 0 && B < 4 && 4 * N + B <= SLICE_COUNT) };
        let mut crc = 0;
        let mut index = 0;
        while index < N {
            let word = u32::from_le_bytes(words[index]);
            // The tables invert their index for the state's sake; words that are not combined with
            // it are inverted here.
            let [b0, b1, b2, b3] = if index == 0 { self.0 ^ word } else { !word }.to_le_bytes();
            let behind = 4 * (N - 1 - index) + B;
            crc ^= SLICES[behind + 3][b0 as usize]
                ^ SLICES[behind + 2][b1 as usize]
                ^ SLICES[behind + 1][b2 as usize]
                ^ SLICES[behind][b3 as usize];
            index += 1;
        }
        index = 0;
        while index < B {
            crc ^= SLICES[B - 1 - index][!left[index] as usize];
            index += 1;
        }
        Crc32(crc)
    }

    /// Returns the CRC of a number in network order.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "a byte cannot exceed a table of 256")]
    pub fn of_number(number: u32) -> u32 {
        let [s0, s1, s2, s3, ..] = &SLICES;
        let [b3, b2, b1, b0] = number.to_le_bytes();
        s3[b0 as usize] ^ s2[b1 as usize] ^ s1[b2 as usize] ^ s0[b3 as usize]
    }

    /// Returns the CRC of the first `bytes` bytes of `words`. Avoids loops, slices and closures,
    /// which LLVM turns into calls in the kernel's programs.
    #[inline(always)]
    #[must_use]
    pub fn of_words<const N: usize>(self, words: &[[u8; 4]; N], bytes: usize) -> u32 {
        const { assert!(N <= 12) };
        let crc =
            self.upto_four(words, 0, bytes).upto_four(words, 4, bytes).upto_four(words, 8, bytes);
        let whole = bytes >> 2;
        let [first, second, third, _] = word(words, whole);
        // A group of fewer than four words has already appended the remaining bytes.
        let crc = match if whole & 3 == 0 { bytes & 3 } else { 0 } {
            0 => crc,
            1 => crc.byte(first),
            2 => crc.byte(first).byte(second),
            _ => crc.byte(first).byte(second).byte(third),
        };
        crc.finish()
    }

    /// Appends up to four words, from index `from` on. If `bytes` ends within these, appends the
    /// whole words and the remaining bytes.
    #[inline(always)]
    fn upto_four<const N: usize>(self, words: &[[u8; 4]; N], from: usize, bytes: usize) -> Self {
        let (first, second) = (word(words, from), word(words, from + 1));
        let (third, fourth) = (word(words, from + 2), word(words, from + 3));
        match (bytes >> 2).saturating_sub(from) {
            0 => self,
            1 => self.words_and_left([first], second, bytes),
            2 => self.words_and_left([first, second], third, bytes),
            3 => self.words_and_left([first, second, third], fourth, bytes),
            _ => self.words([first, second, third, fourth]),
        }
    }

    /// Appends words, and the bytes that remain of `bytes` after whole words.
    #[inline(always)]
    fn words_and_left<const N: usize>(
        self,
        words: [[u8; 4]; N],
        left: [u8; 4],
        bytes: usize,
    ) -> Self {
        match bytes & 3 {
            0 => self.words_and_bytes::<N, 0>(words, left),
            1 => self.words_and_bytes::<N, 1>(words, left),
            2 => self.words_and_bytes::<N, 2>(words, left),
            _ => self.words_and_bytes::<N, 3>(words, left),
        }
    }

    /// Appends one byte.
    #[inline(always)]
    #[must_use]
    pub fn byte(self, byte: u8) -> Self {
        let [s0, ..] = &SLICES;
        let [low, ..] = self.0.to_le_bytes();
        #[allow(clippy::indexing_slicing, reason = "masked to the table's length")]
        let entry = s0[opaque((low ^ byte) as usize) & 0xff];
        Crc32((self.0 >> 8) ^ entry)
    }

    /// Returns the CRC of everything appended.
    #[inline(always)]
    #[must_use]
    pub fn finish(self) -> u32 {
        self.0
    }
}

/// Returns a word; zeros if the index is out of range.
#[inline(always)]
fn word<const N: usize>(words: &[[u8; 4]; N], index: usize) -> [u8; 4] {
    match words.get(index) {
        Some(word) => *word,
        None => [0; 4],
    }
}

impl KeyConsumer for Crc32 {
    type Output = u32;

    #[inline(always)]
    fn make<const WORDS: usize>(self, key: KeyWordList<WORDS>) -> u32 {
        self.of_words(&key.words, key.bytes)
    }
}

/// Returns the CRC of a byte string.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(Crc32::new(), |crc, &byte| crc.byte(byte)).finish()
}

/// Another CRC of a single word in network order, for hashes other than [`Crc32`]: reflected in and
/// out, initial value and final XOR all ones.
///
/// The Tofino form is
/// `CRCPolynomial<bit<32>>(polynomial, true, false, false, 32w0xFFFFFFFF, 32w0xFFFFFFFF)`.
pub(crate) struct WordCrc32([[u32; 256]; 4]);

impl WordCrc32 {
    /// Creates the tables of a polynomial in normal form.
    pub(crate) const fn new(polynomial: u32) -> Self {
        WordCrc32(slices(polynomial))
    }

    /// Returns the CRC of a word's four bytes, the most significant first.
    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "a byte cannot exceed a table of 256")]
    pub(crate) fn hash(&self, word: u32) -> u32 {
        let [t0, t1, t2, t3] = &self.0;
        let [b0, b1, b2, b3] = (!word).to_be_bytes();
        !(t3[b0 as usize] ^ t2[b1 as usize] ^ t1[b2 as usize] ^ t0[b3 as usize])
    }
}
