//! Alarm about distributed denial-of-service attacks, from the entropies of sources and
//! destinations.

pub mod judge;
pub mod talkers;

use super::entropy::Entropy;
use super::heavy;
use super::{ClosedBank, Damaged, Estimation, Measurement, ReportInput, Reports};
use crate::field::{Datum, Fields, object};
use crate::figure::{KnownFigure, Shape, Unit};
use crate::text::{IndentedLines, counted};
use anstyle::AnsiColor;
use flowgauge_core::heavy::Algorithm;
use flowgauge_core::{KeyKind, SPREADS};
use flowgauge_dataplane::Bounds;
use judge::{ShiftDetector, UsualEntropy, Verdict};
use talkers::{CountedThings, Talkers, UsualCounts};

/// Consecutive windows with too few packets after which a warning is logged.
const MAX_SMALL_WINDOWS: u32 = 10;

/// Options of the alarm, if it is on.
pub type Options = Option<judge::Options>;

/// State of the alarm in a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// Verdict on this window.
    pub verdict: Verdict,
    /// Usual entropies of sources and of destinations before this window.
    pub usual: Option<[UsualEntropy; 2]>,
    /// Minimum number of packets for a window to be judged.
    pub least: u64,
    /// Flows that have more than usual, for a window whose heavy hitters are counted.
    pub talkers: Option<Talkers>,
    /// Keys that have more distinct others than usual, for each sketch of spread.
    pub spreaders: Vec<Talkers>,
}

impl Alarm {
    /// Returns whether this window deviates enough to be an alarm.
    #[must_use]
    pub fn raised(&self) -> bool {
        matches!(self.verdict, Verdict::Raised | Verdict::Crossed)
    }

    /// Returns [`raised`](Self::raised) for a judged window; `None` for others.
    #[must_use]
    pub fn judgement(&self) -> Option<bool> {
        self.verdict.judged().then(|| self.raised())
    }

    /// Describes the flows that have more than usual; `None` if none is known.
    fn describe_talkers(&self) -> Option<String> {
        let all = self.talkers.iter().chain(&self.spreaders);
        let described: Vec<String> = all.filter_map(Talkers::describe).collect();
        (!described.is_empty()).then(|| described.join("; "))
    }
}

/// Detector that watches consecutive windows.
#[derive(Debug)]
pub(crate) struct Watch {
    judge: ShiftDetector,
    /// Usual counts of heavy hitters.
    counts: UsualCounts,
    /// Usual numbers of distinct others, for each sketch of spread.
    others: [UsualCounts; SPREADS],
    /// Consecutive windows with too few packets.
    small_windows: u32,
    /// First window of the current attack, and the number of windows with an alarm since.
    attack: Option<(u64, u64)>,
    /// Last window in which the dataplane itself reported an unusual entropy.
    crossed: Option<u64>,
}

impl Watch {
    pub(crate) fn new(options: judge::Options) -> Self {
        Watch {
            judge: ShiftDetector::new(options),
            counts: UsualCounts::new(options.alpha),
            others: std::array::from_fn(|_| UsualCounts::new(options.alpha)),
            small_windows: 0,
            attack: None,
            crossed: None,
        }
    }

