//! Exact output of flowgauge.
//!
//! A file in the directory `outputs` has the cases of a topic, `errors.txt` those that fail with one
//! line. A case is a command line, its input files, standard output and standard error, and its exit
//! code; empty parts are left out. A code change that should not affect output must leave all of
//! these files unchanged.
//!
//! To add a case, append a line `$ flowgauge …` to a file, and if it needs an input file that should
//! be shown, a section `--- given NAME` with its content. The captures named in command lines are
//! created in [`captures`]. A CSV file is shown whole once (`cardinality.txt`); elsewhere
//! `| columns PATTERN…` keeps what the case is about. Then, as after an intended change of output,
//! run:
//!
//! ```console
//! $ TEST_BLESS=1 cargo test -p flowgauge --test main outputs::
//! $ git diff ctl/cli/tests/outputs
//! ```
//!
//! Live runs are only here with their errors, since their results contain times of day. Help, and
//! output that depends on the build (DPDK), are not here.

use crate::common::{SECOND, Scratch, every_second, flowgauge, frames, generated, packets, pcap};
use flowgauge_dataplane::capture::build::{self, InterfaceOptions, PcapNgOptions, PcapOptions};
use glob::Pattern;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Longer lines are truncated, with a digest of the whole line: registers of default sizes.
const LONGEST_LINE: usize = 4096;
const SHOWN_OF_LONGER: usize = 160;
/// Maximum number of lines shown of a difference.
const SHOWN_LINES: usize = 12;

/// Options that some successful command line must have, so that none loses its coverage with a
/// file.
const REQUIRED_OPTIONS: &[&str] = &[
    "--format csv",
    "--format json",
    "--format table",
    "--measure none",
    "--measure cardinality,entropy,frequency,membership,heavy",
    "--measure entropy",
    "--measure frequency",
    "--measure membership",
    "--measure heavy",
    "--measure spread",
    "--spread by=",
    "--spread-rows",
    "--spread-columns",
    "--spread-registers",
    "--spread-top",
    "--measure delay",
    "--delay-algorithm multi-fridge",
    "--delay-algorithm overwrite",
    "--delay-algorithm expiry",
    "--delay-admit",
    "--delay-admit auto",
    "--tune",
    "--delay-slots",
    "--delay-groups",
    "--delay-local",
    "--measure reorder",
    "--reorder-algorithm sampling",
    "--reorder-buckets",
    "--prefix",
    "--delay-samples",
    "--staggered",
    "--key src ",
    "--key dst",
    "--key src-dst",
    "--key five-tuple",
    "entropy=src+dst",
    "--hash crc32",
    "--hash tabulated",
    "--hash-key",
    "--estimator ertl",
    "--estimator flajolet",
    "--estimator mle",
    "entropy=count-sketch",
    "entropy=count-min",
    "frequency=count-sketch",
    "frequency=count-min",
    "--filter",
    "--algorithm rap",
    "--algorithm space-saving",
    "--algorithm d-way-rap",
    "--algorithm hashpipe",
    "--algorithm precision",
    "--by packets",
    "--by bytes",
    "--query",
    "--truth",
    "--alarm ",
    "--inner ",
    "--match ",
    "--sample-every",
    "--lateness",
    "--duration",
    "--record",
    "--config",
    "--workers",
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outputs")
}

