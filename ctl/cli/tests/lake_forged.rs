//! Rows of a lake that another process forged, through the command. `lake::laws::tests` of
//! `flowgauge-ctl` has a row for each law.

use crate::common::{Outcome, Scratch, files, flowgauge};
use std::fs;
use std::process::Command;

fn run(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Counts traffic in windows of a second as this host; the run always has the same number.
fn replay(scratch: &Scratch, host: &str, profile: &str) {
    let capture = scratch.path("link.pcap");
    let outcome = run(flowgauge().args(["generate", profile, "--force", "--to"]).arg(&capture));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let options = ["--host", host, "--align", "--window", "1s", "--lake"];
    let lake = scratch.path("lake");
    let outcome = run(flowgauge().arg("replay").arg(&capture).args(options).arg(&lake));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

fn merge(scratch: &Scratch, options: &str) -> Outcome {
    run(flowgauge().arg("merge").arg(scratch.path("lake")).args(options.split_whitespace()))
}

#[test]
fn different_rows_of_a_window_are_refused_or_dropped() {
    let scratch = Scratch::new("lake-conflicts");
    let lake = scratch.path("lake");
    replay(&scratch, "paris", "zipf,flows=100,packets=3000,rate=1k");
    replay(&scratch, "berlin", "zipf,flows=100,packets=3000,rate=1k");
    // Another run writes the first two windows of Paris again, with other packets.
    replay(&scratch, "paris", "zipf,flows=7,packets=2000,rate=1k,seed=9");
    let names: Vec<String> = files(std::slice::from_ref(&lake))
        .unwrap()
        .iter()
        .map(|path| path.display().to_string())
        .filter(|name| name.contains("paris"))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let side = lake.display().to_string();
    let mut commands = [flowgauge(), flowgauge(), flowgauge(), flowgauge()];
    let [all, by_window, diff, compact] = &mut commands;
    all.arg("merge").arg(&lake);
    by_window.arg("merge").arg(&lake).args(["--by", "window", "--measure", "cardinality"]);
    diff.arg("diff").args([format!("{side},host=paris"), format!("{side},host=berlin")]);
    compact.args(["lake", "compact"]).arg(&lake);
    for command in &mut commands {
        let outcome = run(command);
        assert_eq!(outcome.code, Some(1), "{command:?}: {outcome:?}");
        for part in [&*names[0], &*names[1], "different rows of window", "paris:", "--exclude"] {
            assert!(outcome.stderr.contains(part), "{part} is not in {}", outcome.stderr);
        }
    }
    let dropped = merge(&scratch, "--conflicts drop");
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    let words = "4 rows dropped: others of the same windows have different values";
    let at = |part: &str| {
        dropped.stdout.find(part).unwrap_or_else(|| panic!("{part} is not in {}", dropped.stdout))
    };
    assert!(at(words) < at("4 windows"), "{}", dropped.stdout);
    let record = merge(&scratch, "--conflicts drop --format json").stdout;
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!((&record["packets"], &record["united"]["conflicts"]), (&4000.into(), &4.into()));
    let alone = merge(&scratch, "--exclude paris --format json").stdout;
    let alone: serde_json::Value = serde_json::from_str(&alone).unwrap();
    assert_eq!(alone["packets"], 3000);
    // A copy is no conflict.
    fs::copy(&names[0], lake.join("copy.parquet")).unwrap();
    fs::remove_file(&names[1]).unwrap();
    assert_eq!(merge(&scratch, "").code, Some(0));
}

#[test]
fn groups_are_limited() {
    let scratch = Scratch::new("lake-groups");
    for host in ["a", "b", "c"] {
        replay(&scratch, host, "zipf,flows=100,packets=3000,rate=1k");
    }
    for by in ["host", "source"] {
        let outcome = merge(&scratch, &format!("--by {by} --limit 2"));
        assert_eq!((outcome.code, &*outcome.stdout), (Some(1), ""));
        let words = format!("3 unions by {by}, and at most 2: choose rows with --host");
        assert!(outcome.stderr.contains(&words), "{}", outcome.stderr);
        assert_eq!(merge(&scratch, &format!("--by {by} --limit 3")).code, Some(0));
    }
    assert_eq!(merge(&scratch, "--by window --limit 1").code, Some(0));
}

#[test]
fn the_host_that_changes_a_union_most_is_named() {
    let scratch = Scratch::new("lake-leave-one-out");
    for host in ["paris", "lab7"] {
        replay(&scratch, host, "zipf,flows=100,packets=3000,rate=1k");
    }
    replay(&scratch, "berlin", "unique,packets=30000,rate=10k");
    let read = |options: &str| -> serde_json::Value {
        let outcome = merge(&scratch, &format!("--format json {options}"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        serde_json::from_str(&outcome.stdout).unwrap()
    };
    let (plain, left_out) = (read(""), read("--leave-one-out"));
    assert_eq!(plain["united"]["leave_one_out"], serde_json::Value::Null);
    assert_eq!(plain["cardinality"], left_out["cardinality"]);
    let of_hosts = &left_out["united"]["leave_one_out"];
    assert_eq!(of_hosts["largest_change"], "berlin");
    assert_eq!(of_hosts["without"].as_object().unwrap().len(), 3);
    for host in ["paris", "lab7", "berlin"] {
        let others = &read(&format!("--exclude {host}"))["cardinality"];
        let without = &of_hosts["without"][host];
        for (one, other) in [("value", "estimate"), ("low", "low"), ("high", "high")] {
            assert_eq!(without[one], others[other], "{host}: {one}");
        }
    }
    let table = merge(&scratch, "--leave-one-out").stdout;
    let words = "without berlin 99 distinct sources (97 … 103), largest change of 3 hosts";
    assert!(table.contains(words), "{table}");
    let csv = merge(&scratch, "--leave-one-out --format csv").stdout;
    assert!(csv.contains(",largest_change,without,without_low,without_high\n"), "{csv}");
    assert!(csv.contains(",berlin,"), "{csv}");
    for (options, code, words) in [
        ("--leave-one-out --by host", 2, "cannot be used with '--by"),
        ("--leave-one-out --limit 2", 1, "3 unions by host, and at most 2"),
        (
            "--leave-one-out --measure sizes",
            1,
            "which no row has; count with --measure cardinality",
        ),
    ] {
        let outcome = merge(&scratch, options);
        assert_eq!((outcome.code, &*outcome.stdout), (Some(code), ""), "{options}");
        assert!(outcome.stderr.contains(words), "{options}: {}", outcome.stderr);
    }
}
