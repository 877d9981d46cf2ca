//! Errors of loading and attaching programs, in terms of what the operator can do.

use super::Mode;
use super::verifier::{self, NotLoaded};
use crate::error::Error;
use crate::open_files;
use crate::place::CountingPoint;
use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use rustix::system::uname;
use rustix::thread::{CapabilitySet, capabilities};
use std::io;

/// First kernel with TCX.
pub(super) const TCX_SINCE: &str = "Linux 6.6";

/// Returns the kernel's release, such as `6.1.0-50-amd64`.
pub(super) fn release() -> String {
    uname().release().to_string_lossy().into_owned()
}

pub(super) fn no_tcx() -> String {
    format!(
        "TCX needs {TCX_SINCE}; this is {}; leave out --xdp-mode, or use --xdp-mode clsact",
        release()
    )
}

/// Message of a refusal, and the system's error.
pub(super) struct Problem(pub(super) String, pub(super) Option<io::Error>);

impl From<String> for Problem {
    fn from(problem: String) -> Self {
        Problem(problem, None)
    }
}

pub(super) fn refused(place: &CountingPoint, problem: impl Into<Problem>) -> Error {
    let Problem(problem, source) = problem.into();
    Error::Kernel { interface: place.interface.clone(), problem, source }
}

/// Describes why programs cannot be loaded.
pub(super) fn loading<E: Loading>(error: &E) -> Problem {
    Problem(why_not_loaded(error), reason(error))
}

pub(super) fn why_not_loaded<E: Loading>(error: &E) -> String {
    describe(error, error.program())
}

/// Returns the error of a program that counts nothing, such as a sender, if the kernel refuses it
/// or its maps.
#[must_use]
pub fn not_loaded(interface: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    refused(&CountingPoint::ingress(interface), Problem(describe(error, None), reason(error)))
}

fn describe(error: &(dyn std::error::Error + 'static), program: Option<&NotLoaded>) -> String {
    let (text, cause) = (error.to_string(), io_error(error));
    // The text of an accepted program without a descriptor has the verifier's statistics.
    if let Some(reason) = reason(error).filter(open_files::is_exhausted) {
        return format!("cannot load the programs: {reason}");
    }
    // The verifier's refusal has the same error number as a lack of privileges.
    if let Some(refusal) = verifier::VerifierRefusal::parse(&text) {
        // Without it the verifier accepts no program with pointer arithmetic.
        if capabilities(None).is_ok_and(|own| {
            !own.effective.intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN)
        }) {
            return "cannot load the programs: the kernel's verifier refuses them to a process without the capability CAP_PERFMON; it \
                    takes root, or the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
                .to_owned();
        }
        tracing::debug!("{text}");
        refusal.log();
        return refusal.problem(program);
    }
    format!("cannot load the programs: {text}{}", advice(cause))
}

/// Errors of loading maps and programs.
pub(super) trait Loading: std::error::Error + 'static {
    /// Returns the refused program, if known.
    fn program(&self) -> Option<&NotLoaded> {
        None
    }
}

impl Loading for EbpfError {}
impl Loading for MapError {}
impl Loading for ProgramError {}
impl Loading for NotLoaded {
    fn program(&self) -> Option<&NotLoaded> {
        Some(self)
    }
}

/// Describes why a program cannot be attached. `generic`: the options for modes that every
/// interface supports.
pub(super) fn attaching<E: std::error::Error + 'static>(
    error: &E,
    mode: Mode,
    generic: &str,
) -> Problem {
    Problem(why_not_attached(error, mode, generic), reason(error))
}

fn why_not_attached<E: std::error::Error + 'static>(
    error: &E,
    mode: Mode,
    generic: &str,
) -> String {
    let cause = io_error(error);
    match (cause, mode) {
        (Some(libc::EBUSY | libc::EEXIST), Mode::Native | Mode::Skb | Mode::Offload) => {
            "another XDP program is attached; --xdp-mode tcx counts beside it (before Linux 6.6 clsact); `ip link` shows its number, \
             `ip link set … xdp off` removes it"
                .to_owned()
        }
        (Some(libc::EOPNOTSUPP | libc::EINVAL), Mode::Native) => {
            format!("its driver does not run XDP programs natively here; {generic}")
        }
        (code, Mode::Offload) if code != Some(libc::EPERM) => {
            "its card does not run XDP programs; leave out --xdp-mode for the best that works here".to_owned()
        }
        (Some(libc::EINVAL), Mode::Tcx) => no_tcx(),
        _ => format!("cannot attach: {error}{}", advice(cause)),
    }
}

fn advice(code: Option<i32>) -> &'static str {
    match code {
        Some(libc::EPERM | libc::EACCES) => {
            "; it takes root, or the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
        }
        _ => "",
    }
}

/// Returns the system's error number at the root of an error.
pub(super) fn io_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| as_io_error(error).and_then(io::Error::raw_os_error))
        .last()
}

/// Returns an error as the system's, also if it is one of aya's that has no other text: such a one
/// does not name the system's error as its source.
fn as_io_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    if let Some(MapError::IoError(error)) = error.downcast_ref() {
        return Some(error);
    }
    if let Some(ProgramError::IOError(error)) = error.downcast_ref() {
        return Some(error);
    }
    error.downcast_ref()
}

/// Returns the system's error at the root of an error, as the source of another.
pub(super) fn reason(error: &(dyn std::error::Error + 'static)) -> Option<io::Error> {
    io_error(error).map(io::Error::from_raw_os_error)
}
