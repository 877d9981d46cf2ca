//! Heavy hitters: every algorithm compared with a slow model of its definition; bounds, merges.

use crate::common::slow_crc;
use flowgauge_core::FlowKey;
use flowgauge_core::hash::{POLYNOMIAL, crc32};
use flowgauge_core::heavy::{
    Algorithm, CountUnit, Entry, Heavy, HeavyTable, Item, PRECISION_STAGES, STAGE_POLYNOMIALS,
    Settings, admission_table,
};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn settings(algorithm: Algorithm, unit: CountUnit, slots_log2: u8) -> Settings {
    Settings { algorithm, unit, slots_log2, ..Settings::DEFAULT }
}

/// A table so small that tests can use many of them.
type Small = HeavyTable<64>;

fn signature(flow: u32) -> u32 {
    crc32(&flow.to_be_bytes())
}

fn key(flow: u32) -> FlowKey {
    FlowKey::new(&flow.to_be_bytes())
}

fn count<const N: usize>(table: &mut HeavyTable<N>, settings: &Settings, packets: &[(u32, u32)]) {
    for &(flow, bytes) in packets {
        let item = Item { signature: signature(flow), packets: 1, bytes, key: &key(flow) };
        table.update(settings, item);
    }
}

fn counted(settings: &Settings, packets: &[(u32, u32)]) -> Small {
    let mut table = Small::new();
    count(&mut table, settings, packets);
    table
}

/// Counts the packets of each core, and merges their tables.
fn merged(settings: &Settings, cores: &[Vec<(u32, u32)>]) -> Small {
    let mut merged = Small::new();
    cores.iter().for_each(|packets| merged.merge(&counted(settings, packets), settings));
    merged
}

/// Returns the largest counts, in order.
fn largest(counts: impl IntoIterator<Item = u64>, number: usize) -> Vec<u64> {
    let mut counts: Vec<u64> = counts.into_iter().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.truncate(number);
    counts
}

fn stage_crc(stage: usize, signature: u32) -> u32 {
    slow_crc(STAGE_POLYNOMIALS[stage], &signature.to_be_bytes())
}

fn coin(signature: u32, packets: u32) -> u32 {
    slow_crc(POLYNOMIAL, &[signature.to_be_bytes(), packets.to_be_bytes()].concat())
}

/// Literal versions of the definitions, which search all slots.
struct Model {
    settings: Settings,
    slots: Vec<Entry>,
    packets: u32,
    total: u64,
}

impl Model {
    fn new(settings: Settings) -> Self {
        let slots = vec![Entry::default(); 1 << settings.slots_log2];
        Model { settings, slots, packets: 0, total: 0 }
    }

    fn count(&mut self, flow: u32, bytes: u32) {
        let signature = signature(flow);
        let weight =
            if self.settings.unit == CountUnit::Bytes { u64::from(bytes.max(1)) } else { 1 };
        self.packets = self.packets.wrapping_add(1);
        self.total += weight;
        if self.settings.algorithm == Algorithm::HashPipe {
            return self.pipe(Entry { signature, key: key(flow), count: weight, inherited: 0 });
        }
        let slots: Vec<usize> = match self.settings.algorithm {
            Algorithm::DWayRap => {
                let sets = self.slots.len() / 8;
                let set = stage_crc(0, signature) as usize % sets;
                (8 * set..8 * set + 8).collect()
            }
            Algorithm::Precision => {
                let stage = self.slots.len() / 2;
                (0..2).map(|i| i * stage + stage_crc(i, signature) as usize % stage).collect()
            }
            _ => (0..self.slots.len()).collect(),
        };
        let held = |slot: &&usize| {
            self.slots[**slot].count > 0 && self.slots[**slot].signature == signature
        };
        if let Some(&slot) = slots.iter().find(held) {
            self.slots[slot].count += weight;
            return;
        }
        let smallest = *slots.iter().min_by_key(|slot| (self.slots[**slot].count, **slot)).unwrap();
        let least = self.slots[smallest].count;
        let coin = coin(signature, self.packets);
        let admitted = match self.settings.algorithm {
            Algorithm::SpaceSaving => true,
            Algorithm::Precision => {
                let zeros =
                    (0..).find(|zeros| u128::from(weight) << zeros > u128::from(least)).unwrap();
                coin.trailing_zeros() >= zeros.min(32)
            }
            _ => u128::from(coin) * u128::from(least + weight) < u128::from(weight) << 32,
        };
        if admitted {
            self.slots[smallest] =
                Entry { signature, key: key(flow), count: least + weight, inherited: least };
        }
    }

