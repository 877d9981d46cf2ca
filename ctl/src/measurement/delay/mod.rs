//! Reports of delays: how long answers take.

pub mod estimate;
mod sample;
mod truth;
pub mod tune;

pub use sample::{DelaySampleRecord, EndIdentifiers};
pub use truth::DelayTruth;

use super::laws::{self, RowTotals, require};
use super::{ClosedBank, Damaged, Estimation, ExactValue, Measurement, Number, ReportInput};
use crate::field::{Datum, Fields, object};
use crate::figure::{self, KnownFigure, Range, Shape, Unit};
use crate::row::{Cells, CounterColumn, Inner, Row, RowDefect, TableBuilder, Value, int};
use crate::text::{self, IndentedLines, counted, grouped};
use estimate::{DelayDistribution, Fridge, Miscount, PERCENTILES, Percentile};
use flowgauge_core::WindowTotals;
use flowgauge_core::delay::histogram::{self, Bucket, Histogram};
use flowgauge_core::delay::weights::{self, Weight};
use flowgauge_core::delay::{
    Algorithm, Counts, DelayKind, Directions, Kinds, Label, MAX_ADMIT_BITS, Settings,
};
use flowgauge_dataplane::{Direction, TimestampClock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tune::{RequestLoad, Suggestion};

/// Options of delay reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to suggest slots and shares that fit the traffic.
    pub tune: bool,
    /// Names of groups of prefixes, from group 1 on.
    pub groups: Vec<Arc<str>>,
}

/// Returns the name of a group among those from group 1 on; `None` if there are no groups.
fn group_name(groups: &[Arc<str>], settings: &Settings, group: u8) -> Option<Arc<str>> {
    let index = usize::from(group).checked_sub(1);
    let name = index.map_or_else(|| Some(Arc::from(OTHERS)), |index| groups.get(index).cloned());
    name.filter(|_| settings.groups_log2 > 0)
}

/// State of a union of lake rows that is not in the bank.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayUnionState {
    /// Names of groups, as in [`Options`].
    groups: Vec<Arc<str>>,
    /// Clock of the rows that have delays, with the coarsest of their resolutions.
    clock: Option<TimestampClock>,
    /// Number of all requests.
    requests: u64,
}

/// Name of the group of addresses that are in no prefix.
pub const OTHERS: &str = "others";

/// Report of delays of all measured kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays(pub Vec<Delay>);

/// Report of delays of one kind, for requests of one direction to one group of prefixes or to all.
#[derive(Clone, Debug, PartialEq)]
pub struct Delay {
    /// Kind of the delays.
    pub kind: DelayKind,
    /// Direction of requests; `None` if directions are not distinguished.
    pub direction: Option<Direction>,
    /// Group that answers; `None` for all groups.
    pub group: Option<Arc<str>>,
    /// Number of the group.
    pub number: Option<u8>,
    /// Settings of the measurement, with the share of this kind if shares follow the traffic.
    pub settings: Settings,
    /// Clock that timestamped the packets.
    pub clock: TimestampClock,
    /// Whether the packets are those of one of several sources, so that another one may see the
    /// answers.
    pub is_part: bool,
    /// Whether data was in super-packets: a delay is that of a super-packet's last segment.
    pub is_merged: bool,
    /// Requests and their outcomes.
    pub counts: Counts,
    /// Slots and share that fit the traffic, if requested and known.
    pub suggested: Option<Suggestion>,
    /// Distribution of the delays; `None` if no answer was seen.
    pub distribution: Option<DelayDistribution>,
    /// Whether counts of a bucket have reached the largest number, so that further delays are
    /// missing.
    pub is_saturated: bool,
    /// Exact requests, answers and percentiles.
    pub truth: ExactValue<DelayTruth>,
}

impl Delays {
    /// Iterates over the delays to all groups, one for each kind and direction.
    pub fn together(&self) -> impl Iterator<Item = &Delay> {
        self.0.iter().filter(|delay| delay.group.is_none())
    }
}

impl Delay {
    /// Returns whether the algorithm corrects for delays that were not seen.
    #[must_use]
    pub fn is_corrected(&self) -> bool {
        matches!(self.settings.algorithm, Algorithm::Fridge | Algorithm::MultiFridge)
    }

    /// Returns the number of requests. For TCP timestamps and the spin bit, only requests put in a
    /// table are counted, so the number is an estimate from their share.
    #[must_use]
    pub fn requests(&self) -> f64 {
        match self.kind {
            DelayKind::TcpTimestamps | DelayKind::QuicSpin => {
                self.counts.requests as f64 * f64::from(1_u32 << self.settings.admit_log2)
            }
            _ => self.counts.requests as f64,
        }
    }

    /// Returns the number of delays seen.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.distribution.as_ref().map_or(0, |it| it.samples)
    }

    /// Estimates the number of requests that were never answered; `None` if delays are not
    /// corrected or another source may see the answers. An acknowledgement of data answers only the
    /// last segment that it covers.
    #[must_use]
    pub fn unanswered(&self) -> Option<f64> {
        let answered = self.distribution.as_ref().map_or(0.0, |it| it.answered.value);
        (self.is_corrected() && !self.is_part).then(|| (self.requests() - answered).max(0.0))
    }

    /// Returns the resolution, in nanoseconds: a tick, or a step of the clock if that is longer.
    #[must_use]
    pub fn resolution_ns(&self) -> u64 {
        self.clock.resolution_ns.max(1 << self.kind.tick_bits())
    }

    /// Returns whether a delay is longer than the time by which timestamps may be late. Shorter ones
    /// are not given, but for their upper bound.
    #[must_use]
    pub fn is_resolved(&self, delay_ns: f64) -> bool {
        self.clock.gap_ns == 0 || delay_ns > self.clock.gap_ns as f64
    }

    /// Returns a percentile's value in nanoseconds, if it is [resolved](Self::is_resolved).
    fn resolved(&self, delay_ns: f64) -> Option<f64> {
        self.is_resolved(delay_ns).then_some(delay_ns)
    }

    /// Returns whether any percentile is not [resolved](Self::is_resolved).
    fn is_unresolved(&self) -> bool {
        self.percentiles().into_iter().flatten().any(|it| !self.is_resolved(it.value))
    }

    /// Returns the exact percentiles in nanoseconds, where they are known.
    fn truths(&self) -> [Option<u64>; PERCENTILES.len()] {
        let known = self.truth.known().and_then(|truth| truth.percentiles);
        known.map_or([None; PERCENTILES.len()], |all| all.map(Some))
    }

    fn percentiles(&self) -> Option<[Percentile; PERCENTILES.len()]> {
        let distribution = self.distribution.as_ref()?;
        Some(if self.is_corrected() { distribution.corrected } else { distribution.seen() })
    }
}

