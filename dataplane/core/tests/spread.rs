//! Sketches of distinct others compared with a slow model; laws of merging; limits.

use crate::common::{combinations, frame, tabulation, words};
use flowgauge_core::hash::crc32;
use flowgauge_core::packet::transport;
use flowgauge_core::spread::{
    CELL_REGISTERS, Candidate, Contact, ExactSpread, MAX_CELLS, MAX_REGISTERS, MAX_ROWS, OtherKind,
    Pair, Settings, Spread,
};
use flowgauge_core::{
    Arrival, Context, FlowKey, HashMode, HostMeasurement, KeyKind, Link, MAX_EXACT, Measurement,
    Observation, SPREADS, Shared, Sharing, State, Zeroed, cardinality, parse,
};
use flowgauge_traffic::frame::TCP;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Returns settings of this size, for the sources of each destination.
fn sized(rows: usize, columns: usize, registers: usize) -> Settings {
    Settings { on: true, ..Settings::DEFAULT }.sized(rows, columns, registers).unwrap()
}

/// Returns settings with these sketches and no other measurement.
fn measuring(spread: [Settings; SPREADS]) -> flowgauge_core::Settings {
    let off = cardinality::Settings { mode: cardinality::Mode::Off, ..Default::default() };
    flowgauge_core::Settings { spread, ..flowgauge_core::Settings::only(off) }
}

/// Returns sizes of all limits.
fn sizes() -> impl Iterator<Item = (usize, usize, usize)> {
    let all = (1..=MAX_ROWS).flat_map(|rows| {
        (4..=12).flat_map(move |columns| (4..=8).map(move |m| (rows, columns, m)))
    });
    all.map(|(rows, columns, registers)| (rows, 1 << columns, 1 << registers))
}

/// Returns the five-tuple of a packet from `source` to `destination`.
fn five_tuple(source: u32, destination: u32) -> FlowKey {
    let addresses = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    FlowKey::new(&[&addresses[..], &[0; 5]].concat())
}

/// A pair: destination and source.
type DstSrc = (u32, u32);

/// Counts pairs in both sketches of `settings` that are on.
fn count(spread: &mut Spread, settings: &[Settings; SPREADS], pairs: &[DstSrc]) {
    for &(destination, source) in pairs {
        let five_tuple = five_tuple(source, destination);
        let pair = crc32(&[source.to_be_bytes(), destination.to_be_bytes()].concat());
        let keys = [crc32(&destination.to_be_bytes()), crc32(&source.to_be_bytes())];
        for (index, of_sketch) in settings.iter().enumerate().filter(|(_, sketch)| sketch.on) {
            let key = keys[usize::from(of_sketch.by == KeyKind::Src)];
            let contact = Contact { key, pair, five_tuple: &five_tuple };
            spread.update(settings, index, &contact, tabulation());
        }
    }
}

fn counted(settings: &[Settings; SPREADS], pairs: &[DstSrc]) -> Box<Spread> {
    let mut spread = Spread::boxed();
    count(&mut spread, settings, pairs);
    spread
}

/// Returns the bits of all sketches.
fn bits(spread: &Spread, settings: &[Settings; SPREADS]) -> Vec<(Vec<u8>, Vec<Candidate>)> {
    let of_sketch = |index| {
        let sketch = spread.sketch(settings, index);
        (sketch.all_registers().to_vec(), sketch.all_candidates().to_vec())
    };
    (0..SPREADS).map(of_sketch).collect()
}

/// Returns the 64 bits of a signature.
fn row_bits(signature: u32) -> u64 {
    words(tabulation(), 0, signature)
}

/// Registers by row, column and index, and the level, signature and key of each cell's candidate.
type Cells = (BTreeMap<(usize, usize, usize), u8>, BTreeMap<(usize, usize), (u8, u32, u32)>);

