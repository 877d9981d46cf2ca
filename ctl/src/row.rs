//! A row of a lake: named columns, as flat as engines like them.

use base64::prelude::{BASE64_STANDARD, Engine};
use crc32fast::Hasher;
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// What a column holds: one value, several numbers, or a table of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number, or none.
    Int(Option<i64>),
    /// A number, or none.
    Float(Option<f64>),
    /// Yes or no, or neither.
    Bool(Option<bool>),
    /// Text, or none.
    Text(Option<String>),
    /// Bytes, or none.
    Bytes(Option<Vec<u8>>),
    /// Microseconds since the Unix epoch.
    Time(i64),
    /// Numbers.
    List(Vec<i64>),
    /// Rows of a table, column by column; all columns have as many cells.
    Table(Vec<(Cow<'static, str>, Cells)>),
}

macro_rules! from {
    ($($type:ty => $value:ident($of:expr);)*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Some(value).into()
            }
        }

        impl From<Option<$type>> for Value {
            fn from(value: Option<$type>) -> Self {
                Value::$value(value.map($of))
            }
        }
    )*};
}

from! {
    u64 => Int(int);
    u32 => Int(i64::from);
    u8 => Int(i64::from);
    usize => Int(|number| int(number as u64));
    i64 => Int(|number| number);
    f64 => Float(|number| number);
    bool => Bool(|flag| flag);
    &str => Text(str::to_owned);
    String => Text(|text| text);
}

/// A column of a table within a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Numbers.
    Int(Vec<i64>),
    /// Numbers; those that are unknown are no numbers.
    Float(Vec<f64>),
    /// Texts.
    Text(Vec<String>),
    /// Bytes.
    Bytes(Vec<Vec<u8>>),
}

impl Cells {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Cells::Int(cells) => cells.len(),
            Cells::Float(cells) => cells.len(),
            Cells::Text(cells) => cells.len(),
            Cells::Bytes(cells) => cells.len(),
        }
    }
}

/// One window at one place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row(pub(crate) Vec<(Cow<'static, str>, Value)>);

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Int(number) => number.serialize(serializer),
            Value::Float(number) => number.serialize(serializer),
            Value::Bool(flag) => flag.serialize(serializer),
            Value::Text(text) => text.serialize(serializer),
            Value::Bytes(bytes) => {
                bytes.as_ref().map(|bytes| BASE64_STANDARD.encode(bytes)).serialize(serializer)
            }
            Value::Time(time) => time.serialize(serializer),
            Value::List(list) => list.serialize(serializer),
            // Column by column, as it is.
            Value::Table(columns) => {
                serializer.collect_map(columns.iter().map(|(name, cells)| (name, cells)))
            }
        }
    }
}

impl Serialize for Cells {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cells::Int(cells) => cells.serialize(serializer),
            Cells::Float(cells) => cells.serialize(serializer),
            Cells::Text(cells) => cells.serialize(serializer),
            Cells::Bytes(cells) => {
                serializer.collect_seq(cells.iter().map(|bytes| BASE64_STANDARD.encode(bytes)))
            }
        }
    }
}

/// Column with the CRC-32 of the row's other values ([`Row::sum`]). It stays valid when an engine
/// copies or rewrites the file.
pub(crate) const CHECKSUM: &str = "checksum";
/// A column that says again what others say.
const REPEATED: &str = "time";

impl Value {
    /// Whether it holds nothing; a column that is not there says the same.
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Value::Int(number) => number.is_none(),
            Value::Float(number) => number.is_none(),
            Value::Bool(flag) => flag.is_none(),
            Value::Text(text) => text.is_none(),
            Value::Bytes(bytes) => bytes.is_none(),
            Value::Time(_) => false,
            Value::List(list) => list.is_empty(),
            Value::Table(columns) => columns.first().is_none_or(|(_, cells)| cells.len() == 0),
        }
    }

    fn sum(&self, sum: &mut Hasher) {
        match self {
            Value::Int(number) => ints(sum, number.as_slice()),
            Value::Float(number) => floats(sum, number.as_slice()),
            Value::Bool(flag) => ints(sum, &[i64::from(*flag == Some(true))]),
            Value::Text(text) => blobs(sum, text.iter().map(String::as_bytes)),
            Value::Bytes(bytes) => blobs(sum, bytes.iter().map(Vec::as_slice)),
            Value::Time(time) => ints(sum, &[*time]),
            Value::List(list) => ints(sum, list),
            Value::Table(columns) => {
                let mut columns: Vec<_> = columns.iter().collect();
                columns.sort_by_key(|(name, _)| name);
                for (name, cells) in columns {
                    blobs(sum, std::iter::once(name.as_bytes()));
                    match cells {
                        Cells::Int(cells) => ints(sum, cells),
                        Cells::Float(cells) => floats(sum, cells),
                        Cells::Text(cells) => blobs(sum, cells.iter().map(String::as_bytes)),
                        Cells::Bytes(cells) => blobs(sum, cells.iter().map(Vec::as_slice)),
                    }
                }
            }
        }
    }
}

