//! Converts rows to Parquet files, and files, also those of other engines, to rows.
//!
//! Lists and tables are LISTs of three levels, none of them optional. Times are whole microseconds,
//! since engines differ about nanoseconds, which are in integer columns as well.
//!
//! A file may be damaged or malicious: [`check`] validates it before the library decodes it, and
//! rows are compared with their checksums. The name of a column decides whether a byte array is
//! text, since engines differ about annotations.
//!
//! `write` encodes rows, [`Parquet`] reads them with `decode`, `thrift` parses metadata for `check`,
//! and `input` reads the bytes.

mod check;
mod decode;
mod input;
mod thrift;
mod write;

pub(crate) use input::{ParquetInput, Spool};
pub(crate) use write::{write, write_row};

use crate::measurement;
use crate::row::{Cells, Row, SIGNATURE, Value};
use check::damaged;
use decode::RowDecoder;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;
use parquet::schema::types::{Type, TypePtr};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Once};

/// Columns with bytes beside those of measurements, and the name prefix of register images.
const BINARY: [&str; 2] = ["key", SIGNATURE];
const IMAGES: &str = "hll_";
/// Start of a window, in microseconds. It is not read: another column has it in nanoseconds, and
/// engines write it in many ways.
const TIME: &str = "time";
const BEGIN: &str = "scheduled_start_ns";

/// Memory of a value in a row: a column with its name, and a cell of a list or table.
const FLAT_VALUE_BYTES: u64 = 96;
const NESTED_VALUE_BYTES: u64 = 16;

/// An opened file.
pub(crate) struct Parquet {
    metadata: ParquetMetaData,
    /// Whether the metadata has a checksum, which was verified.
    is_verified: bool,
    input: Arc<ParquetInput>,
}

impl Parquet {
    /// Reads the metadata of a file.
    pub(crate) fn open(input: ParquetInput) -> Result<Self> {
        let (footer, is_verified) = check::footer(&input)?;
        let metadata = caught(|| ParquetMetaDataReader::decode_metadata(&footer))??;
        Ok(Parquet { metadata, is_verified, input: Arc::new(input) })
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> u64 {
        self.metadata.file_metadata().num_rows().unsigned_abs()
    }

    /// Returns the name of a column that is not known.
    pub(crate) fn unknown_column(&self, is_known: impl Fn(&str) -> bool) -> Option<String> {
        let fields = self.metadata.file_metadata().schema().get_fields().iter();
        fields.map(|field| field.name()).find(|name| !is_known(name)).map(str::to_owned)
    }

    /// Returns the approximate memory of all rows, in bytes. It follows from the number of values:
    /// repeated ones take no space in a file.
    pub(crate) fn memory(&self) -> u64 {
        let columns = self.metadata.row_groups().iter().flat_map(|group| group.columns());
        let memory = |column: &ColumnChunkMetaData| {
            let is_flat = column.column_path().parts().len() == 1;
            let value = if is_flat { FLAT_VALUE_BYTES } else { NESTED_VALUE_BYTES };
            let values = column.num_values().unsigned_abs().saturating_mul(value);
            column.uncompressed_size().unsigned_abs().max(values)
        };
        columns.map(memory).fold(0, u64::saturating_add)
    }

    /// Returns the minimum and maximum of a column, if the metadata was verified: damaged
    /// statistics would hide rows.
    pub(crate) fn range(&self, column: &str) -> Option<(i64, i64)> {
        if !self.is_verified {
            return None;
        }
        let ranges = self.metadata.row_groups().iter().map(|group| {
            let column = group.columns().iter().find(|it| it.column_path().parts() == [column])?;
            let Some(Statistics::Int64(numbers)) = column.statistics() else { return None };
            Some((*numbers.min_opt()?, *numbers.max_opt()?))
        });
        ranges.reduce(|one, other| {
            let ((low, high), (other_low, other_high)) = (one?, other?);
            Some((low.min(other_low), high.max(other_high)))
        })?
    }

    /// Reads the wanted columns of all rows. Checksums are verified if all columns are wanted.
    /// Returns the memory of the pages that are read at once as well, in bytes.
    pub(crate) fn rows(
        self,
        is_wanted: impl Fn(&str) -> bool,
        is_summed: bool,
    ) -> Result<(impl Iterator<Item = Result<Row>>, u64)> {
        let pages = check::pages(self.input.as_ref(), &self.metadata, |name| {
            name != TIME && is_wanted(name)
        })?;
        let fields = self.metadata.file_metadata().schema().get_fields();
        let (mut columns, mut names) = (Vec::new(), HashSet::new());
        for field in fields.iter().filter(|field| is_wanted(field.name())) {
            let name = field.name().to_owned();
            // A null column would hide the value of another one from readers, but not from sums.
            if !names.insert(field.name()) {
                return Err(damaged(format!("it has two columns {name}")));
            }
            let kind = if name == TIME {
                Value::Time(0)
            } else {
                nothing(field).ok_or_else(|| {
                    damaged(format!("column {name} has a type that no column of a lake has"))
                })?
            };
            columns.push((name, kind));
        }
        let mut decoder = RowDecoder::new(self.input, self.metadata, columns);
        let mut number = 0_u64;
        let mut next = move || -> Result<Option<Row>> {
            let Some(mut row) = caught(|| decoder.next())?? else { return Ok(None) };
            number += 1;
            let begin = row.maybe_number(BEGIN).unwrap_or(0) / 1000;
            if let Some((_, Value::Time(time))) = row.0.iter_mut().find(|(name, _)| name == TIME) {
                *time = begin;
            }
            if is_summed && !row.is_as_summed() {
                return Err(damaged(format!("damaged: row {number} differs from its checksum")));
            }
            Ok(Some(row))
        };
        let mut is_over = false;
        let rows = std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let row = next().transpose();
            is_over = !matches!(row, Some(Ok(_)));
            row
        });
        Ok((rows, pages))
    }
}

