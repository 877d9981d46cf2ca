//! Directories of status sockets. Each run has one, named after its process id.

use std::env;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process;

/// Variable that names another directory. If it is empty, runs are not published.
pub(crate) const VARIABLE: &str = "FLOWGAUGE_STATUS_DIR";

const SYSTEM: &str = "/run/flowgauge";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn user_directory() -> Option<PathBuf> {
    env::var_os("XDG_RUNTIME_DIR")
        .filter(|directory| !directory.is_empty())
        .map(|directory| Path::new(&directory).join("flowgauge"))
}

fn chosen_directory() -> Option<PathBuf> {
    env::var_os(VARIABLE).map(PathBuf::from)
}

/// Returns the directory in which this process publishes its status, if it does.
pub(crate) fn own() -> Option<PathBuf> {
    match chosen_directory() {
        Some(directory) => Some(directory).filter(|directory| !directory.as_os_str().is_empty()),
        None if is_root() => Some(SYSTEM.into()),
        None => user_directory(),
    }
}

/// Returns the directories to search for runs: those of this user, of root and of root's services.
/// Other users' directories are not searched, not even by root, since they control the answers.
pub(crate) fn all() -> Vec<PathBuf> {
    if chosen_directory().is_some() {
        return own().into_iter().collect();
    }
    let mut all = vec![PathBuf::from(SYSTEM)];
    all.extend(user_directory());
    all.sort();
    all.dedup();
    all
}

/// User ids of services: those that packages create, and those that systemd allocates
/// (`DynamicUser=`).
const SERVICE_USERS: [RangeInclusive<u32>; 2] = [1..=999, 61_184..=65_519];

/// Returns whether files of this user in a directory are trusted: the user of this process, root,
/// and the user of a service that root gave the directory to.
pub(crate) fn is_trusted(user: u32, directory: &Path) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw() || is_given_to(directory, user)
}

/// Returns whether root gave this directory to the user of a service: it belongs to that user, and
/// only root can write its parents.
fn is_given_to(directory: &Path, user: u32) -> bool {
    let found = |path: &Path, is_right: &dyn Fn(&Metadata) -> bool| {
        fs::symlink_metadata(path).is_ok_and(|found| is_right(&found))
    };
    let is_theirs = |found: &Metadata| found.is_dir() && found.uid() == user;
    let is_roots_alone =
        |found: &Metadata| found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0;
    directory.is_absolute()
        && SERVICE_USERS.iter().any(|users| users.contains(&user))
        && found(directory, &is_theirs)
        && directory.ancestors().skip(1).all(|parent| found(parent, &is_roots_alone))
}

/// Returns why a directory or a socket is not trusted; `None` if it is. Symbolic links are not
/// followed.
fn doubt(
    path: &Path,
    directory: &Path,
    is_right: impl Fn(&Metadata) -> bool,
    what: &str,
) -> io::Result<Option<String>> {
    let found = fs::symlink_metadata(path)?;
    let path = path.display();
    Ok(match found.uid() {
        _ if !is_right(&found) => Some(format!("{path} is not a {what}; skipped")),
        user if !is_trusted(user, directory) => {
            Some(format!("{path} belongs to user {user}, who is neither you nor root; skipped"))
        }
        _ => None,
    })
}

/// Returns the directory of a socket.
pub(crate) fn parent_of_socket(socket: &Path) -> &Path {
    socket.parent().unwrap_or(socket)
}

/// Returns why a socket is not trusted, if so.
pub(crate) fn doubt_of_socket(path: &Path) -> io::Result<Option<String>> {
    doubt(path, parent_of_socket(path), |found| found.file_type().is_socket(), "socket")
}

/// Returns the group that may query the runs in a directory: the directory's group, if its members
/// may enter it and others may not.
pub(crate) fn readers(directory: &Path) -> Option<u32> {
    let found = fs::metadata(directory).ok()?;
    (found.mode() & 0o017 == 0o010).then(|| found.gid())
}

/// Sockets in a directory, with their process ids, and the reason why it is not searched.
type Listing = (Vec<(u32, PathBuf)>, Option<String>);

/// Returns the path of this process's socket, in a directory that is created for its user alone.
pub(crate) fn socket(directory: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    Ok(directory.join(format!("{}.sock", process::id())))
}

/// Returns the sockets in a directory of a trusted user.
pub(crate) fn sockets(directory: &Path) -> io::Result<Listing> {
    match doubt(directory, directory, Metadata::is_dir, "directory") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
        Ok(None) => {}
        doubt => return Ok((Vec::new(), doubt?)),
    }
    let mut sockets = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let pid =
            path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")?.parse().ok());
        sockets.extend(pid.map(|pid| (pid, path)));
    }
    sockets.sort();
    Ok((sockets, None))
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
        // Other users may have created it.
        fs::set_permissions(&parent, Permissions::from_mode(0o777)).unwrap();
        assert!(!is_trusted(SERVICE, &given));
        fs::set_permissions(&parent, Permissions::from_mode(0o755)).unwrap();
        chown(&parent, Some(SOMEBODY), None).unwrap();
        assert!(!is_trusted(SERVICE, &given));
        fs::remove_dir_all(parent).unwrap();
    }
}
