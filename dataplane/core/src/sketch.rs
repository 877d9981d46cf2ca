//! Frequencies in rows of counters: Count Sketch (Charikar et al. 2002) and Count-Min (Cormode and Muthukrishnan 2005).
//!
//! A key has one counter in every row. Count-Min adds one to each, and the smallest is never too small. Count Sketch adds or subtracts
//! one, by a sign of its own for every row, so that what other keys add cancels out on the average, and takes the median. Row hashes have
//! 16 bits: the column is in the upper ones, the sign is the lowest, which no column uses.

use crate::counter::SharedCounter;
use crate::hash::{MAX_ROWS, ROWS_PER_BLOCK, Tabulation};
use crate::key::KeyKind;

/// Counters of the largest sketch.
pub const MAX_CELLS: usize = 1 << 14;

/// Bits of the number of columns of the longest row.
pub const MAX_COLUMN_BITS: u32 = 14;

/// How rows become a frequency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SketchKind {
    /// Signed counters, the median of rows: no bias.
    #[default]
    CountSketch = 0,
    /// Unsigned counters, the smallest of rows: never too low.
    CountMin = 1,
}

impl SketchKind {
    /// Both kinds.
    pub const ALL: [SketchKind; 2] = [SketchKind::CountSketch, SketchKind::CountMin];

    /// The name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SketchKind::CountSketch => "count-sketch",
            SketchKind::CountMin => "count-min",
        }
    }
}

/// Whether a measurement that takes a sketch is on, and with which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Not measured.
    #[default]
    Off = 0,
    /// With a Count Sketch.
    CountSketch = 1,
    /// With a Count-Min sketch.
    CountMin = 2,
}

impl Mode {
    /// The sketch, if the measurement is on.
    #[inline(always)]
    #[must_use]
    pub fn sketch(self) -> Option<SketchKind> {
        match self {
            Mode::Off => None,
            Mode::CountSketch => Some(SketchKind::CountSketch),
            Mode::CountMin => Some(SketchKind::CountMin),
        }
    }
}

impl From<SketchKind> for Mode {
    fn from(sketch: SketchKind) -> Self {
        match sketch {
            SketchKind::CountSketch => Mode::CountSketch,
            SketchKind::CountMin => Mode::CountMin,
        }
    }
}

/// What to measure with a sketch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Settings {
    /// Whether to measure, and with which sketch.
    pub mode: Mode,
    /// What makes a flow.
    pub key: KeyKind,
    /// Rows and columns.
    pub shape: Shape,
}

impl Settings {
    /// As [`Default`], for statics: off; by source, four rows of 1024.
    pub const DEFAULT: Settings = Settings { mode: Mode::Off, key: KeyKind::Src, shape: Shape::DEFAULT };

    /// Whether to measure by this key.
    #[inline(always)]
    pub(crate) fn uses(&self, key: KeyKind) -> bool {
        self.mode != Mode::Off && self.key == key
    }
}

/// Rows and columns of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Shape {
    rows: u8,
    column_bits: u8,
}

impl Shape {
    /// `rows` from 1 to [`MAX_ROWS`], `columns` a power of two from 16 up, together at most [`MAX_CELLS`] counters.
    #[must_use]
    pub const fn new(rows: usize, columns: usize) -> Option<Self> {
        let fits = rows >= 1 && rows <= MAX_ROWS && columns >= 16 && columns.is_power_of_two();
        if fits && rows.saturating_mul(columns) <= MAX_CELLS {
            Some(Shape { rows: rows as u8, column_bits: columns.trailing_zeros() as u8 })
        } else {
            None
        }
    }

    /// Four rows of 1024.
    pub const DEFAULT: Shape = Shape { rows: 4, column_bits: 10 };

    /// Number of rows.
    #[inline(always)]
    #[must_use]
    pub const fn rows(self) -> usize {
        self.rows as usize
    }

    /// Number of columns as a power of two.
    #[inline(always)]
    #[must_use]
    pub const fn column_bits(self) -> u32 {
        self.column_bits as u32
    }

    /// Counters in a row.
    #[inline(always)]
    #[must_use]
    pub const fn columns(self) -> usize {
        1_usize.wrapping_shl(self.column_bits())
    }

    /// The same, with as many rows as usual, if it has them: as a constant, so that the compiler knows them one by one.
    #[inline(always)]
    fn usual(self) -> Option<Self> {
        (self.rows() == ROWS_PER_BLOCK).then_some(Shape { rows: ROWS_PER_BLOCK as u8, ..self })
    }

