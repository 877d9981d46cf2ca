//! Outputs of records.
//!
//! # Data flow
//! Each output is a [`Sink`] that the controller, or a union of a lake,
//! passes records to; [`Tee`] passes them to several. Outputs take a measurement's fields and
//! figures from the record (`field`) and know no measurement by name.
//!
//! # Where to look
//! `table` for people with its columns in `layout`, `csv` for calculation, `json` for programs, both
//! with the `fields` of a record; `delay_samples` for single delays, and `metrics` for Prometheus.
//! `idle` summarizes windows without traffic.

mod csv;
mod delay_samples;
mod fields;
mod idle;
mod json;
mod layout;
pub(crate) mod metrics;
mod table;

pub use csv::Csv;
pub use delay_samples::DelaySampleLog;
pub use idle::IdleWindows;
pub use json::Json;
#[cfg(feature = "serve")]
pub(crate) use json::line;
pub use metrics::{Metrics, proto};
pub use table::{Table, TableStyle, Times};

pub use crate::text::{counted, escaped, escaped_json, excerpt, grouped, scaled};

use crate::controller::{Sink, Summary};
use crate::identity::Identity;
use crate::measurement::delay::DelaySampleRecord;
use crate::record::Record;
use flowgauge_dataplane::Dataplane;
use std::io::{self, Write};

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
