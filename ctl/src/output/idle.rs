//! Summary of idle windows in a live run.

use crate::controller::{Sink, Summary};
use crate::record::{Record, RecordKind};
use flowgauge_dataplane::Dataplane;
use std::io;

/// Empty windows in a row that are passed on; later ones share a record.
const EMPTY_WINDOWS: u64 = 3;

/// Sink that joins windows without packets and losses into one record: a night without traffic
/// takes a line of the table. It is written when packets arrive again, or at the end.
pub struct IdleWindows<'a> {
    sink: Box<dyn Sink + 'a>,
    /// Records of the places of one window, which precede the record of all.
    parts: Vec<Record>,
    /// Number of empty windows in a row.
    empty: u64,
    /// Record of the empty windows that were not passed on.
    silence: Option<Record>,
}

impl<'a> IdleWindows<'a> {
    /// Passes records to `sink`.
    pub fn new(sink: Box<dyn Sink + 'a>) -> Self {
        IdleWindows { sink, parts: Vec::new(), empty: 0, silence: None }
    }

    fn pass_on(&mut self, record: &Record) -> io::Result<()> {
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

impl Sink for IdleWindows<'_> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.part && record.kind != RecordKind::Total {
            // Registers are released, so that the dataplane can reuse their memory.
            self.parts.push(Record { counted: None, ..record.clone() });
            return Ok(());
        }
        let is_idle = is_empty(record);
        if !is_idle || !record.complete || record.kind != RecordKind::Window {
            // A sample does not end the silence; its window may.
            if !is_idle || record.kind != RecordKind::Sample {
                self.empty = 0;
            } else if self.empty > EMPTY_WINDOWS {
                self.parts.clear();
                return Ok(());
            }
            return self.pass_on(record);
        }
        self.empty += 1;
        if self.empty <= EMPTY_WINDOWS {
            return self.pass_on(record);
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
