//! Reordering: classification of segments, flows that are followed, and prefixes that are found.

use crate::common::{Random, combinations};
use flowgauge_core::HostMeasurement;
use flowgauge_core::reorder::{
    Algorithm, ExactReorder, IDLE_TICKS, MOST_LATE, PrefixCounts, ReorderTotals,
    SAMPLING_ADMITS_LOG2, Settings as Reordering,
};
use flowgauge_core::{
    Arrival, Context, Link, Observation, Reorder, Settings, Shared, Sharing, State, Tabulation,
    Zeroed, parse,
};
use flowgauge_traffic::frame::flag::{ACK, FIN, RST, SYN};
use flowgauge_traffic::frame::{Ip, TCP, Tcp};
use std::collections::{HashMap, HashSet};

const MS: u64 = 1_000_000;
const SAMPLING: Reordering = Reordering { algorithm: Algorithm::Sampling, ..Reordering::DEFAULT };
const HYBRID: Reordering = Reordering { algorithm: Algorithm::Hybrid, ..Reordering::DEFAULT };

/// Returns an Ethernet frame of a TCP segment from 10.0.0.0/8, by address and port, without its
/// data.
fn tcp(source: u32, port: u16, flags: u8, sequence: u32, payload: u16) -> Vec<u8> {
    let tcp = Tcp { ports: [port, 443], flags, sequence, ..Tcp::default() };
    let segment = tcp.segment(&vec![0; payload.into()]);
    let mut frame = Ip::new((10 << 24 | source).to_be_bytes(), [192, 0, 2, 1], TCP).frame(&segment);
    frame.truncate(frame.len() - usize::from(payload));
    frame
}

/// As above, over IPv6, from 2001:db8::/32 and 16 more bits.
fn tcp_over_ipv6(source: u16, sequence: u32, payload: u16) -> Vec<u8> {
    let tcp = Tcp { ports: [0x0102, 0x0304], flags: ACK, sequence, ..Tcp::default() };
    let segment = tcp.segment(&vec![0; payload.into()]);
    let rest = 0x0707;
    let source = [0x2001, 0x0db8, source, rest, rest, rest, rest, rest];
    let mut frame = Ip::new(source, [7; 16], TCP).frame(&segment);
    frame.truncate(frame.len() - usize::from(payload));
    frame
}

struct Counting {
    settings: Settings,
    tabulation: Tabulation,
    state: Box<State>,
    shared: Box<Shared>,
    bank: usize,
}

impl Counting {
    fn new(reorder: Reordering, seed: u64) -> Self {
        assert_eq!(reorder.problem(), None);
        let settings = Settings { reorder, ..Settings::DEFAULT };
        Counting {
            settings,
            tabulation: Tabulation::from_seed(seed),
            state: State::boxed(),
            shared: Shared::boxed(),
            bank: 0,
        }
    }

    fn packet(&mut self, at: u64, frame: &[u8]) {
        let context = Context::new(self.settings, &self.tabulation, Sharing::Alone);
        let arrival = Arrival::new(frame.len() as u32, at);
        let mut active = self.state.active(&self.shared, self.bank);
        active.record(&context, Link::Ethernet, frame, arrival);
    }

    fn sum(&self) -> Box<ReorderTotals> {
        let mut sum = ReorderTotals::boxed();
        let bank = &self.shared.banks[self.bank];
        Reorder::merge_shared(&mut sum, &bank.reorder, &self.settings.reorder);
        sum
    }

    /// Asserts the counts of the only prefix.
    #[track_caller]
    fn is(&self, packets: u64, out_of_order: u64, retransmitted: u64, gaps: u64, flows: u64) {
        let sum = self.sum();
        let found = sum.prefixes().copied().collect::<Vec<_>>();
        let [PrefixCounts { prefix, squares, .. }] = found[..] else { panic!("{found:?}") };
        let counts =
            PrefixCounts { prefix, packets, out_of_order, retransmitted, gaps, flows, squares };
        assert_eq!(found, [counts]);
        assert_eq!((sum.contended, sum.crowded), (0, 0));
    }
}

