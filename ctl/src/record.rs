//! What the controller publishes: one record a window, a sample or a run.

pub use crate::kind::Kind;

use crate::alert::{self, Alert, Rule};
use crate::field::Fields;
use crate::figure::{Figure, LOST, Unit};
use crate::ledger::Ledger;
use crate::measurement::{Counted, Described, Reports};
use crate::row::Row;
use crate::united::United;
use flowgauge_core::Counters;
use flowgauge_dataplane::Losses;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// One window, sample or total.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Which kind.
    pub kind: Kind,
    /// Number of the window, from zero.
    pub window: u64,
    /// Number of the last window, where the record is of several: a silence, or a window that ended
    /// so late that those after it were over as well.
    pub last_window: Option<u64>,
    /// Start of the window, in nanoseconds.
    pub start_ns: u64,
    /// End of the window, in nanoseconds; for a sample the time it was taken.
    pub end_ns: u64,
    /// Start and end of the window by the schedule, in nanoseconds: of
    /// [aligned](crate::schedule::Intervals::align) windows of one length the same on all machines.
    /// Nothing of windows that an earlier process left open, and of what is no window.
    pub scheduled: Option<(u64, u64)>,
    /// When a sample was scheduled, in nanoseconds.
    pub at_ns: Option<u64>,
    /// How long after its scheduled time a sample was taken or a window ended, in nanoseconds.
    pub late_ns: u64,
    /// By how many nanoseconds the clock was set while the window was open, which ended it:
    /// forward, or back if below zero.
    pub clock_step_ns: Option<i64>,
    /// Whether the window has at least its full length and nothing of it was lost; of a total,
    /// whether nothing was lost. The first window of an
    /// [aligned](crate::schedule::Intervals::align) schedule is short.
    pub complete: bool,
    /// The backend's name.
    pub backend: &'static str,
    /// The name of the source, where a run has several.
    pub source: Option<Arc<str>>,
    /// Where the packets came from; several with commas between.
    pub interface: String,
    /// Which way they crossed it: `ingress`, `egress` or `both`.
    pub direction: &'static str,
    /// In which of the interface's hooks the kernel counts them, such as `native` or `tcx`; of
    /// several places with commas between. Nothing where no interface has hooks.
    pub hook: Option<String>,
    /// Whether this is one of several places, whose packets another record counts all together.
    pub part: bool,
    /// Whether the innermost network header of tunnels counts, and not the outermost.
    pub inner: bool,
    /// Packets and bytes.
    pub counters: Counters,
    /// The packet counter before and after the registers were read; equal where samples are atomic.
    pub packets_before_after: (u64, u64),
    /// Packets lost in this window before they could be counted, by cause.
    pub drops: Losses,
    /// What became of all packets that devices received in this window; nothing of samples, and
    /// where no device tells.
    pub ledger: Option<Ledger>,
    /// Packets that were read in this window and belong to an earlier one, which was closed: they
    /// are in no window. Only captures have such.
    pub late: u64,
    /// CPU time that the workers used for it, in nanoseconds; unknown of samples, and where the
    /// kernel or a switch counts.
    pub cpu_ns: Option<u64>,
    /// What each measurement says.
    pub reports: Reports,
    /// What rules say of a window.
    pub alerts: Vec<Alert>,
    /// Of which rows of a lake a union is.
    pub united: Option<United>,
    /// What a window's packets were counted in; nothing of other records.
    pub counted: Option<Counted>,
    /// Its fields and figures, once an output has asked for them.
    pub drawn: Drawn,
}

/// Fields and figures of a record, made when an output first asks for them and then the same for
/// all outputs. A clone makes its own, since it may be changed into another record.
#[derive(Debug, Default)]
pub struct Drawn(OnceLock<Drawing>);

/// Fields of each measurement, and figures of all.
#[derive(Debug)]
struct Drawing {
    described: Vec<Described>,
    figures: Vec<Figure>,
}

impl Clone for Drawn {
    fn clone(&self) -> Self {
        Drawn::default()
    }
}

impl PartialEq for Drawn {
    fn eq(&self, _: &Self) -> bool {
        // They follow from the record.
        true
    }
}

