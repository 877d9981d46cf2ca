//! Entropies: for each a sketch of flow counts, and the sum that a table of logarithms derives from
//! them. A switch that computes an entropy itself may also watch it: it sends a digest when the
//! entropy leaves its usual range ([`Alarms`]).

use super::{
    Array, BankCells, Capabilities, DesiredState, Failure, Layout, MatchTable, ROWS, ReadArrays,
    StatedSettings, SwitchMeasurement, TableContents, names, rows,
};
use crate::tofino::entries::DigestField;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_bfruntime::{Match, proto};
use flowgauge_core::entropy::{DERIVATIVE_OF_LOG, POWER, in_integers};
use flowgauge_core::logarithm::{AMPLIFICATION_BITS, LogarithmEntry, PER_PACKET, PER_WINDOW};
use flowgauge_core::{KeyKind, MeasurementKind, Settings, WindowTotals, sketch};

const KIND: MeasurementKind = MeasurementKind::Entropy;
const DEFINITIONS: [&str; 3] =
    ["FLOWGAUGE_ENTROPY_KEY", "FLOWGAUGE_ENTROPY_SKETCH", "FLOWGAUGE_ENTROPY_COLUMN_BITS"];
const SECOND: &str = "FLOWGAUGE_ENTROPY_SECOND";
const SECOND_KEY: &str = "FLOWGAUGE_ENTROPY_SECOND_KEY";
/// Whether the switch computes the first entropy itself, and whether it watches it.
const BITS: &str = "FLOWGAUGE_ENTROPY_BITS";
const ALARM: &str = "FLOWGAUGE_ENTROPY_ALARM";
/// Longest-prefix table from a flow's count to its term in the sum.
const LOGARITHM: &str = "logarithm";
const COUNT: &str = "count";
const SET_TERM: &str = "set_term";
const TERM: [&str; 2] = ["value", "inverted"];
/// Sums, bank by bank, in two halves.
const SUM: &str = "sum";
const HALVES: [&str; 2] = ["low", "high"];

/// Control of programs that compute an entropy themselves. It counts packets, keeps the sum in two
/// parts, and the result with a flag whether it was reported.
const IN_INTEGERS: &str = "in_integers";
const PACKETS: &str = "packets";
const PARTS_OF_SUM: [&str; 3] = [PACKETS, "fraction", "whole"];
const RESULT: &str = "result";
const RESULT_FIELDS: [&str; 2] = ["entropy", "reported"];
/// Parameters of programs that also watch it.
const LOWEST: &str = "lowest";
const HIGHEST: &str = "highest";
/// Difference of two logarithms, in bits. A packet adds less than 34 to the sum, so the difference
/// is below 6, far from the value that marks a sum beyond the logarithms.
const EXPONENT_BITS: u32 = 17;
const EXPONENTS: u32 = 6 << AMPLIFICATION_BITS;
const BEYOND: u32 = 1 << 13;
/// Results from this value on mean that the sum is beyond the logarithms.
const UNKNOWN: u32 = 1 << 30;

pub(super) struct Entropy;

