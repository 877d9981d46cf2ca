//! Windows of a switch without faults.

use crate::tofino::answers::{REGISTERS, asks_for, is_entry};
use crate::tofino::lab::{Lab, Reads, SEED, Writes, failure, refused, settings};
use crate::tofino::programs::everything;
use flowgauge_bfruntime::Match;
use flowgauge_core::cardinality::rank_table;
use flowgauge_core::{FlowKey, HashMode, KeyKind, Settings, Tabulation};
use flowgauge_dataplane::tofino::{Fec, Options, PortConfig, Speed};
use flowgauge_dataplane::{Dataplane, Snapshot, Tofino};
use flowgauge_testing::definitions::crc32;
use flowgauge_testing::frames::uniques;
use flowgauge_testing::memory::number;
use flowgauge_testing::wait::until_some;

const RANK: &str = "pipe.Ingress.flowgauge.cardinality_by_src.rank";

#[test]
fn the_tables_on_the_switch_are_those_of_the_core() {
    let lab = Lab::with(settings(11), 2);
    // Counts of an earlier run.
    lab.count(0..100);
    let _tofino = lab.counting();
    let state = lab.switch.memory.state();
    let mut levels: Vec<(u64, u32, u8)> = state.entries[RANK]
        .iter()
        .map(|(key, data)| match &key["rank_bits"] {
            Match::Lpm { value, prefix_length } => {
                (number(value), *prefix_length, data.bytes("level").unwrap()[0])
            }
            other => panic!("{other:?}"),
        })
        .collect();
    levels.sort_by_key(|(_, length, _)| *length);
    let expected = rank_table(settings(11).cardinality.precision);
    let expected: Vec<(u64, u32, u8)> =
        expected.map(|entry| (entry.value.into(), entry.prefix_length, entry.level)).collect();
    assert_eq!(levels, expected);
    assert_eq!(state.defaults[RANK].bytes("level"), Some(&[22][..]));

    for (index, words) in Tabulation::from_seed(SEED).tables().iter().enumerate() {
        let table = format!("pipe.Ingress.flowgauge.hash.tabulation.words{index}");
        let held: Vec<(u64, u64)> = state.entries[&table]
            .iter()
            .map(|(key, data)| match &key["byte"] {
                Match::Exact(byte) => (number(byte), number(data.bytes("low").unwrap())),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected: Vec<(u64, u64)> =
            (0..).zip(words.iter().map(|word| u64::from(*word))).collect();
        assert_eq!(held, expected, "table {index}");
    }
    for cells in state.hardware.values().flatten().flatten() {
        assert!(cells.values().all(|value| number(value) == 0), "{cells:?}");
    }
}

#[test]
fn windows_hold_every_packet_once_whatever_the_number_of_pipes() {
    for pipes in [1, 2, 4] {
        let (lab, mut tofino) = Lab::new(pipes).started();
        let mut first = 0;
        for packets in [0, 1, 500, 0, 37, 2000] {
            lab.count(first..first + packets);
            lab.assert_holds(&tofino.rotate().unwrap(), first..first + packets);
            first += packets;
        }
    }
}

#[test]
fn a_large_sketch_is_read_and_cleared() {
    let (lab, mut tofino) = Lab::with(settings(13), 2).started();
    lab.count(0..3000);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..3000);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..0);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..0);
}

#[test]
fn samples_change_nothing_and_have_the_counter_before_and_after() {
    let (lab, mut tofino) = Lab::new(2).started();
    lab.count(0..100);
    lab.assert_holds(&tofino.sample().unwrap(), 0..100);
    // While the registers are read, fifty more packets arrive.
    let switch = lab.switch.clone();
    lab.tampering.reads(move |request, answer| {
        if asks_for(request, REGISTERS) {
            switch.count(&uniques(100..150));
        }
        Reads::Answer(vec![answer], None)
    });
    let sample = tofino.sample().unwrap();
    lab.tampering.stop();
    assert_eq!([sample.packets_before, sample.packets_after], [100, 150]);
    assert_eq!(sample.bank.counters.packets(), 150);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..150);
    lab.assert_holds(&tofino.sample().unwrap(), 0..0);
}

#[test]
fn the_program_decides_key_and_hash() {
    for (key, hash) in [
        (KeyKind::FiveTuple, HashMode::Crc32),
        (KeyKind::SrcDst, HashMode::Tabulated),
        (KeyKind::Dst, HashMode::Crc32),
    ] {
        let mut settings = settings(8);
        (settings.cardinality.key, settings.hash) = (key, hash);
        let (lab, mut tofino) = Lab::with(settings, 1).started();
        let capabilities = tofino.capabilities();
        assert_eq!((&capabilities.keys[..], &capabilities.hashes[..]), (&[key][..], &[hash][..]));
        lab.count(0..300);
        lab.assert_holds(&tofino.rotate().unwrap(), 0..300);
    }
}

