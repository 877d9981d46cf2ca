//! Settings as words of 32 bits: what pins and tests read and write.
#![allow(
    unsafe_code,
    reason = "settings are looked at as what they are made of; the argument is at `Words`"
)]

use crate::measurement::OnOff;
use crate::{Settings, cardinality, delay, heavy, membership, parse, reorder, sketch};

/// Values that words can be made of.
///
/// # Safety
/// `repr(C)` or an array of such values, without padding, of whole words.
pub unsafe trait Words: Copy {}

// SAFETY: as many whole words as all of them have, nothing between them.
unsafe impl<T: Words, const N: usize> Words for [T; N] {}

// SAFETY: bytes and enums of a byte, four of them.
unsafe impl Words for cardinality::Settings {}
// SAFETY: as above, the grid being two.
unsafe impl Words for sketch::Settings {}
// SAFETY: as above.
unsafe impl Words for membership::Settings {}
// SAFETY: as above.
unsafe impl Words for heavy::Settings {}
// SAFETY: as above, a flag among them, and a word.
unsafe impl Words for delay::Settings {}
// SAFETY: an enum of a byte and three bytes.
unsafe impl Words for reorder::Settings {}
// SAFETY: as above.
unsafe impl Words for parse::Settings {}
// SAFETY: as above.
unsafe impl Words for OnOff {}
// SAFETY: all of the above, one after the other.
unsafe impl Words for Settings {}

/// The words of a value.
pub(crate) fn of<T: Words>(value: &T) -> impl Iterator<Item = u32> {
    let start = (&raw const *value).cast::<u32>();
    // SAFETY: within the value, all of whose bytes are initialised, as implementors promise.
    let words = const { size_of::<T>() / size_of::<u32>() };
    (0..words).map(move |index| unsafe { start.add(index).read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heavy::{Algorithm, Unit};
    use crate::{Grid, HashMode, KeyKind, Precision};

    #[test]
    fn settings_are_what_their_words_say() {
        let of_sketch =
            |key| sketch::Settings { mode: sketch::Mode::CountMin, key, shape: Grid::COUNTERS };
        let hash = HashMode::Keyed;
        let settings = Settings {
            cardinality: cardinality::Settings {
                mode: cardinality::Mode::Staggered,
                key: KeyKind::Dst,
                hash,
                precision: Precision::MAX,
            },
            entropy: [of_sketch(KeyKind::Src), of_sketch(KeyKind::FiveTuple)],
            frequency: of_sketch(KeyKind::SrcDst),
            membership: membership::Settings { on: true, key: KeyKind::Dst, shape: Grid::BITS },
            heavy: heavy::Settings {
                algorithm: Algorithm::Precision,
                key: KeyKind::Src,
                unit: Unit::Bytes,
                slots_log2: 7,
            },
            headers: parse::Settings::INNER,
            ..Settings::DEFAULT
        };
        assert_eq!(of(&settings).count(), crate::SETTINGS_WORDS);
        assert!(of(&settings).eq(settings.words()));
        // A byte each, the first one lowest.
        assert_eq!(
            settings.words()[0].to_le_bytes(),
            [cardinality::Mode::Staggered as u8, KeyKind::Dst as u8, hash as u8, 16]
        );
        assert_ne!(settings.words(), Settings::DEFAULT.words());
    }
}
