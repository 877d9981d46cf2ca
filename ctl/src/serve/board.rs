//! What happened last, for pages that look on: figures of windows as JSON, up to an amount of
//! memory.

use super::event::event;
use super::kept::Kept;
use crate::controller::Sink;
use crate::record::{Kind, Record};
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Windows that are kept take at most so many bytes.
const ROOM: usize = 32 << 20;
/// So many are kept at most.
const MOST: usize = 7200;

/// Windows that were closed last; clones are of the same run.
#[derive(Clone)]
pub struct Board {
    kept: Kept<Arc<str>>,
    /// Tells this run's windows from those of another one at the same address.
    run: u64,
}

impl Default for Board {
    fn default() -> Self {
        let run =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        Board { kept: Kept::new(ROOM, MOST), run }
    }
}

impl Board {
    /// Changes with every window.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.kept.newest()
    }

    /// Which run it is, for pages that outlive it.
    pub(super) fn run(&self) -> String {
        format!("{:x}", self.run)
    }

    /// A window's number as pages give it back.
    pub(super) fn name(&self, id: u64) -> String {
        format!("{:x}.{id}", self.run)
    }

    /// Which window a page had last, if it is one of this run.
    pub(super) fn named(&self, name: &str) -> Option<u64> {
        let (run, id) = name.split_once('.')?;
        (u64::from_str_radix(run, 16) == Ok(self.run)).then(|| id.parse().ok())?
    }

    /// Windows after one, the oldest first; at most so many, which are the last.
    pub(super) fn after(&self, id: Option<u64>, most: usize) -> Vec<(u64, Arc<str>)> {
        self.kept.last(id.map_or(0, |id| id.saturating_add(1)), most)
    }
}

impl Sink for Board {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind != Kind::Window {
            return Ok(());
        }
        self.kept.push(|id| {
            let event: Arc<str> = event(id, record)?.into();
            let bytes = event.len();
            Ok((event, bytes))
        })
    }
}
