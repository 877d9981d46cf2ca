//! What a dataplane can do.

use crate::snapshot::Place;
use flowgauge_core::{BANKS, HashMode, KeyKind, Precision};
use std::ops::RangeInclusive;

/// A measurement, by the name it has in every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MeasurementKind {
    /// Distinct flows.
    Cardinality,
}

impl MeasurementKind {
    /// The name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MeasurementKind::Cardinality => "cardinality",
        }
    }
}

/// Which way packets cross the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Into the machine or switch.
    Ingress,
    /// Out of it.
    Egress,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Ingress, Direction::Egress];

    /// The name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }
}

/// What a dataplane can do; the controller asks before it configures.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The backend's name in options and outputs.
    pub backend: &'static str,
    /// Where the packets come from, all places together: an interface, a file, a traffic profile.
    pub interface: String,
    /// Where packets are counted, one by one; at least one place.
    pub places: Vec<Place>,
    /// Measurements it can run.
    pub measurements: Vec<MeasurementKind>,
    /// Flow keys it can derive.
    pub keys: Vec<KeyKind>,
    /// Hashes it can compute.
    pub hashes: Vec<HashMode>,
    /// Register counts it offers, as powers of two.
    pub precision: RangeInclusive<Precision>,
    /// Banks per windowed measurement.
    pub banks: usize,
    /// Whether registers and counters of a sample belong to the same instant.
    pub atomic_snapshots: bool,
    /// Whether staggered registers (no windows) are offered.
    pub staggered: bool,
    /// Step of the clock that timestamps packets, in nanoseconds.
    pub clock_resolution_ns: u64,
    /// Cores that count in parallel.
    pub workers: usize,
}

impl Capabilities {
    /// What every backend can do that runs `dataplane/core` on each of `workers` cores, with nothing left out: what it cannot, it
    /// takes away.
    pub(crate) fn of_core(backend: &'static str, interface: String, workers: usize) -> Self {
        Capabilities {
            backend,
            places: vec![Place::ingress(&interface)],
            interface,
            measurements: vec![MeasurementKind::Cardinality],
            keys: KeyKind::ALL.to_vec(),
            hashes: HashMode::ALL.to_vec(),
            precision: Precision::MIN..=Precision::MAX,
            banks: BANKS,
            atomic_snapshots: true,
            staggered: true,
            clock_resolution_ns: 1,
            workers,
        }
    }
}
