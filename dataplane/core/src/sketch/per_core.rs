//! Counters of one core.

use super::rows::{RowValues, cells_of, for_each_row, sign};
use super::{MAX_CELLS, SketchKind, room_for};
use crate::grid::Grid;
use crate::hash::{Tabulation, row as row_hash};
use zerocopy::FromZeros;

/// Counters, row by row; the first [`Grid::cells`] are in use.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Sketch {
    cells: [i32; MAX_CELLS],
}

impl Default for Sketch {
    fn default() -> Self {
        Self::new()
    }
}

impl Sketch {
    /// Creates a sketch of zeros.
    #[must_use]
    pub const fn new() -> Self {
        Sketch { cells: [0; MAX_CELLS] }
    }

    /// Counts a key once.
    #[inline(always)]
    pub fn update(&mut self, kind: SketchKind, shape: Grid, crc: u32, tabulation: &Tabulation) {
        self.update_by(kind, shape, crc, tabulation, 1);
    }

    /// Counts a key `times` times.
    #[inline(always)]
    pub fn update_by(
        &mut self,
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
        times: u32,
    ) {
        match shape.usual() {
            Some(shape) => self.update_rows::<true>(kind, shape, crc, tabulation, times),
            None => self.update_rows::<true>(kind, shape, crc, tabulation, times),
        }
    }

    /// As [`update_by`](Self::update_by), where the packets of the bank are [too
    /// few](Sharing::AloneWithFew) to fill a counter. `hashes`: those of the first rows.
    #[inline(always)]
    pub(crate) fn update_few(
        &mut self,
        kind: SketchKind,
        shape: Grid,
        (crc, hashes): (u32, u64),
        tabulation: &Tabulation,
        times: u32,
    ) {
        let Some(shape) = shape.usual() else {
            return self.update_rows::<false>(kind, shape, crc, tabulation, times);
        };
        for (row, cell) in cells_of(shape, hashes).into_iter().enumerate() {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let cell = &mut self.cells[usize::from(cell) & (MAX_CELLS - 1)];
            let term = sign(kind, row_hash(hashes, row)).wrapping_mul(times as i32);
            *cell = cell.wrapping_add(term);
        }
    }

    #[inline(always)]
    fn update_rows<const LOOK: bool>(
        &mut self,
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
        times: u32,
    ) {
        let mask = shape.mask();
        for_each_row(kind, shape, crc, tabulation, |_, cell, sign| {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let cell = &mut self.cells[cell & mask & (MAX_CELLS - 1)];
            let term = sign.wrapping_mul(times as i32);
            let term = if LOOK { room_for(kind, *cell, term) } else { term };
            *cell = cell.wrapping_add(term);
        });
    }

    /// Returns the estimate of a key's count.
    #[must_use]
    pub fn query(&self, kind: SketchKind, shape: Grid, crc: u32, tabulation: &Tabulation) -> i32 {
        let mut values = RowValues::new();
        for_each_row(kind, shape, crc, tabulation, |row, cell, sign| {
            values.set(row, self.cells.get(cell).copied().unwrap_or(0).wrapping_mul(sign));
        });
        values.answer(kind, shape)
    }

    /// Returns the counters in use, row by row. Those of Count-Min are unsigned.
    #[must_use]
    pub fn cells(&self, shape: Grid) -> &[i32] {
        self.cells.get(..shape.cells()).unwrap_or(&self.cells)
    }

    /// Returns the counters in use, to be filled from a device.
    #[must_use]
    pub fn cells_mut(&mut self, shape: Grid) -> &mut [i32] {
        let (used, _) = self.cells.split_at_mut(shape.cells().min(MAX_CELLS));
        used
    }

    /// Sets the counters in use to zero.
    pub fn clear(&mut self, shape: Grid) {
        self.cells_mut(shape).fill(0);
    }
}
