//! One program at one counting point, with the memory it counts in. `start` creates hooks.

mod start;

pub(super) use start::{AttachedHook, ProgramSource, absent, attached, config, detached};

use super::attach::arrays as arrays_of;
use super::kept::KeptArray;
use super::link::ProgramLink;
use super::mapped::{AdmissionShares, Cores, MappedFilters, SharedMemory};
use super::note::{Note, RunName};
use super::object;
use super::pins::Pins;
use super::refusal::{loading, refused};
use super::set::Member;
use super::{Mode, now_ns};
use crate::error::Error;
use crate::interface::device::{self, CountingStage, DeviceCounters};
use crate::interface::{Departures, Interface};
use crate::losses::Losses;
use crate::place::{CountingPoint, Direction};
use crate::snapshot::Snapshot;
use crate::spares::BankPool;
use crate::tables::Tables;
use crate::tally::{CountRange, Odometer};
use aya::Ebpf;
use aya::maps::{MapData, MapError, RingBuf};
use flowgauge_core::delay::{Admission, DelayKind, DelaySample};
use flowgauge_core::{BANKS, Filter, Link as Layer, Settings, WindowTotals};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// Interface index that means "none".
const NO_INDEX: u32 = 0;

/// State of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramState {
    /// It is counting.
    Counting,
    /// It is detached, and could not be attached again.
    Lost {
        /// Time when it was last seen attached.
        since: Instant,
        /// Checks since the last attempt.
        looks: u32,
    },
    /// Its interface is gone.
    Gone,
}

/// State of an interface at the last check.
pub(super) struct LastCheck {
    pub(super) at: Instant,
    /// Name of the interface.
    pub(super) name: String,
    /// Number of its receive queues, and whether it was up.
    pub(super) queues: u32,
    pub(super) running: bool,
    /// Times that the program was moved before others.
    pub(super) contests: u32,
    /// Programs before it that were already reported.
    pub(super) before: Vec<u32>,
    /// Whether it was reported that pins cannot be restored.
    pub(super) unpinned: bool,
    /// Whether it was reported that the interface cannot be checked.
    pub(super) unseen: bool,
    /// Whether it was reported that the kernel dropped notifications of interface changes.
    pub(super) unannounced: bool,
    /// Checks since the interface reappeared.
    pub(super) looks: u32,
}

impl LastCheck {
    /// Reads the present state of an interface.
    pub(super) fn at(name: &str) -> Self {
        let interface = Interface::new(name).ok();
        let queues = interface.as_ref().map_or(1, Interface::receive_queues);
        let running = interface.as_ref().and_then(Interface::is_running).unwrap_or(true);
        LastCheck {
            at: Instant::now(),
            name: name.to_owned(),
            queues,
            running,
            contests: 0,
            before: Vec::new(),
            unpinned: false,
            unseen: false,
            unannounced: false,
            looks: 0,
        }
    }
}

/// One program at one counting point.
pub(super) struct Hook {
    pub(super) place: CountingPoint,
    /// Hook of the interface that the program is attached to.
    pub(super) mode: Mode,
    /// Why it is at this hook, if it was chosen here and is not native XDP.
    pub(super) reason: Option<String>,
    pub(super) note: Note,
    /// The run of this process.
    run: RunName,
    pub(super) state: ProgramState,
    /// Link layer of the interface.
    pub(super) layer: Layer,
    /// ID of the program, if the kernel reports it.
    pub(super) program: Option<u32>,
    /// [Form](object::form) of the program.
    pub(super) form: Option<&'static str>,
    /// Counters of the interface when counting began, losses of earlier interfaces, and total
    /// losses at the last check.
    counters_before: DeviceCounters,
    counted: CountingStage,
    losses_earlier: Losses,
    losses_seen: Losses,
    /// Packets that pass the interface, and their number when counting was about to begin.
    odometer: Option<Odometer>,
    passed_before: u64,
    /// Packets of closed windows in super-packets beyond the first of each, since counting began.
    merged: u64,
    /// Link that keeps the program attached, even if its pin is removed. Declared before the pins,
    /// so that no packet is counted once those are gone.
    pub(super) link: Option<ProgramLink>,
    /// State seen at the last check.
    pub(super) last_check: LastCheck,
    pub(super) pins: Option<Pins>,
    /// Arrays that its programs use, for their pins and for programs to come: what is loaded has no
    /// other descriptors once it is attached. A member of a set needs them for its pins only.
    arrays: Vec<KeptArray>,
    /// Membership in a set of programs. After the link, which packets come by.
    pub(super) member: Option<Member>,
    memory: Memory,
}

