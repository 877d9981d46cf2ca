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

    /// Whether there is such a thing already.
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

    /// A status that an RPC ended with.
    pub(crate) fn from_status(status: &tonic::Status, problem: String) -> Self {
        use tonic::Code;
        let code = status.code();
        let name = code_name(code);
        match code {
            // Not the switch's words, but what tonic makes of a broken connection.
            _ if std::error::Error::source(status).is_some() => Failure::Unreachable { problem },
            Code::Unavailable | Code::Cancelled => Failure::Unreachable { problem },
            // Not ours: a late answer is noticed on this side. A proxy's, or the switch's own.
            Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted => {
                Failure::Refused { code: name, problem, transient: true }
            }
            // Messages that are no messages end as these.
            Code::Internal | Code::DataLoss | Code::OutOfRange => Failure::Answer { problem },
            _ => Failure::Refused { code: name, problem, transient: false },
        }
    }
}

/// The name of a status in documentation of gRPC.
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
