//! Tests that run again in a process with limited memory.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable with the directory of a test that runs with limited memory.
const DIRECTORY: &str = "TEST_LIMITED";

/// Returns the directory that [`run`] has passed on; `None` in the first process.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs a test of this program again, alone in a process whose data segment is limited. `module` is
/// the `module_path!()` of the test.
///
/// # Panics
/// If it fails there.
#[track_caller]
pub fn run(module: &str, test: &str, kib: u64, directory: &Path) {
    let module = module.split_once("::").map_or("", |(_, module)| module);
    let outcome = Command::new("sh")
        .args(["-c", &format!("ulimit -d {kib} && exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([&format!("{module}::{test}"), "--exact", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&outcome.stdout);
    let errors = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success() && printed.contains("1 passed"), "{printed}{errors}");
}
