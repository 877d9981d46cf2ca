//! Windows in a lake, merged as if one machine had counted them in one window.

use crate::common::{Outcome, Scratch, files, flowgauge, packets, pcap};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All measurements.
const ALL: &str = "cardinality,entropy,frequency,membership,heavy,spread,sizes,delay,reorder";

fn run(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn ok(command: &mut Command) -> String {
    let outcome = run(command);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome.stdout
}

fn generate(scratch: &Scratch, profile: &str, name: &str) -> PathBuf {
    let path = scratch.path(name);
    ok(flowgauge().args(["generate", profile, "--to"]).arg(&path));
    path
}

/// Replays into a lake as this host, and returns the records.
fn replay(scratch: &Scratch, host: &str, captures: &[&Path], options: &str) -> Vec<Value> {
    let mut command = flowgauge();
    command
        .env("FLOWGAUGE_RUN", format!("run-of-{host}"))
        .arg("replay")
        .args(captures)
        .args(["--host", host, "--format", "json", "--lake"]);
    let records = ok(command.arg(scratch.path("lake")).args(options.split_whitespace()));
    records.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn merge(scratch: &Scratch, options: &str) -> Vec<Value> {
    let records = ok(flowgauge()
        .arg("merge")
        .arg(scratch.path("lake"))
        .args(["--format", "json"])
        .args(options.split_whitespace()));
    records.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["record"] == kind).collect()
}

/// Keys that a total and a union share. A total has no entropies.
const SHARED_KEYS: [&str; 11] = [
    "packets",
    "bytes",
    "ipv4_packets",
    "ipv6_packets",
    "rejected",
    "drops",
    "cardinality",
    "frequency",
    "membership",
    "sizes",
    "reorder",
];

/// Checks heavy hitters of a union, which has room for the flows of all rows: the guaranteed counts
/// of the total's flows are within their intervals.
fn assert_no_wider(total: &Value, union: &Value) {
    assert_eq!((&total["total"], &total["key"]), (&union["total"], &union["key"]));
    let flows = |top: &Value| -> BTreeMap<String, (u64, u64)> {
        let number = |flow: &Value, name: &str| flow[name].as_u64().unwrap();
        let flow = |flow: &Value| {
            (flow["flow"].as_str().unwrap().to_owned(), (number(flow, "low"), number(flow, "high")))
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

fn assert_alike(total: &Value, union: &Value, names: &[&str]) {
    for name in names {
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
            let records = replay(&lake, "a", &[&capture], &format!("--window 1s --measure {ALL} --query 10.0.0.1 {options}"));
            let total = *of_kind(&records, "total").first().unwrap();
            let united = merge(&lake, "--query 10.0.0.1");
            let [union] = united.as_slice() else { panic!("{united:?}") };
            assert_eq!(union["record"], "union");
            assert_eq!(union["united"]["rows"].as_u64().unwrap() as usize, of_kind(&records, "window").len());
            assert_alike(total, union, &SHARED_KEYS);
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
    let captures = ["seed=1", "seed=2", "seed=3"].map(|seed| {
        generate(
            &scratch,
            &format!("zipf,flows=4000,packets=20000,rate=1k,{seed}"),
            &format!("{}.pcap", seed.replace('=', "")),
        )
    });
    for (capture, host) in captures.iter().zip(["a", "b", "c"]) {
        replay(&scratch, host, &[capture], "--window 5s --align --measure cardinality,sizes");
    }
    let lone = Scratch::new("lake-hosts-lone");
    let all: Vec<&Path> = captures.iter().map(PathBuf::as_path).collect();
    let records = replay(&lone, "all", &all, "--window 5s --align --measure cardinality,sizes");
    let total = *of_kind(&records, "total").first().unwrap();
    assert_alike(total, &merge(&scratch, "")[0], &["packets", "bytes", "cardinality", "sizes"]);
    // By window as well, since the windows coincide.
    let (windows, unions) = (of_kind(&records, "window"), merge(&scratch, "--by window"));
    assert_eq!(windows.len(), unions.len());
    for (window, union) in windows.iter().zip(&unions) {
        assert_alike(
            window,
            union,
            &["packets", "bytes", "cardinality", "scheduled_start_ns", "scheduled_end_ns"],
        );
        assert_eq!(union["united"]["hosts"], 3);
    }
    let hosts = merge(&scratch, "--by host");
    assert_eq!(
        hosts.iter().map(|record| record["interface"].as_str().unwrap()).collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    assert_eq!(hosts.iter().map(|record| record["packets"].as_u64().unwrap()).sum::<u64>(), 60_000);
    // A range whose ends are between windows.
    let some = merge(&scratch, "--to 1970-01-01T00:00:10Z --from 1970-01-01T00:00:05Z --host b");
    assert_eq!(
        (some[0]["packets"].as_u64(), some[0]["united"]["rows"].as_u64()),
        (Some(5000), Some(1))
    );
    let cut = merge(&scratch, "--from 1970-01-01T00:00:04Z --to 1970-01-01T00:00:10Z");
    assert_eq!(
        (cut[0]["united"]["rows"].as_u64(), cut[0]["united"]["crossing"].as_u64()),
        (Some(3), Some(3))
    );
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
        replay(&scratch, host, &[Path::new(&capture)], &format!("--measure {measure} --key src"));
    }
    let asked = |options: &str| {
        let united = merge(&scratch, &format!("--query 10.0.0.1 {options}"));
        united[0]["frequency"]["flows"][0].clone()
    };
    let alone = asked("--host a");
    assert_eq!((&alone["seen"], &alone["packets"]), (&Value::from(false), &Value::from(0.0)));
    let both = asked("");
    let end = |name: &str| both[name].as_f64().unwrap();
    assert!(both.get("seen").is_none() && end("low") <= 50.0 && 50.0 <= end("high"), "{both}");
    assert!(end("packets") > 0.0, "{both}");
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
    replay(&scratch, "a", &[&capture], "--window 5s --align --measure cardinality");
    replay(&scratch, "b", &[&short], "--window 5s --align --measure cardinality,sizes");
    let before = merge(&scratch, "");
    assert_eq!(of_place(&before[0]["united"]["missing_ns"], "b.pcap in") / 1_000_000_000, 10);
    assert_eq!(before[0]["united"]["partial"]["sizes"], 2);
    assert_eq!(before[0]["complete"], false);
    // The same file under another name.
    let file = files(&[scratch.path("lake")]).unwrap().remove(0);
    fs::copy(&file, file.with_file_name("copy.parquet")).unwrap();
    let after = merge(&scratch, "");
    assert_eq!(after[0]["united"]["twice"], 4);
    assert_eq!(after[0]["packets"], before[0]["packets"]);
    fs::remove_file(file.with_file_name("copy.parquet")).unwrap();
    // A run with the name of an earlier one does not change its files.
    replay(&scratch, "a", &[&capture], "--window 5s --align --measure cardinality");
    assert_eq!(
        (
            files(&[scratch.path("lake")]).unwrap().len(),
            merge(&scratch, "")[0]["united"]["twice"].as_u64()
        ),
        (3, Some(4))
    );
    // Two agents with the same name and interface: their packets count twice, their flows once.
    let mut command = flowgauge();
    command
        .env("FLOWGAUGE_RUN", "another")
        .args(["replay", "--host", "a", "--window", "5s", "--align", "--lake"]);
    ok(command.arg(scratch.path("lake")).arg(&capture));
    let doubled = merge(&scratch, "");
    assert_eq!(doubled[0]["cardinality"], before[0]["cardinality"]);
    assert!(
        of_place(&doubled[0]["united"]["doubled_ns"], "a.pcap in") > 10_000_000_000,
        "{}",
        doubled[0]["united"]
    );
}

#[test]
fn what_cannot_be_united_gives_no_number() {
    let scratch = Scratch::new("lake-mixed");
    let capture = generate(&scratch, "zipf,flows=400,packets=5000,rate=1k", "a.pcap");
    let key = scratch.write("key", [7; 16]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    replay(&scratch, "a", &[&capture], &format!("--window 5s --measure {ALL}"));
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
        replay(&scratch, host, &[&capture], &format!("--window 5s {options}"));
        let outcome = run(flowgauge().arg("merge").arg(scratch.path("lake")));
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(1), ""),
            "{host}: {}",
            outcome.stderr
        );
        let (mine, others) =
            (format!("{host}-run_of_{host}-000000.parquet"), "a-run_of_a-000000.parquet");
        for part in [text, mine.as_str(), others] {
            assert!(outcome.stderr.contains(part), "{host}: {part} is not in {}", outcome.stderr);
        }
        // On its own it is valid.
        let theirs = merge(&scratch, &format!("--host {host}"));
        assert_eq!(theirs[0]["packets"], 5000, "{host}");
        let sides = [
            format!("{},host=a", scratch.path("lake").display()),
            format!("{},host={host}", scratch.path("lake").display()),
        ];
        if !["heavy", "sketch"].contains(&host) {
            let outcome = run(flowgauge().arg("diff").args(sides));
            assert_eq!(
                (outcome.code, outcome.stdout.as_str()),
                (Some(1), ""),
                "{host}: {}",
                outcome.stderr
            );
        }
        fs::remove_file(
            files(&[scratch.path("lake")])
                .unwrap()
                .into_iter()
                .find(|file| file.ends_with(&mine))
                .unwrap(),
        )
        .unwrap();
    }
    // A query that no row can answer.
    let outcome = run(flowgauge()
        .arg("merge")
        .arg(scratch.path("lake"))
        .args(["--query", "10.0.0.1", "--host", "nobody"]));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
    let lone = Scratch::new("lake-unasked");
    replay(&lone, "a", &[&capture], "--window 5s");
    let outcome =
        run(flowgauge().arg("merge").arg(lone.path("lake")).args(["--query", "10.0.0.1"]));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
    assert!(
        outcome.stderr.contains("--query is for frequency or membership, which no row has"),
        "{}",
        outcome.stderr
    );
    // Windows that do not coincide.
    replay(&scratch, "long", &[&capture], &format!("--window 7s --measure {ALL}"));
    let outcome = run(flowgauge().arg("merge").arg(scratch.path("lake")).args(["--by", "window"]));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
    assert!(outcome.stderr.contains("do not coincide"), "{}", outcome.stderr);
    // A corrupt file.
    let file = files(&[scratch.path("lake")]).unwrap().remove(0);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 100]).unwrap();
    let outcome = run(flowgauge().arg("merge").arg(scratch.path("lake")));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
    assert!(outcome.stderr.contains(file.to_str().unwrap()), "{}", outcome.stderr);
}

#[test]
fn a_diff_tells_what_is_only_here_and_only_there() {
    let scratch = Scratch::new("lake-diff");
    // Addresses from 10.0.0.0 on: the second set has those of the first, and as many others.
    let one = generate(&scratch, "sequential,packets=4000,rate=1k", "one.pcap");
    let other = generate(&scratch, "sequential,packets=8000,rate=1k", "other.pcap");
    replay(&scratch, "one", &[&one], "--window 2s");
    replay(&scratch, "other", &[&other], "--window 2s");
    let sides =
        ["one", "other"].map(|host| format!("{},host={host}", scratch.path("lake").display()));
    let text: Value =
        serde_json::from_str(&ok(flowgauge().arg("diff").args(&sides).args(["--format", "json"])))
            .unwrap();
    for (part, truth) in [("only_a", 0.0), ("only_b", 4000.0), ("both", 4000.0), ("union", 8000.0)]
    {
        let (low, high) =
            (text[part]["low"].as_f64().unwrap(), text[part]["high"].as_f64().unwrap());
        assert!(low <= truth && truth <= high, "{part}: {low} … {high}");
    }
    let table = ok(flowgauge().arg("diff").args(&sides));
    assert!(
        table.contains("only in A") && table.contains("only in B") && table.contains("both"),
        "{table}"
    );
}

/// Returns the window numbers of the rows by run.
fn windows(lake: &Path) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for file in files(&[lake.to_owned()]).unwrap() {
        // A visible file is complete.
        let records =
            ok(flowgauge().arg("merge").arg(&file).args(["--by", "window", "--format", "json"]));
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let run = name.split('-').nth(1).unwrap().to_owned();
        let starts = records
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|record| record["scheduled_start_ns"].as_u64().unwrap());
        found.entry(run).or_default().extend(starts);
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
        let mut command = flowgauge();
        command.env("FLOWGAUGE_RUN", format!("killed{kill}")).args([
            "run",
            "--port",
            "memory:zipf,rate=20k",
            "--window",
            "100ms",
            "--format",
            "json",
        ]);
        // Files of one second, so that some kills hit the change of files.
        command
            .arg("--lake")
            .arg(&lake)
            .args(["--lake-every", "1s", "--seed", "1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let reader = BufReader::new(child.stdout.take().unwrap());
        let lines = thread::spawn(move || {
            let records = reader
                .lines()
                .map_while(Result::ok)
                .filter_map(|line| serde_json::from_str::<Value>(&line).ok());
            records
                .filter(|record| record["record"] == "window")
                .map(|record| record["scheduled_start_ns"].as_u64().unwrap())
                .collect::<Vec<_>>()
        });
        let chance =
            u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos());
        thread::sleep(Duration::from_millis(300 + chance % 1500));
        child.kill().unwrap();
        child.wait().unwrap();
        text.insert(format!("killed{kill}"), lines.join().unwrap());
    }
    // The next run completes what earlier ones left.
    let capture = generate(&scratch, "zipf,packets=100,rate=1k", "capture.pcap");
    replay(&scratch, "a", &[&capture], "");
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
        flowgauge_testing::skip("root, to mount a small file system");
        return;
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
    assert!(
        messages.contains("No space left") && messages.contains("wait in memory"),
        "{messages}"
    );
    let records: Vec<Value> =
        read("records").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text: BTreeSet<u64> = of_kind(&records, "window")
        .iter()
        .map(|record| record["scheduled_start_ns"].as_u64().unwrap())
        .collect();
    let found: BTreeSet<u64> = windows(&scratch.path("copy")).into_values().flatten().collect();
    assert_eq!(text.iter().filter(|start| !found.contains(start)).count(), 0, "{messages}");
    // The temporary failure is reported by the exit code.
    assert_eq!(read("code").trim(), "1", "{messages}");
}

/// Packets that match one expression are no sample of those that match another.
#[test]
fn windows_of_different_expressions_are_not_merged() {
    let scratch = Scratch::new("lake-match");
    let capture = generate(&scratch, "zipf,flows=300,packets=3000,rate=1k", "zipf.pcap");
    let lower = ["--match", "src net 10.0.0.0/9"];
    for (host, filter) in [("one", &lower[..]), ("two", &lower), ("three", &[])] {
        let mut command = flowgauge();
        command.arg("replay").arg(&capture).args(["--host", host, "--window", "1s", "--lake"]);
        ok(command.arg(scratch.path("lake")).args(filter));
    }
    let [union] = &merge(&scratch, "--exclude three")[..] else { panic!("one record") };
    assert_eq!(union["match"], lower[1], "{union}");
    assert_eq!(
        union["packets"].as_u64().unwrap() + union["unmatched"]["packets"].as_u64().unwrap(),
        6000
    );
    let [whole] = &merge(&scratch, "--host three")[..] else { panic!("one record") };
    assert!(whole.get("match").is_none() && whole.get("unmatched").is_none(), "{whole}");
    let refused = run(flowgauge().arg("merge").arg(scratch.path("lake")));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("expressions (--match) differ"), "{refused:?}");
}
