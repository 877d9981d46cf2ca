//! JSON lines. Keys are part of the interface: they may be added, but not renamed.

use super::{Origin, fields};
use crate::controller::Sink;
use crate::measurement::MeasurementFields;
use crate::record::Record;
use crate::text::optional;
use serde::ser::SerializeMap;
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

/// Formats a record as a line, without the line end.
pub(crate) fn line(record: &Record, origin: &Origin) -> serde_json::Result<String> {
    serde_json::to_string(&Line { record, origin })
}

/// A record with its origin, and its registers if they are wanted.
struct Line<'a> {
    record: &'a Record,
    origin: &'a Origin,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Line { record, origin } = self;
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
        line.end()
    }
}
