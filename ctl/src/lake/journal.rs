//! Journals of rows that are not in a file of the lake yet, so that a crash loses none of them.
//!
//! A journal is a sequence of frames: [`MARK`], the length of an entry, its CRC-32, and the CRC-32
//! of these twelve bytes, each of four bytes with the low byte first; then the entry, a Parquet
//! file of one row. A reader skips damage up to the next frame. The process that writes a journal
//! holds a lock on it, which ends with the process.

use super::parquet::{self, Parquet, ParquetInput};
use super::{is_known, laws};
use crate::row::{Row, RowDefect};
use crate::text::storage;
use ::parquet::file::reader::{ChunkReader, Length};
use flowgauge_dataplane::files::{Directory, PRIVATE_MODE};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// First bytes of a frame.
const MARK: [u8; 4] = *b"FGR1";
const HEADER_BYTES: usize = 16;
/// Maximum length of an entry. A longer one is damage. The largest row has 221,184 buckets of delays
/// of ten numbers and takes 24 MB.
const MAX_ENTRY_BYTES: usize = 32 << 20;
/// Maximum length of a journal that is read, in multiples of the size of its rows in memory. As a
/// file of its own, a short row takes up to three times as much.
const MAX_LENGTH_RATIO: u64 = 8;
/// Bytes that are searched for a frame at once.
const CHUNK_BYTES: u64 = 1 << 16;

/// Journal that this process writes.
pub(super) struct Journal {
    file: Flock<File>,
    directory: Arc<Directory>,
    name: String,
    length: u64,
}

impl Journal {
    /// Creates a journal.
    pub(super) fn create(directory: &Arc<Directory>, name: String) -> io::Result<Self> {
        loop {
            let file = directory.create_new(&name, PRIVATE_MODE)?;
            let file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
            // Another process may have removed the file before it was locked, as an empty journal
            // of an earlier run.
            if file.metadata()?.nlink() > 0 {
                return Ok(Journal { file, directory: Arc::clone(directory), name, length: 0 });
            }
        }
    }

    /// Appends rows, all or none. They then survive the end of this process; once the returned file
    /// is synchronized, they survive a crash of the machine.
    pub(super) fn append(&mut self, rows: &[Row]) -> io::Result<File> {
        let mut bytes = Vec::new();
        for row in rows {
            let entry = parquet::write_row(row).map_err(io::Error::other)?;
            bytes.extend(head(&entry));
            bytes.extend(entry);
        }
        let written =
            self.file.seek(SeekFrom::Start(self.length)).and_then(|_| self.file.write_all(&bytes));
        match written.and_then(|()| self.file.try_clone()) {
            Ok(file) => {
                self.length += bytes.len() as u64;
                Ok(file)
            }
            Err(error) => {
                // If this fails as well, the incomplete entry is skipped by readers.
                let _ = self.file.set_len(self.length);
                Err(error)
            }
        }
    }

    /// Removes the journal after its rows are in the lake.
    pub(super) fn remove(self) -> io::Result<()> {
        self.directory.remove(&self.name)
    }
}

