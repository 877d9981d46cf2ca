//! Loading of the programs in `ebpf/`, with settings and tables inserted.
#![allow(
    unsafe_code,
    reason = "aya asks for a promise that the values written into the object and its maps are plain data"
)]

use super::entry::Entry;
use super::link::Hooks;
use super::mode::Mode;
use super::note::Note;
use super::syscall::ProgramKind;
use super::verifier::NotLoaded;
use super::{elements, probe, syscall};
use aya::maps::{Map, MapData, MapError, ProgramArray};
use aya::programs::{Program, ProgramError};
use aya::{Ebpf, EbpfError, EbpfLoader, Pod, include_bytes_aligned};
use flowgauge_core::hash::{BLOCKS, MULTILINEAR_WORDS};
use flowgauge_core::kernel::{Config, CurrentMember, MemoryLayout, SharedBanks};
use flowgauge_core::list::MEASUREMENTS;
use flowgauge_core::{BANKS, Filter, HashMode, Link, MeasurementKind, Settings, Tabulation};
use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Object built by `ebpf/build`; `ebpf/flowgauge.record` lists its inputs. This crate links to the
/// objects, so that its package contains them.
static OBJECT: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/flowgauge.o"));

/// Object for AF_XDP sockets, separate since kernels without them could not create its map.
static REDIRECT_OBJECT: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/redirect.o"));

/// Wrapper for values that the kernel may copy byte by byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct PlainData<T>(pub(super) T);

// SAFETY: a `repr(C)` struct of integers without padding; any bits are a valid note.
unsafe impl Pod for PlainData<Note> {}

/// Kernel array that contains one note.
pub(super) type NoteArray = aya::maps::Array<MapData, PlainData<Note>>;

/// Names of arrays in the object.
pub(super) const CORES: &str = "CORES";
pub(super) const SHARED: &str = "SHARED";
pub(super) const PERSISTENT: &str = "PERSISTENT";
pub(super) const FILTERS: &str = "FILTERS";
pub(super) const LOCK: &str = "LOCK";
const XDP_CHAIN: &str = "XDP_CHAIN";
const FRAGS_CHAIN: &str = "FRAGS_CHAIN";
const TCX_CHAIN: &str = "TCX_CHAIN";
/// Members whose packets CPUs count, in a set.
pub(super) const CURRENT: &str = "CURRENT";

/// Arrays that every member of a set has for itself. The set's programs use an array of maps in
/// place of each.
pub(super) const OF_MEMBERS: [&str; 3] = [CORES, SHARED, PERSISTENT];

/// Chains of a set: names of their pins, and in the object. Programs that one member loads for
/// itself must not get into them.
pub(super) const SET_CHAINS: [(&str, &str); 3] =
    [("SET_XDP_CHAIN", XDP_CHAIN), ("SET_FRAGS_CHAIN", FRAGS_CHAIN), ("SET_TCX_CHAIN", TCX_CHAIN)];

/// Arrays that may outlive the loaded object, and a process whose programs are retained: those
/// [in use](used), and the chains of a set.
pub(super) const KEPT: [&str; 11] = {
    let [(set_xdp, _), (set_frags, _), (set_tcx, _)] = SET_CHAINS;
    [
        CORES,
        SHARED,
        PERSISTENT,
        FILTERS,
        LOCK,
        XDP_CHAIN,
        FRAGS_CHAIN,
        TCX_CHAIN,
        set_xdp,
        set_frags,
        set_tcx,
    ]
};
pub(super) const DELAY_SAMPLES: &str = "DELAY_SAMPLES";
pub(super) const XDP: [&str; 2] = ["flowgauge_xdp", "flowgauge_xdp_keyed"];
pub(super) const XDP_ALL: [&str; 2] = ["flowgauge_xdp_all", "flowgauge_xdp_all_keyed"];
pub(super) const XDP_FRAGS: [&str; 2] = ["flowgauge_xdp_frags", "flowgauge_xdp_frags_keyed"];
pub(super) const XDP_ALL_FRAGS: [&str; 2] =
    ["flowgauge_xdp_all_frags", "flowgauge_xdp_all_frags_keyed"];
