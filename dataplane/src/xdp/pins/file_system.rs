//! Check that a directory is fit for pins, and safe from other users.

use crate::error::Error;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::{AccessFlags, faccessat};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Checks that pins can be kept in a directory: it or its nearest existing parent is on a BPF file
/// system that this user may write to, and no other user but root can replace the pins.
///
/// # Errors
/// [`Error::Pins`], with the remedy.
pub fn supported(directory: &Path) -> Result<(), Error> {
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(directory);
    let problem = if is_bpf(existing) {
        exposed(existing).or_else(|| closed(existing))
    } else {
        Some(format!("{} is not on a BPF file system; `{MOUNT}` mounts one", existing.display()))
    };
    problem.map_or(Ok(()), |problem| {
        Err(Error::Pins { directory: directory.to_owned(), problem, source: None })
    })
}

/// Command that mounts a BPF file system for root alone: by default every user may write to one.
pub const MOUNT: &str = "mount -t bpf -o mode=0700 bpf /sys/fs/bpf";

fn is_bpf(path: &Path) -> bool {
    statfs(path).is_ok_and(|file_system| file_system.filesystem_type() == BPF_FS_MAGIC)
}

/// Returns which other user could remove or replace pins in a directory of a BPF file system, and
/// the remedy.
fn exposed(directory: &Path) -> Option<String> {
    let own = rustix::process::geteuid().as_raw();
    directory.ancestors().take_while(|path| is_bpf(path)).find_map(|path| {
        let name = path.display();
        let found = fs::symlink_metadata(path).ok()?;
        let mounted = !path.parent().is_some_and(is_bpf);
        if found.file_type().is_symlink() && !mounted {
            return Some(format!("{name} is a symbolic link, which may lead elsewhere later; give the directory itself"));
        }
        // For a link to the mount, the target counts.
        let found = fs::metadata(path).ok()?;
        if found.uid() != 0 && found.uid() != own {
            let user = found.uid();
            return Some(format!(
                "{name} belongs to user {user}, who could remove or replace what is pinned there; remove it (`rm -r {name}`), and keep \
                 others out: `chmod 0700` on the mount"
            ));
        }
        // Files in a sticky directory can be removed only by their owner.
        let (shared, sticky) = (found.mode() & 0o022 != 0, found.mode() & 0o1000 != 0);
        (shared && !(mounted && sticky)).then(|| {
            format!("others may write to {name}, and could remove or replace what is pinned there; `chmod 0700 {name}` keeps them out")
        })
    })
}

/// Returns why this user cannot pin anything in a directory.
fn closed(directory: &Path) -> Option<String> {
    let (permissions, flags) = (AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS);
    let error = faccessat(AT_FDCWD, directory, permissions, flags).err()?;
    Some(format!("this user may not write to {}: {}", directory.display(), io::Error::from(error)))
}
