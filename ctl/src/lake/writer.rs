//! Writes rows into a directory: `date=2026-11-23/hour=14/HOST-RUN-000001.parquet`.
//!
//! A thread of its own writes, so that no window waits for a disk. Every row goes to a journal first, which survives a crash. When an hour is over, or a
//! file is long or old enough, its rows become a Parquet file: under a temporary name, then, when it is on disk, under its own. The journal is
//! removed after that; if it is not, whoever starts next finds the file there and removes it, or writes the file. So no reader sees a broken file,
//! and no row is in two.
//!
//! What cannot be written for lack of room waits in memory, up to a bound. Beyond it the oldest rows are lost, which is told at once, at the end, and in all
//! rows that come after them (`lost_rows`).

use super::carrier::Carrier;
use super::identity::{Identity, SCHEMA};
use super::journal::{self, Journal};
use super::row::{Row, Value};
use super::store::Store;
use super::{parquet, row};
use crate::controller::Sink;
use crate::record::{Kind, Record};
use crate::text::{counted, storage};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Rows on their way to the thread that writes.
const QUEUE: usize = 1024;
/// Rows that go to the journal at once.
const TOGETHER: usize = 256;
/// How often it is tried again to write what could not be written.
const AGAIN: Duration = Duration::from_secs(1);
/// Where journals are, out of the way of engines.
const JOURNALS: &str = ".journal";

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
    /// Files of an hour or 32 MiB; 128 MiB may wait in memory, and 1 GiB on disk for a store.
    #[must_use]
    pub fn new(directory: PathBuf, identity: Identity) -> Self {
        Settings {
            directory,
            identity,
            longest: Duration::from_secs(3600),
            largest: 32 << 20,
            room: 128 << 20,
            buffer: 1 << 30,
            patient: false,
        }
    }
}

/// What is told of problems, as they come.
pub type Problems = Arc<dyn Fn(String) + Send + Sync>;

/// Writes windows into a lake. When it is dropped, all of them are on disk, or it was told why not.
pub struct Lake {
    rows: Option<Sender<Row>>,
    writer: Option<JoinHandle<()>>,
    /// Who carries files into a store, until the sender is gone.
    carrier: Option<(Sender<()>, JoinHandle<()>)>,
    identity: Identity,
    patient: bool,
    lost: Arc<AtomicU64>,
    /// Whether packets are counted at several places, each of which has rows of its own.
    places: bool,
}

