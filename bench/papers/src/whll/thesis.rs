//! Parameters and results of the thesis: *W-HLL*, chapter 4.

use std::time::Duration;

/// Row of Tables 4.3 and 4.4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Mean absolute relative error, in percent.
    pub average: f64,
    /// Median absolute relative error, in percent.
    pub median: f64,
    /// Number of reads.
    pub samples: u64,
    /// Largest number of flows in a window.
    pub max_cardinality: u64,
}

/// Times of reads and windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Mean time between reads.
    pub read: Duration,
    /// Length of a window.
    pub reset: Duration,
}

const fn configuration(read_ms: u64, reset_s: u64) -> Configuration {
    Configuration { read: Duration::from_millis(read_ms), reset: Duration::from_secs(reset_s) }
}

/// The four configurations (§4.5), in the order of the tables.
pub const CONFIGURATIONS: [Configuration; 4] = [
    configuration(500, 5),
    configuration(1_000, 10),
    configuration(5_000, 50),
    configuration(10_000, 100),
];

const fn row(average: f64, median: f64, samples: u64, max_cardinality: u64) -> Row {
    Row { average, median, samples, max_cardinality }
}

/// Table 4.3: one new source per packet.
pub const TABLE_4_3: [Row; 4] = [
    row(3.42, 1.46, 1654, 500),
    row(2.65, 1.32, 1066, 1_000),
    row(1.47, 1.21, 273, 5_000),
    row(1.41, 1.16, 133, 10_000),
];

/// Table 4.4: a trace of the campus network.
pub const TABLE_4_4: [Row; 4] = [
    row(8.51, 2.56, 1620, 2_000),
    row(5.34, 2.63, 984, 2_800),
    row(2.32, 2.05, 244, 7_000),
    row(1.69, 1.40, 135, 10_000),
];

/// Averages of Table 4.4 over those of Table 4.3 (§4.5.3).
pub const RATIOS: [f64; 4] = [2.5, 2.0, 1.6, 1.2];

/// Length of an experiment (Table 4.1).
pub const DURATION: Duration = Duration::from_secs(1320);

/// Packets per second of synthetic traffic (Table 4.1).
pub const RATE: f64 = 100.0;

/// Packets per second of the campus trace (§4.5.2).
pub const TRACE_RATE: f64 = 3_769.0;

/// Registers of the sketch (Table 4.1).
pub const REGISTERS: f64 = 2048.0;

/// Constant of the raw estimate (equation 3.4).
pub const ALPHA: f64 = 0.7213 / (1.0 + 1.079 / REGISTERS);

/// The theoretical standard error with 2048 registers, in percent (equation 4.3). The thesis
/// compares averages and medians of |error| with it.
pub const STANDARD_ERROR: f64 = 2.3;

/// Mean |error| of normal errors with this standard error: sqrt(2 / π) of it.
pub const EXPECTED_AVERAGE: f64 = 0.797_885 * STANDARD_ERROR;

/// Median |error| of normal errors with this standard error.
pub const EXPECTED_MEDIAN: f64 = 0.674_490 * STANDARD_ERROR;
