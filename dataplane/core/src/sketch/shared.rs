//! Counters that several cores count in.

use super::rows::{RowValues, for_each_row};
use super::{MAX_CELLS, SketchKind, SketchTotals, room_for};
use crate::counter::{SharedCounter, Sharing};
use crate::grid::Grid;
use crate::hash::Tabulation;
use zerocopy::FromZeros;

/// Sketch that several cores count in.
#[derive(FromZeros)]
#[repr(C)]
pub struct SharedSketch {
    cells: [SharedCounter; MAX_CELLS],
}

impl Default for SharedSketch {
    fn default() -> Self {
        Self::new()
    }
}

impl SharedSketch {
    /// Creates a sketch of zeros.
    #[must_use]
    pub const fn new() -> Self {
        SharedSketch { cells: [const { SharedCounter::new() }; MAX_CELLS] }
    }

    /// Counts a key once, and returns the estimate of its count.
    #[inline(always)]
    pub fn update_and_query(
        &self,
        sharing: Sharing,
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
    ) -> i32 {
        self.update_by_and_query(sharing, kind, shape, crc, tabulation, 1)
    }

    /// Counts a key `times` times, and returns the estimate of its count after the first of them.
    /// Each further one raises the estimate by one: every row rises by one, and so do their median
    /// and minimum.
    #[inline(always)]
    pub fn update_by_and_query(
        &self,
        sharing: Sharing,
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
        times: u32,
    ) -> i32 {
        match (shape.usual(), sharing.known()) {
            // Code of its own for the usual case: the usual shape, and no other core in the
            // counters.
            (Some(shape), Some(Sharing::AloneWithFew)) => {
                self.update_rows(Sharing::AloneWithFew, kind, shape, crc, tabulation, times)
            }
            (Some(shape), _) => self.update_rows(sharing, kind, shape, crc, tabulation, times),
            (None, _) => self.update_rows(sharing, kind, shape, crc, tabulation, times),
        }
    }

    #[inline(always)]
    fn update_rows(
        &self,
        sharing: Sharing,
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
        times: u32,
    ) -> i32 {
        let mut values = RowValues::new();
        for_each_row(kind, shape, crc, tabulation, |row, cell, sign| {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let cell = &self.cells[cell & (MAX_CELLS - 1)];
            let seen = cell.load();
            let term = sign.wrapping_mul(times as i32);
            let before = match sharing {
                Sharing::AloneWithFew => cell.store_alone(seen, term),
                Sharing::Alone => cell.store_alone(seen, room_for(kind, seen, term)),
                Sharing::Shared => cell.add(room_for(kind, seen, term)),
            };
            values.set(row, before.wrapping_add(sign).wrapping_mul(sign));
        });
        values.answer(kind, shape)
    }

    /// Adds the counters in use to another sketch.
    pub fn merge_into(&self, sketch: &mut SketchTotals, kind: SketchKind, shape: Grid) {
        for (index, cell) in self.cells.iter().take(shape.cells()).enumerate() {
            sketch.add(kind, index, cell.load());
        }
    }

    /// Sets a counter. Test hook: starts from a value that a device would take days to reach.
    pub fn set(&self, index: usize, value: i32) {
        if let Some(cell) = self.cells.get(index) {
            cell.store(value);
        }
    }

    /// Sets the counters in use to zero.
    pub fn clear(&self, shape: Grid) {
        self.cells.iter().take(shape.cells()).for_each(|cell| cell.store(0));
    }
}
