//! One program per measurement, chained by tail calls: each has a verification and 512 bytes of
//! stack of its own.
//!
//! The loader puts into slot `n` of a hook's program array the program of the first measurement
//! from position `n` of the list on that is on. So the chain is as long as the number of
//! measurements that are on, and ends at an empty slot. In a set, the last two slots have the first
//! programs, which the small programs of its members call.

use crate::memory::{CpuMemory, DELAY_SAMPLES, Live, config, context, core, now, packet, settings};
use aya_ebpf::bindings::{bpf_spin_lock, tcx_action_base};
use aya_ebpf::btf_maps;
use aya_ebpf::helpers::{bpf_spin_lock as lock, bpf_spin_unlock as unlock};
use aya_ebpf::macros::{btf_map, map};
use aya_ebpf::maps::ProgramArray;
use aya_ebpf::programs::XdpContext;
use core::ffi::c_void;
use core::ptr::NonNull;
use flowgauge_core::delay::sample::CAPACITY;
use flowgauge_core::delay::{DelaySample, DelaySamples};
use flowgauge_core::kernel::{Core, MemoryLayout};
use flowgauge_core::list::MEASUREMENTS;
use flowgauge_core::{
    BANKS, CountFrames, Delay, Listed, Memory, Packets, RequiredFields, Segments, Sharing,
    SingleFrame,
};

/// Defines a program by its name, its section, and a function of its context.
///
/// The macros of `aya_ebpf` are not used: the linker writes the structures that `__sk_buff` points
/// to into BTF in an order that differs from run to run.
macro_rules! program {
    // The body is not a closure: LLVM would compile a long one as a function of its own.
    ($section:literal, |$ctx:pat_param| $body:expr, $($name:tt)+) => {
        const _: () = {
            #[unsafe(export_name = concat!($($name)+))]
            #[unsafe(link_section = $section)]
            extern "C" fn program($ctx: *mut c_void) -> i32 {
                $body
            }
        };
    };
    ($section:literal, $function:expr, $($name:tt)+) => {
        program!($section, |ctx| $function(ctx), $($name)+);
    };
}
pub(crate) use program;

/// A hook, and the chain of programs after its first one.
pub(crate) trait Hook {
    /// Number of wire packets in a packet at this hook.
    type Packets: Packets;

    /// Returns the programs by slot; all are of one program type.
    fn chain() -> &'static ProgramArray;

    /// Returns the return value of every program.
    fn verdict() -> i32;

    /// Continues with the program in a slot; returns only if the slot is empty.
    #[inline(always)]
    fn call(ctx: *mut c_void, slot: usize) {
        // SAFETY: programs in the chain are made for this hook and do not modify the packet; any
        // context type passes the pointer on.
        unsafe { Self::chain().tail_call(&XdpContext::new(ctx.cast()), slot as u32) }
    }
}

