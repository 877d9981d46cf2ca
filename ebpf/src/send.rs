//! Programs that make a sender of live frames (BPF_PROG_TEST_RUN). An object of its own: counting has no use for its maps.
#![no_std]
#![no_main]

mod required;

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_TX};
use aya_ebpf::macros::{map, xdp};
use aya_ebpf::maps::{Array, PerCpuArray};
use aya_ebpf::programs::XdpContext;

/// Number of addresses that [`flowgauge_send`] writes, and which comes next on each CPU that sends.
#[unsafe(no_mangle)]
static SOURCES: u32 = 1;
#[map]
static NEXT: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

/// Sends IPv4 packets back the way they came, each from the next source address of 10.0.0.0/8. With live frames this makes a sender;
/// nobody checks the IPv4 checksum that it leaves wrong.
#[xdp]
pub fn flowgauge_send(ctx: XdpContext) -> u32 {
    const SOURCE: usize = 26;
    let start = ctx.data() + SOURCE;
    if let Some(next) = NEXT.get_ptr_mut(0)
        && start + 4 <= ctx.data_end()
    {
        // SAFETY: this CPU's own word; the bytes lie between `data` and `end`; volatile, because the loader writes another number
        // into the object.
        unsafe {
            let source = *next % (&raw const SOURCES).read_volatile().max(1);
            *next = source + 1;
            *(start as *mut u32) = (source | 10 << 24).to_be();
        }
    }
    XDP_TX
}

/// Packets of a part of a batch, and words of 32 bits at the start of each that are its own: as in `xdp/live.rs`.
const PART: usize = 1024;
const WORDS: usize = 20;

/// How the packets of a batch begin. User space sets the number of parts.
#[map]
static STARTS: Array<[[u32; WORDS]; PART]> = Array::with_max_entries(1, 0);
/// How many packets of the batch were sent, of how many in all.
#[map]
static PROGRESS: Array<[u32; 2]> = Array::with_max_entries(1, 0);

/// Sends the next packet of the batch, and none beyond it: the kernel makes frames by the dozen, the last dozen in full. All words are
/// written, since the kernel uses frames again and receivers may have written to them.
#[xdp]
pub fn flowgauge_send_batch(ctx: XdpContext) -> u32 {
    let Some(progress) = PROGRESS.get_ptr_mut(0) else { return XDP_DROP };
    // SAFETY: one thread runs this program, and touches the maps while it does not run.
    let [sent, packets] = unsafe { *progress };
    if sent >= packets {
        return XDP_DROP;
    }
    let Some(part) = STARTS.get_ptr(sent / PART as u32) else { return XDP_DROP };
    // SAFETY: as above; the remainder lies within the part.
    let words = unsafe {
        (*progress)[0] = sent + 1;
        &(*part)[sent as usize % PART]
    };
    let (data, end) = (ctx.data(), ctx.data_end());
    for (word, value) in words.iter().enumerate() {
        let place = data + 4 * word;
        if place + 4 > end {
            break;
        }
        // SAFETY: the bytes lie between `data` and `end`.
        unsafe { *(place as *mut u32) = *value };
    }
    XDP_TX
}
