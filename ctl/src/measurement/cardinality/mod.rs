//! Distinct flows.

pub mod estimate;
pub mod image;

use super::{Cell, Counted, Damaged, Headline, Measurement, Number, Place, Reading, sketched};
use crate::figure::{Figures, Unit};
use crate::identity;
use crate::kind::Kind;
use crate::row::{Misfit, Row, Value};
use crate::text::{Below, counted, grouped, optional};
use estimate::{Estimate, EstimateError, Estimator, StaggeredEstimator, staggered};
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{HashIdentity, HashMode, KeyKind, Precision, Settings, WideBank};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Whether windows end: with staggered registers there are none.
#[must_use]
pub fn has_windows(settings: &Settings) -> bool {
    settings.cardinality.mode != Mode::Staggered
}

/// Distinct flows by a key, in words.
#[must_use]
pub fn distinct(key: KeyKind) -> &'static str {
    match key {
        KeyKind::Src => "distinct sources",
        KeyKind::Dst => "distinct destinations",
        KeyKind::SrcDst => "distinct pairs",
        KeyKind::FiveTuple => "distinct five-tuples",
    }
}

/// How registers become numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Estimator of windowed registers; of staggered ones, `Flajolet` means the source's harmonic
    /// mean, the others maximum likelihood.
    pub estimator: Estimator,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
}

/// Distinct flows of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Cardinality {
    /// What makes a flow.
    pub key: KeyKind,
    /// The estimate with its 95 % interval.
    pub estimate: Estimate,
    /// Name of the estimator.
    pub estimator: &'static str,
    /// The exact number, if it was counted.
    pub truth: Option<u64>,
    /// How the registers were hashed.
    pub hash: HashIdentity,
    /// The mergeable sketch: one level a register.
    pub levels: Vec<u8>,
}

impl Cardinality {
    /// Of a window, a read inside one, or several windows together.
    fn windowed(reading: &Reading<'_>) -> Result<Self, EstimateError> {
        let (settings, estimator) =
            (reading.settings.cardinality, reading.options.cardinality.estimator);
        let levels = reading.bank.cardinality.levels(settings.precision).to_vec();
        let estimate = estimate::estimate(&levels, estimator)?;
        let truth = reading
            .truth
            .map(|truth| if reading.kind == Kind::Total { truth.total } else { truth.window });
        Ok(Cardinality {
            key: settings.key,
            estimate,
            estimator: estimator.name(),
            truth,
            hash: reading.hash,
            levels,
        })
    }

    /// Of staggered registers.
    fn staggered(reading: &Reading<'_>) -> Result<Option<Self>, EstimateError> {
        let (settings, options) = (reading.settings.cardinality, reading.options.cardinality);
        let Some(snapshot) = reading.snapshot else { return Ok(None) };
        let Some(lasting) = &snapshot.lasting else { return Ok(None) };
        let (slot_ns, now) = (options.slot_ns.max(1), reading.now_ns);
        let m = settings.precision.registers() as u64;
        let by_slots = snapshot.slot_time.unwrap_or(now);
        let slot = by_slots / slot_ns;
        let part = (by_slots % slot_ns) as f64 / slot_ns as f64;
        // A register cannot have seen more than there was, nor be so young that its age vanishes.
        let lived = (now.saturating_sub(reading.start_ns) as f64 / slot_ns as f64)
            .clamp(f64::EPSILON, m as f64);
        let age =
            |index: u64| ((slot.wrapping_sub(index) % m) as f64 + part).clamp(f64::EPSILON, lived);
        let ages: Vec<f64> = (0..m).map(age).collect();
        let levels: Vec<u8> = lasting.cardinality.levels(settings.precision, slot as u32).collect();
        let wanted = match options.estimator {
            Estimator::Flajolet => StaggeredEstimator::Harmonic,
            Estimator::Ertl | Estimator::Mle => StaggeredEstimator::Mle,
        };
        let (estimate, estimator) = match staggered(&levels, &ages, wanted) {
            // Too early for the harmonic mean, which leaves young registers out.
            Err(EstimateError::Immature { .. }) => {
                (staggered(&levels, &ages, StaggeredEstimator::Mle)?, StaggeredEstimator::Mle)
            }
            estimate => (estimate?, wanted),
        };
        // Until a whole window has passed, there is only this part of one to count flows in.
        let part = (2.0 * lived / m as f64).min(1.0);
        let estimate = Estimate {
            value: estimate.value * part,
            low: estimate.low * part,
            high: estimate.high * part,
        };
        let truth = reading.truth.map(|truth| truth.window);
        Ok(Some(Cardinality {
            key: settings.key,
            estimate,
            estimator: estimator.name(),
            truth,
            hash: reading.hash,
            levels,
        }))
    }

    fn as_headline(&self) -> Headline {
        let Cardinality { key, estimate: Estimate { value, low, high }, truth, .. } = *self;
        Headline { key, what: distinct(key), value, low, high, truth }
    }
}

impl Measurement for Cardinality {
    type Beside = ();

