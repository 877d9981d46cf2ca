//! Values of `--measure` and `--key`.

use crate::config::value;
use flowgauge_core::{ENTROPIES, KeyKind};
use flowgauge_ctl::nearest::nearest;
use flowgauge_dataplane::MeasurementKind;

/// Enabled measurements, parsed from a comma-separated list of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measurements(pub(crate) Vec<MeasurementKind>);

/// Name that stands for all measurements.
pub(crate) const EVERY: &str = "all";

/// Returns the names of all measurements.
pub(crate) fn names() -> String {
    MeasurementKind::ALL.map(MeasurementKind::name).join(", ")
}

pub(crate) fn measure(text: &str) -> Result<Measurements, String> {
    let mut measurements = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| *name != "none") {
        if name == EVERY {
            return Ok(Measurements(MeasurementKind::ALL.to_vec()));
        }
        let found = MeasurementKind::ALL.into_iter().find(|kind| kind.name() == name);
        let unknown = || {
            let known = MeasurementKind::ALL.into_iter().map(MeasurementKind::name);
            let meant = nearest(name, known)
                .map_or_else(String::new, |name| format!("did you mean '{name}'? "));
            format!(
                "unknown measurement '{name}'; {meant}use {}, {EVERY}, or none to count packets only",
                names()
            )
        };
        measurements.push(found.ok_or_else(unknown)?);
    }
    Ok(Measurements(measurements))
}

/// Key of one measurement, or of all without their own: `src` or `entropy=src+dst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyOption {
    /// Measurement; `None` for all others.
    pub(crate) measurement: Option<MeasurementKind>,
    /// Keys. Only entropy can have several.
    pub(crate) keys: Vec<KeyKind>,
}

pub(crate) fn keyed(text: &str) -> Result<KeyOption, String> {
    let (measurement, keys) = match text.split_once('=') {
        Some((name, keys)) => (Some(value::measurement(name.trim())?), keys),
        None => (None, text),
    };
    let keys =
        keys.split('+').map(|name| value::key_kind(name.trim())).collect::<Result<Vec<_>, _>>()?;
    if measurement == Some(MeasurementKind::Spread) {
        return Err("spread has its own: give --spread by=KEY,of=OTHERS".to_owned());
    }
    let most = match measurement {
        Some(
            kind @ (MeasurementKind::Sizes | MeasurementKind::Delay | MeasurementKind::Reorder),
        ) => {
            return Err(format!("{} has no key: it counts packets, not flows", kind.name()));
        }
        Some(MeasurementKind::Entropy) => ENTROPIES,
        _ => 1,
    };
    let mut different = keys.clone();
    different.sort_by_key(|key| *key as u8);
    different.dedup();
    match keys.len() <= most && different.len() == keys.len() {
        true => Ok(KeyOption { measurement, keys }),
        false => {
            Err("only entropy can have two keys, which must differ, as in entropy=src+dst"
                .to_owned())
        }
    }
}
