//! What one packet costs, stage by stage, with its frame in L1, L2, L3 or memory.
//!
//! `cargo bench -p flowgauge-bench --bench packet`. Compare ratios within one run: absolute times differ between machines and
//! between minutes. Each stage includes the ones before it:
//! - `touch`: read the cache line that holds the headers;
//! - `parse`: network header and counters (`--measure none`);
//! - `hash`: parse and CRC of the source address;
//! - `crc32`, `tabulated`: the whole update of a cardinality register.
#![allow(missing_docs, reason = "criterion's macros define undocumented functions")]

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use flowgauge_core::cardinality::{Mode, Staggered};
use flowgauge_core::{Bank, Context, HashMode, KeyKind, Link, Settings, Tabulation, parse, state};
use flowgauge_dataplane::traffic::{Generator, Profile, Sources};
use std::hint::black_box;
use std::time::Duration;

const FRAME: usize = 64;

/// Where the frames are: name, how many, and bytes from one to the next.
const PLACES: [(&str, usize, usize); 5] = [
    ("L1", 16 << 10, FRAME),
    ("L2", 512 << 10, FRAME),
    ("L3", 8 << 20, FRAME),
    ("memory packed", 256 << 20, FRAME),
    ("memory 2 KiB apart", 256 << 20, 2048),
];

struct Frames {
    bytes: Vec<u8>,
    stride: usize,
}

impl Frames {
    /// Unique random sources, as in the W-HLL thesis.
    fn new(size: usize, stride: usize) -> Self {
        let generator = Generator::new(Profile::new(Sources::Unique));
        let mut bytes = vec![0; size];
        for (index, slot) in bytes.chunks_exact_mut(stride).enumerate() {
            let frame = &mut slot[..FRAME];
            frame.copy_from_slice(generator.template());
            generator.fill(index as u64, frame);
        }
        Frames { bytes, stride }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.stride).map(|slot| &slot[..FRAME])
    }
}

fn settings(mode: Mode, hash: HashMode) -> Settings {
    let mut settings = Settings::default();
    settings.cardinality.mode = mode;
    settings.cardinality.hash = hash;
    settings
}

fn record(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, frames: &Frames, mode: Mode, hash: HashMode) {
    let tabulation = Tabulation::from_seed(1);
    let mut bank = Box::new(Bank::new());
    let mut staggered = Box::new(Staggered::new());
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let context = Context { settings: settings(mode, hash), tabulation: &tabulation };
            for frame in frames.iter() {
                state::record(&mut bank, &mut staggered, &context, Link::Ethernet, frame, FRAME as u32, 0);
            }
            black_box(&bank.counters);
        });
    });
}

fn stages(criterion: &mut Criterion) {
    for (place, size, stride) in PLACES {
        let frames = Frames::new(size, stride);
        let mut group = criterion.benchmark_group(place);
        group.throughput(Throughput::Elements((size / stride) as u64));
        group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        group.bench_function("touch", |bencher| {
            bencher.iter(|| frames.iter().fold(0_u32, |sum, frame| sum.wrapping_add(u32::from(frame[26]))));
        });
        record(&mut group, "parse", &frames, Mode::Off, HashMode::Crc32);
        group.bench_function("hash", |bencher| {
            bencher.iter(|| {
                frames.iter().fold(0_u32, |sum, frame| match parse::network(frame, Link::Ethernet) {
                    Ok(packet) => sum ^ KeyKind::Src.crc32(frame, &packet),
                    Err(_) => sum,
                })
            });
        });
        record(&mut group, "crc32", &frames, Mode::Windowed, HashMode::Crc32);
        record(&mut group, "tabulated", &frames, Mode::Windowed, HashMode::Tabulated);
        group.finish();
    }
}

criterion_group!(benches, stages);
criterion_main!(benches);
