//! `flowgauge bench packet`: the cost of one packet, stage by stage, with its frame in a cache or
//! in memory.

use crate::findings::{Figure, Findings, Grid, Limit, Results, Row};
use crate::machine::Machine;
use crate::ports;
use crate::turns::{Best, Contestant, take_turns};
use crate::workload::{self, SCANS, settings};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::filter::EveryPacket;
use flowgauge_core::heavy::Algorithm;
use flowgauge_core::{
    Arrival, Context, HashMode, KeyKind, Link, Settings, Shared, Sharing, State, Tabulation,
    Zeroed, parse, reorder,
};
use flowgauge_dataplane::poll::port::{AHEAD, PortFrame, prefetch};
use flowgauge_dataplane::poll::{Batch, Instructions, Matcher, PacketBuffers};
use flowgauge_papers::ReproduceError;
use flowgauge_traffic::{Generator, Profile, Sources};
use std::hint::black_box;

/// Bytes of a frame.
const FRAME: usize = 64;
/// Frames per batch, as with generated traffic. AF_XDP has 64.
const BATCH: usize = 256;
/// Packets of a turn, if there are fewer frames.
const PACKETS: usize = 200_000;

/// Location of the frames in the memory hierarchy.
#[derive(Clone, Copy)]
struct FrameLayout {
    name: &'static str,
    /// Total size.
    bytes: usize,
    /// Distance between frames.
    stride: usize,
}

const LAYOUTS: [FrameLayout; 5] = [
    FrameLayout { name: "L1", bytes: 16 << 10, stride: FRAME },
    FrameLayout { name: "L2", bytes: 512 << 10, stride: FRAME },
    FrameLayout { name: "L3", bytes: 8 << 20, stride: FRAME },
    FrameLayout { name: "memory, packed", bytes: 256 << 20, stride: FRAME },
    FrameLayout { name: "memory, 2 KiB apart", bytes: 256 << 20, stride: 2048 },
];

/// Offset of the protocol in a frame, where its header fields start.
pub(crate) const PROTOCOL: usize = 23;
pub(crate) const TRANSPORT: usize = 34;
pub(crate) const UDP: u8 = 17;
/// Offset of the TCP flags in a frame.
pub(crate) const FLAGS: usize = 47;
/// PSH and ACK: the frame carries data and acknowledges data.
pub(crate) const DATA: u8 = 0x18;

/// Frames with unique random sources, as in the W-HLL thesis.
struct Frames {
    bytes: Vec<u8>,
    stride: usize,
}

impl Frames {
    fn new(FrameLayout { bytes, stride, .. }: FrameLayout) -> Self {
        let generator = Generator::new(Profile::new(Sources::Unique));
        let mut bytes = vec![0; bytes];
        for (index, slot) in bytes.chunks_exact_mut(stride).enumerate() {
            if let Some(frame) = slot.get_mut(..FRAME) {
                frame.copy_from_slice(generator.template());
                generator.fill(index as u64, frame);
            }
        }
        Frames { bytes, stride }
    }

    /// Returns frames that are segments of established connections.
    fn data(place: FrameLayout) -> Self {
        let mut frames = Frames::new(place);
        frames
            .bytes
            .chunks_exact_mut(place.stride)
            .filter_map(|frame| frame.get_mut(FLAGS))
            .for_each(|flags| *flags = DATA);
        frames
    }

    fn iter(&self) -> impl Iterator<Item = &[u8; FRAME]> {
        self.bytes.chunks_exact(self.stride).filter_map(|slot| slot.first_chunk())
    }

    fn batches(&self) -> impl Iterator<Item = impl Iterator<Item = &[u8; FRAME]>> {
        let batches = self.bytes.chunks(BATCH * self.stride);
        batches.map(|slots| slots.chunks_exact(self.stride).filter_map(|slot| slot.first_chunk()))
    }

