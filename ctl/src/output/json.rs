//! JSON lines. Keys are part of the interface: add, never rename.

use crate::controller::Sink;
use crate::record::{Cardinality, Kind, Record};
use serde::Serialize;
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
        serde_json::to_writer(&mut self.0, &Line::from(record))?;
        self.0.write_all(b"\n")?;
        self.0.flush()
    }
}

#[derive(Serialize)]
struct Line<'a> {
    record: &'static str,
    window: u64,
    start_ns: u64,
    end_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_ns: Option<u64>,
    complete: bool,
    backend: &'static str,
    interface: &'a str,
    direction: &'static str,
    part: bool,
    packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_after: Option<u64>,
    bytes: u64,
    ipv4_packets: u64,
    ipv6_packets: u64,
    rejected: Rejected,
    drops: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cardinality: Option<CardinalityLine>,
}

#[derive(Serialize)]
struct Rejected {
    non_ip: u64,
    truncated: u64,
    bad_header: u64,
}

#[derive(Serialize)]
struct CardinalityLine {
    key: &'static str,
    estimate: f64,
    low: f64,
    high: f64,
    estimator: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    truth: Option<u64>,
    hash: HashLine,
    registers: usize,
}

#[derive(Serialize)]
struct HashLine {
    mode: &'static str,
    polynomial: String,
    seed: u64,
}

impl<'a> From<&'a Record> for Line<'a> {
    fn from(record: &'a Record) -> Self {
        let counters = &record.counters;
        let sample = record.kind == Kind::Sample;
        let (before, after) = record.packets_before_after;
        Line {
            record: record.kind.name(),
            window: record.window,
            start_ns: record.start_ns,
            end_ns: record.end_ns,
            at_ns: record.at_ns,
            late_ns: sample.then_some(record.late_ns),
            complete: record.complete,
            backend: record.backend,
            interface: &record.interface,
            direction: record.direction,
            part: record.part,
            packets: counters.packets(),
            packets_before: sample.then_some(before),
            packets_after: sample.then_some(after),
            bytes: counters.bytes,
            ipv4_packets: counters.ipv4,
            ipv6_packets: counters.ipv6,
            rejected: Rejected { non_ip: counters.non_ip, truncated: counters.truncated, bad_header: counters.bad_header },
            drops: record.drops.iter().map(|(cause, packets)| (cause.name(), packets)).collect(),
            cpu_ns: record.cpu_ns,
            cardinality: record.cardinality.as_ref().map(CardinalityLine::from),
        }
    }
}

impl From<&Cardinality> for CardinalityLine {
    fn from(cardinality: &Cardinality) -> Self {
        let hash = cardinality.hash;
        CardinalityLine {
            key: cardinality.key.name(),
            estimate: cardinality.estimate.value,
            low: cardinality.estimate.low,
            high: cardinality.estimate.high,
            estimator: cardinality.estimator,
            truth: cardinality.truth,
            hash: HashLine { mode: hash.mode.name(), polynomial: format!("{:#010x}", hash.polynomial), seed: hash.seed },
            registers: cardinality.levels.len(),
        }
    }
}
