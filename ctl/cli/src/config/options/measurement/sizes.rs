//! Packet lengths, which have no options.

use super::Measurement;
use crate::config::Traffic;
use crate::config::options::Options;
use clap::Args;
use flowgauge_core::{Settings, sizes};
use flowgauge_dataplane::MeasurementKind;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct SizesArgs {}

impl Measurement for SizesArgs {
    const KIND: MeasurementKind = MeasurementKind::Sizes;

    fn settings(&self, _: &Options, _: &Traffic, settings: &mut Settings) {
        settings.sizes = sizes::Settings::ON;
    }
}
