//! Compressed captures, and merges of several captures.

use crate::common::assert_contains;
use crate::poll::capture::{
    TemporaryFile, assert_replays, filed, formats, in_pieces, limits, packets, piped, polled,
    windows,
};
use flate2::write::GzEncoder;
use flowgauge_dataplane::capture::build::{self, CapturePacket, PcapOptions};
use flowgauge_dataplane::poll::port::{Capture, PcapPort, Ports, captures, pcap_reader};
use flowgauge_dataplane::poll::{Advance, Pace};
use flowgauge_dataplane::{Dataplane, Event};
use flowgauge_testing::extent;
use lzma_rust2::{XzOptions, XzWriter};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::{Cursor, Write};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Name of a format, its compressor, and bytes that may separate two compressed parts.
type Format = (&'static str, fn(&[u8]) -> Vec<u8>, &'static [u8]);

const FORMATS: [Format; 3] = [
    ("gzip", gzip, &[]),
    ("Zstandard", zstd, &[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]),
    ("xz", xz, &[0; 8]),
];

/// Concatenates two compressed parts, split anywhere in the capture.
fn in_two(compress: fn(&[u8]) -> Vec<u8>, between: &[u8], bytes: &[u8]) -> Vec<u8> {
    let (first, second) = bytes.split_at(bytes.len() / 3 + 7);
    [&compress(first)[..], between, &compress(second)].concat()
}

#[test]
fn compressed_captures_count_as_what_they_hold() {
    let packets = packets(11, 4000);
    let limits = limits(&packets);
    let expected = windows(&packets, &limits, true);
    let (name, bytes) = formats(&packets).swap_remove(3);
    for (format, compress, between) in FORMATS {
        let compressed = in_two(compress, between, &bytes);
        let file = TemporaryFile::new(&format!("compressed-{format}"), &compressed);
        for workers in [1, 3] {
            let sources = [
                ("a file", filed(&file, workers)),
                ("a pipe", piped(in_pieces(&compressed), workers)),
            ];
            for (source, ports) in sources {
                let poll = polled(ports, true);
                let state = poll.source();
                let what = format!("{name} in {format} from {source}");
                assert_replays(poll, &limits, &expected, &what);
                assert_eq!(state.losses().total(), 5);
                let whole = Some((compressed.len() as u64, compressed.len() as u64));
                assert_eq!(state.progress(), if source == "a file" { whole } else { None });
            }
        }
    }
}

/// Writes captures into files with this name and a number.
fn written(name: &str, captures: &[Vec<u8>]) -> Vec<TemporaryFile> {
    let file =
        |(index, bytes): (usize, &Vec<u8>)| TemporaryFile::new(&format!("{name}-{index}"), bytes);
    captures.iter().enumerate().map(file).collect()
}

fn opened(files: &[TemporaryFile]) -> Vec<Capture> {
    files.iter().map(|file| Capture::open(file.path()).unwrap()).collect()
}

fn small_packets(seed: u64, count: usize) -> Vec<CapturePacket> {
    let mut packets = packets(seed, count);
    packets.retain(|packet| packet.frame.len() < 2000);
    packets
}

/// Returns the packets counted to the end, and the warnings.
fn count(ports: Ports<PcapPort>) -> (u64, Vec<String>) {
    let mut poll = polled(ports, false);
    let stands = poll.gate().advance(u64::MAX);
    assert!(matches!(stands, Advance::Ended { .. }), "{stands:?}");
    let packets = poll.rotate().unwrap().packets_after;
    let said = |event| match event {
        Event::Warning(line) | Event::Notice(line) => Some(line),
        _ => None,
    };
    (packets, poll.events().unwrap().into_iter().filter_map(said).collect())
}

fn reader(bytes: &[u8]) -> Result<Ports<PcapPort>, flowgauge_dataplane::Error> {
    pcap_reader(Cursor::new(bytes.to_vec()), "z", 1, Pace::Trace)
}

