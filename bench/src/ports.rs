//! Cost per packet of complete runs, by the port that packets come from: a part of `flowgauge bench
//! packet`.

use crate::findings::{Failure, Grid, Limit, Results, Row, missing};
use crate::live::{CpuPair, cost_of_counting, cost_of_receiving, on_af_xdp};
use crate::scale::{CaptureFile, count_all};
use crate::turns::Best;
use crate::workload;
use flowgauge_core::{HashMode, Settings};
use flowgauge_dataplane::Error;
use flowgauge_dataplane::poll::port::{Port, Ports, Received, pcap};
use flowgauge_dataplane::poll::{Instructions, Pace};
use flowgauge_papers::ReproduceError;
use flowgauge_traffic::veth::isolated;
use flowgauge_traffic::{Profile, Sources, memory};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Work done with packets.
#[derive(Clone, Copy)]
enum Work {
    /// The file is read and ignored.
    Read,
    /// The port delivers the packets, and they are discarded.
    Port,
    Count(HashMode),
    /// Distinct sources, tabulated, of the packets that pass a filter with this number of rules.
    Match(usize),
}

const WORK: [(&str, Work); 6] = [
    ("plain read", Work::Read),
    ("port alone", Work::Port),
    ("src, crc32", Work::Count(HashMode::Crc32)),
    ("src, tabulated", Work::Count(HashMode::Tabulated)),
    ("one rule", Work::Match(1)),
    ("64 rules", Work::Match(64)),
];

/// Source of packets that end.
#[derive(Clone, Copy)]
enum Origin {
    Capture,
    Generated,
}

const ORIGINS: [(&str, Origin); 2] =
    [("capture in the page cache", Origin::Capture), ("generated, rate=max", Origin::Generated)];

/// Receives all packets of an unthrottled port.
fn receive_all<P: Port>(ports: Ports<P>) -> Duration {
    let start = Instant::now();
    for mut port in ports.ports {
        while port.receive(&mut |frame| _ = black_box(frame)) != Received::Ended {}
    }
    start.elapsed()
}

/// Nanoseconds per packet of each kind of work.
type Cells = [Option<Best>; WORK.len()];

/// Runs all kinds of work in turns with one worker. Adds a table, and the cost of a replay compared
/// with a plain read.
pub(crate) fn measure(results: &mut Results, quick: bool) -> Result<(), ReproduceError> {
    let ended = ended(quick)?;
    let live = live(results, quick)?;
    let most = match Instructions::in_use() {
        // Not yet measured with NEON.
        Instructions::Scalar | Instructions::Neon => 3.5,
        Instructions::Avx2 => 2.5,
        Instructions::Avx512 => 2.0,
    };
    let [(_, [read, _, crc32, tabulated, matched @ ..]), _] = &ended;
    let of_hashes = WORK.iter().skip(2).zip([crc32, tabulated]);
    let figures = of_hashes.filter_map(|((name, _), counted)| {
        Some(counted.as_ref()?.figure(
            format!("replay of {name} / plain read"),
            (*read)?,
            Some(Limit::AtMost(most)),
        ))
    });
    let of_filters =
        workload::FILTER_RULES.into_iter().zip(matched).filter_map(|((rules, most), found)| {
            let name = format!(
                "replay of src, tabulated, {} / without a filter",
                workload::filter_name(rules)
            );
            Some(found.as_ref()?.figure(name, (*tabulated)?, Some(Limit::AtMost(most))))
        });
    results.figures.extend(figures.chain(of_filters));
    results.grids.push(Grid {
        title: "What a user gets: whole runs with one worker".to_owned(),
        unit: "ns/packet",
        across: "work",
        columns: WORK.iter().map(|(name, _)| (*name).to_owned()).collect(),
        places: None,
        rows: ended
            .iter()
            .chain(&live)
            .map(|(name, cells)| Row {
                name: (*name).to_owned(),
                values: cells.iter().map(|best| best.map(Best::nanoseconds)).collect(),
            })
            .collect(),
    });
    Ok(())
}

