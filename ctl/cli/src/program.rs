//! The two programs of a build: `flowgauge`, and `flowgauge-bench` in the same directory, which
//! runs benchmarks and reproductions.
//!
//! They are separate so that building `flowgauge` does not build the benchmarks. Results of a
//! different build would be misleading: a program started with [`SAME_BUILD`] set refuses to run if
//! its build differs.

use crate::error::{CommandFailure, cannot, fail};
use std::env;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Variable with the build that the starting program requires.
const SAME_BUILD: &str = "FLOWGAUGE_SAME_BUILD";

/// Identification of a build: version, commit, and in a repository a checksum of the sources.
const BUILD: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    ", commit ",
    env!("FLOWGAUGE_BUILT_FROM"),
    env!("FLOWGAUGE_SOURCES")
);

/// Program that runs `bench` and `reproduce`.
const BENCH: &str = "flowgauge-bench";

/// Text of `--version`.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let features = [
        ("dpdk", cfg!(feature = "dpdk")),
        ("lake", cfg!(feature = "lake")),
        ("object-store", cfg!(feature = "object-store")),
        ("report", cfg!(feature = "report")),
        ("serve", cfg!(feature = "serve")),
        ("tofino", cfg!(feature = "tofino")),
        ("top", cfg!(feature = "top")),
    ];
    let features: Vec<&str> =
        features.into_iter().filter_map(|(name, has)| has.then_some(name)).collect();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    format!(
        "{}\ncommit: {}\nfeatures: {features}",
        env!("CARGO_PKG_VERSION"),
        env!("FLOWGAUGE_BUILT_FROM")
    )
});

/// Returns the text of `--version`: version, commit and features of the build.
#[must_use]
pub fn version() -> &'static str {
    &VERSION
}

/// Checks that this program has the build that the starting program requires. A program started by
/// hand passes.
///
/// # Errors
/// A [`CommandFailure`] that names both builds.
pub fn same_build() -> Result<(), CommandFailure> {
    let Some(wanted) = env::var_os(SAME_BUILD).filter(|wanted| wanted != BUILD) else {
        return Ok(());
    };
    let own = env::current_exe().unwrap_or_default();
    fail(format!(
        "{} has a different build ({BUILD}) than the program that started it ({}); rebuild both with `{}`",
        own.display(),
        wanted.display(),
        build(&format!(" -p flowgauge -p {BENCH}"))
    ))
}

/// Returns the path of a program in the directory of this one, after checking that it has the same
/// build.
///
/// # Errors
/// A [`CommandFailure`] if it does not exist, or has another build.
pub fn beside(name: &str) -> Result<PathBuf, CommandFailure> {
    let path = path(name)?;
    let mut command = Command::new(&path);
    command.env(SAME_BUILD, BUILD).arg("--version").stdin(Stdio::null());
    let output = command.output().map_err(|error| cannot_run(name, &path, &error))?;
    if output.status.success() {
        return Ok(path);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    fail(stderr.trim().trim_start_matches("error: ").to_owned())
}

/// Replaces this process by `flowgauge-bench` with the same arguments. Returns only on failure.
pub(crate) fn become_bench() -> Result<(), CommandFailure> {
    let path = path(BENCH)?;
    // Keep the process id, so that signals, the exit code and the terminal are those of the new
    // program.
    let error = Command::new(&path).args(env::args_os().skip(1)).env(SAME_BUILD, BUILD).exec();
    Err(cannot_run(BENCH, &path, &error))
}

/// Returns the path of a program next to this one. PATH is not searched: it may have an older
/// build.
fn path(name: &str) -> Result<PathBuf, CommandFailure> {
    let own = env::current_exe().map_err(cannot("find the path of this program"))?;
    Ok(own.with_file_name(name))
}

fn cannot_run(name: &str, path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::Failed(match error.kind() {
        ErrorKind::NotFound => format!(
            "this command needs the program {name}, and {} does not exist; build it with `{}`, and install it next to flowgauge",
            path.display(),
            build(&format!(" -p {name}"))
        ),
        _ => format!("cannot run {}: {error}", path.display()),
    })
}

/// Returns the command that builds packages with the profile and features of this build.
fn build(packages: &str) -> String {
    let profile = if cfg!(debug_assertions) { "" } else { " --release" };
    let features = if cfg!(feature = "dpdk") { " --features dpdk" } else { "" };
    format!("cargo build{profile}{packages}{features}")
}
