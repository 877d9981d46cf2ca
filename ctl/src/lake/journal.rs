//! Rows on disk from the moment that they are written until they are in a file of the lake, so that a crash loses none of them.
//!
//! A journal is a sequence of entries: length and CRC-32 of four bytes each, low byte first, and a Parquet file of one row. Whoever writes it holds
//! a lock on it, which ends with the process, whatever ends that.

use super::parquet::{self, Parquet};
use super::row::Row;
use ::parquet::errors::ParquetError;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Longer entries are none: something else is in the file.
const LONGEST: u32 = 1 << 28;

/// A journal that this process writes.
pub(super) struct Journal {
    file: Flock<File>,
    path: PathBuf,
    length: u64,
}

impl Journal {
    /// A new one.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        loop {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
            let file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
            // Whoever found it before it was locked took it for one that was left, with nothing in it, and removed it.
            if file.metadata()?.nlink() > 0 {
                return Ok(Journal { file, path, length: 0 });
            }
        }
    }

    /// Adds rows, which then survive the end of this process; all of them or, if it fails, none. When the file that it gives is synchronised, they survive
    /// the end of the machine.
    pub(super) fn append(&mut self, rows: &[Row]) -> io::Result<File> {
        let mut bytes = Vec::new();
        for row in rows {
            let entry = parquet::write_row(row).map_err(io::Error::other)?;
            bytes.extend((entry.len() as u32).to_le_bytes());
            bytes.extend(crc32fast::hash(&entry).to_le_bytes());
            bytes.extend(entry);
        }
        let written = self.file.seek(SeekFrom::Start(self.length)).and_then(|_| self.file.write_all(&bytes));
        match written.and_then(|()| self.file.try_clone()) {
            Ok(file) => {
                self.length += bytes.len() as u64;
                Ok(file)
            }
            Err(error) => {
                // If this fails as well, what is left is no whole entry, and is passed over.
                let _ = self.file.set_len(self.length);
                Err(error)
            }
        }
    }

    /// What it holds is in the lake.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// What a journal of a process that has ended holds.
pub(super) struct Left {
    /// Its rows, up to the first entry that is not whole.
    pub(super) rows: Vec<Row>,
    /// Bytes behind them: the row that was being written.
    pub(super) rest: u64,
    /// Keeps others from taking it as well.
    _lock: Flock<File>,
}

/// Reads a journal, if the process that wrote it has ended.
pub(super) fn left(path: &Path) -> io::Result<Option<Left>> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        // Another process has taken it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(mut file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
    if !path.exists() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let (mut rows, mut rest) = (Vec::new(), bytes.as_slice());
    while let Some((row, behind)) = entry(rest) {
        rows.push(row);
        rest = behind;
    }
    Ok(Some(Left { rows, rest: rest.len() as u64, _lock: file }))
}

/// The first entry, and what is behind it.
fn entry(bytes: &[u8]) -> Option<(Row, &[u8])> {
    let (length, bytes) = bytes.split_first_chunk::<4>()?;
    let (sum, bytes) = bytes.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let (entry, behind) = bytes.split_at_checked(length as usize).filter(|_| length <= LONGEST)?;
    if crc32fast::hash(entry) != u32::from_le_bytes(*sum) {
        return None;
    }
    let row =
        || -> Result<Option<Row>, ParquetError> { Parquet::open(bytes::Bytes::copy_from_slice(entry))?.rows().next().transpose() };
    Some((row().ok()??, behind))
}
