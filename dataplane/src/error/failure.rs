//! What can go wrong between this process and a switch.

use std::time::Duration;

/// Why a call on a switch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// No connection. Transient.
    #[error("no connection: {problem}")]
    Unreachable {
        /// What was tried and how it failed.
        problem: String,
    },
    /// No answer in time. Transient.
    #[error("no answer within {waited:?}; the switch may be busy, or its control network slow")]
    NoAnswer {
        /// How long was waited.
        waited: Duration,
    },
    /// The switch said no.
    #[error("refused ({code}): {problem}")]
    Refused {
        /// The gRPC status.
        code: &'static str,
        /// Which part was refused, and what the switch said.
        problem: String,
        /// Whether it may say yes when asked again.
        transient: bool,
    },
    /// Another client, or a lost connection of this one, has the number or the program. Transient.
    #[error("{problem}")]
    Taken {
        /// What is taken, and what to do about it.
        problem: String,
    },
    /// An answer that cannot be right; nothing of it was used. Transient.
    #[error("the answer is not usable: {problem}")]
    Answer {
        /// What is wrong with it.
        problem: String,
    },
    /// The switch runs something else than these settings need.
    #[error("the program does not fit: {problem}")]
    Program {
        /// What does not fit and what would.
        problem: String,
    },
    /// Options that make no sense.
    #[error("{problem}")]
    Options {
        /// What is wrong with them.
        problem: String,
    },
    /// No runtime for network calls.
    #[error("this process cannot make network calls: {problem}")]
    Runtime {
        /// The system's reason.
        problem: String,
    },
}

impl Failure {
    /// Whether the same call may succeed when repeated.
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
