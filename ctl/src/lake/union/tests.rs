//! Rows whose names or values would take much memory.

use super::*;
use crate::lake::parquet;
use crate::lake::signature::{RowPolicy, SigningKey, Trust};
use crate::measurement::laws::{MAX_BYTES, MAX_COUNT};
use crate::row::Value;
use flowgauge_testing::limited;
use flowgauge_testing::scratch::Scratch;

/// Returns a row without packets and measurements.
fn row(host: &str, run: &str) -> Row {
    let mut row = Row::default();
    row.int("schema", SCHEMA);
    for (column, text) in [("host", host), ("run", run), ("source", "eth1"), ("direction", "both")]
    {
        row.text(column, text);
    }
    let times = ["window", "start_ns", "end_ns", "scheduled_start_ns", "scheduled_end_ns"];
    let counts = ["packets", "bytes", "ipv4_packets", "ipv6_packets", "non_ip", "truncated"];
    let others = ["bad_header", "late", "late_ns", "lost_rows", "dropped"];
    let numbers = times.into_iter().chain(counts).chain(others);
    numbers.for_each(|column| row.int(column, 0));
    row.put("complete", Value::Bool(Some(true)));
    row.put("inner", Value::Bool(Some(false)));
    row.put("drops", Value::List(Vec::new()));
    ["hash", "row_hash"].into_iter().for_each(|column| row.text(column, "crc32_790900f3"));
    row
}

/// Writes rows into a file.
pub(super) fn written(path: PathBuf, rows: &[Row]) -> PathBuf {
    std::fs::write(&path, parquet::write(rows, &[]).unwrap()).unwrap();
    path
}

/// Replaces columns of integers.
fn set_ints<const N: usize>(row: &mut Row, columns: [(&str, u64); N]) {
    for (column, number) in columns {
        row.0.retain(|(name, _)| name != column);
        row.int(column.to_owned(), number);
    }
}

/// Replaces the number and the times of a window of ten nanoseconds.
fn set_window(row: &mut Row, window: u64, time: u64) {
    set_ints(row, [("window", window), ("start_ns", time), ("end_ns", time + 10)]);
    set_ints(row, [("scheduled_start_ns", time), ("scheduled_end_ns", time + 10)]);
}

/// Returns the row of a window of ten nanoseconds.
pub(super) fn at(host: &str, window: u64) -> Row {
    let mut row = row(host, "1");
    set_window(&mut row, window, 10 * window);
    row
}

/// Returns the records of a union.
fn records(selection: &Selection, options: &Options) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let united = unite(selection, options, |record| {
        records.push(record);
        Ok(())
    });
    united.map(|()| records).map_err(|error| error.to_string())
}

/// Merges selected rows of one file.
fn merged_of(rows: &[Row], selection: Selection, options: &Options) -> Result<Vec<Record>, String> {
    let scratch = Scratch::new("union");
    let paths = vec![written(scratch.join("rows.parquet"), rows)];
    records(&Selection { paths, ..selection }, options)
}

/// Merges rows of one file.
fn merged(rows: &[Row], by: By) -> Result<Vec<Record>, String> {
    merged_of(rows, Selection::default(), &Options { by, ..Options::default() })
}

/// Merges rows of one file, and returns the number of records.
fn united(rows: &[Row], by: By) -> Result<usize, String> {
    merged(rows, by).map(|records| records.len())
}

/// Merges rows of one file into one record, and returns its provenance.
fn united_in_one(rows: &[Row]) -> United {
    merged(rows, By::All).unwrap().pop().unwrap().united.unwrap()
}

