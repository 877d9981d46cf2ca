//! Clearing and merging of registers and candidates.

use super::{Candidate, SPREADS, Settings, Spread};
use crate::host::HostMeasurement;

impl Spread {
    /// Merges the sketches of another core, window or machine: maxima of registers and candidates.
    pub fn merge(&mut self, other: &Spread, settings: &[Settings; SPREADS]) {
        for index in 0..SPREADS {
            let (registers, candidates) = self.sketch_mut(settings, index);
            let theirs = other.sketch(settings, index);
            for (mine, theirs) in registers.iter_mut().zip(theirs.all_registers()) {
                *mine = (*mine).max(*theirs);
            }
            for (mine, theirs) in candidates.iter_mut().zip(theirs.all_candidates()) {
                if *mine < *theirs {
                    *mine = *theirs;
                }
            }
        }
    }

    /// Empties the memory in use.
    pub fn clear(&mut self, settings: &[Settings; SPREADS]) {
        for index in 0..SPREADS {
            let (registers, candidates) = self.sketch_mut(settings, index);
            registers.fill(0);
            candidates.fill(Candidate::EMPTY);
        }
    }
}

impl HostMeasurement for Spread {
    type Totals = Spread;
    type Exact = ();

    fn clear_core(sketches: &mut Spread, settings: &[Settings; SPREADS]) {
        sketches.clear(settings);
    }

    fn clear_totals(totals: &mut Spread, settings: &[Settings; SPREADS]) {
        totals.clear(settings);
    }

    fn merge_core(totals: &mut Spread, sketches: &Spread, settings: &[Settings; SPREADS]) {
        totals.merge(sketches, settings);
    }

    fn merge_totals(totals: &mut Spread, other: &Spread, settings: &[Settings; SPREADS]) {
        totals.merge(other, settings);
    }
}
