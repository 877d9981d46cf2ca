//! Uploads the complete files of a directory into an object store. The directory serves as a buffer
//! while the store is unavailable.
//!
//! A file is removed from the directory once it is in the store. After a crash between the two it
//! is uploaded again: the store reports that its name is taken, and the content is compared.

use super::disk::Listing;
use super::parquet::{Parquet, ParquetInput};
use super::shared::LakeState;
use super::store::Store;
use crate::text::{counted, storage};
use bytes::Bytes;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval at which the directory is scanned.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of a file. Runs write at most 32 MiB of rows into one, and one row in any case.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Upload of the lake's files from its buffer into a store.
pub(super) struct Uploader {
    pub(super) shared: Arc<LakeState>,
    pub(super) store: Store,
    /// Whether the outage of the store was logged.
    pub(super) is_reported: bool,
    /// Entries of the directory that were reported because they are not uploaded.
    pub(super) refused: HashSet<PathBuf>,
}

impl Uploader {
    /// Uploads until the sender is dropped; then once more, for the last files.
    pub(super) fn run(mut self, end: &Receiver<()>) {
        while end.recv_timeout(SCAN_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            self.upload();
        }
        self.upload();
        let left = self.files();
        if !left.is_empty() {
            (self.shared.problems)(format!(
                "{}: {} left in {} for the next run, since the store is away",
                self.store.url(),
                counted(left.len() as u64, "file"),
                self.shared.root.path().display()
            ));
        }
    }

    /// Returns the names of the files in order of time.
    fn files(&mut self) -> Vec<PathBuf> {
        let listing = Listing::new(&self.shared.root, &mut HashSet::new(), |_| true);
        for (path, error) in listing.refused {
            if self.refused.insert(path.clone()) {
                (self.shared.problems)(format!("cannot upload {}: {error}", path.display()));
            }
        }
        listing.names
    }

    fn upload(&mut self) {
        let mut uploaded = 0;
        for name in self.files() {
            match self.put(&name) {
                Ok(()) => uploaded += 1,
                // Another process uploaded it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // A pipe, or a file that is too long, does not keep others from being uploaded.
                Err(error)
                    if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData) =>
                {
                    if self.refused.insert(self.shared.root.path().join(&name)) {
                        (self.shared.problems)(format!(
                            "cannot upload {}: {error}",
                            name.display()
                        ));
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_reported, true) {
                        tracing::warn!(
                            "{}: cannot put a file: {error}; up to {} of files wait in {}, and are tried again",
                            self.store.url(),
                            storage(self.shared.settings.buffer),
                            self.shared.root.path().display()
                        );
                    }
                    break;
                }
            }
            if uploaded > 0 && std::mem::take(&mut self.is_reported) {
                tracing::warn!("{}: files can be put again", self.store.url());
            }
        }
        self.make_room();
    }

    fn put(&self, file: &Path) -> io::Result<()> {
        let bytes = Bytes::from(self.shared.root.read(file, MAX_FILE_BYTES)?);
        let name = file.with_extension("");
        let name = name.to_string_lossy();
        // Files of an earlier run with the same name are not overwritten.
        let names = std::iter::once(format!("{name}.parquet"))
            .chain((1..).map(|number: u64| format!("{name}-{number}.parquet")));
        for name in names {
            if self.store.create(&name, bytes.clone())? {
                break;
            }
        }
        self.shared.root.remove(file)?;
        // Writers recreate the directories when they need them.
        for directory in file.ancestors().skip(1).filter(|it| it.parent().is_some()) {
            if self.shared.root.remove_directory(directory).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Removes the oldest files while the buffer exceeds its size.
    fn make_room(&mut self) {
        let names = self.files().into_iter();
        let sizes =
            names.filter_map(|name| self.shared.root.length(&name).ok().map(|size| (name, size)));
        let sizes: Vec<(PathBuf, u64)> = sizes.collect();
        let mut held: u64 = sizes.iter().map(|(_, size)| size).sum();
        let mut files = sizes.len() as u64;
        for (name, size) in sizes {
            if held <= self.shared.settings.buffer {
                break;
            }
            let rows = self
                .shared
                .root
                .file(&name)
                .and_then(ParquetInput::of)
                .ok()
                .and_then(|file| Parquet::open(file).ok())
                .map_or(0, |file| file.len());
            if self.shared.root.remove(&name).is_ok() {
                self.shared.lost.fetch_add(rows, Ordering::Relaxed);
                held -= size;
                files -= 1;
                (self.shared.problems)(format!(
                    "{}: {} of {} given up, since {} holds {}",
                    self.store.url(),
                    counted(rows, "row"),
                    name.file_name().unwrap_or_default().display(),
                    self.shared.root.path().display(),
                    storage(self.shared.settings.buffer)
                ));
            }
        }
        self.shared.waiting_files.store(files, Ordering::Relaxed);
        self.shared.waiting_bytes.store(held, Ordering::Relaxed);
    }
}
