//! `flowgauge tables --read-times`: how long a switch takes to read its registers.

use crate::error::CommandFailure;
use crate::output::print;
use flowgauge_ctl::output::{Format, escaped};
use flowgauge_dataplane::tofino::{self, ReadTimes};
use serde_json::json;
use std::io::{self, Write};
use std::time::Duration;

/// Window lengths that people choose.
const WINDOW_LENGTHS: [Duration; 10] = [
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Returns the shortest window in which a rotation takes at most half of the time, which leaves
/// room for a repetition and for samples. Also used for the time between samples.
fn shortest(reading: Duration) -> Duration {
    let least = reading * 2;
    WINDOW_LENGTHS.into_iter().find(|window| *window >= least).unwrap_or(least)
}

/// Measures and prints the read times of a switch.
pub(crate) fn execute(switch: &tofino::Options, format: Format) -> Result<(), CommandFailure> {
    let times = &tofino::read_times(switch)?;
    print(|out| match format {
        Format::Table => print_times(switch, times, out),
        Format::Csv => csv_times(times, out),
        Format::Json => json_times(switch, times, out),
    })
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn print_times(
    switch: &tofino::Options,
    times: &ReadTimes,
    out: &mut impl Write,
) -> io::Result<()> {
    let width = times.tables.iter().map(|row| row.table.len()).max().unwrap_or_default();
    writeln!(
        out,
        "{:<width$} {:>9} {:>11} {:>11} {:>11}",
        escaped(&switch.address).to_string(),
        "elements",
        "sync",
        "read",
        "clear"
    )?;
    for row in &times.tables {
        let [sync, read] = [row.sync, row.read].map(milliseconds);
        let clear = row.clear.map_or_else(|| "-".to_owned(), milliseconds);
        writeln!(
            out,
            "{:<width$} {:>9} {sync:>11} {read:>11} {clear:>11}",
            escaped(&row.table).to_string(),
            row.elements
        )?;
    }
    if times.is_staggered() {
        let (sample, interval) =
            (milliseconds(times.sample()), humantime::format_duration(shortest(times.sample())));
        writeln!(
            out,
            "\na sample takes up to {sample}; --sample-every {interval} and longer is possible"
        )?;
        // Packet counters alone make no windows.
        if times.tables.iter().filter(|row| row.clear.is_some()).count() == 1 {
            return Ok(());
        }
    }
    let (rotation, window) =
        (milliseconds(times.rotation()), humantime::format_duration(shortest(times.rotation())));
    writeln!(
        out,
        "\na rotation takes up to {rotation}; windows of {window} and longer are possible"
    )
}

fn csv_times(times: &ReadTimes, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "table,elements,sync_ns,read_ns,clear_ns")?;
    times.tables.iter().try_for_each(|row| {
        let [sync, read] = [row.sync, row.read].map(|time| time.as_nanos());
        let clear = row.clear.map_or_else(String::new, |time| time.as_nanos().to_string());
        writeln!(out, "{},{},{sync},{read},{clear}", escaped(&row.table), row.elements)
    })
}

fn json_times(switch: &tofino::Options, times: &ReadTimes, out: &mut impl Write) -> io::Result<()> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let tables = times.tables.iter().map(|row| {
        let [sync, read] = [row.sync, row.read].map(nanoseconds);
        let clear = row.clear.map(nanoseconds);
        json!({ "table": row.table, "elements": row.elements, "sync_ns": sync, "read_ns": read, "clear_ns": clear })
    });
    let all = json!({
        "address": switch.address,
        "tables": tables.collect::<Vec<_>>(),
        "rotation_ns": nanoseconds(times.rotation()),
        "shortest_window_ns": nanoseconds(shortest(times.rotation())),
        "sample_ns": nanoseconds(times.sample()),
        "shortest_sample_every_ns": nanoseconds(shortest(times.sample())),
    });
    writeln!(out, "{all}")
}