#[test]
fn a_port_with_another_configuration_is_reported_and_unchanged() {
    let lab = Lab::new(2);
    let install = |ports: &[PortConfig]| {
        let mut options = lab.options();
        options.ports = ports.to_vec();
        // The previous client is gone, but the switch may not have noticed yet.
        connect_patiently(&options, lab.settings).install(&lab.tables()).map(drop)
    };
    let port =
        PortConfig { dev_port: 132, speed: Speed::G100, fec: Fec::ReedSolomon, enable: true };
    let other = PortConfig { dev_port: 4, speed: Speed::G10, fec: Fec::None, enable: true };
    // A port with the same configuration is not touched.
    install(&[port, other]).unwrap();
    install(&[port, other]).unwrap();
    assert_eq!(lab.switch.memory.state().ports, [(132, true), (4, true)]);
    install(&[PortConfig { enable: false, ..port }]).unwrap();
    install(&[port]).unwrap();
    let all = [(132, true), (4, true), (132, false), (132, true)];
    assert_eq!(lab.switch.memory.state().ports, all);

    let cases = [
        (
            PortConfig { speed: Speed::G40, ..port },
            "port 132 is there with $SPEED BF_SPEED_100G and not BF_SPEED_40G;",
        ),
        (
            PortConfig { speed: Speed::G25, fec: Fec::FireCode, ..port },
            "$SPEED BF_SPEED_100G and not BF_SPEED_25G and $FEC BF_FEC_TYP_REED_SOLOMON and not BF_FEC_TYP_FIRECODE;",
        ),
        (
            PortConfig { dev_port: 5000, ..port },
            "configuring $PORT 5000: number 0: the switch has no port 5000",
        ),
    ];
    for (wrong, expected) in cases {
        assert!(!refused(install(&[wrong]), expected).is_transient());
    }
    assert_eq!(lab.switch.memory.state().ports, all);
}

/// Connects once the switch has noticed that the previous client is gone.
pub fn connect_patiently(options: &Options, settings: Settings) -> Tofino {
    until_some(|| match Tofino::connect(options.clone(), settings) {
        Ok(tofino) => Some(tofino),
        Err(error) => {
            assert!(error.is_transient(), "{error}");
            None
        }
    })
}

/// Sets values of an element in each pipe.
fn put(lab: &Lab, table: &str, index: usize, values: &[(&str, [u32; 2])]) {
    let mut state = lab.switch.memory.state();
    let pipes = state.hardware.get_mut(&format!("pipe.Ingress.flowgauge.{table}")).unwrap();
    for (field, values) in values {
        for (pipe, value) in pipes.iter_mut().zip(values) {
            let name = format!("Ingress.flowgauge.{table}.{field}");
            let before = pipe[index].insert(name, value.to_be_bytes().to_vec());
            assert!(before.is_some(), "{table} has no {field}");
        }
    }
}

#[test]
fn sketches_and_filters_are_merged_over_pipes_and_cleared() {
    let settings = everything();
    let (lab, mut tofino) = Lab::with(settings, 2).started();
    for window in 0..3 {
        let bank = window % 2;
        // Bank 0 counts first.
        let cell = |column: usize| bank * 16 + column;
        put(&lab, "entropy_by_src.count_sketch0", cell(3), &[("f1", [5, 3_u32.wrapping_neg()])]);
        put(&lab, "entropy_by_src.count_sketch2", cell(15), &[("f1", [1, 1_u32.wrapping_neg()])]);
        put(&lab, "entropy_by_src.sum", bank, &[("low", [u32::MAX, 2]), ("high", [1, 3])]);
        put(&lab, "frequency_by_src.count_min1", cell(0), &[("f1", [7, 0])]);
        put(&lab, "frequency_by_src.count_min2", cell(4), &[("f1", [0, 1 << 31])]);
        put(&lab, "membership_by_src.bits0", bank * 2, &[("f1", [1, 1 << 31])]);
        put(&lab, "membership_by_src.bits2", bank * 2 + 1, &[("f1", [4, 6])]);
        put_talker(&lab, bank);
        lab.count(0..20);
        let snapshot = tofino.rotate().unwrap();
        lab.assert_holds(&snapshot, 0..20);
        let mut sketch = [0; 48];
        sketch[3] = 2;
        assert_eq!(snapshot.bank.entropy.sketches[0].cells(settings.entropy[0].shape), sketch);
        assert_eq!(snapshot.bank.entropy.sums[0].sum, (5 << 32) + 1);
        let mut cells = [0; 48];
        (cells[16], cells[36]) = (7, 1 << 31);
        assert_eq!(snapshot.bank.frequency.cells(settings.frequency.shape), cells);
        let words = snapshot.bank.membership.words(settings.membership.shape);
        assert_eq!(words, [1 << 31 | 1, 0, 6 << 32]);
        assert_eq!(talkers(&snapshot), [(FlowKey::new(&TALKER), 5, 2)]);
        assert_eq!((snapshot.bank.heavy.packets(), snapshot.bank.heavy.total()), (13, 20));
        let state = lab.switch.memory.state();
        let left = state.hardware.iter().filter(|(table, _)| !table.ends_with("frames"));
        for (table, pipes) in left {
            // Counts of flows are stored plus one.
            let empty = |name: &str| u64::from(table.contains("flows") && name.ends_with("count"));
            for (name, value) in pipes.iter().flatten().flatten() {
                assert_eq!(number(value), empty(name), "{table} is not cleared");
            }
        }
    }
}

