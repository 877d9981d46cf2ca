//! Writes rows as a Parquet file with one row group. Each page has the CRC-32 that readers verify.

use super::check;
use crate::row::{Cells, Row, Value};
use bytes::Bytes;
use parquet::basic::{
    Compression, ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{get_column_writer, get_typed_column_writer_mut};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{
    SerializedFileWriter, SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite,
};
use parquet::schema::types::{ColumnPath, SchemaDescriptor, Type, TypePtr};
use std::sync::Arc;

/// Compression level. Higher ones take much longer and save little.
const ZSTD_LEVEL: i32 = 3;

/// Encodes rows, all of which have the columns of the first one. `about` is the key-value metadata.
pub(crate) fn write(rows: &[Row], about: &[(&str, String)]) -> Result<Vec<u8>> {
    encode(rows, about, Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
}

/// Encodes one row for a file that is soon read again or removed. It is not compressed: single
/// values shrink little, and setting up a compressor for each column would take longer than writing
/// all of them.
pub(crate) fn write_row(row: &Row) -> Result<Vec<u8>> {
    encode(std::slice::from_ref(row), &[], Compression::UNCOMPRESSED)
}

fn encode(rows: &[Row], about: &[(&str, String)], compression: Compression) -> Result<Vec<u8>> {
    let Some(first) = rows.first() else {
        return Err(ParquetError::General("a file without rows".to_owned()));
    };
    let fields =
        first.columns().map(|(name, value)| field(name, value)).collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("flowgauge").with_fields(fields).build()?);
    let about = about.iter().map(|(key, value)| (*key, value.clone())).chain([check::unsealed()]);
    let metadata = about.map(|(key, value)| KeyValue::new(key.to_owned(), value)).collect();
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("{}{}", check::CREATOR, env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(metadata))
        .set_compression(compression);
    for (name, _) in first.columns().filter(|(_, value)| matches!(value, Value::Bytes(_))) {
        // Sketches have no repeated values.
        properties =
            properties.set_column_dictionary_enabled(ColumnPath::new(vec![name.to_owned()]), false);
    }
    let properties = Arc::new(properties.build());
    let mut writer =
        SerializedFileWriter::new(Vec::new(), Arc::clone(&schema), Arc::clone(&properties))?;
    {
        let mut group = Group {
            columns: SchemaDescriptor::new(schema),
            next: 0,
            properties,
            writer: writer.next_row_group()?,
        };
        for (index, (name, value)) in first.columns().enumerate() {
            column(&mut group, rows, index, name, value)?;
        }
        group.writer.close()?;
    }
    let mut bytes = writer.into_inner()?;
    check::seal(&mut bytes)?;
    Ok(bytes)
}

/// Row group in progress, written column by column.
struct Group<'a> {
    columns: SchemaDescriptor,
    next: usize,
    properties: WriterPropertiesPtr,
    writer: SerializedRowGroupWriter<'a, Vec<u8>>,
}

/// Page writer that adds the CRC-32 to each header. The library verifies it but does not write it.
struct Pages<'a>(&'a mut Vec<u8>);

impl PageWriter for Pages<'_> {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec> {
        let sum = crc32fast::hash(page.data());
        let data = page.data().len();
        let mut written = TrackedWrite::new(Vec::new());
        let mut spec = SerializedPageWriter::new(&mut written).write_page(page)?;
        let written = written.into_inner()?;
        let (header, data) = written.split_at(written.len() - data);
        let header = with_sum(header, sum)
            .ok_or_else(|| ParquetError::General("a page header of another form".to_owned()))?;
        let more = header.len() + data.len() - written.len();
        spec.offset = self.0.len() as u64;
        spec.uncompressed_size += more;
        spec.compressed_size += more;
        spec.bytes_written += more as u64;
        self.0.extend(header);
        self.0.extend(data);
        Ok(spec)
    }

    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Inserts field 4, the CRC-32, into a page header (`PageHeader` in `parquet.thrift`, compact
/// protocol), after its first three fields, which are integers.
fn with_sum(header: &[u8], sum: u32) -> Option<Vec<u8>> {
    const INTEGER: u8 = 0x15;
    const FIELD: u8 = 0x10;
    let mut at = 0;
    for _ in 0..3 {
        let field = header.get(at..).filter(|field| field.first() == Some(&INTEGER))?;
        at += 2 + field.get(1..)?.iter().position(|byte| byte & 0x80 == 0)?;
    }
    let (before, after) = header.split_at(at);
    let (next, rest) = after.split_first()?;
    let mut with = before.to_vec();
    with.push(INTEGER);
    let mut left = (sum << 1) ^ (sum.cast_signed() >> 31).cast_unsigned();
    while left >= 0x80 {
        with.push(left as u8 | 0x80);
        left >>= 7;
    }
    with.push(left as u8);
    // Field numbers are delta encoded.
    with.push(next.checked_sub(FIELD).filter(|next| *next >= FIELD)?);
    with.extend(rest);
    Some(with)
}

fn leaf(
    name: &str,
    repetition: Repetition,
    physical: Physical,
    logical: Option<LogicalType>,
) -> Result<TypePtr> {
    let leaf = Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical);
    Ok(Arc::new(leaf.build()?))
}

