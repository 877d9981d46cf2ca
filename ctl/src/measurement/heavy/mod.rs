//! Heavy hitters: the flows with the most packets or bytes.

pub mod estimate;

use super::{ClosedBank, Damaged, Measurement, Number, Rank, ReportInput};
use crate::field::{Datum, Fields, object};
use crate::figure::{self, RankingItem};
use crate::flow::KeyText;
use crate::row::{Cells, Row, RowDefect, Value, int};
use crate::text::{self, IndentedLines, counted, grouped};
use estimate::{Flow, Top};
use flowgauge_core::heavy::{Algorithm, CountUnit, Entry, Settings};
use flowgauge_core::{FlowKey, KeyKind, WindowTotals};
use std::cmp::Reverse;

/// Options of the report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Maximum number of flows to list.
    pub top: usize,
}

impl Default for Options {
    /// Lists ten flows.
    fn default() -> Self {
        Options { top: 10 }
    }
}

/// Flows with the most packets or bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Heavy {
    /// Key that defines a flow.
    pub key: KeyKind,
    /// Unit of the counts.
    pub unit: CountUnit,
    /// Algorithm of the table.
    pub algorithm: Algorithm,
    /// Slots of the table.
    pub slots: usize,
    /// Flows with bounds on their counts.
    pub top: Top,
}

impl Heavy {
    fn text(&self, flow: &Flow) -> String {
        KeyText { kind: self.key, key: &flow.key }.to_string()
    }

    /// Formats a count with its unit.
    fn counted(&self, count: u64) -> String {
        counted(count, self.unit.name().trim_end_matches('s'))
    }

    /// Formats the `most` heaviest flows for messages.
    pub(crate) fn talkers(&self, most: usize) -> impl Iterator<Item = String> {
        self.top
            .flows
            .iter()
            .take(most)
            .map(|flow| format!("{} ({})", self.text(flow), self.counted(flow.count)))
    }
}

impl Measurement for Heavy {
    type UnionState = estimate::Union;

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        let settings = &reading.settings.heavy;
        let Settings { algorithm, key, unit, .. } = *settings;
        let most = reading.options.heavy.top;
        let top = || match reading.besides {
            Some(besides) => besides.heavy.top(settings, most),
            None => estimate::top(&reading.bank.heavy, settings, most),
        };
        Ok((algorithm != Algorithm::Off).then(|| Heavy {
            key,
            unit,
            algorithm,
            slots: settings.slots(),
            top: top(),
        }))
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        let heaviest = report.and_then(|it| Some((it, it.top.flows.first()?)));
        to.column(heaviest.map(|(it, flow)| it.text(flow))).csv(50, "heaviest");
        to.column(heaviest.map(|(_, flow)| flow.count)).csv(51, "heaviest_count");
        let Some(it) = report else { return };
        let flow = |flow: &Flow| {
            object([
                ("flow", it.text(flow).into()),
                ("count", flow.count.into()),
                ("low", flow.low.into()),
                ("high", flow.high.into()),
            ])
        };
        to.field("key", it.key.name()).lake("heavy_key");
        to.field("unit", it.unit.name()).lake("heavy_unit");
        to.field("algorithm", it.algorithm.name()).lake("heavy_algorithm");
        to.field("slots", it.slots).lake("heavy_slots");
        to.field("total", it.top.total);
        to.field("absent", it.top.absent);
        to.field("flows", Datum::Array(it.top.flows.iter().map(flow).collect()));

