//! Errors of experiments.

use flowgauge::CommandFailure;
use flowgauge_ctl::measurement::cardinality::estimate::EstimateError;
use flowgauge_dataplane::Error;
use std::io;
use std::path::PathBuf;

/// Reason why a reproduction failed, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReproduceError {
    /// The dataplane failed.
    #[error(transparent)]
    Dataplane(#[from] Error),
    /// Registers that no hash can produce.
    #[error("invalid registers in an experiment: {0}; please report this as a bug")]
    Registers(#[from] EstimateError),
    /// The worker that counts has died.
    #[error(
        "{interface}: the worker died during an experiment; please report this as a bug, with the log above"
    )]
    TrafficFailed {
        /// Traffic that it counted.
        interface: String,
    },
    /// Captures have no packet that an experiment counts.
    #[error("{files}: no {kind}; give --trace a capture that has some")]
    NoPackets {
        /// The captures.
        files: String,
        /// Packets that are missing.
        kind: &'static str,
    },
    /// A file of the report cannot be written.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    File {
        /// Operation that failed.
        operation: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl From<ReproduceError> for CommandFailure {
    fn from(error: ReproduceError) -> Self {
        CommandFailure::Failed(error.to_string())
    }
}
