//! Creation of hooks: loading, attaching, and adoption of programs that a dead controller left.

use super::{Hook, LastCheck, Memory, NO_INDEX, ProgramState, fingerprint, passed};
use crate::Event;
use crate::error::Error;
use crate::interface::Interface;
use crate::interface::device::{self, CountingStage, DeviceCounters};
use crate::losses::Losses;
use crate::place::{CountingPoint, Direction};
use crate::tables::Tables;
use crate::tally::Odometer;
use crate::xdp::attach::{AttachRefusal, LoadedPrograms, arrays, attach, cpus, verify};
use crate::xdp::common::Common;
use crate::xdp::kept::KeptArray;
use crate::xdp::link::{self, ProgramLink};
use crate::xdp::mapped::{AdmissionShares, Cores, MappedFilters, SharedMemory};
use crate::xdp::note::{CountingIdentity, Note, RunName, Secret};
use crate::xdp::object;
use crate::xdp::pins::{self, AdoptedPins, Pins};
use crate::xdp::refusal::{Problem, TCX_SINCE, loading, no_tcx, refused, release};
use crate::xdp::set::{Member, ProgramSet};
use crate::xdp::verifier::NotLoaded;
use crate::xdp::{Mode, Options, clsact, now_ns};
use aya::Ebpf;
use aya::maps::{MapData, RingBuf};
use aya::programs::ProgramError;
use flowgauge_core::Link as Layer;
use flowgauge_core::kernel::{Config, MemoryLayout};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What programs are made of, beside the object: settings, and the tables of the hash.
#[derive(Clone, Copy)]
pub(in crate::xdp) struct ProgramSource<'a> {
    pub(in crate::xdp) options: &'a Options,
    pub(in crate::xdp) tables: &'a Tables,
}

/// A hook, with its programs if they are still needed.
pub(in crate::xdp) struct AttachedHook {
    pub(in crate::xdp) hook: Hook,
    pub(in crate::xdp) adopted: bool,
    pub(in crate::xdp) programs: Option<Ebpf>,
    /// Events not yet returned to the caller.
    pub(in crate::xdp) events: Vec<Event>,
}

/// Creates a hook for injected frames, without an interface.
pub(in crate::xdp) fn detached(
    place: &CountingPoint,
    options: &Options,
    tables: &Tables,
    common: &Common,
) -> Result<AttachedHook, Error> {
    let (hook, mut programs) =
        without_interface(place, options, tables, common, ProgramState::Counting)?;
    verify(place, options, &mut programs).map_err(|error| refused(place, loading(&error)))?;
    Ok(AttachedHook { hook, adopted: false, programs: Some(programs), events: Vec::new() })
}

/// Creates an idle hook for an interface that does not exist yet.
pub(in crate::xdp) fn absent(
    place: &CountingPoint,
    options: &Options,
    tables: &Tables,
    common: &Common,
) -> Result<AttachedHook, Error> {
    let (hook, _) = without_interface(place, options, tables, common, ProgramState::Gone)?;
    let events = vec![Event::Warning(format!(
        "{place}: there is no such interface; it is counted when it is there"
    ))];
    Ok(AttachedHook { hook, adopted: false, programs: None, events })
}

fn without_interface(
    place: &CountingPoint,
    options: &Options,
    tables: &Tables,
    common: &Common,
    state: ProgramState,
) -> Result<(Hook, Ebpf), Error> {
    let identity = identity(place, options, tables, common);
    let (programs, memory) = own(place, ProgramSource { options, tables }, common)?;
    let hook = Hook {
        place: place.clone(),
        mode: options.usual(place.direction),
        reason: None,
        note: Note::new(&identity, &place.interface, NO_INDEX, now_ns()),
        run: identity.run,
        state,
        layer: Layer::Ethernet,
        program: None,
        form: None,
        counters_before: DeviceCounters::default(),
        counted: CountingStage::InStack,
        losses_earlier: Losses::default(),
        losses_seen: Losses::default(),
        odometer: None,
        passed_before: 0,
        merged: 0,
        link: None,
        last_check: LastCheck::at(""),
        pins: None,
        arrays: Vec::new(),
        member: None,
        memory,
    };
    Ok((hook, programs))
}

