//! Table entries by name, with numbers as big-endian bytes.

use std::collections::BTreeMap;

/// Match of one key field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Match {
    /// Matches this value.
    Exact(Vec<u8>),
    /// Matches this value where the mask has ones. The value is zero elsewhere.
    Ternary {
        /// Value.
        value: Vec<u8>,
        /// Mask.
        mask: Vec<u8>,
    },
    /// Matches the first bits of this value. The value is zero after them.
    Lpm {
        /// Value.
        value: Vec<u8>,
        /// Number of bits.
        prefix_length: u32,
    },
    /// Matches a range, both ends included.
    Range {
        /// Lowest matching value.
        low: Vec<u8>,
        /// Highest matching value.
        high: Vec<u8>,
    },
    /// Matches this value, or anything.
    Optional(Option<Vec<u8>>),
}

/// Key of an entry: the match of each key field. Ternary and range keys have `$MATCH_PRIORITY` as
/// an exact field.
pub type Key = BTreeMap<String, Match>;

/// Value of a data field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Big-endian number.
    Bytes(Vec<u8>),
    /// Text.
    Text(String),
    /// Boolean.
    Bool(bool),
    /// Floating-point number.
    Float(f32),
    /// List of numbers.
    Numbers(Vec<u32>),
    /// List of booleans.
    Bools(Vec<bool>),
    /// List of texts.
    Texts(Vec<String>),
}

/// Data of an entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    /// Full name of the action, for tables with actions.
    pub action: Option<String>,
    /// Fields by name. In answers a register has one value per pipe, in order of pipes.
    pub fields: Vec<(String, Value)>,
}

impl Data {
    /// Returns an action with numbers as parameters.
    #[must_use]
    pub fn action(name: &str, fields: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Self {
        Data { action: Some(name.to_owned()), ..Data::fields(fields) }
    }

    /// Returns numbers without an action.
    #[must_use]
    pub fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> Self {
        let fields = fields
            .into_iter()
            .map(|(name, bytes)| (name.to_owned(), Value::Bytes(bytes)))
            .collect();
        Data { action: None, fields }
    }

    /// Returns all values of a field, one per pipe.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.fields.iter().filter(move |(field, _)| field == name).map(|(_, value)| value)
    }

    /// Returns the number in a field.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(field, _)| field == name).and_then(|(_, value)| match value {
            Value::Bytes(bytes) => Some(&bytes[..]),
            _ => None,
        })
    }
}

/// Entry of a table that is addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryTarget {
    /// Entry with a key.
    Key(Key),
    /// Default entry, for packets without a match.
    Default,
}

impl EntryTarget {
    /// Returns the key; `None` for the default entry.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            EntryTarget::Key(key) => Some(key),
            EntryTarget::Default => None,
        }
    }
}

/// Entry of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Key, or default entry.
    pub place: EntryTarget,
    /// Data.
    pub data: Data,
}

/// Pipes of a switch that a request covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipes {
    /// All pipes.
    All,
    /// One pipe.
    One(u32),
}

impl Pipes {
    /// `pipe_id` on the wire for all pipes.
    pub const ALL: u32 = 0xffff;

    /// Converts from the value on the wire.
    #[must_use]
    pub fn from_id(id: u32) -> Self {
        if id == Self::ALL { Pipes::All } else { Pipes::One(id) }
    }

    /// Converts to the value on the wire.
    #[must_use]
    pub fn id(self) -> u32 {
        match self {
            Pipes::All => Self::ALL,
            Pipes::One(pipe) => pipe,
        }
    }

    /// Returns the range of pipes, for a switch with this many.
    #[must_use]
    pub fn of(self, pipes: u32) -> std::ops::Range<u32> {
        match self {
            Pipes::All => 0..pipes,
            Pipes::One(pipe) => pipe..pipe.saturating_add(1),
        }
    }
}
