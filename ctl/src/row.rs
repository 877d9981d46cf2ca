//! Rows of a lake: flat lists of named columns, which query engines handle best.

use crate::text::serialize_pairs;
use base64::prelude::{BASE64_STANDARD, Engine};
use crc32fast::Hasher;
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// Value of a column: a scalar, a list of numbers, or a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// An integer, or null.
    Int(Option<i64>),
    /// A floating-point number, or null.
    Float(Option<f64>),
    /// A flag, or null.
    Bool(Option<bool>),
    /// Text, or null.
    Text(Option<String>),
    /// Bytes, or null.
    Bytes(#[serde(serialize_with = "serialize_blob")] Option<Vec<u8>>),
    /// Microseconds since the Unix epoch.
    Time(i64),
    /// A list of integers.
    List(Vec<i64>),
    /// A table, column by column; all columns have the same number of cells.
    Table(#[serde(serialize_with = "serialize_pairs")] Vec<(Cow<'static, str>, Cells)>),
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

/// Cells of one column of a nested table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cells {
    /// Integers.
    Int(Vec<i64>),
    /// Floating-point numbers; NaN where unknown.
    Float(Vec<f64>),
    /// Texts.
    Text(Vec<String>),
    /// Bytes.
    Bytes(#[serde(serialize_with = "serialize_blobs")] Vec<Vec<u8>>),
}

impl Cells {
    /// Returns the number of cells.
    pub(crate) fn len(&self) -> usize {
        match self {
            Cells::Int(cells) => cells.len(),
            Cells::Float(cells) => cells.len(),
            Cells::Text(cells) => cells.len(),
            Cells::Bytes(cells) => cells.len(),
        }
    }

    fn write(&self, to: &mut impl FnMut(&[u8])) {
        match self {
            Cells::Int(cells) => ints(to, cells),
            Cells::Float(cells) => floats(to, cells),
            Cells::Text(cells) => blobs(to, cells.iter().map(String::as_bytes)),
            Cells::Bytes(cells) => blobs(to, cells.iter().map(Vec::as_slice)),
        }
    }
}

/// Row of one window at one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Row(
    #[serde(serialize_with = "serialize_pairs")] pub(crate) Vec<(Cow<'static, str>, Value)>,
);

fn serialize_blob<S: Serializer>(blob: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    blob.as_ref().map(|bytes| BASE64_STANDARD.encode(bytes)).serialize(serializer)
}

fn serialize_blobs<S: Serializer>(blobs: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(blobs.iter().map(|bytes| BASE64_STANDARD.encode(bytes)))
}

/// Column of the CRC-32 over the row's other values ([`Row::sum`]). It stays valid when an engine
/// copies or rewrites the file.
pub(crate) const CHECKSUM: &str = "checksum";
/// Column of the host's signature over the row's other values ([`Row::signed_content`]).
pub(crate) const SIGNATURE: &str = "signature";
/// Column that repeats the value of another one.
const REPEATED: &str = "time";

impl Value {
    /// Whether the value is null or empty, which is equivalent to a missing column.
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

    fn write(&self, to: &mut impl FnMut(&[u8])) {
        match self {
            Value::Int(number) => ints(to, number.as_slice()),
            Value::Float(number) => floats(to, number.as_slice()),
            Value::Bool(flag) => ints(to, &[i64::from(*flag == Some(true))]),
            Value::Text(text) => blobs(to, text.iter().map(String::as_bytes)),
            Value::Bytes(bytes) => blobs(to, bytes.iter().map(Vec::as_slice)),
            Value::Time(time) => ints(to, &[*time]),
            Value::List(list) => ints(to, list),
            Value::Table(columns) => {
                let mut columns: Vec<_> = columns.iter().collect();
                columns.sort_by_key(|(name, _)| name);
                for (name, cells) in columns {
                    blobs(to, std::iter::once(name.as_bytes()));
                    cells.write(to);
                }
            }
        }
    }

    /// Writes the value after its type, and the number of columns and cells of a table. Of two
    /// different values none begins with the other.
    fn write_distinct(&self, to: &mut impl FnMut(&[u8])) {
        match self {
            Value::Int(_) => to(b"I"),
            Value::Float(_) => to(b"F"),
            Value::Bool(_) => to(b"B"),
            Value::Text(_) => to(b"T"),
            Value::Bytes(_) => to(b"Y"),
            Value::Time(_) => to(b"M"),
            Value::List(_) => to(b"L"),
            Value::Table(columns) => {
                to(b"A");
                to(&(columns.len() as u64).to_le_bytes());
                let mut columns: Vec<_> = columns.iter().collect();
                columns.sort_by_key(|(name, _)| name);
                for (name, cells) in columns {
                    blobs(to, std::iter::once(name.as_bytes()));
                    to(match cells {
                        Cells::Int(_) => b"I",
                        Cells::Float(_) => b"F",
                        Cells::Text(_) => b"T",
                        Cells::Bytes(_) => b"Y",
                    });
                    to(&(cells.len() as u64).to_le_bytes());
                    cells.write(to);
                }
                return;
            }
        }
        self.write(to);
    }
}

fn ints(to: &mut impl FnMut(&[u8]), numbers: &[i64]) {
    to(b"i");
    to(&(numbers.len() as u64).to_le_bytes());
    numbers.iter().for_each(|number| to(&number.to_le_bytes()));
}

fn floats(to: &mut impl FnMut(&[u8]), numbers: &[f64]) {
    to(b"f");
    to(&(numbers.len() as u64).to_le_bytes());
    // Engines do not preserve the payload of a NaN.
    let bits = |number: &f64| if number.is_nan() { f64::NAN.to_bits() } else { number.to_bits() };
    numbers.iter().for_each(|number| to(&bits(number).to_le_bytes()));
}

/// Writes bytes and text alike: some engines annotate all byte arrays as text.
fn blobs<'a>(to: &mut impl FnMut(&[u8]), blobs: impl Iterator<Item = &'a [u8]>) {
    for blob in blobs {
        to(b"b");
        to(&(blob.len() as u64).to_le_bytes());
        to(blob);
    }
}

