//! Kernel state that survives the death of a controller, and its adoption by the next one.
//!
//! Every counting point has a directory of pins on the BPF file system. Its name consists of the
//! direction, the interface's index and the network namespace's number, since interface names
//! change and repeat. It contains
//! - `link`, which keeps the program attached; for a [filter](super::clsact), which needs no link,
//!   `program` identifies it;
//! - `cores`, the array it counts in; if they are used, `shared`, the sketches shared by all CPUs,
//!   `persistent`, the persistent state shared by all counting points, its `lock` on old kernels, and
//!   `filters`;
//! - `xdp_chain` and similar, the programs that follow the first one, if there are any; for a
//!   member of a [set](super::set) `set_xdp_chain` and similar, the same for all members;
//! - `note`: the settings, and the progress of the controller.
//!
//! A process that uses the directory holds a lock on it, which the kernel releases when the process
//! dies.
//!
//! The note changes atomically, by one system call. A controller may be killed between any two
//! steps of a rotation:
//!
//! 1. note: the other bank is active, the old one is unpublished;
//! 2. every CPU is switched; packets in flight leave the old bank; it is read; its window is
//!    published;
//! 3. note: nothing is unpublished;
//! 4. the old bank is cleared.
//!
//! So the adopting controller repeats the step that may be missing: after 1 it switches the CPUs
//! again and finds the unpublished window in the old bank; after 3 it clears the idle bank. A
//! window is published twice, with the same number, if the controller is killed between publishing
//! it and step 3; none is ever lost.

mod file_system;
mod left;
mod spot;

pub use file_system::{MOUNT, supported};
pub(super) use left::forget;
pub use left::{AbandonedProgram, detach, kept_key, left};

use super::clsact::{Classifier, FilterOwner};
use super::link::ProgramLink;
use super::note::Note;
use super::object::{self, KEPT, NoteArray, PlainData, SET_CHAINS};
use super::refusal::reason;
use super::syscall;
use crate::error::Error;
use crate::interface::device;
use crate::place::CountingPoint;
use aya::maps::{Array, Map, MapData};
use spot::PinKey;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Default directory of pins.
pub const DIRECTORY: &str = "/sys/fs/bpf/flowgauge";

const LINK: &str = "link";
const PROGRAM: &str = "program";
const NOTE: &str = "note";

/// Pauses, and their length, before a locked directory counts as that of a running process.
const MAX_LOCK_PAUSES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Locked pin directory of one counting point.
pub(super) struct Pins {
    directory: PathBuf,
    spot: PinKey,
    /// File that holds the lock.
    lock: File,
    /// Array of the note.
    note: Option<Map>,
    /// Whether the pins stay when this is dropped.
    pub(super) leave: bool,
}

/// Adopted pins.
pub(super) struct AdoptedPins {
    pub(super) note: Note,
    pub(super) link: ProgramLink,
    pub(super) mode: super::Mode,
    /// Arrays that its programs use.
    pub(super) arrays: Vec<(&'static str, MapData)>,
}

impl Pins {
    /// Locks the directory of a counting point, creating it if needed.
    pub(super) fn claim(root: &Path, place: &CountingPoint, index: u32) -> Result<Self, Error> {
        supported(root)?;
        let spot = PinKey::here(place.direction, index);
        let directory = root.join(spot.name());
        fs::create_dir_all(&directory)
            .map_err(|error| refused(&directory, "make this directory", error))?;
        // Checked again: another user may have created it first.
        supported(&directory)?;
        let mut pauses = 0;
        loop {
            match Self::lock(directory.clone(), spot) {
                // `flowgauge status` holds the lock of a dead process's pins while it reads them.
                Err(TryLockError::WouldBlock) if pauses < MAX_LOCK_PAUSES => {
                    pauses += 1;
                    thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Pins { directory, problem: at_work(place), source: None });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(refused(&directory, "lock this directory", error));
                }
                Ok(pins) => return Ok(pins),
            }
        }
    }

