//! Validates a file before the library decodes it: the metadata is intact, pages are within the
//! file, and the memory needed is proportional to the file's size.

use super::thrift::{self, ThriftValue};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use flowgauge_core::{delay, grid, heavy, reorder};
use parquet::basic::Compression;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;
use std::io::{self, Read};
use std::ops::Range;

/// Length of the metadata and magic bytes, at the end of a file.
const TAIL: u64 = 8;
const MAGIC: &[u8; 4] = b"PAR1";
/// Maximum size of the metadata. A file with 1,000 row groups takes 10 MiB.
const LONGEST_FOOTER: u64 = 16 << 20;
/// Maximum depth of nested groups. Rows of a lake have four levels.
const DEEPEST: usize = 16;
const MOST_ROWS: i64 = 1 << 26;
const MOST_PAGES: usize = 1 << 16;
/// Maximum number of leaf columns. Rows of a lake have some 200, and each takes memory while it is
/// read.
const MAX_COLUMNS: usize = 1024;
/// Maximum number of list elements in one row: the buckets of delays, which are the longest list.
pub(super) const MAX_ELEMENTS: u64 = (delay::MAX_HISTOGRAMS * delay::histogram::BUCKETS) as u64;
const _: () = assert!(
    MAX_ELEMENTS >= grid::MAX_CELLS as u64
        && MAX_ELEMENTS >= heavy::MAX_SLOTS as u64
        && MAX_ELEMENTS >= reorder::MAX_PREFIXES as u64
);
/// Bytes read first for a page header. One without statistics takes some 30 bytes.
const HEADER: u64 = 256;
const LONGEST_HEADER: u64 = 1 << 16;
/// Maximum memory for the pages of all columns: a constant, plus this many bytes per byte of the
/// file.
const PAGES: u64 = 32 << 20;
const PAGES_A_BYTE: u64 = 16;
/// Memory overhead of a dictionary entry, in bytes.
const ENTRY: u64 = 32;
/// Maximum expansion of LZ4 in Hadoop's framing. Other codecs do not exceed the stated length of a
/// page, or are checked for it.
const LZ4_RATIO: u64 = 255;

/// Key before the digits of the footer's own CRC-32. It is computed with zeros in their place.
const SUM_KEY: &str = "flowgauge.footer";
const DIGITS: usize = 8;

pub(super) fn damaged(problem: impl Into<String>) -> ParquetError {
    ParquetError::General(problem.into())
}

/// Returns the metadata entry that [`seal`] fills in.
pub(super) fn unsealed() -> (&'static str, String) {
    (SUM_KEY, "0".repeat(DIGITS))
}

/// Prefix of `created_by` in files that this program wrote. Other writers copy our key-value
/// metadata, including the footer's checksum, into their own footers.
pub(super) const CREATOR: &str = "flowgauge version ";

/// Returns the position of the digits in a footer.
fn digits(footer: &[u8]) -> Option<Range<usize>> {
    let mark = [SUM_KEY.as_bytes(), &[0x18, DIGITS as u8]].concat();
    let at = footer.windows(mark.len()).rposition(|bytes| bytes == mark)? + mark.len();
    (at + DIGITS <= footer.len()).then_some(at..at + DIGITS)
}

fn sum(footer: &[u8], digits: &Range<usize>) -> String {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&footer[..digits.start]);
    hasher.update("0".repeat(DIGITS).as_bytes());
    hasher.update(&footer[digits.end..]);
    format!("{:08x}", hasher.finalize())
}

/// Writes the footer's CRC-32 into a complete file.
pub(super) fn seal(file: &mut [u8]) -> Result<()> {
    let failed = || damaged("a footer without a place for its checksum");
    let (start, end) = footer_of(file).ok_or_else(failed)?;
    let footer = file.get_mut(start..end).ok_or_else(failed)?;
    let digits = digits(footer).ok_or_else(failed)?;
    let sum = sum(footer, &digits);
    footer[digits].copy_from_slice(sum.as_bytes());
    Ok(())
}

