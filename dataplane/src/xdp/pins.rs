//! Kernel state that survives the death of a controller, and its adoption by the next one.
//!
//! Every counting point has a directory of pins on the BPF file system. Its name consists of the
//! direction, the interface's index and the network namespace's number, since interface names
//! change and repeat. It contains
//! - `link`, which keeps the program attached; for a [filter](super::clsact), which needs no link,
//!   `program` identifies it;
//! - `cores`, the array it counts in; `shared`, the sketches shared by all CPUs; `lasting`, the
//!   persistent state shared by all counting points;
//! - `xdp_chain` and similar, the programs that follow the first one;
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

use super::clsact::{self, Classifier, Owner};
use super::link::Link;
use super::note::{Note, VERSION, network_namespace};
use super::object::{KEPT, NoteArray, Pinned, Plain};
use super::refusal::reason;
use super::syscall;
use crate::error::Error;
use crate::hash_key::HashKey;
use crate::interface::device;
use crate::place::{Direction, Place};
use aya::maps::{Map, MapData};
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::{AccessFlags, faccessat};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Default directory of pins.
pub const DIRECTORY: &str = "/sys/fs/bpf/flowgauge";

const LINK: &str = "link";
const PROGRAM: &str = "program";
const NOTE: &str = "note";

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

/// Locked pin directory of one counting point.
pub(super) struct Pins {
    directory: PathBuf,
    spot: Spot,
    /// File that holds the lock.
    lock: File,
    /// Array of the note, for pinning it again.
    note: Option<MapData>,
    /// Whether the pins stay when this is dropped.
    pub(super) leave: bool,
}

/// Adopted pins.
pub(super) struct Found {
    pub(super) note: Note,
    pub(super) notes: NoteArray,
    pub(super) link: Link,
    pub(super) mode: super::Mode,
}

impl Pins {
    /// Locks the directory of a counting point, creating it if needed.
    pub(super) fn claim(root: &Path, place: &Place, index: u32) -> Result<Self, Error> {
        supported(root)?;
        let spot = Spot::here(place.direction, index);
        let directory = root.join(spot.name());
        fs::create_dir_all(&directory)
            .map_err(|error| refused(&directory, "make this directory", error))?;
        // Checked again: another user may have created it first.
        supported(&directory)?;
        Self::lock(directory.clone(), spot).map_err(|error| match error {
            TryLockError::WouldBlock => {
                Error::Pins { directory: directory.clone(), problem: at_work(place), source: None }
            }
            TryLockError::Error(error) => refused(&directory, "lock this directory", error),
        })
    }

    fn lock(directory: PathBuf, spot: Spot) -> Result<Self, TryLockError> {
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
        self.path(LINK).exists() || self.path(PROGRAM).exists()
    }

