//! Distinct others of keys, register by register and candidate by candidate.

use crate::conformance::backend::{Backend, Breadth, SEED, Setup, start};
use crate::conformance::sketches::row_hashes;
use flowgauge_core::spread::{OtherKind, Settings};
use flowgauge_core::{FlowKey, HashMode, KeyKind, SPREADS};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::{MeasurementKind, Snapshot};
use flowgauge_testing::definitions::{Verdict, crc32, keyed, multilinear, register, verdict};
use flowgauge_testing::extent;
use flowgauge_testing::frames::{Ip, kinds, random};
use std::collections::{BTreeMap, BTreeSet};

/// Returns a victim of many sources, a scan of hosts, a scan of ports over both families, and
/// frames of every kind; many packets come twice.
fn frames(seed: u8) -> Vec<OwnedFrame> {
    let udp = |src: [u8; 4], dst: [u8; 4], port: u16| {
        let [high, low] = port.to_be_bytes();
        let mut frame = Ip::new(src, dst, 17).frame(&[0x30, seed, high, low, 0, 8, 0, 0]);
        frame.resize(60, 0);
        OwnedFrame::ethernet(frame)
    };
    let over_ipv6 = |port: u16| {
        let address = |last: u16| [0x2001, 0xdb8, 0, 0, 0, 0, seed.into(), last];
        let [high, low] = port.to_be_bytes();
        let ports = [0x30, 1, high, low, 0, 8, 0, 0];
        OwnedFrame::ethernet(Ip::new(address(port % 7), address(9), 17).frame(&ports))
    };
    let [high, low] = [seed, 40];
    let numbers = || (0..700_u16).map(|number| number % 400);
    let victim = numbers().map(|number| {
        let [n_high, n_low] = number.to_be_bytes();
        udp([10, high, n_high, n_low], [192, 0, 2, low], 80)
    });
    let scan = numbers().map(|number| {
        let [n_high, n_low] = number.to_be_bytes();
        udp([10, 1, 1, low], [198, 18, n_high, n_low], 22)
    });
    let ports = numbers().map(|number| udp([10, 2, 2, low], [192, 0, 2, 9], number * 5));
    let others = kinds().into_iter().chain(random(seed.into(), 400));
    let all = victim.chain(scan).chain(ports).chain(numbers().map(over_ipv6)).chain(others);
    all.collect()
}

/// Key, other and pair of a packet, as bytes.
struct Contact {
    key: Vec<u8>,
    other: Vec<u8>,
    pair: Vec<u8>,
}

fn contact(frame: &OwnedFrame, by: KeyKind, of: OtherKind) -> Option<Contact> {
    let (Verdict::V4(whole) | Verdict::V6(whole)) = verdict(frame, KeyKind::FiveTuple) else {
        return None;
    };
    let (addresses, rest) = whole.split_at(whole.len() - 5);
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let port = &rest[2..];
    let key = match by {
        KeyKind::Src => source.to_vec(),
        KeyKind::Dst => destination.to_vec(),
        KeyKind::SrcDst => addresses.to_vec(),
        KeyKind::FiveTuple => whole.clone(),
    };
    let (other, pair) = match of {
        OtherKind::Src => (source.to_vec(), addresses.to_vec()),
        OtherKind::Dst => (destination.to_vec(), addresses.to_vec()),
        OtherKind::DstPort => (port.to_vec(), [&key[..], port].concat()),
        OtherKind::FiveTuple => (whole.clone(), whole.clone()),
    };
    Some(Contact { key, other, pair })
}

/// A sketch by its definition: maxima of ranks, and the greatest level with its key.
#[derive(Default)]
struct Model {
    registers: BTreeMap<(usize, usize, usize), u8>,
    candidates: BTreeMap<(usize, usize), (u8, u32, Vec<u8>)>,
    others: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

impl Model {
    fn of(settings: &Settings, hash: HashMode, frames: &[OwnedFrame]) -> Self {
        let mut model = Model::default();
        let found = frames.iter().filter_map(|frame| contact(frame, settings.by, settings.of));
        found.for_each(|contact| model.count(settings, hash, contact));
        model
    }

