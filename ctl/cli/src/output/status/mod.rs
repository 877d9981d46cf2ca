//! Status of a run, collected from its sources.
//!
//! Every source has a [`Publisher`], a sink that updates its [`SourceState`] with each record and
//! heartbeat. [`Publication`] merges the states of all sources into one [`StatusReport`] whenever a
//! client of the status socket (`socket`, in one of the directories of `directory`), of `--listen`
//! or of `--grpc` asks.

#[cfg_attr(not(feature = "serve"), expect(dead_code, reason = "it serves no socket"))]
pub(crate) mod directory;
#[cfg_attr(not(feature = "serve"), path = "no_socket.rs")]
mod socket;

use crate::locked;
use crate::output::messages::last_warning;
use flowgauge_core::Settings;
use flowgauge_ctl::clock::nanoseconds;
use flowgauge_ctl::controller::{Plan, Sink, Summary};
use flowgauge_ctl::figure::Shape;
use flowgauge_ctl::history::{FigureInContext, History, Place, place};
use flowgauge_ctl::measurement::has_windows;
use flowgauge_ctl::record::{Record, RecordKind};
use flowgauge_ctl::status::{
    Latest, MeasurementStatus, PartStatus, StatusReport, StatusSource, VERSION,
};
use flowgauge_dataplane::status::WorkerStatus;
use flowgauge_dataplane::{Dataplane, MeasurementKind};
use socket::StatusSocket;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time that a window may be overdue, or a controller silent, before the run is not healthy.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a controller may take to start. A slow kernel takes ten seconds to verify a large
/// program.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of interfaces and directions in a report, to bound its length.
const MAX_PARTS: usize = 16;
/// Maximum number of windows in the series of a report, and of sources whose reports have any.
const MAX_SERIES_WINDOWS: usize = 200;
const MAX_SERIES_SOURCES: usize = 16;

const NOT_STARTED: &str = "counting has not started";

/// Status of a run, published as long as it lives.
#[derive(Clone, Default)]
pub(crate) struct Publication {
    sources: Arc<Sources>,
    socket: Arc<Mutex<Option<StatusSocket>>>,
}

/// Sources of a run.
#[derive(Default)]
struct Sources {
    /// Sources that have a controller.
    states: Mutex<Vec<Arc<Mutex<SourceState>>>>,
    /// Sources that a run with several is expected to count, by name.
    expected: Mutex<BTreeMap<String, Expected>>,
}

/// Source that a run with several is expected to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The run is not ready until it is counted.
    Started,
    /// The run is not ready without it.
    Failed,
    /// None of these comma-separated interfaces exists. The run is not healthy without it.
    Absent(String),
}

impl Publication {
    /// Opens the status socket. If that fails, the run continues with a warning.
    pub(crate) fn start(&self) {
        let socket = StatusSocket::open(self.status());
        *locked(&self.socket) = socket;
    }

    /// Publishes a source that is about to start, until the publisher is dropped. The name is
    /// `None` for an only source. The history is recorded before.
    pub(crate) fn publisher(
        &self,
        name: Option<&str>,
        dataplane: &dyn Dataplane,
        plan: &Plan,
        history: History,
    ) -> Publisher {
        let state = SourceState { history, ..SourceState::new(name, dataplane, plan) };
        let state = Arc::new(Mutex::new(state));
        locked(&self.sources.states).push(Arc::clone(&state));
        Publisher { state, sources: Arc::clone(&self.sources) }
    }

    /// Notes what is known of sources of several, until they are counted or have ended. All are noted
    /// at once: a run is ready as soon as all sources that it has noted are counted.
    pub(crate) fn expects(&self, sources: impl IntoIterator<Item = (String, Expected)>) {
        locked(&self.sources.expected).extend(sources);
    }

    /// Notes that a source of several has ended or was removed. It is no longer expected.
    pub(crate) fn ended(&self, name: &str) {
        locked(&self.sources.expected).remove(name);
    }

    /// Returns a function that reports the status of the run. It does not hold the socket: the
    /// caller may run in a thread that cannot access files, and the last owner of the socket
    /// removes it.
    pub(crate) fn status(&self) -> StatusSource {
        let sources = Arc::clone(&self.sources);
        Arc::new(move || sources.report_at(Instant::now()))
    }

