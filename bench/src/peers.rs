//! `flowgauge bench peers`: the same work done by other crates and programs.

use crate::findings::{Findings, Grid, Limit, Results, Row};
use crate::machine::Machine;
use crate::scale::CaptureFile;
use crate::testpmd;
use crate::turns::{Best, Contestant, take_turns};
use cardinality_estimator::CardinalityEstimator;
use datasketches::hll::{HllSketch, HllType};
use flowgauge_core::cardinality::{self, Mode, Precision};
use flowgauge_core::{
    Context, HashMode, KeyKind, Settings, Shared, Sharing, State, Tabulation, Zeroed,
};
use flowgauge_ctl::measurement::cardinality::estimate::{Estimator, estimate};
use flowgauge_dataplane::poll::{Batch, Instructions};
use flowgauge_papers::ReproduceError;
use flowgauge_traffic::Sources;
use hashbrown::HashSet;
use hyperloglogplus::{HyperLogLog, HyperLogLogPlus};
use nix::sys::resource::{UsageWho, getrusage};
use std::hash::RandomState;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Number of addresses of a turn. They fit the second-level cache.
const ADDRESSES: usize = 100_000;
/// Number of registers everywhere: 2^11, the default of flowgauge.
const PRECISION: Precision = Precision::DEFAULT;

/// Function that counts the addresses and returns the estimated number of distinct ones.
type Count<'a> = Box<dyn FnMut(&[u32]) -> f64 + 'a>;

/// Name of a contestant, whether it is a sketch of another crate, and how it counts. A new sketch
/// is created for every turn.
struct Peer<'a> {
    name: &'static str,
    rival: bool,
    count: Count<'a>,
}

/// Counts like a worker, batch by batch.
fn ours<'a>(hash: HashMode, tabulation: &'a Tabulation) -> Count<'a> {
    let cardinality =
        cardinality::Settings { mode: Mode::Windowed, key: KeyKind::Src, precision: PRECISION };
    let settings = Settings::only(cardinality).with_hash(hash);
    let (mut state, shared) = (State::boxed(), Shared::boxed());
    let mut batch = Batch::new(&settings, tabulation, Instructions::in_use());
    Box::new(move |addresses| {
        state.banks.iter_mut().for_each(|bank| bank.clear(&settings));
        let Some(batch) = &mut batch else { return f64::NAN };
        let context = Context::new(settings, tabulation, Sharing::Alone);
        let mut filling = batch.fill(state.active(&shared, 0), &context);
        filling.extend(addresses.as_chunks::<1>().0);
        filling.finish();
        let [bank, _] = &state.banks;
        estimate(bank.cardinality.levels(PRECISION), Estimator::Ertl)
            .map_or(f64::NAN, |estimate| estimate.value)
    })
}

fn crates(tabulation: &Tabulation) -> Vec<Peer<'_>> {
    let peer = |name, rival, count| Peer { name, rival, count };
    vec![
        peer("flowgauge, crc32", false, ours(HashMode::Crc32, tabulation)),
        peer("flowgauge, tabulated", false, ours(HashMode::Tabulated, tabulation)),
        peer(
            "datasketches, HLL_8",
            true,
            Box::new(|addresses| {
                let Ok(mut sketch) = HllSketch::new(PRECISION.bits() as u8, HllType::Hll8) else {
                    return f64::NAN;
                };
                addresses.iter().for_each(|address| sketch.update(address));
                sketch.estimate()
            }),
        ),
        peer(
            "cardinality-estimator",
            true,
            Box::new(|addresses| {
                let mut sketch = CardinalityEstimator::<u32>::new();
                addresses.iter().for_each(|address| sketch.insert(address));
                sketch.estimate() as f64
            }),
        ),
        peer(
            "hyperloglogplus",
            true,
            Box::new(|addresses| {
                let sketch: Result<HyperLogLogPlus<u32, RandomState>, _> =
                    HyperLogLogPlus::new(PRECISION.bits() as u8, RandomState::new());
                let Ok(mut sketch) = sketch else { return f64::NAN };
                addresses.iter().for_each(|address| sketch.insert(address));
                sketch.count()
            }),
        ),
        peer(
            "exact, a hash set",
            false,
            Box::new(|addresses| addresses.iter().collect::<HashSet<_>>().len() as f64),
        ),
    ]
}

/// Compares with crates that count distinct items, on the same keys.
fn by_crates(results: &mut Results, quick: bool) {
    let tabulation = Tabulation::from_seed(1);
    // A bijection, so that all addresses are distinct.
    let addresses: Vec<u32> =
        (0..ADDRESSES as u32).map(|index| index.wrapping_mul(0x9e37_79b1)).collect();
    let mut peers = crates(&tabulation);
    let mut errors = Vec::new();
    for peer in &mut peers {
        errors.push(((peer.count)(&addresses) / ADDRESSES as f64 - 1.0) * 100.0);
    }
    let turn = |peer: &mut Peer<'_>| {
        black_box((peer.count)(black_box(&addresses)));
        ADDRESSES as u64
    };
    let mut contestants: Vec<Contestant<'_>> =
        peers.iter_mut().map(|peer| -> Contestant<'_> { Box::new(|| turn(peer)) }).collect();
    let best = take_turns(if quick { 10 } else { 100 }, &mut contestants);
    drop(contestants);
    let named = |name: &str| {
        peers.iter().position(|peer| peer.name == name).and_then(|index| best.get(index).copied())
    };
    let rivals = peers.iter().zip(&best).filter(|(peer, _)| peer.rival);
    let fastest =
        rivals.min_by(|(_, one), (_, other)| one.nanoseconds().total_cmp(&other.nanoseconds()));
    // Without vectors, keys are hashed one by one, as in the other crates.
    let [crc32, tabulated] =
        if Instructions::in_use() == Instructions::Scalar { [2.0, 1.5] } else { [3.0, 2.5] };
    for (ours, least) in [("flowgauge, crc32", crc32), ("flowgauge, tabulated", tabulated)] {
        if let (Some(own), Some((rival, best))) = (named(ours), fastest) {
            let name = format!("{} / {ours}", rival.name);
            results.figures.push(best.figure(name, own, Some(Limit::AtLeast(least))));
        }
    }
    let rows = peers.iter().zip(best.iter().zip(&errors)).map(|(peer, (best, error))| Row {
        name: peer.name.to_owned(),
        values: vec![Some(best.nanoseconds()), Some(*error)],
    });
    results.grids.push(Grid {
        title: format!(
            "{} distinct addresses by {} registers",
            flowgauge_ctl::output::grouped(ADDRESSES as u64),
            PRECISION.registers()
        ),
        unit: "ns an update, and the error in %",
        across: "",
        columns: vec!["ns".to_owned(), "error".to_owned()],
        places: None,
        rows: rows.collect(),
    });
}

