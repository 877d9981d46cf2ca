//! Causes of failure between this process and a switch.

use std::time::Duration;

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