impl Record {
    /// What tells its source, or the place there, from others of the run: the source's name, or
    /// else the interface's.
    #[must_use]
    pub fn origin(&self) -> Cow<'_, str> {
        match &self.source {
            None => Cow::Borrowed(&self.interface),
            Some(source) if !self.part || **source == *self.interface => Cow::Borrowed(source),
            Some(source) => Cow::Owned(format!("{source}/{}", self.interface)),
        }
    }

    /// Returns its figures: packets and losses, those of each measurement, and alerts last.
    #[must_use]
    pub fn figures(&self) -> &[Figure] {
        &self.drawn().figures
    }

    /// Returns the fields of all measurements, in the order of JSON.
    pub(crate) fn described(&self) -> &[Described] {
        &self.drawn().described
    }

    /// Returns what measurements have in a lake: fields, registers and counters.
    pub(crate) fn sketches(&self, counted: &Counted) -> Row {
        let mut row = Row::default();
        let described = self.described().iter().filter(|it| it.is_on);
        for (described, (_, report)) in described.zip(self.reports.all()) {
            described.fields.store(&mut row);
            report.store(counted, &mut row);
        }
        row
    }

    fn drawn(&self) -> &Drawing {
        self.drawn.0.get_or_init(|| self.draw())
    }

    /// Sets the alerts to what these rules say of its figures.
    pub(crate) fn judge(&mut self, rules: &[Rule]) {
        if rules.is_empty() {
            return;
        }
        self.alerts = alert::judge(rules, self.figures());
        if let Some(drawing) = self.drawn.0.get_mut() {
            let mut alerts = Fields::default();
            draw_alerts(&self.alerts, &mut alerts);
            drawing.figures.append(&mut alerts.figures);
        }
    }

    fn draw(&self) -> Drawing {
        let mut described = self.reports.describe(self.counted.as_ref());
        let mut figures = Fields::default();
        let counters = &self.counters;
        for (family, packets) in [("ipv4", counters.ipv4), ("ipv6", counters.ipv6)] {
            figures.count(
                "packets",
                "IP packets",
                Unit::Things,
                &[("family", family)],
                packets as f64,
            );
        }
        for measurement in &mut described {
            figures.figures.append(&mut measurement.fields.figures);
        }
        figures.count("traffic", "bytes of all packets", Unit::Bytes, &[], counters.bytes as f64);
        for (cause, packets) in self.drops.iter() {
            figures.count(
                "lost_packets",
                LOST,
                Unit::Things,
                &[("cause", cause.name())],
                packets as f64,
            );
        }
        if let Some(ledger) = self.ledger {
            figures.count(
                "received_packets",
                "packets that devices received",
                Unit::Things,
                &[],
                ledger.received as f64,
            );
            for (sign, packets) in [("missing", ledger.unaccounted), ("extra", -ledger.unaccounted)]
            {
                if packets > 0 {
                    let title = "packets that devices received and nothing accounts for, or that were counted and devices did not tell of";
                    figures.count(
                        "unaccounted_packets",
                        title,
                        Unit::Things,
                        &[("sign", sign)],
                        packets as f64,
                    );
                }
            }
        }
        figures.count(
            "late_packets",
            "packets of windows that had been closed",
            Unit::Things,
            &[],
            self.late as f64,
        );
        for (reason, packets) in [
            ("non-ip", counters.non_ip),
            ("truncated", counters.truncated),
            ("bad-header", counters.bad_header),
        ] {
            let title = "packets without an IP flow";
            figures.count(
                "rejected_packets",
                title,
                Unit::Things,
                &[("reason", reason)],
                packets as f64,
            );
        }
        figures.state("window_complete", "the window is complete", &[], self.complete);
        if let Some(cpu_ns) = self.cpu_ns {
            figures.count(
                "worker_cpu",
                "CPU time of workers",
                Unit::Seconds,
                &[],
                cpu_ns as f64 / 1e9,
            );
        }
        draw_alerts(&self.alerts, &mut figures);
        Drawing { described, figures: figures.figures }
    }
}

fn draw_alerts(alerts: &[Alert], figures: &mut Fields) {
    for alert in alerts {
        figures.state(
            "alert_firing",
            "a rule holds for certain",
            &[("rule", &alert.rule)],
            alert.firing,
        );
    }
}
