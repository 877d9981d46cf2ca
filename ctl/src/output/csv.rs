//! CSV: the four columns of the W-HLL thesis (§4.2.4) first, then the rest.

use crate::controller::Sink;
use crate::record::{Kind, Record};
use std::io::{self, Write};

const HEADER: &str = "time,window_id,ground_truth,estimate,low,high,record,packets,bytes,ipv4_packets,ipv6_packets,non_ip,truncated,\
                      bad_header,drops,start_ns,end_ns,key,estimator,hash,registers,interface,direction,part";

/// One line a window or sample. `time` is in seconds since the first record's window began; `ground_truth` is empty unless
/// flows were counted exactly. Totals are left out: a column of them would be added to the rest by mistake.
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
                (cardinality.key.name(), cardinality.estimator, format!("{}/{}", hash.mode.name(), hash.seed), registers)
            }
            None => {
                write!(self.writer, ",,,")?;
                ("", "", String::new(), String::new())
            }
        };
        writeln!(
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
        self.writer.flush()
    }
}

/// RFC 4180 §2: a field with commas, quotes or line breaks is quoted.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}
