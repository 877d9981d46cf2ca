//! Command lines that make no sense, and help for those who read it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::run;

/// Whatever is wrong: exit code 2, nothing on standard output, one line that says what to give.
#[track_caller]
fn refused(arguments: &str, advice: &str) {
    let outcome = run(arguments.split_whitespace());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{arguments}: {}", outcome.stderr);
    let line = outcome.complaint();
    assert!(line.starts_with("error: "), "{arguments}: {line}");
    assert!(line.contains(advice), "{arguments}: {line}");
}

#[test]
fn options_that_make_no_sense_are_refused_with_advice() {
    for (options, advice) in [
        ("--window 0s", "at least 1us"),
        ("--window 10", "500ms, 10s or 2m"),
        ("--window -5s", "500ms, 10s or 2m"),
        ("--window 1000000000y", "at most 100 years"),
        ("--window 99999999999999999999999y", "500ms, 10s or 2m"),
        ("--window", "value is required"),
        ("--read-every -1s", "or never"),
        ("--read-every 0s", "at least 1us"),
        ("--registers 2000", "power of two from 16 to 65536"),
        ("--registers 0", "power of two from 16 to 65536"),
        ("--registers 131072", "power of two from 16 to 65536"),
        ("--registers -16", "'--help'"),
        ("--hash md5", "crc32, tabulated"),
        ("--key srcip", "src, dst, src-dst, five-tuple"),
        ("--workers 0", "1 to 256"),
        ("--workers 100000", "1 to 256"),
        ("--estimator foo", "ertl, flajolet, mle"),
        ("--duration abc", "500ms, 10s or 2m"),
        ("--measure packets", "cardinality"),
        ("--key heavy=srcip", "src, dst, src-dst, five-tuple"),
        ("--key flows=src", "cardinality, entropy"),
        ("--key heavy=src+dst", "entropy can have two"),
        ("--measure entropy --key entropy=src+src", "two different keys"),
        ("--measure entropy --sketch entropy=4x1000", "power of two"),
        ("--measure entropy --sketch entropy=13x16", "1 to 12 rows"),
        ("--measure entropy --sketch entropy=hyperloglog", "count-sketch, count-min"),
        ("--measure heavy --sketch heavy=count-min", "entropy and frequency have"),
        ("--measure membership --filter 4x100000", "64 to 65536"),
        ("--measure heavy --algorithm topk", "rap, space-saving, d-way-rap, hashpipe, precision"),
        ("--measure heavy --slots 1000", "power of two from 16 to 4096"),
        ("--measure heavy --by flows", "packets, bytes"),
        ("--measure frequency --query nonsense", "10.0.0.1 > 10.0.0.2"),
        ("--query 10.0.0.1", "--measure frequency or membership"),
        ("--top 5", "--measure heavy"),
        ("--key heavy=dst", "--measure heavy"),
        ("--sketch entropy=3x1024", "--measure entropy"),
        ("--alarm --key entropy=src", "leave out the --key of entropy"),
        ("--measure cardinality,entropy --staggered 10s", "leave out one or the other"),
        ("--seed one", "--seed"),
        ("--staggered 10s --window 5s", "leave out --window"),
        ("--staggered 10s --estimator ertl", "use mle"),
        ("--staggered 10us", "at least 1ms"),
        ("--format xml", "table, csv, json"),
        ("--formt csv", "'--format'"),
        ("--nonsense", "'--help'"),
    ] {
        refused(&format!("run {options}"), advice);
        // The capture is not even looked for.
        refused(&format!("replay /does/not/exist.pcap {options}"), advice);
    }
}

#[test]
fn benchmarks_that_make_no_sense_are_refused_with_advice() {
    refused("bench frobnicate", "line-rate");
    refused("bench packet --format csv", "json");
    refused("bench line-rate af_xdp:eth1", "--from");
    refused("bench line-rate --from af_xdp:eth1", "PORT");
    refused("bench line-rate memory:unique --from af_xdp:eth1", "af_xdp: or dpdk:");
    refused("bench line-rate --sizes 63", "64");
    refused("bench line-rate --trial 0s", "at least 1us");
}

#[test]
fn ports_and_backends_that_make_no_sense_are_refused_with_advice() {
    refused("run --port tap0", "pcap:FILE, memory:PROFILE or dpdk:DEVICE");
    refused("run --port dpdk:", "name a device");
    #[cfg(not(feature = "dpdk"))]
    refused("run --port dpdk:net_null0", "build flowgauge with `--features dpdk`");
    refused("run --port memory:unique --eal --no-huge", "--port dpdk:DEVICE");
    refused("run --eal --no-huge", "--port dpdk:DEVICE");
    refused("run --port pcap:", "pcap:FILE");
    refused("run --port memory:nope", "unique, sequential, subnets, zipf or burst");
    refused("run --port memory:", "unique, sequential, subnets, zipf or burst");
    refused("run --port memory:unique,rate=-1", "positive number");
    refused("run --port memory:unique,speed=9", "options are rate=PPS");
    refused("run --backend abacus", "--backend");
}

