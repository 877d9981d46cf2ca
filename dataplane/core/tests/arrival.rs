//! A frame of several wire packets counts like these packets one by one.

use crate::common::combinations;
use flowgauge_core::Grid;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::heavy::{self, Algorithm, CountUnit};
use flowgauge_core::logarithm::{PER_PACKET, SUMS_PER_PACKET};
use flowgauge_core::sketch::{self, SketchKind, SketchTotals};
use flowgauge_core::{
    Arrival, Context, Counters, KeyKind, Link, SPREADS, Segments, Settings, Shared, Sharing, State,
    Tabulation, Zeroed, membership, spread,
};
use flowgauge_traffic::frame::{IPV4, Ip, TCP, Tcp, ethernet};

/// Returns a frame with Ethernet, IPv4 and TCP; every eighth is not IP.
fn frame(flow: u8, number: usize) -> Vec<u8> {
    let ports = [u16::from_be_bytes([1, flow]), 80];
    let segment = Tcp { ports, ..Tcp::default() }.segment(&[]);
    let packet = Ip::new([10, 0, 0, flow], [192, 0, 2, flow / 4], TCP).packet(&segment);
    ethernet(&[], if number % 8 == 7 { 0x0806 } else { IPV4 }, &packet)
}

fn settings(sketches: SketchKind, shape: Grid, heavy: (Algorithm, CountUnit)) -> Settings {
    let sketch = |key| sketch::Settings { mode: sketches.into(), key, shape };
    let mut settings = Settings::default();
    settings.cardinality.mode = Mode::Windowed;
    settings.entropy = [sketch(KeyKind::Src), sketch(KeyKind::SrcDst)];
    settings.frequency = sketch(KeyKind::Dst);
    settings.membership =
        membership::Settings { on: true, key: KeyKind::FiveTuple, ..Default::default() };
    settings.spread = [spread::Settings { on: true, ..Default::default() }; SPREADS];
    // One slot per flow.
    let (algorithm, unit) = heavy;
    settings.heavy = heavy::Settings { algorithm, unit, key: KeyKind::FiveTuple, slots_log2: 12 };
    settings
}

fn together(wire_length: u32, packets: Segments) -> Arrival<Segments> {
    Arrival { wire_length, packets, timestamp: 0, leaves: false }
}

fn empty() -> (Box<State>, Box<Shared>) {
    (State::boxed(), Shared::boxed())
}

/// Numbers of segments, including that of a large super-packet.
const SEGMENTS: [u32; 8] = [1, 2, 45, 1, 3, 64, 17, 7282];

