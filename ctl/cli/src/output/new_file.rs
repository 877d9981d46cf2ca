//! Output file of `report` and `generate`, which has its name only once it is complete: a full disk
//! leaves no file that looks like one.

use flowgauge_dataplane::files::{Directory, create_new};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::process;

/// Mode before the umask, as that of files of other programs.
const MODE: u32 = 0o666;

/// File being written. If it is dropped before [`finish`](NewFile::finish), it is removed.
pub(crate) struct NewFile {
    file: File,
    /// `None` for a pipe, a device or standard output, which are written directly.
    names: Option<Names>,
}

struct Names {
    temporary: PathBuf,
    target: PathBuf,
    replaces: bool,
}

impl NewFile {
    /// Creates a temporary file next to the one of this path. An existing file is an error unless
    /// it is to be replaced; it stays as it is until the new one is complete.
    pub(crate) fn create(path: &Path, replaces: bool) -> io::Result<Self> {
        if !replaces && fs::symlink_metadata(path).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let replaced = match fs::metadata(path) {
            Ok(about) if about.is_file() && !is_descriptor(path) => Some(about),
            // A directory is an error of the system here.
            Ok(_) => return Ok(NewFile { file: File::create(path)?, names: None }),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // A link to a file stays, and its target is replaced.
        let target = if replaced.is_some() { fs::canonicalize(path)? } else { path.to_owned() };
        let mut temporary = target.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
        temporary.push(format!(".{}.tmp", process::id()));
        let temporary = target.with_file_name(temporary);
        let file = match create_new(&temporary, MODE) {
            // A killed process of this id left it, as in containers, where ids repeat.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::remove_file(&temporary)?;
                create_new(&temporary, MODE)?
            }
            created => created?,
        };
        let names = Names { temporary, target, replaces };
        if let Some(replaced) = replaced {
            hand_over(&file, &replaced)?;
        }
        Ok(NewFile { file, names: Some(names) })
    }

    /// Returns standard output, which is written directly.
    pub(crate) fn stdout() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(NewFile { file, names: None })
    }

    /// Waits until the content is on disk, and gives the file its name.
    pub(crate) fn finish(self) -> io::Result<()> {
        let NewFile { file, names } = self;
        let Some(names) = names else { return Ok(()) };
        file.sync_all()?;
        names.publish()
    }
}

/// Whether a path leads to an open file of this process, such as `/dev/stdout`: what is written
/// there belongs into that file, and not into one that replaces it.
fn is_descriptor(path: &Path) -> bool {
    let is_special = path.starts_with("/dev") || path.starts_with("/proc");
    is_special && fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink())
}

/// Gives a file the owner and the mode of the one that it replaces.
fn hand_over(file: &File, replaced: &Metadata) -> io::Result<()> {
    // Only root can do that, and other users own what they write.
    let _ = fchown(file, Some(replaced.uid()), Some(replaced.gid()));
    file.set_permissions(replaced.permissions())
}

impl Names {
    fn publish(&self) -> io::Result<()> {
        let Names { temporary, target, replaces } = self;
        if *replaces {
            fs::rename(temporary, target)?;
        } else if let Err(error) = fs::hard_link(temporary, target) {
            // A link replaces no file that another process created meanwhile. Some file systems
            // have none.
            if fs::symlink_metadata(target).is_ok() {
                return Err(error);
            }
            fs::rename(temporary, target)?;
        }
        let directory = target.parent().filter(|it| !it.as_os_str().is_empty());
        let synced = Directory::open(directory.unwrap_or(Path::new("."))).and_then(|it| it.sync());
        if let Err(error) = synced {
            tracing::debug!("{}: its directory is not synchronized: {error}", target.display());
        }
        Ok(())
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // A file that was renamed has no such name any more.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let directory = std::env::temp_dir().join(format!("flowgauge-new-file-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let names = || fs::read_dir(&directory).unwrap().count();
        let (file, link) = (directory.join("file"), directory.join("link"));
        let mut abandoned = NewFile::create(&file, false).unwrap();
        abandoned.write_all(b"half").unwrap();
        assert!(!file.exists() && names() == 1);
        drop(abandoned);
        assert_eq!(names(), 0);
        let write = |path: &Path, text: &str, replaces| {
            let mut new = NewFile::create(path, replaces)?;
            new.write_all(text.as_bytes())?;
            new.finish()
        };
        write(&file, "one", false).unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names()), ("one", 1));
        let error = write(&file, "two", false).unwrap_err();
        assert_eq!((error.kind(), names()), (ErrorKind::AlreadyExists, 1));
        // A file that another process creates meanwhile stays.
        let late = NewFile::create(&directory.join("late"), false).unwrap();
        fs::write(directory.join("late"), "other").unwrap();
        assert_eq!(late.finish().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(directory.join("late")).unwrap(), "other");
        // A link stays, and its target keeps its mode.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        symlink("file", &link).unwrap();
        write(&link, "two", true).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode), ("two", 0o604));
        assert_eq!(names(), 3);
        fs::remove_dir_all(&directory).unwrap();
    }
}
