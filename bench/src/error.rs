//! What keeps an experiment from its end.

use flowgauge::Failure;
use flowgauge_ctl::measurement::cardinality::estimate::EstimateError;
use flowgauge_dataplane::Error;
use std::io;
use std::path::PathBuf;

/// Why a reproduction broke off. One line each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReproduceError {
    /// The dataplane failed.
    #[error(transparent)]
    Dataplane(#[from] Error),
    /// Registers that no hash can give.
    #[error("the registers of an experiment are damaged: {0}; report this as a bug")]
    Registers(#[from] EstimateError),
    /// The worker that counts is gone.
    #[error(
        "{interface}: the worker died in the middle of an experiment; report this as a bug with the log above"
    )]
    TrafficFailed {
        /// The traffic it counted.
        interface: String,
    },
    /// A file of the report cannot be written.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    File {
        /// What was being done.
        operation: &'static str,
        /// To which file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

impl From<ReproduceError> for Failure {
    fn from(error: ReproduceError) -> Self {
        Failure::Failed(error.to_string())
    }
}
