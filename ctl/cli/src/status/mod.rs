//! `flowgauge status`: which runs there are on this machine, and how they are doing.
//!
//! Every `run` has a socket in a [directory] of its user, and writes one [JSON object](report) to whoever connects. A socket that
//! nobody answers on belongs to a run that was killed.

mod directory;
mod publish;
mod report;
mod table;
mod warning;

pub(crate) use publish::Publisher;
pub(crate) use warning::Remembered;

use crate::error::Failure;
use clap::{Args, ValueEnum};
use flowgauge_dataplane::xdp;
use report::{Report, VERSION};
use serde_json::Value;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a run may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Show the runs on this machine: what they measure, whether they are healthy, and what room their CPUs have.
///
/// A run is healthy unless a line marked 'problem' says why it is not. Of every worker it shows how it spends its time, what a
/// packet takes it, and how many it has room for; what programs in the kernel cost is shown while the kernel measures it (`sysctl
/// kernel.bpf_stats_enabled=1`). Programs that were left counting by a killed run are shown as well, as `detach` would end them.
///
/// Runs are found in /run/flowgauge (those of root) and $XDG_RUNTIME_DIR/flowgauge, or else where FLOWGAUGE_STATUS_DIR says,
/// which must be the same for `run` and `status`; if it is empty, a run is not to be found. The exit code is 0 if there is a run
/// and all are healthy, else 1.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge status
  flowgauge status --format json")]
pub(crate) struct Status {
    /// How the answer is printed: table, or json (an array, one object a run) [default: table]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<Format>,

    /// Where runs pin what outlives them
    #[arg(long, value_name = "DIR", default_value = xdp::DIRECTORY)]
    pins: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Table,
    Json,
}

/// What asking for runs brought.
#[derive(Default)]
struct Found {
    runs: Vec<Value>,
    /// Processes that do not answer as they should.
    unhealthy: Vec<u32>,
    /// What else to tell, one line each.
    notes: Vec<String>,
}

impl Status {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let directories = directory::all();
        let mut found = Found::default();
        for directory in &directories {
            match directory::sockets(directory) {
                Ok(sockets) => sockets.iter().for_each(|(pid, socket)| found.ask(*pid, socket)),
                Err(error) => found.notes.push(format!("cannot look for runs in {}: {error}", directory.display())),
            }
        }
        found.look_for_left(&self.pins);
        match self.format.unwrap_or_default() {
            Format::Table => found.table(&mut io::stdout().lock()),
            Format::Json => found.json(&mut io::stdout().lock()),
        }
        .map_err(Failure::output)?;
        found.verdict(&directories)
    }
}

impl Found {
    fn ask(&mut self, pid: u32, socket: &Path) {
        match asked(socket) {
            Ok(run) => {
                // What is missing, or is not there in another version, makes no run healthy.
                if run["problems"].as_array().is_none_or(|problems| !problems.is_empty()) {
                    self.unhealthy.push(pid);
                }
                self.runs.push(run);
            }
            // It ended in this moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let path = socket.display();
                let removed = match fs::remove_file(socket) {
                    Ok(()) => format!("its socket {path} is removed"),
                    Err(error) => format!("cannot remove its socket {path}: {error}"),
                };
                self.notes.push(format!("run {pid} ended without cleaning up, as when it is killed; {removed}"));
            }
            Err(error) => {
                let problem = match error.kind() {
                    io::ErrorKind::PermissionDenied => format!("{error}; ask as root or as its user"),
                    io::ErrorKind::WouldBlock => format!("nothing for {PATIENCE:?}; is it stopped?"),
                    _ => error.to_string(),
                };
                self.unhealthy.push(pid);
                self.notes.push(format!("run {pid} does not answer on {}: {problem}", socket.display()));
            }
        }
    }

    fn look_for_left(&mut self, pins: &Path) {
        match xdp::left(pins) {
            Ok(left) => self.notes.extend(left.iter().map(table::left)),
            Err(error) => self.notes.push(error.to_string()),
        }
    }

    fn table(&self, out: &mut impl Write) -> io::Result<()> {
        for run in &self.runs {
            let told = (run["status"] == VERSION).then(|| serde_json::from_value::<Report>(run.clone()));
            match told {
                Some(Ok(report)) => table::run(out, &report, &table::kernel(&report))?,
                _ => {
                    let (pid, version) = (&run["pid"], &run["version"]);
                    writeln!(out, "run {pid} is of another version of flowgauge, {version}; its own `flowgauge status` reads it")?;
                }
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
        out.flush()
    }

    fn json(&self, out: &mut impl Write) -> io::Result<()> {
        self.notes.iter().for_each(|note| tracing::warn!("{note}"));
        serde_json::to_writer(&mut *out, &self.runs)?;
        writeln!(out)?;
        out.flush()
    }

    fn verdict(&self, directories: &[PathBuf]) -> Result<(), Failure> {
        let failed = |problem: String| Err(Failure::Failed(problem));
        match self.unhealthy[..] {
            [] if self.runs.is_empty() && directories.is_empty() => {
                failed(format!("nowhere to look for runs: {} is empty", directory::VARIABLE))
            }
            [] if self.runs.is_empty() => {
                let looked: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
                failed(format!("no run of flowgauge on this machine (looked in {})", looked.join(", ")))
            }
            [] => Ok(()),
            ref pids => {
                let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                failed(format!("not healthy: run {}; the lines above say why", pids.join(", ")))
            }
        }
    }
}

/// What a run answers.
fn asked(socket: &Path) -> io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}
