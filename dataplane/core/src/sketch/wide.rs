//! Sums of counters over cores, interfaces and windows.

use super::rows::for_each_row;
use super::{MAX_CELLS, Sketch, SketchKind};
use crate::grid::Grid;
use crate::hash::{MAX_ROWS, Tabulation};
use zerocopy::FromZeros;

/// Counters of 64 bits, row by row: sums over cores, interfaces and windows. They cannot wrap: that
/// would take 2^32 full counters.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct SketchTotals {
    cells: [i64; MAX_CELLS],
    /// One bit per counter, set if one of its summands is full.
    full: [u64; MAX_CELLS >> 6],
}

impl Default for SketchTotals {
    fn default() -> Self {
        Self::new()
    }
}

/// Estimate of one sketch row for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowEstimate {
    /// Estimated count.
    pub value: i64,
    /// Whether the row's counter is full: it lacks later packets.
    pub full: bool,
}

impl SketchTotals {
    /// Creates a sketch of zeros.
    #[must_use]
    pub const fn new() -> Self {
        SketchTotals { cells: [0; MAX_CELLS], full: [0; MAX_CELLS >> 6] }
    }

    /// Adds a counter of a core or a device.
    pub fn add(&mut self, kind: SketchKind, index: usize, cell: i32) {
        if let Some(sum) = self.cells.get_mut(index) {
            *sum += match kind {
                SketchKind::CountSketch => i64::from(cell),
                SketchKind::CountMin => i64::from(cell as u32),
            };
        }
        if let Some(word) = self.full.get_mut(index >> 6).filter(|_| kind.is_full(cell)) {
            *word |= 1_u64 << (index & 63);
        }
    }

    /// Adds the counters of a core or a device.
    pub fn merge(&mut self, other: &Sketch, kind: SketchKind, shape: Grid) {
        other
            .cells(shape)
            .iter()
            .enumerate()
            .for_each(|(index, &cell)| self.add(kind, index, cell));
    }

    /// Restores a counter from its serialized value.
    pub fn set(&mut self, index: usize, value: i64, full: bool) {
        if let Some(cell) = self.cells.get_mut(index) {
            *cell = value;
        }
        if let Some(word) = self.full.get_mut(index >> 6) {
            let bit = 1_u64 << (index & 63);
            *word = if full { *word | bit } else { *word & !bit };
        }
    }

    /// Adds the counters of another sketch. A counter that is full in either one is full in the
    /// sum.
    pub fn unite(&mut self, other: &SketchTotals, shape: Grid) {
        for (mine, theirs) in self.cells.iter_mut().zip(other.cells(shape)) {
            *mine += theirs;
        }
        self.full.iter_mut().zip(&other.full).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Returns the counters in use, row by row.
    #[must_use]
    pub fn cells(&self, shape: Grid) -> &[i64] {
        self.cells.get(..shape.cells()).unwrap_or(&self.cells)
    }

    /// Returns whether a summand of this counter was full.
    #[must_use]
    pub fn is_full(&self, index: usize) -> bool {
        self.full.get(index >> 6).is_some_and(|word| (word >> (index & 63)) & 1 == 1)
    }

    /// Returns how many of the counters in use are full.
    #[must_use]
    pub fn full(&self, shape: Grid) -> usize {
        (0..shape.cells()).filter(|&index| self.is_full(index)).count()
    }

    /// Returns the estimate of each row for a key.
    pub fn rows(
        &self,
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
        mut visit: impl FnMut(RowEstimate),
    ) {
        for_each_row(kind, shape, crc, tabulation, |_, cell, sign| {
            let value = self.cells.get(cell).copied().unwrap_or(0) * i64::from(sign);
            visit(RowEstimate { value, full: self.is_full(cell) });
        });
    }

    /// Returns the estimate of a key's count.
    #[must_use]
    pub fn query(&self, kind: SketchKind, shape: Grid, crc: u32, tabulation: &Tabulation) -> i64 {
        let (mut values, mut rows) = ([i64::MAX; MAX_ROWS], 0);
        self.rows(kind, shape, crc, tabulation, |estimate| {
            if let Some(value) = values.get_mut(rows) {
                *value = estimate.value;
                rows += 1;
            }
        });
        let (values, _) = values.split_at_mut(rows);
        kind.answer(values)
    }

    /// Sets the counters in use to zero.
    pub fn clear(&mut self, shape: Grid) {
        self.cells.iter_mut().take(shape.cells()).for_each(|cell| *cell = 0);
        self.full.fill(0);
    }
}

impl SketchKind {
    /// Combines the estimates of all rows, and sorts them: the minimum, or the median; for an even
    /// number of rows the mean of the two in the middle, rounded up.
    #[must_use]
    pub fn answer(self, rows: &mut [i64]) -> i64 {
        rows.sort_unstable();
        let value = |index: usize| rows.get(index).copied().unwrap_or(0);
        match self {
            SketchKind::CountMin => value(0),
            SketchKind::CountSketch => {
                let (low, high) =
                    (value(rows.len().saturating_sub(1) >> 1), value(rows.len() >> 1));
                (low + high + 1) >> 1
            }
        }
    }
}
