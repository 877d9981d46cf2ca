//! Helpers of the tests: run the built binary like a user, on captures made for it.
//!
//! [`flowgauge`] is the command, [`Outcome`] its result, [`Running`] a command in progress and
//! [`served::Served`] a run with an HTTP server. [`frames`] builds frames, [`pcap`] captures, and
//! [`records`] and [`check`] parse and verify JSON output.

pub(crate) mod frames;
pub(crate) mod lake;
pub(crate) mod served;
pub(crate) mod tshark;

use flowgauge_dataplane::capture::build::CapturePacket;
pub(crate) use flowgauge_testing::frames::pcap;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

pub(crate) const SECOND: u64 = 1_000_000_000;
/// Start of captures, which is not a multiple of any window.
pub(crate) const START: u64 = 1_700_000_000_123_456_000;

/// Directory of one test, removed at its end with its content.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("flowgauge-cli-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the path of a file as an argument.
    pub(crate) fn argument(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that makes a file unreadable must undo that itself.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the binary's command with a clean environment and empty standard input.
pub(crate) fn flowgauge() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command
        .env_remove("RUST_LOG")
        .env("FLOWGAUGE_STATUS_DIR", "")
        .env("FLOWGAUGE_HOST", "host")
        .env("FLOWGAUGE_RUN", "run")
        .stdin(Stdio::null());
    command
}

/// Returns the command with these space-separated arguments.
pub(crate) fn command(arguments: &str) -> Command {
    let mut command = flowgauge();
    command.args(arguments.split_whitespace());
    command
}

/// Returns the command, still without arguments, in a shell that runs this before.
pub(crate) fn in_shell(before: &str) -> Command {
    let inner = flowgauge();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{before} \"$@\""), "sh"]).arg(inner.get_program());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null());
    shell
}

/// Runs a command until it ends.
pub(crate) fn finish(command: &mut Command) -> Outcome {
    command.output().unwrap().into()
}

/// Runs a command with space-separated arguments and a file at its standard input.
pub(crate) fn fed(arguments: &str, file: impl AsRef<Path>) -> Outcome {
    finish(command(arguments).stdin(File::open(file).unwrap()))
}

/// Runs the command with these space-separated arguments until it ends.
pub(crate) fn execute(arguments: &str) -> Outcome {
    finish(&mut command(arguments))
}

/// Sends datagrams to port 9 of an address, each of which must leave.
pub(crate) fn send(address: &str, packets: u64) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    (0..packets).for_each(|_| assert_eq!(socket.send_to(&[0; 18], (address, 9)).unwrap(), 18));
}

/// Returns the address behind a protocol in a line, up to the next space.
#[track_caller]
pub(crate) fn address_in<'a>(line: &'a str, protocol: &str) -> &'a str {
    let address = line.split_once(protocol).and_then(|(_, rest)| rest.split_whitespace().next());
    address.unwrap_or_else(|| panic!("'{protocol}' is not in: {line}"))
}

/// Checks that a text has all of these parts.
#[track_caller]
pub(crate) fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}

/// Returns the files of lakes in directories, sorted, but those that are hidden.
pub(crate) fn files(directories: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in directories {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(['.', '_']) {
                continue;
            }
            if path.is_dir() {
                found.extend(files(std::slice::from_ref(&path))?);
            } else if name.ends_with(".parquet") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(!stderr.contains("panicked"), "{stderr}");
        Outcome { code: output.status.code(), stdout, stderr }
    }
}

impl Outcome {
    /// Returns standard output, after checking for success without any message.
    #[track_caller]
    pub(crate) fn quiet(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{}", self.stdout);
        self.stdout
    }

    /// Returns standard output, after checking for success without messages other than those of late
    /// and missed samples, which a busy machine has.
    #[track_caller]
    pub(crate) fn live(self) -> String {
        let is_of_samples =
            |line: &&str| ["late_ns", "samples missed"].iter().any(|part| line.contains(part));
        let complaints: Vec<&str> =
            self.stderr.lines().filter(|line| !is_of_samples(line)).collect();
        assert_eq!((self.code, complaints), (Some(0), vec![]), "{}", self.stdout);
        self.stdout
    }

    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Checks the exit code, and that the messages have all of these parts.
    #[track_caller]
    pub(crate) fn ended_with(self, code: i32, parts: &[&str]) -> Self {
        let ended = self.ended(code);
        assert_has(&ended.stderr, parts);
        ended
    }

