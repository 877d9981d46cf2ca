//! Clearing and merging of the filter.

use super::{Membership, Settings};
use crate::host::HostMeasurement;

impl HostMeasurement for Membership {
    type Totals = Membership;
    type Exact = ();

    fn clear_core(filter: &mut Membership, settings: &Settings) {
        filter.clear(settings.shape);
    }

    fn clear_totals(totals: &mut Membership, settings: &Settings) {
        totals.clear(settings.shape);
    }

    fn merge_core(totals: &mut Membership, filter: &Membership, settings: &Settings) {
        totals.merge(filter, settings.shape);
    }

    fn merge_totals(totals: &mut Membership, other: &Membership, settings: &Settings) {
        totals.merge(other, settings.shape);
    }
}
