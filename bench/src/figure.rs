//! Results of a benchmark and their limits.

use serde::{Serialize, Serializer};

/// Result of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of the measurement.
    pub name: String,
    /// Measured cost, in `unit`.
    pub value: f64,
    /// Unit of `value` and `limit`.
    pub unit: Unit,
    /// Difference between two halves of the rounds.
    pub noise: f64,
    /// Nanoseconds per packet, if `value` is a ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<f64>,
    /// Limit in SPECIFICATION.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Multiple of the cost that it is compared with.
    Ratio,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
}

impl Unit {
    /// Returns the unit as it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ratio => "x",
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
        }
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Figure {
    /// Returns whether the figure exceeds its limit by more than the noise of this run.
    #[must_use]
    pub fn breaks_limit(&self) -> bool {
        match self.limit {
            None => false,
            Some(Limit::AtMost(most)) => self.value > most + self.noise,
            Some(Limit::AtLeast(least)) => self.value < least - self.noise,
        }
    }
}

/// Limit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Upper limit.
    AtMost(f64),
    /// Lower limit.
    AtLeast(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_broken_beyond_the_noise_of_the_run() {
        let figure = |value, noise, limit| Figure {
            name: String::new(),
            value,
            unit: Unit::Ratio,
            noise,
            nanoseconds: None,
            limit: Some(limit),
        };
        assert!(figure(1.61, 0.0, Limit::AtMost(1.6)).breaks_limit());
        assert!(!figure(1.61, 0.02, Limit::AtMost(1.6)).breaks_limit());
        assert!(figure(1.4, 0.05, Limit::AtLeast(1.5)).breaks_limit());
        assert!(!figure(1.46, 0.05, Limit::AtLeast(1.5)).breaks_limit());
    }
}
