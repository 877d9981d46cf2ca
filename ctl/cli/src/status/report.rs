//! Status of a run: one JSON object.

use flowgauge_ctl::Ledger;
use flowgauge_dataplane::{CountingPoint, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the object. It changes if older readers would misread the object; new keys do not
/// change it.
pub(super) const VERSION: u32 = 1;

/// Status of a run. Times are nanoseconds since the Unix epoch, ages nanoseconds before `at_ns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StatusReport {
    /// [`VERSION`].
    pub(super) status: u32,
    pub(super) pid: u32,
    /// Version of flowgauge.
    pub(super) version: String,
    pub(super) started_ns: u64,
    /// Time of this status.
    pub(super) at_ns: u64,
    /// Name of the source, in a run with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    /// Sources of a run with several; the other values then cover all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sources: Vec<StatusReport>,
    pub(super) backend: String,
    pub(super) interface: String,
    pub(super) places: Vec<CountingPoint>,
    pub(super) measurements: Vec<MeasurementStatus>,
    /// Length of a window; `None` without windows.
    pub(super) window_ns: Option<u64>,
    /// Sources that are not counted yet, one line each.
    pub(super) starting: Vec<String>,
    /// Reasons why the run is not healthy, one line each.
    pub(super) problems: Vec<String>,
    /// Problems that are controllers without progress.
    pub(super) stalled: Vec<String>,
    /// Sources that failed while others continue, one line each.
    pub(super) failed: Vec<String>,
    /// Packets and losses of all windows so far.
    pub(super) packets: u64,
    pub(super) drops: BTreeMap<String, u64>,
    /// Ledger of all packets that the devices received, in the windows that have one.
    pub(super) ledger: Option<Ledger>,
    pub(super) windows: u64,
    pub(super) samples: u64,
    #[serde(alias = "late_reads")]
    pub(super) late_samples: u64,
    #[serde(alias = "missed_reads")]
    pub(super) missed_samples: u64,
    pub(super) late_rotations: u64,
    pub(super) retries: u64,
    pub(super) alarms: u64,
    pub(super) last_window: Option<Latest>,
    #[serde(alias = "last_read")]
    pub(super) last_sample: Option<Latest>,
    /// Figures of the last window.
    pub(super) figures: serde_json::Value,
    /// Values of the main figures in the last windows, by name and labels; of counts per second.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) series: BTreeMap<String, Vec<Option<f32>>>,
    /// The last window of the busiest interfaces and directions, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<PartStatus>,
    pub(super) last_warning: Option<Warning>,
    #[serde(flatten)]
    pub(super) dataplane: Status,
}

impl StatusReport {
    /// Returns the reasons why the run is not ready, one line each.
    pub(super) fn not_ready_reasons(&self) -> Vec<String> {
        [&self.starting[..], &self.failed, &self.problems].concat()
    }
}

/// Measurement and its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct MeasurementStatus {
    pub(super) measurement: String,
    pub(super) key: String,
}

/// Last closed window, or last sample of the open one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Latest {
    pub(super) window: u64,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) age_ns: u64,
    /// For a window: whether it has its full length and lost nothing.
    pub(super) complete: bool,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) drops: BTreeMap<String, u64>,
    pub(super) flows: Option<Flows>,
    /// Whether the alarm was raised; `None` if it is off.
    pub(super) alarm: Option<bool>,
}

/// Last closed window at one interface in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PartStatus {
    pub(super) interface: String,
    pub(super) direction: String,
    pub(super) last_window: Latest,
    /// Figures of the window, without distributions.
    pub(super) figures: serde_json::Value,
}

/// Distinct flows with their 95 % interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Flows {
    pub(super) key: String,
    pub(super) estimate: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Last warning of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Warning {
    pub(super) age_ns: u64,
    pub(super) text: String,
}
