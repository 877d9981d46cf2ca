//! JSON lines. Keys are part of the interface: add, never rename.

use crate::controller::Sink;
use crate::estimate::entropy::alarm::Verdict;
use crate::estimate::heavy::KeyText;
use crate::record::{Alarm, Cardinality, Entropy, Frequency, Heavy, Kind, Membership, Record, Sketched};
use flowgauge_core::{FlowKey, HashIdentity, HashMode, KeyKind};
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
    #[serde(skip_serializing_if = "Option::is_none")]
    last_window: Option<u64>,
    start_ns: u64,
    end_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled: Option<bool>,
    complete: bool,
    backend: &'static str,
    interface: &'a str,
    direction: &'static str,
    part: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    inner: bool,
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
    late: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cardinality: Option<CardinalityLine>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    entropy: BTreeMap<&'static str, EntropyLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency: Option<FrequencyLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    membership: Option<MembershipLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heavy: Option<HeavyLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alarm: Option<AlarmLine>,
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

/// The sketch that counts came from.
#[derive(Serialize)]
struct SketchLine {
    sketch: &'static str,
    rows: usize,
    columns: usize,
    hash: HashLine,
}

#[derive(Serialize)]
struct EntropyLine {
    bits: f64,
    low: f64,
    high: f64,
    normalised: f64,
    in_integers: f64,
    #[serde(skip_serializing_if = "is_false")]
    saturated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    truth: Option<f64>,
    #[serde(flatten)]
    sketch: SketchLine,
}

#[derive(Serialize)]
struct FrequencyLine {
    key: &'static str,
    #[serde(flatten)]
    sketch: SketchLine,
    #[serde(skip_serializing_if = "is_zero")]
    full_counters: usize,
    flows: Vec<FlowLine>,
}

#[derive(Serialize)]
struct FlowLine {
    flow: String,
    packets: f64,
    low: f64,
    high: f64,
    confidence: f64,
    #[serde(skip_serializing_if = "is_false")]
    saturated: bool,
}

#[derive(Serialize)]
struct MembershipLine {
    key: &'static str,
    rows: usize,
    bits: usize,
    hash: HashLine,
    false_positive: f64,
    flows: Vec<SeenLine>,
}

#[derive(Serialize)]
struct SeenLine {
    flow: String,
    seen: bool,
}

#[derive(Serialize)]
struct HeavyLine {
    key: &'static str,
    unit: &'static str,
    algorithm: &'static str,
    slots: usize,
    total: u64,
    absent: u64,
    flows: Vec<HeavyFlowLine>,
}

#[derive(Serialize)]
struct HeavyFlowLine {
    flow: String,
    count: u64,
    low: u64,
    high: u64,
}

#[derive(Serialize)]
struct AlarmLine {
    raised: bool,
    judged: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    least_packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usual: Option<BTreeMap<&'static str, UsualLine>>,
}

#[derive(Serialize)]
struct UsualLine {
    mean: f64,
    deviation: f64,
}

#[derive(Serialize)]
struct HashLine {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    polynomial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
}

impl<'a> From<&'a Record> for Line<'a> {
    fn from(record: &'a Record) -> Self {
        let counters = &record.counters;
        let sample = record.kind == Kind::Sample;
        let (before, after) = record.packets_before_after;
        Line {
            record: record.kind.name(),
            window: record.window,
            last_window: record.last_window,
            start_ns: record.start_ns,
            end_ns: record.end_ns,
            at_ns: record.at_ns,
            late_ns: (sample || record.kind == Kind::Window).then_some(record.late_ns),
            stalled: (record.kind == Kind::Window && record.last_window.is_some()).then_some(true),
            complete: record.complete,
            backend: record.backend,
            interface: &record.interface,
            direction: record.direction,
            part: record.part,
            inner: record.inner,
            packets: counters.packets(),
            packets_before: sample.then_some(before),
            packets_after: sample.then_some(after),
            bytes: counters.bytes,
            ipv4_packets: counters.ipv4,
            ipv6_packets: counters.ipv6,
            rejected: Rejected { non_ip: counters.non_ip, truncated: counters.truncated, bad_header: counters.bad_header },
            drops: record.drops.iter().map(|(cause, packets)| (cause.name(), packets)).collect(),
            late: record.late,
            cpu_ns: record.cpu_ns,
            cardinality: record.cardinality.as_ref().map(CardinalityLine::from),
            entropy: record.entropy.iter().map(|entropy| (entropy.sketch.key.name(), EntropyLine::from(entropy))).collect(),
            frequency: record.frequency.as_ref().map(FrequencyLine::from),
            membership: record.membership.as_ref().map(MembershipLine::from),
            heavy: record.heavy.as_ref().map(HeavyLine::from),
            alarm: record.alarm.as_ref().map(AlarmLine::from),
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
            hash: HashLine::from(&hash),
            registers: cardinality.levels.len(),
        }
    }
}

