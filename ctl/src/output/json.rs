//! JSON lines. Keys are part of the interface: they may be added, but not renamed.

use super::Origin;
use crate::controller::Sink;
use crate::identity::{Identity, SCHEMA};
use crate::measurement::MeasurementFields;
use crate::record::{Record, RecordKind};
use crate::row::Row;
use crate::text::optional;
use flowgauge_core::Counters;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
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

/// Registers and sketches, in the columns of a lake.
struct Sketches(Row);

impl Serialize for Sketches {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.columns())
    }
}

#[derive(Serialize)]
struct Rejected {
    non_ip: u64,
    truncated: u64,
    bad_header: u64,
}

#[derive(Serialize)]
struct Unmatched {
    packets: u64,
    bytes: u64,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Line { record, origin } = self;
        let is_window = record.kind == RecordKind::Window;
        let Counters { bytes, ipv4, ipv6, non_ip, truncated, bad_header, .. } = record.counters;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("record", record.kind.name())?;
        line.serialize_entry("window", &record.window)?;
        optional(&mut line, "last_window", record.last_window)?;
        line.serialize_entry("start_ns", &record.start_ns)?;
        line.serialize_entry("end_ns", &record.end_ns)?;
        if let Some((start, end)) = record.scheduled.filter(|_| is_window) {
            line.serialize_entry("scheduled_start_ns", &start)?;
            line.serialize_entry("scheduled_end_ns", &end)?;
        }
        optional(&mut line, "at_ns", record.at_ns)?;
        optional(
            &mut line,
            "late_ns",
            (is_window || record.kind == RecordKind::Sample).then_some(record.late_ns),
        )?;
        if matches!(record.kind, RecordKind::Sample | RecordKind::Silence) {
            line.serialize_entry("repeats", &record.repeats)?;
            optional(&mut line, "last_ns", record.last_ns)?;
        }
        optional(
            &mut line,
            "stalled",
            (is_window && record.last_window.is_some()).then_some(true),
        )?;
        optional(&mut line, "clock_step_ns", record.clock_step_ns)?;
        line.serialize_entry("complete", &record.complete)?;
        optional(&mut line, "source", record.source.as_deref())?;
        line.serialize_entry("backend", record.backend)?;
        line.serialize_entry("interface", &record.interface)?;
        line.serialize_entry("direction", record.direction)?;
        optional(&mut line, "hook", record.hook.as_deref())?;
        line.serialize_entry("part", &record.part)?;
        optional(&mut line, "inner", record.inner.then_some(true))?;
        optional(&mut line, "match", record.filter.as_deref())?;
        line.serialize_entry("packets", &record.counters.packets())?;
        if record.kind == RecordKind::Sample {
            let (before, after) = record.packets_before_after;
            line.serialize_entry("packets_before", &before)?;
            line.serialize_entry("packets_after", &after)?;
        }
        line.serialize_entry("bytes", &bytes)?;
        line.serialize_entry("ipv4_packets", &ipv4)?;
        line.serialize_entry("ipv6_packets", &ipv6)?;
        line.serialize_entry("rejected", &Rejected { non_ip, truncated, bad_header })?;
        let Counters { unmatched: packets, unmatched_bytes: bytes, .. } = record.counters;
        let unmatched = record.is_filtered().then_some(Unmatched { packets, bytes });
        optional(&mut line, "unmatched", unmatched)?;
        let merged = record.counters.merged;
        optional(&mut line, "merged", (merged > 0).then_some(merged))?;
        let drops: BTreeMap<_, _> =
            record.drops.iter().map(|(cause, packets)| (cause.name(), packets)).collect();
        line.serialize_entry("drops", &drops)?;
        optional(&mut line, "ledger", record.ledger)?;
        line.serialize_entry("late", &record.late)?;
        optional(&mut line, "cpu_ns", record.cpu_ns)?;
        optional(&mut line, "alerts", Some(&record.alerts).filter(|alerts| !alerts.is_empty()))?;
        optional(&mut line, "united", record.united.as_ref())?;
        if let Some(Identity { host, run }) = &origin.identity {
            line.serialize_entry("host", host.as_ref())?;
            line.serialize_entry("run", run.as_ref())?;
        }
        if let Some(adoption) = &record.adopted {
            line.serialize_entry("adopted", &true)?;
            optional(&mut line, "counted_by", adoption.run.as_deref())?;
        }
        line.serialize_entry("schema", &SCHEMA)?;
        for MeasurementFields { measurement, fields, .. } in
            record.described().iter().filter(|it| it.is_on)
        {
            line.serialize_entry(measurement, fields)?;
        }
        let sketches = || record.counted.as_ref().map(|counted| Sketches(record.sketches(counted)));
        optional(&mut line, "sketches", origin.sketches.then(sketches).flatten())?;
        line.end()
    }
}