    /// Returns the JSON of each line of standard output, after checking for success.
    #[track_caller]
    pub(crate) fn json(self) -> Vec<Value> {
        let printed = self.ended(0).stdout;
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Checks the exit code, that nothing is printed, and that the messages have all of these
    /// parts.
    #[track_caller]
    pub(crate) fn without_output(&self, code: i32, parts: &[&str]) {
        assert_eq!((self.code, &*self.stdout), (Some(code), ""), "{parts:?} expected: {self:?}");
        assert_has(&self.stderr, parts);
    }

    /// Checks the exit code, and that the only line on standard error has all of these parts.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{parts:?} expected: {self:?}");
        assert_has(self.complaint(), parts);
    }

    /// Returns standard output, after the checks of [`Outcome::failed`].
    #[track_caller]
    pub(crate) fn told(self, code: i32, parts: &[&str]) -> String {
        let stdout = self.stdout.clone();
        self.failed(code, parts);
        stdout
    }

    /// Checks the exit code, that nothing was printed, and that the only line on standard error is
    /// an error that begins with one text and has all of these parts.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, beginning: &str, parts: &[&str]) {
        assert_eq!(self.stdout, "", "{beginning} {parts:?} expected");
        let beginning = format!("error: {beginning}");
        assert!(self.complaint().starts_with(&beginning), "'{beginning}' expected: {self:?}");
        self.failed(code, parts);
    }

    /// Returns the only line on standard error.
    #[track_caller]
    pub(crate) fn complaint(&self) -> &str {
        let lines: Vec<&str> = self.stderr.lines().collect();
        let [line] = lines[..] else {
            panic!("{} lines instead of one: {}", lines.len(), self.stderr)
        };
        line
    }
}

/// Command that runs while the test reads its output. It is killed if the test fails.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) stdout: Option<BufReader<ChildStdout>>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Running::start_with(arguments, Stdio::null())
    }

    pub(crate) fn start_with(arguments: &[&str], stdin: impl Into<Stdio>) -> Self {
        Running::of(flowgauge().args(arguments).stdin(stdin))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        Running { child, stdout }
    }

    /// Starts the command with these space-separated arguments.
    pub(crate) fn with(arguments: &str) -> Self {
        Running::of(&mut command(arguments))
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// Reads a line of JSON.
    #[track_caller]
    pub(crate) fn record(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| {
            let _ = self.child.kill();
            let messages = self.child.stderr.take().map(io::read_to_string);
            panic!("{error} in '{line}': {messages:?}")
        })
    }

    /// Reads lines of JSON up to one that is wanted.
    #[track_caller]
    pub(crate) fn record_that(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let record = self.record();
            if is_wanted(&record) {
                return record;
            }
        }
    }

    /// Returns a reader of its messages.
    pub(crate) fn messages(&mut self) -> Messages {
        let reader = BufReader::new(self.child.stderr.take().unwrap());
        Messages { reader, text: String::new() }
    }

    /// Interrupts it and waits for its end, as [`Running::outcome`].
    pub(crate) fn end(self) -> Outcome {
        self.interrupt();
        self.outcome()
    }

    pub(crate) fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for its end. Output that was read before is not in the outcome.
    pub(crate) fn outcome(mut self) -> Outcome {
        let [mut stdout, mut stderr] = [const { Vec::new() }; 2];
        if let Some(pipe) = &mut self.stdout {
            pipe.read_to_end(&mut stdout).unwrap();
        }
        self.child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        Output { status: self.child.wait().unwrap(), stdout, stderr }.into()
    }
}

/// Messages of a command in progress, on standard error.
pub(crate) struct Messages {
    reader: BufReader<ChildStderr>,
    /// All that was read.
    pub(crate) text: String,
}

