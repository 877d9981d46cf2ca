use super::*;
use flowgauge_core::hash::crc32;
use flowgauge_core::heavy::{CountUnit, Item};
use proptest::prelude::*;
use std::collections::HashMap;

type Small = HeavyTable<64>;

fn settings(algorithm: Algorithm) -> Settings {
    Settings { algorithm, slots_log2: 4, ..Settings::DEFAULT }
}

fn count(table: &mut Small, settings: &Settings, flow: u32, bytes: u32) {
    let key = flow.to_be_bytes();
    table.update(
        settings,
        Item { signature: crc32(&key), packets: 1, bytes, key: &FlowKey::new(&key) },
    );
}

#[test]
fn few_flows_have_no_error() {
    for algorithm in [Algorithm::Rap, Algorithm::SpaceSaving] {
        let settings = settings(algorithm);
        let mut table = Small::new();
        for flow in 1..=5 {
            (0..flow).for_each(|_| count(&mut table, &settings, flow, 64));
        }
        let top = top(&table, &settings, 3);
        let exact = |flow: u32| {
            let count = u64::from(flow);
            Flow { key: FlowKey::new(&flow.to_be_bytes()), count, low: count, high: count }
        };
        assert_eq!(
            top,
            Top { flows: [5, 4, 3].map(exact).to_vec(), total: 15, absent: 0 },
            "{}",
            algorithm.name()
        );
    }
}

#[test]
fn equal_counts_are_in_the_order_of_their_keys() {
    let settings = settings(Algorithm::Rap);
    let mut table = Small::new();
    [7, 3, 9, 1, 5].into_iter().for_each(|flow| count(&mut table, &settings, flow, 64));
    let keys: Vec<FlowKey> =
        top(&table, &settings, usize::MAX).flows.iter().map(|flow| flow.key).collect();
    assert_eq!(keys, [1_u32, 3, 5, 7, 9].map(|flow| FlowKey::new(&flow.to_be_bytes())));
}

#[test]
fn an_empty_table_has_no_flows() {
    for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::Off]) {
        assert_eq!(top(&Small::new(), &settings(algorithm), 10), Top::default());
    }
}

#[test]
fn bounds_are_as_narrow_as_the_algorithm_allows() {
    // Seventeen flows for sixteen slots: the last takes the slot of a flow with one packet.
    let settings = settings(Algorithm::SpaceSaving);
    let mut table = Small::new();
    (1..=16).for_each(|flow| count(&mut table, &settings, flow, 64));
    count(&mut table, &settings, 17, 64);
    let top = top(&table, &settings, 1);
    let last = Flow { key: FlowKey::new(&17_u32.to_be_bytes()), count: 2, low: 1, high: 2 };
    assert_eq!(top, Top { flows: vec![last], total: 17, absent: 1 });
}

proptest! {
    #[test]
    fn the_truth_is_within_the_bounds(
        algorithm in prop::sample::select(&Algorithm::ALL),
        unit in prop::sample::select(&CountUnit::ALL),
        cores in prop::collection::vec(prop::collection::vec((0_u32..20, 0_u32..20, 60_u32..1515), 0..600), 1..4),
    ) {
        let settings = Settings { unit, ..settings(algorithm) };
        let (mut merged, mut truth) = (Small::new(), HashMap::<FlowKey, u64>::new());
        for packets in cores {
            let mut table = Small::new();
            for (a, b, bytes) in packets {
                count(&mut table, &settings, a * b, bytes);
                let weight = if unit == CountUnit::Bytes { u64::from(bytes) } else { 1 };
                *truth.entry(FlowKey::new(&(a * b).to_be_bytes())).or_default() += weight;
            }
            merged.merge(&table, &settings);
        }
        let Top { flows, total, absent } = top(&merged, &settings, usize::MAX);
        prop_assert_eq!(total, truth.values().sum::<u64>());
        prop_assert!(flows.is_sorted_by_key(|flow| (Reverse(flow.count), flow.key)));
        for Flow { key, count, low, high } in flows {
            let truth = truth.remove(&key).unwrap();
            prop_assert!(low <= truth && truth <= high && low <= count && count <= high, "{truth} in {low}..{count}..{high}");
        }
        prop_assert!(truth.values().all(|truth| *truth <= absent));
    }
}
