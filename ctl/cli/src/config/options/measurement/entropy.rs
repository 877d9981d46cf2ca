//! Options of entropy.

use super::Measurement;
use super::sketch::{SketchSpec, sketch};
use crate::config::Traffic;
use crate::config::options::Options;
use clap::Args;
use flowgauge_core::{KeyKind, Settings};
use flowgauge_dataplane::MeasurementKind;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct EntropyArgs {
    /// Sketch of entropy or frequency: count-sketch or count-min, rows and columns [default:
    /// entropy=count-sketch:4x1024, frequency=count-min:4x1024; 3 rows on a switch]
    #[arg(long, value_name = "NAME=KIND:ROWSxCOLUMNS", value_parser = sketch, value_delimiter = ',', help_heading = "Measurement")]
    pub(crate) sketch: Vec<SketchSpec>,
}

/// Returns the keys of the entropies.
fn keys(options: &Options) -> Vec<KeyKind> {
    let is_own =
        options.key.iter().any(|keyed| keyed.measurement == Some(MeasurementKind::Entropy));
    match options.watches() && !is_own {
        true => vec![KeyKind::Src, KeyKind::Dst],
        false => options.keys(MeasurementKind::Entropy, KeyKind::SrcDst),
    }
}

impl Measurement for EntropyArgs {
    const KIND: MeasurementKind = MeasurementKind::Entropy;
    const IDLE_ALONE: bool = false;

    fn settings(&self, options: &Options, traffic: &Traffic, settings: &mut Settings) {
        for (entropy, key) in settings.entropy.iter_mut().zip(keys(options)) {
            *entropy = options.sketch(Self::KIND, key, traffic);
        }
    }

    fn problem(&self, options: &Options, _: &Traffic) -> Option<&'static str> {
        let measured = keys(options);
        let can_watch = [KeyKind::Src, KeyKind::Dst].iter().all(|key| measured.contains(key));
        (options.watches() && !can_watch)
            .then_some("--alarm watches the entropies of sources and destinations; remove the --key of entropy")
    }
}
