//! A table for people: one line a record, as it comes.

use super::grouped;
use crate::controller::Sink;
use crate::estimate::entropy;
use crate::estimate::heavy::{Flow, KeyText};
use crate::record::{Alarm, Entropy, Kind, Record};
use std::io::{self, Write};

/// Lines between two headers, so that one is always on the screen.
const HEADER_EVERY: u64 = 30;

/// Width of the column that names places.
const PLACE: usize = 22;

/// Aligned columns; one of them names the place if there are several.
pub struct Table<W> {
    writer: W,
    origin: Option<u64>,
    lines: u64,
    /// Width of the column that names places.
    place: usize,
}

impl<W: Write> Table<W> {
    /// Writes to `writer`.
    pub fn new(writer: W) -> Self {
        Table { writer, origin: None, lines: 0, place: 0 }
    }

    fn header(&mut self, record: &Record) -> io::Result<()> {
        let place = self.place;
        let Some(cardinality) = &record.cardinality else {
            return writeln!(
                self.writer,
                "{:>9}  {:<10} {:place$}{:>13} {:>15} {:>8}",
                "time", "", "", "packets", "bytes", "drops"
            );
        };
        let flows = format!("{} flows", cardinality.key.name());
        let (truth, error) = if cardinality.truth.is_some() { ("truth", "error") } else { ("", "") };
        let header = format!(
            "{:>9}  {:<10} {:place$}{:>13} {flows:>16} {:>25} {truth:>11} {error:>8} {:>8}",
            "time", "", "", "packets", "95 % interval", "drops"
        );
        writeln!(self.writer, "{}", header.trim_end())
    }
}

impl<W: Write> Sink for Table<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let origin = *self.origin.get_or_insert(record.start_ns);
        if record.kind == Kind::Total {
            return self.total(record);
        }
        // The records of several places come before the one of all together.
        if record.part {
            self.place = PLACE;
        }
        if self.lines.is_multiple_of(HEADER_EVERY) {
            self.header(record)?;
        }
        self.lines += 1;
        let time = record.end_ns.saturating_sub(origin) as f64 / 1e9;
        let what = match record.kind {
            Kind::Window if record.complete => format!("window {}", record.window),
            Kind::Window => format!("window {}*", record.window),
            Kind::Sample | Kind::Total => "  read".to_owned(),
        };
        let width = self.place;
        let place = match (record.part, width) {
            (_, 0) => String::new(),
            (true, _) => format!("{} {}", record.interface, record.direction),
            (false, _) => "all".to_owned(),
        };
        let packets = grouped(record.counters.packets());
        let drops = grouped(record.drops.total());
        let Some(cardinality) = &record.cardinality else {
            let bytes = grouped(record.counters.bytes);
            writeln!(self.writer, "{time:>8.2}s  {what:<10} {place:<width$}{packets:>13} {bytes:>15} {drops:>8}")?;
            self.details(record)?;
            return self.writer.flush();
        };
        let estimate = &cardinality.estimate;
        let interval = format!("{} … {}", grouped(estimate.low.round() as u64), grouped(estimate.high.round() as u64));
        let (truth, error) = truth_and_error(estimate.value, cardinality.truth);
        let value = grouped(estimate.value.round() as u64);
        writeln!(
            self.writer,
            "{time:>8.2}s  {what:<10} {place:<width$}{packets:>13} {value:>16} {interval:>25} {truth:>11} {error:>8} {drops:>8}"
        )?;
        self.details(record)?;
        self.writer.flush()
    }
}