/// Creates the captures for the command lines, in their working directory.
fn captures(scratch: &Scratch) {
    for (name, profile) in [
        ("zipf.pcap", "zipf,flows=300,packets=3000,rate=1k"),
        ("zipf6.pcap", "zipf,ipv6,vlan=7,flows=100,packets=2000,rate=1k,size=100,seed=5"),
        ("unique.pcap", "unique,packets=2000,rate=1k"),
        ("subnets.pcap", "subnets,packets=2000,rate=1k"),
        ("burst.pcap", "burst,flows=100,packets=2000,rate=500"),
        // The alarm learns from thirty windows.
        ("talks.pcap", "delay,shape=conversations,requests=300,loss=0.05,timestamps,seed=2"),
        ("reordered.pcap", "reorder,packets=5000,prefixes=8,heavy=2,share=0.5,loss=0.01,rate=1k"),
        ("attack.pcap", "attack,flows=50,packets=6800,rate=200,every=34s,lasting=1s,share=0.5"),
    ] {
        generated(scratch, name, profile);
    }
    scratch.write("mixed.pcap", pcap(&every_second(mixed())));
    scratch.write("tunnels.pcap", pcap(&every_second(tunnels())));

    let seconds = packets((0..20).map(|second| 0x0a00_0000 + second % 7), SECOND);
    scratch.write("seconds.pcap", pcap(&seconds));
    scratch.write("empty.pcap", pcap(&[]));
    let mut gap = seconds.clone();
    gap[10..].iter_mut().for_each(|packet| packet.timestamp += 86_400 * SECOND);
    scratch.write("gap.pcap", pcap(&gap));
    // More than a worker reads at a time, otherwise nothing would be late.
    let mut late = packets((0..5000).map(|index| 0x0a00_0000 + index % 70), SECOND / 100);
    late[3000..3010].iter_mut().for_each(|packet| packet.timestamp -= 25 * SECOND);
    scratch.write("late.pcap", pcap(&late));

    let ng = |interface: InterfaceOptions| {
        let interfaces = vec![interface];
        build::pcapng(&PcapNgOptions { interfaces, ..PcapNgOptions::default() }, &seconds)
    };
    let dropping = InterfaceOptions { drops: Some(17), ..InterfaceOptions::default() };
    scratch.write("drops.pcapng", ng(dropping));
    let whole = pcap(&seconds);
    scratch.write("cut.pcap", &whole[..500]);
    scratch.write("cut-header.pcap", &whole[..23]);
    scratch.write("cut.pcapng", &ng(InterfaceOptions::default())[..700]);
    let mut long = whole;
    long[24 + 76 + 8..][..4].fill(0xff);
    scratch.write("length.pcap", long);
    let headset = PcapOptions { network: 187, ..PcapOptions::default() };
    scratch.write("headset.pcap", build::pcap(&headset, &seconds));
    scratch.write("notes.txt", "from eth0, on Tuesday\n".repeat(3));
    let secret = "000102030405060708090a0b0c0d0e0f\n";
    for (name, content, mode) in
        [("hash.key", secret, 0o600), ("open.key", secret, 0o644), ("short.key", "0001\n", 0o600)]
    {
        let key = scratch.write(name, content);
        fs::set_permissions(key, Permissions::from_mode(mode)).unwrap();
    }
}

/// Returns frames of every kind with a counter of its own.
fn mixed() -> Vec<Vec<u8>> {
    let udp = frames::udp(&[0; 4]);
    let v4 = |host: u8, protocol: u8| frames::ipv4([10, 0, 0, host], protocol, &udp);
    let mut bad = v4(1, 17);
    bad[0] = 0x44;
    let padded = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp].concat();
    vec![
        frames::ethernet(&[], 0x0800, &v4(1, 17)),
        frames::ethernet(&[], 0x0800, &v4(2, 6)),
        frames::ethernet(&[], 0x0800, &v4(2, 1)),
        frames::ethernet(&[0x8100], 0x0800, &v4(1, 17)),
        frames::ethernet(&[0x88a8, 0x8100], 0x0800, &v4(3, 17)),
        frames::ethernet(&[], 0x0800, &frames::ipv4_with([10, 0, 0, 4], &[1; 4], 0, 17, &udp)),
        frames::ethernet(&[], 0x0800, &frames::ipv4_with([10, 0, 0, 4], &[], 100, 17, &udp)),
        frames::ethernet(&[], 0x86dd, &frames::ipv6(1, 17, &udp)),
        frames::ethernet(&[], 0x86dd, &frames::ipv6(2, 0, &padded)),
        frames::ethernet(&[], 0x0806, &frames::arp()),
        frames::ethernet(&[], 0x0800, &v4(1, 17)[..19]),
        frames::ethernet(&[], 0x0800, &bad),
    ]
}

/// Returns IP in IP, GRE and VXLAN, and a packet outside tunnels.
fn tunnels() -> Vec<Vec<u8>> {
    let udp = frames::udp(&[0; 4]);
    let inner = |host: u8| frames::ipv4([192, 168, 0, host], 17, &udp);
    let outer = |protocol: u8, payload: &[u8]| {
        frames::ethernet(&[], 0x0800, &frames::ipv4([10, 0, 0, 1], protocol, payload))
    };
    let tunnelled = frames::ethernet(&[], 0x0800, &inner(4));
    let mut vxlan = frames::udp(&[&[8, 0, 0, 0, 0, 0, 42, 0][..], &tunnelled].concat());
    vxlan[2..4].copy_from_slice(&4789_u16.to_be_bytes());
    vec![
        outer(4, &inner(1)),
        outer(41, &frames::ipv6(2, 17, &udp)),
        outer(47, &[&[0, 0, 8, 0][..], &inner(3)].concat()),
        outer(17, &vxlan),
        outer(4, &inner(5)[..10]),
        outer(17, &udp),
    ]
}

