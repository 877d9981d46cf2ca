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

    /// Returns whether the failure means that the object already exists.
    pub(crate) fn is_there(&self) -> bool {
        matches!(self, Failure::Refused { code, .. } if *code == code_name(tonic::Code::AlreadyExists))
    }

    pub(crate) fn answer(problem: impl Into<String>) -> Self {
        Failure::Answer { problem: problem.into() }
    }

    pub(crate) fn program(problem: impl ToString) -> Self {
        Failure::Program { problem: problem.to_string() }
    }

    pub(crate) fn options(problem: impl ToString) -> Self {
        Failure::Options { problem: problem.to_string() }
    }

    /// Converts the status of a failed RPC.
    pub(crate) fn from_status(status: &tonic::Status, problem: String) -> Self {
        use tonic::Code;
        let code = status.code();
        let name = code_name(code);
        match code {
            // Not sent by the switch: tonic's status for a broken connection.
            _ if std::error::Error::source(status).is_some() => Failure::Unreachable { problem },
            Code::Unavailable | Code::Cancelled => Failure::Unreachable { problem },
            // From a proxy or the switch: this side detects its own timeouts elsewhere.
            Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted => {
                Failure::Refused { code: name, problem, transient: true }
            }
            // Statuses of malformed messages.
            Code::Internal | Code::DataLoss | Code::OutOfRange => Failure::Answer { problem },
            _ => Failure::Refused { code: name, problem, transient: false },
        }
    }
}

/// Returns the name of a status as in the gRPC documentation.
pub(crate) fn code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
