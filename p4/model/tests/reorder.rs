//! Reordering in the model, as read by the driver, compared bit for bit with the code that software
//! dataplanes run.

use crate::common::OFF;
use crate::lab::Lab;
use flowgauge_core::measurement::Toggle;
use flowgauge_core::reorder::{
    Algorithm, IDLE_TICKS, MOST_LATE, PrefixCounts, ReorderTotals, Settings as Reordering,
};
use flowgauge_core::{Settings, WindowTotals, Zeroed, cardinality};
use flowgauge_dataplane::Tofino;
use flowgauge_dataplane::tofino::definitions;
use flowgauge_testing::model::ServedSwitch;
use flowgauge_traffic::frame::flag::{ACK, FIN, RST, SYN};
use flowgauge_traffic::frame::{self, Ip};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MS: u64 = 1_000_000;
const SAMPLING: Reordering = Reordering { algorithm: Algorithm::Sampling, ..Reordering::DEFAULT };
const HYBRID: Reordering = Reordering { algorithm: Algorithm::Hybrid, ..Reordering::DEFAULT };

/// Returns settings with reordering only.
fn settings(reorder: Reordering) -> Settings {
    assert_eq!(reorder.problem(), None);
    Settings { reorder, ..OFF }
}

/// Segment of a flow.
#[derive(Clone, Copy)]
struct Tcp {
    v6: bool,
    source: u32,
    port: u16,
    flags: u8,
    sequence: u32,
    payload: u16,
    option_words: u8,
}

/// Returns an Ethernet frame without its data. IPv6 addresses are in 2001:db8::/32, and all 4-byte
/// words of the source are the same.
fn frame(segment: &Tcp) -> Vec<u8> {
    let &Tcp { v6, source, port, flags, sequence, payload, option_words } = segment;
    let options = &vec![0; 4 * usize::from(option_words)];
    let tcp = frame::Tcp { ports: [port, 443], flags, sequence, options, ..Default::default() };
    let transport = tcp.segment(&vec![0; payload.into()]);
    let source = source.to_be_bytes();
    let mut frame = if v6 {
        let [a, b, c, d] = source;
        let source = [0x20, 1, 0xd, 0xb8, a, b, c, d, a, b, c, d, a, b, c, d];
        Ip::new(source, [9; 16], frame::TCP).frame(&transport)
    } else {
        Ip::new(source, [192, 0, 2, 1], frame::TCP).frame(&transport)
    };
    frame.truncate(frame.len() - options.len() - usize::from(payload));
    frame
}

const fn ipv4(port: u16, flags: u8, sequence: u32, payload: u16) -> Tcp {
    Tcp { v6: false, source: 0x0a00_0001, port, flags, sequence, payload, option_words: 0 }
}

/// TCP connection with lost, late and retransmitted segments.
struct Flow {
    v6: bool,
    source: u32,
    port: u16,
    next: u32,
    opens: bool,
    late: Vec<(u32, u16)>,
    sent: Vec<(u32, u16)>,
}

