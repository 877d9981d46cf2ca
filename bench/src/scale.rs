//! `flowgauge bench scale`: the cost of counting as traffic and settings grow.

use crate::findings::{Figure, Findings, Grid, Limit, Row};
use crate::machine::Machine;
use crate::turns::{Best, Contestant, take_turns};
use flowgauge_core::cardinality::{self, Mode, Precision};
use flowgauge_core::{
    Context, Filter, HashMode, KeyKind, Link, Settings, Shared, Sharing, State, Tabulation, Zeroed,
};
use flowgauge_dataplane::capture::{Writer, link_type};
use flowgauge_dataplane::poll::port::{Port, PortFrame, Ports, pcap};
use flowgauge_dataplane::poll::{self, Advance, Batch, Instructions, Pace};
use flowgauge_dataplane::{Dataplane, Poll, Tables};
use flowgauge_papers::ReproduceError;
use flowgauge_traffic::{Generator, Profile, Sources, memory};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, BufWriter};
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, process, thread};

/// Bytes of the default frame.
const FRAME: usize = 64;
/// Number of frames, which are rewritten so that they stay in the first-level cache.
const FRAMES: usize = 64;
/// Offset of the source address in an IPv4 frame.
const SOURCE: usize = 26;
/// Bytes that a plain read reads at a time, as `dd bs=256k`.
const BLOCK: usize = 256 << 10;
/// Default number of flows, or of packets per window.
const DEFAULT_COUNT: u64 = 1_000_000;

/// Traffic with a number of flows, counted in windows.
#[derive(Clone, Copy)]
struct Case {
    flows: u64,
    /// Packets of a turn.
    packets: u64,
    /// Packets of a window, after which the bank is cleared.
    window: u64,
    precision: Precision,
    frame: usize,
}

const CASE: Case = Case {
    flows: DEFAULT_COUNT,
    packets: DEFAULT_COUNT,
    window: DEFAULT_COUNT,
    precision: Precision::DEFAULT,
    frame: FRAME,
};

/// Work done with the frames.
type Start = fn(Case) -> Contestant<'static>;

/// Names of the measured works in each case, and their starts: first writing the frames alone.
/// Hashes are constants so that the compiler specializes the code for each, as for workers.
const WORK: [(&str, Start); 3] = [
    ("the traffic itself", |case| turn(case, |_, _| {})),
    ("src, crc32", |case| turn(case, count(case.precision, || HashMode::Crc32))),
    ("src, tabulated", |case| turn(case, count(case.precision, || HashMode::Tabulated))),
];

/// Counts like a worker, by a hash that is not keyed.
fn count(precision: Precision, hash: impl Fn() -> HashMode) -> impl FnMut(&mut State, &[Vec<u8>]) {
    let tabulation = Tabulation::from_seed(1);
    let shared = Shared::boxed();
    let settings = move |hash| {
        Settings::only(cardinality::Settings { mode: Mode::Windowed, key: KeyKind::Src, precision })
            .with_hash(hash)
    };
    let mut batch = Batch::new(&settings(hash()), &tabulation, Instructions::in_use());
    move |state, frames| {
        let Some(batch) = &mut batch else { return };
        let context = Context::new(settings(hash()), &tabulation, Sharing::Alone);
        let mut filling = batch.fill(state.active(&shared, 0), &context);
        for bytes in frames {
            let wire_length = bytes.len() as u32;
            let frame = PortFrame { bytes, wire_length, timestamp: 0, link: Link::Ethernet };
            filling.record::<false, false>(KeyKind::Src, &frame);
        }
        filling.finish();
    }
}

