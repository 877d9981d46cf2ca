//! Safe access to files that other users may replace: what they put there can neither block this
//! process, nor fill its memory, nor redirect it to another file.
//!
//! [`open`] and [`read`] are for a path that the user gave. It may be a symbolic link, as
//! Kubernetes mounts secrets, but only a regular file is read: a pipe would block, a device has no
//! end.
//!
//! [`Directory`] is for names that others may have created: everything below a lake, or in the
//! directory of `--out` or of status sockets. Names are relative to a descriptor of the directory,
//! each of their parts is opened by itself (`openat` with `O_NOFOLLOW`), and a link among them is
//! an error that names it. This holds on every kernel and while others rename directories, without
//! `openat2`, which some containers forbid.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

/// Mode of files with sketches or records, before the umask: others cannot read them.
pub const SHARED_MODE: u32 = 0o640;
/// Mode of files for one user.
pub const PRIVATE_MODE: u32 = 0o600;
/// Maximum size of files that people and tools write for a run: configurations, groups of prefixes,
/// certificates.
pub const MAX_SETTINGS_BYTES: u64 = 16 << 20;
/// Mode of directories of such files, before the umask.
const DIRECTORY_MODE: u32 = 0o770;

/// Opens a regular file for reading. Symbolic links are followed.
///
/// # Errors
/// If it cannot be opened, or is anything but a regular file; the path is not in the message.
pub fn open(path: &Path) -> io::Result<File> {
    regular(rustix::fs::openat(CWD, path, READ, Mode::empty()), "it")
}

/// Reads a regular file of at most `limit` bytes. Symbolic links are followed.
///
/// # Errors
/// As [`open`], and if it is longer.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    bounded(open(path)?, limit)
}

/// Reads a regular file of text, of at most `limit` bytes. Symbolic links are followed.
///
/// # Errors
/// As [`read`], and if it is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read(path, limit)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is no text in UTF-8"))
}

/// Creates a file that does not exist yet. A symbolic link of this name counts as an existing file.
///
/// # Errors
/// If it exists or cannot be created; the path is not in the message.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    Ok(rustix::fs::openat(CWD, path, CREATE, Mode::from_raw_mode(mode))?.into())
}

const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const CREATE: OFlags = OFlags::RDWR
    .union(OFlags::CLOEXEC)
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW);