    fn pipe(&mut self, mut carried: Entry) {
        let stage_length = self.slots.len() / 4;
        for stage in 0..4 {
            let slice = stage_crc(stage % 2, carried.signature) >> if stage < 2 { 0 } else { 16 };
            let slot = &mut self.slots[stage * stage_length + slice as usize % stage_length];
            if slot.count == 0 {
                *slot = carried;
                return;
            }
            if slot.signature == carried.signature {
                slot.count += carried.count;
                return;
            }
            if stage == 0 || slot.count < carried.count {
                std::mem::swap(slot, &mut carried);
            }
        }
    }
}

fn packets(flows: u32) -> impl Strategy<Value = Vec<(u32, u32)>> {
    // The product of two random numbers makes some flows heavier than others.
    let packet =
        (0..flows, 0..flows, 60_u32..1515).prop_map(move |(a, b, bytes)| (a * b / flows, bytes));
    prop::collection::vec(packet, 0..1500)
}

fn unit() -> impl Strategy<Value = CountUnit> {
    prop::sample::select(&CountUnit::ALL)
}

/// Settings with 16 to 64 slots.
fn any_settings() -> impl Strategy<Value = Settings> {
    (prop::sample::select(&Algorithm::ALL), unit(), 4_u8..=6)
        .prop_map(|(algorithm, unit, slots_log2)| settings(algorithm, unit, slots_log2))
}

fn truth(unit: CountUnit, packets: &[(u32, u32)]) -> HashMap<u32, u64> {
    let mut counts = HashMap::new();
    for &(flow, bytes) in packets {
        *counts.entry(flow).or_default() +=
            if unit == CountUnit::Bytes { u64::from(bytes) } else { 1 };
    }
    counts
}

/// Checks all guarantees of a table, for the flows in it and for others.
fn assert_bounds<const N: usize>(
    table: &HeavyTable<N>,
    settings: &Settings,
    truth: &HashMap<u32, u64>,
) {
    let algorithm = settings.algorithm;
    let entries: Vec<Entry> = table.entries(settings).collect();
    assert_eq!(table.total(), truth.values().sum::<u64>());
    let own = |entry: &Entry| entry.count - entry.inherited;
    let unattributed = table.total() - entries.iter().map(own).sum::<u64>();
    let full = entries.len() == HeavyTable::<N>::slots(settings);
    let smallest = if full { entries.iter().map(|entry| entry.count).min().unwrap() } else { 0 };
    let mut seen = HashSet::new();
    for entry in &entries {
        assert!(seen.insert(entry.key), "{} has {:?} twice", algorithm.name(), entry.key);
        let flow = u32::from_be_bytes(entry.key.as_bytes().try_into().unwrap());
        assert_eq!(entry.signature, signature(flow));
        let truth = truth[&flow];
        let (own, name) = (own(entry), algorithm.name());
        assert!(own > 0 && own <= truth, "{name}: {entry:?}, truth {truth}");
        assert!(truth <= own + unattributed, "{name}: {entry:?}, truth {truth}");
        match algorithm {
            Algorithm::SpaceSaving => assert!(truth <= entry.count, "{entry:?}, truth {truth}"),
            Algorithm::HashPipe => assert_eq!(entry.inherited, 0),
            _ => {}
        }
    }
    for (flow, &truth) in truth.iter().filter(|(flow, _)| !seen.contains(&key(**flow))) {
        assert!(truth <= unattributed, "{}: flow {flow} of {truth} is missing", algorithm.name());
        let fits = algorithm != Algorithm::SpaceSaving || truth <= smallest;
        assert!(fits, "flow {flow} of {truth}, smallest {smallest}");
    }
}