/// Counts the sources of destinations by the definition, bit by bit.
fn model(settings: &Settings, pairs: &[DstSrc]) -> Cells {
    let (mut registers, mut candidates) = (BTreeMap::new(), BTreeMap::new());
    let zeros = |bits: u64, from: u32, number: u32| {
        (0..number).take_while(|bit| bits >> (from - 1 - bit) & 1 == 0).count() as u8
    };
    let p = settings.registers.bits();
    for &(destination, source) in pairs {
        let signature = crc32(&destination.to_be_bytes());
        let pair = row_bits(crc32(&[source.to_be_bytes(), destination.to_be_bytes()].concat()));
        let (register, rank) = ((pair >> (64 - p)) as usize, zeros(pair, 64 - p, 32 - p) + 1);
        let level = zeros(pair, 32, 30) + 1;
        for row in 0..settings.shape.rows() {
            let hash = row_bits(signature) >> (16 * row) & 0xffff;
            let column = (hash as usize * settings.shape.columns()) >> 16;
            let highest: &mut u8 = registers.entry((row, column, register)).or_default();
            *highest = rank.max(*highest);
            let candidate: &mut (u8, u32, u32) = candidates.entry((row, column)).or_default();
            *candidate = (level, signature, destination).max(*candidate);
        }
    }
    (registers, candidates)
}

/// Asserts that the first sketch is that of the model.
fn assert_is_the_model(spread: &Spread, settings: &[Settings; SPREADS], pairs: &[DstSrc]) {
    let (registers, candidates) = model(&settings[0], pairs);
    let (sketch, shape) = (spread.sketch(settings, 0), settings[0].shape);
    let of_row = |row| (0..shape.columns()).map(move |column| (row, column));
    for (row, column) in (0..shape.rows()).flat_map(of_row) {
        let ours = sketch.registers(row, column);
        assert_eq!(ours.len(), settings[0].registers.registers());
        for (index, rank) in ours.iter().enumerate() {
            let expected = registers.get(&(row, column, index)).copied().unwrap_or_default();
            assert_eq!(*rank, expected, "register {index} of cell {row}, {column}");
        }
        let ours = sketch.candidate(row, column).map(|candidate| {
            assert_eq!(candidate.column(row, shape), column);
            (candidate.level(), candidate.signature(), *candidate.key())
        });
        let expected = candidates
            .get(&(row, column))
            .map(|&(level, signature, key)| (level, signature, FlowKey::new(&key.to_be_bytes())));
        assert_eq!(ours, expected, "candidate of cell {row}, {column}");
    }
}

#[test]
fn sizes_have_their_limits() {
    let off = Settings::DEFAULT;
    for (rows, columns, registers) in sizes() {
        let cells = rows.next_power_of_two() * columns;
        let fits = cells <= MAX_CELLS && cells * registers <= MAX_REGISTERS;
        let sized = off.sized(rows, columns, registers);
        assert_eq!(sized.is_some(), fits, "{rows} x {columns} x {registers}");
        if let Some(sized) = sized {
            let on = Settings { on: true, ..sized };
            let used = Spread::used(&[on, off]).own;
            assert_eq!(used, cells * (64 + registers), "{rows} x {columns} x {registers}");
            assert!(Settings::problem(&[on, off]).is_none() && used <= size_of::<Spread>());
            // Two of them may not fit.
            let fits = 2 * used <= size_of::<Spread>();
            assert_eq!(Settings::problem(&[on; SPREADS]).is_none(), fits);
        }
    }
    for (rows, columns, registers) in
        [(0, 16, 16), (5, 16, 16), (1, 8, 16), (1, 100, 16), (1, 16, 8), (1, 16, 512), (1, 16, 48)]
    {
        assert!(off.sized(rows, columns, registers).is_none(), "{rows} x {columns} x {registers}");
    }
    assert_eq!(off.sized(3, 512, 64), Some(off));
    assert_eq!(Spread::used(&[off, off]).own, 0);
    assert!(CELL_REGISTERS.contains(&off.registers.registers()));
}

