//! What counts when everything works.

use crate::frames::uniques;
use crate::lab::{Lab, SEED, settings};
use crate::memory::number;
use flowgauge_bfruntime::Match;
use flowgauge_core::{HashMode, KeyKind, Tabulation, cardinality::rank_table};
use flowgauge_dataplane::Dataplane;
use flowgauge_dataplane::tofino::{Fec, Port, Speed};
use std::time::Duration;

#[test]
fn the_tables_on_the_switch_are_those_of_the_core() {
    let lab = Lab::with(settings(11), 2);
    // Something of an earlier run.
    lab.count(0..100);
    let _tofino = lab.counting();
    let state = lab.switch.memory.state();
    let rank = &state.entries["pipe.Ingress.flowgauge.cardinality.rank"];
    let mut levels: Vec<(u64, u32, u8)> = rank
        .iter()
        .map(|(key, data)| match &key["rank_bits"] {
            Match::Lpm { value, prefix_length } => (number(value), *prefix_length, data.bytes("level").unwrap()[0]),
            other => panic!("{other:?}"),
        })
        .collect();
    levels.sort_by_key(|(_, length, _)| *length);
    let expected = rank_table(settings(11).cardinality.precision);
    let expected: Vec<(u64, u32, u8)> = expected.map(|entry| (entry.value.into(), entry.prefix_length, entry.level)).collect();
    assert_eq!(levels, expected);
    assert_eq!(state.defaults["pipe.Ingress.flowgauge.cardinality.rank"].bytes("level"), Some(&[22][..]));

    for (index, words) in Tabulation::from_seed(SEED).tables().iter().enumerate() {
        let entries = &state.entries[&format!("pipe.Ingress.flowgauge.hash.tabulation{index}")];
        let held: Vec<(u64, u64)> = entries
            .iter()
            .map(|(key, data)| match &key["byte"] {
                Match::Exact(byte) => (number(byte), number(data.bytes("word").unwrap())),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected: Vec<(u64, u64)> = (0..).zip(words.iter().map(|word| u64::from(*word))).collect();
        assert_eq!(held, expected, "table {index}");
    }
    for cells in state.hardware.values().flatten().flatten() {
        assert!(cells.values().all(|value| number(value) == 0), "{cells:?}");
    }
}

#[test]
fn windows_hold_every_packet_once_whatever_the_number_of_pipes() {
    for pipes in [1, 2, 4] {
        let lab = Lab::new(pipes);
        let mut tofino = lab.counting();
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
    let lab = Lab::with(settings(13), 2);
    let mut tofino = lab.counting();
    lab.count(0..3000);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..3000);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..0);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..0);
}

#[test]
fn samples_change_nothing_and_tell_the_counter_before_and_after() {
    let lab = Lab::new(2);
    let mut tofino = lab.counting();
    lab.count(0..100);
    lab.assert_holds(&tofino.sample().unwrap(), 0..100);
    // While the registers are read, fifty more packets come.
    let switch = lab.switch.clone();
    lab.tampering.reads(move |request, answer| {
        if crate::answers::asks_for(request, crate::answers::REGISTERS) {
            switch.count(&uniques(100..150));
        }
        crate::lab::Reads::Answer(vec![answer], None)
    });
    let sample = tofino.sample().unwrap();
    lab.tampering.stop();
    assert_eq!((sample.packets_before, sample.packets_after, sample.bank.counters.packets()), (100, 150, 150));
    lab.assert_holds(&tofino.rotate().unwrap(), 0..150);
    lab.assert_holds(&tofino.sample().unwrap(), 0..0);
}

#[test]
fn the_program_decides_key_and_hash() {
    for (key, hash) in
        [(KeyKind::FiveTuple, HashMode::Crc32), (KeyKind::SrcDst, HashMode::Tabulated), (KeyKind::Dst, HashMode::Crc32)]
    {
        let mut settings = settings(8);
        (settings.cardinality.key, settings.cardinality.hash) = (key, hash);
        let lab = Lab::with(settings, 1);
        let mut tofino = lab.counting();
        let capabilities = tofino.capabilities();
        assert_eq!((&capabilities.keys[..], &capabilities.hashes[..]), (&[key][..], &[hash][..]));
        lab.count(0..300);
        lab.assert_holds(&tofino.rotate().unwrap(), 0..300);
    }
}

#[test]
fn ports_are_configured_and_configured_again() {
    let lab = Lab::new(2);
    for enable in [true, false] {
        let mut options = lab.options();
        options.ports = vec![
            Port { dev_port: 132, speed: Speed::G100, fec: Fec::ReedSolomon, enable },
            Port { dev_port: 4, speed: Speed::G10, fec: Fec::None, enable: true },
        ];
        // The client before is gone, but the switch may not have noticed yet.
        options.patience = Duration::from_secs(30);
        let mut tofino = connect_patiently(&options, lab.settings);
        tofino.install(&lab.tables()).unwrap();
    }
    assert_eq!(lab.switch.memory.state().ports, [(132, true), (4, true), (132, false), (4, true)]);

    let mut options = lab.options();
    options.ports = vec![Port { dev_port: 5000, speed: Speed::G100, fec: Fec::None, enable: true }];
    let mut tofino = connect_patiently(&options, lab.settings);
    let error = tofino.install(&lab.tables()).unwrap_err();
    assert!(!error.is_transient());
    assert!(error.to_string().contains("configuring $PORT 5000: number 0: the switch has no port 5000"), "{error}");
}

/// Connects once the client before is forgotten.
pub fn connect_patiently(
    options: &flowgauge_dataplane::tofino::Options,
    settings: flowgauge_core::Settings,
) -> flowgauge_dataplane::Tofino {
    loop {
        match flowgauge_dataplane::Tofino::connect(options.clone(), settings) {
            Ok(tofino) => return tofino,
            Err(error) if error.is_transient() => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}
