//! Options of distinct flows.

use super::Measurement;
use crate::config::Traffic;
use crate::config::options::Options;
use crate::config::value;
use clap::Args;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::{Precision, Settings};
use flowgauge_ctl::measurement::Estimation;
use flowgauge_ctl::measurement::cardinality::estimate::Estimator;
use flowgauge_dataplane::MeasurementKind;
use flowgauge_dataplane::tofino;
use std::time::Duration;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct CardinalityArgs {
    /// Number of registers, a power of two from 16 to 65536; the relative error is about 1.04 /
    /// sqrt(registers) [default: 2048]
    #[arg(long, value_name = "N", value_parser = value::registers, help_heading = "Measurement")]
    pub(crate) registers: Option<Precision>,

    /// Estimator: ertl, flajolet (the thesis), mle [default: ertl; mle with --staggered]
    #[arg(long, value_name = "NAME", value_parser = value::estimator, help_heading = "Measurement")]
    estimator: Option<Estimator>,
}

impl Options {
    /// Returns the length of a slot of staggered registers, in nanoseconds: two rounds of all
    /// registers cover the time of `--staggered`.
    pub(crate) fn slot_ns(&self) -> u64 {
        let registers =
            self.measurement_args.cardinality.registers.unwrap_or_default().registers() as u128;
        let window = self.staggered.unwrap_or(Duration::from_secs(1));
        u64::try_from(2 * window.as_nanos() / registers).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the nearest time that staggered registers can cover on a switch, if it differs from
    /// the given one.
    pub(crate) fn nearest_on_switch(&self) -> Option<Duration> {
        self.staggered?;
        let (precision, slot_ns) =
            (self.measurement_args.cardinality.registers.unwrap_or_default(), self.slot_ns());
        let nearest = tofino::nearest_slot(precision, slot_ns);
        (nearest != slot_ns)
            .then(|| Duration::from_nanos(nearest.saturating_mul(precision.registers() as u64) / 2))
    }
}

impl Measurement for CardinalityArgs {
    const KIND: MeasurementKind = MeasurementKind::Cardinality;
    // The options also determine what is installed if the measurement is off.
    const IDLE_ALONE: bool = false;

    fn settings(&self, options: &Options, _: &Traffic, settings: &mut Settings) {
        settings.cardinality.mode =
            if options.staggered.is_some() { Mode::Staggered } else { Mode::Windowed };
    }

    fn estimation(&self, options: &Options, estimation: &mut Estimation) {
        let usual = if options.staggered.is_some() { Estimator::Mle } else { Estimator::Ertl };
        estimation.cardinality.estimator = self.estimator.unwrap_or(usual);
        estimation.cardinality.slot_ns = options.slot_ns();
    }

    fn problem(&self, options: &Options, _: &Traffic) -> Option<&'static str> {
        let covered = options.staggered?;
        match () {
            () if self.estimator == Some(Estimator::Ertl) => Some(
                "--estimator ertl is not defined for --staggered; use mle, or flajolet for the harmonic mean of the original",
            ),
            () if options.window.is_some() => Some("--staggered has no windows; remove --window"),
            () if covered < Duration::from_millis(1) => Some("--staggered must be at least 1ms"),
            () if options.measurements().iter().any(|kind| *kind != Self::KIND) => Some(
                "--staggered has no windows, which all measurements but cardinality need; remove one of them",
            ),
            () => None,
        }
    }
}
