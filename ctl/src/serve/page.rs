//! Live page: its files, the frame of all pages, and a window as JSON.

use crate::figure::{Figure, Shape};
use crate::history::History;
use crate::names::Names;
use crate::record::{Record, RecordKind};
use crate::text::{escaped, escaped_strings, optional};
use serde::Serializer;
use serde::ser::SerializeMap;
use std::collections::BTreeMap;

pub(super) const HTML: &str = include_str!("assets/page.html");
pub(super) const SCRIPT: &str = concat!(
    include_str!("assets/text.js"),
    include_str!("assets/sections.js"),
    include_str!("assets/store.js"),
    include_str!("assets/panel.js"),
    include_str!("assets/page.js")
);
/// Added to the page of a capture.
#[cfg(feature = "report")]
pub(super) const INVENTORY: &str = include_str!("assets/inventory.js");
pub(super) const STYLE: &str =
    concat!(include_str!("assets/base.css"), include_str!("assets/page.css"));
pub(super) const CHARTS: &str = include_str!("assets/uplot/uPlot.iife.min.js");
pub(super) const CHARTS_STYLE: &str = include_str!("assets/uplot/uPlot.min.css");

/// Style sheet of all pages.
const BASE: &str = include_str!("assets/base.css");

/// Returns a self-contained page in the style of the live page. The arguments are HTML, except
/// `style`, which is added to the common style sheet.
#[must_use]
pub fn document(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{BASE}{style}</style>\n</head>\n<body>\n\
         <header>\n  <h1>flowgauge <span>{title}</span></h1>\n</header>\n<main>\n{body}</main>\n\
         <footer><p>flowgauge {}</p></footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Formats a record of a window or of a whole capture as JSON, with its number `id`, which counts
/// up across all sources.
pub(super) fn event(
    id: u64,
    record: &Record,
    names: &Names,
    history: &History,
) -> serde_json::Result<String> {
    let mut json = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut json);
    let mut event = serializer.serialize_map(None)?;
    event.serialize_entry("id", &id)?;
    // The origin may be a file name, which may also contain line breaks.
    event.serialize_entry("source", &escaped(&record.origin()))?;
    event.serialize_entry("direction", record.direction)?;
    // Whether this is one of several sources that another window merges.
    event.serialize_entry("part", &record.part)?;
    event.serialize_entry("backend", record.backend)?;
    event.serialize_entry("window", &record.window)?;
    // Last window, if this stands for several empty ones.
    optional(&mut event, "last_window", record.last_window)?;
    // Seconds since the Unix epoch.
    event.serialize_entry("start", &(record.start_ns as f64 / 1e9))?;
    event.serialize_entry("end", &(record.end_ns as f64 / 1e9))?;
    event.serialize_entry("complete", &record.complete)?;
    event.serialize_entry("late_ns", &record.late_ns)?;
    optional(&mut event, "total", (record.kind == RecordKind::Total).then_some(true))?;
    event.serialize_entry("figures", &history.figures(record))?;
    // Items of rankings with names after their addresses, where these have any.
    let named = named(record.figures(), names);
    optional(&mut event, "names", Some(named).filter(|named| !named.is_empty()))?;
    event.end()?;
    Ok(escaped_strings(&String::from_utf8_lossy(&json)).into_owned())
}

fn named<'a>(figures: &'a [Figure], names: &Names) -> BTreeMap<&'a str, String> {
    let rankings = figures.iter().filter_map(|figure| match &figure.shape {
        Shape::Ranking(items) => Some(items),
        _ => None,
    });
    rankings.flatten().filter_map(|item| Some((&*item.name, names.named(&item.name)?))).collect()
}
