//! What stays in the kernel when a controller dies, and how the next one goes on with it.
//!
//! Every place that is counted has a directory of pins on the BPF file system: `link` keeps the program attached, `cores` is the
//! array it counts in, `shared` the sketches that all CPUs count in, and `note` says how it counts and how far the controller has come. Whoever works with the directory holds
//! a lock on it, which the kernel lifts when the process dies.
//!
//! The note changes as a whole, by one system call. A controller may be killed between any two steps of a rotation:
//!
//! 1. note: the other bank is active, the old one is unpublished;
//! 2. every CPU is told; packets in flight leave the old bank; it is read; its window is published;
//! 3. note: nothing is unpublished;
//! 4. the old bank is cleared.
//!
//! So whoever takes over repeats the step that may be missing: after 1 it tells the CPUs again and finds the unpublished window
//! in the old bank; after 3 it clears the idle bank. A window is published twice, with the same number, if the controller is killed
//! between publishing it and step 3; none is ever lost.

use super::link::Link;
use super::object::{NoteArray, Plain};
use crate::error::Error;
use crate::snapshot::Place;
use aya::maps::{Map, MapData};
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{Core, HashMode, KeyKind, Precision, Settings, membership};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where pins are kept unless told otherwise.
pub const DIRECTORY: &str = "/sys/fs/bpf/flowgauge";

const LINK: &str = "link";
const CORES: &str = "cores";
const SHARED: &str = "shared";
const NOTE: &str = "note";

/// Changes whenever `Core`, `Note` or the programs change in a way that another controller would misread.
const VERSION: u32 = 3;

/// How a program counts, and how far its controller has come. All bits are valid, and there is no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Note {
    version: u32,
    core_bytes: u32,
    mode: u32,
    key: u32,
    hash: u32,
    precision: u32,
    /// Settings of all measurements that are beside distinct flows.
    others: [u32; OTHERS],
    seed: u64,
    slot_ns: u64,
    /// As in the programs' global of that name.
    boot_ns: u64,
    network_namespace: u64,
    pub(super) interface_index: u32,
    pub(super) active: u32,
    /// Whether the bank that is not active holds a window that nobody has published yet.
    pub(super) unpublished: u64,
    /// When counting began, and when either bank became active, in nanoseconds since the Unix epoch.
    pub(super) since_ns: u64,
    pub(super) opened_ns: [u64; 2],
    /// Number of the first window that was not published yet.
    pub(super) next_window: u64,
    /// Banks in which packets may be missing, a bit each.
    pub(super) gaps: u64,
}

/// What a controller wants to count, or finds counted.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    pub(super) settings: Settings,
    pub(super) seed: u64,
    pub(super) slot_ns: u64,
    pub(super) boot_ns: u64,
}

impl Note {
    pub(super) fn new(identity: &Identity, interface_index: u32, now_ns: u64) -> Self {
        let cardinality::Settings { mode, key, hash, precision } = identity.settings.cardinality;
        Note {
            version: VERSION,
            core_bytes: size_of::<Core>() as u32,
            mode: mode as u32,
            key: key as u32,
            hash: hash as u32,
            precision: precision.bits(),
            others: others(&identity.settings),
            seed: identity.seed,
            slot_ns: identity.slot_ns,
            boot_ns: identity.boot_ns,
            network_namespace: network_namespace(),
            interface_index,
            active: 0,
            unpublished: 0,
            since_ns: now_ns,
            opened_ns: [now_ns; 2],
            next_window: 0,
            gaps: 0,
        }
    }

    /// Makes the other bank active.
    pub(super) fn flip(&mut self, now_ns: u64) {
        self.active ^= 1;
        self.unpublished = 1;
        self.opened_ns[self.active as usize & 1] = now_ns;
    }

