//! Cardinality: the number of distinct flows.

pub mod estimate;
pub mod image;

use super::laws::{self, RowTotals, require};
use super::{ClosedBank, Damaged, Estimation, Measurement, RecordKind, ReportInput, sketched};
use crate::field::Fields;
use crate::figure::{KnownFigure, Unit};
use crate::identity;
use crate::row::{Row, RowDefect, Value};
use crate::text::{IndentedLines, counted, grouped, scaled};
use estimate::{CEILING, Estimate, EstimateError, Estimator, StaggeredEstimator, staggered};
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{HashIdentity, HashMode, KeyKind, Precision, Settings, WindowTotals};

/// Returns whether counts end with windows; staggered registers have no windows.
#[must_use]
pub fn has_windows(settings: &Settings) -> bool {
    settings.cardinality.mode != Mode::Staggered
}

/// Returns the name of the distinct flows by a key, in the plural.
#[must_use]
pub fn distinct(key: KeyKind) -> &'static str {
    match key {
        KeyKind::Src => "distinct sources",
        KeyKind::Dst => "distinct destinations",
        KeyKind::SrcDst => "distinct pairs",
        KeyKind::FiveTuple => "distinct five-tuples",
    }
}

/// Options of the estimation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Estimator of windowed registers; for staggered ones, `Flajolet` selects the source's
    /// harmonic mean, the others maximum likelihood.
    pub estimator: Estimator,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
}

/// Distinct flows of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Cardinality {
    /// Key that defines a flow.
    pub key: KeyKind,
    /// Estimate with its 95 % interval.
    pub estimate: Estimate,
    /// Name of the estimator.
    pub estimator: &'static str,
    /// Exact number, if it was counted and there are not too many.
    pub truth: Option<u64>,
    /// Hash of the registers.
    pub hash: HashIdentity,
    /// Mergeable sketch: the level of each register.
    pub levels: Vec<u8>,
}

impl Cardinality {
    fn new(
        reading: &ReportInput<'_>,
        estimate: Estimate,
        estimator: &'static str,
        truth: Option<u64>,
        levels: Vec<u8>,
    ) -> Self {
        let (key, hash) = (reading.settings.cardinality.key, reading.hash);
        Cardinality { key, estimate, estimator, truth, hash, levels }
    }

    /// Builds the report from the registers of a window, a sample, or several windows.
    fn windowed(reading: &ReportInput<'_>) -> Result<Self, EstimateError> {
        let (settings, estimator) =
            (reading.settings.cardinality, reading.options.cardinality.estimator);
        let levels = reading.bank.cardinality.levels(settings.precision).to_vec();
        // Each packet has at most one flow.
        let (_, packets) = reading.packets_while_read();
        let estimate = estimate::estimate(&levels, estimator)?.at_most(packets);
        let truth = reading.truth.and_then(|truth| {
            if reading.kind == RecordKind::Total { truth.total } else { truth.window }
        });
        Ok(Self::new(reading, estimate, estimator.name(), truth, levels))
    }

    /// Builds the report from staggered registers.
    fn staggered(reading: &ReportInput<'_>) -> Result<Option<Self>, EstimateError> {
        let (settings, options) = (reading.settings.cardinality, reading.options.cardinality);
        let Some(snapshot) = reading.snapshot else { return Ok(None) };
        let Some(persistent) = &snapshot.persistent else { return Ok(None) };
        let (slot_ns, now) = (options.slot_ns.max(1), reading.now_ns);
        let m = settings.precision.registers() as u64;
        let by_slots = snapshot.slot_time.unwrap_or(now);
        let slot = by_slots / slot_ns;
        let part = (by_slots % slot_ns) as f64 / slot_ns as f64;
        // A register cannot be older than the measurement, nor so young that its age vanishes.
        let lived = (now.saturating_sub(reading.start_ns) as f64 / slot_ns as f64)
            .clamp(f64::EPSILON, m as f64);
        let age =
            |index: u64| ((slot.wrapping_sub(index) % m) as f64 + part).clamp(f64::EPSILON, lived);
        let ages: Vec<f64> = (0..m).map(age).collect();
        let levels: Vec<u8> =
            persistent.cardinality.levels(settings.precision, slot as u32).collect();
        let wanted = match options.estimator {
            Estimator::Flajolet => StaggeredEstimator::Harmonic,
            Estimator::Ertl | Estimator::Mle => StaggeredEstimator::Mle,
        };
        let (estimate, estimator) = match staggered(&levels, &ages, wanted) {
            // Too early for the harmonic mean, which discards young registers.
            Err(EstimateError::Immature { .. }) => {
                (staggered(&levels, &ages, StaggeredEstimator::Mle)?, StaggeredEstimator::Mle)
            }
            estimate => (estimate?, wanted),
        };
        // Until a whole window has passed, flows are counted in this part of one.
        let part = (2.0 * lived / m as f64).min(1.0);
        let estimate = Estimate {
            value: estimate.value * part,
            low: estimate.low * part,
            high: estimate.high * part,
        };
        let truth = reading.truth.and_then(|truth| truth.window);
        Ok(Some(Self::new(reading, estimate, estimator.name(), truth, levels)))
    }

