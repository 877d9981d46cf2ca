//! How long the elements of an object's arrays are, which its loader cannot change.
#![allow(unsafe_code, reason = "words are looked at as bytes")]

use object::{Object, ObjectSection, ObjectSymbol};

/// A copy of an object, aligned as it has to be to be read.
pub(super) struct Copied {
    words: Vec<u64>,
    length: usize,
}

impl Copied {
    fn of(bytes: &[u8]) -> Self {
        let mut copied = Copied { words: vec![0; bytes.len().div_ceil(8)], length: bytes.len() };
        copied.as_bytes_mut().copy_from_slice(bytes);
        copied
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        // SAFETY: the words are so many bytes or more.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.length) }
    }

    fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any bytes are words.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.length) }
    }
}

/// Where the definition of a map has the length of values: behind its type and the length of keys.
const VALUE_SIZE: u64 = 8;

/// The object with elements of these lengths. A map that the object does not have is left to who looks for it next.
pub(super) fn resized(bytes: &[u8], lengths: &[(&str, u32)]) -> Copied {
    let mut copied = Copied::of(bytes);
    for &(map, length) in lengths {
        if let Some(place) = definition(bytes, map).and_then(|at| copied.as_bytes_mut().get_mut(at..at + size_of::<u32>())) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }
    copied
}

/// Where the length of a map's values is.
fn definition(bytes: &[u8], map: &str) -> Option<usize> {
    let object = object::File::parse(bytes).ok()?;
    let symbol = object.symbols().find(|symbol| symbol.name() == Ok(map))?;
    let section = object.section_by_index(symbol.section_index()?).ok()?;
    let (start, _) = section.file_range()?;
    usize::try_from(start + symbol.address() + VALUE_SIZE).ok()
}
