//! Seeded simulations of windows, counted by the dataplane's own code.

use super::{Entropy, Mixture, estimate, estimate_while_counting, united};
use crate::measurement::alarm::judge::{Options, ShiftDetector, Verdict};
use flowgauge_core::hash::crc32;
use flowgauge_core::logarithm::PER_PACKET;
use flowgauge_core::sketch::{FULL, SLACK};
use flowgauge_core::{
    Entropy as Sum, Grid, SharedSketch, Sharing, SketchKind, SketchTotals, Tabulation,
};
use flowgauge_testing::chance::binomial;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};
use std::collections::HashMap;

/// Distribution of packets over flows.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    Zipf(f64, f64),
    Uniform(u64),
    /// Every packet is a flow of its own.
    Mice,
    /// Zipf over 20,000 flows, with a tenth of the packets as flows of their own.
    Flood,
    /// One flow has half of the packets; every other packet is a flow of its own.
    Half,
}

impl Traffic {
    fn flows(self, packets: u64, seed: u64) -> impl Iterator<Item = u64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let ranks = match self {
            Traffic::Zipf(flows, alpha) => Zipf::new(flows, alpha).unwrap(),
            _ => Zipf::new(20_000.0, 1.0).unwrap(),
        };
        (0..packets).map(move |packet| match self {
            Traffic::Zipf(..) => ranks.sample(&mut random) as u64,
            Traffic::Uniform(flows) => random.random_range(0..flows),
            Traffic::Mice => packet,
            Traffic::Flood if random.random_range(0..10) == 0 => 1_000_000 + packet,
            Traffic::Flood => ranks.sample(&mut random) as u64,
            Traffic::Half if random.random_range(0..2) == 0 => 0,
            Traffic::Half => 1 + packet,
        })
    }
}

/// Window of one entropy.
struct Window {
    sketch: Box<SharedSketch>,
    sum: Sum,
    packets: u64,
    kind: SketchKind,
    shape: Grid,
    tabulation: Box<Tabulation>,
}

impl Window {
    fn new(kind: SketchKind, shape: Grid, seed: u64) -> Self {
        let tabulation = Box::new(Tabulation::from_seed(seed));
        let (sketch, sum) = (Box::new(SharedSketch::new()), Sum::default());
        Window { sketch, sum, packets: 0, kind, shape, tabulation }
    }

    fn add(&mut self, flow: u64) {
        self.packets += 1;
        let Window { sketch, sum, kind, shape, tabulation, .. } = self;
        let crc = crc32(&flow.to_be_bytes());
        sum.update(sketch, Sharing::Alone, *kind, *shape, crc, tabulation);
    }

    fn totals(&self) -> Box<SketchTotals> {
        let mut sketch = Box::new(SketchTotals::new());
        self.sketch.merge_into(&mut sketch, self.kind, self.shape);
        sketch
    }

    /// Returns the entropy, and starts an empty window.
    fn close(&mut self) -> Entropy {
        let sketch = self.totals();
        let entropy = estimate(self.packets, self.sum.sum, &sketch, self.shape, self.kind);
        self.sketch.clear(self.shape);
        (self.sum, self.packets) = (Sum::default(), 0);
        entropy
    }
}

fn exact(counts: &HashMap<u64, u64>) -> f64 {
    let packets: u64 = counts.values().sum();
    let sum: f64 = counts.values().map(|&count| count as f64 * (count as f64).log2()).sum();
    ((packets as f64).log2() - sum / packets as f64).max(0.0)
}

fn shape(rows: usize, columns: usize) -> Grid {
    Grid::of_counters(rows, columns).unwrap()
}

