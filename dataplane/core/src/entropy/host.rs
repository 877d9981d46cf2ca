//! Clearing and merging of sums and sketches.

use super::{ENTROPIES, Entropy, Settings};
use crate::host::HostMeasurement;
use crate::sketch::{SharedSketch, SketchTotals};
use zerocopy::FromZeros;

/// Totals of all entropies.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct EntropyTotals {
    /// Sums by entropy.
    pub sums: [Entropy; ENTROPIES],
    /// Sketches of the same packets. In a sample, a sketch may contain a few packets that the sum
    /// lacks.
    pub sketches: [SketchTotals; ENTROPIES],
}

impl HostMeasurement for Entropy {
    type Totals = EntropyTotals;
    type Exact = ();

    fn clear_core(sums: &mut [Entropy; ENTROPIES], _: &[Settings; ENTROPIES]) {
        sums.zero();
    }

    fn clear_shared(sketches: &[SharedSketch; ENTROPIES], settings: &[Settings; ENTROPIES]) {
        let on = sketches.iter().zip(settings).filter(|(_, entropy)| entropy.is_on());
        on.for_each(|(sketch, entropy)| sketch.clear(entropy.shape));
    }

    fn clear_totals(totals: &mut EntropyTotals, settings: &[Settings; ENTROPIES]) {
        totals.sums.zero();
        let on = totals.sketches.iter_mut().zip(settings).filter(|(_, entropy)| entropy.is_on());
        on.for_each(|(sketch, entropy)| sketch.clear(entropy.shape));
    }

    fn merge_core(
        totals: &mut EntropyTotals,
        sums: &[Entropy; ENTROPIES],
        _: &[Settings; ENTROPIES],
    ) {
        totals.sums.iter_mut().zip(sums).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    fn merge_shared(
        totals: &mut EntropyTotals,
        sketches: &[SharedSketch; ENTROPIES],
        settings: &[Settings; ENTROPIES],
    ) {
        for ((total, sketch), entropy) in totals.sketches.iter_mut().zip(sketches).zip(settings) {
            if let Some(kind) = entropy.mode.sketch() {
                sketch.merge_into(total, kind, entropy.shape);
            }
        }
    }

    fn merge_totals(
        totals: &mut EntropyTotals,
        other: &EntropyTotals,
        settings: &[Settings; ENTROPIES],
    ) {
        Self::merge_core(totals, &other.sums, settings);
        let sketches = totals.sketches.iter_mut().zip(&other.sketches);
        for ((sketch, theirs), entropy) in sketches.zip(settings) {
            if entropy.is_on() {
                sketch.unite(theirs, entropy.shape);
            }
        }
    }
}
