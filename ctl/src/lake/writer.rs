//! Writes the rows of a lake to a directory: `date=2026-11-23/hour=14/HOST-RUN-000001.parquet`.
//!
//! [`Lake`] is the sink. Two threads write, so that no window waits for a disk. The first
//! ([`Writer`]) appends every row to a journal at once, which survives the end of this process. The
//! second ([`Flusher`]) waits for the disk: it synchronizes journals, so that they survive a crash
//! of the machine, and writes the rows as a Parquet file when an hour is over or the file is long
//! or old enough.
//!
//! Rows that cannot be written wait in memory, up to a limit. Beyond it the oldest rows are lost,
//! which is reported at once, at the end, and in all later rows (`lost_rows`).

use super::disk::{Flusher, begin, partition};
use super::journal::Journal;
use super::row;
use super::shared::{
    FileRows, JOURNALS, LakeState, MAX_FILE_ROWS_BYTES, MAX_PENDING_BYTES, Pending, Problems,
    RETRY_INTERVAL, Settings,
};
use super::store::Store;
use super::uploader::Uploader;
use crate::controller::{Sink, Summary};
use crate::identity::Identity;
use crate::output::Metrics;
use crate::record::{Record, RecordKind};
use crate::row::Row;
use crate::text::counted;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use flowgauge_dataplane::Dataplane;
use flowgauge_dataplane::files::Directory;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Maximum number of rows queued for the thread of the writer.
const MAX_QUEUED_ROWS: usize = 1024;
/// Maximum number of rows appended to the journal at once.
const MAX_BATCH_ROWS: usize = 256;

/// Sink that writes windows to a lake. Once it is dropped, all of them are on disk, or a problem
/// was reported.
pub struct Lake {
    /// Queue of the writer; `None` once it has ended.
    rows: Option<Sender<Row>>,
    /// Threads of the writer and of the flusher.
    writers: Option<[JoinHandle<()>; 2]>,
    /// Thread that uploads files. It ends when the sender is dropped.
    uploader: Option<(Sender<()>, JoinHandle<()>)>,
    shared: Arc<LakeState>,
    metrics: Option<Metrics>,
    /// First and last window of the latest silence. Windows without packets have no row.
    silence: Option<(u64, u64)>,
    /// Whether packets are counted at several places, each with its own rows.
    has_places: bool,
}

impl Lake {
    /// Starts writing, after finishing the files of earlier processes. With a store, complete files
    /// are uploaded, and wait in the directory while it is unavailable.
    ///
    /// # Errors
    /// If the directory cannot be created or written.
    pub fn start(settings: Settings, store: Option<Store>, problems: Problems) -> io::Result<Self> {
        let root = Directory::create(&settings.directory)?;
        let journals = Arc::new(root.create_below(JOURNALS)?);
        // Files of earlier runs.
        let left = journals.entries()?.into_iter().map(|entry| entry.name).collect();
        let shared = Arc::new(LakeState {
            settings,
            root,
            journals,
            problems,
            lost: AtomicU64::new(0),
            waiting_rows: AtomicU64::new(0),
            waiting_files: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            pending: Mutex::default(),
        });
        let ((rows, received), (wake, woken)) = (bounded(MAX_QUEUED_ROWS), bounded(1));
        let writer = Writer { shared: Arc::clone(&shared), number: 0, open: None, wake };
        // Checks that the directory is writable.
        let probe = format!("{}.probe", writer.name(0));
        let journals = &shared.journals;
        journals.create_temporary(&probe).and_then(|_| journals.remove(&probe))?;
        let flusher = Flusher { shared: Arc::clone(&shared), left };
        let flusher = spawn("lake-disk", move || flusher.run(&woken))?;
        let writer = spawn("lake", move || writer.run(&received))?;
        let uploader = store.map(|store| {
            let shared = Arc::clone(&shared);
            let uploader = Uploader { shared, store, is_reported: false, refused: HashSet::new() };
            let (end, ended) = bounded(0);
            Ok::<_, io::Error>((end, spawn("lake-store", move || uploader.run(&ended))?))
        });
        Ok(Lake {
            rows: Some(rows),
            writers: Some([writer, flusher]),
            uploader: uploader.transpose()?,
            shared,
            metrics: None,
            silence: None,
            has_places: false,
        })
    }

