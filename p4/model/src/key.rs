//! Keys of match tables: the fields of a key one after another.

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
    use crate::program::mask;

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
