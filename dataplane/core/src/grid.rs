//! Shape of sketches and filters: rows and columns.

use crate::hash::{MAX_ROWS, ROWS_PER_BLOCK};
use zerocopy::{Immutable, IntoBytes};

/// Maximum number of counters of a sketch.
pub const MAX_CELLS: usize = 1 << 14;

/// Maximum number of bits of a filter.
pub const MAX_FILTER_BITS: usize = 1 << 19;

/// Maximum number of cells of a spread sketch, rows padded to a power of two.
pub const MAX_SPREAD_CELLS: usize = 1 << 12;

/// Rows of equal length, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(C)]
pub struct Grid {
    rows: u8,
    column_bits: u8,
}

impl Grid {
    /// Four rows of 1024: the default of sketches.
    pub const COUNTERS: Grid = Grid { rows: 4, column_bits: 10 };
    /// Three rows of 512: the default of spread.
    pub const CELLS: Grid = Grid { rows: 3, column_bits: 9 };
    /// Four rows of 65,536: the default of filters.
    pub const BITS: Grid = Grid { rows: 4, column_bits: 16 };

    /// Returns the shape of a sketch, or `None` if it is out of range: `rows` from 1 to
    /// [`MAX_ROWS`], `columns` a power of two from 16, in total at most [`MAX_CELLS`] counters.
    #[must_use]
    pub const fn of_counters(rows: usize, columns: usize) -> Option<Self> {
        Self::new(rows, columns, 16, MAX_CELLS)
    }

    /// Returns the shape of a filter, or `None` if it is out of range: `rows` from 1 to
    /// [`MAX_ROWS`] (one hash each), `columns` a power of two from 64 to 65,536, in total at most
    /// [`MAX_FILTER_BITS`].
    #[must_use]
    pub const fn of_bits(rows: usize, columns: usize) -> Option<Self> {
        if columns > 1 << 16 { None } else { Self::new(rows, columns, 64, MAX_FILTER_BITS) }
    }

    /// Returns the shape of a spread sketch, or `None` if it is out of range: `rows` from 1 to
    /// [`ROWS_PER_BLOCK`], `columns` a power of two from 16, in total at most
    /// [`MAX_SPREAD_CELLS`] cells, rows padded to a power of two.
    #[must_use]
    pub const fn of_cells(rows: usize, columns: usize) -> Option<Self> {
        if rows > ROWS_PER_BLOCK {
            return None;
        }
        match Self::new(rows, columns, 16, MAX_SPREAD_CELLS) {
            Some(shape) if shape.padded_cells() <= MAX_SPREAD_CELLS => Some(shape),
            _ => None,
        }
    }

    const fn new(rows: usize, columns: usize, least: usize, cells: usize) -> Option<Self> {
        let fits = rows >= 1 && rows <= MAX_ROWS && columns >= least && columns.is_power_of_two();
        if fits && rows.saturating_mul(columns) <= cells {
            Some(Grid { rows: rows as u8, column_bits: columns.trailing_zeros() as u8 })
        } else {
            None
        }
    }

    /// Returns the number of rows.
    #[inline(always)]
    #[must_use]
    pub const fn rows(self) -> usize {
        self.rows as usize
    }

    /// Returns the number of columns as a power of two.
    #[inline(always)]
    #[must_use]
    pub const fn column_bits(self) -> u32 {
        self.column_bits as u32
    }

    /// Returns the number of cells in a row.
    #[inline(always)]
    #[must_use]
    pub const fn columns(self) -> usize {
        1_usize << self.column_bits()
    }

    /// Returns the number of cells in all rows.
    #[must_use]
    pub const fn cells(self) -> usize {
        self.rows() << self.column_bits()
    }

    /// Returns the number of cells in memory: rows are padded to a power of two.
    #[must_use]
    pub const fn padded_cells(self) -> usize {
        self.mask() + 1
    }

    /// Returns the mask that bounds a cell's index, whatever is known of row and column: the
    /// verifier refuses programs whose index may exceed the memory (`BPF.md`, bounds).
    #[inline(always)]
    pub(crate) const fn mask(self) -> usize {
        const { assert!(MAX_ROWS <= 16, "two steps fill the bits of a row") };
        let last = self.rows() - 1;
        let last = last | last >> 1;
        let last = last | last >> 2;
        (last << self.column_bits()) | (self.columns() - 1)
    }

    /// Returns the columns of a key in the rows of a [block](crate::hash::Tabulation::row_block),
    /// given the hashes of these rows; 16 bits each.
    #[inline(always)]
    pub(crate) const fn columns_of(self, hashes: u64) -> u64 {
        const EACH: u64 = 0x0001_0001_0001_0001;
        (hashes >> (16_u32 - self.column_bits())) & ((self.columns() as u64 - 1) * EACH)
    }

    /// Returns the same shape with a constant number of rows, if it is the usual one, so that the
    /// compiler knows each row.
    #[inline(always)]
    pub(crate) fn usual(self) -> Option<Self> {
        (self.rows() == ROWS_PER_BLOCK).then_some(Grid { rows: ROWS_PER_BLOCK as u8, ..self })
    }
}
