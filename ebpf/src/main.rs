//! The programs that count in the kernel: thin wrappers around `flowgauge_core`.
//!
//! Settings are read-only globals, so that the verifier drops what is switched off. Each CPU owns one element of an array that user
//! space maps into its memory: nothing is copied, locked or looked up by key.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod required;

use aya_ebpf::bindings::{__sk_buff, tcx_action_base, xdp_action};
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_xdp_get_buff_len};
use aya_ebpf::macros::{map, xdp};
use aya_ebpf::maps::{Array, RingBuf};
use aya_ebpf::programs::{TcContext, XdpContext};
use core::arch::asm;
use core::ffi::c_void;
use core::ptr::NonNull;
use flowgauge_core::delay::sample::{Outbox, ROOM, Sample};
use flowgauge_core::kernel::{Config, Core, Layout, PACKET_WORDS, SharedBanks};
use flowgauge_core::unopened::Unopened;
use flowgauge_core::{
    Arrival, BANKS, Context, Counters, Delay, Frame, Link, Listed, Memory, Needs, Observation, One, Packets, Parts, Record, Segments, Settings,
    Sharing, Tabulation, parse,
};

/// Whether these are the programs of keyed hashes. They are an object of their own: for code of two kinds of signatures the stack has no room.
const KEYED: bool = matches!(env!("CARGO_BIN_NAME").as_bytes(), b"flowgauge-keyed");

const MMAPABLE: u32 = 1 << 10;

/// What the loader writes.
#[unsafe(no_mangle)]
static CONFIG: Config = Config { verdict: xdp_action::XDP_PASS, ..Config::DEFAULT };

/// A word of what the loader wrote: volatile, because the compiler knows something else.
macro_rules! config {
    ($($field:tt)+) => {
        // SAFETY: within the object, and aligned.
        unsafe { (&raw const CONFIG.$($field)+).read_volatile() }
    };
}

/// The words that hashes are made of. Writable, or the compiler would put its zeros in place of the words that the loader writes.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data")]
static mut TABULATION: Tabulation = Tabulation::ZERO;

/// Zero. The verifier does not know that, because user space may write it.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data")]
static mut NOTHING: usize = 0;

/// One element a CPU; user space sets their number and length.
#[map]
static CORES: Array<Core> = Array::with_max_entries(1, MMAPABLE);

/// What all CPUs count in together between rotations; without use if that is nothing.
#[map]
static SHARED: Array<SharedBanks> = Array::with_max_entries(1, MMAPABLE);

/// What all CPUs, and all programs of a run, know together beyond rotations; user space sets its length.
#[map]
static LASTING: Array<u64> = Array::with_max_entries(1, MMAPABLE);

/// Delays one by one; user space sets its length. Where nobody asks for them it makes an array of it, without use.
#[map]
static DELAYS: RingBuf = RingBuf::with_byte_size(1 << 12, 0);

/// User space looks by itself.
const NO_WAKEUP: u64 = 1;

/// The bytes from `data` up to `end`: the verifier follows comparisons of pointers with `end`, not lengths.
struct Window {
    data: usize,
    end: usize,
}

/// Where headers end at the latest: eight IPv6 extension headers of the longest kind behind all encapsulations. A bound that the
/// verifier can carry through pointer arithmetic.
const FURTHEST: usize = 1 << 15;

impl Window {
    /// The compiler must not know that pointers have 32 bits: it would see that no sum with `data` overflows, and compare with `end` less a
    /// number instead, which the verifier takes for no comparison with `end`; and it would put half of a pointer on the stack.
    #[inline(always)]
    fn new(mut data: usize, mut end: usize) -> Self {
        // SAFETY: registers are what they were. Without an instruction two lines of the source would begin at one, which the kernel refuses.
        unsafe {
            asm!("{0} = {0}", inout(reg) data, options(pure, nomem, nostack, preserves_flags));
            asm!("{0} = {0}", inout(reg) end, options(pure, nomem, nostack, preserves_flags));
        }
        Window { data, end }
    }

    #[inline(always)]
    fn at(&self, offset: usize, length: usize) -> Option<usize> {
        let offset = offset & (FURTHEST - 1);
        let start = self.data + offset;
        (start + length <= self.end).then_some(start)
    }
}

