//! Parameters of the thesis: *W-HLL*, chapter 4. Its results are in the list of printed numbers.

use std::time::Duration;

/// Times of reads and windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// Mean time between reads.
    pub read: Duration,
    /// Length of a window.
    pub reset: Duration,
}

/// The four configurations (§4.5), in the order of the tables.
pub(crate) const CONFIGURATIONS: [Configuration; 4] = [
    Configuration { read: Duration::from_millis(500), reset: Duration::from_secs(5) },
    Configuration { read: Duration::from_millis(1_000), reset: Duration::from_secs(10) },
    Configuration { read: Duration::from_millis(5_000), reset: Duration::from_secs(50) },
    Configuration { read: Duration::from_millis(10_000), reset: Duration::from_secs(100) },
];

/// Length of an experiment (Table 4.1).
pub(crate) const DURATION: Duration = Duration::from_secs(1320);

/// Packets per second of synthetic traffic (Table 4.1).
pub(crate) const RATE: f64 = 100.0;

/// Packets per second of the campus trace (§4.5.2).
pub(crate) const TRACE_RATE: f64 = 3_769.0;

/// Registers of the sketch (Table 4.1).
pub(crate) const REGISTERS: f64 = 2048.0;

/// Constant of the raw estimate (equation 3.4).
pub(crate) const ALPHA: f64 = 0.7213 / (1.0 + 1.079 / REGISTERS);

/// The theoretical standard error with 2048 registers, in percent (equation 4.3). The thesis
/// compares averages and medians of |error| with it.
pub(crate) const STANDARD_ERROR: f64 = 2.3;

/// Mean |error| of normal errors with this standard error: sqrt(2 / π) of it.
pub(crate) const EXPECTED_AVERAGE: f64 = 0.797_885 * STANDARD_ERROR;

/// Median |error| of normal errors with this standard error.
pub(crate) const EXPECTED_MEDIAN: f64 = 0.674_490 * STANDARD_ERROR;
