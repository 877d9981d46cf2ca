//! Inputs of the Parquet reader: files, and bytes in memory.

use bytes::{Buf, Bytes};
use flowgauge_dataplane::files::{PRIVATE_MODE, create_new};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes read at once for a page header.
const AHEAD: usize = 512;

/// A file on disk, or bytes in memory.
#[derive(Clone)]
pub(crate) enum ParquetInput {
    /// A file, the offset of the first byte, and the length.
    File(Arc<File>, u64, u64),
    Memory(Bytes),
}

impl ParquetInput {
    pub(crate) fn of(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(ParquetInput::File(Arc::new(file), 0, length))
    }

    /// Returns a range of the bytes.
    pub(crate) fn part(&self, start: u64, length: u64) -> Self {
        match self {
            ParquetInput::File(file, before, _) => {
                ParquetInput::File(Arc::clone(file), before + start, length)
            }
            ParquetInput::Memory(bytes) => {
                ParquetInput::Memory(bytes.slice(start as usize..(start + length) as usize))
            }
        }
    }
}

/// Unnamed temporary file for data that is too large for memory. It is deleted when the process
/// ends.
pub(crate) struct Spool {
    file: File,
    end: u64,
}

impl Spool {
    pub(crate) fn new() -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("flowgauge-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match create_new(&path, PRIVATE_MODE) {
                Ok(file) => {
                    fs::remove_file(&path)?;
                    return Ok(Spool { file, end: 0 });
                }
                // Anybody can take a name in that directory.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends a piece; returns its offset and length.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<(u64, u64)> {
        self.file.write_all(bytes)?;
        let (start, length) = (self.end, bytes.len() as u64);
        self.end += length;
        Ok((start, length))
    }

    /// Returns the whole content.
    pub(crate) fn finish(self) -> ParquetInput {
        ParquetInput::File(Arc::new(self.file), 0, self.end)
    }
}

impl Length for ParquetInput {
    fn len(&self) -> u64 {
        match self {
            ParquetInput::File(_, _, length) => *length,
            ParquetInput::Memory(bytes) => bytes.len() as u64,
        }
    }
}

impl ChunkReader for ParquetInput {
    type T = Box<dyn Read + Send>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        match self {
            ParquetInput::File(file, before, length) => {
                let from =
                    From { file: Arc::clone(file), at: before + start, end: before + length };
                Ok(Box::new(io::BufReader::with_capacity(AHEAD, from)))
            }
            ParquetInput::Memory(bytes) => {
                let start = usize::try_from(start)
                    .ok()
                    .filter(|start| *start <= bytes.len())
                    .ok_or_else(|| beyond(start, 0))?;
                Ok(Box::new(bytes.slice(start..).reader()))
            }
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start
            .checked_add(length as u64)
            .filter(|end| *end <= self.len())
            .ok_or_else(|| beyond(start, length))?;
        match self {
            ParquetInput::File(file, before, _) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, before + start)?;
                Ok(bytes.into())
            }
            ParquetInput::Memory(bytes) => Ok(bytes.slice(start as usize..end as usize)),
        }
    }
}

fn beyond(start: u64, length: usize) -> ParquetError {
    ParquetError::EOF(format!("{length} bytes at {start} are beyond its end"))
}

/// Reader of a file from an offset. Other readers of the same file are not affected.
struct From {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end.saturating_sub(self.at))
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = self.file.read_at(buffer.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
