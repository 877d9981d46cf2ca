//! Captures in trace time: identical windows, however the capture is read.

use crate::common::{SEED, staggered_levels, with_tables};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{Link, Settings};
use flowgauge_dataplane::capture::build::{
    self, CapturePacket, InterfaceOptions, PacketBlock, PcapNgOptions, PcapOptions, PcapVariant,
};
use flowgauge_dataplane::capture::{PacketRecord, Resolution, Step, Walker, open};
use flowgauge_dataplane::poll::port::{OwnedFrame, PcapPort, Port, Ports, pcap, pcap_reader};
use flowgauge_dataplane::poll::{Advance, Options, Pace};
use flowgauge_dataplane::{Dataplane, Event, Poll, Snapshot, Truth};
use flowgauge_testing::definitions::{Expected, Model};
use flowgauge_traffic::frame::{Ip, UDP};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

pub use flowgauge_dataplane::poll::port::CHUNK;

/// Starts to count with the default settings.
pub fn polled<P: Port>(ports: Ports<P>, truth: bool) -> Poll {
    with_tables(Poll::new(ports, counting(truth)))
}

/// Opens a capture that arrives through a pipe.
pub fn piped(reader: impl Read + Send + 'static, workers: usize) -> Ports<PcapPort> {
    pcap_reader(reader, "pipe", workers, Pace::Trace).unwrap()
}

/// Opens a capture in a file.
pub fn filed(file: &TemporaryFile, workers: usize) -> Ports<PcapPort> {
    pcap(file.path(), workers, Pace::Trace).unwrap()
}

/// Reads bytes in pieces of awkward lengths.
pub fn in_pieces(bytes: &[u8]) -> ShortReads<Cursor<Vec<u8>>> {
    ShortReads { inner: Cursor::new(bytes.to_vec()), reads: 0 }
}

pub fn counting(truth: bool) -> Options {
    Options { truth, ..Options::default() }
}

pub fn model() -> Model {
    Model::new(&Settings::default(), SEED)
}

/// Builds an IPv4 frame of `length` bytes, at least 38.
pub fn frame(source: u32, length: usize) -> Vec<u8> {
    let ports = [0, 1, 0, 2];
    let mut frame = Ip::new(source.to_be_bytes(), [192, 0, 2, 7], UDP).frame(&ports);
    frame.resize(length, source as u8);
    frame
}

/// Builds several MiB of packets in whole microseconds: many small ones, some with the same
/// timestamp, some of maximum length.
pub fn packets(seed: u64, count: usize) -> Vec<CapturePacket> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut timestamp = 1_700_000_000_000_000_000;
    let packet = |number| {
        timestamp += [0, 1000, 7000, 1_000_000][rng.random_range(0..4)];
        let length = match number % 700 {
            350 => rng.random_range(200_000..=262_144),
            _ if rng.random_bool(0.3) => 1514,
            _ => rng.random_range(38..200),
        };
        // About a third of the sources repeat.
        let source = rng.random_range(0..count as u32).wrapping_mul(0x9e37_79b1);
        let wire = (length + number % 5) as u32;
        CapturePacket { wire, ..CapturePacket::new(timestamp, frame(source, length)) }
    };
    (0..count).map(packet).collect()
}

fn owned(packet: &CapturePacket) -> OwnedFrame {
    let CapturePacket { timestamp, wire, frame, .. } = packet.clone();
    OwnedFrame { bytes: frame, wire_length: wire, timestamp, link: Link::Ethernet }
}

