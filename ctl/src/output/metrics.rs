//! Prometheus metrics, derived from figures.
//!
//! Counts and distributions accumulate over windows; numbers are those of the last closed window.
//! No label is an address: items of rankings are identified by their rank, `rank="1"`.

mod exposition;
mod native;

pub use exposition::proto;
pub(crate) use native::RunHistogram;

use crate::controller::{Sink, Summary};
use crate::figure::{Figure, LOST_TITLE, Number, Shape, UNACCOUNTED_SIGNS, UNACCOUNTED_TITLE};
use crate::record::{Record, RecordKind};
use flowgauge_dataplane::{Dataplane, LossCause};
use proto::MetricType;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Prefix of all names.
const PREFIX: &str = "flowgauge_";
/// Maximum rank of a ranking that is exported.
const RANKS: usize = 10;

/// Suffixes of the names and HELP texts of a number and its bounds.
const BOUNDS: [(&str, &str); 3] =
    [("", ""), ("_low", ": lower end of the interval"), ("_high", ": upper end of the interval")];

/// Labels of a series: names and values.
pub(crate) type SeriesLabels = Vec<(&'static str, String)>;

/// A metric with all of its series.
#[derive(Clone)]
pub(crate) struct Family {
    pub(crate) help: String,
    pub(crate) kind: MetricType,
    pub(crate) series: BTreeMap<SeriesLabels, SeriesValue>,
}

/// Value of a series.
#[derive(Clone)]
pub(crate) enum SeriesValue {
    /// A number.
    One(f64),
    /// A distribution.
    Many(RunHistogram),
}

/// Function that lists the sources of a run by name, and whether each is counted.
type SourcesUp = Arc<dyn Fn() -> BTreeMap<String, bool> + Send + Sync>;

#[derive(Default)]
struct State {
    families: BTreeMap<String, Family>,
    /// `None` until the run serves or exports metrics.
    sources_up: Option<SourcesUp>,
    /// Sources that count packets at several places, each with its own records.
    places: BTreeSet<Option<Arc<str>>>,
}

/// Metrics of a run, updated as a sink and read by exporters. Clones share their state.
#[derive(Clone, Default)]
pub struct Metrics {
    state: Arc<Mutex<State>>,
    /// Name of the source, if the run has several.
    source: Option<Arc<str>>,
}

impl Metrics {
    /// Returns a handle for one of several sources. All share one state.
    #[must_use]
    pub fn of_source(&self, source: &Arc<str>) -> Self {
        Metrics { state: Arc::clone(&self.state), source: Some(Arc::clone(source)) }
    }

    /// Adds `flowgauge_source_up`, which this function knows when metrics are read: a source that
    /// failed has no records that could set it.
    pub fn follow_sources(
        &self,
        sources_up: impl Fn() -> BTreeMap<String, bool> + Send + Sync + 'static,
    ) {
        self.state().sources_up = Some(Arc::new(sources_up));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts refused connections or requests of a protocol. Returns the name of the metric.
    pub(crate) fn refused(&self, protocol: &str, reason: &str, more: u64) -> String {
        let help = format!("connections and requests over {protocol} that got no answer");
        self.count(
            &format!("{}_refused_total", protocol.to_lowercase()),
            &help,
            vec![("reason", reason.to_owned())],
            more,
        )
    }

    /// Increments a counter. Returns the full name of the metric.
    pub(crate) fn count(&self, name: &str, help: &str, labels: SeriesLabels, more: u64) -> String {
        self.state().add(name, help, labels, more as f64);
        PREFIX.to_owned() + name
    }

    /// Sets a gauge of the source.
    pub(crate) fn set(&self, name: &str, help: &str, value: u64) {
        self.state().set(name, help, MetricType::Gauge, self.labels(), value as f64);
    }

    /// Sets a counter of the source to its total since the start of the run.
    pub(crate) fn reach(&self, name: &str, help: &str, value: u64) {
        self.state().set(name, help, MetricType::Counter, self.labels(), value as f64);
    }

    /// Returns the labels of metrics that have no record.
    fn labels(&self) -> SeriesLabels {
        self.source.iter().map(|source| ("source", source.to_string())).collect()
    }

    /// Returns the current metrics by name.
    pub(crate) fn families(&self) -> Vec<(String, Family)> {
        let state = self.state();
        let all = state.families.iter().filter(|(_, family)| !family.series.is_empty());
        let mut all: Vec<(String, Family)> =
            all.map(|(name, family)| (name.clone(), family.clone())).collect();
        let sources_up = state.sources_up.clone();
        drop(state);
        let mut add = |name: &str, help: &str, kind, series: Vec<(SeriesLabels, f64)>| {
            let series =
                series.into_iter().map(|(labels, value)| (labels, SeriesValue::One(value)));
            let family = Family { help: help.to_owned(), kind, series: series.collect() };
            if !family.series.is_empty() {
                all.push((name.to_owned(), family));
            }
        };
        let up = sources_up.map(|sources_up| sources_up()).unwrap_or_default().into_iter();
        let up = up.map(|(source, is_up)| (vec![("source", source)], f64::from(u8::from(is_up))));
        add(
            "flowgauge_source_up",
            "whether the source is counted: 0 if it is starting, has failed, is stalled or its interface is gone",
            MetricType::Gauge,
            up.collect(),
        );
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        let info = "which flowgauge it is";
        add("flowgauge_build_info", info, MetricType::Gauge, vec![(version, 1.0)]);
        let seconds = cpu_seconds().map(|seconds| (Vec::new(), seconds));
        add(
            "process_cpu_seconds_total",
            "CPU time of the whole process, user and system",
            MetricType::Counter,
            Vec::from_iter(seconds),
        );
        all
    }

    /// Returns all metrics in the protobuf format of Prometheus: length-delimited messages, with
    /// classic and native buckets.
    #[must_use]
    pub fn protobuf(&self) -> Vec<u8> {
        exposition::protobuf(&self.families())
    }

    /// Returns all metrics in the text format of Prometheus, version 0.0.4.
    #[must_use]
    pub fn text(&self) -> String {
        exposition::text(&self.families())
    }
}

impl State {
    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
    ) -> &mut BTreeMap<SeriesLabels, SeriesValue> {
        &mut self
            .families
            .entry(PREFIX.to_owned() + name)
            .or_insert_with(|| Family { help: help.to_owned(), kind, series: BTreeMap::new() })
            .series
    }

    /// Sets a gauge, or a counter that has a total since the start of the run.
    fn set(&mut self, name: &str, help: &str, kind: MetricType, labels: SeriesLabels, value: f64) {
        self.family(name, help, kind).insert(labels, SeriesValue::One(value));
    }

    fn add(&mut self, name: &str, help: &str, labels: SeriesLabels, more: f64) {
        let family = self.family(name, help, MetricType::Counter);
        if let SeriesValue::One(value) = family.entry(labels).or_insert(SeriesValue::One(0.0)) {
            *value += more;
        }
    }

    fn draw(&mut self, figure: &Figure, place: &SeriesLabels) {
        let Figure { name, title, unit, labels, shape, truth } = figure;
        let unit = unit.suffix();
        let labels = [place.as_slice(), labels].concat();
        match shape {
            Shape::Count(count) => self.add(&format!("{name}{unit}_total"), title, labels, *count),
            Shape::State(state) => {
                let value = f64::from(u8::from(*state));
                self.set(&format!("{name}{unit}"), title, MetricType::Gauge, labels, value);
            }
            Shape::Number(number) => {
                if let Some(truth) = truth {
                    let (name, help) =
                        (format!("{name}_truth{unit}"), format!("{title}: exact value"));
                    self.set(&name, &help, MetricType::Gauge, labels.clone(), *truth);
                }
                for ((bound, end), value) in
                    BOUNDS.into_iter().zip([number.value, number.low, number.high])
                {
                    let (name, help) = (format!("{name}{bound}{unit}"), format!("{title}{end}"));
                    self.set(&name, &help, MetricType::Gauge, labels.clone(), value);
                }
            }
            Shape::Ranking(ranked) => {
                let values: [fn(&Number) -> f64; 3] = [|it| it.value, |it| it.low, |it| it.high];
                for ((bound, end), value) in BOUNDS.into_iter().zip(values) {
                    let (name, help) = (format!("{name}{bound}{unit}"), format!("{title}{end}"));
                    let family = self.family(&name, &help, MetricType::Gauge);
                    // Ranks that no item takes any more are removed.
                    family.retain(|series, _| !labels.iter().all(|label| series.contains(label)));
                    for (it, rank) in ranked.iter().take(RANKS).zip(1..) {
                        let labels = [labels.clone(), vec![("rank", rank.to_string())]].concat();
                        family.insert(labels, SeriesValue::One(value(&it.number)));
                    }
                }
            }
            Shape::Distribution(distribution) => {
                let family = self.family(&format!("{name}{unit}"), title, MetricType::Histogram);
                if let SeriesValue::Many(all) = family
                    .entry(labels)
                    .or_insert_with(|| SeriesValue::Many(RunHistogram::default()))
                {
                    all.add(distribution);
                }
            }
        }
    }
}

impl Sink for Metrics {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind != RecordKind::Window {
            return Ok(());
        }
        let mut state = self.state();
        if record.part {
            state.places.insert(record.source.clone());
        }
        let mut place = vec![
            ("source", record.origin().into_owned()),
            ("direction", record.direction.to_owned()),
        ];
        // The record of all places would count their packets twice.
        let is_sum = !record.part && state.places.contains(&record.source);
        if is_sum && record.source.is_none() {
            place[0].1 = "all".to_owned();
        }
        for figure in record.figures() {
            if !(is_sum && matches!(figure.shape, Shape::Count(_) | Shape::Distribution(_))) {
                state.draw(figure, &place);
            }
        }
        for alert in &record.alerts {
            let labels = [place.clone(), vec![("rule", alert.rule.clone())]].concat();
            let firing = f64::from(u8::from(alert.firing));
            state.add("alerts_total", "windows in which a rule fired", labels, firing);
        }
        if !is_sum {
            // Counters start at zero, since a rate needs two values: the first packets of a new
            // counter would not be visible.
            for cause in LossCause::ALL {
                let labels = [place.clone(), vec![("cause", cause.name().to_owned())]].concat();
                state.add("lost_packets_total", LOST_TITLE, labels, 0.0);
            }
            for sign in UNACCOUNTED_SIGNS.iter().filter(|_| record.ledger.is_some()) {
                let labels = [place.clone(), vec![("sign", (*sign).to_owned())]].concat();
                state.add("unaccounted_packets_total", UNACCOUNTED_TITLE, labels, 0.0);
            }
            state.add(
                "incomplete_windows_total",
                "windows that were cut short, or whose packets were lost or are unaccounted for",
                place.clone(),
                f64::from(u8::from(!record.complete)),
            );
            let length = record.end_ns.saturating_sub(record.start_ns);
            for (name, help, ns) in [
                ("window_end_timestamp_seconds", "end of the last window", record.end_ns),
                ("window_late_seconds", "how late it was closed", record.late_ns),
                ("window_length_seconds", "how long it was open", length),
            ] {
                state.set(name, help, MetricType::Gauge, place.clone(), ns as f64 / 1e9);
            }
        }
        Ok(())
    }

    fn heartbeat(&mut self, _: &dyn Dataplane, summary: &Summary) {
        let totals = [
            ("windows_total", "windows that were closed", summary.windows),
            (
                "samples_total",
                "samples of open windows, with those that found nothing new",
                summary.samples,
            ),
            ("late_samples_total", "samples that were late", summary.late_samples),
            ("missed_samples_total", "samples that were given up", summary.missed_samples),
            ("late_windows_total", "windows that were closed late", summary.late_windows),
            (
                "stalled_windows_total",
                "windows that are in the record of one before them",
                summary.stalled_windows,
            ),
            ("late_rotations_total", "rotations that failed at their time", summary.late_rotations),
            ("retries_total", "calls that were repeated", summary.retries),
            ("clock_steps_total", "how often the clock was set", summary.clock_steps),
            ("alarms_total", "windows that raised the alarm", summary.alarms),
        ];
        let mut state = self.state();
        for (name, help, total) in totals {
            state.set(name, help, MetricType::Counter, self.labels(), total as f64);
        }
    }
}

fn cpu_seconds() -> Option<f64> {
    use nix::sys::resource::{UsageWho, getrusage};
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Some(seconds(usage.user_time()) + seconds(usage.system_time()))
}
