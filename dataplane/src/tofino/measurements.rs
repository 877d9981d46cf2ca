//! The measurements of a program: found in its schema, and what their match tables hold.

use super::arrays;
use super::definitions::ROWS;
use super::failure::Failure;
use super::names;
use super::program::{Content, Program, action_data, bytes, entry, entry_of};
use crate::tables::Tables;
use flowgauge_bfruntime::schema::{Schema, SchemaError, Table};
use flowgauge_bfruntime::{Match, codec};
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::entropy::DERIVATIVE_OF_LOG;
use flowgauge_core::heavy::{self, Algorithm, PRECISION_STAGES, Unit};
use flowgauge_core::logarithm::{LogarithmEntry, PER_PACKET};
use flowgauge_core::membership;
use flowgauge_core::sketch;
use flowgauge_core::{Grid, HashMode, KeyKind, Precision, Settings, SketchKind};

/// What a program measures. All that it takes is looked up once, so that nothing can be missing later.
pub(super) fn find(schema: &Schema) -> Result<Settings, Failure> {
    let off = cardinality::Settings { mode: Mode::Off, ..cardinality::Settings::DEFAULT };
    let mut settings = Settings::only(off);
    settings.cardinality = cardinality(schema)?.unwrap_or(off);
    let [entropy, ..] = &mut settings.entropy;
    *entropy = sketch(schema, "entropy")?;
    settings.frequency = sketch(schema, "frequency")?;
    settings.membership = membership(schema)?;
    settings.heavy = heavy(schema)?;
    for array in arrays::of(&settings) {
        array.check(schema)?;
    }
    check_tables(schema, &settings)?;
    Ok(settings)
}

fn cardinality(schema: &Schema) -> Result<Option<cardinality::Settings>, Failure> {
    let Some((key, registers)) = arrays::find(schema, "cardinality", names::REGISTERS)? else { return Ok(None) };
    let hash = match schema.table(names::TABULATION[0]) {
        Ok(_) => HashMode::Tabulated,
        Err(SchemaError::Missing { .. }) => HashMode::Crc32,
        Err(error) => return Err(Failure::program(error)),
    };
    let precision = u8::try_from(arrays::bits_of_bank(registers)?).ok().and_then(Precision::new);
    let precision = precision.ok_or_else(|| out_of_range(registers))?;
    Ok(Some(cardinality::Settings { mode: Mode::Windowed, key, hash, precision }))
}

fn sketch(schema: &Schema, measurement: &str) -> Result<sketch::Settings, Failure> {
    for kind in SketchKind::ALL {
        if let Some((key, row)) = arrays::find(schema, measurement, &names::sketch_row(kind, 0))? {
            let shape = Grid::of_counters(ROWS, 1 << arrays::bits_of_bank(row)?.min(31)).ok_or_else(|| out_of_range(row))?;
            return Ok(sketch::Settings { mode: kind.into(), key, shape });
        }
    }
    Ok(sketch::Settings::DEFAULT)
}

fn membership(schema: &Schema) -> Result<membership::Settings, Failure> {
    let Some((key, row)) = arrays::find(schema, "membership", &names::filter_row(0))? else {
        return Ok(membership::Settings::DEFAULT);
    };
    let shape = Grid::of_bits(ROWS, 32 << arrays::bits_of_bank(row)?.min(26)).ok_or_else(|| out_of_range(row))?;
    Ok(membership::Settings { on: true, key, shape })
}

fn heavy(schema: &Schema) -> Result<heavy::Settings, Failure> {
    let Some((key, stage)) = arrays::find(schema, "heavy", &names::flows(0))? else { return Ok(heavy::Settings::DEFAULT) };
    let slots_log2 = (arrays::bits_of_bank(stage)? + PRECISION_STAGES.ilog2()).min(u8::MAX.into()) as u8;
    let settings = heavy::Settings { algorithm: Algorithm::Precision, key, unit: Unit::Packets, slots_log2 };
    // What is outside is taken for the nearest.
    if settings.slots().ilog2() != u32::from(slots_log2) {
        return Err(out_of_range(stage));
    }
    Ok(settings)
}

fn out_of_range(table: &Table) -> Failure {
    Failure::program(format!("{} has {} registers, too few or too many", table.name, table.size))
}