/// Formats a share in percent, with up to four decimals and no trailing zeros.
fn percent(share: f64) -> String {
    ((share * 1e6).round() / 1e4).to_string()
}

/// Returns the distribution of delays over all groups and fridges, in seconds.
fn seen(delay: &Delay, settings: &Settings, counted: &ClosedBank) -> figure::Distribution {
    let tick = 2_f64.powi(delay.kind.tick_bits() as i32) / 1e9;
    let mut samples = vec![0; histogram::BUCKETS];
    let labels = (0..settings.labels()).map(|label| settings.labelled(label));
    let is_theirs = |label: &Label| match delay.direction {
        None => true,
        Some(direction) => label.leaves == (direction == Direction::Egress),
    };
    for label in labels.filter(is_theirs) {
        for fridge in 0..settings.fridges() {
            let histogram = counted.bank.delay.histogram(settings, delay.kind, label, fridge);
            let buckets = histogram.into_iter().flat_map(Histogram::buckets);
            samples
                .iter_mut()
                .zip(buckets)
                .for_each(|(samples, bucket)| *samples += u64::from(bucket.samples));
        }
    }
    let (mut doublings, mut sum, mut narrow) = ([0.0; u32::BITS as usize], 0.0, Vec::new());
    for (index, samples) in samples.into_iter().enumerate().filter(|(_, samples)| *samples > 0) {
        let (low, high, count) =
            (histogram::least(index), histogram::least(index + 1), samples as f64);
        if let Some(doubling) = doublings.get_mut(low.max(1).ilog2() as usize) {
            *doubling += count;
        }
        sum += count * f64::midpoint(low.into(), high.into()) * tick;
        // A difference of times in whole ticks is off by up to a tick in either direction.
        narrow.push(Range {
            low: f64::from(low.saturating_sub(1)) * tick,
            high: f64::from(high) * tick,
            count,
        });
    }
    let bound = |power: u32| 2_f64.powi(power as i32) * tick;
    let ranges = doublings.into_iter().zip(0..).map(|(count, power)| Range {
        low: bound(power),
        high: bound(power + 1),
        count,
    });
    // Middle of the range that is shorter than a tick.
    figure::Distribution { ranges: ranges.collect(), sum, narrow, zero_threshold: tick / 2.0 }
}

/// Returns the direction of a kind's requests; `None` if directions are not distinguished.
fn direction(settings: &Settings, kind: DelayKind, leaves: bool) -> Option<Direction> {
    let direction = if leaves { Direction::Egress } else { Direction::Ingress };
    (settings.sides() > 1 && kind != DelayKind::TcpDuration).then_some(direction)
}

/// Builds the report of one group, or of all groups if `group` is `None`.
fn build(reading: &ReportInput<'_>, kind: DelayKind, leaves: bool, group: Option<u8>) -> Delay {
    let (settings, bank) = (reading.settings.delay, &reading.bank.delay);
    let settings = Settings { admit_log2: bank.admit_log2(&settings, kind), ..settings };
    let of_group = |group: u8| Label { leaves, group };
    let groups =
        || group.map_or(0..settings.groups() as u8, |group| group..group + 1).map(of_group);
    let fridges = 0..settings.fridges();
    let each =
        |fridge| groups().filter_map(move |label| bank.histogram(&settings, kind, label, fridge));
    // A single group needs no sum.
    let sums: Vec<Histogram> = fridges
        .clone()
        .filter(|_| groups().len() > 1)
        .map(|fridge| Histogram::sum(each(fridge)))
        .collect();
    let fridge = |fridge| {
        let (share, bits) = settings.admitted(fridge);
        let histogram = sums.get(fridge).or_else(|| each(fridge).next())?;
        Some(Fridge { histogram, admitted: f64::from(share) / 2_f64.powi(bits as i32) })
    };
    let fridges: Vec<Fridge<'_>> = fridges.filter_map(fridge).collect();
    let counts = groups()
        .fold(Counts::default(), |sum, label| sum.plus(&bank.counts(&settings, kind, label)));
    let of_kind = (0..settings.labels()).fold(Counts::default(), |sum, label| {
        sum.plus(&bank.counts(&settings, kind, settings.labelled(label)))
    });
    let is_saturated = fridges.iter().flat_map(|it| it.histogram.buckets()).any(|bucket| {
        bucket.samples == u32::MAX || [bucket.weight, bucket.squares].contains(&u64::MAX)
    });
    let union = reading.union_states.map(|union_states| &union_states.delay);
    let clock = union.and_then(|union| union.clock).unwrap_or(reading.clock);
    let names = union.map_or(&reading.options.delay.groups, |union| &union.groups);
    Delay {
        kind,
        direction: direction(&settings, kind, leaves),
        group: group.and_then(|group| group_name(names, &settings, group)),
        number: group,
        settings,
        clock,
        is_part: reading.is_part,
        is_merged: kind == DelayKind::TcpData && reading.bank.counters.merged > 0,
        counts,
        suggested: None,
        distribution: estimate::estimate(
            &fridges,
            Miscount::of(&settings, kind, &of_kind),
            f64::from(1_u32 << kind.tick_bits()),
            clock.resolution_ns as f64,
            clock.gap_ns as f64,
        ),
        is_saturated,
        truth: reading.exact(|snapshot| snapshot.delays.as_deref()).map(|exact| {
            DelayTruth::of(groups().filter_map(|label| exact.of(&settings, kind, label)))
        }),
    }
}

