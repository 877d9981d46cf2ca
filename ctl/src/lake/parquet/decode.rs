//! Decodes the rows of a file one at a time, column by column.
//!
//! A list in a few bytes of a file can have any number of elements, so a row is bounded before it
//! is decoded: [`BoundedPages`] counts the elements of each row in the repetition levels of a page,
//! and [`RowDecoder`] the memory of a row's values before it copies them.

use super::check::{MAX_ELEMENTS, damaged};
use super::input::ParquetInput;
use super::thrift::varint;
use crate::row::{Cells, Row, Value};
use parquet::basic::{ConvertedType, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::Result;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::metadata::page_index::RowGroupPageIndex;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::RowGroupReader;
use parquet::file::serialized_reader::SerializedRowGroupReader;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum memory of the values of a row, in bytes. The largest row has [`MAX_ELEMENTS`] buckets of
/// delays of ten numbers and three names, 52 MiB, and 7 MiB of other measurements: 4,096 heavy
/// hitters, 16,384 prefixes, three sketches of 16,384 counters, and 1 MiB of spread with 8,192 keys.
const MAX_ROW_BYTES: usize = 60 << 20;
/// Memory of a number, and of a text or bytes without their content.
const NUMBER_BYTES: usize = 8;
const TEXT_BYTES: usize = 24;
/// Memory that an allocation takes beyond its content, and the multiple to which it is rounded.
const ALLOCATION_BYTES: usize = 16;
/// Memory of a column without its name and values.
const COLUMN_BYTES: usize = 64;

/// Decoder of the rows of a file.
pub(super) struct RowDecoder {
    input: Arc<ParquetInput>,
    metadata: ParquetMetaData,
    columns: Vec<Column>,
    levels: Levels,
    next_group: usize,
    /// Number of rows of the current group that are not decoded yet.
    left: u64,
    /// Number of rows so far.
    number: u64,
}

impl RowDecoder {
    /// Decodes columns, each with its name and empty value. A time is not decoded.
    pub(super) fn new(
        input: Arc<ParquetInput>,
        metadata: ParquetMetaData,
        columns: Vec<(String, Value)>,
    ) -> Self {
        let columns = columns.into_iter();
        let columns =
            columns.map(|(name, nothing)| Column { name, nothing, leaves: Vec::new() }).collect();
        RowDecoder {
            input,
            metadata,
            columns,
            levels: Levels::default(),
            next_group: 0,
            left: 0,
            number: 0,
        }
    }

    /// Returns the next row.
    pub(super) fn next(&mut self) -> Result<Option<Row>> {
        while self.left == 0 {
            if self.next_group == self.metadata.num_row_groups() {
                return Ok(None);
            }
            self.open_group()?;
        }
        self.left -= 1;
        self.number += 1;
        let (mut row, mut room) = (Row::default(), MAX_ROW_BYTES);
        for column in &mut self.columns {
            let value = column.value(&mut self.levels, &mut room, self.number)?;
            row.put(column.name.clone(), value);
        }
        Ok(Some(row))
    }

    /// Opens the columns of the next row group.
    fn open_group(&mut self) -> Result<()> {
        let group = self.metadata.row_group(self.next_group);
        let mut indices: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, column) in group.columns().iter().enumerate() {
            if let Some(name) = column.column_path().parts().first() {
                indices.entry(name).or_default().push(index);
            }
        }
        let reader = SerializedRowGroupReader::new(
            Arc::clone(&self.input),
            group,
            RowGroupPageIndex::new(self.next_group, None),
            Arc::new(ReaderProperties::builder().build()),
        )?;
        for column in &mut self.columns {
            let indices = indices.get(column.name.as_str()).map(Vec::as_slice);
            column.open(&reader, indices.unwrap_or_default())?;
        }
        self.next_group += 1;
        self.left = group.num_rows().unsigned_abs();
        Ok(())
    }
}

/// A wanted column.
struct Column {
    name: String,
    /// Empty value of its type.
    nothing: Value,
    /// Leaf columns in the current row group: those of a table, or one.
    leaves: Vec<Leaf>,
}

