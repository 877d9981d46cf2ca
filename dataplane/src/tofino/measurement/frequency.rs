//! Packets of any flow: a sketch.

use super::{Cells, Failure, Layout, OnSwitch, Statement, rows};
use flowgauge_core::{MeasurementKind, Settings, WideBank};

const KIND: MeasurementKind = MeasurementKind::Frequency;
const DEFINITIONS: [&str; 3] =
    ["FLOWGAUGE_FREQUENCY_KEY", "FLOWGAUGE_FREQUENCY_SKETCH", "FLOWGAUGE_FREQUENCY_COLUMN_BITS"];

pub(super) struct Frequency;

impl OnSwitch for Frequency {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_FREQUENCY")
    }

    fn read(&self, program: &Statement, settings: &mut Settings) -> Result<(), Failure> {
        settings.frequency = rows::read(program, DEFINITIONS)?;
        Ok(())
    }

    fn layout(&self, Settings { frequency, .. }: &Settings) -> Layout {
        rows::layout(KIND, DEFINITIONS, frequency)
    }

    fn merge(
        &self,
        Settings { frequency, .. }: &Settings,
        arrays: &[Cells],
        bank: &mut WideBank,
    ) -> usize {
        rows::merge(frequency, arrays, &mut bank.frequency);
        0
    }
}