    /// When the windows began that were not published yet, oldest first.
    pub(super) fn open_windows(&self) -> Vec<u64> {
        let active = self.active as usize & 1;
        let closed = (self.unpublished != 0).then_some(self.opened_ns[active ^ 1]);
        closed.into_iter().chain([self.opened_ns[active]]).collect()
    }

    /// Why a controller that would write `wanted` cannot go on with this note, in the words of its options.
    fn difference(&self, wanted: &Note) -> Option<String> {
        if (self.version, self.core_bytes) != (wanted.version, wanted.core_bytes) {
            return Some("it was started by another version of flowgauge".to_owned());
        }
        if (self.network_namespace, self.interface_index) != (wanted.network_namespace, wanted.interface_index) {
            return Some("it counted at another interface of this name, which is gone".to_owned());
        }
        let options = [
            ("--measure and --staggered", self.mode, wanted.mode, mode as fn(u32) -> String),
            ("--key", self.key, wanted.key, key),
            ("--hash", self.hash, wanted.hash, hash),
            ("--registers", self.precision, wanted.precision, registers),
        ];
        if let Some((option, has, wants, name)) = options.into_iter().find(|(_, has, wants, _)| has != wants) {
            return Some(format!("it counts with {option} {}, not {}", name(has), name(wants)));
        }
        if self.others != wanted.others {
            return Some("it measures something else, or with other keys or sketches".to_owned());
        }
        if self.seed != wanted.seed {
            return Some(format!("it counts with --seed {}, not {}", self.seed, wanted.seed));
        }
        if self.mode == Mode::Staggered as u32 {
            if self.slot_ns != wanted.slot_ns {
                return Some("it counts with another --staggered time".to_owned());
            }
            if self.boot_ns.abs_diff(wanted.boot_ns) > self.slot_ns / 2 {
                return Some("the clock was set since it began to count".to_owned());
            }
        }
        None
    }
}

/// Room for the settings of measurements; even, so that what follows is aligned.
const OTHERS: usize = 6;

fn others(settings: &Settings) -> [u32; OTHERS] {
    let Settings { entropy, frequency, membership, heavy, .. } = settings;
    let sketches = entropy.iter().chain([frequency]);
    let sketches =
        sketches.map(|sketch| [sketch.mode as u8, sketch.key as u8, sketch.shape.rows() as u8, sketch.shape.column_bits() as u8]);
    let membership::Settings { on, key, shape } = *membership;
    let filter = [u8::from(on), key as u8, shape.rows() as u8, shape.row_bits() as u8];
    let table = [heavy.algorithm as u8, heavy.key as u8, heavy.unit as u8, heavy.slots_log2];
    let mut others = [0; OTHERS];
    others.iter_mut().zip(sketches.chain([filter, table])).for_each(|(word, bytes)| *word = u32::from_ne_bytes(bytes));
    others
}

fn mode(value: u32) -> String {
    let names = [(Mode::Off, "none"), (Mode::Windowed, "cardinality"), (Mode::Staggered, "staggered")];
    named(value, names.into_iter().map(|(mode, name)| (mode as u32, name)))
}

fn key(value: u32) -> String {
    named(value, KeyKind::ALL.into_iter().map(|key| (key as u32, key.name())))
}

fn hash(value: u32) -> String {
    named(value, HashMode::ALL.into_iter().map(|hash| (hash as u32, hash.name())))
}

fn named(value: u32, names: impl IntoIterator<Item = (u32, &'static str)>) -> String {
    names.into_iter().find(|(number, _)| *number == value).map_or_else(|| value.to_string(), |(_, name)| name.to_owned())
}

fn registers(value: u32) -> String {
    u8::try_from(value)
        .ok()
        .and_then(Precision::new)
        .map_or_else(|| value.to_string(), |precision| precision.registers().to_string())
}

fn network_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino())
}