/// Converts to a signed integer, saturated: engines have no unsigned ones.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Description of a defect in a row.
pub(crate) type RowDefect = String;

impl Row {
    /// Appends a column.
    pub(crate) fn put(&mut self, name: impl Into<Cow<'static, str>>, value: Value) {
        self.0.push((name.into(), value));
    }

    /// Appends a column with an integer.
    pub(crate) fn int(&mut self, name: impl Into<Cow<'static, str>>, number: u64) {
        self.put(name, Value::Int(Some(int(number))));
    }

    /// Appends a column with a floating-point number.
    pub(crate) fn float(&mut self, name: impl Into<Cow<'static, str>>, number: f64) {
        self.put(name, Value::Float(Some(number)));
    }

    /// Appends a column with text.
    pub(crate) fn text(&mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) {
        self.put(name, Value::Text(Some(text.into())));
    }

    /// Returns all columns.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// Returns a column by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.columns().find_map(|(column, value)| (column == name).then_some(value))
    }

    /// Returns the columns that are not null, but these, in the order of their names. Neither the
    /// order of columns nor null columns count, since engines change these when they merge files.
    fn sorted_without(&self, unwanted: &[&str]) -> Vec<(&str, &Value)> {
        let mut columns: Vec<_> = self
            .columns()
            .filter(|(name, value)| !unwanted.contains(name) && !value.is_nothing())
            .collect();
        columns.sort_by_key(|(name, _)| *name);
        columns
    }

    /// Writes the columns that are not null, in the order of their names: name, type and value of
    /// each, numbers with the low byte first.
    fn write(&self, to: &mut impl FnMut(&[u8])) {
        for (name, value) in self.sorted_without(&[CHECKSUM, SIGNATURE, REPEATED]) {
            blobs(to, std::iter::once(name.as_bytes()));
            value.write(to);
        }
    }

    /// Returns what a signature covers: a prefix that nothing else is signed with, and all columns
    /// that are not null, with the checksum. Unlike the bytes of the checksum, it differs for any
    /// two different rows: each part states its type and length. The column that repeats another
    /// one is not read, and so not signed.
    pub(crate) fn signed_content(&self) -> Vec<u8> {
        const PREFIX: &[u8] = b"flowgauge: row of a lake, version 1\0";
        let columns = self.sorted_without(&[SIGNATURE, REPEATED]);
        let mut content = Vec::with_capacity(PREFIX.len() + self.size() + 16 * columns.len());
        content.extend(PREFIX);
        content.extend((columns.len() as u64).to_le_bytes());
        let mut to = |bytes: &[u8]| content.extend_from_slice(bytes);
        for (name, value) in columns {
            blobs(&mut to, std::iter::once(name.as_bytes()));
            value.write_distinct(&mut to);
        }
        content
    }

    /// Returns the CRC-32 of the row's values.
    fn sum(&self) -> i64 {
        let mut sum = Hasher::new();
        self.write(&mut |bytes| sum.update(bytes));
        i64::from(sum.finalize())
    }

    /// Returns whether another row has the same values and the same signature; the order of columns
    /// does not matter. Checksums do not decide: different rows with one checksum are easily made.
    pub(crate) fn says_the_same(&self, other: &Row) -> bool {
        let [mine, theirs] = [self, other].map(|row| {
            let mut values = Vec::with_capacity(row.size());
            row.write(&mut |bytes| values.extend_from_slice(bytes));
            values
        });
        let signature = |row: &Row| row.bytes(SIGNATURE).ok().map(<[u8]>::to_vec);
        mine == theirs
            && self.maybe_number(CHECKSUM) == other.maybe_number(CHECKSUM)
            && signature(self) == signature(other)
    }

    /// Appends the checksum of the current values as the last column.
    pub(crate) fn seal(&mut self) {
        let sum = self.sum();
        self.put(CHECKSUM, Value::Int(Some(sum)));
    }

    /// Whether the checksum matches the values. Rows of versions that wrote no checksum pass.
    pub(crate) fn is_as_summed(&self) -> bool {
        self.maybe_number(CHECKSUM).is_none_or(|sum| sum == self.sum())
    }

    /// Returns the approximate size in memory, in bytes.
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

    /// Returns the integer of a column; `None` if it is missing or null.
    #[must_use]
    pub fn maybe_number(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::Int(number) => *number,
            _ => None,
        }
    }

    /// Returns the integer of a column.
    pub(crate) fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T, RowDefect> {
        let number = self
            .maybe_number(name)
            .ok_or_else(|| format!("column {name} is missing, or no number"))?;
        T::try_from(number).map_err(|_| format!("column {name} has {number}"))
    }

    /// As [`number`](Self::number), or `default` if the column is missing or null.
    pub(crate) fn number_or<T: TryFrom<i64>>(
        &self,
        name: &str,
        default: T,
    ) -> Result<T, RowDefect> {
        if self.maybe_number(name).is_some() { self.number(name) } else { Ok(default) }
    }

    /// Returns the floating-point number of a column.
    pub(crate) fn real(&self, name: &str) -> Result<f64, RowDefect> {
        match self.get(name) {
            Some(Value::Float(Some(number))) => Ok(*number),
            _ => Err(format!("column {name} is missing, or no number")),
        }
    }

    /// Returns the text of a column; `None` if it is missing or null.
    #[must_use]
    pub fn maybe_text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => text.as_deref(),
            _ => None,
        }
    }

    /// Returns the item that a text column names.
    pub(crate) fn named<T: Copy>(
        &self,
        name: &str,
        all: &[T],
        of: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, RowDefect> {
        let Some(text) = self.maybe_text(name) else { return Ok(None) };
        let found = all.iter().copied().find(|it| of(*it) == text);
        found
            .map(Some)
            .ok_or_else(|| format!("column {name} has '{text}', which this version does not know"))
    }

    /// As [`named`](Self::named), of a column that must not be missing.
    pub(crate) fn must_name<T: Copy>(
        &self,
        name: &str,
        all: &[T],
        of: impl Fn(T) -> &'static str,
    ) -> Result<T, RowDefect> {
        self.named(name, all, of)?.ok_or_else(|| format!("column {name} is missing"))
    }

    /// Returns the flag of a column.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, RowDefect> {
        match self.get(name) {
            Some(Value::Bool(Some(flag))) => Ok(*flag),
            _ => Err(format!("column {name} is missing, or neither true nor false")),
        }
    }

    /// Returns the bytes of a column.
    pub(crate) fn bytes(&self, name: &str) -> Result<&[u8], RowDefect> {
        match self.get(name) {
            Some(Value::Bytes(Some(bytes))) => Ok(bytes),
            _ => Err(format!("column {name} is missing, or has no bytes")),
        }
    }

    /// Returns the list of a column.
    pub(crate) fn list(&self, name: &str) -> Result<&[i64], RowDefect> {
        match self.get(name) {
            Some(Value::List(list)) => Ok(list),
            _ => Err(format!("column {name} is missing, or no list")),
        }
    }

    /// Returns the table of a column.
    pub(crate) fn table<'a>(&'a self, name: &'a str) -> Result<Inner<'a>, RowDefect> {
        match self.get(name) {
            Some(Value::Table(columns)) => Ok(Inner { name, columns }),
            Some(Value::List(list)) if list.is_empty() => Ok(Inner { name, columns: &[] }),
            _ => Err(format!("column {name} is missing, or no table")),
        }
    }
}

