//! Status of a run: one JSON object.

use flowgauge_ctl::Ledger;
use flowgauge_dataplane::{CountingPoint, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the object. It changes if older readers would misread the object; new keys do not
/// change it.
pub(crate) const VERSION: u32 = 1;

/// Status of a run. Times are nanoseconds since the Unix epoch, ages nanoseconds before `at_ns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StatusReport {
    /// [`VERSION`].
    pub(crate) status: u32,
    pub(crate) pid: u32,
    /// Version of flowgauge.
    pub(crate) version: String,
    pub(crate) started_ns: u64,
    /// Time of this status.
    pub(crate) at_ns: u64,
    /// Name of the source, in a run with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// Sources of a run with several; the other values then cover all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<StatusReport>,
    pub(crate) backend: String,
    pub(crate) interface: String,
    pub(crate) places: Vec<CountingPoint>,
    pub(crate) measurements: Vec<MeasurementStatus>,
    /// Length of a window; `None` without windows.
    pub(crate) window_ns: Option<u64>,
    /// Sources that are not counted yet, one line each.
    pub(crate) starting: Vec<String>,
    /// Reasons why the run is not healthy, one line each.
    pub(crate) problems: Vec<String>,
    /// Problems that are controllers without progress.
    pub(crate) stalled: Vec<String>,
    /// Sources that failed while others continue, one line each.
    pub(crate) failed: Vec<String>,
    /// Packets and losses of all windows so far.
    pub(crate) packets: u64,
    pub(crate) drops: BTreeMap<String, u64>,
    /// Ledger of all packets that the devices received, in the windows that have one.
    pub(crate) ledger: Option<Ledger>,
    pub(crate) windows: u64,
    pub(crate) samples: u64,
    #[serde(alias = "late_reads")]
    pub(crate) late_samples: u64,
    #[serde(alias = "missed_reads")]
    pub(crate) missed_samples: u64,
    pub(crate) late_rotations: u64,
    pub(crate) retries: u64,
    pub(crate) alarms: u64,
    pub(crate) last_window: Option<Latest>,
    #[serde(alias = "last_read")]
    pub(crate) last_sample: Option<Latest>,
    /// Figures of the last window.
    pub(crate) figures: serde_json::Value,
    /// Values of the main figures in the last windows, by name and labels; of counts per second.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) series: BTreeMap<String, Vec<Option<f32>>>,
    /// The last window of the busiest interfaces and directions, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<PartStatus>,
    pub(crate) last_warning: Option<Warning>,
    #[serde(flatten)]
    pub(crate) dataplane: Status,
}

impl StatusReport {
    /// Returns the reasons why the run is not ready, one line each.
    pub(crate) fn not_ready_reasons(&self) -> Vec<String> {
        [&self.starting[..], &self.failed, &self.problems].concat()
    }
}

/// Measurement and its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeasurementStatus {
    pub(crate) measurement: String,
    pub(crate) key: String,
}

/// Last closed window, or last sample of the open one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latest {
    pub(crate) window: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) age_ns: u64,
    /// For a window: whether it has its full length and lost nothing.
    pub(crate) complete: bool,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) drops: BTreeMap<String, u64>,
    pub(crate) flows: Option<Flows>,
    /// Whether the alarm was raised; `None` if it is off.
    pub(crate) alarm: Option<bool>,
}

/// Last closed window at one interface in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartStatus {
    pub(crate) interface: String,
    pub(crate) direction: String,
    pub(crate) last_window: Latest,
    /// Figures of the window, without distributions.
    pub(crate) figures: serde_json::Value,
}

/// Distinct flows with their 95 % interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Flows {
    pub(crate) key: String,
    pub(crate) estimate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Last warning of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Warning {
    pub(crate) age_ns: u64,
    pub(crate) text: String,
}
