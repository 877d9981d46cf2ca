//! Frequencies in rows of counters: Count Sketch (Charikar et al. 2002) and Count-Min (Cormode and
//! Muthukrishnan 2005).
//!
//! A key has one counter in every row. Count-Min adds one to each, and the smallest is never too
//! small. Count Sketch adds or subtracts one, by a sign of its own for every row, so that what
//! other keys add cancels out on the average, and takes the median. Row hashes have 16 bits: the
//! column is in the upper ones, the sign is the lowest, which no column uses.
//!
//! Counters never wrap. One that comes near the end of its 32 bits stays where it is, whatever
//! comes, so that its readers know it ([`SketchKind::is_full`]). The end is near within [`SLACK`]:
//! cores that add at the same time have looked before one of them filled the counter, and each may
//! still add the packets of a frame. What cores, interfaces and windows have counted is added up in
//! 64 bits ([`WideSketch`]).

use crate::branchless;
use crate::counter::{SharedCounter, Sharing};
use crate::grid::Grid;
pub use crate::grid::MAX_CELLS;
use crate::hash::{MAX_ROWS, Tabulation};
use crate::key::KeyKind;
use zerocopy::{FromZeros, Immutable, IntoBytes};

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

    /// Whether a counter has come so near the end of its range that it counts no more.
    #[inline(always)]
    #[must_use]
    pub const fn is_full(self, cell: i32) -> bool {
        let (offset, span) = self.range();
        cell.wrapping_add(offset) as u32 > span
    }

    /// A counter counts while it and the first number together are, unsigned, at most the second.
    #[inline(always)]
    const fn range(self) -> (i32, u32) {
        match self {
            SketchKind::CountSketch => (FULL - 1, ((FULL as u32) - 1) << 1),
            SketchKind::CountMin => (0, u32::MAX - SLACK),
        }
    }
}

/// How near the end of its range a counter is full: more than all cores together add between
/// looking at it and adding.
pub const SLACK: u32 = 1 << 26;

/// What a counter of a Count Sketch holds at least, or the negative of it at most, if it is full.
/// Those of Count-Min are unsigned and full at 2^31 more.
pub const FULL: i32 = i32::MAX - (SLACK as i32) + 1;

/// Whether a measurement that takes a sketch is on, and with which.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C)]
pub struct Settings {
    /// Whether to measure, and with which sketch.
    pub mode: Mode,
    /// What makes a flow.
    pub key: KeyKind,
    /// Rows and columns.
    pub shape: Grid,
}

impl Settings {
    /// As [`Default`], for statics: off; by source, four rows of 1024.
    pub const DEFAULT: Settings =
        Settings { mode: Mode::Off, key: KeyKind::Src, shape: Grid::COUNTERS };

    /// Whether to measure.
    #[inline(always)]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    /// Bytes of the counters.
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
    /// Zeros.
    #[must_use]
    pub const fn new() -> Self {
        Sketch { cells: [0; MAX_CELLS] }
    }

    /// Counts a key once.
    #[inline(always)]
    pub fn update(&mut self, kind: SketchKind, shape: Grid, crc: u32, tabulation: &Tabulation) {
        self.update_by(kind, shape, crc, tabulation, 1);
    }

    /// Counts a key so many times.
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

    /// As [`update_by`](Self::update_by), where all packets together are
    /// [too few](Sharing::AloneWithFew) to fill a counter.
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

    /// How often a key was counted, as far as the sketch can say.
    #[must_use]
    pub fn query(&self, kind: SketchKind, shape: Grid, crc: u32, tabulation: &Tabulation) -> i32 {
        let mut values = Values::new();
        for_each_row(kind, shape, crc, tabulation, |row, cell, sign| {
            values.set(row, self.cells.get(cell).copied().unwrap_or(0).wrapping_mul(sign));
        });
        values.answer(kind, shape)
    }

    /// The counters in use, row by row. Those of Count-Min are unsigned.
    #[must_use]
    pub fn cells(&self, shape: Grid) -> &[i32] {
        self.cells.get(..shape.cells()).unwrap_or(&self.cells)
    }

    /// The counters in use, to be filled from a device.
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

/// Counters of 64 bits, row by row: what cores, interfaces and windows have counted together. They
/// cannot wrap: it would take 2^32 full counters.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct WideSketch {
    cells: [i64; MAX_CELLS],
    /// A bit for every counter, set if one that it was added up from is full.
    full: [u64; MAX_CELLS >> 6],
}

