//! The programs of `ebpf/`, with settings and tables put in.
#![allow(
    unsafe_code,
    reason = "aya asks for a promise that the values written into the object and its maps are plain data"
)]

use super::elements;
use super::hook::io_error;
use super::pins::Note;
use super::probe;
use super::redirect::QUEUES;
use super::verifier::NotLoaded;
use aya::maps::{MapError, ProgramArray};
use aya::programs::{Program, ProgramError};
use aya::{Ebpf, EbpfError, EbpfLoader, Pod, include_bytes_aligned};
use flowgauge_core::hash::{BLOCKS, MULTILINEAR_WORDS};
use flowgauge_core::kernel::{Config, SharedBanks};
use flowgauge_core::measurement::{MEASUREMENTS, used};
use flowgauge_core::{HashMode, MeasurementKind, Settings, Tabulation};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Built by `ebpf/build`; `ebpf/flowgauge.record` says from what. This crate has links to the
/// objects, so that its package has them.
static OBJECT: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/flowgauge.o"));

/// The same for AF_XDP sockets: kernels without them could not make its map.
static REDIRECT_OBJECT: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/redirect.o"));

/// The same for senders, whose maps counting has no use for.
static SEND_OBJECT: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/send.o"));

/// Values that the kernel may copy byte by byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Plain<T>(pub(super) T);

// SAFETY: all are `repr(C)` structs of integers and of enums with an integer representation,
// without padding.
unsafe impl Pod for Plain<Config> {}
// SAFETY: as above; any bits are a valid note.
unsafe impl Pod for Plain<Note> {}

/// An array of one note in the kernel.
pub(super) type NoteArray = aya::maps::Array<aya::maps::MapData, Plain<Note>>;

/// Names in the object.
pub(super) const CORES: &str = "CORES";
pub(super) const SHARED: &str = "SHARED";
pub(super) const LASTING: &str = "LASTING";
const XDP_CHAIN: &str = "XDP_CHAIN";
const FRAGS_CHAIN: &str = "FRAGS_CHAIN";
const TCX_CHAIN: &str = "TCX_CHAIN";

/// Arrays that outlive a process which keeps its programs: what they count in, and what follows the
/// first one, which the kernel empties when no process and no pin has the array any more.
pub(super) const KEPT: [&str; 6] = [CORES, SHARED, LASTING, XDP_CHAIN, FRAGS_CHAIN, TCX_CHAIN];
pub(super) const DELAYS: &str = "DELAYS";
pub(super) const XDP: [&str; 2] = ["flowgauge_xdp", "flowgauge_xdp_keyed"];
pub(super) const XDP_ALL: [&str; 2] = ["flowgauge_xdp_all", "flowgauge_xdp_all_keyed"];
pub(super) const XDP_FRAGS: [&str; 2] = ["flowgauge_xdp_frags", "flowgauge_xdp_frags_keyed"];
pub(super) const XDP_ALL_FRAGS: [&str; 2] =
    ["flowgauge_xdp_all_frags", "flowgauge_xdp_all_frags_keyed"];
pub(super) const XDP_IP: [&str; 2] = ["flowgauge_xdp_ip", "flowgauge_xdp_ip_keyed"];
pub(super) const TCX: [&str; 2] = ["flowgauge_tcx", "flowgauge_tcx_keyed"];
pub(super) const TCX_ALL: [&str; 2] = ["flowgauge_tcx_all", "flowgauge_tcx_all_keyed"];
pub(super) const TCX_IP: [&str; 2] = ["flowgauge_tcx_ip", "flowgauge_tcx_ip_keyed"];
pub(super) const EMPTY: &str = "flowgauge_empty";
pub(super) const SEND: &str = "flowgauge_send";
pub(super) const SEND_BATCH: &str = "flowgauge_send_batch";
pub(super) const CONVERSE: &str = "flowgauge_converse";
pub(super) const LISTENER: &str = "LISTENER";
pub(super) const STARTS: &str = "STARTS";
pub(super) const PROGRESS: &str = "PROGRESS";
pub(super) const REDIRECT: &str = "flowgauge_redirect";
pub(super) const REDIRECT_FRAGS: &str = "flowgauge_redirect_frags";
pub(super) const SOCKETS: &str = "SOCKETS";
pub(super) const PASSED: &str = "PASSED";