const TRAFFIC: [Traffic; 13] = [
    Traffic::Zipf(200_000.0, 0.8),
    Traffic::Zipf(200_000.0, 1.0),
    Traffic::Zipf(200_000.0, 1.2),
    Traffic::Zipf(1000.0, 1.0),
    Traffic::Zipf(20_000.0, 0.6),
    Traffic::Zipf(20_000.0, 1.5),
    Traffic::Uniform(1),
    Traffic::Uniform(10),
    Traffic::Uniform(1000),
    Traffic::Uniform(20_000),
    Traffic::Mice,
    Traffic::Flood,
    Traffic::Half,
];

/// Returns the maximum difference between the entropy in integers and in floating point, as derived
/// in `dataplane/core/tests/entropy.rs`.
fn allowed_in_integers(packets: u64, quotient: f64) -> f64 {
    let logarithm = (1.0 + 1.0_f64 / 128.0).log2() + 0.0005 + 1.0 / 1024.0;
    logarithm + quotient * (1.01 * logarithm.exp2() * (1.0 + 1.0 / packets as f64) - 1.0)
}

/// Returns whether an interval has the truth, and prints it otherwise.
fn holds(Entropy { low, high, .. }: &Entropy, truth: f64, what: &str) -> bool {
    let holds = (low - 1e-9..=high + 1e-9).contains(&truth);
    if !holds {
        println!("{what}: {truth} not in {low}..{high}");
    }
    holds
}

/// Checks that 95 % intervals contain the truth as often as they claim, within what chance allows,
/// with each of the shapes. Windows are independent trials only for a single shape.
fn assert_coverage(kind: SketchKind, shapes: &[Grid], lengths: &[u64], seeds: u64) {
    let (mut held, mut all) = (vec![0; shapes.len()], 0);
    for traffic in TRAFFIC {
        for (&packets, seed) in
            lengths.iter().flat_map(|packets| (1..=seeds).map(move |seed| (packets, seed)))
        {
            let flows: Vec<u64> = traffic.flows(packets, seed).collect();
            let mut counts = HashMap::new();
            flows.iter().for_each(|&flow| *counts.entry(flow).or_insert(0) += 1);
            let truth = exact(&counts);
            all += 1;
            for (held, &shape) in held.iter_mut().zip(shapes) {
                let mut window = Window::new(kind, shape, seed);
                flows.iter().for_each(|&flow| window.add(flow));
                let entropy = window.close();
                let Entropy { bits, low, high, normalised, in_integers, saturated } = entropy;
                assert!(!saturated);
                let most = (packets as f64).log2();
                assert!([0.0, low, bits, high, most].is_sorted());
                assert!((normalised - bits / most).abs() < 1e-12);
                // Integers neglect a sum of less than a bit per packet.
                let expected = if most - bits < 1.0 { most } else { bits };
                let in_integers = in_integers.unwrap();
                let is_near =
                    (in_integers - expected).abs() <= allowed_in_integers(packets, most - expected);
                assert!(is_near, "{traffic:?}: {bits}, {in_integers} in integers");
                let what = format!("{kind:?} {traffic:?}, {packets} packets, {shape:?}");
                *held += u64::from(holds(&entropy, truth, &what));
            }
        }
    }
    println!("{kind:?}: {held:?} of {all}");
    for (held, shape) in held.into_iter().zip(shapes) {
        assert!(held >= *binomial(all, 0.95).start(), "{shape:?}: {held} of {all}");
    }
}

#[test]
fn intervals_of_count_sketch_hold_the_truth() {
    let shapes = [shape(3, 256), shape(4, 1024), shape(10, 1024)];
    assert_coverage(SketchKind::CountSketch, &shapes, &[500, 5_000, 60_000], 3);
}

