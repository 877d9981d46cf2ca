//! Positions in P4 source, and errors with them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub file: Arc<str>,
    /// Line number, from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Error in a source that the model cannot execute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The source is invalid, or outside the supported subset of P4.
    #[error("{place}: {problem}")]
    Invalid {
        /// Position.
        place: Place,
        /// Problem and remedy.
        problem: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {problem}", path.display())]
    Unreadable {
        /// File.
        path: PathBuf,
        /// Error of the operating system.
        problem: String,
    },
}

pub(crate) type Result<T> = std::result::Result<T, SourceError>;

impl Place {
    pub(crate) fn error(&self, problem: impl Into<String>) -> SourceError {
        SourceError::Invalid { place: self.clone(), problem: problem.into() }
    }

    pub(crate) fn fail<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(self.error(problem))
    }
}
