//! What happened last, for pages that look on: figures of windows as JSON, up to an amount of memory.

use super::event::event;
use crate::controller::Sink;
use crate::record::{Kind, Record};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Windows that are kept take at most so many bytes.
const ROOM: usize = 32 << 20;
/// So many are kept at most.
const MOST: usize = 7200;

/// Windows that were closed last; clones are of the same run.
#[derive(Clone)]
pub struct Board {
    kept: Arc<Mutex<Kept>>,
    newest: watch::Sender<u64>,
    /// Tells this run's windows from those of another one at the same address.
    run: u64,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<(u64, Arc<str>)>,
    bytes: usize,
    next: u64,
}

impl Default for Board {
    fn default() -> Self {
        let run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        Board { kept: Arc::default(), newest: watch::Sender::new(0), run }
    }
}

impl Board {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes with every window.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
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
        let kept = self.kept();
        let from = id.map_or(0, |id| kept.events.partition_point(|(it, _)| *it <= id));
        let from = from.max(kept.events.len().saturating_sub(most));
        kept.events.range(from..).cloned().collect()
    }
}

impl Sink for Board {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind != Kind::Window {
            return Ok(());
        }
        let mut kept = self.kept();
        let id = kept.next;
        let event: Arc<str> = event(id, record)?.into();
        kept.next += 1;
        kept.bytes += event.len();
        kept.events.push_back((id, event));
        while kept.bytes > ROOM || kept.events.len() > MOST {
            let Some((_, oldest)) = kept.events.pop_front() else { break };
            kept.bytes -= oldest.len();
        }
        drop(kept);
        self.newest.send_replace(id);
        Ok(())
    }
}
