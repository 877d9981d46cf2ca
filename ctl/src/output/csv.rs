//! CSV: the four columns of the W-HLL thesis (§4.2.4) first, then the rest.

use super::Origin;
use crate::controller::Sink;
use crate::identity::{Identity, SCHEMA};
use crate::measurement::{Cell, Place};
use crate::record::{Kind, Record};
use crate::united::United;
use std::io::{self, Write};

/// One line a window or sample. `time` is in seconds since the first record's window began;
/// `ground_truth` is empty unless flows were counted exactly. Of heavy hitters there is the first;
/// the JSON lines have all, and the flows that were asked for. Totals are left out: a column of
/// them would be added to the rest by mistake.
pub struct Csv<'a> {
    writer: Box<dyn Write + 'a>,
    begin: Option<u64>,
    origin: Origin,
}

impl<'a> Csv<'a> {
    /// Writes to `writer`; the header comes with the first record.
    pub fn new(writer: impl Write + 'a, origin: Origin) -> Self {
        Csv { writer: Box::new(writer), begin: None, origin }
    }
}

impl Sink for Csv<'_> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind == Kind::Total {
            return self.writer.flush();
        }
        let is_first = self.begin.is_none();
        let mut columns = columns(record, *self.begin.get_or_insert(record.start_ns));
        if let Some(Identity { host, run }) = &self.origin.identity {
            columns.extend([("host", quoted(host)), ("run", quoted(run))]);
        }
        columns.push(("schema", SCHEMA.to_string()));
        columns.extend(record.united.iter().flat_map(|united| of_union(united, record.complete)));
        if is_first {
            let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
            writeln!(self.writer, "{}", names.join(","))?;
        }
        let values: Vec<String> = columns.into_iter().map(|(_, value)| value).collect();
        writeln!(self.writer, "{}", values.join(","))?;
        self.writer.flush()
    }
}

/// The names of all columns and what stands in them.
fn columns(record: &Record, origin: u64) -> Vec<(&'static str, String)> {
    let time = record.end_ns.saturating_sub(origin) as f64 / 1e9;
    let (counters, cells) = (&record.counters, record.reports.cells());
    let number = |name, number: u64| (name, number.to_string());
    let mut columns = vec![("time", format!("{time:.9}")), number("window_id", record.window)];
    columns.extend(at(&cells, Place::First));
    columns.extend([
        ("record", record.kind.name().to_owned()),
        number("packets", counters.packets()),
        number("bytes", counters.bytes),
        number("ipv4_packets", counters.ipv4),
        number("ipv6_packets", counters.ipv6),
        number("non_ip", counters.non_ip),
        number("truncated", counters.truncated),
        number("bad_header", counters.bad_header),
        number("drops", record.drops.total()),
        number("start_ns", record.start_ns),
        number("end_ns", record.end_ns),
    ]);
    columns.extend(at(&cells, Place::Middle));
    columns.extend([
        ("interface", quoted(&record.interface)),
        ("direction", record.direction.to_owned()),
        ("part", record.part.to_string()),
    ]);
    columns.extend(at(&cells, Place::Behind));
    columns.extend([
        ("last_window", record.last_window.map(|window| window.to_string()).unwrap_or_default()),
        number("late", record.late),
        number("late_ns", record.late_ns),
    ]);
    columns.extend(at(&cells, Place::Last));
    let ledger =
        record.ledger.map(|ledger| (ledger.received.to_string(), ledger.unaccounted.to_string()));
    let (received, unaccounted) = ledger.unwrap_or_default();
    columns.extend([("received", received), ("unaccounted", unaccounted)]);
    columns
}

/// Which rows a union is of, and what of it is missing or there twice.
fn of_union(united: &United, complete: bool) -> Vec<(&'static str, String)> {
    let number = |name, number: u64| (name, number.to_string());
    let sum = |pairs: &[(String, u64)]| pairs.iter().map(|(_, ns)| ns).sum();
    vec![
        ("complete", complete.to_string()),
        number("rows", united.rows),
        number("hosts", united.hosts),
        number("places", united.places),
        number("incomplete", united.incomplete),
        number("lost_rows", united.lost_rows),
        number("crossing", united.crossing),
        number("twice", united.twice),
        number("missing_ns", sum(&united.missing)),
        number("doubled_ns", sum(&united.doubled)),
        ("absent", quoted(&united.absent.join(" "))),
        number("unchecked", united.unchecked),
    ]
}

/// The columns of measurements that stand at a place.
fn at(cells: &[Cell], wanted: Place) -> impl Iterator<Item = (&'static str, String)> {
    cells
        .iter()
        .filter(move |(place, ..)| *place == wanted)
        .map(|(_, name, value)| (*name, value.clone()))
}

/// RFC 4180 §2: a field with commas, quotes or line breaks is quoted. Spreadsheets take a text that
/// begins as a formula does for one: an apostrophe before it says that it is none.
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
