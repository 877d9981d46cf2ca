//! Staggered HyperLogLog: a cardinality that is current at every instant (Cornacchia et al. 2022).
//!
//! Time is divided into slots, and in every slot one register is reset, round robin: in slot `s`,
//! register `j` is `(s - j) mod m` slots old. No code clears registers: each stores the number of
//! its round, and the first packet of a new round replaces the value of an old one.
//!
//! The number of a slot has 32 bits and wraps, and rounds wrap with it: the round takes as many
//! upper bits of a register's word as rounds can differ in. A register without packets for half of
//! 2^32 slots is empty, and may stay so for as long again.

use super::{MAX_REGISTERS, Precision};
use zerocopy::FromZeros;

const LEVEL_BITS: u32 = 8;

/// Registers with their rounds; the first `m` are in use.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Staggered {
    /// Round in the upper bits, at most 24 of them, level in the lower 8.
    words: [u32; MAX_REGISTERS],
}

impl Staggered {
    /// Creates empty registers.
    #[must_use]
    pub const fn new() -> Self {
        Staggered { words: [0; MAX_REGISTERS] }
    }

    /// Returns the round of register `index` during `slot`, in the upper bits. A round ends, and
    /// the register is reset, every `m` slots.
    #[inline(always)]
    fn round(index: usize, precision: Precision, slot: u32) -> u32 {
        let bits = precision.bits();
        (slot.wrapping_sub(index as u32) >> bits) << bits.max(LEVEL_BITS)
    }

    /// Raises the register of a hash in `slot`; resets it first if its round is over.
    #[inline(always)]
    pub fn update(&mut self, hash: u32, precision: Precision, slot: u32) {
        let (index, level) = precision.split(hash);
        let round = Self::round(index, precision, slot);
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let word = &mut self.words[index & (precision.registers() - 1) & (MAX_REGISTERS - 1)];
        let candidate = round | u32::from(level);
        if is_ahead(candidate, *word) {
            *word = candidate;
        }
    }

    /// Returns the levels of the `m` registers in `slot`; a register whose round is over counts as
    /// empty.
    pub fn levels(&self, precision: Precision, slot: u32) -> impl Iterator<Item = u8> {
        self.words.iter().take(precision.registers()).enumerate().map(move |(index, &word)| {
            let current = word & !0xff == Self::round(index, precision, slot);
            if current { (word & 0xff) as u8 } else { 0 }
        })
    }

    /// Returns the words of the `m` registers: round in the upper bits, level in the lower 8.
    #[must_use]
    pub fn words(&self, precision: Precision) -> &[u32] {
        self.words.get(..precision.registers()).unwrap_or(&self.words)
    }

    /// Returns the words of the `m` registers, to be filled from a device.
    #[must_use]
    pub fn words_mut(&mut self, precision: Precision) -> &mut [u32] {
        let (used, _) = self.words.split_at_mut(precision.registers().min(MAX_REGISTERS));
        used
    }

    /// Merges the registers of another core: the later round, or in the same round the higher
    /// level.
    pub fn merge(&mut self, other: &Staggered, precision: Precision) {
        let pairs = self.words.iter_mut().zip(&other.words).take(precision.registers());
        for (mine, &theirs) in pairs {
            if theirs != 0 && is_ahead(theirs, *mine) {
                *mine = theirs;
            }
        }
    }

    /// Empties the registers in use.
    pub fn clear(&mut self, precision: Precision) {
        self.words_mut(precision).fill(0);
    }
}

/// Slots of time, counted from the Unix epoch, so that all cores and readers agree on them.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    length_ns: u64,
    current: u32,
    start_ns: u64,
}

impl Slots {
    /// Creates slots of `length_ns` nanoseconds, at least one.
    #[inline(always)]
    #[must_use]
    pub fn new(length_ns: u64) -> Self {
        Slots { length_ns: length_ns.max(1), current: 0, start_ns: 0 }
    }

    /// Returns the slot of a time. Divides only when the slot changes.
    #[inline(always)]
    #[must_use]
    pub fn of(&mut self, timestamp: u64) -> u32 {
        if timestamp.wrapping_sub(self.start_ns) >= self.length_ns {
            let slot = timestamp.checked_div(self.length_ns).unwrap_or(0);
            self.current = slot as u32;
            self.start_ns = slot * self.length_ns;
        }
        self.current
    }
}

/// Returns whether a word has a later round than another, or the same round and a higher level.
/// Rounds wrap, so the later one is the nearer one in forward direction. Zero was never written.
#[inline(always)]
fn is_ahead(word: u32, other: u32) -> bool {
    other == 0 || word.wrapping_sub(other).wrapping_sub(1) < (1 << 31) - 1
}

impl Default for Staggered {
    fn default() -> Self {
        Self::new()
    }
}