pub fn formats(packets: &[CapturePacket]) -> Vec<(&'static str, Vec<u8>)> {
    let pcap = |variant, big_endian| {
        build::pcap(&PcapOptions { variant, big_endian, ..PcapOptions::default() }, packets)
    };
    let mut spread = packets.to_vec();
    for (number, packet) in spread.iter_mut().enumerate() {
        packet.interface = (number % 2) as u32;
        packet.block = if number % 11 == 0 { PacketBlock::Obsolete } else { PacketBlock::Enhanced };
    }
    let interface = InterfaceOptions::default();
    let options = PcapNgOptions {
        interfaces: vec![
            InterfaceOptions { drops: Some(5), ..interface.clone() },
            InterfaceOptions { resolution: Some(Resolution::NANOSECONDS), ..interface },
        ],
        comment: "a comment".to_owned(),
        // One block longer than a chunk, and more at its start than a walker needs at once.
        extra: [(3, 20), (packets.len() / 2, 3 * CHUNK), (packets.len(), 8)]
            .map(|(before, length)| build::ExtraBlock {
                before,
                block_type: 0x0bad,
                body: vec![7; length],
            })
            .to_vec(),
        ..PcapNgOptions::default()
    };
    vec![
        ("pcap", pcap(PcapVariant::Microseconds, false)),
        ("pcap, nanoseconds, big-endian", pcap(PcapVariant::Nanoseconds, true)),
        ("pcap, modified", pcap(PcapVariant::Modified, false)),
        ("pcapng", build::pcapng(&options, &spread)),
        (
            "pcapng, big-endian",
            build::pcapng(&PcapNgOptions { big_endian: true, ..options }, &spread),
        ),
    ]
}

/// Reader that returns pieces of awkward lengths, and is sometimes interrupted.
pub struct ShortReads<R> {
    inner: R,
    reads: usize,
}

impl<R: Read> Read for ShortReads<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        if self.reads.is_multiple_of(13) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = [1, 4096, 7, 65_536, 100_003][self.reads % 5].min(buffer.len());
        self.inner.read(&mut buffer[..most])
    }
}

/// A file that is removed at the end of the test.
pub struct TemporaryFile(PathBuf);

impl TemporaryFile {
    pub fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("flowgauge-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        TemporaryFile(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub struct Window {
    expected: Expected,
    truth: Option<Truth>,
}

/// Replays with a rotation at each limit and one at the end. Checks every window, and that the end
/// is the only event.
#[track_caller]
pub fn assert_replays(mut poll: Poll, limits: &[u64], windows: &[Window], what: &str) {
    let gate = poll.gate();
    let precision = Settings::default().cardinality.precision;
    assert_eq!(windows.len(), limits.len() + 1);
    for (index, (limit, window)) in limits.iter().chain([&u64::MAX]).zip(windows).enumerate() {
        let stands = gate.advance(*limit);
        assert!(matches!(stands, Advance::Reached { .. } | Advance::Ended { .. }), "{stands:?}");
        let Snapshot { bank, truth, .. } = poll.rotate().unwrap();
        let Window { expected, truth: exact } = window;
        let counted = (&bank.counters, &truth);
        assert_eq!(counted, (&expected.counters, exact), "window {index} of {what}");
        let levels = bank.cardinality.levels(precision);
        assert!(levels == expected.levels, "registers of window {index} of {what}");
    }
    assert_eq!(poll.events().unwrap(), [Event::TrafficEnded], "{what}");
    assert_eq!(poll.events().unwrap(), [], "each event comes once");
}

/// Returns the expected windows.
pub fn windows(packets: &[CapturePacket], limits: &[u64], truth: bool) -> Vec<Window> {
    let model = model();
    let mut rest = packets;
    let mut total: HashSet<Vec<u8>> = HashSet::new();
    let mut window = |limit| {
        let (frames, later) =
            rest.split_at(rest.partition_point(|packet| packet.timestamp < limit));
        rest = later;
        let frames: Vec<OwnedFrame> = frames.iter().map(owned).collect();
        let flows = model.flows(&frames);
        total.extend(flows.iter().cloned());
        let [window, total] = [flows.len(), total.len()].map(|flows| Some(flows as u64));
        let truth = truth.then_some(Truth { window, total, ..Truth::default() });
        Window { expected: model.expect(&frames), truth }
    };
    limits.iter().copied().chain([u64::MAX]).map(&mut window).collect()
}

/// Returns limits at timestamps, just after them, in gaps, several in one chunk and none in others.
pub fn limits(packets: &[CapturePacket]) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut limits: Vec<u64> = (0..60)
        .map(|number| {
            packets[rng.random_range(0..packets.len())].timestamp + [0, 1, 500][number % 3]
        })
        .filter(|limit| !(packets[1000].timestamp..packets[2000].timestamp).contains(limit))
        .collect();
    limits.extend(packets[400..440].iter().map(|packet| packet.timestamp));
    limits.push(packets[0].timestamp);
    limits.sort_unstable();
    limits
}

