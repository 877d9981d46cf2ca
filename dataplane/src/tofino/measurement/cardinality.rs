//! Distinct flows: a register of levels; the level is looked up by longest prefix of the rank bits.

mod staggered;

pub(in crate::tofino) use staggered::Staggered;

use super::{
    Array, Capabilities, Cells, DesiredState, Failure, Layout, MatchTable, OnSwitch, TableContents,
    array, hash, names, out_of_range,
};
use flowgauge_bfruntime::Match;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{HashMode, MeasurementKind, Precision, Settings, WideBank};

const KIND: MeasurementKind = MeasurementKind::Cardinality;
/// Registers, bank by bank.
const REGISTERS: &str = "registers";
/// Longest-prefix table from rank bits to level.
const RANK: &str = "rank";
const RANK_KEY: &str = "rank_bits";
const SET_LEVEL: &str = "set_level";
const LEVEL: &str = "level";

pub(super) struct Cardinality;

impl OnSwitch for Cardinality {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_CARDINALITY")
    }

    fn check(&self, settings: &Settings) -> Result<(), Failure> {
        if settings.hash == HashMode::Keyed {
            return Err(Failure::program(
                "it hashes by CRCs and not by keyed, which takes multiplications of 64 bits",
            ));
        }
        Ok(())
    }

    fn value(&self, Settings { cardinality, .. }: &Settings) -> u32 {
        cardinality.mode as u32
    }

    fn find(&self, schema: &Schema, settings: &mut Settings) -> Result<(), Failure> {
        settings.cardinality.mode = Mode::Off;
        let (mode, key, precision) = if let Some((key, registers)) =
            array::find(schema, KIND, REGISTERS)?
        {
            let precision =
                u8::try_from(array::bits_of_bank(registers)?).ok().and_then(Precision::new);
            (Mode::Windowed, key, precision.ok_or_else(|| out_of_range(registers))?)
        } else if let Some((key, registers)) = array::find(schema, KIND, staggered::REGISTERS)? {
            let precision =
                usize::try_from(registers.size).ok().and_then(Precision::from_registers);
            (Mode::Staggered, key, precision.ok_or_else(|| out_of_range(registers))?)
        } else {
            return Ok(());
        };
        settings.hash = hash::find(schema)?;
        settings.cardinality = cardinality::Settings { mode, key, precision };
        Ok(())
    }

    fn layout(&self, &Settings { ref cardinality, hash, .. }: &Settings) -> Layout {
        let cardinality::Settings { mode, key, precision } = *cardinality;
        let registers = Array::new(
            names::of(KIND, key, REGISTERS),
            precision.registers(),
            &names::REGISTER_VALUE,
        );
        let registers = Array { bits: 8, highest: precision.max_level().into(), ..registers };
        // As wide as in the register.
        let level_bits = if mode == Mode::Staggered { u32::BITS } else { u8::BITS };
        let level = move |level: u8| vec![names::bytes(level.into(), level_bits)];
        let filling = move |desired: &DesiredState| {
            let entries = desired.tables.rank.iter().map(|rank| {
                let value = names::bytes(rank.value, precision.rank_bits());
                (
                    vec![(RANK_KEY, Match::Lpm { value, prefix_length: rank.prefix_length })],
                    level(rank.level),
                )
            });
            TableContents {
                entries: entries.collect(),
                default: Some(level(precision.max_level())),
            }
        };
        let (rank, keys) = (names::of(KIND, key, RANK), vec![(RANK_KEY, precision.rank_bits())]);
        let rank = MatchTable::new(rank, keys, SET_LEVEL, vec![(LEVEL, level_bits)], filling);
        Layout {
            description: format!(
                "by {}, {}, {} registers{}",
                key.name(),
                hash.name(),
                precision.registers(),
                if mode == Mode::Staggered { ", staggered" } else { "" }
            ),
            definitions: vec![
                ("FLOWGAUGE_KEY", key as u32),
                ("FLOWGAUGE_HASH", hash as u32),
                ("FLOWGAUGE_PRECISION", precision.bits()),
            ],
            // Staggered registers have no banks.
            arrays: if mode == Mode::Windowed { vec![registers] } else { Vec::new() },
            rows: None,
            tables: [rank].into_iter().chain(hash::words(hash)).collect(),
        }
    }

    fn merge(
        &self,
        Settings { cardinality, .. }: &Settings,
        arrays: &[Cells],
        bank: &mut WideBank,
    ) -> usize {
        let levels = bank.cardinality.levels_mut(cardinality.precision);
        for pipe in arrays.iter().flatten() {
            levels
                .iter_mut()
                .zip(pipe)
                .for_each(|(level, [value, _])| *level = (*level).max(*value as u8));
        }
        0
    }

    fn capabilities(
        &self,
        Settings { cardinality, hash, .. }: &Settings,
        capabilities: &mut Capabilities,
    ) {
        capabilities.hashes =
            (cardinality.mode != Mode::Off).then_some(*hash).into_iter().collect();
        capabilities.precision = cardinality.precision..=cardinality.precision;
        capabilities.staggered = cardinality.mode == Mode::Staggered;
    }
}
