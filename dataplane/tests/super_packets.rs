//! Packets that represent several on the wire: the TCX programs count what the wire carries.

use crate::common::kernel;
use flowgauge_core::Grid;
use flowgauge_core::HostMeasurement;
use flowgauge_core::heavy::{self, Algorithm, CountUnit};
use flowgauge_core::sizes::{self, Sizes, SizesTotals};
use flowgauge_core::sketch::{self, SketchKind};
use flowgauge_core::{
    Arrival, Bank, Context, Counters, Heavy, KeyKind, Link, Settings, Shared, Sharing,
    SketchTotals, State, Zeroed,
};
use flowgauge_dataplane::xdp::{Mode, Offload, Options, Xdp};
use flowgauge_dataplane::{Dataplane, Direction, Snapshot, Tables};
use flowgauge_traffic::frame::{IPV6, Ip, TAG, TCP, Tcp, UDP, ethernet, udp};

/// Enables every measurement that counts packets or bytes.
fn settings(unit: CountUnit) -> Settings {
    let (key, shape) = (KeyKind::Src, Grid::COUNTERS);
    let sketch = |kind: SketchKind| sketch::Settings { mode: kind.into(), key, shape };
    Settings {
        entropy: [sketch(SketchKind::CountSketch), sketch(SketchKind::CountMin)],
        frequency: sketch(SketchKind::CountSketch),
        heavy: heavy::Settings { algorithm: Algorithm::Precision, unit, ..Default::default() },
        sizes: sizes::Settings::ON,
        ..Settings::default()
    }
}

fn detached(direction: Direction, settings: Settings) -> Option<Xdp> {
    kernel::detached(direction, Options { settings, ..kernel::in_mode(Mode::Tcx) })
}

/// Builds headers up to the payload: Ethernet, tags in the frame, IPv4 or IPv6, TCP with options or
/// UDP. The IP header has no length.
fn headers(tags: usize, v6: bool, protocol: u8) -> Vec<u8> {
    let transport = if protocol == TCP {
        Tcp { options: &[0; 12], ..Tcp::default() }.segment(&[])
    } else {
        udp([0; 2], &[])
    };
    let ip = if v6 {
        Ip::new([7; 16], [7; 16], protocol)
    } else {
        Ip::new([10, 0, 0, 1], [10, 0, 0, 2], protocol)
    };
    let mut packet = ip.packet(&transport);
    let length = if ip.ethertype() == IPV6 { 4..6 } else { 2..4 };
    packet[length].fill(0);
    ethernet(&vec![TAG; tags], ip.ethertype(), &packet)
}

/// Builds a frame with this payload and no length in its header, like large super-packets.
fn without_length(headers: &[u8], payload: usize) -> Vec<u8> {
    let mut frame = headers.to_vec();
    frame.resize(headers.len() + payload, 0);
    frame
}

/// Builds a frame with this payload and its length.
fn with_payload(headers: &[u8], payload: usize) -> Vec<u8> {
    let mut frame = without_length(headers, payload);
    let tags = frame[12..].chunks(4).take_while(|tag| tag.starts_with(&[0x81, 0x00])).count();
    let (_, network) = frame.split_at_mut(14 + 4 * tags);
    let (at, length) =
        if network[0] >> 4 == 4 { (2, network.len()) } else { (4, network.len() - 40) };
    network[at..at + 2].copy_from_slice(&(length as u16).to_be_bytes());
    frame
}

/// Counts the segments of a super-packet one after the other.
fn one_by_one(settings: Settings, frames: &[Vec<u8>]) -> (Box<State>, Box<Shared>) {
    let (mut state, shared) = (State::boxed(), Shared::boxed());
    let tables = Tables::new(&settings, 1);
    let context = Context::new(settings, &tables.tabulation, Sharing::Alone);
    for frame in frames {
        let arrival = Arrival::new(frame.len() as u32, 0);
        state.active(&shared, 0).record(&context, Link::Ethernet, frame.as_slice(), arrival);
    }
    (state, shared)
}

