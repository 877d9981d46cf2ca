//! Where runs are found: every one has a socket, named after its process.

use std::env;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::ops::RangeInclusive;
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

/// Where to look for runs: those of this user, of root and of root's services. Those of others are
/// not looked for, not even by root: what they answer is theirs to choose.
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

/// Users of services: those that packages make, and those that systemd makes for a service
/// (`DynamicUser=`).
const OF_SERVICES: [RangeInclusive<u32>; 2] = [1..=999, 61_184..=65_519];

/// Whether what this user owns in a directory is believed: this process' user, root, and the user
/// of a service to whom root gave the directory.
pub(super) fn is_trusted(user: u32, directory: &Path) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw() || is_given_to(directory, user)
}

/// Whether root gave this directory to the user of a service: it is that user's, and nobody but
/// root can have put it where it is.
fn is_given_to(directory: &Path, user: u32) -> bool {
    let found = |path: &Path, is_right: &dyn Fn(&Metadata) -> bool| {
        fs::symlink_metadata(path).is_ok_and(|found| is_right(&found))
    };
    let is_theirs = |found: &Metadata| found.is_dir() && found.uid() == user;
    let is_roots_alone =
        |found: &Metadata| found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0;
    directory.is_absolute()
        && OF_SERVICES.iter().any(|users| users.contains(&user))
        && found(directory, &is_theirs)
        && directory.ancestors().skip(1).all(|parent| found(parent, &is_roots_alone))
}

/// Why a directory or a socket is not believed; `None` if it is. A symbolic link is none of either,
/// wherever it leads.
fn doubt(
    path: &Path,
    directory: &Path,
    is_right: impl Fn(&Metadata) -> bool,
    what: &str,
) -> io::Result<Option<String>> {
    let found = fs::symlink_metadata(path)?;
    let path = path.display();
    Ok(match found.uid() {
        _ if !is_right(&found) => Some(format!("{path} is no {what}; it is left alone")),
        user if !is_trusted(user, directory) => Some(format!(
            "{path} belongs to user {user}, who is neither you nor root; it is left alone"
        )),
        _ => None,
    })
}

/// The directory of a socket.
pub(super) fn of_socket(socket: &Path) -> &Path {
    socket.parent().unwrap_or(socket)
}

/// Why a socket is not believed.
pub(super) fn doubt_of_socket(path: &Path) -> io::Result<Option<String>> {
    doubt(path, of_socket(path), |found| found.file_type().is_socket(), "socket")
}

/// The group that may ask the runs in a directory: the one whose members may enter it, if others
/// may not.
pub(super) fn readers(directory: &Path) -> Option<u32> {
    let found = fs::metadata(directory).ok()?;
    (found.mode() & 0o017 == 0o010).then(|| found.gid())
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
    match doubt(directory, directory, Metadata::is_dir, "directory") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
        Ok(None) => {}
        doubt => return Ok(Listing { doubt: doubt?, ..Listing::default() }),
    }
    let mut sockets = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let pid =
            path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")?.parse().ok());
        sockets.extend(pid.map(|pid| (pid, path)));
    }
    sockets.sort();
    Ok(Listing { sockets, doubt: None })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use flowgauge_testing::skip;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn a_service_is_believed_in_the_directory_that_root_gave_it_and_nowhere_else() {
        if !is_root() {
            return skip("root");
        }
        const SERVICE: u32 = 61_234;
        const SOMEBODY: u32 = 1000;
        let parent = Path::new("/run").join(format!("flowgauge-given-{}", process::id()));
        let (given, link) = (parent.join("given"), parent.join("link"));
        fs::create_dir_all(&given).unwrap();
        std::os::unix::fs::symlink(&given, &link).unwrap();
        let believes = |user| {
            chown(&given, Some(user), None).unwrap();
            is_trusted(user, &given)
        };
        fs::set_permissions(&parent, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(
            [SERVICE, 999, SOMEBODY, 65_534, 0].map(believes),
            [true, true, false, false, true]
        );
        chown(&given, Some(SERVICE), None).unwrap();
        assert!(
            !is_trusted(999, &given) && !is_trusted(SERVICE, &link),
            "another's, and a way to it"
        );
        // Others may have put it there.
        fs::set_permissions(&parent, Permissions::from_mode(0o777)).unwrap();
        assert!(!is_trusted(SERVICE, &given));
        fs::set_permissions(&parent, Permissions::from_mode(0o755)).unwrap();
        chown(&parent, Some(SOMEBODY), None).unwrap();
        assert!(!is_trusted(SERVICE, &given));
        fs::remove_dir_all(parent).unwrap();
    }
}
