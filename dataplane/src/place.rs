//! Counting points: an interface, and the direction in which packets cross it.

use serde::{Deserialize, Serialize};

/// A counting point: an interface and a direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CountingPoint {
    /// Name of an interface, a file or a traffic profile.
    pub interface: String,
    /// Direction in which packets cross it.
    pub direction: Direction,
}

impl CountingPoint {
    /// Returns the counting point for packets that arrive at an interface.
    pub fn ingress(interface: impl Into<String>) -> Self {
        CountingPoint { interface: interface.into(), direction: Direction::Ingress }
    }
}

impl std::fmt::Display for CountingPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.interface, self.direction.name())
    }
}

/// Direction in which packets cross the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Into the machine or switch.
    Ingress,
    /// Out of it.
    Egress,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Ingress, Direction::Egress];

    /// Returns the name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }
}
