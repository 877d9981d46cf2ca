//! Frequency sketches, rows of counters: Count Sketch (Charikar et al. 2002) and Count-Min (Cormode
//! and Muthukrishnan 2005).
//!
//! A key has one counter in every row. Count-Min adds one to each, and the smallest is never too
//! small. Count Sketch adds or subtracts one, by an independent sign per row, so that the
//! contributions of other keys cancel out on average, and takes the median. Row hashes have 16
//! bits: the upper ones select the column; the lowest, which no column uses, is the sign.
//!
//! Counters never wrap. A counter near the end of its 32-bit range is full: it keeps its value, so
//! that readers recognise it ([`SketchKind::is_full`]). The margin is [`SLACK`]: cores that add at
//! the same time may have checked the counter before one of them filled it, and each may still add
//! the packets of one frame.
//!
//! [`Sketch`] is the memory of one core, and [`SharedSketch`] that of all cores. Both are added up
//! over cores, interfaces and windows in the 64-bit counters of [`WideSketch`].

use crate::branchless;
use crate::counter::{SharedCounter, Sharing};
use crate::grid::Grid;
pub use crate::grid::MAX_CELLS;
use crate::hash::{MAX_ROWS, Tabulation};
use crate::key::KeyKind;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Bits of the number of columns in the longest row.
pub const MAX_COLUMN_BITS: u32 = 14;

/// Kind of sketch: how row counters become a frequency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SketchKind {
    /// Signed counters, median of rows: unbiased.
    #[default]
    CountSketch = 0,
    /// Unsigned counters, minimum of rows: never too low.
    CountMin = 1,
}

impl SketchKind {
    /// Both kinds.
    pub const ALL: [SketchKind; 2] = [SketchKind::CountSketch, SketchKind::CountMin];

    /// Returns the name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SketchKind::CountSketch => "count-sketch",
            SketchKind::CountMin => "count-min",
        }
    }

    /// Returns whether a counter is so near the end of its range that it no longer counts.
    #[inline(always)]
    #[must_use]
    pub const fn is_full(self, cell: i32) -> bool {
        let (offset, span) = self.range();
        cell.wrapping_add(offset) as u32 > span
    }

    /// Returns `(offset, span)`: a counter counts while `counter + offset`, as an unsigned number,
    /// is at most `span`.
    #[inline(always)]
    const fn range(self) -> (i32, u32) {
        match self {
            SketchKind::CountSketch => (FULL - 1, ((FULL as u32) - 1) << 1),
            SketchKind::CountMin => (0, u32::MAX - SLACK),
        }
    }
}

/// Distance from the end of its range at which a counter is full: more than all cores can add
/// between the check and the addition.
pub const SLACK: u32 = 1 << 26;

/// Smallest absolute value of a full counter of a Count Sketch. Counters of Count-Min are unsigned,
/// and full at 2^31 more.
pub const FULL: i32 = i32::MAX - (SLACK as i32) + 1;

/// Whether a measurement that uses a sketch is on, and with which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Immutable, IntoBytes)]
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
    /// Returns the kind of sketch, if the measurement is on.
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

/// Settings of a measurement that uses a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C)]
pub struct Settings {
    /// Whether to measure, and with which kind of sketch.
    pub mode: Mode,
    /// Fields that define a flow.
    pub key: KeyKind,
    /// Rows and columns.
    pub shape: Grid,
}

impl Settings {
    /// Off, by source, four rows of 1024; the same as [`Default`], usable in statics.
    pub const DEFAULT: Settings =
        Settings { mode: Mode::Off, key: KeyKind::Src, shape: Grid::COUNTERS };