    /// Returns this lake with metrics of its backlog and its losses.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Returns the number of silent windows just before a record.
    fn silent_before(&self, record: &Record) -> u64 {
        self.silence
            .filter(|(_, last)| last + 1 == record.window)
            .map_or(0, |(first, last)| last + 1 - first)
    }
}

impl Sink for Lake {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind == RecordKind::Silence {
            self.silence = record.last_window.map(|last| (record.window, last));
        }
        if record.kind != RecordKind::Window {
            return Ok(());
        }
        // The record of all places would count their packets twice.
        self.has_places |= record.part;
        if self.has_places && !record.part {
            return Ok(());
        }
        let Some(row) = row(
            record,
            &self.shared.settings.identity,
            self.shared.lost.load(Ordering::Relaxed),
            self.silent_before(record),
        ) else {
            return Ok(());
        };
        let Some(rows) = &self.rows else { return Ok(()) };
        let sent = if self.shared.settings.patient {
            rows.send(row).map_err(|_| true)
        } else {
            rows.try_send(row).map_err(|error| error.is_disconnected())
        };
        if let Err(has_ended) = sent {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            if has_ended {
                // The panic of the thread was logged; report the problem once.
                self.rows = None;
                (self.shared.problems)("the thread that writes the lake has ended: no more rows are written; restart the run".to_owned());
            }
        }
        Ok(())
    }

    fn heartbeat(&mut self, _: &dyn Dataplane, _: &Summary) {
        let Some(metrics) = &self.metrics else { return };
        // While a disk hangs, rows wait in the queue of the writer.
        let queued = self.rows.as_ref().map_or(0, |rows| rows.len() as u64);
        let amount = |amount: &AtomicU64| amount.load(Ordering::Relaxed);
        let LakeState { lost, waiting_rows, waiting_files, waiting_bytes, .. } = &*self.shared;
        let help = "rows in memory that are not on disk yet";
        metrics.set("lake_waiting_rows", help, queued + amount(waiting_rows));
        metrics.reach("lake_lost_rows_total", "rows that were lost", amount(lost));
        if self.uploader.is_some() {
            let help = "files that wait for the object store";
            metrics.set("lake_waiting_files", help, amount(waiting_files));
            let help = "size of the files that wait for the object store";
            metrics.set("lake_waiting_bytes", help, amount(waiting_bytes));
        }
    }
}

