//! Number of registers at each level.

use super::EstimateError;
use flowgauge_core::{Cardinality, Precision};

const MIN_PRECISION: u32 = 4;
const MAX_PRECISION: u32 = 16;
const HASH_BITS: u32 = 32;

/// Levels 0..=29, the most of any precision (p = 4).
pub(super) const LEVELS: usize = (HASH_BITS - MIN_PRECISION) as usize + 2;

/// Power of two over [`LEVELS`], so that a masked level is a safe index.
const SLOTS: usize = 32;

/// Number of separate counters for each level. Neighbouring registers often have the same level,
/// and an increment must wait for the previous one at the same address; separate lanes let them
/// overlap.
const LANES: usize = 8;

/// Number of registers at each level of a sketch: all that an estimate depends on (Ertl 2017,
/// section 2.2, algorithm 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelHistogram {
    counts: [u32; LEVELS],
    precision: u8,
}

impl LevelHistogram {
    /// Counts `levels`, one for each register: m = 2^p of them, p in 4..=16, each 0..=33 - p.
    ///
    /// # Errors
    /// [`EstimateError::Length`] for any other number of registers, [`EstimateError::Level`] for
    /// the first register with a level over 33 - p.
    pub fn new(levels: &[u8]) -> Result<Self, EstimateError> {
        let precision = precision(levels.len())?;
        let max = last_level(precision);
        let histogram = Self::counted(levels, precision);
        // The mask moved levels of SLOTS or more to other counters.
        let bits = levels.iter().fold(0, |bits, level| bits | level);
        if usize::from(bits) >= SLOTS
            || histogram.counts().iter().sum::<u32>() != histogram.registers()
        {
            check(levels, max)?;
        }
        Ok(histogram)
    }

    /// Counts the levels of registers that the dataplane updated, which are therefore valid.
    #[must_use]
    pub fn of(registers: &Cardinality, precision: Precision) -> Self {
        Self::counted(registers.levels(precision), precision.bits() as u8)
    }

    fn counted(levels: &[u8], precision: u8) -> Self {
        let mut lanes = [[0_u32; SLOTS]; LANES];
        let [l0, l1, l2, l3, l4, l5, l6, l7] = &mut lanes;
        // m is a multiple of 16, so no register is left over. Unrolled by hand, because builds for
        // size do not unroll a loop.
        for &[a, b, c, d, e, f, g, h] in levels.as_chunks::<LANES>().0 {
            l0[usize::from(a) % SLOTS] += 1;
            l1[usize::from(b) % SLOTS] += 1;
            l2[usize::from(c) % SLOTS] += 1;
            l3[usize::from(d) % SLOTS] += 1;
            l4[usize::from(e) % SLOTS] += 1;
            l5[usize::from(f) % SLOTS] += 1;
            l6[usize::from(g) % SLOTS] += 1;
            l7[usize::from(h) % SLOTS] += 1;
        }
        let counts = std::array::from_fn(|level| lanes.iter().map(|lane| lane[level]).sum());
        Self { counts, precision }
    }

    /// Returns the number of registers, m = 2^p in 16..=65536.
    #[must_use]
    pub const fn registers(&self) -> u32 {
        1 << self.precision
    }

    /// Returns the number of registers at each level, from 0 to 33 - p.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.counts[..=usize::from(self.last())]
    }

    /// Returns the number of registers that are not 0: a certain lower bound of the number of
    /// flows.
    #[must_use]
    pub const fn occupied(&self) -> u32 {
        self.registers() - self.counts[0]
    }

    /// Returns the largest level, 33 - p.
    pub(super) const fn last(&self) -> u8 {
        last_level(self.precision)
    }

    pub(super) fn count(&self, level: u8) -> f64 {
        f64::from(self.counts[usize::from(level)])
    }

    pub(super) fn m(&self) -> f64 {
        f64::from(self.registers())
    }
}

/// Returns p for a sketch of `registers` = 2^p registers.
pub(super) fn precision(registers: usize) -> Result<u8, EstimateError> {
    let bits = registers.trailing_zeros();
    if registers.is_power_of_two() && (MIN_PRECISION..=MAX_PRECISION).contains(&bits) {
        Ok(bits as u8)
    } else {
        Err(EstimateError::Length { registers })
    }
}

/// Returns the largest level with 2^`precision` registers, 33 - p.
pub(super) const fn last_level(precision: u8) -> u8 {
    HASH_BITS as u8 + 1 - precision
}

/// Returns an error for the first level over `max`.
pub(super) fn check(levels: &[u8], max: u8) -> Result<(), EstimateError> {
    match levels.iter().enumerate().find(|&(_, &level)| level > max) {
        None => Ok(()),
        Some((register, &level)) => Err(EstimateError::Level { register, level, max }),
    }
}