/// Row of the lake's table of delays.
struct LabelRow<'a> {
    kind: DelayKind,
    label: Label,
    /// Report of the row's delays; `None` if nothing was counted.
    report: Option<&'a Delay>,
}

impl LabelRow<'_> {
    fn direction(&self) -> String {
        let direction = self.report.and_then(|report| report.direction);
        direction.map_or_else(String::new, |direction| direction.name().to_owned())
    }

    fn group(&self) -> String {
        self.report.and_then(|report| report.group.as_deref()).unwrap_or_default().to_owned()
    }
}

impl Delays {
    fn of(&self, kind: DelayKind, settings: &Settings, label: Label) -> Option<&Delay> {
        let leaves = |delay: &Delay| {
            delay.direction.is_none_or(|direction| (direction == Direction::Egress) == label.leaves)
        };
        // Groups that counted nothing have no report, so a group is found by its number and not by
        // its position.
        self.0.iter().find(|delay| {
            delay.kind == kind
                && leaves(delay)
                && (settings.groups_log2 == 0 || delay.number == Some(label.group))
        })
    }
}

/// Counts of a label in a lake's table. Earlier versions did not have the last two.
const COUNTS: [CounterColumn<Counts>; 7] = [
    ("requests", |it| &mut it.requests),
    ("admitted", |it| &mut it.admitted),
    ("refused", |it| &mut it.refused),
    ("backward", |it| &mut it.backward),
    ("unsampled", |it| &mut it.unsampled),
    ("inserted", |it| &mut it.inserted),
    ("miscounted", |it| &mut it.miscounted),
];
/// Number of counts that every row has.
const ALWAYS: usize = 5;

/// Adds the columns of the kind and label of each item.
fn labels<'a, T>(items: &'a [T], row: impl Fn(&T) -> &LabelRow<'_>) -> TableBuilder<'a, T> {
    TableBuilder::new(items)
        .add("kind", Cells::Text, |it| row(it).kind.name().to_owned())
        .add("direction", Cells::Text, |it| row(it).direction())
        .add("group", Cells::Text, |it| row(it).group())
        .add("leaves", Cells::Int, |it| row(it).label.leaves.into())
        .add("group_number", Cells::Int, |it| row(it).label.group.into())
}

fn counts(rows: &[LabelRow<'_>], counted: &ClosedBank) -> Value {
    let (settings, bank) = (&counted.settings.delay, &counted.bank.delay);
    let percentile = |row: &LabelRow<'_>, nth: usize| {
        let known = |report: &Delay| report.resolved(report.percentiles()?.get(nth)?.value);
        row.report.and_then(known).unwrap_or(f64::NAN)
    };
    let table = COUNTS.iter().fold(labels(rows, |row| row), |table, (name, count)| {
        table.add(name, Cells::Int, |row| {
            int(*count(&mut bank.counts(settings, row.kind, row.label)))
        })
    });
    table
        .add("admit_log2", Cells::Int, |row| {
            bank.counted_admit_log2(row.kind).map_or(-1, i64::from)
        })
        .add("p50_ns", Cells::Float, |row| percentile(row, 0))
        .add("p95_ns", Cells::Float, |row| percentile(row, 2))
        .add("p99_ns", Cells::Float, |row| percentile(row, 3))
        .into()
}

/// Bucket that is not empty.
struct FilledBucket<'a> {
    row: &'a LabelRow<'a>,
    fridge: usize,
    index: usize,
    bucket: &'a Bucket,
}

fn filled(buckets: &[FilledBucket<'_>]) -> Value {
    let ns = |it: &FilledBucket<'_>, index| {
        int(u64::from(histogram::least(index)) << it.row.kind.tick_bits())
    };
    labels(buckets, |it| it.row)
        .add("fridge", Cells::Int, |it| it.fridge as i64)
        .add("low_ticks", Cells::Int, |it| histogram::least(it.index).into())
        .add("low_ns", Cells::Int, |it| ns(it, it.index))
        .add("high_ns", Cells::Int, |it| ns(it, it.index + 1))
        .add("samples", Cells::Int, |it| it.bucket.samples.into())
        .add("weight", Cells::Int, |it| int(it.bucket.weight))
        .add("squares", Cells::Int, |it| int(it.bucket.squares))
        .add("beyond", Cells::Int, |it| it.bucket.beyond.into())
        .into()
}

/// Columns that identify the kind and label of a row in a lake's tables.
struct Labels<'a> {
    kinds: &'a [String],
    leaves: &'a [i64],
    groups: &'a [i64],
}

impl<'a> Labels<'a> {
    fn of(table: &Inner<'a>) -> Result<Self, RowDefect> {
        Ok(Labels {
            kinds: table.texts("kind")?,
            leaves: table.ints("leaves")?,
            groups: table.ints("group_number")?,
        })
    }

    fn at(&self, index: usize, settings: &Settings) -> Result<(DelayKind, Label), RowDefect> {
        let label = || {
            let name = self.kinds.get(index)?;
            let kind = settings.kinds.each().find(|kind| kind.name() == name)?;
            let leaves = *self.leaves.get(index)? != 0;
            let group = u8::try_from(*self.groups.get(index)?).ok()?;
            (usize::from(group) < settings.groups()).then_some((kind, Label { leaves, group }))
        };
        label().ok_or_else(|| {
            "a table of delays has kinds or groups that the columns beside it do not have"
                .to_owned()
        })
    }
}