    /// Returns a function that lists the sources of the run by name, and whether each is counted
    /// and healthy.
    pub(crate) fn sources_up(&self) -> impl Fn() -> BTreeMap<String, bool> + Send + Sync + use<> {
        let sources = Arc::clone(&self.sources);
        move || sources.up(Instant::now())
    }
}

/// Sink that keeps the published state of a source up to date.
pub(crate) struct Publisher {
    state: Arc<Mutex<SourceState>>,
    sources: Arc<Sources>,
}

impl Drop for Publisher {
    fn drop(&mut self) {
        locked(&self.sources.states).retain(|state| !Arc::ptr_eq(state, &self.state));
    }
}

impl Sources {
    /// Returns the sources by name, and whether each is counted and healthy: `false` for those that
    /// [`StatusReport::not_ready_reasons`] names.
    fn up(&self, now: Instant) -> BTreeMap<String, bool> {
        let expected: Vec<String> = locked(&self.expected).keys().cloned().collect();
        let mut up: BTreeMap<String, bool> =
            expected.into_iter().map(|name| (name, false)).collect();
        for state in locked(&self.states).iter() {
            let state = locked(state);
            up.insert(state.name().to_owned(), state.is_up(now));
        }
        up
    }

    fn report_at(&self, now: Instant) -> StatusReport {
        let mut sources: Vec<StatusReport> =
            locked(&self.states).iter().map(|state| locked(state).at(now)).collect();
        if let [only] = &sources[..]
            && only.source.is_none()
        {
            return sources.remove(0);
        }
        if sources.len() > MAX_SERIES_SOURCES {
            sources.iter_mut().for_each(|source| source.series.clear());
        }
        let known: BTreeSet<String> =
            sources.iter().filter_map(|report| report.source.clone()).collect();
        let expected = locked(&self.expected);
        let mut run = merged(sources);
        if run.sources.is_empty() && expected.is_empty() {
            run.starting.push("nothing to count".to_owned());
        }
        for (name, expected) in expected.iter() {
            match expected {
                Expected::Started if known.contains(name) => {}
                Expected::Started => run.starting.push(format!("{name}: {NOT_STARTED}")),
                Expected::Failed => run.failed.push(format!("{name}: failed; see the log")),
                Expected::Absent(interfaces) => {
                    let what = "no such interface; counting starts when it exists";
                    run.problems.push(format!("{name}: {interfaces}: {what}"));
                }
            }
        }
        run
    }
}

/// Merges the reports of several sources, or none, into one.
fn merged(sources: Vec<StatusReport>) -> StatusReport {
    let joined = |part: fn(&StatusReport) -> &str| {
        let mut parts: Vec<&str> = sources.iter().map(part).collect();
        parts.dedup();
        parts.join(",")
    };
    let mut run = StatusReport {
        status: VERSION,
        pid: process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at_ns: unix_time(),
        last_warning: last_warning(),
        backend: joined(|it| &it.backend),
        interface: joined(|it| &it.interface),
        ..StatusReport::default()
    };
    run.started_ns = sources.iter().map(|source| source.started_ns).min().unwrap_or(run.at_ns);
    for source in &sources {
        let name = source.source.as_deref().unwrap_or_default();
        let named = |lines: &[String]| {
            lines.iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
        };
        run.starting.extend(named(&source.starting));
        run.problems.extend(named(&source.problems));
        run.stalled.extend(named(&source.stalled));
        run.packets += source.packets;
        source
            .drops
            .iter()
            .for_each(|(cause, packets)| *run.drops.entry(cause.clone()).or_default() += packets);
        run.windows += source.windows;
        run.samples += source.samples;
        run.late_samples += source.late_samples;
        run.missed_samples += source.missed_samples;
        run.late_rotations += source.late_rotations;
        run.retries += source.retries;
        run.alarms += source.alarms;
    }
    StatusReport { sources, ..run }
}