    /// Counters in all.
    #[must_use]
    pub const fn cells(self) -> usize {
        self.rows().wrapping_mul(self.columns())
    }
}

impl Default for Shape {
    fn default() -> Self {
        Shape::DEFAULT
    }
}

/// Counters, row by row; the first [`Shape::cells`] are in use.
#[derive(Clone, Copy, PartialEq, Eq)]
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
    /// Zeros.
    #[must_use]
    pub const fn new() -> Self {
        Sketch { cells: [0; MAX_CELLS] }
    }

    /// Counts a key once.
    #[inline(always)]
    pub fn update(&mut self, kind: SketchKind, shape: Shape, crc: u32, tabulation: &Tabulation) {
        self.update_by(kind, shape, crc, tabulation, 1);
    }

    /// Counts a key so many times.
    #[inline(always)]
    pub fn update_by(&mut self, kind: SketchKind, shape: Shape, crc: u32, tabulation: &Tabulation, times: u32) {
        match shape.usual() {
            Some(shape) => self.update_rows(kind, shape, crc, tabulation, times),
            None => self.update_rows(kind, shape, crc, tabulation, times),
        }
    }

    #[inline(always)]
    fn update_rows(&mut self, kind: SketchKind, shape: Shape, crc: u32, tabulation: &Tabulation, times: u32) {
        for_each_row(kind, shape, crc, tabulation, |_, cell, sign| {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let cell = &mut self.cells[cell & (MAX_CELLS - 1)];
            *cell = cell.wrapping_add(sign.wrapping_mul(times as i32));
        });
    }

    /// How often a key was counted, as far as the sketch can say.
    #[must_use]
    pub fn query(&self, kind: SketchKind, shape: Shape, crc: u32, tabulation: &Tabulation) -> i32 {
        let mut values = Values::new();
        for_each_row(kind, shape, crc, tabulation, |row, cell, sign| {
            values.set(row, self.cells.get(cell).copied().unwrap_or(0).wrapping_mul(sign));
        });
        values.answer(kind, shape)
    }

    /// The counters in use, row by row. Those of Count-Min are unsigned.
    #[must_use]
    pub fn cells(&self, shape: Shape) -> &[i32] {
        self.cells.get(..shape.cells()).unwrap_or(&self.cells)
    }

    /// The counters in use, to be filled from a device.
    #[must_use]
    pub fn cells_mut(&mut self, shape: Shape) -> &mut [i32] {
        let (used, _) = self.cells.split_at_mut(shape.cells().min(MAX_CELLS));
        used
    }

    /// The sketch of two streams together: counters add up.
    pub fn merge(&mut self, other: &Sketch, shape: Shape) {
        for (mine, theirs) in self.cells_mut(shape).iter_mut().zip(other.cells(shape)) {
            *mine = mine.wrapping_add(*theirs);
        }
    }

    /// Sets the counters in use to zero.
    pub fn clear(&mut self, shape: Shape) {
        self.cells_mut(shape).fill(0);
    }
}

/// A sketch that several cores count in.
#[repr(C)]
pub struct SharedSketch {
    cells: [SharedCounter; MAX_CELLS],
}

impl Default for SharedSketch {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether other cores count in the same sketch at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody else does: plain loads and stores will do.
    Alone,
    /// Others do.
    Shared,
}

impl SharedSketch {
    /// Zeros.
    #[must_use]
    pub const fn new() -> Self {
        SharedSketch { cells: [const { SharedCounter::new() }; MAX_CELLS] }
    }

    /// Counts a key once, and says how often it was counted, as far as the sketch can say.
    #[inline(always)]
    pub fn update_and_query(&self, sharing: Sharing, kind: SketchKind, shape: Shape, crc: u32, tabulation: &Tabulation) -> i32 {
        self.update_by_and_query(sharing, kind, shape, crc, tabulation, 1)
    }

    /// Counts a key so many times, and says how often it was counted after the first of them. After each further one the answer is higher
    /// by one, since every row is: the median and the smallest of rows rise with them.
    #[inline(always)]
    pub fn update_by_and_query(
        &self,
        sharing: Sharing,
        kind: SketchKind,
        shape: Shape,
        crc: u32,
        tabulation: &Tabulation,
        times: u32,
    ) -> i32 {
        match shape.usual() {
            Some(shape) => self.update_rows(sharing, kind, shape, crc, tabulation, times),
            None => self.update_rows(sharing, kind, shape, crc, tabulation, times),
        }
    }