#[track_caller]
fn compare(snapshot: &Snapshot, bank: &Bank, shared: &Shared, settings: &Settings) {
    // Only the former says that segments came together.
    assert_eq!(Counters { merged: 0, ..snapshot.bank.counters }, bank.counters);
    assert_eq!(snapshot.bank.entropy.sums, bank.entropy);
    let mut frequency = Box::new(SketchTotals::new());
    if let Some(kind) = settings.frequency.mode.sketch() {
        frequency.merge(&bank.frequency, kind, settings.frequency.shape);
    }
    let mut heavy = Box::new(Heavy::new());
    heavy.merge(&bank.heavy, &settings.heavy);
    assert!(snapshot.bank.frequency == *frequency && snapshot.bank.heavy == *heavy);
    assert!(snapshot.bank.cardinality == bank.cardinality);
    let mut sizes = SizesTotals::boxed();
    Sizes::merge_core(&mut sizes, &bank.sizes, &settings.sizes);
    assert!(snapshot.bank.sizes == *sizes);
    let sketches = shared.banks[0].entropy.iter().zip(&snapshot.bank.entropy.sketches);
    for ((shared, held), settings) in sketches.zip(&settings.entropy) {
        let mut sketch = Box::new(SketchTotals::new());
        if let Some(kind) = settings.mode.sketch() {
            shared.merge_into(&mut sketch, kind, settings.shape);
        }
        assert!(*held == *sketch);
    }
}

/// Payload of all segments but the last, of the last, and their number.
const SPLITS: [(usize, usize, u32); 5] =
    [(100, 100, 1), (100, 7, 2), (64, 64, 25), (31, 30, 64), (16, 1, 100)];

#[test]
fn a_super_packet_counts_as_its_segments_on_both_hooks() {
    for (direction, unit) in Direction::ALL.into_iter().zip([CountUnit::Packets, CountUnit::Bytes])
    {
        let settings = settings(unit);
        let Some(mut xdp) = detached(direction, settings) else { return };
        let injector = xdp.injector();
        for (full, last, segments) in SPLITS {
            let kinds = [(0, false, TCP), (0, true, TCP), (1, false, UDP), (2, true, UDP)];
            for (tags, v6, protocol) in kinds {
                let headers = headers(tags, v6, protocol);
                let payload = full * (segments as usize - 1) + last;
                let whole = if segments > 1 {
                    without_length(&headers, payload)
                } else {
                    with_payload(&headers, payload)
                };
                let lengths = (1..segments).map(|_| full).chain([last]);
                let segmented: Vec<Vec<u8>> =
                    lengths.map(|length| with_payload(&headers, length)).collect();
                // The kernel's metadata, and the same without the number of segments, as for a
                // packet of a virtual machine.
                let (expected, shared) = one_by_one(settings, &segmented);
                for told in [segments, 0] {
                    let offload =
                        Offload { segment_length: full as u32, segments: told, wire_length: 0 };
                    injector.inject_super_packet(&whole, &offload).unwrap();
                    compare(&xdp.rotate().unwrap(), &expected.banks[0], &shared, &settings);
                    xdp.published(0).unwrap();
                }
            }
        }
    }
}

#[test]
fn on_the_way_out_the_kernels_sum_of_all_headers_counts() {
    // Inside a tunnel every segment has more headers than those that are parsed.
    let offload = Offload { segment_length: 100, segments: 10, wire_length: 1000 + 10 * 142 };
    let frame = with_payload(&headers(0, false, UDP), 1100);
    let arriving = frame.len() as u64 + 9 * 42;
    for (direction, bytes) in [(Direction::Egress, 2420), (Direction::Ingress, arriving)] {
        let Some(mut xdp) = detached(direction, settings(CountUnit::Packets)) else { return };
        xdp.injector().inject_super_packet(&frame, &offload).unwrap();
        let counters = xdp.rotate().unwrap().bank.counters;
        assert_eq!((counters.ipv4, counters.bytes), (10, bytes), "{direction:?}");
    }
}

#[test]
fn a_packet_without_offload_counts_once() {
    for direction in Direction::ALL {
        let Some(mut xdp) = detached(direction, settings(CountUnit::Bytes)) else { return };
        let frame = with_payload(&headers(0, false, TCP), 1000);
        xdp.injector().inject(&frame).unwrap();
        let counters = xdp.rotate().unwrap().bank.counters;
        assert_eq!((counters.ipv4, counters.bytes), (1, frame.len() as u64), "{direction:?}");
    }
}