/// Counts segments of 100 bytes of one flow, given by number, from a sequence number on.
fn flow(reorder: Reordering, first: u32, segments: &[u32]) -> Counting {
    let mut counting = Counting::new(reorder, 1);
    for segment in segments {
        counting.packet(0, &tcp(1, 1, ACK, first.wrapping_add(segment * 100), 100));
    }
    counting
}

#[test]
fn segments_are_what_they_are_wherever_sequence_numbers_wrap() {
    for algorithm in [SAMPLING, HYBRID] {
        for first in [0, 1000, u32::MAX - 99, u32::MAX - 250, i32::MAX as u32 - 150] {
            flow(algorithm, first, &[0, 1, 2, 3, 4]).is(5, 0, 0, 0, 1);
            // One late segment, then in order again; a repeated segment was seen before.
            flow(algorithm, first, &[0, 2, 1, 3, 4, 1, 2]).is(7, 1, 2, 1, 1);
            // Three late segments in a row fill the hole from below.
            flow(algorithm, first, &[0, 4, 1, 2, 3, 5, 1]).is(7, 3, 1, 1, 1);
            // Two holes; the later one is filled first.
            flow(algorithm, first, &[0, 2, 4, 3, 1, 1]).is(6, 2, 1, 2, 1);
            // A repeated segment is taken for the missing one, which then counts as seen: the
            // totals stay correct.
            flow(algorithm, first, &[0, 2, 3, 3, 1, 1]).is(6, 1, 2, 1, 1);
        }
    }
}

#[test]
fn what_carries_no_data_does_not_count() {
    let mut counting = flow(HYBRID, 1000, &[0, 1]);
    counting.packet(0, &tcp(1, 1, ACK, 1100, 0));
    counting.packet(0, &tcp(1, 1, ACK | RST, 1100, 20));
    // Keep-alives, without data and with one byte.
    counting.packet(0, &tcp(1, 1, ACK, 1199, 0));
    counting.packet(0, &tcp(1, 1, ACK, 1199, 1));
    counting.is(2, 0, 0, 0, 1);
    counting.packet(0, &tcp(1, 1, ACK, 1198, 1));
    counting.is(3, 0, 1, 0, 1);
    // A reused port, with data in the SYN.
    counting.packet(0, &tcp(1, 1, SYN, 5, 10));
    counting.packet(0, &tcp(1, 1, ACK, 16, 10));
    counting.is(4, 0, 1, 0, 1 + 1);
}

/// Crafted sequence numbers, as in `docs/security.md`: one segment with the ends of a flow makes
/// its later ones late, and segments with other ends do not affect it.
#[test]
fn a_crafted_sequence_number_takes_the_ends_of_the_flow() {
    for reorder in [SAMPLING, HYBRID] {
        let counted = |crafted: Option<(u16, u32)>| {
            let mut counting = Counting::new(reorder, 3);
            for number in 0..100 {
                let at = u64::from(number) * MS;
                if let Some((port, sequence)) = crafted.filter(|_| number == 50) {
                    counting.packet(at, &tcp(1, port, ACK, sequence, 100));
                }
                counting.packet(at, &tcp(1, 4000, ACK, number * 100, 100));
            }
            let sum = counting.sum();
            let late = |prefix: &PrefixCounts| prefix.out_of_order + prefix.retransmitted;
            (sum.prefixes().map(late).sum::<u64>(), sum.prefixes().map(|it| it.gaps).sum::<u64>())
        };
        assert_eq!(counted(None), (0, 0), "{reorder:?}");
        assert_eq!(counted(Some((4001, 1 << 30))), (0, 0), "{reorder:?}");
        assert_eq!(counted(Some((4000, 1 << 30))), (50, 1), "{reorder:?}");
    }
}

