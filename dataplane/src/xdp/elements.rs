//! Element sizes of an object's arrays, which its loader cannot change.

use object::{Object, ObjectSection, ObjectSymbol};

/// Offset of the value size in a map definition, after type and key size.
const VALUE_SIZE: usize = 8;

/// Returns the object with these element sizes. Maps missing in the object are ignored here and
/// reported by the code that uses them. The loader requires the copy to be word-aligned, as
/// allocators do for anything larger than a word, and refuses it otherwise.
pub(super) fn resized(bytes: &[u8], lengths: &[(&str, u32)]) -> Vec<u8> {
    let mut copied = bytes.to_vec();
    for &(map, length) in lengths {
        if let Some(place) = definition(bytes, map)
            .and_then(|at| copied.get_mut(at + VALUE_SIZE..at + VALUE_SIZE + size_of::<u32>()))
        {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }
    copied
}

/// Replaces an unused map of a kind that older kernels lack by an array of one word.
pub(super) fn without(object: &mut [u8], map: &str) {
    const ARRAY: u32 = 2;
    // Kind, key size, value size, entries.
    let words = [ARRAY, 4, 8, 1].map(u32::to_le_bytes).concat();
    if let Some(place) = definition(object, map).and_then(|at| object.get_mut(at..at + words.len()))
    {
        place.copy_from_slice(&words);
    }
}

/// Returns the offset of a map's definition.
fn definition(bytes: &[u8], map: &str) -> Option<usize> {
    let object = object::File::parse(bytes).ok()?;
    let symbol = object.symbols().find(|symbol| symbol.name() == Ok(map))?;
    let section = object.section_by_index(symbol.section_index()?).ok()?;
    let (start, _) = section.file_range()?;
    usize::try_from(start + symbol.address()).ok()
}