#[test]
fn windows_are_the_same_for_every_format_source_and_number_of_workers() {
    let packets = packets(1, 18_000);
    let limits = limits(&packets);
    for (format, bytes) in formats(&packets) {
        assert!(bytes.len() > 7 * CHUNK, "{} bytes of {format}", bytes.len());
        let file =
            TemporaryFile::new(&format!("windows-{}", format.replace([' ', ','], "-")), &bytes);
        for workers in 1..=3 {
            let truth = workers != 2;
            let expected = windows(&packets, &limits, truth);
            let sources = [
                ("a file", filed(&file, workers)),
                ("a pipe", piped(Cursor::new(bytes.clone()), workers)),
                ("short reads", piped(in_pieces(&bytes), workers)),
            ];
            for (source, ports) in sources {
                let poll = polled(ports, truth);
                let drops = if format.starts_with("pcapng") { 5 } else { 0 };
                let source_state = poll.source();
                let what = format!("{format} from {source} with {workers} workers");
                assert_replays(poll, &limits, &expected, &what);
                assert_eq!(source_state.losses().total(), drops, "{what}");
            }
        }
    }
}

/// Tests a file end at, before and after the end of a chunk.
#[test]
fn files_that_end_where_a_chunk_does() {
    for length in [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 16, 3 * CHUNK + 15] {
        let mut packets = Vec::new();
        let mut left = length - 24;
        while left > 0 {
            let captured = if left > 4000 { 1000 } else { left - 16 };
            packets.push(CapturePacket::new(
                1000 * packets.len() as u64,
                frame(packets.len() as u32, captured),
            ));
            left -= 16 + captured;
        }
        let bytes = build::pcap(&PcapOptions::default(), &packets);
        assert_eq!(bytes.len(), length);
        let limits = [packets[packets.len() / 2].timestamp, packets[packets.len() - 1].timestamp];
        let expected = windows(&packets, &limits, false);
        for workers in 1..=3 {
            let file = TemporaryFile::new(&format!("end-{workers}-{length}"), &bytes);
            for ports in [filed(&file, workers), piped(in_pieces(&bytes), workers)] {
                let what = format!("{length} bytes, {workers} workers");
                assert_replays(polled(ports, false), &limits, &expected, &what);
            }
        }
    }
}

#[test]
fn a_capture_without_packets_ends_at_once() {
    let bytes = build::pcap(&PcapOptions::default(), &[]);
    for workers in 1..=2 {
        let ports = pcap_reader(Cursor::new(bytes.clone()), "empty", workers, Pace::Trace).unwrap();
        let mut poll = polled(ports, false);
        assert_eq!(poll.gate().advance(0), Advance::Ended { last: None });
        let notice = Event::Notice("empty: the capture has no packets".to_owned());
        assert_eq!(poll.events().unwrap(), [notice, Event::TrafficEnded]);
        assert_eq!(poll.events().unwrap(), []);
        assert_eq!(poll.rotate().unwrap().packets_after, 0);
    }
}