#[test]
fn flows_last_beyond_rotations_and_until_they_are_idle() {
    let mut counting = flow(SAMPLING, 0, &[0, 2]);
    counting.bank = 1;
    counting.packet(MS, &tcp(1, 1, ACK, 100, 100));
    counting.is(1, 1, 0, 0, 1);
    // After silence it is the same flow, but counts once more.
    counting.packet(2000 * MS, &tcp(1, 1, ACK, 100, 100));
    counting.is(2, 1, 1, 0, 2);
    // A clock that was set back.
    counting.packet(MS, &tcp(1, 1, ACK, 300, 100));
    counting.is(3, 1, 1, 0, 2);
    counting.packet(3000 * MS, &tcp(2, 2, ACK, 100, 100));
    counting.is(4, 1, 1, 0, 3);
    // The first flow was evicted from its slot.
    counting.packet(5000 * MS, &tcp(1, 1, ACK, 300, 100));
    counting.is(5, 1, 1, 0, 4);
}

#[test]
fn late_segments_are_squared_by_flow_and_window() {
    let mut counting = flow(HYBRID, 0, &[0, 4, 1, 2]);
    for (port, sequence) in combinations([2, 3, 4], [0, 200, 100]) {
        counting.packet(0, &tcp(1, port, ACK, sequence, 100));
    }
    let squares =
        |counting: &Counting| counting.sum().prefixes().map(|prefix| prefix.squares).sum::<u64>();
    assert_eq!(squares(&counting), 4 + 1 + 1 + 1);
    counting.bank = 1;
    counting.packet(0, &tcp(1, 1, ACK, 300, 100));
    assert_eq!(squares(&counting), 1);
    // Beyond the maximum the square does not grow.
    let mut counting = flow(HYBRID, 0, &[0, 1]);
    for number in 0..MOST_LATE + 10 {
        counting.packet(0, &tcp(1, 1, ACK, number * 200 + 300, 100));
        counting.packet(0, &tcp(1, 1, ACK, number * 200 + 200, 100));
    }
    assert_eq!(squares(&counting), u64::from(MOST_LATE).pow(2));
}

#[test]
fn another_flow_gets_a_slot_by_its_hash_or_when_it_is_idle() {
    const OTHERS: u32 = 64_000;
    let first = tcp(1, 1, ACK, 0, 100);
    let mut counting = Counting::new(SAMPLING, 1);
    counting.packet(0, &first);
    let mut admitted = 0;
    for number in 0..OTHERS {
        let before = counting.sum().unfollowed;
        counting.packet(0, &tcp(1, 2, ACK, number * 100, 100));
        if counting.sum().unfollowed == before {
            admitted += 1;
            // A new connection releases the slot.
            counting.packet(0, &tcp(1, 2, SYN, 0, 0));
            counting.packet(0, &first);
        }
    }
    let share = 1.0 / f64::from(1 << SAMPLING_ADMITS_LOG2);
    let mean = f64::from(OTHERS) * share;
    let allowed = 4.0 * (mean * (1.0 - share)).sqrt();
    assert!((f64::from(admitted) - mean).abs() < allowed, "{admitted} of {mean}");

    let mut counting = Counting::new(SAMPLING, 1);
    counting.packet(0, &first);
    let idle = u64::from(IDLE_TICKS) << 16;
    counting.packet(idle - 1, &tcp(1, 3, ACK, 100, 100));
    counting.packet(idle, &tcp(1, 3, ACK, 100, 100));
    let sum = counting.sum();
    assert_eq!((sum.unfollowed, sum.prefixes().map(|prefix| prefix.flows).sum::<u64>()), (1, 2));
}