/// Whether pins can be kept in a directory: it or its nearest existing parent is on a BPF file system.
///
/// # Errors
/// [`Error::Pins`], with what to do.
pub fn supported(directory: &Path) -> Result<(), Error> {
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(directory);
    match statfs(existing).map(|file_system| file_system.filesystem_type() == BPF_FS_MAGIC) {
        Ok(true) => Ok(()),
        _ => Err(Error::Pins {
            directory: directory.to_owned(),
            problem: format!("{} is not on a BPF file system; `mount -t bpf bpf /sys/fs/bpf` mounts one", existing.display()),
        }),
    }
}

/// The locked directory of one place.
pub(super) struct Pins {
    directory: PathBuf,
    /// Holds the lock.
    lock: File,
    /// The note's array, to pin it again.
    note: Option<MapData>,
    /// Whether the pins stay when this is dropped.
    pub(super) leave: bool,
}

/// What was found pinned.
pub(super) struct Found {
    pub(super) note: Note,
    pub(super) notes: NoteArray,
    pub(super) link: Link,
}

impl Pins {
    /// Locks the directory of a place, making it if it is not there.
    pub(super) fn claim(root: &Path, place: &Place) -> Result<Self, Error> {
        supported(root)?;
        let directory = root.join(name(place));
        let failed = |what: &str, error: &io::Error| Error::Pins { directory: directory.clone(), problem: refused(what, error) };
        fs::create_dir_all(&directory).map_err(|error| failed("make this directory", &error))?;
        Self::lock(directory.clone()).map_err(|error| match error {
            TryLockError::WouldBlock => {
                let problem = format!("another flowgauge is counting {place}; stop that one first");
                Error::Pins { directory: directory.clone(), problem }
            }
            TryLockError::Error(error) => failed("lock this directory", &error),
        })
    }

