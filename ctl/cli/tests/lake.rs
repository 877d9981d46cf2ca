//! Windows in a lake, merged as if one machine had counted them in one window.

use crate::common::lake::{self, generate, unions};
use crate::common::served::ALL;
use crate::common::{
    Running, Scratch, assert_has, command, files, finish, json_lines, number, of_kind, packets,
    pcap, text,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Replays space-separated captures into a lake as this host, and returns the records.
fn replay(scratch: &Scratch, host: &str, captures: &str, options: &str) -> Vec<Value> {
    let options = format!("--format json {options}");
    lake::replay(&scratch.path("lake"), host, captures, &options).json()
}

fn merge(scratch: &Scratch, options: &str) -> Vec<Value> {
    unions(&scratch.path("lake"), options)
}

/// Keys that a total and a union share. A total has no entropies.
const SHARED_KEYS: &str = "packets bytes ipv4_packets ipv6_packets rejected drops cardinality \
                           frequency membership sizes reorder";

/// Checks heavy hitters of a union, which has room for the flows of all rows: the guaranteed counts
/// of the total's flows are within their intervals.
fn assert_no_wider(total: &Value, union: &Value) {
    assert_eq!((&total["total"], &total["key"]), (&union["total"], &union["key"]));
    let flows = |top: &Value| -> BTreeMap<String, (u64, u64)> {
        let flow = |flow: &Value| {
            (text(flow, "flow").to_owned(), (number(flow, "low"), number(flow, "high")))
        };
        top["flows"].as_array().unwrap().iter().map(flow).collect()
    };
    let (of_total, of_union) = (flows(total), flows(union));
    let both: Vec<_> =
        of_total.iter().filter_map(|(flow, bounds)| Some((bounds, of_union.get(flow)?))).collect();
    assert!(both.len() * 2 >= of_total.len(), "{total} {union}");
    for ((low, high), (union_low, union_high)) in both {
        assert!(
            low <= union_low && union_low <= union_high && union_high <= high,
            "{total} {union}"
        );
    }
}

/// Checks that the first keys of a total are in a union, with the same numbers. A union has the
/// candidates of all windows, and a total those that are left in its cells.
fn assert_among(total: &Value, union: &Value) {
    let [of_total, of_union] = [total, union].map(|flows| flows.as_array().unwrap());
    assert!(!of_total.is_empty());
    for flow in of_total.iter().take(3) {
        assert!(of_union.contains(flow), "{flow} is not in {union}");
    }
}

/// Checks values of space-separated names.
#[track_caller]
fn assert_alike(total: &Value, union: &Value, names: &str) {
    for name in names.split(' ') {
        assert_eq!(total[name], union[name], "{name}");
    }
}

#[test]
fn a_union_of_windows_says_what_their_total_says() {
    for (name, profile) in [
        ("zipf", "zipf,flows=300,packets=6000,rate=1k,size=200"),
        ("ipv6", "zipf,ipv6,vlan=7,flows=300,packets=6000,rate=1k,size=100"),
        ("talks", "delay,shape=conversations,requests=300,loss=0.05,timestamps,seed=2"),
        ("reordered", "reorder,packets=5000,prefixes=8,heavy=2,share=0.5,loss=0.01,rate=1k"),
    ] {
        let scratch = Scratch::new(&format!("lake-total-{name}"));
        let capture = generate(&scratch, profile, "capture.pcap");
        for (number, options) in [
            "--delay-algorithm fridge",
            "--delay-algorithm multi-fridge --delay-admit 1/2 --hash crc32 --algorithm space-saving --by bytes --sketch frequency=count-sketch",
            "--delay-algorithm overwrite --algorithm hashpipe --key five-tuple,frequency=src --registers 64",
            "--delay-algorithm expiry --algorithm precision --key dst --reorder-algorithm sampling --delay-local 10.0.0.0/9",
            "--delay-admit auto --algorithm d-way-rap --filter 2x256 --sketch entropy=count-min",
        ]
        .into_iter()
        .enumerate()
        {
            let lake = Scratch::new(&format!("lake-total-{name}-{number}"));
            let records = replay(&lake, "a", &capture, &format!("--window 1s --measure {ALL} --query 10.0.0.1 {options}"));
            let total = of_kind(&records, "total")[0];
            let united = merge(&lake, "--query 10.0.0.1");
            let [union] = united.as_slice() else { panic!("{united:?}") };
            assert_eq!(union["record"], "union");
            assert_eq!(union["united"]["rows"], of_kind(&records, "window").len());
            assert_alike(total, union, SHARED_KEYS);
            assert_no_wider(&total["heavy"], &union["heavy"]);
            assert_among(&total["spread"][0]["flows"], &union["spread"][0]["flows"]);
            // Hosts that never answer are known across all interfaces.
            assert_eq!(total["delay"], union["delay"], "{name} {options}");
        }
    }
}

#[test]
fn a_union_of_hosts_has_the_registers_of_one_that_saw_all() {
    let scratch = Scratch::new("lake-hosts");
    let captures = [1, 2, 3].map(|seed| {
        let profile = format!("zipf,flows=4000,packets=20000,rate=1k,seed={seed}");
        generate(&scratch, &profile, &format!("seed{seed}.pcap"))
    });
    let options = "--window 5s --align --measure cardinality,sizes";
    for (capture, host) in captures.iter().zip(["a", "b", "c"]) {
        replay(&scratch, host, capture, options);
    }
    let lone = Scratch::new("lake-hosts-lone");
    let records = replay(&lone, "all", &captures.join(" "), options);
    let total = of_kind(&records, "total")[0];
    assert_alike(total, &merge(&scratch, "")[0], "packets bytes cardinality sizes");
    // By window as well, since the windows coincide.
    let (windows, merged) = (of_kind(&records, "window"), merge(&scratch, "--by window"));
    assert_eq!(windows.len(), merged.len());
    for (window, union) in windows.iter().zip(&merged) {
        let names = "packets bytes cardinality scheduled_start_ns scheduled_end_ns";
        assert_alike(window, union, names);
        assert_eq!(union["united"]["hosts"], 3);
    }
    let hosts = merge(&scratch, "--by host");
    let names: Vec<&str> = hosts.iter().map(|record| text(record, "interface")).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(hosts.iter().map(|record| number(record, "packets")).sum::<u64>(), 60_000);
    // A range whose ends are between windows.
    let some =
        &merge(&scratch, "--to 1970-01-01T00:00:10Z --from 1970-01-01T00:00:05Z --host b")[0];
    assert_eq!((number(some, "packets"), number(&some["united"], "rows")), (5000, 1));
    let cut =
        &merge(&scratch, "--from 1970-01-01T00:00:04Z --to 1970-01-01T00:00:10Z")[0]["united"];
    assert_eq!((number(cut, "rows"), number(cut, "crossing")), (3, 3));
}

/// The filter of one host says nothing about the flows of another one without a filter.
#[test]
fn a_flow_of_a_host_without_a_filter_has_its_packets() {
    let scratch = Scratch::new("lake-filter");
    for (host, source, measure) in
        [("a", 0x0a00_0002, "frequency,membership"), ("b", 0x0a00_0001, "frequency")]
    {
        let sent = packets(std::iter::repeat_n(source, 50), 1_000_000);
        let capture = scratch.write(&format!("{host}.pcap"), pcap(&sent));
        replay(&scratch, host, &capture, &format!("--measure {measure} --key src"));
    }
    let asked = |options: &str| {
        let united = merge(&scratch, &format!("--query 10.0.0.1 {options}"));
        united[0]["frequency"]["flows"][0].clone()
    };
    let alone = asked("--host a");
    assert_eq!((&alone["seen"], &alone["packets"]), (&Value::from(false), &Value::from(0.0)));
    let both = asked("");
    let [low, estimate, high] = ["low", "packets", "high"].map(|name| both[name].as_f64().unwrap());
    assert!(both.get("seen").is_none() && low <= 50.0 && 50.0 <= high, "{both}");
    assert!(estimate > 0.0, "{both}");
}

/// Returns the nanoseconds of the interface whose name ends like this.
fn of_place(places: &Value, end: &str) -> u64 {
    let found = places.as_object().unwrap().iter().find(|(name, _)| name.ends_with(end));
    found.unwrap_or_else(|| panic!("{places}")).1.as_u64().unwrap()
}

#[test]
fn what_is_missing_or_there_twice_is_told() {
    let scratch = Scratch::new("lake-missing");
    let capture = generate(&scratch, "zipf,flows=400,packets=20000,rate=1k", "a.pcap");
    let short = generate(&scratch, "zipf,flows=400,packets=10000,rate=1k", "b.pcap");
    let options = "--window 5s --align --measure cardinality";
    replay(&scratch, "a", &capture, options);
    replay(&scratch, "b", &short, &format!("{options},sizes"));
    let before = merge(&scratch, "");
    assert_eq!(of_place(&before[0]["united"]["missing_ns"], "b.pcap in") / 1_000_000_000, 10);
    assert_eq!(before[0]["united"]["partial"]["sizes"], 2);
    assert_eq!(before[0]["complete"], false);
    // The same file under another name.
    let lake = scratch.path("lake");
    let stored = || files(std::slice::from_ref(&lake)).unwrap();
    let file = stored().remove(0);
    let copy = file.with_file_name("copy.parquet");
    fs::copy(&file, &copy).unwrap();
    let after = merge(&scratch, "");
    assert_eq!(after[0]["united"]["twice"], 4);
    assert_eq!(after[0]["packets"], before[0]["packets"]);
    fs::remove_file(copy).unwrap();
    // A run with the name of an earlier one does not change its files.
    replay(&scratch, "a", &capture, options);
    let twice = merge(&scratch, "")[0]["united"]["twice"].as_u64();
    assert_eq!((stored().len(), twice), (3, Some(4)));
    // Two agents with the same name and interface: their packets count twice, their flows once.
    let another =
        format!("replay {capture} --host a --window 5s --align --lake {}", lake.display());
    finish(command(&another).env("FLOWGAUGE_RUN", "another")).ended(0);
    let doubled = merge(&scratch, "");
    assert_eq!(doubled[0]["cardinality"], before[0]["cardinality"]);
    let united = &doubled[0]["united"];
    assert!(of_place(&united["doubled_ns"], "a.pcap in") > 10_000_000_000, "{united}");
}

#[test]
fn what_cannot_be_united_gives_no_number() {
    let scratch = Scratch::new("lake-mixed");
    let capture = generate(&scratch, "zipf,flows=400,packets=5000,rate=1k", "a.pcap");
    let key = scratch.write("key", [7; 16]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    replay(&scratch, "a", &capture, &format!("--window 5s --measure {ALL}"));
    let lake = scratch.path("lake");
    let keyed = format!("--hash-key {key}");
    for (host, options, text) in [
        ("seed", "--seed 2", "tabulated_790900f3_2"),
        ("crc", "--hash crc32", "crc32_790900f3"),
        ("keyed", keyed.as_str(), "keyed_"),
        ("registers", "--registers 4096", "cardinality"),
        ("key", "--key dst", "cardinality"),
        ("heavy", "--measure heavy --algorithm precision", "heavy"),
        ("sketch", "--measure frequency --sketch frequency=count-sketch", "frequency"),
        ("inner", "--inner", "inner headers"),
    ] {
        replay(&scratch, host, &capture, &format!("--window 5s {options}"));
        let mine = format!("{host}-run_of_{host}-000000.parquet");
        lake::merge(&lake, "").without_output(1, &[text, &mine, "a-run_of_a-000000.parquet"]);
        // On its own it is valid.
        let theirs = merge(&scratch, &format!("--host {host}"));
        assert_eq!(theirs[0]["packets"], 5000, "{host}");
        if !["heavy", "sketch"].contains(&host) {
            let diff = lake::diff(&lake, ["a", host], "");
            assert_eq!((diff.code, &*diff.stdout), (Some(1), ""), "{host}: {}", diff.stderr);
        }
        let stored = files(std::slice::from_ref(&lake)).unwrap();
        let file = stored.into_iter().find(|file| file.ends_with(&mine)).unwrap();
        fs::remove_file(file).unwrap();
    }
    // A query that no row can answer.
    lake::merge(&lake, "--query 10.0.0.1 --host nobody").without_output(1, &[]);
    let lone = Scratch::new("lake-unasked");
    replay(&lone, "a", &capture, "--window 5s");
    let advice = "--query is for frequency or membership, which no row has";
    lake::merge(&lone.path("lake"), "--query 10.0.0.1").without_output(1, &[advice]);
    // Windows that do not coincide.
    replay(&scratch, "long", &capture, &format!("--window 7s --measure {ALL}"));
    lake::merge(&lake, "--by window").without_output(1, &["do not coincide"]);
    // A corrupt file.
    let file = files(std::slice::from_ref(&lake)).unwrap().remove(0);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 100]).unwrap();
    lake::merge(&lake, "").without_output(1, &[file.to_str().unwrap()]);
}

