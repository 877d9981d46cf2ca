//! Distinct flows: a register of levels; the level is looked up by longest prefix of the rank bits.

mod staggered;

pub(in crate::tofino) use staggered::Staggered;

use super::{
    Array, Capabilities, DesiredState, Failure, Layout, MatchTable, ReadArrays, StatedSettings,
    SwitchMeasurement, TableContents, hash, names,
};
use flowgauge_bfruntime::Match;
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{HashMode, MeasurementKind, Precision, Settings, WindowTotals};

const KIND: MeasurementKind = MeasurementKind::Cardinality;
const SWITCH: &str = "FLOWGAUGE_CARDINALITY";
const KEY: &str = "FLOWGAUGE_KEY";
const HASH: &str = "FLOWGAUGE_HASH";
const PRECISION: &str = "FLOWGAUGE_PRECISION";
/// Registers, bank by bank.
const REGISTERS: &str = "registers";
/// Longest-prefix table from rank bits to level.
const RANK: &str = "rank";
const RANK_KEY: &str = "rank_bits";
const SET_LEVEL: &str = "set_level";
const LEVEL: &str = "level";

pub(super) struct Cardinality;

impl SwitchMeasurement for Cardinality {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, SWITCH)
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

    fn read(&self, program: &StatedSettings, settings: &mut Settings) -> Result<(), Failure> {
        let modes = [Mode::Windowed, Mode::Staggered];
        let precision = Precision::new(program.bits(PRECISION)?);
        settings.hash = program.one_of(HASH, HashMode::PUBLIC, |hash| hash as u32)?;
        settings.cardinality = cardinality::Settings {
            mode: program.one_of(SWITCH, modes, |mode| mode as u32)?,
            key: program.key(KEY)?,
            precision: precision.ok_or_else(|| program.out_of_range(PRECISION))?,
        };
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
                (KEY, key as u32),
                (HASH, hash as u32),
                (PRECISION, precision.bits()),
            ],
            // Staggered registers have no banks.
            arrays: if mode == Mode::Windowed { vec![registers] } else { Vec::new() },
            rows: None,
            tables: [rank].into_iter().chain(hash::words(hash)).collect(),
        }
    }

    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
        let levels = bank.cardinality.levels_mut(read.settings.cardinality.precision);
        for pipe in read.arrays.iter().flatten() {
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
