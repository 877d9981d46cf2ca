//! Simple tabulation of a 32-bit value.

use super::multilinear::{MULTILINEAR_WORDS, Multilinear};

/// Maximum number of rows of a sketch.
pub const MAX_ROWS: usize = BLOCKS * ROWS_PER_BLOCK;

/// Row hashes that one pass over a signature's bytes computes.
pub const ROWS_PER_BLOCK: usize = 4;

/// Passes that the largest sketch needs.
pub const BLOCKS: usize = 3;

/// Random words of all hashes: tables of 256 words, indexed by the bytes of a flow key's signature
/// (`h3` is the most significant), and the words that compute the signature of a keyed hash.
///
/// One set of tables gives the register hash: `g = T0[h3] ^ T1[h2] ^ T2[h1] ^ T3[h0]`. Sketches of
/// several rows need more bits than that; they use further sets of 64-bit words, each of which
/// gives 16 bits for four rows.
///
/// On Tofino the same words are the action data of exact-match tables that the controller fills.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Tabulation {
    tables: [[u32; 256]; 4],
    rows: [[[u64; 256]; 4]; BLOCKS],
    multilinear: Multilinear,
}

impl Tabulation {
    /// Creates the tables of a seed: those of [successive](Self::from_stream) SplitMix64 outputs.
    ///
    /// This sequence is part of a sketch's hash identity and never changes.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut state = seed;
        Self::from_stream(|| split_mix_64(&mut state))
    }

    /// Creates the tables from a stream of random words, table 0 first, index 0 first: upper halves
    /// for the register hash, then whole words for the blocks of rows, and finally the words of the
    /// keyed signature.
    #[must_use]
    pub fn from_stream(mut next: impl FnMut() -> u64) -> Self {
        let mut tabulation = Tabulation::ZERO;
        for word in tabulation.tables.iter_mut().flatten() {
            *word = (next() >> 32) as u32;
        }
        for word in tabulation.rows.iter_mut().flatten().flatten() {
            *word = next();
        }
        let mut words = [0; MULTILINEAR_WORDS];
        words.iter_mut().for_each(|word| *word = next());
        tabulation.with_multilinear(Multilinear::from_words(words))
    }

    /// Tables of zeros, for statics that are filled later.
    pub const ZERO: Tabulation = Tabulation::from_words([[0; 256]; 4], [[[0; 256]; 4]; BLOCKS]);

    /// Creates tables from given words, as read back from a device.
    #[must_use]
    pub const fn from_words(tables: [[u32; 256]; 4], rows: [[[u64; 256]; 4]; BLOCKS]) -> Self {
        Tabulation { tables, rows, multilinear: Multilinear::ZERO }
    }

    /// Returns the tables with other words of the keyed signature.
    #[must_use]
    pub const fn with_multilinear(self, multilinear: Multilinear) -> Self {
        Tabulation { multilinear, ..self }
    }

    /// Returns the words of the register hash, `[table][byte]`.
    #[must_use]
    pub fn tables(&self) -> &[[u32; 256]; 4] {
        &self.tables
    }

    /// Returns the words of the row hashes, `[block][table][byte]`; the lowest 16 bits of a word
    /// belong to the block's first row.
    #[must_use]
    pub fn rows(&self) -> &[[[u64; 256]; 4]; BLOCKS] {
        &self.rows
    }

    /// Returns the function that computes keyed signatures.
    #[inline(always)]
    #[must_use]
    pub fn multilinear(&self) -> &Multilinear {
        &self.multilinear
    }

    /// Returns the register hash of a signature.
    #[inline(always)]
    #[must_use]
    pub fn hash(&self, signature: u32) -> u32 {
        self.hash_bytes(signature.to_le_bytes())
    }

    /// Returns the register hash of a signature's bytes, the lowest first.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "a byte cannot exceed a table of 256")]
    pub fn hash_bytes(&self, [h0, h1, h2, h3]: [u8; 4]) -> u32 {
        let [t0, t1, t2, t3] = &self.tables;
        t0[h3 as usize] ^ t1[h2 as usize] ^ t2[h1 as usize] ^ t3[h0 as usize]
    }

    /// Returns the hashes of a signature for the four rows of a block; see [`row`].
    #[inline(always)]
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "a byte cannot exceed a table of 256")]
    pub fn row_block(&self, signature: u32, block: usize) -> u64 {
        let Some([t0, t1, t2, t3]) = self.rows.get(block) else { return 0 };
        let [h0, h1, h2, h3] = signature.to_le_bytes();
        t0[h3 as usize] ^ t1[h2 as usize] ^ t2[h1 as usize] ^ t3[h0 as usize]
    }

    /// Calls `visit(row, hash)` for the first `rows` rows. The upper bits of the hash select the
    /// column.
    #[inline(always)]
    pub fn for_each_row(&self, signature: u32, rows: usize, mut visit: impl FnMut(usize, u32)) {
        let mut first = 0;
        for block in 0..BLOCKS {
            if first >= rows {
                break;
            }
            let hashes = self.row_block(signature, block);
            for offset in 0..ROWS_PER_BLOCK {
                let index = first + offset;
                if index >= rows {
                    break;
                }
                visit(index, u32::from(row(hashes, offset)));
            }
            first += ROWS_PER_BLOCK;
        }
    }
}

/// Returns the hash of one row of a block: column in the upper bits, sign in the lowest.
#[inline(always)]
#[must_use]
pub fn row(block: u64, row: usize) -> u16 {
    (block >> ((row & (ROWS_PER_BLOCK - 1)) << 4)) as u16
}

/// Returns the next output of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", OOPSLA 2014).
fn split_mix_64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
