//! Numbers with intervals.

use serde::Serialize;

/// Deviations of a normal distribution that 95 % are within, on both sides.
pub(crate) const Z95: f64 = 1.959_963_984_540_054;

/// A number with what it is between in 95 % of cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Number {
    /// The estimate.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}
