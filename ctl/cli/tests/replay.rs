//! `flowgauge replay` as a user sees it: formats, windows, exact counts, files, configuration,
//! unusual timestamps.

use crate::common;
use crate::common::{
    SECOND, START, Scratch, assert_has, command, csv_rows, every_second, fed, finish, float,
    frames, in_shell, json_lines, new_samples, number, numbers, of_kind, of_windows, packets,
    parse, pcap, records, replay, run, text, total,
};
use flowgauge_dataplane::capture::build::{
    self, CapturePacket, InterfaceOptions, PcapNgOptions, PcapOptions,
};
use flowgauge_dataplane::capture::{Resolution, link_type};
use flowgauge_testing::chance::{of_mean, poisson};
use flowgauge_testing::skip;
use flowgauge_traffic::frame;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Returns 2500 packets of 500 sources, 10 ms apart: two and a half windows of 10 s.
fn recurring() -> Vec<CapturePacket> {
    packets((0..2500).map(|i| 0x0a00_0000 + i % 500), 10_000_000)
}

/// Writes these.
fn trace(scratch: &Scratch) -> String {
    scratch.write("trace.pcap", pcap(&recurring()))
}

/// Writes more than a worker reads at a time: sources 10.0.0.0 + i² mod 7919, of which there are
/// 3960.
fn long_trace(scratch: &Scratch) -> String {
    scratch.write(
        "long.pcap",
        pcap(&packets((0..20_000_u64).map(|i| 0x0a00_0000 + (i * i % 7919) as u32), 1_000_000)),
    )
}

fn cardinality<'a>(record: &'a Value, key: &str) -> &'a Value {
    &record["cardinality"][key]
}

/// Returns the relative error of an estimate.
fn error_of(record: &Value, truth: u64) -> f64 {
    float(&record["cardinality"], "estimate") / truth as f64 - 1.0
}

/// Returns the number of packets, after checking the totals.
#[track_caller]
fn counted(records: &[Value]) -> u64 {
    number(total(records), "packets")
}

/// Returns `count` packets; from index `from` on each is `gap` nanoseconds later.
fn with_gap(count: u32, from: usize, gap: u64) -> Vec<CapturePacket> {
    let mut all = packets(0..count, SECOND);
    all[from..].iter_mut().for_each(|packet| packet.timestamp += gap);
    all
}

/// Returns a pcapng file of one interface.
fn pcapng(interface: InterfaceOptions, packets: &[CapturePacket]) -> Vec<u8> {
    let options = PcapNgOptions { interfaces: vec![interface], ..PcapNgOptions::default() };
    build::pcapng(&options, packets)
}

/// Returns a pcapng file with nanoseconds.
fn pcapng_of_nanoseconds(packets: &[CapturePacket]) -> Vec<u8> {
    let resolution = Some(Resolution::NANOSECONDS);
    pcapng(InterfaceOptions { resolution, ..InterfaceOptions::default() }, packets)
}

#[test]
fn json_lines_have_the_fixed_keys_and_every_frame_is_in_one_counter() {
    let scratch = Scratch::new("json");
    let udp = frames::udp(&[0; 4]);
    let v4 = frames::ipv4([10, 0, 0, 1], 17, &udp);
    let mut bad = v4.clone();
    bad[0] = 0x44;
    let all = [
        frames::ethernet(&[], 0x0800, &v4),
        frames::ethernet(&[], 0x0800, &frames::ipv4([10, 0, 0, 2], 17, &udp)),
        frames::ethernet(&[0x8100], 0x0800, &v4),
        frames::ethernet(&[], 0x86dd, &frames::ipv6(1, 17, &udp)),
        frames::ethernet(&[], 0x86dd, &frames::ipv6(2, 17, &udp)),
        frames::ethernet(&[], 0x0806, &frames::arp()),
        frames::ethernet(&[], 0x0800, &v4[..19]),
        frames::ethernet(&[], 0x0800, &bad),
    ];
    let bytes: usize = all.iter().map(Vec::len).sum();
    let file = scratch.write("mixed.pcap", pcap(&every_second(all)));
    let records = records(&file, "--truth --seed 9 --registers 4096 --sample-every 1s");
    let total = total(&records);
    assert_eq!(numbers(total, ["packets", "bytes"]), [8, bytes as u64]);
    assert_eq!(numbers(total, ["ipv4_packets", "ipv6_packets"]), [3, 2]);
    assert_eq!(numbers(&total["rejected"], ["non_ip", "truncated", "bad_header"]), [1, 1, 1]);
    assert_eq!(numbers(&total["cardinality"], ["truth", "registers"]), [4, 4096]);
    assert_eq!(["estimator", "key"].map(|key| cardinality(total, key)), ["ertl", "src"]);
    let hash = json!({"mode": "tabulated", "polynomial": "0x790900f3", "seed": 9});
    assert_eq!(cardinality(total, "hash"), &hash);
    assert_eq!((text(total, "interface"), &total["drops"]), (file.as_str(), &json!({})));
    assert_eq!(of_kind(&records, "window").len(), 1);
    assert!(!of_kind(&records, "sample").is_empty());
}