fn head(entry: &[u8]) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    head[..4].copy_from_slice(&MARK);
    head[4..8].copy_from_slice(&(entry.len() as u32).to_le_bytes());
    head[8..12].copy_from_slice(&crc32fast::hash(entry).to_le_bytes());
    let sum = crc32fast::hash(&head[..12]);
    head[12..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Content of a journal whose process has ended.
pub(super) struct AbandonedJournal {
    /// Rows of complete frames.
    pub(super) rows: Vec<Row>,
    /// Number of damaged places, each of at least one row, without an incomplete frame at the end.
    pub(super) damaged: u64,
    /// Law that a row breaks, the first such row.
    pub(super) broken: Option<RowDefect>,
    /// Whether the file ends within a frame: the row that was being written.
    pub(super) is_cut: bool,
    /// Prevents other processes from taking the journal.
    pub(super) lock: Flock<File>,
}

/// Reads a journal if the process that wrote it has ended. Its rows take at most `largest` bytes in
/// memory, unless there is only one.
pub(super) fn left(
    directory: &Directory,
    name: &str,
    largest: usize,
) -> io::Result<Option<AbandonedJournal>> {
    let file = match directory.lockable(name) {
        Ok(file) => file,
        // Another process took it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
    let about = file.metadata()?;
    if about.nlink() == 0 {
        return Ok(None);
    }
    let longest = MAX_LENGTH_RATIO * (largest as u64).max(MAX_ENTRY_BYTES as u64);
    if about.len() > longest {
        return Err(io::Error::other(format!(
            "it has {}, and no run leaves a journal of more than {}; move it away",
            storage(about.len()),
            storage(longest)
        )));
    }
    let (mut rows, mut damaged, is_cut) = rows(&ParquetInput::of(file.try_clone()?)?, largest)?;
    // A row that no window can have counted is damage as well.
    let mut broken = None;
    rows.retain(|row| {
        let Err(law) = laws::check(row) else { return true };
        damaged += 1;
        broken.get_or_insert(law);
        false
    });
    Ok(Some(AbandonedJournal { rows, damaged, broken, is_cut, lock: file }))
}

/// Returns the rows of complete frames, the number of damaged places, and whether the end is within
/// a frame. One frame is in memory at a time.
fn rows(journal: &ParquetInput, largest: usize) -> io::Result<(Vec<Row>, u64, bool)> {
    let (mut rows, mut size, mut damaged, mut at) = (Vec::new(), 0, 0, 0);
    let mut is_sound = true;
    let read = |at: u64, length: u64| {
        let length = length.min(journal.len() - at) as usize;
        journal.get_bytes(at, length).map_err(io::Error::other)
    };
    while at < journal.len() {
        let head = read(at, HEADER_BYTES as u64)?;
        let Some((length, sum)) = frame(&head) else {
            // A truncated frame header at the end, or damage; consecutive damaged bytes count as
            // one place.
            if is_sound
                && head.len() < HEADER_BYTES
                && MARK.starts_with(&head[..head.len().min(MARK.len())])
            {
                return Ok((rows, damaged, true));
            }
            damaged += u64::from(is_sound);
            is_sound = false;
            at += 1;
            let chunk = read(at, CHUNK_BYTES)?;
            at += match chunk.windows(MARK.len()).position(|it| it == MARK) {
                Some(more) => more as u64,
                // The mark may begin in this chunk and end in the next one.
                None if at + (chunk.len() as u64) < journal.len() => {
                    (chunk.len() - MARK.len()) as u64
                }
                None => chunk.len() as u64,
            };
            continue;
        };
        let (start, end) = (at + HEADER_BYTES as u64, at + (HEADER_BYTES + length) as u64);
        if end > journal.len() {
            return Ok((rows, damaged, true));
        }
        let entry = read(start, length as u64)?;
        match Some(entry).filter(|entry| crc32fast::hash(entry) == sum).and_then(row) {
            Some(row) => {
                size += row.size();
                if size > largest && !rows.is_empty() {
                    return Err(io::Error::other(format!(
                        "it has more than {} of rows, which no run leaves; move it away",
                        storage(largest as u64)
                    )));
                }
                rows.push(row);
            }
            None => damaged += 1,
        }
        is_sound = true;
        at = end;
    }
    Ok((rows, damaged, false))
}

/// Parses the header of a frame: length and CRC-32 of its entry.
fn frame(bytes: &[u8]) -> Option<(usize, u32)> {
    let head = bytes.first_chunk::<HEADER_BYTES>()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = word(4) as usize;
    (head.starts_with(&MARK)
        && crc32fast::hash(&head[..12]) == word(12)
        && length <= MAX_ENTRY_BYTES)
        .then_some((length, word(8)))
}

fn row(entry: bytes::Bytes) -> Option<Row> {
    Parquet::open(ParquetInput::Memory(entry)).ok()?.rows(is_known, true).ok()?.0.next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Value;

    fn journal(count: i64) -> Vec<u8> {
        let row = |number| {
            let mut row = Row::default();
            row.put("window", Value::Int(Some(100 + number)));
            row.seal();
            row
        };
        let entries = (0..count).map(|number| parquet::write_row(&row(number)).unwrap());
        entries.flat_map(|entry| [head(&entry).to_vec(), entry].concat()).collect()
    }

    fn windows(bytes: Vec<u8>) -> (Vec<i64>, u64, bool) {
        let (rows, damaged, is_cut) = rows(&ParquetInput::Memory(bytes.into()), 1 << 20).unwrap();
        (
            rows.iter().map(|row| row.maybe_number("window").unwrap() - 100).collect(),
            damaged,
            is_cut,
        )
    }

    #[test]
    fn a_flipped_bit_loses_one_row() {
        let whole = journal(4);
        let (first, second) = (journal(1).len(), journal(2).len());
        assert_eq!(windows(whole.clone()), (vec![0, 1, 2, 3], 0, false));
        for at in first..second {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            assert_eq!(windows(flipped), (vec![0, 2, 3], 1, false), "byte {at}");
        }
    }

    #[test]
    fn damage_of_any_length_is_one_place() {
        let (one, chunk) = (journal(1), CHUNK_BYTES as usize);
        // The next mark is at the start, at the end, and across the ends of a searched chunk.
        for length in (1..10).chain(chunk - 5..chunk + 5).chain(3 * chunk - 9..3 * chunk + 3) {
            let damaged = [one.clone(), vec![b'F'; length], one.clone()].concat();
            assert_eq!(windows(damaged), (vec![0, 0], 1, false), "{length}");
            assert_eq!(windows([one.clone(), vec![0; length]].concat()), (vec![0], 1, false));
        }
    }

    #[test]
    fn rows_beyond_the_limit_are_refused() {
        let size = rows(&ParquetInput::Memory(journal(3).into()), usize::MAX).unwrap().0[0].size();
        let limited = |count, largest| rows(&ParquetInput::Memory(journal(count).into()), largest);
        assert_eq!(limited(3, 3 * size).unwrap().0.len(), 3);
        let error = limited(4, 3 * size).unwrap_err().to_string();
        assert!(error.contains("of rows, which no run leaves; move it away"), "{error}");
        // A single row may be larger than a file usually is.
        assert_eq!(limited(1, 1).unwrap().0.len(), 1);
    }

    #[test]
    fn an_end_within_a_frame_is_not_damage() {
        let whole = journal(2);
        for end in journal(1).len() + 1..whole.len() {
            assert_eq!(windows(whole[..end].to_vec()), (vec![0], 0, true), "{end}");
        }
        assert_eq!(windows(b"something else".to_vec()), (vec![], 1, false));
    }
}