/// Programs that read a capture and count by address, with their arguments; `{}` is replaced by the
/// file.
const PROGRAMS: [(&str, &[&str]); 3] = [
    // With one flow per packet, its TCP analysis would dominate.
    ("tshark", &["-n", "-q", "-z", "endpoints,ip", "--disable-protocol", "tcp", "-r", "{}"]),
    // Flows are sent to a loopback port without a listener.
    ("softflowd", &["-d", "-n", "127.0.0.1:9", "-m", "1000000", "-r", "{}"]),
    ("pmacctd", &["-P", "print", "-c", "src_host", "-r", "3600", "-I", "{}"]),
];

/// Name of flowgauge among them, and its arguments.
const OURS: (&str, &[&str]) = ("flowgauge replay", &["replay", "--format", "json", "{}"]);

/// Returns the CPU time of a program, if it ran successfully.
fn cpu_time(command: &mut Command) -> Option<Duration> {
    let spent = || {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
        let time = usage.user_time() + usage.system_time();
        Some(Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).ok()?))
    };
    let before = spent()?;
    let status =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    if status.success() { Some(spent()? - before) } else { None }
}

/// Compares with installed programs on a capture, by their total CPU time.
fn by_programs(results: &mut Results, flowgauge: &Path, quick: bool) -> Result<(), ReproduceError> {
    let packets = if quick { 200_000 } else { 500_000 };
    let flows = 100_000;
    let capture = CaptureFile::new(packets, Sources::Zipf { flows, alpha: 1.0 })?;
    let run = |name: &str, arguments: &[&str]| {
        let program = if name == OURS.0 { flowgauge } else { Path::new(name) };
        let mut command = Command::new(program);
        command.args(arguments.iter().map(|argument| match *argument {
            "{}" => capture.0.as_os_str(),
            other => other.as_ref(),
        }));
        cpu_time(&mut command)
    };
    let programs = || [OURS].into_iter().chain(PROGRAMS);
    let mut best: Vec<(&str, Best)> = programs().map(|(name, _)| (name, Best::NONE)).collect();
    for round in 0..if quick { 2 } else { 4 } {
        for ((name, arguments), (_, best)) in programs().zip(&mut best) {
            if let Some(time) = run(name, arguments) {
                best.add(round, time.as_nanos() as f64 / packets as f64);
            }
        }
    }
    let (measured, missing): (Vec<_>, Vec<_>) =
        best.into_iter().partition(|(_, best)| best.nanoseconds() < f64::MAX);
    missing.iter().for_each(|(name, _)| results.skip(name));
    let [(first, own), others @ ..] = measured.as_slice() else { return Ok(()) };
    if *first != OURS.0 || others.is_empty() {
        return Ok(());
    }
    results.figures.extend(
        others
            .iter()
            .map(|(name, best)| best.figure(format!("{name} / flowgauge replay"), *own, None)),
    );
    let rows = measured.iter().map(|(name, best)| Row {
        name: (*name).to_owned(),
        values: vec![Some(best.nanoseconds())],
    });
    results.grids.push(Grid {
        title: format!(
            "A capture of {} packets from up to {} addresses",
            flowgauge_ctl::output::grouped(packets),
            flowgauge_ctl::output::grouped(flows)
        ),
        unit: "ns of CPU time a packet",
        across: "",
        columns: vec!["ns".to_owned()],
        places: None,
        rows: rows.collect(),
    });
    Ok(())
}

/// Measures everything. `flowgauge` is the path of its program; `quick` runs fewer rounds.
///
/// # Errors
/// [`ReproduceError`] if the capture for the programs cannot be written, or a port of ours cannot
/// be opened next to testpmd.
pub fn measure(flowgauge: &Path, quick: bool) -> Result<Findings, ReproduceError> {
    let mut results = Results::default();
    by_crates(&mut results, quick);
    by_programs(&mut results, flowgauge, quick)?;
    testpmd::compare(&mut results, quick)?;
    Ok(Findings {
        benchmark: "peers",
        title: "Other crates and programs that do the same work",
        method: "Crates count the addresses of an array, hashing included, each into a new sketch that holds about as many registers, and flowgauge \
                 in batches, as its workers do; they take turns, the best of all rounds counts, by CPU time. Programs read the same capture of 64-byte frames from the page cache and \
                 keep a record for every address, which flowgauge does not: their ratio says what exact answers cost. DPDK's testpmd receives \
                 packets and frees them unseen (rxonly), on one CPU in turns with our worker, which counts them; what counts is the CPU time \
                 of the thread that polls, and of the ratios of all rounds the median.",
        machine: Machine::look(),
        grids: results.grids,
        figures: results.figures,
        skipped: results.skipped,
    })
}
