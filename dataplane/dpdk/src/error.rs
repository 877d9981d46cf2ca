//! What DPDK refuses.

use std::io;

/// What was being done, to what, and why it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// DPDK did not start.
    #[error("cannot start DPDK: {why}")]
    Start {
        /// What DPDK said.
        why: String,
    },
    /// A device that DPDK refused.
    #[error("{device}: cannot {operation}: {why}")]
    Device {
        /// Its description, as given.
        device: String,
        /// What was attempted.
        operation: String,
        /// What DPDK said.
        why: String,
    },
    /// More queues than the device has.
    #[error("{device}: driver {driver} has {most} of the {wanted} {way} queues asked for")]
    Queues {
        /// Its description, as given.
        device: String,
        /// Its driver.
        driver: String,
        /// `receive` or `send`.
        way: &'static str,
        /// How many it has.
        most: u16,
        /// How many it should have.
        wanted: u16,
    },
    /// The device is open in this process.
    #[error("{device}: is in use by this process already")]
    InUse {
        /// Its description, as given.
        device: String,
    },
}

/// What DPDK says after it has said what is wrong.
const CONSEQUENCES: [&str; 3] =
    ["EAL: FATAL", "Failed to attach device on primary process", "Driver cannot attach the device"];

/// What DPDK said, or else what its error number means.
pub(crate) fn reason(said: &[String], code: i32) -> String {
    let consequence = |line: &str| CONSEQUENCES.iter().any(|text| line.contains(text));
    let said: Vec<&str> = said
        .iter()
        .map(|line| line.trim_end_matches('.'))
        .filter(|line| !consequence(line))
        .collect();
    if said.is_empty() { io::Error::from_raw_os_error(-code).to_string() } else { said.join("; ") }
}