#[test]
fn csv_begins_with_the_columns_of_the_thesis() {
    let scratch = Scratch::new("csv");
    let file = trace(&scratch);
    let text = replay(&file, "--format csv --truth --sample-every 1s").quiet();
    assert!(text.starts_with("time,window_id,ground_truth,estimate,"), "{text}");
    let rows = csv_rows(&text);
    // The same records as in JSON, without the total, which would be added to the rest.
    let mut expected = records(&file, "--truth --sample-every 1s");
    assert_eq!(expected.pop().unwrap()["record"], "total");
    assert_eq!(rows.len(), expected.len());
    for (row, record) in rows.iter().zip(&expected) {
        let seconds = (number(record, "end_ns") - START) as f64 / 1e9;
        let float_of = |column: &str| row[column].parse::<f64>().unwrap();
        assert!((float_of("time") - seconds).abs() < 1e-9, "{row:?}");
        // Both are exact; parsing the JSON here may round the last bit.
        let error = float_of("estimate") / float(&record["cardinality"], "estimate") - 1.0;
        assert!(error.abs() < 1e-14, "{row:?} {record}");
        assert_eq!(row["record"], common::text(record, "record"));
        for (column, printed) in [
            ("window_id", number(record, "window")),
            ("ground_truth", number(&record["cardinality"], "truth")),
            ("packets", number(record, "packets")),
        ] {
            assert_eq!(row[column].parse::<u64>().unwrap(), printed, "{column}: {row:?}");
        }
        for key in ["repeats", "last_ns"] {
            assert_eq!(row[key].parse::<u64>().ok(), record[key].as_u64(), "{row:?}");
        }
        assert_eq!(row["complete"].parse::<bool>().ok(), record["complete"].as_bool());
    }
    let appended = replay(&file, "--format csv --truth --sample-every 1s --no-csv-header").quiet();
    assert_eq!(Some(appended.as_str()), text.split_once('\n').map(|(_, rows)| rows));
    let without = replay(&file, "--format csv").quiet();
    assert!(without.lines().skip(1).all(|line| line.split(',').nth(2) == Some("")), "{without}");
}

#[test]
fn csv_quotes_a_file_name_with_a_comma() {
    let scratch = Scratch::new("quotes");
    let file = scratch.write("a,\"b\".pcap", pcap(&packets(0..3, SECOND)));
    let text = replay(&file, "--format csv --sample-every never").quiet();
    let quoted = format!(",\"{}\",ingress,false,", file.replace('"', "\"\""));
    assert!(text.lines().nth(1).unwrap().contains(&quoted), "{text}");
}

#[test]
fn the_table_is_for_people_and_ends_with_a_summary() {
    let scratch = Scratch::new("table");
    let file = trace(&scratch);
    let text = replay(&file, "--truth").quiet();
    let header = text.lines().next().unwrap();
    assert_has(header, &["time", "window", "packets", "packets/s"]);
    assert_has(header, &["distinct sources", "truth", "error"]);
    let windows: Vec<&str> =
        text.lines().skip(1).take(3).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(windows, ["0", "1", "2*"], "{text}");
    assert_has(&text, &["2,500 packets", "2,500 IPv4, 0 IPv6", "truth 500"]);
    assert!(!text.contains('\x1b'), "escape sequences in a pipe");
}

#[test]
fn windows_end_at_multiples_of_their_length_and_the_last_is_incomplete() {
    let scratch = Scratch::new("windows");
    let records = records(trace(&scratch), "--window 10s --truth --sample-every 1s");
    let windows = of_kind(&records, "window");
    let [first, second] = [10, 20].map(|seconds| START + seconds * SECOND);
    let last = START + 2499 * 10_000_000 + 1;
    let expected = [
        ([0, START, first, 1000], true),
        ([1, first, second, 1000], true),
        ([2, second, last, 500], false),
    ];
    assert_eq!(windows.len(), expected.len());
    for (window, (values, is_complete)) in windows.iter().zip(expected) {
        assert_eq!(numbers(window, ["window", "start_ns", "end_ns", "packets"]), values);
        assert_eq!(window["complete"], is_complete, "{window}");
    }
    // 500 sources recur every 5 s: exact in each window, and in the total.
    assert!(windows.iter().all(|window| cardinality(window, "truth") == 500));
    assert_eq!(cardinality(total(&records), "truth"), 500);
    for sample in of_kind(&records, "sample") {
        let packets = (number(sample, "at_ns") - number(sample, "start_ns")).div_ceil(10_000_000);
        let truth = number(&sample["cardinality"], "truth");
        assert_eq!((number(sample, "packets"), truth), (packets, packets.min(500)), "{sample}");
    }
}

#[test]
fn a_trace_that_fills_its_windows_has_no_stub() {
    let scratch = Scratch::new("full");
    let records = records(trace(&scratch), "--window 10s --duration 20s --sample-every never");
    assert_eq!(of_kind(&records, "window").len(), 2);
    assert_eq!(counted(&records), 2000);
}

#[test]
fn truth_is_only_there_when_asked_for_and_follows_the_key() {
    let scratch = Scratch::new("truth");
    let file = long_trace(&scratch);
    for record in records(&file, "--sample-every never") {
        assert!(record["cardinality"].get("truth").is_none(), "{record}");
    }
    for (key, truth) in [("src", 3960), ("dst", 1), ("src-dst", 3960), ("five-tuple", 3960)] {
        let options = format!("--truth --sample-every never --window 1h --key {key}");
        let records = records(&file, &options);
        let total = total(&records);
        assert_eq!(cardinality(total, "truth"), truth, "{key}");
        assert_eq!(cardinality(total, "key"), key);
        let error = error_of(total, truth);
        assert!(error.abs() <= of_mean(1.04 / 2048.0_f64.sqrt(), 1), "{key}: {error}");
    }
}

#[test]
fn every_estimator_and_hash_names_itself() {
    let scratch = Scratch::new("estimators");
    let file = trace(&scratch);
    for estimator in ["ertl", "flajolet", "mle"] {
        for hash in ["tabulated", "crc32"] {
            let options = format!("--estimator {estimator} --hash {hash} --sample-every never");
            for record in records(&file, &options) {
                assert_eq!(cardinality(&record, "estimator"), estimator);
                assert_eq!(cardinality(&record, "hash")["mode"], hash);
            }
        }
    }
}

