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
//! over cores, interfaces and windows in the 64-bit counters of [`SketchTotals`].

mod per_core;
mod rows;
mod shared;
mod wide;

pub use crate::grid::MAX_CELLS;
pub use per_core::Sketch;
#[cfg(not(target_arch = "bpf"))]
pub(crate) use shared::AT_ONCE;
pub use shared::SharedSketch;
pub use wide::{RowEstimate, SketchTotals};

use crate::branchless;
use crate::grid::Grid;
use crate::key::KeyKind;
use zerocopy::{Immutable, IntoBytes};

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