#[test]
fn intervals_of_samples_hold_the_truth_of_when_the_sum_was_read() {
    let shape = shape(4, 1024);
    for traffic in TRAFFIC {
        let mut window = Window::new(SketchKind::CountSketch, shape, 1);
        let (mut counts, mut read) = (HashMap::new(), None);
        for (number, flow) in (1..).zip(traffic.flows(6000, 1)) {
            window.add(flow);
            *counts.entry(flow).or_insert(0) += 1;
            if number == 4000 {
                read = Some((window.sum.sum, exact(&counts)));
            }
        }
        let ((sum, truth), sketch) = (read.unwrap(), window.totals());
        let within = |first, last| {
            estimate_while_counting((first, last), sum, &sketch, shape, SketchKind::CountSketch)
        };
        let entropy = within(2000, 6000);
        assert!(holds(&entropy, truth, &format!("{traffic:?}")));
        assert!([entropy.low, entropy.bits, entropy.high].is_sorted());
        let of_all = estimate(6000, sum, &sketch, shape, SketchKind::CountSketch);
        assert_eq!(within(6000, 6000), of_all);
        // The number of packets that arrived later does not belong to the sum.
        if let Traffic::Uniform(1 | 10) = traffic {
            assert!(of_all.low > truth, "{of_all:?} {truth}");
        }
    }
}

#[test]
fn intervals_of_count_min_hold_the_truth() {
    let shapes = [shape(3, 256), shape(4, 1024)];
    assert_coverage(SketchKind::CountMin, &shapes, &[500, 5_000, 60_000], 3);
}

/// Overlap of the flows of a mixture's parts.
#[derive(Clone, Copy, Debug)]
enum Parts {
    Same,
    Apart,
    /// Every other part has flows of its own.
    Mixed,
}

/// Mixtures of parts with the same flows, with different flows, and with some of both.
#[test]
fn intervals_of_mixtures_hold_the_truth() {
    let (mut held, mut all) = (0, 0);
    let (parts, lengths): (_, [&[u64]; 3]) = (
        [Parts::Same, Parts::Apart, Parts::Mixed],
        [&[2000; 6], &[10_000, 50, 10_000, 3000, 1, 700], &[500; 50]],
    );
    for (kind, traffic) in
        SketchKind::ALL.into_iter().flat_map(|kind| TRAFFIC.map(move |traffic| (kind, traffic)))
    {
        for (parts, lengths) in
            parts.into_iter().flat_map(|parts| lengths.map(|lengths| (parts, lengths)))
        {
            let (mut window, mut mixture, mut counts) =
                (Window::new(kind, shape(4, 1024), 1), Mixture::default(), HashMap::new());
            for (part, packets) in (0_u64..).zip(lengths) {
                let own = match parts {
                    Parts::Same => 0,
                    Parts::Apart => part,
                    Parts::Mixed => part % 2 * part,
                };
                for flow in traffic.flows(*packets, part).map(|flow| flow + (own << 40)) {
                    *counts.entry(flow).or_insert(0) += 1;
                    window.add(flow);
                }
                let Entropy { bits, low, high, .. } = window.close();
                mixture.add(*packets, bits, (low, high));
            }
            let truth = exact(&counts);
            let entropy = united(&mixture, false);
            let Entropy { bits, low, high, in_integers, .. } = entropy;
            assert!([0.0, low, bits, high, mixture.packets.log2() + 1e-9].is_sorted());
            assert!(in_integers.is_none());
            all += 1;
            let what = format!("{kind:?} {traffic:?} {parts:?} {} parts", lengths.len());
            held += u64::from(holds(&entropy, truth, &what));
        }
    }
    println!("{held} of {all}");
    assert!(held >= *binomial(all, 0.95).start(), "{held} of {all}");
}

#[test]
fn a_mixture_of_one_part_is_that_part() {
    let mut mixture = Mixture::default();
    mixture.add(1000, 2.25, (2.0, 3.0));
    mixture.add(0, 0.0, (0.0, 0.0));
    assert_eq!(united(&mixture, false).bits, 2.25);
    let near = |(low, high): (f64, f64), least: f64, greatest: f64| {
        (low - least).abs() < 1e-9 && (high - greatest).abs() < 1e-9
    };
    assert!(near(mixture.bounds(), 2.0, 3.0));
    // Two halves differ by at most one bit.
    mixture.add(1000, 2.0, (2.0, 3.0));
    assert!(near(mixture.bounds(), 2.0, 4.0));
    assert_eq!(united(&Mixture::default(), false).bits, 0.0);
}