#[test]
fn prefixes_are_as_long_as_settings_say_and_sums_add_up() {
    let mut counting = Counting::new(Reordering { v4_bits: 16, v6_bits: 40, ..HYBRID }, 1);
    for source in [0x0001_0203, 0x0001_ff03, 0x0002_0203] {
        counting.packet(0, &tcp(source, 1, ACK, 0, 100));
    }
    for source in [0x0102, 0x01ff, 0x0202] {
        counting.packet(0, &tcp_over_ipv6(source, 0, 100));
    }
    let sum = counting.sum();
    let mut found = sum.prefixes().map(|prefix| prefix.prefix).collect::<Vec<_>>();
    found.sort_unstable();
    let of_ipv4 = [0x0a01_0000_0000_0004_u64, 0x0a02_0000_0000_0004];
    let of_ipv6 = [0x2001_0db8_0100_0006_u64, 0x2001_0db8_0200_0006];
    assert_eq!(found, [of_ipv4, of_ipv6].concat());
    let mut both = counting.sum();
    Reorder::merge_totals(&mut both, &sum, &counting.settings.reorder);
    let packets = |sum: &ReorderTotals| {
        sum.prefixes().map(|prefix| prefix.packets).sum::<u64>() + sum.unfollowed
    };
    assert_eq!((packets(&sum), packets(&both), both.prefixes().count()), (6, 12, 4));
    Reorder::clear_shared(&counting.shared.banks[0].reorder, &counting.settings.reorder);
    assert!(counting.sum() == ReorderTotals::boxed());
}

#[test]
fn cores_that_share_a_slot_lose_no_segment_untold() {
    const CORES: u32 = 4;
    const SEGMENTS: u32 = 20_000;
    let counting = Counting::new(Reordering { slots_log2: 1, ..HYBRID }, 1);
    std::thread::scope(|scope| {
        for core in 0..CORES {
            let counting = &counting;
            scope.spawn(move || {
                let context =
                    Context::new(counting.settings, &counting.tabulation, Sharing::Shared);
                let mut state = State::boxed();
                for number in 0..SEGMENTS {
                    let frame = tcp(1, 1, ACK, (number * CORES + core) * 100, 100);
                    let arrival = Arrival::new(frame.len() as u32, 0);
                    let mut active = state.active(&counting.shared, 0);
                    active.record(&context, Link::Ethernet, frame.as_slice(), arrival);
                }
            });
        }
    });
    let sum = counting.sum();
    let followed = sum.prefixes().map(|prefix| prefix.packets).sum::<u64>();
    let counted = followed + sum.contended + sum.unfollowed + sum.crowded;
    assert_eq!(counted, u64::from(CORES * SEGMENTS));
    for prefix in sum.prefixes() {
        let late = prefix.out_of_order + prefix.retransmitted;
        assert!(late + prefix.gaps + prefix.flows <= prefix.packets, "{prefix:?}");
    }
}

/// Returns recall and precision for prefixes with more than 1 % of their segments out of order,
/// among 2,000 prefixes. Ten seconds of traffic, where the n-th prefix has traffic in proportion to
/// 1/n. Of the first 76 prefixes, every other one reorders 2 to 8 %, and all other prefixes reorder
/// 0.2 %. Flows have 2 to 5,000 segments, in proportion to 1/n^2.
fn experiment(algorithm: Algorithm, slots_log2: u8, seed: u64) -> (f64, f64) {
    const PREFIXES: u64 = 2000;
    const HEAVY: u64 = 38;
    const PACKETS: u64 = 400_000;
    /// Concurrent flows of a prefix.
    const LANES: u64 = 4;
    /// Late segments per 1,000 segments of the other prefixes.
    const BACKGROUND: u64 = 2;
    let reorders = |prefix: u64| prefix < 2 * HEAVY && prefix.is_multiple_of(2);
    let mut random = Random(seed);
    let mut counting =
        Counting::new(Reordering { algorithm, slots_log2, ..Reordering::DEFAULT }, seed);
    let mut weights = vec![0.0];
    for prefix in 1..=PREFIXES {
        weights.push(weights[weights.len() - 1] + 1.0 / prefix as f64);
    }
    let unit = |random: &mut Random| random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
    let rates = (0..HEAVY * 2).map(|_| 20 + random.below(60)).collect::<Vec<_>>();
    // Per flow: next segment, remaining segments, and a delayed segment.
    let mut flows = HashMap::<(u64, u64), (u16, u32, u64, Option<u32>)>::new();
    for packet in 0..PACKETS {
        let point = unit(&mut random) * weights[weights.len() - 1];
        let prefix = weights.partition_point(|sum| *sum <= point) as u64 - 1;
        let lane = random.below(LANES);
        let flow = flows.entry((prefix, lane)).or_insert_with(|| {
            let length = (2.0 / (1.0 - unit(&mut random))).min(5000.0) as u64;
            ((random.next() as u16) << 2 | lane as u16, random.next() as u32, length, None)
        });
        let permille = if reorders(prefix) { rates[prefix as usize] } else { BACKGROUND };
        let sequence = match flow.3.take() {
            Some(late) => late,
            None if random.below(1000) < permille => {
                flow.3 = Some(flow.1);
                flow.1 = flow.1.wrapping_add(200);
                flow.1.wrapping_sub(100)
            }
            None => {
                flow.1 = flow.1.wrapping_add(100);
                flow.1.wrapping_sub(100)
            }
        };
        let port = flow.0;
        flow.2 -= 1;
        let is_over = flow.2 == 0;
        if is_over {
            flows.remove(&(prefix, lane));
        }
        let flags = if is_over { ACK | FIN } else { ACK };
        let frame = tcp((prefix << 8 | lane) as u32, port, flags, sequence, 100);
        counting.packet(packet * 10_000 * MS / PACKETS, &frame);
    }
    let sum = counting.sum();
    let is_found =
        |found: &&PrefixCounts| found.out_of_order >= 3 && found.out_of_order * 100 > found.packets;
    let found = sum.prefixes().filter(is_found).map(|found| (found.prefix >> 40) & 0xffff);
    let found = found.collect::<HashSet<_>>();
    let right = found.iter().filter(|prefix| reorders(**prefix)).count() as f64;
    (right / HEAVY as f64, if found.is_empty() { 0.0 } else { right / found.len() as f64 })
}