#[test]
fn a_diff_tells_what_is_only_here_and_only_there() {
    let scratch = Scratch::new("lake-diff");
    // Addresses from 10.0.0.0 on: the second set has those of the first, and as many others.
    for (host, packets) in [("one", 4000), ("other", 8000)] {
        let profile = format!("sequential,packets={packets},rate=1k");
        let capture = generate(&scratch, &profile, &format!("{host}.pcap"));
        replay(&scratch, host, &capture, "--window 2s");
    }
    let diff = |options: &str| lake::diff(&scratch.path("lake"), ["one", "other"], options);
    let found = diff("--format json").json().remove(0);
    for (part, truth) in [("only_a", 0.0), ("only_b", 4000.0), ("both", 4000.0), ("union", 8000.0)]
    {
        let [low, high] = ["low", "high"].map(|end| found[part][end].as_f64().unwrap());
        assert!(low <= truth && truth <= high, "{part}: {low} … {high}");
    }
    assert_has(&diff("").ended(0).stdout, &["only in A", "only in B", "both"]);
}

/// Returns the starts of windows.
fn starts(windows: &[&Value]) -> Vec<u64> {
    windows.iter().map(|window| number(window, "scheduled_start_ns")).collect()
}

/// Returns the window numbers of the rows by run.
fn windows(lake: &Path) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for file in files(&[lake.to_owned()]).unwrap() {
        // A visible file is complete.
        let rows = unions(&file, "--by window");
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let run = name.split('-').nth(1).unwrap().to_owned();
        found.entry(run).or_default().extend(starts(&rows.iter().collect::<Vec<_>>()));
    }
    found
}