impl Default for WideSketch {
    fn default() -> Self {
        Self::new()
    }
}

/// A row's word on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// How often the key was counted, as far as this row can say.
    pub value: i64,
    /// Whether the row's counter is full: what came later is not in it.
    pub full: bool,
}

impl WideSketch {
    /// Zeros.
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

    /// Sets a counter to what it was when somebody wrote it down.
    pub fn set(&mut self, index: usize, value: i64, full: bool) {
        if let Some(cell) = self.cells.get_mut(index) {
            *cell = value;
        }
        if let Some(word) = self.full.get_mut(index >> 6) {
            let bit = 1_u64 << (index & 63);
            *word = if full { *word | bit } else { *word & !bit };
        }
    }

    /// The sketch of two streams together: counters add up, and a counter that is full in one is
    /// full in the sum.
    pub fn unite(&mut self, other: &WideSketch, shape: Grid) {
        for (mine, theirs) in self.cells.iter_mut().zip(other.cells(shape)) {
            *mine += theirs;
        }
        self.full.iter_mut().zip(&other.full).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// The counters in use, row by row.
    #[must_use]
    pub fn cells(&self, shape: Grid) -> &[i64] {
        self.cells.get(..shape.cells()).unwrap_or(&self.cells)
    }

    /// Whether what came to a counter of this index was more than it can hold.
    #[must_use]
    pub fn is_full(&self, index: usize) -> bool {
        self.full.get(index >> 6).is_some_and(|word| (word >> (index & 63)) & 1 == 1)
    }

    /// How many of the counters in use are full.
    #[must_use]
    pub fn full(&self, shape: Grid) -> usize {
        (0..shape.cells()).filter(|&index| self.is_full(index)).count()
    }

    /// What the rows say of a key.
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

    /// How often a key was counted, as far as the sketch can say.
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
    /// What the rows say together: the smallest, or the median; of an even number of rows the mean
    /// of the two in the middle, rounded up. Sorts them.
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

/// A sketch that several cores count in.
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
    /// Zeros.
    #[must_use]
    pub const fn new() -> Self {
        SharedSketch { cells: [const { SharedCounter::new() }; MAX_CELLS] }
    }

    /// Counts a key once, and says how often it was counted, as far as the sketch can say.
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

    /// Counts a key so many times, and says how often it was counted after the first of them. After
    /// each further one the answer is higher by one, since every row is: the median and the
    /// smallest of rows rise with them.
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
            // Without others in the counters the usual case has its own code.
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

    /// Adds the counters in use to those of another sketch.
    pub fn merge_into(&self, sketch: &mut WideSketch, kind: SketchKind, shape: Grid) {
        for (index, cell) in self.cells.iter().take(shape.cells()).enumerate() {
            sketch.add(kind, index, cell.load());
        }
    }

    /// Sets a counter, to begin a test where it takes a device days to come.
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

/// What is added to a counter: the term, or nothing if the counter is full.
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

/// Calls `visit(row, cell, sign)` for every row: the index of the key's counter, and what is added
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
    fn answer(&self, kind: SketchKind, shape: Grid) -> i32 {
        match kind {
            SketchKind::CountSketch => self.median(shape),
            SketchKind::CountMin => self.smallest(),
        }
    }

    /// Counters of Count-Min are unsigned.
    #[inline(always)]
    fn smallest(&self) -> i32 {
        self.0.iter().fold(i32::MAX, |least, &value| order(least, not_negative(value)).0)
    }

    /// The median; of an even number of rows the mean of the two in the middle, rounded up.
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
        // Neighbours are put in order as often as there are values: no branch depends on a value,
        // which the eBPF verifier would follow both ways.
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

/// The mean, rounded up: entropies come out closer than with half of the counts too low by a half.
#[inline(always)]
fn mean(a: i32, b: i32) -> i32 {
    ((i64::from(a) + i64::from(b) + 1) >> 1) as i32
}

/// The smaller and the larger of two.
#[inline(always)]
fn order(a: i32, b: i32) -> (i32, i32) {
    if cfg!(target_arch = "bpf") { branchless::order(a, b) } else { (a.min(b), a.max(b)) }
}

/// A counter of Count-Min, or the largest that is an answer.
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
