//! Places in P4 source, and errors that name them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file as it was named.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A source that the model cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Something in the source is wrong or outside the subset of P4 that the model executes.
    #[error("{place}: {problem}")]
    Invalid {
        /// Where.
        place: Place,
        /// What, and what to do.
        problem: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {problem}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
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
