//! The XDP backend: programs in the kernel count packets, with the code of `flowgauge-core`.
//!
//! # Path of a packet
//! A program is attached at every [`CountingPoint`]: XDP for arriving packets, TCX for departing
//! ones, or another hook that interface and kernel offer ([`Mode`]). It finds the
//! [element](flowgauge_core::kernel) of its CPU in an array and counts there, in the active bank.
//! Then the packet continues to the network stack. The programs are in `ebpf/`; this crate contains
//! the built objects.
//!
//! # Lifecycle of a window
//! This process maps the array into its memory. A rotation stores the other bank's number in every
//! element and waits until every program that has read the old number has finished. Then it adds up
//! the old banks, and clears them once the window is published. Programs are detached when the
//! process ends, unless they are [retained](Retention).
//!
//! # Where to look
//! `hook`: one program at one counting point; `link` and `clsact`: attachment; `object`: the
//! programs, with settings inserted; `mapped`: the arrays; `grace`: the wait in a rotation;
//! `common`: state shared by counting points; `set` and `entry`: programs shared by sources;
//! `kept`: arrays of attached programs; `turn`: how many sources start at once; `watch`:
//! supervision of attached programs; `pins`: state that outlives the process; `inject`: frames
//! without an interface, for tests and benchmarks. `redirect` sends packets to AF_XDP sockets.

mod attach;
mod clsact;
mod common;
mod cost;
mod elements;
mod entry;
mod grace;
mod hook;
mod inject;
mod kept;
mod link;
mod mapped;
mod mode;
mod note;
mod object;
mod options;
mod pins;
mod probe;
pub(crate) mod redirect;
mod refusal;
mod set;
mod syscall;
mod trial;
mod turn;
mod verifier;
mod watch;

pub use cost::{Cost, costs, costs_are_measured};
pub use grace::WaitMethod;
pub use inject::{Offload, ProgramInjector};
pub use mode::Mode;
pub use options::{Options, Retention, Task};
pub use pins::{AbandonedProgram, DIRECTORY, MOUNT, detach, kept_key, left, supported};
pub use refusal::not_loaded;
pub use set::ProgramSets;
pub use trial::{Loaded, Trial, trials};

pub use crate::interface::{
    Departures, DeviceCounters, Interface, LinkChanges, Stack, is_virtual_link, link_of, merged,
    merges_in_device,
};

use crate::capabilities::Capabilities;
use crate::delay_samples::DelaySampleQueue;
use crate::error::Error;
use crate::interface::device;
use crate::losses::Losses;
use crate::open_files::advice;
use crate::place::{CountingPoint, Direction};
use crate::snapshot::{Adopted, Part, Snapshot};
use crate::spares::BankPool;
use crate::status::{ProgramStatus, Status};
use crate::tables::Tables;
use crate::tally::CountRange;
use crate::{Dataplane, Event};
use common::Common;
use flowgauge_core::Zeroed;
use flowgauge_core::delay::{Admission, DelayKind, DelaySample};
use flowgauge_core::heavy::Algorithm;
use flowgauge_core::{Filter, Link, PersistentBank, Settings};
use grace::GracePeriod;
use hook::{AttachedHook, Hook, ProgramSource, ProgramState};
use inject::{Programs, locked};
use refusal::{loading, refused};
use set::ProgramSet;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use turn::Turn;

/// The XDP backend.
pub struct Xdp {
    capabilities: Capabilities,
    options: Options,
    attach: bool,
    programs: Programs,
    running: Option<RunningBackend>,
}

/// State of a running backend, once tables are installed.
struct RunningBackend {
    hooks: Vec<Hook>,
    /// Tables, with the filter of the open window.
    tables: Tables,
    /// Filter of the next window.
    next_filter: Option<Arc<Filter>>,
    common: Common,
    grace: GracePeriod,
    /// Notifications of interfaces that change, and those that left since the last look.
    links: LinkChanges,
    departures: Departures,
    /// Banks for the sums over counting points.
    sums: BankPool,
    phase: Phase,
    next_window: u64,
    /// Events not yet returned to the caller.
    events: Vec<Event>,
    /// Whether the end of all counting was reported.
    ended: bool,
    delay_samples: DelaySampleQueue,
}

/// Progress of a rotation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The idle bank is empty.
    Ready,
    /// Banks were switched, and packets may be in flight to the old one.
    Flipped,
    /// The old bank was returned, and its window is not published yet.
    Closed,
}

