//! flowgauge.p4 in the model compared bit for bit with the code that software dataplanes run.

use crate::common::OFF;
use crate::switch::{ROWS, Switch, Window, shape};
use flowgauge_core::Grid;
use flowgauge_core::cardinality::Settings as Cardinality;
use flowgauge_core::entropy::DERIVATIVE_OF_LOG;
use flowgauge_core::logarithm::PER_PACKET;
use flowgauge_core::membership;
use flowgauge_core::sketch::{FULL, SLACK};
use flowgauge_core::spread::{self, OtherKind, Pair};
use flowgauge_core::unopened::CommonEtherType;
use flowgauge_core::{
    Arrival, Context, Counters, HashMode, KeyKind, Link, Precision, SPREADS, Settings, Shared,
    Sharing, SketchKind, State, Tabulation, Zeroed, sketch,
};
use flowgauge_dataplane::Tables;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::definitions;
use flowgauge_testing::extent;
use flowgauge_testing::frames::{
    self, opened_by_a_switch, within_reach_of_a_switch as within_reach,
};
use flowgauge_traffic::{Generator, Profile};
use proptest::prelude::*;

const SEED: u64 = 7;

fn settings(key: KeyKind, hash: HashMode, p: u8) -> Settings {
    let precision = Precision::new(p).unwrap();
    Settings::only(Cardinality { key, precision, ..Cardinality::default() }).with_hash(hash)
}

fn sketch_of(kind: SketchKind, key: KeyKind, column_bits: u32) -> sketch::Settings {
    sketch::Settings { mode: kind.into(), key, shape: shape(column_bits) }
}

fn entropy(kind: SketchKind, key: KeyKind, column_bits: u32) -> Settings {
    let mut settings = OFF;
    settings.entropy[0] = sketch_of(kind, key, column_bits);
    settings
}

fn frequency(kind: SketchKind, key: KeyKind, column_bits: u32) -> Settings {
    Settings { frequency: sketch_of(kind, key, column_bits), ..OFF }
}

fn membership(key: KeyKind, row_bits: u32) -> Settings {
    let shape = Grid::of_bits(ROWS, 1 << row_bits).unwrap();
    Settings { membership: membership::Settings { on: true, key, shape }, ..OFF }
}

/// Returns settings of three rows of this size, if a key has several such others.
fn spread(by: KeyKind, of: OtherKind, columns: usize, registers: usize) -> Option<Settings> {
    let sketch = spread::Settings { on: true, by, of, ..spread::Settings::DEFAULT };
    let sketch = sketch.sized(ROWS, columns, registers).unwrap();
    sketch.pair()?;
    Some(Settings { spread: [sketch, spread::Settings::DEFAULT], ..OFF })
}

fn record(state: &mut State, shared: &Shared, context: &Context<'_>, frame: &[u8]) {
    let arrival = Arrival::new(frame.len() as u32, 0);
    state.active(shared, 0).record(context, Link::Ethernet, frame, arrival);
}

/// Returns what the core counts for these frames.
fn expected<'a>(settings: &Settings, frames: impl IntoIterator<Item = &'a [u8]>) -> Window {
    expected_with(settings, &Tables::new(settings, SEED), frames)
}

/// Returns what the core counts for these frames with these tables.
fn expected_with<'a>(
    settings: &Settings,
    tables: &Tables,
    frames: impl IntoIterator<Item = &'a [u8]>,
) -> Window {
    let context = Context::new(*settings, &tables.tabulation, Sharing::Alone);
    let (mut state, shared) = (State::boxed(), Shared::boxed());
    for frame in frames {
        record(&mut state, &shared, &context, frame);
    }
    let mut window = Window::new();
    read(settings, &state, &shared, &mut window);
    // A switch does not know the EtherType of frames that it does not decode.
    window.bank.unopened = CommonEtherType::default();
    window
}

/// Adds the first bank of a core to a window.
fn read(settings: &Settings, state: &State, shared: &Shared, window: &mut Window) {
    window.bank.merge(&state.banks[0], settings);
    window.bank.merge_shared(&shared.banks[0], settings);
}