        let unit = match it.unit {
            CountUnit::Packets => figure::Unit::Things,
            CountUnit::Bytes => figure::Unit::Bytes,
        };
        let total = it.top.total.max(1) as f64;
        let flows = it.top.flows.iter().map(|flow| RankingItem {
            name: it.text(flow),
            number: Number {
                value: flow.count as f64,
                low: flow.low as f64,
                high: flow.high as f64,
            },
            more: format!("{:.2} %", flow.count as f64 / total * 100.0),
        });
        let labels = [("key", it.key.name()), ("by", it.unit.name())];
        to.ranking("heavy_flows", "heaviest flows", unit, &labels, flows);
    }

    fn columns() -> &'static [&'static str] {
        &["heavy"]
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        let (table, settings) = (&counted.bank.heavy, &counted.settings.heavy);
        row.int("heavy_total", table.total());
        row.int("heavy_packets", table.packets().into());
        // Store nothing that depends on a flow's hash: enough signatures, or parts of them such as
        // slot numbers, reveal the secret of the hash.
        let mut taken: Vec<Entry> = table.entries(settings).collect();
        taken.sort_unstable_by_key(|entry| (Reverse(entry.count), entry.key));
        let ints = |value: &dyn Fn(&Entry) -> u64| {
            Cells::Int(taken.iter().map(|entry| int(value(entry))).collect())
        };
        let flow = |entry: &Entry| KeyText { kind: self.key, key: &entry.key }.to_string();
        let columns = vec![
            ("flow".into(), Cells::Text(taken.iter().map(flow).collect())),
            ("count".into(), ints(&|entry| entry.count)),
            ("inherited".into(), ints(&|entry| entry.inherited)),
            (
                "key".into(),
                Cells::Bytes(taken.iter().map(|entry| entry.key.as_bytes().to_vec()).collect()),
            ),
        ];
        row.put("heavy", Value::Table(columns));
    }

    fn restore(
        row: &Row,
        settings: &mut flowgauge_core::Settings,
        _: &mut WindowTotals,
        union: &mut Self::UnionState,
    ) -> Result<(), RowDefect> {
        let Some(algorithm) = row.named("heavy_algorithm", &Algorithm::ALL, Algorithm::name)?
        else {
            return Ok(());
        };
        let missing = |column: &str| format!("column {column} is missing");
        let key = row
            .named("heavy_key", &KeyKind::ALL, KeyKind::name)?
            .ok_or_else(|| missing("heavy_key"))?;
        let unit = row
            .named("heavy_unit", &CountUnit::ALL, CountUnit::name)?
            .ok_or_else(|| missing("heavy_unit"))?;
        let slots: usize = row.number("heavy_slots")?;
        let heavy = Settings { algorithm, key, unit, slots_log2: slots.max(1).ilog2() as u8 };
        if heavy.slots() != slots {
            return Err(format!("column heavy_slots has {slots}"));
        }
        let total: u64 = row.number("heavy_total")?;
        let most = match unit {
            CountUnit::Packets => row.number("packets")?,
            CountUnit::Bytes => row.number("bytes")?,
        };
        if total > most {
            return Err(format!(
                "column heavy_total has {total} {}, and the window {most}",
                unit.name()
            ));
        }
        let table = row.table("heavy")?;
        let sum: i128 = table.ints("count")?.iter().map(|count| i128::from(*count)).sum();
        // A flow inherits only what another one loses, and cores that count separately add up to no
        // more.
        if sum > 4 * i128::from(total) {
            return Err(format!(
                "column heavy has {sum} {} in all, and the window {total}",
                unit.name()
            ));
        }
        let (counts, inherited) = (table.ints("count")?, table.ints("inherited")?);
        let keys = table.blobs("key")?;
        let mut entries = Vec::with_capacity(counts.len());
        for ((count, inherited), bytes) in counts.iter().zip(inherited).zip(keys) {
            if !key.lengths().contains(&bytes.len()) {
                return Err(format!(
                    "column heavy.key has {} bytes, which is no {}",
                    bytes.len(),
                    key.name()
                ));
            }
            let entry = Entry {
                signature: 0,
                key: FlowKey::new(bytes),
                count: u64::try_from(*count).unwrap_or(u64::MAX),
                inherited: u64::try_from(*inherited).unwrap_or(u64::MAX),
            };
            if entry.count > total || entry.inherited > entry.count {
                return Err(format!(
                    "column heavy has a flow with {count} {}, {inherited} of them inherited, and the window {total}",
                    unit.name()
                ));
            }
            entries.push(entry);
        }
        union.add(&entries, total, &heavy);
        settings.heavy = heavy;
        Ok(())
    }

    fn rank(&self) -> Rank {
        Rank::Top
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        let rows = self.top.flows.iter().map(|flow| {
            let share = flow.count as f64 / self.top.total.max(1) as f64 * 100.0;
            text::DetailRow {
                name: self.text(flow),
                value: self.counted(flow.count),
                share: format!("{share:.1} %"),
                interval: format!("({} … {})", grouped(flow.low), grouped(flow.high)),
                ..text::DetailRow::default()
            }
        });
        below.rows(&rows.collect::<Vec<_>>());
    }
}