pub(super) const XDP_IP: [&str; 2] = ["flowgauge_xdp_ip", "flowgauge_xdp_ip_keyed"];
pub(super) const XDP_FUSED: [&str; 2] = ["flowgauge_fused_xdp", "flowgauge_fused_xdp_keyed"];
pub(super) const TCX: [&str; 2] = ["flowgauge_tcx", "flowgauge_tcx_keyed"];
pub(super) const TCX_ALL: [&str; 2] = ["flowgauge_tcx_all", "flowgauge_tcx_all_keyed"];
pub(super) const TCX_FUSED: [&str; 2] = ["flowgauge_fused_tcx", "flowgauge_fused_tcx_keyed"];
pub(super) const TCX_IP: [&str; 2] = ["flowgauge_tcx_ip", "flowgauge_tcx_ip_keyed"];
pub(super) const EMPTY: &str = "flowgauge_empty";
pub(super) const REDIRECT: &str = "flowgauge_redirect";
pub(super) const REDIRECT_FRAGS: &str = "flowgauge_redirect_frags";
pub(super) const SOCKETS: &str = "SOCKETS";
pub(super) const PASSED: &str = "PASSED";

/// Returns the names of the arrays of memory that programs use with these settings.
pub(super) fn memory(settings: &Settings, is_filtered: bool) -> Vec<&'static str> {
    let lasts = MemoryLayout::of(settings).together > 0;
    let is_locked = (settings.shares() || lasts) && !probe::has_fetching_atomics();
    let arrays = [
        (CORES, true),
        (SHARED, settings.shares()),
        (PERSISTENT, lasts),
        (FILTERS, is_filtered),
        (LOCK, is_locked),
    ];
    arrays.into_iter().filter(|(_, is_used)| *is_used).map(|(array, _)| array).collect()
}

/// Returns the names of the arrays that programs at a hook use with these settings: the memory, and
/// the arrays of follow-up programs, which the kernel empties once no process and no pin references
/// them.
pub(super) fn used(
    settings: &Settings,
    is_filtered: bool,
    mode: Mode,
    layer: Link,
) -> Vec<&'static str> {
    // As the first programs: without follow-up programs only distinct flows of Ethernet frames.
    let has_followers = settings.beyond_cardinality() || layer == Link::Ip;
    let chains = chains(mode).into_iter().filter(|_| has_followers);
    memory(settings, is_filtered).into_iter().chain(chains.map(|(_, array)| array)).collect()
}

/// Returns the names of the arrays that programs of a set use for a member at a hook: its memory,
/// and the chains, which the first programs of a set are in as well.
pub(super) fn used_in_set(settings: &Settings, mode: Mode) -> Vec<&'static str> {
    let chains = chains(mode).into_iter().map(|(pin, _)| pin);
    memory(settings, false).into_iter().chain(chains).collect()
}

/// Returns the chains of a hook, as in [`SET_CHAINS`].
pub(super) fn chains(mode: Mode) -> Vec<(&'static str, &'static str)> {
    SET_CHAINS.into_iter().filter(|(_, array)| mode.is_xdp() != (*array == TCX_CHAIN)).collect()
}

/// Returns whether an array of this name has programs.
pub(super) fn is_chain(name: &str) -> bool {
    SET_CHAINS.iter().any(|(pin, array)| name == *pin || name == *array)
}

/// Returns whether the hook whose programs use the array of this name maps it into this process.
pub(super) fn is_always_mapped(name: &str) -> bool {
    [CORES, SHARED, FILTERS].contains(&name)
}

/// Returns whether this is the name of a set's chain.
pub(super) fn is_of_set(name: &str) -> bool {
    SET_CHAINS.iter().any(|(pin, _)| name == *pin)
}

/// Returns the size of an element of memory in bytes, and the number of elements.
fn shape(array: &str, layout: &MemoryLayout, cpus: usize) -> (u32, u32) {
    match array {
        CORES => (layout.core, u32::try_from(cpus).unwrap_or(u32::MAX)),
        SHARED => (size_of::<SharedBanks>() as u32, 1),
        PERSISTENT => (layout.together, 1),
        FILTERS => (size_of::<Filter>() as u32, BANKS as u32),
        _ => (UNUSED_ELEMENT_BYTES, 1),
    }
}

