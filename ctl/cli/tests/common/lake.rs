//! Lakes: captures, runs that write them into a lake, and what is merged from it.

use super::{Outcome, Scratch, command, execute, finish};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Generates a capture, and returns its path.
#[track_caller]
pub(crate) fn generate(scratch: &Scratch, profile: &str, name: &str) -> String {
    let path = scratch.path(name).display().to_string();
    execute(&format!("generate {profile} --force --to {path}")).ended(0);
    path
}

/// Replays space-separated captures into a lake as this host, which always has the same run.
pub(crate) fn replay(lake: &Path, host: &str, captures: &str, options: &str) -> Outcome {
    let lake = lake.display();
    let arguments = format!("replay {captures} --host {host} --lake {lake} {options}");
    finish(command(&arguments).env("FLOWGAUGE_RUN", format!("run-of-{host}")))
}

/// Merges a lake.
pub(crate) fn merge(lake: &Path, options: &str) -> Outcome {
    execute(&format!("merge {} {options}", lake.display()))
}

/// Returns the records of unions of a lake.
#[track_caller]
pub(crate) fn unions(lake: &Path, options: &str) -> Vec<Value> {
    merge(lake, &format!("--format json {options}")).json()
}

/// Compacts a lake.
pub(crate) fn compact(lake: &Path, options: &str) -> Outcome {
    execute(&format!("lake compact {} {options}", lake.display()))
}

/// Compares two hosts of a lake.
pub(crate) fn diff(lake: &Path, hosts: [&str; 2], options: &str) -> Outcome {
    let [one, other] = hosts.map(|host| format!("{},host={host}", lake.display()));
    execute(&format!("diff {one} {other} {options}"))
}

/// Returns the journal of a lake, if there is one.
pub(crate) fn journal(lake: &Path) -> Option<PathBuf> {
    let mut paths = fs::read_dir(lake.join(".journal")).ok()?.flatten().map(|entry| entry.path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == "journal"))
}