impl<W: Write> Table<W> {
    /// What has no column: a line for every entropy, and of windows and totals for every flow that is named.
    fn details(&mut self, record: &Record) -> io::Result<()> {
        let indent = if record.kind == Kind::Total { 0 } else { 11 };
        for Entropy { sketch, estimate, truth } in &record.entropy {
            let entropy::Entropy { bits, low, high, normalised, .. } = estimate;
            let truth = truth.map(|truth| format!(", truth {truth:.3} (error {:+.2} %)", (bits / truth - 1.0) * 100.0));
            let (key, truth) = (sketch.key.name(), truth.unwrap_or_default());
            writeln!(
                self.writer,
                "{:indent$}entropy of {key}: {bits:.3} bits ({low:.3} … {high:.3}), {normalised:.2} of the most{truth}",
                ""
            )?;
        }
        if let Some(Alarm { raised: true, .. }) = record.alarm {
            writeln!(self.writer, "{:indent$}ALARM: the entropies of src and dst are far off what is usual", "")?;
        }
        if record.kind == Kind::Sample {
            return Ok(());
        }
        if let Some(heavy) = &record.heavy {
            for Flow { key, count, low, high } in &heavy.top.flows {
                let (key, unit) = (KeyText { kind: heavy.key, key }, heavy.unit.name());
                let share = *count as f64 / heavy.top.total.max(1) as f64 * 100.0;
                let (count, low, high) = (grouped(*count), grouped(*low), grouped(*high));
                writeln!(self.writer, "{:indent$}{key:<40} {count:>15} {unit} {share:>5.1} % ({low} … {high})", "")?;
            }
        }
        if let Some(frequency) = &record.frequency {
            for (key, packets) in &frequency.flows {
                let key = KeyText { kind: frequency.sketch.key, key };
                let [value, low, high] = [packets.value, packets.low, packets.high].map(|packets| grouped(packets.round() as u64));
                writeln!(self.writer, "{:indent$}{key}: {value} packets ({low} … {high})", "")?;
            }
        }
        if let Some(membership) = &record.membership {
            for (key, seen) in &membership.flows {
                let key = KeyText { kind: membership.key, key };
                let probability = membership.false_positive;
                let answer =
                    if *seen { format!("seen (by mistake with probability {probability:.2e})") } else { "not seen".to_owned() };
                writeln!(self.writer, "{:indent$}{key}: {answer}", "")?;
            }
        }
        Ok(())
    }

    fn total(&mut self, record: &Record) -> io::Result<()> {
        let counters = &record.counters;
        let seconds = record.end_ns.saturating_sub(record.start_ns) as f64 / 1e9;
        let direction = if record.part { format!(" {}", record.direction) } else { String::new() };
        writeln!(
            self.writer,
            "\n{}{direction}: {} packets in {seconds:.2} s: {} IPv4, {} IPv6, {} non-IP, {} truncated, {} bad header; {} bytes, {} dropped",
            record.interface,
            grouped(counters.packets()),
            grouped(counters.ipv4),
            grouped(counters.ipv6),
            grouped(counters.non_ip),
            grouped(counters.truncated),
            grouped(counters.bad_header),
            grouped(counters.bytes),
            grouped(record.drops.total()),
        )?;
        if let Some(used) = record.cpu_ns {
            let cores = used as f64 / record.end_ns.saturating_sub(record.start_ns).max(1) as f64;
            let each = used as f64 / counters.packets().max(1) as f64;
            writeln!(self.writer, "workers used {:.1} % of a CPU, {each:.1} ns a packet", cores * 100.0)?;
        }
        if let Some(cardinality) = &record.cardinality {
            let estimate = &cardinality.estimate;
            let (low, high) = (grouped(estimate.low.round() as u64), grouped(estimate.high.round() as u64));
            let value = grouped(estimate.value.round() as u64);
            let key = cardinality.key.name();
            write!(self.writer, "distinct {key} flows in all windows: {value} ({low} … {high})")?;
            if let Some(truth) = cardinality.truth {
                let (truth, error) = truth_and_error(estimate.value, Some(truth));
                write!(self.writer, ", truth {truth} (error {error})")?;
            }
            let hash = cardinality.hash;
            let seed = if hash.seed == 0 { String::new() } else { format!(" seed {}", hash.seed) };
            writeln!(
                self.writer,
                "\nestimator {}, {} registers, hash {}{seed}",
                cardinality.estimator,
                cardinality.levels.len(),
                hash.mode.name(),
            )?;
        }
        self.details(record)?;
        self.writer.flush()
    }
}

fn truth_and_error(estimate: f64, truth: Option<u64>) -> (String, String) {
    match truth {
        None => (String::new(), String::new()),
        Some(0) => ("0".to_owned(), String::new()),
        Some(truth) => (grouped(truth), format!("{:+.2} %", (estimate / truth as f64 - 1.0) * 100.0)),
    }
}
