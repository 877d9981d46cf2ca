//! Sketches of rows and columns, which several measurements use.

use crate::config::options::Options;
use crate::config::value::{self, rows_and_columns};
use crate::config::{CountingPart, Traffic};
use flowgauge_core::hash::MAX_ROWS;
use flowgauge_core::sketch::{MAX_CELLS, Settings};
use flowgauge_core::{Grid, KeyKind, SketchKind};
use flowgauge_dataplane::MeasurementKind;

/// Measurements that use a sketch of rows and columns, and their default.
const SKETCHED: [(MeasurementKind, SketchKind); 2] = [
    (MeasurementKind::Entropy, SketchKind::CountSketch),
    (MeasurementKind::Frequency, SketchKind::CountMin),
];

/// Sketch of a measurement, as in `entropy=count-sketch:4x1024`, `frequency=count-min` or
/// `frequency=8x1024`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SketchSpec {
    pub(crate) measurement: MeasurementKind,
    kind: Option<SketchKind>,
    shape: Option<Grid>,
}

pub(crate) fn sketch(text: &str) -> Result<SketchSpec, String> {
    let wanted = || {
        "give NAME=KIND:ROWSxCOLUMNS, such as entropy=count-sketch:4x1024 or frequency=count-min"
            .to_owned()
    };
    let (name, sketch) = text.split_once('=').ok_or_else(wanted)?;
    let measurement = value::measurement(name.trim())?;
    if !SKETCHED.iter().any(|(kind, _)| *kind == measurement) {
        let names = SKETCHED.map(|(kind, _)| kind.name()).join(" and ");
        return Err(format!(
            "{} has no sketch of rows and columns; use {names}",
            measurement.name()
        ));
    }
    let (kind, shape) = match sketch.split_once(':') {
        Some((kind, shape)) => (Some(kind), Some(shape)),
        None if sketch.starts_with(|first: char| first.is_ascii_digit()) => (None, Some(sketch)),
        None => (Some(sketch), None),
    };
    let kind = kind.map(value::sketch_kind).transpose()?;
    let shape = shape.map(|shape| {
        let most = MAX_CELLS;
        let shape = rows_and_columns(shape).and_then(|(rows, columns)| Grid::of_counters(rows, columns));
        shape.ok_or_else(|| {
            format!("give ROWSxCOLUMNS: 1 to {MAX_ROWS} rows, columns a power of two from 16, at most {most} in total")
        })
    });
    Ok(SketchSpec { measurement, kind, shape: shape.transpose()? })
}

impl Options {
    /// Returns the sketch settings of a measurement with this key.
    pub(super) fn sketch(
        &self,
        measurement: MeasurementKind,
        key: KeyKind,
        traffic: &Traffic,
    ) -> Settings {
        let given = self
            .measurement_args
            .entropy
            .sketch
            .iter()
            .rev()
            .find(|given| given.measurement == measurement);
        let usual = SKETCHED.iter().find(|(kind, _)| *kind == measurement);
        let usual = usual.map_or(SketchKind::CountMin, |(_, sketch)| *sketch);
        let usual_shape =
            if traffic.counter == CountingPart::Switch { Grid::of_counters(3, 1024) } else { None };
        Settings {
            mode: given.and_then(|given| given.kind).unwrap_or(usual).into(),
            key,
            shape: given.and_then(|given| given.shape).or(usual_shape).unwrap_or(Grid::COUNTERS),
        }
    }
}
