//! One program a measurement, one after the other by tail calls: each has a verification and 512 bytes of stack of its own.
//!
//! The loader puts into slot `n` of a hook's array the program of the first measurement from entry `n` of the list on that is on. So a
//! chain is as long as there are measurements on, and ends at an empty slot.

use crate::memory::{DELAYS, Live, Place, config, context, core, now, packet, settings};
use aya_ebpf::bindings::{bpf_spin_lock, xdp_md};
use aya_ebpf::btf_maps;
use aya_ebpf::helpers::{bpf_spin_lock as lock, bpf_spin_unlock as unlock};
use aya_ebpf::macros::{btf_map, map};
use aya_ebpf::maps::ProgramArray;
use aya_ebpf::programs::{TcContext, XdpContext};
use core::ffi::c_void;
use core::ptr::NonNull;
use flowgauge_core::delay::sample::{Outbox, ROOM, Sample};
use flowgauge_core::kernel::{Core, Layout};
use flowgauge_core::measurement::MEASUREMENTS;
use flowgauge_core::{BANKS, Delay, Listed, Memory, Needs, One, Packets, Record, Segments, Sharing};

const SLOTS: u32 = MEASUREMENTS as u32 + 1;

/// What follows on each hook: an array holds programs of one kind only.
#[map]
static XDP_CHAIN: ProgramArray = ProgramArray::with_max_entries(SLOTS, 0);
#[map]
static FRAGS_CHAIN: ProgramArray = ProgramArray::with_max_entries(SLOTS, 0);
#[map]
static TCX_CHAIN: ProgramArray = ProgramArray::with_max_entries(SLOTS, 0);

/// What a hook is, for a chain of programs.
pub(crate) trait Chain {
    /// How many packets on the wire a packet there stands for.
    type Packets: Packets;

    /// Goes on with the program in a slot; returns if there is none.
    fn go_on(&self, slot: usize);
}

/// XDP, packets in one piece.
pub(crate) struct Whole(pub(crate) XdpContext);
/// XDP, packets in several pieces.
pub(crate) struct Pieces(pub(crate) XdpContext);
/// TCX and classifiers.
pub(crate) struct Tcx(pub(crate) TcContext);

impl Chain for Whole {
    type Packets = One;

    #[inline(always)]
    fn go_on(&self, slot: usize) {
        // SAFETY: programs in the chain are made for it, and leave the packet as it is.
        unsafe { XDP_CHAIN.tail_call(&self.0, slot as u32) }
    }
}

impl Chain for Pieces {
    type Packets = One;

    #[inline(always)]
    fn go_on(&self, slot: usize) {
        // SAFETY: as above.
        unsafe { FRAGS_CHAIN.tail_call(&self.0, slot as u32) }
    }
}

impl Chain for Tcx {
    type Packets = Segments;

    #[inline(always)]
    fn go_on(&self, slot: usize) {
        // SAFETY: as above.
        unsafe { TCX_CHAIN.tail_call(&self.0, slot as u32) }
    }
}

/// Counts the packet that the first program has found, and goes on.
#[inline(always)]
fn count<M: Listed, C: Chain>(chain: &C) {
    if let Some(core) = core() {
        Place::of(core).measure_by::<M, Live<C::Packets>>(&context(Sharing::Shared), packet(core));
    }
    chain.go_on(M::INDEX + 1);
}

/// Keeps others out where the kernel or its JIT has no addition that returns what was there (x86 since Linux 5.12, arm64 since 5.18).
#[repr(C)]
struct Lock {
    lock: bpf_spin_lock,
}

#[btf_map]
static LOCK: btf_maps::Array<Lock, 1> = btf_maps::Array::new();

/// Packets whose time was noted: no helper may be called while the lock is held.
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
fn count_alone<M: Listed, C: Chain>(chain: &C) {
    if let Some(core) = core()
        && let Some(held) = LOCK.get_ptr_mut(0)
    {
        let settings = M::settings(settings());
        let packet = packet::<Noted<C::Packets>>(core);
        if M::needs(settings).has(Needs::TIME) {
            packet.note_time(now());
        }
        let mut place = Place::of(core);
        let pass = place.pass(&context(Sharing::Alone));
        if let Some(parts) = place.parts::<M>(settings) {
            // SAFETY: the lock is in a map whose type says so.
            unsafe { lock(&raw mut (*held).lock) };
            M::measure(settings, parts, &pass, &*packet);
            // SAFETY: as above; it is held.
            unsafe { unlock(&raw mut (*held).lock) };
        }
    }
    chain.go_on(M::INDEX + 1);
}