impl Flow {
    fn new(random: &mut ChaCha8Rng, prefixes: u32) -> Self {
        let near_an_end =
            [0, 1 << 31].map(|end: u32| end.wrapping_sub(random.random_range(0..30_000)));
        Flow {
            v6: random.random(),
            source: 0x0a00_0000 | random.random_range(0..prefixes) << 8 | random.random_range(1..9),
            port: random.random(),
            next: near_an_end[usize::from(random.random::<bool>())],
            opens: random.random(),
            late: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Returns the next segment, and whether it is the last one.
    fn send(&mut self, random: &mut ChaCha8Rng) -> (Tcp, bool) {
        let Flow { v6, source, port, .. } = *self;
        let option_words = random.random_range(0..=10);
        let plain =
            Tcp { v6, source, port, flags: ACK, sequence: self.next, payload: 0, option_words };
        if std::mem::take(&mut self.opens) {
            self.next = self.next.wrapping_add(1);
            return (Tcp { flags: SYN, ..plain }, false);
        }
        let chance = random.random_range(0..100);
        let old = |(sequence, payload): (u32, u16)| (Tcp { sequence, payload, ..plain }, false);
        match chance {
            0..12 if !self.late.is_empty() => {
                return old(self.late.swap_remove(random.random_range(0..self.late.len())));
            }
            12..18 if !self.sent.is_empty() => {
                return old(self.sent[random.random_range(0..self.sent.len())]);
            }
            // A keep-alive, and a segment that resembles one.
            18..21 => return old((self.next.wrapping_sub(1), 1)),
            21 => return old((self.next.wrapping_sub(2), 1)),
            22 => return old((self.next.wrapping_sub(1), 0)),
            23..26 => return (plain, false),
            26 => return (Tcp { flags: RST | ACK, payload: 7, ..plain }, false),
            27 => {
                return (
                    Tcp { flags: FIN | ACK, payload: random.random_range(0..3), ..plain },
                    true,
                );
            }
            28 => return (Tcp { flags: SYN | ACK, payload: 5, ..plain }, false),
            _ => {}
        }
        let payload = random.random_range(1..1400);
        let is_late = random.random_range(0..6) == 0;
        if is_late {
            self.late.push((self.next, payload));
            self.next = self.next.wrapping_add(payload.into());
        } else {
            self.sent.push((self.next, payload));
        }
        let segment = Tcp { sequence: self.next, payload, ..plain };
        self.next = self.next.wrapping_add(payload.into());
        (segment, false)
    }
}

/// Returns sums over all prefixes: out of order, retransmitted, gaps, flows and squares.
fn sums(reorder: &ReorderTotals) -> [u64; 5] {
    let sum = |count: fn(&PrefixCounts) -> u64| reorder.prefixes().map(count).sum::<u64>();
    [
        sum(|prefix| prefix.out_of_order),
        sum(|prefix| prefix.retransmitted),
        sum(|prefix| prefix.gaps),
        sum(|prefix| prefix.flows),
        sum(|prefix| prefix.squares),
    ]
}

/// Runs windows with many flows, which end and are replaced by others.
#[track_caller]
fn check(reorder: Reordering, prefixes: u32, seed: u64) -> Box<WindowTotals> {
    let mut lab = Lab::new(settings(reorder));
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut flows: Vec<Flow> = (0..100).map(|_| Flow::new(&mut random, prefixes)).collect();
    // Close to where 31 bits of time end.
    let mut now = (1 << 47) - 500 * MS;
    let mut all = WindowTotals::boxed();
    for _ in 0..4 {
        for _ in 0..3000 {
            now += random.random_range(0..MS);
            if random.random_range(0..800) == 0 {
                // Long enough for flows to become idle.
                now += 700 * MS;
            }
            // Some flows send much more than others.
            let number =
                random.random_range(0..flows.len()).min(random.random_range(0..flows.len()));
            let (segment, is_last) = flows[number].send(&mut random);
            // Some have the time of a clock that was set back.
            let at = if random.random_range(0..50) == 0 { now - 20 * MS } else { now };
            lab.packet(at, &frame(&segment));
            if is_last && random.random() {
                flows[number] = Flow::new(&mut random, prefixes);
            }
        }
        all.unite(&lab.rotate(), &lab.settings);
    }
    let counts = sums(&all.reorder);
    assert!(counts.iter().all(|count| *count > 20), "{reorder:?}: {counts:?}");
    all
}

#[test]
fn more_flows_than_slots_by_either_algorithm() {
    for (seed, algorithm, slots_log2, prefixes) in
        [(1, SAMPLING, 6, 60), (2, SAMPLING, 4, 10), (3, HYBRID, 6, 60), (4, HYBRID, 4, 10)]
    {
        let all = check(Reordering { slots_log2, ..algorithm }, prefixes, seed);
        assert!(all.reorder.unfollowed > 20, "seed {seed}");
    }
}

#[test]
fn as_many_slots_as_there_can_be() {
    for (seed, algorithm) in (5..).zip([SAMPLING, HYBRID]) {
        check(Reordering { slots_log2: 16, ..algorithm }, 30, seed);
    }
}

#[test]
fn prefixes_of_every_length() {
    for (v4_bits, v6_bits) in
        [(1, 1), (8, 28), (16, 29), (27, 32), (28, 33), (29, 36), (31, 55), (32, 56)]
    {
        let mut lab = Lab::new(settings(Reordering { v4_bits, v6_bits, ..HYBRID }));
        for (number, bit) in (0..32).flat_map(|bit| [(bit, 1_u32 << bit), (bit, !(1 << bit))]) {
            for v6 in [false, true] {
                let source = 0x0a00_0001 ^ bit;
                let segment = Tcp { v6, source, ..ipv4(5, ACK, number * 100, 100) };
                lab.packet(0, &frame(&segment));
            }
        }
        assert!(lab.rotate().reorder.prefixes().count() >= 2, "{v4_bits}, {v6_bits}");
    }
}

/// A prefix of zeros, for both IP versions.
#[test]
fn prefixes_that_are_zero() {
    let mut lab = Lab::new(settings(Reordering { v4_bits: 24, v6_bits: 48, ..SAMPLING }));
    for v6 in [false, true] {
        let mut bytes = frame(&Tcp { v6, source: 0, ..ipv4(1, ACK, 5, 100) });
        if v6 {
            bytes[22..38].fill(0);
        }
        lab.packet(0, &bytes);
        lab.packet(0, &bytes);
    }
    assert_eq!(lab.rotate().reorder.prefixes().count(), 2);
}

/// More prefixes than places.
#[test]
fn prefixes_without_a_place() {
    let mut lab = Lab::new(settings(Reordering { v4_bits: 32, slots_log2: 16, ..SAMPLING }));
    for source in 0..20_000_u32 {
        let source = source.wrapping_mul(0x9e37_79b9);
        lab.packet(0, &frame(&Tcp { source, ..ipv4(1, ACK, 5, 100) }));
    }
    let reorder = &lab.rotate().reorder;
    let (crowded, prefixes) = (reorder.crowded, reorder.prefixes().count());
    assert!(crowded > 100 && prefixes > 10_000, "{crowded}");
}

/// Sequence numbers that start anywhere, and ends on all sides of the highest one.
#[test]
fn wherever_sequence_numbers_wrap() {
    let steps = [
        0,
        1,
        2,
        0x3fff_ffff,
        0x7fff_fffe,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xc000_0000,
        u32::MAX - 1,
        u32::MAX,
    ];
    for algorithm in [SAMPLING, HYBRID] {
        let mut lab = Lab::new(settings(algorithm));
        let mut number = 0;
        for first in steps {
            for second in steps {
                number += 1;
                let segment = |sequence: u32, payload| Tcp {
                    source: number << 8,
                    ..ipv4(1, ACK, sequence, payload)
                };
                for sequence in [
                    first,
                    first.wrapping_add(second),
                    first,
                    first.wrapping_add(second).wrapping_add(1),
                ] {
                    lab.packet(0, &frame(&segment(sequence, 1)));
                }
                // Missing bytes do not wrap.
                for sequence in [0, 0x7000_0000, 0xe000_0000, 0x5000_0000, 0x5000_0000] {
                    lab.packet(0, &frame(&segment(first.wrapping_add(sequence), 1000)));
                }
            }
        }
        let [out_of_order, retransmitted, gaps, ..] = sums(&lab.rotate().reorder);
        let counts = [out_of_order, retransmitted, gaps];
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
    }
}

/// Beyond the maximum of late segments the square stays the same. It starts again at zero in the
/// next window, and after silence.
#[test]
fn more_late_segments_than_are_told_apart() {
    let mut lab = Lab::new(settings(HYBRID));
    lab.packet(0, &frame(&ipv4(1, ACK, 0, 100)));
    for number in 0..MOST_LATE + 10 {
        lab.packet(0, &frame(&ipv4(1, ACK, number * 200 + 200, 100)));
        lab.packet(0, &frame(&ipv4(1, ACK, number * 200 + 100, 100)));
    }
    let squares = |bank: &WindowTotals| sums(&bank.reorder)[4];
    assert_eq!(squares(&lab.rotate()), u64::from(MOST_LATE).pow(2));
    let mut sequence = (MOST_LATE + 10) * 200 + 100;
    for at in [0, 1, IDLE_TICKS + 1, IDLE_TICKS + 2].map(|ticks| u64::from(ticks) << 16) {
        lab.packet(at, &frame(&ipv4(1, ACK, sequence + 100, 100)));
        lab.packet(at, &frame(&ipv4(1, ACK, sequence, 100)));
        sequence += 200;
    }
    assert_eq!(squares(&lab.rotate()), 2 * 2 + 2 * 2);
}

/// Segments that take the slot of another flow, and flows that move in the hybrid.
#[test]
fn slots_that_change_hands() {
    for algorithm in [SAMPLING, HYBRID] {
        let mut lab = Lab::new(settings(Reordering { slots_log2: 4, ..algorithm }));
        let mut random = ChaCha8Rng::seed_from_u64(8);
        for number in 0..8000_u32 {
            let flags = if random.random_range(0..20) == 0 { ACK | FIN } else { ACK };
            lab.packet(
                u64::from(number) * 1000,
                &frame(&ipv4(random.random_range(1..40), flags, number * 100, 100)),
            );
        }
        let all = lab.rotate();
        assert!(
            all.reorder.unfollowed > 100 && all.reorder.prefixes().all(|prefix| prefix.flows > 60)
        );
    }
}

/// Headers that are longer than the packet, wrong versions, and frames truncated anywhere.
#[test]
fn what_is_odd() {
    for algorithm in [SAMPLING, HYBRID] {
        let mut lab = Lab::new(settings(algorithm));
        let mut at = 0;
        for v6 in [false, true] {
            for (first, flags) in (0..16_u8)
                .flat_map(|first| [ACK, 0, FIN | ACK, SYN, RST, 0xff].map(|flags| (first, flags)))
            {
                for payload in [0, 1, 39, 40, 41] {
                    let mut bytes = frame(&Tcp { v6, ..ipv4(5, flags, at as u32, payload) });
                    let header = if v6 { 54 } else { 34 };
                    bytes[header + 12] = first << 4;
                    lab.packet(at, &bytes);
                    at += 20 * MS;
                }
            }
            let whole = frame(&Tcp { v6, ..ipv4(5, ACK, 7, 100) });
            for length in 0..whole.len() {
                lab.packet(at, &whole[..length]);
            }
            for first in 0..=255 {
                let mut bytes = whole.clone();
                bytes[14] = first;
                lab.packet(at, &bytes);
            }
            // Fragments, and packets without a length.
            let length = if v6 { 18 } else { 16 };
            let mut bytes = whole.clone();
            bytes[length..length + 2].fill(0);
            lab.packet(at, &bytes);
            bytes[length..length + 2].fill(0xff);
            lab.packet(at, &bytes);
        }
        assert!(lab.rotate().reorder.prefixes().count() >= 2);
    }
}

#[test]
fn beside_other_measurements() {
    let mut all = settings(HYBRID);
    all.cardinality = cardinality::Settings::DEFAULT;
    all.sizes = Toggle::ON;
    let mut lab = Lab::new(all);
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let mut flow = Flow::new(&mut random, 1);
    for at in 0..500 {
        let segment = flow.send(&mut random).0;
        lab.packet(at * MS, &frame(&segment));
    }
    assert!(lab.rotate().reorder.prefixes().any(|prefix| prefix.packets > 50));
}

#[test]
fn a_program_that_does_otherwise_is_refused() {
    let served = ServedSwitch::new(definitions(&settings(HYBRID)).unwrap());
    let wanted = [
        (
            SAMPLING,
            "it measures reorder hybrid, 4096 slots, wanted sampling, 4096 slots (-DFLOWGAUGE_REORDER=1)",
        ),
        (
            Reordering { slots_log2: 13, ..HYBRID },
            "wanted hybrid, 8192 slots (-DFLOWGAUGE_REORDER_SLOT_BITS=13)",
        ),
        (Reordering { slots_log2: 3, ..HYBRID }, "it has at least 16 buckets for reordering"),
    ];
    for (reorder, why) in wanted {
        let failure =
            Tofino::connect(served.options(), settings(reorder)).err().unwrap().to_string();
        assert!(failure.contains(why), "{failure}");
    }
    // Prefix lengths are not a setting of the program.
    Tofino::connect(served.options(), settings(Reordering { v4_bits: 9, v6_bits: 9, ..HYBRID }))
        .unwrap();
}
