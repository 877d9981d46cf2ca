//! JSON lines of records and of delay samples. Keys are part of the interface: they may be added,
//! but not renamed.

use super::{Origin, fields};
use crate::controller::Sink;
use crate::measurement::MeasurementFields;
use crate::measurement::delay::DelaySampleRecord;
use crate::record::{Record, RecordKind};
use crate::text::optional;
use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// Sink with one JSON object per line. Each line is flushed, so that a reader sees it at once.
pub struct Json<'a> {
    writer: Box<dyn Write + 'a>,
    origin: Origin,
}

impl<'a> Json<'a> {
    /// Writes to `writer`, with the origin of the records.
    pub fn new(writer: impl Write + 'a, origin: Origin) -> Self {
        Json { writer: Box::new(writer), origin }
    }
}

impl Sink for Json<'_> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let line = line(record, &self.origin)? + "\n";
        self.writer.write_all(line.as_bytes())?;
        self.writer.flush()
    }
}

/// Formats a record with its origin as a line, without the line end; with its registers if they are
/// wanted.
pub(crate) fn line(record: &Record, origin: &Origin) -> serde_json::Result<String> {
    let mut json = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut json);
    let mut line = serializer.serialize_map(None)?;
    for (name, value) in fields::fields(record).named() {
        line.serialize_entry(name, value)?;
    }
    optional(&mut line, "alerts", Some(&record.alerts).filter(|alerts| !alerts.is_empty()))?;
    optional(&mut line, "united", record.united.as_ref())?;
    for (name, value) in fields::origin(record, origin).named() {
        line.serialize_entry(name, value)?;
    }
    for MeasurementFields { measurement, fields, .. } in
        record.described().iter().filter(|it| it.is_on)
    {
        line.serialize_entry(measurement, fields)?;
    }
    let sketches = || record.counted.as_ref().map(|counted| record.sketches(counted));
    optional(&mut line, "sketches", origin.sketches.then(sketches).flatten())?;
    line.end()?;
    String::from_utf8(json).map_err(serde_json::Error::custom)
}

/// Sink that writes one JSON object per sample, and one per window with the numbers of its samples
/// and of missing ones.
pub struct DelaySampleLog<W>(pub W);

/// Line of a window.
#[derive(Serialize)]
struct Window {
    record: &'static str,
    window: u64,
    start_ns: u64,
    end_ns: u64,
    samples: u64,
    missing: u64,
}

impl<W: Write> Sink for DelaySampleLog<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let Some(delays) = &record.reports.delay else { return Ok(()) };
        if record.kind != RecordKind::Window || record.part {
            return Ok(());
        }
        let missing = delays.together().map(|delay| delay.counts.unsampled).sum();
        let counted: u64 = delays.together().map(|delay| delay.answers()).sum();
        let Record { window, start_ns, end_ns, .. } = *record;
        let samples = counted.saturating_sub(missing);
        let line =
            Window { record: record.kind.name(), window, start_ns, end_ns, samples, missing };
        write_lines(&mut self.0, &[line])
    }

    fn delay_samples(&mut self, samples: &[DelaySampleRecord<'_>]) -> io::Result<()> {
        write_lines(&mut self.0, samples)
    }
}

fn write_lines(writer: &mut dyn Write, lines: &[impl Serialize]) -> io::Result<()> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    writer.write_all(&text)?;
    writer.flush()
}