    fn lock(directory: PathBuf, spot: PinKey) -> Result<Self, TryLockError> {
        let lock = File::open(&directory).map_err(TryLockError::Error)?;
        lock.try_lock()?;
        Ok(Pins { directory, spot, lock, note: None, leave: false })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns whether a program of a dead process is counting here. Other files in the directory
    /// are useless without it.
    pub(super) fn is_counting(&self) -> bool {
        has_program(&self.directory)
    }

    /// Opens the pinned link or filter.
    fn open(&self) -> io::Result<ProgramLink> {
        let program = self.path(PROGRAM);
        if !program.exists() {
            return syscall::open(&self.path(LINK)).map(ProgramLink::opened);
        }
        // Filters of another network namespace cannot be queried.
        if !self.spot.is_here() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Classifier::open(
            syscall::open(&program)?,
            self.spot.index,
            self.spot.direction,
            self.owner(),
        )
        .map(ProgramLink::Classifier)
    }

    /// Returns the owner name of filters that belong to these pins.
    pub(super) fn owner(&self) -> FilterOwner {
        FilterOwner::pins(&self.directory)
    }

    /// Returns whether the program is no longer attached to an interface.
    fn is_dead(&self) -> bool {
        self.open()
            .and_then(|link| link.attachment())
            .is_ok_and(|attachment| attachment.index.is_none())
    }

    /// Returns the counting point, by the interface's current name or, if it is gone or elsewhere,
    /// by its name when counting began.
    fn place(&self) -> CountingPoint {
        let spot = self.spot;
        let now = if spot.is_here() { device::name(spot.index).ok().flatten() } else { None };
        let noted = || {
            self.notes()
                .ok()
                .and_then(|notes| notes.get(&0, 0).ok())
                .map(|PlainData(note)| note.interface())
        };
        let interface = now.or_else(noted).unwrap_or_else(|| format!("interface {}", spot.index));
        CountingPoint { interface, direction: spot.direction }
    }

    /// Removes the pins, the link first: without it the rest is garbage.
    pub(super) fn clear(&self) -> io::Result<()> {
        // A removed interface has detached the program.
        if self.is_counting()
            && let Err(error) = self.open().and_then(|link| link.detach())
        {
            tracing::debug!(
                "{}: not detached before it is unpinned: {error}",
                self.directory.display()
            );
        }
        [LINK, PROGRAM, NOTE].into_iter().try_for_each(|name| self.unpin(name))?;
        KEPT.into_iter().try_for_each(|array| self.unpin(&pin_of_array(array)))
    }

    fn unpin(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn failed(&self, what: &str, error: &(dyn std::error::Error + 'static)) -> Error {
        let problem = format!("cannot {what}: {}", chain(error));
        Error::Pins { directory: self.directory.clone(), problem, source: reason(error) }
    }

    /// Replaces pins of the same memory, which are removed.
    pub(super) fn take_over(mut self, earlier: &mut Pins) {
        self.leave = earlier.leave;
        self.note = earlier.note.take();
        let mut earlier = std::mem::replace(earlier, self);
        earlier.leave = false;
    }

    /// Pins a note and these arrays.
    pub(super) fn keep(
        &mut self,
        notes: NoteArray,
        arrays: &[(&'static str, &MapData)],
    ) -> Result<(), Error> {
        notes.pin(self.path(NOTE)).map_err(|error| self.failed("pin the note", &error))?;
        self.note = Some(self.note_map()?);
        self.mend(None, arrays).map(drop)
    }

    /// Writes the note, if it was pinned.
    pub(super) fn write(&mut self, note: Note) -> Result<(), Error> {
        let Some(map) = &mut self.note else { return Ok(()) };
        let notes = Array::<&mut MapData, PlainData<Note>>::try_from(map);
        let written = notes.and_then(|mut notes| notes.set(0, PlainData(note), 0));
        written.map_err(|error| self.failed("write the note", &error))
    }

    /// Restores missing pins, of these arrays and others. Returns whether any were missing.
    pub(super) fn mend(
        &mut self,
        link: Option<&ProgramLink>,
        arrays: &[(&'static str, &MapData)],
    ) -> Result<bool, Error> {
        let number = |found: io::Result<fs::Metadata>| found.map(|found| found.ino()).ok();
        let removed = number(fs::metadata(&self.directory)) != number(self.lock.metadata());
        if removed {
            fs::create_dir_all(&self.directory)
                .map_err(|error| self.failed("make this directory", &error))?;
            let lock = File::open(&self.directory)
                .map_err(|error| self.failed("open this directory", &error))?;
            lock.try_lock().map_err(|error| self.failed("lock this directory", &error))?;
            self.lock = lock;
        }
        let mut mended = removed;
        for (array, map) in arrays {
            let path = self.path(&pin_of_array(array));
            if !path.exists() {
                map.pin(path).map_err(|error| self.failed("pin an array", &error))?;
                mended = true;
            }
        }
        if let Some(note) = &self.note
            && !self.path(NOTE).exists()
        {
            note.pin(self.path(NOTE)).map_err(|error| self.failed("pin the note", &error))?;
            mended = true;
        }
        if let Some(link) = link
            && !self.path(pin_of(link)).exists()
        {
            self.pin(link)?;
            mended = true;
        }
        Ok(mended)
    }

    /// Returns whether the pin of an array is missing.
    pub(super) fn lacks(&self, array: &str) -> bool {
        !self.path(&pin_of_array(array)).exists()
    }

    /// Removes the pins of a set's chains, once programs of another object are attached.
    pub(super) fn forget_set(&self) {
        for (chain, _) in SET_CHAINS {
            if let Err(error) = self.unpin(&pin_of_array(chain)) {
                tracing::debug!("{}: {chain} stays: {error}", self.directory.display());
            }
        }
    }

    /// Pins the link, replacing an earlier one. The program of a filter was pinned when it was
    /// attached.
    pub(super) fn pin(&self, link: &ProgramLink) -> Result<(), Error> {
        let name = pin_of(link);
        if name == PROGRAM && self.path(name).exists() {
            return Ok(());
        }
        let pinned =
            self.unpin(name).and_then(|()| syscall::pin(link.pinnable(), &self.path(name)));
        pinned.map_err(|error| self.failed(&format!("pin the {name}"), &error))
    }

    /// Attaches a program as a filter. It is pinned first, so that a filter of these pins never
    /// exists without them.
    pub(super) fn attach_classifier(&self, program: BorrowedFd<'_>) -> io::Result<Classifier> {
        let PinKey { direction, index, .. } = self.spot;
        self.unpin(PROGRAM)?;
        syscall::pin(program, &self.path(PROGRAM))?;
        Classifier::attach(program, index, direction, self.owner()).inspect_err(|_| {
            if let Err(error) = self.unpin(PROGRAM) {
                tracing::debug!(
                    "{}: the pin of a program stays: {error}",
                    self.directory.display()
                );
            }
        })
    }

    fn note_map(&self) -> Result<Map, Error> {
        let opened = MapData::from_pin(self.path(NOTE)).and_then(Map::from_map_data);
        opened.map_err(|error| self.failed("read the note", &error))
    }

    fn notes(&self) -> Result<NoteArray, Error> {
        NoteArray::try_from(self.note_map()?).map_err(|error| self.failed("read the note", &error))
    }

    /// Opens a pinned array.
    fn open_array(&self, array: &'static str) -> Result<(&'static str, MapData), Error> {
        let path = self.path(&pin_of_array(array));
        if !path.exists() {
            let problem = io::Error::other(format!("{} is missing", path.display()));
            return Err(self.failed("adopt", &problem));
        }
        let opened = MapData::from_pin(path).map_err(|error| self.failed("open an array", &error));
        Ok((array, opened?))
    }

    /// Opens the pins if they match `wanted` and, if `hook` is given, that hook. `used` returns the
    /// names of the arrays that programs at a hook use.
    pub(super) fn adopt(
        &mut self,
        place: &CountingPoint,
        wanted: &Note,
        hook: Option<super::Mode>,
        used: impl FnOnce(super::Mode) -> Vec<&'static str>,
    ) -> Result<AdoptedPins, Error> {
        let notes = self.notes()?;
        let PlainData(note) =
            notes.get(&0, 0).map_err(|error| self.failed("read the note", &error))?;
        let attached = hook.map_or(note.attached, |mode| mode as u32);
        let refused = |difference: String| {
            let problem = format!(
                "cannot adopt what counts {place}: {difference}; `flowgauge detach` ends it"
            );
            Error::Pins { directory: self.directory.clone(), problem, source: None }
        };
        if let Some(difference) = note.difference(&Note { attached, ..*wanted }) {
            return Err(refused(difference));
        }
        let mode = note
            .mode()
            .ok_or_else(|| refused("it was started by another version of flowgauge".to_owned()))?;
        // The programs are of a set, or were made for this counting point, or a controller was
        // killed while it replaced the former by the latter.
        let of_set: Vec<&'static str> = object::chains(mode)
            .into_iter()
            .map(|(chain, _)| chain)
            .filter(|chain| !self.lacks(chain))
            .collect();
        let is_own = |array: &&'static str| {
            of_set.is_empty() || !object::is_chain(array) || !self.lacks(array)
        };
        let arrays = used(mode).into_iter().filter(is_own).chain(of_set.iter().copied());
        let arrays = arrays.map(|array| self.open_array(array));
        let arrays = arrays.collect::<Result<Vec<_>, Error>>()?;
        let link = self.open().map_err(|error| self.failed("open the link", &error))?;
        self.note = Some(self.note_map()?);
        Ok(AdoptedPins { note, link, mode, arrays })
    }
}

/// Returns the name of an array's pin.
fn pin_of_array(array: &str) -> String {
    array.to_ascii_lowercase()
}

/// Returns the name of the pin that keeps a program attached.
fn pin_of(link: &ProgramLink) -> &'static str {
    match link {
        ProgramLink::Bpf { .. } => LINK,
        ProgramLink::Classifier(_) => PROGRAM,
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if !self.leave {
            if let Err(error) = self.clear() {
                tracing::warn!("cannot remove pins in {}: {error}", self.directory.display());
            }
            // Fails and changes nothing if the directory contains pins that are in use.
            let _ = fs::remove_dir(&self.directory);
            let _ = self.directory.parent().map(fs::remove_dir);
        }
        // Closing is not enough: a child process forked by another thread at this moment shares the
        // lock until it executes its program.
        let _ = self.lock.unlock();
    }
}

/// Returns whether a directory of pins keeps a program attached.
fn has_program(directory: &Path) -> bool {
    [LINK, PROGRAM].iter().any(|name| directory.join(name).exists())
}

fn at_work(place: &CountingPoint) -> String {
    format!("another flowgauge is counting {place}; stop that one first")
}

fn refused(directory: &Path, what: &str, error: io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; it takes root, or the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
        }
        _ => "",
    };
    let problem = format!("cannot {what}: {error}{advice}");
    Error::Pins { directory: directory.to_owned(), problem, source: Some(error) }
}

/// Formats an error with its causes, which aya leaves to the caller.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Direction;

    #[test]
    fn a_lock_ends_with_its_owner_despite_copies() {
        let directory = std::env::temp_dir().join(format!("flowgauge-lock-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let locked = || -> Result<Pins, TryLockError> {
            let mut pins = Pins::lock(directory.clone(), PinKey::here(Direction::Ingress, 1))?;
            pins.leave = true;
            Ok(pins)
        };
        let first = locked().unwrap();
        assert!(matches!(locked(), Err(TryLockError::WouldBlock)));
        // A child process shares the lock until it executes its program.
        let copy = first.lock.try_clone().unwrap();
        drop(first);
        assert!(locked().is_ok());
        drop(copy);
        fs::remove_dir(directory).unwrap();
    }
}