#[test]
fn compressed_captures_that_are_cut_count_what_can_be_read() {
    let packets = small_packets(12, 600);
    let bytes = build::pcap(&PcapOptions::default(), &packets);
    for (format, compress, between) in FORMATS {
        let compressed = in_two(compress, between, &bytes);
        let first = compress(&bytes[..bytes.len() / 3 + 7]).len();
        let mut last = 0;
        for cut in (0..compressed.len()).step_by(97) {
            let (counted, said) = match reader(&compressed[..cut]) {
                Ok(ports) => count(ports),
                Err(error) => (0, vec![error.to_string()]),
            };
            // An end between two parts truncates a capture or a separator.
            let what = format!("{format} cut at {cut}: {counted} packets");
            assert_eq!(said.len(), 1, "{what}, {said:?}");
            if cut > 200 && cut < first {
                assert!(said[0].ends_with(&format!("the {format} data is cut off")), "{said:?}");
            }
            assert!(counted >= last, "{what}, and {last} with less of it");
            last = counted;
            if cut > first + 16 {
                assert!(counted >= packets.len() as u64 / 4, "{what}");
            }
        }
        assert_eq!(count(reader(&compressed).unwrap()), (packets.len() as u64, vec![]), "{format}");
    }
}

#[test]
fn damaged_compressed_captures_are_survived() {
    let packets = small_packets(13, 200);
    let bytes = build::pcap(&PcapOptions::default(), &packets);
    let mut rng = ChaCha8Rng::seed_from_u64(14);
    for (format, compress, between) in FORMATS {
        let whole = in_two(compress, between, &bytes);
        for number in 0..extent(75, 300) {
            let mut damaged = whole.clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..damaged.len());
                match number % 3 {
                    0 => damaged[at] ^= 1 << rng.random_range(0..8),
                    1 => damaged[at] = rng.random(),
                    _ => drop(damaged.splice(at..at, [rng.random(), rng.random()])),
                }
            }
            let Ok(ports) = reader(&damaged) else { continue };
            let (counted, said) = count(ports);
            let what = format!("{format}, number {number}: {counted}, {said:?}");
            assert!(counted <= packets.len() as u64 && said.len() <= 2, "{what}");
            // A change that no checksum detects is in a name or a time in a header.
            assert!(!said.is_empty() || counted == packets.len() as u64, "{what}");
        }
    }
}

/// A stream that requests a window of gigabytes is refused.
#[test]
fn windows_beyond_the_limit_are_refused_in_one_line() {
    // A window of 2 GiB, and one uncompressed block.
    let zstd = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 9, 0, 0][..], &[7]].concat();
    let line = reader(&zstd).map(drop).unwrap_err().to_string();
    assert_eq!(
        line,
        "cannot read z: the Zstandard data needs a window of more than 128 MiB; decompress it first"
    );
    // The same with 64 MiB.
    let zstd = [&zstd[..5], &[16 << 3], &zstd[6..]].concat();
    let line = reader(&zstd).map(drop).unwrap_err().to_string();
    assert!(line.starts_with("z: not a capture: "), "{line}");
}

/// Endless decompressed zeros would fill a buffer that grows with them.
#[test]
fn a_bomb_is_read_in_pieces() {
    let header = build::pcap(&PcapOptions::default(), &[]);
    let zeros = gzip(&vec![0; 64 << 20]);
    assert!(zeros.len() < 1 << 19);
    // Records of zeros: each is a packet without bytes at time 0.
    let (counted, said) = count(reader(&[gzip(&header), zeros].concat()).unwrap());
    assert_eq!((counted, said), ((64 << 20) / 16, vec![]));
}

/// Distributes packets, several in a row, over captures of all formats, some of them compressed.
fn dealt(packets: &[CapturePacket], count: usize, in_a_row: usize) -> Vec<Vec<u8>> {
    let mut rng = ChaCha8Rng::seed_from_u64(15);
    let mut hands = vec![Vec::new(); count];
    packets
        .chunks(in_a_row)
        .for_each(|packets| hands[rng.random_range(0..count)].extend(packets.iter().cloned()));
    let capture = |(index, hand): (usize, &Vec<CapturePacket>)| {
        let mut formats = formats(hand);
        let (_, bytes) = formats.swap_remove(index % formats.len());
        match index % 4 {
            1 => gzip(&bytes),
            2 => zstd(&bytes),
            _ => bytes,
        }
    };
    hands.iter().enumerate().map(capture).collect()
}