#[test]
fn the_gate_returns_the_next_and_the_last_timestamp() {
    let packets = packets(2, 3000);
    let bytes = build::pcap(&PcapOptions::default(), &packets);
    for workers in 1..=3 {
        let mut poll = polled(piped(Cursor::new(bytes.clone()), workers), false);
        let gate = poll.gate();
        let first = packets[0].timestamp;
        for limit in [0, first] {
            assert_eq!(gate.advance(limit), Advance::Reached { next: first });
        }
        for number in (1..packets.len()).step_by(97) {
            let limit = packets[number].timestamp + 1;
            let before = packets.partition_point(|packet| packet.timestamp < limit);
            // A lower limit has no effect.
            for limit in [limit, 5] {
                let next = packets[before].timestamp;
                assert_eq!(gate.advance(limit), Advance::Reached { next });
            }
            assert_eq!(poll.sample().unwrap().packets_after, before as u64);
        }
        let last = Some(packets[packets.len() - 1].timestamp);
        assert_eq!(gate.advance(u64::MAX), Advance::Ended { last });
        assert_eq!(poll.sample().unwrap().packets_after, packets.len() as u64);
    }
}

/// Flows that appear again in another chunk, read by another worker, are as recent as their latest
/// packet.
#[test]
fn staggered_registers_and_truth_do_not_depend_on_workers() {
    let packets = packets(3, 5000);
    let bytes = build::pcap(&PcapOptions::default(), &packets);
    let mut settings = Settings::default();
    settings.cardinality.mode = Mode::Staggered;
    let (first, last) = (packets[0].timestamp, packets[packets.len() - 1].timestamp);
    let m = settings.cardinality.precision.registers() as u64;
    let slot_ns = (last - first) / (3 * m);
    let run = |workers| {
        let ports = piped(Cursor::new(bytes.clone()), workers);
        let options = Options { settings, slot_ns, ..counting(true) };
        let mut poll = with_tables(Poll::new(ports, options));
        let gate = poll.gate();
        let mut step = |number| {
            let limit = first + (last - first) * number / 20;
            gate.advance(limit);
            let sample = poll.sample().unwrap();
            let slot = (limit / slot_ns) as u32;
            let levels = staggered_levels(&sample, settings.cardinality.precision, slot);
            let covered = |packet: &&CapturePacket| {
                packet.timestamp < limit && packet.timestamp >= limit - slot_ns * m / 2
            };
            let flows = model().flows(packets.iter().filter(covered).map(owned)).len() as u64;
            let counted = sample.truth.unwrap().window;
            assert_eq!(counted, Some(flows), "{workers} workers, step {number}");
            levels
        };
        (1..20).map(&mut step).collect::<Vec<_>>()
    };
    let alone = run(1);
    assert!(alone.iter().flatten().any(|&level| level > 0));
    for workers in [2, 3, 2, 3] {
        assert!(run(workers) == alone, "{workers} workers");
    }
}

/// Returns the packets of a capture, and its damage, as found by the walker.
pub fn walk(bytes: &[u8]) -> (Vec<(OwnedFrame, u16)>, Option<String>) {
    let mut walker = Walker::new();
    let mut unread = bytes;
    let mut frames = Vec::new();
    let end = loop {
        match walker.next(unread) {
            Step::Packet { record, consumed } => {
                let link_type = walker.interfaces()[record.interface as usize].link_type;
                let frame = record.frame(unread);
                let (link, rest) = open(link_type, frame).unwrap_or((Link::Unsupported, frame));
                let PacketRecord { wire: wire_length, timestamp, .. } = record;
                let frame = OwnedFrame { bytes: rest.to_vec(), wire_length, timestamp, link };
                frames.push((frame, link_type));
                unread = &unread[consumed..];
            }
            Step::Skip { consumed } => unread = &unread[consumed..],
            Step::NeedMore { .. } => break walker.finish(unread),
            Step::Damaged(damage) => break Err(damage),
        }
    };
    (frames, end.err().map(|damage| damage.to_string()))
}