#[test]
fn a_pair_has_a_key_that_contains_both() {
    for (by, of) in combinations(KeyKind::ALL, OtherKind::ALL) {
        let settings = Settings { on: true, by, of, ..Settings::DEFAULT };
        let expected = match (by.name(), of.name()) {
            ("src", "dst") | ("dst", "src") => Some(Pair::Key(KeyKind::SrcDst)),
            ("src" | "dst" | "src-dst", "five-tuple") => Some(Pair::Key(KeyKind::FiveTuple)),
            ("src" | "dst" | "src-dst", "dst-port") => Some(Pair::WithPort),
            _ => None,
        };
        assert_eq!(settings.pair(), expected, "{by:?} of {of:?}");
        let is_possible = Settings::problem(&[Settings::DEFAULT, settings]).is_none();
        assert_eq!(is_possible, expected.is_some(), "{by:?} of {of:?}");
    }
}

#[test]
fn the_greater_signature_wins_among_equal_levels_in_any_order() {
    let settings = [sized(1, 16, 16), Settings::DEFAULT];
    let candidates = |order: &[u32]| {
        let mut spread = Spread::boxed();
        for &destination in order {
            // The same signature of the pair gives the same level.
            let contact = Contact {
                key: crc32(&destination.to_be_bytes()),
                pair: 7,
                five_tuple: &five_tuple(1, destination),
            };
            spread.update(&settings, 0, &contact, tabulation());
        }
        spread.sketch(&settings, 0).candidates().copied().collect::<Vec<_>>()
    };
    let column = |destination: u32| row_bits(crc32(&destination.to_be_bytes())) as u16 >> 12;
    let rivals: Vec<u32> = (0..200).filter(|number| column(*number) == column(0)).collect();
    assert!(rivals.len() > 2, "{rivals:?}");
    let reversed: Vec<u32> = rivals.iter().rev().copied().collect();
    let greatest =
        rivals.iter().copied().max_by_key(|number| crc32(&number.to_be_bytes())).unwrap();
    for order in [rivals, reversed] {
        let [candidate] = candidates(&order)[..] else { panic!("one cell") };
        assert_eq!(*candidate.key(), FlowKey::new(&greatest.to_be_bytes()));
        assert_eq!(candidate.signature(), crc32(&greatest.to_be_bytes()));
        let level = ((row_bits(7) as u32) | 3).leading_zeros() + 1;
        let priority = level << 27 | candidate.signature() >> 5;
        assert_eq!((u32::from(candidate.level()), candidate.priority()), (level, priority));
    }
}

/// The victim has 2,000 sources and a cell 39 pairs of others on average, so that another key has
/// the highest level of all of its three cells once in 100,000 runs; the seed is fixed.
#[test]
fn a_victim_is_among_the_candidates() {
    let settings = [sized(3, 512, 64), Settings::DEFAULT];
    let others = (0..20_000_u32).map(|number| (number.wrapping_mul(0x9e37_79b1), number % 977));
    let victim = (0..2_000).map(|source| (42, source));
    let pairs: Vec<DstSrc> = others.chain(victim).collect();
    let spread = counted(&settings, &pairs);
    let keys: Vec<FlowKey> =
        spread.sketch(&settings, 0).candidates().map(|candidate| *candidate.key()).collect();
    assert!(keys.contains(&FlowKey::new(&42_u32.to_be_bytes())));
    let distinct: BTreeSet<FlowKey> = keys.iter().copied().collect();
    assert_eq!(distinct.len(), keys.len(), "a key is listed once");
}

#[test]
fn a_candidate_is_what_its_parts_make() {
    let settings = [sized(4, 16, 16), Settings::DEFAULT];
    let pairs: Vec<DstSrc> = (0..500).map(|number| (number % 90, number)).collect();
    let spread = counted(&settings, &pairs);
    let candidates: Vec<Candidate> = spread.sketch(&settings, 0).candidates().copied().collect();
    assert!(!candidates.is_empty());
    for candidate in candidates {
        let (level, signature) = (candidate.level(), candidate.signature());
        assert_eq!(candidate, Candidate::new(level, signature, *candidate.key(), tabulation()));
    }
}