    /// Returns whether the measurement is on.
    #[inline(always)]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    /// Returns the bytes of the counters.
    #[inline(always)]
    pub(crate) const fn bytes(&self) -> usize {
        self.shape.padded_cells() * size_of::<i32>()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

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
    /// few](Sharing::AloneWithFew) to fill a counter.
    #[inline(always)]
    pub(crate) fn update_few(
        &mut self,
        kind: SketchKind,
        shape: Grid,
        crc: u32,
        tabulation: &Tabulation,
        times: u32,
    ) {
        match shape.usual() {
            Some(shape) => self.update_rows::<false>(kind, shape, crc, tabulation, times),
            None => self.update_rows::<false>(kind, shape, crc, tabulation, times),
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
        let mut values = Values::new();
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

/// Counters of 64 bits, row by row: sums over cores, interfaces and windows. They cannot wrap: that
/// would take 2^32 full counters.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct WideSketch {
    cells: [i64; MAX_CELLS],
    /// One bit per counter, set if one of its summands is full.
    full: [u64; MAX_CELLS >> 6],
}

impl Default for WideSketch {
    fn default() -> Self {
        Self::new()
    }
}

/// Estimate of one sketch row for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Estimated count.
    pub value: i64,
    /// Whether the row's counter is full: it lacks later packets.
    pub full: bool,
}

impl WideSketch {
    /// Creates a sketch of zeros.
    #[must_use]
    pub const fn new() -> Self {
        WideSketch { cells: [0; MAX_CELLS], full: [0; MAX_CELLS >> 6] }
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
    pub fn unite(&mut self, other: &WideSketch, shape: Grid) {
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
        mut visit: impl FnMut(Said),
    ) {
        for_each_row(kind, shape, crc, tabulation, |_, cell, sign| {
            let value = self.cells.get(cell).copied().unwrap_or(0) * i64::from(sign);
            visit(Said { value, full: self.is_full(cell) });
        });
    }

    /// Returns the estimate of a key's count.
    #[must_use]
    pub fn query(&self, kind: SketchKind, shape: Grid, crc: u32, tabulation: &Tabulation) -> i64 {
        let (mut values, mut rows) = ([i64::MAX; MAX_ROWS], 0);
        self.rows(kind, shape, crc, tabulation, |said| {
            if let Some(value) = values.get_mut(rows) {
                *value = said.value;
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
        let mut values = Values::new();
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
    pub fn merge_into(&self, sketch: &mut WideSketch, kind: SketchKind, shape: Grid) {
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

/// Returns the amount to add to a counter: `term`, or zero if the counter is full.
#[inline(always)]
fn room_for(kind: SketchKind, cell: i32, term: i32) -> i32 {
    if cfg!(target_arch = "bpf") {
        let (offset, span) = kind.range();
        branchless::unless_beyond(term, cell.wrapping_add(offset) as u32, span)
    } else if kind.is_full(cell) {
        0
    } else {
        term
    }
}

/// Calls `visit(row, cell, sign)` for every row: index of the key's counter, and the amount to add
/// to it.
#[inline(always)]
fn for_each_row(
    kind: SketchKind,
    shape: Grid,
    crc: u32,
    tabulation: &Tabulation,
    mut visit: impl FnMut(usize, usize, i32),
) {
    let column_bits = shape.column_bits();
    tabulation.for_each_row(crc, shape.rows(), |row, hash| {
        let cell = (row << column_bits) | (hash >> (16_u32 - column_bits)) as usize;
        let sign = match kind {
            SketchKind::CountMin => 1,
            // 1 or -1.
            SketchKind::CountSketch => -(hash as i32 & 1) | 1,
        };
        visit(row, cell, sign);
    });
}

/// Row estimates of a key.
struct Values([i32; MAX_ROWS]);

impl Values {
    #[inline(always)]
    fn new() -> Self {
        // Unused rows sort after all others.
        Values([i32::MAX; MAX_ROWS])
    }

    #[inline(always)]
    fn set(&mut self, row: usize, value: i32) {
        if let Some(slot) = self.0.get_mut(row) {
            *slot = value;
        }
    }

    #[inline(always)]
    fn answer(&self, kind: SketchKind, shape: Grid) -> i32 {
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
    ((i64::from(a) + i64::from(b) + 1) >> 1) as i32
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
