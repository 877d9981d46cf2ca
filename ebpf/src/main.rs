//! eBPF programs that count packets in the kernel: thin wrappers around `flowgauge_core`.
//!
//! The first program of a hook finds the packet in the frame, counts it, and stores the fields that
//! measurements need in its CPU's memory ([`memory`]). If only distinct flows are measured, it
//! counts these as well. Otherwise a fused program counts with all measurements that are on; where
//! the kernel does not accept it, a tail call runs one program for each of them ([`measure`]).
//!
//! Settings are read-only globals, so that the verifier removes code that is switched off. Each CPU
//! owns one element of an array that user space maps into its memory: packets cause no copies,
//! locks or lookups by key. `dataplane/core/BPF.md` lists the rules that this code follows.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod frame;
mod measure;
mod memory;
mod required;
mod skb;

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_xdp_get_buff_len;
use aya_ebpf::programs::{TcContext, XdpContext};
use core::arch::asm;
use core::ffi::c_void;
use core::ptr::NonNull;
use flowgauge_core::filter::{EveryPacket, fields};
use flowgauge_core::kernel::Core;
use flowgauge_core::{
    Arrival, Cardinality, CountFrames, Link, Listed as _, Memory as _, Observation, Packets,
    RequiredFields, Sharing, SingleFrame, parse, requires,
};
use frame::PacketBytes;
use measure::{Hook, Pieces, Tcx, Whole, program};
use memory::{CpuMemory, Live, config, context, core, packet};

/// Returns whether the bank's filter admits a frame of this length; `tag` has the bits of a VLAN tag
/// that the device inserts or has removed, if any. A frame that it does not admit is counted as
/// unmatched.
#[inline(always)]
fn admits<P: Packets>(
    core: NonNull<Core>,
    place: &mut CpuMemory,
    link: Link,
    frame: &PacketBytes,
    arrival: &Arrival<Live<P>>,
    length: u32,
    tag: u32,
) -> bool {
    // There is one for each bank, which the verifier does not know.
    let Some(filter) = memory::filter(place) else { return false };
    let is_plain = link == Link::Ethernet && tag == 0 && parse::plain_ipv4(frame).is_some();
    let verdict = if is_plain { filter.decide_plain(frame) } else { None };
    let is_match = match verdict {
        Some(verdict) => verdict,
        None => {
            note_fields(core, link, frame, length, tag);
            filter.decide_fields(memory::noted_fields(core))
        }
    };
    if !is_match {
        let (packets, counters) = (u64::from(arrival.packets.number()), place.counters());
        counters.leave_out(packets, arrival.wire_length.into());
        counters.merged += packets - 1;
    }
    is_match
}

/// Finds the fields by which a filter decides, and stores them.
#[inline(always)]
fn note_fields(core: NonNull<Core>, link: Link, frame: &PacketBytes, length: u32, tag: u32) {
    let word = if tag == 0 {
        fields::frame(frame, link, length)
    } else {
        tag | length.min(fields::LENGTH_MASK)
    };
    let found = memory::fields(core);
    match parse::counted(frame, link, &parse::Settings::DEFAULT) {
        Ok(packet) => found.write(frame, &packet, word),
        Err(reject) => found.write_rejected(reject, word),
    }
}

/// Form of a first program that measures distinct flows only: with one word of settings, the rest
/// of the code has registers to spare.
const FLOWS: u8 = 0;
/// Form that leaves measurements to the programs that follow.
const SEPARATE: u8 = 1;
/// Form that counts with all measurements. No program follows that would send samples of delays.
const FUSED: u8 = 2;

/// Counts a frame. Returns whether there is a packet for the programs that follow.
#[inline(always)]
fn count<const FORM: u8, const KEYED: bool, P: Packets>(
    core: NonNull<Core>,
    mut place: CpuMemory,
    link: Link,
    frame: &PacketBytes,
    arrival: &Arrival<Live<P>>,
) -> bool {
    let context = context(Sharing::Shared);
    if FORM == FLOWS {
        let mut packet = Observation::of(arrival);
        if place.observe_flow::<KEYED, _, _>(&context, EveryPacket, link, frame, &mut packet)
            && context.needs.has(RequiredFields::measurement(Cardinality::INDEX))
        {
            place.measure_by::<Cardinality, _>(&context, &packet);
        }
        return false;
    }
    let packet = packet(core);
    packet.arrive(*arrival);
    let is_found = place.observe::<KEYED, _, _>(&context, EveryPacket, link, frame, packet);
    if FORM == SEPARATE || !is_found {
        return is_found;
    }
    place.measure(&context, memory::packet::<Live<P>>(core));
    false
}

/// Returns the metadata of a packet; the direction, which the loader sets, only if a measurement
/// needs it.
#[inline(always)]
fn arrival<P>(wire_length: u32, packets: P) -> Arrival<Live<P>> {
    let leaves = requires!(config!(needs), RequiredFields::DIRECTION) && memory::leaves();
    Arrival { wire_length, packets: Live(packets), timestamp: 0, leaves }
}

/// Returns the readable bytes of the packet. The pointers are read again at each call, as in
/// [`skb::linear`].
#[inline(always)]
fn of_driver(ctx: &XdpContext) -> PacketBytes {
    // SAFETY: the context is valid while the program runs.
    let (data, end) = unsafe {
        (
            (&raw const (*ctx.ctx).data).read_volatile(),
            (&raw const (*ctx.ctx).data_end).read_volatile(),
        )
    };
    PacketBytes::new(data as usize, end as usize)
}

