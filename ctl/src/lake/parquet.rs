//! Rows as Parquet files, which every engine reads.
//!
//! Lists and tables are LISTs of three levels, none of them optional. Times are whole microseconds, since engines differ about
//! nanoseconds; these stand beside them as plain numbers.

use super::row::{Cells, Row, Value};
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use std::borrow::Cow;
use std::sync::Arc;

/// How well to compress: more takes much longer and saves little.
const ZSTD_LEVEL: i32 = 3;

/// A file of these rows, all of which have the columns of the first one, in one row group. `about` is its metadata.
pub(crate) fn write(rows: &[Row], about: &[(&str, String)]) -> Result<Vec<u8>> {
    encode(rows, about, Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
}

/// A file of one row that is soon read again or removed. It is not compressed: a column of one value is made smaller by little, and each column
/// would take longer to set its compressor up than all of them take to be written.
pub(crate) fn write_row(row: &Row) -> Result<Vec<u8>> {
    encode(std::slice::from_ref(row), &[], Compression::UNCOMPRESSED)
}

fn encode(rows: &[Row], about: &[(&str, String)], compression: Compression) -> Result<Vec<u8>> {
    let Some(first) = rows.first() else { return Err(ParquetError::General("a file without rows".to_owned())) };
    let fields = first.columns().map(|(name, value)| field(name, value)).collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("flowgauge").with_fields(fields).build()?);
    let metadata = about.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone())).collect();
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("flowgauge version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(metadata))
        .set_compression(compression);
    for (name, _) in first.columns().filter(|(_, value)| matches!(value, Value::Bytes(_))) {
        // Sketches do not repeat.
        properties = properties.set_column_dictionary_enabled(ColumnPath::new(vec![name.to_owned()]), false);
    }
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    for (index, (name, value)) in first.columns().enumerate() {
        column(&mut group, rows, index, name, value)?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

/// A file to read.
pub(crate) struct Parquet(Box<dyn FileReader>);

impl Parquet {
    pub(crate) fn open<R: ChunkReader + 'static>(file: R) -> Result<Self> {
        Ok(Parquet(Box::new(SerializedFileReader::new(file)?)))
    }

    /// How many rows it has.
    pub(crate) fn len(&self) -> u64 {
        self.0.metadata().file_metadata().num_rows().unsigned_abs()
    }

    /// Between which numbers those of a column are, if the file says so.
    pub(crate) fn range(&self, column: &str) -> Option<(i64, i64)> {
        let ranges = self.0.metadata().row_groups().iter().map(|group| {
            let column = group.columns().iter().find(|it| it.column_path().parts() == [column])?;
            let Some(Statistics::Int64(numbers)) = column.statistics() else { return None };
            Some((*numbers.min_opt()?, *numbers.max_opt()?))
        });
        ranges.reduce(|one, other| {
            let ((low, high), (other_low, other_high)) = (one?, other?);
            Some((low.min(other_low), high.max(other_high)))
        })?
    }

    /// Its rows.
    pub(crate) fn rows(self) -> impl Iterator<Item = Result<Row>> {
        let fields = self.0.metadata().file_metadata().schema().get_fields();
        let types: Vec<Option<Value>> = fields.iter().map(|field| nothing(field)).collect();
        RowIter::from_file_into(self.0).map(move |row| {
            let columns = row?.into_columns().into_iter().zip(&types);
            let columns = columns.filter_map(|((name, field), kind)| Some((Cow::Owned(name), value(field, kind.as_ref()?)?)));
            Ok(Row(columns.collect()))
        })
    }
}

/// What a column without a value holds; nothing of types that this version does not know, which are passed over.
fn nothing(field: &Type) -> Option<Value> {
    if let Some(element) = element(field) {
        let columns = |fields: &[TypePtr]| {
            fields.iter().map(|field| Some((Cow::Owned(field.name().to_owned()), no_cells(field)?))).collect::<Option<Vec<_>>>()
        };
        return match element {
            Type::GroupType { fields, .. } => columns(fields).map(Value::Table),
            Type::PrimitiveType { physical_type: Physical::INT64, .. } => Some(Value::List(Vec::new())),
            Type::PrimitiveType { .. } => None,
        };
    }
    let Type::PrimitiveType { basic_info, physical_type, .. } = field else { return None };
    Some(match (*physical_type, basic_info.logical_type_ref()) {
        (Physical::INT64, Some(logical)) if *logical == LogicalType::timestamp(true, TimeUnit::MICROS) => Value::Time(0),
        (Physical::INT64, _) => Value::Int(None),
        (Physical::DOUBLE, _) => Value::Float(None),
        (Physical::BOOLEAN, _) => Value::Bool(None),
        (Physical::BYTE_ARRAY, Some(LogicalType::String)) => Value::Text(None),
        (Physical::BYTE_ARRAY, _) => Value::Bytes(None),
        _ => return None,
    })
}

/// What a list consists of.
fn element(field: &Type) -> Option<&Type> {
    let only = |field: &'_ Type| match field {
        Type::GroupType { fields, .. } if fields.len() == 1 => fields.first().cloned(),
        _ => None,
    };
    let Type::GroupType { fields, basic_info, .. } = field else { return None };
    let is_list = basic_info.logical_type_ref() == Some(&LogicalType::List) || basic_info.converted_type() == ConvertedType::LIST;
    let repeated = fields.first().filter(|_| is_list && only(field).is_some())?;
    match repeated.as_ref() {
        Type::GroupType { fields, .. } => fields.first().map(AsRef::as_ref),
        Type::PrimitiveType { .. } => None,
    }
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

fn leaf(name: &str, repetition: Repetition, physical: Physical, logical: Option<LogicalType>) -> Result<TypePtr> {
    let leaf = Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical);
    Ok(Arc::new(leaf.build()?))
}

