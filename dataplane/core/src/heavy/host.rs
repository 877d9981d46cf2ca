//! Clearing and merging of the table of flows.

use super::{Heavy, Settings};
use crate::host::HostMeasurement;

impl HostMeasurement for Heavy {
    type Totals = Heavy;
    type Exact = ();

    fn clear_core(flows: &mut Heavy, settings: &Settings) {
        flows.clear(settings);
    }

    fn clear_totals(totals: &mut Heavy, settings: &Settings) {
        totals.clear(settings);
    }

    fn merge_core(totals: &mut Heavy, flows: &Heavy, settings: &Settings) {
        totals.merge(flows, settings);
    }

    fn merge_totals(totals: &mut Heavy, other: &Heavy, settings: &Settings) {
        totals.merge(other, settings);
    }
}
