//! What a run says of itself: one JSON object.

use flowgauge_ctl::Ledger;
use flowgauge_dataplane::{Place, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Changes whenever a reader of the version before would misread the object; keys are added
/// without.
pub(super) const VERSION: u32 = 1;

/// A run. Times are nanoseconds since the Unix epoch, ages nanoseconds before `at_ns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    /// [`VERSION`].
    pub(super) status: u32,
    pub(super) pid: u32,
    /// Of flowgauge.
    pub(super) version: String,
    pub(super) started_ns: u64,
    /// When this was told.
    pub(super) at_ns: u64,
    /// Its name, of one of several sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    /// The sources of a run that has several; what is told of the run is of all together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sources: Vec<Report>,
    pub(super) backend: String,
    pub(super) interface: String,
    pub(super) places: Vec<Place>,
    pub(super) measurements: Vec<Measured>,
    /// Length of a window; none without windows.
    pub(super) window_ns: Option<u64>,
    /// Sources that are not counted yet, one line each; none once all are.
    pub(super) starting: Vec<String>,
    /// Why the run is not healthy, one line each; none if it is.
    pub(super) problems: Vec<String>,
    /// Those of the problems that are controllers that stand still.
    pub(super) stalled: Vec<String>,
    /// Sources that have failed while others go on, one line each.
    pub(super) failed: Vec<String>,
    /// Packets and losses in all windows so far.
    pub(super) packets: u64,
    pub(super) drops: BTreeMap<String, u64>,
    /// What became of all packets that devices received, in windows of which that is known.
    pub(super) ledger: Option<Ledger>,
    pub(super) windows: u64,
    pub(super) samples: u64,
    pub(super) late_reads: u64,
    pub(super) missed_reads: u64,
    pub(super) late_rotations: u64,
    pub(super) retries: u64,
    pub(super) alarms: u64,
    pub(super) last_window: Option<Latest>,
    pub(super) last_read: Option<Latest>,
    /// What there is to draw of the last window.
    pub(super) figures: serde_json::Value,
    pub(super) last_warning: Option<Warning>,
    #[serde(flatten)]
    pub(super) dataplane: Status,
}

impl Report {
    /// Why not all sources are counted, one line each; nothing if they are.
    pub(super) fn hindrances(&self) -> Vec<String> {
        [&self.starting[..], &self.failed, &self.problems].concat()
    }
}

/// A measurement and what makes a flow of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) measurement: String,
    pub(super) key: String,
}

/// The window that was closed last, or the one that is open as it was read last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Latest {
    pub(super) window: u64,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) age_ns: u64,
    /// Of a window: whether it has its full length and nothing of it was lost.
    pub(super) complete: bool,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) drops: BTreeMap<String, u64>,
    pub(super) flows: Option<Flows>,
    /// Whether the alarm was raised, if it watches.
    pub(super) alarm: Option<bool>,
}

/// Distinct flows, with their 95 % interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Flows {
    pub(super) key: String,
    pub(super) estimate: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The last warning in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Warning {
    pub(super) age_ns: u64,
    pub(super) text: String,
}