/// Command line, its input files, and its output.
struct Case {
    path: PathBuf,
    text: String,
}

/// Beginning of a case.
const PROMPT: &str = "$ flowgauge ";
/// Follows a command whose CSV is shown in part.
const COLUMNS: &str = " | columns ";

impl Case {
    fn name(&self) -> String {
        self.path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    fn command(&self) -> &str {
        self.text.lines().next().unwrap()
    }

    fn succeeds(&self) -> bool {
        self.text.ends_with("\n--- exit code 0\n")
    }

    /// Returns the words of the command line. Text in single quotes is one word.
    fn words(&self) -> Vec<&str> {
        let command = self.command().split(COLUMNS).next().unwrap();
        let parts = command.strip_prefix(PROMPT).unwrap().split('\'').enumerate();
        parts
            .flat_map(
                |(index, part)| {
                    if index % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }
                },
            )
            .collect()
    }

    /// Returns names and contents of the input files.
    fn given(&self) -> Vec<(&str, &str)> {
        let sections = self.text.split("\n--- ").skip(1);
        let given = sections.map_while(|section| section.strip_prefix("given ")?.split_once('\n'));
        given.map(|(name, content)| (name, content.strip_suffix('\n').unwrap_or(content))).collect()
    }

    /// Runs the command line and returns its output in the format of the file.
    fn run(&self, scratch: &Scratch) -> String {
        let mut text = format!("{}\n", self.command());
        for (name, content) in self.given() {
            let content = format!("{content}\n");
            assert!(!scratch.path(name).exists(), "{}: another file is called {name}", self.name());
            scratch.write(name, &content);
            section(&mut text, &format!("given {name}"), content.as_bytes());
        }
        let mut command = flowgauge();
        // The last digit of logarithms depends on fused multiply-add; disable it.
        command.env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA,-FMA4");
        command.env_remove("COLUMNS").current_dir(scratch.path(""));
        let words = self.words();
        let words = match &words[..] {
            [words @ .., "<", input] => {
                command.stdin(File::open(scratch.path(input)).unwrap());
                words
            }
            words => words,
        };
        let mut output = command.args(words).output().unwrap();
        if let Some((_, patterns)) = self.command().split_once(COLUMNS) {
            output.stdout = columns(&output.stdout, patterns).into_bytes();
        }
        section(&mut text, "standard output", &output.stdout);
        section(&mut text, "standard error", &output.stderr);
        if let Some(record) = words.iter().skip_while(|word| **word != "--record").nth(1) {
            // An error may come first.
            if let Ok(written) = fs::read(scratch.path(record)) {
                section(&mut text, record, &written);
            }
        }
        writeln!(text, "--- exit code {}", output.status.code().unwrap()).unwrap();
        assert!(!text.contains("panicked at"), "{text}");
        text
    }
}

/// Appends output, with long lines and binary data as digests.
fn section(text: &mut String, title: &str, bytes: &[u8]) {
    if bytes.is_empty() && title.starts_with("standard ") {
        return;
    }
    writeln!(text, "--- {title}").unwrap();
    let Ok(content) = std::str::from_utf8(bytes) else {
        writeln!(text, "[{}]", digest(bytes)).unwrap();
        return;
    };
    for line in content.lines() {
        match line.len() {
            ..=LONGEST_LINE => writeln!(text, "{line}").unwrap(),
            _ => {
                let beginning: String = line.chars().take(SHOWN_OF_LONGER).collect();
                writeln!(text, "{beginning}… [{}]", digest(line.as_bytes())).unwrap();
            }
        }
    }
    if !content.is_empty() && !content.ends_with('\n') {
        text.push_str("[no end of line]\n");
    }
}

/// Returns the columns of CSV whose names match one of the patterns. Lines that are not CSV stay.
fn columns(csv: &[u8], patterns: &str) -> String {
    let csv = std::str::from_utf8(csv).unwrap();
    let patterns: Vec<Pattern> =
        patterns.split(' ').map(|pattern| Pattern::new(pattern).unwrap()).collect();
    let names: Vec<&str> = csv.lines().next().unwrap_or_default().split(',').collect();
    let is_shown = |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
    for pattern in &patterns {
        assert!(names.iter().any(|name| pattern.matches(name)), "no column is called {pattern}");
    }
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != names.len() {
            return format!("{line}\n");
        }
        let shown = names.iter().zip(fields).filter(|(name, _)| is_shown(name));
        shown.map(|(_, field)| field).collect::<Vec<_>>().join(",") + "\n"
    };
    csv.lines().map(line).collect()
}

