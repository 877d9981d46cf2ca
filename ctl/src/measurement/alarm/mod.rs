//! Denials of service by many, in the entropies of sources and destinations.

pub mod judge;

use super::entropy::Entropy;
use super::{Counted, Damaged, Measurement, Rank, Reading, Reports};
use crate::field::{Fields, object};
use crate::text::{Below, counted};
use anstyle::AnsiColor;
use flowgauge_core::KeyKind;
use flowgauge_dataplane::Bounds;
use judge::{Judge, Usual, Verdict};

/// Windows in a row that are too small for the alarm, after which the operator is told.
const SMALL_WINDOWS: u32 = 10;
/// Flows named by an alarm.
const TALKERS: usize = 5;

/// How the entropies of sources and destinations are watched, if they are.
pub type Options = Option<judge::Options>;

/// What the entropies of sources and destinations say about an attack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alarm {
    /// Whether this window is far off what is usual, and whether it was judged at all.
    pub verdict: Verdict,
    /// The entropies of sources and of destinations before this window.
    pub usual: Option<[Usual; 2]>,
    /// Packets that a window must have to be judged.
    pub least: u64,
}

impl Alarm {
    /// Whether this window is far off what is usual.
    #[must_use]
    pub fn raised(&self) -> bool {
        matches!(self.verdict, Verdict::Raised | Verdict::Crossed)
    }

    /// As [`raised`](Self::raised), of windows that were judged.
    #[must_use]
    pub fn told(&self) -> Option<bool> {
        self.verdict.judged().then(|| self.raised())
    }
}

/// Looks at window after window.
#[derive(Debug)]
pub(crate) struct Watch {
    judge: Judge,
    /// Windows in a row with too few packets.
    small_windows: u32,
    /// The window that an attack began with which goes on, and how many windows raised the alarm
    /// since.
    attack: Option<(u64, u64)>,
    /// The last window in which a dataplane told by itself that an entropy is unusual.
    crossed: Option<u64>,
}

impl Watch {
    pub(crate) fn new(options: judge::Options) -> Self {
        Watch { judge: Judge::new(options), small_windows: 0, attack: None, crossed: None }
    }

    /// Looks for an attack in a window, and tells the operator when one begins and when it is over.
    /// A window that is cut short says nothing of others, nor they of it.
    pub(crate) fn look(
        &mut self,
        window: u64,
        is_short: bool,
        packets: u64,
        reports: &Reports,
    ) -> Option<Alarm> {
        let entropies = &reports.entropy.as_ref()?.0;
        let of = |key| {
            entropies
                .iter()
                .find(|entropy| entropy.sketch.key == key)
                .map(|entropy| entropy.estimate.bits)
        };
        let (sources, destinations) = (of(KeyKind::Src)?, of(KeyKind::Dst)?);
        let (usual, least) = (self.judge.usual(), self.judge.options().least);
        let verdict = if is_short {
            Verdict::Short
        } else {
            self.judge.judge(packets, sources, destinations)
        };
        let alarm = Alarm { verdict, usual, least };
        self.warn_of_small_windows(packets, &alarm);
        let goes_on = self.attack;
        match (alarm.told(), &mut self.attack) {
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
            let entropies = told(entropies, usual);
            let talkers: Vec<String> =
                reports.heavy.iter().flat_map(|heavy| heavy.talkers(TALKERS)).collect();
            let talkers = if talkers.is_empty() {
                String::new()
            } else {
                format!("; top talkers: {}", talkers.join(", "))
            };
            tracing::warn!(
                "window {window}: this looks like a denial of service by many: {entropies}{talkers}"
            );
        }
        Some(alarm)
    }

    /// Between which bits the entropies of sources and of destinations are usual, from so many
    /// packets of a window on.
    pub(crate) fn bounds(&self, first: u64) -> Vec<Bounds> {
        let of = |(key, (lowest, highest))| Bounds { key, lowest, highest };
        self.judge.bounds(first).map_or_else(Vec::new, |bounds| {
            [KeyKind::Src, KeyKind::Dst].into_iter().zip(bounds).map(of).collect()
        })
    }

