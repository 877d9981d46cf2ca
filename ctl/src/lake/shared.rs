//! State that the threads of a lake share: settings, pending rows and reported problems.

use super::journal::Journal;
use super::signature::SigningKey;
use crate::identity::Identity;
use crate::row::Row;
use crate::text::storage;
use flowgauge_dataplane::files::Directory;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval at which failed writes are retried.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of the rows of a file in memory, in bytes.
pub(super) const MAX_FILE_ROWS_BYTES: usize = 32 << 20;
/// Maximum size of pending rows in memory, in bytes.
pub(super) const MAX_PENDING_BYTES: usize = 128 << 20;
/// Directory of journals, hidden from engines.
pub(super) const JOURNALS: &str = ".journal";

/// Settings of a lake's writer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The lake, or the buffer in front of a store.
    pub directory: PathBuf,
    /// Maximum size of the files in a buffer, in bytes.
    pub buffer: u64,
    /// Identity of this process.
    pub identity: Identity,
    /// Maximum time that the rows of a file span.
    pub longest: Duration,
    /// Key that signs each row.
    pub key: Option<Arc<SigningKey>>,
    /// Whether to wait for the disk instead of losing rows: for captures, which can wait as well.
    pub patient: bool,
}

impl Settings {
    /// Default time that a file spans.
    pub const LONGEST: Duration = Duration::from_secs(3600);
    /// Default size of the buffer in front of a store, in bytes.
    pub const BUFFER: u64 = 1 << 30;
}

/// Callback for problems as they occur.
pub type Problems = Arc<dyn Fn(String) + Send + Sync>;

/// Rows of one file.
pub(super) struct FileRows {
    pub(super) name: String,
    /// Directory relative to the lake's.
    pub(super) partition: String,
    pub(super) rows: Vec<Row>,
    pub(super) bytes: usize,
    /// Start of the first row, in microseconds.
    pub(super) begin: i64,
    /// `None` if it could not be created; then a crash loses the rows.
    pub(super) journal: Option<Journal>,
    /// Number of rows in the journal.
    pub(super) journaled: usize,
}

/// State shared by the sink and the threads that write and upload.
pub(super) struct LakeState {
    pub(super) settings: Settings,
    /// The lake, or the buffer in front of a store.
    pub(super) root: Directory,
    pub(super) journals: Arc<Directory>,
    pub(super) problems: Problems,
    /// Rows that were lost so far.
    pub(super) lost: AtomicU64,
    /// Rows in memory that are neither in the journal of an open file nor in a complete one.
    pub(super) waiting_rows: AtomicU64,
    /// Files that wait for a store, and their size.
    pub(super) waiting_files: AtomicU64,
    pub(super) waiting_bytes: AtomicU64,
    /// Whether a failed write was reported since the last successful one.
    pub(super) is_reported: AtomicBool,
    pub(super) pending: Mutex<Pending>,
}

/// Data that waits for the disk.
#[derive(Default)]
pub(super) struct Pending {
    /// Complete files, the oldest first.
    pub(super) waiting: VecDeque<FileRows>,
    /// Journal with rows that a crash of the machine would lose.
    pub(super) unsynced: Option<File>,
}

impl LakeState {
    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn directory(&self) -> impl std::fmt::Display + '_ {
        self.settings.directory.display()
    }

    /// Reports a failed write, once until a write succeeds.
    pub(super) fn report(&self, name: &str, error: &io::Error) {
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            let room = storage(MAX_PENDING_BYTES as u64);
            (self.problems)(format!(
                "{}: cannot write {name}: {error}; up to {room} of rows wait in memory",
                self.directory()
            ));
        }
    }
}
