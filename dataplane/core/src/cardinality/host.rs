//! Clearing and merging of registers.

use super::{Cardinality, Mode, Precision, Settings, Staggered};
use crate::host::HostMeasurement;

impl Cardinality {
    /// Merges the registers of another core or window: the higher level of each pair.
    pub fn merge(&mut self, other: &Cardinality, precision: Precision) {
        for (mine, theirs) in self.levels_mut(precision).iter_mut().zip(other.levels(precision)) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Empties the registers in use.
    pub fn clear(&mut self, precision: Precision) {
        self.levels_mut(precision).fill(0);
    }
}

impl HostMeasurement for Cardinality {
    type Totals = Cardinality;
    type Exact = ();

    fn clear_core(registers: &mut Cardinality, settings: &Settings) {
        if settings.mode == Mode::Windowed {
            registers.clear(settings.precision);
        }
    }

    fn clear_totals(totals: &mut Cardinality, settings: &Settings) {
        Self::clear_core(totals, settings);
    }

    fn merge_core(totals: &mut Cardinality, registers: &Cardinality, settings: &Settings) {
        if settings.mode == Mode::Windowed {
            totals.merge(registers, settings.precision);
        }
    }

    fn merge_totals(totals: &mut Cardinality, other: &Cardinality, settings: &Settings) {
        Self::merge_core(totals, other, settings);
    }

    fn merge_persistent(registers: &mut Staggered, other: &Staggered, settings: &Settings) {
        if settings.mode == Mode::Staggered {
            registers.merge(other, settings.precision);
        }
    }

    fn clear_persistent(registers: &mut Staggered, settings: &Settings) {
        if settings.mode == Mode::Staggered {
            registers.clear(settings.precision);
        }
    }
}
