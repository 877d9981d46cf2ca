//! One program at one counting point, with the memory it counts in.

use super::attach::{Refusal, array, attach, cpus, verify};
use super::clsact;
use super::common::Common;
use super::link::{self, Link};
use super::mapped::{AdmissionShares, Cores, SharedMemory};
use super::note::{Identity, Note, Secret};
use super::object::{self, NoteArray, Pinned, Plain};
use super::pins::{self, Found, Pins};
use super::refusal::{NO_INTERFACE, TCX_SINCE, loading, no_tcx, refused, release};
use super::verifier::NotLoaded;
use super::{Mode, Options, now_ns};
use crate::Event;
use crate::error::Error;
use crate::interface::Interface;
use crate::interface::device::{self, Counted, DeviceCounters};
use crate::losses::Losses;
use crate::place::{Direction, Place};
use crate::snapshot::Snapshot;
use crate::spares::BankPool;
use crate::tables::Tables;
use crate::tally::{Odometer, Tally};
use aya::Ebpf;
use aya::maps::{MapData, RingBuf};
use aya::programs::ProgramError;
use flowgauge_core::delay::sample::{BYTES, Sample};
use flowgauge_core::delay::{Admission, Kind};
use flowgauge_core::kernel::{Config, Layout};
use flowgauge_core::{Link as Layer, Settings, WideBank};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

/// Interface index that means "none".
const NO_INDEX: u32 = 0;

/// State of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
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
            looks: 0,
        }
    }
}

/// One program at one place.
pub(super) struct Hook {
    pub(super) place: Place,
    /// Hook of the interface that the program is attached to.
    pub(super) mode: Mode,
    pub(super) note: Note,
    pub(super) state: State,
    /// Link layer of the interface.
    pub(super) layer: Layer,
    /// ID of the program, if the kernel reports it.
    pub(super) program: Option<u32>,
    /// Counters of the interface when counting began, losses of earlier interfaces, and total
    /// losses at the last check.
    counters_before: DeviceCounters,
    counted: Counted,
    losses_earlier: Losses,
    losses_seen: Losses,
    /// Packets that pass the interface, and their number when counting was about to begin.
    odometer: Option<Odometer>,
    passed_before: u64,
    /// Link that keeps the program attached, even if its pin is removed. Declared before the pins,
    /// so that no packet is counted once those are gone.
    pub(super) link: Option<Link>,
    /// State seen at the last check.
    pub(super) last_check: LastCheck,
    pub(super) pins: Option<(Pins, NoteArray)>,
    /// Programs, for attaching again.
    pub(super) programs: Option<Ebpf>,
    memory: Memory,
}

/// Memory that a program counts in.
struct Memory {
    cores: Cores,
    shared: SharedMemory,
    /// Ring of individual delays, if settings enable them.
    delays: Option<RingBuf<MapData>>,
    /// Adaptive request admission, if settings enable it.
    admitted: AdmissionShares,
}