/// Creates an array of memory as it is in the object, for a member of a set.
pub(super) fn new_memory(array: &str, layout: &MemoryLayout, cpus: usize) -> io::Result<OwnedFd> {
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    let (bytes, entries) = shape(array, layout, cpus);
    syscall::new_array(array, bytes, entries, BPF_F_MMAPABLE)
}

/// Loads maps and programs; each program is verified when it is loaded later. `ring` is the size in
/// bytes of the ring for individual delays, if settings enable them. The programs use the existing
/// maps, given by their names in the object, instead of new ones.
pub(super) fn load(
    config: &Config,
    tabulation: &Tabulation,
    cpus: usize,
    ring: u32,
    existing: &[(&'static str, BorrowedFd<'_>)],
) -> Result<Ebpf, EbpfError> {
    const {
        assert!(
            size_of::<Tabulation>() == 4 * 256 * (4 + 8 * BLOCKS) + 8 * MULTILINEAR_WORDS,
            "no padding"
        )
    };
    let settings = &config.settings;
    let start = (&raw const *tabulation).cast::<u8>();
    // SAFETY: integers without padding, as checked above, which live as long as the reference.
    let tabulation = unsafe { std::slice::from_raw_parts(start, size_of::<Tabulation>()) };
    let start = (&raw const *config).cast::<u8>();
    // SAFETY: a `repr(C)` struct of integers and of enums with an integer representation, without
    // padding, which lives as long as the reference.
    let settings_bytes = unsafe { std::slice::from_raw_parts(start, size_of::<Config>()) };
    // Those that are not used, and that an existing array replaces, are as small as possible. Each
    // member of a set has its own.
    let memory = memory(settings, config.filtered != 0);
    let is_set = config.is_set != 0;
    let is_new = |map: &str| !is_set && existing.iter().all(|(other, _)| *other != map);
    let bytes = |array: &'static str| {
        let (bytes, _) = shape(array, &config.layout, cpus);
        let is_needed = memory.contains(&array) && is_new(array);
        (array, if is_needed { bytes } else { UNUSED_ELEMENT_BYTES })
    };
    let mut object = elements::resized(OBJECT, &[CORES, SHARED, PERSISTENT, FILTERS].map(bytes));
    let (_, cores) = shape(CORES, &config.layout, cpus);
    if is_set {
        elements::set_entries(&mut object, CURRENT, cores);
    } else if is_new(CORES) {
        elements::set_entries(&mut object, CORES, cores);
    }
    if settings.delay.samples && is_new(DELAY_SAMPLES) {
        elements::set_entries(&mut object, DELAY_SAMPLES, ring);
    } else {
        elements::without(&mut object, DELAY_SAMPLES);
    }
    for (global, value) in [("CONFIG", settings_bytes), ("TABULATION", tabulation)] {
        if !elements::set_global(&mut object, global, value) {
            let problem = format!("it has no {global} of {} bytes; run ebpf/build", value.len());
            return Err(ProgramError::IOError(io::Error::other(problem)).into());
        }
    }
    let followers = followers(settings);
    let may_fuse = may_fuse(settings, config.filtered != 0);
    elements::hide_programs(&mut object, |name| {
        !is_used(name, settings, &followers) || is_fused(name) && !may_fuse
    });
    let programs = load_object(&object)?;
    for &(map, existing) in existing {
        replace(&programs, map, existing)?;
    }
    Ok(programs)
}

/// Makes programs use an existing map instead of the one that was created with them. Until a program
/// is loaded, it names maps by the numbers of their descriptors: this number refers to the existing
/// map from now on.
fn replace(programs: &Ebpf, map: &str, existing: BorrowedFd<'_>) -> Result<(), ProgramError> {
    let created = programs.map(map).and_then(data);
    let created = created.ok_or_else(|| {
        io::Error::other(format!("the object has no map {map}; rebuild it with ebpf/build"))
    })?;
    Ok(syscall::substitute(created.fd().as_fd(), existing)?)
}