#[test]
fn replays_repeat_to_the_byte_with_any_number_of_workers() {
    let scratch = Scratch::new("repeat");
    let file = long_trace(&scratch);
    for options in
        ["--truth --window 3s --sample-every 100ms", "--truth --staggered 2s --sample-every 200ms"]
    {
        for format in ["json", "csv", "table"] {
            let options = format!("{options} --format {format}");
            let first = replay(&file, &options).quiet();
            assert_eq!(replay(&file, &options).quiet(), first);
            for workers in [2, 5] {
                let options = format!("{options} --workers {workers}");
                assert_eq!(replay(&file, &options).quiet(), first, "{options}");
            }
        }
    }
    let other_seed = replay(&file, "--format json --sample-every never --seed 2").quiet();
    assert_ne!(other_seed, replay(&file, "--format json --sample-every never").quiet());
}

#[test]
fn staggered_registers_have_no_windows() {
    let scratch = Scratch::new("staggered");
    let records = records(trace(&scratch), "--staggered 2s --truth --sample-every 500ms");
    assert!(of_kind(&records, "window").is_empty());
    let samples = of_kind(&records, "sample");
    // And one at the end.
    assert!(poisson(25.0 / 0.5).contains(&(samples.len() as u64 - 1)), "{}", samples.len());
    for sample in &samples {
        assert_has(text(&sample["cardinality"], "estimator"), &["mle"]);
    }
    // Only the last 2 s matter, with 200 packets of as many sources. Registers of all ages contain
    // each flow of the last 4 s with some probability, so that their number varies less than 200 in
    // a Poisson process.
    let allowed = of_mean(200.0_f64.sqrt().recip(), 1);
    let late = samples.iter().filter(|sample| number(sample, "at_ns") > START + 5 * SECOND);
    for sample in late {
        let truth = number(&sample["cardinality"], "truth");
        assert!((200..=201).contains(&truth), "{sample}");
        assert!(error_of(sample, truth).abs() <= allowed, "{sample}");
    }
    assert_eq!(counted(&records), 2500);
}

#[test]
fn without_measurements_only_packets_are_counted() {
    let scratch = Scratch::new("none");
    let file = trace(&scratch);
    let all = records(&file, "--measure none");
    assert!(all.iter().all(|record| record.get("cardinality").is_none()));
    assert_eq!(counted(&all), 2500);
    let counted = records(&file, "--measure cardinality");
    assert_eq!(of_kind(&counted, "window").len(), of_kind(&all, "window").len());
    assert!(replay(&file, "--measure none").quiet().contains("2,500 packets"));
    let csv = replay(&file, "--measure none --format csv").quiet();
    assert!(csv.lines().skip(1).all(|line| line.split(',').nth(3) == Some("")), "{csv}");
}

#[test]
fn out_writes_what_is_printed_to_new_files() {
    let scratch = Scratch::new("out");
    let file = trace(&scratch);
    let directory = scratch.path("new/results");
    let options = format!("--window 4s --truth --out {}", directory.display());
    let [json, csv] = ["json", "csv"]
        .map(|format| replay(&file, &format!("{options} --format {format}")).quiet());
    let mut found = [0; 2];
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let (index, printed) = match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl") => (0, &json),
            Some("csv") => (1, &csv),
            _ => panic!("{}", path.display()),
        };
        found[index] += 1;
        assert_eq!(&fs::read_to_string(&path).unwrap(), printed);
    }
    assert_eq!(found, [2, 2], "files of the first run must stay");
    replay(&file, &format!("--out {file}")).refused(1, "cannot create directory", &[]);
}

#[test]
fn record_notes_every_exchange_with_the_dataplane() {
    let scratch = Scratch::new("record");
    let file = trace(&scratch);
    let log = scratch.path("log.jsonl");
    let options = format!("--format json --sample-every 1s --record {}", log.display());
    let records = parse(&replay(&file, &options).quiet());
    let written = fs::read_to_string(&log).unwrap();
    let calls = json_lines(&written);
    assert_eq!(calls[0]["call"], "install");
    let ok = |name: &str| {
        let named = calls.iter().filter(|call| call["call"] == name);
        named.map(|call| &call["outcome"]["ok"]).collect::<Vec<_>>()
    };
    let rotations = ok("rotate");
    let windows = of_kind(&records, "window");
    assert_eq!(rotations.len(), windows.len());
    for (rotation, window) in rotations.iter().zip(windows) {
        assert_eq!(rotation["counters"]["ipv4"], window["packets"]);
        assert_eq!(text(rotation, "registers").len(), 2 * 2048);
    }
    assert_eq!(ok("sample").len(), new_samples(&records).len());
    // A second run must not overwrite it.
    replay(&file, &options).refused(1, "cannot create", &[]);
    assert_eq!(fs::read_to_string(&log).unwrap(), written);
}

#[test]
fn a_configuration_file_holds_options_and_the_command_line_goes_before_it() {
    let scratch = Scratch::new("config");
    let file = trace(&scratch);
    let config = scratch.write(
        "flowgauge.toml",
        "# every value that replay knows\nwindow = \"5s\"\nread-every = \"never\"\nduration = \"20s\"\nmeasure = \"cardinality\"\n\
         key = \"dst\"\nhash = \"crc32\"\nregisters = 1024\nestimator = \"flajolet\"\ntruth = true\nseed = 3\nworkers = 2\n\
         format = \"json\"\n",
    );
    let configured = replay(&file, &format!("--config {config}")).quiet();
    let spelt_out = "--window 5s --sample-every never --duration 20s --measure cardinality --key dst --hash crc32 --registers 1024 \
                     --estimator flajolet --truth --seed 3 --workers 2 --format json";
    assert_eq!(configured, replay(&file, spelt_out).quiet());
    let records = parse(&configured);
    assert_eq!(of_kind(&records, "window").len(), 4);
    assert_eq!(cardinality(total(&records), "truth"), 1);

    let others = "--window 10s --key src --registers 512 --format csv";
    let overridden = replay(&file, &format!("--config {config} {others}")).quiet();
    let changed = [("5s", "10s"), ("dst", "src"), ("1024", "512"), ("json", "csv")];
    let spelt_out = spelt_out.to_owned();
    let expected = changed.into_iter().fold(spelt_out, |all, (from, to)| all.replace(from, to));
    assert_eq!(overridden, replay(&file, &expected).quiet());

    let records_and_files = scratch.write(
        "files.toml",
        format!(
            "out = {:?}\nrecord = {:?}\nregisters = \"64\"\n",
            scratch.path("results"),
            scratch.path("calls.jsonl")
        ),
    );
    replay(&file, &format!("--config {records_and_files}")).quiet();
    assert_eq!(fs::read_dir(scratch.path("results")).unwrap().count(), 2);
    assert!(scratch.path("calls.jsonl").exists());

    let staggered = scratch.write("staggered.toml", "staggered = \"2s\"\nformat = \"json\"\n");
    let records = parse(&replay(&file, &format!("--config {staggered}")).quiet());
    assert!(of_kind(&records, "window").is_empty());
}