macro_rules! hooks {
    ($($(#[$doc:meta])+ $Hook:ident, $chain:ident, $Packets:ty, $verdict:expr;)+) => {
        $(#[map]
        static $chain: ProgramArray = ProgramArray::with_max_entries(MEASUREMENTS as u32 + 3, 0);

        $(#[$doc])+
        pub(crate) struct $Hook;

        impl Hook for $Hook {
            type Packets = $Packets;

            #[inline(always)]
            fn chain() -> &'static ProgramArray {
                &$chain
            }

            #[inline(always)]
            fn verdict() -> i32 {
                $verdict
            }
        })+
    };
}
hooks! {
    /// XDP, for packets in one piece.
    Whole, XDP_CHAIN, SingleFrame, config!(verdict) as i32;
    /// XDP, for packets in several pieces.
    Pieces, FRAGS_CHAIN, SingleFrame, config!(verdict) as i32;
    /// TCX and TC classifiers.
    Tcx, TCX_CHAIN, Segments, tcx_action_base::TCX_NEXT;
}

/// Counts the packet that the first program found.
#[inline(always)]
fn count<M: Listed, H: Hook>(ctx: *mut c_void) -> i32 {
    if let Some(core) = core() {
        CpuMemory::of(core)
            .measure_by::<M, Live<H::Packets>>(&context(Sharing::Shared), packet(core));
    }
    H::call(ctx, M::INDEX + 1);
    H::verdict()
}

/// Lock that excludes other CPUs where the kernel or its JIT has no atomic addition that returns
/// the previous value (x86 has it since Linux 5.12, arm64 since 5.18).
#[repr(C)]
struct Lock {
    lock: bpf_spin_lock,
}

#[btf_map]
static LOCK: btf_maps::Array<Lock, 1> = btf_maps::Array::new();

/// Packets whose time was stored before: no helper may be called while the lock is held.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Noted<P>(Live<P>);

impl<P: Packets> Packets for Noted<P> {
    #[inline(always)]
    fn number(self) -> u32 {
        self.0.number()
    }

    #[inline(always)]
    fn lengths(self, header: u32) -> (u32, u32) {
        self.0.lengths(header)
    }
}

/// As [`count`], while all other CPUs wait.
#[inline(always)]
fn count_alone<M: Listed, H: Hook>(ctx: *mut c_void) -> i32 {
    if let Some(core) = core()
        && let Some(held) = LOCK.get_ptr_mut(0)
    {
        let settings = M::settings(settings());
        let packet = packet::<Noted<H::Packets>>(core);
        if M::needs(settings).has(RequiredFields::TIME) {
            packet.note_time(now());
        }
        let mut place = CpuMemory::of(core);
        let pass = place.pass(&context(Sharing::Alone));
        if let Some(parts) = place.parts::<M>(settings) {
            // SAFETY: the lock is in a map whose type declares it.
            unsafe { lock(&raw mut (*held).lock) };
            M::measure(settings, parts, &pass, &*packet);
            // SAFETY: as above; the lock is held.
            unsafe { unlock(&raw mut (*held).lock) };
        }
    }
    H::call(ctx, M::INDEX + 1);
    H::verdict()
}

macro_rules! programs {
    ($($doc:literal $name:ident: $Kind:ident($Settings:ty),)+) => {
        $(program!("xdp", count::<flowgauge_core::$name::$Kind, Whole>, "xdp_", stringify!($name));
        program!("xdp.frags", count::<flowgauge_core::$name::$Kind, Pieces>, "frags_", stringify!($name));
        program!("classifier", count::<flowgauge_core::$name::$Kind, Tcx>, "tcx_", stringify!($name));)+
    };
}
flowgauge_core::measurements!(programs);

macro_rules! locked_programs {
    ($($name:ident: $Kind:ident,)+) => {
        $(program!("xdp", count_alone::<flowgauge_core::$name::$Kind, Whole>, "xdp_", stringify!($name), "_locked");
        program!("classifier", count_alone::<flowgauge_core::$name::$Kind, Tcx>, "tcx_", stringify!($name), "_locked");)+
    };
}
// Programs with a lock, for measurements in memory that CPUs share.
locked_programs! {
    entropy: Entropy,
    delay: Delay,
    reorder: Reorder,
}

/// Flag of the ring buffer: no wakeup, because user space polls.
const NO_WAKEUP: u64 = 1;

/// Sends the packet's delay samples to user space. Last program of the chain, with
/// `--delay-samples`.
#[inline(always)]
fn send_samples<H: Hook>(_: *mut c_void) -> i32 {
    let Some(core) = core() else { return H::verdict() };
    let offset = config!(layout.persistent[Delay::INDEX]) as usize;
    // SAFETY: at the offset that the loader chose, aligned to words.
    let samples: &mut DelaySamples = unsafe { core.cast::<u8>().add(offset).cast().as_mut() };
    let (length, samples) = samples.parts();
    let mut index = 0;
    while index < *length as usize && index < CAPACITY {
        let sample = &samples[index & (CAPACITY - 1)];
        if DELAY_SAMPLES.output::<DelaySample>(sample, NO_WAKEUP).is_err() {
            count_unsampled(core, sample);
        }
        index += 1;
    }
    *length = 0;
    H::verdict()
}

program!("xdp", send_samples::<Whole>, "xdp_samples");
program!("xdp.frags", send_samples::<Pieces>, "frags_samples");
program!("classifier", send_samples::<Tcx>, "tcx_samples");

/// Counts a sample that did not fit into the ring buffer, in the bank in which its delay is
/// counted.
#[inline(always)]
fn count_unsampled(core: NonNull<Core>, sample: &DelaySample) {
    let bank = MemoryLayout::bank(sample.bank as usize & (BANKS - 1), config!(layout.bank));
    let own = config!(layout.own[Delay::INDEX]) as usize;
    // SAFETY: within the element, as in `Place`.
    let delay: &mut Delay = unsafe { core.cast::<u8>().add(bank).add(own).cast().as_mut() };
    delay.count_unsampled(sample.row as usize);
}