#[test]
fn a_super_packet_gives_the_bits_that_its_segments_give() {
    let tabulation = Box::new(Tabulation::from_seed(3));
    let kinds = SketchKind::ALL.into_iter().cycle();
    // Few columns, so that flows share them and some estimates of a Count Sketch are negative.
    let shapes =
        [Grid::COUNTERS, Grid::of_counters(5, 16).unwrap(), Grid::of_counters(7, 64).unwrap()]
            .into_iter()
            .cycle();
    let sharing = [Sharing::Alone, Sharing::Shared].into_iter().cycle();
    let heavy = combinations(Algorithm::ALL, CountUnit::ALL);
    for (((heavy, kind), shape), sharing) in heavy.zip(kinds).zip(shapes).zip(sharing) {
        let settings = settings(kind, shape, heavy);
        let context = Context::new(settings, &tabulation, sharing);
        let ((mut whole, whole_shared), (mut single, single_shared)) = (empty(), empty());
        for (number, segments) in SEGMENTS.into_iter().cycle().enumerate().take(300) {
            let frame = frame((number * 7 % 61) as u8, number);
            let frame = frame.as_slice();
            // All but the last have full length.
            let lengths = (1..segments).map(|_| 1514).chain([60 + number as u32]);
            let mut active = single.active(&single_shared, 0);
            lengths.clone().for_each(|length| {
                active.record(&context, Link::Ethernet, frame, Arrival::new(length, 0))
            });
            let packets = Segments { number: segments, full: 1500, last: 46 + number as u32 };
            let super_packet = together(lengths.sum(), packets);
            whole.active(&whole_shared, 0).record(&context, Link::Ethernet, frame, super_packet);
            let ([whole, _], [single, _]) = (&whole.banks, &single.banks);
            // Only the former says that packets came together.
            let counters = Counters { merged: 0, ..whole.counters };
            assert_eq!(counters, single.counters, "frame {number}, {settings:?}");
            assert_eq!(whole.entropy, single.entropy, "frame {number}, {settings:?}");
        }
        let ([whole, _], [single, _]) = (&whole.banks, &single.banks);
        assert!(whole.cardinality == single.cardinality, "{settings:?}");
        assert!(whole.membership == single.membership, "{settings:?}");
        assert!(whole.frequency == single.frequency, "{settings:?}");
        assert!(whole.heavy == single.heavy, "{settings:?}");
        assert!(whole.spread == single.spread, "{settings:?}");
        let sketches = |shared: &Shared| {
            [0, 1].map(|index| {
                let (mut sketch, settings) = (SketchTotals::boxed(), &settings.entropy[index]);
                let kind = settings.mode.sketch().unwrap();
                shared.banks[0].entropy[index].merge_into(&mut sketch, kind, settings.shape);
                sketch
            })
        };
        assert!(sketches(&whole_shared) == sketches(&single_shared), "{settings:?}");
        assert!(whole.counters.non_ip > 0 && whole.entropy[0].sum > 0, "nothing was compared");
        let candidates = whole.spread.sketch(&settings.spread, 0).candidates().count();
        assert!(candidates > 0, "nothing was compared");
    }
}

/// In a full table one random decision applies to all segments: counts and bounds stay valid.
#[test]
fn totals_of_a_full_table_are_those_of_the_segments() {
    let tabulation = Box::new(Tabulation::from_seed(3));
    for (algorithm, unit) in combinations(Algorithm::ALL, CountUnit::ALL) {
        let mut settings = settings(SketchKind::CountMin, Grid::COUNTERS, (algorithm, unit));
        settings.heavy.slots_log2 = 4;
        let context = Context::new(settings, &tabulation, Sharing::Alone);
        let (mut state, shared) = empty();
        for (number, segments) in SEGMENTS.into_iter().cycle().enumerate().take(2000) {
            let bytes = frame((number * 7 % 251) as u8, 0);
            let packets = Segments { number: segments, full: 1500, last: 1500 };
            let arrival = together(segments * 1514, packets);
            state.active(&shared, 0).record(&context, Link::Ethernet, bytes.as_slice(), arrival);
        }
        let packets = SEGMENTS.iter().sum::<u32>() * 250;
        let heavy = &state.banks[0].heavy;
        let total = u64::from(packets) * if unit == CountUnit::Bytes { 1514 } else { 1 };
        assert_eq!((heavy.packets(), heavy.total()), (packets, total), "{algorithm:?}");
        for entry in heavy.entries(&settings.heavy) {
            let is_valid = entry.inherited <= entry.count && entry.count <= total;
            assert!(is_valid, "{algorithm:?}: {entry:?}");
        }
    }
}

#[test]
fn sums_of_logarithms_are_those_of_their_terms() {
    let mut sum = 0;
    for x in 0..200_000 {
        sum += u64::from(PER_PACKET.log2(u64::from(x)));
        assert_eq!(SUMS_PER_PACKET.up_to(x), sum, "{x}");
    }
    // Larger numbers: at the edges of all intervals, one term at a time.
    let edges = (17..32).flat_map(|leading| {
        (0..16).map(move |stretch| (1_u32 << leading) + (stretch << (leading - 4)))
    });
    let numbers = edges.flat_map(|edge| (edge - 2..edge + 2).chain([edge | 0x1234]));
    for x in numbers.chain([u32::MAX]) {
        let difference = SUMS_PER_PACKET.up_to(x) - SUMS_PER_PACKET.up_to(x - 1);
        assert_eq!(difference, u64::from(PER_PACKET.log2(u64::from(x))), "{x}");
    }
}
