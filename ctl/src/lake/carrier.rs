//! Carries the complete files of a directory into an object store, so that the directory is a
//! buffer for times at which the store is away.
//!
//! A file leaves the directory when the store has it. A crash between the two has it put again: the
//! store says that its name is taken, and by what.

use super::parquet::{Input, Parquet};
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

/// How often the directory is looked at.
const OFTEN: Duration = Duration::from_secs(1);

/// Where files are from and go to.
pub(super) struct Carrier {
    pub(super) buffer: PathBuf,
    pub(super) store: Store,
    /// Files take at most so many bytes of the disk.
    pub(super) room: u64,
    pub(super) problems: Problems,
    /// Rows of files that there was no room for.
    pub(super) lost: Arc<AtomicU64>,
    /// Whether it was told that the store is away, since when it was.
    pub(super) is_told: bool,
}

impl Carrier {
    /// Until the other end of the channel is gone; then once more, for what was written last.
    pub(super) fn run(mut self, end: &Receiver<()>) {
        while end.recv_timeout(OFTEN) == Err(RecvTimeoutError::Timeout) {
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

    /// In the order of their times.
    fn files(&self) -> Vec<PathBuf> {
        files(std::slice::from_ref(&self.buffer)).unwrap_or_default()
    }

    fn carry(&mut self) {
        let mut carried = 0;
        for path in self.files() {
            match self.put(&path) {
                Ok(()) => carried += 1,
                // Another process carried it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.is_told, true) {
                        let (buffer, room) = (self.buffer.display(), storage(self.room));
                        tracing::warn!(
                            "{}: cannot put a file: {error}; up to {room} of files wait in {buffer}, and are tried again",
                            self.store.url()
                        );
                    }
                    break;
                }
            }
            if carried > 0 && std::mem::take(&mut self.is_told) {
                tracing::warn!("{}: files can be put again", self.store.url());
            }
        }
        self.make_room();
    }

    fn put(&self, path: &Path) -> io::Result<()> {
        let bytes = Bytes::from(fs::read(path)?);
        let name = path.strip_prefix(&self.buffer).map_err(io::Error::other)?.with_extension("");
        let name = name.to_string_lossy();
        // A run that was given the name of an earlier one overwrites none of its files.
        let names = std::iter::once(format!("{name}.parquet"))
            .chain((1..).map(|number: u64| format!("{name}-{number}.parquet")));
        for name in names {
            if self.store.put(&name, bytes.clone())? == Put::New || self.store.get(&name)? == bytes
            {
                break;
            }
        }
        fs::remove_file(path)?;
        // Whoever is about to write into them makes them again.
        let _ = path.parent().map(fs::remove_dir);
        let _ = path.parent().and_then(Path::parent).map(fs::remove_dir);
        Ok(())
    }

    /// Gives up the oldest files, if they take more than they may.
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
                .and_then(Input::of)
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
