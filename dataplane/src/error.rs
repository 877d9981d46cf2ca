//! What can go wrong between the controller and a dataplane.

mod failure;

pub use failure::Failure;

use crate::capture::Damage;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A failed call on a dataplane: what was being done, to what, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call before [`install`](crate::Dataplane::install).
    #[error("cannot {operation}: {target} is not counting yet; install tables first")]
    NotStarted {
        /// What was attempted.
        operation: &'static str,
        /// The interface or file.
        target: String,
    },
    /// A file that does not begin as a capture does: nothing of it can be counted.
    #[error("{}: {damage}", path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        #[source]
        damage: Damage,
    },
    /// A second [`install`](crate::Dataplane::install).
    #[error(
        "cannot install tables: {target} is counting already, and new tables would mix hashes within a window; start it anew"
    )]
    AlreadyStarted {
        /// The interface or file.
        target: String,
    },
    /// A table that does not fit the settings.
    #[error("cannot install table {table} on {target}: {problem}")]
    Table {
        /// The interface or file.
        target: String,
        /// The table's name.
        table: &'static str,
        /// What does not fit.
        problem: String,
    },
    /// Something the backend does not offer.
    #[error("{backend} cannot {what}; {advice}")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// What was asked for.
        what: String,
        /// What to do instead.
        advice: String,
    },
    /// No answer in time. Transient.
    #[error(
        "cannot {operation}: worker {worker} of {target} has not answered within {waited:?}; it may be starved of CPU time"
    )]
    Timeout {
        /// What was attempted.
        operation: &'static str,
        /// The interface or file.
        target: String,
        /// Index of the worker.
        worker: usize,
        /// How long was waited.
        waited: Duration,
    },
    /// A worker is gone, and with it what it had counted.
    #[error(
        "cannot {operation}: worker {worker} of {target} has died; restart, and report this as a bug with the log above"
    )]
    WorkerDied {
        /// What was attempted.
        operation: &'static str,
        /// The interface or file.
        target: String,
        /// Index of the worker.
        worker: usize,
    },
    /// Something the kernel refused.
    #[error("{interface}: {problem}")]
    Kernel {
        /// The interface.
        interface: String,
        /// What was attempted, why it failed, and what to do.
        problem: String,
        /// The system's reason, if it gave one.
        source: Option<io::Error>,
    },
    /// Pins in the BPF file system that cannot be made, used or removed.
    #[error("{directory}: {problem}", directory = directory.display())]
    Pins {
        /// The directory of pins.
        directory: PathBuf,
        /// What was attempted, why it failed, and what to do.
        problem: String,
        /// The system's reason, if it gave one.
        source: Option<io::Error>,
    },
    /// Something between this process and a switch. Transient if the
    /// [failure](Failure::is_transient) is.
    #[error("cannot {operation}: switch {target}: {failure}")]
    Switch {
        /// What was attempted.
        operation: &'static str,
        /// Its address.
        target: String,
        /// What went wrong.
        #[source]
        failure: Failure,
    },
    /// A file or stream that cannot be read or written.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    File {
        /// What was attempted.
        operation: &'static str,
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A thread that cannot be started.
    #[error(
        "cannot start a thread for {target}: {source}; are there too many (`ulimit -u`, the control group's pids.max)?"
    )]
    Thread {
        /// What was to run on it.
        target: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A port description that makes no sense.
    #[error("port '{port}': {problem}")]
    Port {
        /// The description as given.
        port: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A key of a hash that cannot be had.
    #[error("{source_name}: {problem}")]
    HashKey {
        /// Where it was to come from.
        source_name: String,
        /// What is wrong, and what to do.
        problem: String,
        /// The system's reason, if it gave one.
        source: Option<io::Error>,
    },
    /// A failure that [`FaultInjector`](crate::middleware::FaultInjector) made up. Transient.
    #[error("cannot {operation}: fault injected ({fault})")]
    Injected {
        /// What was attempted.
        operation: &'static str,
        /// Which fault.
        fault: &'static str,
    },
}

impl Error {
    /// Whether the same call may succeed when repeated.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Timeout { .. } | Error::Injected { .. } => true,
            Error::Switch { failure, .. } => failure.is_transient(),
            _ => false,
        }
    }
}
