//! Captures with packets out of order: each packet is in the window of its time, or is counted as
//! late.

use crate::common::with_tables;
use crate::poll::capture::{CHUNK, TemporaryFile, counting, filed, frame, in_pieces, piped};
use flowgauge_dataplane::capture::build::{self, CapturePacket, PcapOptions};
use flowgauge_dataplane::poll::port::{Capture, captures};
use flowgauge_dataplane::poll::{Advance, Pace};
use flowgauge_dataplane::{Dataplane, LossCause, Poll};
use flowgauge_testing::extent;
use flowgauge_testing::frames::pcap;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::Duration;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
const START: u64 = 1_700_000_000 * SECOND;
const LATENESS: Duration = Duration::from_millis(100);

/// Builds a packet whose wire length is its number, so that sums identify the counted packets.
fn packet(number: usize, timestamp: u64, length: usize) -> CapturePacket {
    let number = number as u32;
    CapturePacket { wire: 2000 + number, ..CapturePacket::new(timestamp, frame(number, length)) }
}

/// Builds packets a millisecond apart, several chunks of them.
fn steady(count: usize) -> Vec<CapturePacket> {
    let length = |number| if number % 3 == 0 { 1400 } else { 60 };
    let time = |number| START + number as u64 * MILLISECOND;
    (0..count).map(|number| packet(number, time(number), length(number))).collect()
}

/// Start, packets and bytes of each window. Windows without packets are left out, as by a
/// controller.
type Windows = Vec<(u64, u64, u64)>;

#[derive(Debug, PartialEq)]
struct Replayed {
    first: u64,
    windows: Windows,
    late: u64,
    last: Option<u64>,
}

fn replay(poll: Poll, window: u64, lateness: Duration) -> Replayed {
    let gate = poll.gate();
    gate.set_lateness(lateness);
    let mut poll = with_tables(poll);
    let Advance::Reached { next: first } = gate.advance(0) else { panic!("no packet") };
    gate.close(first);
    let (mut start, mut windows) = (first, Vec::new());
    let last = loop {
        let limit = start.saturating_add(window);
        let stands = gate.advance(limit);
        let counters = poll.rotate().unwrap().bank.counters;
        if counters.packets() > 0 {
            windows.push((start, counters.packets(), counters.bytes));
        }
        match stands {
            Advance::Reached { next } => {
                assert!(next >= limit);
                start += (next - start) / window * window;
                gate.close(start);
            }
            Advance::Ended { last } => break last,
            other => panic!("{other:?}"),
        }
    };
    Replayed { first, windows, late: poll.losses().unwrap().get(LossCause::Late), last }
}

/// Returns the expected windows of these packets.
fn expected(packets: &[CapturePacket], window: u64) -> Replayed {
    let first = packets.iter().map(|packet| packet.timestamp).min().unwrap();
    let mut windows: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for packet in packets {
        let (packets, bytes) = windows.entry((packet.timestamp - first) / window).or_default();
        (*packets, *bytes) = (*packets + 1, *bytes + u64::from(packet.wire));
    }
    let windows = windows
        .into_iter()
        .map(|(number, (packets, bytes))| (first + number * window, packets, bytes))
        .collect();
    Replayed { first, windows, late: 0, last: packets.iter().map(|packet| packet.timestamp).max() }
}

/// Checks the same capture from a file, merged with one without packets, and from pipes that
/// deliver pieces of several lengths, read by several workers.
fn everywhere(name: &str, packets: &[CapturePacket], mut check: impl FnMut(bool, usize, Poll)) {
    let bytes = pcap(packets);
    let file = TemporaryFile::new(&format!("order-{name}"), &bytes);
    let empty = build::pcap(&PcapOptions::default(), &[]);
    let empty = TemporaryFile::new(&format!("order-{name}-empty"), &empty);
    for workers in 1..=3 {
        let mut check = |is_file, ports| check(is_file, workers, Poll::new(ports, counting(false)));
        check(true, filed(&file, workers));
        let both = [&empty, &file].map(|file| Capture::open(file.path()).unwrap());
        check(true, captures(both.into(), workers, Pace::Trace).unwrap());
        check(false, piped(Cursor::new(bytes.clone()), workers));
        check(false, piped(in_pieces(&bytes), workers));
    }
}

#[test]
fn packets_that_come_no_later_than_the_lateness_are_in_the_windows_of_their_times() {
    let mut packets = steady(24_000);
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    packets.sort_by_cached_key(|packet| packet.timestamp + rng.random_range(0..99) * MILLISECOND);
    assert!(packets.iter().map(|packet| packet.frame.len()).sum::<usize>() > 5 * CHUNK);
    for window in [SECOND, 30 * MILLISECOND] {
        let expected = expected(&packets, window);
        everywhere("bounded", &packets, |_, workers, poll| {
            let what = format!("{workers} workers, windows of {window} ns");
            assert_eq!(replay(poll, window, LATENESS), expected, "{what}");
        });
    }
}

#[test]
fn a_packet_of_a_closed_window_counts_as_late() {
    let mut packets = steady(12_000);
    // Five of them from the first second, after nine seconds have passed.
    for (number, late) in packets[9500..9550].iter_mut().step_by(10).enumerate() {
        late.timestamp = START + number as u64;
    }
    let on_time: Vec<CapturePacket> = packets
        .iter()
        .enumerate()
        .filter(|(number, _)| !(9500..9550).contains(number) || number % 10 != 0)
        .map(|(_, packet)| packet.clone())
        .collect();
    let expected = Replayed { late: 5, ..expected(&on_time, SECOND) };
    everywhere("late", &packets, |_, workers, poll| {
        assert_eq!(replay(poll, SECOND, LATENESS), expected, "{workers} workers");
    });
}