impl Drop for Lake {
    fn drop(&mut self) {
        self.rows = None;
        let mut join = |thread: JoinHandle<()>| {
            if thread.join().is_err() {
                (self.shared.problems)(
                    "a thread that writes the lake has failed: rows may be missing".to_owned(),
                );
            }
        };
        self.writers.take().into_iter().flatten().for_each(&mut join);
        if let Some((end, uploader)) = self.uploader.take() {
            drop(end);
            join(uploader);
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Writer of rows to the journal of the open file.
struct Writer {
    shared: Arc<LakeState>,
    /// Number of the next file.
    number: u64,
    open: Option<FileRows>,
    /// Wakes the flusher.
    wake: Sender<()>,
}

impl Writer {
    fn run(mut self, rows: &Receiver<Row>) {
        let mut reported_lost = 0;
        loop {
            let first = match rows.recv_timeout(RETRY_INTERVAL) {
                Ok(row) => Some(row),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            for row in first.into_iter().chain(rows.try_iter()).take(MAX_BATCH_ROWS) {
                self.add(row);
            }
            self.write_journal();
            self.make_room();
            self.count_backlog();
            let lost = self.shared.lost.load(Ordering::Relaxed);
            if lost > std::mem::replace(&mut reported_lost, lost) {
                let directory = self.shared.directory();
                (self.shared.problems)(format!(
                    "{directory}: {} lost so far, which the rows after them tell",
                    counted(lost, "row")
                ));
            }
        }
        self.close();
    }

    /// Returns the name of a file, without its extension.
    fn name(&self, number: u64) -> String {
        let Identity { host, run } = &self.shared.settings.identity;
        let safe = |text: &str| -> String {
            text.chars()
                .map(|character| match character {
                    '.' => '.',
                    _ if character.is_ascii_alphanumeric() => character,
                    _ => '_',
                })
                .collect()
        };
        format!("{}-{}-{number:06}", safe(host), safe(run))
    }

    /// Adds a row to the open file, or to a new one if it does not fit there.
    fn add(&mut self, mut row: Row) {
        if let Some(key) = &self.shared.settings.key {
            key.sign(&mut row);
        }
        let (begin, size) = (begin(&row), row.size());
        let partition = partition(begin);
        let longest = i64::try_from(self.shared.settings.longest.as_micros()).unwrap_or(i64::MAX);
        // Rows of one file have the same columns.
        let fits = |open: &FileRows| {
            open.partition == partition
                && begin.saturating_sub(open.begin) < longest
                && open.bytes + size <= MAX_FILE_ROWS_BYTES
                && open.rows.first().is_none_or(|first| {
                    first.columns().map(|(name, _)| name).eq(row.columns().map(|(name, _)| name))
                })
        };
        if !self.open.as_ref().is_some_and(fits) {
            self.close();
        }
        let open = self.open.take().unwrap_or_else(|| self.open_file(begin, partition));
        let open = self.open.insert(open);
        open.bytes += size;
        open.rows.push(row);
    }

    /// Opens a file with its journal, whose first row begins at `begin`, in microseconds.
    fn open_file(&mut self, begin: i64, partition: String) -> FileRows {
        let LakeState { root, journals, .. } = &*self.shared;
        let journal = |name: &str| format!("{name}.journal");
        // Files of an earlier run with the same name are not overwritten. A journal becomes a file
        // before it is removed, so it is checked first. If a check fails, writing fails too, and
        // that is reported.
        let is_taken = |name: &str| {
            journals.contains(journal(name)).unwrap_or(false)
                || root.contains(format!("{partition}/{name}.parquet")).unwrap_or(false)
        };
        while is_taken(&self.name(self.number)) {
            self.number += 1;
        }
        let name = self.name(self.number);
        self.number += 1;
        let journal = Journal::create(journals, journal(&name))
            .map_err(|error| self.shared.report(&name, &error))
            .ok();
        FileRows { name, partition, rows: Vec::new(), bytes: 0, begin, journal, journaled: 0 }
    }

    /// Appends new rows to the journal, so that they survive the end of this process.
    fn write_journal(&mut self) {
        let Some(open) = &mut self.open else { return };
        let new = open.rows.get(open.journaled..).unwrap_or_default();
        let Some(journal) = open.journal.as_mut().filter(|_| !new.is_empty()) else { return };
        match journal.append(new) {
            Ok(file) => {
                open.journaled = open.rows.len();
                self.shared.pending().unsynced = Some(file);
                self.wake_flusher();
            }
            Err(error) => self.shared.report(&open.name, &error),
        }
    }

    /// Publishes the number of rows that wait in memory.
    fn count_backlog(&self) {
        let pending = self.shared.pending();
        let complete: usize = pending.waiting.iter().map(|rows| rows.rows.len()).sum();
        let open = self.open.as_ref().map_or(0, |open| open.rows.len() - open.journaled);
        self.shared.waiting_rows.store((complete + open) as u64, Ordering::Relaxed);
    }

    /// Completes the open file.
    fn close(&mut self) {
        self.write_journal();
        let Some(complete) = self.open.take() else { return };
        self.shared.pending().waiting.push_back(complete);
        self.wake_flusher();
    }

    /// Wakes the flusher; one that is awake checks once more by itself.
    fn wake_flusher(&self) {
        let _ = self.wake.try_send(());
    }

    /// Drops the oldest rows while they exceed the memory limit.
    fn make_room(&mut self) {
        let mut pending = self.shared.pending();
        let buffered_bytes = |pending: &Pending, open: &Option<FileRows>| {
            pending.waiting.iter().chain(open).map(|rows| rows.bytes).sum::<usize>()
        };
        while buffered_bytes(&pending, &self.open) > MAX_PENDING_BYTES {
            let Some(oldest) = pending.waiting.pop_front().or_else(|| self.open.take()) else {
                break;
            };
            // The next run finds the rows that are in a journal.
            self.shared
                .lost
                .fetch_add((oldest.rows.len() - oldest.journaled) as u64, Ordering::Relaxed);
            if oldest.journaled == 0 {
                let _ = oldest.journal.map(Journal::remove);
            }
        }
    }
}
