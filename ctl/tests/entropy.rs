//! Entropies from whole dataplanes: with several workers, and on real traffic, where there is some.
//!
//! `FLOWGAUGE_CAPTURES=DIR` names a directory of captures.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../../dataplane/tests/support/captured.rs"]
mod captured;

use captured::captured;
use flowgauge_core::parse::network;
use flowgauge_core::{Counters, FlowKey, KeyKind, Settings, Shape, SketchKind, entropy};
use flowgauge_ctl::estimate::entropy::{Entropy, estimate};
use flowgauge_dataplane::poll::port::{self, OwnedFrame, Port, Ports, memory};
use flowgauge_dataplane::poll::{Options, Pace};
use flowgauge_dataplane::traffic::Profile;
use flowgauge_dataplane::{Dataplane, Event, Poll, Snapshot, Tables};
use std::collections::HashMap;
use std::path::Path;

fn settings(key: KeyKind, shape: Shape) -> Settings {
    let mut settings = Settings::default();
    settings.entropy[0] = entropy::Settings { mode: SketchKind::CountSketch.into(), key, shape };
    settings
}

fn started<P: Port>(ports: Ports<P>, settings: Settings) -> Poll {
    let mut poll = Poll::new(ports, Options { settings, ..Options::default() });
    poll.install(&Tables::new(&settings, 1)).unwrap();
    poll
}

/// Packets that belong to a flow.
fn packets(counters: &Counters) -> u64 {
    counters.ipv4 + counters.ipv6
}

fn entropy_of(snapshot: &Snapshot, shape: Shape) -> Entropy {
    let Snapshot { bank, sketches, .. } = snapshot;
    estimate(packets(&bank.counters), bank.entropy[0].sum, sketches[0].cells(shape), shape, SketchKind::CountSketch)
}

#[test]
fn workers_together_give_what_one_does() {
    let shape = Shape::new(10, 1024).unwrap();
    let entropy = |workers| {
        let profile: Profile = "zipf,flows=200k,alpha=1,rate=max,packets=1M".parse().unwrap();
        let mut poll = started(memory(profile, workers, Pace::Open), settings(KeyKind::Src, shape));
        while poll.events().unwrap() != [Event::TrafficEnded] {
            std::thread::yield_now();
        }
        let snapshot = poll.rotate().unwrap();
        assert_eq!(packets(&snapshot.bank.counters), 1_000_000);
        entropy_of(&snapshot, shape)
    };
    let one = entropy(1);
    for workers in [2, 4] {
        let several = entropy(workers);
        let difference = (several.bits - one.bits) / one.bits * 100.0;
        println!("{workers} workers: {:.4} bits, one: {:.4}", several.bits, one.bits);
        assert!(difference.abs() < 0.5, "{workers} workers: {difference:+.3} %");
    }
}

fn exact(frames: &[OwnedFrame], key: KeyKind) -> f64 {
    let mut counts: HashMap<FlowKey, u64> = HashMap::new();
    for OwnedFrame { bytes, link, .. } in frames {
        if let Ok(packet) = network(&bytes[..], *link) {
            *counts.entry(key.extract(&bytes[..], &packet)).or_default() += 1;
        }
    }
    let packets: u64 = counts.values().sum();
    let sum: f64 = counts.values().map(|&count| count as f64 * (count as f64).log2()).sum();
    (packets as f64).log2() - sum / packets as f64
}

/// The entropy of these packets in one window, and exactly.
fn measured(frames: &[OwnedFrame], key: KeyKind, shape: Shape) -> (Entropy, f64) {
    let (injector, ports) = port::frames(1);
    let mut poll = started(ports, settings(key, shape));
    injector.feed(frames);
    (entropy_of(&poll.rotate().unwrap(), shape), exact(frames, key))
}

/// Each capture of more than 10,000 packets, and all captures as one.
#[test]
fn captures_at_hand_within_three_percent() {
    let Some(directory) = std::env::var_os("FLOWGAUGE_CAPTURES") else {
        println!("skipped: needs FLOWGAUGE_CAPTURES=DIR");
        return;
    };
    let mut paths: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let captures = paths.iter().map(|path| (path.display().to_string(), captured(path)));
    let mut captures: Vec<(String, Vec<OwnedFrame>)> = captures.filter(|(_, frames)| !frames.is_empty()).collect();
    assert!(!captures.is_empty(), "no captures in {}", Path::new(&directory).display());
    captures.push(("all together".to_owned(), captures.iter().flat_map(|(_, frames)| frames.clone()).collect()));
    let mut long = 0;
    for (name, frames) in &captures {
        long += u32::from(frames.len() > 10_000);
        for (key, shape) in KeyKind::ALL.into_iter().flat_map(|key| [(key, Shape::new(10, 1024).unwrap()), (key, Shape::DEFAULT)]) {
            let (Entropy { bits, low, high, .. }, truth) = measured(frames, key, shape);
            let what = format!("{name}, {} packets, {}, {} rows", frames.len(), key.name(), shape.rows());
            let error = if truth > 0.0 { (bits / truth - 1.0) * 100.0 } else { 0.0 };
            println!("{what}: {bits:.4} bits ({low:.4} to {high:.4}), exactly {truth:.4}, {error:+.2} %");
            assert!((low - 1e-9..=high + 1e-9).contains(&truth), "{what}: {truth} is not in {low}..{high}");
            assert!(frames.len() <= 10_000 || error.abs() <= 3.0, "{what}: {error:+.2} %");
        }
    }
    println!("{} captures, {long} of more than 10,000 packets, the last being all together", captures.len());
}
