//! Journals of rows that are not in a file of the lake yet, so that a crash loses none of them.
//!
//! A journal is a sequence of frames: [`MARK`], the length of an entry, its CRC-32, and the CRC-32
//! of these twelve bytes, each of four bytes with the low byte first; then the entry, a Parquet
//! file of one row. A reader skips damage up to the next frame. The process that writes a journal
//! holds a lock on it, which ends with the process.

use super::is_known;
use super::parquet::{self, Parquet, ParquetInput};
use crate::row::Row;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// First bytes of a frame.
const MARK: [u8; 4] = *b"FGR1";
const HEADER_BYTES: usize = 16;
/// Maximum length of an entry. A longer one is damage.
const MAX_ENTRY_BYTES: usize = 1 << 28;

/// Journal that this process writes.
pub(super) struct Journal {
    file: Flock<File>,
    path: PathBuf,
    length: u64,
}

impl Journal {
    /// Creates a journal.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        loop {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
            let file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
            // Another process may have removed the file before it was locked, as an empty journal
            // of an earlier run.
            if file.metadata()?.nlink() > 0 {
                return Ok(Journal { file, path, length: 0 });
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
        fs::remove_file(&self.path)
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
    /// Whether the file ends within a frame: the row that was being written.
    pub(super) is_cut: bool,
    /// Prevents other processes from taking the journal.
    _lock: Flock<File>,
}

/// Reads a journal if the process that wrote it has ended.
pub(super) fn left(path: &Path) -> io::Result<Option<AbandonedJournal>> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => {}
        Ok(_) => return Err(io::Error::other("it is no regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        // Another process took it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(mut file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
    if !path.exists() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let (rows, damaged, is_cut) = rows(&bytes::Bytes::from(bytes));
    Ok(Some(AbandonedJournal { rows, damaged, is_cut, _lock: file }))
}

/// Returns the rows of complete frames, the number of damaged places, and whether the end is within
/// a frame.
fn rows(bytes: &bytes::Bytes) -> (Vec<Row>, u64, bool) {
    let (mut rows, mut damaged, mut at) = (Vec::new(), 0, 0);
    let mut is_sound = true;
    while at < bytes.len() {
        let Some((length, sum)) = bytes.get(at..).and_then(frame) else {
            // A truncated frame header at the end, or damage; consecutive damaged bytes count as
            // one place.
            if is_sound
                && bytes.len() - at < HEADER_BYTES
                && MARK.starts_with(&bytes[at..bytes.len().min(at + MARK.len())])
            {
                return (rows, damaged, true);
            }
            damaged += u64::from(is_sound);
            is_sound = false;
            at += bytes[at + 1..]
                .windows(MARK.len())
                .position(|it| it == MARK)
                .map_or(bytes.len(), |more| 1 + more);
            continue;
        };
        let (start, end) = (at + HEADER_BYTES, at + HEADER_BYTES + length);
        if end > bytes.len() {
            return (rows, damaged, true);
        }
        let entry = bytes.slice(start..end);
        match row(entry).filter(|_| crc32fast::hash(&bytes[start..end]) == sum) {
            Some(row) => rows.push(row),
            None => damaged += 1,
        }
        is_sound = true;
        at = end;
    }
    (rows, damaged, false)
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
    Parquet::open(ParquetInput::Memory(entry)).ok()?.rows(is_known, true).ok()?.next()?.ok()
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
        let (rows, damaged, is_cut) = rows(&bytes.into());
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
    fn an_end_within_a_frame_is_not_damage() {
        let whole = journal(2);
        for end in journal(1).len() + 1..whole.len() {
            assert_eq!(windows(whole[..end].to_vec()), (vec![0], 0, true), "{end}");
        }
        assert_eq!(windows(b"something else".to_vec()), (vec![], 1, false));
    }
}