#[test]
fn the_command_line_switches_off_what_the_configuration_file_switches_on() {
    let scratch = Scratch::new("switched-off");
    let file = trace(&scratch);
    let config = scratch.write("on.toml", "truth = true\nalarm = true\nformat = \"json\"\n");
    let counted = |options: &str| {
        // The alarm warns of windows that it does not judge.
        let outcome = replay(&file, &format!("--config {config} {options}")).ended(0);
        let first = &parse(&outcome.stdout)[0];
        [first["cardinality"].get("truth").is_some(), first.get("alarm").is_some()]
    };
    assert_eq!(counted(""), [true, true]);
    assert_eq!(counted("--truth=false"), [false, true]);
    assert_eq!(counted("--alarm=false --truth"), [true, false]);
    assert_eq!(counted("--alarm=false --truth=false"), [false, false]);
}

#[test]
fn there_are_no_reads_unless_they_are_asked_for() {
    let scratch = Scratch::new("no-reads");
    let file = trace(&scratch);
    let samples = |options: &str| of_kind(&records(&file, options), "sample").len();
    assert_eq!([samples(""), samples("--window 1m")], [0, 0]);
    assert!(samples("--sample-every 1s") > 10 && samples("--staggered 2s") > 10);
}

#[test]
fn the_table_fits_the_width_that_is_asked_for() {
    let scratch = Scratch::new("width");
    let file = trace(&scratch);
    let everything = "--measure cardinality,entropy,frequency,membership,heavy --key five-tuple,entropy=src+dst,frequency=src --query 10.0.0.7 --truth";
    for options in ["", "--truth", everything, "--measure none"] {
        for width in [60, 80, 100, 140] {
            let mut command = command(&format!("replay {file} {options}"));
            let text = finish(command.env("COLUMNS", width.to_string())).quiet();
            let lines = text.lines().filter(|line| !line.contains('/'));
            let longest = lines.map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= width, "{longest} of {width}: {text}");
        }
    }
}

#[test]
fn a_wrong_configuration_file_is_refused_with_its_line() {
    let scratch = Scratch::new("wrong-config");
    let file = trace(&scratch);
    for (content, line, advice) in [
        ("window = \"10\"", 1, "500ms, 10s or 2m"),
        ("# thesis\n\nwindow = \"5s\"\nregisters = 2000\n", 4, "power of two"),
        (
            "window = \"5s\"\n\n\nregister = 2048\n",
            4,
            "unknown option 'register'; did you mean 'registers'?",
        ),
        ("\ntruth = \"yes\"\n", 2, "boolean"),
        ("seed = 1\nworkers = 0\n", 2, "1 to 256"),
        ("seed = -1\n", 1, "invalid value '-1'"),
        ("key = \"src\"\nread-every = \"sometimes\"\n", 2, "never"),
        ("\n\n  estimator = [\"ertl\"]\n", 3, "a string or a number"),
        ("format = \"json\"\nkey = \n", 2, ""),
        ("format = \"json\"\nformat = \"csv\"\n", 2, "duplicate"),
        ("backend = \"abacus\"\n", 1, "poll"),
        ("port = \"tap0\"\n", 1, "memory:PROFILE"),
        ("config = \"other.toml\"\n", 1, "unknown option 'config'"),
        ("\"\\u001b[31mwindow\" = 1\n", 1, "'\\u{1b}[31mwindow'"),
    ] {
        let config = scratch.write("wrong.toml", content);
        let beginning = format!("configuration {config}, line {line}: ");
        replay(&file, &format!("--config {config}")).refused(2, &beginning, &[advice]);
    }
    let missing = replay(&file, "--config /does/not/exist.toml");
    missing.refused(2, "cannot read configuration /does/not/exist.toml", &[]);
}

const FROM_STANDARD_INPUT: &str = "replay - --truth --format json";

#[test]
fn standard_input_is_a_capture_too() {
    let scratch = Scratch::new("stdin");
    let file = trace(&scratch);
    let from_file = replay(&file, "--truth --format json").quiet();
    let expected = from_file.replace(&file, "standard input");
    assert_eq!(fed(FROM_STANDARD_INPUT, &file).quiet(), expected);
    // A pipe returns less at a time than requested.
    let mut cat = Command::new("cat").arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let outcome = finish(command(FROM_STANDARD_INPUT).stdin(cat.stdout.take().unwrap()));
    assert!(cat.wait().unwrap().success());
    assert_eq!(outcome.quiet(), expected);
}

/// Compresses bytes with a program; `None` if it is not installed.
fn compressed(program: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut words = program.split(' ');
    let child = Command::new(words.next()?)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        skip(program);
        return None;
    };
    let (mut stdin, bytes) = (child.stdin.take()?, bytes.to_vec());
    let writer = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{program}");
    Some(output.stdout)
}