impl SwitchMeasurement for Entropy {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_ENTROPY")
    }

    fn check(&self, settings: &Settings) -> Result<(), Failure> {
        let mut entropies = on(settings);
        let (Some(first), Some(second)) = (entropies.next(), entropies.next()) else {
            return Ok(());
        };
        if first.key == second.key {
            return Err(Failure::program(format!("two entropies by {} are one", first.key.name())));
        }
        if (first.mode, first.shape) != (second.mode, second.shape) {
            return Err(Failure::program(
                "both of its entropies have sketches of one kind and size",
            ));
        }
        Ok(())
    }

    fn read(&self, program: &StatedSettings, settings: &mut Settings) -> Result<(), Failure> {
        let first = rows::read(program, DEFINITIONS)?;
        settings.entropy[0] = first;
        if program.is_on(SECOND)? {
            settings.entropy[1] = sketch::Settings { key: program.key(SECOND_KEY)?, ..first };
        }
        Ok(())
    }

    fn layout(&self, settings: &Settings) -> Layout {
        let mut layouts = on(settings).map(|entropy| {
            let mut layout = rows::layout(KIND, DEFINITIONS, entropy);
            layout.arrays.push(Array::new(names::of(KIND, entropy.key, SUM), 1, &HALVES));
            layout.tables.push(logarithm(entropy));
            layout
        });
        let Some(mut layout) = layouts.next() else {
            return rows::layout(KIND, DEFINITIONS, &sketch::Settings::DEFAULT);
        };
        for second in layouts {
            layout.arrays.extend(second.arrays);
            if let (Some((keys, _)), Some((own, _))) = (&mut layout.rows, second.rows) {
                keys.extend(own);
            }
            layout.tables.extend(second.tables);
        }
        // Programs have them in the order of keys, whatever the order here.
        let mut entropies: Vec<&sketch::Settings> = on(settings).collect();
        entropies.sort_by_key(|entropy| entropy.key as u32);
        if let [first, second, ..] = entropies[..] {
            let Layout { description, definitions, .. } = rows::layout(KIND, DEFINITIONS, first);
            let (first, second) = (first.key.name(), second.key);
            layout.description =
                description.replacen(first, &format!("{first} and {}", second.name()), 1);
            layout.definitions =
                definitions.into_iter().chain([(SECOND, 1), (SECOND_KEY, second as u32)]).collect();
        }
        layout
    }

    fn extras(
        &self,
        program: &StatedSettings,
        settings: &Settings,
    ) -> Result<(Vec<Array>, Vec<MatchTable>), Failure> {
        let (mut arrays, mut tables) = (Vec::new(), Vec::new());
        let first = program.key(DEFINITIONS[0])?;
        let is_computed = program.is_on(BITS)?;
        for entropy in on(settings).filter(|entropy| is_computed && entropy.key == first) {
            let name = |part| names::by_key(IN_INTEGERS, entropy.key, part);
            arrays
                .extend(PARTS_OF_SUM.map(|part| Array::new(name(part), 1, &names::REGISTER_VALUE)));
            arrays.push(Array::new(name(RESULT), 1, &RESULT_FIELDS));
            tables.extend([
                logarithm_of_window(name("packets_logarithm"), "packets", "set_of_packets"),
                parts(entropy, name("parts")),
                logarithm_of_window(name("sum_logarithm"), "sum", "set_exponent"),
                power(name("power")),
            ]);
            if program.is_on(ALARM)? {
                tables.extend([
                    MatchTable::of_register(name(LOWEST), |desired| desired.thresholds[0])
                        .that_changes(true),
                    MatchTable::of_register(name(HIGHEST), |desired| desired.thresholds[1])
                        .that_changes(true),
                ]);
            }
        }
        Ok((arrays, tables))
    }

    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
        let parts = read
            .settings
            .entropy
            .iter()
            .zip(&mut bank.entropy.sketches)
            .zip(&mut bank.entropy.sums);
        let parts = parts.filter(|((entropy, _), _)| entropy.is_on());
        for (((entropy, sketch), total), arrays) in parts.zip(read.arrays.chunks(ROWS + 1)) {
            let Some((sums, sketch_rows)) = arrays.split_last() else { continue };
            rows::merge(entropy, sketch_rows, sketch);
            for [low, high] in sums.iter().flatten() {
                total.sum = total.sum.saturating_add(u64::from(*high) << 32 | u64::from(*low));
            }
        }
        0
    }

    fn capabilities(&self, settings: &Settings, capabilities: &mut Capabilities) {
        capabilities.entropies = KIND.keys(settings).count();
    }
}

/// Thresholds, times 1024, that no entropy crosses.
pub(in crate::tofino) const NO_THRESHOLDS: [i32; 2] = [0, i32::MAX];

/// Converts a range in bits to a program's thresholds.
pub(in crate::tofino) fn thresholds(lowest: f64, highest: f64) -> [i32; 2] {
    let amplified = |bits: f64| bits * f64::from(1 << AMPLIFICATION_BITS);
    [amplified(lowest).floor() as i32, amplified(highest).ceil() as i32]
}

