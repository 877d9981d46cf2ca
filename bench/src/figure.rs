//! Results of a benchmark and their limits.

use serde::Serialize;

/// Result of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of the measurement.
    pub name: String,
    /// Measured cost, in `unit`.
    pub value: f64,
    /// Unit of `value` and `limit`: [`RATIO`], or one of time.
    pub unit: &'static str,
    /// Difference between two halves of the rounds.
    pub noise: f64,
    /// Nanoseconds per packet, if `value` is a ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<f64>,
    /// Limit in SPECIFICATION.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// Unit of a multiple of the cost that a figure is compared with.
pub const RATIO: &str = "x";

impl Figure {
    /// Returns a time that was measured once, in microseconds.
    #[must_use]
    pub fn microseconds(name: String, value: f64, limit: Option<Limit>) -> Self {
        Figure { name, value, unit: "us", noise: 0.0, nanoseconds: None, limit }
    }

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
            unit: RATIO,
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