    #[inline(always)]
    fn update_rows(&self, sharing: Sharing, kind: SketchKind, shape: Shape, crc: u32, tabulation: &Tabulation, times: u32) -> i32 {
        let mut values = Values::new();
        for_each_row(kind, shape, crc, tabulation, |row, cell, sign| {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let cell = &self.cells[cell & (MAX_CELLS - 1)];
            let term = sign.wrapping_mul(times as i32);
            let before = match sharing {
                Sharing::Alone => cell.add_alone(term),
                Sharing::Shared => cell.add(term),
            };
            values.set(row, before.wrapping_add(sign).wrapping_mul(sign));
        });
        values.answer(kind, shape)
    }

    /// Adds the counters in use to those of another sketch.
    #[cfg(not(target_arch = "bpf"))]
    pub fn merge_into(&self, sketch: &mut Sketch, shape: Shape) {
        for (sum, cell) in sketch.cells_mut(shape).iter_mut().zip(&self.cells) {
            *sum = sum.wrapping_add(cell.load());
        }
    }

    /// Sets the counters in use to zero.
    #[cfg(not(target_arch = "bpf"))]
    pub fn clear(&self, shape: Shape) {
        self.cells.iter().take(shape.cells()).for_each(|cell| cell.store(0));
    }
}

/// Calls `visit(row, cell, sign)` for every row: the index of the key's counter, and what is added to it.
#[inline(always)]
fn for_each_row(kind: SketchKind, shape: Shape, crc: u32, tabulation: &Tabulation, mut visit: impl FnMut(usize, usize, i32)) {
    let column_bits = shape.column_bits();
    tabulation.for_each_row(crc, shape.rows(), |row, hash| {
        let cell = row.wrapping_shl(column_bits) | hash.wrapping_shr(16_u32.wrapping_sub(column_bits)) as usize;
        let sign = match kind {
            SketchKind::CountMin => 1,
            SketchKind::CountSketch => 1_i32.wrapping_sub((hash as i32 & 1) << 1),
        };
        visit(row, cell, sign);
    });
}

/// What the rows say.
struct Values([i32; MAX_ROWS]);

impl Values {
    #[inline(always)]
    fn new() -> Self {
        // Rows that are not there sort behind all others.
        Values([i32::MAX; MAX_ROWS])
    }

    #[inline(always)]
    fn set(&mut self, row: usize, value: i32) {
        if let Some(slot) = self.0.get_mut(row) {
            *slot = value;
        }
    }

    #[inline(always)]
    fn answer(&self, kind: SketchKind, shape: Shape) -> i32 {
        match kind {
            SketchKind::CountSketch => self.median(shape),
            SketchKind::CountMin => self.smallest(),
        }
    }

    /// Counters of Count-Min are unsigned.
    #[inline(always)]
    fn smallest(&self) -> i32 {
        self.0.iter().fold(i32::MAX, |least, &value| order(least, if value < 0 { i32::MAX } else { value }).0)
    }

    /// The median; of an even number of rows the mean of the two in the middle, rounded up.
    #[inline(always)]
    fn median(&self, shape: Shape) -> i32 {
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
        // Neighbours are put in order as often as there are values: no branch depends on a value, which the eBPF verifier would follow
        // both ways.
        for round in 0..MAX_ROWS {
            let (_, from) = sorted.split_at_mut(round & 1);
            for pair in from.chunks_exact_mut(2) {
                if let [first, second] = pair {
                    (*first, *second) = order(*first, *second);
                }
            }
        }
        let value = |index: usize| sorted.get(index).copied().unwrap_or(0);
        mean(value(rows.wrapping_sub(1) >> 1), value(rows >> 1))
    }
}

/// The mean, rounded up: entropies come out closer than with half of the counts too low by a half.
#[inline(always)]
fn mean(a: i32, b: i32) -> i32 {
    (i64::from(a).wrapping_add(i64::from(b)).wrapping_add(1) >> 1) as i32
}

/// The smaller and the larger of two. BPF has no instruction for it; without branches the verifier has one path to follow.
#[inline(always)]
fn order(a: i32, b: i32) -> (i32, i32) {
    if cfg!(target_arch = "bpf") {
        let difference = i64::from(a).wrapping_sub(i64::from(b));
        let excess = (difference & (difference >> 63)) as i32;
        (b.wrapping_add(excess), a.wrapping_sub(excess))
    } else {
        (a.min(b), a.max(b))
    }
}