    /// Prefetches the header of a later frame into the cache, as ports with separate buffers do.
    #[inline(always)]
    fn fetch_ahead(&self, frame: &[u8; FRAME]) {
        if self.stride > FRAME {
            prefetch(frame.as_ptr().wrapping_add(AHEAD * self.stride));
        }
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.stride
    }

    /// Returns a contestant that runs `pass` over all frames until a turn is complete.
    fn contestant<'a>(&'a self, mut pass: impl FnMut(&Frames) + 'a) -> Contestant<'a> {
        let passes = PACKETS.div_ceil(self.count());
        Box::new(move || {
            (0..passes).for_each(|_| pass(black_box(self)));
            (passes * self.count()) as u64
        })
    }
}

/// Returns the stages. The cost of each includes those before it.
fn stages<'a>(frames: &'a Frames, data: &'a Frames) -> Vec<(String, Contestant<'a>)> {
    let touch = |frames: &Frames| {
        let address = |frame: &[u8; FRAME]| frame.get(26).copied().map_or(0, u32::from);
        black_box(frames.iter().fold(0_u32, |sum, frame| sum.wrapping_add(address(frame))));
    };
    let mut stages: Vec<(String, Contestant<'_>)> = vec![
        (TOUCH.to_owned(), frames.contestant(touch)),
        (
            COUNTERS.to_owned(),
            counting(frames, || settings(Mode::Off, KeyKind::Src, HashMode::Crc32)),
        ),
        (PARSE.to_owned(), frames.contestant(parsing)),
    ];
    let mut add = |key: KeyKind, hash: HashMode, contestant| {
        stages.push((format!("{}, {}", key.name(), hash.name()), contestant))
    };
    use HashMode::{Crc32, Keyed, Tabulated};
    use KeyKind::{Dst, FiveTuple, Src, SrcDst};
    // Settings are written out so that the compiler specializes the code for each, as for workers.
    add(Src, Crc32, counting(frames, || settings(Mode::Windowed, Src, Crc32)));
    add(Src, Tabulated, counting(frames, || settings(Mode::Windowed, Src, Tabulated)));
    add(Dst, Crc32, counting(frames, || settings(Mode::Windowed, Dst, Crc32)));
    add(Dst, Tabulated, counting(frames, || settings(Mode::Windowed, Dst, Tabulated)));
    add(SrcDst, Crc32, counting(frames, || settings(Mode::Windowed, SrcDst, Crc32)));
    add(SrcDst, Tabulated, counting(frames, || settings(Mode::Windowed, SrcDst, Tabulated)));
    add(FiveTuple, Crc32, counting(frames, || settings(Mode::Windowed, FiveTuple, Crc32)));
    add(FiveTuple, Tabulated, counting(frames, || settings(Mode::Windowed, FiveTuple, Tabulated)));
    add(Src, Keyed, counting(frames, || settings(Mode::Windowed, Src, Keyed)));
    add(Dst, Keyed, counting(frames, || settings(Mode::Windowed, Dst, Keyed)));
    add(SrcDst, Keyed, counting(frames, || settings(Mode::Windowed, SrcDst, Keyed)));
    add(FiveTuple, Keyed, counting(frames, || settings(Mode::Windowed, FiveTuple, Keyed)));
    for (rules, _) in workload::FILTER_RULES {
        let name = format!("src, tabulated, {}", workload::filter_name(rules));
        stages.push((name, matching(frames, rules)));
    }
    let staggered = counting(frames, || settings(Mode::Staggered, Src, Tabulated));
    stages.push(("staggered registers of src, tabulated".to_owned(), staggered));
    // As in workers, the compiler does not know these settings.
    let mut on = |frames: &'a Frames, name: &str, settings: Settings| {
        stages.push((name.to_owned(), counting(frames, move || black_box(settings))));
    };
    for (name, settings) in workload::sketches() {
        on(frames, name, settings);
    }
    for (name, settings) in Algorithm::ALL.map(workload::heavy) {
        on(frames, &name, settings);
    }
    for (name, settings) in workload::spreads() {
        on(frames, name, settings);
    }
    on(frames, EVERYTHING, workload::everything());
    on(frames, "delay of SYNs", workload::delay(0));
    // Every frame is stored as a request and may be an answer.
    on(data, "delay of data", workload::delay(0));
    on(data, "delay of data, one request in 16", workload::delay(4));
    for algorithm in reorder::Algorithm::ALL {
        let name = format!("reordering, {}, 4096 buckets", algorithm.name());
        on(data, &name, workload::reorder(algorithm));
    }
    stages
}