fn assert_same(settings: &Settings, found: &Window, expected: &Window, what: &str) {
    let (found, expected) = (&*found.bank, &*expected.bank);
    let what = format!("{what}, {settings:?}");
    assert_eq!(found.counters, expected.counters, "{what}");
    let both = [found, expected];
    let levels = both.map(|bank| bank.cardinality.levels(settings.cardinality.precision));
    assert!(levels[0] == levels[1], "registers differ: {what}");
    let sketches = both.map(|bank| &bank.entropy.sketches);
    assert!(sketches[0] == sketches[1], "the entropy's counters differ: {what}");
    assert_eq!(found.entropy.sums, expected.entropy.sums, "the entropies' sums: {what}");
    let cells = both.map(|bank| bank.frequency.cells(settings.frequency.shape));
    assert!(cells[0] == cells[1], "the frequency's counters differ: {what}");
    let words = both.map(|bank| bank.membership.words(settings.membership.shape));
    assert!(words[0] == words[1], "the filter's bits differ: {what}");
    for index in 0..SPREADS {
        let spreads = both.map(|bank| bank.spread.sketch(&settings.spread, index));
        let registers = spreads.each_ref().map(|sketch| sketch.all_registers());
        assert!(registers[0] == registers[1], "registers of distinct others differ: {what}");
        let candidates = spreads.each_ref().map(|sketch| sketch.all_candidates());
        assert!(candidates[0] == candidates[1], "candidates of distinct others differ: {what}");
    }
}

fn check(settings: &Settings, frames: &[OwnedFrame]) {
    let pairs_with_ports =
        |sketch: &spread::Settings| sketch.on && sketch.pair() == Some(Pair::WithPort);
    let uses_ports =
        settings.uses(KeyKind::FiveTuple) || settings.spread.iter().any(pairs_with_ports);
    let reach = |frame: &&[u8]| opened_by_a_switch(frame) && (!uses_ports || within_reach(frame));
    let frames: Vec<&[u8]> =
        frames.iter().map(|frame| frame.bytes.as_slice()).filter(reach).collect();
    let mut switch = Switch::new(settings, SEED);
    frames.iter().for_each(|frame| switch.inject(frame));
    let all = expected(settings, frames.iter().copied());
    let window = switch.window(0);
    if window == all {
        return;
    }
    // In case of a difference, name the first frame that causes it.
    for frame in &frames {
        let mut switch = Switch::new(settings, SEED);
        switch.inject(frame);
        let alone = expected(settings, [*frame]);
        assert_same(settings, &switch.window(0), &alone, &format!("{frame:02x?}"));
    }
    assert_same(settings, &window, &all, "all frames");
    panic!("something differs that is not in use: {settings:?}");
}

#[test]
fn every_key_hash_and_precision() {
    let frames = [frames::random(1, 2000), frames::kinds()].concat();
    for key in KeyKind::ALL {
        for hash in HashMode::PUBLIC {
            for p in [4, 8, 11, 16] {
                check(&settings(key, hash, p), &frames);
            }
        }
    }
}

/// The CRC of four bytes can be chosen freely, so every level can be reached, including that of
/// all-zero rank bits.
#[test]
fn every_level_of_every_precision() {
    for p in 4..=16 {
        let settings = settings(KeyKind::Src, HashMode::Crc32, p);
        let rank_bits = 32 - u32::from(p);
        let crc = |level: u32| {
            level << rank_bits | if level > rank_bits { 0 } else { 1 << (rank_bits - level) }
        };
        let frames: Vec<OwnedFrame> = (1..=rank_bits + 1)
            .map(|level| frames::from_source(definitions::bytes_with_crc32(crc(level))))
            .collect();
        check(&settings, &frames);
        let last = expected(&settings, [frames.last().unwrap().bytes.as_slice()]).bank;
        let levels = last.cardinality.levels(settings.cardinality.precision);
        assert_eq!(levels.iter().max(), Some(&(33 - p)));
    }
}

#[test]
fn all_zero_rank_bits_behind_tabulation() {
    for p in [11, 16] {
        let settings = settings(KeyKind::Src, HashMode::Tabulated, p);
        let tables = Tables::new(&settings, SEED);
        let crc = (0..u32::MAX).find(|crc| tables.tabulation.hash(*crc) << p == 0).unwrap();
        check(&settings, &[frames::from_source(definitions::bytes_with_crc32(crc))]);
    }
}

