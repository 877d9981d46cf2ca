//! Writes pending rows of a lake to disk.
//!
//! Rows become a Parquet file under a temporary name, which is renamed once it is synchronized.
//! Their journal is removed after that. If it is not, the next process either finds the file and
//! removes the journal, or writes the file. So no reader sees an incomplete file, and no row is in
//! two files.

use super::journal::{self, Journal};
use super::parquet;
use super::shared::{JOURNALS, LakeState, RETRY_INTERVAL, Settings};
use crate::row::{Row, Value};
use crate::text::counted;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use jiff::Timestamp;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) struct Flusher {
    pub(super) shared: Arc<LakeState>,
    /// Files of earlier runs, including their journals.
    pub(super) left: Vec<PathBuf>,
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
            let unkept = rows.rows.len() - rows.kept;
            let kept = if rows.kept > 0 {
                format!("{} left in {JOURNALS} for the next run", counted(rows.kept as u64, "row"))
            } else {
                String::new()
            };
            let lost = if unkept > 0 {
                format!("{} lost", counted(unkept as u64, "row"))
            } else {
                String::new()
            };
            let both = if kept.is_empty() || lost.is_empty() { "" } else { ", " };
            (self.shared.problems)(format!(
                "{directory}: {} could not be written: {kept}{both}{lost}",
                rows.name
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
            match place(&self.shared.settings, &rows.name, &rows.partition, &rows.rows) {
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
        for path in
            self.left.iter().filter(|path| path.extension().is_some_and(|it| it == "journal"))
        {
            if let Err(error) = self.finish(path) {
                (self.shared.problems)(format!(
                    "cannot finish what an earlier run left in {}: {error}",
                    path.display()
                ));
            }
        }
    }

    fn finish(&self, path: &Path) -> io::Result<()> {
        let Some(left) = journal::left(path)? else { return Ok(()) };
        let (name, directory) =
            (path.file_stem().unwrap_or_default().to_string_lossy(), self.shared.directory());
        if let Some(first) = left.rows.first() {
            let partition = partition(begin(first));
            let is_there = self
                .shared
                .settings
                .directory
                .join(&partition)
                .join(format!("{name}.parquet"))
                .exists();
            if !is_there {
                place(&self.shared.settings, &name, &partition, &left.rows)?;
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
            return fs::remove_file(path);
        }
        let aside = path.with_extension("damaged");
        fs::rename(path, &aside)?;
        (self.shared.problems)(format!(
            "{directory}: {JOURNALS}/{name}.journal was damaged at {}: {} of it kept, at least {} lost; the file is {} now",
            counted(left.damaged, "place"),
            counted(left.rows.len() as u64, "row"),
            left.damaged,
            aside.display()
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
fn place(settings: &Settings, name: &str, partition: &str, rows: &[Row]) -> io::Result<()> {
    let bytes = parquet::write(rows, &super::about()).map_err(io::Error::other)?;
    let directory = settings.directory.join(partition);
    let temporary = settings.directory.join(JOURNALS).join(format!("{name}.tmp"));
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
    let rename = || {
        fs::create_dir_all(&directory)
            .and_then(|()| fs::rename(&temporary, directory.join(format!("{name}.parquet"))))
    };
    // An upload into a store removes empty directories.
    let placed = written.and_then(|()| {
        rename().or_else(
            |error| if error.kind() == ErrorKind::NotFound { rename() } else { Err(error) },
        )
    });
    if placed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    placed?;
    match File::open(&directory) {
        // The file was uploaded already.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        opened => opened?.sync_all(),
    }
}
