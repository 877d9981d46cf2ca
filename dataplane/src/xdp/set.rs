//! Sets of programs: loaded and verified once, and used by all counting points of a run that
//! measure the same.
//!
//! Every member of a set has memory of its own, in arrays like those of programs that are made for
//! one counting point. The set has an array of maps for each of them, with the member's array at the
//! member's number. At the member a [small program](super::entry) is attached that notes the member
//! and continues with the first program of the set. A number is used once only: packets of a member
//! that has left are not counted, wherever they are.
//!
//! A packet pays for the small program and for two more look-ups an array. So one counting point, or
//! a few of them, have programs of their own. So do those behind a filter: with all measurements and
//! the look-up of a member's filter the verifier takes 20 s to refuse them.

use super::object::{self, LOCK, OF_MEMBERS, SET_CHAINS};
use super::syscall::{new_array_of_maps, put_map, remove_map};
use super::verifier::NotLoaded;
use crate::hash_key::HashWords;
use crate::place::Direction;
use aya::maps::{MapData, MapError};
use aya::programs::ProgramError;
use aya::{Ebpf, EbpfError};
use flowgauge_core::cardinality;
use flowgauge_core::kernel::{Config, CurrentMember};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Maximum number of members that a set has had.
const MAX_MEMBERS: u32 = 4096;

/// Maximum difference of the clocks of a set and of a member that begins later, in nanoseconds:
/// measurements use differences of times only, but for staggered registers.
const MAX_CLOCK_DIFFERENCE_NS: u64 = 1_000_000_000;

/// Sets of programs of a run. Clones share them.
#[derive(Clone, Default)]
pub struct ProgramSets(Arc<Mutex<Vec<Weak<ProgramSet>>>>);

impl fmt::Debug for ProgramSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgramSets")
    }
}

impl ProgramSets {
    /// Returns a set for this configuration, whose clock becomes that of the set.
    pub(super) fn join(
        &self,
        config: &Config,
        tabulation: &HashWords,
        cpus: usize,
    ) -> Result<Arc<ProgramSet>, EbpfError> {
        let ProgramSets(sets) = self;
        let mut sets = sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(|set| set.strong_count() > 0);
        let mut open = sets.iter().filter_map(Weak::upgrade);
        if let Some(set) = open.find(|set| set.suits(config, tabulation)) {
            return Ok(set);
        }
        let set = Arc::new(ProgramSet::open(config, tabulation, cpus)?);
        sets.push(Arc::downgrade(&set));
        Ok(set)
    }
}

/// Programs of several counting points.
pub(super) struct ProgramSet {
    config: Config,
    tabulation: HashWords,
    cpus: usize,
    loaded: Mutex<LoadedObject>,
    /// Names of arrays of members, with the arrays of maps that have them.
    of_members: Vec<(&'static str, OwnedFd)>,
    next: AtomicU32,
}

/// The object, and the first programs that are in their chains: their names as separate programs,
/// and those of the loaded forms.
struct LoadedObject {
    programs: Ebpf,
    callable: Vec<(&'static str, &'static str)>,
}

impl ProgramSet {
    fn open(config: &Config, tabulation: &HashWords, cpus: usize) -> Result<Self, EbpfError> {
        let config = Config { is_set: 1, ..*config };
        let failed = |error: io::Error| EbpfError::from(ProgramError::IOError(error));
        let memory = object::memory(&config.settings, false);
        let mut of_members = Vec::new();
        for array in OF_MEMBERS.into_iter().filter(|array| memory.contains(array)) {
            let like = object::new_memory(array, &config.layout, cpus).map_err(failed)?;
            let maps = new_array_of_maps(array, MAX_MEMBERS, like.as_fd()).map_err(failed)?;
            of_members.push((array, maps));
        }
        let existing: Vec<_> =
            of_members.iter().map(|(array, maps)| (*array, maps.as_fd())).collect();
        let programs = object::load(&config, tabulation, cpus, 0, &existing)?;
        let loaded = Mutex::new(LoadedObject { programs, callable: Vec::new() });
        let (tabulation, next) = (tabulation.clone(), AtomicU32::new(0));
        Ok(ProgramSet { config, tabulation, cpus, loaded, of_members, next })
    }

