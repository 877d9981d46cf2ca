//! Captures that are truncated, overwritten or invalid: everything readable is counted, and the
//! damage is reported once.

use crate::poll::capture::{CHUNK, TemporaryFile, frame, in_pieces, model, polled, walk};
use flowgauge_core::Settings;
use flowgauge_dataplane::capture::build::{self, CapturePacket, PcapNgOptions, PcapOptions};
use flowgauge_dataplane::capture::open;
use flowgauge_dataplane::poll::port::{Capture, captures, pcap, pcap_reader};
use flowgauge_dataplane::poll::{Advance, Pace};
use flowgauge_dataplane::{Dataplane, Error, Event};
use flowgauge_testing::definitions::Expected;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;
use std::io::{self, Cursor, Read};
use std::path::Path;

fn packets() -> Vec<CapturePacket> {
    let packet = |number: u32| {
        let frame = frame(number, 38 + (number as usize * 31) % 6000);
        CapturePacket::new(u64::from(number) * 1000, frame)
    };
    (0..3000).map(packet).collect()
}

/// Counts a whole capture; returns the snapshot's counters and registers, and the events.
fn count(bytes: &[u8], workers: usize) -> (Expected, Vec<Event>) {
    let ports = pcap_reader(in_pieces(bytes), "damaged", workers, Pace::Trace).unwrap();
    let mut poll = polled(ports, false);
    let stands = poll.gate().advance(u64::MAX);
    assert!(matches!(stands, Advance::Ended { .. }), "{stands:?}");
    let window = poll.rotate().unwrap();
    let counted = Expected::held(&window.bank, Settings::default().cardinality.precision);
    (counted, poll.events().unwrap())
}

/// Compares with the walker; returns whether there was damage.
fn check(bytes: &[u8], what: &str) -> bool {
    let (frames, damage) = walk(bytes);
    if frames.is_empty()
        && let Err(error) =
            pcap_reader(Cursor::new(bytes.to_vec()), "damaged", 1, Pace::Trace).map(drop)
    {
        // Not even a capture header.
        assert_eq!(error.to_string(), format!("damaged: {}", damage.unwrap()), "{what}");
        return true;
    }
    let expected = model().expect(frames.iter().map(|(frame, _)| frame));
    let unsupported: HashSet<u16> = frames
        .iter()
        .map(|&(_, link_type)| link_type)
        .filter(|&link_type| open(link_type, &[0; 64]).is_none())
        .collect();
    for workers in 1..=3 {
        let (counted, events) = count(bytes, workers);
        assert_eq!(counted, expected, "{what}, {workers} workers");
        let (end, warnings) = events.split_last().unwrap();
        assert_eq!(*end, Event::TrafficEnded, "{what}");
        let warnings: Vec<&Event> =
            warnings.iter().filter(|event| !matches!(event, Event::Notice(_))).collect();
        let number = usize::from(damage.is_some()) + unsupported.len();
        assert_eq!(warnings.len(), number, "{what}, {workers} workers: {warnings:?}, {damage:?}");
        if let Some(damage) = &damage {
            assert_eq!(*warnings[0], Event::Warning(format!("damaged: {damage}")), "{what}");
        }
    }
    damage.is_some()
}

#[test]
fn damaged_captures_count_up_to_the_damage() {
    let packets = packets();
    let captures = [
        ("pcap", build::pcap(&PcapOptions::default(), &packets)),
        ("pcapng", build::pcapng(&PcapNgOptions::default(), &packets)),
    ];
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut damaged = 0;
    for (format, whole) in captures {
        assert!(whole.len() > 4 * CHUNK);
        assert!(!check(&whole, format), "the whole capture");
        for number in 0..24 {
            let at = rng.random_range(0..whole.len());
            let mut bytes = whole.clone();
            let mut garbage = vec![0; rng.random_range(1..400)];
            rng.fill_bytes(&mut garbage);
            let what = match number % 4 {
                0 => {
                    bytes.truncate(at);
                    "cut"
                }
                1 => {
                    bytes.extend(&garbage);
                    "garbage behind"
                }
                2 => {
                    bytes[at] ^= 1 << rng.random_range(0..8);
                    "one bit"
                }
                _ => {
                    let end = (at + garbage.len()).min(bytes.len());
                    bytes[at..end].copy_from_slice(&garbage[..end - at]);
                    "overwritten"
                }
            };
            damaged +=
                usize::from(check(&bytes, &format!("{format}, {what} at {at}, number {number}")));
        }
    }
    assert!(damaged > 15, "{damaged} of 48 were damage");
}

