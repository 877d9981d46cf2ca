//! Heavy hitters: the slots of each pipe as they are read, and the merged table.

use super::{
    Array, Capabilities, DesiredState, Failure, Layout, MatchTable, ReadArrays, StatedSettings,
    SwitchMeasurement, TableContents, names,
};
use flowgauge_bfruntime::{Match, codec};
use flowgauge_core::Zeroed;
use flowgauge_core::heavy::{self, Algorithm, CountUnit, Entry, PRECISION_STAGES};
use flowgauge_core::{FlowKey, KeyKind, MeasurementKind, Settings, WindowTotals, hash};

const KIND: MeasurementKind = MeasurementKind::Heavy;
const KEY: &str = "FLOWGAUGE_HEAVY_KEY";
const SLOT_BITS: &str = "FLOWGAUGE_HEAVY_SLOT_BITS";
/// Ternary table from the smaller count of a flow's two slots and a random value to whether the
/// flow takes the slot.
const ADMISSION: &str = "admission";
const COUNT: &str = "count";
const COIN: &str = "coin";
const ADMIT: &str = "admit";
/// Packets from which heavy hitters are selected.
const PACKETS: &str = "packets";
const FLOW: [&str; 2] = ["signature", "count"];
const ORIGIN: &str = "origin";
const ORIGIN_FIELDS: [&str; 2] = ["inherited", "version"];
const HALF: [&str; 2] = ["high", "low"];
const SERVICE: [&str; 2] = ["ports", "protocol"];

/// Returns the array of a stage's slots.
fn flows(stage: usize) -> String {
    format!("flows{stage}")
}

/// Returns the arrays of the slots' keys, with their fields and the words of a key that they
/// contain.
fn key_words(
    by: KeyKind,
) -> impl Iterator<Item = (&'static str, &'static [&'static str; 2], usize)> {
    let src = [("src_upper", &HALF, 0), ("src_lower", &HALF, 2)];
    let dst = [("dst_upper", &HALF, 4), ("dst_lower", &HALF, 6)];
    let src = src.into_iter().filter(move |_| by != KeyKind::Dst);
    let dst = dst.into_iter().filter(move |_| by != KeyKind::Src);
    src.chain(dst).chain((by == KeyKind::FiveTuple).then_some(("service", &SERVICE, 8)))
}

/// Words of a key: two addresses of four, ports, protocol. An IPv4 address is in the last of its
/// four.
pub(super) const WORDS: usize = 10;

pub(super) struct Heavy;

impl SwitchMeasurement for Heavy {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_HEAVY")
    }

    fn check(&self, Settings { heavy, .. }: &Settings) -> Result<(), Failure> {
        if !matches!(heavy.algorithm, Algorithm::Off | Algorithm::Precision) {
            let why = if heavy.algorithm.takes_any_slot() {
                ", which takes the smallest of all counts"
            } else {
                ""
            };
            let (precision, wanted) = (Algorithm::Precision.name(), heavy.algorithm.name());
            return Err(Failure::program(format!(
                "it finds heavy hitters by {precision} and not by {wanted}{why}"
            )));
        }
        if heavy.algorithm != Algorithm::Off && heavy.unit != CountUnit::Packets {
            return Err(Failure::program(format!(
                "it finds the flows with the most packets, not {}",
                heavy.unit.name()
            )));
        }
        Ok(())
    }

    fn read(&self, program: &StatedSettings, settings: &mut Settings) -> Result<(), Failure> {
        let slots_log2 = program.bits(SLOT_BITS)?;
        settings.heavy = heavy::Settings {
            algorithm: Algorithm::Precision,
            key: program.key(KEY)?,
            unit: CountUnit::Packets,
            slots_log2,
        };
        // A value out of range was clamped.
        if settings.heavy.slots().ilog2() != u32::from(slots_log2) {
            return Err(program.out_of_range(SLOT_BITS));
        }
        Ok(())
    }

    fn layout(&self, Settings { heavy, .. }: &Settings) -> Layout {
        let (key, slots) = (heavy.key, heavy.slots());
        let array =
            |name: &str, per_bank, fields| Array::new(names::of(KIND, key, name), per_bank, fields);
        let mut arrays = vec![array(PACKETS, 1, &names::REGISTER_VALUE)];
        // Counts are stored plus one.
        let stage = |stage| Array {
            empty: [0, 1],
            ..array(&flows(stage), slots / PRECISION_STAGES, &FLOW)
        };
        arrays.extend((0..PRECISION_STAGES).map(stage));
        arrays.push(array(ORIGIN, slots, &ORIGIN_FIELDS));
        arrays.extend(key_words(key).map(|(name, fields, _)| array(name, slots, fields)));
        let keys = vec![(COUNT, 32), (COIN, 32)];
        Layout {
            description: format!("by {}, {}, {slots} slots", key.name(), heavy.algorithm.name()),
            definitions: vec![(KEY, key as u32), (SLOT_BITS, slots.ilog2())],
            arrays,
            rows: None,
            tables: vec![MatchTable::new(
                names::of(KIND, key, ADMISSION),
                keys,
                ADMIT,
                Vec::new(),
                admission,
            )],
        }
    }

    /// Merges the slots; the number of packets comes from the counters, which are wider.
    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
        let ReadArrays { settings: Settings { heavy, .. }, arrays, .. } = read;
        let mut changed = 0;
        for pipe in 0..arrays.first().map_or(0, Vec::len) {
            let arrays: Vec<&[[u32; 2]]> =
                arrays.iter().filter_map(|cells| cells.get(pipe)).map(Vec::as_slice).collect();
            if pipe == 0 {
                changed += fill(heavy, &arrays, &mut bank.heavy);
            } else {
                let mut other = WindowTotals::boxed();
                changed += fill(heavy, &arrays, &mut other.heavy);
                bank.heavy.merge(&other.heavy, heavy);
            }
        }
        let packets = bank.heavy.packets();
        bank.heavy.set_totals(packets, bank.counters.ipv4.wrapping_add(bank.counters.ipv6));
        changed
    }

    fn capabilities(&self, Settings { heavy, .. }: &Settings, capabilities: &mut Capabilities) {
        let is_on = heavy.algorithm != Algorithm::Off;
        capabilities.algorithms = is_on.then_some(Algorithm::Precision).into_iter().collect();
        capabilities.units = is_on.then_some(CountUnit::Packets).into_iter().collect();
    }
}