#[test]
fn compressed_captures_are_read_as_they_are() {
    let scratch = Scratch::new("compressed");
    let file = long_trace(&scratch);
    let bytes = fs::read(&file).unwrap();
    let expected = replay(&file, "--truth --format json").quiet();
    let (first, second) = bytes.split_at(bytes.len() / 2 + 5);
    let gzip = ["gzip -1", "gzip -9", "bgzip -c"];
    let zstd = ["zstd -1", "zstd -19 --long=27", "pzstd -c"];
    let xz = ["xz -0", "xz -9", "xz -0 --block-size=9999"];
    for (number, program) in [gzip, zstd, xz].as_flattened().iter().enumerate() {
        let whole = compressed(program, &bytes);
        let parts = compressed(program, first)
            .zip(compressed(program, second))
            .map(|(first, second)| [first, second].concat());
        for (part, content) in [whole, parts].into_iter().flatten().enumerate() {
            // The name does not reveal the format.
            let name = scratch.write(&format!("{number}-{part}.pcap"), content);
            for (outcome, source) in [
                (replay(&name, "--truth --format json"), name.as_str()),
                (fed(FROM_STANDARD_INPUT, &name), "standard input"),
            ] {
                assert_eq!(outcome.quiet(), expected.replace(&file, source), "{program}");
            }
        }
    }
}

#[test]
fn a_compressed_capture_is_a_port_too() {
    let scratch = Scratch::new("compressed-port");
    let Some(content) = compressed("gzip", &pcap(&packets(0..7, 0))) else { return };
    let port = format!("pcap:{}", scratch.write("trace", content));
    let records = parse(&run(["run", "--port", &port, "--format", "json"]).live());
    assert_eq!(counted(&records), 7);
}

/// Returns every packet of one of the parts among which a trace is dealt out.
fn part(all: &[CapturePacket], part: usize, parts: usize) -> Vec<CapturePacket> {
    all.iter().skip(part).step_by(parts).cloned().collect()
}

#[test]
fn several_captures_count_as_one() {
    let scratch = Scratch::new("several");
    let all = recurring();
    let whole = scratch.write("whole.pcap", pcap(&all));
    let options = "--truth --format json --window 3s";
    let expected = replay(&whole, options).quiet();
    let files = [0, 1, 2].map(|index| {
        let packets = part(&all, index, 3);
        // The middle one has a different format.
        let content = if index == 1 { pcapng_of_nanoseconds(&packets) } else { pcap(&packets) };
        scratch.write(&format!("part-{index}.pcap"), content)
    });
    let expected = expected.replace(&whole, &format!("{} and 2 more", files[0]));
    let [first, second, third] = &files;
    let pattern = scratch.argument("part-[0-9].*");
    let all = format!("{first} {second} {third}");
    for captures in
        [all.clone(), pattern, format!("{all} --workers 2"), format!("{all} --workers 3")]
    {
        let outcome = finish(&mut command(&format!("replay {captures} {options}")));
        assert_eq!(outcome.quiet(), expected, "{captures}");
    }
    // One of them from standard input.
    let outcome = fed(&format!("replay {first} - {third} {options}"), second);
    assert_eq!(outcome.quiet(), expected);
}

#[test]
fn a_capture_of_several_that_cannot_be_opened_is_named_before_anything_is_counted() {
    let scratch = Scratch::new("several-missing");
    let file = trace(&scratch);
    let pattern = scratch.path("nothing-*.pcap");
    for (missing, reason) in
        [("/does/not/exist.pcap", "No such file"), (pattern.to_str().unwrap(), "no file matches")]
    {
        run(["replay", file.as_str(), missing]).refused(1, "", &[missing, reason]);
    }
}

#[test]
fn hundreds_of_captures_take_few_file_descriptors_unless_they_overlap() {
    let scratch = Scratch::new("hundreds");
    let all = packets(0..900, SECOND);
    let limited = |directory: &str| {
        let captures = format!("{directory}/*");
        let options = ["replay", &captures, "--window", "1h", "--format", "json"];
        finish(in_shell("ulimit -n 60; exec").args(options))
    };
    let [one_by_one, at_once] =
        ["after-each-other", "at-once"].map(|directory| scratch.argument(directory));
    fs::create_dir(&one_by_one).unwrap();
    fs::create_dir(&at_once).unwrap();
    for file in 0..300 {
        let following = pcap(&all[file * 3..file * 3 + 3]);
        fs::write(format!("{one_by_one}/{file:03}.pcap"), following).unwrap();
        fs::write(format!("{at_once}/{file:03}.pcap"), pcap(&part(&all, file, 300))).unwrap();
    }
    assert_eq!(counted(&parse(&limited(&one_by_one).quiet())), 900);
    let at_once = limited(&at_once).ended(1);
    let counted = counted(&parse(&at_once.stdout));
    assert!(counted < 900 && counted > 90, "{counted}");
    let lines: Vec<&str> = at_once.stderr.lines().collect();
    lines.iter().for_each(|line| assert_has(line, &["Too many open files", "ulimit -n"]));
    // Each of them is named, and has three packets.
    assert_eq!(900 - counted, 3 * lines.len() as u64, "{}", at_once.stderr);
}

#[test]
fn capture_drops_of_pcapng_are_reported() {
    let scratch = Scratch::new("drops");
    let interface = InterfaceOptions { drops: Some(17), ..InterfaceOptions::default() };
    let file = scratch.write("drops.pcapng", pcapng(interface, &packets(0..50, SECOND)));
    let records = records(&file, "--sample-every never");
    assert_eq!(total(&records)["drops"], json!({"capture": 17}));
    let windows = of_kind(&records, "window").into_iter();
    let dropped = windows.filter_map(|window| window["drops"]["capture"].as_u64());
    assert_eq!(dropped.sum::<u64>(), 17);
}