impl Column {
    fn open(&mut self, group: &dyn RowGroupReader, indices: &[usize]) -> Result<()> {
        let (number, is_list) = match &self.nothing {
            Value::Time(_) => return Ok(()),
            Value::Table(columns) => (columns.len(), true),
            Value::List(_) => (1, true),
            _ => (1, false),
        };
        let leaves = indices.iter().map(|index| Leaf::open(group, *index, is_list));
        let leaves = leaves.collect::<Result<Option<Vec<_>>>>()?;
        self.leaves = leaves.filter(|leaves| leaves.len() == number).ok_or_else(|| {
            damaged(format!("column {} has a type that no column of a lake has", self.name))
        })?;
        Ok(())
    }

    /// Decodes the value in the next row. Subtracts its memory from `room`, and fails if there is
    /// too little.
    fn value(&mut self, levels: &mut Levels, room: &mut usize, number: u64) -> Result<Value> {
        let (name, nothing, leaves) = (&self.name, &self.nothing, &mut self.leaves);
        let mut take = |bytes: usize| -> Result<()> {
            *room = room.checked_sub(bytes).ok_or_else(|| {
                damaged(format!(
                    "row {number}: more than {MAX_ROW_BYTES} bytes of values up to column {name}, which no window has"
                ))
            })?;
            Ok(())
        };
        take(COLUMN_BYTES + name.len())?;
        let value = match nothing {
            Value::Time(_) => Some(nothing.clone()),
            Value::Table(columns) => {
                let mut table = Some(Vec::with_capacity(columns.len()));
                for (leaf, (column, nothing)) in leaves.iter_mut().zip(columns.iter()) {
                    let values = leaf.read(levels)?;
                    take(COLUMN_BYTES + column.len() + values.memory())?;
                    table = table.zip(values.into_cells(nothing)).map(|(mut table, cells)| {
                        table.push((column.clone(), cells));
                        table
                    });
                }
                let is_even = |table: &Vec<(_, Cells)>| {
                    let mut lengths = table.iter().map(|(_, cells)| cells.len());
                    let first = lengths.next();
                    lengths.all(|length| Some(length) == first)
                };
                table.filter(is_even).map(Value::Table)
            }
            nothing => match leaves.first_mut() {
                Some(leaf) => {
                    let values = leaf.read(levels)?;
                    take(values.memory())?;
                    values.into_value(nothing)
                }
                None => None,
            },
        };
        value.ok_or_else(|| {
            damaged(format!("row {number}: column {name} has values that no column of a lake has"))
        })
    }
}

/// Definition and repetition levels of a column in one row.
#[derive(Default)]
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

impl Levels {
    /// Reads the levels of the next row, and returns its values without nulls.
    fn read<T: DataType>(&mut self, reader: &mut ColumnReaderImpl<T>) -> Result<Vec<T::T>> {
        self.definition.clear();
        self.repetition.clear();
        let mut values = Vec::new();
        let (rows, ..) = reader.read_records(
            1,
            Some(&mut self.definition),
            Some(&mut self.repetition),
            &mut values,
        )?;
        if rows == 0 {
            return Err(damaged("damaged: a column with fewer rows than its row group"));
        }
        if !self.repetition.is_empty() {
            values.shrink_to_fit();
        }
        Ok(values)
    }
}

/// A leaf column of a row group.
struct Leaf {
    reader: ColumnReader,
    /// Definition level of a value.
    value_level: i16,
    /// Minimum definition level of a list's elements; 0 without a list.
    element_level: i16,
    /// Whether integers, if there are any, are signed and neither times nor decimals.
    is_plain: bool,
}

impl Leaf {
    /// Opens a column; `None` if it is nested in another way.
    fn open(group: &dyn RowGroupReader, index: usize, is_list: bool) -> Result<Option<Self>> {
        let about = group.metadata().column(index).column_descr_ptr();
        if about.max_rep_level() != i16::from(is_list) {
            return Ok(None);
        }
        let mut pages = group.get_column_page_reader(index)?;
        if is_list {
            pages = Box::new(BoundedPages { pages, elements: 0 });
        }
        let is_plain = matches!(
            about.converted_type(),
            ConvertedType::NONE | ConvertedType::INT_32 | ConvertedType::INT_64
        );
        Ok(Some(Leaf {
            value_level: about.max_def_level(),
            element_level: about.repeated_ancestor_def_level(),
            is_plain,
            reader: get_column_reader(about, pages),
        }))
    }

