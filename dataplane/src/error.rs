//! Errors of the calls between the controller and a dataplane.

use crate::capture::Damage;
use crate::open_files::advice;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A failed call on a dataplane: the operation, its target, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call before [`install`](crate::Dataplane::install).
    #[error("cannot {operation}: {target} is not counting yet; install tables first")]
    NotStarted {
        /// Operation that failed.
        operation: &'static str,
        /// The interface or file.
        target: String,
    },
    /// A file that does not begin with a capture header: none of it can be counted.
    #[error("{}: {damage}", path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// Contents found instead.
        #[source]
        damage: Damage,
    },
    /// A second [`install`](crate::Dataplane::install).
    #[error(
        "cannot install tables: {target} is counting already, and new tables would mix hashes within a window; restart it"
    )]
    AlreadyStarted {
        /// The interface or file.
        target: String,
    },
    /// A match table that does not fit the settings.
    #[error("cannot install table {table} on {target}: {problem}")]
    Table {
        /// The interface or file.
        target: String,
        /// The table's name.
        table: &'static str,
        /// The mismatch.
        problem: String,
    },
    /// A feature that the backend lacks.
    #[error("{backend} cannot {what}; {advice}")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// The requested feature.
        what: String,
        /// The alternative.
        advice: String,
    },
    /// A call that timed out. Transient.
    #[error(
        "cannot {operation}: worker {worker} of {target} has not answered within {waited:?}; it may be starved of CPU time"
    )]
    Timeout {
        /// Operation that failed.
        operation: &'static str,
        /// The interface or file.
        target: String,
        /// Index of the worker.
        worker: usize,
        /// Time waited.
        waited: Duration,
    },
    /// A worker that died, losing its counts.
    #[error(
        "cannot {operation}: worker {worker} of {target} has died; restart, and report this as a bug with the log above"
    )]
    WorkerDied {
        /// Operation that failed.
        operation: &'static str,
        /// The interface or file.
        target: String,
        /// Index of the worker.
        worker: usize,
    },
    /// A request that the kernel refused.
    #[error("{interface}: {problem}{}", advice(source.as_ref()))]
    Kernel {
        /// The interface.
        interface: String,
        /// The operation, its cause of failure and the remedy.
        problem: String,
        /// The system's reason, if it gave one.
        source: Option<io::Error>,
    },
    /// Pins in the BPF file system that cannot be created, used or removed.
    #[error("{}: {problem}{}", directory.display(), advice(source.as_ref()))]
    Pins {
        /// The directory of pins.
        directory: PathBuf,
        /// The operation, its cause of failure and the remedy.
        problem: String,
        /// The system's reason, if it gave one.
        source: Option<io::Error>,
    },
    /// A failed exchange between this process and a switch. Transient if the
    /// [failure](Failure::is_transient) is.
    #[error("cannot {operation}: switch {target}: {failure}")]
    Switch {
        /// Operation that failed.
        operation: &'static str,
        /// Address of the switch.
        target: String,
        /// The cause.
        #[source]
        failure: Failure,
    },
    /// A file or stream that cannot be read or written.
    #[error("cannot {operation} {}: {source}{}", path.display(), advice(Some(source)))]
    File {
        /// Operation that failed.
        operation: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A thread that cannot be started.
    #[error(
        "cannot start a thread for {target}: {source}; are there too many (`ulimit -u`, the control group's pids.max)?"
    )]
    Thread {
        /// Task of the thread.
        target: String,
        /// The system's reason.
        source: io::Error,
    },
    /// An invalid port description.
    #[error("port '{port}': {problem}")]
    Port {
        /// The description as given.
        port: String,
        /// The problem and the correct form.
        problem: String,
    },
    /// A hash key that cannot be obtained.
    #[error("{source_name}: {problem}")]
    HashKey {
        /// Source of the key.
        source_name: String,
        /// The problem and the remedy.
        problem: String,
        /// The system's reason, if it gave one.
        source: Option<io::Error>,
    },
    /// A failure generated by [`FaultInjector`](crate::middleware::FaultInjector). Transient.
    #[error("cannot {operation}: fault injected ({fault})")]
    Injected {
        /// Operation that failed.
        operation: &'static str,
        /// Name of the fault.
        fault: &'static str,
    },
}

impl Error {
    /// Returns whether repeating the same call may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Timeout { .. } | Error::Injected { .. } => true,
            Error::Switch { failure, .. } => failure.is_transient(),
            _ => false,
        }
    }
}

/// Cause of a failed call on a switch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// No connection. Transient.
    #[error("no connection: {problem}")]
    Unreachable {
        /// The attempt and its error.
        problem: String,
    },
    /// Timeout. Transient.
    #[error("no answer within {waited:?}; the switch may be busy, or its control network slow")]
    NoAnswer {
        /// Time waited.
        waited: Duration,
    },
    /// A refusal by the switch.
    #[error("refused ({code}): {problem}")]
    Refused {
        /// The gRPC status.
        code: &'static str,
        /// The refused part and the switch's message.
        problem: String,
        /// Whether a repetition may succeed.
        transient: bool,
    },
    /// The client number or the program is in use by another client, or by a stale connection of
    /// this one. Transient.
    #[error("{problem}")]
    Taken {
        /// The resource in use and the remedy.
        problem: String,
    },
    /// An invalid answer, which was discarded. Transient.
    #[error("the answer is not usable: {problem}")]
    Answer {
        /// The inconsistency.
        problem: String,
    },
    /// A program on the switch that does not fit the settings.
    #[error("the program does not fit: {problem}")]
    Program {
        /// The mismatch and the remedy.
        problem: String,
    },
    /// Invalid options.
    #[error("{problem}")]
    Options {
        /// The problem.
        problem: String,
    },
    /// No runtime for network calls.
    #[error("this process cannot make network calls: {problem}")]
    Runtime {
        /// The system's error.
        problem: String,
    },
}

impl Failure {
    /// Returns whether repeating the same call may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Failure::Unreachable { .. }
            | Failure::NoAnswer { .. }
            | Failure::Taken { .. }
            | Failure::Answer { .. } => true,
            Failure::Refused { transient, .. } => *transient,
            Failure::Program { .. } | Failure::Options { .. } | Failure::Runtime { .. } => false,
        }
    }
}