impl From<&HashIdentity> for HashLine {
    fn from(hash: &HashIdentity) -> Self {
        let keyed = hash.mode == HashMode::Keyed;
        HashLine {
            mode: hash.mode.name(),
            polynomial: (!keyed).then(|| format!("{:#010x}", hash.polynomial)),
            seed: (!keyed).then_some(hash.seed),
            fingerprint: keyed.then(|| format!("{:016x}", hash.fingerprint)),
        }
    }
}

impl From<&Sketched> for SketchLine {
    fn from(sketch: &Sketched) -> Self {
        let Sketched { kind, shape, hash, .. } = sketch;
        SketchLine { sketch: kind.name(), rows: shape.rows(), columns: shape.columns(), hash: HashLine::from(hash) }
    }
}

impl From<&Entropy> for EntropyLine {
    fn from(entropy: &Entropy) -> Self {
        let crate::estimate::entropy::Entropy { bits, low, high, normalised, in_integers, saturated } = entropy.estimate;
        let (truth, sketch) = (entropy.truth, SketchLine::from(&entropy.sketch));
        EntropyLine { bits, low, high, normalised, in_integers, saturated, truth, sketch }
    }
}

fn is_false(is: &bool) -> bool {
    !is
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn text(kind: KeyKind, key: &FlowKey) -> String {
    KeyText { kind, key }.to_string()
}

impl From<&Frequency> for FrequencyLine {
    fn from(frequency: &Frequency) -> Self {
        let kind = frequency.sketch.key;
        let flows = frequency.flows.iter().map(|(key, estimate)| {
            let crate::estimate::frequency::Frequency { value, low, high, confidence, saturated } = *estimate;
            FlowLine { flow: text(kind, key), packets: value, low, high, confidence, saturated }
        });
        let full_counters = frequency.full_counters;
        FrequencyLine { key: kind.name(), sketch: SketchLine::from(&frequency.sketch), full_counters, flows: flows.collect() }
    }
}

impl From<&Membership> for MembershipLine {
    fn from(membership: &Membership) -> Self {
        let Membership { key, shape, hash, false_positive, flows } = membership;
        let flows = flows.iter().map(|(flow, seen)| SeenLine { flow: text(*key, flow), seen: *seen });
        MembershipLine {
            key: key.name(),
            rows: shape.rows(),
            bits: shape.columns(),
            hash: HashLine::from(hash),
            false_positive: *false_positive,
            flows: flows.collect(),
        }
    }
}

impl From<&Heavy> for HeavyLine {
    fn from(heavy: &Heavy) -> Self {
        let Heavy { key, unit, algorithm, slots, top } = heavy;
        let flows = top.flows.iter().map(|flow| {
            let crate::estimate::heavy::Flow { key: flow, count, low, high } = flow;
            HeavyFlowLine { flow: text(*key, flow), count: *count, low: *low, high: *high }
        });
        HeavyLine {
            key: key.name(),
            unit: unit.name(),
            algorithm: algorithm.name(),
            slots: *slots,
            total: top.total,
            absent: top.absent,
            flows: flows.collect(),
        }
    }
}

impl From<&Alarm> for AlarmLine {
    fn from(alarm: &Alarm) -> Self {
        let usual = alarm.usual.map(|usual| {
            let names = [KeyKind::Src, KeyKind::Dst].map(KeyKind::name);
            names.into_iter().zip(usual.map(|usual| UsualLine { mean: usual.mean, deviation: usual.deviation })).collect()
        });
        let reason = match alarm.verdict {
            Verdict::TooFewPackets => Some("too few packets"),
            Verdict::Learning => Some("learning"),
            Verdict::Quiet | Verdict::Raised => None,
        };
        AlarmLine { raised: alarm.raised(), judged: alarm.verdict.judged(), reason, least_packets: alarm.least, usual }
    }
}