/// Arrays that are pinned instead of made anew, and where.
#[derive(Debug, Default)]
pub(super) struct Pinned(pub(super) Vec<(&'static str, PathBuf)>);

/// Loads maps and programs; programs are verified when they are loaded one by one. `ring`: bytes
/// for delays one by one, if settings ask for them.
pub(super) fn load(
    config: &Config,
    tabulation: &Tabulation,
    cpus: usize,
    ring: u32,
    pinned: &Pinned,
) -> Result<Ebpf, EbpfError> {
    const {
        assert!(
            size_of::<Tabulation>() == 4 * 256 * (4 + 8 * BLOCKS) + 8 * MULTILINEAR_WORDS,
            "no padding"
        )
    };
    let settings = &config.settings;
    let start = (&raw const *tabulation).cast::<u8>();
    // SAFETY: integers without padding, as just checked, which live as long as the reference.
    let tabulation = unsafe { std::slice::from_raw_parts(start, size_of::<Tabulation>()) };
    let mut loader = EbpfLoader::new();
    for (array, pin) in &pinned.0 {
        loader.map_pin_path(array, pin);
    }
    let shared = if settings.shares() { size_of::<SharedBanks>() as u32 } else { LEAST };
    let lasting = config.layout.together.max(LEAST);
    let mut object = elements::resized(
        OBJECT,
        &[(CORES, config.layout.core), (SHARED, shared), (LASTING, lasting)],
    );
    if settings.delay.samples {
        loader.map_max_entries(DELAYS, ring);
    } else {
        elements::without(&mut object, DELAYS);
    }
    let config = Plain(*config);
    loader
        .override_global("CONFIG", &config, true)
        .override_global("TABULATION", tabulation, true)
        .map_max_entries(CORES, u32::try_from(cpus).unwrap_or(u32::MAX))
        .load(&object)
}

/// How programs of a hook begin, whose array of what follows they share.
#[derive(Clone, Copy)]
struct Chain {
    prefix: &'static str,
    array: &'static str,
}

impl Chain {
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

/// What follows the first program: the slots of the chain, in their order, and the name of each
/// program.
fn followers(settings: &Settings) -> Vec<(usize, String)> {
    let locked = !probe::has_fetching_atomics();
    let on = MeasurementKind::ALL.into_iter().filter(|kind| kind.is_on(settings));
    let name = |kind: MeasurementKind| {
        let shares = used(settings)
            .nth(kind as usize)
            .is_some_and(|used| used.shared > 0 || used.shared_lasting > 0);
        format!("{}{}", kind.name(), if shares && locked { "_locked" } else { "" })
    };
    let samples = settings.delay.samples.then(|| (MEASUREMENTS, "samples".to_owned()));
    on.map(|kind| (kind as usize, name(kind))).chain(samples).collect()
}

/// Loads a program, and the programs of measurements that follow it.
pub(super) fn load_chain(
    programs: &mut Ebpf,
    first: &str,
    settings: &Settings,
) -> Result<(), NotLoaded> {
    let is_loaded = programs.program(first).is_some_and(|program| program.fd().is_ok());
    if is_loaded {
        return Ok(());
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
    load_one(programs, first).map_err(|error| NotLoaded::new(first, error))
}

/// Loads a program into slots of a chain.
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
    Ok(())
}

/// Attempts to load a program. The verifier gives up (`EAGAIN`) if the thread has a signal.
const LOAD_ATTEMPTS: usize = 5;

/// Loads a program; one that was loaded before, as after another first program of this object, is
/// as good.
fn load_one(programs: &mut Ebpf, name: &str) -> Result<(), ProgramError> {
    let program = programs.program_mut(name).ok_or(ProgramError::NotLoaded)?;
    let mut load = || match program {
        Program::Xdp(program) => program.load(),
        Program::SchedClassifier(program) => program.load(),
        _ => Err(ProgramError::NotLoaded),
    };
    let mut outcome = load();
    for _ in 1..LOAD_ATTEMPTS {
        if !outcome.as_ref().is_err_and(|error| io_error(error) == Some(libc::EAGAIN)) {
            break;
        }
        outcome = load();
    }
    match outcome {
        Err(ProgramError::AlreadyLoaded) => Ok(()),
        outcome => outcome,
    }
}

/// Programs of one hook that count with these settings, distinct flows alone first, then the one
/// that finds packets, then measurements: what each is of, and its name.
pub(super) fn named(prefix: &str, settings: &Settings) -> Vec<(String, String)> {
    let keyed = if settings.cardinality.hash == HashMode::Keyed { "_keyed" } else { "" };
    let firsts = [("cardinality alone", ""), ("packets", "_all")];
    let firsts = firsts
        .map(|(what, suffix)| (what.to_owned(), format!("flowgauge_{prefix}{suffix}{keyed}")));
    let followers =
        followers(settings).into_iter().map(|(_, name)| (name.clone(), format!("{prefix}_{name}")));
    firsts.into_iter().chain(followers).collect()
}

/// Loads one program and nothing that follows it.
pub(super) fn load_alone(programs: &mut Ebpf, name: &str) -> Result<(), NotLoaded> {
    load_one(programs, name).map_err(|error| NotLoaded::new(name, error))
}

/// Bytes of the element of an array that nobody uses.
const LEAST: u32 = 8;

/// Loads the sender, whose packets have `sources` different source addresses.
pub(super) fn load_sender(sources: u32) -> Result<Ebpf, EbpfError> {
    EbpfLoader::new().override_global("SOURCES", &sources, true).load(SEND_OBJECT)
}

/// Loads the program that makes packets of a conversation.
pub(super) fn load_conversation() -> Result<Ebpf, EbpfError> {
    EbpfLoader::new().load(SEND_OBJECT)
}

/// Loads the sender of batches, each of so many parts.
pub(super) fn load_batch_sender(parts: u32) -> Result<Ebpf, EbpfError> {
    EbpfLoader::new().map_max_entries(STARTS, parts).load(SEND_OBJECT)
}

/// Loads the program that hands packets to sockets.
pub(super) fn load_redirect() -> Result<Ebpf, EbpfError> {
    EbpfLoader::new().map_max_entries(SOCKETS, QUEUES).load(REDIRECT_OBJECT)
}

/// A note in the kernel.
pub(super) fn new_note(note: Note) -> Result<NoteArray, MapError> {
    let mut array = NoteArray::create(1, 0)?;
    array.set(0, Plain(note), 0)?;
    Ok(array)
}