/// Writes the source of each flow in turn into frames, and passes them to `work`.
fn turn(case: Case, mut work: impl FnMut(&mut State, &[Vec<u8>]) + 'static) -> Contestant<'static> {
    let Case { flows, packets, window, precision, frame } = case;
    let generator = Generator::new(Profile { size: frame, ..Profile::new(Sources::Unique) });
    let mut frames: Vec<Vec<u8>> = vec![generator.template().to_vec(); FRAMES];
    let mut state = State::boxed();
    let mut settings = Settings::default();
    settings.cardinality.precision = precision;
    Box::new(move || {
        let (mut flow, mut left) = (0, window);
        for _ in 0..packets.div_ceil(FRAMES as u64) {
            for frame in &mut frames {
                // A bijection with random bits that is as cheap as possible.
                let source = (flow as u32).wrapping_mul(0x9e37_79b1);
                flow = if flow + 1 == flows { 0 } else { flow + 1 };
                if let Some(field) = frame.get_mut(SOURCE..SOURCE + 4) {
                    field.copy_from_slice(&source.to_ne_bytes());
                }
            }
            work(&mut state, black_box(&frames));
            left = left.saturating_sub(FRAMES as u64);
            if left == 0 {
                left = window;
                state.banks.iter_mut().for_each(|bank| bank.clear(&settings));
            }
        }
        state.banks.iter_mut().for_each(|bank| bank.clear(&settings));
        packets.next_multiple_of(FRAMES as u64)
    })
}

/// Runs every kind of work in every case in turns. Returns the best times, a row per kind of work.
fn grid(
    title: &str,
    across: &'static str,
    cases: impl IntoIterator<Item = (f64, Case)>,
    rounds: usize,
) -> (Grid, Vec<Vec<Best>>) {
    let cases: Vec<(f64, Case)> = cases.into_iter().collect();
    let mut best = vec![Vec::new(); WORK.len()];
    // A long turn needs fewer repetitions to run undisturbed once; cases of one length take turns
    // with each other.
    let (long, short): (Vec<Case>, Vec<Case>) =
        cases.iter().map(|(_, case)| *case).partition(|case| case.packets > 2 * DEFAULT_COUNT);
    for (cases, rounds) in [(short, rounds), (long, rounds.div_ceil(5))] {
        let of = |case: &Case| WORK.map(|(_, start)| start(*case));
        let mut contestants: Vec<Contestant<'_>> = cases.iter().flat_map(of).collect();
        for (index, one) in take_turns(rounds, &mut contestants).into_iter().enumerate() {
            if let Some(row) = best.get_mut(index % WORK.len()) {
                row.push(one);
            }
        }
    }
    let row = |((name, _), best): (&(&str, Start), &Vec<Best>)| Row {
        name: (*name).to_owned(),
        values: best.iter().map(|best| Some(best.nanoseconds())).collect(),
    };
    let grid = Grid {
        title: title.to_owned(),
        unit: "ns/packet",
        across,
        columns: cases
            .iter()
            .map(|(place, _)| flowgauge_ctl::output::grouped(*place as u64))
            .collect(),
        places: Some(cases.iter().map(|(place, _)| *place).collect()),
        rows: WORK.iter().zip(&best).map(row).collect(),
    };
    (grid, best)
}

/// Returns how much more the most expensive case costs than the cheapest.
fn flatness(name: &str, best: &[Best]) -> Option<Figure> {
    let by_cost = |one: &&Best, other: &&Best| one.nanoseconds().total_cmp(&other.nanoseconds());
    let (dearest, cheapest) = (best.iter().max_by(by_cost)?, best.iter().min_by(by_cost)?);
    Some(dearest.figure(name, *cheapest, Some(Limit::AtMost(1.1))))
}

/// Capture file that is removed when this is dropped.
pub(crate) struct CaptureFile(pub(crate) PathBuf);

impl CaptureFile {
    /// Creates a file in the temporary directory with packets of 64 bytes and the sources of a
    /// profile.
    pub(crate) fn new(packets: u64, sources: Sources) -> Result<Self, ReproduceError> {
        let path = env::temp_dir().join(format!("flowgauge-bench-{}.pcap", process::id()));
        let write = || -> io::Result<()> {
            let generator = Generator::new(Profile::new(sources));
            let file = BufWriter::with_capacity(1 << 20, File::create_new(&path)?);
            let mut writer = Writer::new(file, link_type::ETHERNET)?;
            let mut frame = generator.template().to_vec();
            for index in 0..packets {
                generator.fill(index, &mut frame);
                writer.write(index * 100, &frame, frame.len() as u32)?;
            }
            writer.finish().map(|_| ())
        };
        let written = write();
        let capture = CaptureFile(path.clone());
        written.map(|()| capture).map_err(|source| ReproduceError::File {
            operation: "write",
            path,
            source,
        })
    }

    /// Reads the file with this many threads, including this one, and discards the data. Each
    /// thread reads the next block.
    pub(crate) fn read(&self, threads: usize) -> Result<Duration, ReproduceError> {
        let start = Instant::now();
        let next = AtomicU64::new(0);
        let part = || -> io::Result<()> {
            let file = File::open(&self.0)?;
            let mut block = vec![0; BLOCK];
            while file.read_at(&mut block, next.fetch_add(BLOCK as u64, Ordering::Relaxed))? > 0 {
                black_box(&mut block);
            }
            Ok(())
        };
        let read = thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(part)).collect();
            let own = part();
            others.into_iter().fold(own, |read, other| {
                read.and(other.join().unwrap_or_else(|panic| resume_unwind(panic)))
            })
        });
        let failed =
            |source| ReproduceError::File { operation: "read", path: self.0.clone(), source };
        read.map(|()| start.elapsed()).map_err(failed)
    }
}