    /// Decodes the values of the next row.
    fn read(&mut self, levels: &mut Levels) -> Result<LeafValues> {
        let mut values = match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => Values::Bool(levels.read(reader)?),
            ColumnReader::Int32ColumnReader(reader) => {
                Values::Int(levels.read(reader)?.into_iter().map(i64::from).collect())
            }
            ColumnReader::Int64ColumnReader(reader) => Values::Int(levels.read(reader)?),
            ColumnReader::FloatColumnReader(reader) => {
                Values::Float(levels.read(reader)?.into_iter().map(f64::from).collect())
            }
            ColumnReader::DoubleColumnReader(reader) => Values::Float(levels.read(reader)?),
            ColumnReader::ByteArrayColumnReader(reader) => Values::Bytes(levels.read(reader)?),
            ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
                Values::Other
            }
        };
        if matches!(&values, Values::Int(numbers) if !self.is_plain && !numbers.is_empty()) {
            values = Values::Other;
        }
        let (value_level, element_level) = (self.value_level, self.element_level);
        let elements = || levels.definition.iter().filter(move |level| **level >= element_level);
        let number = elements().count();
        // In tables unknown numbers are NaN, which some engines write as null.
        if let Values::Float(numbers) = &mut values
            && element_level > 0
            && numbers.len() < number
        {
            let mut known = std::mem::take(numbers).into_iter();
            let spread = elements().map(|level| {
                let known = if *level == value_level { known.next() } else { None };
                known.unwrap_or(f64::NAN)
            });
            *numbers = spread.collect();
        }
        Ok(LeafValues { values, elements: number })
    }
}

/// Values of a leaf column in one row.
struct LeafValues {
    /// Values without nulls, unless they are floating-point numbers of a list.
    values: Values,
    /// Number of elements of the list, with nulls.
    elements: usize,
}

enum Values {
    Bool(Vec<bool>),
    Int(Vec<i64>),
    Float(Vec<f64>),
    Bytes(Vec<ByteArray>),
    /// Values of a type that no column of a lake has.
    Other,
}

impl LeafValues {
    /// Returns the memory of the values in a row, in bytes.
    fn memory(&self) -> usize {
        let content = |bytes: &ByteArray| match bytes.len() {
            0 => TEXT_BYTES,
            length => TEXT_BYTES + ALLOCATION_BYTES + length.next_multiple_of(ALLOCATION_BYTES),
        };
        match &self.values {
            Values::Bool(flags) => flags.len(),
            Values::Int(numbers) => NUMBER_BYTES * numbers.len(),
            Values::Float(numbers) => NUMBER_BYTES * numbers.len(),
            Values::Bytes(blobs) => blobs.iter().map(content).fold(0, usize::saturating_add),
            Values::Other => 0,
        }
    }

    /// Converts to a value of the type of `nothing`, a list or a scalar.
    fn into_value(self, nothing: &Value) -> Option<Value> {
        Some(match (nothing, self.values) {
            (Value::List(_), Values::Int(list)) if list.len() == self.elements => Value::List(list),
            (Value::Int(_), Values::Int(number)) => Value::Int(number.first().copied()),
            (Value::Float(_), Values::Float(number)) => Value::Float(number.first().copied()),
            (Value::Bool(_), Values::Bool(flag)) => Value::Bool(flag.first().copied()),
            (Value::Text(_), Values::Bytes(bytes)) => Value::Text(match bytes.first() {
                Some(bytes) => Some(text(bytes)?),
                None => None,
            }),
            (Value::Bytes(_), Values::Bytes(bytes)) => {
                Value::Bytes(bytes.first().map(|bytes| bytes.data().to_vec()))
            }
            _ => return None,
        })
    }

