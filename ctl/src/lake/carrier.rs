//! Uploads the complete files of a directory into an object store. The directory serves as a buffer
//! while the store is unavailable.
//!
//! A file is removed from the directory once it is in the store. After a crash between the two it
//! is uploaded again: the store reports that its name is taken, and the content is compared.

use super::parquet::{Parquet, ParquetInput};
use super::shared::Problems;
use super::store::{Put, Store};
use super::union::files;
use crate::text::{counted, storage};
use bytes::Bytes;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Interval at which the directory is scanned.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Upload of files from a directory into a store.
pub(super) struct Uploader {
    pub(super) buffer: PathBuf,
    pub(super) store: Store,
    /// Maximum size of the files on disk, in bytes.
    pub(super) room: u64,
    pub(super) problems: Problems,
    /// Rows of files that were removed for lack of space.
    pub(super) lost: Arc<AtomicU64>,
    /// Whether the outage of the store was logged.
    pub(super) is_reported: bool,
}

impl Uploader {
    /// Uploads until the sender is dropped; then once more, for the last files.
    pub(super) fn run(mut self, end: &Receiver<()>) {
        while end.recv_timeout(SCAN_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            self.carry();
        }
        self.carry();
        let left = self.files();
        if !left.is_empty() {
            (self.problems)(format!(
                "{}: {} left in {} for the next run, since the store is away",
                self.store.url(),
                counted(left.len() as u64, "file"),
                self.buffer.display()
            ));
        }
    }

    /// Returns the files in order of time.
    fn files(&self) -> Vec<PathBuf> {
        files(std::slice::from_ref(&self.buffer)).unwrap_or_default()
    }

    fn carry(&mut self) {
        let mut carried = 0;
        for path in self.files() {
            match self.put(&path) {
                Ok(()) => carried += 1,
                // Another process uploaded it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.is_reported, true) {
                        let (buffer, room) = (self.buffer.display(), storage(self.room));
                        tracing::warn!(
                            "{}: cannot put a file: {error}; up to {room} of files wait in {buffer}, and are tried again",
                            self.store.url()
                        );
                    }
                    break;
                }
            }
            if carried > 0 && std::mem::take(&mut self.is_reported) {
                tracing::warn!("{}: files can be put again", self.store.url());
            }
        }
        self.make_room();
    }

    fn put(&self, path: &Path) -> io::Result<()> {
        let bytes = Bytes::from(fs::read(path)?);
        let name = path.strip_prefix(&self.buffer).map_err(io::Error::other)?.with_extension("");
        let name = name.to_string_lossy();
        // Files of an earlier run with the same name are not overwritten.
        let names = std::iter::once(format!("{name}.parquet"))
            .chain((1..).map(|number: u64| format!("{name}-{number}.parquet")));
        for name in names {
            if self.store.put(&name, bytes.clone())? == Put::New || self.store.get(&name)? == bytes
            {
                break;
            }
        }
        fs::remove_file(path)?;
        // Writers recreate the directories when they need them.
        let _ = path.parent().map(fs::remove_dir);
        let _ = path.parent().and_then(Path::parent).map(fs::remove_dir);
        Ok(())
    }

    /// Removes the oldest files while the buffer exceeds its size.
    fn make_room(&mut self) {
        let sizes = self
            .files()
            .into_iter()
            .filter_map(|path| fs::metadata(&path).ok().map(|about| (path, about.len())));
        let sizes: Vec<(PathBuf, u64)> = sizes.collect();
        let mut held: u64 = sizes.iter().map(|(_, size)| size).sum();
        for (path, size) in sizes {
            if held <= self.room {
                break;
            }
            let rows = File::open(&path)
                .and_then(ParquetInput::of)
                .ok()
                .and_then(|file| Parquet::open(file).ok())
                .map_or(0, |file| file.len());
            if fs::remove_file(&path).is_ok() {
                self.lost.fetch_add(rows, Ordering::Relaxed);
                held -= size;
                (self.problems)(format!(
                    "{}: {} of {} given up, since {} holds {}",
                    self.store.url(),
                    counted(rows, "row"),
                    path.file_name().unwrap_or_default().display(),
                    self.buffer.display(),
                    storage(self.room)
                ));
            }
        }
    }
}
