//! Where packets are counted: an interface, and which way they cross it.

use serde::{Deserialize, Serialize};

/// Where packets are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// An interface, a file, a traffic profile.
    pub interface: String,
    /// Which way packets cross it.
    pub direction: Direction,
}

impl Place {
    /// What arrives at an interface.
    pub fn ingress(interface: impl Into<String>) -> Self {
        Place { interface: interface.into(), direction: Direction::Ingress }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.interface, self.direction.name())
    }
}

/// Which way packets cross the interface.
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

    /// The name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }
}