/// Starts to count at an interface, or adopts what a dead controller left counting there.
pub(in crate::xdp) fn attached(
    place: &CountingPoint,
    options: &Options,
    tables: &Tables,
    common: &Common,
) -> Result<AttachedHook, Error> {
    let interface = &place.interface;
    let (index, counters) = device::existing(interface, DeviceCounters::find(interface))?;
    if options.wanted(place.direction) == Some(Mode::Tcx) && !link::has_tcx(index) {
        return Err(refused(place, no_tcx()));
    }
    let passed_before = match place.direction {
        Direction::Ingress => counters.arrived(),
        Direction::Egress => passed(interface, place.direction).map_or(0, |passed| *passed.start()),
    };
    let layer = device::link(interface).map_err(|problem| refused(place, problem))?;
    let identity = identity(place, options, tables, common);
    let mut note =
        Note { active: common.bank(), ..Note::new(&identity, interface, index, now_ns()) };
    let mut events = Vec::new();
    if options.pins.as_ref().is_some_and(|keep| pins::forget(&keep.directory, place, index)) {
        events.push(Event::Notice(format!(
            "{place}: the interface was re-created after a flowgauge that counted on it was killed; counting starts again, and the \
             unpublished counts of the earlier interface are dropped"
        )));
    }
    let pins =
        options.pins.as_ref().map(|keep| Pins::claim(&keep.directory, place, index)).transpose()?;
    let from = ProgramSource { options, tables };
    let is_filtered = tables.filter.is_some();
    let blank = |mode: Mode, reason, note, pins, memory, link: ProgramLink, (arrays, member)| {
        let program = link.attachment().ok().map(|attachment| attachment.program);
        Hook {
            place: place.clone(),
            mode,
            reason,
            note,
            run: identity.run,
            state: ProgramState::Counting,
            layer,
            program,
            form: program.and_then(object::form),
            counters_before: counters,
            counted: if matches!(mode, Mode::Native | Mode::Offload) {
                CountingStage::BeforeStack
            } else {
                CountingStage::InStack
            },
            losses_earlier: Losses::default(),
            losses_seen: Losses::default(),
            odometer: Some(Odometer::later()),
            passed_before,
            merged: 0,
            link: Some(link),
            last_check: LastCheck::at(interface),
            pins,
            arrays,
            member,
            memory,
        }
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
            let used = |mode| object::used(&options.settings, is_filtered, mode, layer);
            let AdoptedPins { mut note, link, mode, arrays } =
                pins.adopt(place, &note, options.wanted(place.direction), used)?;
            if note.limit_start_times(now_ns()) {
                events.push(Event::Notice(format!("{place}: the clock was set back since counting began; open windows are reported to begin now at the latest")));
            }
            let found = object::borrowed(&arrays);
            if let Some(news) = common.adopt(place, &found, note.boot_ns)? {
                events.push(news);
            }
            let memory = map(place, options, &found)?;
            let kept = arrays.into_iter().map(|(name, array)| KeptArray::new(name, array, true));
            let kept = (kept.collect(), None);
            let mut hook = blank(mode, None, note, Some(pins), memory, link, kept);
            if !hook.is_attached() {
                hook.attach_again(from)?;
                hook.mark_gap();
                let what = "its program was detached while no flowgauge looked after it; it is attached again";
                events.push(Event::Warning(format!(
                    "{place}: {what}, and packets since then are missing"
                )));
            }
            if let (Some(pins), Some(keep)) = (&mut hook.pins, &options.pins) {
                pins.leave = keep.leave;
                events.extend(clsact::clean(place, index, Some(pins.directory()), hook.program));
            }
            return Ok(AttachedHook { hook, adopted: true, programs: None, events });
        }
        pins.clear()
            .map_err(|error| pins.failed("remove what is left of a killed flowgauge", &error))?;
        let (mut programs, memory) = prepared(place, from, common)?;
        let notes = object::new_note(note).map_err(|error| refused(place, loading(&error)))?;
        let counting = object::memory(&options.settings, is_filtered);
        pins.keep(notes, &programs.arrays(place, counting)?)?;
        events.extend(clsact::clean(place, index, Some(pins.directory()), None));
        let Choice { link, mode, reason, event } = choose(place, index, options, |mode| {
            // Written before the program is pinned, which makes the note valid.
            note.set_mode(mode);
            let used = programs.used(&options.settings, is_filtered, mode, layer);
            let written =
                pins.write(note).and_then(|()| pins.mend(None, &programs.arrays(place, used)?));
            written
                .map_err(|error| AttachRefusal::Attaching(io::Error::other(error.to_string())))?;
            attach(place, index, layer, mode, options, &mut programs, Some(&pins))
        })?;
        events.extend(event);
        pins.pin(&link)?;
        pins.leave = options.pins.as_ref().is_some_and(|keep| keep.leave);
        let used = programs.used(&options.settings, is_filtered, mode, layer);
        let kept = programs.kept(used, true);
        return Ok(AttachedHook {
            hook: blank(mode, reason, note, Some(pins), memory, link, kept),
            adopted: false,
            programs: None,
            events,
        });
    }
    let (mut programs, memory) = prepared(place, from, common)?;
    events.extend(clsact::clean(place, index, None, None));
    let Choice { link, mode, reason, event } = choose(place, index, options, |mode| {
        attach(place, index, layer, mode, options, &mut programs, None)
    })?;
    note.set_mode(mode);
    events.extend(event);
    let used = programs.used(&options.settings, is_filtered, mode, layer);
    let kept = programs.kept(used, false);
    Ok(AttachedHook {
        hook: blank(mode, reason, note, None, memory, link, kept),
        adopted: false,
        programs: None,
        events,
    })
}

