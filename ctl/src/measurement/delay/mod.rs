//! How long answers take.

pub mod estimate;
mod sample;

pub use sample::Sample;
pub mod tune;

use super::{Cell, Damaged, Measurement, Place, Reading};
use crate::text::{Below, counted, grouped, optional};
use estimate::{Distribution, Fridge, PERCENTILES, Percentile};
use flowgauge_core::delay::histogram::Histogram;
use flowgauge_core::delay::{Algorithm, Counts, Directions, KINDS, Kind, Label, Settings};
use flowgauge_dataplane::{Clock, Direction};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::sync::Arc;
use tune::{Load, Suggestion};

/// What to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Slots and shares that fit the traffic.
    pub tune: bool,
    /// Names of groups of prefixes, of those from 1 on.
    pub groups: Vec<Arc<str>>,
}

impl Options {
    /// The name of a group, if groups are kept apart.
    #[must_use]
    pub fn group(&self, settings: &Settings, group: u8) -> Option<Arc<str>> {
        let index = usize::from(group).checked_sub(1);
        let name = index.map_or_else(|| Some(Arc::from(OTHERS)), |index| self.groups.get(index).cloned());
        name.filter(|_| settings.groups_log2 > 0)
    }
}

/// The group of addresses that are in no prefix.
pub const OTHERS: &str = "others";

/// Delays of all kinds that are measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays(pub Vec<Delay>);

/// Delays of one kind, of requests of one direction, and to one group of prefixes or to all.
#[derive(Clone, Debug, PartialEq)]
pub struct Delay {
    /// Of which kind.
    pub kind: Kind,
    /// Where requests go; nothing if directions are not kept apart.
    pub direction: Option<Direction>,
    /// The group that answers; nothing of all of them together.
    pub group: Option<Arc<str>>,
    /// How they were measured; if shares follow the traffic, with that of this kind.
    pub settings: Settings,
    /// What packets were timed by.
    pub clock: Clock,
    /// Whether these are the packets of one of several places, of which another one may see the answers.
    pub is_part: bool,
    /// Requests and what became of them.
    pub counts: Counts,
    /// Slots and share that fit the traffic, if they are asked for and known.
    pub suggested: Option<Suggestion>,
    /// Nothing if no answer came.
    pub distribution: Option<Distribution>,
}

impl Delays {
    /// Those of all groups together.
    pub fn together(&self) -> impl Iterator<Item = &Delay> {
        self.0.iter().filter(|delay| delay.group.is_none())
    }
}

impl Delay {
    /// Whether delays that were lost are made up for.
    #[must_use]
    pub fn is_corrected(&self) -> bool {
        matches!(self.settings.algorithm, Algorithm::Fridge | Algorithm::MultiFridge)
    }

    /// Requests: those that came, or where only those are known that were put in a table, as many as these stand for.
    #[must_use]
    pub fn requests(&self) -> f64 {
        match self.kind {
            Kind::TcpTimestamps | Kind::QuicSpin => self.counts.requests as f64 * f64::from(1_u32 << self.settings.admit_log2),
            _ => self.counts.requests as f64,
        }
    }

    /// Delays that were seen.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.distribution.as_ref().map_or(0, |it| it.samples)
    }

    /// Requests that were never answered, as far as that is known. Of data an acknowledgement answers the last segment that it covers, and no other
    /// one.
    #[must_use]
    pub fn unanswered(&self) -> Option<f64> {
        let answered = self.distribution.as_ref().map_or(0.0, |it| it.answered.value);
        (self.is_corrected() && !self.is_part).then(|| (self.requests() - answered).max(0.0))
    }

    /// The shortest time that can be told, in nanoseconds.
    #[must_use]
    pub fn resolution_ns(&self) -> u64 {
        self.clock.resolution_ns.max(1 << self.kind.tick_bits())
    }

    fn percentiles(&self) -> Option<[Percentile; PERCENTILES.len()]> {
        let distribution = self.distribution.as_ref()?;
        let seen = || distribution.raw.map(|value| Percentile { value, low: value, high: Some(value) });
        Some(if self.is_corrected() { distribution.corrected } else { seen() })
    }
}