thread_local! {
    /// Whether this thread is in [`caught`].
    static DECODES: Cell<bool> = const { Cell::new(false) };
}

/// Turns a panic of the library, which damaged bytes can cause, into an error. The panic is not
/// printed.
fn caught<T>(decode: impl FnOnce() -> T) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !DECODES.get() {
                print(panic);
            }
        }));
    });
    DECODES.set(true);
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    DECODES.set(false);
    decoded.map_err(|_| damaged("damaged: it cannot be decoded"))
}

/// Returns the empty value of a column's type; `None` for types that no lake column has.
fn nothing(field: &Type) -> Option<Value> {
    if let Some(element) = element(field) {
        let columns = |fields: &[TypePtr]| {
            fields
                .iter()
                .map(|field| Some((Cow::Owned(field.name().to_owned()), no_cells(field)?)))
                .collect::<Option<Vec<_>>>()
        };
        return match element {
            Type::GroupType { fields, .. } => columns(fields).map(Value::Table),
            // Engines that infer types write an empty list with a placeholder type.
            Type::PrimitiveType { physical_type: Physical::INT64 | Physical::INT32, .. } => {
                Some(Value::List(Vec::new()))
            }
            Type::PrimitiveType { .. } => None,
        };
    }
    let Type::PrimitiveType { basic_info, physical_type, .. } = field else { return None };
    let name = basic_info.name();
    let is_binary = name.starts_with(IMAGES)
        || BINARY.into_iter().chain(measurement::binary_columns()).any(|binary| binary == name);
    Some(match physical_type {
        Physical::INT32 | Physical::INT64 => Value::Int(None),
        Physical::FLOAT | Physical::DOUBLE => Value::Float(None),
        Physical::BOOLEAN => Value::Bool(None),
        Physical::BYTE_ARRAY if is_binary => Value::Bytes(None),
        Physical::BYTE_ARRAY => Value::Text(None),
        Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => return None,
    })
}

/// Returns the element type of a list.
fn element(field: &Type) -> Option<&Type> {
    let Type::GroupType { fields, .. } = field else { return None };
    let [repeated] = fields.as_slice() else { return None };
    let Type::GroupType { fields, .. } = repeated.as_ref() else { return None };
    let [element] = fields.as_slice() else { return None };
    let about = field.get_basic_info();
    let is_list = about.logical_type_ref() == Some(&LogicalType::List)
        || about.converted_type() == ConvertedType::LIST;
    is_list.then_some(element.as_ref())
}

