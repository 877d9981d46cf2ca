//! Clearing and merging of the sketch.

use super::{Frequency, Settings};
use crate::host::HostMeasurement;
use crate::sketch::{Sketch, WideSketch};

impl HostMeasurement for Frequency {
    type Totals = WideSketch;
    type Exact = ();

    fn clear_core(sketch: &mut Sketch, settings: &Settings) {
        sketch.clear(settings.shape);
    }

    fn clear_totals(totals: &mut WideSketch, settings: &Settings) {
        totals.clear(settings.shape);
    }

    fn merge_core(totals: &mut WideSketch, sketch: &Sketch, settings: &Settings) {
        if let Some(kind) = settings.mode.sketch() {
            totals.merge(sketch, kind, settings.shape);
        }
    }

    fn merge_totals(totals: &mut WideSketch, other: &WideSketch, settings: &Settings) {
        totals.unite(other, settings.shape);
    }
}
