//! Whether a flow was seen: a Bloom filter (Bloom 1970), partitioned: every hash has a row of bits of its own.

use crate::hash::{MAX_ROWS, ROWS_PER_BLOCK, Tabulation};
use crate::key::KeyKind;

/// Bits of the largest filter.
pub const MAX_FILTER_BITS: usize = 1 << 19;

const WORDS: usize = MAX_FILTER_BITS / 64;

/// Rows and bits of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FilterShape {
    rows: u8,
    row_bits: u8,
}

impl FilterShape {
    /// `rows` from 1 to [`MAX_ROWS`] (one hash each), `bits` in each a power of two from 64 to 65,536, together at most
    /// [`MAX_FILTER_BITS`].
    #[must_use]
    pub const fn new(rows: usize, bits: usize) -> Option<Self> {
        let fits = rows >= 1 && rows <= MAX_ROWS && bits >= 64 && bits <= 1 << 16 && bits.is_power_of_two();
        if fits && rows.saturating_mul(bits) <= MAX_FILTER_BITS {
            Some(FilterShape { rows: rows as u8, row_bits: bits.trailing_zeros() as u8 })
        } else {
            None
        }
    }

    /// Four rows of 65,536.
    pub const DEFAULT: FilterShape = FilterShape { rows: 4, row_bits: 16 };

    /// Number of rows.
    #[inline(always)]
    #[must_use]
    pub const fn rows(self) -> usize {
        self.rows as usize
    }

    /// Bits of a row, as a power of two.
    #[inline(always)]
    #[must_use]
    pub const fn row_bits(self) -> u32 {
        self.row_bits as u32
    }

    /// The same, with as many rows as usual, if it has them: as a constant, so that the compiler knows them one by one.
    #[inline(always)]
    fn usual(self) -> Option<Self> {
        (self.rows() == ROWS_PER_BLOCK).then_some(FilterShape { rows: ROWS_PER_BLOCK as u8, ..self })
    }

    /// Bits in all.
    #[must_use]
    pub const fn bits(self) -> usize {
        self.rows().wrapping_shl(self.row_bits())
    }
}

impl Default for FilterShape {
    fn default() -> Self {
        FilterShape::DEFAULT
    }
}

/// What to remember and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Settings {
    /// Whether to.
    pub on: bool,
    /// What makes a flow.
    pub key: KeyKind,
    /// Rows and bits of the filter.
    pub shape: FilterShape,
}

impl Settings {
    /// As [`Default`], for statics: off; by source, four rows of 65,536.
    pub const DEFAULT: Settings = Settings { on: false, key: KeyKind::Src, shape: FilterShape::DEFAULT };
}

/// The bits, row by row; of a word the lowest first.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Membership {
    words: [u64; WORDS],
}

impl Default for Membership {
    fn default() -> Self {
        Self::new()
    }
}

impl Membership {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Membership { words: [0; WORDS] }
    }

    /// Remembers a key.
    #[inline(always)]
    pub fn update(&mut self, shape: FilterShape, crc: u32, tabulation: &Tabulation) {
        match shape.usual() {
            Some(shape) => self.update_rows(shape, crc, tabulation),
            None => self.update_rows(shape, crc, tabulation),
        }
    }

    #[inline(always)]
    fn update_rows(&mut self, shape: FilterShape, crc: u32, tabulation: &Tabulation) {
        for_each_bit(shape, crc, tabulation, |word, bit| {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let word = &mut self.words[word & (WORDS - 1)];
            *word |= bit;
        });
    }

    /// Whether a key was remembered: never wrong about one that was, and about others wrong as often as the bits that are set make it
    /// probable.
    #[must_use]
    pub fn contains(&self, shape: FilterShape, crc: u32, tabulation: &Tabulation) -> bool {
        let mut all = true;
        for_each_bit(shape, crc, tabulation, |word, bit| all &= self.words.get(word).is_some_and(|word| word & bit != 0));
        all
    }

    /// The words in use.
    #[must_use]
    pub fn words(&self, shape: FilterShape) -> &[u64] {
        self.words.get(..shape.bits() >> 6).unwrap_or(&self.words)
    }

    /// The words in use, to be filled from a device.
    #[must_use]
    pub fn words_mut(&mut self, shape: FilterShape) -> &mut [u64] {
        let (used, _) = self.words.split_at_mut((shape.bits() >> 6).min(WORDS));
        used
    }

    /// Remembers all that another core or window does.
    pub fn merge(&mut self, other: &Membership, shape: FilterShape) {
        for (mine, theirs) in self.words_mut(shape).iter_mut().zip(other.words(shape)) {
            *mine |= theirs;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self, shape: FilterShape) {
        self.words_mut(shape).fill(0);
    }
}

/// Calls `visit(word, bit)` for the bit of every row.
#[inline(always)]
fn for_each_bit(shape: FilterShape, crc: u32, tabulation: &Tabulation, mut visit: impl FnMut(usize, u64)) {
    let row_bits = shape.row_bits();
    tabulation.for_each_row(crc, shape.rows(), |row, hash| {
        let place = row.wrapping_shl(row_bits) | hash.wrapping_shr(16_u32.wrapping_sub(row_bits)) as usize;
        visit(place >> 6, 1_u64.wrapping_shl((place & 63) as u32));
    });
}