/// Returns the data of a map of memory or programs.
pub(super) fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data) | Map::ProgramArray(data) => Some(data),
        _ => None,
    }
}

/// Returns an array of a list, if it is there.
pub(super) fn find<'a>(arrays: &[(&'static str, &'a MapData)], name: &str) -> Option<&'a MapData> {
    arrays.iter().find(|(other, _)| *other == name).map(|(_, array)| *array)
}

/// Returns a list of borrowed arrays.
pub(super) fn borrowed<'a>(
    arrays: &'a [(&'static str, MapData)],
) -> Vec<(&'static str, &'a MapData)> {
    arrays.iter().map(|(name, array)| (*name, array)).collect()
}

/// Takes arrays out of a loaded object, which may be dropped then: programs hold what they use.
/// Those that it lacks are left out; the code that maps them has reported that.
pub(super) fn take(programs: &mut Ebpf, arrays: Vec<&'static str>) -> Vec<(&'static str, MapData)> {
    let taken = arrays.into_iter().filter_map(|array| match programs.take_map(array)? {
        Map::Array(data) | Map::ProgramArray(data) => Some((array, data)),
        _ => None,
    });
    taken.collect()
}

/// Returns whether a program of the object may run with these settings: on some hook, for some link
/// layer.
fn is_used(name: &str, settings: &Settings, followers: &[(usize, String)]) -> bool {
    if name.starts_with("flowgauge_") {
        let is_keyed = settings.hash == HashMode::Keyed;
        return name == EMPTY || name.ends_with("_keyed") == is_keyed;
    }
    let measurement = ["xdp_", "frags_", "tcx_"].iter().find_map(|hook| name.strip_prefix(hook));
    measurement.is_some_and(|measurement| followers.iter().any(|(_, name)| name == measurement))
}

/// Loader of all objects, once there was one. A new loader parses the type information of the
/// kernel, which takes longer than all else but the verifier, and tens of megabytes. These programs
/// need none of it.
static LOADER: Mutex<Option<EbpfLoader<'static>>> = Mutex::new(None);

/// Loads an object whose sizes and globals are set. One at a time: a few milliseconds, while the
/// verification of its programs takes longer and comes later.
fn load_object(object: &[u8]) -> Result<Ebpf, EbpfError> {
    let mut loader = LOADER.lock().unwrap_or_else(PoisonError::into_inner);
    let loader = loader.get_or_insert_with(|| {
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        loader
    });
    loader.load(object)
}

/// Programs of a hook, identified by the prefix of their names, which share an array of follow-up
/// programs.
#[derive(Clone, Copy)]
struct Chain {
    prefix: &'static str,
    array: &'static str,
}

impl Chain {
    /// Returns the kind of its programs.
    fn kind(self) -> ProgramKind {
        const CLASSIFIER: u32 = 3;
        const XDP: u32 = 6;
        const HAS_FRAGS: u32 = 1 << 5;
        let hook = Hooks::Xdp as u32;
        match self.array {
            TCX_CHAIN => ProgramKind { kind: CLASSIFIER, hook: 0, flags: 0 },
            FRAGS_CHAIN => ProgramKind { kind: XDP, hook, flags: HAS_FRAGS },
            _ => ProgramKind { kind: XDP, hook, flags: 0 },
        }
    }

    fn of(first: &str) -> Self {
        if first.contains("_tcx") {
            Chain { prefix: "tcx", array: TCX_CHAIN }
        } else if first.contains("_frags") {
            Chain { prefix: "frags", array: FRAGS_CHAIN }
        } else {
            Chain { prefix: "xdp", array: XDP_CHAIN }
        }
    }
}

/// Returns the follow-up programs: the slots of the chain in order, each with a program's name.
fn followers(settings: &Settings) -> Vec<(usize, String)> {
    let locked = !probe::has_fetching_atomics();
    let on = MeasurementKind::ALL.into_iter().filter(|kind| kind.is_on(settings));
    let name = |kind: MeasurementKind| {
        let shares = settings
            .used()
            .into_iter()
            .nth(kind as usize)
            .is_some_and(|used| used.shared > 0 || used.shared_persistent > 0);
        format!("{}{}", kind.name(), if shares && locked { "_locked" } else { "" })
    };
    let samples = settings.delay.samples.then(|| (MEASUREMENTS, "samples".to_owned()));
    on.map(|kind| (kind as usize, name(kind))).chain(samples).collect()
}