/// A program attached to the requested hook or to the best available one.
struct Choice {
    link: ProgramLink,
    mode: Mode,
    /// Why it is at this hook, if it was not requested and is not native XDP.
    reason: Option<String>,
    /// The same for the operator.
    event: Option<Event>,
}

/// Attaches the program to the requested hook; without a request, to the first that accepts it of
/// native XDP (for arriving packets), TCX or, on kernels without it, a classifier, and generic XDP
/// (for arriving packets). Native XDP follows TCX or the classifier where it costs the host what it
/// does for the whole of its traffic ([`reason_against_native`]).
fn choose(
    place: &CountingPoint,
    index: u32,
    options: &Options,
    mut attach: impl FnMut(Mode) -> Result<ProgramLink, AttachRefusal>,
) -> Result<Choice, Error> {
    if let Some(mode) = options.wanted(place.direction) {
        let link = attach(mode).map_err(|refusal| refusal.into_error(place, mode))?;
        return Ok(Choice { link, mode, reason: None, event: None });
    }
    let in_stack = if link::has_tcx(index) { Mode::Tcx } else { Mode::Clsact };
    let against_native = (place.direction == Direction::Ingress)
        .then(|| reason_against_native(&place.interface, device::is_virtual(index)))
        .flatten();
    let candidates = candidates(place.direction, in_stack, against_native.is_some());
    let mut reasons = Vec::new();
    for mode in candidates.iter().copied() {
        if mode == Mode::Clsact {
            reasons.push(format!("TCX needs {TCX_SINCE} (this is {})", release()));
        }
        match attach(mode) {
            Ok(link) => {
                let default = against_native.filter(|_| mode == in_stack);
                if let Some(reason) = default {
                    reasons.insert(0, reason.to_owned());
                }
                let reason = Some(reasons.join(", and ")).filter(|reason| !reason.is_empty());
                if reason.is_none() {
                    tracing::info!("{place}: counting {}", mode.location());
                }
                let event = reason.as_ref().map(|reason| {
                    let text = format!("{place}: counting {}: {reason}", mode.location());
                    // Patterns match many virtual devices, and nothing is lost there.
                    if default.is_some() { Event::Choice(text) } else { Event::Notice(text) }
                });
                return Ok(Choice { link, mode, reason, event });
            }
            Err(refusal) if candidates.last() != Some(&mode) && refusal.is_about_hook() => {
                reasons.push(refusal.reason(place, mode));
            }
            Err(refusal) => return Err(refusal.into_error(place, mode)),
        }
    }
    Err(AttachRefusal::Loading(NotLoaded::new("", ProgramError::NotLoaded))
        .into_error(place, in_stack))
}