impl DelayUnionState {
    fn take_clock(&mut self, row: &Row) -> Result<(), RowDefect> {
        let name = row.maybe_text("delay_clock").unwrap_or_default();
        let known = [
            TimestampClock::TRACE,
            TimestampClock::KERNEL,
            TimestampClock::WORKER,
            TimestampClock::SWITCH,
        ];
        let known = known.into_iter().find(|clock| clock.name == name);
        let resolution_ns: u64 = row.number("delay_resolution_ns")?;
        let gap_ns = stored_gap(row)?;
        let name = known.map_or("other", |clock| clock.name);
        let clock = match self.clock {
            None => TimestampClock { name, resolution_ns, gap_ns },
            Some(clock) => TimestampClock {
                name: if clock.name == name { name } else { "several" },
                resolution_ns: clock.resolution_ns.max(resolution_ns),
                gap_ns: clock.gap_ns.max(gap_ns),
            },
        };
        self.clock = Some(clock);
        Ok(())
    }

    fn name(&mut self, group: u8, name: &str) {
        let Some(index) = usize::from(group).checked_sub(1) else { return };
        if self.groups.len() <= index {
            self.groups.resize(index + 1, Arc::from(""));
        }
        // The row of a group that counted nothing has no name.
        if let Some(known) = self.groups.get_mut(index).filter(|_| !name.is_empty()) {
            *known = Arc::from(name);
        }
    }
}

/// Maximum resolution of a clock, in nanoseconds.
const MAX_RESOLUTION_NS: u64 = 1_000_000_000;
/// Delays have 31 bits, in ticks of up to 4 µs.
const MAX_DELAY_NS: f64 = (1_u64 << 48) as f64;

/// Returns the time by which timestamps of a lake row may be late, in nanoseconds. Rows of clocks
/// that are never late have none.
fn stored_gap(row: &Row) -> Result<u64, RowDefect> {
    row.number_or("delay_gap_ns", 0)
}

/// Returns the settings of a lake row; `None` if it has no delays.
fn stored_settings(row: &Row) -> Result<Option<Settings>, RowDefect> {
    let Some(kinds) = row.maybe_text("delay_kinds") else { return Ok(None) };
    let known = |name: &str| {
        DelayKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            format!("column delay_kinds has '{name}', which this version does not know")
        })
    };
    let kinds = kinds
        .split(',')
        .try_fold(Kinds::NONE, |kinds, name| known(name).map(|kind| kinds.with(kind)))?;
    let algorithm = row.must_name("delay_algorithm", &Algorithm::ALL, Algorithm::name)?;
    let directions: u64 = row.number("delay_directions")?;
    let all = [Directions::Together, Directions::Apart, Directions::Local];
    let directions = all
        .into_iter()
        .find(|it| *it as u64 == directions)
        .ok_or_else(|| format!("column delay_directions has {directions}"))?;
    let delay = Settings {
        kinds,
        algorithm,
        slots_log2: row.number("delay_slots_log2")?,
        admit_log2: row.number("delay_admit_log2")?,
        directions,
        samples: false,
        follows: row.flag("delay_auto")?,
        groups_log2: row.number("delay_groups_log2")?,
        expiry_ns: row.number("delay_expiry_ns")?,
        prefixes: row.number("delay_prefixes")?,
    };
    delay.problem().map_or(Ok(Some(delay)), |problem| Err(problem.to_owned()))
}

/// Checks the laws of the buckets of delays. A kind has at most `most` delays.
fn check_buckets(table: &Inner<'_>, settings: &Settings, most: u64) -> Result<(), RowDefect> {
    let columns =
        ["fridge", "low_ticks", "low_ns", "high_ns", "samples", "weight", "squares", "beyond"];
    let [fridges, lows, low_ns, high_ns, samples, weights, squares, beyond] =
        columns.map(|column| table.ints(column));
    let (fridges, lows, low_ns, high_ns) = (fridges?, lows?, low_ns?, high_ns?);
    let (samples, weights, squares, beyond) = (samples?, weights?, squares?, beyond?);
    let labels = Labels::of(table)?;
    let heaviest = weights::weights(settings.fridge_slots_log2())
        .last()
        .filter(|_| settings.weighs())
        .unwrap_or(Weight::ONE);
    let (mut seen, mut sums) = (BTreeSet::new(), BTreeMap::new());
    let columns = fridges.iter().zip(lows).zip(low_ns).zip(high_ns).enumerate();
    for (index, (((fridge, low), low_ns), high_ns)) in columns {
        let (kind, label) = labels.at(index, settings)?;
        let bucket = u32::try_from(*low).ok().map(histogram::bucket).filter(|bucket| {
            let bound = |bucket| i64::from(histogram::least(bucket));
            let ns = |bucket| bound(bucket) << kind.tick_bits();
            *bucket < histogram::BUCKETS
                && (bound(*bucket), ns(*bucket), ns(bucket + 1)) == (*low, *low_ns, *high_ns)
        });
        require(bucket.is_some(), || {
            format!(
                "column delay_buckets has a bucket from {low} ticks, {low_ns} to {high_ns} ns, which does not exist"
            )
        })?;
        require((0..settings.fridges() as i64).contains(fridge), || {
            format!("column delay_buckets has fridge {fridge}")
        })?;
        require(seen.insert((kind as usize, label.leaves, label.group, *fridge, *low)), || {
            format!("column delay_buckets has two buckets of {} from {low} ticks", kind.name())
        })?;
        let at = |cells: &[i64]| cells.get(index).copied().unwrap_or(0);
        let (samples, beyond) = (at(samples), at(beyond));
        require((1..=i64::from(u32::MAX)).contains(&samples), || {
            format!("column delay_buckets has {samples} samples")
        })?;
        require((0..=samples).contains(&beyond), || {
            format!("column delay_buckets has {beyond} delays beyond weights, of {samples}")
        })?;
        // Weights are raised by up to 16 doublings if shares follow the traffic.
        let doublings = if settings.follows { u32::from(MAX_ADMIT_BITS) } else { 0 };
        let bounds = |least: u32, most: u32, doublings: u32| {
            let (least, most) = (i128::from(least), i128::from(most) << doublings);
            let samples = i128::from(samples);
            least * samples..=most * samples
        };
        let weight = bounds(Weight::ONE.weight, heaviest.weight, doublings);
        let square = bounds(Weight::ONE.square, heaviest.square, 2 * doublings);
        let (weights, squares) = (i128::from(at(weights)), i128::from(at(squares)));
        require(weight.contains(&weights) && square.contains(&squares), || {
            format!(
                "column delay_buckets has weight {weights} and squares {squares} of {samples} delays, which no weights give"
            )
        })?;
        let sum: &mut u64 = sums.entry(kind as usize).or_default();
        *sum = sum.saturating_add(samples.unsigned_abs());
        require(*sum <= most, || {
            format!(
                "column delay_buckets has {sum} delays of {}, more than the window's packets give",
                kind.name()
            )
        })?;
    }
    Ok(())
}