#[test]
fn intervals_are_narrow_where_the_sketch_is_not_noisy() {
    let traffic = [
        Traffic::Uniform(1),
        Traffic::Uniform(10),
        Traffic::Zipf(1000.0, 1.5),
        Traffic::Uniform(100),
    ];
    let widths = traffic.map(|traffic| {
        let mut window = Window::new(SketchKind::CountSketch, shape(4, 1024), 1);
        traffic.flows(50_000, 1).for_each(|flow| window.add(flow));
        let entropy = window.close();
        format!("{:.3}", entropy.high - entropy.low)
    });
    // The windows are deterministic.
    assert_eq!(widths, ["0.036", "0.073", "0.119", "0.085"]);
}

#[test]
fn windows_of_nothing_and_of_one_packet() {
    let cells = Box::new(SketchTotals::new());
    for kind in SketchKind::ALL {
        assert_eq!(estimate(0, 0, &cells, Grid::COUNTERS, kind), Entropy::ZERO);
        assert_eq!(estimate(1, 0, &cells, Grid::COUNTERS, kind), Entropy::ZERO);
        // Values that no traffic produces give the widest interval.
        let damaged = estimate(1000, u64::MAX, &cells, Grid::COUNTERS, kind);
        assert_eq!((damaged.bits, damaged.low, damaged.high), (0.0, 0.0, 1000_f64.log2()));
    }
}

/// One flow has enough packets to fill its counters, and from then on adds the logarithm of a
/// constant count.
#[test]
fn full_counters_widen_the_interval_downwards() {
    for (kind, full) in
        [(SketchKind::CountSketch, FULL), (SketchKind::CountMin, (u32::MAX - SLACK + 1) as i32)]
    {
        let mut sketch = Box::new(SketchTotals::new());
        sketch.add(kind, 7, full);
        let packets = 1_u64 << 36;
        // Upper bound: every packet counted as the last one before the counter was full.
        let sum = packets * u64::from(PER_PACKET.log2(FULL as u64)) / 1024 * 1024;
        let entropy = estimate(packets, sum, &sketch, Grid::COUNTERS, kind);
        assert!(entropy.saturated && entropy.bits > 4.0, "{kind:?}: {entropy:?}");
        assert_eq!(entropy.low, 0.0, "{kind:?}: {entropy:?}");
        sketch.clear(Grid::COUNTERS);
        assert!(!estimate(packets, sum, &sketch, Grid::COUNTERS, kind).saturated);
    }
}

/// Packets of a window in the tests of the alarm.
const PACKETS: u64 = 8_192;

/// Generator of windows with Zipf sources and destinations; a share of the packets of some windows
/// is a SYN flood from random sources.
struct Link {
    sources: Zipf<f64>,
    destinations: Zipf<f64>,
    random: ChaCha8Rng,
    windows: [Window; 2],
}

impl Link {
    fn new(seed: u64) -> Self {
        let window = || Window::new(SketchKind::CountSketch, Grid::COUNTERS, seed);
        Link {
            sources: Zipf::new(5_000.0, 1.0).unwrap(),
            destinations: Zipf::new(1_000.0, 1.0).unwrap(),
            random: ChaCha8Rng::seed_from_u64(seed),
            windows: [window(), window()],
        }
    }

    /// Returns the entropies of a window in which this share of the packets is a flood.
    fn window(&mut self, packets: u64, share: f64) -> [f64; 2] {
        let Link { sources, destinations, random, windows } = self;
        for _ in 0..packets {
            let flows = if random.random_bool(share) {
                [random.random(), 1 << 40]
            } else {
                [sources.sample(random) as u64, destinations.sample(random) as u64]
            };
            windows.iter_mut().zip(flows).for_each(|(window, flow)| window.add(flow));
        }
        windows.each_mut().map(|window| window.close().bits)
    }

