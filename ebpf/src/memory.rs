//! Settings and memory that programs share with user space; see `flowgauge_core::kernel` for the
//! layout.

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_map_lookup_elem};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, RingBuf};
use core::arch::asm;
use core::ptr::NonNull;
use flowgauge_core::filter::fields::MatchFields;
use flowgauge_core::kernel::{
    Config, Core, CurrentMember, MemoryLayout, PACKET_WORDS, SharedBanks,
};
use flowgauge_core::unopened::CommonEtherType;
use flowgauge_core::{
    Arrival, BANKS, Context, Counters, Filter, Listed, MeasurementMemory, Memory, Observation,
    Packets, RequiredFields, Segments, Settings, Sharing, Tabulation, parse, requires,
};

const MMAPABLE: u32 = 1 << 10;

/// Configuration, written by the loader.
#[unsafe(no_mangle)]
pub(crate) static CONFIG: Config = Config { verdict: xdp_action::XDP_PASS, ..Config::DEFAULT };

/// Reads a word of the configuration. Volatile, because the compiler would use the initial value.
macro_rules! config {
    ($($field:tt)+) => {
        // SAFETY: within the object, and aligned.
        unsafe { (&raw const $crate::memory::CONFIG.$($field)+).read_volatile() }
    };
}
pub(crate) use config;

/// Hash tables. Writable, or the compiler would replace the words that the loader writes by its
/// zeros.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data")]
static mut TABULATION: Tabulation = Tabulation::ZERO;

/// Returns the hash tables.
#[inline(always)]
pub(crate) fn tabulation() -> &'static Tabulation {
    // SAFETY: never written while a program runs.
    unsafe { &*(&raw const TABULATION) }
}

/// One element per CPU; user space sets number and length. In a set, user space replaces this array
/// and the next two by arrays of maps with the arrays of each member.
#[map]
static CORES: Array<Core> = Array::with_max_entries(1, MMAPABLE);

/// Banked memory that CPUs share; unused if no measurement needs it.
#[map]
static SHARED: Array<SharedBanks> = Array::with_max_entries(1, MMAPABLE);

/// Persistent memory that the CPUs and all programs of a run share; user space sets its length.
#[map]
static PERSISTENT: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Filter of each bank, which user space writes before the bank becomes active; unused without
/// `--match`.
#[map]
static FILTERS: Array<Filter> = Array::with_max_entries(BANKS as u32, MMAPABLE);

/// One element per CPU. Used by the programs of a set only.
#[map]
static CURRENT: Array<CurrentMember> = Array::with_max_entries(1, 0);

/// Ring buffer of delay samples; user space sets its length. Without `--delay-samples` it is
/// created as an array, and unused.
#[map]
pub(crate) static DELAY_SAMPLES: RingBuf = RingBuf::with_byte_size(1 << 12, 0);

/// Returns the settings. The compiler does not see their initial values; the verifier, at load
/// time, knows every value loaded from them. A measurement whose words are zero is off.
#[inline(always)]
pub(crate) fn settings() -> &'static Settings {
    let mut settings = &raw const CONFIG.settings;
    // SAFETY: the register keeps its value, the address of settings that the loader wrote and that
    // are never written while the program runs.
    unsafe {
        asm!("/* {0} */", inout(reg) settings, options(pure, nomem, nostack, preserves_flags));
        &*settings
    }
}

/// Returns the member whose packet this CPU counts. Each use looks it up: a value that is kept for
/// later uses would occupy a register or the stack in programs of one counting point as well.
#[inline(always)]
fn member() -> Option<&'static CurrentMember> {
    CURRENT.get(cpu())
}

/// Returns the number of this CPU.
#[inline(always)]
fn cpu() -> u32 {
    // SAFETY: a helper without preconditions.
    unsafe { bpf_get_smp_processor_id() }
}