impl Measurement for Delays {
    type UnionState = DelayUnionState;

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        let settings = &reading.settings.delay;
        let sides = |kind| -> &[bool] {
            match (settings.directions, kind) {
                (Directions::Together, _) | (_, DelayKind::TcpDuration) => &[false],
                (Directions::Apart | Directions::Local, _) => &[true, false],
            }
        };
        let sides = || {
            settings
                .kinds
                .each()
                .flat_map(|kind| sides(kind).iter().map(move |leaves| (kind, *leaves)))
        };
        let groups = if settings.groups_log2 > 0 { settings.groups() as u8 } else { 0 };
        let of_groups = |(kind, leaves)| {
            (0..groups).map(move |group| build(reading, kind, leaves, Some(group)))
        };
        let is_seen = |delay: &Delay| {
            delay.counts.requests > 0 || delay.counts.backward > 0 || delay.distribution.is_some()
        };
        let together = sides().map(|(kind, leaves)| build(reading, kind, leaves, None));
        let mut delays =
            Delays(together.chain(sides().flat_map(of_groups).filter(is_seen)).collect());
        if reading.options.delay.tune && settings.algorithm == Algorithm::Fridge && !reading.is_part
        {
            for kind in settings.kinds.each() {
                let suggested = RequestLoad::of(&delays, kind, reading.span_ns)
                    .and_then(|load| load.suggested(settings.kinds.number()));
                delays
                    .0
                    .iter_mut()
                    .filter(|delay| delay.kind == kind && delay.group.is_none())
                    .for_each(|delay| delay.suggested = suggested);
            }
        }
        Ok(settings.kinds.any().then_some(delays))
    }

    fn fields(report: Option<&Self>, counted: Option<&ClosedBank>, to: &mut Fields) {
        // Only measured kinds have columns, because those of all kinds would be too many.
        let Some(delays) = report else { return };
        for (delay, index) in delays.together().zip(0..) {
            delay.columns(index, to);
        }
        to.json(Datum::Array(delays.0.iter().map(Delay::json).collect()));
        for delay in &delays.0 {
            delay.draw(counted, to);
        }
    }

    fn known(settings: &flowgauge_core::Settings, options: &Estimation) -> Vec<KnownFigure> {
        let settings = &settings.delay;
        let mut groups: Vec<String> =
            options.delay.groups.iter().map(|group| group.to_string()).collect();
        groups.push(OTHERS.to_owned());
        groups.retain(|_| settings.groups_log2 > 0);
        let percentiles = PERCENTILES.map(|(share, _)| percent(share));
        let figures = |kind: DelayKind| {
            let has_direction = settings.sides() > 1 && kind != DelayKind::TcpDuration;
            let directions = Direction::ALL.into_iter().filter(|_| has_direction);
            let of_kind = |name: &'static str, unit: Unit| {
                KnownFigure::new(name, unit)
                    .label("kind", [kind.name()])
                    .label("to", directions.clone().map(Direction::name))
                    .label("group", groups.iter().cloned())
            };
            let percentile = |name: &'static str| {
                of_kind(name, Unit::Seconds).label("percentile", percentiles.iter().cloned())
            };
            vec![
                of_kind("delay_requests", Unit::Things),
                of_kind("delay_answers", Unit::Things),
                of_kind("delay_unanswered", Unit::Things),
                percentile("delay"),
                percentile("delay_uncorrected"),
            ]
        };
        settings.kinds.each().flat_map(figures).collect()
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        let (settings, bank) = (&counted.settings.delay, &counted.bank.delay);
        let kinds: Vec<&str> = settings.kinds.each().map(DelayKind::name).collect();
        row.text("delay_kinds", kinds.join(","));
        row.text("delay_algorithm", settings.algorithm.name());
        row.int("delay_slots_log2", settings.slots_log2.into());
        row.int("delay_admit_log2", settings.admit_log2.into());
        row.put("delay_auto", Value::Bool(Some(settings.follows)));
        row.int("delay_directions", settings.directions as u64);
        row.int("delay_groups_log2", settings.groups_log2.into());
        row.int("delay_expiry_ns", settings.expiry_ns.into());
        row.int("delay_prefixes", settings.prefixes.into());
        row.text("delay_clock", counted.clock.name);
        row.int("delay_resolution_ns", counted.clock.resolution_ns);
        if counted.clock.gap_ns > 0 {
            row.int("delay_gap_ns", counted.clock.gap_ns);
        }
        let rows = settings.kinds.each().flat_map(|kind| {
            (0..settings.labels()).map(move |label| (kind, settings.labelled(label)))
        });
        let rows: Vec<LabelRow<'_>> = rows
            .map(|(kind, label)| LabelRow { kind, label, report: self.of(kind, settings, label) })
            .collect();
        row.put("delay", counts(&rows, counted));
        let mut buckets = Vec::new();
        for row in &rows {
            for fridge in 0..settings.fridges() {
                let histogram = bank.histogram(settings, row.kind, row.label, fridge);
                let all = histogram.into_iter().flat_map(Histogram::buckets).enumerate();
                let all = all.filter(|(_, bucket)| bucket.samples > 0);
                buckets.extend(all.map(|(index, bucket)| FilledBucket {
                    row,
                    fridge,
                    index,
                    bucket,
                }));
            }
        }
        row.put("delay_buckets", filled(&buckets));
    }

    fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
        let Some(settings) = stored_settings(row)? else { return Ok(()) };
        let resolution_ns: u64 = row.number("delay_resolution_ns")?;
        require(resolution_ns <= MAX_RESOLUTION_NS, || {
            format!("column delay_resolution_ns has {resolution_ns}, more than {MAX_RESOLUTION_NS}")
        })?;
        stored_gap(row)?;
        // A packet is a request and an answer in each direction at most.
        let most = totals.flow_packets.saturating_mul(2);
        let table = row.table("delay")?;
        let labels = Labels::of(&table)?;
        let is_raised = |kind| {
            settings.follows && matches!(kind, DelayKind::TcpTimestamps | DelayKind::QuicSpin)
        };
        let mut seen = BTreeSet::new();
        let shares = table.ints("admit_log2")?;
        for (index, share) in shares.iter().enumerate() {
            let (kind, label) = labels.at(index, &settings)?;
            require(seen.insert((kind as usize, label.leaves, label.group)), || {
                format!("column delay has two rows of one direction and group of {}", kind.name())
            })?;
            require((-1..=MAX_ADMIT_BITS.into()).contains(share), || {
                format!("column delay.admit_log2 has {share}")
            })?;
            let requests = table.ints("requests")?.get(index).copied().unwrap_or(0);
            // Where only a share of the requests is counted, their number is that of all, estimated.
            let most = if is_raised(kind) { most << MAX_ADMIT_BITS } else { most };
            laws::sum("delay.requests", &[requests], most)?;
        }
        for (column, _) in COUNTS.into_iter().skip(1) {
            // Earlier versions did not count all of these.
            laws::sum(&format!("delay.{column}"), table.ints(column).unwrap_or_default(), most)?;
        }
        let [p50, p95, p99] = ["p50_ns", "p95_ns", "p99_ns"].map(|column| table.floats(column));
        for ((p50, p95), p99) in p50?.iter().zip(p95?).zip(p99?) {
            // A percentile that is not known is no number.
            let known: Vec<f64> =
                [*p50, *p95, *p99].into_iter().filter(|it| !it.is_nan()).collect();
            laws::ascending("delay, percentiles in ns", &known, MAX_DELAY_NS)?;
        }
        check_buckets(&row.table("delay_buckets")?, &settings, most)
    }

    fn restore(
        row: &Row,
        settings: &mut flowgauge_core::Settings,
        bank: &mut WindowTotals,
        beside: &mut DelayUnionState,
    ) -> Result<(), RowDefect> {
        let Some(delay) = stored_settings(row)? else { return Ok(()) };
        beside.take_clock(row)?;
        let table = row.table("delay")?;
        // A union represents requests by their smallest share, which raises others.
        let most = u64::MAX >> MAX_ADMIT_BITS;
        let requests = laws::sum("delay.requests", table.ints("requests")?, most)?;
        beside.requests = beside.requests.saturating_add(requests);
        require(beside.requests <= most, || {
            "more requests in all than a number can hold".to_owned()
        })?;
        let labels = Labels::of(&table)?;
        let mut counts = vec![Counts::default(); table.len()];
        let (always, sometimes) = COUNTS.split_at(ALWAYS);
        table.counters(always, &mut counts)?;
        for count in sometimes.iter().filter(|(name, _)| table.ints(name).is_ok()) {
            table.counters(&[*count], &mut counts)?;
        }
        let (shares, names) = (table.ints("admit_log2")?, table.texts("group")?);
        let at =
            |cells: &[i64], index: usize| cells.get(index).copied().unwrap_or(0).unsigned_abs();
        for (index, counts) in counts.into_iter().enumerate() {
            let (kind, label) = labels.at(index, &delay)?;
            beside.name(label.group, names.get(index).map_or("", String::as_str));
            bank.delay.set_counts(&delay, kind, label, counts);
            // A negative number means that no share was stored.
            if let Some(share) = shares.get(index).and_then(|share| u8::try_from(*share).ok()) {
                bank.delay.set_admit_log2(kind, share);
            }
        }
        let table = row.table("delay_buckets")?;
        let columns = ["fridge", "low_ticks", "samples", "weight", "squares", "beyond"]
            .map(|column| table.ints(column));
        let [fridges, lows, samples, weights, squares, beyond] = columns;
        let (fridges, lows, samples, weights, squares, beyond) =
            (fridges?, lows?, samples?, weights?, squares?, beyond?);
        let labels = Labels::of(&table)?;
        for index in 0..table.len() {
            let (kind, label) = labels.at(index, &delay)?;
            let low = at(lows, index) as u32;
            let bucket = histogram::bucket(low);
            let fridge = at(fridges, index) as usize;
            let histogram = bank.delay.histogram_mut(&delay, kind, label, fridge);
            let to = histogram
                .and_then(|it| it.bucket_mut(bucket))
                .filter(|_| histogram::least(bucket) == low)
                .ok_or_else(|| format!("column delay_buckets has a bucket from {low}"))?;
            *to = Bucket {
                weight: at(weights, index),
                squares: at(squares, index),
                samples: at(samples, index) as u32,
                beyond: at(beyond, index) as u32,
            };
        }
        settings.delay = delay;
        Ok(())
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        for delay in &self.0 {
            below.line(&phrases(delay));
            let rows =
                delay.percentiles().into_iter().flatten().zip(delay.truths()).zip(PERCENTILES);
            let rows = rows.filter(|(_, (_, name))| ["p50", "p95", "p99"].contains(name)).map(
                |((percentile, truth), (_, name))| {
                    row(name, &percentile, truth, delay.is_resolved(percentile.value))
                },
            );
            below.rows(&rows.collect::<Vec<_>>());
        }
    }
}