/// Measures finite traffic by wall-clock time.
fn ended(quick: bool) -> Result<[(&'static str, Cells); ORIGINS.len()], ReproduceError> {
    let packets = if quick { 1_000_000 } else { 10_000_000 };
    let capture = CaptureFile::new(packets, Sources::Unique)?;
    let generated = Profile { packets: Some(packets), rate: None, ..Profile::new(Sources::Unique) };
    let generated = || memory(generated.clone(), 1, Pace::Open);
    let time = |origin, work| -> Result<Option<Duration>, ReproduceError> {
        let path = capture.0.as_path();
        let (hash, filter) = match (origin, work) {
            (Origin::Capture, Work::Read) => return Ok(Some(capture.read(1)?)),
            (Origin::Generated, Work::Read) => return Ok(None),
            (Origin::Capture, Work::Port) => {
                return Ok(Some(receive_all(pcap(path, 1, Pace::Open)?)));
            }
            (Origin::Generated, Work::Port) => return Ok(Some(receive_all(generated()))),
            (_, Work::Count(hash)) => (hash, None),
            (_, Work::Match(rules)) => {
                (HashMode::Tabulated, Some(workload::filter_of_rules(rules)))
            }
        };
        Ok(Some(match origin {
            Origin::Capture => count_all(pcap(path, 1, Pace::Trace)?, hash, filter)?,
            Origin::Generated => count_all(generated(), hash, filter)?,
        }))
    };
    let mut rows = ORIGINS.map(|(name, _)| (name, Cells::default()));
    for round in 0..if quick { 6 } else { 20 } {
        for ((_, origin), (_, cells)) in ORIGINS.iter().zip(&mut rows) {
            for ((_, work), best) in WORK.iter().zip(cells) {
                if let Some(time) = time(*origin, *work)? {
                    best.get_or_insert(Best::NONE)
                        .add(round, time.as_nanos() as f64 / packets as f64);
                }
            }
        }
    }
    Ok(rows)
}

/// Measures continuous traffic by the CPU time of the worker.
fn live(results: &mut Results, quick: bool) -> Result<Vec<(&'static str, Cells)>, ReproduceError> {
    let Some(cpus) = CpuPair::find() else {
        results.skip("two CPUs, for packets that keep coming");
        return Ok(Vec::new());
    };
    let af_xdp =
        move || take_turns(quick, |work| on_af_xdp(cpus, |ports| cost(ports, work, cpus, quick)));
    let af_xdp =
        isolated(af_xdp).unwrap_or_else(|need| Err(missing(format!("{need}, for AF_XDP"))));
    let af_xdp = results.note(af_xdp)?.map(|cells| ("AF_XDP over veth, CPU time", cells));
    let null = results.note(on_net_null(quick, cpus))?;
    Ok(af_xdp.into_iter().chain(null.map(|cells| ("dpdk:net_null, CPU time", cells))).collect())
}

#[cfg(feature = "dpdk")]
fn on_net_null(quick: bool, cpus: CpuPair) -> Result<Cells, Failure> {
    let null = crate::live::NetNull::start(cpus)?;
    take_turns(quick, |work| cost(null.ports(true)?, work, cpus, quick))
}

#[cfg(not(feature = "dpdk"))]
fn on_net_null(_: bool, _: CpuPair) -> Result<Cells, Failure> {
    Err(missing("a flowgauge-bench with the feature dpdk, for net_null"))
}

/// Runs all kinds of work possible with continuous traffic in turns.
fn take_turns(
    quick: bool,
    mut turn: impl FnMut(Work) -> Result<f64, Error>,
) -> Result<Cells, Failure> {
    let mut cells = Cells::default();
    for round in 0..if quick { 2 } else { 6 } {
        for ((_, work), best) in WORK.iter().zip(&mut cells) {
            // Such packets do not end, and a filter costs the same on every port.
            if matches!(work, Work::Read | Work::Match(_)) {
                continue;
            }
            best.get_or_insert(Best::NONE).add(round, turn(*work)?);
        }
    }
    Ok(cells)
}

/// Returns the CPU nanoseconds per packet of one turn.
fn cost<P: Port>(ports: Ports<P>, work: Work, cpus: CpuPair, quick: bool) -> Result<f64, Error> {
    let time = Duration::from_millis(if quick { 200 } else { 500 });
    let mut settings = Settings::default();
    match work {
        Work::Read | Work::Port | Work::Match(_) => {
            return Ok(cost_of_receiving(ports, cpus, time));
        }
        Work::Count(hash) => settings.hash = hash,
    }
    cost_of_counting(ports, settings, cpus, time)
}
