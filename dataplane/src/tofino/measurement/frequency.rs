//! Packets of any flow: a sketch.

use super::{Failure, Layout, ReadArrays, StatedSettings, SwitchMeasurement, rows};
use flowgauge_core::{MeasurementKind, Settings, WindowTotals};

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

    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
        rows::merge(&read.settings.frequency, read.arrays, &mut bank.frequency);
        0
    }
}
