//! What the threads of a lake share: settings, rows on their way, and what was told of problems.

use super::journal::Journal;
use crate::identity::Identity;
use crate::row::Row;
use crate::text::storage;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often it is tried again to write what could not be written.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// Where journals are, out of the way of engines.
pub(super) const JOURNALS: &str = ".journal";

/// Where and how to write.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The lake, or the buffer before a store.
    pub directory: PathBuf,
    /// Files in a buffer take at most so many bytes of the disk.
    pub buffer: u64,
    /// Who writes.
    pub identity: Identity,
    /// A file with rows of this length of time is complete.
    pub longest: Duration,
    /// So is one whose rows take so many bytes of memory.
    pub largest: usize,
    /// Rows that wait to be written take at most so many bytes of memory.
    pub room: usize,
    /// Whether to wait for the disk, and not lose rows: of captures, which wait as well.
    pub patient: bool,
}

impl Settings {
    /// How long a file goes on.
    pub const LONGEST: Duration = Duration::from_secs(3600);
    /// Bytes that files may take on disk while they wait for a store.
    pub const BUFFER: u64 = 1 << 30;

    /// Files of an hour or 32 MiB; 128 MiB may wait in memory, and 1 GiB on disk for a store.
    #[must_use]
    pub fn new(directory: PathBuf, identity: Identity) -> Self {
        Settings {
            directory,
            identity,
            longest: Self::LONGEST,
            largest: 32 << 20,
            room: 128 << 20,
            buffer: Self::BUFFER,
            patient: false,
        }
    }
}

/// What is told of problems, as they come.
pub type Problems = Arc<dyn Fn(String) + Send + Sync>;

/// Rows that become one file.
pub(super) struct Rows {
    pub(super) name: String,
    /// Directory below the lake's.
    pub(super) partition: String,
    pub(super) rows: Vec<Row>,
    pub(super) bytes: usize,
    /// When the first row begins, in microseconds.
    pub(super) begin: i64,
    /// Nothing if it could not be made: then a crash loses the rows.
    pub(super) journal: Option<Journal>,
    /// How many rows are in the journal.
    pub(super) kept: usize,
}

/// What both threads know.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) problems: Problems,
    pub(super) lost: Arc<AtomicU64>,
    /// Whether it was told that something cannot be written, since when nothing was.
    pub(super) is_told: AtomicBool,
    pub(super) pending: Mutex<Pending>,
}

/// What waits for the disk.
#[derive(Default)]
pub(super) struct Pending {
    /// Complete files, the oldest first.
    pub(super) waiting: VecDeque<Rows>,
    /// A journal with rows that a crash of the machine would lose.
    pub(super) unsynced: Option<File>,
}

impl Shared {
    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn directory(&self) -> impl std::fmt::Display + '_ {
        self.settings.directory.display()
    }

    pub(super) fn journals(&self) -> PathBuf {
        self.settings.directory.join(JOURNALS)
    }

    /// Says once that something cannot be written.
    pub(super) fn tell(&self, name: &str, error: &io::Error) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            let room = storage(self.settings.room as u64);
            (self.problems)(format!(
                "{}: cannot write {name}: {error}; up to {room} of rows wait in memory",
                self.directory()
            ));
        }
    }
}