const NEXT: i32 = aya_ebpf::bindings::tcx_action_base::TCX_NEXT;

macro_rules! programs {
    ($($doc:literal $name:ident: $Kind:ident($Settings:ty),)+) => {
        $(mod $name {
            use super::*;
            use flowgauge_core::$name::$Kind as Kind;

            #[unsafe(export_name = concat!("xdp_", stringify!($name)))]
            #[unsafe(link_section = "xdp")]
            extern "C" fn whole(ctx: *mut xdp_md) -> u32 {
                count::<Kind, _>(&Whole(XdpContext::new(ctx)));
                config!(verdict)
            }

            #[unsafe(export_name = concat!("frags_", stringify!($name)))]
            #[unsafe(link_section = "xdp.frags")]
            extern "C" fn pieces(ctx: *mut xdp_md) -> u32 {
                count::<Kind, _>(&Pieces(XdpContext::new(ctx)));
                config!(verdict)
            }

            #[unsafe(export_name = concat!("tcx_", stringify!($name)))]
            #[unsafe(link_section = "classifier")]
            extern "C" fn tcx(ctx: *mut c_void) -> i32 {
                count::<Kind, _>(&Tcx(TcContext::new(ctx.cast())));
                NEXT
            }
        })+
    };
}
flowgauge_core::measurements!(programs);

macro_rules! locked_programs {
    ($($name:ident: $Kind:ident,)+) => {
        mod locked {
            $(mod $name {
                use super::super::*;
                use flowgauge_core::$name::$Kind as Kind;

                #[unsafe(export_name = concat!("xdp_", stringify!($name), "_locked"))]
                #[unsafe(link_section = "xdp")]
                extern "C" fn whole(ctx: *mut xdp_md) -> u32 {
                    count_alone::<Kind, _>(&Whole(XdpContext::new(ctx)));
                    config!(verdict)
                }

                #[unsafe(export_name = concat!("tcx_", stringify!($name), "_locked"))]
                #[unsafe(link_section = "classifier")]
                extern "C" fn tcx(ctx: *mut c_void) -> i32 {
                    count_alone::<Kind, _>(&Tcx(TcContext::new(ctx.cast())));
                    NEXT
                }
            })+
        }
    };
}
// Measurements that count in memory that CPUs share.
locked_programs! {
    entropy: Entropy,
    delay: Delay,
    reorder: Reorder,
}

/// User space looks by itself.
const NO_WAKEUP: u64 = 1;

/// Passes the packet's delays on one by one: the last program, if somebody asks for them.
#[inline(always)]
fn pass_on() {
    let Some(core) = core() else { return };
    let outbox = config!(layout.lasting[Delay::INDEX]) as usize;
    // SAFETY: where the loader put it, aligned to words.
    let outbox: &mut Outbox = unsafe { core.cast::<u8>().add(outbox).cast().as_mut() };
    let (length, samples) = outbox.parts();
    let mut index = 0;
    while index < *length as usize && index < ROOM {
        let sample = &samples[index & (ROOM - 1)];
        if DELAYS.output::<Sample>(sample, NO_WAKEUP).is_err() {
            missed(core, sample);
        }
        index += 1;
    }
    *length = 0;
}

/// Counts a delay for which there is no room, in the bank that it was counted in.
#[inline(always)]
fn missed(core: NonNull<Core>, sample: &Sample) {
    let bank = Layout::bank(sample.bank as usize & (BANKS - 1), config!(layout.bank));
    let own = config!(layout.own[Delay::INDEX]) as usize;
    // SAFETY: within the element, as in `Place`.
    let delay: &mut Delay = unsafe { core.cast::<u8>().add(bank).add(own).cast().as_mut() };
    delay.miss(sample.row as usize);
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "xdp")]
extern "C" fn xdp_samples(_: *mut xdp_md) -> u32 {
    pass_on();
    config!(verdict)
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "xdp.frags")]
extern "C" fn frags_samples(_: *mut xdp_md) -> u32 {
    pass_on();
    config!(verdict)
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
extern "C" fn tcx_samples(_: *mut c_void) -> i32 {
    pass_on();
    NEXT
}
