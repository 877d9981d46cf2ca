//! Where runs are found: every one has a socket, named after its process.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;

/// The environment variable that names another directory; an empty one has runs not be published.
pub(super) const VARIABLE: &str = "FLOWGAUGE_STATUS_DIR";

const SYSTEM: &str = "/run/flowgauge";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn of_user() -> Option<PathBuf> {
    env::var_os("XDG_RUNTIME_DIR")
        .filter(|directory| !directory.is_empty())
        .map(|directory| Path::new(&directory).join("flowgauge"))
}

fn asked_for() -> Option<PathBuf> {
    env::var_os(VARIABLE).map(PathBuf::from)
}

/// Where this process is to be found; `None` if nowhere.
pub(super) fn own() -> Option<PathBuf> {
    match asked_for() {
        Some(directory) => Some(directory).filter(|directory| !directory.as_os_str().is_empty()),
        None if is_root() => Some(SYSTEM.into()),
        None => of_user(),
    }
}

/// Where to look for runs: those of this user and of root, and for root those of everyone.
pub(super) fn all() -> Vec<PathBuf> {
    if asked_for().is_some() {
        return own().into_iter().collect();
    }
    let mut all = vec![PathBuf::from(SYSTEM)];
    all.extend(of_user());
    if is_root() {
        let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
        all.extend(users.map(|user| user.path().join("flowgauge")).filter(|directory| directory.is_dir()));
    }
    all.sort();
    all.dedup();
    all
}

/// The socket of this process, in a directory that is made for its user alone.
pub(super) fn socket(directory: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    Ok(directory.join(format!("{}.sock", process::id())))
}

/// The sockets in a directory, with the numbers of their processes.
pub(super) fn sockets(directory: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut sockets = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let pid = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")?.parse().ok());
        sockets.extend(pid.map(|pid| (pid, path)));
    }
    sockets.sort();
    Ok(sockets)
}