/// A hook, with its programs if they are still needed.
pub(super) struct Hooked {
    pub(super) hook: Hook,
    pub(super) adopted: bool,
    pub(super) programs: Option<Ebpf>,
    /// Events not yet returned to the caller.
    pub(super) events: Vec<Event>,
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

/// Creates a hook for injected frames, without an interface.
pub(super) fn detached(
    place: &Place,
    number: u32,
    options: &Options,
    tables: &Tables,
    common: &Common,
) -> Result<Hooked, Error> {
    let (hook, mut programs) =
        without_interface(place, number, options, tables, common, State::Counting)?;
    verify(place, options, &mut programs).map_err(|error| refused(place, loading(&error)))?;
    Ok(Hooked { hook, adopted: false, programs: Some(programs), events: Vec::new() })
}

/// Creates an idle hook for an interface that does not exist yet.
pub(super) fn absent(
    place: &Place,
    number: u32,
    options: &Options,
    tables: &Tables,
    common: &Common,
) -> Result<Hooked, Error> {
    let (hook, _) = without_interface(place, number, options, tables, common, State::Gone)?;
    let events = vec![Event::Warning(format!(
        "{place}: there is no such interface; it is counted when it is there"
    ))];
    Ok(Hooked { hook, adopted: false, programs: None, events })
}

fn without_interface(
    place: &Place,
    number: u32,
    options: &Options,
    tables: &Tables,
    common: &Common,
    state: State,
) -> Result<(Hook, Ebpf), Error> {
    let identity = identity(place, options, tables, common);
    let mut programs = load(place, number, options, &identity, tables, &common.pinned())?;
    common.prepare(place, &programs, options, tables)?;
    let memory = map(place, options, &mut programs)?;
    let hook = Hook {
        place: place.clone(),
        mode: options.usual(place.direction),
        note: Note::new(&identity, &place.interface, NO_INDEX, now_ns()),
        state,
        layer: Layer::Ethernet,
        program: None,
        counters_before: DeviceCounters::default(),
        counted: Counted::InStack,
        losses_earlier: Losses::default(),
        losses_seen: Losses::default(),
        odometer: None,
        passed_before: 0,
        link: None,
        last_check: LastCheck::at(""),
        pins: None,
        programs: None,
        memory,
    };
    Ok((hook, programs))
}

/// Starts to count at an interface, or adopts what a dead controller left counting there.
pub(super) fn attached(
    place: &Place,
    number: u32,
    options: &Options,
    tables: &Tables,
    common: &Common,
) -> Result<Hooked, Error> {
    let interface = &place.interface;
    let counters = DeviceCounters::read(interface).zip(device::index(interface));
    let Some((counters, index)) = counters else {
        return Err(refused(place, NO_INTERFACE.to_owned()));
    };
    if options.wanted(place.direction) == Some(Mode::Tcx) && !link::has_tcx(index) {
        return Err(refused(place, no_tcx()));
    }
    let passed = passed(interface, place.direction);
    let layer = device::link(interface).map_err(|problem| refused(place, problem))?;
    let identity = identity(place, options, tables, common);
    let mut note = Note::new(&identity, interface, index, now_ns());
    let mut events = Vec::new();
    if options.pins.as_ref().is_some_and(|keep| pins::forget(&keep.directory, place, index)) {
        events.push(Event::Notice(format!(
            "{place}: the interface was re-created after a flowgauge that counted on it was killed; counting starts again, and the \
             unpublished counts of the earlier interface are dropped"
        )));
    }
    let pins =
        options.pins.as_ref().map(|keep| Pins::claim(&keep.directory, place, index)).transpose()?;
    let blank = |mode: Mode, note, pins, memory, link: Link, programs| Hook {
        place: place.clone(),
        mode,
        note,
        state: State::Counting,
        layer,
        program: link.attachment().ok().map(|attachment| attachment.program),
        counters_before: counters,
        counted: if matches!(mode, Mode::Native | Mode::Offload) {
            Counted::BeforeStack
        } else {
            Counted::InStack
        },
        losses_earlier: Losses::default(),
        losses_seen: Losses::default(),
        odometer: Some(Odometer::later()),
        passed_before: passed.as_ref().map_or(0, |passed| *passed.start()),
        link: Some(link),
        last_check: LastCheck::at(interface),
        pins,
        programs: Some(programs),
        memory,
    };
    if let Some(mut pins) = pins {
        if pins.is_counting() {
            // Pins of another run are not removed, even on failure.
            pins.leave = true;
            if !options.pins.as_ref().is_some_and(|keep| keep.adopt) {
                let problem = "a killed flowgauge has left its program counting here; --adopt continues with its counts, \
                               `flowgauge detach` drops them";
                return Err(refused(place, problem.to_owned()));
            }
            let Found { mut note, notes, link, mode } =
                pins.adopt(place, &note, options.wanted(place.direction))?;
            if note.rein_in(now_ns()) {
                events.push(Event::Notice(format!("{place}: the clock was set back since counting began; open windows are reported to begin now at the latest")));
            }
            // The programs are for attaching again. They count in the existing memory, by the clock
            // of the earlier ones.
            let identity = Identity { boot_ns: note.boot_ns, ..identity };
            let mut programs = load(place, number, options, &identity, tables, &pins.arrays())?;
            if let Some(news) = common.adopt(place, &programs, note.boot_ns)? {
                events.push(news);
            }
            let memory = map(place, options, &mut programs)?;
            let mut hook = blank(mode, note, Some((pins, notes)), memory, link, programs);
            if !hook.is_attached() {
                hook.attach_again(options)?;
                hook.mark_gap();
                let what = "its program was detached while no flowgauge looked after it; it is attached again";
                events.push(Event::Warning(format!(
                    "{place}: {what}, and packets since then are missing"
                )));
            }
            if let (Some((pins, _)), Some(keep)) = (&mut hook.pins, &options.pins) {
                pins.leave = keep.leave;
                events.extend(clsact::clean(place, index, Some(pins.directory()), hook.program));
            }
            return Ok(Hooked { hook, adopted: true, programs: None, events });
        }
        pins.clear()
            .map_err(|error| pins.failed("remove what is left of a killed flowgauge", &error))?;
        let mut programs = load(place, number, options, &identity, tables, &common.pinned())?;
        common.prepare(place, &programs, options, tables)?;
        let memory = map(place, options, &mut programs)?;
        let notes = object::new_note(note)
            .map_err(|error| refused(place, format!("cannot make the note: {error}")))?;
        let mut notes = pins.keep(arrays(place, &programs)?, notes)?;
        events.extend(clsact::clean(place, index, Some(pins.directory()), None));
        let Choice { link, mode, notice } = choose(place, index, options, |mode| {
            // Written before the program is pinned, which makes the note valid.
            note.set_mode(mode);
            let written =
                notes.set(0, Plain(note), 0).map_err(|error| io::Error::other(error.to_string()));
            written.map_err(Refusal::Attaching)?;
            attach(place, index, layer, mode, options, &mut programs, Some(&pins))
        })?;
        events.extend(notice);
        pins.pin(&link)?;
        pins.leave = options.pins.as_ref().is_some_and(|keep| keep.leave);
        return Ok(Hooked {
            hook: blank(mode, note, Some((pins, notes)), memory, link, programs),
            adopted: false,
            programs: None,
            events,
        });
    }
    let mut programs = load(place, number, options, &identity, tables, &common.pinned())?;
    common.prepare(place, &programs, options, tables)?;
    let memory = map(place, options, &mut programs)?;
    events.extend(clsact::clean(place, index, None, None));
    let Choice { link, mode, notice } = choose(place, index, options, |mode| {
        attach(place, index, layer, mode, options, &mut programs, None)
    })?;
    events.extend(notice);
    Ok(Hooked {
        hook: blank(mode, note, None, memory, link, programs),
        adopted: false,
        programs: None,
        events,
    })
}

/// A program attached to the requested hook or to the best available one.
struct Choice {
    link: Link,
    mode: Mode,
    /// Reason why the best hook was not used.
    notice: Option<Event>,
}

/// Attaches the program to the requested hook; without a request, to the first that accepts it of
/// native XDP (for arriving packets), TCX or, on kernels without it, a classifier, and generic XDP
/// (for arriving packets).
fn choose(
    place: &Place,
    index: u32,
    options: &Options,
    mut attach: impl FnMut(Mode) -> Result<Link, Refusal>,
) -> Result<Choice, Error> {
    if let Some(mode) = options.wanted(place.direction) {
        let link = attach(mode).map_err(|refusal| refusal.into_error(place, mode))?;
        return Ok(Choice { link, mode, notice: None });
    }
    let in_stack = if link::has_tcx(index) { Mode::Tcx } else { Mode::Clsact };
    let candidates = match place.direction {
        Direction::Ingress => vec![Mode::Native, in_stack, Mode::Skb],
        Direction::Egress => vec![in_stack],
    };
    let mut reasons = Vec::new();
    for mode in candidates.iter().copied() {
        if mode == Mode::Clsact {
            reasons.push(format!("TCX needs {TCX_SINCE} (this is {})", release()));
        }
        match attach(mode) {
            Ok(link) => {
                let why = reasons.join(", and ");
                if why.is_empty() {
                    tracing::info!("{place}: counting {}", mode.location());
                }
                let notice = (!why.is_empty()).then(|| {
                    Event::Notice(format!("{place}: counting {}: {why}", mode.location()))
                });
                return Ok(Choice { link, mode, notice });
            }
            Err(refusal) if candidates.last() != Some(&mode) && refusal.is_about_hook() => {
                reasons.push(refusal.reason(place, mode));
            }
            Err(refusal) => return Err(refusal.into_error(place, mode)),
        }
    }
    Err(Refusal::Loading(NotLoaded::new("", ProgramError::NotLoaded)).into_error(place, in_stack))
}

fn identity(place: &Place, options: &Options, tables: &Tables, common: &Common) -> Identity {
    let Options { settings, slot_ns, .. } = *options;
    let secret = Secret::new(tables.key.as_ref());
    let attached = options.usual(place.direction);
    Identity {
        settings,
        seed: tables.seed,
        secret,
        slot_ns: slot_ns.max(1),
        boot_ns: common.boot_ns(),
        attached,
    }
}

/// Loads the object with its pinned memory, if any. `number` is that of the interface in this run.
fn load(
    place: &Place,
    number: u32,
    options: &Options,
    identity: &Identity,
    tables: &Tables,
    pinned: &Pinned,
) -> Result<Ebpf, Error> {
    let Identity { settings, slot_ns, boot_ns, .. } = *identity;
    let config = Config {
        slot_ns,
        boot_ns,
        settings,
        needs: settings.needs(),
        verdict: options.task.verdict(),
        layout: Layout::of(&settings),
        leaves: u32::from(place.direction == Direction::Egress),
        interface: number,
        ..Config::DEFAULT
    };
    object::load(&config, &tables.tabulation, cpus(place)?, options.delay_ring, pinned)
        .map_err(|error| refused(place, loading(&error)))
}

/// Returns the [arrays](object::KEPT) to pin, in their order.
fn arrays<'a>(place: &Place, programs: &'a Ebpf) -> Result<Vec<&'a MapData>, Error> {
    object::KEPT.into_iter().map(|name| array(place, programs, name)).collect()
}

