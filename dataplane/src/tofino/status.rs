//! Failures of gRPC calls.

use super::Failure;
use tonic::{Code, Status};

impl Failure {
    pub(crate) fn answer(problem: impl Into<String>) -> Self {
        Failure::Answer { problem: problem.into() }
    }

    pub(crate) fn program(problem: impl ToString) -> Self {
        Failure::Program { problem: problem.to_string() }
    }

    pub(crate) fn options(problem: impl ToString) -> Self {
        Failure::Options { problem: problem.to_string() }
    }

    /// Whether there is such a thing already.
    pub(crate) fn is_there(&self) -> bool {
        matches!(self, Failure::Refused { code, .. } if *code == code_name(Code::AlreadyExists))
    }

    /// A status that an RPC ended with.
    pub(crate) fn from_status(status: &Status, problem: String) -> Self {
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
pub(super) fn code_name(code: Code) -> &'static str {
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
