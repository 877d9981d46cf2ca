//! Records that the controller publishes: one for each window, sample and run.

pub use crate::measurement::RecordKind;

use crate::alert::{Alert, Rule};
use crate::field::Fields;
use crate::figure::{
    Figure, KnownFigure, LOST_TITLE, Shape, UNACCOUNTED_SIGNS, UNACCOUNTED_TITLE, Unit,
};
use crate::ledger::Ledger;
use crate::measurement::{self, ClosedBank, Estimation, MeasurementFields, Reports};
use crate::nearest::nearest;
use crate::row::Row;
use crate::united::United;
use flowgauge_core::{Counters, Settings};
use flowgauge_dataplane::{LossCause, Losses};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Result of one window, sample, silence, union or run. The default has counted nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Kind of record.
    pub kind: RecordKind,
    /// Number of the window, from zero.
    pub window: u64,
    /// Number of the last window, if the record covers several: a silence, or a window that ended
    /// so late that the following ones were over as well.
    pub last_window: Option<u64>,
    /// Start of the window, in nanoseconds.
    pub start_ns: u64,
    /// End of the window, or the time of a sample, in nanoseconds.
    pub end_ns: u64,
    /// Scheduled start and end of the window, in nanoseconds.
    /// [Aligned](crate::schedule::Intervals::align) windows of one length have the same on all
    /// machines. `None` for windows that an earlier process left open, and for records other than
    /// windows.
    pub scheduled: Option<(u64, u64)>,
    /// Scheduled time of a sample, in nanoseconds.
    pub at_ns: Option<u64>,
    /// Delay of a sample or of a window's end after its scheduled time, in nanoseconds.
    pub late_ns: u64,
    /// Number of scheduled samples that the record stands for, its weight in averages over time: 1
    /// for a sample when it is taken. Later ones that find nothing new are repeated by one record
    /// with their number, after the fact, and a silence has the number of those that fell into it.
    /// 0 for a sample that the schedule did not ask for, and for other kinds of records.
    pub repeats: u64,
    /// Time of the last of these samples, in nanoseconds, if the record was made after the fact;
    /// `end_ns` of a repeated sample is that of the first of them.
    pub last_ns: Option<u64>,
    /// Earlier run that began the window, if this one adopted it; `None` for other records.
    pub adopted: Option<Adoption>,
    /// Step of the clock that ended the window, in nanoseconds; negative if the clock was set back.
    pub clock_step_ns: Option<i64>,
    /// Whether the window has at least its full length and no packet of it is missing: counting had
    /// no gap, no packet was [lost for certain](Losses::total), and the devices received
    /// none that is unaccounted for. For a total, whether no packet is missing, late ones included.
    /// The first window of an [aligned](crate::schedule::Intervals::align) schedule is short.
    pub complete: bool,
    /// Name of the backend.
    pub backend: &'static str,
    /// Name of the source, if the run has several.
    pub source: Option<Arc<str>>,
    /// Interfaces or ports of the packets, separated by commas.
    pub interface: String,
    /// Direction of the packets: `ingress`, `egress` or `both`.
    pub direction: &'static str,
    /// Kernel hooks that count the packets, such as `native` or `tcx`, separated by commas. `None`
    /// without kernel hooks.
    pub hook: Option<String>,
    /// Forms of the programs at these hooks, `fused` or `separate`, separated by commas. `None`
    /// without kernel hooks, and if distinct flows alone are measured.
    pub form: Option<String>,
    /// Whether the record covers one of several places. Another record covers all of them.
    pub part: bool,
    /// Whether the innermost network header of a tunnel is counted instead of the outermost.
    pub inner: bool,
    /// Filter expression that the counted packets match; `None` without one.
    pub filter: Option<Arc<str>>,
    /// Packet and byte counters.
    pub counters: Counters,
    /// Packet counter before and after the registers were read; equal if samples are atomic.
    pub packets_before_after: (u64, u64),
    /// Packets lost in this window before they could be counted, by cause.
    pub drops: Losses,
    /// Balance of the packets that devices received in this window. `None` for samples, and where
    /// no device reports a count.
    pub ledger: Option<Ledger>,
    /// Packets read in this window that belong to an earlier, closed one. They are in no window.
    /// Only captures have them.
    pub late: u64,
    /// CPU time of the workers, in nanoseconds. `None` for samples, and where the kernel or a
    /// switch counts.
    pub cpu_ns: Option<u64>,
    /// Results of the measurements.
    pub reports: Reports,
    /// Results of the alert rules, for a window.
    pub alerts: Vec<Alert>,
    /// Provenance of a union.
    pub united: Option<United>,
    /// Registers and sketches of a window; `None` for other records.
    pub counted: Option<ClosedBank>,
    /// Fields and figures, computed when an output first needs them.
    pub drawn: FieldCache,
}