fn footer_of(file: &[u8]) -> Option<(usize, usize)> {
    let end = file.len().checked_sub(TAIL as usize)?;
    let length = u32::from_le_bytes(file.get(end..end + 4)?.try_into().ok()?) as usize;
    Some((end.checked_sub(length)?, end))
}

/// Returns the metadata of a file, after checking its structure, and whether its checksum was
/// verified.
pub(super) fn footer(file: &impl ChunkReader) -> Result<(Bytes, bool)> {
    let length = file.len();
    let end =
        length.checked_sub(TAIL).filter(|end| *end >= 4).ok_or_else(|| damaged("too short"))?;
    let tail = file.get_bytes(end, TAIL as usize)?;
    let (size, magic) = tail.split_first_chunk::<4>().ok_or_else(|| damaged("too short"))?;
    if magic != MAGIC || &file.get_bytes(0, 4)?[..] != MAGIC {
        return Err(damaged("no Parquet file, or one that was cut short"));
    }
    let size = u64::from(u32::from_le_bytes(*size));
    let start = end
        .checked_sub(size)
        .filter(|start| *start >= 4)
        .ok_or_else(|| damaged("cut short: its metadata is longer than it"))?;
    if size > LONGEST_FOOTER {
        return Err(damaged(format!(
            "metadata of {size} bytes; at most {LONGEST_FOOTER} are read"
        )));
    }
    let footer = file.get_bytes(start, size as usize)?;
    let is_ours = || footer.windows(CREATOR.len()).any(|bytes| bytes == CREATOR.as_bytes());
    let digits = digits(&footer).filter(|_| is_ours());
    if let Some(digits) = &digits
        && sum(&footer, digits).as_bytes() != &footer[digits.clone()]
    {
        return Err(damaged("damaged: its metadata differs from the checksum of it"));
    }
    let (metadata, _) = thrift::read(&footer).ok_or_else(|| damaged("damaged metadata"))?;
    structure(&metadata, start)?;
    let is_verified = digits.is_some();
    Ok((footer, is_verified))
}

/// Field numbers of `parquet.thrift`, after the names of their structures.
mod number {
    pub(super) const FILE_SCHEMA: i16 = 2;
    pub(super) const FILE_ROWS: i16 = 3;
    pub(super) const FILE_GROUPS: i16 = 4;
    pub(super) const ELEMENT_CHILDREN: i16 = 5;
    pub(super) const GROUP_COLUMNS: i16 = 1;
    pub(super) const GROUP_ROWS: i16 = 3;
    pub(super) const CHUNK_METADATA: i16 = 3;
    pub(super) const COLUMN_PATH: i16 = 3;
    pub(super) const COLUMN_VALUES: i16 = 5;
    pub(super) const COLUMN_UNCOMPRESSED: i16 = 6;
    pub(super) const COLUMN_COMPRESSED: i16 = 7;
    pub(super) const COLUMN_DATA: i16 = 9;
    pub(super) const COLUMN_DICTIONARY: i16 = 11;
    pub(super) const PAGE_UNCOMPRESSED: i16 = 2;
    pub(super) const PAGE_COMPRESSED: i16 = 3;
    pub(super) const PAGE_DATA: i16 = 5;
    pub(super) const PAGE_DICTIONARY: i16 = 7;
    pub(super) const PAGE_DATA_2: i16 = 8;
    pub(super) const PAGE_DEFINITION_BYTES: i16 = 5;
    pub(super) const PAGE_REPETITION_BYTES: i16 = 6;
    pub(super) const PAGE_IS_COMPRESSED: i16 = 7;
    /// In all three structures of pages.
    pub(super) const PAGE_VALUES: i16 = 1;
}

