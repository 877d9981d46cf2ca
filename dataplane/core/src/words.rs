//! Settings as words of 32 bits: what the programs in the kernel, their pins and tests read and write.
#![allow(unsafe_code, reason = "settings are looked at as what they are made of; the argument is at `Words`")]

use crate::measurement::OnOff;
use crate::{Settings, cardinality, heavy, membership, parse, sketch};
use core::mem::MaybeUninit;

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
// SAFETY: as above.
unsafe impl Words for parse::Settings {}
// SAFETY: as above.
unsafe impl Words for OnOff {}
// SAFETY: all of the above, one after the other.
unsafe impl Words for Settings {}

/// The words of a value.
#[cfg(not(target_arch = "bpf"))]
pub(crate) fn of<T: Words>(value: &T) -> impl Iterator<Item = u32> {
    let start = (&raw const *value).cast::<u32>();
    // SAFETY: within the value, all of whose bytes are initialised, as implementors promise.
    let words = const { size_of::<T>() / size_of::<u32>() };
    (0..words).map(move |index| unsafe { start.add(index).read_unaligned() })
}

/// The value whose words begin at `next`, which is moved behind them. Loads are of whole words, which the kernel's verifier sees through.
///
/// # Safety
/// The words are what [`of`] gave for a value of this type.
#[inline(always)]
pub(crate) unsafe fn next<T: Words>(next: &mut usize, word: &mut impl FnMut(usize) -> u32) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    let start = value.as_mut_ptr().cast::<u32>();
    let words = const { size_of::<T>() / size_of::<u32>() };
    let mut index = 0;
    while index < words {
        // SAFETY: within the value.
        unsafe { start.add(index).write_unaligned(word(*next)) };
        *next = next.wrapping_add(1);
        index = index.wrapping_add(1);
    }
    // SAFETY: every word was written, and is what it was in a value, as the caller promises.
    unsafe { value.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heavy::{Algorithm, Unit};
    use crate::{Grid, HashMode, KeyKind, Precision};

    #[test]
    fn settings_are_what_their_words_say() {
        let of_sketch = |key| sketch::Settings { mode: sketch::Mode::CountMin, key, shape: Grid::COUNTERS };
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
            heavy: heavy::Settings { algorithm: Algorithm::Precision, key: KeyKind::Src, unit: Unit::Bytes, slots_log2: 7 },
            headers: parse::Settings::INNER,
            ..Settings::DEFAULT
        };
        for settings in [settings, Settings::DEFAULT] {
            let words = settings.words();
            // SAFETY: the words of settings.
            let again = unsafe { Settings::of_words(|index| words.get(index).copied().unwrap_or_default()) };
            assert_eq!((again, again.words()), (settings, words));
        }
        assert_ne!(settings.words(), Settings::DEFAULT.words());
    }
}
