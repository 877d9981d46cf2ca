//! Rows whose names or values would take much memory.

use super::*;
use crate::lake::parquet;
use crate::row::Value;

/// Returns a row without packets and measurements.
fn row(host: &str, run: &str) -> Row {
    let mut row = Row::default();
    row.int("schema", SCHEMA);
    for (column, text) in [("host", host), ("run", run), ("source", "eth1"), ("direction", "both")]
    {
        row.text(column, text);
    }
    let numbers = ["window", "start_ns", "end_ns", "scheduled_start_ns", "scheduled_end_ns"];
    numbers.into_iter().for_each(|column| row.int(column, 0));
    let counts = ["packets", "bytes", "ipv4_packets", "ipv6_packets", "non_ip", "truncated"];
    counts.into_iter().for_each(|column| row.int(column, 0));
    let others = ["bad_header", "late", "late_ns", "lost_rows", "dropped"];
    others.into_iter().for_each(|column| row.int(column, 0));
    row.put("complete", Value::Bool(Some(true)));
    row.put("inner", Value::Bool(Some(false)));
    row.put("drops", Value::List(Vec::new()));
    ["hash", "row_hash"].into_iter().for_each(|column| row.text(column, "crc32_790900f3"));
    row
}

fn united(rows: &[Row], by: By) -> Result<u64, String> {
    let name = format!("flowgauge-names-{}-{}.parquet", std::process::id(), by.name());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, parquet::write(rows, &[]).unwrap()).unwrap();
    let selection = Selection { paths: vec![path.clone()], ..Selection::default() };
    let options = Options { by, ..Options::default() };
    let mut records = 0;
    let united = unite(&selection, &options, |_| {
        records += 1;
        Ok(())
    });
    std::fs::remove_file(&path).unwrap();
    united.map(|()| records).map_err(|error| error.to_string())
}

#[test]
fn names_are_limited() {
    let rows = |number: u64, length: usize| -> Vec<Row> {
        (0..number).map(|host| row(&format!("{host:0length$}"), "1")).collect()
    };
    // Each name takes 4,000 bytes and what a map needs.
    let error = united(&rows(9000, 4000), By::All).unwrap_err();
    assert!(error.contains("names of sources and runs; merge fewer files"), "{error}");
    assert_eq!(united(&rows(1000, 5), By::Host), Ok(1000));
    let error = united(&rows(1001, 5), By::Source).unwrap_err();
    assert!(error.contains("1001 unions by source, and at most 1000"), "{error}");
}

#[test]
fn a_run_has_each_window_of_a_place_once() {
    let at = |run: &str, time: u64, windows: (u64, u64)| {
        let mut row = row("a", run);
        row.0.retain(|(name, _)| name != "window" && !name.ends_with("_ns"));
        row.int("window", windows.0);
        row.int("last_window", windows.1);
        row.int("late_ns", 0);
        for (column, time) in [("start_ns", time), ("end_ns", time + 10)] {
            row.int(column, time);
            row.int(format!("scheduled_{column}"), time);
        }
        row
    };
    let (first, second) = (at("1", 0, (0, 0)), at("1", 10, (1, 4)));
    assert_eq!(united(&[first.clone(), second.clone(), at("1", 20, (5, 5))], By::All), Ok(1));
    // A clock that was set back.
    assert_eq!(united(&[at("1", 50, (0, 2)), at("1", 20, (3, 3))], By::All), Ok(1));
    // Another run.
    assert_eq!(united(&[first.clone(), at("2", 0, (0, 0))], By::All), Ok(1));
    for windows in [(1, 1), (0, 0), (4, 9), (0, 9)] {
        let rows = [first.clone(), second.clone(), at("1", 30, windows)];
        let error = united(&rows, By::All).unwrap_err();
        assert!(error.contains("have different rows of window"), "{windows:?}: {error}");
    }
}
