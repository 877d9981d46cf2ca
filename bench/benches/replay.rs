//! How fast a capture of 64-byte frames replays from the page cache, with one worker and with two.
//!
//! `cargo bench -p flowgauge-bench --bench replay`. Two workers need two free cores.
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark: criterion's macros define undocumented functions")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flowgauge_core::HashMode;
use flowgauge_dataplane::capture::{Writer, link_type};
use flowgauge_dataplane::poll::port::pcap;
use flowgauge_dataplane::poll::{Advance, Options, Pace};
use flowgauge_dataplane::traffic::{Generator, Profile, Sources};
use flowgauge_dataplane::{Dataplane, Poll, Tables};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, process};

const PACKETS: u64 = 10_000_000;

/// A capture that is removed when the benchmark is done.
struct Capture(PathBuf);

impl Capture {
    fn new() -> Self {
        let path = env::temp_dir().join(format!("flowgauge-bench-{}.pcap", process::id()));
        let generator = Generator::new(Profile::new(Sources::Unique));
        let file = BufWriter::with_capacity(1 << 20, File::create_new(&path).expect("a temporary file"));
        let mut writer = Writer::new(file, link_type::ETHERNET).expect("room for the capture");
        let mut frame = generator.template().to_vec();
        for index in 0..PACKETS {
            generator.fill(index, &mut frame);
            writer.write(index * 100, &frame, frame.len() as u32).expect("room for the capture");
        }
        writer.finish().expect("room for the capture");
        Capture(path)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn replay(path: &Path, workers: usize, hash: HashMode) {
    let mut options = Options::default();
    options.settings.cardinality.hash = hash;
    let mut poll = Poll::new(pcap(path, workers, Pace::Trace).expect("the capture"), options.clone());
    poll.install(&Tables::new(&options.settings, 1)).expect("worker threads");
    assert!(matches!(poll.gate().advance(u64::MAX), Advance::Ended { .. }));
    assert_eq!(poll.rotate().expect("the only window").bank.counters.ipv4, PACKETS);
}

fn throughput(criterion: &mut Criterion) {
    let capture = Capture::new();
    let mut group = criterion.benchmark_group("replay");
    group.throughput(Throughput::Elements(PACKETS));
    group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(4));
    for hash in HashMode::ALL {
        for workers in [1, 2] {
            let name = format!("{}, {workers} workers", hash.name());
            group.bench_function(name, |bencher| bencher.iter(|| replay(&capture.0, workers, hash)));
        }
    }
    group.finish();
}

criterion_group!(benches, throughput);
criterion_main!(benches);
