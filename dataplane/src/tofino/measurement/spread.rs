//! Distinct others of keys: three rows of registers and of candidates, each candidate in several
//! arrays.

use super::heavy::{WORDS, flow};
use super::{
    Array, DesiredState, Failure, Layout, MatchTable, ROWS, ReadArrays, StatedSettings,
    SwitchMeasurement, TableContents, hash, names,
};
use flowgauge_bfruntime::Match;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::cardinality::{RankEntry, rank_table};
use flowgauge_core::hash::crc32;
use flowgauge_core::spread::{self, CELL_REGISTERS, Candidate, OtherKind, Pair};
use flowgauge_core::{KeyKind, MeasurementKind, Settings, Tabulation, WindowTotals};

const KIND: MeasurementKind = MeasurementKind::Spread;
const KEY: &str = "FLOWGAUGE_SPREAD_KEY";
const OTHER: &str = "FLOWGAUGE_SPREAD_OTHER";
const COLUMN_BITS: &str = "FLOWGAUGE_SPREAD_COLUMN_BITS";
const REGISTER_BITS: &str = "FLOWGAUGE_SPREAD_REGISTER_BITS";
/// Longest-prefix tables from bits of a pair's hash to its rank and to its level.
const RANKS: [&str; 4] = ["ranks", "rank_bits", "set_rank", "rank"];
const LEVELS: [&str; 4] = ["levels", "level_bits", "set_level", "level"];
/// Bits of a level, and the highest one.
const LEVEL_BITS: u32 = 5;
const MAX_LEVEL: u8 = 31;
/// Upper bits of a signature, in a priority below the level.
const SIGNATURE_BITS: u32 = 27;

/// Arrays of a row: registers, then the parts of the candidates.
const REGISTERS: &str = "registers";
const CANDIDATES: &str = "candidates";
const CANDIDATE: [&str; 2] = ["priority", "address0"];
const VERSIONS: &str = "versions";
const VERSIONED: [&str; 2] = ["version", "address1"];
const HALF: [&str; 2] = ["high", "low"];

/// Returns the arrays of the other words of a row's candidates, with their first word in a key.
fn halves(by: KeyKind) -> impl Iterator<Item = (&'static str, usize)> {
    let dst =
        [("dst_upper", 4), ("dst_lower", 6)].into_iter().filter(move |_| by == KeyKind::SrcDst);
    [("upper", first_word(by))].into_iter().chain(dst)
}

/// Returns the first word of the key's first address.
fn first_word(by: KeyKind) -> usize {
    if by == KeyKind::Dst { 4 } else { 0 }
}

/// Returns the sketch that is on, with its index. Programs have one.
fn on(settings: &Settings) -> Option<(usize, &spread::Settings)> {
    settings.spread.iter().enumerate().find(|(_, sketch)| sketch.on)
}

pub(super) struct Spread;