/// Returns the file, if it is a regular one; otherwise an error about `it`.
fn regular(opened: rustix::io::Result<OwnedFd>, it: &str) -> io::Result<File> {
    let file = match opened {
        Err(Errno::NXIO) => return Err(irregular(it, "a socket")),
        Err(Errno::ISDIR) => return Err(irregular(it, "a directory")),
        opened => opened?,
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind.is_file() { Ok(file.into()) } else { Err(irregular(it, name(kind))) }
}

fn irregular(it: &str, what: &str) -> io::Error {
    let problem = format!("{it} is no regular file, but {what}");
    io::Error::new(ErrorKind::InvalidInput, problem)
}

fn name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

fn bounded(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    if length <= limit {
        // As large as the file, since a vector that grows leaves copies of secrets behind.
        bytes.reserve_exact(length as usize + 1);
        file.take(limit + 1).read_to_end(&mut bytes)?;
    }
    if length.max(bytes.len() as u64) > limit {
        let problem = format!("it is longer than {limit} bytes, the most that is read");
        return Err(io::Error::new(ErrorKind::InvalidData, problem));
    }
    Ok(bytes)
}

/// A directory in which others may create files. Names are relative to it, and no symbolic link
/// below it is followed.
#[derive(Debug)]
pub struct Directory {
    handle: OwnedFd,
    path: PathBuf,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name in the directory.
    pub name: OsString,
    /// Its type; a symbolic link is not followed.
    pub kind: FileType,
}

impl Directory {
    /// Opens a directory. Its own path may contain symbolic links.
    ///
    /// # Errors
    /// If it does not exist or is no directory; the path is not in the message.
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Directory { handle, path: path.to_owned() })
    }

    /// Opens a directory, and creates it and its parents if they do not exist. Others cannot read
    /// what it creates.
    ///
    /// # Errors
    /// If it cannot be created or opened; the path is not in the message.
    pub fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
        Self::open(path)
    }

    /// Returns the path that it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its device and inode.
    ///
    /// # Errors
    /// If the system does not report them.
    pub fn id(&self) -> io::Result<(u64, u64)> {
        let about = rustix::fs::fstat(&self.handle)?;
        Ok((about.st_dev, about.st_ino))
    }

    /// Opens a directory below.
    ///
    /// # Errors
    /// As all methods with names: if a part of the name is a symbolic link, which the message
    /// names, or the name has parts like `..`; errors of the system.
    pub fn below(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        self.at(name, Directory::step)
    }

    /// Opens a directory below, and creates it and its parents if they do not exist.
    ///
    /// # Errors
    /// As [`below`](Self::below).
    pub fn create_below(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        let mut deepest: Option<Directory> = None;
        for part in parts(name.as_ref())? {
            let above = deepest.as_ref().unwrap_or(self);
            let mode = Mode::from_raw_mode(DIRECTORY_MODE);
            let is_new = match rustix::fs::mkdirat(&above.handle, part, mode) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            let opened = above.step(part)?;
            if is_new {
                above.hand_over(&opened.handle);
            }
            deepest = Some(opened);
        }
        deepest.ok_or_else(|| unusable(name.as_ref()))
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// As [`below`](Self::below), and if it is anything else.
    pub fn file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.regular(name.as_ref(), READ)
    }

    /// Reads a regular file of at most `limit` bytes.
    ///
    /// # Errors
    /// As [`file`](Self::file), and if it is longer.
    pub fn read(&self, name: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
        bounded(self.file(name)?, limit)
    }

    /// Opens a regular file for a lock: for reading and writing, as network file systems require.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn lockable(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.regular(name.as_ref(), READ | OFlags::RDWR)
    }

    /// Opens a regular file for a lock, and creates it if it does not exist.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn lock_file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        match self.create_new(name.as_ref(), SHARED_MODE) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.lockable(name),
            created => created,
        }
    }

    /// Creates a file that does not exist yet.
    ///
    /// # Errors
    /// As [`below`](Self::below), and if it exists.
    pub fn create_new(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        self.at(name, |above, part| {
            let mode = Mode::from_raw_mode(mode);
            let file = rustix::fs::openat(&above.handle, part, CREATE, mode)?;
            above.hand_over(&file);
            Ok(file.into())
        })
    }

    /// Creates a temporary file. A regular file of this name, which a killed process left, is
    /// removed first; anything else of this name is an error.
    ///
    /// # Errors
    /// As [`create_new`](Self::create_new).
    pub fn create_temporary(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let name = name.as_ref();
        match self.create_new(name, SHARED_MODE) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.file(name)?;
                self.remove(name)?;
                self.create_new(name, SHARED_MODE)
            }
            created => created,
        }
    }

    /// Removes a file, or a link itself.
    ///
    /// # Errors
    /// As [`below`](Self::below).
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        self.at(name, |above, part| {
            Ok(rustix::fs::unlinkat(&above.handle, part, AtFlags::empty())?)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`below`](Self::below), and if it is not empty.
    pub fn remove_directory(&self, name: impl AsRef<Path>) -> io::Result<()> {
        self.at(name, |above, part| {
            Ok(rustix::fs::unlinkat(&above.handle, part, AtFlags::REMOVEDIR)?)
        })
    }

    /// Moves an open file into a directory on the same file system, and replaces what has the new
    /// name there. Both names are single parts.
    ///
    /// # Errors
    /// As [`below`](Self::below).
    pub fn rename(&self, name: &str, file: &File, to: &Directory, new: &str) -> io::Result<()> {
        for name in [name, new] {
            parts(Path::new(name))?.get(1).map_or(Ok(()), |_| Err(unusable(Path::new(name))))?;
        }
        to.hand_over(file);
        Ok(rustix::fs::renameat(&self.handle, name, &to.handle, new)?)
    }

    /// Returns whether a name exists; a link to nothing exists too.
    ///
    /// # Errors
    /// As [`below`](Self::below).
    pub fn contains(&self, name: impl AsRef<Path>) -> io::Result<bool> {
        match self.about(name) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the length of a regular file in bytes, without opening it.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn length(&self, name: impl AsRef<Path>) -> io::Result<u64> {
        let name = name.as_ref();
        let about = self.about(name)?;
        let kind = FileType::from_raw_mode(about.st_mode);
        if !kind.is_file() {
            return Err(irregular(&self.path.join(name).display().to_string(), self::name(kind)));
        }
        Ok(about.st_size.unsigned_abs())
    }

    /// Returns what it contains, sorted by name.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.handle)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(about) => FileType::from_raw_mode(about.st_mode),
                        // It was removed in the meantime.
                        Err(Errno::NOENT) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                kind => kind,
            };
            entries.push(Entry { name: name.to_owned(), kind });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Waits until its entries are on disk.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.handle)?)
    }

    /// Returns the error of a symbolic link below.
    #[must_use]
    pub fn link_error(&self, name: impl AsRef<Path>) -> io::Error {
        let path = self.path.join(name);
        let problem =
            format!("{} is a symbolic link, which is not followed; move it away", path.display());
        io::Error::new(ErrorKind::InvalidInput, problem)
    }

    /// Calls `act` with the directory that a name is in, and the last part of the name.
    fn at<T>(
        &self,
        name: impl AsRef<Path>,
        act: impl FnOnce(&Directory, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        let name = name.as_ref();
        let parts = parts(name)?;
        let (last, above) = parts.split_last().ok_or_else(|| unusable(name))?;
        let mut deepest: Option<Directory> = None;
        for part in above {
            deepest = Some(deepest.as_ref().unwrap_or(self).step(part)?);
        }
        act(deepest.as_ref().unwrap_or(self), last)
    }

    fn about(&self, name: impl AsRef<Path>) -> io::Result<Stat> {
        self.at(name, |above, part| {
            Ok(rustix::fs::statat(&above.handle, part, AtFlags::SYMLINK_NOFOLLOW)?)
        })
    }

    fn regular(&self, name: &Path, flags: OFlags) -> io::Result<File> {
        let opened = self.at(name, |above, part| above.opened(part, flags))?;
        regular(opened, &self.path.join(name).display().to_string())
    }

    fn step(&self, part: &OsStr) -> io::Result<Directory> {
        let handle = self.opened(part, DIRECTORY | OFlags::NOFOLLOW)??;
        Ok(Directory { handle, path: self.path.join(part) })
    }

    /// Opens an entry. The outer error names a symbolic link; the caller interprets the inner one.
    fn opened(&self, part: &OsStr, flags: OFlags) -> io::Result<rustix::io::Result<OwnedFd>> {
        let opened =
            rustix::fs::openat(&self.handle, part, flags | OFlags::NOFOLLOW, Mode::empty());
        // For a symbolic link the system reports either; both have other causes too.
        if let Err(Errno::LOOP | Errno::NOTDIR) = opened
            && let Ok(about) = rustix::fs::statat(&self.handle, part, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(about.st_mode).is_symlink()
        {
            return Err(self.link_error(part));
        }
        Ok(opened)
    }

    /// Gives what root has created to the owner and the group of this directory, who could
    /// otherwise not read it.
    fn hand_over(&self, created: impl AsFd) {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let handed = rustix::fs::fstat(&self.handle).and_then(|theirs| {
            let mine = rustix::fs::fstat(&created)?;
            if (mine.st_uid, mine.st_gid) == (theirs.st_uid, theirs.st_gid) {
                return Ok(());
            }
            let (owner, group) = (Uid::from_raw(theirs.st_uid), Gid::from_raw(theirs.st_gid));
            rustix::fs::fchown(&created, Some(owner), Some(group))
        });
        if let Err(error) = handed {
            let path = self.path.display();
            tracing::debug!("{path}: a new file stays with root: {error}");
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Returns the parts of a relative name that never leads upwards.
fn parts(name: &Path) -> io::Result<Vec<&OsStr>> {
    let part = |component| match component {
        Component::Normal(part) => Ok(part),
        _ => Err(unusable(name)),
    };
    name.components().map(part).collect()
}

fn unusable(name: &Path) -> io::Error {
    let problem = format!("{} is no name below a directory", name.display());
    io::Error::new(ErrorKind::InvalidInput, problem)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use nix::sys::stat::Mode as NixMode;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("flowgauge-files-{}-{test}", std::process::id()));
            fs::create_dir_all(path.join("inside/date=1")).unwrap();
            fs::create_dir_all(path.join("outside")).unwrap();
            fs::write(path.join("outside/canary"), "untouched").unwrap();
            Scratch(path)
        }

        fn inside(&self) -> Directory {
            Directory::open(&self.0.join("inside")).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn links_below_a_directory_are_named_and_not_followed() {
        let scratch = Scratch::new("links");
        let (inside, outside) = (scratch.inside(), scratch.0.join("outside"));
        symlink(&outside, scratch.0.join("inside/link")).unwrap();
        symlink(outside.join("canary"), scratch.0.join("inside/date=1/file")).unwrap();
        symlink(outside.join("new"), scratch.0.join("inside/dangling")).unwrap();
        for error in [
            inside.file("link/canary").unwrap_err(),
            inside.below("link").unwrap_err(),
            inside.create_below("link/deeper").unwrap_err(),
            inside.create_new("link/new", SHARED_MODE).unwrap_err(),
            inside.remove("link/canary").unwrap_err(),
        ] {
            assert!(error.to_string().contains("inside/link is a symbolic link"), "{error}");
        }
        for error in [
            inside.file("date=1/file").unwrap_err(),
            inside.lockable("date=1/file").unwrap_err(),
            inside.lock_file("date=1/file").unwrap_err(),
            inside.create_temporary("date=1/file").unwrap_err(),
        ] {
            assert!(error.to_string().contains("date=1/file is a symbolic link"), "{error}");
        }
        let exists = inside.create_new("dangling", SHARED_MODE).unwrap_err();
        assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
        assert!(inside.create_temporary("dangling").unwrap_err().to_string().contains("dangling"));
        assert!(inside.contains("dangling").unwrap());
        // Removing or replacing a link leaves its target alone.
        inside.remove("date=1/file").unwrap();
        let moved = inside.create_new("moved", SHARED_MODE).unwrap();
        inside.rename("moved", &moved, &inside, "dangling").unwrap();
        let content = fs::read_dir(&outside).unwrap().count();
        assert_eq!((content, fs::read(outside.join("canary")).unwrap()), (1, b"untouched".into()));
    }

    #[test]
    fn names_lead_only_down() {
        let scratch = Scratch::new("names");
        let inside = scratch.inside();
        let canary = scratch.0.join("outside/canary");
        let file = File::open(&canary).unwrap();
        for name in ["..", "../outside/canary", "date=1/../..", "", ".", canary.to_str().unwrap()] {
            let error = inside.remove(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
            assert!(inside.create_below(name).is_err(), "{name}");
            assert!(inside.rename("date=1", &file, &inside, name).is_err(), "{name}");
        }
        assert!(canary.exists() && scratch.0.join("inside/date=1").exists());
    }

    #[test]
    fn only_regular_files_are_opened_and_only_up_to_the_limit() {
        let scratch = Scratch::new("regular");
        let inside = scratch.inside();
        let path = |name: &str| scratch.0.join("inside").join(name);
        nix::unistd::mkfifo(&path("pipe"), NixMode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        for (name, kind) in [("pipe", "a pipe"), ("socket", "a socket"), ("date=1", "a directory")]
        {
            for error in [open(&path(name)).unwrap_err(), inside.file(name).unwrap_err()] {
                let text = error.to_string();
                assert!(text.contains("no regular file") && text.contains(kind), "{text}");
            }
        }
        assert!(read(&path("zero"), 10).unwrap_err().to_string().contains("a device"));
        fs::write(path("ten"), "0123456789").unwrap();
        symlink(path("ten"), path("given")).unwrap();
        assert_eq!(read_text(&path("given"), 10).unwrap(), "0123456789");
        assert!(read(&path("ten"), 9).unwrap_err().to_string().contains("longer than 9 bytes"));
        let sparse = File::create(path("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert!(inside.read("sparse", 1 << 20).is_err());
    }

    #[test]
    fn others_cannot_read_new_files_and_a_directorys_owner_gets_those_of_root() {
        let scratch = Scratch::new("modes");
        let inside = scratch.inside();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(scratch.0.join("inside"), Some(1234), Some(4321)).unwrap();
        }
        inside.create_new("shared", SHARED_MODE).unwrap().write_all(b"1").unwrap();
        inside.create_new("private", PRIVATE_MODE).unwrap();
        inside.create_below("new/deeper").unwrap();
        for (name, most) in [("shared", 0o640), ("private", 0o600), ("new/deeper", 0o770)] {
            let about = fs::metadata(scratch.0.join("inside").join(name)).unwrap();
            assert_eq!(about.permissions().mode() & 0o777 & !most, 0, "{name}");
            if is_root {
                assert_eq!((about.uid(), about.gid()), (1234, 4321), "{name}");
            }
        }
    }

    #[test]
    fn a_file_that_a_killed_process_left_is_replaced() {
        let scratch = Scratch::new("left");
        let inside = scratch.inside();
        let kept = inside.create_new("x.tmp", SHARED_MODE).unwrap();
        inside.create_temporary("x.tmp").unwrap().write_all(b"new").unwrap();
        assert_eq!(
            (kept.metadata().unwrap().len(), inside.read("x.tmp", 9).unwrap().len()),
            (0, 3)
        );
        inside.remove("x.tmp").unwrap();
        assert!(!inside.contains("x.tmp").unwrap());
    }
}