/// A window is closed after exactly as many later packets as the quorum, wherever the capture comes
/// from: 1000 in a file, 3 in a pipe.
#[test]
fn windows_are_closed_at_the_same_packet_everywhere() {
    let dense = |count: u64| {
        (0..count).map(|number| packet(number as usize, START + number * MILLISECOND / 100, 60))
    };
    for (name, before, late) in [("awaited", 999, 0), ("closed", 1000, 1)] {
        for is_file in [true, false] {
            // The first window ends with packet 10,000, and packet 20,000 is later than that by the
            // lateness.
            let mut packets: Vec<CapturePacket> = dense(60_000).collect();
            assert!(packets.len() * 76 > 2 * CHUNK);
            let place = 20_000 + if is_file { before } else { before - 997 };
            packets.insert(place, packet(3, START + MILLISECOND, 60));
            everywhere(name, &packets, |file, workers, poll| {
                if file == is_file {
                    let Replayed { windows, late: told, .. } =
                        replay(poll, 100 * MILLISECOND, LATENESS);
                    let what = format!("packet {place}, {workers} workers, file: {file}");
                    assert_eq!((windows[0].1, told), (10_001 - late, late), "{what}");
                }
            });
        }
    }
}

#[test]
fn the_first_window_begins_with_the_earliest_packet_that_is_awaited() {
    let mut packets = steady(5000);
    packets[50].timestamp -= 7 * SECOND;
    let expected = expected(&packets, SECOND);
    assert_eq!(expected.first, START + 50 * MILLISECOND - 7 * SECOND);
    everywhere("first", &packets, |_, workers, poll| {
        assert_eq!(replay(poll, SECOND, LATENESS), expected, "{workers} workers");
    });
    // A packet later than that is late, and has no other effect.
    let mut packets = steady(5000);
    packets[3000].timestamp -= 7 * SECOND;
    everywhere("before", &packets, |_, workers, poll| {
        let Replayed { first, late, windows, .. } = replay(poll, SECOND, LATENESS);
        assert_eq!((first, late, windows.len()), (START, 1, 5), "{workers} workers");
    });
}

#[test]
fn single_wrong_timestamps_do_not_make_the_others_late() {
    let year = 365 * 86_400 * SECOND;
    let (ahead, ago) = (START + 3 * year, START - 3 * year);
    for (name, wrong) in [("years-ahead", ahead), ("years-ago", ago), ("zero", 0)] {
        for at in [0, 1, 700, 4999] {
            let mut packets = steady(5000);
            packets[at].timestamp = wrong;
            let from_the_past = wrong < START && at > 100;
            let on_time: Vec<CapturePacket> = packets
                .iter()
                .filter(|packet| !from_the_past || packet.timestamp != wrong)
                .cloned()
                .collect();
            everywhere(name, &packets, |is_file, workers, poll| {
                // In a file a thousand packets are examined before the first window begins.
                let early = is_file && from_the_past && at < 1000;
                let late = u64::from(from_the_past && !early);
                let counted = if early { &packets } else { &on_time };
                let expected = Replayed { late, ..expected(counted, SECOND) };
                let what = format!("packet {at} is {name}, {workers} workers");
                assert_eq!(replay(poll, SECOND, LATENESS), expected, "{what}");
            });
        }
    }
}

#[test]
fn a_clock_that_is_set_back_leaves_what_comes_after_it_late() {
    let mut packets = steady(6000);
    packets[3000..].iter_mut().for_each(|packet| packet.timestamp -= 100 * SECOND);
    everywhere("set-back", &packets, |_, workers, poll| {
        let Replayed { windows, late, .. } = replay(poll, SECOND, LATENESS);
        let counted: u64 = windows.iter().map(|(_, packets, _)| packets).sum();
        assert_eq!((counted, late, windows.len()), (3000, 3000, 3), "{workers} workers");
    });
}

#[test]
fn whatever_the_order_no_packet_is_lost_or_counted_twice() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for round in (0..24).step_by(extent(2, 1)) {
        let mut packets = steady(4000);
        // Also a hundred times as dense: then long runs are read ahead.
        let density = [1, 100][round / 12];
        packets
            .iter_mut()
            .for_each(|packet| packet.timestamp = START + (packet.timestamp - START) / density);
        for _ in 0..rng.random_range(1..200) {
            let at = rng.random_range(0..packets.len());
            packets[at].timestamp = match rng.random_range(0..4) {
                0 => rng.random_range(0..u64::MAX / 4),
                1 => 0,
                2 => START + rng.random_range(0..4 * SECOND) / density,
                _ => START - rng.random_range(0..100 * SECOND),
            };
        }
        if round % 3 == 0 {
            packets.reverse();
        }
        let window = [SECOND / 10 / density, SECOND / density, 3600 * SECOND][round % 3];
        let lateness = [
            LATENESS / [1, 10][round / 12],
            Duration::from_secs(5) / density as u32,
            Duration::ZERO,
        ][round / 4 % 3];
        let mut seen = [None, None];
        everywhere("any", &packets, |is_file, workers, poll| {
            let replayed = replay(poll, window, lateness);
            let counted: u64 = replayed.windows.iter().map(|(_, packets, _)| packets).sum();
            let what = format!("round {round}, {workers} workers, file {is_file}");
            assert_eq!(counted + replayed.late, 4000, "{what}");
            let replayed = format!("{replayed:?}");
            let before = seen[usize::from(is_file)].get_or_insert_with(|| replayed.clone());
            assert_eq!(*before, replayed, "{what}");
        });
    }
}