impl Xdp {
    /// Creates a backend that counts at these counting points once tables are installed.
    #[must_use]
    pub fn at(places: Vec<CountingPoint>, options: Options) -> Self {
        Self::new(places, options, true)
    }

    /// Creates a backend without an interface, fed through its [`ProgramInjector`], for tests and
    /// benchmarks.
    #[must_use]
    pub fn detached(direction: Direction, options: Options) -> Self {
        Self::new(
            vec![CountingPoint { interface: "injected frames".to_owned(), direction }],
            options,
            false,
        )
    }

    fn new(places: Vec<CountingPoint>, options: Options, attach: bool) -> Self {
        let mut interfaces: Vec<&str> =
            places.iter().map(|place| place.interface.as_str()).collect();
        interfaces.dedup();
        let everything = Capabilities::of_core("xdp", interfaces.join(","), cpus().unwrap_or(1));
        let algorithms =
            Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.takes_any_slot()).collect();
        let capabilities = Capabilities {
            atomic_snapshots: false,
            inner: false,
            places,
            algorithms,
            delay_samples: true,
            ..everything
        };
        Xdp { capabilities, options, attach, programs: Programs::default(), running: None }
    }

    /// Returns an injector of frames into the program; usable without an interface, once tables are
    /// installed.
    #[must_use]
    pub fn injector(&self) -> ProgramInjector {
        let place = self
            .capabilities
            .places
            .first()
            .cloned()
            .unwrap_or_else(|| CountingPoint::ingress("nowhere"));
        let mode = self.options.usual(place.direction);
        let program = self.options.program(mode, Link::Ethernet);
        ProgramInjector {
            place,
            program,
            tcx: !mode.is_xdp(),
            programs: Arc::clone(&self.programs),
        }
    }

    /// Returns the sets of which its programs may be.
    fn sets(&self, tables: &Tables) -> Option<&ProgramSets> {
        let Options { sets, task, settings, .. } = &self.options;
        let may_share = self.attach
            && *task == Task::Count
            && !settings.delay.samples
            && tables.filter.is_none();
        sets.as_ref().filter(|_| may_share)
    }

    /// Returns the set of programs that it joins, if any.
    fn joined(&self, tables: &Tables) -> Result<Option<Arc<ProgramSet>>, Error> {
        let Some(sets) = self.sets(tables) else { return Ok(None) };
        let Some(place) = self.capabilities.places.first() else { return Ok(None) };
        let config = hook::config(&self.options, common::boot_ns(), false);
        let set = sets.join(&config, &tables.tabulation, attach::cpus(place)?);
        set.map(Some).map_err(|error| refused(place, loading(&error)))
    }

    fn running(&mut self, operation: &'static str) -> Result<&mut RunningBackend, Error> {
        let target = || self.capabilities.interface.clone();
        self.running.as_mut().ok_or_else(|| Error::NotStarted { operation, target: target() })
    }
}

/// Returns how rotations wait for packets in flight on this machine; `None` if no method works.
#[must_use]
pub fn wait() -> Option<WaitMethod> {
    GracePeriod::choose(None).ok().map(|grace| grace.wait_of())
}

/// Kernel file with the ranges of possible CPU numbers.
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";

/// Returns the number of elements of an array that programs index by CPU number. Larger than the
/// number of CPUs if numbers are skipped.
fn cpus() -> io::Result<usize> {
    let ranges = std::fs::read_to_string(POSSIBLE_CPUS)?;
    above_all(&ranges).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("'{}'", ranges.trim_end()))
    })
}

/// Returns one more than the last number of ascending ranges such as `0-3,8-11`: the length of an
/// array indexed by these numbers.
#[must_use]
pub fn above_all(ranges: &str) -> Option<usize> {
    ranges.trim_end().rsplit([',', '-']).next()?.parse::<usize>().ok()?.checked_add(1)
}

fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl Dataplane for Xdp {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn settings(&self) -> &Settings {
        &self.options.settings
    }

    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error> {
        if self.running.is_some() {
            return Err(Error::AlreadyStarted { target: self.capabilities.interface.clone() });
        }
        self.capabilities.check(&self.options.settings)?;
        tables.check(&self.options.settings, &self.capabilities)?;
        if self.options.settings.delay.samples
            && self.options.pins.as_ref().is_some_and(|keep| keep.adopt || keep.leave)
        {
            let (what, advice) = (
                "keep programs that pass delays on one by one",
                "leave out --delay-samples, or --adopt and --leave",
            );
            return Err(Error::Unsupported {
                backend: "xdp",
                what: what.to_owned(),
                advice: advice.to_owned(),
            });
        }
        let grace = GracePeriod::choose(self.options.wait).map_err(|error| {
            let ways = "membarrier, which it does not offer with CPUs in nohz_full, or a map of maps, which takes CAP_BPF";
            let problem = format!("cannot wait for packets in flight: the kernel takes neither {ways}: {error}");
            Error::Kernel { interface: self.capabilities.interface.clone(), problem, source: Some(error) }
        })?;
        tracing::debug!("rotations wait for packets in flight by {}", grace.wait_of().name());
        // Opened first: from here on, every interface that leaves is announced.
        let links = LinkChanges::open().map_err(|error| Error::Kernel {
            interface: self.capabilities.interface.clone(),
            problem: format!("cannot watch for interface changes: {error}{}", advice(Some(&error))),
            source: Some(error),
        })?;
        let mut hooks = Vec::new();
        let (mut any_adopted, mut events, mut begun) = (false, Vec::new(), Vec::new());
        let places = &self.capabilities.places;
        let turn = Turn::start(self.sets(tables).is_some());
        let common = Common::of(places, &self.options.settings, self.joined(tables)?);
        // One that the system cannot look up is reported when its program is attached.
        let is_there = |place: &CountingPoint| !matches!(device::index(&place.interface), Ok(None));
        let any_is_there = places.iter().any(is_there);
        for place in places {
            let hook = match self.attach {
                false => hook::detached,
                // Other interfaces are counted without it.
                true if any_is_there && !is_there(place) => hook::absent,
                true => hook::attached,
            };
            let AttachedHook { hook, adopted, programs, events: news } =
                hook(place, &self.options, tables, &common)?;
            any_adopted |= adopted;
            events.extend(news);
            begun.push(!adopted && self.attach);
            hooks.push(hook);
            *locked(&self.programs) = programs;
        }
        drop(turn);
        if begun.contains(&true) {
            let settings = &self.options.settings;
            // Hooks are attached one after the other: the first window begins at all of them at
            // once. Adopted counts go on.
            if !any_adopted {
                common.flip();
                hooks.iter_mut().try_for_each(Hook::begin)?;
            }
            wait_for_packets_in_flight(&grace, &self.capabilities.interface)?;
            for (hook, begun) in hooks.iter_mut().zip(begun) {
                if !any_adopted {
                    hook.drain(|_| ());
                    hook.clear(settings);
                }
                if begun {
                    hook.begin_tally();
                }
            }
        }
        let merged = hooks.iter().filter(|hook| self.attach && hook.is_generic());
        let notices = merged.filter_map(|hook: &Hook| {
            Some(format!("{}: {}", hook.place, device::merged(&hook.place.interface)?))
        });
        events.extend(notices.map(Event::Notice));
        let next_window = hooks.iter().map(|hook| hook.note.next_window).max().unwrap_or(0);
        let delay_samples = DelaySampleQueue::from_bank(common.bank() as u8);
        let mut running = RunningBackend {
            hooks,
            tables: tables.clone(),
            next_filter: tables.filter.clone(),
            common,
            grace,
            links,
            departures: Departures::default(),
            sums: BankPool::default(),
            phase: Phase::Ready,
            next_window,
            events,
            ended: false,
            delay_samples,
        };
        running.warn_of_vlan_tags();
        if !any_adopted {
            self.running = Some(running);
            return Ok(None);
        }
        running.recover(&self.options.settings)?;
        let oldest = running.hooks.iter().min_by_key(|hook| hook.note.open_windows());
        let adopted = oldest.map(|hook| Adopted {
            open_windows: hook.note.open_windows(),
            runs: hook.note.open_runs(),
            next_window,
        });
        self.running = Some(running);
        Ok(adopted)
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        let settings = self.options.settings;
        let running = self.running("sample")?;
        let RunningBackend { hooks, tables, sums, .. } = running;
        let snapshots = hooks.iter_mut().map(|hook| hook.sample(&settings, tables, sums)).collect();
        Ok(united(hooks, snapshots, sums, &settings, tables))
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        let (settings, interface, options) =
            (self.options.settings, self.capabilities.interface.clone(), self.options.clone());
        let running = self.running("rotate")?;
        if running.phase == Phase::Closed {
            running.published(running.next_window, &settings)?;
        }
        if running.phase == Phase::Ready {
            // Problems found by now belong to the window that is closed.
            running.look(&options);
            running.phase = Phase::Flipped;
            running.tables.filter.clone_from(&running.next_filter);
            running.common.flip();
            let (now, filter) = (now_ns(), running.next_filter.as_ref());
            running.hooks.iter_mut().try_for_each(|hook| hook.flip(now, filter))?;
        }
        wait_for_packets_in_flight(&running.grace, &interface)?;
        running.mark_moved();
        running.phase = Phase::Closed;
        // Before the banks are read: no program counts there any more, and all its samples were
        // sent.
        running.drain();
        let RunningBackend { hooks, tables, sums, delay_samples, .. } = running;
        let snapshots = hooks.iter_mut().map(|hook| hook.closed(&settings, tables, sums)).collect();
        let mut snapshot = united(hooks, snapshots, sums, &settings, tables);
        // Read after the losses.
        snapshot
            .parts
            .iter_mut()
            .zip(hooks)
            .for_each(|(part, hook)| part.received = hook.received());
        Ok(Snapshot { delay_samples: delay_samples.close(), ..snapshot })
    }

    fn published(&mut self, window: u64) -> Result<(), Error> {
        let settings = self.options.settings;
        let running = self.running("acknowledge a window")?;
        if running.phase == Phase::Closed { running.published(window, &settings) } else { Ok(()) }
    }

    fn admit(&mut self, admissions: &[(DelayKind, Admission)]) -> Result<(), Error> {
        self.running("set shares")?.hooks.iter_mut().for_each(|hook| hook.admit(admissions));
        Ok(())
    }

    fn set_filter(&mut self, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        let running = self.running("set the filter")?;
        if filter.is_some() && !running.hooks.iter().all(Hook::is_filtered) {
            return Err(Error::Unsupported {
                backend: "xdp",
                what: "filter packets (--match) in a run that began without a filter".to_owned(),
                advice: "restart it".to_owned(),
            });
        }
        running.next_filter = filter.cloned();
        running.warn_of_vlan_tags();
        Ok(())
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        let Some(running) = &mut self.running else { return Ok(Vec::new()) };
        running.look(&self.options);
        Ok(std::mem::take(&mut running.events))
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        let mut losses = Losses::default();
        let hooks = self.running.iter().flat_map(|running| &running.hooks).filter(|_| self.attach);
        hooks.for_each(|hook| {
            hook.losses().iter().for_each(|(cause, packets)| losses.add(cause, packets))
        });
        Ok(losses)
    }

    fn received(&mut self) -> Result<Option<CountRange>, Error> {
        let hooks =
            self.running.iter_mut().flat_map(|running| &mut running.hooks).filter(|_| self.attach);
        Ok(hooks.map(Hook::received).reduce(|one, other| Some(one?.plus(other?))).flatten())
    }

    fn delay_samples(&mut self) -> Result<Vec<DelaySample>, Error> {
        let Some(running) = &mut self.running else { return Ok(Vec::new()) };
        running.drain();
        Ok(running.delay_samples.take())
    }

    fn status(&self) -> Status {
        let hooks = self.running.iter().flat_map(|running| &running.hooks).filter(|_| self.attach);
        let status = |hook: &Hook| ProgramStatus {
            place: hook.place.clone(),
            // Without a request it is chosen when the interface is there.
            hook: (!hook.is_absent() || self.options.wanted(hook.place.direction).is_some())
                .then(|| hook.mode.name().to_owned()),
            hook_reason: hook.reason.clone(),
            form: hook.form.map(str::to_owned),
            program: hook.program,
            attached: hook.state == ProgramState::Counting,
        };
        Status { programs: hooks.map(status).collect(), ..Status::default() }
    }
}

