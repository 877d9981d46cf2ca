//! A lake: windows in Parquet files that common query engines read and merge, with a row for each
//! window and place.
//!
//! # Data flow
//! [`Lake`] is a sink of records. It turns each window into a row, in which every measurement has
//! its own columns; `writer` appends rows to a `journal` and collects them into files; `disk`
//! writes the files into a directory; `carrier` uploads them into an object store, if there is one.
//!
//! # Where to look
//! `laws` checks rows that other processes wrote, and [`signature`] which host wrote them.
//! [`union`] selects and merges rows into records again, and [`compact`] joins the small files of
//! an hour. `parquet` converts between rows and files.

mod carrier;
pub mod compact;
mod disk;
mod journal;
mod laws;
mod listing;
pub(crate) mod parquet;
mod shared;
pub mod signature;
#[cfg_attr(not(feature = "object-store"), path = "no_store.rs")]
pub mod store;
pub mod union;
mod writer;

pub use crate::identity::Identity;
pub use crate::row::{Cells, Row, Value};
pub use shared::{Problems, Settings};
pub use store::Store;
pub use writer::Lake;

use crate::identity::{self, SCHEMA};
use crate::measurement;
use crate::record::Record;
use crate::row::{self, int};
use flowgauge_core::Counters;

/// Makes the row of a record that has registers.
fn row(record: &Record, identity: &Identity, lost: u64, silent: u64) -> Option<Row> {
    let counted = record.counted.as_ref()?;
    let (start, end) = record.scheduled.unwrap_or((record.start_ns, record.end_ns));
    let Counters {
        bytes,
        ipv4,
        ipv6,
        non_ip,
        truncated,
        bad_header,
        unmatched,
        unmatched_bytes,
        merged,
    } = record.counters;
    let mut row = Row::default();
    row.int("schema", SCHEMA);
    row.text("host", identity.host.as_ref());
    row.text("run", identity.run.as_ref());
    if let Some(run) = record.adopted.as_ref().and_then(|adoption| adoption.run.as_deref()) {
        row.text("counted_by", run);
    }
    row.text("backend", record.backend);
    row.text("source", record.interface.as_str());
    row.text("direction", record.direction);
    row.put("time", Value::Time(int(start / 1000)));
    row.int("window", record.window);
    row.int("last_window", record.last_window.unwrap_or(record.window));
    row.int("silent_windows", silent);
    row.int("start_ns", record.start_ns);
    row.int("end_ns", record.end_ns);
    row.int("scheduled_start_ns", start);
    row.int("scheduled_end_ns", end);
    row.put("complete", Value::Bool(Some(record.complete)));
    row.int("late_ns", record.late_ns);
    row.put("clock_step_ns", Value::Int(record.clock_step_ns));
    row.put("inner", Value::Bool(Some(record.inner)));
    row.int("packets", record.counters.packets());
    row.int("bytes", bytes);
    row.int("ipv4_packets", ipv4);
    row.int("ipv6_packets", ipv6);
    row.int("non_ip", non_ip);
    row.int("truncated", truncated);
    row.int("bad_header", bad_header);
    if record.is_filtered() {
        row.put("match", record.filter.as_deref().into());
        row.int("unmatched", unmatched);
        row.int("unmatched_bytes", unmatched_bytes);
    }
    if merged > 0 {
        row.int("merged", merged);
    }
    row.int("late", record.late);
    row.int("dropped", record.drops.total());
    let causes = record.drops.iter().map(|(cause, _)| cause.name().to_owned());
    let packets = record.drops.iter().map(|(_, packets)| int(packets));
    row.put(
        "drops",
        Value::Table(vec![
            ("cause".into(), Cells::Text(causes.collect())),
            ("packets".into(), Cells::Int(packets.collect())),
        ]),
    );
    row.int("lost_rows", lost);
    row.text("hash", identity::name(&counted.hash));
    row.text("row_hash", identity::name(&counted.row_hash));
    row.0.extend(record.sketches(counted).0);
    row.seal();
    debug_assert_eq!(laws::check(&row), Ok(()));
    Some(row)
}

/// Key-value metadata of every file.
fn about() -> [(&'static str, String); 2] {
    [
        ("flowgauge.schema", SCHEMA.to_string()),
        ("flowgauge.version", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

/// Columns of every row.
const COLUMNS: [&str; 38] = [
    "schema",
    "host",
    "run",
    "counted_by",
    "backend",
    "source",
    "direction",
    "time",
    "window",
    "last_window",
    "silent_windows",
    "start_ns",
    "end_ns",
    "scheduled_start_ns",
    "scheduled_end_ns",
    "complete",
    "late_ns",
    "clock_step_ns",
    "inner",
    "packets",
    "bytes",
    "ipv4_packets",
    "ipv6_packets",
    "non_ip",
    "truncated",
    "bad_header",
    "match",
    "unmatched",
    "unmatched_bytes",
    "merged",
    "late",
    "dropped",
    "drops",
    "lost_rows",
    "hash",
    "row_hash",
    row::CHECKSUM,
    row::SIGNATURE,
];

/// Whether a row can have a column of this name, of its own or of a measurement. Others are not
/// read.
pub(crate) fn is_known(column: &str) -> bool {
    COLUMNS.contains(&column) || measurement::columns().any(|begin| column.starts_with(begin))
}