/// Returns whether a fused program is worth an attempt. None can send samples of delays, which takes
/// a program of its own. With all measurements and a filter the verifier takes 20 s to refuse one.
fn may_fuse(settings: &Settings, is_filtered: bool) -> bool {
    !is_filtered && !settings.delay.samples && probe::takes_fused()
}

/// Returns the program that counts with all measurements in place of a first program and those that
/// follow it.
fn fused(first: &str) -> Option<&'static str> {
    let pairs = [(XDP_ALL, XDP_FUSED), (TCX_ALL, TCX_FUSED)];
    let mut pairs = pairs.into_iter().flat_map(|(separate, fused)| separate.into_iter().zip(fused));
    pairs.find(|(separate, _)| *separate == first).map(|(_, fused)| fused)
}

/// Returns whether a program of this name counts with all measurements.
pub(super) fn is_fused(name: &str) -> bool {
    name.starts_with("flowgauge_fused")
}

/// Returns the loaded form of a first program, fused or separate.
pub(super) fn loaded(programs: &Ebpf, first: &'static str) -> Option<&'static str> {
    let is_loaded = |name: &str| programs.program(name).is_some_and(|it| it.fd().is_ok());
    fused(first).into_iter().chain([first]).find(|name| is_loaded(name))
}

/// Returns `fused` or `separate` of a loaded first program that counts with several measurements.
/// Its name, which the kernel cuts off, says which.
pub(super) fn form(program: u32) -> Option<&'static str> {
    let name = syscall::program_name(&syscall::program(program).ok()?).ok()?;
    if is_fused(&name) {
        Some("fused")
    } else if ["flowgauge_xdp_a", "flowgauge_xdp_i", "flowgauge_tcx_a", "flowgauge_tcx_i"]
        .contains(&name.as_str())
    {
        Some("separate")
    } else {
        None
    }
}

/// Loads a first program with all that it needs, fused if this kernel accepts that. Returns its name.
pub(super) fn load_chain(
    programs: &mut Ebpf,
    first: &'static str,
    settings: &Settings,
) -> Result<&'static str, NotLoaded> {
    if let Some(name) = loaded(programs, first) {
        return Ok(name);
    }
    // `load` has left it out where it is not worth an attempt.
    if let Some(fused) = fused(first).filter(|name| programs.program(name).is_some()) {
        match load_one(programs, fused) {
            Ok(()) => return Ok(fused),
            Err(error) => {
                let error = NotLoaded::new(fused, error);
                let reason = super::refusal::why_not_loaded(&error);
                tracing::info!("each measurement has a program of its own: {reason}");
            }
        }
    }
    if first.contains("_all") || first.contains("_ip") {
        let chain = Chain::of(first);
        let mut from = 0;
        for (slot, name) in followers(settings) {
            let name = format!("{}_{name}", chain.prefix);
            follow(programs, chain, &name, from..=slot)
                .map_err(|error| NotLoaded::new(&name, error))?;
            from = slot + 1;
        }
    }
    load_one(programs, first).map(|()| first).map_err(|error| NotLoaded::new(first, error))
}

/// Loads a first program with all that it needs, as for one counting point, and puts it into its
/// chain for [`Entry`]. Returns its name.
pub(super) fn make_callable(
    programs: &mut Ebpf,
    first: &'static str,
    settings: &Settings,
) -> Result<&'static str, NotLoaded> {
    let name = load_chain(programs, first, settings)?;
    put_first(programs, name).map_err(|error| NotLoaded::new(name, error))?;
    Ok(name)
}

fn put_first(programs: &mut Ebpf, name: &str) -> Result<(), ProgramError> {
    let program = programs.program(name).ok_or(ProgramError::NotLoaded)?.fd()?.try_clone()?;
    let array = programs.map_mut(Chain::of(name).array).ok_or(ProgramError::NotLoaded)?;
    let mut array = ProgramArray::try_from(array)?;
    Ok(array.set(first_slot(name), &program, 0)?)
}