/// Of one group, or of all.
fn of(reading: &Reading<'_>, kind: Kind, leaves: bool, group: Option<u8>) -> Delay {
    let (settings, bank) = (reading.settings.delay, &reading.bank.delay);
    let settings = Settings { admit_log2: bank.admit_log2(&settings, kind), ..settings };
    let of_group = |group: u8| Label { leaves, group };
    let groups = || group.map_or(0..settings.groups() as u8, |group| group..group + 1).map(of_group);
    let fridges = 0..settings.fridges();
    let each = |fridge| groups().filter_map(move |label| bank.histogram(&settings, kind, label, fridge));
    // Of one group there is nothing to add up.
    let sums: Vec<Histogram> = fridges.clone().filter(|_| groups().len() > 1).map(|fridge| Histogram::sum(each(fridge))).collect();
    let fridge = |fridge| {
        let (share, bits) = settings.admitted(fridge);
        let histogram = sums.get(fridge).or_else(|| each(fridge).next())?;
        Some(Fridge { histogram, admitted: f64::from(share) / 2_f64.powi(bits as i32) })
    };
    let fridges: Vec<Fridge<'_>> = fridges.filter_map(fridge).collect();
    let counts = groups().fold(Counts::default(), |sum, label| sum.plus(&bank.counts(&settings, kind, label)));
    let direction = if leaves { Direction::Egress } else { Direction::Ingress };
    Delay {
        kind,
        direction: (settings.sides() > 1 && kind != Kind::TcpDuration).then_some(direction),
        group: group.and_then(|group| reading.options.delay.group(&settings, group)),
        settings,
        clock: reading.clock,
        is_part: reading.is_part,
        counts,
        suggested: None,
        distribution: estimate::estimate(&fridges, f64::from(1_u32 << kind.tick_bits())),
    }
}

macro_rules! columns {
    ($($name:expr)*) => {
        [$([
            concat!("delay_", $name, "_p50"),
            concat!("delay_", $name, "_p50_low"),
            concat!("delay_", $name, "_p50_high"),
            concat!("delay_", $name, "_p95"),
            concat!("delay_", $name, "_p99"),
        ],)*]
    };
}

/// Names of columns, kind by kind: of requests of all directions, of those that leave, of those that arrive.
const COLUMNS: [[[&str; 5]; 3]; KINDS] = [
    columns!("tcp-handshake" "tcp-handshake_egress" "tcp-handshake_ingress"),
    columns!("tcp-data" "tcp-data_egress" "tcp-data_ingress"),
    columns!("tcp-duration" "tcp-duration_egress" "tcp-duration_ingress"),
    columns!("tcp-timestamps" "tcp-timestamps_egress" "tcp-timestamps_ingress"),
    columns!("dns" "dns_egress" "dns_ingress"),
    columns!("icmp" "icmp_egress" "icmp_ingress"),
    columns!("quic-spin" "quic-spin_egress" "quic-spin_ingress"),
];