/// Reason why delays are missing in a union of many rows.
const SATURATED: &str = "counts have reached the largest number, so delays are missing: merge a shorter time or fewer hosts";

/// Warning of data that was counted before a device split it, or after one merged it.
const MERGED: &str = "data came in super-packets, each of which is one request: the delays are those of their last segments, and longer ones of the segments before are not seen";

/// Advice for a table whose requests are overwritten too soon.
const CROWDED: &str = "long delays are uncertain: admit fewer requests (--delay-admit) or take more slots (--delay-slots)";

/// Advice for a table in which repeated requests take slots from others.
const REPEATED: &str = "repeated requests make delays uncertain: take more slots (--delay-slots)";

/// Advice for a table in which connections with a spin bit share slots, or not all of them have one.
const CROWDED_SPIN: &str = "connections share slots, or not all are admitted: take more slots (--delay-slots), the algorithm fridge and --delay-admit 1";

/// Returns the phrases about requests of a kind and their outcomes.
fn phrases(delay: &Delay) -> Vec<String> {
    let direction =
        delay.direction.map(|direction| format!(" {}", direction.name())).unwrap_or_default();
    let group = delay.group.as_ref().map(|group| format!(" to {group}")).unwrap_or_default();
    let answers = if delay.answers() > 0 {
        counted(delay.answers(), "answer")
    } else {
        "no answers".to_owned()
    };
    let mut phrases = vec![
        format!("{}{direction}{group}: {answers}", delay.kind.name()),
        counted(delay.requests().round() as u64, "request"),
    ];
    if let Some(unanswered) = delay.unanswered().filter(|_| delay.requests() > 0.0) {
        // One acknowledgement covers all data before it.
        let what = if delay.kind == DelayKind::TcpData {
            "without an answer of their own"
        } else {
            "never answered"
        };
        phrases.push(format!("{:.0} % {what}", unanswered / delay.requests() * 100.0));
    }
    let is_any = |truth: &DelayTruth| truth.requests > 0 || truth.answers > 0;
    let exact = |truth: &DelayTruth| {
        let (answers, requests) =
            (counted(truth.answers, "answer"), counted(truth.requests, "request"));
        format!("truth {answers} to {requests}")
    };
    phrases.extend(delay.truth.note(exact).filter(|_| delay.truth.known().is_none_or(is_any)));
    let counts = &delay.counts;
    phrases.extend(
        (counts.refused > 0).then(|| format!("{} found no free slot", grouped(counts.refused))),
    );
    phrases.extend(
        (counts.backward > 0)
            .then(|| format!("{} came before their requests", counted(counts.backward, "answer"))),
    );
    phrases.extend(
        (counts.unsampled > 0)
            .then(|| format!("{} missing in --delay-samples", counted(counts.unsampled, "delay"))),
    );
    let crowded = delay.distribution.as_ref().filter(|it| delay.is_corrected() && it.crowded);
    phrases.extend(crowded.map(|it| match delay.kind {
        DelayKind::QuicSpin => CROWDED_SPIN.to_owned(),
        _ if it.repeated => REPEATED.to_owned(),
        _ => CROWDED.to_owned(),
    }));
    phrases.extend(delay.is_saturated.then(|| SATURATED.to_owned()));
    phrases.extend(delay.is_merged.then(|| MERGED.to_owned()));
    phrases.extend(delay.is_unresolved().then(|| {
        format!(
            "packets waited up to {} until a worker looked and timestamped them, so shorter delays are not known: measure them with -i, or let workers poll all the time (--poll-mode busy)",
            time(delay.clock.gap_ns as f64)
        )
    }));
    let Settings { slots_log2, admit_log2, .. } = delay.settings;
    let other = delay.suggested.filter(|suggested| {
        (suggested.slots_log2, suggested.admit_log2) != (slots_log2, admit_log2)
    });
    phrases.extend(other.map(|suggested| {
        format!("--delay-slots {} --delay-admit {} would fit", suggested.slots(), suggested.share())
    }));
    phrases
}

