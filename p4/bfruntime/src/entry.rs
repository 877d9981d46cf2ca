//! Table entries by name, with numbers as big-endian bytes.

use std::collections::BTreeMap;
use std::fmt;

/// The part of a key that one field holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Match {
    /// Equal to this.
    Exact(Vec<u8>),
    /// Equal where the mask has ones; the value has none where the mask has not.
    Ternary {
        /// What to equal.
        value: Vec<u8>,
        /// Where.
        mask: Vec<u8>,
    },
    /// The first bits equal; the value has no ones behind them.
    Lpm {
        /// What to equal.
        value: Vec<u8>,
        /// How many bits.
        prefix_length: u32,
    },
    /// From one number to another, both included.
    Range {
        /// The lowest that matches.
        low: Vec<u8>,
        /// The highest that matches.
        high: Vec<u8>,
    },
    /// Equal to this, or anything.
    Optional(Option<Vec<u8>>),
}

/// A key: what each field of a table's key must match. Ternary and range keys have their
/// `$MATCH_PRIORITY` as an exact field.
pub type Key = BTreeMap<String, Match>;

/// One datum.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number, big-endian.
    Bytes(Vec<u8>),
    /// Text.
    Text(String),
    /// True or false.
    Bool(bool),
    /// A number with a fraction.
    Float(f32),
    /// Numbers.
    Numbers(Vec<u32>),
    /// Truths.
    Bools(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
}

/// What an entry holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    /// The action's full name, for tables that have actions.
    pub action: Option<String>,
    /// Data by name. In answers a register's value comes once for each pipe, in order of pipes.
    pub fields: Vec<(String, Value)>,
}

impl Data {
    /// An action with numbers as parameters.
    #[must_use]
    pub fn action(name: &str, fields: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Self {
        Data { action: Some(name.to_owned()), ..Data::fields(fields) }
    }

    /// Numbers without an action.
    #[must_use]
    pub fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> Self {
        let fields = fields
            .into_iter()
            .map(|(name, bytes)| (name.to_owned(), Value::Bytes(bytes)))
            .collect();
        Data { action: None, fields }
    }

    /// All values of a field, one for each pipe.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.fields.iter().filter(move |(field, _)| field == name).map(|(_, value)| value)
    }

    /// The number in a field.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(field, _)| field == name).and_then(|(_, value)| match value {
            Value::Bytes(bytes) => Some(&bytes[..]),
            _ => None,
        })
    }
}

/// Which entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// That of a key.
    Key(Key),
    /// What happens if nothing matches.
    Default,
}

impl Place {
    /// The key, unless it is the default entry.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Place::Key(key) => Some(key),
            Place::Default => None,
        }
    }
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Which.
    pub place: Place,
    /// What it holds.
    pub data: Data,
}

/// Which pipelines of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipes {
    /// Every one.
    All,
    /// One.
    One(u32),
}

impl Pipes {
    /// `pipe_id` on the wire that means every pipe.
    pub const ALL: u32 = 0xffff;

    /// From the wire.
    #[must_use]
    pub fn from_id(id: u32) -> Self {
        if id == Self::ALL { Pipes::All } else { Pipes::One(id) }
    }

    /// As on the wire.
    #[must_use]
    pub fn id(self) -> u32 {
        match self {
            Pipes::All => Self::ALL,
            Pipes::One(pipe) => pipe,
        }
    }

    /// The pipes meant, of a switch that has so many.
    #[must_use]
    pub fn of(self, pipes: u32) -> std::ops::Range<u32> {
        match self {
            Pipes::All => 0..pipes,
            Pipes::One(pipe) => pipe..pipe.saturating_add(1),
        }
    }
}

impl fmt::Display for Pipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pipes::All => f.write_str("all pipes"),
            Pipes::One(pipe) => write!(f, "pipe {pipe}"),
        }
    }
}
