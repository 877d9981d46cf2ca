//! Sizes of an object's arrays and values of its globals, written into the object: its loader
//! cannot change the former, and is used again without the latter.

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// Offset of the value size in a map definition, after type and key size.
const VALUE_SIZE: usize = 8;
/// Offset of the number of elements, after the value size.
const ENTRIES: usize = 12;

/// Returns the object with these element sizes. Maps missing in the object are ignored here and
/// reported by the code that uses them. The loader requires the copy to be word-aligned, as
/// allocators do for anything larger than a word, and refuses it otherwise.
pub(super) fn resized(bytes: &[u8], lengths: &[(&str, u32)]) -> Vec<u8> {
    let mut copied = bytes.to_vec();
    for &(map, length) in lengths {
        write_word(&mut copied, map, VALUE_SIZE, length);
    }
    copied
}

/// Sets the number of elements of a map, or the bytes of a ring.
pub(super) fn set_entries(object: &mut [u8], map: &str, entries: u32) {
    write_word(object, map, ENTRIES, entries);
}

fn write_word(object: &mut [u8], map: &str, offset: usize, word: u32) {
    let word = word.to_le_bytes();
    if let Some(place) = definition(object, map)
        .and_then(|(at, _)| object.get_mut(at + offset..at + offset + word.len()))
    {
        place.copy_from_slice(&word);
    }
}

/// Sets the initial value of a global. Returns whether the object has one of this name and length.
#[must_use]
pub(super) fn set_global(object: &mut [u8], name: &str, value: &[u8]) -> bool {
    let place = definition(object, name)
        .filter(|(_, length)| *length == value.len() as u64)
        .and_then(|(at, _)| object.get_mut(at..at + value.len()));
    if let Some(place) = place {
        place.copy_from_slice(value);
        return true;
    }
    false
}

/// Replaces an unused map of a kind that older kernels lack by an array of one word.
pub(super) fn without(object: &mut [u8], map: &str) {
    const ARRAY: u32 = 2;
    // Kind, key size, value size, entries.
    let words = [ARRAY, 4, 8, 1].map(u32::to_le_bytes).concat();
    if let Some(place) =
        definition(object, map).and_then(|(at, _)| object.get_mut(at..at + words.len()))
    {
        place.copy_from_slice(&words);
    }
}

/// Hides programs from the loader, which would parse, relocate and keep all: the symbol of a hidden
/// one is that of no function.
pub(super) fn hide_programs(object: &mut [u8], is_hidden: impl Fn(&str) -> bool) {
    /// Length of a symbol, and the offset of its kind, in the lower half of a byte.
    const SYMBOL: usize = 24;
    const INFO: usize = 4;
    let hidden: Vec<usize> = {
        let Ok(file) = object::File::parse(&*object) else { return };
        let table = file.section_by_name(".symtab").and_then(|table| table.file_range());
        let Some((start, _)) = table else { return };
        let functions = file.symbols().filter(|symbol| {
            symbol.kind() == SymbolKind::Text && symbol.name().is_ok_and(&is_hidden)
        });
        functions.map(|symbol| start as usize + symbol.index().0 * SYMBOL + INFO).collect()
    };
    for at in hidden {
        if let Some(info) = object.get_mut(at) {
            *info &= 0xf0;
        }
    }
}

/// Returns the offset and length of a map's definition, or of a global.
fn definition(bytes: &[u8], name: &str) -> Option<(usize, u64)> {
    let object = object::File::parse(bytes).ok()?;
    let symbol = object.symbols().find(|symbol| symbol.name() == Ok(name))?;
    let section = object.section_by_index(symbol.section_index()?).ok()?;
    let (start, _) = section.file_range()?;
    Some((usize::try_from(start + symbol.address()).ok()?, symbol.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/flowgauge.o"));

    #[test]
    fn sizes_and_globals_are_written_where_they_belong() {
        let mut object = resized(OBJECT, &[("CORES", 0x0102_0304)]);
        set_entries(&mut object, "CORES", 0x0506_0708);
        let (at, length) = definition(&object, "CORES").unwrap();
        // Kind (an array), key size, value size, entries.
        assert_eq!(object[at..at + 16], [2_u8, 0, 0, 0, 4, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5]);
        assert_eq!(length, 28);
        let (at, length) = definition(&object, "CONFIG").unwrap();
        let value = vec![0x5a; length as usize];
        assert!(set_global(&mut object, "CONFIG", &value));
        assert_eq!(object[at..at + value.len()], value[..]);
        let changed = OBJECT.iter().zip(&object).filter(|(before, after)| before != after).count();
        assert!(changed <= 8 + value.len(), "{changed}");
        assert!(!set_global(&mut object, "CONFIG", &value[1..]), "another length");
        assert!(!set_global(&mut object, "NO_SUCH_GLOBAL", &value));
    }

    #[test]
    fn hidden_programs_are_no_functions() {
        let functions = |bytes: &[u8]| -> Vec<String> {
            let file = object::File::parse(bytes).unwrap();
            let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
            functions.map(|symbol| symbol.name().unwrap().to_owned()).collect()
        };
        // The parser needs an aligned object, which a vector is.
        let mut object = OBJECT.to_vec();
        let all = functions(&object);
        assert!(all.len() > 1 && all.contains(&"flowgauge_xdp".to_owned()), "{all:?}");
        hide_programs(&mut object, |name| name != "flowgauge_xdp");
        assert_eq!(functions(&object), ["flowgauge_xdp"]);
        let changed = OBJECT.iter().zip(&object).filter(|(before, after)| before != after).count();
        assert_eq!(changed, all.len() - 1);
    }
}
