//! Rows of a lake that another process forged, through the command. `lake::laws::tests` of
//! `flowgauge-ctl` has a row for each law.

use crate::common::lake::{self, compact, diff, generate, merge, unions};
use crate::common::{Scratch, assert_has, files};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Counts traffic in windows of a second as this host; the run always has the same number.
fn replay(scratch: &Scratch, host: &str, profile: &str) -> PathBuf {
    let (capture, lake) = (generate(scratch, profile, "link.pcap"), scratch.path("lake"));
    lake::replay(&lake, host, &capture, "--align --window 1s").ended(0);
    lake
}

/// Returns the only union of a lake.
fn union(lake: &Path, options: &str) -> Value {
    unions(lake, options).remove(0)
}

#[test]
fn different_rows_of_a_window_are_refused_or_dropped() {
    let scratch = Scratch::new("lake-conflicts");
    for host in ["paris", "berlin"] {
        replay(&scratch, host, "zipf,flows=100,packets=3000,rate=1k");
    }
    // Another run writes the first two windows of Paris again, with other packets.
    let lake = replay(&scratch, "paris", "zipf,flows=7,packets=2000,rate=1k,seed=9");
    let names: Vec<String> = files(std::slice::from_ref(&lake))
        .unwrap()
        .iter()
        .map(|path| path.display().to_string())
        .filter(|name| name.contains("paris"))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for (command, outcome) in [
        ("merge", merge(&lake, "")),
        ("merge by window", merge(&lake, "--by window --measure cardinality")),
        ("diff", diff(&lake, ["paris", "berlin"], "")),
        ("compact", compact(&lake, "")),
    ] {
        assert_eq!(outcome.code, Some(1), "{command}: {outcome:?}");
        let parts = [&*names[0], &*names[1], "different rows of window", "paris:", "--exclude"];
        assert_has(&outcome.stderr, &parts);
    }
    let dropped = merge(&lake, "--conflicts drop").ended(0).stdout;
    let words = "4 rows dropped: others of the same windows have different values";
    let at = |part: &str| dropped.find(part).unwrap_or_else(|| panic!("no {part} in {dropped}"));
    assert!(at(words) < at("4 windows"), "{dropped}");
    let record = union(&lake, "--conflicts drop");
    assert_eq!((&record["packets"], &record["united"]["conflicts"]), (&4000.into(), &4.into()));
    assert_eq!(union(&lake, "--exclude paris")["packets"], 3000);
    // A copy is no conflict.
    fs::copy(&names[0], lake.join("copy.parquet")).unwrap();
    fs::remove_file(&names[1]).unwrap();
    merge(&lake, "").ended(0);
}

#[test]
fn groups_are_limited() {
    let scratch = Scratch::new("lake-groups");
    for host in ["a", "b", "c"] {
        replay(&scratch, host, "zipf,flows=100,packets=3000,rate=1k");
    }
    let lake = scratch.path("lake");
    for by in ["host", "source"] {
        let words = format!("3 unions by {by}, and at most 2: choose rows with --host");
        merge(&lake, &format!("--by {by} --limit 2")).without_output(1, &[&words]);
        merge(&lake, &format!("--by {by} --limit 3")).ended(0);
    }
    merge(&lake, "--by window --limit 1").ended(0);
}

#[test]
fn the_host_that_changes_a_union_most_is_named() {
    let scratch = Scratch::new("lake-leave-one-out");
    for host in ["paris", "lab7"] {
        replay(&scratch, host, "zipf,flows=100,packets=3000,rate=1k");
    }
    let lake = replay(&scratch, "berlin", "unique,packets=30000,rate=10k");
    let (plain, left_out) = (union(&lake, ""), union(&lake, "--leave-one-out"));
    assert_eq!(plain["united"]["leave_one_out"], Value::Null);
    assert_eq!(plain["cardinality"], left_out["cardinality"]);
    let of_hosts = &left_out["united"]["leave_one_out"];
    assert_eq!(of_hosts["largest_change"], "berlin");
    assert_eq!(of_hosts["without"].as_object().unwrap().len(), 3);
    for host in ["paris", "lab7", "berlin"] {
        let others = &union(&lake, &format!("--exclude {host}"))["cardinality"];
        let without = &of_hosts["without"][host];
        for (one, other) in [("value", "estimate"), ("low", "low"), ("high", "high")] {
            assert_eq!(without[one], others[other], "{host}: {one}");
        }
    }
    let words = "without berlin 99 distinct sources (97 … 103), largest change of 3 hosts";
    assert_has(&merge(&lake, "--leave-one-out").stdout, &[words]);
    let csv = merge(&lake, "--leave-one-out --format csv").stdout;
    assert_has(&csv, &[",largest_change,without,without_low,without_high\n", ",berlin,"]);
    let advice = "which no row has; count with --measure cardinality";
    for (options, code, words) in [
        ("--leave-one-out --by host", 2, "cannot be used with '--by"),
        ("--leave-one-out --limit 2", 1, "3 unions by host, and at most 2"),
        ("--leave-one-out --measure sizes", 1, advice),
    ] {
        merge(&lake, options).without_output(code, &[words]);
    }
}
