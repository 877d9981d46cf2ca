//! Rows of sketches.

use super::{Array, BankCells, Failure, Layout, StatedSettings, names};
use flowgauge_core::{Grid, MeasurementKind, SketchKind, SketchTotals, sketch};

/// Rows of sketches and filters on a switch: the median of three takes three comparisons.
pub(in super::super) const ROWS: usize = 3;

/// Returns the name of a row of a sketch.
fn name(kind: SketchKind, row: usize) -> String {
    format!("{}{row}", kind.name().replace('-', "_"))
}

/// Reads the sketch of a measurement by the definitions of its key, kind and number of columns.
pub(super) fn read(
    program: &StatedSettings,
    [key, kind, columns]: [&str; 3],
) -> Result<sketch::Settings, Failure> {
    let mode = program.one_of(kind, SketchKind::ALL.map(sketch::Mode::from), |mode| mode as u32)?;
    let shape = Grid::of_counters(ROWS, 1 << program.bits(columns)?);
    let shape = shape.ok_or_else(|| program.out_of_range(columns))?;
    Ok(sketch::Settings { mode, key: program.key(key)?, shape })
}

/// Returns the layout of a measurement with a sketch. The definitions are those of its key, kind
/// and number of columns.
pub(super) fn layout(
    measurement: MeasurementKind,
    definitions: [&'static str; 3],
    settings: &sketch::Settings,
) -> Layout {
    let sketch::Settings { mode, key, shape } = *settings;
    let names =
        mode.sketch().into_iter().flat_map(|kind| (0..ROWS).map(move |row| name(kind, row)));
    let arrays = names.map(|row| {
        Array::new(names::of(measurement, key, &row), shape.columns(), &names::REGISTER_VALUE)
    });
    let kind = mode.sketch().map_or("off", SketchKind::name);
    Layout {
        description: format!("by {}, {kind}, {} columns", key.name(), shape.columns()),
        definitions: definitions
            .into_iter()
            .zip([key as u32, mode as u32, shape.column_bits()])
            .collect(),
        arrays: arrays.collect(),
        rows: Some((vec![key], shape)),
        tables: Vec::new(),
    }
}

pub(super) fn merge(settings: &sketch::Settings, rows: &[BankCells], sketch: &mut SketchTotals) {
    let Some(kind) = settings.mode.sketch() else { return };
    for (row, cells) in rows.iter().enumerate() {
        for (column, [value, _]) in cells.iter().flat_map(|pipe| pipe.iter().enumerate()) {
            sketch.add(kind, row << settings.shape.column_bits() | column, *value as i32);
        }
    }
}
