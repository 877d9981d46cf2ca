//! JSON lines. Keys are part of the interface: add, never rename.

use crate::controller::Sink;
use crate::record::{Kind, Record};
use crate::text::optional;
use flowgauge_core::Counters;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// One JSON object a line, flushed line by line so that a reader sees it at once.
pub struct Json<W>(W);

impl<W: Write> Json<W> {
    /// Writes to `writer`.
    pub fn new(writer: W) -> Self {
        Json(writer)
    }
}

impl<W: Write> Sink for Json<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        serde_json::to_writer(&mut self.0, record)?;
        self.0.write_all(b"\n")?;
        self.0.flush()
    }
}

#[derive(Serialize)]
struct Rejected {
    non_ip: u64,
    truncated: u64,
    bad_header: u64,
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_window = self.kind == Kind::Window;
        let Counters { bytes, ipv4, ipv6, non_ip, truncated, bad_header } = self.counters;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("record", self.kind.name())?;
        line.serialize_entry("window", &self.window)?;
        optional(&mut line, "last_window", self.last_window)?;
        line.serialize_entry("start_ns", &self.start_ns)?;
        line.serialize_entry("end_ns", &self.end_ns)?;
        optional(&mut line, "at_ns", self.at_ns)?;
        optional(&mut line, "late_ns", (is_window || self.kind == Kind::Sample).then_some(self.late_ns))?;
        optional(&mut line, "stalled", (is_window && self.last_window.is_some()).then_some(true))?;
        optional(&mut line, "clock_step_ns", self.clock_step_ns)?;
        line.serialize_entry("complete", &self.complete)?;
        line.serialize_entry("backend", self.backend)?;
        line.serialize_entry("interface", &self.interface)?;
        line.serialize_entry("direction", self.direction)?;
        line.serialize_entry("part", &self.part)?;
        optional(&mut line, "inner", self.inner.then_some(true))?;
        line.serialize_entry("packets", &self.counters.packets())?;
        if self.kind == Kind::Sample {
            let (before, after) = self.packets_before_after;
            line.serialize_entry("packets_before", &before)?;
            line.serialize_entry("packets_after", &after)?;
        }
        line.serialize_entry("bytes", &bytes)?;
        line.serialize_entry("ipv4_packets", &ipv4)?;
        line.serialize_entry("ipv6_packets", &ipv6)?;
        line.serialize_entry("rejected", &Rejected { non_ip, truncated, bad_header })?;
        let drops: BTreeMap<_, _> = self.drops.iter().map(|(cause, packets)| (cause.name(), packets)).collect();
        line.serialize_entry("drops", &drops)?;
        line.serialize_entry("late", &self.late)?;
        optional(&mut line, "cpu_ns", self.cpu_ns)?;
        self.reports.write(&mut line)?;
        line.end()
    }
}