/// Returns the slot of a first program: after those of measurements and of delay samples.
fn first_slot(first: &str) -> u32 {
    MEASUREMENTS as u32 + if first.contains("_ip") { 2 } else { 1 }
}

/// Returns what the program of a set's member is made of that continues with this first program.
pub(super) fn entry<'a>(
    programs: &'a Ebpf,
    first: &'a str,
    config: &Config,
    member: CurrentMember,
) -> Result<Entry<'a>, ProgramError> {
    const TCX_NEXT: i32 = -1;
    let array = |name: &str| {
        let data = programs.map(name).and_then(data).ok_or(ProgramError::NotLoaded)?;
        Ok::<_, ProgramError>(data.fd().as_fd())
    };
    let chain = Chain::of(first);
    let verdict = if chain.array == TCX_CHAIN { TCX_NEXT } else { config.verdict.cast_signed() };
    Ok(Entry {
        name: first,
        kind: chain.kind(),
        current: array(CURRENT)?,
        member,
        chain: array(chain.array)?,
        slot: first_slot(first),
        verdict,
    })
}

/// Loads a program into slots of a chain, which then hold the only reference to it.
fn follow(
    programs: &mut Ebpf,
    chain: Chain,
    name: &str,
    slots: RangeInclusive<usize>,
) -> Result<(), ProgramError> {
    load_one(programs, name)?;
    let program = programs.program(name).ok_or(ProgramError::NotLoaded)?.fd()?.try_clone()?;
    let array = programs.map_mut(chain.array).ok_or(ProgramError::NotLoaded)?;
    let mut array = ProgramArray::try_from(array)?;
    slots.into_iter().try_for_each(|slot| array.set(slot as u32, &program, 0))?;
    match programs.program_mut(name).ok_or(ProgramError::NotLoaded)? {
        Program::Xdp(program) => program.unload(),
        Program::SchedClassifier(program) => program.unload(),
        _ => Err(ProgramError::NotLoaded),
    }
}

/// Attempts to load a program that the verifier gives up because of a signal, as libbpf makes five.
const MAX_LOAD_ATTEMPTS: u32 = 10;

/// Loads a program while this thread takes no signals: the verifier gives up (`EAGAIN`) if one is
/// pending. Those that stop a process, also as a frozen control group, cannot be held back.
pub(super) fn without_signals<T>(
    mut load: impl FnMut() -> Result<T, ProgramError>,
) -> Result<T, ProgramError> {
    let blocked_before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let mut attempts = 0;
    let outcome = loop {
        let outcome = load();
        attempts += 1;
        match outcome {
            Err(ProgramError::LoadError { io_error: error, .. } | ProgramError::IOError(error))
                if error.kind() == io::ErrorKind::WouldBlock && attempts < MAX_LOAD_ATTEMPTS => {}
            outcome => break outcome,
        }
    };
    if let Ok(signals) = blocked_before {
        // It fails only for an unknown way of setting it.
        let _ = signals.thread_set_mask();
    }
    outcome
}

/// Loads a program, unless it is loaded already, as after another first program of this object.
fn load_one(programs: &mut Ebpf, name: &str) -> Result<(), ProgramError> {
    let program = programs.program_mut(name).ok_or(ProgramError::NotLoaded)?;
    let outcome = without_signals(|| match program {
        Program::Xdp(program) => program.load(),
        Program::SchedClassifier(program) => program.load(),
        _ => Err(ProgramError::NotLoaded),
    });
    match outcome {
        Err(ProgramError::AlreadyLoaded) => Ok(()),
        outcome => outcome,
    }
}