/// Describes the first pipe whose entropy of a closed bank, computed by the switch, does not follow
/// from its packets and its sum.
pub(in crate::tofino) fn difference(
    settings: &Settings,
    arrays: &[Array],
    cells: &[BankCells],
) -> Option<String> {
    on(settings).find_map(|entropy| {
        let cells_of = |name: String| arrays.iter().zip(cells).find(|(array, _)| array.table == name).map(|(_, cells)| cells);
        let part = |part| cells_of(names::by_key(IN_INTEGERS, entropy.key, part));
        let (made, packets, sums) = (part(RESULT)?, part(PACKETS)?, cells_of(names::of(KIND, entropy.key, SUM))?);
        let pipes = made.iter().zip(packets).zip(sums).enumerate();
        pipes.into_iter().find_map(|(pipe, ((made, packets), sums))| {
            let ([made, _], [packets, _], [low, high]) = (made.first()?, packets.first()?, sums.first()?);
            let follows = in_integers((*packets).into(), u64::from(*high) << 32 | u64::from(*low));
            (*made < UNKNOWN && u64::from(*made) != follows).then(|| {
                let key = entropy.key.name();
                format!("pipe {pipe} made {made}/1024 bits of entropy by {key}, and {follows}/1024 follows from its sum; is it p4/flowgauge.p4?")
            })
        })
    })
}

/// Returns the enabled entropies.
fn on(settings: &Settings) -> impl Iterator<Item = &sketch::Settings> {
    settings.entropy.iter().filter(|entropy| entropy.is_on())
}

/// Returns the table from a flow's count to its term in the sum; a count of one adds nothing.
fn logarithm(settings: &sketch::Settings) -> MatchTable {
    let data = |term: u32| [term, !term].map(bytes).to_vec();
    of_count(settings, names::of(KIND, settings.key, LOGARITHM), SET_TERM, &TERM, data)
}

/// Returns the table of terms in two parts: the fraction bits, left-aligned, with their complement,
/// and the integer part, with its successor for a carry.
fn parts(settings: &sketch::Settings, name: String) -> MatchTable {
    let data = |term: u32| {
        let (fraction, whole) =
            (term << (u32::BITS - AMPLIFICATION_BITS), term >> AMPLIFICATION_BITS);
        [fraction, !fraction, whole, whole.wrapping_add(1)].map(bytes).to_vec()
    };
    of_count(settings, name, "set_parts", &["fraction", "inverted", "whole", "whole_and_one"], data)
}