#[test]
fn several_captures_count_as_one_in_the_order_of_time() {
    let packets = packets(16, 6000);
    let limits = limits(&packets);
    for (number, in_a_row) in [(2, 1), (7, 1), (2, 500), (7, 100)] {
        let files =
            written(&format!("dealt-{number}-{in_a_row}"), &dealt(&packets, number, in_a_row));
        for workers in 1..=3 {
            let truth = workers != 2;
            let expected = windows(&packets, &limits, truth);
            let mut opened = opened(&files);
            // One of them arrives through a pipe.
            let bytes = std::fs::read(files[1].path()).unwrap();
            opened[1] = Capture::reader(in_pieces(&bytes), "pipe");
            let ports = captures(opened, workers, Pace::Trace).unwrap();
            let name = format!("{} and {} more", files[0].path().display(), number - 1);
            assert_eq!(ports.interface, name);
            let poll = polled(ports, truth);
            let state = poll.source();
            let what = format!("{number} captures, {in_a_row} in a row, {workers} workers");
            assert_replays(poll, &limits, &expected, &what);
            // The pcapng captures report 5 lost packets.
            assert_eq!(state.losses().total(), if number == 7 { 10 } else { 0 });
        }
    }
}

/// Captures that follow each other, of different formats; one arrives through a pipe.
#[test]
fn captures_that_follow_each_other_count_as_one() {
    let mut packets = packets(18, 9000);
    // Frames without bytes take no room.
    packets.iter_mut().step_by(40).for_each(|packet| packet.frame.clear());
    let limits = limits(&packets);
    let mut parts = Vec::new();
    for (index, part) in packets.chunks(1000).enumerate() {
        let mut formats = formats(part);
        parts.push(formats.swap_remove(index % formats.len()).1);
    }
    let files = written("follow", &parts);
    for workers in 1..=3 {
        let expected = windows(&packets, &limits, true);
        let mut opened = opened(&files);
        opened[4] = Capture::reader(in_pieces(&parts[4]), "pipe");
        opened.reverse();
        let ports = captures(opened, workers, Pace::Trace).unwrap();
        let what = format!("consecutive captures, {workers} workers");
        assert_replays(polled(ports, true), &limits, &expected, &what);
    }
}

/// A capture that is damaged or invalid loses only its own packets, and is named.
#[test]
fn damage_of_one_of_several_captures_is_reported() {
    let packets = packets(17, 300);
    let capture = |packets: &[CapturePacket]| build::pcap(&PcapOptions::default(), packets);
    let cut = capture(&packets[100..200]);
    let all = [
        capture(&packets[..100]),
        cut[..cut.len() - 1].to_vec(),
        b"no capture at all".to_vec(),
        capture(&packets[200..]),
    ];
    let files = written("wrong", &all);
    let (counted, mut said) = count(captures(opened(&files), 2, Pace::Trace).unwrap());
    said.sort_unstable();
    assert_eq!(counted, 299);
    let [first, second] = &said[..] else { panic!("{said:?}") };
    let end = "wrong-1: the file ends inside a record at byte";
    assert_contains(first, &[end, "after 99 packets"]);
    assert_contains(second, &["wrong-2: not a capture: the file is text"]);
    // A file that is removed after it was first opened.
    let opened = [0, 3].map(|index| Capture::open(files[index].path()).unwrap());
    let ports = captures(opened.into(), 1, Pace::Trace).unwrap();
    std::fs::remove_file(files[3].path()).unwrap();
    let (counted, said) = count(ports);
    assert!((100..=200).contains(&counted), "{counted}");
    said.iter().for_each(|line| assert_contains(line, &["wrong-3", "No such file"]));
    assert!(Capture::open(files[3].path()).is_err());
}

/// Packets out of order in their capture stay so, as they would without other captures.
#[test]
fn a_capture_out_of_order_keeps_its_order() {
    let at = |seconds: u64, source: u32| {
        CapturePacket::new(seconds * 1_000_000_000, crate::poll::capture::frame(source, 60))
    };
    let first = build::pcap(&PcapOptions::default(), &[at(10, 1), at(5, 2), at(30, 3)]);
    let second = build::pcap(&PcapOptions::default(), &[at(20, 4), at(40, 5)]);
    let readers = [("a", first), ("b", second)]
        .map(|(name, bytes)| Capture::reader(Cursor::new(bytes), name));
    let ports = captures(readers.into(), 1, Pace::Trace).unwrap();
    let mut poll = polled(ports, false);
    let gate = poll.gate();
    let mut packets = Vec::new();
    for limit in [10, 11, 21, 31, 41] {
        gate.advance(limit * 1_000_000_000);
        packets.push(poll.sample().unwrap().packets_after);
    }
    assert_eq!(packets, [0, 2, 3, 4, 5]);
}
