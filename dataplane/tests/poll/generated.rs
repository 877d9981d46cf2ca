//! Generated traffic: exactly as many packets as configured, and in trace time exactly those before
//! the limit.

use crate::common::{SEED, with_tables};
use crate::poll::capture::polled;
use flowgauge_core::{Precision, Settings};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::poll::{Advance, Options, Pace};
use flowgauge_dataplane::{Dataplane, Event, Poll};
use flowgauge_testing::definitions::{Expected, Model};
use flowgauge_traffic::{Generator, Profile, memory};

fn profile(text: &str) -> Profile {
    text.parse().unwrap()
}

fn frames(profile: &Profile, packets: std::ops::Range<u64>) -> impl Iterator<Item = OwnedFrame> {
    let generator = Generator::new(profile.clone());
    packets.map(move |index| {
        let mut bytes = generator.template().to_vec();
        generator.fill(index, &mut bytes);
        OwnedFrame::ethernet(bytes)
    })
}

#[test]
fn as_fast_as_it_goes_nothing_is_lost_between_windows() {
    const PACKETS: u64 = 1_500_000;
    let mut settings = Settings::default();
    settings.cardinality.precision = Precision::new(13).unwrap();
    for workers in 1..=2 {
        let profile = profile(&format!("unique,rate=max,packets={PACKETS},size=100"));
        let ports = memory(profile.clone(), workers, Pace::Trace);
        let mut poll = with_tables(Poll::new(ports, Options { settings, ..Options::default() }));
        let mut total = Expected::nothing(settings.cardinality.precision);
        let (mut rotations, mut ended) = (0, false);
        loop {
            let window = poll.rotate().unwrap();
            total.unite(&Expected::held(&window.bank, settings.cardinality.precision));
            rotations += 1;
            if ended {
                break;
            }
            ended = poll.events().unwrap() == [Event::TrafficEnded];
        }
        let expected = Model::new(&settings, SEED).expect(frames(&profile, 0..PACKETS));
        assert_eq!(total, expected, "{workers} workers, {rotations} rotations");
        println!("{workers} workers: {rotations} rotations, {PACKETS} packets");
    }
}

#[test]
fn in_trace_time_exactly_the_packets_before_the_limit_count() {
    for text in [
        "zipf,flows=500,rate=1M,packets=20000",
        "unique,rate=30k,packets=20000,burst=0.2,period=10ms",
        "subnets,rate=7,packets=3000,ipv6,vlan=7,size=90",
    ] {
        let profile = profile(text);
        let packets = profile.packets.unwrap();
        let model = Model::new(&Settings::default(), SEED);
        for workers in 1..=3 {
            let mut poll = polled(memory(profile.clone(), workers, Pace::Trace), true);
            let gate = poll.gate();
            let mut counted = 0;
            for number in [0, 1, 2, 3, 255, 256, 257, 1000, packets / 2, packets - 1] {
                for limit in [profile.timestamp(number), profile.timestamp(number) + 1] {
                    let before = (0..packets)
                        .take_while(|&index| profile.timestamp(index) < limit)
                        .count() as u64;
                    let next = profile.timestamp(before);
                    match gate.advance(limit) {
                        Advance::Reached { next: told } => assert_eq!(told, next),
                        stands => assert!(
                            before == packets && matches!(stands, Advance::Ended { .. }),
                            "{stands:?}"
                        ),
                    }
                    let window = poll.rotate().unwrap();
                    let expected = model.expect(frames(&profile, counted..before));
                    let what = format!("{text}, {workers} workers, limit {limit}");
                    assert_eq!(window.bank.counters, expected.counters, "{what}");
                    assert_eq!(window.bank.cardinality.levels(model.precision), expected.levels);
                    let flows = model.flows(frames(&profile, counted..before)).len() as u64;
                    assert_eq!(window.truth.unwrap().window, Some(flows));
                    counted = before;
                }
            }
            let last = Some(profile.timestamp(packets - 1));
            assert_eq!(gate.advance(u64::MAX), Advance::Ended { last });
            assert_eq!(counted + poll.rotate().unwrap().packets_after, packets);
            assert_eq!(poll.events().unwrap(), [Event::TrafficEnded]);
            assert_eq!(poll.source().progress(), Some((packets, packets)));
        }
    }
}