/// Returns a table from a flow's count to values derived from its term.
fn of_count(
    settings: &sketch::Settings,
    name: String,
    action: &str,
    parameters: &[&'static str],
    data: impl Fn(u32) -> Vec<Vec<u8>> + Copy + 'static,
) -> MatchTable {
    // Counters of Count-Min that would be negative as signed numbers represent the largest positive
    // one.
    let largest =
        LogarithmEntry { value: 1 << 31, prefix_length: 1, log2: PER_PACKET.log2((1 << 31) - 1) };
    let largest = (settings.mode == sketch::Mode::CountMin).then_some(largest);
    let filling = move |desired: &DesiredState| {
        let entries = desired.tables.logarithm.iter().chain(&largest).map(|logarithm| {
            (vec![prefix(COUNT, logarithm)], data(logarithm.log2.wrapping_add(DERIVATIVE_OF_LOG)))
        });
        TableContents { entries: entries.collect(), default: Some(data(0)) }
    };
    let parameters = parameters.iter().map(|name| (*name, 32)).collect();
    MatchTable::new(name, vec![(COUNT, 32)], action, parameters, filling)
}

/// Returns the table of logarithms of a window's totals; 0 for 0 and 1, none above 2^31.
fn logarithm_of_window(name: String, key: &'static str, action: &str) -> MatchTable {
    let filling = move |_: &DesiredState| {
        let smallest = LogarithmEntry { value: 0, prefix_length: 31, log2: 0 };
        let entries = PER_WINDOW
            .table()
            .chain([smallest])
            .map(|entry| (vec![prefix(key, &entry)], vec![bytes(entry.log2)]));
        TableContents { entries: entries.collect(), default: None }
    };
    MatchTable::new(name, vec![(key, 32)], action, vec![("value", 32)], filling)
}

/// Returns the table from the difference of two logarithms to the negative of the number to
/// subtract.
fn power(name: String) -> MatchTable {
    let keys = vec![("is_less", 1), ("exponent", EXPONENT_BITS)];
    let filling = |_: &DesiredState| {
        let power = |exponent: u32| {
            u32::try_from(POWER.of_2(exponent.into())).unwrap_or(u32::MAX).wrapping_neg()
        };
        let powers = (0..EXPONENTS).map(|exponent| (0, exponent, power(exponent)));
        let entries = powers.chain([(0, BEYOND, UNKNOWN), (1, BEYOND, UNKNOWN)]).map(
            |(is_less, exponent, added)| {
                let [is_less, exponent] =
                    [vec![is_less], names::bytes(exponent, EXPONENT_BITS)].map(Match::Exact);
                (vec![("is_less", is_less), ("exponent", exponent)], vec![bytes(added)])
            },
        );
        TableContents { entries: entries.collect(), default: None }
    };
    MatchTable::new(name, keys, "add_power", vec![("negative", 32)], filling)
}

fn prefix(key: &'static str, entry: &LogarithmEntry) -> (&'static str, Match) {
    (key, Match::Lpm { value: bytes(entry.value), prefix_length: entry.prefix_length })
}

fn bytes(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

/// Digest of alarms, and its field for the bank.
const DIGEST: &str = "entropy_alarms";
const BANK: &str = "bank";

/// Packets in a window from which on a program watches.
pub(in crate::tofino) const MIN_WATCHED_PACKETS: u64 = 1 << 10;

/// Advice for an operator on the compiler options for watching.
pub(in crate::tofino) const ALARM_ADVICE: &str = "the program reports no flood before a window ends; \
    compile it with -DFLOWGAUGE_ENTROPY_BITS=1 -DFLOWGAUGE_ENTROPY_ALARM=1 if it should";

/// Receiver of the digests of a program that watches an entropy.
pub(in crate::tofino) struct Alarms {
    /// Key of the entropy.
    pub(in crate::tofino) key: KeyKind,
    digest: u32,
    bank: DigestField,
    /// Whether the open window was reported. Each pipe reports separately.
    reported: bool,
}

impl Alarms {
    /// Finds the entropy that a program with these settings watches, if any.
    pub(in crate::tofino) fn find(
        schema: &Schema,
        program: &StatedSettings,
        settings: &Settings,
    ) -> Result<Option<Self>, Failure> {
        if !program.is_on(ALARM)? {
            return Ok(None);
        }
        let digest = schema.filter(DIGEST).map_err(Failure::program)?;
        let bank = DigestField::find(digest, BANK)?;
        let key = program.key(DEFINITIONS[0])?;
        if !KIND.keys(settings).any(|measured| measured == key) {
            return Err(Failure::lacks(format!("{} has no entropy with thresholds", digest.name)));
        }
        Ok(Some(Alarms { key, digest: digest.id, bank, reported: false }))
    }

    /// Resets the state for the next window.
    pub(in crate::tofino) fn next_window(&mut self) {
        self.reported = false;
    }

    /// Processes digests. Returns whether they are the first to report that the entropy of the open
    /// window has left its usual range.
    pub(in crate::tofino) fn receive(
        &mut self,
        digests: &proto::DigestList,
        open: Option<usize>,
    ) -> bool {
        if digests.digest_id != self.digest {
            return false;
        }
        let is_open =
            |digest| open.is_some() && self.bank.read(digest) == open.map(|open| open as u64);
        digests.data.iter().any(is_open) && !std::mem::replace(&mut self.reported, true)
    }
}
