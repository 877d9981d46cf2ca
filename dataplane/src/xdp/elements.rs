//! How long the elements of an object's arrays are, which its loader cannot change.

use object::{Object, ObjectSection, ObjectSymbol};

/// Where the definition of a map has the length of values: behind its type and the length of keys.
const VALUE_SIZE: usize = 8;

/// The object with elements of these lengths. A map that the object does not have is left to who
/// looks for it next. The loader wants the copy aligned to words, as allocators align what is
/// larger than one; it refuses anything else.
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

/// Makes an array of one word of a map of another kind, which is not in use and which older kernels
/// do not have.
pub(super) fn without(object: &mut [u8], map: &str) {
    const ARRAY: u32 = 2;
    // Kind, lengths of keys and of values, entries.
    let words = [ARRAY, 4, 8, 1].map(u32::to_le_bytes).concat();
    if let Some(place) = definition(object, map).and_then(|at| object.get_mut(at..at + words.len()))
    {
        place.copy_from_slice(&words);
    }
}

/// Where a map is defined.
fn definition(bytes: &[u8], map: &str) -> Option<usize> {
    let object = object::File::parse(bytes).ok()?;
    let symbol = object.symbols().find(|symbol| symbol.name() == Ok(map))?;
    let section = object.section_by_index(symbol.section_index()?).ok()?;
    let (start, _) = section.file_range()?;
    usize::try_from(start + symbol.address()).ok()
}