    /// Opens the pinned link or filter.
    fn open(&self) -> io::Result<Link> {
        let program = self.path(PROGRAM);
        if !program.exists() {
            return syscall::open(&self.path(LINK)).map(Link::Bpf);
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
        .map(Link::Classifier)
    }

    /// Returns the owner name of filters that belong to these pins.
    pub(super) fn owner(&self) -> Owner {
        Owner::pins(&self.directory)
    }

    /// Returns whether the program is no longer attached to an interface.
    fn is_dead(&self) -> bool {
        self.open()
            .and_then(|link| link.attachment())
            .is_ok_and(|attachment| attachment.index.is_none())
    }

    /// Returns the counting point, by the interface's current name or, if it is gone or elsewhere,
    /// by its name when counting began.
    fn place(&self) -> Place {
        let spot = self.spot;
        let now = if spot.is_here() { device::name(spot.index) } else { None };
        let noted = || {
            self.notes()
                .ok()
                .and_then(|notes| notes.get(&0, 0).ok())
                .map(|Plain(note)| note.interface())
        };
        let interface = now.or_else(noted).unwrap_or_else(|| format!("interface {}", spot.index));
        Place { interface, direction: spot.direction }
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

    /// Pins everything except the link.
    pub(super) fn keep(
        &mut self,
        arrays: Vec<&MapData>,
        notes: NoteArray,
    ) -> Result<NoteArray, Error> {
        notes.pin(self.path(NOTE)).map_err(|error| self.failed("pin the note", &error))?;
        self.note = Some(self.note_map()?);
        self.mend(None, arrays)?;
        self.notes()
    }

    /// Restores missing pins. Returns whether any were missing.
    pub(super) fn mend(
        &mut self,
        link: Option<&Link>,
        arrays: Vec<&MapData>,
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
        let arrays = KEPT.into_iter().map(pin_of_array).zip(arrays);
        for (name, map) in arrays.chain(self.note.as_ref().map(|note| (NOTE.to_owned(), note))) {
            let path = self.path(&name);
            if !path.exists() {
                map.pin(path).map_err(|error| self.failed("pin an array", &error))?;
                mended = true;
            }
        }
        if let Some(link) = link
            && !self.path(pin_of(link)).exists()
        {
            self.pin(link)?;
            mended = true;
        }
        Ok(mended)
    }

    /// Pins the link, replacing an earlier one. The program of a filter was pinned when it was
    /// attached.
    pub(super) fn pin(&self, link: &Link) -> Result<(), Error> {
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
        let Spot { direction, index, .. } = self.spot;
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

    fn note_map(&self) -> Result<MapData, Error> {
        MapData::from_pin(self.path(NOTE)).map_err(|error| self.failed("read the note", &error))
    }

    /// Returns the paths of the pinned arrays.
    pub(super) fn arrays(&self) -> Pinned {
        Pinned(KEPT.map(|array| (array, self.path(&pin_of_array(array)))).into())
    }

    fn notes(&self) -> Result<NoteArray, Error> {
        let opened = Map::from_map_data(self.note_map()?).and_then(NoteArray::try_from);
        opened.map_err(|error| self.failed("read the note", &error))
    }

    /// Opens the pins if they match `wanted` and, if `hook` is given, that hook.
    pub(super) fn adopt(
        &mut self,
        place: &Place,
        wanted: &Note,
        hook: Option<super::Mode>,
    ) -> Result<Found, Error> {
        let notes = self.notes()?;
        let Plain(note) = notes.get(&0, 0).map_err(|error| self.failed("read the note", &error))?;
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
        for array in KEPT.map(|array| self.path(&pin_of_array(array))) {
            if !array.exists() {
                return Err(self.failed(
                    "adopt",
                    &io::Error::other(format!("{} is missing", array.display())),
                ));
            }
        }
        let link = self.open().map_err(|error| self.failed("open the link", &error))?;
        self.note = Some(self.note_map()?);
        Ok(Found { note, notes, link, mode })
    }
}

/// Returns the name of an array's pin.
fn pin_of_array(array: &str) -> String {
    array.to_ascii_lowercase()
}

/// Returns the name of the pin that keeps a program attached.
fn pin_of(link: &Link) -> &'static str {
    match link {
        Link::Bpf(_) => LINK,
        Link::Classifier(_) => PROGRAM,
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

/// A counting program without a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its counting point.
    pub place: Place,
    /// Start of counting, in nanoseconds since the Unix epoch, if readable.
    pub since_ns: Option<u64>,
    /// Whether a run can adopt its counts. The counts of a filter without pins are lost.
    pub adoptable: bool,
}

/// Directory key of a counting point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    direction: Direction,
    index: u32,
    namespace: u64,
}

impl Spot {
    /// Returns the key of an interface in this network namespace.
    fn here(direction: Direction, index: u32) -> Self {
        Spot { direction, index, namespace: network_namespace() }
    }

    fn is_here(&self) -> bool {
        self.namespace == network_namespace()
    }

    /// Returns the directory's name; the BPF file system forbids dots.
    fn name(&self) -> String {
        format!("{}-{}-{}", self.direction.name(), self.index, self.namespace)
    }

    fn of(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let direction = parts.next()?;
        let direction = Direction::ALL.into_iter().find(|known| known.name() == direction)?;
        let spot = Spot {
            direction,
            index: parts.next()?.parse().ok()?,
            namespace: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(spot)
    }
}

/// Returns the directories of counting points below `root`.
fn spots(root: &Path) -> Result<Vec<(PathBuf, Spot)>, Error> {
    let failed = |error: io::Error| refused(root, "list this directory", error);
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut spots = Vec::new();
    for entry in entries {
        let directory = entry.map_err(failed)?.path();
        if let Some(spot) = directory.file_name().and_then(|name| Spot::of(name.to_str()?)) {
            spots.push((directory, spot));
        }
    }
    Ok(spots)
}

/// Returns the programs that dead processes left counting below `root` on interfaces of this
/// network namespace. Changes nothing.
///
/// # Errors
/// [`Error::Pins`] if the directory cannot be listed.
pub fn left(root: &Path) -> Result<Vec<Left>, Error> {
    let mut left = Vec::new();
    for (directory, spot) in spots(root)?.into_iter().filter(|(_, spot)| spot.is_here()) {
        // A run that starts while this lock is held would fail.
        let Ok(mut pins) = Pins::lock(directory, spot) else { continue };
        pins.leave = true;
        if pins.is_counting() {
            let note = pins.notes().ok().and_then(|notes| notes.get(&0, 0).ok());
            left.push(Left {
                place: pins.place(),
                since_ns: note.map(|Plain(note)| note.since_ns),
                adoptable: true,
            });
        }
    }
    left.extend(clsact::left().into_iter().map(|place| Left {
        place,
        since_ns: None,
        adoptable: false,
    }));
    left.sort_by(|one, other| one.place.cmp(&other.place));
    Ok(left)
}

/// Returns the hash secret of a program that a dead process left counting at one of these counting
/// points, for the adopting process.
#[must_use]
pub fn kept_key(root: &Path, places: &[Place]) -> Option<HashKey> {
    let spots = spots(root).unwrap_or_default();
    let wanted = |spot: &Spot| {
        let is = |place: &Place| {
            place.direction == spot.direction && device::index(&place.interface) == Some(spot.index)
        };
        spot.is_here() && places.iter().any(is)
    };
    spots.into_iter().filter(|(_, spot)| wanted(spot)).find_map(|(directory, _)| {
        let note = MapData::from_pin(directory.join(NOTE)).and_then(Map::from_map_data).ok()?;
        let Plain(note) = NoteArray::try_from(note).ok()?.get(&0, 0).ok()?;
        note.secret.key().filter(|_| note.version == VERSION)
    })
}

/// Removes pins of deleted interfaces that had the same name. Returns whether there were any.
pub(super) fn forget(root: &Path, place: &Place, index: u32) -> bool {
    let mut forgotten = false;
    let mut spots = spots(root).unwrap_or_default();
    spots.retain(|(_, spot)| {
        spot.is_here() && spot.direction == place.direction && spot.index != index
    });
    for (directory, spot) in spots {
        let Ok(mut pins) = Pins::lock(directory, spot) else { continue };
        pins.leave = !(pins.is_dead() && pins.place() == *place);
        forgotten |= !pins.leave;
    }
    forgotten
}

/// Detaches the programs that dead processes left counting below `root`, on one interface or on all
/// of this network namespace. Also removes pins of deleted interfaces, and filters without a known
/// owner. Returns the names of the counting points.
///
/// # Errors
/// [`Error::Pins`] if a process is still active there, or the system refuses; earlier removals
/// stay.
pub fn detach(root: &Path, interface: Option<&str>) -> Result<Vec<String>, Error> {
    let mut ended = Vec::new();
    for (directory, spot) in spots(root)? {
        let named = |place: &Place| interface.is_none_or(|interface| interface == place.interface);
        let mut pins = match Pins::lock(directory.clone(), spot) {
            Ok(pins) => pins,
            Err(TryLockError::WouldBlock) if spot.is_here() => {
                let interface = device::name(spot.index).unwrap_or_default();
                let place = Place { interface, direction: spot.direction };
                if !named(&place) {
                    continue;
                }
                return Err(Error::Pins { directory, problem: at_work(&place), source: None });
            }
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => {
                return Err(refused(&directory, "lock this directory", error));
            }
        };
        pins.leave = true;
        let place = pins.place();
        // In another network namespace the name may belong to another interface, with an active
        // process.
        if !named(&place) || !spot.is_here() && !pins.is_dead() {
            continue;
        }
        let counting = pins.is_counting();
        pins.clear().map_err(|error| refused(&directory, "remove pins", error))?;
        pins.leave = false;
        if counting {
            ended.push(place.to_string());
        }
    }
    let orphans = clsact::remove_left(interface)
        .map_err(|error| refused(root, "remove filters without pins", error))?;
    ended.extend(orphans.iter().map(ToString::to_string));
    ended.sort();
    Ok(ended)
}

fn at_work(place: &Place) -> String {
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

    #[test]
    fn directories_lead_back_to_their_places() {
        for direction in Direction::ALL {
            for spot in
                [Spot { direction, index: 3, namespace: u64::MAX }, Spot::here(direction, 17)]
            {
                assert!(!spot.name().contains('.'));
                assert_eq!(Spot::of(&spot.name()), Some(spot));
            }
        }
        for name in
            ["rubbish", "ingress", "ingress-3", "ingress-3-1-1", "eth0-ingress", "ingress-x-1"]
        {
            assert_eq!(Spot::of(name), None);
        }
    }

    #[test]
    fn a_lock_ends_with_its_owner_despite_copies() {
        let directory = std::env::temp_dir().join(format!("flowgauge-lock-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let locked = || -> Result<Pins, TryLockError> {
            let mut pins = Pins::lock(directory.clone(), Spot::here(Direction::Ingress, 1))?;
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