    pub(crate) fn rounded(&self) -> u64 {
        self.estimate.value.round() as u64
    }

    pub(crate) fn interval(&self) -> String {
        let Estimate { low, high, .. } = self.estimate;
        format!("{} … {}", grouped(low.round() as u64), grouped(high.round() as u64))
    }

    /// Formats the longer half of the interval, relative to the value; if that is as long as the
    /// value, its upper end: a flow that is one need not be two.
    pub(crate) fn half_width(&self) -> String {
        let Estimate { value, low, high } = self.estimate;
        let percent = (high - value).max(value - low) / value * 100.0;
        match percent {
            percent if percent < 99.95 => format!("± {percent:.1} %"),
            _ if high.round() <= value.round() => String::new(),
            _ if high < 999.5 => format!("≤ {high:.0}"),
            _ => format!("≤ {}", scaled(high)),
        }
    }

    /// Formats the error relative to the exact number; `None` if that is unknown or zero.
    pub(crate) fn error(&self) -> Option<String> {
        let truth = self.truth.filter(|truth| *truth > 0)? as f64;
        let ratio = self.estimate.value / truth;
        let percent = (ratio - 1.0) * 100.0;
        Some(if percent < 999.0 { format!("{percent:+.2} %") } else { format!("{ratio:.0} x") })
    }
}

/// Standard error of an estimate from one register, relative to the estimate.
const RELATIVE_ERROR: f64 = 1.04;
/// Standard errors that no estimate is off, once in 10^9 rows: for few registers the error is not
/// normal, and eight are needed.
const MAX_ERRORS: f64 = 8.0;
/// Maximum ratio of two estimators.
const MAX_BIAS: f64 = 1.25;

/// Registers of a lake row.
struct StoredRegisters<'a> {
    key: KeyKind,
    precision: Precision,
    hash: HashIdentity,
    levels: &'a [u8],
}

impl<'a> StoredRegisters<'a> {
    /// Returns the registers of a row; `None` if it has none.
    fn of(row: &'a Row) -> Result<Option<Self>, RowDefect> {
        let Some(key) = row.named("distinct_key", &KeyKind::ALL, KeyKind::name)? else {
            return Ok(None);
        };
        let registers: usize = row.number("registers")?;
        let precision = Precision::from_registers(registers)
            .ok_or_else(|| format!("column registers has {registers}"))?;
        let hash = identity::of(row)?;
        let column = image::column(key, precision, &hash);
        let levels = image::levels(row.bytes(&column)?)
            .map_err(|problem| format!("column {column}: {problem}"))?;
        require(levels.len() == registers, || {
            let levels = levels.len();
            format!("column {column} has {levels} registers, column registers {registers}")
        })?;
        Ok(Some(StoredRegisters { key, precision, hash, levels }))
    }
}

