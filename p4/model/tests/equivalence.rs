//! flowgauge.p4 in the model against the code that software dataplanes run, bit for bit.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(unreachable_pub, reason = "nothing is reachable in a test binary")]

#[path = "../../../dataplane/tests/conformance/model.rs"]
#[allow(dead_code, reason = "shared with the conformance suite")]
mod definitions;
#[path = "../../../dataplane/tests/conformance/frames.rs"]
#[allow(dead_code, reason = "shared with the conformance suite")]
mod frames;
mod switch;

use flowgauge_core::cardinality::Settings as Cardinality;
use flowgauge_core::{Bank, Context, HashMode, KeyKind, Link, Precision, Settings, State};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::traffic::{Generator, Profile};
use flowgauge_dataplane::{Tables, traffic};
use frames::within_reach_of_a_switch as within_reach;
use proptest::prelude::*;
use switch::Switch;

const SEED: u64 = 7;

fn settings(key: KeyKind, hash: HashMode, p: u8) -> Settings {
    let precision = Precision::new(p).unwrap();
    Settings { cardinality: Cardinality { key, hash, precision, ..Cardinality::default() } }
}

/// What the core counts of frames that are on the wire as they are here.
fn expected<'a>(settings: &Settings, frames: impl IntoIterator<Item = &'a [u8]>) -> Bank {
    let tables = Tables::new(settings, SEED);
    let context = Context { settings: *settings, tabulation: &tables.tabulation };
    let mut state = Box::new(State::new());
    for frame in frames {
        state.record(0, &context, Link::Ethernet, frame, frame.len() as u32, 0);
    }
    state.banks[0]
}

fn assert_same(settings: &Settings, found: &Bank, expected: &Bank, what: &str) {
    let Cardinality { key, hash, precision, .. } = settings.cardinality;
    let what = format!("{what}, {}, {}, {} registers", key.name(), hash.name(), precision.registers());
    assert_eq!(found.counters, expected.counters, "{what}");
    assert!(found.cardinality.levels(precision) == expected.cardinality.levels(precision), "registers differ: {what}");
}

fn check(settings: &Settings, frames: &[OwnedFrame]) {
    let reach = |frame: &&[u8]| settings.cardinality.key != KeyKind::FiveTuple || within_reach(frame);
    let frames: Vec<&[u8]> = frames.iter().map(|frame| frame.bytes.as_slice()).filter(reach).collect();
    let mut switch = Switch::new(settings, SEED);
    frames.iter().for_each(|frame| switch.inject(frame));
    let all = expected(settings, frames.iter().copied());
    let bank = switch.bank(0);
    if bank.counters == all.counters && bank.cardinality == all.cardinality {
        return;
    }
    // Something differs: name the first frame that does.
    for frame in &frames {
        let mut switch = Switch::new(settings, SEED);
        switch.inject(frame);
        assert_same(settings, &switch.bank(0), &expected(settings, [*frame]), &format!("{frame:02x?}"));
    }
    assert_same(settings, &bank, &all, "all frames");
}

#[test]
fn every_key_hash_and_precision() {
    let frames = [frames::random(1, 2000), frames::kinds()].concat();
    for key in KeyKind::ALL {
        for hash in HashMode::ALL {
            for p in [4, 8, 11, 16] {
                check(&settings(key, hash, p), &frames);
            }
        }
    }
}

/// The CRC of four bytes can be chosen freely, so every level can be had, the one of all-zero rank bits too.
#[test]
fn every_level_of_every_precision() {
    for p in 4..=16 {
        let settings = settings(KeyKind::Src, HashMode::Crc32, p);
        let rank_bits = 32 - u32::from(p);
        let crc = |level: u32| level << rank_bits | if level > rank_bits { 0 } else { 1 << (rank_bits - level) };
        let frames: Vec<OwnedFrame> =
            (1..=rank_bits + 1).map(|level| frames::from_source(definitions::bytes_with_crc32(crc(level)))).collect();
        check(&settings, &frames);
        let last = expected(&settings, [frames.last().unwrap().bytes.as_slice()]);
        assert_eq!(last.cardinality.levels(settings.cardinality.precision).iter().max(), Some(&(33 - p)));
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
            let mut packet = frames::ipv4_packet([10, 0, 0, 1], [10, 0, 0, 2], 40, 0, 17, &[1; 8]);
            (packet[0], packet[3]) = (0x40 | ihl, total_length);
            all.push(OwnedFrame::ethernet(frames::ethernet(&[], frames::IPV4, &packet)));
        }
    }
    let mut switch = Switch::new(&settings, SEED);
    for frame in &all {
        let before = switch.bank(0).counters;
        switch.inject(&frame.bytes);
        let (now, one) = (switch.bank(0).counters, expected(&settings, [frame.bytes.as_slice()]).counters);
        let found = (now.ipv4 - before.ipv4, now.bad_header - before.bad_header);
        assert_eq!(found, (one.ipv4, one.bad_header), "{:02x?}", &frame.bytes[14..18]);
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

#[test]
fn a_useful_share_of_frames_is_within_reach() {
    let frames = [frames::random(1, 2000), frames::kinds()].concat();
    let reached = frames.iter().filter(|frame| within_reach(&frame.bytes)).count();
    assert!(reached * 10 > frames.len() * 7, "{reached} of {}", frames.len());
}

#[test]
fn generated_traffic() {
    for text in ["unique", "sequential", "subnets,vlan=7", "zipf,flows=5k,ipv6,size=80", "zipf,flows=1k,alpha=1.3,size=200"] {
        let profile: Profile = text.parse::<traffic::Profile>().unwrap();
        let generator = Generator::new(profile);
        let frame = |index| {
            let mut frame = generator.template().to_vec();
            generator.fill(index, &mut frame);
            OwnedFrame::ethernet(frame)
        };
        check(&settings(KeyKind::Src, HashMode::Tabulated, 11), &(0..5000).map(frame).collect::<Vec<_>>());
    }
}

#[test]
fn windows_are_banks() {
    let settings = settings(KeyKind::Src, HashMode::Tabulated, 8);
    let mut switch = Switch::new(&settings, SEED);
    let frames = frames::random(3, 900);
    let bytes: Vec<&[u8]> = frames.iter().map(|frame| frame.bytes.as_slice()).collect();
    for (window, frames) in bytes.chunks(100).enumerate() {
        let bank = (window % 2) as u8;
        switch.set_bank(bank);
        frames.iter().for_each(|frame| switch.inject(frame));
        assert_same(&settings, &switch.bank(usize::from(bank)), &expected(&settings, frames.iter().copied()), "window");
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
            assert_eq!((sent[0].port, &sent[0].frame), (9, &frame.bytes), "{} {:02x?}", key.name(), frame.bytes);
            assert_eq!(switch.model.inject(4, &frame.bytes).unwrap(), [], "a mirror port");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: prop::test_runner::RngSeed::Fixed(0x5eed),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_frames(seed: u64, key in 0..4_usize, hash in 0..2_usize, p in 4..=16_u8) {
        check(&settings(KeyKind::ALL[key], HashMode::ALL[hash], p), &frames::random(seed, 30));
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
