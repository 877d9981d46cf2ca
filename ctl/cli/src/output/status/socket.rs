//! Unix socket of a run, on which it serves its status.

use super::directory;
use flowgauge_ctl::serve::Service;
use flowgauge_ctl::status::StatusSource;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, chownat, fstat, open};
use rustix::process::geteuid;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;

/// Socket with its server. Dropping it removes both.
pub(super) struct StatusSocket {
    path: PathBuf,
    _server: Service,
}

impl StatusSocket {
    /// Starts to serve the status in this run's directory of sockets, or warns that it cannot.
    pub(super) fn open(status: StatusSource) -> Option<Self> {
        let directory = directory::own()?;
        let failed = |error: &io::Error| {
            let (directory, variable) = (directory.display(), directory::VARIABLE);
            tracing::warn!(
                "`flowgauge status` cannot find this run: {directory}: {error}; choose another directory with {variable}"
            );
        };
        StatusSocket::start(&directory, status).inspect_err(failed).ok()
    }

    fn start(directory: &Path, status: StatusSource) -> io::Result<Self> {
        let path = directory::socket(directory)?;
        let server = Service::start_local(bind(&path)?, status);
        let _server = server.inspect_err(|_| remove(&path))?;
        Ok(StatusSocket { path, _server })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        // Before the server ends: who finds the socket of a run gets an answer.
        remove(&self.path);
    }
}

fn remove(socket: &Path) {
    if let Err(error) = fs::remove_file(socket) {
        tracing::debug!("cannot remove {}: {error}", socket.display());
    }
}

/// Binds a socket that becomes visible under its name only once it accepts clients, and only to its
/// user, or to the group that may enter the directory. Symbolic links that others put in its place
/// are not followed.
fn bind(socket: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(socket) {
        Ok(found) if !found.file_type().is_socket() => {
            let problem = format!("{} is no socket; move it away", socket.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        Ok(_) if UnixStream::connect(socket).is_ok() => {
            // Process ids are only ambiguous if containers share this directory.
            let problem = format!("another run with the process id {} uses it", process::id());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
        }
        _ => {}
    }
    let hidden = socket.with_extension("new");
    match fs::remove_file(&hidden) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&hidden)?;
    let shown = show(&hidden, socket);
    shown.inspect_err(|_| drop(fs::remove_file(&hidden)))?;
    Ok(listener)
}

/// Gives a bound socket its group, mode and name.
fn show(hidden: &Path, socket: &Path) -> io::Result<()> {
    // Group and mode are changed by descriptor: the name may lead elsewhere by now.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let bound = open(hidden, flags, Mode::empty())?;
    let about = fstat(&bound)?;
    if !FileType::from_raw_mode(about.st_mode).is_socket() || about.st_uid != geteuid().as_raw() {
        let problem = format!("{} was replaced by another user", hidden.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    // The socket of a service already has its group, and hardened units may not change it.
    let hand_over = |group| {
        if about.st_gid == group {
            Ok(())
        } else {
            chownat(&bound, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)
        }
    };
    let mode = match directory::readers(directory::parent_of_socket(socket)).map(hand_over) {
        Some(Ok(())) => 0o660,
        Some(Err(error)) => {
            tracing::warn!(
                "the group of {}'s directory cannot query this run: {error}",
                socket.display()
            );
            0o600
        }
        None => 0o600,
    };
    // The system has no call for the mode of such a descriptor.
    let bound = format!("/proc/self/fd/{}", bound.as_raw_fd());
    fs::set_permissions(bound, Permissions::from_mode(mode))?;
    fs::rename(hidden, socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_at_the_names_of_a_socket_are_not_followed() {
        let directory = std::env::temp_dir().join(format!("flowgauge-bind-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (victim, socket) = (directory.join("victim"), directory.join("1.sock"));
        fs::write(&victim, "secret").unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(0o640)).unwrap();
        let untouched = || {
            let mode = fs::metadata(&victim).unwrap().permissions().mode() & 0o777;
            (mode, fs::read(&victim).unwrap()) == (0o640, b"secret".to_vec())
        };
        std::os::unix::fs::symlink(&victim, &socket).unwrap();
        let error = bind(&socket).unwrap_err().to_string();
        assert!(error.contains("1.sock is no socket; move it away"), "{error}");
        fs::remove_file(&socket).unwrap();
        // A link that another process left under the first name is removed, and its target stays.
        std::os::unix::fs::symlink(&victim, directory.join("1.new")).unwrap();
        let listener = bind(&socket).unwrap();
        let about = fs::symlink_metadata(&socket).unwrap();
        assert!(about.file_type().is_socket() && about.permissions().mode() & 0o777 == 0o600);
        assert!(UnixStream::connect(&socket).is_ok() && untouched());
        // Between the binding and the change of its mode, a link takes its place.
        fs::rename(&socket, directory.join("2.new")).unwrap();
        std::os::unix::fs::symlink(&victim, directory.join("1.new")).unwrap();
        assert!(show(&directory.join("1.new"), &socket).is_err() && untouched());
        show(&directory.join("2.new"), &socket).unwrap();
        drop(listener);
        fs::remove_dir_all(directory).unwrap();
    }
}
