//! Where runs are found: every one has a socket, named after its process.

use std::env;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
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

/// Where to look for runs: those of this user and of root. Those of others are not looked for, not even by root: what they answer is theirs
/// to choose.
pub(super) fn all() -> Vec<PathBuf> {
    if asked_for().is_some() {
        return own().into_iter().collect();
    }
    let mut all = vec![PathBuf::from(SYSTEM)];
    all.extend(of_user());
    all.sort();
    all.dedup();
    all
}

/// Whether what this user owns is believed: its own, and root's.
pub(super) fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Why a directory or a socket is not believed; `None` if it is. A symbolic link is none of either, wherever it leads.
fn doubt(path: &Path, is_right: impl Fn(&Metadata) -> bool, what: &str) -> io::Result<Option<String>> {
    let found = fs::symlink_metadata(path)?;
    let path = path.display();
    Ok(match found.uid() {
        _ if !is_right(&found) => Some(format!("{path} is no {what}; it is left alone")),
        user if !is_trusted(user) => Some(format!("{path} belongs to user {user}, who is neither you nor root; it is left alone")),
        _ => None,
    })
}

/// Why a socket is not believed.
pub(super) fn doubt_of_socket(path: &Path) -> io::Result<Option<String>> {
    doubt(path, |found| found.file_type().is_socket(), "socket")
}

/// What a directory holds.
#[derive(Default)]
pub(super) struct Listing {
    /// The sockets, with the numbers of their processes.
    pub(super) sockets: Vec<(u32, PathBuf)>,
    /// Why it is not looked into.
    pub(super) doubt: Option<String>,
}

/// The socket of this process, in a directory that is made for its user alone.
pub(super) fn socket(directory: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    Ok(directory.join(format!("{}.sock", process::id())))
}

/// The sockets in a directory of a user who is believed.
pub(super) fn sockets(directory: &Path) -> io::Result<Listing> {
    match doubt(directory, Metadata::is_dir, "directory") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
        Ok(None) => {}
        doubt => return Ok(Listing { doubt: doubt?, ..Listing::default() }),
    }
    let mut sockets = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let pid = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")?.parse().ok());
        sockets.extend(pid.map(|pid| (pid, path)));
    }
    sockets.sort();
    Ok(Listing { sockets, doubt: None })
}