impl Frame for Window {
    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        // SAFETY: the bytes lie between `data` and `end`, which the kernel guarantees to be readable.
        self.at(offset, N).map(|start| unsafe { &*(start as *const [u8; N]) })
    }

    #[inline(always)]
    fn forget(&self, offset: usize) -> usize {
        // SAFETY: nobody writes it; volatile, because the compiler knows it to be zero.
        (offset + unsafe { (&raw const NOTHING).read_volatile() }) & (FURTHEST - 1)
    }
}

/// This CPU's element.
#[inline(always)]
fn core() -> Option<NonNull<Core>> {
    // SAFETY: a helper without conditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    CORES.get_ptr_mut(cpu).and_then(NonNull::new)
}

/// Where this CPU counts. XDP and TC programs are not preempted by others on their CPU, which alone owns its element; user space touches
/// only the bank that is not active.
///
/// Of a measurement's part there is no more than its settings use, and references to it are to more than that. The kernel's verifier
/// refuses programs that look at what is behind an element's end.
struct Place {
    core: NonNull<Core>,
    bank: usize,
    /// Where the bank begins.
    start: NonNull<u8>,
}

impl Place {
    #[inline(always)]
    fn of(core: NonNull<Core>) -> Self {
        // SAFETY: user space stores whole words at any time.
        let mut bank = unsafe { (&raw const (*core.as_ptr()).bank).read_volatile() as usize };
        // SAFETY: arithmetic. The compiler would branch by what it knows to be zero or one, and the verifier follow both ways.
        unsafe { asm!("{0} &= {1}", inout(reg) bank, const BANKS - 1, options(pure, nomem, nostack, preserves_flags)) };
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
        let own = if M::INDEX == 0 { Layout::FIRST } else { config!(layout.own[M::INDEX]) as usize };
        // SAFETY: where the loader put it, aligned to words; see above.
        let own = unsafe { self.start.add(own).cast().as_mut() };
        let lasting = if M::used(settings).lasting == 0 { 0 } else { config!(layout.lasting[M::INDEX]) as usize };
        // SAFETY: as above; not looked at if nothing of it is used.
        let lasting = unsafe { self.core.cast::<u8>().add(lasting).cast().as_mut() };
        let shared = if size_of::<M::Shared>() == 0 {
            // SAFETY: without length.
            unsafe { NonNull::dangling().as_ref() }
        } else {
            M::shared(&SHARED.get(0)?[self.bank & (BANKS - 1)])
        };
        let shared_lasting = if size_of::<M::SharedLasting>() == 0 {
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

/// The same place, of which the compiler does not know that it holds what was written there: it takes no room on the stack, and the verifier knows
/// no more of it than that there are numbers. What it knew before differs from path to path through the parser, and it would follow each of them
/// to the end.
#[inline(always)]
fn forgotten<T>(place: &mut T) -> &T {
    let mut place = &raw mut *place;
    // SAFETY: a register is what it was, and lent; it goes with the source's line, as in `Window`.
    unsafe {
        asm!("{0} = {0}", inout(reg) place, options(nostack, preserves_flags));
        &*place
    }
}

/// Counts distinct flows and nothing else, if not `EVERYTHING`: with one word of settings the rest of the code has registers to spare.
#[inline(always)]
fn count<const EVERYTHING: bool>(
    core: NonNull<Core>,
    link: Link,
    frame: &Window,
    needs: Needs,
    arrival: &Arrival<impl Packets>,
) {
    let mut place = Place::of(core);
    // SAFETY: nobody writes it while the program runs.
    let tabulation = unsafe { &*(&raw const TABULATION) };
    let slot_ns = if needs.has(Needs::TIME) { config!(slot_ns) } else { 1 };
    // Programs open no tunnels.
    let headers = parse::Settings::DEFAULT;
    let context = Context { settings: settings(), headers, tabulation, sharing: Sharing::Shared, slot_ns, needs };
    if EVERYTHING {
        let room = room_for_packet(core);
        room.arrive(*arrival);
        if place.observe::<KEYED, _, _>(&context, link, frame, room) {
            place.measure(&context, forgotten(room));
            pass_on();
        }
    } else {
        let mut packet = Observation::of(arrival);
        if place.observe_flow::<KEYED, _, _>(&context, link, frame, &mut packet) {
            place.measure(&context, &packet);
        }
    }
}

/// Passes the packet's delays on one by one, if somebody asks for them. Nothing that it needs is kept from before.
#[inline(always)]
fn pass_on() {
    if config!(settings.delay.samples)
        && let Some(core) = core()
    {
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

/// Packets that come as the clock says: it is looked at when somebody asks, and their timestamp says nothing.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Live<P>(P);

impl<P: Packets> Packets for Live<P> {
    #[inline(always)]
    fn number(self) -> u32 {
        self.0.number()
    }

    #[inline(always)]
    fn time(self, _: u64) -> u64 {
        // SAFETY: a helper without conditions.
        config!(boot_ns) + unsafe { bpf_ktime_get_ns() }
    }

    #[inline(always)]
    fn lengths(self, header: u32) -> (u32, u32) {
        self.0.lengths(header)
    }
}

/// How a packet comes, as far as the loader says, and anybody asks.
#[inline(always)]
fn arrival<P>(needs: Needs, wire_length: u32, packets: P) -> Arrival<Live<P>> {
    let (interface, leaves) = if needs.has(Needs::PLACE) { (config!(interface) as u16, config!(leaves) != 0) } else { (0, false) };
    Arrival { wire_length, packets: Live(packets), timestamp: 0, interface, leaves }
}

/// The program's own room in an element.
#[inline(always)]
fn room_for_arrival<'a>(core: NonNull<Core>) -> &'a mut Arrival<Live<Segments>> {
    const { assert!(size_of::<Arrival<Live<Segments>>>() <= size_of::<[u64; 4]>()) };
    // SAFETY: large enough and aligned, of integers and a flag that is written before it is read; nobody else uses it, and no two borrows live at once.
    unsafe { &mut *(&raw mut (*core.as_ptr()).arrival).cast() }
}

/// As above.
#[inline(always)]
fn room_for_packet<'a, P>(core: NonNull<Core>) -> &'a mut Observation<P> {
    const { assert!(size_of::<Observation<P>>() <= size_of::<[u64; PACKET_WORDS]>()) };
    // SAFETY: as above.
    unsafe { &mut *(&raw mut (*core.as_ptr()).packet).cast() }
}

/// What to measure and how. Of the compiler's constants it knows nothing; the verifier sees through whatever is loaded from there, when it is. A
/// measurement whose words are zero is off.
#[inline(always)]
fn settings<'a>() -> &'a Settings {
    let mut settings = &raw const CONFIG.settings;
    // SAFETY: the register is what it was, and of settings that the loader wrote, which nobody writes while the program runs.
    unsafe {
        asm!("{0} = {0}", inout(reg) settings, options(pure, nomem, nostack, preserves_flags));
        &*settings
    }
}

/// What they have to know of packets, in one word: the verifier takes away what is behind bits that are zero.
#[inline(always)]
fn needs<const EVERYTHING: bool>() -> Needs {
    let needs = config!(needs);
    if EVERYTHING { needs } else { needs.among(Needs::OF_FLOWS) }
}

/// Ingress: distinct flows.
#[xdp]
#[inline(always)]
pub fn flowgauge_xdp(ctx: XdpContext) -> u32 {
    arrived_whole::<false>(Link::Ethernet, &ctx)
}

/// Ingress: every measurement.
#[xdp]
#[inline(always)]
pub fn flowgauge_xdp_all(ctx: XdpContext) -> u32 {
    arrived_whole::<true>(Link::Ethernet, &ctx)
}

/// Ingress of an interface without link headers: every measurement.
#[xdp]
#[inline(always)]
pub fn flowgauge_xdp_ip(ctx: XdpContext) -> u32 {
    arrived_whole::<true>(Link::Ip, &ctx)
}

/// Ingress: distinct flows, of packets that come in several pieces as well, which takes Linux 5.18.
#[xdp(frags)]
#[inline(always)]
pub fn flowgauge_xdp_frags(ctx: XdpContext) -> u32 {
    arrived_in_pieces::<false>(&ctx)
}

/// Ingress: every measurement, of packets that come in several pieces as well.
#[xdp(frags)]
#[inline(always)]
pub fn flowgauge_xdp_all_frags(ctx: XdpContext) -> u32 {
    arrived_in_pieces::<true>(&ctx)
}

/// Headers are in the first piece.
#[inline(always)]
fn arrived_in_pieces<const EVERYTHING: bool>(ctx: &XdpContext) -> u32 {
    // SAFETY: the context that the kernel has given.
    let wire_length = unsafe { bpf_xdp_get_buff_len(ctx.ctx) } as u32;
    arrived::<EVERYTHING>(Link::Ethernet, ctx, wire_length)
}

#[inline(always)]
fn arrived_whole<const EVERYTHING: bool>(link: Link, ctx: &XdpContext) -> u32 {
    arrived::<EVERYTHING>(link, ctx, (ctx.data_end() - ctx.data()) as u32)
}

#[inline(always)]
fn arrived<const EVERYTHING: bool>(link: Link, ctx: &XdpContext, wire_length: u32) -> u32 {
    let frame = Window::new(ctx.data(), ctx.data_end());
    if let Some(core) = core() {
        let needs = needs::<EVERYTHING>();
        count::<EVERYTHING>(core, link, &frame, needs, &arrival(needs, wire_length, One));
    }
    config!(verdict)
}

/// What a non-linear packet is made linear up to: Ethernet with all VLAN tags (30), IPv6 (40), a few extension headers, ports.
const HEADERS: u32 = 128;

/// On a TCX hook, of ingress or egress: distinct flows. A packet with segmentation or receive offload counts as the packets on the wire that
/// it stands for, and a VLAN tag that the device inserts or removed is a part of each.
///
/// What `aya_ebpf::macros::classifier` would make of it, but for the argument's type: the linker writes the structures that `__sk_buff`
/// points to into BTF in an order that differs from run to run.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub fn flowgauge_tcx(ctx: *mut c_void) -> i32 {
    passes::<false>(Link::Ethernet, ctx)
}

/// On a TCX hook: every measurement.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub fn flowgauge_tcx_all(ctx: *mut c_void) -> i32 {
    passes::<true>(Link::Ethernet, ctx)
}

/// On a TCX hook of an interface without link headers: every measurement.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub fn flowgauge_tcx_ip(ctx: *mut c_void) -> i32 {
    passes::<true>(Link::Ip, ctx)
}

#[inline(always)]
fn passes<const EVERYTHING: bool>(link: Link, ctx: *mut c_void) -> i32 {
    let ctx = TcContext::new(ctx.cast());
    let length = ctx.len();
    let wanted = length.min(HEADERS) as usize;
    if ctx.data() + wanted > ctx.data_end() {
        // Where this fails, what is linear is counted. It invalidates the pointers, hence they are read below.
        let _ = ctx.pull_data(wanted as u32);
    }
    if let Some(core) = core() {
        let (wire_length, packets) = on_the_wire(link, ctx.skb.skb, length);
        let room = room_for_arrival(core);
        *room = arrival(needs::<EVERYTHING>(), wire_length, packets);
        count::<EVERYTHING>(core, link, &linear(ctx.skb.skb), needs::<EVERYTHING>(), forgotten(room));
    }
    tcx_action_base::TCX_NEXT
}

/// What of the packet can be read. Read anew each time: of a window that was compared with the verifier follows every outcome apart.
#[inline(always)]
fn linear(skb: *mut __sk_buff) -> Window {
    // SAFETY: the context is valid as long as the program runs; volatile, so that the compiler does not keep it.
    let (data, end) = unsafe { ((&raw const (*skb).data).read_volatile(), (&raw const (*skb).data_end).read_volatile()) };
    Window::new(data as usize, end as usize)
}

const VLAN_TAG: u32 = 4;

/// Bytes and packets that a packet of this length is on the wire.
#[inline(always)]
fn on_the_wire(link: Link, skb: *mut __sk_buff, length: u32) -> (u32, Segments) {
    // SAFETY: as above.
    let (tagged, payload, segments, on_egress) =
        unsafe { ((*skb).vlan_present, (*skb).gso_size, (*skb).gso_segs, (*skb).wire_len) };
    let tag = if tagged == 0 { 0 } else { VLAN_TAG };
    if payload == 0 {
        return (length + tag, Segments::ONE);
    }
    let frame = linear(skb);
    let (before, headers) =
        parse::network(&frame, link).map_or((0, 0), |packet| (packet.offset() as u32, parse::headers(&frame, &packet) as u32));
    // What comes from a virtual machine or a tun device says only how long segments are.
    let segments = if segments == 0 { length.saturating_sub(headers).div_ceil(payload) } else { segments }.max(1);
    let leaves = config!(leaves) != 0;
    // On the way out the kernel has added the headers of all segments up, those inside of tunnels included.
    let bytes = if leaves && on_egress > length { on_egress } else { length + (segments - 1) * headers };
    let full = headers.saturating_sub(before) + payload;
    let last = length.saturating_sub(before).saturating_sub((segments - 1) * payload);
    (bytes + segments * tag, Segments { number: segments, full, last })
}

/// Does nothing but decide: what benchmarks compare with.
#[xdp]
pub fn flowgauge_empty(_ctx: XdpContext) -> u32 {
    config!(verdict)
}
