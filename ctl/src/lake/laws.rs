//! Laws of rows: names, times, packets and losses, and those of all measurements.
//!
//! Every row is checked before any of it counts: by unions and comparisons ([`super::union`]),
//! before files are joined ([`super::compact`]), and when a journal is read. Another process may
//! have written the row, with a valid checksum.

use super::signature;
use crate::measurement;
use crate::measurement::laws::{self, MAX_COUNT, RowTotals, count, require};
use crate::row::{Row, RowDefect, SIGNATURE, Value};
use flowgauge_dataplane::{LossCause, Losses};

/// Maximum length of a name of a host or run, in bytes.
const MAX_NAME_BYTES: usize = 4096;
/// Maximum length of the names of a row's interfaces or files, in bytes.
const MAX_SOURCE_BYTES: usize = 1 << 16;
/// Maximum number of a window, so that sums of numbers fit.
const MAX_WINDOW: u64 = 1 << 62;
const DIRECTIONS: [&str; 3] = ["ingress", "egress", "both"];

/// Checks all laws of a row.
pub(super) fn check(row: &Row) -> Result<(), RowDefect> {
    check_header(row)?;
    check_values(row)
}

/// Checks the laws of a row's names and times.
pub(super) fn check_header(row: &Row) -> Result<(), RowDefect> {
    for (column, most) in [
        ("host", MAX_NAME_BYTES),
        ("run", MAX_NAME_BYTES),
        ("counted_by", MAX_NAME_BYTES),
        ("source", MAX_SOURCE_BYTES),
    ] {
        let length = row.maybe_text(column).map_or(0, str::len);
        require(length <= most, || format!("column {column} has {length} bytes; at most {most}"))?;
    }
    let direction = row.maybe_text("direction").unwrap_or_default();
    require(DIRECTIONS.contains(&direction), || {
        format!("column direction is none of {}", DIRECTIONS.join(", "))
    })?;
    let window: u64 = row.number("window")?;
    let last = row.number_or("last_window", window)?;
    require(window <= last && last <= MAX_WINDOW, || format!("windows {window} to {last}"))?;
    let silent: u64 = row.number_or("silent_windows", 0)?;
    require(silent <= window, || format!("{silent} silent windows before window {window}"))?;
    let times = ["start_ns", "end_ns", "scheduled_start_ns", "scheduled_end_ns"];
    let [begin, end, scheduled_begin, scheduled_end] =
        times.map(|column| row.number::<u64>(column));
    let (begin, end) = (begin?, end?);
    let (scheduled_begin, scheduled_end) = (scheduled_begin?, scheduled_end?);
    require(begin <= end && scheduled_begin <= scheduled_end, || {
        format!(
            "a window {window} from {begin} to {end} ns, scheduled from {scheduled_begin} to {scheduled_end} ns"
        )
    })
}

/// Checks the laws of a row's packets, losses and measurements, and the form of its signature.
pub(super) fn check_values(row: &Row) -> Result<(), RowDefect> {
    let totals = RowTotals::of(row)?;
    row.number::<u64>("late_ns")?;
    count(row, "lost_rows")?;
    let is_signature = |value: &Value| match value {
        Value::Bytes(bytes) => {
            bytes.as_ref().is_none_or(|bytes| bytes.len() == signature::SIGNATURE_BYTES)
        }
        _ => false,
    };
    require(row.get(SIGNATURE).is_none_or(is_signature), || {
        format!("column {SIGNATURE} has no {} bytes", signature::SIGNATURE_BYTES)
    })?;
    let dropped = losses(row)?.total();
    require(count(row, "dropped")? == dropped, || {
        format!("column dropped does not have the {dropped} packets of column drops")
    })?;
    measurement::check(row, &totals)
}

/// Returns the packets that a row's window lost, by cause.
pub(super) fn losses(row: &Row) -> Result<Losses, RowDefect> {
    let drops = row.table("drops")?;
    let mut losses = Losses::default();
    for (name, packets) in drops.texts("cause")?.iter().zip(drops.ints("packets")?) {
        let cause = LossCause::ALL.into_iter().find(|cause| cause.name() == name);
        let cause = cause.ok_or_else(|| {
            format!("column drops has '{name}', which this version does not know")
        })?;
        let packets = laws::sum("drops.packets", &[*packets], MAX_COUNT)?;
        require(losses.get(cause) == 0, || format!("column drops has {name} twice"))?;
        losses.add(cause, packets);
    }
    Ok(losses)
}

#[cfg(test)]
mod tests;
