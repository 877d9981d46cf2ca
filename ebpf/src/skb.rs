//! Packets at hooks after the driver, which may contain several wire packets.

use crate::frame::PacketBytes;
use crate::memory::config;
use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use flowgauge_core::filter::fields;
use flowgauge_core::{Link, Segments, parse};

/// Bytes that are made linear in a non-linear packet: Ethernet with all VLAN tags (30), IPv6 (40),
/// a few extension headers, ports.
const HEADERS: u32 = 128;

/// Makes the headers readable; returns the packet's length.
#[inline(always)]
pub(crate) fn pull_headers(ctx: &TcContext) -> u32 {
    let length = ctx.len();
    let wanted = length.min(HEADERS) as usize;
    if ctx.data() + wanted > ctx.data_end() {
        // If this fails, the linear bytes are parsed. The call invalidates the pointers, hence they
        // are read later.
        let _ = ctx.pull_data(wanted as u32);
    }
    length
}

/// Returns the readable bytes of the packet. The pointers are read again at each call: for a window
/// that was already compared, the verifier follows every outcome separately.
#[inline(always)]
pub(crate) fn linear(skb: *mut __sk_buff) -> PacketBytes {
    // SAFETY: the context is valid while the program runs; volatile, so that the compiler does not
    // cache it.
    let (data, end) = unsafe {
        ((&raw const (*skb).data).read_volatile(), (&raw const (*skb).data_end).read_volatile())
    };
    PacketBytes::new(data as usize, end as usize)
}

const VLAN_TAG: u32 = 4;

/// Returns the length that rules compare, and the bits of the outermost VLAN tag if the device inserts
/// or has removed it; otherwise zero. The length is that of the whole packet, before it is segmented
/// or after it was merged.
#[inline(always)]
pub(crate) fn with_tag(skb: *mut __sk_buff, length: u32) -> (u32, u32) {
    // SAFETY: as above.
    let (tagged, tag) = unsafe { ((*skb).vlan_present, (*skb).vlan_tci) };
    if tagged == 0 { (length, 0) } else { (length + VLAN_TAG, fields::tagged(tag)) }
}

/// Returns the wire bytes and wire packets of a packet of this length.
#[inline(always)]
pub(crate) fn on_the_wire(link: Link, skb: *mut __sk_buff, length: u32) -> (u32, Segments) {
    // SAFETY: as above.
    let (tagged, payload, segments, on_egress) =
        unsafe { ((*skb).vlan_present, (*skb).gso_size, (*skb).gso_segs, (*skb).wire_len) };
    let tag = if tagged == 0 { 0 } else { VLAN_TAG };
    if payload == 0 {
        return (length + tag, Segments::ONE);
    }
    let frame = linear(skb);
    let (before, headers) = parse::network(&frame, link)
        .map_or((0, 0), |packet| (packet.offset() as u32, parse::headers(&frame, &packet) as u32));
    // Packets from a virtual machine or a tun device only declare the length of segments, not their
    // number.
    let segments =
        if segments == 0 { length.saturating_sub(headers).div_ceil(payload) } else { segments }
            .max(1);
    let leaves = config!(leaves) != 0;
    // On egress the kernel has added the headers of all segments, those inside tunnels included.
    let bytes =
        if leaves && on_egress > length { on_egress } else { length + (segments - 1) * headers };
    let full = headers.saturating_sub(before) + payload;
    let last = length.saturating_sub(before).saturating_sub((segments - 1) * payload);
    (bytes + segments * tag, Segments { number: segments, full, last })
}