/// Whether sketches or filters are by this key.
fn has_rows(settings: &Settings, key: KeyKind) -> bool {
    let off = cardinality::Settings { mode: Mode::Off, ..settings.cardinality };
    Settings { cardinality: off, heavy: heavy::Settings::DEFAULT, ..*settings }.uses(key)
}

fn check_tables(schema: &Schema, settings: &Settings) -> Result<(), Failure> {
    let find = |error: SchemaError| Failure::program(format!("{error}; is it p4/flowgauge.p4?"));
    let check = |table: &str, key: &str, key_bits: u32, action: &str, parameters: &[(&str, u32)]| {
        let table = schema.table(table).map_err(find)?;
        let wrong = |is: u32, must: u32| arrays::wrong(&table.name, format!("{is} bits wide"), must.to_string());
        let bits = table.key(key).map_err(find)?.kind.bits().map_err(Failure::program)?;
        if bits != key_bits {
            return Err(wrong(bits, key_bits));
        }
        let action = table.action(action).map_err(find)?;
        for (parameter, parameter_bits) in parameters {
            let field = action.field(parameter).map_err(find)?;
            let bits = field.kind.bits().map_err(Failure::program)?;
            if bits != *parameter_bits {
                return Err(arrays::wrong(
                    &format!("{parameter} of {}", table.name),
                    format!("{bits} bits wide"),
                    parameter_bits.to_string(),
                ));
            }
        }
        Ok(())
    };
    let Settings { cardinality, entropy: [entropy, ..], .. } = settings;
    if cardinality.mode != Mode::Off {
        let rank = names::of("cardinality", cardinality.key, names::RANK);
        let level = [(names::LEVEL_PARAMETER, 8)];
        check(&rank, names::RANK_KEY, cardinality.precision.rank_bits(), names::SET_LEVEL, &level)?;
        if cardinality.hash == HashMode::Tabulated {
            for (table, action) in names::TABULATION.iter().zip(names::SET_WORD) {
                check(table, names::TABULATION_KEY, 8, action, &[(names::WORD_PARAMETER, 32)])?;
            }
        }
    }
    for key in KeyKind::ALL.into_iter().filter(|key| has_rows(settings, *key)) {
        for (table, action) in names::row_words(key).iter().zip(names::SET_WORDS) {
            check(table, names::TABULATION_KEY, 8, action, &names::WORDS_PARAMETERS.map(|name| (name, 32)))?;
        }
    }
    if entropy.mode != sketch::Mode::Off {
        let logarithm = names::of("entropy", entropy.key, names::LOGARITHM);
        check(&logarithm, names::LOGARITHM_KEY, 32, names::SET_TERM, &names::TERM_PARAMETERS.map(|name| (name, 32)))?;
    }
    if settings.heavy.algorithm != Algorithm::Off {
        let admission = names::of("heavy", settings.heavy.key, names::ADMISSION);
        for key in names::ADMISSION_KEYS {
            check(&admission, key, 32, names::ADMIT, &[])?;
        }
    }
    Ok(())
}

/// What the match tables of the measurements that are wanted must hold.
pub(super) fn contents(program: &Program, wanted: &Settings, tables: &Tables) -> Result<Vec<Content>, Failure> {
    let mut contents = Vec::new();
    let Settings { cardinality, entropy: [entropy, ..], .. } = wanted;
    if cardinality.mode != Mode::Off {
        contents.push(rank(program, cardinality, tables)?);
        if cardinality.hash == HashMode::Tabulated {
            for ((table, action), words) in names::TABULATION.iter().zip(names::SET_WORD).zip(tables.tabulation.tables()) {
                let data = |word: &u32| vec![(names::WORD_PARAMETER, word.to_be_bytes().to_vec())];
                contents.push(of_bytes(program, table, action, words.iter().map(data))?);
            }
        }
    }
    let [block, ..] = tables.tabulation.rows();
    for key in KeyKind::ALL.into_iter().filter(|key| has_rows(wanted, *key)) {
        for ((table, action), words) in names::row_words(key).iter().zip(names::SET_WORDS).zip(block) {
            let data = |word: &u64| {
                let halves = [*word as u32, (*word >> 32) as u32].map(|half| half.to_be_bytes().to_vec());
                names::WORDS_PARAMETERS.into_iter().zip(halves).collect()
            };
            contents.push(of_bytes(program, table, action, words.iter().map(data))?);
        }
    }
    if entropy.mode != sketch::Mode::Off {
        contents.push(logarithm(program, entropy, tables)?);
    }
    if wanted.heavy.algorithm != Algorithm::Off {
        contents.push(admission(program, &wanted.heavy, tables)?);
    }
    Ok(contents)
}