/// Returns the row of a percentile, with its bounds if they differ as printed; its upper bound alone
/// if it is not resolved.
fn row(
    name: &str,
    percentile: &Percentile,
    truth: Option<u64>,
    is_resolved: bool,
) -> text::DetailRow {
    if !is_resolved {
        let value = percentile
            .high
            .map_or_else(|| "unknown".to_owned(), |high| format!("≤ {}", time(high)));
        return text::DetailRow { name: format!("  {name}"), value, ..text::DetailRow::default() };
    }
    let interval = match percentile.high {
        Some(high) if time(percentile.low) == time(high) => String::new(),
        Some(high) => format!("({} … {})", time(percentile.low), time(high)),
        None => format!("({} or more)", time(percentile.low)),
    };
    text::DetailRow {
        name: format!("  {name}"),
        value: time(percentile.value),
        interval,
        notes: truth.map(|truth| format!("truth {}", time(truth as f64))).into_iter().collect(),
        ..text::DetailRow::default()
    }
}

/// Formats nanoseconds with three digits and a unit.
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

/// Returns the JSON of a percentile, with its value or null.
fn interval(value: Datum, Percentile { low, high, .. }: &Percentile) -> Datum {
    // An unknown bound is null.
    let high = high.map_or(Datum::Null, Datum::from);
    object([("value", value), ("low", (*low).into()), ("high", high)])
}