#[test]
fn every_header_length_with_every_total_length() {
    let settings = settings(KeyKind::FiveTuple, HashMode::Tabulated, 11);
    let mut all = Vec::new();
    for ihl in 0..16_u8 {
        for total_length in 0..=64_u8 {
            let mut packet = {
                let ip = frames::Ip::new([10, 0, 0, 1], [10, 0, 0, 2], 17);
                frames::Ip { options: &[1; 40], ..ip }.packet(&[1; 8])
            };
            (packet[0], packet[3]) = (0x40 | ihl, total_length);
            all.push(OwnedFrame::ethernet(frames::ethernet(&[], frames::IPV4, &packet)));
        }
    }
    let mut switch = Switch::new(&settings, SEED);
    let tables = Tables::new(&settings, SEED);
    let context = Context::new(settings, &tables.tabulation, Sharing::Alone);
    let (mut state, shared) = (State::boxed(), Shared::boxed());
    for frame in &all {
        switch.inject(&frame.bytes);
        record(&mut state, &shared, &context, &frame.bytes);
        let (found, expected) = (switch.counters(0), state.banks[0].counters);
        let both = |counters: Counters| (counters.ipv4, counters.bad_header);
        assert_eq!(both(found), both(expected), "{:02x?}", &frame.bytes[14..18]);
    }
    check(&settings, &all);
}

#[test]
fn every_precision_compiles_and_counts() {
    let frames = frames::random(2, 300);
    (4..=16).for_each(|p| check(&settings(KeyKind::Src, HashMode::Tabulated, p), &frames));
}

#[test]
fn every_beginning_of_every_kind() {
    let frames = frames::cut_everywhere(&frames::kinds());
    for key in KeyKind::ALL {
        check(&settings(key, HashMode::Tabulated, 11), &frames);
    }
}

/// Returns frames whose flows recur, which random ones rarely do, so that counts grow, in few
/// columns, so that rows differ and become negative.
fn recurring(seed: u64) -> Vec<OwnedFrame> {
    let mut distinct = [frames::random(seed, 60), frames::kinds()].concat();
    distinct.retain(|frame| opened_by_a_switch(&frame.bytes));
    let mut chosen = seed;
    let next = |_| {
        chosen =
            chosen.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (one, other) = ((chosen >> 33) as usize, (chosen >> 48) as usize);
        distinct[(one % distinct.len()).min(other % distinct.len())].clone()
    };
    (0..1500).map(next).collect()
}

#[test]
fn entropy_by_every_key_and_sketch() {
    for key in KeyKind::ALL {
        for kind in SketchKind::ALL {
            for column_bits in [4, 10, 12] {
                check(&entropy(kind, key, column_bits), &recurring(u64::from(column_bits)));
            }
        }
    }
}

/// Every pair of keys, in either order of the program.
#[test]
fn two_entropies_by_every_pair_of_keys() {
    for (number, first) in KeyKind::ALL.into_iter().enumerate() {
        for second in KeyKind::ALL.into_iter().filter(|second| *second != first) {
            let kind = SketchKind::ALL[(number + second as usize) % 2];
            let mut settings = entropy(kind, first, 6);
            settings.entropy[1] = sketch_of(kind, second, 6);
            check(&settings, &recurring(number as u64));
        }
    }
}

#[test]
fn frequencies_by_every_key_and_sketch() {
    for key in KeyKind::ALL {
        for kind in SketchKind::ALL {
            for column_bits in [4, 10, 12] {
                check(&frequency(kind, key, column_bits), &recurring(u64::from(column_bits)));
            }
        }
    }
}

#[test]
fn membership_by_every_key_and_length() {
    let frames = [frames::random(5, 1000), frames::kinds()].concat();
    for key in KeyKind::ALL {
        for row_bits in [6, 7, 11, 16] {
            check(&membership(key, row_bits), &frames);
        }
    }
}

