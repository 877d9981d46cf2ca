//! The host half of a measurement: clearing, merging, totals and exact counts. Never compiled for
//! the kernel.

use crate::measurement::Measurement;
use crate::observation::Observation;
use zerocopy::FromZeros;

/// Maximum number of flows, requests, delays or pairs in each set of exact counts: about 240 MB of
/// flows.
pub const MAX_EXACT: usize = 3_000_000;

/// Operations of a measurement between windows, in user space. Called only if it is on.
pub trait HostMeasurement: Measurement {
    /// Totals over cores, interfaces and windows.
    type Totals: FromZeros;
    /// Exact counts of a bank's packets, for comparison, in memory whose size does not depend on
    /// the number of flows.
    type Exact: FromZeros;

    /// Empties per-core banked memory.
    fn clear_core(core: &mut Self::PerCore, settings: &Self::Settings);

    /// Empties shared banked memory.
    fn clear_shared(_: &Self::Shared, _: &Self::Settings) {}

    /// Empties totals.
    fn clear_totals(totals: &mut Self::Totals, settings: &Self::Settings);

    /// Adds per-core memory of a window to totals.
    fn merge_core(totals: &mut Self::Totals, core: &Self::PerCore, settings: &Self::Settings);

    /// Adds shared memory of a window to totals.
    fn merge_shared(_: &mut Self::Totals, _: &Self::Shared, _: &Self::Settings) {}

    /// Adds totals of another source or window.
    fn merge_totals(totals: &mut Self::Totals, other: &Self::Totals, settings: &Self::Settings);

    /// Writes the initial content of shared persistent memory, before the first packet.
    fn prepare(_: &Self::SharedPersistent, _: &Self::Settings) {}

    /// Adds the persistent memory of another core.
    fn merge_persistent(_: &mut Self::Persistent, _: &Self::Persistent, _: &Self::Settings) {}

    /// Empties per-core persistent memory.
    fn clear_persistent(_: &mut Self::Persistent, _: &Self::Settings) {}

    /// Returns whether these settings ask for [exact](Self::Exact) counts beside the estimate.
    fn has_exact(_: &Self::Settings) -> bool {
        false
    }

    /// Counts a packet exactly.
    fn measure_exactly(_: &mut Self::Exact, _: &Observation) {}

    /// Calls `visit` for each counter of the totals that identifies their content, with its name.
    /// Sketches, filters and tables have none.
    fn for_each_counter(
        _: &Self::Totals,
        _: &Self::Settings,
        _: &mut dyn FnMut(&'static str, &[u64]),
    ) {
    }
}
