//! Counters that several cores count in.

use super::rows::{RowValues, for_each_row};
#[cfg(not(target_arch = "bpf"))]
use super::rows::{cells_of, sign};
use super::{MAX_CELLS, SketchKind, SketchTotals, room_for};
use crate::counter::{SharedCounter, Sharing};
use crate::grid::Grid;
use crate::hash::Tabulation;
#[cfg(not(target_arch = "bpf"))]
use crate::hash::{ROWS_PER_BLOCK, row as row_hash};
use zerocopy::FromZeros;

/// Maximum number of packets that are counted at once.
#[cfg(not(target_arch = "bpf"))]
pub(crate) const AT_ONCE: usize = 64;

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

    /// Counts packets as [`update_and_query`](Self::update_and_query) does one by one, in a
    /// [usual](Grid::usual) shape and where no counter [fills](Sharing::AloneWithFew), given the
    /// hashes of the rows. Writes the estimate of each. Only the counters are updated one by one;
    /// vectors do the rest.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub(crate) fn update_and_query_all(
        &self,
        kind: SketchKind,
        shape: Grid,
        hashes: &[u64],
        estimates: &mut [i32; AT_ONCE],
    ) {
        let hashes = hashes.get(..AT_ONCE).unwrap_or(hashes);
        let mut cells = [[0; ROWS_PER_BLOCK]; AT_ONCE];
        let mut rows = [[0; AT_ONCE]; ROWS_PER_BLOCK];
        for (cells, &hashes) in cells.iter_mut().zip(hashes) {
            *cells = cells_of(shape, hashes);
        }
        for (at, (cells, &hashes)) in cells.iter().zip(hashes).enumerate() {
            for (row, (&cell, values)) in cells.iter().zip(&mut rows).enumerate() {
                #[allow(clippy::indexing_slicing, reason = "masked to the arrays' lengths")]
                let (cell, value) = (
                    &self.cells[usize::from(cell) & (MAX_CELLS - 1)],
                    &mut values[at & (AT_ONCE - 1)],
                );
                *value = cell.store_alone(cell.load(), sign(kind, row_hash(hashes, row)));
            }
        }
        let [first, second, third, fourth] = &rows;
        let each_row = first.iter().zip(second).zip(third).zip(fourth);
        for ((estimate, &hashes), (((&a, &b), &c), &d)) in
            estimates.iter_mut().zip(hashes).zip(each_row)
        {
            let mut values = RowValues::new();
            for (row, before) in [a, b, c, d].into_iter().enumerate() {
                let sign = sign(kind, row_hash(hashes, row));
                values.set(row, before.wrapping_add(sign).wrapping_mul(sign));
            }
            *estimate = values.answer(kind, shape);
        }
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
