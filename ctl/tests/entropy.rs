//! Entropies of complete dataplanes: with several workers, and on real traffic if available.
//!
//! `TEST_CAPTURES=DIR` names a directory of captures.

use flowgauge_core::hash::crc32;
use flowgauge_core::parse::network;
use flowgauge_core::{
    Counters, FlowKey, Grid, KeyKind, Settings, SharedSketch, Sharing, SketchKind, SketchTotals,
    Tabulation, entropy,
};
use flowgauge_ctl::measurement::alarm::judge::{self, ShiftDetector, Verdict};
use flowgauge_ctl::measurement::entropy::estimate::{Entropy, estimate};
use flowgauge_dataplane::poll::port::{self, OwnedFrame, Port, Ports};
use flowgauge_dataplane::poll::{Options, Pace};
use flowgauge_dataplane::{Dataplane, Event, Poll, Snapshot, Tables};
use flowgauge_testing::chance::{DEVIATIONS, of_mean};
use flowgauge_testing::frames::{captured, captures_at_hand};
use flowgauge_testing::wait::until;
use flowgauge_traffic::{Profile, memory};
use std::collections::{BTreeMap, HashMap};

fn settings(key: KeyKind, shape: Grid) -> Settings {
    let mut settings = Settings::default();
    settings.entropy[0] = entropy::Settings { mode: SketchKind::CountSketch.into(), key, shape };
    settings
}

fn started<P: Port>(ports: Ports<P>, settings: Settings) -> Poll {
    let mut poll = Poll::new(ports, Options { settings, ..Options::default() });
    poll.install(&Tables::new(&settings, 1)).unwrap();
    poll
}

/// Returns the number of packets that belong to a flow.
fn packets(counters: &Counters) -> u64 {
    counters.ipv4 + counters.ipv6
}

fn entropy_of(snapshot: &Snapshot, shape: Grid) -> Entropy {
    let (entropy, packets) = (&snapshot.bank.entropy, packets(&snapshot.bank.counters));
    let kind = SketchKind::CountSketch;
    estimate(packets, entropy.sums[0].sum, &entropy.sketches[0], shape, kind)
}

#[test]
fn workers_together_give_what_one_does() {
    let shape = Grid::of_counters(10, 1024).unwrap();
    let entropy = |workers| {
        let profile: Profile = "zipf,flows=200k,alpha=1,rate=max,packets=1M".parse().unwrap();
        let mut poll = started(memory(profile, workers, Pace::Open), settings(KeyKind::Src, shape));
        until(|| poll.events().unwrap() == [Event::TrafficEnded]);
        let snapshot = poll.rotate().unwrap();
        assert_eq!(packets(&snapshot.bank.counters), 1_000_000);
        entropy_of(&snapshot, shape)
    };
    let one = entropy(1);
    // Workers update the counters in a different order in every run. In twelve runs of this test,
    // four of them on one CPU, the 24 differences that it prints (--nocapture) were at most 0.00030
    // bits, with a deviation of 0.00012. So few may underestimate it by half.
    let deviation = 0.00012 / (1.0 - DEVIATIONS / 48.0_f64.sqrt());
    for workers in [2, 4] {
        let several = entropy(workers);
        let difference = several.bits - one.bits;
        println!("{workers} workers: {difference:+.5} bits");
        let what = format!("{workers} workers: {difference:+.5} bits of {:.5}", one.bits);
        assert!(difference.abs() <= of_mean(deviation, 1), "{what}");
    }
}

/// Returns the flow of a packet by a key.
fn flow(OwnedFrame { bytes, link, .. }: &OwnedFrame, key: KeyKind) -> Option<FlowKey> {
    let packet = network(&bytes[..], *link).ok()?;
    Some(key.extract(&packet, key.transport(&bytes[..], &packet)))
}

fn exact(frames: &[OwnedFrame], key: KeyKind) -> f64 {
    let mut counts: HashMap<FlowKey, u64> = HashMap::new();
    for counted in frames.iter().filter_map(|frame| flow(frame, key)) {
        *counts.entry(counted).or_default() += 1;
    }
    let packets: u64 = counts.values().sum();
    let sum: f64 = counts.values().map(|&count| count as f64 * (count as f64).log2()).sum();
    (packets as f64).log2() - sum / packets as f64
}

/// Returns the entropy of these packets in one window, estimated and exact.
fn measured(frames: &[OwnedFrame], key: KeyKind, shape: Grid) -> (Entropy, f64) {
    let (injector, ports) = port::frames(1);
    let mut poll = started(ports, settings(key, shape));
    injector.feed(frames);
    (entropy_of(&poll.rotate().unwrap(), shape), exact(frames, key))
}

/// Returns the names and frames of captures that have frames; skips the test if there are none.
#[track_caller]
fn captures() -> Option<Vec<(String, Vec<OwnedFrame>)>> {
    let files = captures_at_hand()?;
    let captures = files.iter().map(|path| (path.display().to_string(), captured(path)));
    let captures: Vec<_> = captures.filter(|(_, frames)| !frames.is_empty()).collect();
    assert!(!captures.is_empty(), "no captures in {files:?}");
    Some(captures)
}

