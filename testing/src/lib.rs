//! What tests of all crates have in common: how they skip what a machine lacks, networks of their
//! own, and what chance allows.

pub mod chance;
pub mod generated;

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::panic::Location;
use std::path::Path;

/// Names a file to which every skipped test appends a line.
pub const SKIPS: &str = "TEST_SKIPS";

/// Set to 1, it makes skipping a failure.
pub const NO_SKIPS: &str = "TEST_NO_SKIPS";

/// Says that this test, or a part of it, is skipped and what the machine would need to run it. The
/// caller returns.
///
/// # Panics
/// If [`NO_SKIPS`] is set, or the file that [`SKIPS`] names cannot be written.
#[track_caller]
pub fn skip(need: impl Display) {
    println!("skipped: needs {need}");
    assert!(
        std::env::var_os(NO_SKIPS).is_none_or(|value| value != "1"),
        "{NO_SKIPS}=1, but this test needs {need}"
    );
    if let Some(path) = std::env::var_os(SKIPS) {
        let noted = note(path.as_ref(), &format!("{}: needs {need}\n", Location::caller()));
        assert!(noted.is_ok(), "cannot write {}: {noted:?}", path.display());
    }
}

/// One write, so that lines of tests that run at the same time stay whole.
fn note(path: &Path, line: &str) -> std::io::Result<()> {
    File::options().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

/// Runs a test in a [network of its own](flowgauge_dataplane::xdp::veth::isolated). Skips it where
/// there can be none.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn on_veth<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) {
    if let Err(need) = flowgauge_dataplane::xdp::veth::isolated(test) {
        skip(need);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::process::Command;

    /// The tests below run it in a process of its own, with variables of its own.
    #[test]
    #[ignore = "the other tests run it"]
    fn something_is_missing() {
        skip("a machine that does not exist");
    }

    fn passes(variable: &str, value: &Path) -> bool {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env_remove(SKIPS).env_remove(NO_SKIPS).env(variable, value);
        command.args(["--ignored", "something_is_missing"]).output().unwrap().status.success()
    }

    #[test]
    fn a_skip_is_noted_with_its_place() {
        let path = std::env::temp_dir().join(format!("flowgauge-skips-{}", std::process::id()));
        assert!(passes(SKIPS, &path) && passes(SKIPS, &path));
        let noted = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let lines: Vec<&str> = noted.lines().collect();
        assert!(lines.len() == 2 && lines[0] == lines[1], "{noted}");
        assert!(
            lines[0].starts_with(file!())
                && lines[0].ends_with(": needs a machine that does not exist"),
            "{noted}"
        );
    }

    #[test]
    fn a_skip_fails_where_none_are_wanted() {
        assert!(!passes(NO_SKIPS, Path::new("1")));
        assert!(passes(NO_SKIPS, Path::new("0")));
    }
}