fn ints(sum: &mut Hasher, numbers: &[i64]) {
    sum.update(b"i");
    sum.update(&(numbers.len() as u64).to_le_bytes());
    numbers.iter().for_each(|number| sum.update(&number.to_le_bytes()));
}

fn floats(sum: &mut Hasher, numbers: &[f64]) {
    sum.update(b"f");
    sum.update(&(numbers.len() as u64).to_le_bytes());
    // Engines do not keep which no number it is.
    let bits = |number: &f64| if number.is_nan() { f64::NAN.to_bits() } else { number.to_bits() };
    numbers.iter().for_each(|number| sum.update(&bits(number).to_le_bytes()));
}

/// Text as well: some engines annotate all bytes as text.
fn blobs<'a>(sum: &mut Hasher, blobs: impl Iterator<Item = &'a [u8]>) {
    for blob in blobs {
        sum.update(b"b");
        sum.update(&(blob.len() as u64).to_le_bytes());
        sum.update(blob);
    }
}

/// A number that a signed one of 64 bits holds; a larger one is the largest. Engines have no
/// others.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What is wrong with a row.
pub(crate) type Misfit = String;

impl Row {
    /// Adds a column.
    pub(crate) fn put(&mut self, name: impl Into<Cow<'static, str>>, value: Value) {
        self.0.push((name.into(), value));
    }

    /// Adds a column with a number.
    pub(crate) fn int(&mut self, name: impl Into<Cow<'static, str>>, number: u64) {
        self.put(name, Value::Int(Some(int(number))));
    }

    /// Adds a column with a number.
    pub(crate) fn float(&mut self, name: impl Into<Cow<'static, str>>, number: f64) {
        self.put(name, Value::Float(Some(number)));
    }

    /// Adds a column with text.
    pub(crate) fn text(&mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) {
        self.put(name, Value::Text(Some(text.into())));
    }