    /// Returns the verdict of an alarm on such a window.
    fn judged(&mut self, alarm: &mut ShiftDetector, packets: u64, share: f64) -> Verdict {
        let [sources, destinations] = self.window(packets, share);
        alarm.judge(packets, sources, destinations)
    }
}

#[test]
fn a_flood_raises_the_alarm_at_once_and_quiet_windows_hardly_ever_do() {
    let mut without_scatter = 0;
    for seed in 1..=3 {
        let mut link = Link::new(seed);
        let mut alarm = ShiftDetector::new(Options::default());
        let mut plain = ShiftDetector::new(Options { scatter: 0.0, ..Options::default() });
        let mut raised = 0;
        for _ in 0..1_000 + Options::default().training {
            let [sources, destinations] = link.window(PACKETS, 0.0);
            raised += u32::from(alarm.judge(PACKETS, sources, destinations) == Verdict::Raised);
            without_scatter +=
                u32::from(plain.judge(PACKETS, sources, destinations) == Verdict::Raised);
        }
        assert!(raised <= 1, "seed {seed}: {raised} false alarms in 1,000 windows");
        let usual = alarm.usual();
        for _ in 0..5 {
            let [sources, destinations] = link.window(PACKETS, 0.1);
            let verdict = alarm.judge(PACKETS, sources, destinations);
            let what = format!("seed {seed}: {sources} and {destinations}, usual {usual:?}");
            assert_eq!(verdict, Verdict::Raised, "{what}");
            assert_eq!(alarm.usual(), usual, "a flood must not become usual");
        }
        let after = link.judged(&mut alarm, PACKETS, 0.0);
        assert_eq!(after, Verdict::Quiet, "over when the flood is");
    }
    println!("without a least deviation: {without_scatter} false alarms in 3,000 windows");
    assert!(without_scatter > 3, "the least deviation is of no use: {without_scatter}");
}

/// Returns how many of 20 floods with a share of the packets raise the alarm in their first window,
/// and the false alarms in the 20 windows before each.
fn floods_seen(packets: u64, share: f64) -> (u32, u32) {
    let (mut seen, mut false_alarms) = (0, 0);
    for seed in 1..=20 {
        let (mut link, mut alarm) = (Link::new(seed), ShiftDetector::new(Options::default()));
        let mut raises =
            |share| u32::from(link.judged(&mut alarm, packets, share) == Verdict::Raised);
        false_alarms += (0..Options::default().training + 20).map(|_| raises(0.0)).sum::<u32>();
        seen += raises(share);
    }
    println!(
        "{packets} packets a window, a flood of {share} of them: {seen} of 20 seen at once, {false_alarms} false alarms in 400 windows"
    );
    (seen, false_alarms)
}

#[test]
fn floods_of_a_tenth_are_seen_in_windows_of_2000_packets_and_of_a_quarter_in_500() {
    let few = floods_seen(500, 0.1);
    let (some, many, quarter) =
        (floods_seen(2_000, 0.1), floods_seen(10_000, 0.1), floods_seen(500, 0.25));
    // Figures of docs/measurements/entropy.md; SPECIFICATION.md guarantees `some` and `quarter`.
    assert_eq!([few.0, some.0, many.0, quarter.0], [6, 20, 20, 20]);
    assert!([few, some, many, quarter].iter().map(|rates| rates.1).sum::<u32>() <= 1);
}