impl RunningBackend {
    /// Warns if the filter of the next window compares VLAN tags that programs may not see.
    fn warn_of_vlan_tags(&mut self) {
        let Some(filter) = &self.next_filter else { return };
        let hooks = self.hooks.iter().filter(|hook| hook.sees_frames());
        let warnings = hooks.filter_map(|hook| {
            let warning = device::unseen_vlan_tags(&hook.place.interface, filter)?;
            Some(Event::Warning(format!("{}: {warning}", hook.place)))
        });
        self.events.extend(warnings);
    }

    /// Supervises the programs. Events that several programs report alike are reported once.
    fn look(&mut self, options: &Options) {
        if self.ended {
            return;
        }
        // Read before the interfaces are looked up: one that is back is known to have been away.
        self.links.read(&mut self.departures);
        let departures = std::mem::take(&mut self.departures);
        let mut events = Vec::new();
        for hook in self
            .hooks
            .iter_mut()
            .filter(|hook| hook.link.is_some() || hook.state != ProgramState::Counting)
        {
            if hook.is_absent() {
                hook.wait_for_interface(&mut events, |place| {
                    hook::attached(place, options, &self.tables, &self.common)
                });
            } else {
                let from = ProgramSource { options, tables: &self.tables };
                hook.look(from, &departures, &mut events);
            }
        }
        for event in events {
            if !self.events.contains(&event) {
                self.events.push(event);
            }
        }
        let counting = |hook: &Hook| hook.state == ProgramState::Counting;
        if !self.hooks.iter().any(counting) {
            self.ended = true;
            self.events.push(Event::TrafficEnded);
        }
    }

