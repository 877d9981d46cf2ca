//! The programs that count in the kernel: thin wrappers around `flowgauge_core`.
//!
//! The first program of a hook finds the packet in the frame, counts it, and notes what measurements have to know of it in its CPU's
//! memory ([`memory`]). Where distinct flows alone are measured it counts these as well; else a program for each measurement that is on
//! follows ([`measure`]). Settings are read-only globals, so that the verifier drops what is switched off. Each CPU owns one element of an
//! array that user space maps into its memory: nothing is copied, locked or looked up by key.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod frame;
mod measure;
mod memory;
mod required;
mod skb;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::{tcx_action_base, xdp_md};
use aya_ebpf::helpers::bpf_xdp_get_buff_len;
use aya_ebpf::programs::{TcContext, XdpContext};
use core::ffi::c_void;
use core::ptr::NonNull;
use flowgauge_core::kernel::Core;
use flowgauge_core::{Arrival, Link, Needs, Observation, One, Packets, Record, Sharing};
use frame::Window;
use measure::{Chain, Pieces, Tcx, Whole};
use memory::{Live, Place, config, context, core, packet};

/// Counts a frame: distinct flows and nothing else, if not `EVERYTHING`: with one word of settings the rest of the code has registers to
/// spare. Else says whether there is a packet for measurements.
#[inline(always)]
fn count<const EVERYTHING: bool, const KEYED: bool, P: Packets>(
    core: NonNull<Core>,
    link: Link,
    frame: &Window,
    arrival: &Arrival<Live<P>>,
) -> bool {
    let mut place = Place::of(core);
    let context = context(Sharing::Shared);
    if EVERYTHING {
        let packet = packet(core);
        packet.arrive(*arrival);
        place.observe::<KEYED, _, _>(&context, link, frame, packet)
    } else {
        let context = flowgauge_core::Context { needs: context.needs.among(Needs::OF_FLOWS), ..context };
        let mut packet = Observation::of(arrival);
        if place.observe_flow::<KEYED, _, _>(&context, link, frame, &mut packet) {
            place.measure(&context, &packet);
        }
        false
    }
}

/// How a packet comes, as far as the loader says, and anybody asks.
#[inline(always)]
fn arrival<P>(wire_length: u32, packets: P) -> Arrival<Live<P>> {
    let (interface, leaves) =
        if config!(needs).has(Needs::PLACE) { (config!(interface) as u16, config!(leaves) != 0) } else { (0, false) };
    Arrival { wire_length, packets: Live(packets), timestamp: 0, interface, leaves }
}

#[inline(always)]
fn arrived<const EVERYTHING: bool, const KEYED: bool>(link: Link, ctx: &XdpContext, wire_length: u32, chain: &impl Chain) -> u32 {
    let frame = Window::new(ctx.data(), ctx.data_end());
    if let Some(core) = core()
        && count::<EVERYTHING, KEYED, One>(core, link, &frame, &arrival(wire_length, One))
    {
        chain.go_on(0);
    }
    config!(verdict)
}

#[inline(always)]
fn arrived_whole<const EVERYTHING: bool, const KEYED: bool>(link: Link, ctx: *mut xdp_md) -> u32 {
    let ctx = XdpContext::new(ctx);
    let length = (ctx.data_end() - ctx.data()) as u32;
    arrived::<EVERYTHING, KEYED>(link, &ctx, length, &Whole(XdpContext::new(ctx.ctx)))
}

/// Headers are in the first piece.
#[inline(always)]
fn arrived_in_pieces<const EVERYTHING: bool, const KEYED: bool>(ctx: *mut xdp_md) -> u32 {
    let ctx = XdpContext::new(ctx);
    // SAFETY: the context that the kernel has given.
    let length = unsafe { bpf_xdp_get_buff_len(ctx.ctx) } as u32;
    arrived::<EVERYTHING, KEYED>(Link::Ethernet, &ctx, length, &Pieces(XdpContext::new(ctx.ctx)))
}

