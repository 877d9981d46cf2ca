//! Heavy hitters in the model compared with their definition, slot by slot.

use crate::common::{add, call, counted, exact, set_default};
use flowgauge_bfruntime::codec::PRIORITY;
use flowgauge_bfruntime::{Match, Pipes};
use flowgauge_core::KeyKind;
use flowgauge_core::heavy::admission_table;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_p4_model::{Model, Options};
use flowgauge_testing::definitions::{Verdict, crc32, verdict};
use flowgauge_testing::frames;
use std::ops::Range;

const FRAMES: &str = "pipe.Ingress.flowgauge.counters.frames";
const BANK: &str = "pipe.Ingress.flowgauge.bank";

#[derive(Clone, Debug, Default, PartialEq)]
struct Slot {
    signature: u32,
    count: u32,
    inherited: u32,
    /// Key in words, as the switch stores it.
    key: Vec<u64>,
}

/// Definition: two stages, in which the smaller count is replaced with a probability that is a
/// power of two.
struct Definition {
    bits: u32,
    stages: [Vec<Slot>; 2],
    packets: u32,
    replaced: usize,
}

/// Computes a CRC with reflected input and output, initial value and final XOR all ones, bit by
/// bit.
fn crc(polynomial: u32, bytes: &[u8]) -> u32 {
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |bit| u32::from(byte >> bit & 1)));
    !bits
        .fold(u32::MAX, |state, bit| (state << 1) ^ (((state >> 31) ^ bit) * polynomial))
        .reverse_bits()
}

impl Definition {
    fn new(slot_bits: u32) -> Self {
        let bits = slot_bits - 1;
        Definition {
            bits,
            stages: [vec![Slot::default(); 1 << bits], vec![Slot::default(); 1 << bits]],
            packets: 0,
            replaced: 0,
        }
    }

    fn count(&mut self, key: &[u8], kind: KeyKind) {
        let signature = crc32(key);
        self.packets += 1;
        let word = signature.to_be_bytes();
        let index = |polynomial| (crc(polynomial, &word) & ((1 << self.bits) - 1)) as usize;
        let indices = [index(0x04c1_1db7), index(0x6b8c_b0c5)];
        for stage in [0, 1] {
            let slot = &mut self.stages[stage][indices[stage]];
            if slot.signature == signature && slot.count > 0 {
                slot.count += 1;
                return;
            }
        }
        let counts = [0, 1].map(|stage| self.stages[stage][indices[stage]].count);
        let stage = usize::from(counts[1] < counts[0]);
        let count = counts[stage];
        let coin = crc(0x7909_00f3, &[word, self.packets.to_be_bytes()].concat());
        let zeros = (0..32).find(|zeros| 1_u64 << zeros > u64::from(count)).unwrap();
        if coin & ((1_u64 << zeros) - 1) as u32 == 0 {
            self.replaced += usize::from(count > 0);
            self.stages[stage][indices[stage]] =
                Slot { signature, count: count + 1, inherited: count, key: words(key, kind) };
        }
    }
}

/// Returns the IP version, addresses of four words (an IPv4 address is the last one), ports and
/// protocol.
fn words(key: &[u8], kind: KeyKind) -> Vec<u64> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let is_ipv4 = key.len() == kind.lengths()[0];
    let addresses = if matches!(kind, KeyKind::Src | KeyKind::Dst) { 1 } else { 2 };
    let (addresses, service) = key.split_at(addresses * if is_ipv4 { 4 } else { 16 });
    let address = |address: &[u8]| [vec![0; 16 - address.len()], address.to_vec()].concat();
    let addresses: Vec<u8> =
        addresses.chunks(if is_ipv4 { 4 } else { 16 }).flat_map(address).collect();
    let words = addresses.chunks(4).chain(service.chunks(4)).map(number);
    std::iter::once(if is_ipv4 { 4 } else { 6 }).chain(words).collect()
}

struct Lab {
    model: Model,
    name: String,
    bits: u32,
    key: KeyKind,
}

impl Lab {
    fn new(key: KeyKind, slot_bits: u32, everything: bool) -> Self {
        let mut options = Options::default()
            .define("FLOWGAUGE_HEAVY", 1)
            .define("FLOWGAUGE_HEAVY_KEY", key as u8)
            .define("FLOWGAUGE_HEAVY_SLOT_BITS", slot_bits);
        for other in ["FLOWGAUGE_ENTROPY", "FLOWGAUGE_FREQUENCY", "FLOWGAUGE_MEMBERSHIP"] {
            options = options.define(other, u8::from(everything));
        }
        let mut model = Model::flowgauge(&options).unwrap();
        let (path, key_kind) =
            (format!("Ingress.flowgauge.heavy_by_{}", key.name().replace('-', "_")), key);
        for (priority, admission) in (0_u32..).zip(admission_table()) {
            let ternary = |value: u32, mask: u32| Match::Ternary {
                value: value.to_be_bytes().to_vec(),
                mask: mask.to_be_bytes().to_vec(),
            };
            let key = [
                ("count".to_owned(), ternary(admission.count, admission.count_mask)),
                ("coin".to_owned(), ternary(0, admission.coin_mask)),
                (PRIORITY.to_owned(), Match::Exact(priority.to_be_bytes().to_vec())),
            ];
            let (table, action) = (format!("pipe.{path}.admission"), format!("{path}.admit"));
            add(&mut model, &table, key.into(), call(&action, &[]));
        }
        Lab { model, name: format!("pipe.{path}"), bits: slot_bits - 1, key: key_kind }
    }