fn by_percentile(values: [Datum; PERCENTILES.len()]) -> Datum {
    let pairs = PERCENTILES.iter().zip(values);
    Datum::Object(pairs.map(|((_, name), value)| ((*name).into(), value)).collect())
}

impl Delay {
    fn columns(&self, index: u16, to: &mut Fields) {
        let position = 100 + 5 * index;
        let [p50, _, p95, p99, _] = self.percentiles().map_or([None; 5], |all| all.map(Some));
        // Query engines and scripts take names without hyphens unquoted.
        let mut name = format!("delay_{}", self.kind.name().replace('-', "_"));
        if let Some(direction) = self.direction {
            name = format!("{name}_{}", direction.name());
        }
        let value = |it: Option<Percentile>| it.and_then(|it| self.resolved(it.value));
        to.column(value(p50)).csv(position, format!("{name}_p50_ns"));
        to.column(p50.map(|it| it.low)).csv(position + 1, format!("{name}_p50_low_ns"));
        to.column(p50.and_then(|it| it.high)).csv(position + 2, format!("{name}_p50_high_ns"));
        to.column(value(p95)).csv(position + 3, format!("{name}_p95_ns"));
        to.column(value(p99)).csv(position + 4, format!("{name}_p99_ns"));
        let [p50, _, p95, p99, _] = self.truths();
        for ((truth, percent), position) in
            [(p50, 50), (p95, 95), (p99, 99)].into_iter().zip(300 + 3 * index..)
        {
            to.column(truth).csv(position, format!("{name}_p{percent}_truth_ns"));
        }
    }

    fn json(&self) -> Datum {
        let Delay { kind, settings, counts, .. } = self;
        let some = |count: u64| (count > 0).then_some(count);
        let admit = |admit_log2: u8| 2_f64.powi(-i32::from(admit_log2));
        let unanswered = self.unanswered().map(|unanswered| unanswered.round() as u64);
        let mut to = Fields::default();
        to.field("kind", kind.name());
        to.field("direction", self.direction.map(Direction::name));
        to.field("group", self.group.as_deref());
        to.field("algorithm", settings.algorithm.name());
        to.field("slots", 1_u32 << settings.slots_log2);
        to.field("admit", admit(settings.admit_log2));
        to.field("auto", settings.follows.then_some(true));
        if let Some(suggested) = self.suggested {
            let share = admit(suggested.admit_log2).into();
            to.field("suggested", object([("slots", suggested.slots().into()), ("admit", share)]));
        }
        to.field("requests", self.requests().round() as u64);
        to.field("admitted", counts.admitted);
        to.field("answers", self.answers());
        to.field("unanswered", unanswered.map_or(Datum::Null, Datum::from));
        to.field("truth", self.truth.datum(DelayTruth::datum));
        to.field("refused", some(counts.refused));
        to.field("backward", some(counts.backward));
        to.field("unsampled", some(counts.unsampled));
        to.field("clock", self.clock.name);
        to.field("resolution_ns", self.resolution_ns());
        to.field("gap_ns", some(self.clock.gap_ns));
        if let Some(distribution) = &self.distribution {
            let is_crowded = self.is_corrected() && distribution.crowded;
            to.field("underweighted", some(distribution.beyond));
            to.field("crowded", is_crowded.then_some(true));
            to.field("repeated", (is_crowded && distribution.repeated).then_some(true));
            to.field("saturated", self.is_saturated.then_some(true));
            to.field("merged", self.is_merged.then_some(true));
            to.field("unresolved", self.is_unresolved().then_some(true));
            let value = |it: f64| self.resolved(it).map_or(Datum::Null, Datum::from);
            to.field("raw", by_percentile(distribution.raw.map(value)));
            if self.is_corrected() {
                to.field("answered", distribution.answered);
                let corrected = distribution.corrected.map(|it| interval(value(it.value), &it));
                to.field("corrected", by_percentile(corrected));
            }
        }
        to.into()
    }

    fn draw(&self, counted: Option<&ClosedBank>, to: &mut Fields) {
        let labels = [
            ("kind", self.kind.name()),
            ("to", self.direction.map_or("", Direction::name)),
            ("group", self.group.as_deref().unwrap_or_default()),
        ];
        to.count("delay_requests", "requests", Unit::Things, &labels, self.requests());
        let (title, answers) = ("answers whose delay was seen", self.answers() as f64);
        to.count("delay_answers", title, Unit::Things, &labels, answers);
        if let Some(unanswered) = self.unanswered() {
            let title = "requests without an answer of their own";
            to.count("delay_unanswered", title, Unit::Things, &labels, unanswered);
        }
        let Some(distribution) = &self.distribution else { return };
        let percentiles = self.percentiles().into_iter().flatten().zip(distribution.seen());
        for (((percentile, seen), (share, _)), truth) in
            percentiles.zip(PERCENTILES).zip(self.truths())
        {
            if !self.is_resolved(percentile.value) {
                continue;
            }
            let percent = percent(share);
            let labels = [&labels[..], &[("percentile", &percent)]].concat();
            let seconds = |Percentile { value, low, high }: Percentile| Number {
                value: value / 1e9,
                low: low / 1e9,
                high: high.unwrap_or(f64::INFINITY) / 1e9,
            };
            let corrected = seconds(percentile);
            to.number("delay", "round-trip delay", Unit::Seconds, &labels, corrected);
            to.truth(truth.map(|truth| truth as f64 / 1e9));
            let title = "delays as they were seen";
            to.number("delay_uncorrected", title, Unit::Seconds, &labels, seconds(seen));
        }
        if let (Some(counted), None) = (counted, &self.group) {
            let seen = Shape::Distribution(seen(self, &counted.settings.delay, counted));
            to.figure("delay_seen", "delays that were seen", Unit::Seconds, &labels, seen);
        }
    }
}
