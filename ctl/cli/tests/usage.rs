//! Invalid command lines, and help.

use crate::common;
use crate::common::{assert_has, command, finish, run};

/// Commands whose help has examples.
const EXPLAINED: [&str; 9] =
    ["run", "replay", "generate", "reproduce", "tables", "status", "doctor", "completions", "man"];

/// Checks for exit code 2, an empty standard output, and one line that says what to do.
#[track_caller]
fn refused(arguments: &str, advice: &str) {
    let outcome = run(arguments.split_whitespace());
    assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{arguments}: {}", outcome.stderr);
    let line = outcome.complaint();
    assert!(line.starts_with("error: "), "{arguments}: {line}");
    assert!(line.contains(advice), "{arguments}: {line}");
}

#[test]
fn a_problem_in_a_long_expression_is_shown_with_what_is_around_it() {
    let [before, after] = [200, 12_000].map(|times| "tcp and ".repeat(times));
    let expression = format!("{before}prot 80 and {after}");
    let around = "did you mean 'proto'?, in '…tcp and tcp and tcp and tcp and tcp and prot 80 and tcp and tcp and tcp and tcp …'";
    let scratch = common::Scratch::new("long-expression");
    let file = scratch.write("run.toml", format!("match = \"{expression}\""));
    for arguments in [["run", "--match", &*expression], ["config", "check", &file]] {
        let outcome = run(arguments).ended(2);
        let line = outcome.complaint();
        assert_has(line, &["column 1601: 'prot'", around]);
        assert!(line.len() < 500, "{line}");
    }
}

#[test]
fn options_that_make_no_sense_are_refused_with_advice() {
    for (options, advice) in [
        ("--window 0s", "at least 1us"),
        ("--window 10", "500ms, 10s or 2m"),
        ("--window -5s", "500ms, 10s or 2m"),
        ("--window 1M", "write 1min for minutes"),
        ("--duration 1h30M", "the unit M is ambiguous"),
        ("--window 10S", "its unit (ns, us, ms, s, min, h, d, w)"),
        ("--window 1000000000y", "at most 100 years"),
        ("--window 100y1us", "at most 100 years"),
        ("--window 99999999999999999999999y", "500ms, 10s or 2m"),
        ("--window", "value is required"),
        ("--sample-every -1s", "or never"),
        ("--sample-every 0s", "at least 1us"),
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
        ("--key heavy=src+dst", "only entropy can have two"),
        ("--measure entropy --key entropy=src+src", "two keys, which must differ"),
        ("--measure entropy --sketch entropy=4x1000", "power of two"),
        ("--measure entropy --sketch entropy=13x16", "1 to 12 rows"),
        ("--measure entropy --sketch entropy=hyperloglog", "count-sketch, count-min"),
        ("--measure heavy --sketch heavy=count-min", "use entropy and frequency"),
        ("--measure membership --filter 4x100000", "64 to 65536"),
        ("--measure heavy --algorithm topk", "rap, space-saving, d-way-rap, hashpipe, precision"),
        ("--measure heavy --slots 1000", "power of two from 16 to 4096"),
        ("--measure heavy --by flows", "packets, bytes"),
        ("--measure frequency --query nonsense", "10.0.0.1 > 10.0.0.2"),
        ("--query 10.0.0.1", "--measure frequency or membership"),
        ("--measure membership", "--measure membership counts the flows of --query"),
        (
            "--measure frequency --key five-tuple --query 10.0.0.1",
            "'10.0.0.1' is no flow by five-tuple, the key of frequency",
        ),
        ("--top 5", "--measure heavy"),
        ("--key heavy=dst", "--measure heavy"),
        ("--sketch entropy=3x1024", "--measure entropy"),
        ("--alarm --key entropy=src", "remove the --key of entropy"),
        ("--measure cardinality,entropy --staggered 10s", "remove one of them"),
        ("--seed one", "--seed"),
        ("--staggered 10s --window 5s", "remove --window"),
        ("--staggered 10s --estimator ertl", "use mle"),
        ("--staggered 10us", "at least 1ms"),
        ("--format xml", "table, csv, json"),
        ("--formt csv", "'--format'"),
        ("--key five_tuple", "did you mean 'five-tuple'?"),
        ("--truth=perhaps", "true, false"),
        ("--quiet --verbose", "cannot be used with"),
        ("--nonsense", "'--help'"),
    ] {
        refused(&format!("run {options}"), advice);
        // The capture is not even opened.
        refused(&format!("replay /does/not/exist.pcap {options}"), advice);
    }
}