impl Drop for CaptureFile {
    fn drop(&mut self) {
        // A file that could not be written completely cannot always be removed.
        let _ = fs::remove_file(&self.0);
    }
}

/// Counts all packets of some ports that pass a filter, and returns the time it took.
pub(crate) fn count_all<P: Port>(
    ports: Ports<P>,
    hash: HashMode,
    filter: Option<Arc<Filter>>,
) -> Result<Duration, ReproduceError> {
    let mut options = poll::Options::default();
    options.settings.hash = hash;
    let interface = ports.interface.clone();
    let mut poll = Poll::new(ports, options.clone());
    let start = Instant::now();
    poll.install(&Tables::new(&options.settings, 1).with_filter(filter))?;
    let Advance::Ended { .. } = poll.gate().advance(u64::MAX) else {
        return Err(ReproduceError::TrafficFailed { interface });
    };
    black_box(poll.rotate()?.bank.counters.ipv4);
    Ok(start.elapsed())
}

/// Measures the packets counted with one worker and with several, in turns, by wall-clock time.
fn workers(machine: &Machine, quick: bool) -> Result<(Grid, Vec<Figure>), ReproduceError> {
    let packets = if quick { 2_000_000 } else { 10_000_000 };
    let capture = CaptureFile::new(packets, Sources::Unique)?;
    let generated =
        Profile { packets: Some(packets), rate: Some(1e7), ..Profile::new(Sources::Unique) };
    let mut counts: Vec<usize> =
        [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|workers| *workers <= machine.cpus).collect();
    if counts.last() != Some(&machine.cpus) {
        counts.push(machine.cpus);
    }
    let generate =
        |workers, hash| count_all(memory(generated.clone(), workers, Pace::Trace), hash, None);
    let replay = |workers, hash| -> Result<Duration, ReproduceError> {
        count_all(pcap(&capture.0, workers, Pace::Trace)?, hash, None)
    };
    let limit = Some(Limit::AtLeast(1.8));
    let (crc32, tabulated) = (HashMode::Crc32, HashMode::Tabulated);
    type Task<'a> = &'a dyn Fn(usize) -> Result<Duration, ReproduceError>;
    let tasks: [(&str, Option<Limit>, Task<'_>); 5] = [
        ("src, crc32, generated", limit, &|workers| generate(workers, crc32)),
        ("src, tabulated, generated", limit, &|workers| generate(workers, tabulated)),
        ("src, crc32, replayed from the page cache", None, &|workers| replay(workers, crc32)),
        ("src, tabulated, replayed from the page cache", None, &|workers| {
            replay(workers, tabulated)
        }),
        ("plain read of the capture", None, &|workers| capture.read(workers)),
    ];
    let mut best = vec![vec![Best::NONE; counts.len()]; tasks.len()];
    for round in 0..if quick { 4 } else { 10 } {
        for ((.., run), best) in tasks.iter().zip(&mut best) {
            for (workers, best) in counts.iter().zip(best) {
                best.add(round, run(*workers)?.as_nanos() as f64 / packets as f64);
            }
        }
    }
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for ((name, limit, _), best) in tasks.iter().zip(&best) {
        if let [one, two, ..] = best.as_slice() {
            figures.push(one.figure(format!("rate of two workers / one, {name}"), *two, *limit));
        }
        rows.push(Row {
            name: (*name).to_owned(),
            values: best.iter().map(|best| Some(1e3 / best.nanoseconds())).collect(),
        });
    }
    let grid = Grid {
        title: "Rate by workers".to_owned(),
        unit: "million packets/s",
        across: "workers",
        columns: counts.iter().map(ToString::to_string).collect(),
        places: None,
        rows,
    };
    Ok((grid, figures))
}

/// Measures everything. `quick` runs fewer rounds.
///
/// # Errors
/// [`ReproduceError`] if the capture to replay cannot be written or read.
pub fn measure(quick: bool) -> Result<Findings, ReproduceError> {
    let machine = Machine::look();
    let rounds = if quick { 6 } else { 40 };
    let most = if quick { 6 } else { 8 };
    let by_flows = (2..=most).map(|exponent| 10_u64.pow(exponent)).map(|flows| {
        let packets = flows.max(DEFAULT_COUNT);
        (flows as f64, Case { flows, packets, window: packets, ..CASE })
    });
    let (flows, best) =
        grid("Cost by distinct flows of a window", "distinct flows", by_flows, rounds);
    let mut figures: Vec<Figure> = Vec::new();
    for ((name, _), best) in WORK.iter().zip(&best).skip(1) {
        let up_to_a_million = best.get(..5).unwrap_or_default();
        let name = format!("{name}: most / least expensive from 10^2 to 10^6 flows");
        figures.extend(flatness(&name, up_to_a_million));
    }
    let precisions = (Precision::MIN.bits()..=Precision::MAX.bits())
        .filter_map(|bits| Precision::new(bits as u8));
    let by_registers =
        precisions.map(|precision| (precision.registers() as f64, Case { precision, ..CASE }));
    let by_window = (3..=6)
        .map(|exponent| 10_u64.pow(exponent))
        .map(|window| (window as f64, Case { window, ..CASE }));
    let by_frame =
        [64, 128, 256, 512, 1024, 1518].map(|frame| (frame as f64, Case { frame, ..CASE }));
    let (registers, _) = grid("Cost by registers of a bank", "registers", by_registers, rounds);
    let (window, _) = grid("Cost by packets of a window", "packets of a window", by_window, rounds);
    let (frame, _) = grid("Cost by size of frames", "bytes", by_frame, rounds);
    let (workers, rates) = workers(&machine, quick)?;
    figures.extend(rates);
    Ok(Findings {
        benchmark: "scale",
        title: "Cost of counting as traffic grows",
        method: "One core, IPv4 frames in the first cache whose sources are rewritten for every packet: writing them is in all figures, \
                 and in the first line alone. All cases take turns, the best of all rounds counts, by CPU time; rates of several workers by \
                 the clock on the wall. A window's registers begin empty.",
        machine,
        grids: vec![flows, registers, window, frame, workers],
        figures,
        skipped: Vec::new(),
    })
}