    /// Converts to cells of a table, of the type of `nothing`.
    fn into_cells(self, nothing: &Cells) -> Option<Cells> {
        let cells = match (nothing, self.values) {
            (Cells::Int(_), Values::Int(numbers)) => Cells::Int(numbers),
            (Cells::Float(_), Values::Float(numbers)) => Cells::Float(numbers),
            (Cells::Text(_), Values::Bytes(texts)) => {
                Cells::Text(texts.iter().map(text).collect::<Option<_>>()?)
            }
            (Cells::Bytes(_), Values::Bytes(blobs)) => {
                Cells::Bytes(blobs.iter().map(|bytes| bytes.data().to_vec()).collect())
            }
            _ => return None,
        };
        (cells.len() == self.elements).then_some(cells)
    }
}

fn text(bytes: &ByteArray) -> Option<String> {
    std::str::from_utf8(bytes.data()).ok().map(str::to_owned)
}

/// Pages of a list column, whose rows have at most [`MAX_ELEMENTS`] elements each. The library
/// decodes a row as a whole.
struct BoundedPages {
    pages: Box<dyn PageReader>,
    /// Number of elements so far in the row that may continue in the next page.
    elements: u64,
}

impl BoundedPages {
    fn check(&mut self, page: &Page) -> Result<()> {
        let levels = match page {
            Page::DataPage { buf, num_values, encoding, rep_level_encoding, .. } => {
                let levels = (*rep_level_encoding == Encoding::RLE)
                    .then(|| buf.split_first_chunk::<4>())
                    .flatten()
                    .and_then(|(length, levels)| {
                        levels.get(..u32::from_le_bytes(*length) as usize)
                    });
                Some((levels, *num_values, *encoding))
            }
            Page::DataPageV2 { buf, num_values, encoding, rep_levels_byte_len, .. } => {
                Some((buf.get(..*rep_levels_byte_len as usize), *num_values, *encoding))
            }
            Page::DictionaryPage { .. } => None,
        };
        let Some((levels, values, encoding)) = levels else { return Ok(()) };
        // Each value can take as many bytes as all before it in the page.
        if encoding == Encoding::DELTA_BYTE_ARRAY {
            return Err(damaged(format!("a list encoded as {encoding:?}, which is not read")));
        }
        let levels = levels
            .ok_or_else(|| damaged("damaged: a list without levels, or in an old encoding"))?;
        let most = self.longest(levels, values.into()).max(self.elements);
        if most > MAX_ELEMENTS {
            return Err(damaged(format!(
                "a list of {most} elements or more in a row; at most {MAX_ELEMENTS} are read, and no window has as many"
            )));
        }
        Ok(())
    }

    /// Adds the repetition levels of a page, and returns the maximum number of elements of a row.
    /// Stops at damage, which the library reports.
    fn longest(&mut self, mut levels: &[u8], mut left: u64) -> u64 {
        let mut longest = 0;
        while left > 0 {
            let Some((head, rest)) = varint(levels) else { break };
            // Levels are those of one list, of one bit each: either runs of one level, or eight in
            // a byte ("RLE/bit-packing hybrid" of the format's encodings).
            if head & 1 == 0 {
                let Some((level, rest)) = rest.split_first() else { break };
                levels = rest;
                let run = (head >> 1).min(left);
                left -= run;
                if *level != 0 {
                    self.elements = self.elements.saturating_add(run);
                } else if run > 0 {
                    longest = longest.max(self.elements);
                    self.elements = 1;
                }
                continue;
            }
            let bytes = usize::try_from(head >> 1).unwrap_or(usize::MAX).min(rest.len());
            let (packed, rest) = rest.split_at(bytes);
            levels = rest;
            for bit in packed.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1)) {
                if left == 0 {
                    break;
                }
                left -= 1;
                if bit == 0 {
                    longest = longest.max(self.elements);
                    self.elements = 0;
                }
                self.elements = self.elements.saturating_add(1);
            }
        }
        longest
    }
}