/// Column of a nested table that has a counter of each item.
pub(crate) type CounterColumn<T> = (&'static str, fn(&mut T) -> &mut u64);

/// Builder of a nested table, with a row for each item.
pub(crate) struct TableBuilder<'a, T> {
    items: &'a [T],
    columns: Vec<(Cow<'static, str>, Cells)>,
}

impl<'a, T> TableBuilder<'a, T> {
    pub(crate) fn new(items: &'a [T]) -> Self {
        TableBuilder { items, columns: Vec::new() }
    }

    /// Adds a column with the cell of each item.
    pub(crate) fn add<C>(
        mut self,
        name: &'static str,
        cells: impl FnOnce(Vec<C>) -> Cells,
        cell: impl Fn(&T) -> C,
    ) -> Self {
        self.columns.push((name.into(), cells(self.items.iter().map(cell).collect())));
        self
    }

    /// Adds columns with a counter each, which [`Inner::counters`] reads back.
    pub(crate) fn counters(self, columns: &[CounterColumn<T>]) -> Self
    where
        T: Copy,
    {
        columns.iter().fold(self, |table, (name, counter)| {
            table.add(name, Cells::Int, |item| int(*counter(&mut { *item })))
        })
    }
}

impl<T> From<TableBuilder<'_, T>> for Value {
    fn from(table: TableBuilder<'_, T>) -> Self {
        Value::Table(table.columns)
    }
}

