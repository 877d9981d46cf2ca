//! Files of a lake in a directory: writes pending rows to them, and lists them.
//!
//! Rows become a Parquet file under a temporary name, which is renamed once it is synchronized.
//! Their journal is removed after that. If it is not, the next process either finds the file and
//! removes the journal, or writes the file. So no reader sees an incomplete file, and no row is in
//! two files.
//!
//! Other users can create entries of any kind in the directory; a listing opens none that leads out
//! of it.

use super::journal::{self, Journal};
use super::parquet;
use super::shared::{JOURNALS, LakeState, MAX_FILE_ROWS_BYTES, RETRY_INTERVAL};
use crate::row::{Row, Value};
use crate::text::counted;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use flowgauge_dataplane::files::{Directory, Entry};
use jiff::Timestamp;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum depth of directories. A lake has two.
const MAX_DEPTH: usize = 16;

pub(super) struct Flusher {
    pub(super) shared: Arc<LakeState>,
    /// Names of files of earlier runs in the directory of journals.
    pub(super) left: Vec<OsString>,
}

impl Flusher {
    /// Writes pending rows until the sender is dropped.
    pub(super) fn run(self, woken: &Receiver<()>) {
        self.finish_earlier_runs();
        while !matches!(woken.recv_timeout(RETRY_INTERVAL), Err(RecvTimeoutError::Disconnected)) {
            self.write_waiting();
        }
        self.write_waiting();
        let directory = self.shared.directory();
        for rows in std::mem::take(&mut self.shared.pending().waiting) {
            let unjournaled = rows.rows.len() - rows.journaled;
            let parts = [
                (rows.journaled, format!(" left in {JOURNALS} for the next run")),
                (unjournaled, " lost".to_owned()),
            ];
            let parts = parts.into_iter().filter(|(number, _)| *number > 0);
            let parts = parts.map(|(number, what)| counted(number as u64, "row") + &what);
            (self.shared.problems)(format!(
                "{directory}: {} could not be written: {}",
                rows.name,
                parts.collect::<Vec<_>>().join(", ")
            ));
        }
    }

    /// Synchronizes journals and writes complete files.
    fn write_waiting(&self) {
        let unsynced = self.shared.pending().unsynced.take();
        if let Some(Err(error)) = unsynced.map(|journal| journal.sync_data()) {
            self.shared.report("a journal", &error);
        }
        loop {
            let Some(rows) = self.shared.pending().waiting.pop_front() else { break };
            match place(&self.shared, &rows.name, &rows.partition, &rows.rows) {
                Ok(()) => {
                    self.shared.is_reported.store(false, Ordering::Relaxed);
                    if let Some(Err(error)) = rows.journal.map(Journal::remove) {
                        tracing::debug!(
                            "{}: the journal of {} stays: {error}",
                            self.shared.directory(),
                            rows.name
                        );
                    }
                }
                Err(error) => {
                    self.shared.report(&rows.name, &error);
                    self.shared.pending().waiting.push_front(rows);
                    break;
                }
            }
        }
    }

    fn finish_earlier_runs(&self) {
        for name in &self.left {
            let path = Path::new(name);
            let Some(stem) =
                path.file_stem().filter(|_| path.extension() == Some("journal".as_ref()))
            else {
                continue;
            };
            let finished = stem
                .to_str()
                .ok_or_else(|| io::Error::other("its name is no text in UTF-8"))
                .and_then(|stem| self.finish(stem));
            if let Err(error) = finished {
                let path = self.shared.journals.path().join(path);
                // Another user's agent that still runs keeps its journal to itself.
                if error.kind() == ErrorKind::PermissionDenied {
                    tracing::info!("{} is for its own user to finish: {error}", path.display());
                    continue;
                }
                (self.shared.problems)(format!(
                    "cannot finish what an earlier run left in {}: {error}",
                    path.display()
                ));
            }
        }
    }

    fn finish(&self, name: &str) -> io::Result<()> {
        let LakeState { root, journals, .. } = &*self.shared;
        let journal = format!("{name}.journal");
        let Some(left) = journal::left(journals, &journal, MAX_FILE_ROWS_BYTES)? else {
            return Ok(());
        };
        let directory = self.shared.directory();
        if let Some(first) = left.rows.first() {
            let partition = partition(begin(first));
            if !root.contains(format!("{partition}/{name}.parquet"))? {
                place(&self.shared, name, &partition, &left.rows)?;
                let rows = counted(left.rows.len() as u64, "row");
                tracing::info!(
                    "{directory}: {rows} of an earlier run are in {partition}/{name}.parquet now"
                );
            }
        }
        if left.is_cut {
            tracing::warn!("{directory}: the row that {name} was writing when it ended is lost");
        }
        if left.damaged == 0 {
            return journals.remove(&journal);
        }
        let aside = format!("{name}.damaged");
        journals.rename(&journal, &left.lock, journals, &aside)?;
        let broken = left.broken.map_or_else(String::new, |law| {
            format!(", one with values that no window can have: {law}")
        });
        (self.shared.problems)(format!(
            "{directory}: {JOURNALS}/{name}.journal was damaged at {}: {} of it kept, at least {} lost{broken}; the file is {} now",
            counted(left.damaged, "place"),
            counted(left.rows.len() as u64, "row"),
            left.damaged,
            journals.path().join(aside).display()
        ));
        Ok(())
    }
}