const EVERYTHING: &str = "all measurements, heavy by d-way-rap";
const TOUCH: &str = "touch";
const COUNTERS: &str = "network header and counters";
const PARSE: &str = "parse";

/// Parses addresses, protocol and ports.
#[inline(always)]
fn parsed(frame: &[u8; FRAME]) -> u32 {
    let frame = frame.as_slice();
    let Ok(packet) = parse::network(frame, Link::Ethernet) else { return 0 };
    let transport = parse::transport(frame, &packet);
    let addresses = match packet {
        parse::Packet::V4(ip) => u32::from_ne_bytes(ip.src()) ^ u32::from_ne_bytes(ip.dst()),
        parse::Packet::V6(ip) => u32::from_ne_bytes(ip.src()[0]) ^ u32::from_ne_bytes(ip.dst()[0]),
    };
    addresses ^ u32::from_ne_bytes(transport.ports) ^ u32::from(transport.protocol)
}

fn parsing(frames: &Frames) {
    black_box(frames.iter().fold(0, |sum, frame| sum ^ parsed(frame)));
}

/// Counts like a worker, with batches of [`BATCH`] frames.
fn counting<'a>(frames: &'a Frames, settings: impl Fn() -> Settings + 'a) -> Contestant<'a> {
    let tabulation = Tabulation::from_seed(1);
    let (mut state, shared) = (State::boxed(), Shared::boxed());
    if let Some(mut batch) = Batch::new(&settings(), &tabulation, Instructions::in_use()) {
        return frames.contestant(move |frames| {
            for received in frames.batches() {
                let context = context(settings(), &tabulation);
                let mut filling = batch.fill(state.active(&shared, 0), &context);
                for bytes in received {
                    let (Settings { hash, cardinality, .. }, frame) = (settings(), frame(bytes));
                    match hash {
                        HashMode::Keyed => filling.record::<true, false>(cardinality.key, &frame),
                        _ => filling.record::<false, false>(cardinality.key, &frame),
                    }
                }
                filling.finish();
            }
            black_box(&state);
        });
    }
    if settings().cardinality.mode == Mode::Staggered || settings().beyond_cardinality() {
        let mut passes = PacketBuffers::default();
        return frames.contestant(move |frames| {
            for received in frames.batches() {
                let context = context(settings(), &tabulation);
                let mut active = state.active(&shared, 0);
                for bytes in received {
                    frames.fetch_ahead(bytes);
                    passes.record::<false>(&mut active, &context, EveryPacket, &frame(bytes), 0);
                }
                passes.flush(&mut active, &context);
            }
            black_box(&state);
        });
    }
    frames.contestant(move |frames| {
        let mut active = state.active(&shared, 0);
        // Inside the loop, where the constants are known, as in workers.
        frames.iter().for_each(|bytes| {
            active.record(
                &context(settings(), &tabulation),
                Link::Ethernet,
                bytes.as_slice(),
                Arrival::new(FRAME as u32, 0),
            )
        });
        black_box(&active.bank.counters);
    })
}

