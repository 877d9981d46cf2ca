//! Packets of queried flows.

pub mod estimate;

use super::exact_value::note;
use super::laws::RowTotals;
use super::sketched::{self, FULL};
use super::{
    ClosedBank, Damaged, Estimation, Measurement, Number, QueriedFlow, ReportInput, Sketched,
};
use crate::field::{Datum, Fields, object};
use crate::figure::{KnownFigure, RankingItem, Unit};
use crate::flow::KeyText;
use crate::row::{Row, RowDefect};
use crate::text::{self, IndentedLines, counted, grouped};
use flowgauge_core::{FlowKey, Settings, WindowTotals};

/// Value of a flow that the membership filter has not seen.
const NOT_SEEN: &str = "not seen";

/// No options.
pub type Options = ();

/// Packets of the queried flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequency {
    /// Sketch that the counts came from.
    pub sketch: Sketched,
    /// Packets of each flow; `None` if the membership filter has not seen it, so that it has none.
    pub flows: Vec<QueriedFlow<Option<estimate::Frequency>, u64>>,
    /// Counters of the sketch that are full and count no further.
    pub full_counters: usize,
}

impl Measurement for Frequency {
    /// Whether a row has no filter, so that the filter of other rows does not know its flows.
    type UnionState = bool;

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        let (rows, cells) = (reading.rows, &reading.bank.frequency);
        let (filter, filtered) = (&reading.bank.membership, reading.settings.membership);
        Ok(Sketched::new(&reading.settings.frequency, rows).map(|sketch| {
            let Sketched { key, kind, shape, .. } = sketch;
            // The filter has no false negatives for the packets that it has seen.
            let is_whole = reading.union_states.is_none_or(|states| !states.frequency);
            let is_filtered = filtered.on && filtered.key == key && is_whole;
            let (_, most) = reading.packets_while_read();
            let packets = |flow: &FlowKey| {
                let (crc, tabulation) = (rows.signature(flow), &rows.tabulation);
                let is_seen = !is_filtered || filter.contains(filtered.shape, crc, tabulation);
                is_seen.then(|| estimate::estimate(cells, kind, shape, crc, tabulation, most))
            };
            let flows = reading.asked(key, packets, |exact| exact.packets);
            Frequency { sketch, flows, full_counters: cells.full(shape) }
        }))
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        let Some(it) = report else { return };
        let kind = it.sketch.key;
        let text = |flow: &FlowKey| KeyText { kind, key: flow }.to_string();
        type Asked = QueriedFlow<Option<estimate::Frequency>, u64>;
        let flow = |Asked { flow, answer, truth }: &Asked| {
            let packets = answer.unwrap_or(estimate::Frequency::NONE);
            object([
                ("flow", text(flow).into()),
                ("seen", answer.is_none().then_some(false).into()),
                ("packets", packets.value.into()),
                ("low", packets.low.into()),
                ("high", packets.high.into()),
                ("confidence", packets.confidence.into()),
                ("saturated", packets.saturated.then_some(true).into()),
                ("truth", truth.datum(|truth| (*truth).into())),
            ])
        };
        to.field("key", kind.name());
        it.sketch.fields(to);
        to.field("full_counters", it.is_full().then_some(it.full_counters));
        to.field("flows", Datum::Array(it.flows.iter().map(flow).collect()));

        let flows = it.flows.iter().map(|Asked { flow, answer, truth }| {
            let packets = answer.unwrap_or(estimate::Frequency::NONE);
            let not_seen = answer.is_none().then(|| NOT_SEEN.to_owned());
            RankingItem {
                name: text(flow),
                number: Number { value: packets.value, low: packets.low, high: packets.high },
                // Pages show rates: the unit says that this is the number of a window.
                more: not_seen
                    .or_else(|| truth.note(|truth| format!("truth {}", counted(*truth, "packet"))))
                    .unwrap_or_default(),
            }
        });
        let title = "packets of the flows that are asked for";
        to.ranking("asked_flows", title, Unit::Things, &[("key", kind.name())], flows);
    }

    fn known(settings: &Settings, _: &Estimation) -> Vec<KnownFigure> {
        let sketch = &settings.frequency;
        let known =
            || KnownFigure::new("asked_flows", Unit::Things).label("key", [sketch.key.name()]);
        sketch.is_on().then(known).into_iter().collect()
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        sketched::store("frequency", &counted.settings.frequency, &counted.bank.frequency, row);
    }

    fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
        sketched::check("frequency", row, totals)
    }

    fn restore(
        row: &Row,
        settings: &mut Settings,
        bank: &mut WindowTotals,
        lacks_filter: &mut bool,
    ) -> Result<(), RowDefect> {
        if let Some(sketch) = sketched::restore("frequency", row, &mut bank.frequency)? {
            settings.frequency = sketch;
            *lacks_filter |= row.maybe_text("membership_key").is_none();
        }
        Ok(())
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        let rows = self.flows.iter().map(|QueriedFlow { flow, answer, truth }| {
            let (value, interval) =
                answer.map_or((NOT_SEEN.to_owned(), String::new()), |packets| {
                    let [value, low, high] =
                        [packets.value, packets.low, packets.high].map(|it| it.round() as u64);
                    (counted(value, "packet"), format!("({} … {})", grouped(low), grouped(high)))
                });
            let is_full = answer.is_some_and(|packets| packets.saturated);
            let notes = [is_full.then(|| FULL.to_owned()), truth.note(|truth| note(*truth))];
            text::DetailRow {
                name: format!("query {}", KeyText { kind: self.sketch.key, key: flow }),
                value,
                interval,
                notes: notes.into_iter().flatten().collect(),
                ..text::DetailRow::default()
            }
        });
        below.rows(&rows.collect::<Vec<_>>());
    }

    fn is_full(&self) -> bool {
        self.full_counters > 0
    }
}
