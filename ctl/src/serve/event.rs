//! A window as the page gets it.

use crate::figure::Figure;
use crate::record::{Kind, Record};
use crate::text::escaped;
use serde::Serialize;

/// A window, or a whole capture.
#[derive(Serialize)]
struct Event<'a> {
    /// Counts up, whatever source it is of.
    id: u64,
    source: &'a str,
    direction: &'a str,
    /// Whether this is one of several places, which another window has together.
    part: bool,
    backend: &'a str,
    window: u64,
    /// The last one, where it is of several in which nothing came.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_window: Option<u64>,
    /// In seconds since the Unix epoch.
    start: f64,
    end: f64,
    complete: bool,
    late_ns: u64,
    /// Whether this is everything together.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    total: bool,
    figures: &'a [Figure],
}

/// A record as JSON, with a number of its own.
pub(super) fn event(id: u64, record: &Record) -> serde_json::Result<String> {
    serde_json::to_string(&Event {
        id,
        // It may name a file, whose name anybody may have chosen.
        source: &escaped(&record.origin()),
        direction: record.direction,
        part: record.part,
        backend: record.backend,
        window: record.window,
        last_window: record.last_window,
        start: record.start_ns as f64 / 1e9,
        end: record.end_ns as f64 / 1e9,
        complete: record.complete,
        late_ns: record.late_ns,
        total: record.kind == Kind::Total,
        figures: record.figures(),
    })
}
