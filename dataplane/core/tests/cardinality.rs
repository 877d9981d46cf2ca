//! Registers: split, rank table, merge laws, staggering.

use crate::common::{combinations, frame};
use flowgauge_core::cardinality::{self, Cardinality, Mode, Staggered, rank_table};
use flowgauge_core::delay::DelaySamples;
use flowgauge_core::filter::EveryPacket;
use flowgauge_core::sizes::Sizes;
use flowgauge_core::unopened::CommonEtherType;
use flowgauge_core::{
    Arrival, Context, CountFrames, Counters, Delay, ENTROPIES, Entropy, HashMode, Heavy, KeyKind,
    Link, Membership, Observation, Precision, Settings, Shared, Sharing, Sketch, Spread, State,
    Tabulation, Zeroed,
};
use proptest::prelude::*;

fn precision() -> impl Strategy<Value = Precision> {
    (4_u8..=16).prop_map(|p| Precision::new(p).unwrap())
}

#[test]
fn split_known_answers() {
    let p = Precision::default();
    assert_eq!(p.split(0), (0, 22));
    assert_eq!(p.split(u32::MAX), (2047, 1));
    assert_eq!(p.split(1 << 20), (0, 1));
    assert_eq!(p.split(1), (0, 21));
    assert_eq!(p.split((5 << 21) | (1 << 19)), (5, 2));
    assert_eq!(Precision::MIN.split(0), (0, 29));
    assert_eq!(Precision::MAX.split(0), (0, 17));
    assert_eq!(p.max_level(), 22);
}

#[test]
fn precision_accepts_powers_of_two_only() {
    assert_eq!(Precision::from_registers(2048), Some(Precision::default()));
    for registers in [0, 1, 8, 2047, 131_072] {
        assert_eq!(Precision::from_registers(registers), None, "{registers}");
    }
}

#[test]
fn thesis_rank_table_has_21_disjoint_entries() {
    let table: Vec<_> = rank_table(Precision::default()).collect();
    assert_eq!(table.len(), 21);
    assert_eq!((table[0].value, table[0].prefix_length, table[0].level), (1 << 20, 1, 1));
    assert_eq!((table[20].value, table[20].prefix_length, table[20].level), (1, 21, 21));
}

#[test]
fn flows_that_are_all_that_is_measured_give_the_same_bits() {
    let tabulation = Box::new(Tabulation::from_seed(3));
    for mode in [Mode::Off, Mode::Windowed, Mode::Staggered] {
        for (key, hash) in combinations(KeyKind::ALL, HashMode::PUBLIC) {
            let cardinality = cardinality::Settings { mode, key, ..Default::default() };
            let settings = Settings::only(cardinality).with_hash(hash);
            let context = Context::new(settings, &tabulation, Sharing::Alone);
            let shared = Shared::boxed();
            let (mut whole, mut flows) = (State::boxed(), State::boxed());
            for number in 0..256 {
                let (frame, arrival) = (frame(number), Arrival::new(74, u64::from(number)));
                let (frame, link) = (frame.as_slice(), Link::Ethernet);
                whole.active(&shared, 0).record(&context, link, frame, arrival);
                let mut packet = Observation::of(&arrival);
                let mut active = flows.active(&shared, 0);
                let every = EveryPacket;
                if active.observe_flow::<false, _, _>(&context, every, link, frame, &mut packet) {
                    active.measure(&context, &packet);
                }
            }
            assert!(whole == flows, "{settings:?}");
            assert_eq!(whole.banks[0].counters.packets(), 256);
        }
    }
}