/// Returns an element of an array; in a set of the member's, which it lacks once it has left.
#[inline(always)]
fn element<T>(array: &'static Array<T>, index: impl Fn() -> u32) -> Option<NonNull<T>> {
    let array = (&raw const *array).cast_mut();
    let is_set = config!(is_set) != 0;
    let mut key = if is_set { member()?.number } else { index() };
    // SAFETY: an array, or in a set an array of maps, both with such keys.
    let found = unsafe { bpf_map_lookup_elem(array.cast(), (&raw const key).cast()) };
    if !is_set {
        return NonNull::new(found.cast());
    }
    let array = NonNull::new(found)?;
    key = index();
    // SAFETY: the lookup in an array of maps returns a map: an array with elements of this type.
    let found = unsafe { bpf_map_lookup_elem(array.as_ptr(), (&raw const key).cast()) };
    NonNull::new(found.cast())
}

/// Returns this CPU's element.
#[inline(always)]
pub(crate) fn core() -> Option<NonNull<Core>> {
    element(&CORES, cpu)
}

/// Returns whether packets leave by the interface; otherwise they arrive.
#[inline(always)]
pub(crate) fn leaves() -> bool {
    let leaves = if config!(is_set) == 0 {
        config!(leaves)
    } else {
        member().map_or(0, |member| member.leaves)
    };
    leaves != 0
}

/// Memory in which this CPU counts. XDP and TC programs are not preempted by others on their CPU,
/// which alone owns its element; user space accesses only the bank that is not open.
///
/// A measurement's part is only as long as its settings require, although references to it have the
/// type's full length. The kernel's verifier refuses programs that access memory beyond the end of
/// an element.
pub(crate) struct CpuMemory {
    core: NonNull<Core>,
    bank: usize,
    /// Start of the bank.
    start: NonNull<u8>,
}

impl CpuMemory {
    #[inline(always)]
    pub(crate) fn of(core: NonNull<Core>) -> Self {
        // SAFETY: user space may store it at any time, but only as a whole word.
        let mut bank = unsafe { (&raw const (*core.as_ptr()).bank).read_volatile() as usize };
        // SAFETY: arithmetic. The compiler would branch on a value that it knows to be zero or one,
        // and the verifier would follow both sides.
        unsafe {
            asm!("{0} &= {1}", inout(reg) bank, const BANKS - 1, options(pure, nomem, nostack, preserves_flags))
        };
        let offset = MemoryLayout::bank(bank, config!(layout.bank));
        // SAFETY: within the element, as the loader created it.
        let start = unsafe { core.cast::<u8>().add(offset) };
        CpuMemory { core, bank, start }
    }
}

/// Returns the filter of the bank that this memory is in.
#[inline(always)]
pub(crate) fn filter(memory: &CpuMemory) -> Option<&'static Filter> {
    FILTERS.get(memory.bank as u32)
}

impl Memory for CpuMemory {
    #[inline(always)]
    fn counters(&mut self) -> &mut Counters {
        // SAFETY: the start of a bank.
        unsafe { self.start.cast().as_mut() }
    }

    #[inline(always)]
    fn unopened(&mut self) -> &mut CommonEtherType {
        // SAFETY: as above, after the counters.
        unsafe { self.start.add(size_of::<Counters>()).cast().as_mut() }
    }

    #[inline(always)]
    fn bank(&self) -> usize {
        self.bank
    }

    #[inline(always)]
    fn parts<M: Listed>(&mut self, settings: &M::Settings) -> Option<MeasurementMemory<'_, M>> {
        let own = if M::INDEX == 0 {
            MemoryLayout::FIRST
        } else {
            config!(layout.own[M::INDEX]) as usize
        };
        // SAFETY: at the offset that the loader chose, aligned to words; see above.
        let own = unsafe { self.start.add(own).cast().as_mut() };
        let persistent = if M::used(settings).persistent == 0 {
            0
        } else {
            config!(layout.persistent[M::INDEX]) as usize
        };
        // SAFETY: as above; not accessed if its used size is zero.
        let persistent = unsafe { self.core.cast::<u8>().add(persistent).cast().as_mut() };
        let shared = if size_of::<M::Shared>() == 0 {
            // SAFETY: of size zero.
            unsafe { NonNull::dangling().as_ref() }
        } else {
            let shared = element(&SHARED, || 0)?;
            // SAFETY: an element, valid with any bits, whose words all sides change atomically.
            M::shared(&unsafe { shared.as_ref() }[self.bank & (BANKS - 1)])
        };
        let shared_persistent = if size_of::<M::SharedPersistent>() == 0 {
            // SAFETY: as above.
            unsafe { NonNull::dangling().as_ref() }
        } else {
            let start = element(&PERSISTENT, || 0)?.cast::<u8>();
            let offset = config!(layout.shared_persistent[M::INDEX]) as usize;
            // SAFETY: at the offset that the loader chose, as for per-core memory.
            unsafe { start.add(offset).cast().as_ref() }
        };
        Some(MeasurementMemory { own, persistent, shared, shared_persistent })
    }
}