    fn forward(&mut self, from: u16, to: u16) {
        let key = exact("ingress_port", &from.to_be_bytes());
        let send = call("Ingress.forward.send", &[("port", &to.to_be_bytes())]);
        add(&mut self.model, "pipe.Ingress.forward.ports", key, send);
    }

    fn set_bank(&mut self, bank: u8) {
        let set_bank = call("Ingress.flowgauge.set_bank", &[("bank", &[bank])]);
        set_default(&mut self.model, BANK, set_bank);
    }

    /// Reads elements of a register in the first pipe.
    fn read(&self, register: &str, field: usize, elements: Range<usize>) -> Vec<u64> {
        let register = format!("{}.{register}", self.name);
        self.model.register_range(&register, field, elements, 0).unwrap()
    }

    fn stage(&self, stage: usize, bank: usize) -> Vec<Slot> {
        let (name, of_bank) = (format!("flows{stage}"), bank << self.bits..(bank + 1) << self.bits);
        let flows = [0, 1].map(|field| self.read(&name, field, of_bank.clone()));
        // Slots of both stages.
        let first = (2 * bank + stage) << self.bits;
        let both = |register: &str| {
            [0, 1].map(|field| self.read(register, field, first..first + (1 << self.bits)))
        };
        let [inherited, version] = both("origin");
        let tables: &[&str] = match self.key {
            KeyKind::Src => &["src_upper", "src_lower"],
            KeyKind::Dst => &["dst_upper", "dst_lower"],
            KeyKind::SrcDst => &["src_upper", "src_lower", "dst_upper", "dst_lower"],
            KeyKind::FiveTuple => &["src_upper", "src_lower", "dst_upper", "dst_lower", "service"],
        };
        let words: Vec<Vec<u64>> =
            std::iter::once(version).chain(tables.iter().flat_map(|table| both(table))).collect();
        let slot = |index: usize| Slot {
            signature: flows[0][index] as u32,
            count: flows[1][index] as u32 - 1,
            inherited: inherited[index] as u32,
            key: if flows[1][index] > 1 {
                words.iter().map(|words| words[index]).collect()
            } else {
                Vec::new()
            },
        };
        (0..1 << self.bits).map(slot).collect()
    }

    fn assert_holds(&self, expected: &Definition, bank: usize, what: &str) {
        let packets = self.read("packets", 0, bank..bank + 1);
        assert_eq!(packets, [u64::from(expected.packets)], "{what}");
        for stage in [0, 1] {
            let found = self.stage(stage, bank);
            for (index, (found, expected)) in found.iter().zip(&expected.stages[stage]).enumerate()
            {
                assert_eq!(found, expected, "slot {index} of stage {stage}, {what}");
            }
        }
    }

    /// Asserts that a bank has these frames in its counters, and these packets in a sketch.
    #[track_caller]
    fn assert_counted(&self, bank: usize, frames: usize, packets: usize) {
        let classes = (8 * bank..8 * (bank + 1))
            .map(|class| counted(&self.model, FRAMES, class as u32, Pipes::All).0);
        assert_eq!(classes.sum::<u64>(), frames as u64);
        let row = "pipe.Ingress.flowgauge.frequency_by_src.count_min0";
        let cells = self.model.register_range(row, 0, 1024 * bank..1024 * (bank + 1), 0).unwrap();
        assert_eq!(cells.into_iter().sum::<u64>(), packets as u64);
    }
}

/// Returns frames in which some flows are frequent and many are rare.
fn skewed(seed: u64, count: usize) -> Vec<OwnedFrame> {
    let distinct = [frames::random(seed, 200), frames::kinds()].concat();
    let distinct: Vec<OwnedFrame> = distinct
        .into_iter()
        .filter(|frame| frames::within_reach_of_a_switch(&frame.bytes))
        .collect();
    let mut state = seed;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = |shift: u32| (state >> shift) as usize % distinct.len();
        distinct[at(20).min(at(33)).min(at(48))].clone()
    };
    (0..count).map(next).collect()
}

fn count(lab: &mut Lab, definition: &mut Definition, port: u16, frames: &[OwnedFrame]) {
    for frame in frames {
        lab.model.inject(port, &frame.bytes).unwrap();
        if let Verdict::V4(key) | Verdict::V6(key) = verdict(frame, lab.key) {
            definition.count(&key, lab.key);
        }
    }
}