#[test]
fn cuts_around_the_ends_of_chunks() {
    let packets = packets();
    for whole in [
        build::pcap(&PcapOptions::default(), &packets),
        build::pcapng(&PcapNgOptions::default(), &packets),
    ] {
        for at in [0, 1, 3, 4, 15, 16, 23, 24, 25, 40, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK] {
            check(&whole[..at], &format!("cut at {at}"));
        }
    }
}

#[test]
fn frames_of_an_unknown_link_type_are_reported_once() {
    let packets: Vec<CapturePacket> = packets().into_iter().take(1000).collect();
    let network = 187;
    let bytes = build::pcap(&PcapOptions { network, ..PcapOptions::default() }, &packets);
    for workers in 1..=2 {
        let (counted, events) = count(&bytes, workers);
        assert_eq!((counted.counters.non_ip, counted.packets()), (1000, 1000));
        let [Event::Warning(line), Event::TrafficEnded] = &events[..] else { panic!("{events:?}") };
        assert!(line.contains("1000 packets of link type 187 (BLUETOOTH_HCI_H4)"), "{line}");
    }
}

#[test]
fn what_is_no_capture_is_an_error() {
    for (content, hint) in [
        (&b""[..], "the file is empty"),
        (b"BZh91AY&SY\0\0\0\0\0\0\0\0", "bunzip2"),
        (b"some text, no packets", "text"),
    ] {
        let file = TemporaryFile::new(&format!("no-capture-{}", content.len()), content);
        let twice = [(); 2].map(|()| Capture::open(file.path()).unwrap());
        let whole = [
            pcap(file.path(), 2, Pace::Trace).map(drop),
            captures(twice.into(), 1, Pace::Trace).map(drop),
        ];
        for outcome in whole {
            let error = outcome.unwrap_err();
            let line = error.to_string();
            assert!(matches!(error, Error::NotACapture { .. }), "{line}");
            assert!(line.starts_with(&file.path().display().to_string()), "{line}");
            assert!(line.contains(hint), "{line}");
        }
        let piped = pcap_reader(Cursor::new(content), "pipe", 1, Pace::Trace)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(piped.starts_with("pipe: not a capture: ") && piped.contains(hint), "{piped}");
    }
}

#[test]
fn files_that_cannot_be_opened_are_errors() {
    for (path, kind) in [
        (std::env::temp_dir(), io::ErrorKind::IsADirectory),
        ("/nowhere/at/all.pcap".into(), io::ErrorKind::NotFound),
    ] {
        match pcap(&path, 1, Pace::Trace).err() {
            Some(Error::File { operation: "open", path: named, source }) => {
                assert_eq!((named.as_path(), source.kind()), (path.as_path() as &Path, kind));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Reader that fails permanently inside a chunk.
struct Breaking(Cursor<Vec<u8>>);

impl Read for Breaking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            read => Ok(read),
        }
    }
}

#[test]
fn what_was_read_before_an_error_is_counted_and_the_error_reported_once() {
    let whole = build::pcap(&PcapOptions::default(), &packets());
    let early = pcap_reader(Breaking(Cursor::new(whole[..10].to_vec())), "disk", 1, Pace::Trace)
        .map(drop)
        .unwrap_err();
    assert_eq!(early.to_string(), "cannot read disk: the disk is gone");
    for at in [30, 5000, CHUNK + 70_000, 2 * CHUNK] {
        let (frames, _) = walk(&whole[..at]);
        for workers in 1..=3 {
            let breaking = Breaking(Cursor::new(whole[..at].to_vec()));
            let ports = pcap_reader(breaking, "disk", workers, Pace::Trace).unwrap();
            let mut poll = polled(ports, false);
            poll.gate().advance(u64::MAX);
            let what = format!("error at {at}, {workers} workers");
            assert_eq!(poll.rotate().unwrap().packets_after, frames.len() as u64, "{what}");
            let warning = Event::Warning("disk: cannot read on: the disk is gone".to_owned());
            assert_eq!(poll.events().unwrap(), [warning, Event::TrafficEnded], "{what}");
        }
    }
}