#[inline(always)]
fn arrived<H: Hook<Packets = SingleFrame>, const FORM: u8, const KEYED: bool>(
    link: Link,
    ctx: &XdpContext,
    wire_length: u32,
) -> i32 {
    if let Some(core) = core() {
        let mut place = CpuMemory::of(core);
        let arrival = arrival(wire_length, SingleFrame);
        if config!(filtered) != 0 {
            let frame = of_driver(ctx);
            if !admits(core, &mut place, link, &frame, &arrival, wire_length, 0) {
                return H::verdict();
            }
        }
        let frame = of_driver(ctx);
        if count::<FORM, KEYED, _>(core, place, link, &frame, &arrival) {
            H::call(ctx.as_ptr(), 0);
        }
    }
    H::verdict()
}

#[inline(always)]
fn arrived_whole<const FORM: u8, const KEYED: bool>(link: Link, ctx: *mut c_void) -> i32 {
    let ctx = XdpContext::new(ctx.cast());
    let mut length = ctx.data_end() - ctx.data();
    // SAFETY: the register keeps its value. The compiler would subtract where the length is used, and
    // store halves of both pointers until then, which the verifier refuses.
    unsafe { asm!("/* {0} */", inout(reg) length, options(pure, nomem, nostack, preserves_flags)) };
    arrived::<Whole, FORM, KEYED>(link, &ctx, length as u32)
}

/// Counts a packet in several pieces, whose headers are in the first piece.
#[inline(always)]
fn arrived_in_pieces<const FORM: u8, const KEYED: bool>(ctx: *mut c_void) -> i32 {
    let ctx = XdpContext::new(ctx.cast());
    // SAFETY: the context that the kernel has given.
    let length = unsafe { bpf_xdp_get_buff_len(ctx.ctx) } as u32;
    arrived::<Pieces, FORM, KEYED>(Link::Ethernet, &ctx, length)
}

/// Counts a packet with segmentation or receive offload as the wire packets that it contains. A
/// VLAN tag that the device inserts or has removed is part of each.
#[inline(always)]
fn passes<const FORM: u8, const KEYED: bool>(link: Link, ctx: *mut c_void) -> i32 {
    let skb = TcContext::new(ctx.cast());
    let length = skb::pull_headers(&skb);
    if let Some(core) = core() {
        let (wire_length, packets) = skb::on_the_wire(link, skb.skb.skb, length);
        let arrival = memory::noted(core, arrival(wire_length, packets));
        let mut place = CpuMemory::of(core);
        if config!(filtered) != 0 {
            let frame = skb::linear(skb.skb.skb);
            let (length, tag) = skb::with_tag(skb.skb.skb, length);
            if !admits(core, &mut place, link, &frame, arrival, length, tag) {
                return Tcx::verdict();
            }
        }
        let frame = skb::linear(skb.skb.skb);
        if count::<FORM, KEYED, _>(core, place, link, &frame, arrival) {
            Tcx::call(ctx, 0);
        }
    }
    Tcx::verdict()
}

/// Defines the first programs of each hook, for one kind of signature: for distinct flows only, and
/// for packets whose measurements follow; fused; for interfaces without link headers; for packets in
/// several pieces, which requires Linux 5.18.
macro_rules! first_programs {
    ($keyed:literal, $suffix:literal) => {
        program!(
            "xdp",
            |ctx| arrived_whole::<FLOWS, $keyed>(Link::Ethernet, ctx),
            "flowgauge_xdp",
            $suffix
        );
        program!(
            "xdp",
            |ctx| arrived_whole::<SEPARATE, $keyed>(Link::Ethernet, ctx),
            "flowgauge_xdp_all",
            $suffix
        );
        program!(
            "xdp",
            |ctx| arrived_whole::<FUSED, $keyed>(Link::Ethernet, ctx),
            "flowgauge_fused_xdp",
            $suffix
        );
        program!(
            "xdp",
            |ctx| arrived_whole::<SEPARATE, $keyed>(Link::Ip, ctx),
            "flowgauge_xdp_ip",
            $suffix
        );
        program!("xdp.frags", arrived_in_pieces::<FLOWS, $keyed>, "flowgauge_xdp_frags", $suffix);
        program!(
            "xdp.frags",
            arrived_in_pieces::<SEPARATE, $keyed>,
            "flowgauge_xdp_all_frags",
            $suffix
        );
        program!(
            "classifier",
            |ctx| passes::<FLOWS, $keyed>(Link::Ethernet, ctx),
            "flowgauge_tcx",
            $suffix
        );
        program!(
            "classifier",
            |ctx| passes::<SEPARATE, $keyed>(Link::Ethernet, ctx),
            "flowgauge_tcx_all",
            $suffix
        );
        program!(
            "classifier",
            |ctx| passes::<FUSED, $keyed>(Link::Ethernet, ctx),
            "flowgauge_fused_tcx",
            $suffix
        );
        program!(
            "classifier",
            |ctx| passes::<SEPARATE, $keyed>(Link::Ip, ctx),
            "flowgauge_tcx_ip",
            $suffix
        );
    };
}
first_programs!(false, "");
first_programs!(true, "_keyed");

// Only returns the verdict: baseline of benchmarks.
program!("xdp", |_| Whole::verdict(), "flowgauge_empty");
