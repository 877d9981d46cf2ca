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

    /// Returns the failure for an item of the program that differs from what is required.
    pub(crate) fn mismatch(item: &str, is: String, must: String) -> Self {
        Failure::program(format!("{item} is {is} and must be {must}"))
    }

    /// Returns the failure for a program that lacks something of `p4/flowgauge.p4`.
    pub(crate) fn lacks(problem: impl std::fmt::Display) -> Self {
        Failure::program(format!("{problem}; is it p4/flowgauge.p4?"))
    }

    pub(crate) fn options(problem: impl ToString) -> Self {
        Failure::Options { problem: problem.to_string() }
    }

    /// Returns whether the failure means that the object already exists.
    pub(crate) fn is_there(&self) -> bool {
        matches!(self, Failure::Refused { code, .. } if *code == code_name(Code::AlreadyExists))
    }

    /// Converts the status of a failed RPC.
    pub(crate) fn from_status(status: &Status, problem: String) -> Self {
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
