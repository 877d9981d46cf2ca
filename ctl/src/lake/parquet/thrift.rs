//! Structures in Thrift's compact protocol, as the metadata of Parquet files is written.
//!
//! The library that decodes metadata trusts the lengths in it: it allocates a list that claims 2^31
//! elements, and follows nested structures until the stack overflows. [`read`] parses the same
//! bytes first. Its memory is proportional to their number, and its stack is bounded.

/// Maximum depth of nested structures; metadata of Parquet has eight levels.
const DEEPEST: usize = 16;

/// A value of a field.
#[derive(Debug)]
pub(super) enum ThriftValue {
    /// An integer of any width, or a flag as 0 or 1.
    Int(i64),
    /// Elements of a list or set.
    List(Vec<ThriftValue>),
    /// Fields, each with its number, in the order of the bytes.
    Struct(Vec<(i16, ThriftValue)>),
    /// A string or floating-point number.
    Other,
}

impl ThriftValue {
    /// Returns the value of a field of a structure.
    pub(super) fn field(&self, number: i16) -> Option<&ThriftValue> {
        let ThriftValue::Struct(fields) = self else { return None };
        fields.iter().find_map(|(it, value)| (*it == number).then_some(value))
    }

    /// Returns the integer of a field.
    pub(super) fn int(&self, number: i16) -> Option<i64> {
        match self.field(number)? {
            ThriftValue::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the list of a field; empty if it is missing.
    pub(super) fn list(&self, number: i16) -> &[ThriftValue] {
        match self.field(number) {
            Some(ThriftValue::List(items)) => items,
            _ => &[],
        }
    }
}

/// Reads one structure. Returns it with its length in bytes; `None` if the bytes do not begin with
/// a complete structure.
pub(super) fn read(bytes: &[u8]) -> Option<(ThriftValue, usize)> {
    let mut reader = Reader { bytes, at: 0 };
    let item = reader.structure(DEEPEST)?;
    Some((item, reader.at))
}

/// Types of fields and elements (Thrift compact protocol, "Field types").
mod kind {
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const I8: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const STRUCT: u8 = 12;
}

/// Reads an unsigned integer of seven bits per byte; returns it with the remaining bytes.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let (value, rest) = varint(self.bytes.get(self.at..)?)?;
        self.at = self.bytes.len() - rest.len();
        Some(value)
    }

    /// Reads a signed integer with its sign in the lowest bit.
    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// Reads a length in bytes or elements. Each element takes at least one byte, so the length
    /// cannot exceed the remaining input.
    fn length(&mut self) -> Option<usize> {
        let length = usize::try_from(self.varint()?).ok()?;
        (length <= self.bytes.len() - self.at).then_some(length)
    }

    fn structure(&mut self, depth: usize) -> Option<ThriftValue> {
        let depth = depth.checked_sub(1)?;
        let (mut fields, mut number) = (Vec::with_capacity(8), 0_i16);
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(ThriftValue::Struct(fields));
            }
            number = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok()?,
                delta => number.checked_add(i16::from(delta))?,
            };
            // The type of the field contains the value of a flag.
            let value = match head & 0x0f {
                kind::TRUE => ThriftValue::Int(1),
                kind::FALSE => ThriftValue::Int(0),
                other => self.value(other, depth)?,
            };
            fields.push((number, value));
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Option<ThriftValue> {
        Some(match kind {
            kind::TRUE | kind::FALSE | kind::I8 => {
                ThriftValue::Int(i64::from(self.byte()?.cast_signed()))
            }
            kind::I16..=kind::I64 => ThriftValue::Int(self.zigzag()?),
            kind::DOUBLE => {
                self.at = self.at.checked_add(8).filter(|end| *end <= self.bytes.len())?;
                ThriftValue::Other
            }
            kind::BINARY => {
                self.at += self.length()?;
                ThriftValue::Other
            }
            kind::LIST | kind::SET => {
                let depth = depth.checked_sub(1)?;
                let head = self.byte()?;
                let length = if head >> 4 == 15 { self.length()? } else { usize::from(head >> 4) };
                let items = (0..length).map(|_| self.value(head & 0x0f, depth));
                ThriftValue::List(items.collect::<Option<_>>()?)
            }
            kind::STRUCT => self.structure(depth)?,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_numbers() {
        // 1: i32 -3; 2: "ab"; 4: list of i64 1, 2; 20: struct with a flag.
        let bytes = [0x15, 0x05, 0x18, 2, b'a', b'b', 0x29, 0x26, 2, 4, 0x0c, 40, 0x11, 0, 0, 0xff];
        let (item, length) = read(&bytes).unwrap();
        assert_eq!((item.int(1), item.int(2), item.int(3), length), (Some(-3), None, None, 15));
        assert!(item.field(2).is_some());
        assert!(matches!(item.list(4), [ThriftValue::Int(1), ThriftValue::Int(2)]));
        assert_eq!(item.field(20).unwrap().int(1), Some(1));
    }

    #[test]
    fn lengths_are_not_believed_and_depth_is_bounded() {
        // A list of 2^32 elements, a string of 2^32 bytes, and unbounded nesting.
        assert!(read(&[0x19, 0xf5, 0x80, 0x80, 0x80, 0x80, 0x10, 0]).is_none());
        assert!(read(&[0x18, 0x80, 0x80, 0x80, 0x80, 0x10, 0]).is_none());
        assert!(read(&[0x1c; 100_000]).is_none());
        assert!(read(&[0x19; 100_000]).is_none());
        assert!(read(&[]).is_none());
    }
}
