//! Helpers for the tests of all crates.
//!
//! [`skip`] reports tests that the machine cannot run, [`on_veth`] runs a test in its own network
//! namespace, [`extent`] chooses the size of a long one, and [`chance`] has bounds for random
//! results.
//!
//! Packets: [`frames`] of every kind, [`definitions`] of their effects on counters, delay
//! [`samples`]. Networks: [`hosts`] with a wire between them, a [`relay`] on that wire, another
//! [`namespace`], programs of others in the [`kernel`]. Switches: one in [`memory`] that matches
//! nothing, a [`switch`] that counts, one that runs the P4 program in the [`model`], [`faults`]
//! between it and its client. [`wait`] waits for other processes and the kernel, [`limited`] runs a
//! test with little memory, [`scratch`] has directories.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]
#![allow(missing_docs, reason = "names of frames and of protocol fields")]

pub mod chance;
pub mod definitions;
pub mod faults;
pub mod frames;
#[cfg(target_os = "linux")]
pub mod hosts;
#[cfg(target_os = "linux")]
pub mod kernel;
pub mod limited;
pub mod memory;
pub mod model;
#[cfg(target_os = "linux")]
pub mod namespace;
#[cfg(target_os = "linux")]
pub mod relay;
pub mod samples;
pub mod scratch;
pub mod switch;
pub mod wait;

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::panic::Location;
use std::path::Path;

/// Variable with a file to which every skipped test appends a line.
pub const SKIPS: &str = "TEST_SKIPS";

/// Variable that makes skipping a failure if it is 1.
pub const NO_SKIPS: &str = "TEST_NO_SKIPS";

/// Variable that makes tests take their full size if it is 1, as in `.ci/nightly`.
pub const NIGHTLY: &str = "TEST_NIGHTLY";

/// Returns the size of a test: the first one, or the second one in `.ci/nightly`.
#[must_use]
pub fn extent<T>(usual: T, nightly: T) -> T {
    if std::env::var_os(NIGHTLY).is_some_and(|value| value == "1") { nightly } else { usual }
}

/// Reports that this test, or a part of it, is skipped, and what the machine would need to run it.
/// The caller then returns.
///
/// # Panics
/// If [`NO_SKIPS`] is set, or the file in [`SKIPS`] cannot be written.
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

/// Appends a line with a single write, so that lines of concurrent tests stay intact.
fn note(path: &Path, line: &str) -> std::io::Result<()> {
    File::options().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

/// Runs a test in a [network namespace of its own](flowgauge_traffic::veth::isolated). Skips
/// it if there can be none.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn on_veth<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) {
    if let Err(need) = flowgauge_traffic::veth::isolated(test) {
        skip(need);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::process::Command;

    /// The tests below run this one in a separate process with its own variables.
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
