//! Traffic generators: programs that turn one frame into many packets (BPF_PROG_TEST_RUN). A
//! separate object: counting has no use for its maps.
#![no_std]
#![no_main]

mod required;

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_DROP, XDP_TX};
use aya_ebpf::macros::{map, xdp};
use aya_ebpf::maps::{Array, PerCpuArray, ProgramArray};
use aya_ebpf::programs::XdpContext;

/// Number of addresses that [`flowgauge_send`] writes, and the number of packets that it sent on each
/// CPU.
#[unsafe(no_mangle)]
static SOURCES: u32 = 1;
#[map]
static SENT: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

/// Sends IPv4 packets back the way they came, each from the next source address in 10.0.0.0/8. With
/// live frames this is a traffic generator. The IPv4 checksum becomes wrong; receivers under test
/// do not check it.
#[xdp]
pub fn flowgauge_send(ctx: XdpContext) -> u32 {
    const SOURCE: usize = 26;
    let start = ctx.data() + SOURCE;
    if let Some(count) = SENT.get_ptr_mut(0)
        && start + 4 <= ctx.data_end()
    {
        // SAFETY: this CPU's own word; the bytes are between `data` and `end`; volatile, because
        // the loader writes another number into the object.
        unsafe {
            let sent = *count;
            *count = sent.wrapping_add(1);
            let source = sent % (&raw const SOURCES).read_volatile().max(1);
            *(start as *mut u32) = (source | 10 << 24).to_be();
        }
    }
    XDP_TX
}

/// Packets in a part of a batch, and 32-bit words at the start of each packet that differ between
/// packets. The same as in `xdp/live.rs`.
const PART: usize = 1024;
const WORDS: usize = 20;

/// First words of the packets of a batch. User space sets the number of parts.
#[map]
static STARTS: Array<[[u32; WORDS]; PART]> = Array::with_max_entries(1, 0);
/// Number of packets sent, and number of packets in the batch.
#[map]
static PROGRESS: Array<[u32; 2]> = Array::with_max_entries(1, 0);

/// Sends the next packet of the batch, and drops frames beyond its end: the kernel makes frames in
/// groups, and the last group in full. Writes all words, since the kernel reuses frames and
/// receivers may have modified them.
#[xdp]
pub fn flowgauge_send_batch(ctx: XdpContext) -> u32 {
    let Some(progress) = PROGRESS.get_ptr_mut(0) else { return XDP_DROP };
    // SAFETY: one thread runs this program, and accesses the maps only while it does not run.
    let [sent, packets] = unsafe { *progress };
    if sent >= packets {
        return XDP_DROP;
    }
    let Some(part) = STARTS.get_ptr(sent / PART as u32) else { return XDP_DROP };
    // SAFETY: as above; the remainder is within the part.
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
        // SAFETY: the bytes are between `data` and `end`.
        unsafe { *(place as *mut u32) = *value };
    }
    XDP_TX
}

/// Number of connections of [`flowgauge_converse`], which take turns.
const CONNECTIONS: u32 = 64;
/// Payload bytes of a segment; they fill a frame of 60 bytes.
const DATA: u32 = 6;
/// Index of the conversation's next packet on each CPU.
#[map]
static TURN: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);
/// Program that receives the packets of [`flowgauge_converse`].
#[map]
static LISTENER: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Turns a frame with IPv4 and TCP into the next packet of a conversation, and passes it to another
/// program. Clients take turns to send data; before a client sends again, its last data is
/// acknowledged. So each packet is either a new request, or the answer to one that has waited for
/// 126 packets.
#[xdp]
pub fn flowgauge_converse(ctx: XdpContext) -> u32 {
    const FRAME: usize = 60;
    const CLIENT: u32 = 10 << 24 | 1;
    const SERVER: u32 = 10 << 24 | 2;
    const SERVER_PORT: u32 = 443;
    let start = ctx.data();
    if let Some(turn) = TURN.get_ptr_mut(0)
        && start + FRAME <= ctx.data_end()
    {
        // SAFETY: this CPU's own word.
        let (is_answer, exchange) = unsafe {
            let now = *turn;
            *turn = now.wrapping_add(1);
            (now & 1 == 1, now >> 1)
        };
        let exchange = if is_answer { exchange.wrapping_sub(CONNECTIONS - 1) } else { exchange };
        let client_port = 40_000 + exchange % CONNECTIONS;
        let sequence = exchange / CONNECTIONS * DATA;
        let [ends, ports] = if is_answer {
            [[SERVER, CLIENT], [SERVER_PORT, client_port]]
        } else {
            [[CLIENT, SERVER], [client_port, SERVER_PORT]]
        };
        let [from, to] = ends;
        let [source, destination] = ports;
        let numbers = if is_answer { [1, sequence.wrapping_add(DATA)] } else { [sequence, 1] };
        let [sequence, acknowledged] = numbers;
        let (length, flags) = if is_answer { (40, 0x5010) } else { (40 + DATA as u16, 0x5018) };
        // SAFETY: all bytes are between `data` and `end`.
        unsafe {
            *((start + 16) as *mut u16) = u16::to_be(length);
            *((start + 26) as *mut u32) = from.to_be();
            *((start + 30) as *mut u32) = to.to_be();
            *((start + 34) as *mut u32) = (source << 16 | destination).to_be();
            *((start + 38) as *mut u32) = sequence.to_be();
            *((start + 42) as *mut u32) = acknowledged.to_be();
            *((start + 46) as *mut u16) = u16::to_be(flags);
        }
        // SAFETY: the map holds programs. The call returns only if the slot is empty.
        let _ = unsafe { LISTENER.tail_call(&ctx, 0) };
    }
    XDP_ABORTED
}