/// Returns length and FNV-1a hash.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{} bytes in all, FNV-1a {hash:016x}", bytes.len())
}

fn cases() -> Vec<Case> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().flat_map(cases_of_file).collect()
}

/// Returns the cases of a file, which are separated by empty lines. The first line is a command.
fn cases_of_file(path: PathBuf) -> Vec<Case> {
    let content = fs::read_to_string(&path).unwrap();
    let begins = |text: &str| text.starts_with(PROMPT);
    assert!(begins(&content), "{} does not begin with a command line, '{PROMPT}…'", path.display());
    let mut cases: Vec<Case> = Vec::new();
    for line in content.split_inclusive('\n') {
        // A case ends with its exit code; a new one may be its command alone.
        let is_over = |case: &Case| {
            let last = case.text.trim_end().lines().next_back().unwrap_or_default();
            last.starts_with("--- exit code ") || begins(last)
        };
        match cases.last_mut() {
            Some(case) if !(begins(line) && is_over(case)) => case.text.push_str(line),
            _ => cases.push(Case { path: path.clone(), text: line.to_owned() }),
        }
    }
    for case in &mut cases {
        case.text.truncate(case.text.trim_end().len());
        case.text.push('\n');
    }
    cases
}

/// Returns the lines that differ, without equal ones before and after.
fn difference(expected: &str, found: &str) -> String {
    let [mut old, mut new] = [expected, found].map(|text| text.lines().collect::<Vec<_>>());
    let equal = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    old.drain(..equal);
    new.drain(..equal);
    while old.last().is_some_and(|line| new.last() == Some(line)) {
        old.pop();
        new.pop();
    }
    let mut text = format!("  from line {} on\n", equal + 1);
    // For long lines, show only the surroundings of the first difference.
    let alike = |index: usize| {
        let [old, new] =
            [&old, &new].map(|lines| lines.get(index).map_or("", |line| *line).chars());
        old.zip(new).take_while(|(old, new)| old == new).count()
    };
    for (sign, lines) in [('-', &old), ('+', &new)] {
        for (index, line) in lines.iter().enumerate().take(SHOWN_LINES) {
            let from = alike(index).saturating_sub(60);
            let part: String = line.chars().skip(from).take(200).collect();
            writeln!(text, "  {sign} {}{part}", if from > 0 { "…" } else { "" }).unwrap();
        }
        if lines.len() > SHOWN_LINES {
            writeln!(text, "  {sign} and {} lines more", lines.len() - SHOWN_LINES).unwrap();
        }
    }
    text
}

#[test]
fn outputs_are_what_they_were() {
    let scratch = Scratch::new("outputs");
    captures(&scratch);
    let bless = std::env::var("TEST_BLESS").is_ok_and(|value| value == "1");
    let cases = cases();
    let next = AtomicUsize::new(0);
    let found: Vec<OnceLock<String>> = cases.iter().map(|_| OnceLock::new()).collect();
    let take = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        cases.get(index).zip(found.get(index))
    };
    let work = || {
        while let Some((case, found)) = take() {
            found.set(case.run(&scratch)).unwrap();
        }
    };
    thread::scope(|scope| {
        (0..3).for_each(|_| {
            scope.spawn(work);
        });
    });
    let found: Vec<String> = found.into_iter().map(|text| text.into_inner().unwrap()).collect();
    if bless {
        let mut files = BTreeMap::<&Path, Vec<&str>>::new();
        for (case, text) in cases.iter().zip(&found) {
            files.entry(&case.path).or_default().push(text);
        }
        for (path, texts) in files {
            fs::write(path, texts.join("\n")).unwrap();
        }
        return;
    }
    let differences: Vec<String> = cases
        .iter()
        .zip(&found)
        .filter(|(case, found)| case.text != **found)
        .map(|(case, found)| {
            format!("{}: {}\n{}", case.name(), case.command(), difference(&case.text, found))
        })
        .collect();
    let (number, all, text) = (differences.len(), cases.len(), differences.join("\n"));
    assert!(number == 0, "{number} of {all} outputs differ\n\n{text}");
}

#[test]
fn every_choice_is_held_by_a_command_line() {
    let cases = cases();
    let mut commands: Vec<&str> = cases.iter().map(Case::command).collect();
    for words in REQUIRED_OPTIONS {
        let held = |case: &Case| case.command().contains(words) && case.succeeds();
        assert!(cases.iter().any(held), "no command line that succeeds has {words}");
    }
    let number = commands.len();
    commands.sort_unstable();
    commands.dedup();
    assert_eq!(commands.len(), number, "two cases have the same command line");
}