/// Table nested in a column.
pub(crate) struct Inner<'a> {
    name: &'a str,
    columns: &'a [(Cow<'static, str>, Cells)],
}

macro_rules! cells_of {
    ($($what:literal $name:ident: $kind:ident($type:ty);)*) => {$(
        #[doc = concat!("Returns a column of ", $what, ".")]
        pub(crate) fn $name(&self, column: &str) -> Result<&'a [$type], RowDefect> {
            match self.cells(column) {
                Some(Cells::$kind(cells)) => Ok(cells),
                None if self.columns.is_empty() => Ok(&[]),
                _ => Err(format!("column {}.{column} is missing, or of another type", self.name)),
            }
        }
    )*};
}

impl<'a> Inner<'a> {
    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.columns.first().map_or(0, |(_, cells)| cells.len())
    }

    /// Sets counters of the items, one for each row.
    pub(crate) fn counters<T>(
        &self,
        columns: &[CounterColumn<T>],
        items: &mut [T],
    ) -> Result<(), RowDefect> {
        for (name, counter) in columns {
            for (item, cell) in items.iter_mut().zip(self.ints(name)?) {
                *counter(item) = cell.unsigned_abs();
            }
        }
        Ok(())
    }

    fn cells(&self, column: &str) -> Option<&'a Cells> {
        self.columns.iter().find_map(|(name, cells)| (name == column).then_some(cells))
    }

    cells_of! {
        "integers" ints: Int(i64);
        "floating-point numbers" floats: Float(f64);
        "text" texts: Text(String);
        "bytes" blobs: Bytes(Vec<u8>);
    }
}