#[test]
fn commands_that_make_no_sense_are_refused_with_advice() {
    refused("reply trace.pcap", "replay");
    refused("frobnicate", "use one of run, replay, generate, reproduce, bench, tables, status, detach, doctor");
    refused("--nonsense", "'--help'");
    refused("replay", "<FILE>");
    refused("replay one.pcap two.pcap", "two.pcap");
    refused("generate unique", "--to <FILE|af_xdp:IFACE|live:IFACE|dpdk:DEVICE>");
    refused("generate", "<PROFILE>");
    refused("generate unique,rate=max --to out.pcap", "give a number");
    refused("generate uniq --to out.pcap", "use unique");
    refused("generate unique --to dpdk:", "name a device");
    refused("generate unique --to out.pcap --eal --no-huge", "--to dpdk:DEVICE");
    refused("tables --registers 3", "power of two");
    refused("tables --hash md5", "crc32, tabulated");
    refused("status --format csv", "'--help'");
    refused("doctor --format csv", "'--help'");
    refused("doctor --backend abacus", "'--help'");
    refused("doctor --backend tofino", "--address HOST:PORT");
    for address in ["switch", "switch:", ":50052", "switch:0", "switch:65536", "2001:db8::1"] {
        refused(&format!("doctor --address {address}"), "[2001:db8::1]:50052");
    }
}

#[test]
fn help_of_every_command_explains_and_gives_examples() {
    for command in ["run", "replay", "generate", "reproduce", "tables", "status", "doctor"] {
        for arguments in [vec![command, "--help"], vec![command, "-h"], vec!["help", command]] {
            let help = run(arguments).quiet();
            let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{help}"));
            assert!(examples.lines().all(|line| line.contains(&format!("flowgauge {command}"))), "{examples}");
            assert!(help.contains(&format!("Usage: flowgauge {command}")), "{help}");
            assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        }
    }
    let help = run(["--help"]).quiet();
    assert!(help.contains("Examples:\n  flowgauge\n"), "{help}");
    for command in ["run", "replay", "generate", "reproduce", "tables", "status", "doctor"] {
        let line = help.lines().find(|line| line.trim_start().starts_with(command));
        assert!(line.is_some_and(|line| line.split_whitespace().count() > 3), "{command} is not explained: {help}");
    }
    assert_eq!(run(["--version"]).quiet(), format!("flowgauge {}\n", env!("CARGO_PKG_VERSION")));
}

/// Examples are promises: as far as they need no file and end by themselves, they must be understood.
#[test]
fn examples_in_the_help_are_understood() {
    let mut checked = 0;
    for command in ["run", "replay", "generate", "reproduce", "tables", "status", "doctor"] {
        let help = run([command, "--help"]).quiet();
        let (_, examples) = help.split_once("Examples:\n").unwrap();
        for example in examples.lines().flat_map(|line| line.split('|')).filter_map(|part| part.trim().strip_prefix("flowgauge ")) {
            // Every option but the last, which is wrong: the others were understood if nothing else is complained of.
            let outcome = run(example.split_whitespace().chain(["--no-such-option"]));
            assert_eq!(outcome.code, Some(2));
            assert!(outcome.complaint().contains("'--no-such-option'"), "{example}: {}", outcome.stderr);
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked} examples");
}

#[test]
fn tables_are_complete_in_every_format() {
    let json: serde_json::Value = serde_json::from_str(&run(["tables", "--format", "json"]).quiet()).unwrap();
    assert_eq!(json["rank"]["entries"].as_array().unwrap().len(), 21);
    assert_eq!((&json["rank"]["default_level"], &json["rank"]["bits"]), (&22.into(), &21.into()));
    assert_eq!(json["tabulation"].as_array().unwrap().iter().map(|table| table.as_array().unwrap().len()).sum::<usize>(), 1024);
    let csv = run(["tables", "--format", "csv"]).quiet();
    assert_eq!(csv.lines().count(), 1 + 22 + 1024);
    let crc = run(["tables", "--format", "csv", "--hash", "crc32", "--registers", "16"]).quiet();
    assert_eq!(crc.lines().count(), 1 + 29);
    assert!(run(["tables"]).quiet().contains("21 longest-prefix-match entries on 21 bits, default level 22"));
}