    fn of(reading: &Reading<'_>) -> Result<Option<Self>, Damaged> {
        Ok(match (reading.settings.cardinality.mode, reading.kind) {
            (Mode::Windowed, _) => Some(Self::windowed(reading)?),
            (Mode::Staggered, Kind::Sample) => Self::staggered(reading)?,
            (Mode::Staggered | Mode::Off, _) => None,
        })
    }

    fn cells(report: Option<&Self>) -> Vec<Cell> {
        let cell = |place, name, value: &dyn Fn(&Self) -> String| {
            (place, name, report.map(value).unwrap_or_default())
        };
        let hash = |hash: &HashIdentity| match hash.mode {
            HashMode::Crc32 | HashMode::Tabulated => format!("{}/{}", hash.mode.name(), hash.seed),
            HashMode::Keyed => format!("{}/{:016x}", hash.mode.name(), hash.fingerprint),
        };
        vec![
            cell(Place::First, "ground_truth", &|it| {
                it.truth.map(|truth| truth.to_string()).unwrap_or_default()
            }),
            cell(Place::First, "estimate", &|it| it.estimate.value.to_string()),
            cell(Place::First, "low", &|it| it.estimate.low.to_string()),
            cell(Place::First, "high", &|it| it.estimate.high.to_string()),
            cell(Place::Middle, "key", &|it| it.key.name().to_owned()),
            cell(Place::Middle, "estimator", &|it| it.estimator.to_owned()),
            cell(Place::Middle, "hash", &|it| hash(&it.hash)),
            cell(Place::Middle, "registers", &|it| it.levels.len().to_string()),
        ]
    }

    fn headline(&self) -> Option<Headline> {
        Some(self.as_headline())
    }

    fn figures(&self, _: Option<&Counted>, figures: &mut Figures) {
        let Estimate { value, low, high } = self.estimate;
        let labels = [("key", self.key.name())];
        figures.number(
            "distinct_flows",
            "distinct flows",
            Unit::Things,
            &labels,
            Number { value, low, high },
        );
        figures.truth(self.truth.map(|truth| truth as f64));
    }

    fn columns() -> &'static [&'static str] {
        &["distinct", "registers", "hll_"]
    }

    fn store(&self, counted: &Counted, row: &mut Row) {
        let precision = counted.settings.cardinality.precision;
        row.text("distinct_key", self.key.name());
        row.float("distinct", self.estimate.value);
        row.float("distinct_low", self.estimate.low);
        row.float("distinct_high", self.estimate.high);
        row.int("registers", self.levels.len() as u64);
        row.put(
            image::column(self.key, precision, &self.hash),
            Value::Bytes(Some(image::of(&self.levels))),
        );
    }

    fn restore(
        row: &Row,
        settings: &mut Settings,
        bank: &mut WideBank,
        (): &mut (),
    ) -> Result<(), Misfit> {
        let Some(key) = row.named("distinct_key", &KeyKind::ALL, KeyKind::name)? else {
            return Ok(());
        };
        let registers: usize = row.number("registers")?;
        let precision = Precision::from_registers(registers)
            .ok_or_else(|| format!("column registers has {registers}"))?;
        let hash = identity::of(row)?;
        let column = image::column(key, precision, &hash);
        let levels = image::levels(row.bytes(&column)?)
            .map_err(|problem| format!("column {column}: {problem}"))?;
        if levels.len() != registers {
            return Err(format!(
                "column {column} has {} registers, column registers {registers}",
                levels.len()
            ));
        }
        estimate::estimate(levels, Estimator::default())
            .map_err(|error| format!("column {column}: {error}"))?;
        settings.cardinality =
            cardinality::Settings { mode: Mode::Windowed, key, precision, ..settings.cardinality };
        bank.cardinality.levels_mut(precision).copy_from_slice(levels);
        Ok(())
    }

    fn summary(&self, part: bool, below: &mut Below<'_>) {
        let (headline, hash) = (self.as_headline(), &self.hash);
        let singular = headline.what.trim_end_matches('s');
        let mut phrases = vec![format!(
            "{} ({}) in all",
            counted(headline.rounded(), singular),
            headline.interval()
        )];
        if let Some(truth) = self.truth {
            let error =
                headline.error().map_or_else(String::new, |error| format!(" (error {error})"));
            phrases.push(format!("truth {}{error}", grouped(truth)));
        }
        below.line(&phrases);
        // Of several places it is the same, and stands with all together.
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

impl Serialize for Cardinality {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("key", self.key.name())?;
        line.serialize_entry("estimate", &self.estimate.value)?;
        line.serialize_entry("low", &self.estimate.low)?;
        line.serialize_entry("high", &self.estimate.high)?;
        line.serialize_entry("estimator", self.estimator)?;
        optional(&mut line, "truth", self.truth)?;
        line.serialize_entry("hash", &sketched::Hash(&self.hash))?;
        line.serialize_entry("registers", &self.levels.len())?;
        line.end()
    }
}
