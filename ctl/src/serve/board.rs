//! What happened last, for pages that look on: figures of windows as JSON, up to an amount of memory.

use crate::controller::Sink;
use crate::figure::Figures;
use crate::record::{Kind, Record};
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Windows that are kept take at most so many bytes.
const ROOM: usize = 32 << 20;
/// So many are kept at most.
const MOST: usize = 7200;

/// A window, as pages get it.
#[derive(Serialize)]
struct Event<'a> {
    /// Counts up, whatever source it is of.
    id: u64,
    source: &'a str,
    direction: &'a str,
    /// Whether this is one of several places, which another window has together.
    part: bool,
    backend: &'a str,
    window: u64,
    /// In seconds since the Unix epoch, or since the trace began.
    start: f64,
    end: f64,
    complete: bool,
    late_ns: u64,
    figures: &'a [crate::figure::Figure],
}

/// Windows that were closed last; clones are of the same run.
#[derive(Clone)]
pub struct Board {
    kept: Arc<Mutex<Kept>>,
    newest: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<(u64, Arc<str>)>,
    bytes: usize,
    next: u64,
}

impl Default for Board {
    fn default() -> Self {
        Board { kept: Arc::default(), newest: watch::Sender::new(0) }
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
        let Figures(figures) = record.figures();
        let mut kept = self.kept();
        let id = kept.next;
        let event = Event {
            id,
            source: &record.origin(),
            direction: record.direction,
            part: record.part,
            backend: record.backend,
            window: record.window,
            start: record.start_ns as f64 / 1e9,
            end: record.end_ns as f64 / 1e9,
            complete: record.complete,
            late_ns: record.late_ns,
            figures: &figures,
        };
        let event: Arc<str> = serde_json::to_string(&event)?.into();
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