#[test]
fn silence_is_one_record_whatever_its_length() {
    let scratch = Scratch::new("gap");
    let years = 30 * 365 * 86_400 * SECOND;
    let file = scratch.write("gap.pcap", pcap(&with_gap(60, 30, years)));
    for reads in ["", "--sample-every 1s", "--sample-every 1us"] {
        let records = records(&file, &format!("--window 10s {reads}"));
        let windows: Vec<[u64; 3]> = of_kind(&records, "window")
            .iter()
            .map(|window| numbers(window, ["window", "start_ns", "packets"]))
            .collect();
        let after = |window: u64| [window, START + window * 10 * SECOND, 10];
        assert_eq!(windows, [0, 1, 2, 94_608_003, 94_608_004, 94_608_005].map(after));
        let [silence] = of_kind(&records, "silence")[..] else { panic!("{records:?}") };
        let [start, end] = [3, 94_608_003].map(|window| START + window * 10 * SECOND);
        let reported = ["window", "last_window", "start_ns", "end_ns", "packets"];
        assert_eq!(numbers(silence, reported), [3, 94_608_002, start, end, 0]);
        assert_eq!(counted(&records), 60);
        // At most one sample per packet is new, and the others before the next packet are one
        // record.
        let new = new_samples(&records).len();
        assert!(new <= 60, "{new} samples");
        assert!(of_kind(&records, "sample").len() <= 2 * new);
        let repeating = ["sample", "silence"].into_iter().flat_map(|kind| of_kind(&records, kind));
        let sampled: u64 = repeating.map(|record| number(record, "repeats")).sum();
        let mean = match reads {
            "" => 0.0,
            "--sample-every 1s" => (years / SECOND + 59) as f64,
            _ => (years / 1000 + 59_000_000) as f64,
        };
        assert!((sampled as f64 - mean).abs() <= 4.0 * mean.sqrt(), "{sampled} and not {mean}");
    }
    let table = replay(&file, "--window 10s").quiet();
    assert!(table.contains("windows 3 to 94,608,002 had no packets"), "{table}");
    let headers = table.lines().filter(|line| line.trim_start().starts_with("time ")).count();
    assert_eq!(headers, 1, "{table}");
    let csv = replay(&file, "--window 10s --format csv").quiet();
    let silence = csv.lines().find(|line| line.contains(",silence,")).unwrap();
    assert_has(silence, &[",3,", ",94608002,"]);
    // Without windows, registers expire within 20 s. One sample more is in the state after that, and
    // one is at the end.
    let records = records(&file, "--staggered 10s --sample-every 1s");
    let new = new_samples(&records).len() as u64;
    assert!(poisson(29.0 + 20.0 + 29.0).contains(&(new - 3)), "{new} samples");
    assert_eq!(records.len() as u64, new + 2, "the silence, and the total");
    assert_eq!(counted(&records), 60);
}

#[test]
fn a_few_empty_windows_are_told_one_by_one() {
    let scratch = Scratch::new("short-gap");
    for (empty, reported) in [(3, 3), (4, 0), (101, 0)] {
        let file = scratch.write("short.pcap", pcap(&with_gap(20, 10, empty * 10 * SECOND)));
        let records = records(file, "--window 10s");
        let packets = of_windows(&records, "packets");
        let without = packets.iter().filter(|packets| **packets == 0).count();
        assert_eq!((packets.len(), without), (reported + 2, reported));
        assert_eq!(of_kind(&records, "silence").len(), usize::from(reported == 0));
        assert_eq!(of_windows(&records, "window").last(), Some(&(empty + 1)));
    }
}

#[test]
fn a_run_that_is_to_end_in_a_silence_ends_there() {
    let scratch = Scratch::new("gap-end");
    let file = scratch.write("gap.pcap", pcap(&with_gap(20, 10, 86_400 * SECOND)));
    for (seconds, last) in [(1000, 99), (1005, 100)] {
        let records = records(&file, &format!("--window 10s --duration {seconds}s"));
        let end = START + seconds * SECOND;
        assert_eq!(numbers(total(&records), ["end_ns", "packets"]), [end, 10]);
        let of_last = records.iter().rev().nth(1).unwrap();
        let number_of_last = of_last["last_window"].as_u64().unwrap_or(number(of_last, "window"));
        assert_eq!((number_of_last, number(of_last, "end_ns")), (last, end), "{of_last}");
    }
}

/// A hundred and thirty million samples would be due.
#[test]
fn a_window_of_years_needs_no_reads() {
    let scratch = Scratch::new("years");
    let file = scratch.write("years.pcap", pcap(&packets(0..847, 4 * 365 * 86_400 * SECOND / 847)));
    for (options, most) in [("", 0), ("--sample-every 1s", 847)] {
        let records = records(&file, &format!("--window 100y {options}"));
        assert_eq!((of_kind(&records, "window").len(), counted(&records)), (1, 847));
        assert!(new_samples(&records).len() <= most);
        assert!(of_kind(&records, "sample").len() <= 2 * most);
    }
}

#[test]
fn packets_out_of_order_are_in_the_windows_of_their_times() {
    let scratch = Scratch::new("order");
    // Every seventh packet is fifty packets late in the capture.
    let mut all = packets(0..4000, SECOND / 100);
    let late = |packet: &CapturePacket| (packet.timestamp / (SECOND / 100)).is_multiple_of(7);
    all.sort_by_key(|packet| packet.timestamp + if late(packet) { SECOND / 2 } else { 0 });
    let file = scratch.write("order.pcap", pcap(&all));
    for lateness in ["--lateness 100ms", "", "--lateness 1s", "--lateness 1s --sample-every 50ms"] {
        let records = records(&file, &format!("--window 1s --truth {lateness}"));
        assert_eq!(of_windows(&records, "packets"), [100; 40], "{lateness}");
        let end = START + 3999 * SECOND / 100 + 1;
        assert_eq!(numbers(total(&records), ["packets", "late", "end_ns"]), [4000, 0, end]);
    }
    // With zero lateness they are not waited for.
    let outcome = replay(&file, "--window 1s --lateness 0s --format json");
    let records = parse(&outcome.stdout);
    let [packets, late] = numbers(total(&records), ["packets", "late"]);
    assert!(packets + late == 4000 && late > 100, "{packets} packets, {late} late");
}