    /// A dataplane says that an entropy has left its bounds in the open window. Says whether to
    /// tell the operator: not if that was so in the window before, or the attack is known.
    pub(crate) fn cross(&mut self, window: u64) -> bool {
        let before = self.crossed.replace(window);
        self.attack.is_none() && before.is_none_or(|before| before + 1 < window)
    }

    /// Tells the operator what is unusual in a window that goes on, as far as it is known.
    pub(crate) fn tell_crossing(&self, window: u64, key: KeyKind, reports: Option<&Reports>) {
        let entropies = reports.and_then(|reports| reports.entropy.as_ref());
        let entropies = entropies.map_or_else(String::new, |reports| {
            format!(": {}", told(&reports.0, self.judge.usual()))
        });
        let key = key.name();
        tracing::warn!(
            "window {window}, which goes on, may have a denial of service by many, for its entropy of {key} is unusual{entropies}"
        );
    }

    /// What a sample of the open window says after that.
    pub(crate) fn crossed(&self) -> Alarm {
        Alarm {
            verdict: Verdict::Crossed,
            usual: self.judge.usual(),
            least: self.judge.options().least,
        }
    }

    /// Once, when several windows in a row had packets, and too few to judge them.
    fn warn_of_small_windows(&mut self, packets: u64, alarm: &Alarm) {
        // Beyond that number the operator knows.
        if alarm.verdict != Verdict::TooFewPackets {
            self.small_windows = if self.small_windows < SMALL_WINDOWS { 0 } else { SMALL_WINDOWS };
        } else if packets > 0 && self.small_windows < SMALL_WINDOWS {
            self.small_windows += 1;
            if self.small_windows == SMALL_WINDOWS {
                let packets = counted(packets, "packet");
                tracing::warn!(
                    "the alarm judges no window of fewer than {} packets, and the last {SMALL_WINDOWS} had fewer (the last one {packets}); \
                     make windows longer (--window)",
                    alarm.least
                );
            }
        }
    }
}

/// Entropies of sources and destinations beside what they usually are.
fn told(entropies: &[Entropy], usual: Option<[Usual; 2]>) -> String {
    let told = entropies.iter().map(|entropy| {
        let usual = usual.map_or(f64::NAN, |[src, dst]| {
            if entropy.sketch.key == KeyKind::Src { src.mean } else { dst.mean }
        });
        format!(
            "the entropy of {} is {:.2} bits, usually {usual:.2}",
            entropy.sketch.key.name(),
            entropy.estimate.bits
        )
    });
    told.collect::<Vec<_>>().join(", ")
}

impl Measurement for Alarm {
    type Beside = ();

    /// A window alone says nothing: `Watch` compares it with those before.
    fn of(_: &Reading<'_>) -> Result<Option<Self>, Damaged> {
        Ok(None)
    }

    fn fields(report: Option<&Self>, _: Option<&Counted>, to: &mut Fields) {
        let usual = |usual: Usual| {
            object([("mean", usual.mean.into()), ("deviation", usual.deviation.into())])
        };
        let usual = |[src, dst]: [Usual; 2]| {
            object([(KeyKind::Dst.name(), usual(dst)), (KeyKind::Src.name(), usual(src))])
        };
        to.field("raised", report.map(Alarm::raised));
        to.field("judged", report.map(|it| it.verdict.judged()));
        to.field("reason", report.and_then(|it| it.verdict.reason()));
        to.field("least_packets", report.map(|it| it.least));
        if let Some(both) = report.and_then(|it| it.usual) {
            to.field("usual", usual(both));
        }
        let raised = report.and_then(Alarm::told);
        to.column(raised).csv(52, "alarm").lake("alarm");
        if let Some(raised) = raised {
            to.state("alarm", "alarm: entropies are far off what is usual", &[], raised);
        }
    }

    fn columns() -> &'static [&'static str] {
        &["alarm"]
    }

    fn rank(&self) -> Rank {
        Rank::Alarm
    }

    fn lines(&self, below: &mut Below<'_>) {
        if self.raised() {
            let alarm =
                "ALARM: the entropies of sources and destinations are far off what is usual";
            below.styled(AnsiColor::Red.on_default().bold(), &[alarm.to_owned()]);
        }
    }
}
