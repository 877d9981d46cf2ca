//! JSON lines. Keys are part of the interface: they may be added, but not renamed.

use super::{Origin, fields};
use crate::controller::Sink;
use crate::measurement::MeasurementFields;
use crate::record::Record;
use crate::text::optional;
use serde::Serializer;
use serde::ser::{Error as _, SerializeMap};
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
