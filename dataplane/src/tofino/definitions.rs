//! How `p4/flowgauge.p4` is compiled to count as settings ask.

use super::failure::Failure;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::heavy::{Algorithm, Unit};
use flowgauge_core::{HashMode, MeasurementKind, Settings, sketch};

/// Rows that sketches and filters have on a switch: the median of three takes three comparisons.
pub(super) const ROWS: usize = 3;

/// One measurement of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Which.
    pub kind: MeasurementKind,
    /// By which key and how; nothing if it is off.
    pub description: Option<String>,
    /// The compiler's definitions, as in `-DFLOWGAUGE_KEY=0`.
    pub definitions: Vec<(&'static str, u32)>,
}

/// The measurements of a program that counts as these settings ask, and how to compile it. What is off is defined as off.
///
/// # Errors
/// [`Failure::Program`] if no program does.
pub fn builds(settings: &Settings) -> Result<[Build; 5], Failure> {
    let Settings { cardinality, entropy: [entropy, second], frequency, membership, heavy, headers } = settings;
    if headers.inner {
        return Err(Failure::program("it opens no tunnels (--inner)"));
    }
    if cardinality.hash == HashMode::Keyed {
        return Err(Failure::program("it hashes by CRCs and not by keyed, which takes multiplications of 64 bits"));
    }
    if cardinality.mode == Mode::Staggered {
        return Err(Failure::program("it has no staggered registers"));
    }
    if second.mode != sketch::Mode::Off {
        return Err(Failure::program("it measures one entropy, the first"));
    }
    if !matches!(heavy.algorithm, Algorithm::Off | Algorithm::Precision) {
        let why = if heavy.algorithm.takes_any_slot() { ", which takes the smallest of all counts" } else { "" };
        let (precision, wanted) = (Algorithm::Precision.name(), heavy.algorithm.name());
        return Err(Failure::program(format!("it finds heavy hitters by {precision} and not by {wanted}{why}")));
    }
    if heavy.algorithm != Algorithm::Off && heavy.unit != Unit::Packets {
        return Err(Failure::program(format!("it finds the flows with the most packets, not {}", heavy.unit.name())));
    }
    let distinct = (cardinality.mode != Mode::Off).then(|| {
        let (key, hash) = (cardinality.key, cardinality.hash);
        let description = format!("by {}, {}, {} registers", key.name(), hash.name(), cardinality.precision.registers());
        let definitions = vec![
            ("FLOWGAUGE_KEY", key as u32),
            ("FLOWGAUGE_HASH", hash as u32),
            ("FLOWGAUGE_PRECISION", cardinality.precision.bits()),
        ];
        (description, definitions)
    });
    let filter = membership.on.then(|| {
        let description = format!("by {}, {} bits a row", membership.key.name(), 1_u32 << membership.shape.column_bits());
        let definitions = vec![
            ("FLOWGAUGE_MEMBERSHIP_KEY", membership.key as u32),
            ("FLOWGAUGE_MEMBERSHIP_ROW_BITS", membership.shape.column_bits()),
        ];
        (description, definitions)
    });
    let slots = (heavy.algorithm != Algorithm::Off).then(|| {
        let description = format!("by {}, {}, {} slots", heavy.key.name(), heavy.algorithm.name(), heavy.slots());
        let definitions = vec![("FLOWGAUGE_HEAVY_KEY", heavy.key as u32), ("FLOWGAUGE_HEAVY_SLOT_BITS", heavy.slots().ilog2())];
        (description, definitions)
    });
    let of_entropy = ["FLOWGAUGE_ENTROPY_KEY", "FLOWGAUGE_ENTROPY_SKETCH", "FLOWGAUGE_ENTROPY_COLUMN_BITS"];
    let of_frequency = ["FLOWGAUGE_FREQUENCY_KEY", "FLOWGAUGE_FREQUENCY_SKETCH", "FLOWGAUGE_FREQUENCY_COLUMN_BITS"];
    check_rows("entropy", entropy.mode != sketch::Mode::Off, entropy.shape.rows())?;
    check_rows("frequency", frequency.mode != sketch::Mode::Off, frequency.shape.rows())?;
    check_rows("membership", membership.on, membership.shape.rows())?;
    Ok([
        build(MeasurementKind::Cardinality, "FLOWGAUGE_CARDINALITY", distinct),
        build(MeasurementKind::Entropy, "FLOWGAUGE_ENTROPY", of_sketch(entropy, of_entropy)),
        build(MeasurementKind::Frequency, "FLOWGAUGE_FREQUENCY", of_sketch(frequency, of_frequency)),
        build(MeasurementKind::Membership, "FLOWGAUGE_MEMBERSHIP", filter),
        build(MeasurementKind::Heavy, "FLOWGAUGE_HEAVY", slots),
    ])
}

/// The compiler's definitions of all [`builds`].
///
/// # Errors
/// As of [`builds`].
pub fn definitions(settings: &Settings) -> Result<Vec<(&'static str, u32)>, Failure> {
    Ok(builds(settings)?.into_iter().flat_map(|build| build.definitions).collect())
}

type Details = (String, Vec<(&'static str, u32)>);

fn build(kind: MeasurementKind, switch: &'static str, details: Option<Details>) -> Build {
    let on = (switch, u32::from(details.is_some()));
    let (description, details) = details.unzip();
    Build { kind, description, definitions: [on].into_iter().chain(details.unwrap_or_default()).collect() }
}

fn of_sketch(settings: &sketch::Settings, [key, sketch, column_bits]: [&'static str; 3]) -> Option<Details> {
    let kind = settings.mode.sketch()?;
    let description = format!("by {}, {}, {} columns", settings.key.name(), kind.name(), settings.shape.columns());
    let shape = settings.shape.column_bits();
    Some((description, vec![(key, settings.key as u32), (sketch, settings.mode as u32), (column_bits, shape)]))
}

fn check_rows(measurement: &str, on: bool, rows: usize) -> Result<(), Failure> {
    if on && rows != ROWS {
        return Err(Failure::program(format!("it has {ROWS} rows for {measurement}, {rows} are wanted")));
    }
    Ok(())
}