    fn lock(directory: PathBuf) -> Result<Self, TryLockError> {
        let lock = File::open(&directory).map_err(TryLockError::Error)?;
        lock.try_lock()?;
        Ok(Pins { directory, lock, note: None, leave: false })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whether a program is counting here, attached by a process that is gone. What else is here is of no use to anyone.
    pub(super) fn is_counting(&self) -> bool {
        self.path(LINK).exists()
    }

    /// Removes what was pinned, the link first: without it the rest is rubbish.
    pub(super) fn clear(&self) -> io::Result<()> {
        // An interface that is gone has taken the program with it.
        if self.is_counting()
            && let Err(error) = Link::open(&self.path(LINK)).and_then(|link| link.detach())
        {
            tracing::debug!("{}: not detached before it is unpinned: {error}", self.directory.display());
        }
        for name in [LINK, NOTE, CORES, SHARED] {
            match fs::remove_file(self.path(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn failed(&self, what: &str, error: &dyn std::error::Error) -> Error {
        Error::Pins { directory: self.directory.clone(), problem: format!("cannot {what}: {}", chain(error)) }
    }

    /// Pins all but the link.
    pub(super) fn keep(&mut self, cores: &MapData, shared: &MapData, notes: NoteArray) -> Result<NoteArray, Error> {
        notes.pin(self.path(NOTE)).map_err(|error| self.failed("pin the note", &error))?;
        self.note = Some(self.note_map()?);
        self.mend(None, cores, shared)?;
        self.notes()
    }

    /// Pins what is not pinned, or not any more. Gives whether there was anything.
    pub(super) fn mend(&mut self, link: Option<&Link>, cores: &MapData, shared: &MapData) -> Result<bool, Error> {
        let number = |found: io::Result<fs::Metadata>| found.map(|found| found.ino()).ok();
        let removed = number(fs::metadata(&self.directory)) != number(self.lock.metadata());
        if removed {
            fs::create_dir_all(&self.directory).map_err(|error| self.failed("make this directory", &error))?;
            let lock = File::open(&self.directory).map_err(|error| self.failed("open this directory", &error))?;
            lock.try_lock().map_err(|error| self.failed("lock this directory", &error))?;
            self.lock = lock;
        }
        let mut mended = removed;
        for (name, map) in [(CORES, Some(cores)), (SHARED, Some(shared)), (NOTE, self.note.as_ref())] {
            let path = self.path(name);
            if let Some(map) = map.filter(|_| !path.exists()) {
                map.pin(path).map_err(|error| self.failed("pin an array", &error))?;
                mended = true;
            }
        }
        if let Some(link) = link.filter(|_| !self.is_counting()) {
            link.pin(&self.link()).map_err(|error| self.failed("pin the link", &error))?;
            mended = true;
        }
        Ok(mended)
    }

    fn note_map(&self) -> Result<MapData, Error> {
        MapData::from_pin(self.path(NOTE)).map_err(|error| self.failed("read the note", &error))
    }

    /// Where the link is to be pinned.
    pub(super) fn link(&self) -> PathBuf {
        self.path(LINK)
    }

    /// Where the arrays are pinned that programs count in: the cores and the shared sketches.
    pub(super) fn arrays(&self) -> [PathBuf; 2] {
        [CORES, SHARED].map(|name| self.path(name))
    }

    fn notes(&self) -> Result<NoteArray, Error> {
        let opened = Map::from_map_data(self.note_map()?).and_then(NoteArray::try_from);
        opened.map_err(|error| self.failed("read the note", &error))
    }

    /// What is pinned, if it is what `wanted` would count.
    pub(super) fn adopt(&mut self, place: &Place, wanted: &Note) -> Result<Found, Error> {
        let notes = self.notes()?;
        let Plain(note) = notes.get(&0, 0).map_err(|error| self.failed("read the note", &error))?;
        if let Some(difference) = note.difference(wanted) {
            let problem = format!("cannot adopt what counts {place}: {difference}; `flowgauge detach` ends it");
            return Err(Error::Pins { directory: self.directory.clone(), problem });
        }
        for array in self.arrays() {
            if !array.exists() {
                return Err(self.failed("adopt", &io::Error::other(format!("{} is missing", array.display()))));
            }
        }
        let link = Link::open(&self.link()).map_err(|error| self.failed("open the link", &error))?;
        self.note = Some(self.note_map()?);
        Ok(Found { note, notes, link })
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if self.leave {
            return;
        }
        if let Err(error) = self.clear() {
            tracing::warn!("cannot remove pins in {}: {error}", self.directory.display());
        }
        // Fails where others are in use, and leaves those.
        let _ = fs::remove_dir(&self.directory);
        let _ = self.directory.parent().map(fs::remove_dir);
    }
}

/// A program that counts and has no controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Where it counts.
    pub place: Place,
    /// Since when, in nanoseconds since the Unix epoch, if that can be read.
    pub since_ns: Option<u64>,
}

/// What processes that are gone left counting below `root`. Nothing is changed.
///
/// # Errors
/// [`Error::Pins`] if the directory cannot be listed.
pub fn left(root: &Path) -> Result<Vec<Left>, Error> {
    let mut left = Vec::new();
    for (directory, place) in places(root)? {
        // A run that begins in the moment for which this lock is held would find the place taken.
        let Ok(mut pins) = Pins::lock(directory) else { continue };
        pins.leave = true;
        if pins.is_counting() {
            let note = pins.notes().ok().and_then(|notes| notes.get(&0, 0).ok());
            left.push(Left { place, since_ns: note.map(|Plain(note)| note.since_ns) });
        }
    }
    left.sort_by(|one, other| one.place.cmp(&other.place));
    Ok(left)
}

/// The places that have a directory below `root`.
fn places(root: &Path) -> Result<Vec<(PathBuf, Place)>, Error> {
    let failed = |error: io::Error| Error::Pins { directory: root.to_owned(), problem: refused("list this directory", &error) };
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut places = Vec::new();
    for entry in entries {
        let directory = entry.map_err(failed)?.path();
        if let Some(place) = directory.file_name().and_then(|name| place_of(name.to_str()?)) {
            places.push((directory, place));
        }
    }
    Ok(places)
}

/// Ends what processes that are gone left counting below `root`, on one interface or on all. Returns the names of the places.
///
/// # Errors
/// [`Error::Pins`] if a process is still at work there, or the system refuses; what comes before is ended.
pub fn detach(root: &Path, interface: Option<&str>) -> Result<Vec<String>, Error> {
    let failed = |what: &str, error: &io::Error| Error::Pins { directory: root.to_owned(), problem: refused(what, error) };
    let mut ended = Vec::new();
    for (_, place) in places(root)? {
        if interface.is_some_and(|interface| interface != place.interface) {
            continue;
        }
        let pins = Pins::claim(root, &place)?;
        let counting = pins.is_counting();
        pins.clear().map_err(|error| failed("remove pins", &error))?;
        if counting {
            ended.push(place.to_string());
        }
    }
    ended.sort();
    Ok(ended)
}

/// A file name: the BPF file system takes no dots, and interfaces have no colons.
fn name(place: &Place) -> String {
    format!("{}-{}", place.interface.replace('.', ":"), place.direction.name())
}

fn place_of(name: &str) -> Option<Place> {
    let (interface, direction) = name.rsplit_once('-')?;
    let direction = crate::Direction::ALL.into_iter().find(|known| known.name() == direction)?;
    Some(Place { interface: interface.replace(':', "."), direction })
}

fn refused(what: &str, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "; it takes root, or the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
        _ => "",
    };
    format!("cannot {what}: {error}{advice}")
}

/// An error with its causes, which aya leaves to whoever prints it.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

    #[test]
    fn file_names_lead_back_to_their_places() {
        for interface in ["eth0", "eth0.100", "a-b-ingress", "br:x"] {
            for direction in Direction::ALL {
                let place = Place { interface: interface.to_owned(), direction };
                assert!(!name(&place).contains('.'));
                if !interface.contains(':') {
                    assert_eq!(place_of(&name(&place)), Some(place));
                }
            }
        }
        assert_eq!(place_of("rubbish"), None);
    }

    fn note(change: impl FnOnce(&mut Identity)) -> Note {
        let settings = Settings::default();
        let mut identity = Identity { settings, seed: 1, slot_ns: 1000, boot_ns: 5_000 };
        change(&mut identity);
        Note::new(&identity, 3, 10)
    }

    #[test]
    fn differences_are_told_in_the_words_of_options() {
        let kept = note(|_| {});
        let told = |change: fn(&mut Identity)| kept.difference(&note(change)).unwrap_or_default();
        assert_eq!(told(|_| {}), "");
        assert_eq!(told(|identity| identity.settings.cardinality.key = KeyKind::Dst), "it counts with --key src, not dst");
        assert_eq!(told(|identity| identity.seed = 7), "it counts with --seed 1, not 7");
        let other = told(|identity| identity.settings.cardinality.precision = Precision::MIN);
        assert_eq!(other, "it counts with --registers 2048, not 16");
        let other = told(|identity| identity.settings.cardinality.mode = Mode::Staggered);
        assert_eq!(other, "it counts with --measure and --staggered cardinality, not staggered");
        assert_eq!(told(|identity| identity.slot_ns = 7), "", "slots matter to staggered registers only");
        let moved = Note { interface_index: 4, ..kept };
        assert!(kept.difference(&moved).unwrap_or_default().contains("which is gone"));
    }

    #[test]
    fn a_flipped_note_has_two_open_windows() {
        let mut kept = note(|_| {});
        assert_eq!(kept.open_windows(), [10]);
        kept.flip(20);
        assert_eq!((kept.active, kept.open_windows()), (1, vec![10, 20]));
        kept.unpublished = 0;
        kept.flip(30);
        assert_eq!((kept.active, kept.open_windows()), (0, vec![20, 30]));
    }
}