/// Returns the memory that a file of rows takes by its own account.
fn memory(rows: &[Row]) -> u64 {
    let scratch = Scratch::new("union");
    let path = written(scratch.join("rows.parquet"), rows);
    LakeFile::given(path).open().unwrap().memory()
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

/// Limit of the data segment of a process that reads many rows, in KiB.
const MEMORY_KIB: u64 = 128 << 10;

/// A group takes memory only once their number is known, and names are limited.
#[test]
fn many_hosts_and_rows_take_little_memory() {
    const FILES: u64 = 5;
    const ROWS: u64 = 10_000;
    let Some(directory) = limited::directory() else {
        let directory = Scratch::new("union");
        for file in 0..FILES {
            let hosts = file * ROWS..(file + 1) * ROWS;
            let rows: Vec<Row> = hosts.map(|host| row(&format!("{host:06}"), "1")).collect();
            written(directory.join(format!("hosts-{file}")), &rows);
        }
        let copies: Vec<Row> = std::iter::repeat_n(row("a", "1"), 60_000).collect();
        written(directory.join("copies"), &copies);
        let test = "many_hosts_and_rows_take_little_memory";
        limited::run(module_path!(), test, MEMORY_KIB, &directory);
        return;
    };
    let united = |paths: Vec<PathBuf>, by: By| {
        let selection = Selection { paths, ..Selection::default() };
        let (mut rows, mut twice) = (0, 0);
        let united = unite(&selection, &Options { by, ..Options::default() }, |record| {
            let united = record.united.unwrap();
            (rows, twice) = (rows + united.rows, twice + united.twice);
            Ok(())
        });
        united.map(|()| (rows, twice)).map_err(|error| error.to_string())
    };
    let hosts = |files: u64| -> Vec<PathBuf> {
        (0..files).map(|file| directory.join(format!("hosts-{file}"))).collect()
    };
    for by in [By::All, By::Window] {
        assert_eq!(united(hosts(4), by), Ok((4 * ROWS, 0)));
    }
    for by in [By::Host, By::Source] {
        let error = united(hosts(4), by).unwrap_err();
        assert!(error.contains("40000 unions by") && error.contains("at most 1000"), "{error}");
    }
    for by in By::ALL {
        let error = united(hosts(FILES), by).unwrap_err();
        assert!(error.contains("names of sources and runs; merge fewer files"), "{error}");
        assert_eq!(united(vec![directory.join("copies")], by), Ok((1, 59_999)));
    }
}

/// Rows that take more memory than a file that is read whole, in any order.
#[test]
fn rows_of_large_files_are_sorted() {
    let windows = 2000;
    let hosts = ["a", "b"];
    // Neighbours in the file are far apart in time, and hosts alternate.
    let rows: Vec<Row> = (0..2 * windows)
        .map(|index| (index * 1777) % (2 * windows))
        .map(|index| at(hosts[index as usize % 2], index / 2))
        .collect();
    assert!(memory(&rows) > order::SMALL);
    let summary = |it: Record| (it.start_ns, it.united.map(|it| (it.rows, it.hosts)));
    let united: Vec<_> = merged(&rows, By::Window).unwrap().into_iter().map(summary).collect();
    let expected: Vec<_> = (0..windows).map(|window| (10 * window, Some((2, 2)))).collect();
    assert_eq!(united, expected);
}

/// A file stores the text of all rows once.
#[test]
fn rows_that_take_more_memory_than_a_small_file_says_are_sorted() {
    let rows: Vec<Row> = (0..100)
        .rev()
        .map(|window| {
            let mut row = at("a", window);
            row.text("match", "x".repeat(1 << 16));
            row
        })
        .collect();
    let bytes = rows.iter().map(Row::size).sum::<usize>() as u64;
    let said = memory(&rows);
    assert!(said <= order::SMALL && order::SMALL < bytes, "{said} and {bytes} bytes");
    let records = merged(&rows, By::Window).unwrap();
    let starts: Vec<u64> = records.iter().map(|record| record.start_ns).collect();
    assert_eq!(starts, (0..100).map(|window| 10 * window).collect::<Vec<u64>>());
}

#[test]
fn names_of_rows_that_are_sorted_are_limited() {
    // Only the first of them is selected.
    let rows: Vec<Row> = (0..9000).rev().map(|host| row(&format!("{host:04000}"), "1")).collect();
    let host = Some(format!("{:04000}", 8999));
    let selection = Selection { host, ..Selection::default() };
    let error = merged_of(&rows, selection, &Options::default()).unwrap_err();
    assert!(error.contains("names of sources and runs; merge fewer files"), "{error}");
}

/// Histograms of delays take 6 MB if there are as many as settings allow.
#[test]
fn memory_of_groups_is_limited() {
    let with_delays = |host: u64| {
        let mut row = row(&host.to_string(), "1");
        row.text("delay_kinds", "tcp-handshake,tcp-data");
        row.text("delay_algorithm", "fridge");
        row.text("delay_clock", "trace");
        row.put("delay_auto", Value::Bool(Some(false)));
        for (column, number) in [
            ("directions", flowgauge_core::delay::Directions::Apart as u64),
            ("slots_log2", 10),
            ("admit_log2", 0),
            ("groups_log2", 6),
            ("expiry_ns", 1_000_000_000),
            ("prefixes", 1),
            ("resolution_ns", 1),
        ] {
            row.int(format!("delay_{column}"), number);
        }
        for column in ["delay", "delay_buckets"] {
            row.put(column, Value::List(Vec::new()));
        }
        row
    };
    let by_host = |hosts: u64, limit: usize| {
        let rows: Vec<Row> = (0..hosts).map(with_delays).collect();
        let options = Options { by: By::Host, limit: Some(limit), ..Options::default() };
        merged_of(&rows, Selection::default(), &options).map(|groups| groups.len())
    };
    assert_eq!(by_host(10, 10), Ok(10));
    assert_eq!(by_host(20, 200), Ok(20));
    let error = by_host(20, 20).unwrap_err();
    for words in ["unions by host take more than", "--limit"] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_run_has_each_window_of_a_place_once() {
    let at = |run: &str, time: u64, windows: (u64, u64)| {
        let mut row = row("a", run);
        set_window(&mut row, windows.0, time);
        row.int("last_window", windows.1);
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

#[test]
fn a_window_that_two_runs_published_counts_once() {
    let at = |run: &str, counted_by: Option<&str>, window: u64, time: u64| {
        let mut row = row("a", run);
        row.put("counted_by", Value::Text(counted_by.map(str::to_owned)));
        set_window(&mut row, window, time);
        row
    };
    let counts = |rows: &[Row]| {
        let united = united_in_one(rows);
        (united.rows, united.twice)
    };
    let published = at("1", None, 7, 70);
    assert_eq!(counts(&[published.clone(), at("2", Some("1"), 8, 80)]), (2, 0));
    // The first run was killed just after it published the window, the second one as well.
    let adopted = [at("2", Some("1"), 7, 71), at("3", Some("1"), 7, 72)];
    assert_eq!(counts(&[published.clone(), adopted[0].clone()]), (1, 1));
    assert_eq!(counts(&[published, adopted[0].clone(), adopted[1].clone()]), (1, 2));
    assert_eq!(counts(&adopted), (1, 1));
    // The clock was set back between them.
    assert_eq!(counts(&[at("2", Some("1"), 7, 60), at("1", None, 7, 70)]), (1, 1));
    // A run that adopted nothing counted packets of its own.
    assert_eq!(counts(&[at("1", None, 7, 70), at("2", None, 7, 71)]), (2, 0));
}

#[test]
fn sums_that_saturate_are_marked() {
    let of_run = |run: u64, column: &str, number: u64| {
        let mut row = row("a", &run.to_string());
        set_ints(&mut row, [(column, number)]);
        row
    };
    let most = i64::MAX as u64;
    for (rows, column, number) in [
        (2049, "lost_rows", MAX_COUNT),
        // Windows of all time, by several runs.
        (4, "end_ns", most),
    ] {
        let name = if column == "end_ns" { "doubled_ns" } else { column };
        let rows: Vec<Row> = (0..rows).map(|run| of_run(run, column, number)).collect();
        let united = united_in_one(&rows);
        let json = serde_json::to_value(&united).unwrap();
        assert_eq!(json["saturated"], serde_json::json!([name]));
        let words = format!("{name}: at least, since sums of rows exceed what a number can hold");
        assert!(united.lines().contains(&words), "{:?}", united.lines());
        // One row less fits.
        let fits = united_in_one(&rows[..rows.len() - 2]);
        assert!(fits.saturated().is_empty(), "{:?}", fits.lines());
    }
}

#[test]
fn bytes_of_weeks_at_400_gbit_are_summed() {
    const WEEK: u64 = 7 * 24 * 3600 * 400_000_000_000 / 8;
    let of_run = |run: u64, bytes: u64| {
        let mut row = row("a", &run.to_string());
        set_ints(&mut row, [("packets", 1), ("ipv4_packets", 1), ("bytes", bytes)]);
        row
    };
    let sum = |rows: u64, bytes: u64| {
        let rows: Vec<Row> = (0..rows).map(|run| of_run(run, bytes)).collect();
        merged(&rows, By::All).map(|records| records[0].counters.bytes)
    };
    const { assert!(WEEK > MAX_COUNT) };
    assert_eq!(sum(50, WEEK), Ok(50 * WEEK));
    assert_eq!(sum(16, MAX_BYTES), Ok(1 << 62));
    let error = sum(17, MAX_BYTES).unwrap_err();
    assert!(error.contains("more packets or bytes in all than a number can hold"), "{error}");
    let error = sum(1, MAX_BYTES + 1).unwrap_err();
    assert!(error.contains("column bytes has 288230376151711745, more than a window"), "{error}");
}

/// Writes each row into a file of its own, and merges them with the trust in some hosts' keys.
fn verified(
    rows: &[Row],
    trust: &Trust,
    untrusted: RowPolicy,
    by: By,
) -> Result<Vec<Record>, String> {
    let lake = Scratch::new("union");
    for (number, row) in rows.iter().enumerate() {
        written(lake.join(format!("{number}.parquet")), std::slice::from_ref(row));
    }
    let (paths, exclude) = (vec![lake.to_path_buf()], vec!["excluded".to_owned()]);
    let selection = Selection { paths, exclude, ..Selection::default() };
    let trust = Arc::new(trust.clone());
    let verification = Some(Verification { trust, untrusted });
    let expect = vec!["paris".to_owned(), "berlin".to_owned(), "lab7".to_owned()];
    let options = Options { by, verification, expect, ..Options::default() };
    records(&selection, &options)
}

#[test]
fn rows_that_their_host_has_not_signed_are_refused_or_dropped() {
    let (paris, berlin) = (SigningKey::create().unwrap().0, SigningKey::create().unwrap().0);
    let trust = Trust::of(&[("paris", &paris), ("berlin", &berlin)]);
    let signed = |host: &str, key: &SigningKey| {
        let mut row = row(host, "1");
        row.seal();
        key.sign(&mut row);
        row
    };
    let honest = [signed("paris", &paris), signed("berlin", &berlin)];
    let of = |row: Row| [&honest[..], &[row]].concat();
    let mut changed = signed("paris", &paris);
    changed.0.retain(|(name, _)| ![CHECKSUM, "late"].contains(&name.as_ref()));
    changed.int("late", 5);
    changed.seal();
    assert!(changed.is_as_summed());
    let mut unsigned = row("paris", "1");
    unsigned.seal();
    let mut other_version = signed("paris", &berlin);
    set_ints(&mut other_version, [("schema", 2)]);
    let mut other_hash = row("paris", "2");
    other_hash.0.retain(|(name, _)| name != "hash");
    other_hash.text("hash", "tabulated_790900f3_1");
    let records = verified(&honest, &trust, RowPolicy::Refuse, By::All).unwrap();
    let united = records[0].united.as_ref().unwrap();
    assert_eq!((united.rows, united.hosts, united.untrusted), (2, 2, 0));
    assert_eq!(united.absent, ["lab7"]);
    for (forged, words) in [
        (signed("paris", &berlin), "paris:eth1: its signature is not one of the trusted key"),
        (changed, "its signature is not one of the trusted key of host paris"),
        (unsigned, "it has no signature of host paris"),
        (signed("lab7", &berlin), "host lab7 is not in the list"),
        (other_version, "version 2 of the columns"),
        (other_hash, "hashes differ"),
    ] {
        for by in By::ALL {
            let error = verified(&of(forged.clone()), &trust, RowPolicy::Refuse, by).unwrap_err();
            assert!(error.contains(words) && error.contains("2.parquet"), "{error}");
            // The row is ignored: its hash is not compared, and its host counts as absent.
            let records = verified(&of(forged.clone()), &trust, RowPolicy::Drop, by).unwrap();
            let united: Vec<_> = records.iter().map(|it| it.united.as_ref().unwrap()).collect();
            let sum = |number: fn(&United) -> u64| united.iter().map(|it| number(it)).sum::<u64>();
            assert_eq!((sum(|it| it.rows), sum(|it| it.untrusted)), (2, 1), "{words}");
            assert_eq!(united.last().unwrap().absent, ["lab7"], "{words}");
            assert_eq!(records.iter().map(|it| it.late).sum::<u64>(), 0);
        }
    }
    // Signatures of hosts that are left out do not matter.
    let excluded = of(row("excluded", "1"));
    assert_eq!(verified(&excluded, &trust, RowPolicy::Refuse, By::All).unwrap().len(), 1);
    let error = verified(&[row("lab7", "1")], &trust, RowPolicy::Drop, By::All).unwrap_err();
    assert!(error.contains("no windows to merge, 1 window dropped: not signed"), "{error}");
}

#[test]
fn other_measurements_are_verified_and_left_out() {
    let paris = SigningKey::create().unwrap().0;
    let mut row = row("paris", "1");
    row.float("length_mean", f64::INFINITY);
    row.seal();
    paris.sign(&mut row);
    let trust = Arc::new(Trust::of(&[("paris", &paris)]));
    let verification = Some(Verification { trust, untrusted: RowPolicy::Refuse });
    let measure = vec![MeasurementKind::Cardinality];
    let options = Options { measure, verification, ..Options::default() };
    merged_of(&[row], Selection::default(), &options).unwrap();
}