proptest! {
    #[test]
    fn every_slot_is_as_the_definition_has_it(settings in any_settings(), packets in packets(200)) {
        let (mut table, mut model) = (Small::new(), Model::new(settings));
        for packet in packets {
            count(&mut table, &settings, &[packet]);
            model.count(packet.0, packet.1);
        }
        prop_assert_eq!(table.slot_entries(&settings).collect::<Vec<_>>(), model.slots);
        prop_assert_eq!((table.packets(), table.total()), (model.packets, model.total));
    }

    #[test]
    fn bounds_hold_for_every_flow(settings in any_settings(), packets in packets(300)) {
        let table = counted(&settings, &packets);
        assert_bounds(&table, &settings, &truth(settings.unit, &packets));
    }

    #[test]
    fn bounds_hold_for_the_packets_of_all_cores(
        settings in any_settings(), cores in prop::collection::vec(packets(300), 2..5),
    ) {
        let mut merged = merged(&settings, &cores);
        let mut packets = cores.concat();
        assert_bounds(&merged, &settings, &truth(settings.unit, &packets));
        // A merged table continues to count.
        count(&mut merged, &settings, &cores[0]);
        packets.extend(&cores[0]);
        assert_bounds(&merged, &settings, &truth(settings.unit, &packets));
    }

    #[test]
    fn few_flows_are_counted_exactly_on_any_number_of_cores(
        unit in unit(), cores in prop::collection::vec(packets(16), 1..4),
    ) {
        for algorithm in [Algorithm::Rap, Algorithm::SpaceSaving] {
            let settings = settings(algorithm, unit, 4);
            let merged = merged(&settings, &cores);
            let counts: HashMap<FlowKey, u64> = merged.entries(&settings).map(|entry| (entry.key, entry.count)).collect();
            let exact: HashMap<FlowKey, u64> =
                truth(unit, &cores.concat()).into_iter().map(|(flow, count)| (key(flow), count)).collect();
            prop_assert_eq!(counts, exact);
        }
    }

    #[test]
    fn an_entry_has_all_that_its_flow_has_in_slots(
        settings in any_settings(), packets in packets(100),
    ) {
        let table = counted(&settings, &packets);
        let mut sums: HashMap<u32, (u64, u64)> = HashMap::new();
        for entry in table.slot_entries(&settings).filter(|entry| entry.count > 0) {
            let (count, inherited) = sums.entry(entry.signature).or_default();
            *count += entry.count;
            *inherited += entry.inherited;
        }
        let entries: Vec<Entry> = table.entries(&settings).collect();
        prop_assert_eq!(entries.len(), sums.len());
        prop_assert!(entries.iter().all(|entry| sums[&entry.signature] == (entry.count, entry.inherited)));
    }

    #[test]
    fn merging_into_an_empty_table_copies(settings in any_settings(), packets in packets(300)) {
        let (table, mut merged) = (counted(&settings, &packets), Small::new());
        merged.merge(&table, &settings);
        let [ours, theirs] = [&merged, &table].map(|table| {
            let mut entries: Vec<Entry> = table.entries(&settings).collect();
            entries.sort_unstable_by_key(|entry| entry.signature);
            entries
        });
        prop_assert_eq!(ours, theirs);
        prop_assert_eq!((merged.packets(), merged.total()), (table.packets(), table.total()));
        // PRECISION and HashPipe may copy a flow to another stage.
        if !matches!(settings.algorithm, Algorithm::HashPipe | Algorithm::Precision) {
            let least = (merged.least(&settings), merged.least_elsewhere());
            prop_assert_eq!(least, (table.least(&settings), 0));
        }
    }

    #[test]
    fn merging_keeps_the_largest_of_every_set(a in packets(300), b in packets(300)) {
        let settings = settings(Algorithm::DWayRap, CountUnit::Packets, 4);
        let [mut merged, theirs] = [a, b].map(|packets| counted(&settings, &packets));
        let mut sums: HashMap<u32, u64> = HashMap::new();
        for entry in merged.entries(&settings).chain(theirs.entries(&settings)) {
            *sums.entry(entry.signature).or_default() += entry.count;
        }
        merged.merge(&theirs, &settings);
        let kept: HashMap<u32, u64> = merged.entries(&settings).map(|entry| (entry.signature, entry.count)).collect();
        prop_assert!(kept.iter().all(|(signature, count)| sums[signature] == *count));
        for set in 0..2 {
            let of_set = |counts: &HashMap<u32, u64>| {
                let in_set = counts.iter().filter(|(signature, _)| stage_crc(0, **signature) % 2 == set);
                largest(in_set.map(|(_, count)| *count), 8)
            };
            prop_assert_eq!(of_set(&kept), of_set(&sums));
        }
    }

    #[test]
    fn merging_keeps_the_largest_of_all(algorithm in prop::sample::select(vec![Algorithm::Rap, Algorithm::SpaceSaving]),
        a in packets(300), b in packets(300)) {
        let settings = settings(algorithm, CountUnit::Packets, 4);
        let [mine, theirs] = [a, b].map(|packets| counted(&settings, &packets));
        let smallest = |table: &Small| {
            let counts: Vec<u64> = table.entries(&settings).map(|entry| entry.count).collect();
            if algorithm == Algorithm::SpaceSaving && counts.len() == 16 { counts.into_iter().min().unwrap() } else { 0 }
        };
        let counts = |table: &Small| -> HashMap<u32, u64> {
            table.entries(&settings).map(|entry| (entry.signature, entry.count)).collect()
        };
        let (in_mine, in_theirs) = (counts(&mine), counts(&theirs));
        let flows: HashSet<u32> = in_mine.keys().chain(in_theirs.keys()).copied().collect();
        let least = [smallest(&mine), smallest(&theirs)];
        let sums = flows.iter().map(|flow| {
            in_mine.get(flow).unwrap_or(&least[0]) + in_theirs.get(flow).unwrap_or(&least[1])
        });
        let mut merged = mine;
        merged.merge(&theirs, &settings);
        let kept: Vec<u64> = merged.entries(&settings).map(|entry| entry.count).collect();
        prop_assert_eq!(largest(kept, usize::MAX), largest(sums, 16));
    }

    #[test]
    fn the_least_count_is_what_a_new_flow_replaces_and_adds_up(
        algorithm in prop::sample::select(vec![Algorithm::Rap, Algorithm::SpaceSaving, Algorithm::DWayRap]),
        unit in unit(), cores in prop::collection::vec(packets(300), 1..4),
    ) {
        let settings = settings(algorithm, unit, 4);
        let (mut merged, mut sum, mut lone) = (Small::new(), 0, u64::MAX);
        for packets in cores.iter().filter(|packets| !packets.is_empty()) {
            let table = counted(&settings, packets);
            let counts: Vec<u64> = table.slot_entries(&settings).map(|entry| entry.count).collect();
            let ways = if algorithm == Algorithm::DWayRap { 8 } else { 16 };
            let smallest = counts.chunks(ways).map(|set| set.iter().min().unwrap());
            let least = *smallest.max().unwrap();
            prop_assert_eq!((table.least(&settings), table.least_elsewhere()), (least, 0));
            merged.merge(&table, &settings);
            (sum, lone) = (sum + least, lone.min(least));
        }
        // What merging discards comes on top.
        prop_assert!(merged.least(&settings) >= sum);
        prop_assert!(merged.least_elsewhere() >= sum.saturating_sub(lone));
    }

    #[test]
    fn runs_repeat_and_a_cleared_table_is_a_new_one(
        settings in any_settings(), packets in packets(300),
    ) {
        let mut first = counted(&settings, &packets);
        first.clear(&settings);
        prop_assert!(first == Small::new());
        count(&mut first, &settings, &packets);
        prop_assert!(first == counted(&settings, &packets));
    }

    #[test]
    fn the_admission_table_is_the_definition(count: u32, shift in 0_u32..32, coin: u32, zeros in 0_u32..32) {
        let (count, coin) = (count >> shift, coin << zeros);
        let matching: Vec<_> = admission_table().filter(|entry| count & entry.count_mask == entry.count).collect();
        prop_assert_eq!(matching.len(), 1);
        let power = (0..).find(|power| 1_u64 << power > u64::from(count)).unwrap();
        prop_assert_eq!(coin & matching[0].coin_mask == 0, coin.trailing_zeros() >= power);
    }

    /// The algorithm that `p4-notes` gives for a switch: pairs of signature and count plus one,
    /// initially {0, 1}; a second pass writes.
    #[test]
    fn a_switch_has_the_same_table(packets in packets(300)) {
        let settings = settings(Algorithm::Precision, CountUnit::Packets, 6);
        let table = counted(&settings, &packets);
        let mut stages = [[(0_u32, 1_u32); 32]; PRECISION_STAGES];
        'packets: for (number, (flow, _)) in (1..).zip(packets) {
            let signature = signature(flow);
            let index = [0, 1].map(|stage| stage_crc(stage, signature) as usize % 32);
            for stage in 0..2 {
                let (held, count) = &mut stages[stage][index[stage]];
                if *held == signature {
                    *count += 1;
                    continue 'packets;
                }
            }
            let counts = [0, 1].map(|stage: usize| stages[stage][index[stage]].1);
            let stage = usize::from(counts[1] < counts[0]);
            let count = counts[stage] - 1;
            let coin = coin(signature, number);
            if admission_table().any(|entry| count & entry.count_mask == entry.count && coin & entry.coin_mask == 0) {
                stages[stage][index[stage]] = (signature, counts[stage] + 1);
            }
        }
        let switch: Vec<(u32, u64)> =
            stages.as_flattened().iter().map(|&(signature, count)| (signature, u64::from(count) - 1)).collect();
        let software: Vec<(u32, u64)> = table.slot_entries(&settings).map(|entry| (entry.signature, entry.count)).collect();
        prop_assert_eq!(software, switch);
    }
}