/// Origin of a window whose counts were adopted from an earlier run. That run may have published it
/// as well, with the same number, if it was killed just then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// Identifier of the run that began the window, if it is known.
    pub run: Option<Arc<str>>,
}

/// Cache of a record's fields and figures, computed once for all outputs. A clone starts empty,
/// since it may be changed into another record.
#[derive(Debug, Default)]
pub struct FieldCache(OnceLock<RecordFields>);

/// Fields of each measurement, and the figures of all.
#[derive(Debug)]
struct RecordFields {
    described: Vec<MeasurementFields>,
    figures: Vec<Figure>,
}

impl Clone for FieldCache {
    fn clone(&self) -> Self {
        FieldCache::default()
    }
}

impl PartialEq for FieldCache {
    fn eq(&self, _: &Self) -> bool {
        // The cache follows from the record.
        true
    }
}

impl Record {
    /// Returns the name that distinguishes the record within its run: the source's, or else the
    /// interface's.
    #[must_use]
    pub fn origin(&self) -> Cow<'_, str> {
        match &self.source {
            None => Cow::Borrowed(&self.interface),
            Some(source) if !self.part || **source == *self.interface => Cow::Borrowed(source),
            Some(source) => Cow::Owned(format!("{source}/{}", self.interface)),
        }
    }

    /// Returns whether the record repeats an earlier sample, since later ones found nothing new.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        self.kind == RecordKind::Sample && self.last_ns.is_some()
    }

    /// Returns whether packets were left out by a filter expression, or could have been.
    #[must_use]
    pub fn is_filtered(&self) -> bool {
        self.filter.is_some() || self.counters.unmatched > 0
    }

    /// Returns the figures: packets and losses first, then those of each measurement, then alerts.
    #[must_use]
    pub fn figures(&self) -> &[Figure] {
        &self.drawn.0.get_or_init(|| self.draw()).figures
    }

    /// Returns the fields of all measurements, in the order of JSON.
    pub(crate) fn described(&self) -> &[MeasurementFields] {
        &self.drawn.0.get_or_init(|| self.draw()).described
    }

    /// Returns the lake columns of all measurements: fields, registers and counters.
    pub(crate) fn sketches(&self, counted: &ClosedBank) -> Row {
        let mut row = Row::default();
        let described = self.described().iter().filter(|it| it.is_on);
        for (described, (_, report)) in described.zip(self.reports.all()) {
            described.fields.store(&mut row);
            report.store(counted, &mut row);
        }
        row
    }

    /// Evaluates alert rules against the figures.
    pub(crate) fn judge(&mut self, rules: &[Rule]) {
        if rules.is_empty() {
            return;
        }
        self.alerts = rules.iter().filter_map(|rule| rule.judge(self.figures())).collect();
        if let Some(drawing) = self.drawn.0.get_mut() {
            let mut alerts = Fields::default();
            draw_alerts(&self.alerts, &mut alerts);
            drawing.figures.append(&mut alerts.figures);
        }
    }

    fn draw(&self) -> RecordFields {
        let mut described = self.reports.describe(self.counted.as_ref());
        let mut figures = Fields::default();
        let Counters { bytes, ipv4, ipv6, non_ip, truncated, bad_header, .. } = self.counters;
        let Counters { unmatched, unmatched_bytes, merged, .. } = self.counters;
        figures.counts("packets", "IP packets", "family", [("ipv4", ipv4), ("ipv6", ipv6)]);
        for measurement in &mut described {
            figures.figures.append(&mut measurement.fields.figures);
        }
        figures.count("traffic", "bytes of all packets", Unit::Bytes, &[], bytes as f64);
        if self.is_filtered() {
            let title = "packets that do not match the filter expression";
            figures.count("unmatched_packets", title, Unit::Things, &[], unmatched as f64);
            let title = "bytes of packets that do not match the filter expression";
            figures.count("unmatched", title, Unit::Bytes, &[], unmatched_bytes as f64);
        }
        if merged > 0 {
            let title = "packets in super-packets beyond the first of each";
            figures.count("merged_packets", title, Unit::Things, &[], merged as f64);
        }
        let drops = self.drops.iter().map(|(cause, packets)| (cause.name(), packets));
        figures.counts("lost_packets", LOST_TITLE, "cause", drops);
        if let Some(Ledger { received, unaccounted, .. }) = self.ledger {
            let title = "packets that devices received";
            figures.count("received_packets", title, Unit::Things, &[], received as f64);
            let [missing, extra] = UNACCOUNTED_SIGNS;
            let sign = if unaccounted > 0 { missing } else { extra };
            let packets = Some((sign, unaccounted.unsigned_abs())).filter(|(_, it)| *it > 0);
            figures.counts("unaccounted_packets", UNACCOUNTED_TITLE, "sign", packets);
        }
        let title = "packets of windows that had been closed";
        figures.count("late_packets", title, Unit::Things, &[], self.late as f64);
        let rejected = [("non-ip", non_ip), ("truncated", truncated), ("bad-header", bad_header)];
        figures.counts("rejected_packets", "packets without an IP flow", "reason", rejected);
        let (title, complete) = ("the window is complete", Shape::State(self.complete));
        figures.figure("window_complete", title, Unit::Things, &[], complete);
        if let Some(cpu_ns) = self.cpu_ns {
            let seconds = cpu_ns as f64 / 1e9;
            figures.count("worker_cpu", "CPU time of workers", Unit::Seconds, &[], seconds);
        }
        draw_alerts(&self.alerts, &mut figures);
        RecordFields { described, figures: figures.figures }
    }
}

