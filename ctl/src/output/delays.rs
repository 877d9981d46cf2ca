//! Delays one by one, as JSON lines.

use crate::controller::Sink;
use crate::measurement::delay::Sample;
use crate::record::{Kind, Record};
use serde::Serialize;
use std::io::{self, Write};

/// One JSON object a delay, and one a window, which says how many delays there were and how many are missing.
pub struct DelayLog<W>(W);

/// A line of a window.
#[derive(Serialize)]
struct Window {
    record: &'static str,
    window: u64,
    start_ns: u64,
    end_ns: u64,
    samples: u64,
    missing: u64,
}

impl<W: Write> DelayLog<W> {
    /// Writes to `writer`.
    pub fn new(writer: W) -> Self {
        DelayLog(writer)
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.0, line)?;
        self.0.write_all(b"\n")
    }
}

impl DelayLog<Vec<u8>> {
    /// Takes what was written since the last time.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl<W: Write> Sink for DelayLog<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let Some(delays) = record.reports.delay.as_ref().filter(|_| record.kind == Kind::Window && !record.part) else {
            return Ok(());
        };
        let missing = delays.together().map(|delay| delay.counts.unsampled).sum();
        let counted: u64 = delays.together().map(|delay| delay.answers()).sum();
        let Record { window, start_ns, end_ns, .. } = *record;
        let samples = counted.saturating_sub(missing);
        self.line(&Window { record: record.kind.name(), window, start_ns, end_ns, samples, missing })?;
        self.0.flush()
    }

    fn delays(&mut self, delays: &[Sample<'_>]) -> io::Result<()> {
        delays.iter().try_for_each(|delay| self.line(delay))?;
        self.0.flush()
    }
}