#[test]
fn slots_are_chosen_by_known_crcs() {
    // CRC-32 of Ethernet, gzip and PNG, with its check value from the catalogues.
    assert_eq!(STAGE_POLYNOMIALS[0], 0x04c1_1db7);
    assert_eq!(slow_crc(STAGE_POLYNOMIALS[0], b"123456789"), 0xcbf4_3926);
    assert_eq!(slow_crc(POLYNOMIAL, b"123456789"), 0x76dc_f3a1);
}

#[test]
fn settings_are_four_bytes_and_slots_stay_in_the_table() {
    assert_eq!(size_of::<Settings>(), 4);
    assert_eq!(Settings::default(), Settings::DEFAULT);
    let slots = |slots_log2| Settings { slots_log2, ..Settings::DEFAULT }.slots();
    assert_eq!([0, 4, 8, 12, 13, 255].map(slots), [16, 16, 256, 4096, 4096, 4096]);
}

#[test]
fn nothing_is_counted_unless_asked_for() {
    assert!(counted(&Settings::DEFAULT, &[(1, 64), (2, 64)]) == Small::new());
    for algorithm in Algorithm::ALL {
        let settings = settings(algorithm, CountUnit::Packets, 4);
        let mut table = Small::new();
        let item = Item { signature: 7, packets: 1, bytes: 64, key: &key(7) };
        table.update_few_slots(&settings, item);
        assert_eq!(table.total(), u64::from(!algorithm.takes_any_slot()), "{}", algorithm.name());
    }
}