fn map(place: &Place, options: &Options, programs: &mut Ebpf) -> Result<Memory, Error> {
    let failed =
        |what: &str, error: &io::Error| refused(place, format!("cannot map {what}: {error}"));
    let (cores, shared) =
        (array(place, programs, object::CORES)?, array(place, programs, object::SHARED)?);
    let cores = Cores::new(cores, cpus(place)?, &options.settings)
        .map_err(|error| failed("the array of cores", &error))?;
    let shared = SharedMemory::new(shared, &options.settings)
        .map_err(|error| failed("what cores share", &error))?;
    let lasting = array(place, programs, object::LASTING)?;
    let admitted = AdmissionShares::new(lasting, &options.settings)
        .map_err(|error| failed("what lasts", &error))?;
    let delays = options.settings.delay.samples.then(|| ring(place, programs)).transpose()?;
    Ok(Memory { cores, shared, delays, admitted })
}

/// Takes the ring of individual delays; the programs keep a reference.
fn ring(place: &Place, programs: &mut Ebpf) -> Result<RingBuf<MapData>, Error> {
    let name = object::DELAYS;
    let ring = programs.take_map(name).ok_or_else(|| {
        refused(place, format!("the object has no ring {name}; rebuild it with ebpf/build"))
    })?;
    RingBuf::try_from(ring)
        .map_err(|error| refused(place, format!("cannot map the ring of delays: {error}")))
}