fn no_cells(field: &Type) -> Option<Cells> {
    Some(match nothing(field)? {
        Value::Int(_) => Cells::Int(Vec::new()),
        Value::Float(_) => Cells::Float(Vec::new()),
        Value::Text(_) => Cells::Text(Vec::new()),
        Value::Bytes(_) => Cells::Bytes(Vec::new()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: i64) -> Row {
        let mut row = Row::default();
        row.put(
            BEGIN,
            Value::Int((number != 3).then_some(1_700_000_000_000_000_000 + number * 1000)),
        );
        row.put("float", Value::Float(Some(number as f64 / 3.0)));
        row.put("flag", Value::Bool(Some(number % 2 == 0)));
        row.put("text", Value::Text((number != 2).then(|| format!("text {number}"))));
        row.put("membership", Value::Bytes(Some(vec![number as u8; 5])));
        row.put(TIME, Value::Time(if number == 3 { 0 } else { 1_700_000_000_000_000 + number }));
        row.put("list", Value::List((0..number).collect()));
        let numbers = || 0..(5 - number).max(0);
        row.put(
            "table",
            Value::Table(vec![
                ("a".into(), Cells::Int(numbers().collect())),
                ("b".into(), Cells::Float(numbers().map(|it| it as f64).collect())),
                ("c".into(), Cells::Text(numbers().map(|it| it.to_string()).collect())),
                ("key".into(), Cells::Bytes(numbers().map(|it| vec![it as u8]).collect())),
            ]),
        );
        row.seal();
        row
    }

    fn open(bytes: Vec<u8>) -> Result<Parquet> {
        Parquet::open(ParquetInput::Memory(bytes.into()))
    }

    fn read(bytes: Vec<u8>) -> Result<Vec<Row>> {
        open(bytes)?.rows(|_| true, true)?.0.collect()
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let rows: Vec<Row> = (0..7).map(row).collect();
        let bytes = write(&rows, &[("flowgauge.schema", "1".to_owned())]).unwrap();
        let file = open(bytes.clone()).unwrap();
        assert_eq!(
            (file.len(), file.range(BEGIN)),
            (7, Some((1_700_000_000_000_000_000, 1_700_000_000_000_006_000)))
        );
        assert_eq!((file.range("text"), file.range("nothing")), (None, None));
        assert_eq!(read(bytes.clone()).unwrap(), rows);
        let some: Vec<Row> = open(bytes)
            .unwrap()
            .rows(|name| name == "flag", false)
            .unwrap()
            .0
            .map(Result::unwrap)
            .collect();
        assert_eq!(some[1].0, [("flag".into(), Value::Bool(Some(false)))]);
        assert_eq!(read(write_row(&rows[2]).unwrap()).unwrap(), rows[2..3]);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let rows: Vec<Row> = (0..3).map(row).collect();
        let bytes = write(&rows, &[]).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                // Some bits have no effect on readers.
                if let Ok(read) = read(flipped) {
                    assert_eq!(read, rows, "byte {at}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_panic_of_the_library_is_an_error() {
        assert!(caught(|| panic!("a decoder without a dictionary")).is_err());
        assert_eq!(caught(|| 5).unwrap(), 5);
    }

    #[test]
    fn rows_that_are_not_as_summed_are_refused() {
        let mut wrong = row(1);
        let (_, value) = wrong.0.iter_mut().find(|(name, _)| name == "float").unwrap();
        *value = Value::Float(Some(5.0));
        assert!(
            read(write(&[row(0), wrong], &[]).unwrap()).unwrap_err().to_string().contains("row 2")
        );
    }

    #[test]
    fn rows_of_different_columns_are_not_mixed() {
        let mut other = row(1);
        other.0.swap(0, 1);
        assert!(write(&[row(0), other], &[]).is_err());
        let mut other = row(1);
        other.0.pop();
        assert!(write(&[row(0), other], &[]).is_err());
        assert!(write(&[], &[]).is_err());
    }
}
