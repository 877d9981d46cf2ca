//! Seen flows: a Bloom filter, 32 bits per element.

use super::{Array, Failure, Layout, ROWS, ReadArrays, StatedSettings, SwitchMeasurement, names};
use flowgauge_core::{Grid, MeasurementKind, Settings, WindowTotals, membership};

const KIND: MeasurementKind = MeasurementKind::Membership;
const KEY: &str = "FLOWGAUGE_MEMBERSHIP_KEY";
const ROW_BITS: &str = "FLOWGAUGE_MEMBERSHIP_ROW_BITS";

/// Returns the name of a row of the filter.
fn name(row: usize) -> String {
    format!("bits{row}")
}

pub(super) struct Membership;

impl SwitchMeasurement for Membership {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_MEMBERSHIP")
    }

    fn read(&self, program: &StatedSettings, settings: &mut Settings) -> Result<(), Failure> {
        let shape = Grid::of_bits(ROWS, 1 << program.bits(ROW_BITS)?);
        let shape = shape.ok_or_else(|| program.out_of_range(ROW_BITS))?;
        settings.membership = membership::Settings { on: true, key: program.key(KEY)?, shape };
        Ok(())
    }

    fn layout(&self, Settings { membership, .. }: &Settings) -> Layout {
        let membership::Settings { key, shape, .. } = *membership;
        let bits = shape.column_bits();
        let row = |row| {
            Array::new(names::of(KIND, key, &name(row)), 1 << (bits - 5), &names::REGISTER_VALUE)
        };
        Layout {
            description: format!("by {}, {} bits a row", key.name(), 1_u32 << bits),
            definitions: vec![(KEY, key as u32), (ROW_BITS, bits)],
            arrays: (0..ROWS).map(row).collect(),
            rows: Some((vec![key], shape)),
            tables: Vec::new(),
        }
    }

    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
        let shape = read.settings.membership.shape;
        let words = bank.membership.words_mut(shape);
        for (row, cells) in read.arrays.iter().enumerate() {
            for (index, [value, _]) in cells.iter().flat_map(|pipe| pipe.iter().enumerate()) {
                let place = row << shape.column_bits() | index << 5;
                if let Some(word) = words.get_mut(place >> 6) {
                    *word |= u64::from(*value) << (place & 32);
                }
            }
        }
        0
    }
}