/// Returns the first programs of one hook with these settings, each as a description and the
/// program's name: for distinct flows alone, for packets whose measurements follow, for those without
/// a link header, and the fused one where it is tried.
pub(super) fn named_first(prefix: &str, settings: &Settings) -> Vec<(String, String)> {
    let keyed = if settings.hash == HashMode::Keyed { "_keyed" } else { "" };
    let fused =
        may_fuse(settings, false).then(|| ("all in one program", format!("fused_{prefix}")));
    let separate =
        [("cardinality alone", ""), ("packets", "_all"), ("packets without link header", "_ip")];
    separate
        .map(|(what, suffix)| (what, format!("{prefix}{suffix}")))
        .into_iter()
        .chain(fused)
        .map(|(what, name)| (what.to_owned(), format!("flowgauge_{name}{keyed}")))
        .collect()
}

/// Returns the programs of one hook that count with these settings: the first ones, then those of
/// measurements.
pub(super) fn named(prefix: &str, settings: &Settings) -> Vec<(String, String)> {
    let followers =
        followers(settings).into_iter().map(|(_, name)| (name.clone(), format!("{prefix}_{name}")));
    named_first(prefix, settings).into_iter().chain(followers).collect()
}

/// Loads one program without its follow-up programs.
pub(super) fn load_alone(programs: &mut Ebpf, name: &str) -> Result<(), NotLoaded> {
    load_one(programs, name).map_err(|error| NotLoaded::new(name, error))
}

/// Element size of an unused array, in bytes.
const UNUSED_ELEMENT_BYTES: u32 = 8;

/// Maximum number of queues with sockets.
pub(crate) const QUEUES: u32 = 1024;

/// Loads the program that redirects packets to sockets.
pub(super) fn load_redirect() -> Result<Ebpf, EbpfError> {
    EbpfLoader::new().map_max_entries(SOCKETS, QUEUES).load(REDIRECT_OBJECT)
}

/// Creates a note in the kernel.
pub(super) fn new_note(note: Note) -> Result<NoteArray, MapError> {
    let mut array = NoteArray::create(1, 0)?;
    array.set(0, PlainData(note), 0)?;
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::delay::{DelayKind, Kinds};

    #[test]
    fn arrays_of_memory_and_chains_that_are_not_used_have_no_descriptor() {
        let used = |settings: &Settings, is_filtered, mode, layer| {
            let used = used(settings, is_filtered, mode, layer);
            assert!(used.iter().all(|array| KEPT.contains(array)), "{used:?}");
            used
        };
        let flows = Settings::default();
        assert_eq!(used(&flows, false, Mode::Native, Link::Ethernet), [CORES]);
        assert_eq!(used(&flows, true, Mode::Tcx, Link::Ethernet), [CORES, FILTERS]);
        assert_eq!(used(&flows, false, Mode::Clsact, Link::Ip), [CORES, TCX_CHAIN]);
        assert_eq!(used(&flows, false, Mode::Skb, Link::Ip), [CORES, XDP_CHAIN, FRAGS_CHAIN]);
        let delay = Settings {
            delay: flowgauge_core::delay::Settings {
                kinds: Kinds::NONE.with(DelayKind::Dns),
                ..flowgauge_core::delay::Settings::DEFAULT
            },
            ..flows
        };
        let of_delay = used(&delay, false, Mode::Tcx, Link::Ethernet);
        assert!(of_delay.contains(&PERSISTENT) && of_delay.contains(&TCX_CHAIN), "{of_delay:?}");
    }

    #[test]
    fn programs_that_settings_need_are_used() {
        for hash in HashMode::ALL {
            let settings = Settings { hash, ..Settings::default() };
            let followers = followers(&settings);
            for (_, name) in ["xdp", "tcx"].iter().flat_map(|hook| named(hook, &settings)) {
                assert!(is_used(&name, &settings, &followers), "{name} with {}", hash.name());
            }
            assert!(is_used(EMPTY, &settings, &followers));
            assert!(!is_used("xdp_no_such_measurement", &settings, &followers));
            for [public, keyed] in
                [XDP, XDP_ALL, XDP_FUSED, XDP_FRAGS, XDP_ALL_FRAGS, XDP_IP, TCX_FUSED, TCX_IP]
            {
                let used = [public, keyed].map(|name| is_used(name, &settings, &followers));
                assert_eq!(used, [hash != HashMode::Keyed, hash == HashMode::Keyed]);
            }
        }
    }
}
