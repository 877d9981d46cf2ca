//! Outputs of records.
//!
//! # Data flow
//! Each output is a [`Sink`] that the controller, or a union of a lake,
//! passes records to; [`Tee`] passes them to several. Outputs take a measurement's fields and
//! figures from the record (`field`) and know no measurement by name.
//!
//! # Where to look
//! `table` for people with its columns in `layout`, `csv` for calculation, `json` for programs, both
//! with the `fields` of a record; `json` also for single delays, and `metrics` for Prometheus.
//! [`IdleWindows`] summarizes windows without traffic.

mod csv;
mod fields;
mod json;
mod layout;
pub(crate) mod metrics;
mod table;

pub use csv::Csv;
#[cfg(feature = "serve")]
pub(crate) use json::line;
pub use json::{DelaySampleLog, Json};
pub use metrics::{Metrics, proto};
pub use table::{Table, TableStyle, Times};

pub use crate::text::{counted, escaped, escaped_json, excerpt, grouped, scaled};

use crate::controller::{Sink, Summary};
use crate::identity::Identity;
use crate::measurement::delay::DelaySampleRecord;
use crate::record::{Record, RecordKind};
use flowgauge_dataplane::Dataplane;
use std::io::{self, Write};

/// Empty windows in a row that are passed on; later ones share a record.
const EMPTY_WINDOWS: u64 = 3;

/// Format of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns for people.
    #[default]
    Table,
    /// One line per record, with the columns of the thesis first.
    Csv,
    /// One JSON object per line.
    Json,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 3] = [Format::Table, Format::Csv, Format::Json];

    /// Returns the name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Csv => "csv",
            Format::Json => "json",
        }
    }

    /// Returns a sink that writes this format. `look` applies to the table, `origin` to CSV and
    /// JSON.
    pub fn sink<'a>(
        self,
        writer: impl Write + 'a,
        look: TableStyle,
        origin: Origin,
    ) -> Box<dyn Sink + 'a> {
        match self {
            Format::Table => Box::new(Table::new(writer, look)),
            Format::Csv => Box::new(Csv::new(writer, origin)),
            Format::Json => Box::new(Json::new(writer, origin)),
        }
    }
}

/// Origin of records, for formats that programs read.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Identity of the process that counted; `None` for unions, whose rows have several.
    pub identity: Option<Identity>,
    /// Whether JSON lines of windows have registers and sketches.
    pub sketches: bool,
    /// Whether CSV has no header.
    pub no_csv_header: bool,
}

/// Sink that passes every record to several sinks.
#[derive(Default)]
pub struct Tee<'a>(pub Vec<Box<dyn Sink + 'a>>);

impl Sink for Tee<'_> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.0.iter_mut().try_for_each(|sink| sink.record(record))
    }

    fn delay_samples(&mut self, samples: &[DelaySampleRecord<'_>]) -> io::Result<()> {
        self.0.iter_mut().try_for_each(|sink| sink.delay_samples(samples))
    }

    fn heartbeat(&mut self, dataplane: &dyn Dataplane, summary: &Summary) {
        self.0.iter_mut().for_each(|sink| sink.heartbeat(dataplane, summary));
    }
}

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