/// Properties of a source of packets on which the figures of its windows depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceTraits {
    /// Whether a filter expression leaves packets out.
    pub is_filtered: bool,
    /// Whether devices report the number of packets that they received.
    pub has_devices: bool,
    /// Whether workers count, whose CPU time is known.
    pub has_workers: bool,
}

/// Returns the figures of packets and losses that windows can have: those of [`Record::figures`]
/// that belong to no measurement.
pub(crate) fn known(source: SourceTraits) -> Vec<KnownFigure> {
    let things = |name: &'static str| KnownFigure::new(name, Unit::Things);
    // Late packets have a figure of their own.
    let causes = LossCause::ALL.into_iter().filter(|cause| *cause != LossCause::Late);
    let mut known = vec![
        things("packets").label("family", ["ipv4", "ipv6"]),
        KnownFigure::new("traffic", Unit::Bytes),
        things("lost_packets").label("cause", causes.map(LossCause::name)),
        things("unaccounted_packets").label("sign", UNACCOUNTED_SIGNS),
        things("late_packets"),
        things("rejected_packets").label("reason", ["non-ip", "truncated", "bad-header"]),
        things("window_complete"),
    ];
    if source.is_filtered {
        known.extend([things("unmatched_packets"), KnownFigure::new("unmatched", Unit::Bytes)]);
    }
    if source.has_devices {
        known.extend([things("received_packets"), things("merged_packets")]);
    }
    if source.has_workers {
        known.push(KnownFigure::new("worker_cpu", Unit::Seconds));
    }
    known
}

