//! Summary of idle windows in a live run.

use crate::controller::{Sink, Summary};
use crate::record::{Record, RecordKind};
use flowgauge_dataplane::Dataplane;
use std::io;

/// Empty windows in a row that are passed on; later ones share a record.
const EMPTY_WINDOWS: u64 = 3;

/// Sink that joins windows without packets and losses into one record: a night without traffic
/// takes a line of the table. It is written when packets arrive again, or at the end.
pub struct IdleWindows<S> {
    sink: S,
    /// Records of the places of one window, which precede the record of all.
    parts: Vec<Record>,
    /// Number of empty windows in a row.
    empty: u64,
    /// Record of the empty windows that were not passed on.
    silence: Option<Record>,
}

impl<S: Sink> IdleWindows<S> {
    /// Passes records to `sink`.
    pub fn new(sink: S) -> Self {
        IdleWindows { sink, parts: Vec::new(), empty: 0, silence: None }
    }

    fn pass_on(&mut self, record: &Record) -> io::Result<()> {
        self.empty = 0;
        if let Some(silence) = self.silence.take() {
            self.sink.record(&silence)?;
        }
        self.parts.drain(..).try_for_each(|part| self.sink.record(&part))?;
        self.sink.record(record)
    }
}

fn is_empty(record: &Record) -> bool {
    record.counters.seen() == 0
        && record.drops.total() == 0
        && record.ledger.is_none_or(|ledger| ledger.unaccounted == 0)
        && record.late == 0
        && record.alerts.iter().all(|alert| !alert.firing)
        && record.last_window.is_none()
}

impl<S: Sink> Sink for IdleWindows<S> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.part && record.kind != RecordKind::Total {
            // Registers are released, so that the dataplane can reuse their memory.
            self.parts.push(Record { counted: None, ..record.clone() });
            return Ok(());
        }
        if !is_empty(record) || !record.complete || record.kind != RecordKind::Window {
            let shown = self.empty <= EMPTY_WINDOWS
                || !is_empty(record)
                || record.kind != RecordKind::Sample;
            if shown {
                // A sample does not end the silence; its window may.
                let empty = if record.kind == RecordKind::Sample && is_empty(record) {
                    self.empty
                } else {
                    0
                };
                self.pass_on(record)?;
                self.empty = empty;
            }
            self.parts.clear();
            return Ok(());
        }
        self.empty += 1;
        if self.empty <= EMPTY_WINDOWS {
            let empty = self.empty;
            self.pass_on(record)?;
            self.empty = empty;
            return Ok(());
        }
        self.parts.clear();
        let silence = self.silence.get_or_insert_with(|| Record {
            kind: RecordKind::Silence,
            counted: None,
            ..record.clone()
        });
        (silence.last_window, silence.end_ns) = (Some(record.window), record.end_ns);
        Ok(())
    }

    fn heartbeat(&mut self, dataplane: &dyn Dataplane, summary: &Summary) {
        self.sink.heartbeat(dataplane, summary);
    }
}