/// Command lines in the form of other tools print what the options of this command print.
#[test]
fn lines_of_other_tools_are_understood() {
    let scratch = common::Scratch::new("habits");
    let capture = common::generated(&scratch, "x.pcap", "unique,packets=300,rate=1k");
    let names = scratch.argument("missing");
    for (typed, meant) in [
        ("FILE", "replay FILE"),
        ("-r FILE --json", "replay FILE --format json"),
        ("replay -r FILE --csv", "replay FILE --format csv"),
        ("replay FILE udp and net 10.0.0.0/9", "replay FILE --match"),
        (
            "replay FILE --measure all --json",
            "replay FILE --format json --measure cardinality,entropy,frequency,membership,heavy,spread,sizes,delay,reorder",
        ),
    ] {
        let words = |line: &str| -> Vec<String> {
            line.split_whitespace().map(|word| word.replace("FILE", &capture)).collect()
        };
        let mut meant = words(meant);
        if meant.last().is_some_and(|word| word == "--match") {
            meant.push("udp and net 10.0.0.0/9".to_owned());
        }
        let [found, expected] = [words(typed), meant].map(|words| run(words).quiet());
        assert_eq!(found, expected, "{typed}");
    }
    let counted = run(["replay", &capture, "tcp", "port", "1", "--json"]).quiet();
    assert!(counted.contains("\"unmatched\":"), "{counted}");
    for (typed, answer) in [
        (format!("run {capture}"), "count the capture with `flowgauge replay"),
        (format!("replay {capture} tcp prt 443"), "did you mean 'port'?"),
        (format!("replay {capture} -w {names}"), "flowgauge stores no packets"),
        (format!("replay {capture} --names host"), "did you mean 'hosts'?"),
        (format!("replay {capture} --names DSN"), "did you mean 'dns'?"),
        (format!("replay {capture} --measure cardinalty"), "did you mean 'cardinality'?"),
        (format!("replay {names}.pcap"), "missing.pcap"),
        (format!("{names}.pcap"), "missing.pcap"),
        ("run no-such-interface".to_owned(), "is no interface of this machine"),
    ] {
        let outcome = run(typed.split_whitespace());
        assert!(matches!(outcome.code, Some(1 | 2)), "{typed}: {outcome:?}");
        assert!(outcome.complaint().contains(answer), "{typed}: {}", outcome.stderr);
    }
}

#[test]
fn benchmarks_that_make_no_sense_are_refused_with_advice() {
    refused("bench frobnicate", "line-rate");
    refused("bench paket", "'packet'; use one of line-rate, packet, peers, scale, xdp");
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
    refused("run --port memory:nope", "unique, sequential, subnets, zipf, burst or attack");
    refused("run --port memory:", "unique, sequential, subnets, zipf, burst or attack");
    refused("run --port memory:unique,rate=-1", "positive number");
    refused("run --port memory:unique,speed=9", "options are rate=PPS");
    refused("run --backend abacus", "--backend");
}