/// Checks metadata before it is decoded. Pages are in the first `end` bytes of the file.
fn structure(metadata: &ThriftValue, end: u64) -> Result<()> {
    let schema = metadata.list(number::FILE_SCHEMA);
    let mut elements = schema.iter();
    let leaves = leaves(&mut elements, DEEPEST)
        .ok_or_else(|| damaged("damaged, or columns nested too deeply"))?;
    if elements.next().is_some() {
        return Err(damaged("damaged: columns beyond its schema"));
    }
    if leaves > MAX_COLUMNS {
        return Err(damaged(format!("{leaves} columns; at most {MAX_COLUMNS} are read")));
    }
    let rows = metadata.int(number::FILE_ROWS).unwrap_or(-1);
    let mut sum = 0_i64;
    for group in metadata.list(number::FILE_GROUPS) {
        let rows = group.int(number::GROUP_ROWS).unwrap_or(-1);
        let columns = group.list(number::GROUP_COLUMNS);
        if !(0..=MOST_ROWS).contains(&rows) || columns.len() != leaves {
            return Err(damaged("damaged: a row group with wrong numbers of rows or columns"));
        }
        sum += rows;
        for chunk in columns {
            let column = chunk
                .field(number::CHUNK_METADATA)
                .and_then(|column| chunk_fits(column, rows, end));
            column.ok_or_else(|| {
                damaged("damaged: a column outside of the file, or with too few or many values")
            })?;
        }
    }
    if sum != rows || rows > MOST_ROWS {
        return Err(damaged(format!("damaged: {rows} rows, and {sum} in its row groups")));
    }
    Ok(())
}

/// Returns the number of leaf columns below the first element of a schema.
fn leaves<'a>(elements: &mut impl Iterator<Item = &'a ThriftValue>, depth: usize) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    match elements.next()?.int(number::ELEMENT_CHILDREN).unwrap_or(0) {
        0 => Some(1),
        children if children > 0 => {
            (0..children).try_fold(0_usize, |sum, _| Some(sum + leaves(elements, depth)?))
        }
        _ => None,
    }
}

fn chunk_fits(column: &ThriftValue, rows: i64, end: u64) -> Option<()> {
    let values = column.int(number::COLUMN_VALUES)?;
    let is_flat = column.list(number::COLUMN_PATH).len() == 1;
    let most = if is_flat { rows } else { rows.checked_mul(MAX_ELEMENTS.cast_signed())? };
    (rows..=most).contains(&values).then_some(())?;
    let offset = |number| column.int(number).map(u64::try_from);
    let length = offset(number::COLUMN_COMPRESSED)?.ok()?;
    offset(number::COLUMN_UNCOMPRESSED)?.ok()?;
    let data = offset(number::COLUMN_DATA)?.ok()?;
    let dictionary = offset(number::COLUMN_DICTIONARY).transpose().ok()?;
    let start = dictionary.unwrap_or(data).min(data);
    (start >= 4 && data >= start && start.checked_add(length)? <= end).then_some(())
}