/// Returns the hooks for packets in a direction in the order of attempts. `in_stack`: TCX or its
/// substitute.
fn candidates(direction: Direction, in_stack: Mode, native_is_costly: bool) -> Vec<Mode> {
    match direction {
        Direction::Ingress if native_is_costly => vec![in_stack, Mode::Native, Mode::Skb],
        Direction::Ingress => vec![Mode::Native, in_stack, Mode::Skb],
        Direction::Egress => vec![in_stack],
    }
}

/// Returns why native XDP is not tried first at an interface. On a veth it turns off segmentation
/// offload at the peer; packets of other virtual devices come from a network stack as well. Drivers
/// of devices that merge packets turn that off for native XDP, as virtio_net does, or refuse it.
fn reason_against_native(interface: &str, is_virtual: bool) -> Option<&'static str> {
    if !is_virtual {
        return device::merges_in_device(interface).then_some(
            "the device merges packets (rx-gro-hw or LRO), which native XDP would turn off (--xdp-mode native uses it all the same)",
        );
    }
    let is_veth = Interface::new(interface).is_ok_and(|device| device.driver() == "veth");
    Some(if is_veth {
        "it is a virtual device, whose peer native XDP would slow down (--xdp-mode native uses it all the same)"
    } else {
        "it is a virtual device"
    })
}

fn identity(
    place: &CountingPoint,
    options: &Options,
    tables: &Tables,
    common: &Common,
) -> CountingIdentity {
    let Options { settings, slot_ns, .. } = *options;
    let secret = Secret::new(tables.key.as_ref());
    let attached = options.usual(place.direction);
    CountingIdentity {
        settings,
        seed: tables.seed,
        secret,
        slot_ns: slot_ns.max(1),
        boot_ns: common.boot_ns(),
        attached,
        filter: fingerprint(tables.filter.as_ref()),
        run: RunName::new(&options.run),
    }
}

/// Loads programs or joins a set of them, and maps and prepares the memory that they will count in.
fn prepared(
    place: &CountingPoint,
    from: ProgramSource<'_>,
    common: &Common,
) -> Result<(LoadedPrograms, Memory), Error> {
    let member = match common.set() {
        Some(set) => joined(place, from, common, set)?,
        None => None,
    };
    match member {
        Some((member, memory)) => Ok((LoadedPrograms::OfSet(member), memory)),
        None => own(place, from, common)
            .map(|(programs, memory)| (LoadedPrograms::Own(programs), memory)),
    }
}

/// Joins a set of programs; `None` if it has had all its members.
fn joined(
    place: &CountingPoint,
    from: ProgramSource<'_>,
    common: &Common,
    set: &Arc<ProgramSet>,
) -> Result<Option<(Member, Memory)>, Error> {
    let ProgramSource { options, tables } = from;
    let keeps = options.pins.is_some();
    let member = ProgramSet::member(set, place.direction, &common.arrays(), keeps)
        .map_err(|error| refused(place, loading(&error)))?;
    let Some(member) = member else { return Ok(None) };
    let arrays = object::borrowed(member.arrays());
    common.prepare(place, &arrays, options, tables)?;
    let memory = map(place, options, &arrays)?;
    let memory = memory.prepared(common.bank(), tables.filter.as_ref());
    member.enter().map_err(|error| {
        let problem = format!("cannot put its memory where the shared programs find it: {error}");
        refused(place, Problem(problem, Some(error)))
    })?;
    Ok(Some((member, memory)))
}