#[inline(always)]
fn passes<const EVERYTHING: bool, const KEYED: bool>(link: Link, ctx: *mut c_void) -> i32 {
    let ctx = TcContext::new(ctx.cast());
    let length = skb::pull_headers(&ctx);
    if let Some(core) = core() {
        let (wire_length, packets) = skb::on_the_wire(link, ctx.skb.skb, length);
        let arrival = memory::noted(core, arrival(wire_length, packets));
        if count::<EVERYTHING, KEYED, _>(core, link, &skb::linear(ctx.skb.skb), arrival) {
            Tcx(TcContext::new(ctx.as_ptr().cast())).go_on(0);
        }
    }
    tcx_action_base::TCX_NEXT
}

/// The first programs of each hook, for one kind of signature: code for two has no room on the stack.
///
/// `classifier` of `aya_ebpf` is not used: the linker writes the structures that `__sk_buff` points to into BTF in an order that differs
/// from run to run.
macro_rules! first_programs {
    ($keyed:literal, $suffix:literal) => {
        /// Ingress: distinct flows.
        #[unsafe(export_name = concat!("flowgauge_xdp", $suffix))]
        #[unsafe(link_section = "xdp")]
        extern "C" fn xdp(ctx: *mut xdp_md) -> u32 {
            arrived_whole::<false, $keyed>(Link::Ethernet, ctx)
        }

        /// Ingress: every measurement.
        #[unsafe(export_name = concat!("flowgauge_xdp_all", $suffix))]
        #[unsafe(link_section = "xdp")]
        extern "C" fn xdp_all(ctx: *mut xdp_md) -> u32 {
            arrived_whole::<true, $keyed>(Link::Ethernet, ctx)
        }

        /// Ingress of an interface without link headers: every measurement.
        #[unsafe(export_name = concat!("flowgauge_xdp_ip", $suffix))]
        #[unsafe(link_section = "xdp")]
        extern "C" fn xdp_ip(ctx: *mut xdp_md) -> u32 {
            arrived_whole::<true, $keyed>(Link::Ip, ctx)
        }

        /// Ingress: distinct flows, of packets that come in several pieces as well, which takes Linux 5.18.
        #[unsafe(export_name = concat!("flowgauge_xdp_frags", $suffix))]
        #[unsafe(link_section = "xdp.frags")]
        extern "C" fn xdp_frags(ctx: *mut xdp_md) -> u32 {
            arrived_in_pieces::<false, $keyed>(ctx)
        }

        /// Ingress: every measurement, of packets that come in several pieces as well.
        #[unsafe(export_name = concat!("flowgauge_xdp_all_frags", $suffix))]
        #[unsafe(link_section = "xdp.frags")]
        extern "C" fn xdp_all_frags(ctx: *mut xdp_md) -> u32 {
            arrived_in_pieces::<true, $keyed>(ctx)
        }

        /// On a TCX hook, of ingress or egress: distinct flows. A packet with segmentation or receive offload counts as the packets on the
        /// wire that it stands for, and a VLAN tag that the device inserts or removed is a part of each.
        #[unsafe(export_name = concat!("flowgauge_tcx", $suffix))]
        #[unsafe(link_section = "classifier")]
        extern "C" fn tcx(ctx: *mut c_void) -> i32 {
            passes::<false, $keyed>(Link::Ethernet, ctx)
        }

        /// On a TCX hook: every measurement.
        #[unsafe(export_name = concat!("flowgauge_tcx_all", $suffix))]
        #[unsafe(link_section = "classifier")]
        extern "C" fn tcx_all(ctx: *mut c_void) -> i32 {
            passes::<true, $keyed>(Link::Ethernet, ctx)
        }

        /// On a TCX hook of an interface without link headers: every measurement.
        #[unsafe(export_name = concat!("flowgauge_tcx_ip", $suffix))]
        #[unsafe(link_section = "classifier")]
        extern "C" fn tcx_ip(ctx: *mut c_void) -> i32 {
            passes::<true, $keyed>(Link::Ip, ctx)
        }
    };
}

mod public {
    use super::*;
    first_programs!(false, "");
}

mod keyed {
    use super::*;
    first_programs!(true, "_keyed");
}

/// Does nothing but decide: what benchmarks compare with.
#[unsafe(no_mangle)]
#[unsafe(link_section = "xdp")]
extern "C" fn flowgauge_empty(_: *mut xdp_md) -> u32 {
    config!(verdict)
}