/// Memory that a program counts in.
struct Memory {
    cores: Cores,
    shared: SharedMemory,
    /// Ring of delay samples, if settings enable them.
    delay_samples: Option<RingBuf<MapData>>,
    /// Adaptive request admission, if settings enable it.
    admitted: AdmissionShares,
    filters: MappedFilters,
}

impl Memory {
    /// Returns the memory with this bank active and this filter in every bank, before programs run.
    fn prepared(mut self, bank: u32, filter: Option<&Arc<Filter>>) -> Self {
        self.cores.set_bank(bank);
        (0..BANKS).for_each(|bank| self.filters.set(bank, filter));
        self
    }
}

/// Returns the packets that arrived at an interface, or that it was given to send, as a range.
fn passed(interface: &str, direction: Direction) -> Option<RangeInclusive<u64>> {
    match direction {
        Direction::Ingress => {
            DeviceCounters::read(interface).map(|counters| counters.arrived()..=counters.arrived())
        }
        Direction::Egress => DeviceCounters::departed(interface),
    }
}

/// Opens arrays, with their names.
fn open<'a>(
    arrays: impl Iterator<Item = &'a KeptArray>,
) -> Result<Vec<(&'static str, MapData)>, MapError> {
    arrays.map(|array| Ok((array.name(), array.open()?))).collect()
}

/// Returns a number for a filter in notes; zero for none.
fn fingerprint(filter: Option<&Arc<Filter>>) -> u64 {
    filter.map_or(0, |filter| filter.fingerprint())
}

impl Hook {
    /// Returns whether the kernel runs the program on packets that it may have merged.
    pub(super) fn is_generic(&self) -> bool {
        self.mode == Mode::Skb
    }

    /// Returns whether the program sees frames as the driver passes them on.
    pub(super) fn sees_frames(&self) -> bool {
        self.mode.is_xdp()
    }

    fn active(&self) -> usize {
        self.note.active as usize & 1
    }

    fn write_note(&mut self) -> Result<(), Error> {
        self.pins.as_mut().map_or(Ok(()), |pins| pins.write(self.note))
    }

    /// Pins the link, replacing a stale one.
    pub(super) fn pin_link(&mut self) -> Result<(), Error> {
        if let (Some(pins), Some(link)) = (&self.pins, &self.link) {
            pins.pin(link)?;
        }
        self.mend_pins().map(drop)
    }

    /// Restores pins that others removed. Returns whether any were missing.
    pub(super) fn mend_pins(&mut self) -> Result<bool, Error> {
        let Some(pins) = &mut self.pins else { return Ok(false) };
        let lacking = self.arrays.iter().filter(|array| pins.lacks(array.name()));
        let missing = open(lacking).map_err(|error| pins.failed("open an array", &error))?;
        pins.mend(self.link.as_ref(), &object::borrowed(&missing))
    }