#[test]
fn parts_of_a_five_tuple_are_the_keys_of_its_packet() {
    for number in 0..100 {
        let frame = frame(number);
        let packet = parse::network(frame.as_slice(), Link::Ethernet).unwrap();
        let transport = transport(frame.as_slice(), &packet);
        let whole = KeyKind::FiveTuple.extract(&packet, transport);
        for key in KeyKind::ALL {
            assert_eq!(key.within(&whole), key.extract(&packet, transport), "{key:?}");
        }
        assert_eq!(OtherKind::Src.within(&whole), KeyKind::Src.within(&whole));
        assert_eq!(OtherKind::Dst.within(&whole), KeyKind::Dst.within(&whole));
        assert_eq!(OtherKind::FiveTuple.within(&whole), whole);
        let [high, low] = (443 + number % 5).to_be_bytes();
        assert_eq!(OtherKind::DstPort.within(&whole), FlowKey::new(&[high, low, TCP]));
    }
}

/// Frames give the candidates and exact counts of their keys, by every pair and hash.
#[test]
fn frames_are_counted_by_every_pair() {
    for (by, of) in combinations(KeyKind::ALL, OtherKind::ALL) {
        let of_pair = Settings { by, of, ..sized(3, 64, 16) };
        if of_pair.pair().is_none() {
            continue;
        }
        for hash in HashMode::ALL {
            // The second sketch alone, and behind the first one.
            for first in [Settings::DEFAULT, sized(2, 16, 32)] {
                let settings = measuring([first, of_pair]).with_hash(hash);
                let context = Context::new(settings, tabulation(), Sharing::Alone);
                let (mut state, shared) = (State::boxed(), Shared::boxed());
                let mut exact = ExactSpread::new(MAX_EXACT);
                let mut expected: BTreeMap<FlowKey, BTreeSet<FlowKey>> = BTreeMap::new();
                for number in (0..300).chain(100..200) {
                    let (frame, arrival) = (frame(number), Arrival::new(74, 0));
                    let frame = frame.as_slice();
                    state.active(&shared, 0).record(&context, Link::Ethernet, frame, arrival);
                    let packet = parse::network(frame, Link::Ethernet).unwrap();
                    let mut observation = Observation::of(&arrival);
                    match hash {
                        HashMode::Keyed => observation.note::<true, _>(&context, frame, &packet),
                        _ => observation.note::<false, _>(&context, frame, &packet),
                    }
                    exact.count(0, &settings.spread, &observation);
                    let transport = transport(frame, &packet);
                    let whole = KeyKind::FiveTuple.extract(&packet, transport);
                    let key = by.extract(&packet, transport);
                    expected.entry(key).or_default().insert(of.within(&whole));
                }
                let what = format!("{by:?} of {of:?}, {hash:?}");
                let sketch = state.banks[0].spread.sketch(&settings.spread, 1);
                assert!(sketch.candidates().count() > 3, "{what}");
                for candidate in sketch.candidates() {
                    assert!(expected.contains_key(candidate.key()), "{what}");
                    let signature = hash.signature(candidate.key(), tabulation());
                    assert_eq!(candidate.signature(), signature, "{what}");
                }
                let [_, fan_outs] = exact.take(0).unwrap();
                assert!(fan_outs.is_sorted_by(|one, next| one.others >= next.others), "{what}");
                let fan_outs: BTreeMap<FlowKey, u64> =
                    fan_outs.iter().map(|key| (key.key, key.others)).collect();
                let expected: BTreeMap<FlowKey, u64> =
                    expected.into_iter().map(|(key, others)| (key, others.len() as u64)).collect();
                assert_eq!(fan_outs, expected, "{what}");
                assert!(exact.take(0).unwrap().iter().all(Vec::is_empty), "{what}");
            }
        }
    }
}