#[test]
fn packets_that_come_too_late_are_counted_apart_and_told() {
    let scratch = Scratch::new("late");
    let mut all = packets(0..5000, SECOND / 100);
    all[3000..3010].iter_mut().for_each(|packet| packet.timestamp -= 25 * SECOND);
    let file = scratch.write("late.pcap", pcap(&all));
    for workers in [1, 3] {
        let outcome = replay(&file, &format!("--window 10s --format json --workers {workers}"));
        let records =
            parse(&outcome.told(0, &["10 packets arrived after their window was closed"]));
        assert_eq!(of_windows(&records, "late").into_iter().sum::<u64>(), 10);
        let total = total(&records);
        assert_eq!(numbers(total, ["packets", "late"]), [4990, 10]);
        assert_eq!(total["drops"], json!({}));
    }
    let table = replay(&file, "--window 10s").stdout;
    assert!(table.contains("10 packets came too late for their window"), "{table}");
    let csv = replay(&file, "--window 10s --format csv").stdout;
    let rows = csv_rows(&csv);
    assert_eq!(rows.iter().map(|row| row["late"].parse::<u64>().unwrap()).sum::<u64>(), 10);
}

#[test]
fn timestamps_going_backwards_lose_no_packet() {
    let scratch = Scratch::new("backwards");
    let mut all = packets(0..400, SECOND / 10);
    // Every tenth packet is up to half a minute old, one is from the last century.
    all.iter_mut().step_by(10).skip(1).for_each(|packet| packet.timestamp -= 30 * SECOND);
    all[200].timestamp = SECOND;
    for file in [
        scratch.write("jumps.pcap", pcap(&all)),
        scratch.write("reverse.pcap", pcap(&all.iter().rev().cloned().collect::<Vec<_>>())),
    ] {
        for workers in [1, 3] {
            let records = records(&file, &format!("--truth --window 5s --workers {workers}"));
            assert_eq!(counted(&records), 400);
            assert_eq!(cardinality(total(&records), "truth"), 400);
        }
    }
}

#[test]
fn a_timestamp_at_the_end_of_the_clock_does_not_make_windows_for_ever() {
    let scratch = Scratch::new("end-of-clock");
    let mut all = packets(0..30, SECOND);
    all.push(CapturePacket { timestamp: u64::MAX, ..all[0].clone() });
    let mut file = build::pcapng(&PcapNgOptions::default(), &all);
    // Not supported by the builder: 2^64 - 1 microseconds, in the timestamp at offset 12 of the
    // last block.
    let block = file.len() - (32 + all[30].frame.len().next_multiple_of(4));
    file[block + 12..block + 20].fill(0xff);
    let file = scratch.write("end.pcapng", file);
    for options in ["--sample-every never", "--sample-every 1s", "--staggered 5s"] {
        let outcome = replay(&file, &format!("--format json {options}"));
        let records = parse(&outcome.stdout);
        assert!(records.len() < 120, "{options}: {} records", records.len());
        assert_eq!(counted(&records), 31);
    }
}

#[test]
fn an_empty_capture_is_valid() {
    let scratch = Scratch::new("empty");
    for file in [
        scratch.write("empty.pcap", pcap(&[])),
        scratch.write("empty.pcapng", build::pcapng(&PcapNgOptions::default(), &[])),
    ] {
        for options in ["", "--truth --workers 3", "--measure none", "--staggered 10s"] {
            for format in ["json", "table", "csv"] {
                let outcome = replay(&file, &format!("{options} --format {format}")).ended(0);
                // The message says that there are no packets.
                let complaint = outcome.complaint();
                assert!(complaint.ends_with("the capture has no packets"), "{complaint}");
                if format == "json" {
                    assert_eq!(counted(&parse(&outcome.stdout)), 0);
                }
            }
        }
    }
}

#[test]
fn a_packet_without_bytes_counts() {
    let scratch = Scratch::new("no-bytes");
    let packet = CapturePacket { wire: 1500, frame: Vec::new(), ..packets([1], 1)[0].clone() };
    let records = records(scratch.write("bare.pcap", pcap(&[packet])), "");
    let total = total(&records);
    assert_eq!((number(&total["rejected"], "truncated"), number(total, "bytes")), (1, 1500));
}

/// Length of a frame on the wire: truncated, rejected, behind a header of the capturing machine,
/// and with a frame check sequence.
#[test]
fn bytes_are_lengths_on_the_wire() {
    let scratch = Scratch::new("bytes");
    let ip = frames::ipv4([10, 0, 0, 1], 17, &frames::udp(&[0; 9]));
    let radiotap = |control: u8, body: &[u8]| {
        [&[0, 0, 8, 0, 0, 0, 0, 0, control, 0][..], &[0; 22], body].concat()
    };
    let data = radiotap(0x08, &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &ip].concat());
    let beacon = radiotap(0x80, &[0; 40]);
    let ethernet = frames::ethernet(&[], 0x0800, &ip);
    let length = ethernet.len().min(60);
    let cases = [
        (
            u32::from(link_type::IEEE802_11_RADIOTAP),
            [(data.clone(), 1000), (beacon, 80), (data[..30].to_vec(), 500)],
            [1, 1, 1, 1580],
        ),
        // Frame check sequences of four bytes were captured.
        (
            0x2400_0001,
            [(ethernet.clone(), 64), (ethernet[..length].to_vec(), 1518), (vec![0; 20], 64)],
            [2, 1, 0, 1646],
        ),
    ];
    for (network, all, expected) in cases {
        let packets =
            all.map(|(frame, wire)| CapturePacket { wire, ..CapturePacket::new(START, frame) });
        let options = PcapOptions { network, ..PcapOptions::default() };
        let records = records(scratch.write("bytes.pcap", build::pcap(&options, &packets)), "");
        let total = total(&records);
        let [ipv4, bytes] = numbers(total, ["ipv4_packets", "bytes"]);
        let [non_ip, truncated] = numbers(&total["rejected"], ["non_ip", "truncated"]);
        assert_eq!([ipv4, non_ip, truncated, bytes], expected, "link type {network:#x}");
    }
}