/// Checks the headers of all pages of the wanted columns. Returns the memory of those that are read
/// at once, in bytes.
pub(super) fn pages(
    file: &impl ChunkReader,
    metadata: &ParquetMetaData,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<u64> {
    let most = PAGES.saturating_add(PAGES_A_BYTE.saturating_mul(file.len()));
    let mut largest_group = 0;
    for group in metadata.row_groups() {
        let mut sum = 0_u64;
        for index in 0..group.num_columns() {
            let name = group.column(index).column_path().parts().first().map_or("", String::as_str);
            if is_wanted(name) {
                let largest = chunk(file, group, index)
                    .map_err(|problem| damaged(format!("column {name}: {problem}")))?;
                sum = sum.saturating_add(largest);
            }
        }
        if sum > most {
            return Err(damaged(format!(
                "{sum} bytes of pages in memory at once; a file of {} bytes may take {most}",
                file.len()
            )));
        }
        largest_group = sum.max(largest_group);
    }
    Ok(largest_group)
}

/// Returns the maximum size of the pages of a chunk that are in memory at the same time.
fn chunk(
    file: &impl ChunkReader,
    group: &RowGroupMetaData,
    index: usize,
) -> std::result::Result<u64, String> {
    let column = group.column(index);
    let (start, length) = column.byte_range();
    let ratio = match column.compression() {
        Compression::LZ4 => LZ4_RATIO,
        Compression::BROTLI(_) | Compression::LZO => {
            return Err(format!("compressed as {:?}, which is not read", column.compression()));
        }
        _ => 0,
    };
    let (mut at, end) = (start, start + length);
    let (mut largest, mut dictionary, mut values) = (0_u64, 0_u64, 0_i64);
    for _ in 0..MOST_PAGES {
        if at == end {
            return if values == column.num_values() {
                Ok(largest + dictionary)
            } else {
                Err(format!("damaged: {} values, and {values} in its pages", column.num_values()))
            };
        }
        let (header, size) =
            header(file, at, end).ok_or("damaged: a page without a whole header")?;
        let bytes = |number| header.int(number).and_then(|bytes| u64::try_from(bytes).ok());
        let (Some(uncompressed), Some(compressed)) =
            (bytes(number::PAGE_UNCOMPRESSED), bytes(number::PAGE_COMPRESSED))
        else {
            return Err("damaged: a page without a length".to_owned());
        };
        if matches!(column.compression(), Compression::GZIP(_)) {
            // In a page of version 2 the levels are uncompressed and precede the values, which may
            // be uncompressed as well.
            let second = header.field(number::PAGE_DATA_2);
            let levels = |number| {
                second
                    .and_then(|it| it.int(number))
                    .and_then(|bytes| u64::try_from(bytes).ok())
                    .unwrap_or(0)
            };
            let levels = levels(number::PAGE_DEFINITION_BYTES)
                .saturating_add(levels(number::PAGE_REPETITION_BYTES));
            let is_plain = second.and_then(|it| it.int(number::PAGE_IS_COMPRESSED)) == Some(0)
                || uncompressed == levels;
            let lengths = compressed.checked_sub(levels).zip(uncompressed.checked_sub(levels));
            if !is_plain
                && !lengths.is_some_and(|(compressed, most)| {
                    fits(file, at + size + levels, compressed, most)
                })
            {
                return Err("damaged: a page that is longer than it states".to_owned());
            }
        }
        let held = |number| header.field(number).and_then(|it| it.int(number::PAGE_VALUES));
        let taken = uncompressed.max(compressed.saturating_mul(ratio));
        if let Some(more) = held(number::PAGE_DATA).or_else(|| held(number::PAGE_DATA_2)) {
            // The levels of a value take two bytes each, and the value at least one bit.
            values = values.saturating_add(more).max(0);
            if more < 0 || values > column.num_values() {
                return Err(format!(
                    "damaged: {} values, and {values} in its pages",
                    column.num_values()
                ));
            }
            largest = largest.max(taken);
        } else if let Some(entries) = held(number::PAGE_DICTIONARY) {
            // An entry takes at least one byte of the page.
            if u64::try_from(entries).map_or(true, |entries| entries > uncompressed) {
                return Err(format!(
                    "damaged: a dictionary of {entries} entries in {uncompressed} bytes"
                ));
            }
            dictionary =
                dictionary.max(taken.saturating_add(ENTRY.saturating_mul(entries.unsigned_abs())));
        }
        at = at
            .checked_add(size)
            .and_then(|at| at.checked_add(compressed))
            .filter(|at| *at <= end)
            .ok_or("damaged: a page beyond its column")?;
    }
    Err(format!("more than {MOST_PAGES} pages"))
}

/// Whether gzip data expands to at most `most` bytes. The library decompresses without a limit.
fn fits(file: &impl ChunkReader, at: u64, compressed: u64, most: u64) -> bool {
    let Ok(bytes) = file.get_bytes(at, compressed as usize) else { return false };
    io::copy(&mut MultiGzDecoder::new(&bytes[..]).take(most + 1), &mut io::sink())
        .is_ok_and(|length| length <= most)
}

/// Reads the header of a page; returns it with its length.
fn header(file: &impl ChunkReader, at: u64, end: u64) -> Option<(ThriftValue, u64)> {
    [HEADER, LONGEST_HEADER].into_iter().find_map(|length| {
        let bytes = file.get_bytes(at, length.min(end - at) as usize).ok()?;
        thrift::read(&bytes).map(|(header, size)| (header, size as u64))
    })
}