impl Measurement for Delays {
    fn of(reading: &Reading<'_>) -> Result<Option<Self>, Damaged> {
        let settings = &reading.settings.delay;
        let sides = |kind| -> &[bool] {
            match (settings.directions, kind) {
                (Directions::Together, _) | (_, Kind::TcpDuration) => &[false],
                (Directions::Apart | Directions::Local, _) => &[true, false],
            }
        };
        let sides = || settings.kinds.each().flat_map(|kind| sides(kind).iter().map(move |leaves| (kind, *leaves)));
        let groups = if settings.groups_log2 > 0 { settings.groups() as u8 } else { 0 };
        let of_groups = |(kind, leaves)| (0..groups).map(move |group| of(reading, kind, leaves, Some(group)));
        let is_seen = |delay: &Delay| delay.counts.requests > 0 || delay.counts.backward > 0 || delay.distribution.is_some();
        let together = sides().map(|(kind, leaves)| of(reading, kind, leaves, None));
        let mut delays = Delays(together.chain(sides().flat_map(of_groups).filter(is_seen)).collect());
        if reading.options.delay.tune && settings.algorithm == Algorithm::Fridge && !reading.is_part {
            for kind in settings.kinds.each() {
                let suggested = Load::of(&delays, kind, reading.span_ns).and_then(|load| load.suggested(settings.kinds.number()));
                delays
                    .0
                    .iter_mut()
                    .filter(|delay| delay.kind == kind && delay.group.is_none())
                    .for_each(|delay| delay.suggested = suggested);
            }
        }
        Ok(settings.kinds.any().then_some(delays))
    }

    fn cells(report: Option<&Self>) -> Vec<Cell> {
        let cells = |delay: &Delay| {
            let [p50, _, p95, p99, _] = delay.percentiles().map_or([None; 5], |all| all.map(Some));
            let value = |it: Option<Percentile>| it.map(|it| it.value.to_string()).unwrap_or_default();
            let bound = |it: Option<f64>| it.map(|it| it.to_string()).unwrap_or_default();
            let values = [value(p50), bound(p50.map(|it| it.low)), bound(p50.and_then(|it| it.high)), value(p95), value(p99)];
            let [together, egress, ingress] = COLUMNS.get(delay.kind as usize).copied().unwrap_or_default();
            let names = match delay.direction {
                None => together,
                Some(Direction::Egress) => egress,
                Some(Direction::Ingress) => ingress,
            };
            names.into_iter().zip(values).map(|(name, value)| (Place::Last, name, value))
        };
        // Only of kinds that are measured: all of them would be many.
        report.into_iter().flat_map(Delays::together).flat_map(cells).collect()
    }

    fn lines(&self, below: &mut Below<'_>) {
        for delay in &self.0 {
            below.line(&phrases(delay));
        }
    }
}

/// What to do about a table whose requests are overwritten too soon.
const CROWDED: &str = "long delays are uncertain: admit fewer requests (--delay-admit) or take more slots (--delay-slots)";

/// What is said of a kind, in one line.
fn phrases(delay: &Delay) -> Vec<String> {
    let direction = match delay.direction {
        Some(Direction::Egress) => " of requests that leave",
        Some(Direction::Ingress) => " of requests that arrive",
        None => "",
    };
    let group = delay.group.as_ref().map(|group| format!(" to {group}")).unwrap_or_default();
    let name = format!("{}{group}{direction}", delay.kind.name());
    let requests = counted(delay.requests().round() as u64, "request");
    let mut phrases = match delay.percentiles() {
        None => vec![format!("{name}: no answers"), requests],
        Some([p50, _, p95, p99, _]) => vec![
            format!("{name}: half within {}", bounded(&p50)),
            format!("95 % within {}", bounded(&p95)),
            format!("99 % within {}", bounded(&p99)),
            format!("{} to {requests}", counted(delay.answers(), "answer")),
        ],
    };
    if let Some(unanswered) = delay.unanswered().filter(|_| delay.requests() > 0.0) {
        // One acknowledgement is for all data before it.
        let what = if delay.kind == Kind::TcpData { "without an answer of their own" } else { "never answered" };
        phrases.push(format!("{:.0} % {what}", unanswered / delay.requests() * 100.0));
    }
    let counts = &delay.counts;
    phrases.extend((counts.refused > 0).then(|| format!("{} found no free slot", grouped(counts.refused))));
    phrases.extend((counts.backward > 0).then(|| format!("{} came before their requests", counted(counts.backward, "answer"))));
    phrases.extend((counts.unsampled > 0).then(|| format!("{} missing in --delay-samples", counted(counts.unsampled, "delay"))));
    let is_crowded = delay.is_corrected() && delay.distribution.as_ref().is_some_and(|it| it.crowded);
    phrases.extend(is_crowded.then(|| CROWDED.to_owned()));
    let Settings { slots_log2, admit_log2, .. } = delay.settings;
    let other = delay.suggested.filter(|suggested| (suggested.slots_log2, suggested.admit_log2) != (slots_log2, admit_log2));
    phrases.extend(
        other.map(|suggested| format!("--delay-slots {} --delay-admit {} would fit", suggested.slots(), suggested.share())),
    );
    phrases
}