/// Returns why a rule can never fire in a run with these settings, if it is about none of its
/// figures: which ones there are, or which labels they have. The figures follow from the settings,
/// so that such a rule is refused before the first window.
#[must_use]
pub fn rule_problem(
    rule: &Rule,
    settings: &Settings,
    options: &Estimation,
    source: SourceTraits,
) -> Option<String> {
    let mut known = known(source);
    known.extend(measurement::known(settings, options));
    let named: Vec<&KnownFigure> =
        known.iter().filter(|known| rule.names(known.name, known.unit)).collect();
    if named.iter().any(|known| known.has(&rule.labels)) {
        return None;
    }
    let text = &rule.text;
    let Some(first) = named.first() else {
        let names: BTreeSet<&str> = known.iter().map(|known| known.name).collect();
        let meant = nearest(&rule.figure, names.iter().copied())
            .map_or_else(String::new, |name| format!("did you mean '{name}'? "));
        let names: Vec<&str> = names.into_iter().collect();
        return Some(format!(
            "the alert '{text}' is about no figure of this run; {meant}those are {}; --measure, --alarm and --match add others",
            names.join(", ")
        ));
    };
    let mut labels = BTreeSet::new();
    for (label, values) in named.iter().flat_map(|known| &known.labels) {
        labels.extend(values.iter().map(|value| format!("{label}={value}")));
    }
    let labels: Vec<String> = labels.into_iter().collect();
    let advice = if labels.is_empty() {
        "it has no labels".to_owned()
    } else {
        format!("its labels are {}", labels.join(", "))
    };
    Some(format!("the alert '{text}' matches no {} of this run; {advice}", first.name))
}

fn draw_alerts(alerts: &[Alert], figures: &mut Fields) {
    for alert in alerts {
        let labels = [("rule", alert.rule.as_str())];
        let (title, firing) = ("a rule holds for certain", Shape::State(alert.firing));
        figures.figure("alert_firing", title, Unit::Things, &labels, firing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::KeyKind;
    use flowgauge_core::measurement::Toggle;

    fn problem(rule: &str) -> Option<String> {
        let mut settings = Settings::default();
        settings.cardinality.key = KeyKind::SrcDst;
        settings.sizes = Toggle::ON;
        let rule = rule.parse().unwrap();
        rule_problem(&rule, &settings, &Estimation::default(), SourceTraits::default())
    }

    #[test]
    fn a_rule_about_a_figure_or_label_that_is_not_there_lists_those_that_are() {
        for rule in [
            "distinct_flows > 1M",
            "distinct_flows{key=src-dst} > 1M",
            "flowgauge_packets_total{family=ipv6} > 0",
            "lost_packets{cause=device} > 0",
            "mean_packet_length > 100",
            "packet_length_bytes{percentile=50} > 100",
            "full{measurement=sizes} > 0",
        ] {
            assert_eq!(problem(rule), None, "{rule}");
        }
        for (rule, part) in [
            (
                "distinct_flowz > 1",
                "did you mean 'distinct_flows'? those are distinct_flows, full,",
            ),
            ("entropy{key=src} < 3", "is about no figure of this run; those are distinct_flows"),
            (
                "distinct_flows{key=src} > 1",
                "no distinct_flows of this run; its labels are key=src-dst",
            ),
            ("late_packets{cause=device} > 1", "it has no labels"),
            // A rule cannot compare a distribution.
            ("packet_lengths > 1", "is about no figure"),
            ("unmatched_packets > 1", "is about no figure"),
            ("worker_cpu > 1", "is about no figure"),
        ] {
            let problem = problem(rule).unwrap();
            assert!(problem.contains(part) && problem.contains(rule), "{problem}");
        }
    }
}
