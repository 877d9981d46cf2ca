//! Packets of any flow: a sketch.

use super::{BankCells, Failure, Layout, StatedSettings, SwitchMeasurement, rows};
use flowgauge_core::{MeasurementKind, Settings, Tabulation, WindowTotals};

const KIND: MeasurementKind = MeasurementKind::Frequency;
const DEFINITIONS: [&str; 3] =
    ["FLOWGAUGE_FREQUENCY_KEY", "FLOWGAUGE_FREQUENCY_SKETCH", "FLOWGAUGE_FREQUENCY_COLUMN_BITS"];

pub(super) struct Frequency;

impl SwitchMeasurement for Frequency {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_FREQUENCY")
    }

    fn read(&self, program: &StatedSettings, settings: &mut Settings) -> Result<(), Failure> {
        settings.frequency = rows::read(program, DEFINITIONS)?;
        Ok(())
    }

    fn layout(&self, Settings { frequency, .. }: &Settings) -> Layout {
        rows::layout(KIND, DEFINITIONS, frequency)
    }

    fn merge(
        &self,
        Settings { frequency, .. }: &Settings,
        _: &Tabulation,
        arrays: &[BankCells],
        bank: &mut WindowTotals,
    ) -> usize {
        rows::merge(frequency, arrays, &mut bank.frequency);
        0
    }
}
