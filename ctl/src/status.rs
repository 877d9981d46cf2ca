//! Status of a run: one JSON object, which `flowgauge status`, `top` and other clients get over HTTP
//! and gRPC.
//!
//! A run keeps it up to date with each record and heartbeat, and serves it on its Unix socket, and
//! with `--listen` and `--grpc` to other machines ([`serve`](crate::serve)). Health checks answer
//! from it as well.

use crate::ledger::Ledger;
use crate::measurement::alarm::Alarm;
use crate::record::Record;
use flowgauge_dataplane::{CountingPoint, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Function that returns the status of a run at the time of the call.
pub type StatusSource = Arc<dyn Fn() -> StatusReport + Send + Sync>;

/// Version of the object. It changes if older readers would misread the object; new keys do not
/// change it.
pub const VERSION: u32 = 1;

/// Status of a run. Times are nanoseconds since the Unix epoch, ages nanoseconds before `at_ns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusReport {
    /// [`VERSION`].
    pub status: u32,
    /// Process ID.
    pub pid: u32,
    /// Version of flowgauge.
    pub version: String,
    /// Start of the run.
    pub started_ns: u64,
    /// Time of this status.
    pub at_ns: u64,
    /// Name of the source, in a run with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Sources of a run with several; the other values then cover all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<StatusReport>,
    /// Backend, as in `--backend`; of several sources all of them.
    pub backend: String,
    /// Source of the packets: interfaces, or a capture, generator or switch.
    pub interface: String,
    /// Interfaces and directions.
    pub places: Vec<CountingPoint>,
    /// Measurements that are on.
    pub measurements: Vec<MeasurementStatus>,
    /// Length of a window; `None` without windows.
    pub window_ns: Option<u64>,
    /// Sources that are not counted yet, one line each.
    pub starting: Vec<String>,
    /// Reasons why the run is not healthy, one line each.
    pub problems: Vec<String>,
    /// Problems that are controllers without progress.
    pub stalled: Vec<String>,
    /// Sources that failed while others continue, one line each.
    pub failed: Vec<String>,
    /// Packets of all windows so far.
    pub packets: u64,
    /// Losses of all windows so far, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Ledger of all packets that the devices received, in the windows that have one.
    pub ledger: Option<Ledger>,
    /// Number of windows.
    pub windows: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples more than 1 ms late.
    pub late_samples: u64,
    /// Number of samples that were omitted.
    pub missed_samples: u64,
    /// Number of windows that ended late.
    pub late_rotations: u64,
    /// Number of calls of the dataplane that were repeated.
    pub retries: u64,
    /// Number of windows with the alarm.
    pub alarms: u64,
    /// Last window that ended.
    pub last_window: Option<Latest>,
    /// Last sample of the open window.
    pub last_sample: Option<Latest>,
    /// Figures of the last window.
    pub figures: serde_json::Value,
    /// Values of the main figures in the last windows, by name and labels; of counts per second.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<Option<f32>>>,
    /// The last window of the busiest interfaces and directions, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartStatus>,
    /// Last warning or error of the log.
    pub last_warning: Option<Warning>,
    /// Workers, programs and switch.
    #[serde(flatten)]
    pub dataplane: Status,
}

impl StatusReport {
    /// Returns the reasons why the run is not ready, one line each.
    #[must_use]
    pub fn not_ready_reasons(&self) -> Vec<String> {
        [&self.starting[..], &self.failed, &self.problems].concat()
    }
}

/// Measurement and its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasurementStatus {
    /// Name, as in `--measure`.
    pub measurement: String,
    /// Key of its flows, as in `--key`.
    pub key: String,
}

/// Last closed window, or last sample of the open one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latest {
    /// Number of the window.
    pub window: u64,
    /// Start of the window.
    pub start_ns: u64,
    /// End of the window, or time of the sample.
    pub end_ns: u64,
    /// Time since the end.
    pub age_ns: u64,
    /// For a window: whether it has its full length and lost nothing.
    pub complete: bool,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Losses by cause.
    pub drops: BTreeMap<String, u64>,
    /// Distinct flows, if they are counted.
    pub flows: Option<Flows>,
    /// Whether the alarm was raised; `None` if it is off.
    pub alarm: Option<bool>,
}

impl From<&Record> for Latest {
    fn from(record: &Record) -> Self {
        Latest {
            window: record.window,
            start_ns: record.start_ns,
            end_ns: record.end_ns,
            age_ns: 0,
            complete: record.complete,
            packets: record.counters.packets(),
            bytes: record.counters.bytes,
            drops: record
                .drops
                .iter()
                .map(|(cause, packets)| (cause.name().to_owned(), packets))
                .collect(),
            flows: record.reports.cardinality.as_ref().map(|it| Flows {
                key: it.key.name().to_owned(),
                estimate: it.estimate.value,
                low: it.estimate.low,
                high: it.estimate.high,
            }),
            alarm: record.reports.alarm.as_ref().and_then(Alarm::judgement),
        }
    }
}

/// Last closed window at one interface in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartStatus {
    /// Interface.
    pub interface: String,
    /// Direction.
    pub direction: String,
    /// Its last window that ended.
    pub last_window: Latest,
    /// Figures of the window, without distributions.
    pub figures: serde_json::Value,
}

/// Distinct flows with their 95 % interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// Key of the flows.
    pub key: String,
    /// Estimate.
    pub estimate: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Last warning of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Time since it was logged.
    pub age_ns: u64,
    /// Message.
    pub text: String,
}