impl Messages {
    /// Reads and returns the next line.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let begin = self.text.len();
        assert!(self.reader.read_line(&mut self.text).unwrap() > 0, "it has ended: {}", self.text);
        self.text[begin..].to_owned()
    }

    /// Reads lines up to one with this part, and returns it.
    #[track_caller]
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Reads to the end, and returns all that was read.
    pub(crate) fn rest(mut self) -> String {
        self.reader.read_to_string(&mut self.text).unwrap();
        self.text
    }

    /// Waits for the end of the command; all messages are in the outcome.
    pub(crate) fn outcome(self, mut running: Running) -> Outcome {
        let mut stdout = String::new();
        if let Some(pipe) = &mut running.stdout {
            pipe.read_to_string(&mut stdout).unwrap();
        }
        let stderr = self.rest();
        Outcome { code: running.child.wait().unwrap().code(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has already ended unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Outcome {
    flowgauge().args(arguments).output().unwrap().into()
}

/// Runs `flowgauge replay FILE` with space-separated options.
pub(crate) fn replay(file: impl AsRef<Path>, options: &str) -> Outcome {
    flowgauge()
        .arg("replay")
        .arg(file.as_ref())
        .args(options.split_whitespace())
        .output()
        .unwrap()
        .into()
}

/// Returns the JSON records of a replay without messages.
#[track_caller]
pub(crate) fn records(file: impl AsRef<Path>, options: &str) -> Vec<Value> {
    parse(&replay(file, &format!("--format json {options}")).quiet())
}

/// Parses and checks every line as a record.
#[track_caller]
pub(crate) fn parse(lines: &str) -> Vec<Value> {
    let records = json_lines(lines);
    records.iter().for_each(check);
    records
}

/// Parses every line.
#[track_caller]
pub(crate) fn json_lines(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the data in the page of a report.
#[track_caller]
pub(crate) fn page_data(page: impl AsRef<Path>) -> Value {
    let page = fs::read_to_string(page).unwrap();
    let (_, data) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

/// Returns the cells of CSV without quotes by their columns, after checking that each row has all.
#[track_caller]
pub(crate) fn csv_rows(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    lines
        .map(|cells| {
            assert_eq!(cells.len(), names.len(), "{cells:?}");
            names.iter().copied().zip(cells).collect()
        })
        .collect()
}

/// Checks that a record has the keys that design.md specifies.
#[track_caller]
pub(crate) fn check(record: &Value) {
    let kind = text(record, "record");
    assert!(["window", "sample", "silence", "total"].contains(&kind), "{record}");
    for key in
        ["window", "start_ns", "end_ns", "packets", "bytes", "ipv4_packets", "ipv6_packets", "late"]
    {
        number(record, key);
    }
    assert!(["poll", "tofino", "xdp"].contains(&text(record, "backend")), "{record}");
    assert!(!text(record, "interface").is_empty());
    assert!(number(record, "start_ns") <= number(record, "end_ns"), "{record}");
    assert_eq!(
        record.get("at_ns").is_some(),
        kind == "sample" && record["at_ns"].is_u64(),
        "{record}"
    );
    assert_eq!(record["repeats"].is_u64(), ["sample", "silence"].contains(&kind), "{record}");
    if record.get("last_ns").is_some() {
        assert!(number(record, "repeats") > 0, "{record}");
        let first = if kind == "sample" { "end_ns" } else { "start_ns" };
        assert!(number(record, first) <= number(record, "last_ns"), "{record}");
    }
    assert!(record["drops"].as_object().unwrap().values().all(Value::is_u64), "{record}");
    let rejected =
        ["non_ip", "truncated", "bad_header"].map(|cause| number(&record["rejected"], cause));
    let all = number(record, "ipv4_packets")
        + number(record, "ipv6_packets")
        + rejected.iter().sum::<u64>();
    assert_eq!(all, number(record, "packets"), "{record}");
    let Some(cardinality) = record.get("cardinality") else { return };
    let [estimate, low, high] =
        ["estimate", "low", "high"].map(|key| cardinality[key].as_f64().unwrap());
    assert!(0.0 <= low && low <= estimate && estimate <= high, "{record}");
    assert!(
        ["src", "dst", "src-dst", "five-tuple"].contains(&text(cardinality, "key")),
        "{record}"
    );
    assert!(!text(cardinality, "estimator").is_empty(), "{record}");
    assert!(number(cardinality, "registers").is_power_of_two(), "{record}");
    let hash = &cardinality["hash"];
    if text(hash, "mode") == "keyed" {
        assert!(text(hash, "fingerprint").len() == 16 && hash.get("seed").is_none(), "{record}");
        return;
    }
    assert!(["tabulated", "crc32"].contains(&text(hash, "mode")), "{record}");
    assert_eq!(text(hash, "polynomial"), "0x790900f3");
    number(hash, "seed");
}

#[track_caller]
pub(crate) fn number(record: &Value, key: &str) -> u64 {
    record[key].as_u64().unwrap_or_else(|| panic!("{key} in {record}"))
}

pub(crate) fn numbers<const N: usize>(record: &Value, keys: [&str; N]) -> [u64; N] {
    keys.map(|key| number(record, key))
}

#[track_caller]
pub(crate) fn float(record: &Value, key: &str) -> f64 {
    record[key].as_f64().unwrap_or_else(|| panic!("{key} in {record}"))
}

#[track_caller]
pub(crate) fn list<'a>(record: &'a Value, key: &str) -> &'a [Value] {
    record[key].as_array().unwrap_or_else(|| panic!("{key} in {record}"))
}

#[track_caller]
pub(crate) fn text<'a>(record: &'a Value, key: &str) -> &'a str {
    record[key].as_str().unwrap_or_else(|| panic!("{key} in {record}"))
}

/// Returns the records of one kind.
pub(crate) fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["record"] == kind).collect()
}