/// As [`counting`] distinct sources, tabulated, of the packets that pass a filter.
fn matching(frames: &Frames, rules: usize) -> Contestant<'_> {
    let tabulation = Tabulation::from_seed(1);
    let (mut state, shared) = (State::boxed(), Shared::boxed());
    let filter = Matcher::new(workload::filter_of_rules(rules));
    let settings = || settings(Mode::Windowed, KeyKind::Src, HashMode::Tabulated);
    let mut batch = Batch::new(&settings(), &tabulation, Instructions::in_use());
    frames.contestant(move |frames| {
        let Some(batch) = &mut batch else { return };
        for received in frames.batches() {
            let context = context(settings(), &tabulation);
            let mut filling = batch.fill(state.active(&shared, 0), &context);
            for bytes in received {
                let key = settings().cardinality.key;
                filling.record_matching::<false, false>(&filter, key, &frame(bytes));
            }
            filling.finish();
        }
        black_box(&state);
    })
}

#[inline(always)]
fn context(settings: Settings, tabulation: &Tabulation) -> Context<'_> {
    Context::new(settings, tabulation, Sharing::Alone)
}

#[inline(always)]
fn frame(bytes: &[u8; FRAME]) -> PortFrame<'_> {
    PortFrame { bytes, wire_length: FRAME as u32, timestamp: 0, link: Link::Ethernet }
}

/// Limits of the cost of distinct flows.
struct Limits {
    /// With CRC, as a multiple of network header and counters.
    crc32: f64,
    /// Tabulated, as a multiple of the same.
    tabulated: f64,
    /// Tabulated, as a multiple of the cost with CRC.
    tabulation: f64,
    /// With CRC, as a multiple of reading each frame, with adjacent frames in memory.
    touched: f64,
    /// Spread by one key, in nanoseconds.
    spread: f64,
    /// All measurements together, in nanoseconds.
    everything: f64,
}

impl Limits {
    /// Returns the limits for an instruction set.
    ///
    /// A hash that looks up four bytes one by one costs as much as network header and counters,
    /// which take two cycles on wide CPUs and three on others: twelve instructions (a byte is
    /// extracted, looked up, added), and CPUs since 2013 execute four per cycle. With AVX2 a
    /// CRC takes seven vector instructions, at three per cycle, and with AVX-512 less than half as
    /// many: one cycle less.
    ///
    /// Reading a frame from memory takes three times as long as network header and counters. A CRC
    /// without vectors adds as much as these, while nothing else is read from memory.
    fn for_instructions(instructions: Instructions) -> Self {
        let (crc32, tabulated, tabulation, touched) = match instructions {
            // Not yet measured with NEON.
            Instructions::Scalar | Instructions::Neon => (3.5, 5.0, 1.0, 1.6 + 1.0 / 3.0),
            Instructions::Avx2 => (3.0, 4.0, 1.0, 1.6),
            Instructions::Avx512 => (2.5, 3.0, 0.0, 1.6),
        };
        // Time between such packets at 10 Gbit/s. CPUs with AVX-512 are newer, and need half of it.
        let everything = if instructions == Instructions::Avx512 { 35.0 } else { 67.0 };
        let tabulation = 1.5 + tabulation / crc32;
        Limits { crc32, tabulated, tabulation, touched, spread: 20.0, everything }
    }
}

/// Returns the cost of a packet as a figure, in nanoseconds.
fn time_figure(name: String, best: Best, most: f64) -> Figure {
    let (Best([even, odd]), nanoseconds) = (best, best.nanoseconds());
    Figure {
        name,
        value: nanoseconds,
        unit: "ns",
        noise: (even - odd).abs(),
        nanoseconds: Some(nanoseconds),
        limit: Some(Limit::AtMost(most)),
    }
}