#[test]
fn every_key_and_size() {
    for key in KeyKind::ALL {
        for slot_bits in [4, 6, 12] {
            let (mut lab, mut definition) =
                (Lab::new(key, slot_bits, false), Definition::new(slot_bits));
            count(&mut lab, &mut definition, 0, &skewed(u64::from(slot_bits), 3000));
            lab.assert_holds(&definition, 0, &format!("{key:?}, {slot_bits} bits"));
            assert!(definition.replaced > 10 || slot_bits == 12, "{}", definition.replaced);
        }
    }
}

/// Source address whose signature is that of an empty slot.
#[test]
fn a_signature_of_zero_takes_a_slot_like_any_other() {
    let (mut lab, mut definition) = (Lab::new(KeyKind::Src, 4, false), Definition::new(4));
    let source = [192, 120, 37, 131];
    assert_eq!(crc32(&source), 0);
    count(&mut lab, &mut definition, 0, &vec![frames::from_source(source); 5]);
    lab.assert_holds(&definition, 0, "one flow");
    count(&mut lab, &mut definition, 0, &skewed(3, 500));
    lab.assert_holds(&definition, 0, "among others");
}

#[test]
fn a_second_pass_counts_nothing_else_and_sends_the_frame_once() {
    let kind = KeyKind::Src;
    let (mut lab, mut definition) = (Lab::new(kind, 5, true), Definition::new(5));
    lab.forward(3, 9);
    let frames = skewed(8, 800);
    for frame in &frames {
        let sent = lab.model.inject(3, &frame.bytes).unwrap();
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].port, &sent[0].frame), (9, &frame.bytes));
        if let Verdict::V4(key) | Verdict::V6(key) = verdict(frame, kind) {
            definition.count(&key, kind);
        }
    }
    lab.assert_holds(&definition, 0, "forwarded");
    lab.assert_counted(0, frames.len(), definition.packets as usize);
}

#[test]
fn windows_are_banks() {
    let mut lab = Lab::new(KeyKind::SrcDst, 6, false);
    let mut banks = [Definition::new(6), Definition::new(6)];
    for (bank, frames) in skewed(9, 1200).chunks(300).enumerate() {
        lab.set_bank((bank % 2) as u8);
        count(&mut lab, &mut banks[bank % 2], 1, frames);
    }
    lab.assert_holds(&banks[0], 0, "bank 0");
    lab.assert_holds(&banks[1], 1, "bank 1");
}

/// On a chip, other packets pass before a resubmitted one comes back, and the bank may change in
/// between.
#[test]
fn packets_that_come_back_late_are_of_their_window_and_count_once() {
    let kind = KeyKind::Src;
    for after in [1, 3, 16, 60] {
        let mut lab = Lab::new(kind, 5, true);
        lab.forward(3, 9);
        lab.model.resubmit_after(after);
        let all = skewed(21, 2_000);
        let (mut sent, mut late) = (0, 0);
        for (bank, frames) in all.chunks(1_000).enumerate() {
            // Packets that have not come back yet belong to the previous window.
            lab.set_bank(bank as u8);
            for frame in frames {
                let leaving = lab.model.inject(3, &frame.bytes).unwrap().len();
                late += usize::from(leaving != 1);
                sent += leaving;
            }
        }
        sent += lab.model.settle().unwrap().len();
        assert_eq!(sent, all.len(), "every frame leaves once");
        assert!(late > 0, "none was late");
        for (bank, frames) in all.chunks(1_000).enumerate() {
            let keys = frames.iter().filter_map(|frame| match verdict(frame, kind) {
                Verdict::V4(key) | Verdict::V6(key) => Some(key.to_vec()),
                _ => None,
            });
            let keys: Vec<Vec<u8>> = keys.collect();
            assert_eq!(lab.read("packets", 0, bank..bank + 1), [keys.len() as u64]);
            lab.assert_counted(bank, frames.len(), keys.len());
            // The guaranteed count of a flow was reached in this window, over both stages.
            let mut surely: Vec<(Vec<u64>, u32, u32)> = Vec::new();
            for slot in [0, 1]
                .into_iter()
                .flat_map(|stage| lab.stage(stage, bank))
                .filter(|slot| slot.count > 0)
            {
                assert!(slot.inherited < slot.count, "{slot:?}");
                match surely.iter_mut().find(|(key, ..)| *key == slot.key) {
                    Some((_, count, _)) => *count += slot.count - slot.inherited,
                    None => surely.push((slot.key, slot.count - slot.inherited, slot.signature)),
                }
            }
            assert!(surely.len() > 10);
            for (key, count, signature) in surely {
                let of_flow = keys.iter().filter(|of| words(of, kind) == key);
                let had = of_flow.inspect(|of| assert_eq!(crc32(of), signature)).count();
                assert!(
                    count as usize <= had,
                    "{count} of {had} in bank {bank}, {after} packets later"
                );
            }
        }
    }
}
