//! What a dataplane hands to the controller.

use flowgauge_core::cardinality::Staggered;
use flowgauge_core::{Bank, HashIdentity};

/// A bank, merged over all cores, as it was at one instant.
#[derive(Clone)]
pub struct Snapshot {
    /// Counters and registers.
    pub bank: Box<Bank>,
    /// Staggered registers, when they are in use; read them in the slot of the time of the sample.
    pub staggered: Option<Box<Staggered>>,
    /// The packet counter read before the registers.
    pub packets_before: u64,
    /// The packet counter read after the registers; the same where [snapshots are
    /// atomic](crate::Capabilities::atomic_snapshots).
    pub packets_after: u64,
    /// How the registers were hashed.
    pub hash: HashIdentity,
    /// Exact counts, when they were asked for.
    pub truth: Option<Truth>,
    /// Whether everything since the bank was opened is in it. It is not when a device was started anew in between.
    pub complete: bool,
}

/// Exact numbers of distinct flows, kept beside the registers for comparison. Takes memory for every flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truth {
    /// Distinct flows in this window so far; with staggered registers, in the time they cover.
    pub window: u64,
    /// Distinct flows since the start, up to the last closed window; with staggered registers as `window`.
    pub total: u64,
}
