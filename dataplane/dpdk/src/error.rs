//! Errors of DPDK.

use std::io;

/// A failed call of DPDK: the operation, its device and the cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// DPDK did not start.
    #[error("cannot start DPDK: {why}")]
    Start {
        /// Message of DPDK.
        why: String,
    },
    /// A call for a device failed.
    #[error("{device}: cannot {operation}: {why}")]
    Device {
        /// Description that it was opened with.
        device: String,
        /// Operation that failed.
        operation: String,
        /// Message of DPDK.
        why: String,
    },
    /// The device has fewer queues than requested.
    #[error("{device}: driver {driver} has {most} of the {wanted} {way} queues asked for")]
    Queues {
        /// Description that it was opened with.
        device: String,
        /// Its driver.
        driver: String,
        /// `receive` or `send`.
        way: &'static str,
        /// Number of its queues.
        most: u16,
        /// Requested number.
        wanted: u16,
    },
    /// The device is already open in this process.
    #[error("{device}: is in use by this process already")]
    InUse {
        /// Description that it was opened with.
        device: String,
    },
}

/// Last line of DPDK's log on failure, which adds nothing to the lines before it.
const CONSEQUENCES: [&str; 3] =
    ["EAL: FATAL", "Failed to attach device on primary process", "Driver cannot attach the device"];

/// Returns the errors that DPDK logged, or the meaning of its error number.
pub(crate) fn reason(said: &[String], code: i32) -> String {
    let consequence = |line: &str| CONSEQUENCES.iter().any(|text| line.contains(text));
    let said: Vec<&str> = said
        .iter()
        .map(|line| line.trim_end_matches('.'))
        .filter(|line| !consequence(line))
        .collect();
    if said.is_empty() { io::Error::from_raw_os_error(-code).to_string() } else { said.join("; ") }
}