/// Makes the type `required group NAME (LIST) { repeated group list { ELEMENT } }`.
fn list(name: &str, element: TypePtr) -> Result<TypePtr> {
    let repeated = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![element])
        .build()?;
    let list = Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_converted_type(ConvertedType::LIST)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(repeated)]);
    Ok(Arc::new(list.build()?))
}

fn field(name: &str, value: &Value) -> Result<TypePtr> {
    let optional = |physical, logical| leaf(name, Repetition::OPTIONAL, physical, logical);
    let required =
        |name: &str, physical, logical| leaf(name, Repetition::REQUIRED, physical, logical);
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
            let element = Type::group_type_builder("element")
                .with_repetition(Repetition::REQUIRED)
                .with_fields(fields);
            list(name, Arc::new(element.build()?))
        }
    }
}

/// Writes a leaf column: its values with their definition and repetition levels.
fn batch<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    definition: Option<&[i16]>,
    repetition: Option<&[i16]>,
) -> Result<()> {
    let mut bytes = Vec::new();
    let mut column = get_column_writer(
        group.columns.column(group.next),
        Arc::clone(&group.properties),
        Box::new(Pages(&mut bytes)),
    );
    get_typed_column_writer_mut::<T>(&mut column).write_batch(values, definition, repetition)?;
    let written = column.close()?;
    group.next += 1;
    group.writer.append_column(&Bytes::from(bytes), written)
}

fn column(
    group: &mut Group<'_>,
    rows: &[Row],
    index: usize,
    name: &str,
    sample: &Value,
) -> Result<()> {
    let differs = || ParquetError::General(format!("rows differ in column {name}"));
    let values = || {
        rows.iter().map(|row| {
            row.0
                .get(index)
                .filter(|(it, _)| it == name)
                .map(|(_, value)| value)
                .ok_or_else(differs)
        })
    };
    macro_rules! scalar {
        ($kind:ident, $type:ty, $map:expr) => {{
            let (mut present, mut definition) =
                (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
            for value in values() {
                let Value::$kind(value) = value? else { return Err(differs()) };
                definition.push(i16::from(value.is_some()));
                present.extend(value.as_ref().map($map));
            }
            batch::<$type>(group, &present, Some(&definition), None)
        }};
    }
    match sample {
        Value::Int(_) => scalar!(Int, Int64Type, |number| *number),
        Value::Float(_) => scalar!(Float, DoubleType, |number| *number),
        Value::Bool(_) => scalar!(Bool, BoolType, |flag| *flag),
        Value::Text(_) => {
            scalar!(Text, ByteArrayType, |text: &String| ByteArray::from(text.as_str()))
        }
        Value::Bytes(_) => {
            scalar!(Bytes, ByteArrayType, |bytes: &Vec<u8>| ByteArray::from(bytes.clone()))
        }
        Value::Time(_) => {
            let times = values().map(|value| {
                if let Value::Time(time) = value? { Ok(*time) } else { Err(differs()) }
            });
            batch::<Int64Type>(group, &times.collect::<Result<Vec<_>>>()?, None, None)
        }
        Value::List(_) => {
            let mut levels = Levels::default();
            let mut all = Vec::new();
            for value in values() {
                let Value::List(list) = value? else { return Err(differs()) };
                levels.row(list.len());
                all.extend_from_slice(list);
            }
            batch::<Int64Type>(group, &all, Some(&levels.definition), Some(&levels.repetition))
        }
        Value::Table(columns) => {
            for (number, (name, sample)) in columns.iter().enumerate() {
                let cells = values().map(|value| match value? {
                    Value::Table(columns) => columns
                        .get(number)
                        .filter(|(it, _)| it == name)
                        .map(|(_, cells)| cells)
                        .ok_or_else(differs),
                    _ => Err(differs()),
                });
                table_column(group, &cells.collect::<Result<Vec<_>>>()?, sample, differs)?;
            }
            Ok(())
        }
    }
}

fn table_column(
    group: &mut Group<'_>,
    rows: &[&Cells],
    sample: &Cells,
    differs: impl Fn() -> ParquetError,
) -> Result<()> {
    let mut levels = Levels::default();
    rows.iter().for_each(|cells| levels.row(cells.len()));
    macro_rules! cells {
        ($kind:ident, $type:ty, $map:expr) => {{
            let mut all = Vec::new();
            for cells in rows {
                let Cells::$kind(cells) = cells else { return Err(differs()) };
                all.extend(cells.iter().map($map));
            }
            batch::<$type>(group, &all, Some(&levels.definition), Some(&levels.repetition))
        }};
    }
    match sample {
        Cells::Int(_) => cells!(Int, Int64Type, |number| *number),
        Cells::Float(_) => cells!(Float, DoubleType, |number| *number),
        Cells::Text(_) => cells!(Text, ByteArrayType, |text| ByteArray::from(text.as_str())),
        Cells::Bytes(_) => cells!(Bytes, ByteArrayType, |bytes| ByteArray::from(bytes.clone())),
    }
}

/// Definition and repetition levels of a list column.
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
}