/// Loads programs for one counting point, and maps and prepares the memory that they will count in.
fn own(
    place: &CountingPoint,
    from: ProgramSource<'_>,
    common: &Common,
) -> Result<(Ebpf, Memory), Error> {
    let ProgramSource { options, tables } = from;
    let is_filtered = tables.filter.is_some();
    let mut programs = load(place, from, common.boot_ns(), is_filtered, &common.arrays())?;
    let arrays = arrays(place, &programs, object::memory(&options.settings, is_filtered))?;
    common.prepare(place, &arrays, options, tables)?;
    let memory = map(place, options, &arrays)?;
    let samples = options.settings.delay.samples;
    let delay_samples = samples.then(|| ring(place, &mut programs)).transpose()?;
    let memory = Memory { delay_samples, ..memory };
    Ok((programs, memory.prepared(common.bank(), tables.filter.as_ref())))
}

/// Loads the object, with existing arrays in place of new ones.
pub(super) fn load(
    place: &CountingPoint,
    from: ProgramSource<'_>,
    boot_ns: u64,
    is_filtered: bool,
    existing: &[(&'static str, BorrowedFd<'_>)],
) -> Result<Ebpf, Error> {
    let ProgramSource { options, tables } = from;
    let config = Config {
        leaves: u32::from(place.direction == Direction::Egress),
        ..config(options, boot_ns, is_filtered)
    };
    object::load(&config, &tables.tabulation, cpus(place)?, options.delay_sample_ring, existing)
        .map_err(|error| refused(place, loading(&error)))
}

/// Returns the configuration of programs for any counting point.
pub(in crate::xdp) fn config(options: &Options, boot_ns: u64, is_filtered: bool) -> Config {
    let settings = options.settings;
    Config {
        slot_ns: options.slot_ns.max(1),
        boot_ns,
        settings,
        needs: settings.needs(),
        verdict: options.task.verdict(),
        layout: MemoryLayout::of(&settings),
        filtered: is_filtered.into(),
        ..Config::DEFAULT
    }
}

/// Maps the arrays that programs use, but for the ring of delay samples.
fn map(
    place: &CountingPoint,
    options: &Options,
    arrays: &[(&'static str, &MapData)],
) -> Result<Memory, Error> {
    let failed =
        |what: &str, error: &io::Error| refused(place, format!("cannot map {what}: {error}"));
    let found = |name: &str| object::find(arrays, name);
    let cores = found(object::CORES)
        .ok_or_else(|| failed("the array of cores", &io::Error::from(io::ErrorKind::NotFound)))?;
    let cores = Cores::new(cores, cpus(place)?, &options.settings)
        .map_err(|error| failed("the array of cores", &error))?;
    let shared = SharedMemory::new(found(object::SHARED))
        .map_err(|error| failed("what cores share", &error))?;
    let admitted = AdmissionShares::new(found(object::PERSISTENT), &options.settings)
        .map_err(|error| failed("what lasts", &error))?;
    let filters = MappedFilters::new(found(object::FILTERS))
        .map_err(|error| failed("the filters", &error))?;
    Ok(Memory { cores, shared, delay_samples: None, admitted, filters })
}

/// Takes the ring of delay samples; the programs keep a reference.
fn ring(place: &CountingPoint, programs: &mut Ebpf) -> Result<RingBuf<MapData>, Error> {
    let name = object::DELAY_SAMPLES;
    let ring = programs.take_map(name).ok_or_else(|| {
        refused(place, format!("the object has no ring {name}; rebuild it with ebpf/build"))
    })?;
    RingBuf::try_from(ring)
        .map_err(|error| refused(place, format!("cannot map the ring of delay samples: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_xdp_is_the_second_choice_where_it_is_costly() {
        use Mode::{Clsact, Native, Skb, Tcx};
        let order = |direction, costly| candidates(direction, Tcx, costly);
        assert_eq!(order(Direction::Ingress, false), [Native, Tcx, Skb]);
        assert_eq!(order(Direction::Ingress, true), [Tcx, Native, Skb]);
        assert_eq!(order(Direction::Egress, true), [Tcx]);
        assert_eq!(candidates(Direction::Ingress, Clsact, true), [Clsact, Native, Skb]);
    }

    #[test]
    fn loopback_has_a_reason_as_a_virtual_device_only() {
        assert_eq!(reason_against_native("lo", true), Some("it is a virtual device"));
        assert_eq!(reason_against_native("lo", false), None);
    }
}
