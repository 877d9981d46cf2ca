//! `flowgauge status`: lists the runs on this machine and whether they are healthy.
//!
//! Every run answers over HTTP on a socket in a [directory] of its user; `/status` is one JSON
//! object, a [`StatusReport`]. `output::status` collects it in the run, `ask` is the client, and
//! `table` prints an answer. A socket without a listener belongs to a run that was killed.

mod ask;
#[cfg(test)]
mod rates;
mod table;

use crate::commands::TextFormat;
use crate::config::value;
use crate::error::{CommandFailure, fail};
use crate::output::print;
use crate::output::status::directory;
use clap::{Args, ValueEnum};
use flowgauge_ctl::output::{escaped, escaped_json};
use flowgauge_ctl::status::{StatusReport, VERSION};
use flowgauge_dataplane::xdp;
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Show the runs on this machine: what they measure, whether they are healthy, and how much
/// capacity their CPUs have left.
///
/// A run is starting until all its sources are counted (programs are attached, workers poll), and
/// then healthy unless a line marked 'problem' says why it is not. It is degraded while a source
/// has failed and others are counted. For each worker, shows how it spends its time, the cost per
/// packet, and how many packets it could count. The cost of programs in the kernel is shown while
/// the kernel measures it (`sysctl kernel.bpf_stats_enabled=1`). Also lists programs that a killed
/// run left counting, which `detach` removes.
///
/// Runs are found in /run/flowgauge (those of root) and $XDG_RUNTIME_DIR/flowgauge, or in
/// FLOWGAUGE_STATUS_DIR, which must be the same for `run` and `status`; if it is empty, runs are
/// not published. Only your own runs and root's are queried, for at most two seconds in total. The
/// exit code is 0 if there is a run and all are counting and healthy or degraded, else 1.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge status
  flowgauge run -i eth1 > windows.txt & flowgauge status --wait
  flowgauge status --format json")]
pub(crate) struct Status {
    /// Output format: table, json (an array with one object per run) [default: table]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<TextFormat>,

    /// Wait until the exit code is 0, for at most this time [default of TIME: 1m]
    ///
    /// Also waits for a run to start.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1m", value_parser = value::duration)]
    wait: Option<Duration>,

    /// Answer one question by the exit code, as /live and /ready do over HTTP: live, ready
    ///
    /// live: whether all controllers make progress. ready: whether all sources are counted. Prints
    /// the reasons against it on standard error.
    #[arg(long, value_name = "QUESTION", hide_possible_values = true, conflicts_with = "format")]
    probe: Option<Probe>,

    /// Directory of the pinned programs and maps of runs
    #[arg(long, value_name = "DIR", default_value = xdp::DIRECTORY)]
    pins: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Probe {
    Live,
    Ready,
}

/// Interval of the queries of `--wait`.
const WAIT_INTERVAL: Duration = Duration::from_millis(50);

/// Answers of all runs.
#[derive(Default)]
struct Answers {
    runs: Vec<(u32, Value)>,
    /// Process ids of runs without a valid answer.
    silent: Vec<u32>,
    /// Other messages, one line each.
    notes: Vec<String>,
}

/// Returns the statuses of the runs on this machine and other messages, with control characters
/// escaped.
#[cfg(feature = "top")]
pub(crate) fn runs() -> (Vec<StatusReport>, Vec<String>) {
    let found = Answers::ask(&directory::all());
    let mut notes: Vec<String> =
        found.notes.iter().map(|note| escaped(note).into_owned()).collect();
    let read = |(_, run): &(u32, Value)| report(run).map_err(|note| notes.push(note)).ok();
    let runs = found.runs.iter().filter_map(read).collect();
    (runs, notes)
}

/// Returns a status with control characters escaped, or a message about another version.
fn report(run: &Value) -> Result<StatusReport, String> {
    // The peer may be another program, and a status cites other systems.
    let run = shown(run);
    match StatusReport::deserialize(&run) {
        Ok(report) if report.status == VERSION => Ok(report),
        _ => Err(format!(
            "run {} is flowgauge {}, whose status this version cannot read; use its own `flowgauge status`",
            run["pid"], run["version"]
        )),
    }
}

impl Status {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        let directories = directory::all();
        let until = self.wait.map(|wait| Instant::now() + wait);
        let mut found = Answers::ask(&directories);
        let mut verdict = found.verdict(self.probe, &directories);
        while verdict.is_err()
            && let Some(left) = until.map(|until| until.saturating_duration_since(Instant::now()))
            && !left.is_zero()
        {
            thread::sleep(left.min(WAIT_INTERVAL));
            found = Answers::ask(&directories);
            verdict = found.verdict(self.probe, &directories);
        }
        if self.probe.is_some() {
            return verdict;
        }
        match xdp::left(&self.pins) {
            Ok(left) => found.notes.extend(left.iter().map(table::left)),
            Err(error) => found.notes.push(error.to_string()),
        }
        print(|out| match self.format.unwrap_or_default() {
            TextFormat::Table => found.table(out),
            TextFormat::Json => found.json(out),
        })?;
        verdict
    }
}