impl Lake {
    /// Begins to write; what earlier processes left unfinished is finished first. With a store, files go there as they are complete, and wait in the directory
    /// while it is away.
    ///
    /// # Errors
    /// If there is no such directory and none can be made, or nothing can be written in it.
    pub fn start(settings: Settings, store: Option<Store>, problems: Problems) -> io::Result<Self> {
        fs::create_dir_all(settings.directory.join(JOURNALS))?;
        let (rows, received) = bounded(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let (identity, patient) = (settings.identity.clone(), settings.patient);
        let carrier = store.map(|store| Carrier {
            buffer: settings.directory.clone(),
            store,
            room: settings.buffer,
            problems: Arc::clone(&problems),
            lost: Arc::clone(&lost),
            is_told: false,
        });
        let writer =
            Writer { settings, problems, lost: Arc::clone(&lost), number: 0, open: None, waiting: VecDeque::new(), is_told: false };
        // The first journal shows whether the directory can be written in.
        let probe = writer.journals().join(format!("{}.probe", writer.name(0)));
        File::create(&probe).and_then(|_| fs::remove_file(&probe))?;
        let writer = std::thread::Builder::new().name("lake".to_owned()).spawn(move || writer.run(&received))?;
        let carrier = carrier.map(|carrier| -> io::Result<_> {
            let (end, ended) = bounded(0);
            let carrier = std::thread::Builder::new().name("lake-store".to_owned()).spawn(move || carrier.run(&ended))?;
            Ok((end, carrier))
        });
        let carrier = carrier.transpose()?;
        Ok(Lake { rows: Some(rows), writer: Some(writer), carrier, identity, patient, lost, places: false })
    }
}

impl Sink for Lake {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind != Kind::Window {
            return Ok(());
        }
        // All together would count the packets of each place twice.
        self.places |= record.part;
        if self.places && !record.part {
            return Ok(());
        }
        let Some(row) = row(record, &self.identity, self.lost.load(Ordering::Relaxed)) else { return Ok(()) };
        let Some(rows) = &self.rows else { return Ok(()) };
        let is_sent = if self.patient { rows.send(row).is_ok() } else { rows.try_send(row).is_ok() };
        if !is_sent {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Lake {
    fn drop(&mut self) {
        self.rows = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        if let Some((end, carrier)) = self.carrier.take() {
            drop(end);
            let _ = carrier.join();
        }
    }
}

/// Rows that become one file.
struct Rows {
    name: String,
    /// Directory below the lake's.
    partition: String,
    rows: Vec<Row>,
    bytes: usize,
    /// When the first row begins, in microseconds.
    begin: i64,
    /// Nothing if it could not be made: then a crash loses the rows.
    journal: Option<Journal>,
    /// How many rows are in the journal.
    kept: usize,
}

struct Writer {
    settings: Settings,
    problems: Problems,
    lost: Arc<AtomicU64>,
    number: u64,
    open: Option<Rows>,
    waiting: VecDeque<Rows>,
    /// Whether it was told that something cannot be written, since when nothing was.
    is_told: bool,
}

impl Writer {
    fn run(mut self, rows: &Receiver<Row>) {
        self.finish_what_others_left();
        let mut seen = 0;
        loop {
            let first = match rows.recv_timeout(AGAIN) {
                Ok(row) => Some(row),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            for row in first.into_iter().chain(rows.try_iter()).take(TOGETHER) {
                self.add(row);
            }
            self.keep();
            self.write_waiting();
            let lost = self.lost.load(Ordering::Relaxed);
            if lost > std::mem::replace(&mut seen, lost) {
                (self.problems)(format!(
                    "{}: {} lost so far, which the rows after them tell",
                    self.directory(),
                    counted(lost, "row")
                ));
            }
        }
        self.close();
        self.write_waiting();
        for rows in std::mem::take(&mut self.waiting) {
            let unkept = rows.rows.len() - rows.kept;
            let kept = if rows.kept > 0 {
                format!("{} wait in {JOURNALS} for the next run", counted(rows.kept as u64, "row"))
            } else {
                String::new()
            };
            let lost = if unkept > 0 { format!("{} are lost", counted(unkept as u64, "row")) } else { String::new() };
            let both = if kept.is_empty() || lost.is_empty() { "" } else { ", " };
            (self.problems)(format!("{}: {} could not be written: {kept}{both}{lost}", self.directory(), rows.name));
        }
    }

    fn directory(&self) -> impl std::fmt::Display + '_ {
        self.settings.directory.display()
    }

    fn journals(&self) -> PathBuf {
        self.settings.directory.join(JOURNALS)
    }

    fn name(&self, number: u64) -> String {
        let Identity { host, run } = &self.settings.identity;
        let safe = |text: &str| -> String {
            text.chars().map(|it| if it.is_ascii_alphanumeric() || it == '.' { it } else { '_' }).collect()
        };
        format!("{}-{}-{number:06}", safe(host), safe(run))
    }

    fn add(&mut self, row: Row) {
        let (begin, size) = (begin(&row), row.size());
        let partition = partition(begin);
        let longest = i64::try_from(self.settings.longest.as_micros()).unwrap_or(i64::MAX);
        // Rows of one file have the same columns.
        let fits = |open: &Rows| {
            open.partition == partition
                && begin.saturating_sub(open.begin) < longest
                && open.bytes + size <= self.settings.largest
                && open
                    .rows
                    .first()
                    .is_none_or(|first| first.columns().map(|(name, _)| name).eq(row.columns().map(|(name, _)| name)))
        };
        if !self.open.as_ref().is_some_and(fits) {
            self.close();
        }
        let open = self.open.take().unwrap_or_else(|| self.begin(begin, partition));
        let open = self.open.insert(open);
        open.bytes += size;
        open.rows.push(row);
    }

    fn begin(&mut self, begin: i64, partition: String) -> Rows {
        let directory = self.settings.directory.join(&partition);
        // A run that was given the name of an earlier one overwrites none of its files.
        while directory.join(format!("{}.parquet", self.name(self.number))).exists() {
            self.number += 1;
        }
        let name = self.name(self.number);
        self.number += 1;
        let journal = Journal::create(self.journals().join(format!("{name}.journal")));
        let journal = journal.map_err(|error| self.tell(&name, &error)).ok();
        Rows { name, partition, rows: Vec::new(), bytes: 0, begin, journal, kept: 0 }
    }

    /// Says once that something cannot be written.
    fn tell(&mut self, name: &str, error: &io::Error) {
        if !std::mem::replace(&mut self.is_told, true) {
            let room = storage(self.settings.room as u64);
            (self.problems)(format!("{}: cannot write {name}: {error}; up to {room} of rows wait in memory", self.directory()));
        }
    }

    /// Has new rows survive a crash.
    fn keep(&mut self) {
        let Some(open) = &mut self.open else { return };
        let new = open.rows.get(open.kept..).unwrap_or_default();
        let Some(journal) = open.journal.as_mut().filter(|_| !new.is_empty()) else { return };
        match journal.append(new) {
            Ok(()) => open.kept = open.rows.len(),
            Err(error) => {
                let name = open.name.clone();
                self.tell(&name, &error);
            }
        }
    }

    /// The open file is complete.
    fn close(&mut self) {
        self.keep();
        self.waiting.extend(self.open.take());
    }

    /// Writes what is complete, and gives up what there is no room for.
    fn write_waiting(&mut self) {
        while let Some(rows) = self.waiting.pop_front() {
            match place(&self.settings, &rows.name, &rows.partition, &rows.rows) {
                Ok(()) => {
                    self.is_told = false;
                    if let Some(Err(error)) = rows.journal.map(Journal::remove) {
                        tracing::debug!("{}: the journal of {} stays: {error}", self.directory(), rows.name);
                    }
                }
                Err(error) => {
                    self.tell(&rows.name, &error);
                    self.waiting.push_front(rows);
                    break;
                }
            }
        }
        let held = |it: &Self| it.waiting.iter().chain(&it.open).map(|rows| rows.bytes).sum::<usize>();
        while held(self) > self.settings.room {
            let Some(oldest) = self.waiting.pop_front().or_else(|| self.open.take()) else { break };
            // What is in a journal is found by the next run.
            self.lost.fetch_add((oldest.rows.len() - oldest.kept) as u64, Ordering::Relaxed);
            if oldest.kept == 0 {
                let _ = oldest.journal.map(Journal::remove);
            }
        }
    }

    fn finish_what_others_left(&mut self) {
        let journals = self.journals();
        let found = fs::read_dir(&journals).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in found.filter(|path| path.extension().is_some_and(|it| it == "journal")) {
            if let Err(error) = self.finish(&path) {
                (self.problems)(format!("cannot finish what an earlier run left in {}: {error}", path.display()));
            }
        }
    }

    fn finish(&self, path: &Path) -> io::Result<()> {
        let Some(left) = journal::left(path)? else { return Ok(()) };
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if let Some(first) = left.rows.first() {
            let partition = partition(begin(first));
            let is_there = self.settings.directory.join(&partition).join(format!("{name}.parquet")).exists();
            if !is_there {
                place(&self.settings, &name, &partition, &left.rows)?;
                tracing::info!(
                    "{}: {} of an earlier run are in {partition}/{name}.parquet now",
                    self.directory(),
                    counted(left.rows.len() as u64, "row")
                );
            }
        }
        if left.rest > 0 {
            tracing::warn!("{}: the row that {name} was writing when it ended is lost", self.directory());
        }
        fs::remove_file(path)
    }
}

/// Start of a row's window, in microseconds.
fn begin(row: &Row) -> i64 {
    if let Some(Value::Time(time)) = row.get("time") { *time } else { 0 }
}

/// The directory of a time: `date=2026-11-23/hour=14`, UTC.
fn partition(microseconds: i64) -> String {
    let time = Timestamp::from_microsecond(microseconds).unwrap_or_default();
    time.strftime("date=%Y-%m-%d/hour=%H").to_string()
}

/// Writes a file that is seen when it is whole, and on disk.
fn place(settings: &Settings, name: &str, partition: &str, rows: &[Row]) -> io::Result<()> {
    let about = [("flowgauge.schema", SCHEMA.to_string()), ("flowgauge.version", env!("CARGO_PKG_VERSION").to_owned())];
    let bytes = parquet::write(rows, &about).map_err(io::Error::other)?;
    let directory = settings.directory.join(partition);
    let temporary = settings.directory.join(JOURNALS).join(format!("{name}.tmp"));
    let written = File::create(&temporary).and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
    let rename = || fs::create_dir_all(&directory).and_then(|()| fs::rename(&temporary, directory.join(format!("{name}.parquet"))));
    // Whoever carries files into a store removes directories that are empty.
    let placed =
        written.and_then(|()| rename().or_else(|error| if error.kind() == ErrorKind::NotFound { rename() } else { Err(error) }));
    if placed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    placed?;
    match File::open(&directory) {
        // It was carried away already.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        opened => opened?.sync_all(),
    }
}
