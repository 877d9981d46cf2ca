//! CSV: the four columns of the W-HLL thesis (§4.2.4) first, then the rest.

use crate::controller::Sink;
use crate::estimate::heavy::KeyText;
use crate::record::{Entropy, Kind, Record};
use flowgauge_core::{ENTROPIES, HashIdentity, HashMode};
use std::io::{self, Write};

const HEADER: &str = "time,window_id,ground_truth,estimate,low,high,record,packets,bytes,ipv4_packets,ipv6_packets,non_ip,truncated,\
                      bad_header,drops,start_ns,end_ns,key,estimator,hash,registers,interface,direction,part,\
                      entropy_key,entropy,entropy_low,entropy_high,entropy_truth,\
                      entropy2_key,entropy2,entropy2_low,entropy2_high,entropy2_truth,heaviest,heaviest_count,alarm,last_window,late,late_ns";

/// One line a window or sample. `time` is in seconds since the first record's window began; `ground_truth` is empty unless
/// flows were counted exactly. Of heavy hitters there is the first; the JSON lines have all, and the flows that were asked for. Totals are left
/// out: a column of them would be added to the rest by mistake.
pub struct Csv<W> {
    writer: W,
    origin: Option<u64>,
}

impl<W: Write> Csv<W> {
    /// Writes to `writer`; the header comes with the first record.
    pub fn new(writer: W) -> Self {
        Csv { writer, origin: None }
    }
}

impl<W: Write> Sink for Csv<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind == Kind::Total {
            return self.writer.flush();
        }
        let origin = match self.origin {
            Some(origin) => origin,
            None => {
                writeln!(self.writer, "{HEADER}")?;
                *self.origin.insert(record.start_ns)
            }
        };
        let time = record.end_ns.saturating_sub(origin) as f64 / 1e9;
        let counters = &record.counters;
        write!(self.writer, "{time:.9},{},", record.window)?;
        let (key, estimator, hash, registers) = match &record.cardinality {
            Some(cardinality) => {
                let truth = cardinality.truth.map(|truth| truth.to_string()).unwrap_or_default();
                let estimate = &cardinality.estimate;
                write!(self.writer, "{truth},{},{},{}", estimate.value, estimate.low, estimate.high)?;
                let hash = cardinality.hash;
                let registers = cardinality.levels.len().to_string();
                (cardinality.key.name(), cardinality.estimator, hash_name(&hash), registers)
            }
            None => {
                write!(self.writer, ",,,")?;
                ("", "", String::new(), String::new())
            }
        };
        write!(
            self.writer,
            ",{},{},{},{},{},{},{},{},{},{},{},{key},{estimator},{hash},{registers},{},{},{}",
            record.kind.name(),
            counters.packets(),
            counters.bytes,
            counters.ipv4,
            counters.ipv6,
            counters.non_ip,
            counters.truncated,
            counters.bad_header,
            record.drops.total(),
            record.start_ns,
            record.end_ns,
            quoted(&record.interface),
            record.direction,
            record.part,
        )?;
        for index in 0..ENTROPIES {
            match record.entropy.get(index) {
                Some(Entropy { sketch, estimate, truth }) => {
                    let truth = truth.map(|truth| truth.to_string()).unwrap_or_default();
                    write!(self.writer, ",{},{},{},{},{truth}", sketch.key.name(), estimate.bits, estimate.low, estimate.high)?;
                }
                None => write!(self.writer, ",,,,,")?,
            }
        }
        let heaviest = record.heavy.as_ref().and_then(|heavy| heavy.top.flows.first().map(|flow| (heavy.key, flow)));
        let heaviest = heaviest.map_or((String::new(), String::new()), |(kind, flow)| {
            (KeyText { kind, key: &flow.key }.to_string(), flow.count.to_string())
        });
        let alarm = record.alarm.filter(|alarm| alarm.verdict.judged()).map(|alarm| alarm.raised().to_string()).unwrap_or_default();
        write!(self.writer, ",{},{},{alarm}", heaviest.0, heaviest.1)?;
        let last_window = record.last_window.map(|window| window.to_string()).unwrap_or_default();
        writeln!(self.writer, ",{last_window},{},{}", record.late, record.late_ns)?;
        self.writer.flush()
    }
}

/// RFC 4180 §2: a field with commas, quotes or line breaks is quoted.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

fn hash_name(hash: &HashIdentity) -> String {
    match hash.mode {
        HashMode::Crc32 | HashMode::Tabulated => format!("{}/{}", hash.mode.name(), hash.seed),
        HashMode::Keyed => format!("{}/{:016x}", hash.mode.name(), hash.fingerprint),
    }
}
