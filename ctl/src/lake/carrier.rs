//! Uploads the complete files of a directory into an object store. The directory serves as a buffer
//! while the store is unavailable.
//!
//! A file is removed from the directory once it is in the store. After a crash between the two it
//! is uploaded again: the store reports that its name is taken, and the content is compared.

use super::listing::Listing;
use super::parquet::{Parquet, ParquetInput};
use super::shared::{Backlog, Problems};
use super::store::{Put, Store};
use crate::text::{counted, storage};
use bytes::Bytes;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use flowgauge_dataplane::files::Directory;
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Interval at which the directory is scanned.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of a file. Runs write at most 32 MiB of rows into one, and one row in any case.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Upload of files from a directory into a store.
pub(super) struct Uploader {
    pub(super) buffer: Arc<Directory>,
    pub(super) store: Store,
    /// Maximum size of the files on disk, in bytes.
    pub(super) room: u64,
    pub(super) problems: Problems,
    /// Rows of files that were removed for lack of space.
    pub(super) lost: Arc<AtomicU64>,
    pub(super) backlog: Arc<Backlog>,
    /// Whether the outage of the store was logged.
    pub(super) is_reported: bool,
    /// Entries of the directory that were reported because they are not uploaded.
    pub(super) refused: HashSet<PathBuf>,
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
                self.buffer.path().display()
            ));
        }
    }

    /// Returns the names of the files in order of time.
    fn files(&mut self) -> Vec<PathBuf> {
        let listing = Listing::new(&self.buffer, &mut HashSet::new(), |_| true);
        for (path, error) in listing.refused {
            if self.refused.insert(path.clone()) {
                (self.problems)(format!("cannot upload {}: {error}", path.display()));
            }
        }
        listing.names
    }

    fn carry(&mut self) {
        let mut carried = 0;
        for name in self.files() {
            match self.put(&name) {
                Ok(()) => carried += 1,
                // Another process uploaded it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // A pipe, or a file that is too long, does not keep others from being uploaded.
                Err(error)
                    if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData) =>
                {
                    if self.refused.insert(self.buffer.path().join(&name)) {
                        (self.problems)(format!("cannot upload {}: {error}", name.display()));
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_reported, true) {
                        let (buffer, room) = (self.buffer.path().display(), storage(self.room));
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

    fn put(&self, file: &Path) -> io::Result<()> {
        let bytes = Bytes::from(self.buffer.read(file, MAX_FILE_BYTES)?);
        let name = file.with_extension("");
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
        self.buffer.remove(file)?;
        // Writers recreate the directories when they need them.
        for directory in file.ancestors().skip(1).filter(|it| it.parent().is_some()) {
            if self.buffer.remove_directory(directory).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Removes the oldest files while the buffer exceeds its size.
    fn make_room(&mut self) {
        let names = self.files().into_iter();
        let sizes =
            names.filter_map(|name| self.buffer.length(&name).ok().map(|size| (name, size)));
        let sizes: Vec<(PathBuf, u64)> = sizes.collect();
        let mut held: u64 = sizes.iter().map(|(_, size)| size).sum();
        let mut files = sizes.len() as u64;
        for (name, size) in sizes {
            if held <= self.room {
                break;
            }
            let rows = self
                .buffer
                .file(&name)
                .and_then(ParquetInput::of)
                .ok()
                .and_then(|file| Parquet::open(file).ok())
                .map_or(0, |file| file.len());
            if self.buffer.remove(&name).is_ok() {
                self.lost.fetch_add(rows, Ordering::Relaxed);
                held -= size;
                files -= 1;
                (self.problems)(format!(
                    "{}: {} of {} given up, since {} holds {}",
                    self.store.url(),
                    counted(rows, "row"),
                    name.file_name().unwrap_or_default().display(),
                    self.buffer.path().display(),
                    storage(self.room)
                ));
            }
        }
        self.backlog.files.store(files, Ordering::Relaxed);
        self.backlog.bytes.store(held, Ordering::Relaxed);
    }
}