/// A percentile with its bounds, where they differ.
fn bounded(percentile: &Percentile) -> String {
    let value = time(percentile.value);
    match percentile.high {
        Some(high) if time(percentile.low) == time(high) => value,
        Some(high) => format!("{value} ({} … {})", time(percentile.low), time(high)),
        None => format!("{value} ({} or more)", time(percentile.low)),
    }
}

/// Nanoseconds with three digits and a unit.
fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        it if it < 999.5 => (it, "ns"),
        it if it < 999.5e3 => (it / 1e3, "µs"),
        it if it < 999.5e6 => (it / 1e6, "ms"),
        it => (it / 1e9, "s"),
    };
    let decimals = match value {
        _ if unit == "ns" => 0,
        it if it < 9.995 => 2,
        it if it < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

impl Serialize for Percentile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("value", &self.value)?;
        line.serialize_entry("low", &self.low)?;
        line.serialize_entry("high", &self.high)?;
        line.end()
    }
}

/// Values under the names of percentiles.
struct Named<'a, T>(&'a [T; PERCENTILES.len()]);

impl<T: Serialize> Serialize for Named<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(PERCENTILES.iter().zip(self.0).map(|((_, name), value)| (*name, value)))
    }
}

impl Serialize for Delay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        let Delay { kind, settings, counts, .. } = self;
        line.serialize_entry("kind", kind.name())?;
        optional(&mut line, "direction", self.direction.map(Direction::name))?;
        optional(&mut line, "group", self.group.as_deref())?;
        line.serialize_entry("algorithm", settings.algorithm.name())?;
        line.serialize_entry("slots", &(1_u32 << settings.slots_log2))?;
        line.serialize_entry("admit", &2_f64.powi(-i32::from(settings.admit_log2)))?;
        optional(&mut line, "auto", settings.follows.then_some(true))?;
        optional(&mut line, "suggested", self.suggested)?;
        line.serialize_entry("requests", &(self.requests().round() as u64))?;
        line.serialize_entry("admitted", &counts.admitted)?;
        line.serialize_entry("answers", &self.answers())?;
        line.serialize_entry("unanswered", &self.unanswered().map(|unanswered| unanswered.round() as u64))?;
        optional(&mut line, "refused", (counts.refused > 0).then_some(counts.refused))?;
        optional(&mut line, "backward", (counts.backward > 0).then_some(counts.backward))?;
        optional(&mut line, "unsampled", (counts.unsampled > 0).then_some(counts.unsampled))?;
        line.serialize_entry("clock", self.clock.name)?;
        line.serialize_entry("resolution_ns", &self.resolution_ns())?;
        if let Some(distribution) = &self.distribution {
            optional(&mut line, "underweighted", (distribution.beyond > 0).then_some(distribution.beyond))?;
            optional(&mut line, "crowded", (self.is_corrected() && distribution.crowded).then_some(true))?;
            line.serialize_entry("raw", &Named(&distribution.raw))?;
            if self.is_corrected() {
                line.serialize_entry("answered", &distribution.answered)?;
                line.serialize_entry("corrected", &Named(&distribution.corrected))?;
            }
        }
        line.end()
    }
}

impl Serialize for Delays {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}