#[test]
fn the_number_of_packets_and_the_total_wrap() {
    for algorithm in Algorithm::ALL {
        let settings = settings(algorithm, CountUnit::Bytes, 4);
        let (mut table, mut model) = (Small::new(), Model::new(settings));
        table.set_totals(u32::MAX - 100, u64::MAX - 1000);
        model.packets = u32::MAX - 100;
        for flow in 0..1000_u32 {
            let (flow, bytes) = (flow % 37, 64 + flow);
            count(&mut table, &settings, &[(flow, bytes)]);
            model.count(flow, bytes);
        }
        assert_eq!(table.packets(), 899);
        assert_eq!(table.total(), model.total - 1001);
        let slots = table.slot_entries(&settings).collect::<Vec<_>>();
        assert_eq!(slots, model.slots, "{}", algorithm.name());
    }
}

#[test]
fn large_counts_are_replaced_as_seldom_as_they_should_be() {
    for algorithm in [Algorithm::DWayRap, Algorithm::Precision] {
        let greatest = (u64::from(u32::MAX) * 20, u32::MAX);
        for (count, bytes) in [(640, 64), (90_000, 9000), (1 << 36, 1 << 31), greatest] {
            let settings = settings(algorithm, CountUnit::Bytes, 4);
            let mut full = counted(&settings, &(0..400).map(|flow| (flow, 64)).collect::<Vec<_>>());
            let entries = full.slot_entries(&settings).collect::<Vec<_>>();
            for (slot, entry) in entries.into_iter().enumerate() {
                full.set_slot(slot, &Entry { count, ..entry });
            }
            let tries = 4_000_u32;
            let is_admitted = |packet: &u32| {
                let (flow, mut table) = (1_000_000 + *packet, full.clone());
                table.set_totals(*packet, 0);
                self::count(&mut table, &settings, &[(flow, bytes)]);
                table != full && table.entries(&settings).any(|entry| entry.key == key(flow))
            };
            let admitted = (0..tries).filter(is_admitted).count() as f64;
            let (total, own) = (count as f64, f64::from(bytes));
            let probability = match algorithm {
                Algorithm::Precision => 2.0_f64.powi(-((total / own).log2().floor() as i32 + 1)),
                _ => own / (total + own),
            };
            let (expected, name) = (f64::from(tries) * probability, algorithm.name());
            let is_near = (admitted - expected).abs() <= 4.0 * expected.sqrt() + 1.0;
            assert!(is_near, "{name} {count} {bytes}: {admitted}, {expected}");
        }
    }
}

#[test]
fn bytes_make_other_flows_heavy_than_packets() {
    // Eight flows of few large packets among a thousand flows of many small ones.
    let packets: Vec<(u32, u32)> = (0..200_000_u32)
        .map(|i| if i % 50 == 0 { (1 + i / 50 % 8, 9000) } else { (1000 + i * 7 % 1009, 64) })
        .collect();
    for algorithm in Algorithm::ALL {
        let top = |unit| {
            let settings = settings(algorithm, unit, 8);
            let mut table = Box::new(Heavy::new());
            count(&mut table, &settings, &packets);
            let mut entries: Vec<Entry> = table.entries(&settings).collect();
            entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.count));
            entries.truncate(8);
            entries
        };
        let large = |entry: &Entry| (1..=8).any(|flow| key(flow) == entry.key);
        let by_bytes = top(CountUnit::Bytes);
        assert!(by_bytes.iter().all(large), "{}: {by_bytes:?}", algorithm.name());
        for entry in by_bytes {
            // 500 packets of 9000 bytes each; the flow had a slot for all but the first few.
            assert!(entry.count - entry.inherited >= 4_000_000, "{}: {entry:?}", algorithm.name());
        }
    }
}