    /// All columns.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// A column by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.columns().find_map(|(column, value)| (column == name).then_some(value))
    }

    /// CRC-32 of its columns with something in them, in the order of their names: name, type and
    /// value of each, numbers with the low byte first. Neither the order of columns nor columns
    /// without a value count, since engines change these when they unite files.
    fn sum(&self) -> i64 {
        let mut columns: Vec<_> = self
            .columns()
            .filter(|(name, value)| ![CHECKSUM, REPEATED].contains(name) && !value.is_nothing())
            .collect();
        columns.sort_by_key(|(name, _)| *name);
        let mut sum = Hasher::new();
        for (name, value) in columns {
            blobs(&mut sum, std::iter::once(name.as_bytes()));
            value.sum(&mut sum);
        }
        i64::from(sum.finalize())
    }

    /// Whether another row has the same values, whatever the order of its columns.
    pub(crate) fn says_the_same(&self, other: &Row) -> bool {
        self.sum() == other.sum() && self.maybe_number(CHECKSUM) == other.maybe_number(CHECKSUM)
    }

    /// Appends the checksum of the current values as the last column.
    pub(crate) fn seal(&mut self) {
        let sum = self.sum();
        self.put(CHECKSUM, Value::Int(Some(sum)));
    }

    /// Whether its checksum is that of its values; rows of versions before it have none.
    pub(crate) fn is_as_summed(&self) -> bool {
        self.maybe_number(CHECKSUM).is_none_or(|sum| sum == self.sum())
    }

    /// Bytes that it takes, more or less.
    pub(crate) fn size(&self) -> usize {
        let cells = |cells: &Cells| match cells {
            Cells::Int(cells) => 8 * cells.len(),
            Cells::Float(cells) => 8 * cells.len(),
            Cells::Text(cells) => cells.iter().map(|text| text.len() + 24).sum(),
            Cells::Bytes(cells) => cells.iter().map(|bytes| bytes.len() + 24).sum(),
        };
        let value = |value: &Value| match value {
            Value::Text(text) => text.as_ref().map_or(0, String::len),
            Value::Bytes(bytes) => bytes.as_ref().map_or(0, Vec::len),
            Value::List(list) => 8 * list.len(),
            Value::Table(columns) => columns.iter().map(|(_, column)| cells(column)).sum(),
            Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Time(_) => 0,
        };
        self.0.iter().map(|(name, it)| size_of_val(it) + name.len() + value(it)).sum()
    }

    /// A number, if the column is there and has one.
    #[must_use]
    pub fn maybe_number(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::Int(number) => *number,
            _ => None,
        }
    }

    /// A number.
    pub(crate) fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T, Misfit> {
        let number = self
            .maybe_number(name)
            .ok_or_else(|| format!("column {name} is missing, or no number"))?;
        T::try_from(number).map_err(|_| format!("column {name} has {number}"))
    }

    /// A number.
    pub(crate) fn real(&self, name: &str) -> Result<f64, Misfit> {
        match self.get(name) {
            Some(Value::Float(Some(number))) => Ok(*number),
            _ => Err(format!("column {name} is missing, or no number")),
        }
    }

    /// A text, if the column is there and has one.
    #[must_use]
    pub fn maybe_text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => text.as_deref(),
            _ => None,
        }
    }

    /// One of several things by its name.
    pub(crate) fn named<T: Copy>(
        &self,
        name: &str,
        all: &[T],
        of: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, Misfit> {
        let Some(text) = self.maybe_text(name) else { return Ok(None) };
        let found = all.iter().copied().find(|it| of(*it) == text);
        found
            .map(Some)
            .ok_or_else(|| format!("column {name} has '{text}', which this version does not know"))
    }

    /// Yes or no.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Misfit> {
        match self.get(name) {
            Some(Value::Bool(Some(flag))) => Ok(*flag),
            _ => Err(format!("column {name} is missing, or neither true nor false")),
        }
    }

    /// Bytes.
    pub(crate) fn bytes(&self, name: &str) -> Result<&[u8], Misfit> {
        match self.get(name) {
            Some(Value::Bytes(Some(bytes))) => Ok(bytes),
            _ => Err(format!("column {name} is missing, or has no bytes")),
        }
    }

    /// Numbers.
    pub(crate) fn list(&self, name: &str) -> Result<&[i64], Misfit> {
        match self.get(name) {
            Some(Value::List(list)) => Ok(list),
            _ => Err(format!("column {name} is missing, or no list")),
        }
    }

    /// A table.
    pub(crate) fn table<'a>(&'a self, name: &'a str) -> Result<Inner<'a>, Misfit> {
        match self.get(name) {
            Some(Value::Table(columns)) => Ok(Inner { name, columns }),
            Some(Value::List(list)) if list.is_empty() => Ok(Inner { name, columns: &[] }),
            _ => Err(format!("column {name} is missing, or no table")),
        }
    }
}

/// A table within a column.
pub(crate) struct Inner<'a> {
    name: &'a str,
    columns: &'a [(Cow<'static, str>, Cells)],
}

impl<'a> Inner<'a> {
    /// Rows.
    pub(crate) fn len(&self) -> usize {
        self.columns.first().map_or(0, |(_, cells)| cells.len())
    }

    fn cells(&self, column: &str) -> Option<&'a Cells> {
        self.columns.iter().find_map(|(name, cells)| (name == column).then_some(cells))
    }

    fn missing(&self, column: &str) -> Misfit {
        format!("column {}.{column} is missing, or of another type", self.name)
    }

    /// A column of numbers.
    pub(crate) fn ints(&self, column: &str) -> Result<&'a [i64], Misfit> {
        match self.cells(column) {
            Some(Cells::Int(cells)) => Ok(cells),
            None if self.columns.is_empty() => Ok(&[]),
            _ => Err(self.missing(column)),
        }
    }

    /// A column of texts.
    pub(crate) fn texts(&self, column: &str) -> Result<&'a [String], Misfit> {
        match self.cells(column) {
            Some(Cells::Text(cells)) => Ok(cells),
            None if self.columns.is_empty() => Ok(&[]),
            _ => Err(self.missing(column)),
        }
    }

    /// A column of bytes.
    pub(crate) fn blobs(&self, column: &str) -> Result<&'a [Vec<u8>], Misfit> {
        match self.cells(column) {
            Some(Cells::Bytes(cells)) => Ok(cells),
            None if self.columns.is_empty() => Ok(&[]),
            _ => Err(self.missing(column)),
        }
    }
}
