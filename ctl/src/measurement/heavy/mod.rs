//! The flows with the most packets or bytes.

pub mod estimate;

use super::{Cell, Damaged, Measurement, Place, Rank, Reading};
use crate::flow::KeyText;
use crate::text::{Below, counted, grouped};
use estimate::{Flow, Top};
use flowgauge_core::KeyKind;
use flowgauge_core::heavy::{Algorithm, Settings, Unit};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// How many flows to tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The heaviest so many.
    pub top: usize,
}

impl Default for Options {
    /// Ten.
    fn default() -> Self {
        Options { top: 10 }
    }
}

/// The flows with the most packets or bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Heavy {
    /// What makes a flow.
    pub key: KeyKind,
    /// What flows are heavy by.
    pub unit: Unit,
    /// How they were found.
    pub algorithm: Algorithm,
    /// Slots of the table.
    pub slots: usize,
    /// The flows with bounds on their counts.
    pub top: Top,
}

impl Heavy {
    fn text(&self, flow: &Flow) -> String {
        KeyText { kind: self.key, key: &flow.key }.to_string()
    }

    /// A count in words.
    fn counted(&self, count: u64) -> String {
        counted(count, self.unit.name().trim_end_matches('s'))
    }

    /// The first so many flows in words.
    pub(crate) fn talkers(&self, most: usize) -> impl Iterator<Item = String> {
        self.top.flows.iter().take(most).map(|flow| format!("{} ({})", self.text(flow), self.counted(flow.count)))
    }
}

impl Measurement for Heavy {
    fn of(reading: &Reading<'_>) -> Result<Option<Self>, Damaged> {
        let settings = &reading.settings.heavy;
        let Settings { algorithm, key, unit, .. } = *settings;
        let top = || estimate::top(&reading.bank.heavy, settings, reading.options.heavy.top);
        Ok((algorithm != Algorithm::Off).then(|| Heavy { key, unit, algorithm, slots: settings.slots(), top: top() }))
    }

    fn cells(report: Option<&Self>) -> Vec<Cell> {
        let heaviest = report.and_then(|heavy| heavy.top.flows.first().map(|flow| (heavy.text(flow), flow.count.to_string())));
        let (flow, count) = heaviest.unwrap_or_default();
        vec![(Place::Behind, "heaviest", flow), (Place::Behind, "heaviest_count", count)]
    }

    fn rank(&self) -> Rank {
        Rank::Top
    }

    fn lines(&self, below: &mut Below<'_>) {
        let rows = self.top.flows.iter().map(|flow| {
            let share = flow.count as f64 / self.top.total.max(1) as f64 * 100.0;
            let interval = format!("({} … {})", grouped(flow.low), grouped(flow.high));
            [self.text(flow), self.counted(flow.count), format!("{share:.1} %"), interval]
        });
        below.rows(&rows.collect::<Vec<_>>());
    }
}

impl Serialize for Heavy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Line {
            flow: String,
            count: u64,
            low: u64,
            high: u64,
        }
        let flows = self.top.flows.iter().map(|flow| {
            let Flow { count, low, high, .. } = *flow;
            Line { flow: self.text(flow), count, low, high }
        });
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("key", self.key.name())?;
        line.serialize_entry("unit", self.unit.name())?;
        line.serialize_entry("algorithm", self.algorithm.name())?;
        line.serialize_entry("slots", &self.slots)?;
        line.serialize_entry("total", &self.top.total)?;
        line.serialize_entry("absent", &self.top.absent)?;
        line.serialize_entry("flows", &flows.collect::<Vec<_>>())?;
        line.end()
    }
}
