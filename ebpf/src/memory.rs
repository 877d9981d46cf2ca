//! Settings, and the memory that programs share with user space.

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, RingBuf};
use core::arch::asm;
use core::ptr::NonNull;
use flowgauge_core::kernel::{Config, Core, Layout, PACKET_WORDS, SharedBanks};
use flowgauge_core::unopened::Unopened;
use flowgauge_core::{
    Arrival, BANKS, Context, Counters, Listed, Memory, Needs, Observation, Packets, Parts,
    Segments, Settings, Sharing, Tabulation, parse,
};

const MMAPABLE: u32 = 1 << 10;

/// Settings, which the loader writes.
#[unsafe(no_mangle)]
pub(crate) static CONFIG: Config = Config { verdict: xdp_action::XDP_PASS, ..Config::DEFAULT };

/// A word of what the loader wrote: volatile, because the compiler knows something else.
macro_rules! config {
    ($($field:tt)+) => {
        // SAFETY: within the object, and aligned.
        unsafe { (&raw const $crate::memory::CONFIG.$($field)+).read_volatile() }
    };
}
pub(crate) use config;

/// The words that hashes are made of. Writable, or the compiler would put its zeros in place of the
/// words that the loader writes.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data")]
static mut TABULATION: Tabulation = Tabulation::ZERO;

/// The words that hashes are made of.
#[inline(always)]
pub(crate) fn tabulation() -> &'static Tabulation {
    // SAFETY: nobody writes it while a program runs.
    unsafe { &*(&raw const TABULATION) }
}

/// One element a CPU; user space sets their number and length.
#[map]
static CORES: Array<Core> = Array::with_max_entries(1, MMAPABLE);

/// Banked memory that CPUs share; unused if no measurement shares any.
#[map]
static SHARED: Array<SharedBanks> = Array::with_max_entries(1, MMAPABLE);

/// Persistent memory that CPUs and all programs of a run share; user space sets its length.
#[map]
static LASTING: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Delays one by one; user space sets its length. Without `--delay-samples` it is an array, unused.
#[map]
pub(crate) static DELAYS: RingBuf = RingBuf::with_byte_size(1 << 12, 0);

/// What to measure and how. Of the compiler's constants it knows nothing; the verifier sees through
/// whatever is loaded from there, when it is. A measurement whose words are zero is off.
#[inline(always)]
pub(crate) fn settings() -> &'static Settings {
    let mut settings = &raw const CONFIG.settings;
    // SAFETY: the register is what it was, and of settings that the loader wrote, which nobody
    // writes while the program runs.
    unsafe {
        asm!("{0} = {0}", inout(reg) settings, options(pure, nomem, nostack, preserves_flags));
        &*settings
    }
}

/// This CPU's element.
#[inline(always)]
pub(crate) fn core() -> Option<NonNull<Core>> {
    // SAFETY: a helper without conditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    CORES.get_ptr_mut(cpu).and_then(NonNull::new)
}

/// Where this CPU counts. XDP and TC programs are not preempted by others on their CPU, which alone
/// owns its element; user space touches only the bank that is not active.
///
/// Of a measurement's part there is no more than its settings use, and references to it are to more
/// than that. The kernel's verifier refuses programs that look at what is behind an element's end.
pub(crate) struct Place {
    core: NonNull<Core>,
    bank: usize,
    /// Where the bank begins.
    start: NonNull<u8>,
}

impl Place {
    #[inline(always)]
    pub(crate) fn of(core: NonNull<Core>) -> Self {
        // SAFETY: user space stores whole words at any time.
        let mut bank = unsafe { (&raw const (*core.as_ptr()).bank).read_volatile() as usize };
        // SAFETY: arithmetic. The compiler would branch by what it knows to be zero or one, and the
        // verifier follow both ways.
        unsafe {
            asm!("{0} &= {1}", inout(reg) bank, const BANKS - 1, options(pure, nomem, nostack, preserves_flags))
        };
        let offset = Layout::bank(bank, config!(layout.bank));
        // SAFETY: within the element, as the loader made it.
        let start = unsafe { core.cast::<u8>().add(offset) };
        Place { core, bank, start }
    }
}

