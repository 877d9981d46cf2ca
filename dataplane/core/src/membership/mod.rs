//! Flow membership: a Bloom filter (Bloom 1970), partitioned into one row of bits per hash.

#[cfg(not(target_arch = "bpf"))]
mod host;

use crate::arrival::Packets;
use crate::grid::Grid;
pub use crate::grid::MAX_FILTER_BITS;
use crate::hash::{ROWS_PER_BLOCK, Tabulation, row as row_hash};
use crate::key::KeyKind;
use crate::measurement::{MAX_KEYS, MeasureContext, Measurement, MeasurementMemory, UsedBytes};
use crate::needs::RequiredFields;
use crate::observation::Observed;
use zerocopy::{FromZeros, Immutable, IntoBytes};

const WORDS: usize = MAX_FILTER_BITS / 64;

/// Settings of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C)]
pub struct Settings {
    /// Whether the measurement is on.
    pub on: bool,
    /// Fields that define a flow.
    pub key: KeyKind,
    /// Rows and bits of the filter.
    pub shape: Grid,
}

impl Settings {
    /// Off, by source, four rows of 65,536 bits; the same as [`Default`], usable in statics.
    pub const DEFAULT: Settings = Settings { on: false, key: KeyKind::Src, shape: Grid::BITS };
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bits of the filter, row by row; within a word from the lowest bit on.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Membership {
    words: [u64; WORDS],
}

impl Default for Membership {
    fn default() -> Self {
        Self::new()
    }
}

impl Membership {
    /// Creates an empty filter.
    #[must_use]
    pub const fn new() -> Self {
        Membership { words: [0; WORDS] }
    }

    /// Inserts a key.
    #[inline(always)]
    pub fn update(&mut self, shape: Grid, crc: u32, tabulation: &Tabulation) {
        match shape.usual() {
            Some(shape) => self.update_rows(shape, crc, tabulation),
            None => self.update_rows(shape, crc, tabulation),
        }
    }

    #[inline(always)]
    fn update_rows(&mut self, shape: Grid, crc: u32, tabulation: &Tabulation) {
        let mask = shape.mask() >> 6;
        for_each_bit(shape, crc, tabulation, |word, bit| {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let word = &mut self.words[word & mask & (WORDS - 1)];
            *word |= bit;
        });
    }

    /// As [`update`](Self::update) in a [usual](Grid::usual) shape, given the hashes of the rows.
    #[inline(always)]
    fn insert(&mut self, shape: Grid, hashes: u64) {
        let columns = shape.columns_of(hashes);
        for row in 0..ROWS_PER_BLOCK {
            let column = usize::from(row_hash(columns, row));
            let place = (row << shape.column_bits()) | column;
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let word = &mut self.words[(place >> 6) & (WORDS - 1)];
            *word |= 1_u64 << ((column & 63) as u32);
        }
    }

    /// Returns whether a key may have been inserted. Never false for an inserted key; true for
    /// others with a probability that depends on the bits that are set.
    #[must_use]
    pub fn contains(&self, shape: Grid, crc: u32, tabulation: &Tabulation) -> bool {
        let mut all = true;
        for_each_bit(shape, crc, tabulation, |word, bit| {
            all &= self.words.get(word).is_some_and(|word| word & bit != 0)
        });
        all
    }

    /// Returns the words in use.
    #[must_use]
    pub fn words(&self, shape: Grid) -> &[u64] {
        self.words.get(..shape.cells() >> 6).unwrap_or(&self.words)
    }

    /// Returns the words in use, to be filled from a device.
    #[must_use]
    pub fn words_mut(&mut self, shape: Grid) -> &mut [u64] {
        let (used, _) = self.words.split_at_mut((shape.cells() >> 6).min(WORDS));
        used
    }

    /// Adds the keys of another core or window.
    pub fn merge(&mut self, other: &Membership, shape: Grid) {
        for (mine, theirs) in self.words_mut(shape).iter_mut().zip(other.words(shape)) {
            *mine |= theirs;
        }
    }

    /// Empties the filter.
    pub fn clear(&mut self, shape: Grid) {
        self.words_mut(shape).fill(0);
    }
}

impl Measurement for Membership {
    const NAME: &'static str = "membership";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::DEFAULT;
    type PerCore = Membership;
    type Persistent = ();
    type Shared = ();
    type SharedPersistent = ();

    #[inline(always)]
    fn keys(settings: &Settings) -> [Option<KeyKind>; MAX_KEYS] {
        [settings.on.then_some(settings.key), None]
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.on
    }

    #[inline(always)]
    fn needs(settings: &Settings) -> RequiredFields {
        RequiredFields::rows(settings.key)
    }

    #[inline(always)]
    fn used(settings: &Settings) -> UsedBytes {
        UsedBytes {
            own: if settings.on { settings.shape.cells() >> 3 } else { 0 },
            ..UsedBytes::default()
        }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        settings: &Settings,
        parts: MeasurementMemory<'_, Self>,
        pass: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        let Settings { key, shape, .. } = *settings;
        // In the kernel a mask bounds each index.
        match shape.usual() {
            Some(shape) if cfg!(not(target_arch = "bpf")) => {
                for packet in packets.each() {
                    parts.own.insert(shape, packet.rows(key, pass.tabulation));
                }
            }
            _ => {
                for packet in packets.each() {
                    parts.own.update(shape, packet.by(key), pass.tabulation);
                }
            }
        }
    }
}

/// Calls `visit(word, bit)` for a key's bit in every row.
#[inline(always)]
fn for_each_bit(shape: Grid, crc: u32, tabulation: &Tabulation, mut visit: impl FnMut(usize, u64)) {
    let column_bits = shape.column_bits();
    tabulation.for_each_row(crc, shape.rows(), |row, hash| {
        let place = (row << column_bits) | (hash >> (16_u32 - column_bits)) as usize;
        visit(place >> 6, 1_u64 << ((place & 63) as u32));
    });
}