/// Returns the entries of the admission table; the first match applies.
fn admission(desired: &DesiredState) -> TableContents {
    let ternary = |value: u32, mask: u32| {
        let [value, mask] = [value, mask].map(|word| word.to_be_bytes().to_vec());
        Match::Ternary { value, mask }
    };
    let entries = (0_u32..).zip(&desired.tables.admission).map(|(priority, admission)| {
        let count = (COUNT, ternary(admission.count, admission.count_mask));
        let priority = (codec::PRIORITY, Match::Exact(priority.to_be_bytes().to_vec()));
        (vec![count, (COIN, ternary(0, admission.coin_mask)), priority], Vec::new())
    });
    TableContents { entries: entries.collect(), default: None }
}

/// Fills an empty table from the arrays of a pipe. Returns the number of slots that changed flows
/// while they were read, and are left empty.
fn fill(
    settings: &heavy::Settings,
    arrays: &[&[[u32; 2]]],
    table: &mut flowgauge_core::Heavy,
) -> usize {
    let [[[packets, _]], arrays @ ..] = arrays else { return 0 };
    let Some((stages, [origins, words @ ..])) = arrays.split_at_checked(PRECISION_STAGES) else {
        return 0;
    };
    table.set_totals(*packets, (*packets).into());
    let mut changed = 0;
    let slots = stages.iter().copied().flatten().zip(*origins).enumerate();
    for (index, ([signature, count], [inherited, version])) in
        slots.filter(|(_, ([_, count], _))| *count != 1)
    {
        let mut key = [0; WORDS];
        for ((.., word), values) in key_words(settings.key).zip(words) {
            key.iter_mut()
                .skip(word)
                .zip(values.get(index).into_iter().flatten())
                .for_each(|(word, value)| *word = *value);
        }
        let count = count.wrapping_sub(1);
        // The flow, if count and key belong together.
        let key = flow(settings.key, *version, key)
            .filter(|key| *inherited < count && hash::crc32(key.as_bytes()) == *signature);
        match key {
            Some(key) => {
                let entry = Entry {
                    signature: *signature,
                    key,
                    count: count.into(),
                    inherited: (*inherited).into(),
                };
                table.set_slot(index, &entry);
            }
            None => changed += 1,
        }
    }
    changed
}

/// Returns the key with these words; `None` without an IP version.
pub(super) fn flow(kind: KeyKind, version: u32, words: [u32; WORDS]) -> Option<FlowKey> {
    let [s0, s1, s2, s3, d0, d1, d2, d3, ports, protocol] = words.map(u32::to_be_bytes);
    let (src, dst) = match version {
        4 => (s3.to_vec(), d3.to_vec()),
        6 => ([s0, s1, s2, s3].concat(), [d0, d1, d2, d3].concat()),
        _ => return None,
    };
    let [.., protocol] = protocol;
    let bytes = match kind {
        KeyKind::Src => src,
        KeyKind::Dst => dst,
        KeyKind::SrcDst => [src, dst].concat(),
        KeyKind::FiveTuple => [&src[..], &dst, &ports, &[protocol]].concat(),
    };
    Some(FlowKey::new(&bytes))
}