/// Each capture of more than 10,000 packets, and all captures as one.
#[test]
fn captures_at_hand_within_three_percent() {
    let Some(mut captures) = captures() else { return };
    let all = captures.iter().flat_map(|(_, frames)| frames.clone()).collect();
    captures.push(("all of them".to_owned(), all));
    let mut long = 0;
    for (name, frames) in &captures {
        long += u32::from(frames.len() > 10_000);
        for (key, shape) in KeyKind::ALL
            .into_iter()
            .flat_map(|key| [(key, Grid::of_counters(10, 1024).unwrap()), (key, Grid::COUNTERS)])
        {
            let (Entropy { bits, low, high, .. }, truth) = measured(frames, key, shape);
            let what =
                format!("{name}, {} packets, {}, {} rows", frames.len(), key.name(), shape.rows());
            let error = if truth > 0.0 { (bits / truth - 1.0) * 100.0 } else { 0.0 };
            println!(
                "{what}: {bits:.4} bits ({low:.4} to {high:.4}), exactly {truth:.4}, {error:+.2} %"
            );
            let interval = low - 1e-9..=high + 1e-9;
            assert!(interval.contains(&truth), "{what}: {truth} is not in {low}..{high}");
            assert!(frames.len() <= 10_000 || error.abs() <= 3.0, "{what}: {error:+.2} %");
        }
    }
    println!(
        "{} captures, {long} of more than 10,000 packets, the last one being all of them",
        captures.len()
    );
}

/// Returns a window's packets and the entropies of its sources and destinations, counted by the
/// dataplane.
fn watched(frames: &[&OwnedFrame], tabulation: &Tabulation) -> (u64, [f64; 2]) {
    let mut packets = 0;
    let bits = [KeyKind::Src, KeyKind::Dst].map(|key| {
        let (kind, shape) = (SketchKind::CountSketch, Grid::COUNTERS);
        let (shared, mut wide) = (Box::new(SharedSketch::new()), Box::new(SketchTotals::new()));
        let mut sum = flowgauge_core::Entropy::default();
        packets = 0;
        for counted in frames.iter().filter_map(|frame| flow(frame, key)) {
            packets += 1;
            let crc = crc32(counted.as_bytes());
            sum.update(&shared, Sharing::Alone, kind, shape, crc, tabulation);
        }
        shared.merge_into(&mut wide, kind, shape);
        estimate(packets, sum.sum, &wide, shape, kind).bits
    });
    (packets, bits)
}

/// Former rule of the alarm, without comparing the spread, for windows of two packets and more.
#[derive(Default)]
struct Former {
    windows: u32,
    usual: [(f64, f64); 2],
}

impl Former {
    fn raises(&mut self, packets: u64, now: [f64; 2]) -> bool {
        if packets < 2 {
            return false;
        }
        let least = 1.5 * (packets as f64).log2() / (12.0 * packets as f64).sqrt();
        let [(sources, of_sources), (destinations, of_destinations)] = self.usual;
        let far = now[0] > sources + 3.5 * of_sources.max(least)
            || now[1] < destinations - 3.5 * of_destinations.max(least);
        if far && self.windows >= 30 {
            return true;
        }
        for ((mean, deviation), now) in self.usual.iter_mut().zip(now) {
            *mean = if self.windows == 0 { now } else { *mean + 0.078_125 * (now - *mean) };
            *deviation += 0.078_125 * ((now - *mean).abs() - *deviation);
        }
        self.windows += 1;
        false
    }
}

/// Real traffic, without floods except for a scan, in windows of every length: each capture by
/// itself, and all as one, which changes completely every few windows. Also with windows of 20
/// packets and more, since most captures are short.
#[test]
fn real_traffic_raises_no_alarm() {
    let Some(captures) = captures() else { return };
    let mut captures: Vec<_> = captures.into_iter().map(|(_, frames)| frames).collect();
    let mut all: Vec<OwnedFrame> = Vec::new();
    for frames in &captures {
        let (first, last) = (frames[0].timestamp, all.last().map_or(0, |frame| frame.timestamp));
        all.extend(frames.iter().map(|frame| {
            let timestamp = last + frame.timestamp.saturating_sub(first);
            OwnedFrame { timestamp, ..frame.clone() }
        }));
    }
    captures.push(all);
    let tabulation = Box::new(Tabulation::from_seed(1));
    let (mut windows, mut former, mut default, mut small) = (0, 0, [0; 2], [0; 2]);
    for milliseconds in [100, 300, 1_000, 3_000, 10_000] {
        for frames in &captures {
            let mut by_window: BTreeMap<u64, Vec<&OwnedFrame>> = BTreeMap::new();
            let first = frames[0].timestamp;
            for frame in frames {
                let window = frame.timestamp.saturating_sub(first) / (milliseconds * 1_000_000);
                by_window.entry(window).or_default().push(frame);
            }
            let options = judge::Options::default();
            let of_least = |least| ShiftDetector::new(judge::Options { least, ..options });
            let mut alarms = [options.least, 20].map(of_least);
            let mut before = Former::default();
            for frames in by_window.values() {
                let (packets, [sources, destinations]) = watched(frames, &tabulation);
                windows += 1;
                former += u32::from(before.raises(packets, [sources, destinations]));
                for (alarm, [raised, judged]) in alarms.iter_mut().zip([&mut default, &mut small]) {
                    let verdict = alarm.judge(packets, sources, destinations);
                    *raised += u32::from(verdict == Verdict::Raised);
                    *judged += u32::from(verdict.judged());
                }
            }
        }
    }
    println!(
        "{windows} windows: the former rule raised {former}; of {} windows judged {} raised the alarm, of {} of 20 packets and more {}",
        default[1], default[0], small[1], small[0]
    );
    let few = 0.01 * f64::from(small[1]);
    assert!(default[0] <= 1 && f64::from(small[0]) <= few, "{default:?} {small:?}");
}