impl Hook {
    /// Returns whether the kernel runs the program on packets that it may have merged.
    pub(super) fn is_generic(&self) -> bool {
        self.mode == Mode::Skb
    }

    fn active(&self) -> usize {
        self.note.active as usize & 1
    }

    fn write_note(&mut self) -> Result<(), Error> {
        let Some((pins, array)) = &mut self.pins else { return Ok(()) };
        array.set(0, Plain(self.note), 0).map_err(|error| pins.failed("write the note", &error))
    }

    /// Pins the link, replacing a stale one.
    pub(super) fn pin_link(&mut self) -> Result<(), Error> {
        if let (Some((pins, _)), Some(link)) = (&self.pins, &self.link) {
            pins.pin(link)?;
        }
        self.mend_pins().map(drop)
    }

    /// Restores pins that others removed. Returns whether any were missing.
    pub(super) fn mend_pins(&mut self) -> Result<bool, Error> {
        let (Some((pins, _)), Some(programs)) = (&mut self.pins, &self.programs) else {
            return Ok(false);
        };
        pins.mend(self.link.as_ref(), arrays(&self.place, programs)?)
    }

    /// Makes the other bank active for packets to come.
    pub(super) fn flip(&mut self, now_ns: u64) -> Result<(), Error> {
        self.odometer.iter_mut().for_each(|odometer| odometer.rotate(Instant::now(), 0));
        self.note.flip(now_ns);
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
    pub(super) fn admit(&mut self, admissions: &[(Kind, Admission)]) {
        let idle = self.active() ^ 1;
        let shares = self.memory.admitted.shares();
        admissions.iter().for_each(|(kind, admission)| {
            shares.into_iter().for_each(|shares| shares.set(idle, *kind, *admission))
        });
    }

    /// Marks the active bank as possibly incomplete.
    pub(super) fn mark_gap(&mut self) {
        let bit = 1 << self.active();
        if self.note.gaps & bit == 0 {
            self.note.gaps |= bit;
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

    fn bank(&mut self, bank: usize, settings: &Settings, sums: &mut BankPool) -> Arc<WideBank> {
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
        let lasting = settings.lasts().then(|| self.memory.cores.lasting(settings));
        let packets_after = self.packets();
        Snapshot { lasting, packets_before, packets_after, ..Snapshot::of(bank, tables.hash) }
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
        Snapshot { complete, ..Snapshot::of(self.bank(idle, settings, sums), tables.hash) }
    }

    /// Takes the individual delays that have arrived.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Sample)) {
        let Some(ring) = &mut self.memory.delays else { return };
        while let Some(item) = ring.next() {
            if let Some(bytes) = item.first_chunk::<BYTES>() {
                take(Sample::of_bytes(bytes));
            }
        }
    }

    /// Returns whether its interface has never existed.
    pub(super) fn is_absent(&self) -> bool {
        self.state == State::Gone && self.note.interface_index == NO_INDEX
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
        device::name(self.note.interface_index).and_then(|name| DeviceCounters::read(&name))
    }

    /// Returns the packets that have passed the interface.
    fn passed(&self) -> Option<RangeInclusive<u64>> {
        passed(&device::name(self.note.interface_index)?, self.place.direction)
    }

    fn losses_by(&self, counters: &DeviceCounters) -> Losses {
        let mut losses = self.losses_earlier.clone();
        let here = counters.losses(&self.counters_before, self.counted);
        here.iter().for_each(|(cause, packets)| losses.add(cause, packets));
        losses
    }

    /// Stores the losses for the time when the interface is gone and cannot be read any more.
    pub(super) fn remember_losses(&mut self) {
        if self.place.direction == Direction::Ingress
            && let Some(counters) = self.counters()
        {
            self.losses_seen = self.losses_by(&counters);
        }
        if let (Some(passed), Some(odometer)) = (self.passed(), &mut self.odometer) {
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
    /// packets handed to it.
    pub(super) fn received(&mut self) -> Option<Tally> {
        let passed = self.passed()?;
        self.odometer.as_mut()?.tally(*passed.end())
    }

    /// Starts to count at a recreated interface, in the existing memory.
    pub(super) fn begin_again(&mut self, index: u32, options: &Options) -> Result<(), Error> {
        // Once, however often attaching fails.
        if let (Some((pins, _)), Some(keep)) = (&mut self.pins, &options.pins)
            && self.note.interface_index != index
        {
            let new = Pins::claim(&keep.directory, &self.place, index)?;
            new.clear()
                .map_err(|error| new.failed("remove what is left of a killed flowgauge", &error))?;
            new.take_over(pins);
        }
        self.layer =
            device::link(&self.place.interface).map_err(|problem| refused(&self.place, problem))?;
        self.link = None;
        self.losses_earlier = self.losses_seen.clone();
        self.counters_before =
            device::name(index).and_then(|name| DeviceCounters::read(&name)).unwrap_or_default();
        self.odometer = self.odometer.take().map(|_| Odometer::later());
        self.note.interface_index = index;
        self.write_note()?;
        self.attach_again(options)
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // A filter stays without its process, even if its pin was removed.
        if let (Some(link @ Link::Classifier(_)), Some((pins, _))) = (&self.link, &self.pins)
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