    /// Returns whether a source with this configuration may become a member.
    fn suits(&self, config: &Config, tabulation: &HashWords) -> bool {
        let boot_ns = self.config.boot_ns;
        let is_staggered = config.settings.cardinality.mode == cardinality::Mode::Staggered;
        let tolerance = if is_staggered { config.slot_ns / 2 } else { MAX_CLOCK_DIFFERENCE_NS };
        Config { is_set: 1, boot_ns, ..*config } == self.config
            && config.boot_ns.abs_diff(boot_ns) <= tolerance
            && self.next.load(Ordering::Relaxed) < MAX_MEMBERS
            && self.tabulation == *tabulation
    }

    /// Returns the start of the kernel's clock, as the programs know it.
    pub(super) fn boot_ns(&self) -> u64 {
        self.config.boot_ns
    }

    /// Returns a new member with empty arrays, but for the existing ones; `None` if the set has had
    /// all its members. `keeps`: whether the arrays will be pinned.
    pub(super) fn member(
        set: &Arc<Self>,
        direction: Direction,
        existing: &[(&'static str, BorrowedFd<'_>)],
        keeps: bool,
    ) -> Result<Option<Member>, MapError> {
        let number = set.next.fetch_add(1, Ordering::Relaxed);
        if number >= MAX_MEMBERS {
            set.next.store(MAX_MEMBERS, Ordering::Relaxed);
            return Ok(None);
        }
        let mut arrays = Vec::new();
        for (array, _) in &set.of_members {
            let found = existing.iter().find(|(name, _)| name == array);
            let descriptor = match found {
                Some((_, descriptor)) => descriptor.try_clone_to_owned()?,
                None => object::new_memory(array, &set.config.layout, set.cpus)?,
            };
            arrays.push((*array, MapData::from_fd(descriptor)?));
        }
        let memory = object::memory(&set.config.settings, false);
        let lock = memory.contains(&LOCK).then_some((LOCK, LOCK));
        let chains = SET_CHAINS.into_iter().filter(|_| keeps);
        let loaded = set.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, array) in lock.into_iter().chain(chains) {
            if let Some(data) = loaded.programs.map(array).and_then(object::data) {
                arrays.push((name, MapData::from_fd(data.fd().as_fd().try_clone_to_owned()?)?));
            }
        }
        drop(loaded);
        let current = CurrentMember::new(number, direction == Direction::Egress);
        Ok(Some(Member { set: Arc::clone(set), current, arrays, stays: false }))
    }
}

/// A counting point that uses the programs of a set.
pub(super) struct Member {
    set: Arc<ProgramSet>,
    /// Number and direction, which its program notes.
    current: CurrentMember,
    arrays: Vec<(&'static str, MapData)>,
    /// Whether its arrays stay in the set when this is dropped.
    stays: bool,
}

impl Member {
    /// Returns its arrays, and the chains of the set.
    pub(super) fn arrays(&self) -> &[(&'static str, MapData)] {
        &self.arrays
    }

    /// Takes the arrays, whose descriptors the set does not need.
    pub(super) fn take_arrays(&mut self) -> Vec<(&'static str, MapData)> {
        std::mem::take(&mut self.arrays)
    }

    /// Puts the arrays, which are prepared, where the programs find them.
    pub(super) fn enter(&self) -> io::Result<()> {
        for (name, maps) in &self.set.of_members {
            let array = self.arrays.iter().find(|(array, _)| array == name);
            if let Some((_, array)) = array {
                put_map(maps.as_fd(), self.current.number, array.fd().as_fd())?;
            }
        }
        Ok(())
    }

    /// Returns the program to attach, which continues with this first program of the set.
    pub(super) fn entry(&self, first: &'static str) -> Result<OwnedFd, NotLoaded> {
        let config = &self.set.config;
        let loaded = &self.set.loaded;
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let LoadedObject { programs, callable } = &mut *loaded;
        let known = callable.iter().find(|(separate, _)| *separate == first);
        let name = match known.copied() {
            Some((_, name)) => name,
            None => {
                let name = object::make_callable(programs, first, &config.settings)?;
                callable.push((first, name));
                name
            }
        };
        let entry = object::entry(programs, name, config, self.current).and_then(|entry| {
            object::without_signals(|| entry.load().map_err(ProgramError::IOError))
        });
        entry.map_err(|error| NotLoaded::new(name, error))
    }

    /// Leaves its arrays in the set for a program that outlives this process.
    pub(super) fn stay(&mut self) {
        self.stays = true;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        for (name, maps) in &self.set.of_members {
            if let Err(error) = remove_map(maps.as_fd(), self.current.number)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::debug!("{name} of a member stays in its set: {error}");
            }
        }
    }
}