/// Returns the time in nanoseconds since the Unix epoch.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: a helper without preconditions.
    config!(boot_ns) + unsafe { bpf_ktime_get_ns() }
}

/// Packets timed by the kernel's clock, which is read only when a measurement needs the time.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Live<P>(pub(crate) P);

impl<P: Packets> Packets for Live<P> {
    #[inline(always)]
    fn number(self) -> u32 {
        self.0.number()
    }

    #[inline(always)]
    fn time(self, _: u64) -> u64 {
        now()
    }

    #[inline(always)]
    fn lengths(self, header: u32) -> (u32, u32) {
        self.0.lengths(header)
    }
}

/// Returns the place in the CPU's element for the fields by which a filter decides, for the same
/// reason as [`noted`].
#[inline(always)]
pub(crate) fn fields<'a>(core: NonNull<Core>) -> &'a mut MatchFields {
    // SAFETY: of integers, valid with any bits; no other code uses it, and no two borrows overlap.
    unsafe { &mut *(&raw mut (*core.as_ptr()).fields) }
}

/// Returns the fields that are there, as the verifier knows them.
#[inline(always)]
pub(crate) fn noted_fields<'a>(core: NonNull<Core>) -> &'a MatchFields {
    // SAFETY: as above; the register keeps its value.
    unsafe {
        let mut place = &raw const (*core.as_ptr()).fields;
        asm!("/* {0} */", inout(reg) place, options(nostack, preserves_flags));
        &*place
    }
}

/// Stores the metadata of a packet in its CPU's element. The verifier then only knows that these
/// are numbers. Its knowledge before differs between the paths through the parser, and it would
/// follow each of them to the end.
#[inline(always)]
pub(crate) fn noted<'a>(
    core: NonNull<Core>,
    arrival: Arrival<Live<Segments>>,
) -> &'a Arrival<Live<Segments>> {
    const { assert!(size_of::<Arrival<Live<Segments>>>() <= size_of::<[u64; 4]>()) };
    // SAFETY: large enough and aligned; consists of integers and a flag that is written before it
    // is read; no other code uses it, and no two borrows overlap.
    let mut place: *mut Arrival<Live<Segments>> =
        unsafe { (&raw mut (*core.as_ptr()).arrival).cast() };
    // SAFETY: as above; the register keeps its value.
    unsafe {
        place.write(arrival);
        asm!("/* {0} */", inout(reg) place, options(nostack, preserves_flags));
        &*place
    }
}

/// Returns the observation of the packet, which all programs of the packet share.
#[inline(always)]
pub(crate) fn packet<'a, P>(core: NonNull<Core>) -> &'a mut Observation<P> {
    const { assert!(size_of::<Observation<P>>() <= size_of::<[u64; PACKET_WORDS]>()) };
    // SAFETY: large enough and aligned; consists of integers and flags; the first program writes
    // what the others read; no other code uses it, and no two borrows overlap.
    unsafe { &mut *(&raw mut (*core.as_ptr()).packet).cast() }
}

/// Returns the settings and hash tables that every update needs. Programs open no tunnels.
#[inline(always)]
pub(crate) fn context(sharing: Sharing) -> Context<'static, &'static Settings> {
    let needs = config!(needs);
    let slot_ns = if requires!(needs, RequiredFields::TIME) { config!(slot_ns) } else { 1 };
    let settings = settings();
    Context {
        settings,
        headers: parse::Settings::DEFAULT,
        hash: settings.hash,
        tabulation: tabulation(),
        sharing,
        slot_ns,
        needs,
    }
}
