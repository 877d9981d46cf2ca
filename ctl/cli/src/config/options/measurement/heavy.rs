//! Options of heavy hitters.

use super::Measurement;
use crate::config::options::Options;
use crate::config::value;
use crate::config::{CountingPart, Traffic};
use clap::Args;
use flowgauge_core::heavy::{self, Algorithm, CountUnit, MAX_SLOTS};
use flowgauge_core::{KeyKind, Settings};
use flowgauge_ctl::measurement::Estimation;
use flowgauge_dataplane::MeasurementKind;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct HeavyArgs {
    /// Algorithm that finds heavy hitters: rap, space-saving, d-way-rap, hashpipe, precision
    /// [default: rap; d-way-rap in the kernel; precision on a switch]
    #[arg(long, value_name = "NAME", value_parser = value::algorithm, help_heading = "Measurement")]
    algorithm: Option<Algorithm>,

    /// Unit that makes a flow heavy: packets, bytes [default: packets]
    #[arg(long, value_name = "UNIT", value_parser = value::unit, help_heading = "Measurement")]
    by: Option<CountUnit>,

    /// Slots for heavy hitters, a power of two from 16 to 4096 [default: 1024]
    #[arg(long, value_name = "N", value_parser = slots, help_heading = "Measurement")]
    slots: Option<u8>,

    /// Number of heavy hitters to show [default: 10]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    top: Option<usize>,
}

/// Parses the number of slots of the table and returns its binary logarithm.
fn slots(text: &str) -> Result<u8, String> {
    value::power_of_two(text, 16..=MAX_SLOTS)
}

/// Returns the key. An attack has many sources, none of them heavy, and one destination. A switch
/// counts by the key with which its program was compiled, by default the source.
fn key(options: &Options, traffic: &Traffic) -> KeyKind {
    let names_victim = options.watches() && traffic.counter != CountingPart::Switch;
    let usual = if names_victim { KeyKind::Dst } else { KeyKind::Src };
    options.keys(MeasurementKind::Heavy, usual).first().copied().unwrap_or(usual)
}

impl Measurement for HeavyArgs {
    const KIND: MeasurementKind = MeasurementKind::Heavy;

    fn settings(&self, options: &Options, traffic: &Traffic, settings: &mut Settings) {
        let usual = match traffic.counter {
            CountingPart::Kernel => Algorithm::DWayRap,
            CountingPart::Switch => Algorithm::Precision,
            CountingPart::Workers => Algorithm::Rap,
        };
        settings.heavy = heavy::Settings {
            algorithm: self.algorithm.unwrap_or(usual),
            key: key(options, traffic),
            unit: self.by.unwrap_or_default(),
            slots_log2: self.slots.unwrap_or(heavy::Settings::DEFAULT.slots_log2),
        };
    }

    fn estimation(&self, _: &Options, estimation: &mut Estimation) {
        estimation.heavy.top = self.top.unwrap_or(estimation.heavy.top);
    }
}
