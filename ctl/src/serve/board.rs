//! Recent windows for the live page: their figures as JSON, in bounded memory.

use super::event::event;
use super::kept::RecentItems;
use crate::clock::unix_ns;
use crate::controller::Sink;
use crate::history::History;
use crate::names::Names;
use crate::record::{Record, RecordKind};
use std::io;
use std::sync::Arc;

/// Maximum memory for the stored windows, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// Maximum number of stored windows.
const MAX_WINDOWS: usize = 7200;

/// Recently closed windows; clones share them.
#[derive(Clone)]
pub struct Board {
    pub(super) kept: RecentItems<Arc<str>>,
    /// Start time of the run, which distinguishes its windows from those of another run at the same
    /// address.
    run: u64,
    names: Names,
    history: History,
}

impl Default for Board {
    fn default() -> Self {
        Board {
            kept: RecentItems::new(MAX_BYTES, MAX_WINDOWS),
            run: unix_ns(),
            names: Names::default(),
            history: History::default(),
        }
    }
}

impl Board {
    /// Returns a clone that names the addresses of the windows that it stores, and takes what is
    /// usual from the history of their source.
    #[must_use]
    pub fn of_source(&self, names: Names, history: History) -> Self {
        Board { names, history, ..self.clone() }
    }

    /// Returns the run's identifier, by which a page detects a restart.
    pub(super) fn run(&self) -> String {
        format!("{:x}", self.run)
    }

    /// Returns a window's event ID, which pages send back when they reconnect.
    pub(super) fn name(&self, id: u64) -> String {
        format!("{:x}.{id}", self.run)
    }

    /// Returns the number of the window that an event ID names, if it is one of this run.
    pub(super) fn named(&self, name: &str) -> Option<u64> {
        let (run, id) = name.split_once('.')?;
        (u64::from_str_radix(run, 16) == Ok(self.run)).then(|| id.parse().ok())?
    }

    /// Returns the windows after `id`, the oldest first; of more than `most`, the newest.
    pub(super) fn after(&self, id: Option<u64>, most: usize) -> Vec<(u64, Arc<str>)> {
        self.kept.last(id.map_or(0, |id| id.saturating_add(1)), most)
    }
}

impl Sink for Board {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind != RecordKind::Window {
            return Ok(());
        }
        let Board { kept, names, history, .. } = self;
        kept.push(|id| {
            let event: Arc<str> = event(id, record, names, history)?.into();
            let bytes = event.len();
            Ok((event, bytes))
        })
    }
}