impl Sink for Publisher {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let mut state = locked(&self.state);
        if record.part {
            state.part(record)
        } else {
            state.record(record)
        }
        Ok(())
    }

    fn heartbeat(&mut self, dataplane: &dyn Dataplane, summary: &Summary) {
        let status = dataplane.status();
        let mut state = locked(&self.state);
        let report = &mut state.report;
        report.dataplane = status;
        (report.windows, report.samples, report.alarms) =
            (summary.windows, summary.samples, summary.alarms);
        (report.late_samples, report.missed_samples) =
            (summary.late_samples, summary.missed_samples);
        (report.late_rotations, report.retries) = (summary.late_rotations, summary.retries);
        // On systems without thread ids, workers are assumed to poll.
        let polls = |worker: &WorkerStatus| worker.thread != 0 || !cfg!(target_os = "linux");
        let all_poll = report.dataplane.workers.iter().all(polls);
        (state.heartbeat, state.has_begun) = (Instant::now(), state.has_begun || all_poll);
    }
}

/// State of a source, with the times of its events.
struct SourceState {
    report: StatusReport,
    history: History,
    /// Place of the last window.
    place: Option<Place>,
    /// Interfaces and directions of the window whose union is recorded next.
    parts: Vec<PartStatus>,
    /// Whether packets are counted: programs are attached and workers poll.
    has_begun: bool,
    /// Time of the last heartbeat of its controller, or of the start.
    heartbeat: Instant,
    /// Time at which the last window was closed, or of the start.
    window: Instant,
    read: Instant,
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds)
}

impl SourceState {
    fn new(name: Option<&str>, dataplane: &dyn Dataplane, plan: &Plan) -> Self {
        let (capabilities, now) = (dataplane.capabilities(), Instant::now());
        let settings = dataplane.settings();
        let report = StatusReport {
            status: VERSION,
            pid: process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_ns: unix_time(),
            source: name.map(str::to_owned),
            backend: capabilities.backend.to_owned(),
            interface: capabilities.interface.clone(),
            places: capabilities.places.clone(),
            measurements: measured(settings),
            window_ns: plan.intervals.window.filter(|_| has_windows(settings)).map(nanoseconds),
            ..StatusReport::default()
        };
        SourceState::of(report, now)
    }

    fn of(report: StatusReport, now: Instant) -> Self {
        SourceState {
            report,
            history: History::default(),
            place: None,
            parts: Vec::new(),
            has_begun: false,
            heartbeat: now,
            window: now,
            read: now,
        }
    }

