//! Frequency, which has no options of its own.

use super::Measurement;
use crate::config::Traffic;
use crate::config::options::Options;
use clap::Args;
use flowgauge_core::Settings;
use flowgauge_dataplane::MeasurementKind;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct FrequencyArgs {}

impl Measurement for FrequencyArgs {
    const KIND: MeasurementKind = MeasurementKind::Frequency;

    fn settings(&self, options: &Options, traffic: &Traffic, settings: &mut Settings) {
        settings.frequency = options.sketch(Self::KIND, options.key(Self::KIND), traffic);
    }
}