/// Windows of some thousand packets down to a few, and windows that are small occasionally.
#[test]
fn bursts_raise_no_alarm() {
    for any_size in [true, false] {
        let size = |random: &mut ChaCha8Rng, number: u32| {
            if any_size {
                random.random_range(5.0..12.5_f64).exp2() as u64
            } else if number % 20 == 19 {
                150
            } else {
                3_000
            }
        };
        let what = if any_size { "any size" } else { "small now and then" };
        let (mut raised, mut judged) = (0, 0);
        for seed in 1..=5 {
            let (mut link, mut alarm) = (Link::new(seed), ShiftDetector::new(Options::default()));
            let mut random = ChaCha8Rng::seed_from_u64(100 + seed);
            for number in 0..230 {
                let verdict = link.judged(&mut alarm, size(&mut random, number), 0.0);
                judged += u32::from(verdict.judged());
                raised += u32::from(verdict == Verdict::Raised);
            }
        }
        println!("{what}: {raised} false alarms in {judged} windows");
        assert!(raised <= 1 && judged > 600, "{what}: {raised} false alarms in {judged} windows");
    }
}

#[test]
fn nothing_is_raised_while_learning_nor_by_windows_of_few_packets() {
    let mut alarm = ShiftDetector::new(Options::default());
    for window in 0..Options::default().training {
        let bits = f64::from(window);
        assert_eq!(alarm.judge(1_000_000, bits, 20.0 - bits), Verdict::Learning);
    }
    let learned = alarm.clone();
    // A window of one packet has no entropy, and that of one with 99 is mostly chance.
    for packets in [0, 1, 2, 99] {
        assert_eq!(alarm.judge(packets, 1000.0, 0.0), Verdict::TooFewPackets);
    }
    assert_eq!(alarm, learned, "they teach nothing");
    let [sources, destinations] = alarm.usual().unwrap();
    let verdict = |sources, destinations| learned.clone().judge(1_000_000, sources, destinations);
    assert_eq!(verdict(sources.mean + 100.0, destinations.mean), Verdict::Raised);
    assert_eq!(verdict(sources.mean, destinations.mean - 100.0), Verdict::Raised);
    // The opposite change is no flood, and neither is a change of both entropies alike.
    assert_eq!(verdict(sources.mean - 100.0, destinations.mean + 100.0), Verdict::Quiet);
    assert_eq!(verdict(sources.mean + 100.0, destinations.mean + 100.0), Verdict::Quiet);
    assert_eq!(verdict(sources.mean - 100.0, destinations.mean - 100.0), Verdict::Quiet);
    // A minimum of zero does not make windows of one packet judged.
    let mut any = ShiftDetector::new(Options { least: 0, training: 0, ..Options::default() });
    assert_eq!(any.judge(1, 0.0, 0.0), Verdict::TooFewPackets);
    assert_eq!(any.judge(2, 1.0, 0.0), Verdict::Learning);
}

/// Bounds for a switch, which checks the open window: a window's first packets, however many, are
/// within them, and so is a window of twice the packets. A flood of half of the packets exceeds
/// them, in either entropy.
#[test]
fn the_beginning_of_a_usual_window_is_within_the_bounds_and_that_of_a_flood_is_not() {
    const FIRST: u64 = 1_024;
    for seed in 1..=3 {
        let (mut link, mut alarm) = (Link::new(seed), ShiftDetector::new(Options::default()));
        for _ in 0..Options::default().training {
            assert_eq!(alarm.bounds(FIRST), None, "what is usual is being learned");
            link.judged(&mut alarm, PACKETS, 0.0);
        }
        let bounds = alarm.bounds(FIRST).unwrap();
        for packets in (FIRST..=2 * PACKETS).step_by(512) {
            let entropies = link.window(packets, 0.0);
            for ((lowest, highest), bits) in bounds.into_iter().zip(entropies) {
                let what = format!("seed {seed}, {packets} packets: {bits}, usual {bounds:?}");
                assert!((lowest..=highest).contains(&bits), "{what}");
            }
        }
        let [(_, most), (least, _)] = bounds;
        let [sources, destinations] = link.window(PACKETS, 0.5);
        let what = format!("seed {seed}: {sources} and {destinations}, usual {bounds:?}");
        assert!(sources > most && destinations < least, "{what}");
    }
}