impl Memory for Place {
    #[inline(always)]
    fn counters(&mut self) -> &mut Counters {
        // SAFETY: what a bank begins with.
        unsafe { self.start.cast().as_mut() }
    }

    #[inline(always)]
    fn unopened(&mut self) -> &mut Unopened {
        // SAFETY: as above, behind the counters.
        unsafe { self.start.add(size_of::<Counters>()).cast().as_mut() }
    }

    #[inline(always)]
    fn bank(&self) -> usize {
        self.bank
    }

    #[inline(always)]
    fn parts<M: Listed>(&mut self, settings: &M::Settings) -> Option<Parts<'_, M>> {
        let own =
            if M::INDEX == 0 { Layout::FIRST } else { config!(layout.own[M::INDEX]) as usize };
        // SAFETY: where the loader put it, aligned to words; see above.
        let own = unsafe { self.start.add(own).cast().as_mut() };
        let lasting = if M::used(settings).lasting == 0 {
            0
        } else {
            config!(layout.lasting[M::INDEX]) as usize
        };
        // SAFETY: as above; not looked at if nothing of it is used.
        let lasting = unsafe { self.core.cast::<u8>().add(lasting).cast().as_mut() };
        let shared = if size_of::<M::Shared>() == 0 {
            // SAFETY: without length.
            unsafe { NonNull::dangling().as_ref() }
        } else {
            M::shared(&SHARED.get(0)?[self.bank & (BANKS - 1)])
        };
        let shared_lasting = if size_of::<M::SharedPersistent>() == 0 {
            // SAFETY: as above.
            unsafe { NonNull::dangling().as_ref() }
        } else {
            let start = LASTING.get_ptr_mut(0).and_then(NonNull::new)?.cast::<u8>();
            let offset = config!(layout.shared_lasting[M::INDEX]) as usize;
            // SAFETY: where the loader put it, as a measurement's own part.
            unsafe { start.add(offset).cast().as_ref() }
        };
        Some(Parts { own, lasting, shared, shared_lasting })
    }
}

/// Nanoseconds since the Unix epoch.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: a helper without conditions.
    config!(boot_ns) + unsafe { bpf_ktime_get_ns() }
}

/// Packets timed by the kernel's clock, which is read when a measurement asks for the time.
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

/// What the programs of a packet know of how it came, noted in its CPU's element: there the
/// verifier knows no more of it than that there are numbers. What it knew before differs from path
/// to path through the parser, and it would follow each of them to the end.
#[inline(always)]
pub(crate) fn noted<'a>(
    core: NonNull<Core>,
    arrival: Arrival<Live<Segments>>,
) -> &'a Arrival<Live<Segments>> {
    const { assert!(size_of::<Arrival<Live<Segments>>>() <= size_of::<[u64; 4]>()) };
    // SAFETY: large enough and aligned, of integers and a flag that is written before it is read;
    // nobody else uses it, and no two borrows live at once.
    let mut place: *mut Arrival<Live<Segments>> =
        unsafe { (&raw mut (*core.as_ptr()).arrival).cast() };
    // SAFETY: as above; a register is what it was.
    unsafe {
        place.write(arrival);
        asm!("{0} = {0}", inout(reg) place, options(nostack, preserves_flags));
        &*place
    }
}

/// What the programs of a packet know of it.
#[inline(always)]
pub(crate) fn packet<'a, P>(core: NonNull<Core>) -> &'a mut Observation<P> {
    const { assert!(size_of::<Observation<P>>() <= size_of::<[u64; PACKET_WORDS]>()) };
    // SAFETY: large enough and aligned, of integers and flags; the first program writes what the
    // others read; nobody else uses it, and no two borrows live at once.
    unsafe { &mut *(&raw mut (*core.as_ptr()).packet).cast() }
}

/// Settings and tables, as every update needs them. Programs open no tunnels.
#[inline(always)]
pub(crate) fn context(sharing: Sharing) -> Context<'static, &'static Settings> {
    let needs = config!(needs);
    let slot_ns = if needs.has(Needs::TIME) { config!(slot_ns) } else { 1 };
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
