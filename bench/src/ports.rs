//! What a user gets per packet, whole runs with the port that packets come from: a part of `flowgauge bench packet`.

use crate::error::ReproduceError;
use crate::figure::{Figure, Limit};
use crate::findings::{Grid, Row};
use crate::scale::{Capture, count_all};
use crate::turns::Best;
use flowgauge_core::HashMode;
use flowgauge_dataplane::poll::port::{Port, Ports, Received, memory, pcap};
use flowgauge_dataplane::poll::{Instructions, Pace};
use flowgauge_dataplane::traffic::{Profile, Sources};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that a plain read takes at once, as `dd bs=256k`.
const BLOCK: usize = 256 << 10;

/// What is done with packets.
#[derive(Clone, Copy)]
enum Work {
    /// Their file is read, and nothing looks at it.
    Read,
    /// The port hands them over, and nothing is done with them.
    Port,
    Count(HashMode),
}

const WORK: [(&str, Work); 4] = [
    ("plain read", Work::Read),
    ("port alone", Work::Port),
    ("src, crc32", Work::Count(HashMode::Crc32)),
    ("src, tabulated", Work::Count(HashMode::Tabulated)),
];

/// Where packets come from.
#[derive(Clone, Copy)]
enum Origin {
    Capture,
    Generated,
}

const ORIGINS: [(&str, Origin); 2] = [("capture in the page cache", Origin::Capture), ("generated, rate=max", Origin::Generated)];

fn plain_read(path: &Path) -> io::Result<Duration> {
    let mut block = vec![0; BLOCK];
    let start = Instant::now();
    let mut file = File::open(path)?;
    while file.read(&mut block)? > 0 {
        black_box(&mut block);
    }
    Ok(start.elapsed())
}

/// Receives all packets of a port that nothing holds back.
fn receive_all<P: Port>(ports: Ports<P>) -> Duration {
    let start = Instant::now();
    for mut port in ports.ports {
        while port.receive(&mut |frame| _ = black_box(frame)) != Received::Ended {}
    }
    start.elapsed()
}

/// Every kind of work in turns, by the clock on the wall, with one worker: a table, and what a replay takes next to a plain read.
pub(crate) fn measure(quick: bool) -> Result<(Grid, Vec<Figure>), ReproduceError> {
    let packets = if quick { 1_000_000 } else { 10_000_000 };
    let capture = Capture::new(packets, Sources::Unique)?;
    let generated = Profile { packets: Some(packets), rate: None, ..Profile::new(Sources::Unique) };
    let time = |origin, work| -> Result<Option<Duration>, ReproduceError> {
        let path = capture.0.as_path();
        let read = |source| ReproduceError::File { operation: "read", path: path.to_owned(), source };
        Ok(match (origin, work) {
            (Origin::Capture, Work::Read) => Some(plain_read(path).map_err(read)?),
            (Origin::Capture, Work::Port) => Some(receive_all(pcap(path, 1, Pace::Open)?)),
            (Origin::Capture, Work::Count(hash)) => Some(count_all(pcap(path, 1, Pace::Trace)?, hash)?),
            (Origin::Generated, Work::Read) => None,
            (Origin::Generated, Work::Port) => Some(receive_all(memory(generated.clone(), 1, Pace::Open))),
            (Origin::Generated, Work::Count(hash)) => Some(count_all(memory(generated.clone(), 1, Pace::Open), hash)?),
        })
    };
    let mut best = [[None; WORK.len()]; ORIGINS.len()];
    for round in 0..if quick { 6 } else { 20 } {
        for ((_, origin), best) in ORIGINS.iter().zip(&mut best) {
            for ((_, work), best) in WORK.iter().zip(best) {
                if let Some(time) = time(*origin, *work)? {
                    best.get_or_insert(Best::NONE).add(round, time.as_nanos() as f64 / packets as f64);
                }
            }
        }
    }
    let most = match Instructions::in_use() {
        // With NEON nobody has measured it yet.
        Instructions::Scalar | Instructions::Neon => 3.5,
        Instructions::Avx2 => 2.5,
        Instructions::Avx512 => 2.0,
    };
    let [[read, _, of_hashes @ ..], _] = &best;
    let figures = WORK.iter().skip(2).zip(of_hashes).filter_map(|((name, _), counted)| {
        Some(counted.as_ref()?.figure(format!("replay of {name} / plain read"), (*read)?, Some(Limit::AtMost(most))))
    });
    let figures = figures.collect();
    let rows = ORIGINS.iter().zip(&best).map(|((name, _), best)| Row {
        name: (*name).to_owned(),
        values: best.iter().map(|best| best.map(Best::nanoseconds)).collect(),
    });
    let grid = Grid {
        title: "What a user gets: whole runs with one worker, by the clock on the wall".to_owned(),
        unit: "ns/packet",
        across: "work",
        columns: WORK.iter().map(|(name, _)| (*name).to_owned()).collect(),
        places: None,
        rows: rows.collect(),
    };
    Ok((grid, figures))
}
