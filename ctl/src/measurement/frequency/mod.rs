//! Packets of any flow.

pub mod estimate;

use super::sketched::{self, FULL};
use super::{Counted, Damaged, Measurement, Number, Rank, Reading, Sketched};
use crate::figure::{Figures, Ranked, Unit};
use crate::flow::KeyText;
use crate::row::{Misfit, Row};
use crate::text::{self, Below, counted, grouped, optional};
use flowgauge_core::{FlowKey, Settings, WideBank};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Nothing to choose.
pub type Options = ();

/// Packets of the flows that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequency {
    /// The sketch that the counts came from.
    pub sketch: Sketched,
    /// Flows and their packets.
    pub flows: Vec<(FlowKey, estimate::Frequency)>,
    /// Counters of the sketch that are full, so that they count no more.
    pub full_counters: usize,
}

impl Measurement for Frequency {
    type Beside = ();

    fn of(reading: &Reading<'_>) -> Result<Option<Self>, Damaged> {
        let (rows, cells) = (reading.rows, &reading.bank.frequency);
        Ok(Sketched::new(&reading.settings.frequency, rows).map(|sketch| {
            let Sketched { key, kind, shape, .. } = sketch;
            let packets = |flow: &FlowKey| {
                estimate::estimate(
                    cells,
                    kind,
                    shape,
                    rows.signature(flow),
                    &rows.tabulation,
                    reading.packets(),
                )
            };
            Frequency {
                sketch,
                flows: reading.asked(key, packets),
                full_counters: cells.full(shape),
            }
        }))
    }

    fn figures(&self, _: Option<&Counted>, figures: &mut Figures) {
        let key = self.sketch.key;
        let flows = self.flows.iter().map(|(flow, packets)| Ranked {
            name: KeyText { kind: key, key: flow }.to_string(),
            number: Number { value: packets.value, low: packets.low, high: packets.high },
            more: String::new(),
        });
        figures.ranking(
            "asked_flows",
            "packets of the flows that are asked for",
            Unit::Things,
            &[("key", key.name())],
            flows.collect(),
        );
    }

    fn columns() -> &'static [&'static str] {
        &["frequency"]
    }

    fn store(&self, counted: &Counted, row: &mut Row) {
        sketched::store("frequency", &counted.settings.frequency, &counted.bank.frequency, row);
    }

    fn restore(
        row: &Row,
        settings: &mut Settings,
        bank: &mut WideBank,
        (): &mut (),
    ) -> Result<(), Misfit> {
        settings.frequency =
            sketched::restore("frequency", row, &mut bank.frequency)?.unwrap_or(settings.frequency);
        Ok(())
    }

    fn rank(&self) -> Rank {
        Rank::Asked
    }

    fn lines(&self, below: &mut Below<'_>) {
        let rows = self.flows.iter().map(|(key, packets)| {
            let key = KeyText { kind: self.sketch.key, key };
            let [value, low, high] =
                [packets.value, packets.low, packets.high].map(|packets| packets.round() as u64);
            text::Row {
                name: format!("query {key}"),
                value: counted(value, "packet"),
                interval: format!("({} … {})", grouped(low), grouped(high)),
                notes: packets.saturated.then(|| FULL.to_owned()).into_iter().collect(),
                ..text::Row::default()
            }
        });
        below.rows(&rows.collect::<Vec<_>>());
    }

    fn is_full(&self) -> bool {
        self.full_counters > 0
    }
}

impl Serialize for Frequency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flow {
            flow: String,
            packets: f64,
            low: f64,
            high: f64,
            confidence: f64,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            saturated: bool,
        }
        let kind = self.sketch.key;
        let flows = self.flows.iter().map(|(key, estimate)| {
            let estimate::Frequency { value, low, high, confidence, saturated } = *estimate;
            Flow {
                flow: KeyText { kind, key }.to_string(),
                packets: value,
                low,
                high,
                confidence,
                saturated,
            }
        });
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("key", kind.name())?;
        self.sketch.write(&mut line)?;
        optional(&mut line, "full_counters", self.is_full().then_some(self.full_counters))?;
        line.serialize_entry("flows", &flows.collect::<Vec<_>>())?;
        line.end()
    }
}
