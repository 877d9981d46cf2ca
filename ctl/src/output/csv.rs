//! CSV output: the four columns of the W-HLL thesis (§4.2.4) first, then the others.

use super::Origin;
use crate::controller::Sink;
use crate::field::Fields;
use crate::identity::{Identity, SCHEMA};
use crate::record::{Record, RecordKind};
use crate::row::Value;
use crate::united::{LeaveOneOut, United};
use std::io::{self, Write};

/// Sink with one line per window or sample. `time` is in seconds since the start of the first
/// record's window; `ground_truth` is empty unless flows were counted exactly. Of the heavy
/// hitters, only the first has columns; JSON lines have all, and the queried flows. Totals are
/// omitted: they would distort sums of a column.
pub struct Csv<'a> {
    writer: Box<dyn Write + 'a>,
    begin: Option<u64>,
    origin: Origin,
}

impl<'a> Csv<'a> {
    /// Writes to `writer`. The header precedes the first record.
    pub fn new(writer: impl Write + 'a, origin: Origin) -> Self {
        Csv { writer: Box::new(writer), begin: None, origin }
    }
}

impl Sink for Csv<'_> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind == RecordKind::Total {
            return self.writer.flush();
        }
        let is_first = self.begin.is_none();
        let mut fields = fields(record, *self.begin.get_or_insert(record.start_ns));
        if let Some(Identity { host, run }) = &self.origin.identity {
            fields.column(host.as_ref()).csv(203, "host");
            fields.column(run.as_ref()).csv(204, "run");
        }
        fields.column(SCHEMA).csv(205, "schema");
        if let Some(united) = &record.united {
            describe_union(united, &mut fields);
        }
        let of_measurements = record.described().iter().flat_map(|it| it.fields.cells());
        let mut cells: Vec<_> = fields.cells().chain(of_measurements).collect();
        cells.sort_by_key(|(column, _)| column.position);
        debug_assert!(cells.is_sorted_by(|(one, _), (next, _)| one.position < next.position));
        if is_first && !self.origin.no_csv_header {
            let names: Vec<&str> = cells.iter().map(|(column, _)| column.name.as_ref()).collect();
            writeln!(self.writer, "{}", names.join(","))?;
        }
        let values: Vec<String> = cells.into_iter().map(|(_, value)| text(value)).collect();
        writeln!(self.writer, "{}", values.join(","))?;
        self.writer.flush()
    }
}

/// Returns the columns of the record itself. Positions 2 to 5, 20 to 29, 40 to 59, 70 to 199 and
/// those from 300 on belong to measurements.
fn fields(record: &Record, origin: u64) -> Fields {
    let mut fields = Fields::default();
    let mut add = |position, name: &'static str, value: Value| {
        fields.column(value).csv(position, name);
    };
    let counters = &record.counters;
    let time = record.end_ns.saturating_sub(origin) as f64 / 1e9;
    add(0, "time", format!("{time:.9}").into());
    add(1, "window_id", record.window.into());
    add(6, "record", record.kind.name().into());
    add(7, "packets", counters.packets().into());
    add(8, "bytes", counters.bytes.into());
    add(9, "ipv4_packets", counters.ipv4.into());
    add(10, "ipv6_packets", counters.ipv6.into());
    add(11, "non_ip", counters.non_ip.into());
    add(12, "truncated", counters.truncated.into());
    add(13, "bad_header", counters.bad_header.into());
    add(14, "drops", record.drops.total().into());
    add(15, "start_ns", record.start_ns.into());
    add(16, "end_ns", record.end_ns.into());
    if record.is_filtered() {
        add(17, "unmatched", counters.unmatched.into());
        add(18, "unmatched_bytes", counters.unmatched_bytes.into());
        add(33, "match", record.filter.as_deref().into());
    }
    add(30, "interface", record.interface.as_str().into());
    add(31, "direction", record.direction.into());
    add(32, "part", record.part.into());
    add(60, "last_window", record.last_window.into());
    add(61, "late", record.late.into());
    add(62, "late_ns", record.late_ns.into());
    add(200, "received", record.ledger.map(|ledger| ledger.received).into());
    add(201, "unaccounted", record.ledger.map(|ledger| ledger.unaccounted).into());
    let is_sampled = matches!(record.kind, RecordKind::Sample | RecordKind::Silence);
    add(206, "repeats", is_sampled.then_some(record.repeats).into());
    add(207, "last_ns", record.last_ns.into());
    add(208, "complete", record.complete.into());
    fields
}

/// Adds the columns of a union: its rows, and what is missing or duplicated.
fn describe_union(united: &United, fields: &mut Fields) {
    let columns: [(&'static str, Value); 14] = [
        ("rows", united.rows.into()),
        ("hosts", united.hosts.into()),
        ("places", united.places.into()),
        ("incomplete", united.incomplete.into()),
        ("lost_rows", united.lost_rows.into()),
        ("crossing", united.crossing.into()),
        ("twice", united.twice.into()),
        ("missing_ns", united.missing_ns().into()),
        ("doubled_ns", united.doubled_ns().into()),
        ("absent", united.absent.join(" ").into()),
        ("unchecked", united.unchecked.into()),
        ("conflicts", united.conflicts.into()),
        ("untrusted", united.untrusted.into()),
        ("saturated", united.saturated().join(" ").into()),
    ];
    let change = united.leave_one_out.as_ref().and_then(LeaveOneOut::largest_change);
    let change = change.map(|(host, without)| {
        [
            ("largest_change", host.into()),
            ("without", without.value.into()),
            ("without_low", without.low.into()),
            ("without_high", without.high.into()),
        ]
    });
    let columns = columns.into_iter().chain(change.into_iter().flatten());
    for ((name, value), position) in columns.zip(211..) {
        fields.column(value).csv(position, name);
    }
}

/// Formats a cell; empty without a value.
fn text(value: &Value) -> String {
    match value {
        Value::Int(Some(number)) => number.to_string(),
        Value::Float(Some(number)) => number.to_string(),
        Value::Bool(Some(flag)) => flag.to_string(),
        Value::Text(Some(text)) => quoted(text),
        _ => String::new(),
    }
}

/// Quotes a field with commas, quotes or line breaks (RFC 4180 §2). Spreadsheets evaluate text that
/// begins like a formula; a leading apostrophe prevents it.
fn quoted(field: &str) -> String {
    let mark = if field.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{mark}{}\"", field.replace('"', "\"\""))
    } else {
        format!("{mark}{field}")
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn fields_are_no_formulas_and_no_other_fields() {
        let fields = [
            ("eth0", "eth0"),
            ("a,b", "\"a,b\""),
            ("=1+1", "'=1+1"),
            ("@a\"b", "\"'@a\"\"b\""),
            ("-x", "'-x"),
        ];
        assert_eq!(fields.map(|(field, _)| quoted(field)), fields.map(|(_, told)| told.to_owned()));
    }
}
