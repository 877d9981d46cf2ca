//! Options of the backend, and the programs that they select.

use super::grace::WaitMethod;
use super::mode::Mode;
use super::object;
use super::set::ProgramSets;
use crate::place::Direction;
use flowgauge_core::kernel::MemoryLayout;
use flowgauge_core::{BANKS, Filter, HashMode, Link, Settings, Tabulation};
use std::io;
use std::path::PathBuf;

/// Options of an XDP backend.
#[derive(Clone, Debug)]
pub struct Options {
    /// Measurements and their parameters.
    pub settings: Settings,
    /// Hook to count in; `None` for the first that works: native XDP, on virtual devices and on
    /// hardware that merges packets the TCX hook. With an XDP mode, departing packets are counted on
    /// the TCX hook or, on a kernel without it, by a classifier.
    pub mode: Option<Mode>,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// State that outlives this process; `None` for nothing.
    pub pins: Option<Retention>,
    /// Action of the ingress program.
    pub task: Task,
    /// Method by which rotations wait for packets in flight; `None` for the first that works.
    pub wait: Option<WaitMethod>,
    /// Size of the ring for delay samples of each counting point, in bytes; rounded to a power
    /// of two of pages.
    pub delay_sample_ring: u32,
    /// Sets of programs that this backend shares with others, so that programs of equal settings are
    /// loaded and verified once; `None` for programs of its own, which take a little less time a
    /// packet. Without effect on tasks other than [`Task::Count`], with delay samples, and behind a
    /// filter.
    pub sets: Option<ProgramSets>,
    /// Identifier of the run, which the next one gets if it adopts the state of this one; empty for
    /// none. One of more than 64 bytes is not stored.
    pub run: String,
}

/// Action of an ingress program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// Counts packets and passes them on unchanged.
    #[default]
    Count,
    /// Counts packets and drops them: for benchmarks.
    CountAndDrop,
    /// Drops packets without counting: a baseline for benchmarks.
    Drop,
}

impl Task {
    pub(super) fn verdict(self) -> u32 {
        const XDP_DROP: u32 = 1;
        const XDP_PASS: u32 = 2;
        if self == Task::Count { XDP_PASS } else { XDP_DROP }
    }
}

/// Room for 100,000 delay samples, enough for ten reads of the ring a second.
const DELAY_SAMPLE_RING: u32 = 1 << 22;

impl Options {
    /// Creates options that count in the best available hook and retain nothing.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Options {
            settings,
            mode: None,
            slot_ns: 1_000_000,
            pins: None,
            task: Task::Count,
            wait: None,
            delay_sample_ring: DELAY_SAMPLE_RING,
            sets: None,
            run: String::new(),
        }
    }

    /// Returns the bytes of the kernel's arrays that counting at this many counting points of a run
    /// takes on this machine. `is_filtered`: whether packets pass a filter.
    ///
    /// # Errors
    /// The number of possible CPUs is unknown.
    pub fn map_bytes(&self, places: usize, is_filtered: bool) -> io::Result<u64> {
        let common = MemoryLayout::of(&self.settings).together as usize;
        let counting = MemoryLayout::memory(Some(&self.settings), super::cpus()?) - common;
        let filters = if is_filtered { BANKS * size_of::<Filter>() } else { 0 };
        let ring = if self.settings.delay.samples { self.delay_sample_ring as usize } else { 0 };
        let each = counting + filters + ring + size_of::<Tabulation>();
        Ok((places * each + common) as u64)
    }

    /// Returns the requested hook for packets in a direction.
    pub(super) fn wanted(&self, direction: Direction) -> Option<Mode> {
        self.mode.filter(|mode| direction == Direction::Ingress || !mode.is_xdp())
    }

    /// Returns the requested hook or, without a request, the first that is tried on hardware: for
    /// programs that run without an interface, and until one is there.
    pub(super) fn usual(&self, direction: Direction) -> Mode {
        let best = if direction == Direction::Ingress { Mode::Native } else { Mode::Tcx };
        self.wanted(direction).unwrap_or(best)
    }

    /// Returns the program for packets in one piece and, if it exists, the one for packets in
    /// several pieces, in the order of attempts: drivers deliver packets in one piece unless they
    /// are large. In the generic path, pieces would blind every classifier on the interface: the
    /// kernel copies them, and classifiers then see no Ethernet header (Linux 6.18).
    pub(super) fn programs(&self, mode: Mode, link: Link) -> Vec<&'static str> {
        let plain = self.program(mode, link);
        let pieces = [(object::XDP, object::XDP_FRAGS), (object::XDP_ALL, object::XDP_ALL_FRAGS)]
            .into_iter()
            .flat_map(|(plain, pieces)| plain.into_iter().zip(pieces))
            .find(|(whole, _)| *whole == plain);
        let Some((_, pieces)) = pieces else { return vec![plain] };
        vec![plain, pieces]
    }

    /// Returns the program for packets in one piece, on an interface with this link layer.
    pub(super) fn program(&self, mode: Mode, link: Link) -> &'static str {
        let [public, keyed] = match (!mode.is_xdp(), self.settings.beyond_cardinality()) {
            (false, _) if self.task == Task::Drop => return object::EMPTY,
            (false, _) if link == Link::Ip => object::XDP_IP,
            (false, false) => object::XDP,
            (false, true) => object::XDP_ALL,
            (true, _) if link == Link::Ip => object::TCX_IP,
            (true, false) => object::TCX,
            (true, true) => object::TCX_ALL,
        };
        if self.settings.hash == HashMode::Keyed { keyed } else { public }
    }
}

/// Options for programs and counts that stay in the kernel when this process is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Directory for the pins, on a BPF file system.
    pub directory: PathBuf,
    /// Whether to adopt what a dead process left counting, if there is any.
    pub adopt: bool,
    /// Whether to leave everything in place at a regular end too.
    pub leave: bool,
}