proptest! {
    #[test]
    fn rank_table_gives_the_level_of_every_hash(p in precision(), hash: u32) {
        let bits = p.rank_bits();
        let rank = hash & (u32::MAX >> p.bits());
        let matching: Vec<u8> = rank_table(p)
            .filter(|entry| rank >> (bits - entry.prefix_length) == entry.value >> (bits - entry.prefix_length))
            .map(|entry| entry.level)
            .collect();
        let (_, level) = p.split(hash);
        let expected = if rank == 0 { vec![] } else { vec![level] };
        prop_assert_eq!(matching, expected);
        prop_assert!(rank != 0 || level == p.max_level());
    }

    #[test]
    fn merge_is_the_state_of_all_packets(p in precision(), a: Vec<u32>, b: Vec<u32>) {
        let fill = |hashes: &mut dyn Iterator<Item = &u32>| {
            let mut registers = Box::new(Cardinality::new());
            hashes.for_each(|&hash| registers.update(hash, p));
            registers
        };
        let all = fill(&mut a.iter().chain(&b));
        let (mut left, right) = (fill(&mut a.iter()), fill(&mut b.iter()));
        let mut reversed = right.clone();
        reversed.merge(&left, p);
        left.merge(&right, p);
        prop_assert!(left == all && reversed == all);
        left.merge(&all, p);
        prop_assert!(left == all);
        left.clear(p);
        prop_assert!(*left == Cardinality::new());
    }

    #[test]
    fn staggered_registers_hold_exactly_the_last_rounds_hashes(
        p in (4_u8..=6).prop_map(|p| Precision::new(p).unwrap()),
        start: u32,
        mut arrivals in prop::collection::vec((0_u32..400, any::<u32>()), 0..300),
        after in 0_u32..100,
    ) {
        arrivals.sort();
        let mut registers = Box::new(Staggered::new());
        for (offset, hash) in &arrivals {
            registers.update(*hash, p, start.wrapping_add(*offset));
        }
        let now = arrivals.last().map_or(0, |(offset, _)| offset + after);
        let m = p.registers() as u32;
        for (index, level) in registers.levels(p, start.wrapping_add(now)).enumerate() {
            let age = start.wrapping_add(now).wrapping_sub(index as u32) % m;
            let expected = arrivals
                .iter()
                .filter(|(offset, hash)| now - offset <= age && p.split(*hash).0 == index)
                .map(|(_, hash)| p.split(*hash).1)
                .max();
            prop_assert_eq!(level, expected.unwrap_or(0));
        }
    }

    #[test]
    fn staggered_merge_is_the_state_of_all_packets(
        start: u32,
        mut arrivals in prop::collection::vec((0_u32..100, any::<u32>(), any::<bool>()), 0..200),
    ) {
        let p = Precision::MIN;
        arrivals.sort();
        let mut parts = [0; 3].map(|_| Box::new(Staggered::new()));
        for (offset, hash, core) in &arrivals {
            let slot = start.wrapping_add(1 << 12).wrapping_add(*offset);
            parts[usize::from(*core)].update(*hash, p, slot);
            parts[2].update(*hash, p, slot);
        }
        let [mut left, right, all] = parts;
        left.merge(&right, p);
        let now = start.wrapping_add(1 << 12).wrapping_add(100);
        prop_assert!(left.levels(p, now).eq(all.levels(p, now)));
    }
}

/// Numbers of slots of a millisecond wrap every 50 days.
#[test]
fn staggered_registers_go_on_when_the_number_of_slots_wraps() {
    for p in 4..=16 {
        let p = Precision::new(p).unwrap();
        let (m, mut registers, mut merged) =
            (p.registers() as u32, Box::new(Staggered::new()), Box::new(Staggered::new()));
        // Three rounds before and three after the wrap; every register is raised in each of its
        // rounds.
        for step in 0..6 * m {
            let slot = (step).wrapping_sub(3 * m);
            let index = slot % m;
            registers.update(index << (32 - p.bits()) | 1, p, slot);
            if step > 0 && step % m == 0 {
                let mut levels = registers.levels(p, slot);
                assert!(levels.all(|level| level == p.max_level() - 1), "{p:?}, slot {slot:#x}");
                merged.merge(&registers, p);
                let is_same = merged.levels(p, slot).eq(registers.levels(p, slot));
                assert!(is_same, "{p:?}, slot {slot:#x}");
            }
        }
    }
}

#[test]
fn a_cores_state_is_under_sixteen_mebibytes_and_has_no_padding() {
    let counters = size_of::<Counters>() + ENTROPIES * size_of::<Entropy>() + size_of::<Sketch>();
    let registers = size_of::<Cardinality>() + size_of::<Membership>() + size_of::<Spread>();
    let tables = size_of::<Heavy>() + size_of::<Sizes>() + size_of::<Delay>();
    let bank = counters + registers + tables + size_of::<CommonEtherType>();
    let persistent = size_of::<Staggered>() + size_of::<DelaySamples>();
    assert_eq!(size_of::<State>(), 2 * bank + persistent);
    assert!(size_of::<State>() <= 16 << 20);
}

#[test]
fn the_specification_tells_what_cores_take() {
    let core = size_of::<State>() as f64 / f64::from(1 << 20);
    let shared = size_of::<Shared>() as f64 / 1024.0;
    let told = format!("{core:.1} MiB for each core and {shared:.0} KiB shared by all cores");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SPECIFICATION.md");
    let specification = std::fs::read_to_string(path).unwrap();
    assert!(specification.contains(&told), "SPECIFICATION.md does not contain '{told}'");
}