    /// Judges a window, and logs the start and the end of an attack. A truncated window is not
    /// judged and does not change the averages.
    pub(crate) fn look(
        &mut self,
        window: u64,
        is_short: bool,
        packets: u64,
        reports: &Reports,
        closed: Option<&ClosedBank>,
    ) -> Option<Alarm> {
        let entropies = &reports.entropy.as_ref()?.0;
        let bits_of = |key| {
            entropies
                .iter()
                .find(|entropy| entropy.sketch.key == key)
                .map(|entropy| entropy.estimate.bits)
        };
        let (sources, destinations) = (bits_of(KeyKind::Src)?, bits_of(KeyKind::Dst)?);
        let (usual, least) = (self.judge.usual(), self.judge.options().least);
        let verdict = if is_short {
            Verdict::Short
        } else {
            self.judge.judge(packets, sources, destinations)
        };
        let talkers = reports.heavy.as_ref().zip(closed).map(|(heavy, closed)| {
            let flows = self.counts.look(verdict, &talkers::flows(closed));
            Talkers { key: heavy.key, things: CountedThings::Traffic(heavy.unit), flows }
        });
        let spreads = reports.spread.iter().flat_map(|spreads| &spreads.0);
        let spreaders = spreads.zip(&mut self.others).map(|(spread, usual)| {
            let flows = usual.look(verdict, &talkers::spreaders(spread));
            let things = CountedThings::Others(spread.settings.of);
            Talkers { key: spread.settings.by, things, flows }
        });
        let spreaders = spreaders.collect();
        let alarm = Alarm { verdict, usual, least, talkers, spreaders };
        self.warn_of_small_windows(packets, &alarm);
        let goes_on = self.attack;
        match (alarm.judgement(), &mut self.attack) {
            (Some(true), Some((_, windows))) => *windows += 1,
            (Some(true), attack) => *attack = Some((window, 1)),
            (Some(false), attack) => {
                if let Some((first, windows)) = attack.take() {
                    let windows = counted(windows, "window");
                    tracing::warn!(
                        "window {window}: entropies are as usual again, after {windows} with an alarm since window {first}"
                    );
                }
            }
            // Not judged.
            (None, _) => {}
        }
        if alarm.raised() && goes_on.is_none() {
            let entropies = describe_entropies(entropies, usual);
            let talkers =
                alarm.describe_talkers().map_or_else(String::new, |talkers| format!("; {talkers}"));
            tracing::warn!(
                "window {window}: this looks like a distributed denial-of-service attack{talkers}; {entropies}"
            );
        }
        Some(alarm)
    }

    /// Returns the usual ranges of the entropies of sources and of destinations, in bits, from
    /// `first` packets of a window on.
    pub(crate) fn bounds(&self, first: u64) -> Vec<Bounds> {
        let to_bounds = |(key, (lowest, highest))| Bounds { key, lowest, highest };
        self.judge.bounds(first).map_or_else(Vec::new, |bounds| {
            [KeyKind::Src, KeyKind::Dst].into_iter().zip(bounds).map(to_bounds).collect()
        })
    }

    /// Handles the dataplane's report that an entropy has left its bounds in the open window.
    /// Returns whether to log it: not if the window before had a report too, or if the attack is
    /// known.
    pub(crate) fn cross(&mut self, window: u64) -> bool {
        let before = self.crossed.replace(window);
        self.attack.is_none() && before.is_none_or(|before| before + 1 < window)
    }

    /// Logs an unusual entropy in the open window, with the current entropies if they are known.
    pub(crate) fn log_crossing(&self, window: u64, key: KeyKind, reports: Option<&Reports>) {
        let entropies = reports.and_then(|reports| reports.entropy.as_ref());
        let entropies = entropies.map_or_else(String::new, |reports| {
            format!(": {}", describe_entropies(&reports.0, self.judge.usual()))
        });
        let key = key.name();
        tracing::warn!(
            "open window {window} may contain a distributed denial-of-service attack: its entropy of {key} is unusual{entropies}"
        );
    }

    /// Returns the state to report in a sample that follows
    /// [`log_crossing`](Self::log_crossing).
    pub(crate) fn crossed(&self) -> Alarm {
        Alarm {
            verdict: Verdict::Crossed,
            usual: self.judge.usual(),
            least: self.judge.options().least,
            // Usual counts are those of whole windows, which a part of one cannot be compared with.
            talkers: None,
            spreaders: Vec::new(),
        }
    }

    /// Logs a warning once, when several consecutive windows had packets but too few to be judged.
    fn warn_of_small_windows(&mut self, packets: u64, alarm: &Alarm) {
        // Beyond that number the warning was already logged.
        if alarm.verdict != Verdict::TooFewPackets {
            self.small_windows =
                if self.small_windows < MAX_SMALL_WINDOWS { 0 } else { MAX_SMALL_WINDOWS };
        } else if packets > 0 && self.small_windows < MAX_SMALL_WINDOWS {
            self.small_windows += 1;
            if self.small_windows == MAX_SMALL_WINDOWS {
                let packets = counted(packets, "packet");
                tracing::warn!(
                    "the alarm judges no window of fewer than {} packets, and the last {MAX_SMALL_WINDOWS} had fewer (the last one {packets}); \
                     make windows longer (--window)",
                    alarm.least
                );
            }
        }
    }
}