#[test]
fn a_bank_whose_clearing_fails_is_cleared_by_the_next_try() {
    let (lab, mut tofino) = Lab::with(everything(), 2).started();
    put(&lab, "frequency_by_src.count_min0", 1, &[("f1", [9, 9])]);
    lab.tampering.writes(|request| {
        match request.updates.iter().filter(|update| is_entry(update)).count() {
            0 | 1 => Writes::CarriedOut,
            _ => Writes::Refused(tonic::Status::aborted("busy")),
        }
    });
    let failed = failure(tofino.rotate());
    assert!(failed.is_transient(), "{failed}");
    lab.tampering.stop();
    let snapshot = tofino.rotate().unwrap();
    assert_eq!(snapshot.bank.frequency.cells(everything().frequency.shape)[1], 18);
    tofino.rotate().unwrap();
    let again = tofino.rotate().unwrap();
    assert!(again.bank.frequency.cells(everything().frequency.shape).iter().all(|cell| *cell == 0));
}

const TALKER: [u8; 4] = [10, 0, 0, 1];

/// Stores five packets of a flow, two of them inherited, in the first slot of one pipe, among 13
/// packets of both.
fn put_talker(lab: &Lab, bank: usize) {
    put(lab, "heavy_by_src.packets", bank, &[("f1", [9, 4])]);
    let flow = [("signature", [crc32(&TALKER), 0]), ("count", [6, 1])];
    put(lab, "heavy_by_src.flows0", bank * 8, &flow);
    put(lab, "heavy_by_src.origin", bank * 16, &[("inherited", [2, 0]), ("version", [4, 0])]);
    let source = [("high", [0, 0]), ("low", [u32::from_be_bytes(TALKER), 0])];
    put(lab, "heavy_by_src.src_lower", bank * 16, &source);
}

fn talkers(snapshot: &Snapshot) -> Vec<(FlowKey, u64, u64)> {
    let settings = everything().heavy;
    let entries = snapshot.bank.heavy.entries(&settings);
    entries.map(|entry| (entry.key, entry.count, entry.inherited)).collect()
}

#[test]
fn a_slot_that_changes_hands_while_it_is_read_is_left_out_and_read_again() {
    let (lab, mut tofino) = Lab::with(everything(), 2).started();
    let origin =
        |inherited, version| ("origin", [("inherited", [inherited, 0]), ("version", [version, 0])]);
    let damages = [
        ("src_lower", [("high", [0, 0]), ("low", [u32::from_be_bytes([10, 0, 0, 2]), 0])]),
        origin(2, 6),
        origin(2, 0),
        origin(5, 4),
    ];
    for (table, fields) in damages {
        put_talker(&lab, 0);
        assert_eq!(talkers(&tofino.sample().unwrap()).len(), 1);
        put(&lab, &format!("heavy_by_src.{table}"), 0, &fields);
        assert_eq!(talkers(&tofino.sample().unwrap()), [], "{table}: {fields:?}");
    }
    refused(tofino.rotate(), "bank 0 is closed and counts on");
    put_talker(&lab, 0);
    assert_eq!(talkers(&tofino.rotate().unwrap()), [(FlowKey::new(&TALKER), 5, 2)]);
    assert_eq!(talkers(&tofino.sample().unwrap()), []);
}
