//! CSV output: the four columns of the W-HLL thesis (§4.2.4) first, then the others.

use super::{Origin, fields};
use crate::controller::Sink;
use crate::field::Fields;
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
        let begin = *self.begin.get_or_insert(record.start_ns);
        let mut fields = fields::fields(record);
        let time = record.end_ns.saturating_sub(begin) as f64 / 1e9;
        fields.column(format!("{time:.9}")).csv(0, "time");
        if let Some(united) = &record.united {
            describe_union(united, &mut fields);
        }
        let origin = fields::origin(record, &self.origin);
        let of_measurements = record.described().iter().flat_map(|it| it.fields.cells());
        let mut cells: Vec<_> =
            fields.cells().chain(origin.cells()).chain(of_measurements).collect();
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