#[test]
fn exact_pairs_end_with_more_than_are_counted() {
    let settings = [sized(3, 64, 16), Settings::DEFAULT];
    let context = Context::new(measuring(settings), tabulation(), Sharing::Alone);
    let observation = |number| {
        let (frame, arrival) = (frame(number), Arrival::new(74, 0));
        let packet = parse::network(frame.as_slice(), Link::Ethernet).unwrap();
        let mut observation = Observation::of(&arrival);
        observation.note::<false, _>(&context, frame.as_slice(), &packet);
        observation
    };
    let mut exact = ExactSpread::new(10);
    // Ten pairs, each of two packets.
    (0..20).for_each(|number| exact.count(0, &settings, &observation(number % 10)));
    assert!(!exact.has_ended());
    (0..11).for_each(|number| exact.count(1, &settings, &observation(number)));
    assert!(exact.has_ended());
    let [victims, _] = exact.take(0).unwrap();
    assert_eq!(victims.iter().map(|key| key.others).sum::<u64>(), 10);
    assert!(exact.take(1).is_none(), "eleven pairs");
    exact.count(1, &settings, &observation(0));
    assert_eq!(exact.take(1).map(|[victims, _]| victims.len()), Some(1), "another window");
}

/// Few keys and others, so that levels tie and pairs repeat.
fn pairs() -> impl Strategy<Value = Vec<DstSrc>> {
    prop::collection::vec((0..60_u32, 0..40_u32), 0..300)
}

/// Both sketches, so small that keys compete for cells.
fn settings() -> impl Strategy<Value = [Settings; SPREADS]> {
    (1..=MAX_ROWS, 4..=6_u32, 4..=5_u32).prop_map(|(rows, columns, registers)| {
        let victims = sized(rows, 1 << columns, 1 << registers);
        let scans = Settings { by: KeyKind::Src, of: OtherKind::Dst, ..sized(2, 32, 64) };
        [victims, scans]
    })
}

proptest! {
    #[test]
    fn bits_are_those_of_the_model(settings in settings(), pairs in pairs()) {
        let spread = counted(&settings, &pairs);
        assert_is_the_model(&spread, &settings, &pairs);
        // Each sketch is as if it were alone.
        let [victims, scans] = settings;
        let alone = [Settings::DEFAULT, scans];
        prop_assert_eq!(&bits(&counted(&alone, &pairs), &alone)[1], &bits(&spread, &settings)[1]);
        let alone = [victims, Settings::DEFAULT];
        prop_assert_eq!(&bits(&counted(&alone, &pairs), &alone)[0], &bits(&spread, &settings)[0]);
    }

    #[test]
    fn order_and_cores_change_no_bit(settings in settings(), pairs in pairs(), cores in 1..5_usize) {
        let whole = bits(&counted(&settings, &pairs), &settings);
        let reversed: Vec<DstSrc> = pairs.iter().rev().copied().collect();
        prop_assert_eq!(&bits(&counted(&settings, &reversed), &settings), &whole);
        let twice = [&pairs[..], &reversed[..]].concat();
        prop_assert_eq!(&bits(&counted(&settings, &twice), &settings), &whole);
        let mut merged = Spread::boxed();
        for core in 0..cores {
            let seen: Vec<DstSrc> = pairs.iter().skip(core).step_by(cores).copied().collect();
            Spread::merge_core(&mut merged, &counted(&settings, &seen), &settings);
        }
        prop_assert_eq!(&bits(&merged, &settings), &whole);
        Spread::clear_totals(&mut merged, &settings);
        prop_assert_eq!(bits(&merged, &settings), bits(&Spread::boxed(), &settings));
    }

    #[test]
    fn merges_are_a_maximum(settings in settings(), a in pairs(), b in pairs(), c in pairs()) {
        let merged = |parts: &[&[DstSrc]]| {
            let mut sum = Spread::boxed();
            parts.iter().for_each(|part| sum.merge(&counted(&settings, part), &settings));
            sum
        };
        let [a_b, b_a] = [merged(&[&a, &b]), merged(&[&b, &a])];
        prop_assert_eq!(bits(&a_b, &settings), bits(&b_a, &settings), "commutative");
        let (mut left, mut right) = (a_b, merged(&[&a]));
        left.merge(&counted(&settings, &c), &settings);
        right.merge(&merged(&[&b, &c]), &settings);
        prop_assert_eq!(bits(&left, &settings), bits(&right, &settings), "associative");
        left.merge(&right, &settings);
        prop_assert_eq!(bits(&left, &settings), bits(&right, &settings), "idempotent");
    }
}
