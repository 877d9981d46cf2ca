//! The two programs of one build: `flowgauge`, and beside it `flowgauge-bench`, which runs
//! benchmarks and reproductions.
//!
//! They are two so that who builds `flowgauge` does not wait for the other. Figures of other
//! sources than those at hand would look like figures: a program that is started with
//! [`SAME_BUILD`] refuses to run in place of another build.

use crate::error::Failure;
use std::env;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The build that whoever starts a program wants it to be of.
const SAME_BUILD: &str = "FLOWGAUGE_SAME_BUILD";

/// What both programs of one build have in common: version, commit, and in a repository the sum of
/// the sources as they were.
const BUILD: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    ", commit ",
    env!("FLOWGAUGE_BUILT_FROM"),
    env!("FLOWGAUGE_SOURCES")
);

/// What runs `bench` and `reproduce`.
const BENCH: &str = "flowgauge-bench";

/// Text of `--version`.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let features = [
        ("dpdk", cfg!(feature = "dpdk")),
        ("object-store", cfg!(feature = "object-store")),
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

/// Refuses to go on for a program of another build. Whoever is started by hand goes on.
///
/// # Errors
/// A [`Failure`] that names both builds.
pub fn same_build() -> Result<(), Failure> {
    let Some(wanted) = env::var_os(SAME_BUILD).filter(|wanted| wanted != BUILD) else {
        return Ok(());
    };
    let own = env::current_exe().unwrap_or_default();
    Err(Failure::Failed(format!(
        "{} is of another build ({BUILD}) than the program that started it ({}); build both anew with `{}`",
        own.display(),
        wanted.display(),
        build("")
    )))
}

/// The program of this name in the folder of this one, which is of the same build.
///
/// # Errors
/// A [`Failure`] if there is none, or if it is of another build.
pub fn beside(name: &str) -> Result<PathBuf, Failure> {
    let path = path(name)?;
    let mut command = Command::new(&path);
    command.env(SAME_BUILD, BUILD).arg("--version").stdin(Stdio::null());
    let output = command.output().map_err(|error| cannot_run(name, &path, &error))?;
    if output.status.success() {
        return Ok(path);
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Failed(told.trim().trim_start_matches("error: ").to_owned()))
}

/// Has `flowgauge-bench` do, in the place of this process, what the command line says. Comes back
/// if that fails.
pub(crate) fn become_bench() -> Failure {
    let path = match path(BENCH) {
        Ok(path) => path,
        Err(failure) => return failure,
    };
    // As a process of the same number, so that signals, the exit code and the terminal are its own.
    let error = Command::new(&path).args(env::args_os().skip(1)).env(SAME_BUILD, BUILD).exec();
    cannot_run(BENCH, &path, &error)
}

/// Where a program is looked for. Not among those of PATH: there may be one of another time.
fn path(name: &str) -> Result<PathBuf, Failure> {
    let own = env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find my own program: {error}")))?;
    Ok(own.with_file_name(name))
}

fn cannot_run(name: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(match error.kind() {
        ErrorKind::NotFound => format!(
            "this takes the program {name}, and {} does not exist; build it with `{}`, and leave it beside flowgauge",
            path.display(),
            build(&format!(" -p {name}"))
        ),
        _ => format!("cannot run {}: {error}", path.display()),
    })
}

/// The command that builds packages as this one was built.
fn build(packages: &str) -> String {
    let profile = if cfg!(debug_assertions) { "" } else { " --release" };
    let features = if cfg!(feature = "dpdk") { " --features dpdk" } else { "" };
    format!("cargo build{profile}{packages}{features}")
}