    /// Stores the record of one interface and direction until the record of their union follows.
    fn part(&mut self, record: &Record) {
        if record.kind != RecordKind::Window {
            return;
        }
        let mut figures = self.history.figures(record);
        figures
            .retain(|it: &FigureInContext<'_>| !matches!(it.figure.shape, Shape::Distribution(_)));
        self.parts.push(PartStatus {
            interface: record.interface.clone(),
            direction: record.direction.to_owned(),
            last_window: Latest::from(record),
            figures: serde_json::to_value(figures).unwrap_or_default(),
        });
    }

    fn record(&mut self, record: &Record) {
        let (latest, report) = (Latest::from(record), &mut self.report);
        match record.kind {
            RecordKind::Window => {
                report.packets += latest.packets;
                latest.drops.iter().for_each(|(cause, packets)| {
                    *report.drops.entry(cause.clone()).or_default() += packets
                });
                if let Some(ledger) = record.ledger {
                    report.ledger = Some(report.ledger.unwrap_or_default().plus(ledger));
                }
                report.parts = busiest(std::mem::take(&mut self.parts));
                (report.last_window, self.window) = (Some(latest), Instant::now());
                report.figures =
                    serde_json::to_value(self.history.figures(record)).unwrap_or_default();
                self.place = Some(place(record));
            }
            RecordKind::Sample if !record.is_repeated() => {
                (report.last_sample, self.read) = (Some(latest), Instant::now());
            }
            RecordKind::Sample | RecordKind::Silence | RecordKind::Total | RecordKind::Union => {}
        }
    }

    /// Returns the report at a time.
    fn at(&self, now: Instant) -> StatusReport {
        let aged = |latest: &Option<Latest>, at| {
            latest
                .clone()
                .map(|latest| Latest { age_ns: nanoseconds(now.duration_since(at)), ..latest })
        };
        let stalled = self.stall(now);
        StatusReport {
            at_ns: unix_time(),
            starting: if self.has_begun { Vec::new() } else { vec![NOT_STARTED.to_owned()] },
            problems: stalled.iter().cloned().chain(self.problems(now)).collect(),
            stalled: stalled.into_iter().collect(),
            last_window: aged(&self.report.last_window, self.window),
            last_sample: aged(&self.report.last_sample, self.read),
            last_warning: last_warning(),
            series: self
                .place
                .as_ref()
                .map(|place| self.history.series(place, MAX_SERIES_WINDOWS))
                .unwrap_or_default(),
            ..self.report.clone()
        }
    }

    /// Returns its name; that of its interface if it is the only source.
    fn name(&self) -> &str {
        self.report.source.as_deref().unwrap_or(&self.report.interface)
    }

    fn is_up(&self, now: Instant) -> bool {
        self.has_begun && self.stall(now).is_none() && self.problems(now).is_empty()
    }

    /// Returns why its controller makes no progress, if so.
    fn stall(&self, now: Instant) -> Option<String> {
        let silent = now.duration_since(self.heartbeat);
        let (timeout, cause) = if self.has_begun {
            (STALL_TIMEOUT, "the dataplane does not respond, or standard output is blocked")
        } else {
            (START_TIMEOUT, "the dataplane does not start")
        };
        (silent > timeout).then(|| format!("stalled for {} s: {cause}", silent.as_secs()))
    }

    /// Returns the other reasons why the source is not healthy.
    fn problems(&self, now: Instant) -> Vec<String> {
        let mut problems = Vec::new();
        let open = now.duration_since(self.window);
        if let Some(window_ns) = self.report.window_ns.filter(|_| self.has_begun)
            && open > Duration::from_nanos(window_ns) + STALL_TIMEOUT
        {
            problems.push(format!(
                "a window is overdue: the last one was closed, or the run started, {} s ago",
                open.as_secs()
            ));
        }
        let status = &self.report.dataplane;
        for program in status.programs.iter().filter(|program| !program.attached) {
            problems.push(format!(
                "{}: not counted: the interface was removed or the program detached",
                program.place
            ));
        }
        for switch in status.switch.iter().filter(|switch| !switch.connected) {
            problems
                .push(format!("{}: disconnected, or its configuration was lost", switch.address));
        }
        problems
    }
}

fn measured(settings: &Settings) -> Vec<MeasurementStatus> {
    let keys = |kind: MeasurementKind| kind.keys(settings).map(move |key| (kind, key));
    let named = |(kind, key): (MeasurementKind, flowgauge_core::KeyKind)| MeasurementStatus {
        measurement: kind.name().to_owned(),
        key: key.name().to_owned(),
    };
    MeasurementKind::ALL.into_iter().flat_map(keys).map(named).collect()
}

/// Returns at most [`MAX_PARTS`] of the parts, those with most packets, in their order.
fn busiest(mut parts: Vec<PartStatus>) -> Vec<PartStatus> {
    if parts.len() > MAX_PARTS {
        let mut packets: Vec<u64> = parts.iter().map(|part| part.last_window.packets).collect();
        packets.sort_unstable_by(|one, other| other.cmp(one));
        let least = packets.get(MAX_PARTS - 1).copied().unwrap_or_default();
        parts.retain(|part| part.last_window.packets >= least);
        parts.truncate(MAX_PARTS);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a publication with a source of this name.
    fn published(name: Option<&str>) -> (Publication, Publisher) {
        let (publication, now) = (Publication::default(), Instant::now());
        let report = StatusReport {
            source: name.map(str::to_owned),
            window_ns: Some(1_000_000_000),
            ..StatusReport::default()
        };
        let state = Arc::new(Mutex::new(SourceState::of(report, now)));
        locked(&publication.sources.states).push(Arc::clone(&state));
        let sources = Arc::clone(&publication.sources);
        (publication, Publisher { state, sources })
    }

    #[test]
    fn a_run_is_ready_while_its_source_makes_windows() {
        let (publication, publisher) = published(None);
        let status = publication.status();
        let not_ready_reasons = || status().not_ready_reasons();
        assert_eq!(not_ready_reasons(), [NOT_STARTED]);
        assert_eq!(status().problems, [""; 0], "it is not ill, but starting");
        locked(&publisher.state).has_begun = true;
        assert_eq!(not_ready_reasons(), [""; 0]);
        // No heartbeat and no window since the start.
        let begun = locked(&publisher.state).window;
        let report = |after| publication.sources.report_at(begun + Duration::from_secs(after));
        assert_eq!(report(10).not_ready_reasons(), [""; 0]);
        let (stands_still, overdue) = (report(11), report(12));
        assert!(
            matches!(&stands_still.stalled[..], [only] if only.contains("stalled for 11 s")),
            "{stands_still:?}"
        );
        assert_eq!(stands_still.not_ready_reasons(), stands_still.stalled);
        assert!(
            matches!(&overdue.problems[..], [_, overdue] if overdue.contains("a window is overdue")),
            "{overdue:?}"
        );
        assert_eq!(overdue.stalled.len(), 1, "windows do not affect stalls");
        drop(publisher);
        assert_eq!(not_ready_reasons(), ["nothing to count"]);
        assert_eq!(status().stalled, [""; 0]);
    }

    #[test]
    fn the_busiest_parts_are_reported_in_their_order() {
        let part = |number: u64| {
            let last_window = Latest {
                window: 0,
                start_ns: 0,
                end_ns: 1,
                age_ns: 0,
                complete: true,
                packets: number * 7 % 20,
                bytes: 0,
                drops: BTreeMap::new(),
                flows: None,
                alarm: None,
            };
            let (interface, direction) = (format!("eth{number}"), "ingress".to_owned());
            PartStatus { interface, direction, last_window, figures: serde_json::Value::Null }
        };
        let few: Vec<PartStatus> = (0..3).map(part).collect();
        assert_eq!(busiest(few.clone()), few);
        let kept = busiest((0..20).map(part).collect());
        let expected: Vec<PartStatus> =
            (0..20).map(part).filter(|part| part.last_window.packets >= 4).collect();
        assert_eq!((kept.len(), kept), (MAX_PARTS, expected));
    }

    /// Verifying a program takes time on a slow kernel.
    #[test]
    fn a_source_that_starts_may_take_longer_than_one_that_counts() {
        let (publication, publisher) = published(None);
        let begun = locked(&publisher.state).heartbeat;
        let report = |after| publication.sources.report_at(begun + Duration::from_secs(after));
        assert_eq!((report(60).problems.len(), report(60).starting.len()), (0, 1));
        assert!(
            matches!(&report(61).stalled[..], [only] if only.contains("does not start")),
            "{:?}",
            report(61)
        );
    }

    #[test]
    fn a_run_of_several_waits_for_each_of_its_sources() {
        let (publication, publisher) = published(Some("one"));
        let status = publication.status();
        let not_ready_reasons = || status().not_ready_reasons();
        locked(&publisher.state).has_begun = true;
        let expects =
            |name: &str, source: Expected| publication.expects([(name.to_owned(), source)]);
        expects("one", Expected::Started);
        expects("two", Expected::Started);
        let up = |one: bool, two: bool| {
            BTreeMap::from([("one".to_owned(), one), ("two".to_owned(), two)])
        };
        let sources_up = publication.sources_up();
        assert_eq!(not_ready_reasons(), ["two: counting has not started"]);
        assert_eq!(sources_up(), up(true, false));
        assert_eq!(status().starting, not_ready_reasons());
        expects("two", Expected::Failed);
        assert_eq!(not_ready_reasons(), ["two: failed; see the log"]);
        assert_eq!(status().problems, [""; 0]);
        assert_eq!(status().failed, not_ready_reasons());
        assert_eq!(sources_up(), up(true, false));
        expects("two", Expected::Absent("eth2".to_owned()));
        assert_eq!(
            not_ready_reasons(),
            ["two: eth2: no such interface; counting starts when it exists"]
        );
        assert_eq!((status().problems, status().stalled), (not_ready_reasons(), Vec::new()));
        // As for an interface of a pattern that was removed.
        publication.ended("two");
        assert_eq!(not_ready_reasons(), [""; 0]);
        assert_eq!(sources_up(), BTreeMap::from([("one".to_owned(), true)]));
        let stalled = locked(&publisher.state).heartbeat + STALL_TIMEOUT * 2;
        assert_eq!(publication.sources.up(stalled), BTreeMap::from([("one".to_owned(), false)]));
        locked(&publisher.state).has_begun = false;
        assert_eq!(not_ready_reasons(), ["one: counting has not started"]);
    }
}