#[test]
fn commands_that_make_no_sense_are_refused_with_advice() {
    refused("reply trace.pcap", "replay");
    refused(
        "frobnicate",
        "use one of run, replay, report, demo, generate, reproduce, bench, merge, diff, lake, tables, status, top, config, detach, doctor",
    );
    refused("--nonsense", "'--help'");
    refused("replay", "<FILE>");
    refused("generate unique", "--to <FILE|af_xdp:IFACE|live:IFACE|dpdk:DEVICE>");
    refused("generate", "<PROFILE>");
    refused("generate unique,rate=max --to out.pcap", "give rate= a number");
    refused("generate uniq --to out.pcap", "use unique");
    refused("generate unique --to dpdk:", "name a device");
    refused("generate unique --to out.pcap --eal --no-huge", "--to dpdk:DEVICE");
    refused("tables --registers 3", "power of two");
    refused("tables --hash md5", "crc32, tabulated");
    refused("demo --listen 0.0.0.0:0", "--listen 0.0.0.0 is reachable by other machines");
    refused("demo --listen [::]:0 --listen-token-file token", "--listen-cert");
    refused("demo --listen-cert tls.crt", "--listen-cert and --listen-key must be given together");
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
    for command in EXPLAINED {
        for arguments in [vec![command, "--help"], vec![command, "-h"], vec!["help", command]] {
            let help = run(arguments).quiet();
            let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{help}"));
            let name = format!("flowgauge {command}");
            assert!(examples.lines().all(|line| line.contains(&name)), "{examples}");
            assert_has(&help, &[&format!("Usage: {name}")]);
            assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        }
    }
    let help = run(["--help"]).quiet();
    assert!(help.contains("Examples:\n  flowgauge\n"), "{help}");
    for command in EXPLAINED {
        let line = help.lines().find(|line| line.trim_start().starts_with(command));
        let words = line.map_or(0, |line| line.split_whitespace().count());
        assert!(words > 3, "{command} is not explained: {help}");
    }
}

