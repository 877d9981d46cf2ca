//! Events of the live page: one window as JSON.

use crate::figure::{Figure, Shape};
use crate::history::{FigureInContext, History};
use crate::names::Names;
use crate::record::{Record, RecordKind};
use crate::text::{escaped, escaped_strings};
use serde::Serialize;
use std::collections::BTreeMap;

/// Window, or a whole capture.
#[derive(Serialize)]
struct Event<'a> {
    /// Number of the window, counting up across all sources.
    id: u64,
    source: &'a str,
    direction: &'a str,
    /// Whether this is one of several sources that another window merges.
    part: bool,
    backend: &'a str,
    window: u64,
    /// Last window, if this stands for several empty ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_window: Option<u64>,
    /// Seconds since the Unix epoch.
    start: f64,
    end: f64,
    complete: bool,
    late_ns: u64,
    /// Whether this is the total.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    total: bool,
    figures: Vec<FigureInContext<'a>>,
    /// Items of rankings with names after their addresses, where these have any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    names: BTreeMap<&'a str, String>,
}

/// Formats a record as JSON, with its number `id`.
pub(super) fn event(
    id: u64,
    record: &Record,
    names: &Names,
    history: &History,
) -> serde_json::Result<String> {
    let event = serde_json::to_string(&Event {
        id,
        // The origin may be a file name, which may also contain line breaks.
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
        total: record.kind == RecordKind::Total,
        figures: history.figures(record),
        names: named(record.figures(), names),
    })?;
    Ok(escaped_strings(&event).into_owned())
}

fn named<'a>(figures: &'a [Figure], names: &Names) -> BTreeMap<&'a str, String> {
    if names.is_off() {
        return BTreeMap::new();
    }
    let rankings = figures.iter().filter_map(|figure| match &figure.shape {
        Shape::Ranking(items) => Some(items),
        _ => None,
    });
    rankings.flatten().filter_map(|item| Some((&*item.name, names.named(&item.name)?))).collect()
}