/// Default number of times that a run is killed; overridden by `TEST_KILLS`.
const KILLS: u32 = 12;

#[test]
fn a_run_that_is_killed_loses_the_window_that_is_being_written_and_no_other() {
    let scratch = Scratch::new("lake-killed");
    let lake = scratch.path("lake");
    let kills = std::env::var("TEST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut text: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for kill in 0..kills {
        // Files of one second, so that some kills hit the change of files.
        let run = "run --port memory:zipf,rate=20k --window 100ms --format json --seed 1";
        let arguments = format!("{run} --lake-every 1s --lake {}", lake.display());
        let name = format!("killed{kill}");
        let mut running = Running::of(command(&arguments).env("FLOWGAUGE_RUN", &name));
        let reader = running.stdout.take().unwrap();
        let lines = thread::spawn(move || {
            let lines = reader.lines().map_while(Result::ok);
            // The last line may have no end.
            lines.filter_map(|line| serde_json::from_str(&line).ok()).collect::<Vec<Value>>()
        });
        let chance =
            u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos());
        thread::sleep(Duration::from_millis(300 + chance % 1500));
        // Killed.
        drop(running);
        text.insert(name, starts(&of_kind(&lines.join().unwrap(), "window")));
    }
    // The next run completes what earlier ones left.
    let capture = generate(&scratch, "zipf,packets=100,rate=1k", "capture.pcap");
    replay(&scratch, "a", &capture, "");
    let found = windows(&lake);
    assert!(fs::read_dir(lake.join(".journal")).unwrap().next().is_none());
    for (run, text) in &text {
        let rows = found.get(run).map(Vec::as_slice).unwrap_or_default();
        assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), rows.len(), "{run}: a window twice");
        // Printed windows had been sent to the lake before; the last one may not have reached the
        // disk.
        let missing: Vec<&u64> = text.iter().filter(|start| !rows.contains(start)).collect();
        assert!(
            missing.is_empty() || missing == [text.last().unwrap()],
            "{run}: {missing:?} of {text:?} are missing"
        );
    }
}