/// Returns the start of a row's window, in microseconds.
pub(super) fn begin(row: &Row) -> i64 {
    if let Some(Value::Time(time)) = row.get("time") { *time } else { 0 }
}

/// Returns the directory of a time: `date=2026-11-23/hour=14`, UTC.
pub(super) fn partition(microseconds: i64) -> String {
    let time = Timestamp::from_microsecond(microseconds).unwrap_or_default();
    time.strftime("date=%Y-%m-%d/hour=%H").to_string()
}

/// Writes a synchronized file, which appears under its name only when it is complete.
fn place(shared: &LakeState, name: &str, partition: &str, rows: &[Row]) -> io::Result<()> {
    let LakeState { root, journals, .. } = shared;
    let bytes = parquet::write(rows, &super::about()).map_err(io::Error::other)?;
    let temporary = format!("{name}.tmp");
    let mut file = journals.create_temporary(&temporary)?;
    let written = file.write_all(&bytes).and_then(|()| file.sync_all());
    let rename = || {
        let directory = root.create_below(partition)?;
        journals.rename(&temporary, &file, &directory, &format!("{name}.parquet"))?;
        Ok(directory)
    };
    // An upload into a store removes empty directories.
    let placed =
        written.and_then(|()| {
            rename().or_else(|error: io::Error| {
                if error.kind() == ErrorKind::NotFound { rename() } else { Err(error) }
            })
        });
    if placed.is_err() {
        let _ = journals.remove(&temporary);
    }
    placed?.sync()
}

/// Files of a lake, and the entries that are not read.
#[derive(Default)]
pub(super) struct Listing {
    /// Names of the files, relative to the directory, sorted.
    pub(super) names: Vec<PathBuf>,
    /// Symbolic links and directories that cannot be read, with the reason.
    pub(super) refused: Vec<(PathBuf, io::Error)>,
}

impl Listing {
    /// Searches a directory for `.parquet` files without a hidden name. Directories that are not
    /// wanted, by their path, or were visited already are skipped.
    pub(super) fn new(
        root: &Directory,
        visited: &mut HashSet<(u64, u64)>,
        is_wanted: impl Fn(&Path) -> bool,
    ) -> Self {
        let mut listing = Listing::default();
        let mut left = vec![PathBuf::new()];
        while let Some(below) = left.pop() {
            let entries = match entries(root, &below, visited) {
                Ok(entries) => entries,
                // A concurrent upload removes empty directories.
                Err(error) if error.kind() == ErrorKind::NotFound && below != Path::new("") => {
                    continue;
                }
                Err(error) => {
                    listing.refused.push((root.path().join(below), error));
                    continue;
                }
            };
            for entry in entries.iter().filter(|entry| !is_hidden(&entry.name)) {
                let name = below.join(&entry.name);
                let path = root.path().join(&name);
                let is_file = name.extension().is_some_and(|it| it == "parquet");
                if entry.kind.is_symlink() {
                    // It may lead to a directory with files.
                    if is_file || is_wanted(&path) {
                        listing.refused.push((path, root.link_error(name)));
                    }
                } else if entry.kind.is_dir() {
                    if name.components().count() > MAX_DEPTH {
                        let problem =
                            format!("it is more than {MAX_DEPTH} directories deep in the lake");
                        listing.refused.push((path, io::Error::other(problem)));
                    } else if is_wanted(&path) {
                        left.push(name);
                    }
                } else if is_file {
                    listing.names.push(name);
                }
            }
        }
        listing.names.sort();
        listing.refused.sort_by(|(one, _), (other, _)| one.cmp(other));
        listing
    }
}

fn entries(
    root: &Directory,
    below: &Path,
    visited: &mut HashSet<(u64, u64)>,
) -> io::Result<Vec<Entry>> {
    let opened;
    let directory = if below == Path::new("") {
        root
    } else {
        opened = root.below(below)?;
        &opened
    };
    if visited.insert(directory.id()?) { directory.entries() } else { Ok(Vec::new()) }
}

fn is_hidden(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(['.', '_'])
}
