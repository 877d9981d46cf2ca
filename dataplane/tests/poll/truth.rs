//! Exact counts of flows beside tables and sketches, and their limit.

use crate::common::{assert_contains, with_tables};
use flowgauge_core::heavy::{self, Algorithm};
use flowgauge_core::sketch;
use flowgauge_core::{FlowKey, KeyKind, Settings, SketchKind};
use flowgauge_dataplane::poll::{Options, Pace};
use flowgauge_dataplane::{Dataplane, Event, FlowTraffic, Poll};
use flowgauge_traffic::{Generator, Profile, memory};
use std::collections::HashMap;

/// Measures flows by source and by destination.
fn settings() -> Settings {
    let sketch =
        sketch::Settings { mode: SketchKind::CountMin.into(), ..Settings::DEFAULT.frequency };
    Settings {
        heavy: heavy::Settings { algorithm: Algorithm::Rap, ..Settings::DEFAULT.heavy },
        frequency: sketch::Settings { key: KeyKind::Dst, ..sketch },
        ..Settings::DEFAULT
    }
}

fn counting(profile: &Profile, workers: usize, max_exact: usize) -> Poll {
    let options = Options { settings: settings(), truth: true, max_exact, ..Options::default() };
    with_tables(Poll::new(memory(profile.clone(), workers, Pace::Trace), options))
}

/// Returns the packets and bytes of the sources of these packets, read from the frames.
fn sources(profile: &Profile, packets: std::ops::Range<u64>) -> HashMap<FlowKey, FlowTraffic> {
    let generator = Generator::new(profile.clone());
    let mut frame = generator.template().to_vec();
    let mut sources = HashMap::<FlowKey, FlowTraffic>::new();
    for index in packets {
        generator.fill(index, &mut frame);
        let source = sources.entry(FlowKey::new(&frame[26..30])).or_default();
        source.packets += 1;
        source.bytes += frame.len() as u64;
    }
    sources
}

#[test]
fn flows_of_each_window_are_counted_by_the_keys_of_measurements() {
    let profile: Profile = "zipf,flows=300,rate=1k,packets=3000,size=90".parse().unwrap();
    for workers in 1..=3 {
        let mut poll = counting(&profile, workers, Options::default().max_exact);
        let gate = poll.gate();
        let mut first = 0;
        for end in [1000, 1001, 2500, 3000] {
            gate.advance(if end == 3000 { u64::MAX } else { profile.timestamp(end) });
            let sample = poll.sample().unwrap();
            assert!(sample.flows.iter().all(Option::is_none), "samples have none");
            let window = poll.rotate().unwrap();
            let by_source = window.flows_by(KeyKind::Src).unwrap();
            let counted: HashMap<_, _> =
                by_source.each().map(|(key, flow)| (*key, *flow)).collect();
            assert_eq!(counted, sources(&profile, first..end), "{workers} workers, to {end}");
            let destinations = window.flows_by(KeyKind::Dst).unwrap();
            let packets: u64 = destinations.each().map(|(_, flow)| flow.packets).sum();
            assert_eq!(packets, end - first);
            // No measurement counts by these.
            for key in [KeyKind::SrcDst, KeyKind::FiveTuple] {
                assert!(window.flows_by(key).is_none(), "{}", key.name());
            }
            first = end;
        }
    }
}

#[test]
fn more_flows_than_are_counted_have_no_exact_values_and_a_notice() {
    // Each packet has a source of its own, and all have one destination.
    let profile: Profile = "unique,rate=1k,packets=140".parse().unwrap();
    let mut poll = counting(&profile, 2, 50);
    let gate = poll.gate();
    let mut windows = Vec::new();
    for end in [50, 101, 141] {
        gate.advance(profile.timestamp(end));
        let sample = poll.sample().unwrap().truth.unwrap();
        let window = poll.rotate().unwrap();
        let truth = window.truth.unwrap();
        assert_eq!(sample.window, truth.window);
        assert!(window.flows_by(KeyKind::Dst).is_some());
        let by_source = window.flows_by(KeyKind::Src).map(|flows| flows.number());
        windows.push((truth.window, by_source, truth.total));
    }
    // The total has more than 50 from the second window on.
    let exact = [(Some(50), Some(50), Some(50)), (None, None, None), (Some(39), Some(39), None)];
    assert_eq!(windows, exact);
    let notice = |event| if let Event::Notice(notice) = event { Some(notice) } else { None };
    let notices: Vec<String> = poll.events().unwrap().into_iter().filter_map(notice).collect();
    let [flows, total] = &notices[..] else { panic!("{notices:?}") };
    assert_contains(flows, &["up to 50 flows by src in a window"]);
    assert_contains(total, &["up to 50 distinct flows in all"]);
    assert!(poll.events().unwrap().iter().all(|event| !matches!(event, Event::Notice(_))));
}