#[test]
fn a_full_disk_loses_nothing_while_there_is_room_in_memory_and_tells_the_rest() {
    if !rustix::process::geteuid().is_root() {
        return flowgauge_testing::skip("root, to mount a small file system");
    }
    let scratch = Scratch::new("lake-full");
    fs::create_dir(scratch.path("lake")).unwrap();
    // In a mount namespace, so that the mount ends with it. The disk has room again after two
    // seconds.
    let script = r#"mount -t tmpfs -o size=256k none lake || exit 77
        head -c 250k /dev/zero > lake/filler
        (sleep 2; rm lake/filler) &
        "$FLOWGAUGE" run --port memory:zipf,rate=5k --window 200ms --duration 4s --lake lake --lake-every 1s --seed 1 --format json > records 2> messages
        echo $? > code
        cp -r lake copy"#;
    let run = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .env("FLOWGAUGE", env!("CARGO_BIN_EXE_flowgauge"))
        .env("FLOWGAUGE_STATUS_DIR", "")
        .current_dir(scratch.path(""))
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let read = |name: &str| fs::read_to_string(scratch.path(name)).unwrap();
    let messages = read("messages");
    assert_has(&messages, &["No space left", "wait in memory"]);
    let records = json_lines(&read("records"));
    let text = starts(&of_kind(&records, "window"));
    let found: BTreeSet<u64> = windows(&scratch.path("copy")).into_values().flatten().collect();
    assert!(text.iter().all(|start| found.contains(start)), "{messages}");
    // The temporary failure is reported by the exit code.
    assert_eq!(read("code").trim(), "1", "{messages}");
}

/// Packets that match one expression are no sample of those that match another.
#[test]
fn windows_of_different_expressions_are_not_merged() {
    let scratch = Scratch::new("lake-match");
    let capture = generate(&scratch, "zipf,flows=300,packets=3000,rate=1k", "zipf.pcap");
    let lake = scratch.path("lake");
    let lower = ["--match", "src net 10.0.0.0/9"];
    for (host, filter) in [("one", &lower[..]), ("two", &lower), ("three", &[])] {
        let arguments = format!("replay {capture} --host {host} --window 1s --lake");
        finish(command(&arguments).arg(&lake).args(filter)).ended(0);
    }
    let [union] = &merge(&scratch, "--exclude three")[..] else { panic!("one record") };
    assert_eq!(union["match"], lower[1], "{union}");
    assert_eq!(number(union, "packets") + number(&union["unmatched"], "packets"), 6000);
    let [whole] = &merge(&scratch, "--host three")[..] else { panic!("one record") };
    assert!(whole.get("match").is_none() && whole.get("unmatched").is_none(), "{whole}");
    lake::merge(&lake, "").ended_with(1, &["expressions (--match) differ"]);
}