impl SwitchMeasurement for Spread {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_SPREAD")
    }

    fn check(&self, settings: &Settings) -> Result<(), Failure> {
        if let Some(problem) = spread::Settings::problem(&settings.spread) {
            return Err(Failure::program(format!("it cannot count distinct others so; {problem}")));
        }
        let sketches = settings.spread.iter().filter(|sketch| sketch.on).count();
        if sketches > 1 {
            return Err(Failure::program(format!(
                "it counts the distinct others of one key, {sketches} are wanted; leave one out"
            )));
        }
        Ok(())
    }

    fn read(&self, program: &StatedSettings, settings: &mut Settings) -> Result<(), Failure> {
        let registers = 1 << program.bits(REGISTER_BITS)?;
        if !CELL_REGISTERS.contains(&registers) {
            return Err(program.out_of_range(REGISTER_BITS));
        }
        let sketch = spread::Settings {
            on: true,
            by: program.key(KEY)?,
            of: program.one_of(OTHER, OtherKind::ALL, |of| of as u32)?,
            ..spread::Settings::DEFAULT
        };
        let sketch = sketch
            .sized(ROWS, 1 << program.bits(COLUMN_BITS)?, registers)
            .ok_or_else(|| program.out_of_range(COLUMN_BITS))?;
        if sketch.pair().is_none() {
            return Err(program.out_of_range(OTHER));
        }
        let [first, _] = &mut settings.spread;
        *first = sketch;
        Ok(())
    }

    fn check_hashes(&self, schema: &Schema, settings: &Settings) -> Result<(), Failure> {
        match on(settings) {
            Some((_, sketch)) if sketch.pair() == Some(Pair::WithPort) => {
                hash::check_with_port(schema, sketch.by)
            }
            _ => Ok(()),
        }
    }

    fn layout(&self, settings: &Settings) -> Layout {
        let sketch = on(settings).map_or(spread::Settings::DEFAULT, |(_, sketch)| *sketch);
        let spread::Settings { by, of, registers, shape, .. } = sketch;
        let array = |name: &str, row: usize, fields| {
            Array::new(names::of(KIND, by, &format!("{name}{row}")), shape.columns(), fields)
        };
        let arrays = (0..ROWS).flat_map(|row| {
            let of_cells = Array {
                per_bank: shape.columns() << registers.bits(),
                bits: u8::BITS,
                highest: registers.max_level().into(),
                ..array(REGISTERS, row, &names::REGISTER_VALUE)
            };
            let mut arrays = vec![
                of_cells,
                array(CANDIDATES, row, &CANDIDATE),
                array(VERSIONS, row, &VERSIONED),
            ];
            arrays.extend(halves(by).map(|(name, _)| array(name, row, &HALF)));
            arrays
        });
        let arrays = arrays.collect();
        let ranks: Vec<RankEntry> = rank_table(registers).collect();
        let mut tables = vec![
            prefixes(by, RANKS, registers.rank_bits(), u8::BITS, registers.max_level(), ranks),
            prefixes(by, LEVELS, u32::BITS, LEVEL_BITS, MAX_LEVEL, levels()),
        ];
        let mut keys = vec![by];
        match sketch.pair() {
            Some(Pair::Key(key)) => keys.push(key),
            Some(Pair::WithPort) => tables.extend(hash::row_words(hash::WITH_PORT)),
            None => {}
        }
        Layout {
            description: format!(
                "by {}, of {}, {} columns of {} registers",
                by.name(),
                of.name(),
                shape.columns(),
                registers.registers()
            ),
            definitions: vec![
                (KEY, by as u32),
                (OTHER, of as u32),
                (COLUMN_BITS, shape.column_bits()),
                (REGISTER_BITS, registers.bits()),
            ],
            arrays,
            rows: Some((keys, shape)),
            tables,
        }
    }

    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
        let ReadArrays { settings, words, arrays } = read;
        let Some((index, sketch)) = on(settings) else { return 0 };
        let (registers, candidates) = bank.spread.sketch_mut(&settings.spread, index);
        let mut changed = 0;
        for (row, arrays) in arrays.chunks(3 + halves(sketch.by).count()).enumerate() {
            let [ranks, parts @ ..] = arrays else { continue };
            let first = sketch.cell(row, 0);
            for pipe in ranks {
                let own = registers.iter_mut().skip(first << sketch.registers.bits());
                own.zip(pipe).for_each(|(register, [rank, _])| {
                    *register = (*register).max(*rank as u8);
                });
            }
            let own = candidates.iter_mut().skip(first).take(sketch.shape.columns());
            for (column, candidate) in own.enumerate() {
                for pipe in 0..ranks.len() {
                    let values: Vec<[u32; 2]> = parts
                        .iter()
                        .filter_map(|cells| cells.get(pipe)?.get(column).copied())
                        .collect();
                    match of_cell(sketch.by, words, &values) {
                        Some(found) => *candidate = (*candidate).max(found),
                        None => changed += 1,
                    }
                }
            }
        }
        changed
    }
}

/// Returns the candidate of a cell of a pipe, from its values in all arrays; `None` if it changed
/// while it was read.
fn of_cell(by: KeyKind, tabulation: &Tabulation, values: &[[u32; 2]]) -> Option<Candidate> {
    let [[priority, address0], [version, address1], others @ ..] = values else { return None };
    if *priority == 0 {
        return Some(Candidate::EMPTY);
    }
    let lower = [(first_word(by) + 2, [*address1, *address0])];
    let mut words = [0; WORDS];
    for (first, pair) in halves(by).map(|(_, first)| first).zip(others.iter().copied()).chain(lower)
    {
        words.iter_mut().skip(first).zip(pair).for_each(|(word, value)| *word = value);
    }
    let key = flow(by, *version, words)?;
    let level = (priority >> SIGNATURE_BITS) as u8;
    let candidate = Candidate::new(level, crc32(key.as_bytes()), key, tabulation);
    // The key, if it belongs to the priority.
    (level > 0 && candidate.priority() == *priority).then_some(candidate)
}

/// Returns the prefixes of the levels below the highest, which has none.
fn levels() -> Vec<RankEntry> {
    let entry = |level: u8| RankEntry {
        value: 1 << (u32::BITS - u32::from(level)),
        prefix_length: level.into(),
        level,
    };
    (1..MAX_LEVEL).map(entry).collect()
}

/// Returns a table from bits of a pair's hash to the number of their leading zeros plus one, by its
/// name and those of its key, action and parameter. `highest` is that of bits without an entry.
fn prefixes(
    by: KeyKind,
    [table, key, action, parameter]: [&'static str; 4],
    key_bits: u32,
    bits: u32,
    highest: u8,
    entries: Vec<RankEntry>,
) -> MatchTable {
    let data = move |level: u8| vec![names::bytes(level.into(), bits)];
    let filling = move |_: &DesiredState| {
        let entries = entries.iter().map(|entry| {
            let value = names::bytes(entry.value, key_bits);
            (
                vec![(key, Match::Lpm { value, prefix_length: entry.prefix_length })],
                data(entry.level),
            )
        });
        TableContents { entries: entries.collect(), default: Some(data(highest)) }
    };
    let name = names::of(KIND, by, table);
    MatchTable::new(name, vec![(key, key_bits)], action, vec![(parameter, bits)], filling)
}