impl Answers {
    /// Queries all runs with sockets in these directories.
    fn ask(directories: &[PathBuf]) -> Self {
        let mut found = Answers::default();
        let mut sockets = Vec::new();
        for directory in directories {
            match directory::sockets(directory) {
                Ok((listed, doubt)) => {
                    sockets.extend(listed);
                    found.notes.extend(doubt);
                }
                Err(error) => found
                    .notes
                    .push(format!("cannot search {} for runs: {error}", directory.display())),
            }
        }
        for (pid, socket, answer) in ask::all(sockets) {
            found.take(pid, &socket, answer);
        }
        found
    }

    fn take(&mut self, pid: u32, socket: &Path, answer: Result<Value, ask::StatusError>) {
        let path = socket.display();
        match answer {
            Ok(run) => self.runs.push((pid, run)),
            // The run has just ended.
            Err(ask::StatusError::Ended) => {}
            // The socket of an untrusted user gives no information about runs.
            Err(ask::StatusError::Foreign(doubt)) => self.notes.push(doubt),
            Err(ask::StatusError::Killed) => {
                let removed = match fs::remove_file(socket) {
                    Ok(()) => format!("removed its socket {path}"),
                    Err(error) => format!("cannot remove its socket {path}: {error}"),
                };
                self.notes.push(format!("run {pid} was killed; {removed}"));
            }
            Err(ask::StatusError::Silent(problem)) => {
                self.silent.push(pid);
                self.notes.push(format!("run {pid} does not answer on {path}: {problem}"));
            }
        }
    }

    fn table(&self, out: &mut impl Write) -> io::Result<()> {
        for (_, run) in &self.runs {
            match report(run) {
                Ok(report) => table::run(out, &report)?,
                Err(note) => writeln!(out, "{note}")?,
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "{}", escaped(note)))
    }

    fn json(&self, out: &mut impl Write) -> io::Result<()> {
        self.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let runs: Vec<&Value> = self.runs.iter().map(|(_, run)| run).collect();
        writeln!(out, "{}", escaped_json(&serde_json::to_string(&runs)?))
    }

    /// Returns a failure unless all runs are healthy, or pass the probe.
    fn verdict(&self, probe: Option<Probe>, directories: &[PathBuf]) -> Result<(), CommandFailure> {
        if self.runs.is_empty() && self.silent.is_empty() {
            if directories.is_empty() {
                return fail(format!("cannot search for runs: {} is empty", directory::VARIABLE));
            }
            let looked: Vec<String> =
                directories.iter().map(|directory| directory.display().to_string()).collect();
            return fail(format!(
                "no flowgauge run on this machine (searched {})",
                looked.join(", ")
            ));
        }
        if let Some(probe) = probe {
            let of_runs =
                self.runs.iter().flat_map(|(pid, run)| not_ready_reasons(*pid, run, probe));
            let silent = self.silent.iter().map(|pid| format!("run {pid} does not answer"));
            let lines: Vec<String> = of_runs.chain(silent).collect();
            return if lines.is_empty() { Ok(()) } else { fail(lines.join("; ")) };
        }
        let that = |is: fn(&Value) -> bool| {
            self.runs.iter().filter(move |(_, run)| is(run)).map(|(pid, _)| *pid)
        };
        let named = |mut pids: Vec<u32>| {
            pids.sort_unstable();
            pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
        };
        // A status without this key, as of another version, is not healthy.
        let unhealthy: Vec<u32> =
            that(|run| lines(run, "problems").is_none_or(|it| !it.is_empty()))
                .chain(self.silent.iter().copied())
                .collect();
        if !unhealthy.is_empty() {
            return fail(format!("not healthy: run {}; see the lines above", named(unhealthy)));
        }
        let starting: Vec<u32> =
            that(|run| lines(run, "starting").is_some_and(|it| !it.is_empty())).collect();
        if !starting.is_empty() {
            return fail(format!(
                "starting: run {}; --wait waits until all sources are counted",
                named(starting)
            ));
        }
        Ok(())
    }
}

/// Returns the lines of a status under a key.
fn lines<'a>(run: &'a Value, key: &str) -> Option<Vec<&'a str>> {
    run[key].as_array().map(|lines| lines.iter().filter_map(Value::as_str).collect())
}

/// Returns the reasons why a run fails a probe, one line each.
fn not_ready_reasons(pid: u32, run: &Value, probe: Probe) -> Vec<String> {
    let keys: &[&str] = match probe {
        Probe::Live => &["stalled"],
        Probe::Ready => &["starting", "failed", "problems"],
    };
    let of_key = |key: &&str| match lines(run, key) {
        Some(lines) => lines.iter().map(|line| format!("run {pid}: {line}")).collect(),
        None => vec![format!(
            "run {pid} is another version of flowgauge; use its own `flowgauge status`"
        )],
    };
    keys.iter().flat_map(of_key).collect()
}

/// Returns an answer with control characters escaped.
fn shown(answer: &Value) -> Value {
    match answer {
        Value::String(text) => Value::String(escaped(text).into_owned()),
        Value::Array(values) => Value::Array(values.iter().map(shown).collect()),
        Value::Object(values) => Value::Object(
            values.iter().map(|(key, value)| (escaped(key).into_owned(), shown(value))).collect(),
        ),
        other => other.clone(),
    }
}