/// `required group NAME (LIST) { repeated group list { ELEMENT } }`.
fn list(name: &str, element: TypePtr) -> Result<TypePtr> {
    let repeated = Type::group_type_builder("list").with_repetition(Repetition::REPEATED).with_fields(vec![element]).build()?;
    let list = Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_converted_type(ConvertedType::LIST)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(repeated)]);
    Ok(Arc::new(list.build()?))
}

fn field(name: &str, value: &Value) -> Result<TypePtr> {
    let optional = |physical, logical| leaf(name, Repetition::OPTIONAL, physical, logical);
    let required = |name: &str, physical, logical| leaf(name, Repetition::REQUIRED, physical, logical);
    match value {
        Value::Int(_) => optional(Physical::INT64, None),
        Value::Float(_) => optional(Physical::DOUBLE, None),
        Value::Bool(_) => optional(Physical::BOOLEAN, None),
        Value::Text(_) => optional(Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Value::Bytes(_) => optional(Physical::BYTE_ARRAY, None),
        Value::Time(_) => {
            let time = LogicalType::timestamp(true, TimeUnit::MICROS);
            required(name, Physical::INT64, Some(time))
        }
        Value::List(_) => list(name, required("element", Physical::INT64, None)?),
        Value::Table(columns) => {
            let fields = columns.iter().map(|(name, cells)| match cells {
                Cells::Int(_) => required(name, Physical::INT64, None),
                Cells::Float(_) => required(name, Physical::DOUBLE, None),
                Cells::Text(_) => required(name, Physical::BYTE_ARRAY, Some(LogicalType::String)),
                Cells::Bytes(_) => required(name, Physical::BYTE_ARRAY, None),
            });
            let fields = fields.collect::<Result<Vec<_>>>()?;
            let element = Type::group_type_builder("element").with_repetition(Repetition::REQUIRED).with_fields(fields);
            list(name, Arc::new(element.build()?))
        }
    }
}

type Group<'a, 'w> = SerializedRowGroupWriter<'a, &'w mut Vec<u8>>;

/// Writes a leaf: its values, and for each of them how much of its path is there and where it repeats.
fn batch<T: DataType>(group: &mut Group<'_, '_>, values: &[T::T], levels: Option<(&[i16], Option<&[i16]>)>) -> Result<()> {
    let missing = || ParquetError::General("a column too few".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    let (definition, repetition) = levels.map_or((None, None), |(definition, repetition)| (Some(definition), repetition));
    column.typed::<T>().write_batch(values, definition, repetition)?;
    column.close()
}

fn column(group: &mut Group<'_, '_>, rows: &[Row], index: usize, name: &str, sample: &Value) -> Result<()> {
    let differs = || ParquetError::General(format!("rows differ in column {name}"));
    let values =
        || rows.iter().map(|row| row.0.get(index).filter(|(it, _)| it == name).map(|(_, value)| value).ok_or_else(differs));
    macro_rules! scalar {
        ($kind:ident, $type:ty, $map:expr) => {{
            let (mut present, mut definition) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
            for value in values() {
                let Value::$kind(value) = value? else { return Err(differs()) };
                definition.push(i16::from(value.is_some()));
                present.extend(value.as_ref().map($map));
            }
            batch::<$type>(group, &present, Some((&definition, None)))
        }};
    }
    match sample {
        Value::Int(_) => scalar!(Int, Int64Type, |number| *number),
        Value::Float(_) => scalar!(Float, DoubleType, |number| *number),
        Value::Bool(_) => scalar!(Bool, BoolType, |flag| *flag),
        Value::Text(_) => scalar!(Text, ByteArrayType, |text: &String| ByteArray::from(text.as_str())),
        Value::Bytes(_) => scalar!(Bytes, ByteArrayType, |bytes: &Vec<u8>| ByteArray::from(bytes.clone())),
        Value::Time(_) => {
            let times = values().map(|value| if let Value::Time(time) = value? { Ok(*time) } else { Err(differs()) });
            batch::<Int64Type>(group, &times.collect::<Result<Vec<_>>>()?, None)
        }
        Value::List(_) => {
            let mut levels = Levels::default();
            let mut all = Vec::new();
            for value in values() {
                let Value::List(list) = value? else { return Err(differs()) };
                levels.row(list.len());
                all.extend_from_slice(list);
            }
            batch::<Int64Type>(group, &all, levels.all())
        }
        Value::Table(columns) => {
            for (number, (name, sample)) in columns.iter().enumerate() {
                let cells = values().map(|value| match value? {
                    Value::Table(columns) => {
                        columns.get(number).filter(|(it, _)| it == name).map(|(_, cells)| cells).ok_or_else(differs)
                    }
                    _ => Err(differs()),
                });
                table_column(group, &cells.collect::<Result<Vec<_>>>()?, sample, differs)?;
            }
            Ok(())
        }
    }
}

fn table_column(group: &mut Group<'_, '_>, rows: &[&Cells], sample: &Cells, differs: impl Fn() -> ParquetError) -> Result<()> {
    let mut levels = Levels::default();
    rows.iter().for_each(|cells| levels.row(cells.len()));
    macro_rules! cells {
        ($kind:ident, $type:ty, $map:expr) => {{
            let mut all = Vec::new();
            for cells in rows {
                let Cells::$kind(cells) = cells else { return Err(differs()) };
                all.extend(cells.iter().map($map));
            }
            batch::<$type>(group, &all, levels.all())
        }};
    }
    match sample {
        Cells::Int(_) => cells!(Int, Int64Type, |number| *number),
        Cells::Float(_) => cells!(Float, DoubleType, |number| *number),
        Cells::Text(_) => cells!(Text, ByteArrayType, |text| ByteArray::from(text.as_str())),
        Cells::Bytes(_) => cells!(Bytes, ByteArrayType, |bytes| ByteArray::from(bytes.clone())),
    }
}

/// Which elements begin a row, and which rows have none.
#[derive(Default)]
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

impl Levels {
    fn row(&mut self, elements: usize) {
        if elements == 0 {
            self.definition.push(0);
            self.repetition.push(0);
        }
        for element in 0..elements {
            self.definition.push(1);
            self.repetition.push(i16::from(element > 0));
        }
    }

    fn all(&self) -> Option<(&[i16], Option<&[i16]>)> {
        Some((&self.definition, Some(&self.repetition)))
    }
}

/// What a column holds that is of a kind.
fn value(field: Field, kind: &Value) -> Option<Value> {
    Some(match (field, kind) {
        (Field::Null, kind) => kind.clone(),
        (Field::Long(number), Value::Int(_)) => Value::Int(Some(number)),
        (Field::Double(number), Value::Float(_)) => Value::Float(Some(number)),
        (Field::Bool(flag), Value::Bool(_)) => Value::Bool(Some(flag)),
        (Field::Str(text), Value::Text(_)) => Value::Text(Some(text)),
        (Field::Bytes(bytes), Value::Bytes(_)) => Value::Bytes(Some(bytes.data().to_vec())),
        (Field::TimestampMicros(time), Value::Time(_)) => Value::Time(time),
        (Field::ListInternal(list), Value::List(_)) => {
            let number = |element: &Field| if let Field::Long(number) = element { Some(*number) } else { None };
            Value::List(list.elements().iter().map(number).collect::<Option<_>>()?)
        }
        (Field::ListInternal(list), Value::Table(columns)) => {
            let mut columns = columns.clone();
            for element in list.elements() {
                let Field::Group(row) = element else { return None };
                for ((_, field), (_, cells)) in row.get_column_iter().zip(&mut columns) {
                    match (field, cells) {
                        (Field::Long(number), Cells::Int(cells)) => cells.push(*number),
                        (Field::Double(number), Cells::Float(cells)) => cells.push(*number),
                        (Field::Str(text), Cells::Text(cells)) => cells.push(text.clone()),
                        (Field::Bytes(bytes), Cells::Bytes(cells)) => cells.push(bytes.data().to_vec()),
                        _ => return None,
                    }
                }
            }
            Value::Table(columns)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: i64) -> Row {
        let mut row = Row::default();
        row.put("int", Value::Int((number % 3 != 0).then_some(number)));
        row.put("float", Value::Float(Some(number as f64 / 3.0)));
        row.put("flag", Value::Bool(Some(number % 2 == 0)));
        row.put("text", Value::Text((number != 2).then(|| format!("text {number}"))));
        row.put("bytes", Value::Bytes(Some(vec![number as u8; 5])));
        row.put("time", Value::Time(1_700_000_000_000_000 + number));
        row.put("list", Value::List((0..number).collect()));
        let numbers = || 0..(5 - number).max(0);
        row.put(
            "table",
            Value::Table(vec![
                ("a".into(), Cells::Int(numbers().collect())),
                ("b".into(), Cells::Float(numbers().map(|it| it as f64).collect())),
                ("c".into(), Cells::Text(numbers().map(|it| it.to_string()).collect())),
                ("d".into(), Cells::Bytes(numbers().map(|it| vec![it as u8]).collect())),
            ]),
        );
        row
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let rows: Vec<Row> = (0..7).map(row).collect();
        let file = write(&rows, &[("flowgauge.schema", "1".to_owned())]).unwrap();
        let read = Parquet::open(bytes::Bytes::from(file)).unwrap();
        assert_eq!((read.len(), read.range("time")), (7, Some((1_700_000_000_000_000, 1_700_000_000_000_006))));
        // Missing numbers are none, and text has no range.
        assert_eq!((read.range("int"), read.range("text"), read.range("nothing")), (Some((1, 5)), None, None));
        assert_eq!(read.rows().map(Result::unwrap).collect::<Vec<_>>(), rows);
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