impl Measurement for Cardinality {
    type UnionState = ();

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        Ok(match (reading.settings.cardinality.mode, reading.kind) {
            (Mode::Windowed, _) => Some(Self::windowed(reading)?),
            (Mode::Staggered, RecordKind::Sample) => Self::staggered(reading)?,
            (Mode::Staggered | Mode::Off, _) => None,
        })
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        let hash = |it: &Self| match it.hash.mode {
            HashMode::Crc32 | HashMode::Tabulated => {
                format!("{}/{}", it.hash.mode.name(), it.hash.seed)
            }
            HashMode::Keyed => format!("{}/{:016x}", it.hash.mode.name(), it.hash.fingerprint),
        };
        let estimate = report.map(|it| it.estimate);
        let truth = report.and_then(|it| it.truth);
        to.field("key", report.map(|it| it.key.name())).csv(20, "key").lake("distinct_key");
        to.field("estimate", estimate.map(|it| it.value)).csv(3, "estimate").lake("distinct");
        to.field("low", estimate.map(|it| it.low)).csv(4, "low").lake("distinct_low");
        to.field("high", estimate.map(|it| it.high)).csv(5, "high").lake("distinct_high");
        to.field("estimator", report.map(|it| it.estimator)).csv(21, "estimator");
        to.field("truth", truth).csv(2, "ground_truth");
        to.column(report.map(hash)).csv(22, "hash");
        if let Some(it) = report {
            to.field("hash", sketched::hash(&it.hash));
        }
        let registers = report.map(|it| it.levels.len());
        to.field("registers", registers).csv(23, "registers").lake("registers");
        if let (Some(it), Some(estimate)) = (report, estimate) {
            let labels = [("key", it.key.name())];
            to.number("distinct_flows", "distinct flows", Unit::Things, &labels, estimate);
            to.truth(truth.map(|truth| truth as f64));
        }
    }

    fn known(settings: &Settings, _: &Estimation) -> Vec<KnownFigure> {
        let cardinality::Settings { mode, key, .. } = settings.cardinality;
        match mode {
            Mode::Windowed => {
                vec![KnownFigure::new("distinct_flows", Unit::Things).label("key", [key.name()])]
            }
            Mode::Staggered | Mode::Off => Vec::new(),
        }
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        let precision = counted.settings.cardinality.precision;
        row.put(
            image::column(self.key, precision, &self.hash),
            Value::Bytes(Some(image::of(&self.levels))),
        );
    }

    fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
        let Some(StoredRegisters { levels, hash, .. }) = StoredRegisters::of(row)? else {
            return Ok(());
        };
        let [low, value, high] =
            ["distinct_low", "distinct", "distinct_high"].map(|column| row.real(column));
        let value = value?;
        laws::ascending("distinct", &[low?, value, high?], CEILING)?;
        let packets = totals.flow_packets;
        // A packet sets at most one register.
        let occupied = levels.iter().filter(|level| **level > 0).count() as u64;
        require(occupied <= packets, || {
            format!("{occupied} registers are set, and the window has {packets} packets")
        })?;
        require(occupied > 0 || packets == 0 || !totals.is_complete, || {
            format!("no register is set, and the window has {packets} packets")
        })?;
        let of_registers = estimate::estimate(levels, Estimator::default())
            .map_err(|error| format!("column distinct: {error}"))?
            .value;
        let error = (MAX_ERRORS * RELATIVE_ERROR / (levels.len() as f64).sqrt()).exp();
        // Each packet is at most one flow. The values of a linear hash are not random.
        require(hash.mode == HashMode::Crc32 || of_registers <= packets as f64 * error, || {
            format!("registers of {of_registers:.0} flows, and the window has {packets} packets")
        })?;
        // Estimators differ by 2 % on average, so that more than their error is no rounding.
        let error = error.max(MAX_BIAS);
        require(value <= of_registers * error && of_registers <= value * error, || {
            format!("column distinct has {value}, and its registers {of_registers:.0}")
        })
    }

    fn restore(
        row: &Row,
        settings: &mut Settings,
        bank: &mut WindowTotals,
        (): &mut (),
    ) -> Result<(), RowDefect> {
        let Some(StoredRegisters { key, precision, levels, .. }) = StoredRegisters::of(row)? else {
            return Ok(());
        };
        settings.cardinality = cardinality::Settings { mode: Mode::Windowed, key, precision };
        bank.cardinality.levels_mut(precision).copy_from_slice(levels);
        Ok(())
    }

    fn summary(&self, part: bool, below: &mut IndentedLines<'_>) {
        let (hash, singular) = (&self.hash, distinct(self.key).trim_end_matches('s'));
        let mut phrases =
            vec![format!("{} ({}) in all", counted(self.rounded(), singular), self.interval())];
        if let Some(truth) = self.truth {
            let error = self.error().map_or_else(String::new, |error| format!(" (error {error})"));
            phrases.push(format!("truth {}{error}", grouped(truth)));
        }
        below.line(&phrases);
        // It is the same for all sources, and shown with their union.
        if part {
            return;
        }
        let registers = counted(self.levels.len() as u64, "register");
        let mut phrases = vec![
            format!("estimator {}", self.estimator),
            registers,
            format!("hash {}", hash.mode.name()),
        ];
        match hash.mode {
            // It is linear (docs/accuracy.md).
            HashMode::Crc32 => phrases.push("wrong for structured addresses".to_owned()),
            HashMode::Tabulated => phrases.push(format!("seed {}", hash.seed)),
            HashMode::Keyed => phrases.push(format!("key {:016x}", hash.fingerprint)),
        }
        below.line(&phrases);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_as_long_as_the_value_is_its_upper_end() {
        let half_width = |value: f64, low: f64, high: f64| {
            let (estimate, hash) =
                (Estimate { value, low, high }, HashIdentity::new(HashMode::Crc32, 0));
            let (key, estimator, truth, levels) = (KeyKind::Src, "ertl", None, Vec::new());
            Cardinality { key, estimate, estimator, truth, hash, levels }.half_width()
        };
        assert_eq!(half_width(1000.0, 960.0, 1045.0), "± 4.5 %");
        assert_eq!(half_width(10.0, 10.0, 11.0), "± 10.0 %");
        assert_eq!(half_width(1.000_2, 1.0, 2.000_2), "≤ 2");
        assert_eq!(half_width(2.0, 1.0, 8.1), "≤ 8");
    }
}