    /// Loads programs of its own that count in the present memory. Programs of a set stay out of
    /// their chains.
    pub(super) fn load(&mut self, from: ProgramSource<'_>) -> Result<Ebpf, Error> {
        let arrays = self.arrays.iter().filter(|array| !object::is_of_set(array.name()));
        let arrays = open(arrays).map_err(|error| refused(&self.place, loading(&error)))?;
        let ring = self.memory.delay_samples.as_ref();
        let ring = ring.map(|ring| (object::DELAY_SAMPLES, ring.as_fd()));
        let existing = arrays.iter().map(|(name, array)| (*name, array.fd().as_fd()));
        let existing: Vec<_> = existing.chain(ring).collect();
        let (boot_ns, is_filtered) = (self.note.boot_ns, self.is_filtered());
        let programs = start::load(&self.place, from, boot_ns, is_filtered, &existing)?;
        let leaves_set = self.arrays.iter().any(|array| object::is_of_set(array.name()));
        if let Some(pins) = self.pins.as_mut().filter(|_| leaves_set) {
            // Before a program with these chains is attached.
            let used = object::used(&from.options.settings, is_filtered, self.mode, self.layer);
            pins.mend(None, &arrays_of(&self.place, &programs, used)?)?;
        }
        Ok(programs)
    }

    /// Keeps the arrays that attached programs use; everything else of the object is closed.
    pub(super) fn keep_arrays_of(&mut self, mut programs: Ebpf, settings: &Settings) {
        let used = object::used(settings, self.is_filtered(), self.mode, self.layer);
        let taken = object::take(&mut programs, used).into_iter();
        self.arrays = taken.map(|(name, array)| KeptArray::new(name, array, true)).collect();
        if let Some(pins) = &self.pins {
            pins.forget_set();
        }
    }

    /// Returns whether its programs apply filters.
    pub(super) fn is_filtered(&self) -> bool {
        self.memory.filters.is_applied()
    }

