//! Identification of a build: its commit, as printed by `flowgauge --version`, and a checksum of
//! its sources.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories with the sources of both programs, and the file of their dependencies.
const PROGRAMS: [&str; 6] =
    ["Cargo.lock", "Cargo.toml", "bench", "ctl", "dataplane", "p4/bfruntime"];
/// Subdirectories that are not part of a program.
const NOT_OF_PROGRAMS: [&str; 2] = ["tests", "examples"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FLOWGAUGE_COMMIT");
    // A build without a repository, as from a tarball or in a container, can name its commit.
    let given = env::var("FLOWGAUGE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(commit).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=FLOWGAUGE_BUILT_FROM={commit}");
    let sources = sources().map(|sum| format!(", sources {sum:016x}")).unwrap_or_default();
    println!("cargo::rustc-env=FLOWGAUGE_SOURCES={sources}");
}

/// Returns a checksum of the sources of both programs in the repository, so that an uncommitted
/// change makes a different build too.
fn sources() -> Option<u64> {
    in_repository()?;
    let root = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    let folders = PROGRAMS.map(|folder| root.join(folder));
    let mut list = vec!["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"];
    list.extend(folders.iter().filter_map(|folder| folder.to_str()));
    let mut files: Vec<PathBuf> = git(&list)?.split_terminator('\0').map(PathBuf::from).collect();
    files.retain(|path| {
        !path
            .components()
            .any(|part| NOT_OF_PROGRAMS.iter().any(|folder| part.as_os_str() == *folder))
    });
    files.sort();
    let mut sum = DefaultHasher::new();
    for path in files {
        // The file may have been removed.
        let Ok(content) = fs::read(&path) else { continue };
        println!("cargo::rerun-if-changed={}", path.display());
        (path, content).hash(&mut sum);
    }
    Some(sum.finish())
}

/// Whether this file belongs to a repository. A tarball may have been unpacked inside of another
/// repository.
fn in_repository() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])
}

/// Returns the commit that is checked out; `None` without git, or if this file is not in a
/// repository.
fn commit() -> Option<String> {
    in_repository()?;
    watch();
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Triggers a rebuild when another commit is checked out: then HEAD changes, or its target, or the
/// list of packed references. Missing files are omitted, since Cargo would rebuild every time.
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
    let output = Command::new("git")
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
