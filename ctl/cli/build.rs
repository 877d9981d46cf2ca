//! What `flowgauge --version` says: the commit that was built, and features.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FLOWGAUGE_COMMIT");
    // Whoever builds without a repository, as from a tarball or in a container, can say what the commit is.
    let given = env::var("FLOWGAUGE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(commit).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=FLOWGAUGE_BUILT_FROM={commit}");
    let features = if env::var_os("CARGO_FEATURE_DPDK").is_some() { "dpdk" } else { "none" };
    println!("cargo::rustc-env=FLOWGAUGE_FEATURES={features}");
}

/// The commit that is checked out; nothing without git, and nothing if this is no file of a repository.
fn commit() -> Option<String> {
    // A tarball may have been unpacked inside of another repository, which says nothing about it.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    watch();
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Builds anew when another commit is checked out: then HEAD changes, or what it points to, or the list of packed references. Files that
/// are not there are not named: Cargo would build every time.
fn watch() {
    let mut names = vec!["HEAD".to_owned(), "logs/HEAD".to_owned(), "packed-refs".to_owned()];
    names.extend(git(&["symbolic-ref", "--quiet", "HEAD"]));
    for name in names {
        let path = git(&["rev-parse", "--git-path", &name]).map(PathBuf::from);
        if let Some(path) = path.filter(|path: &PathBuf| Path::exists(path)) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