    /// Begins the first window: what was counted until now is in the inactive bank, for
    /// [`clear`](Self::clear), and belongs to no window.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        if self.odometer.is_some() {
            self.counters_before = self.counters().unwrap_or(self.counters_before);
            self.passed_before = match self.place.direction {
                // Read once: the kernel answers one process at a time.
                Direction::Ingress => self.counters_before.arrived(),
                Direction::Egress => {
                    self.passed().map_or(self.passed_before, |passed| *passed.start())
                }
            };
        }
        self.note.begin(now_ns());
        self.write_note()?;
        self.write_active_bank();
        Ok(())
    }

    /// Makes the other bank active for packets to come, with this filter.
    pub(super) fn flip(&mut self, now_ns: u64, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        self.odometer.iter_mut().for_each(|odometer| odometer.rotate(Instant::now(), 0));
        self.memory.filters.set(self.active() ^ 1, filter);
        self.note.flip(now_ns, fingerprint(filter), self.run);
        self.write_note()?;
        self.write_active_bank();
        Ok(())
    }

    /// Writes the active bank's number for every CPU.
    pub(super) fn write_active_bank(&mut self) {
        self.memory.cores.set_bank(self.note.active);
    }

    /// Clears the inactive bank. No CPU may be counting in it.
    pub(super) fn clear(&mut self, settings: &Settings) {
        let idle = self.active() ^ 1;
        self.memory.cores.clear(idle);
        if let Some(shared) = self.memory.shared.bank(idle) {
            shared.clear(settings);
        }
    }

    /// Sets the request admission of the inactive bank.
    pub(super) fn admit(&mut self, admissions: &[(DelayKind, Admission)]) {
        let idle = self.active() ^ 1;
        let shares = self.memory.admitted.shares();
        admissions.iter().for_each(|(kind, admission)| {
            shares.into_iter().for_each(|shares| shares.set(idle, *kind, *admission))
        });
    }

    /// Marks the active bank as possibly incomplete.
    pub(super) fn mark_gap(&mut self) {
        self.mark(1 << self.active());
    }

    /// Marks both banks if the interface left, or may have left, since the last check, so that
    /// packets of another network namespace may be in either; or if it is back and not counted yet,
    /// or was.
    pub(super) fn mark_if_moved(&mut self, departures: &Departures) {
        let has_moved = match self.state {
            ProgramState::Gone => {
                departures.has(self.note.interface_index)
                    || matches!(device::index(&self.place.interface), Ok(Some(_)))
            }
            _ => self.may_have_left(departures),
        };
        if has_moved {
            self.mark((1 << BANKS) - 1);
        }
    }

    /// Returns whether the interface left this network namespace, or may have left without a trace.
    pub(super) fn may_have_left(&self, departures: &Departures) -> bool {
        departures.has(self.note.interface_index)
            || departures.are_incomplete()
                && self.link.as_ref().is_some_and(ProgramLink::follows_interface)
    }

    /// Marks banks as possibly incomplete.
    fn mark(&mut self, banks: u64) {
        if self.note.gaps & banks != banks {
            self.note.gaps |= banks;
            // Only an adopting process would miss this mark; this one has it in memory.
            if let Err(error) = self.write_note() {
                tracing::debug!("{error}");
            }
        }
    }

    /// Marks the closed window as published.
    pub(super) fn published(&mut self, window: u64) -> Result<(), Error> {
        self.note.gaps &= 1 << self.active();
        self.note.unpublished = 0;
        self.note.next_window = window + 1;
        self.write_note()
    }

    fn packets(&self) -> u64 {
        self.memory.cores.counters(self.active()).map(|counters| counters.packets()).sum()
    }

    fn bank(&mut self, bank: usize, settings: &Settings, sums: &mut BankPool) -> Arc<WindowTotals> {
        let Memory { cores, shared, .. } = &mut self.memory;
        sums.fill(settings, |sum| {
            cores.merge(bank, settings, sum);
            if let Some(shared) = shared.bank(bank) {
                sum.merge_shared(shared, settings);
            }
        })
    }

    /// Returns the current state of the active bank.
    pub(super) fn sample(
        &mut self,
        settings: &Settings,
        tables: &Tables,
        sums: &mut BankPool,
    ) -> Snapshot {
        let packets_before = self.packets();
        let bank = self.bank(self.active(), settings, sums);
        let persistent = settings.lasts().then(|| self.memory.cores.persistent(settings));
        let packets_after = self.packets();
        Snapshot { persistent, packets_before, packets_after, ..Snapshot::of(bank, tables.hash) }
    }

    /// Returns the inactive bank. No CPU may be counting in it.
    pub(super) fn closed(
        &mut self,
        settings: &Settings,
        tables: &Tables,
        sums: &mut BankPool,
    ) -> Snapshot {
        let idle = self.active() ^ 1;
        let complete = self.note.gaps >> idle & 1 == 0;
        let bank = self.bank(idle, settings, sums);
        self.merged += bank.counters.merged;
        Snapshot { complete, ..Snapshot::of(bank, tables.hash) }
    }

    /// Takes the delay samples that have arrived.
    pub(super) fn drain(&mut self, mut take: impl FnMut(DelaySample)) {
        let Some(ring) = &mut self.memory.delay_samples else { return };
        while let Some(item) = ring.next() {
            DelaySample::from_bytes(&item).into_iter().for_each(&mut take);
        }
    }

    /// Returns whether its interface has never existed.
    pub(super) fn is_absent(&self) -> bool {
        self.state == ProgramState::Gone && self.note.interface_index == NO_INDEX
    }

    /// Returns whether the program is attached, as far as the kernel reports.
    pub(super) fn is_attached(&self) -> bool {
        let here = Some(self.note.interface_index);
        self.link
            .as_ref()
            .is_some_and(|link| link.attachment().is_ok_and(|attachment| attachment.index == here))
    }

    /// Returns the packets that the interface lost since counting began; none on egress, where
    /// packets are counted before the interface can lose them.
    pub(super) fn losses(&self) -> Losses {
        if self.place.direction == Direction::Egress {
            return Losses::default();
        }
        self.counters()
            .map_or_else(|| self.losses_seen.clone(), |counters| self.losses_by(&counters))
    }

    fn counters(&self) -> Option<DeviceCounters> {
        // By index: the interface may have been renamed.
        let name = device::name(self.note.interface_index).ok().flatten()?;
        DeviceCounters::read(&name)
    }

    /// Returns the packets that have passed the interface.
    fn passed(&self) -> Option<RangeInclusive<u64>> {
        passed(&device::name(self.note.interface_index).ok().flatten()?, self.place.direction)
    }

    fn losses_by(&self, counters: &DeviceCounters) -> Losses {
        let mut losses = self.losses_earlier.clone();
        let here = counters.losses(&self.counters_before, self.counted);
        here.iter().for_each(|(cause, packets)| losses.add(cause, packets));
        losses
    }

    /// Stores the losses for the time when the interface is gone and cannot be read any more.
    pub(super) fn remember_losses(&mut self) {
        // Read once: the kernel answers one process at a time.
        let passed = match self.place.direction {
            Direction::Ingress => self.counters().map(|counters| {
                self.losses_seen = self.losses_by(&counters);
                counters.arrived()..=counters.arrived()
            }),
            Direction::Egress => self.passed(),
        };
        if let (Some(passed), Some(odometer)) = (passed, &mut self.odometer) {
            odometer.read_between(Instant::now(), passed);
        }
    }

    /// Starts the tally, once counting has begun and no uncounted packet is in flight. For adopted
    /// counts the start is unknown.
    pub(super) fn begin_tally(&mut self) {
        if let (Some(_), Some(passed)) = (&self.odometer, self.passed()) {
            self.odometer = Some(Odometer::new(self.passed_before, *passed.end()));
        }
    }

    /// Returns the packets that arrived at the interface up to the last rotation; on egress, the
    /// packets handed to it. Virtual devices count a super-packet as one, others its packets.
    pub(super) fn received(&mut self) -> Option<CountRange> {
        let passed = self.passed()?;
        let tally = self.odometer.as_mut()?.tally(*passed.end());
        if tally.is_none() {
            // The tally begins with this rotation.
            self.merged = 0;
        }
        tally.map(|tally| CountRange { most: tally.most + self.merged, ..tally })
    }

    /// Starts to count at a recreated interface, in the existing memory.
    pub(super) fn begin_again(&mut self, index: u32, from: ProgramSource<'_>) -> Result<(), Error> {
        // Once, however often attaching fails.
        if let (Some(pins), Some(keep)) = (&mut self.pins, &from.options.pins)
            && self.note.interface_index != index
        {
            let new = Pins::claim(&keep.directory, &self.place, index)?;
            new.clear()
                .map_err(|error| new.failed("remove what is left of a killed flowgauge", &error))?;
            new.take_over(pins);
        }
        let layer =
            device::link(&self.place.interface).map_err(|problem| refused(&self.place, problem))?;
        // A link keeps its program, which may suit the new interface as well; a filter belongs to the
        // old one.
        self.link = self.link.take().filter(|link| {
            matches!(link, ProgramLink::Bpf { .. }) && layer == self.layer && link.detach().is_ok()
        });
        self.layer = layer;
        self.losses_earlier = self.losses_seen.clone();
        self.note.interface_index = index;
        self.counters_before = self.counters().unwrap_or_default();
        self.odometer = self.odometer.take().map(|_| Odometer::later());
        self.write_note()?;
        self.attach_again(from)
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        if let (Some(member), Some(pins)) = (&mut self.member, &self.pins)
            && pins.leave
        {
            member.stay();
        }
        // A filter stays without its process, even if its pin was removed.
        if let (Some(link @ ProgramLink::Classifier(_)), Some(pins)) = (&self.link, &self.pins)
            && !pins.leave
            && let Err(error) = link.detach()
        {
            tracing::warn!(
                "{}: cannot remove the filter: {error}; `flowgauge detach` does",
                self.place
            );
        }
    }
}