/// Describes the current and the usual entropies for the log.
fn describe_entropies(entropies: &[Entropy], usual: Option<[UsualEntropy; 2]>) -> String {
    let texts = entropies.iter().map(|entropy| {
        let usual = usual.map_or(f64::NAN, |[src, dst]| {
            if entropy.sketch.key == KeyKind::Src { src.mean } else { dst.mean }
        });
        format!(
            "the entropy of {} is {:.2} bits, usually {usual:.2}",
            entropy.sketch.key.name(),
            entropy.estimate.bits
        )
    });
    texts.collect::<Vec<_>>().join(", ")
}

impl Measurement for Alarm {
    type UnionState = ();

    /// Returns `None`: a single window has no alarm, and `Watch` compares it with earlier ones.
    fn of(_: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        Ok(None)
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        let usual = |usual: UsualEntropy| {
            object([("mean", usual.mean.into()), ("deviation", usual.deviation.into())])
        };
        let usual = |[src, dst]: [UsualEntropy; 2]| {
            object([(KeyKind::Dst.name(), usual(dst)), (KeyKind::Src.name(), usual(src))])
        };
        to.field("raised", report.map(Alarm::raised));
        to.field("judged", report.map(|it| it.verdict.judged()));
        to.field("reason", report.and_then(|it| it.verdict.reason()));
        to.field("least_packets", report.map(|it| it.least));
        if let Some(both) = report.and_then(|it| it.usual) {
            to.field("usual", usual(both));
        }
        let talkers = report.and_then(|it| it.talkers.as_ref());
        if let Some(talkers) = talkers.filter(|talkers| !talkers.flows.is_empty()) {
            to.field("talkers", talkers.json());
        }
        let raised = report.and_then(Alarm::judgement);
        to.column(raised).csv(52, "alarm").lake("alarm");
        if let Some(raised) = raised {
            let title = "alarm: entropies are far off what is usual";
            to.figure("alarm", title, Unit::Things, &[], Shape::State(raised));
        }
        let spreaders = || report.iter().flat_map(|it| &it.spreaders);
        let risen: Vec<_> =
            spreaders().filter(|it| !it.flows.is_empty()).map(Talkers::json).collect();
        if !risen.is_empty() {
            to.field("spreaders", Datum::Array(risen));
        }
        // Without an alarm the rankings are empty, so that metrics drop the flows of an earlier one.
        for talkers in talkers.into_iter().chain(spreaders()) {
            match talkers.things {
                CountedThings::Traffic(by) => {
                    let labels = [("key", talkers.key.name()), ("by", by.name())];
                    let title = "flows that are larger than usual, in an alarm";
                    let unit = heavy::figure_unit(by);
                    to.ranking("alarm_flows", title, unit, &labels, talkers.items());
                }
                CountedThings::Others(of) => {
                    let labels = [("key", talkers.key.name()), ("of", of.name())];
                    let title = "keys with more distinct others than usual, in an alarm";
                    to.ranking("alarm_fan_out", title, Unit::Things, &labels, talkers.items());
                }
            }
        }
    }

    fn known(settings: &flowgauge_core::Settings, options: &Estimation) -> Vec<KnownFigure> {
        if options.alarm.is_none() {
            return Vec::new();
        }
        let mut known = vec![KnownFigure::new("alarm", Unit::Things)];
        let flowgauge_core::heavy::Settings { algorithm, key, unit, .. } = settings.heavy;
        if algorithm != Algorithm::Off {
            let flows = KnownFigure::new("alarm_flows", heavy::figure_unit(unit));
            known.push(flows.label("key", [key.name()]).label("by", [unit.name()]));
        }
        known.extend(settings.spread.iter().filter(|of_sketch| of_sketch.on).map(|of_sketch| {
            KnownFigure::new("alarm_fan_out", Unit::Things)
                .label("key", [of_sketch.by.name()])
                .label("of", [of_sketch.of.name()])
        }));
        known
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        if self.raised() {
            let alarm = match self.describe_talkers() {
                Some(talkers) => format!("ALARM: possible flood; {talkers}"),
                None => "ALARM: possible flood; the entropies of sources and destinations are far off what is usual".to_owned(),
            };
            below.styled(AnsiColor::Red.on_default().bold(), &[alarm]);
        }
    }
}