    fn count(&mut self, settings: &Settings, hash: HashMode, contact: Contact) {
        let Contact { key, other, pair } = contact;
        let signature = match hash {
            HashMode::Keyed => multilinear(&keyed().multilinear().words(), &key),
            HashMode::Crc32 | HashMode::Tabulated => crc32(&key),
        };
        let of_pair = row_hashes(hash, SEED, &pair);
        let joined = |low: usize| u32::from(of_pair[low + 1]) << 16 | u32::from(of_pair[low]);
        let (index, rank) = register(joined(2), settings.registers);
        let level = (1..31).find(|level| joined(0) >> (32 - level) == 1).unwrap_or(31) as u8;
        let rows = row_hashes(hash, SEED, &key);
        for (row, hash) in rows.into_iter().enumerate().take(settings.shape.rows()) {
            let column = (usize::from(hash) * settings.shape.columns()) >> 16;
            let highest = self.registers.entry((row, column, index)).or_default();
            *highest = rank.max(*highest);
            let candidate = self.candidates.entry((row, column)).or_default();
            if (candidate.0, candidate.1) < (level, signature) {
                *candidate = (level, signature, key.clone());
            }
        }
        self.others.entry(key).or_default().insert(other);
    }

    fn assert_holds(
        &self,
        snapshot: &Snapshot,
        all: &[Settings; SPREADS],
        index: usize,
        what: &str,
    ) {
        let sketch = snapshot.bank.spread.sketch(all, index);
        let shape = all[index].shape;
        for row in 0..shape.rows() {
            for column in 0..shape.columns() {
                let registers = sketch.registers(row, column);
                assert_eq!(registers.len(), all[index].registers.registers());
                let what = format!("cell {row}, {column}: {what}");
                for (register, rank) in registers.iter().enumerate() {
                    let expected = self.registers.get(&(row, column, register));
                    let expected = expected.copied().unwrap_or_default();
                    assert_eq!(*rank, expected, "register {register} of {what}");
                }
                let candidate = sketch.candidate(row, column);
                let found = candidate.map(|candidate| {
                    (candidate.level(), candidate.signature(), candidate.key().as_bytes().to_vec())
                });
                let expected = self.candidates.get(&(row, column));
                assert_eq!(found.as_ref(), expected, "candidate of {what}");
            }
        }
    }
}

fn setup(hash: HashMode, spread: [Settings; SPREADS]) -> Setup {
    let setup = Setup::only(|settings| settings.spread = spread).with_hash(hash);
    Setup { truth: true, ..setup }
}

fn sketch(by: KeyKind, of: OtherKind) -> Settings {
    Settings { on: true, by, of, ..Settings::DEFAULT }
}

fn check(backend: &dyn Backend, hash: HashMode, spread: [Settings; SPREADS]) {
    let Some(mut rig) = start(backend, &setup(hash, spread)) else {
        // A switch has one sketch, and its cells are read one by one.
        if spread.iter().all(|sketch| sketch.on) {
            for (index, sketch) in spread.into_iter().enumerate() {
                let (shape, registers) = (sketch.shape, sketch.registers.registers());
                let columns = shape.columns().min(64);
                let mut alone = [Settings::DEFAULT; SPREADS];
                alone[index] = sketch.sized(shape.rows(), columns, registers).unwrap();
                check(backend, hash, alone);
            }
        }
        return;
    };
    for window in 0..2 {
        let frames = backend.possible(frames(window + 1));
        rig.feed(&frames[..]);
        let (sample, closed) = (rig.sample(), rig.rotate());
        for index in (0..SPREADS).filter(|index| spread[*index].on) {
            let what = format!("window {window}, {:?}, {}", spread[index], hash.name());
            let model = Model::of(&spread[index], hash, &frames);
            model.assert_holds(&sample, &spread, index, &what);
            model.assert_holds(&closed, &spread, index, &what);
            if closed.truth.is_some() {
                let exact = &closed.fan_outs.as_ref().unwrap()[index];
                let exact: BTreeMap<FlowKey, u64> =
                    exact.iter().map(|key| (key.key, key.others)).collect();
                let expected: BTreeMap<FlowKey, u64> = model
                    .others
                    .iter()
                    .map(|(key, others)| (FlowKey::new(key), others.len() as u64))
                    .collect();
                assert_eq!(exact, expected, "{what}");
            }
        }
    }
}

pub fn every_pair_and_shape(backend: &dyn Backend) {
    use KeyKind::{Dst, Src, SrcDst};
    let pairs = [
        [sketch(Dst, OtherKind::Src), sketch(Src, OtherKind::DstPort)],
        [sketch(Src, OtherKind::Dst), sketch(Dst, OtherKind::FiveTuple)],
        [sketch(SrcDst, OtherKind::DstPort), sketch(Dst, OtherKind::DstPort)],
        [
            Settings { on: false, ..sketch(Src, OtherKind::Dst) },
            sketch(SrcDst, OtherKind::FiveTuple),
        ],
    ];
    let is_few = backend.breadth() == Breadth::Few;
    for (number, spread) in pairs.into_iter().take(if is_few { 1 } else { 4 }).enumerate() {
        // Every hash counts one pair, and every pair at night.
        let is_every = !is_few && number < extent(1, 4);
        let hashes = HashMode::ALL.into_iter();
        for hash in hashes.filter(|hash| is_every || *hash == HashMode::Tabulated) {
            check(backend, hash, spread);
        }
    }
    if is_few {
        return;
    }
    let sizes = [(1, 16, 16), (2, 2048, 16), (4, 64, 256), (3, 16, 32)];
    for (rows, columns, registers) in sizes {
        let sized = |settings: Settings| settings.sized(rows, columns, registers).unwrap();
        let spread = [sketch(Dst, OtherKind::Src), sketch(Src, OtherKind::Dst)].map(sized);
        check(backend, HashMode::Tabulated, spread);
    }
}

/// Settings that a backend cannot count are refused before counting starts.
pub fn what_cannot_be_counted_is_refused(backend: &dyn Backend) {
    let Some(rig) = backend.open(&Setup::default()) else { return };
    let mut capabilities = rig.dataplane.capabilities().clone();
    (capabilities.measurements, capabilities.keys) =
        (MeasurementKind::ALL.to_vec(), KeyKind::ALL.to_vec());
    let refused = |spread: [Settings; SPREADS]| {
        let settings = setup(HashMode::Tabulated, spread).settings;
        capabilities.check(&settings).err().map(|error| error.to_string())
    };
    let refusal = |advice: &str| {
        Some(format!("{} cannot count distinct others so; {advice}", capabilities.backend))
    };
    let (victims, off) = (sketch(KeyKind::Dst, OtherKind::Src), Settings::DEFAULT);
    assert_eq!(refused([victims, off]), None);
    for (by, of) in [
        (KeyKind::Src, OtherKind::Src),
        (KeyKind::SrcDst, OtherKind::Dst),
        (KeyKind::FiveTuple, OtherKind::DstPort),
    ] {
        let advice = "a key has at most one such other; count one that the key does not contain";
        assert_eq!(refused([victims, sketch(by, of)]), refusal(advice));
    }
    let large = victims.sized(4, 1024, 128).unwrap();
    assert_eq!(refused([large, off]), None);
    let advice =
        "the sketches are too large; they share 1 MiB, 64 bytes a cell and a byte a register";
    assert_eq!(refused([large; SPREADS]), refusal(advice));
}