#[test]
fn distinct_others_of_every_key_and_size() {
    let frames = [frames::random(6, 1000), frames::kinds(), recurring(6)].concat();
    for (by, of) in KeyKind::ALL.into_iter().flat_map(|by| OtherKind::ALL.map(|of| (by, of))) {
        for (columns, registers) in [(16, 16), (64, 256)] {
            if let Some(settings) = spread(by, of, columns, registers) {
                check(&settings, &frames);
            }
        }
    }
    for (columns, registers) in [(512, 64), (1024, 128), (1024, 16)] {
        check(&spread(KeyKind::Dst, OtherKind::Src, columns, registers).unwrap(), &frames);
    }
}

/// Returns a frame between two hosts.
fn between(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let mut frame = frames::Ip::new(source, destination, 17).frame(&[0x30, 1, 0, 80, 0, 8, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// The first byte of a CRC alone decides the hash, so that pairs can have every level and rank.
#[test]
fn every_level_and_rank_of_a_pair() {
    let settings = spread(KeyKind::Src, OtherKind::Dst, 16, 16).unwrap();
    let mut rows = *Tabulation::ZERO.rows();
    for (zeros, words) in rows[0][0].iter_mut().enumerate().take(33) {
        *words = ((1_u64 << 27) >> zeros) << 32 | (1_u64 << 31) >> zeros;
    }
    let words = Tabulation::from_words([[0; 256]; 4], rows);
    let tables = Tables { tabulation: words.into(), ..Tables::new(&settings, SEED) };
    let empty = Switch::with(&settings, &tables);
    let source = [10, 0, 0, 1];
    for zeros in 0..=32_u8 {
        // The CRC of a pair is that of the four bytes behind it, run on from the source's.
        let behind = definitions::bytes_with_crc32(u32::from(zeros) << 24);
        let destination = u32::from_le_bytes(behind) ^ definitions::crc32(&source);
        let frame = between(source, destination.to_le_bytes());
        let mut switch = empty.clone();
        switch.inject(&frame);
        let found = switch.window(0);
        let core = expected_with(&settings, &tables, [frame.as_slice()]);
        assert_same(&settings, &found, &core, &format!("{zeros} zeros"));
        let sketch = found.bank.spread.sketch(&settings.spread, 0);
        let levels: Vec<u8> = sketch.candidates().map(|candidate| candidate.level()).collect();
        assert_eq!(levels, [zeros.min(30) + 1]);
        assert_eq!(sketch.all_registers().iter().max(), Some(&(zeros.min(28) + 1)));
    }
}

/// A stateful ALU compares a level and 27 bits of a signature. Software also compares the other
/// five, so that the order of packets does not matter.
#[test]
fn of_two_keys_with_one_priority_the_first_stays() {
    let settings = spread(KeyKind::Src, OtherKind::Dst, 16, 16).unwrap();
    let tables = Tables::new(&settings, SEED);
    let hash = |signature: u32| tables.tabulation.row_block(signature, 0);
    let column = |signature: u32| usize::from(hash(signature) as u16 >> 12);
    let mut pairs = (0..u32::MAX).step_by(2).map(|lower| [lower, lower + 1]);
    let [lower, greater] =
        pairs.find(|[lower, greater]| column(*lower) == column(*greater)).unwrap();
    let sources = [lower, greater].map(definitions::bytes_with_crc32);
    // A destination for each, such that the levels of the pairs are equal.
    let level = |source: [u8; 4], destination: [u8; 4]| {
        let pair = definitions::crc32(&[source, destination].concat());
        (hash(pair) as u32).leading_zeros() + 1
    };
    let frames = sources.map(|source| {
        let mut destinations = (0..u32::MAX).map(u32::to_be_bytes);
        between(source, destinations.find(|other| level(source, *other) == 5).unwrap())
    });
    let candidate = |window: &Window| {
        let sketch = window.bank.spread.sketch(&settings.spread, 0);
        sketch.candidate(0, column(lower)).unwrap().signature()
    };
    for (order, first) in [([0, 1], lower), ([1, 0], greater)] {
        let frames = order.map(|index: usize| frames[index].as_slice());
        let mut switch = Switch::new(&settings, SEED);
        frames.iter().for_each(|frame| drop(switch.model.inject(0, frame).unwrap()));
        assert_eq!(candidate(&switch.window(0)), first, "one pipe");
        // Pipes are merged by software.
        let mut switch = Switch::new(&settings, SEED);
        frames.iter().for_each(|frame| switch.inject(frame));
        assert_eq!(candidate(&switch.window(0)), greater, "two pipes");
        assert_eq!(candidate(&expected(&settings, frames)), greater, "software");
    }
}

/// Shared keys and separate keys, so that every hash is both shared and not.
#[test]
fn all_measurements_together() {
    let (kinds, keys) = (SketchKind::ALL, KeyKind::ALL);
    for round in 0..16 {
        let key = |shift: usize| keys[(round >> shift) % 4 % (1 + round % 4)];
        let mut all = settings(key(0), HashMode::PUBLIC[round % 2], 8);
        all.entropy[0] = sketch_of(kinds[round % 2], key(1), 8);
        // In some rounds with a second entropy.
        if key(1) != key(2) {
            all.entropy[1] = sketch_of(kinds[round % 2], key(2), 8);
        }
        all.frequency = sketch_of(kinds[round / 2 % 2], key(2), 9);
        all.membership = membership(key(3), 10).membership;
        let by = [KeyKind::Src, KeyKind::Dst, KeyKind::SrcDst][round % 3];
        let of = [OtherKind::FiveTuple, OtherKind::DstPort][round % 2];
        all.spread = spread(by, of, 64, 16).unwrap().spread;
        check(&all, &recurring(round as u64));
    }
}

/// Counters at the ends of their range, of both signs and in every order, before one packet.
#[test]
fn every_median_and_minimum() {
    let (large, least, most) = (1 << 30, i32::MIN, i32::MAX);
    let values = [0, 1, 2, 3, -1, -2, 66, large, -large, most - 1, most, least, least + 1];
    // Sources whose three signs differ from one to the next.
    let frames: Vec<OwnedFrame> =
        (1..=61_u32).map(|source| frames::from_source(source.to_be_bytes())).collect();
    for kind in SketchKind::ALL {
        let settings = entropy(kind, KeyKind::Src, 4);
        let tabulation = Tables::new(&settings, SEED).tabulation;
        let mut switch = Switch::new(&settings, SEED);
        let mut added = 0;
        let mut signs_seen = std::collections::BTreeSet::new();
        for (at, [a, b, c]) in combinations(values).into_iter().enumerate() {
            let frame = &frames[at % frames.len()];
            let block = tabulation.row_block(definitions::crc32(&frame.bytes[26..30]), 0);
            let signs = [0, 1, 2].map(|row| {
                if kind == SketchKind::CountMin || block >> (16 * row) & 1 == 0 { 1 } else { -1 }
            });
            signs_seen.insert(signs);
            (0..).zip([a, b, c]).for_each(|(row, value)| switch.fill_row(row, value));
            switch.set_sum(0, 5);
            switch.inject(&frame.bytes);
            let mut counts = [0, 1, 2]
                .map(|row| [a, b, c][row].wrapping_add(signs[row]).wrapping_mul(signs[row]));
            let count = match kind {
                SketchKind::CountSketch => {
                    counts.sort_unstable();
                    counts[1]
                }
                SketchKind::CountMin => counts
                    .map(|count| if count < 0 { i32::MAX } else { count })
                    .into_iter()
                    .min()
                    .unwrap(),
            };
            let term = if count > 1 {
                u64::from(PER_PACKET.log2(count as u64) + DERIVATIVE_OF_LOG)
            } else {
                0
            };
            let pipes = 0..switch.model.pipes();
            let found: u64 = pipes.map(|pipe| switch.sum(KeyKind::Src, 0, pipe) - 5).sum();
            assert_eq!(found, term, "{kind:?} of {a}, {b}, {c} with signs {signs:?}");
            added += u64::from(term > 0);
        }
        assert!(added > 200, "{added}");
        assert_eq!(signs_seen.len(), if kind == SketchKind::CountMin { 1 } else { 8 });
    }
}

fn combinations<const N: usize>(values: [i32; N]) -> Vec<[i32; 3]> {
    let pairs = values.into_iter().flat_map(|a| values.map(|b| (a, b)));
    pairs.flat_map(|(a, b)| values.map(|c| [a, b, c])).collect()
}

#[test]
fn sums_carry_into_their_upper_half() {
    let settings = entropy(SketchKind::CountSketch, KeyKind::Src, 10);
    let mut switch = Switch::new(&settings, SEED);
    let frame = frames::from_source([10, 0, 0, 1]);
    for _ in 0..2 {
        switch.inject(&frame.bytes);
    }
    let term = u64::from(PER_PACKET.log2(3) + DERIVATIVE_OF_LOG);
    let around = [(1_u64 << 32) - 1, 1 << 32, (1 << 32) + 1].map(|sum| sum - term);
    for before in around.into_iter().chain([(7 << 32) - 1, u64::MAX - term]) {
        let mut one = switch.clone();
        one.set_sum(0, before);
        one.inject(&frame.bytes);
        // The other pipe keeps its values.
        let expected = before.saturating_add(term).saturating_add(before);
        assert_eq!(one.window(0).bank.entropy.sums[0].sum, expected, "{before:#x}");
    }
}

/// Switch and core with counters that start at the same value, near or beyond the end of their
/// range.
#[test]
fn counters_near_their_ends_stay_where_they_are() {
    let signed = [FULL - 2, FULL - 1, FULL, FULL + 1, i32::MAX - 5].map(|value| [value, -value]);
    let end = u32::MAX - SLACK;
    let unsigned = [end - 2, end - 1, end, end + 1, u32::MAX - 9].map(|value| value as i32);
    let kinds =
        [(SketchKind::CountSketch, signed.concat()), (SketchKind::CountMin, unsigned.to_vec())];
    let frames: Vec<OwnedFrame> =
        (1..=9_u32).map(|source| frames::from_source(source.to_be_bytes())).collect();
    for (kind, values) in kinds {
        let settings = entropy(kind, KeyKind::Src, 4);
        let tables = Tables::new(&settings, SEED);
        let context = Context::new(settings, &tables.tabulation, Sharing::Shared);
        let mut full = 0;
        for value in values {
            let mut switch = Switch::new(&settings, SEED);
            (0..ROWS).for_each(|row| switch.fill_row(row, value));
            let (mut state, shared) = (State::boxed(), Shared::boxed());
            let other = Shared::boxed();
            for index in 0..settings.entropy[0].shape.cells() {
                [&shared, &other]
                    .iter()
                    .for_each(|shared| shared.banks[0].entropy[0].set(index, value));
            }
            for frame in frames.iter().chain(&frames) {
                switch.inject(&frame.bytes);
                record(&mut state, &shared, &context, &frame.bytes);
            }
            let mut expected = Window::new();
            read(&settings, &state, &shared, &mut expected);
            // The other pipe had nothing to count.
            expected.bank.merge_shared(&other.banks[0], &settings);
            assert_same(&settings, &switch.window(0), &expected, &format!("{kind:?} from {value}"));
            full += expected.bank.entropy.sketches[0].full(settings.entropy[0].shape);
        }
        assert!(full > 48, "{full}");
    }
}

/// Pipes count separately, and add up like cores with separate sketches.
#[test]
fn pipes_add_up() {
    let mut settings = entropy(SketchKind::CountSketch, KeyKind::Src, 8);
    settings.frequency = sketch_of(SketchKind::CountMin, KeyKind::Src, 8);
    settings.membership = membership(KeyKind::Src, 8).membership;
    let frames = recurring(9);
    let bytes: Vec<&[u8]> = frames.iter().map(|frame| frame.bytes.as_slice()).collect();
    let mut switch = Switch::new(&settings, SEED);
    let (first, second) = bytes.split_at(700);
    first.iter().for_each(|frame| drop(switch.model.inject(0, frame).unwrap()));
    second.iter().for_each(|frame| drop(switch.model.inject(128, frame).unwrap()));
    let [mut sum, second] =
        [first, second].map(|frames| expected(&settings, frames.iter().copied()));
    sum.bank.unite(&second.bank, &settings);
    assert_same(&settings, &switch.window(0), &sum, "two pipes");
}

#[test]
fn a_useful_share_of_frames_is_within_reach() {
    let mut frames = [frames::random(1, 2000), frames::kinds()].concat();
    frames.retain(|frame| opened_by_a_switch(&frame.bytes));
    let reached = frames.iter().filter(|frame| within_reach(&frame.bytes)).count();
    assert!(reached * 10 > frames.len() * 7, "{reached} of {}", frames.len());
}

#[test]
fn generated_traffic() {
    for text in [
        "unique",
        "sequential",
        "subnets,vlan=7",
        "zipf,flows=5k,ipv6,size=80",
        "zipf,flows=1k,alpha=1.3,size=200",
    ] {
        let profile: Profile = text.parse().unwrap();
        let generator = Generator::new(profile);
        let frame = |index| {
            let mut frame = generator.template().to_vec();
            generator.fill(index, &mut frame);
            OwnedFrame::ethernet(frame)
        };
        let frames: Vec<OwnedFrame> = (0..5000).map(frame).collect();
        check(&settings(KeyKind::Src, HashMode::Tabulated, 11), &frames);
    }
}

#[test]
fn windows_are_banks() {
    let mut settings = settings(KeyKind::Src, HashMode::Tabulated, 8);
    settings.entropy[0] = sketch_of(SketchKind::CountSketch, KeyKind::SrcDst, 8);
    settings.frequency = sketch_of(SketchKind::CountMin, KeyKind::Dst, 8);
    settings.membership = membership(KeyKind::Src, 8).membership;
    settings.spread = spread(KeyKind::Dst, OtherKind::Src, 64, 16).unwrap().spread;
    let mut switch = Switch::new(&settings, SEED);
    let frames = recurring(3);
    let bytes: Vec<&[u8]> = frames.iter().map(|frame| frame.bytes.as_slice()).collect();
    for (window, frames) in bytes.chunks(100).enumerate() {
        let bank = (window % 2) as u8;
        switch.set_bank(bank);
        frames.iter().for_each(|frame| switch.inject(frame));
        let found = switch.window(usize::from(bank));
        assert_same(&settings, &found, &expected(&settings, frames.iter().copied()), "window");
        switch.clear(usize::from(bank));
    }
}

#[test]
fn forwarded_as_it_came_or_counted_and_dropped() {
    for key in KeyKind::ALL {
        let settings = settings(key, HashMode::Tabulated, 11);
        let mut switch = Switch::new(&settings, SEED);
        switch.forward(3, 9);
        for frame in [frames::random(4, 1000), frames::kinds()].concat() {
            let sent = switch.model.inject(3, &frame.bytes).unwrap();
            assert_eq!(sent.len(), 1);
            let what = format!("{} {:02x?}", key.name(), frame.bytes);
            assert_eq!((sent[0].port, &sent[0].frame), (9, &frame.bytes), "{what}");
            assert_eq!(switch.model.inject(4, &frame.bytes).unwrap(), [], "a mirror port");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: prop::test_runner::RngSeed::Fixed(0x5eed),
        failure_persistence: None,
        ..ProptestConfig::with_cases(extent(64, 256))
    })]

    #[test]
    fn random_frames(seed: u64, key in 0..4_usize, hash in 0..2_usize, p in 4..=16_u8) {
        check(&settings(KeyKind::ALL[key], HashMode::PUBLIC[hash], p), &frames::random(seed, 30));
    }

    #[test]
    fn random_frames_in_sketches(
        seed: u64, key in 0..4_usize, kind in 0..2_usize,
        column_bits in prop::sample::select(vec![4_u32, 8, 12]), row_bits in prop::sample::select(vec![6_u32, 11, 16])
    ) {
        let (key, kind) = (KeyKind::ALL[key], SketchKind::ALL[kind]);
        let mut settings = membership(key, row_bits);
        settings.entropy[0] = sketch_of(kind, key, column_bits);
        settings.frequency = sketch_of(kind, key, column_bits);
        check(&settings, &frames::random(seed, 30));
    }

    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..120), ether_type in prop::sample::select(vec![0x0800_u16, 0x86dd, 0x8100, 0x0806])) {
        let mut bytes = bytes;
        if bytes.len() >= 14 {
            bytes[12..14].copy_from_slice(&ether_type.to_be_bytes());
        }
        check(&settings(KeyKind::FiveTuple, HashMode::Tabulated, 11), &[OwnedFrame::ethernet(bytes)]);
    }
}