#[test]
fn one_capture_may_hold_several_link_types() {
    let scratch = Scratch::new("links");
    let v4 = frames::ipv4([10, 0, 0, 1], 17, &frames::udp(&[]));
    let v6 = frames::ipv6(7, 17, &frames::udp(&[]));
    let links = [link_type::ETHERNET, link_type::RAW, link_type::NULL];
    let frames = [frames::ethernet(&[], 0x0800, &v4), v6.clone(), [vec![30, 0, 0, 0], v6].concat()];
    let interfaces =
        links.map(|link_type| InterfaceOptions { link_type, ..InterfaceOptions::default() });
    let interfaces = interfaces.to_vec();
    let mut packets = frames.map(|frame| CapturePacket::new(START, frame));
    packets.iter_mut().zip(0..).for_each(|(packet, interface)| packet.interface = interface);
    let file = build::pcapng(&PcapNgOptions { interfaces, ..PcapNgOptions::default() }, &packets);
    let records = records(scratch.write("links.pcapng", file), "--truth");
    let total = total(&records);
    assert_eq!(numbers(total, ["ipv4_packets", "ipv6_packets"]), [1, 2]);
    assert_eq!(cardinality(total, "truth"), 2);
}

/// Returns an echo request with this number, or its reply.
fn echo(number: u32, is_reply: bool) -> Vec<u8> {
    let (host, server) = ([10, 0, (number >> 8) as u8, number as u8], [192, 0, 2, 1]);
    let (from, to) = if is_reply { (server, host) } else { (host, server) };
    frame::echo(from, to, 0x0001_0000 | number & 0xffff, is_reply)
}

/// Returns round trips of 1 to 41 ms by a clock with this step, and their durations.
fn round_trips(step: u64) -> (Vec<CapturePacket>, Vec<u64>) {
    let delays: Vec<u64> =
        (0..1000).map(|number| 1_000_000 + number * 7_919_003 % 40_000_000).collect();
    let mut packets: Vec<CapturePacket> = (0..)
        .zip(&delays)
        .flat_map(|(number, delay)| {
            let at = START + u64::from(number) * 37_123_457;
            [(at, false), (at + delay, true)]
                .map(|(at, is_reply)| CapturePacket::new(at - at % step, echo(number, is_reply)))
        })
        .collect();
    packets.sort_by_key(|packet| packet.timestamp);
    (packets, delays)
}

const ROUND_TRIPS: &str = "--measure delay --delay icmp --delay-admit 1";

#[test]
fn delays_by_a_coarse_clock_are_uncertain_by_its_step() {
    let scratch = Scratch::new("coarse-clock");
    for (step, resolution) in
        [(10_000_000, 10_000_000), (4_000_000, 4_000_000), (1000, 1000), (1, 64)]
    {
        let (packets, mut delays) = round_trips(step);
        delays.sort_unstable();
        let file = scratch.write("coarse.pcapng", pcapng_of_nanoseconds(&packets));
        for algorithm in ["fridge", "overwrite"] {
            let records = records(&file, &format!("{ROUND_TRIPS} --delay-algorithm {algorithm}"));
            for record in of_kind(&records, "window").into_iter().chain([total(&records)]) {
                assert_eq!(record["delay"][0]["resolution_ns"], resolution, "{record}");
            }
            let delay = &total(&records)["delay"][0];
            let raw = float(&delay["raw"], "p50");
            let is_multiple = (raw / step as f64).fract() == 0.0;
            assert!(step <= 64 || is_multiple, "{raw} is not a multiple of {step}");
            if algorithm == "fridge" {
                for (share, name) in [(50, "p50"), (90, "p90"), (95, "p95")] {
                    let percentile = &delay["corrected"][name];
                    let [low, high] = ["low", "high"].map(|key| float(percentile, key));
                    let exact = delays[delays.len() * share / 100] as f64;
                    assert!(low <= exact && exact <= high, "{step}: {exact}, {percentile}");
                    assert!(high - low >= 2.0 * step as f64, "{step}: {percentile}");
                }
            }
        }
    }
}

#[test]
fn captures_of_microseconds_have_that_resolution() {
    let scratch = Scratch::new("microseconds");
    let resolution = |files: &[String]| {
        let arguments = format!("replay {} --format json {ROUND_TRIPS}", files.join(" "));
        let printed = finish(&mut command(&arguments)).quiet();
        total(&parse(&printed))["delay"][0]["resolution_ns"].clone()
    };
    let pcap = |packets: &[CapturePacket]| build::pcap(&PcapOptions::default(), packets);
    // Too few packets to detect a step.
    let packets = [(0, false), (30_000_000, true)]
        .map(|(at, is_reply)| CapturePacket::new(START + at, echo(1, is_reply)));
    let parts =
        [0, 1].map(|index| scratch.write(&format!("{index}.pcap"), pcap(&packets[index..=index])));
    assert_eq!(resolution(&[scratch.write("whole.pcap", pcap(&packets))]), 1000);
    assert_eq!(resolution(&parts), 1000);
}

#[test]
fn a_step_shows_where_a_chunk_lies_within_one() {
    let scratch = Scratch::new("busy-clock");
    let frame = echo(0, false);
    // Chunks of 2 MiB have less than 36,000 of these packets.
    let steps = |packet: u64| packet / 40_000 * (packet / 40_000 + 1) / 2;
    let packets: Vec<CapturePacket> = (0..400_000)
        .map(|packet| CapturePacket::new(START + steps(packet) * 10_000_000, frame.clone()))
        .collect();
    let file = scratch.write("busy.pcap", pcap(&packets));
    let records = records(&file, &format!("{ROUND_TRIPS} --window 1m --sample-every never"));
    assert_eq!(total(&records)["delay"][0]["resolution_ns"], 10_000_000);
}