#[test]
fn heavy_prefixes_that_reorder_are_found() {
    // The bounds are the target. Over seeds 1 to 40, hybrid finds 74 to 100 % (mean 86 %), and
    // sampling 66 to 90 % (mean 78 %). Hybrid is below 80 % for five of these seeds; one prefix is
    // 2.6 %.
    let runs = |algorithm| (1..=10).map(|seed| experiment(algorithm, 8, seed)).collect::<Vec<_>>();
    let mean = |runs: &[(f64, f64)]| {
        runs.iter().map(|(recall, _)| recall).sum::<f64>() / runs.len() as f64
    };
    let (hybrid, sampling) = (runs(Algorithm::Hybrid), runs(Algorithm::Sampling));
    let [of_hybrid, of_sampling] = [&hybrid, &sampling].map(|runs| mean(runs));
    println!("hybrid {hybrid:.3?} {of_hybrid:.3}\nsampling {sampling:.3?} {of_sampling:.3}");
    assert!(of_hybrid > of_sampling && of_hybrid >= 0.8, "{hybrid:?}\n{sampling:?}");
    let mut precisions = hybrid.iter().chain(&sampling).map(|(_, precision)| *precision);
    assert!(precisions.all(|precision| precision >= 0.8), "{hybrid:?}\n{sampling:?}");
}

#[test]
fn exact_prefixes_end_with_more_flows_than_are_followed() {
    let counting = Counting::new(SAMPLING, 1);
    let context = Context::new(counting.settings, &counting.tabulation, Sharing::Alone);
    let mut exact = ExactReorder::new(3);
    let mut count = |bank, port, segment: u32| {
        let frame = tcp(1, port, ACK, segment * 100, 100);
        let packet = parse::counted(&frame[..], Link::Ethernet, &counting.settings.headers);
        let mut seen = Observation::of(&Arrival::new(frame.len() as u32, 0));
        seen.note::<false, _>(&context, &frame[..], &packet.unwrap());
        exact.count(bank, &seen);
        exact.has_ended()
    };
    for port in 1..=3 {
        for segment in [0, 2, 1] {
            assert!(!count(0, port, segment));
        }
    }
    // One flow more, in the next window.
    assert!(count(1, 4, 0) && count(1, 1, 3));
    let known = exact.take(0).unwrap();
    let known: Vec<_> =
        known.iter().map(|it| (it.packets, it.out_of_order, it.gaps, it.flows)).collect();
    assert_eq!(known, [(9, 3, 3, 3)]);
    assert_eq!(exact.take(1), None);
}