    /// Marks the windows of interfaces that left or returned since the last look, once no program
    /// counts in the closed banks any more. The next look detaches or attaches the programs.
    fn mark_moved(&mut self) {
        let Self { links, departures, hooks, .. } = self;
        links.read(departures);
        hooks.iter_mut().for_each(|hook| hook.mark_if_moved(departures));
    }

    /// Takes the delay samples that have arrived.
    fn drain(&mut self) {
        let Self { hooks, delay_samples, .. } = self;
        for (hook, place) in hooks.iter_mut().zip(0..) {
            hook.drain(|sample| delay_samples.add(DelaySample { place, ..sample }));
        }
    }

    /// Repeats the step at which the earlier process may have been killed; see [`pins`].
    fn recover(&mut self, settings: &Settings) -> Result<(), Error> {
        if self.hooks.iter().all(|hook| hook.note.unpublished == 0) {
            for hook in &mut self.hooks {
                hook.write_active_bank();
                hook.clear(settings);
            }
            return Ok(());
        }
        self.phase = Phase::Flipped;
        let now = now_ns();
        for hook in &mut self.hooks {
            match hook.note.unpublished {
                0 => {
                    hook.clear(settings);
                    hook.flip(now, self.next_filter.as_ref())?;
                }
                _ => hook.write_active_bank(),
            }
        }
        Ok(())
    }

    /// Releases the closed banks.
    fn published(&mut self, window: u64, settings: &Settings) -> Result<(), Error> {
        self.next_window = window + 1;
        for hook in &mut self.hooks {
            hook.published(window)?;
            hook.clear(settings);
        }
        self.phase = Phase::Ready;
        Ok(())
    }
}

/// Waits until no packet is in flight to a bank that was active before.
fn wait_for_packets_in_flight(grace: &GracePeriod, interface: &str) -> Result<(), Error> {
    grace.wait().map_err(|error| Error::Kernel {
        interface: interface.to_owned(),
        problem: format!("cannot wait for packets in flight ({}): {error}", grace.wait_of().name()),
        source: Some(error),
    })
}

/// Merges several counting points; a single one needs no parts.
fn united(
    hooks: &[Hook],
    mut snapshots: Vec<Snapshot>,
    sums: &mut BankPool,
    settings: &Settings,
    tables: &Tables,
) -> Snapshot {
    if snapshots.len() == 1
        && let Some(only) = snapshots.pop()
    {
        return only;
    }
    let bank = sums.fill(settings, |bank| {
        snapshots.iter().for_each(|snapshot| bank.unite(&snapshot.bank, settings))
    });
    let mut persistent = settings.lasts().then(PersistentBank::boxed);
    let (mut packets_before, mut packets_after) = (0, 0);
    let complete = snapshots.iter().all(|snapshot| snapshot.complete);
    for snapshot in &snapshots {
        if let (Some(all), Some(one)) = (&mut persistent, &snapshot.persistent) {
            all.merge(one, settings);
        }
        packets_before += snapshot.packets_before;
        packets_after += snapshot.packets_after;
    }
    let part = |(hook, snapshot): (&Hook, Snapshot)| Part {
        place: hook.place.clone(),
        snapshot,
        losses: hook.losses(),
        received: None,
    };
    let parts = hooks.iter().zip(snapshots).map(part).collect();
    Snapshot {
        persistent,
        packets_before,
        packets_after,
        complete,
        parts,
        ..Snapshot::of(bank, tables.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_elements_for_numbers_that_no_cpu_has() {
        for (ranges, elements) in [("0\n", 1), ("0-3\n", 4), ("0-3,8-11\n", 12), ("0,2\n", 3)] {
            assert_eq!(above_all(ranges), Some(elements), "{ranges}");
        }
        assert_eq!(above_all("\n"), None);
    }
}
