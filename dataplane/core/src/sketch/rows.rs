//! Rows of a sketch: the counter of a key in each, and the estimate from all of them.

use super::{MAX_CELLS, SketchKind};
use crate::branchless;
use crate::grid::Grid;
use crate::hash::{MAX_ROWS, ROWS_PER_BLOCK, Tabulation};

/// Calls `visit(row, cell, sign)` for every row: index of the key's counter, and the amount to add
/// to it.
#[inline(always)]
pub(super) fn for_each_row(
    kind: SketchKind,
    shape: Grid,
    crc: u32,
    tabulation: &Tabulation,
    mut visit: impl FnMut(usize, usize, i32),
) {
    let column_bits = shape.column_bits();
    tabulation.for_each_row(crc, shape.rows(), |row, hash| {
        let cell = (row << column_bits) | (hash >> (16_u32 - column_bits)) as usize;
        visit(row, cell, sign(kind, hash as u16));
    });
}

/// Returns the amount that one packet adds to a row's counter: 1 or -1.
#[inline(always)]
pub(super) fn sign(kind: SketchKind, hash: u16) -> i32 {
    match kind {
        SketchKind::CountMin => 1,
        SketchKind::CountSketch => -(i32::from(hash) & 1) | 1,
    }
}

/// Returns the indices of a key's counters in a [usual](Grid::usual) shape, given the hashes of its
/// rows.
#[inline(always)]
pub(super) fn cells_of(shape: Grid, hashes: u64) -> [u16; ROWS_PER_BLOCK] {
    const { assert!(MAX_CELLS <= 1 << 16, "a counter's index has 16 bits") };
    // The first column of each row.
    let rows = (shape.columns() as u64) * 0x0003_0002_0001_0000;
    let cells = shape.columns_of(hashes) | rows;
    [cells as u16, (cells >> 16) as u16, (cells >> 32) as u16, (cells >> 48) as u16]
}

/// Row estimates of a key.
pub(super) struct RowValues([i32; MAX_ROWS]);

impl RowValues {
    #[inline(always)]
    pub(super) fn new() -> Self {
        // Unused rows sort after all others.
        RowValues([i32::MAX; MAX_ROWS])
    }

    #[inline(always)]
    pub(super) fn set(&mut self, row: usize, value: i32) {
        if let Some(slot) = self.0.get_mut(row) {
            *slot = value;
        }
    }

    #[inline(always)]
    pub(super) fn answer(&self, kind: SketchKind, shape: Grid) -> i32 {
        match kind {
            SketchKind::CountSketch => self.median(shape),
            SketchKind::CountMin => self.smallest(),
        }
    }

    /// Returns the minimum of the rows. Counters of Count-Min are unsigned.
    #[inline(always)]
    fn smallest(&self) -> i32 {
        self.0.iter().fold(i32::MAX, |least, &value| order(least, not_negative(value)).0)
    }

    /// Returns the median; for an even number of rows the mean of the two in the middle, rounded
    /// up.
    #[inline(always)]
    fn median(&self, shape: Grid) -> i32 {
        let [a, b, c, d, ..] = self.0;
        match shape.rows() {
            1 => a,
            2 => mean(a, b),
            3 => {
                let (low, high) = order(a, b);
                order(low, order(high, c).0).1
            }
            4 => {
                let ((low, high), (other_low, other_high)) = (order(a, b), order(c, d));
                mean(order(low, other_low).1, order(high, other_high).0)
            }
            rows => self.middle(rows),
        }
    }

    #[inline(always)]
    fn middle(&self, rows: usize) -> i32 {
        let mut sorted = self.0;
        // Odd-even sort: neighbours are ordered in as many rounds as there are values. No branch
        // depends on a value; the eBPF verifier would follow both sides.
        for round in 0..MAX_ROWS {
            let (_, from) = sorted.split_at_mut(round & 1);
            for pair in from.chunks_exact_mut(2) {
                if let [first, second] = pair {
                    (*first, *second) = order(*first, *second);
                }
            }
        }
        let value = |index: usize| sorted.get(index).copied().unwrap_or(0);
        mean(value((rows - 1) >> 1), value(rows >> 1))
    }
}

/// Returns the mean, rounded up: rounding down would make half of the counts too low by one half,
/// and entropies less exact.
#[inline(always)]
fn mean(a: i32, b: i32) -> i32 {
    if cfg!(target_arch = "bpf") {
        ((i64::from(a) + i64::from(b) + 1) >> 1) as i32
    } else {
        // The same without a wider sum.
        (a | b) - ((a ^ b) >> 1)
    }
}

/// Returns the smaller and the larger of two numbers.
#[inline(always)]
fn order(a: i32, b: i32) -> (i32, i32) {
    if cfg!(target_arch = "bpf") { branchless::order(a, b) } else { (a.min(b), a.max(b)) }
}

/// Returns a counter of Count-Min, limited to `i32::MAX`.
#[inline(always)]
fn not_negative(value: i32) -> i32 {
    if cfg!(target_arch = "bpf") {
        branchless::not_negative(value)
    } else if value < 0 {
        i32::MAX
    } else {
        value
    }
}