/// Returns a number of each window.
pub(crate) fn of_windows(records: &[Value], key: &str) -> Vec<u64> {
    of_kind(records, "window").into_iter().map(|window| number(window, key)).collect()
}

/// Returns the samples that do not repeat an earlier one.
pub(crate) fn new_samples(records: &[Value]) -> Vec<&Value> {
    of_kind(records, "sample")
        .into_iter()
        .filter(|sample| sample.get("last_ns").is_none())
        .collect()
}

/// Returns the number of windows that the records cover, after checking that none is missing.
///
/// A window of a live run that ends when following ones are over, as on a busy machine, covers them
/// (`last_window`).
#[track_caller]
pub(crate) fn windows_in_sequence(records: &[&Value]) -> u64 {
    let next =
        |record: &Value| record["last_window"].as_u64().unwrap_or(number(record, "window")) + 1;
    for pair in records.windows(2) {
        assert_eq!(
            (next(pair[0]), number(pair[0], "end_ns")),
            (number(pair[1], "window"), number(pair[1], "start_ns")),
            "{} after {}",
            pair[1],
            pair[0]
        );
    }
    assert!(records.first().is_none_or(|first| first["window"] == 0), "{records:?}");
    records.last().map_or(0, |last| next(last))
}

/// Returns the only total record, after checking it against the windows.
#[track_caller]
pub(crate) fn total(records: &[Value]) -> &Value {
    let totals = of_kind(records, "total");
    let [total] = totals[..] else { panic!("{} totals", totals.len()) };
    let windows = of_kind(records, "window");
    if !windows.is_empty() {
        for key in ["packets", "bytes", "ipv4_packets", "ipv6_packets"] {
            assert_eq!(
                windows.iter().map(|window| number(window, key)).sum::<u64>(),
                number(total, key),
                "{key}"
            );
        }
        // Each window starts where the previous one ended.
        assert_eq!(number(windows[0], "start_ns"), number(total, "start_ns"));
    }
    total
}

/// Returns the sources of 1,000 packets: 10.0.0.k sends in proportion to 1/k.
pub(crate) fn sources() -> Vec<u32> {
    (1..=100_u32)
        .flat_map(|k| (0..200 / k).map(move |_| 0x0a00_0000 + k))
        .cycle()
        .take(1000)
        .collect()
}

/// Returns UDP packets from these sources, one every `interval` nanoseconds.
pub(crate) fn packets(sources: impl IntoIterator<Item = u32>, interval: u64) -> Vec<CapturePacket> {
    let frame = |source: u32| {
        frames::ethernet(
            &[],
            0x0800,
            &frames::ipv4(source.to_be_bytes(), 17, &frames::udp(&[0; 18])),
        )
    };
    frames::timed(sources.into_iter().map(frame), interval)
}

/// Returns packets with these frames, one every second.
pub(crate) fn every_second(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<CapturePacket> {
    frames::timed(frames, SECOND)
}

/// Writes a capture of generated traffic and returns its path.
#[track_caller]
pub(crate) fn generated(scratch: &Scratch, name: &str, profile: &str) -> String {
    let path = scratch.argument(name);
    assert_eq!(run(["generate", profile, "--to", &path]).quiet(), "", "{profile}");
    path
}

/// Writes a capture and returns its path, and what the generator knows about it: CSV.
#[track_caller]
pub(crate) fn with_truth(scratch: &Scratch, profile: &str) -> (String, String) {
    let [capture, truth] = ["all.pcap", "all.csv"].map(|name| scratch.argument(name));
    run(["generate", profile, "--to", &capture, "--truth", &truth, "--force"]).quiet();
    (capture, fs::read_to_string(truth).unwrap())
}
