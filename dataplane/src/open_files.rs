//! Limit of open files of this process. A live run takes two to 11 for each interface, and some 15
//! more for each that starts; captures that overlap in time are open at once. A login shell allows
//! 1,024.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the soft limit of open files to the hard one. If the system refuses, what cannot be
/// opened is reported with [`advice`].
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Returns whether an error says that this process, or the system, has too many open files.
#[must_use]
pub fn is_exhausted(error: &io::Error) -> bool {
    !advice(Some(error)).is_empty()
}

/// Returns what to do about an error if it says that too many files are open, to follow its text;
/// empty for others.
#[must_use]
pub fn advice(error: Option<&io::Error>) -> &'static str {
    match error.and_then(Errno::from_io_error) {
        Some(Errno::MFILE) => {
            "; raise the limit of open files with `ulimit -n`, in a service's unit with LimitNOFILE="
        }
        Some(Errno::NFILE) => "; raise the system's limit of open files with `sysctl fs.file-max`",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_open_files_have_advice() {
        let named = |errno: Errno| advice(Some(&errno.into()));
        assert!(named(Errno::MFILE).contains("`ulimit -n`"));
        assert!(named(Errno::NFILE).contains("fs.file-max"));
        assert_eq!((named(Errno::NOENT), advice(None)), ("", ""));
        assert!(!is_exhausted(&io::ErrorKind::InvalidData.into()));
    }
}
