//! A lake: windows in Parquet files that common query engines read and merge, with a row for each
//! window and place.
//!
//! # Data flow
//! [`Lake`] is a sink of records. It turns each window into a row, in which every measurement has
//! its own columns; `writer` appends rows to a `journal` and collects them into files; `disk`
//! writes the files into a directory; `uploader` uploads them into an object store, if there is
//! one.
//!
//! # Where to look
//! `laws` checks rows that other processes wrote, and [`signature`] which host wrote them.
//! [`union`] selects and merges rows into records again, and [`compact`] joins the small files of
//! an hour. `parquet` converts between rows and files.

pub mod compact;
mod disk;
mod journal;
mod laws;
pub(crate) mod parquet;
mod shared;
pub mod signature;
#[cfg(feature = "object-store")]
pub mod store;
pub mod union;
mod uploader;
mod writer;

pub use crate::identity::Identity;
pub use crate::row::{Cells, Row, Value};
pub use shared::{Problems, Settings};
pub use store::Store;
pub use writer::Lake;

use crate::identity::{self, SCHEMA};
use crate::measurement::{self, ClosedBank};
use crate::record::Record;
use crate::row::{self, int};
use flowgauge_core::Counters;

#[cfg(not(feature = "object-store"))]
pub mod store {
    //! Placeholder for object stores in builds without them.

    use super::parquet::ParquetInput;
    use bytes::Bytes;
    use std::io;

    /// Prefix of the URLs of stores.
    pub const SCHEME: &str = "s3://";

    /// A store, which cannot exist in this build.
    pub enum Store {}

    impl Store {
        /// Fails with an explanation.
        ///
        /// # Errors
        /// Always.
        pub fn open(url: &str) -> io::Result<Self> {
            Err(io::Error::other(format!(
                "{url} is an object store, and this program was built without: give a directory, or build with --features object-store"
            )))
        }

        /// Returns the URL.
        #[must_use]
        pub fn url(&self) -> &str {
            match *self {}
        }

        pub(crate) fn create(&self, _: &str, _: Bytes) -> io::Result<bool> {
            match *self {}
        }

        pub(crate) fn fetch(&self, _: &[String]) -> io::Result<Vec<ParquetInput>> {
            match *self {}
        }

        pub(crate) fn replace(&self, _: &str, _: Bytes) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn remove(&self, _: &str) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn names(&self, _: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
            match *self {}
        }
    }
}

/// Source of the columns of a row, beside those of measurements.
struct RowSource<'a> {
    record: &'a Record,
    counted: &'a ClosedBank,
    identity: &'a Identity,
    /// Number of rows that were lost so far.
    lost: u64,
    /// Number of windows without packets, and without rows, just before.
    silent: u64,
}

impl RowSource<'_> {
    /// Returns the start and the end of the window by the schedule.
    fn scheduled(&self) -> (u64, u64) {
        self.record.scheduled.unwrap_or((self.record.start_ns, self.record.end_ns))
    }

    /// Returns the counters, if a filter expression left packets out or could have.
    fn filtered(&self) -> Option<&Counters> {
        self.record.is_filtered().then_some(&self.record.counters)
    }
}

/// Name of a column, whether it is of a row's header, and its value; a row lacks the column if that is
/// `None`.
type Column = (&'static str, bool, fn(&RowSource<'_>) -> Option<Value>);

/// Columns of every row.
const COLUMNS: [Column; 36] = [
    ("schema", true, |_| Some(SCHEMA.into())),
    ("host", true, |it| Some((*it.identity.host).into())),
    ("run", true, |it| Some((*it.identity.run).into())),
    ("counted_by", true, |it| Some(it.record.adopted.as_ref()?.run.as_deref()?.into())),
    ("backend", false, |it| Some(it.record.backend.into())),
    ("source", true, |it| Some(it.record.interface.as_str().into())),
    ("direction", true, |it| Some(it.record.direction.into())),
    ("time", false, |it| Some(Value::Time(int(it.scheduled().0 / 1000)))),
    ("window", true, |it| Some(it.record.window.into())),
    ("last_window", true, |it| Some(it.record.last_window.unwrap_or(it.record.window).into())),
    ("silent_windows", true, |it| Some(it.silent.into())),
    ("start_ns", true, |it| Some(it.record.start_ns.into())),
    ("end_ns", true, |it| Some(it.record.end_ns.into())),
    ("scheduled_start_ns", true, |it| Some(it.scheduled().0.into())),
    ("scheduled_end_ns", true, |it| Some(it.scheduled().1.into())),
    ("complete", false, |it| Some(it.record.complete.into())),
    ("late_ns", false, |it| Some(it.record.late_ns.into())),
    ("clock_step_ns", false, |it| Some(it.record.clock_step_ns.into())),
    ("inner", true, |it| Some(it.record.inner.into())),
    ("packets", false, |it| Some(it.record.counters.packets().into())),
    ("bytes", false, |it| Some(it.record.counters.bytes.into())),
    ("ipv4_packets", false, |it| Some(it.record.counters.ipv4.into())),
    ("ipv6_packets", false, |it| Some(it.record.counters.ipv6.into())),
    ("non_ip", false, |it| Some(it.record.counters.non_ip.into())),
    ("truncated", false, |it| Some(it.record.counters.truncated.into())),
    ("bad_header", false, |it| Some(it.record.counters.bad_header.into())),
    ("match", true, |it| it.filtered().map(|_| it.record.filter.as_deref().into())),
    ("unmatched", false, |it| Some(it.filtered()?.unmatched.into())),
    ("unmatched_bytes", false, |it| Some(it.filtered()?.unmatched_bytes.into())),
    ("merged", false, |it| Some(it.record.counters.merged).filter(|it| *it > 0).map(Value::from)),
    ("late", false, |it| Some(it.record.late.into())),
    ("dropped", false, |it| Some(it.record.drops.total().into())),
    ("drops", false, |it| {
        let causes = it.record.drops.iter().map(|(cause, _)| cause.name().to_owned());
        let packets = it.record.drops.iter().map(|(_, packets)| int(packets));
        Some(Value::Table(vec![
            ("cause".into(), Cells::Text(causes.collect())),
            ("packets".into(), Cells::Int(packets.collect())),
        ]))
    }),
    ("lost_rows", false, |it| Some(it.lost.into())),
    ("hash", true, |it| Some(identity::name(&it.counted.hash).into())),
    ("row_hash", true, |it| Some(identity::name(&it.counted.row_hash).into())),
];

/// Makes the row of a record that has registers.
fn row(record: &Record, identity: &Identity, lost: u64, silent: u64) -> Option<Row> {
    let counted = record.counted.as_ref()?;
    let source = RowSource { record, counted, identity, lost, silent };
    let mut row = Row::default();
    for (name, _, value) in COLUMNS {
        value(&source).into_iter().for_each(|value| row.put(name, value));
    }
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

/// Whether a row can have a column of this name, of its own or of a measurement. Others are not
/// read.
pub(crate) fn is_known(column: &str) -> bool {
    COLUMNS.iter().any(|(name, ..)| *name == column)
        || [row::CHECKSUM, row::SIGNATURE].contains(&column)
        || measurement::columns(None).any(|begin| column.starts_with(begin))
}

/// Whether a column is of a row's header: its place, run, times, hashes and filter.
fn is_header(column: &str) -> bool {
    COLUMNS.iter().any(|(name, is_header, _)| *is_header && *name == column)
}
