//! Program that redirects packets to AF_XDP sockets. A separate object: kernels without such
//! sockets cannot create its map.
#![no_std]
#![no_main]

mod required;

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::macros::{map, xdp};
use aya_ebpf::maps::{PerCpuArray, XskMap};
use aya_ebpf::programs::XdpContext;

/// Sockets by receive queue. User space sets their number.
#[map]
static SOCKETS: XskMap = XskMap::with_max_entries(1, 0);
/// Packets passed to the kernel because their queue has no socket.
#[map]
static PASSED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

#[inline(always)]
fn redirect(ctx: &XdpContext) -> u32 {
    let verdict = SOCKETS
        .redirect(ctx.rx_queue_index(), u64::from(XDP_PASS))
        .unwrap_or_else(|verdict| verdict);
    if verdict == XDP_PASS
        && let Some(passed) = PASSED.get_ptr_mut(0)
    {
        // SAFETY: this CPU's own word; XDP programs are not preempted by others on their CPU.
        unsafe { *passed += 1 };
    }
    verdict
}

/// Redirects packets in one piece.
#[xdp]
pub fn flowgauge_redirect(ctx: XdpContext) -> u32 {
    redirect(&ctx)
}

/// Redirects packets in several pieces as well, which requires Linux 5.18.
#[xdp(frags)]
pub fn flowgauge_redirect_frags(ctx: XdpContext) -> u32 {
    redirect(&ctx)
}
