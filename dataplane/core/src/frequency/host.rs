//! Clearing and merging of the sketch.

use super::{Frequency, Settings};
use crate::host::HostMeasurement;
use crate::sketch::{Sketch, SketchTotals};

impl HostMeasurement for Frequency {
    type Totals = SketchTotals;
    type Exact = ();

    fn clear_core(sketch: &mut Sketch, settings: &Settings) {
        sketch.clear(settings.shape);
    }

    fn clear_totals(totals: &mut SketchTotals, settings: &Settings) {
        totals.clear(settings.shape);
    }

    fn merge_core(totals: &mut SketchTotals, sketch: &Sketch, settings: &Settings) {
        if let Some(kind) = settings.mode.sketch() {
            totals.merge(sketch, kind, settings.shape);
        }
    }

    fn merge_totals(totals: &mut SketchTotals, other: &SketchTotals, settings: &Settings) {
        totals.unite(other, settings.shape);
    }
}