/// Measures every stage with frames in every location, and complete runs with ports. `quick` runs
/// fewer rounds.
///
/// # Errors
/// [`ReproduceError`] if the capture to replay cannot be written or read, or a port of ours cannot
/// be opened.
pub fn measure(quick: bool) -> Result<Findings, ReproduceError> {
    let mut rows: Vec<Row> = Vec::new();
    let mut figures = Vec::new();
    let limits = Limits::for_instructions(Instructions::in_use());
    for place in LAYOUTS {
        let (frames, data) = (Frames::new(place), Frames::data(place));
        let (names, mut contestants): (Vec<String>, Vec<Contestant<'_>>) =
            stages(&frames, &data).into_iter().unzip();
        let best = take_turns(if quick { 10 } else { 60 }, &mut contestants);
        rows.resize_with(names.len(), || Row { name: String::new(), values: Vec::new() });
        for ((row, name), best) in rows.iter_mut().zip(&names).zip(&best) {
            name.clone_into(&mut row.name);
            row.values.push(Some(best.nanoseconds()));
        }
        let of = |stage: &str| {
            names.iter().position(|name| name == stage).and_then(|index| best.get(index).copied())
        };
        let mut compare = |stage: &str, with: &str, most| {
            if let (Some(stage_cost), Some(with_cost)) = (of(stage), of(with)) {
                let name = format!("{stage} / {with}, {}", place.name);
                figures.push(Best::figure(stage_cost, name, with_cost, Some(Limit::AtMost(most))));
            }
        };
        match place.name {
            "L2" => {
                compare("src, crc32", PARSE, 1.8);
                compare("src, crc32", COUNTERS, limits.crc32);
                compare("src, tabulated", COUNTERS, limits.tabulated);
                compare("src, tabulated", "src, crc32", limits.tabulation);
                for key in KeyKind::ALL.map(KeyKind::name) {
                    compare(&format!("{key}, keyed"), &format!("{key}, tabulated"), 1.3);
                }
                let scans = of(SCANS).map(|best| (format!("{SCANS}, {}", place.name), best));
                figures.extend(scans.map(|(name, best)| time_figure(name, best, limits.spread)));
            }
            "memory, packed" => {
                compare("src, crc32", TOUCH, limits.touched);
                compare("src, tabulated", "src, crc32", 1.5);
                compare("src, keyed", "src, tabulated", 1.3);
                for (rules, most) in workload::FILTER_RULES {
                    let name = format!("src, tabulated, {}", workload::filter_name(rules));
                    compare(&name, "src, tabulated", most);
                }
            }
            _ => {}
        }
    }
    let everything = rows.iter().filter(|row| row.name == EVERYTHING);
    let dearest = everything.flat_map(|row| &row.values).flatten().copied().fold(0.0, f64::max);
    let name = format!("{EVERYTHING}, slowest column");
    figures.push(time_figure(name, Best([dearest; 2]), limits.everything));
    let grid = Grid {
        title: "Cost of a packet, each stage with those before it".to_owned(),
        unit: "ns/packet",
        across: "frames in",
        columns: LAYOUTS.iter().map(|place| place.name.to_owned()).collect(),
        places: None,
        rows,
    };
    let mut results = Results { grids: vec![grid], figures, skipped: Vec::new() };
    ports::measure(&mut results, quick)?;
    Ok(Findings {
        benchmark: "packet",
        title: "Cost of a packet in user space",
        method: "One core, IPv4 frames of 64 bytes with random sources, batch after batch; stages take turns, the best of all rounds counts, \
                 by CPU time. touch reads one byte of the header; network header and counters is what is counted without any measurement; \
                 parse is the whole parser, addresses, protocol and ports; src to five-tuple count distinct flows by one key. \
                 Where frames lie apart, the headers of the next ones are fetched ahead for all but distinct flows in windows, as AF_XDP ports do. \
                 At 100 Gbit/s such frames follow each other after 6.72 ns, at 10 Gbit/s after 67. Whole runs read a capture of such frames, \
                 or make them, by the clock on the wall: plain read is what `dd` does with the same file, port alone hands packets over to \
                 nobody. On devices packets keep coming, and what counts is the CPU time of the worker.",
        machine: Machine::look(),
        grids: results.grids,
        figures: results.figures,
        skipped: results.skipped,
    })
}