#[test]
fn the_version_is_a_line_or_all_that_a_bug_report_needs() {
    let version = format!("flowgauge {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(["-V"]).quiet(), version);
    let long = run(["--version"]).quiet();
    let [first, commit, features] = long.lines().collect::<Vec<_>>()[..] else { panic!("{long}") };
    assert_eq!(first, version.trim_end());
    let commit = commit.strip_prefix("commit: ").unwrap();
    assert!(commit == "unknown" || commit.len() >= 12, "{long}");
    let all = [
        ("dpdk", cfg!(feature = "dpdk")),
        ("lake", cfg!(feature = "lake")),
        ("object-store", cfg!(feature = "object-store")),
        ("report", cfg!(feature = "report")),
        ("serve", cfg!(feature = "serve")),
        ("tofino", cfg!(feature = "tofino")),
        ("top", cfg!(feature = "top")),
    ];
    let built: Vec<&str> = all.into_iter().filter_map(|(name, has)| has.then_some(name)).collect();
    let text = features.strip_prefix("features: ").unwrap();
    assert_eq!(text, if built.is_empty() { "none".to_owned() } else { built.join(", ") });
}

#[test]
fn short_help_has_the_options_that_are_used_and_long_help_has_all() {
    for command in ["run", "replay", "generate"] {
        let options =
            |help: &str| help.lines().filter(|line| line.trim_start().starts_with('-')).count();
        let [short, long] = ["-h", "--help"].map(|help| run([command, help]).quiet());
        assert!(options(&short) <= 27 && short.lines().count() <= 80, "{short}");
        assert!(options(&long) > options(&short), "{long}");
        assert!(short.contains("see more with '--help'"), "{short}");
    }
    assert_has(
        &run(["run", "--help"]).quiet(),
        &["--xdp-mode", "--pins", "--registers", "--tls-ca", "--poll-mode", "--record", "--color"],
    );
}

#[test]
fn shells_and_manual_pages_know_every_command_and_option() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(["completions", shell]).quiet();
        assert_has(&script, &["replay", "xdp-mode", "sample-every", "line-rate"]);
    }
    refused("completions csh", "bash");
    let scratch = common::Scratch::new("man");
    let directory = scratch.path("man1");
    run(["man".as_ref(), directory.as_os_str()]).quiet();
    for end in ["", "-run", "-replay", "-bench-packet", "-completions"] {
        let page = std::fs::read_to_string(directory.join(format!("flowgauge{end}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let page = std::fs::read_to_string(directory.join("flowgauge-run.1")).unwrap();
    assert!(page.contains("xdp\\-mode") && page.contains("flowgauge run \\-i eth1"), "{page}");
    assert!(run(["man"]).quiet().contains(".TH flowgauge 1"));
}

#[test]
fn messages_are_as_many_as_asked_for() {
    let scratch = common::Scratch::new("messages");
    // A run that `status` cannot find reports it.
    let nowhere = scratch.write("file", "");
    let text = |options: &str, log: &str| {
        let mut run = command(&format!("run --port memory:unique,packets=100,rate=max {options}"));
        finish(run.env("FLOWGAUGE_STATUS_DIR", &nowhere).env("RUST_LOG", log)).ended(0).stderr
    };
    let [usual, quiet, coloured] = ["", "-q", "--color always"].map(|options| text(options, ""));
    assert!(usual.contains("WARN `flowgauge status`") && !usual.contains('\u{1b}'), "{usual}");
    assert_eq!(quiet, "");
    assert!(coloured.contains('\u{1b}'), "{coloured}");
    assert_eq!(text("-v", "error"), "");
    assert_has(&text("-q", "warn"), &["WARN"]);
    assert_has(&text("", "a=b=c"), &["ignoring invalid RUST_LOG"]);
}

#[test]
fn names_that_command_terminals_are_shown_as_text() {
    let hostile = "x\u{1b}[2J\u{202e}";
    for arguments in [
        vec!["replay", hostile],
        vec!["replay", "--window", hostile, "x"],
        vec![hostile],
        vec!["run", "-i", hostile],
        vec!["run", "--config", hostile],
        vec!["doctor", "--backend", "xdp", "-i", hostile],
        vec!["detach", "--pins", hostile],
        vec!["generate", "unique,packets=1", "--to", "/does/not/exist/x\u{1b}[2J"],
    ] {
        let outcome = run(&arguments);
        let text = outcome.stdout + &outcome.stderr;
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{arguments:?}: {text:?}");
    }
}

/// Examples must be valid, and those that need no file and end by themselves must run.
#[test]
fn examples_in_the_help_are_understood() {
    let mut checked = 0;
    for command in EXPLAINED {
        let help = run([command, "--help"]).quiet();
        let (_, examples) = help.split_once("Examples:\n").unwrap();
        for example in examples
            .lines()
            .flat_map(|line| line.split(['|', '>']))
            .filter_map(|part| part.trim().strip_prefix("flowgauge "))
        {
            // Every option but the last is valid if only the last one, which is wrong, is reported.
            let outcome = run(example.split_whitespace().chain(["--no-such-option"]));
            assert_eq!(outcome.code, Some(2), "{example}");
            assert!(outcome.complaint().contains("'--no-such-option'"), "{example}: {outcome:?}");
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked} examples");
}

#[test]
fn tables_are_complete_in_every_format() {
    let json: serde_json::Value =
        serde_json::from_str(&run(["tables", "--format", "json"]).quiet()).unwrap();
    assert_eq!(json["rank"]["entries"].as_array().unwrap().len(), 21);
    assert_eq!((&json["rank"]["default_level"], &json["rank"]["bits"]), (&22.into(), &21.into()));
    let tables = json["tabulation"].as_array().unwrap().iter();
    assert_eq!(tables.map(|table| table.as_array().unwrap().len()).sum::<usize>(), 1024);
    let csv = run(["tables", "--format", "csv"]).quiet();
    assert_eq!(csv.lines().count(), 1 + 22 + 1024);
    let crc = run(["tables", "--format", "csv", "--hash", "crc32", "--registers", "16"]).quiet();
    assert_eq!(crc.lines().count(), 1 + 29);
    let rank = "21 longest-prefix-match entries on 21 bits, default level 22";
    assert_has(&run(["tables"]).quiet(), &[rank]);
}