impl Iterator for BoundedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for BoundedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::parquet::{Parquet, write};

    /// No page.
    struct NoPages;

    impl Iterator for NoPages {
        type Item = Result<Page>;

        fn next(&mut self) -> Option<Self::Item> {
            None
        }
    }

    impl PageReader for NoPages {
        fn get_next_page(&mut self) -> Result<Option<Page>> {
            Ok(None)
        }

        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
            Ok(None)
        }

        fn skip_next_page(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn elements_are_counted_across_runs_and_pages() {
        let mut pages = BoundedPages { pages: Box::new(NoPages), elements: 0 };
        // Levels 0 1 1 1 in runs, then 0 1 1 0 1 0 0 0 in a byte.
        let levels = [1 << 1, 0, 3 << 1, 1, 1 << 1 | 1, 0b0001_0110];
        assert_eq!((pages.longest(&levels, 12), pages.elements), (4, 1));
        // The last row continues in the next page for 200 levels, and other rows follow.
        assert_eq!((pages.longest(&[0x90, 0x03, 1], 200), pages.elements), (0, 201));
        assert_eq!((pages.longest(&[5 << 1, 0], 5), pages.elements), (201, 1));
        // Levels beyond the page's values do not count, nor does damage.
        assert_eq!((pages.longest(&[3 << 1 | 1, 0xff, 0xff, 0xff], 5), pages.elements), (0, 6));
        assert_eq!((pages.longest(&[0xff; 20], 5), pages.elements), (0, 6));
        assert_eq!((pages.longest(&[4], 5), pages.elements), (0, 6));
    }

    /// Writes rows into a file, and returns how many of them are read back.
    fn read(rows: &[Row]) -> Result<usize> {
        let file = Parquet::open(ParquetInput::Memory(write(rows, &[])?.into()))?;
        file.rows(|_| true, true)?.0.try_fold(0, |number, row| row.map(|_| number + 1))
    }

    fn row(name: &'static str, value: Value) -> Row {
        let mut row = Row::default();
        row.put(name, value);
        row
    }

    const MOST: usize = MAX_ELEMENTS as usize;

    #[test]
    fn lists_longer_than_any_window_has_are_refused() {
        let list = |length: usize| row("list", Value::List(vec![-1; length]));
        assert_eq!(read(&[list(0), list(MOST), list(1)]).unwrap(), 3);
        let error = read(&[list(0), list(MOST + 1), list(1)]).unwrap_err().to_string();
        assert!(error.contains("elements or more in a row; at most 221184 are read"), "{error}");
    }

    /// A file stores the text once, and a row each copy of it.
    #[test]
    fn rows_larger_than_any_window_has_are_refused() {
        let texts = |columns: usize, text: &str| {
            let texts = || Cells::Text(vec![text.to_owned(); MOST]);
            (0..columns).map(|column| (format!("text{column}").into(), texts())).collect::<Vec<_>>()
        };
        let table = |columns| row("delay_buckets", Value::Table(columns));
        assert_eq!(read(&[table(texts(5, "tcp-timestamps"))]).unwrap(), 1);
        let error = read(&[table(texts(6, "tcp-timestamps"))]).unwrap_err().to_string();
        let words = "row 1: more than 62914560 bytes of values up to column delay_buckets";
        assert!(error.contains(words), "{error}");
        // All buckets of delays of a window, none empty, and groups with long names.
        let mut buckets = texts(3, "sixteen letters.");
        let numbers = || {
            let numbers = 0..MOST as i64;
            Cells::Int(numbers.map(|it| it.wrapping_mul(0x5851_f42d_4c95_7f2d)).collect())
        };
        buckets.extend((0..10).map(|column| (format!("number{column}").into(), numbers())));
        assert_eq!(read(&[table(buckets)]).unwrap(), 1);
    }

    #[test]
    fn columns_of_a_table_have_the_same_length() {
        let table = |lengths: [i64; 2]| {
            let columns = ["a", "b"].into_iter().zip(lengths);
            let columns =
                columns.map(|(name, length)| (name.into(), Cells::Int((0..length).collect())));
            row("table", Value::Table(columns.collect()))
        };
        assert_eq!(read(&[table([3, 3]), table([0, 0])]).unwrap(), 2);
        let error = read(&[table([3, 3]), table([3, 2])]).unwrap_err().to_string();
        assert!(error.contains("row 2: column table has values that no column"), "{error}");
    }
}
