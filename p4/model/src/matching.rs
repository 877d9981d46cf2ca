//! Match tables: their keys, the fields one after another, and the look-up of a key's entry.

use crate::program::{self, MatchKind, mask};
use hashbrown::HashMap;

/// Maximum width of exact keys that index an array.
const DENSE_BITS: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) value: KeyBits,
    pub(crate) mask: KeyBits,
    /// Search order of rows, lowest first: by priority, then by prefix length.
    pub(crate) order: (u32, u32),
    pub(crate) action: usize,
    pub(crate) data: Vec<u128>,
}

#[derive(Clone, Debug)]
enum Index {
    Dense(Vec<u32>),
    Hashed(HashMap<KeyBits, u32>),
    Ordered,
}

/// Marker of an empty place in a dense index.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(crate) struct MatchTable {
    rows: Vec<Row>,
    index: Index,
    pub(crate) default: (usize, Vec<u128>),
}

impl MatchTable {
    pub(crate) fn new(table: &program::Table) -> Self {
        let width: u32 = table.key.iter().map(|field| field.width).sum();
        let exact =
            !table.key.is_empty() && table.key.iter().all(|field| field.kind == MatchKind::Exact);
        let index = match width {
            _ if !exact => Index::Ordered,
            ..=DENSE_BITS => Index::Dense(vec![NONE; 1 << width]),
            _ => Index::Hashed(HashMap::new()),
        };
        let mut made = MatchTable { rows: Vec::new(), index, default: table.default.clone() };
        for (order, entry) in (0..).zip(&table.entries) {
            let order = if exact { (0, 0) } else { (order, 0) };
            made.insert(Row {
                value: entry.value,
                mask: entry.mask,
                order,
                action: entry.action,
                data: entry.data.clone(),
            });
        }
        made
    }

    #[inline]
    pub(crate) fn find(&self, key: KeyBits) -> Option<&Row> {
        let row = match &self.index {
            Index::Dense(index) => *index.get(key.low() as usize)?,
            Index::Hashed(index) => *index.get(&key)?,
            Index::Ordered => {
                return self.rows.iter().find(|row| key.under(&row.mask) == row.value);
            }
        };
        self.rows.get(row as usize)
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the position of the row with exactly this key.
    pub(crate) fn position(
        &self,
        value: KeyBits,
        mask: KeyBits,
        order: (u32, u32),
    ) -> Option<usize> {
        let row = match &self.index {
            Index::Dense(index) => *index.get(value.low() as usize)?,
            Index::Hashed(index) => *index.get(&value)?,
            Index::Ordered => {
                let is_same = |row: &Row| (row.value, row.mask, row.order) == (value, mask, order);
                return self.rows.iter().position(is_same);
            }
        };
        (row != NONE).then_some(row as usize)
    }

    pub(crate) fn insert(&mut self, row: Row) {
        let next = self.rows.len() as u32;
        match &mut self.index {
            Index::Dense(index) => {
                if let Some(slot) = index.get_mut(row.value.low() as usize) {
                    *slot = next;
                }
                self.rows.push(row);
            }
            Index::Hashed(index) => {
                index.insert(row.value, next);
                self.rows.push(row);
            }
            Index::Ordered => {
                let at = self.rows.partition_point(|other| other.order <= row.order);
                self.rows.insert(at, row);
            }
        }
    }

    pub(crate) fn row_mut(&mut self, at: usize) -> &mut Row {
        &mut self.rows[at]
    }

    pub(crate) fn remove(&mut self, at: usize) {
        if matches!(self.index, Index::Ordered) {
            self.rows.remove(at);
            return;
        }
        let removed = self.rows.swap_remove(at);
        self.point(removed.value, None);
        if let Some(moved) = self.rows.get(at).map(|row| row.value) {
            self.point(moved, Some(at as u32));
        }
    }

    fn point(&mut self, key: KeyBits, to: Option<u32>) {
        match (&mut self.index, to) {
            (Index::Dense(index), to) => {
                if let Some(slot) = index.get_mut(key.low() as usize) {
                    *slot = to.unwrap_or(NONE);
                }
            }
            (Index::Hashed(index), Some(to)) => {
                index.insert(key, to);
            }
            (Index::Hashed(index), None) => {
                index.remove(&key);
            }
            (Index::Ordered, _) => {}
        }
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        match &mut self.index {
            Index::Dense(index) => index.fill(NONE),
            Index::Hashed(index) => index.clear(),
            Index::Ordered => {}
        }
    }
}

/// Returns the mask of a prefix of `length` bits in a field of `width`.
pub(crate) fn prefix(length: u32, width: u32) -> u128 {
    mask(width) & !mask(width.saturating_sub(length))
}

/// Maximum width of a key, in bits.
pub(crate) const MAX_KEY: u32 = WORDS as u32 * u128::BITS;

const WORDS: usize = 3;

/// Bits of a key, or a mask of them; the lowest word first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeyBits([u128; WORDS]);

impl KeyBits {
    /// Joins the values of fields, starting with the most significant bits.
    #[inline]
    pub(crate) fn join(values: impl Iterator<Item = (u128, u32)>) -> Self {
        values.fold(Self::default(), |key, (value, width)| key.with(value, width))
    }

    /// Returns the bits followed by those of a field of at most 128 bits.
    #[inline]
    pub(crate) fn with(self, value: u128, width: u32) -> Self {
        let mut carry = value;
        KeyBits(self.0.map(|word| {
            let shifted = word.checked_shl(width).unwrap_or(0) | carry;
            carry = word.checked_shr(u128::BITS - width).unwrap_or(0);
            shifted
        }))
    }

    /// Returns the field of at most 128 bits that has `below` bits after it, and perhaps other
    /// fields before it.
    pub(crate) fn from(self, below: u32) -> u128 {
        let (word, shift) = ((below / u128::BITS) as usize, below % u128::BITS);
        let [low, high] = [word, word + 1].map(|word| self.0.get(word).copied().unwrap_or(0));
        low >> shift | high.checked_shl(u128::BITS - shift).unwrap_or(0)
    }

    /// Returns the bits in the mask.
    #[inline]
    pub(crate) fn under(self, mask: &KeyBits) -> Self {
        let [low, middle, high] = self.0;
        let [low_mask, middle_mask, high_mask] = mask.0;
        KeyBits([low & low_mask, middle & middle_mask, high & high_mask])
    }

    /// Returns the lowest 128 bits.
    #[inline]
    pub(crate) fn low(self) -> u128 {
        let [low, ..] = self.0;
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_again() {
        for widths in [[128, 128, 128], [1, 128, 255 - 128], [7, 121, 100], [32, 0, 65]] {
            let value = |index: usize| {
                (0x0123_4567_89ab_cdef_u128 << 64 | 0xfedc_ba98_7654_3210)
                    .rotate_left(index as u32 * 5)
            };
            let fields =
                widths.iter().enumerate().map(|(at, width)| (value(at) & mask(*width), *width));
            let fields: Vec<_> = fields.collect();
            let key = KeyBits::join(fields.iter().copied());
            let mut below: u32 = widths.iter().sum();
            for (value, width) in fields {
                below -= width;
                assert_eq!(key.from(below) & mask(width), value, "{widths:?}");
                let alone = KeyBits::default().with(mask(width), width).with(0, below.min(128));
                let alone = alone.with(0, below - below.min(128));
                assert_eq!(key.under(&alone).from(below), value, "{widths:?}");
            }
        }
    }
}