/// A table with an entry for every byte.
fn of_bytes<'a>(
    program: &Program,
    table: &str,
    action: &str,
    data: impl Iterator<Item = Vec<(&'a str, Vec<u8>)>>,
) -> Result<Content, Failure> {
    let of = program.table(table)?;
    let entries = (0..=u8::MAX).zip(data);
    let entries = entries.map(|(byte, data)| entry(of, (names::TABULATION_KEY, Match::Exact(vec![byte])), action, &data));
    Ok(Content { table: table.to_owned(), entries: entries.collect::<Result<_, _>>()?, default: None })
}

fn rank(program: &Program, settings: &cardinality::Settings, tables: &Tables) -> Result<Content, Failure> {
    let name = names::of("cardinality", settings.key, names::RANK);
    let table = program.table(&name)?;
    let entries = tables.rank.iter().map(|rank| {
        let value = bytes(rank.value, settings.precision.rank_bits());
        let key = (names::RANK_KEY, Match::Lpm { value, prefix_length: rank.prefix_length });
        entry(table, key, names::SET_LEVEL, &[(names::LEVEL_PARAMETER, vec![rank.level])])
    });
    let entries = entries.collect::<Result<_, _>>()?;
    let highest = vec![settings.precision.max_level()];
    let default = action_data(table, names::SET_LEVEL, &[(names::LEVEL_PARAMETER, highest)])?;
    Ok(Content { table: name, entries, default: Some(default) })
}

/// From the smaller count of a flow's two slots, and a coin, to whether the flow takes the slot.
fn admission(program: &Program, settings: &heavy::Settings, tables: &Tables) -> Result<Content, Failure> {
    let name = names::of("heavy", settings.key, names::ADMISSION);
    let table = program.table(&name)?;
    let [count, coin] = names::ADMISSION_KEYS;
    let ternary = |value: u32, mask: u32| Match::Ternary { value: value.to_be_bytes().to_vec(), mask: mask.to_be_bytes().to_vec() };
    let entries = (0_u32..).zip(&tables.admission).map(|(priority, admission)| {
        let key = [
            (count, ternary(admission.count, admission.count_mask)),
            (coin, ternary(0, admission.coin_mask)),
            (codec::PRIORITY, Match::Exact(priority.to_be_bytes().to_vec())),
        ];
        entry_of(table, key, names::ADMIT, &[])
    });
    Ok(Content { table: name, entries: entries.collect::<Result<_, _>>()?, default: None })
}

/// From a flow's count to what it adds to the sum; a count of one adds nothing.
fn logarithm(program: &Program, settings: &sketch::Settings, tables: &Tables) -> Result<Content, Failure> {
    let name = names::of("entropy", settings.key, names::LOGARITHM);
    let table = program.table(&name)?;
    // Counters of Count-Min that are negative, were they signed, stand for the largest that is not.
    let largest = LogarithmEntry { value: 1 << 31, prefix_length: 1, log2: PER_PACKET.log2((1 << 31) - 1) };
    let largest = (settings.mode == sketch::Mode::CountMin).then_some(largest);
    let data = |term: u32| {
        let values = [term, !term].map(|value| value.to_be_bytes().to_vec());
        names::TERM_PARAMETERS.into_iter().zip(values).collect::<Vec<_>>()
    };
    let entries = tables.logarithm.iter().chain(&largest).map(|logarithm| {
        let value = logarithm.value.to_be_bytes().to_vec();
        let key = (names::LOGARITHM_KEY, Match::Lpm { value, prefix_length: logarithm.prefix_length });
        entry(table, key, names::SET_TERM, &data(logarithm.log2.wrapping_add(DERIVATIVE_OF_LOG)))
    });
    let entries = entries.collect::<Result<_, _>>()?;
    Ok(Content { table: name, entries, default: Some(action_data(table, names::SET_TERM, &data(0))?) })
}
