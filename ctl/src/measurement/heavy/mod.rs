//! Heavy hitters: the flows with the most packets or bytes.

pub mod estimate;
mod truth;

pub use truth::HeavyTruth;

use super::exact_value::note;
use super::laws::{RowTotals, require};
use super::{ClosedBank, Damaged, Estimation, ExactValue, Measurement, Number, ReportInput};
use crate::field::{Datum, Fields, object};
use crate::figure::{self, KnownFigure, RankingItem};
use crate::flow::KeyText;
use crate::row::{Cells, Row, RowDefect, TableBuilder, int};
use crate::text::{self, IndentedLines, counted, grouped};
use estimate::{Flow, StoredTable, Top};
use flowgauge_core::heavy::{Algorithm, CountUnit, Entry, Settings};
use flowgauge_core::{FlowKey, KeyKind, WindowTotals};
use std::cmp::Reverse;

/// Mark of a flow that does not stand out.
const UNSURE: &str = "may not be among the heaviest";

/// Number of flows to list.
pub type Options = super::ListOptions;

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
    /// The same flows beside exact counts of all.
    pub truth: ExactValue<HeavyTruth>,
}

impl Heavy {
    fn text(&self, flow: &Flow) -> String {
        KeyText { kind: self.key, key: &flow.key }.to_string()
    }

    /// Returns the exact count of each flow, if it is known.
    fn truths(&self) -> impl Iterator<Item = Option<u64>> {
        let known = self.truth.known().map_or(&[][..], |truth| truth.counts.as_slice());
        known.iter().copied().map(Some).chain(std::iter::repeat(None)).take(self.top.flows.len())
    }

    /// Returns a flow's share of all packets or bytes, in percent.
    fn share(&self, flow: &Flow) -> f64 {
        flow.count as f64 / self.top.total.max(1) as f64 * 100.0
    }

    /// Returns the sentence on what other flows can have at most; `None` if there are no others.
    fn rest(&self) -> Option<String> {
        let stands_out = self.top.flows.iter().any(|flow| flow.stands_out);
        let (which, most) = if stands_out {
            ("no other flow", self.top.rest)
        } else {
            ("no flow", self.top.heaviest())
        };
        let sure = if estimate::admits_by_chance(self.algorithm) { " (95 %)" } else { "" };
        (self.top.rest > 0).then(|| format!("{which} is heavier than {}{sure}", self.counted(most)))
    }

    /// Formats a count with its unit.
    fn counted(&self, count: u64) -> String {
        counted(count, self.unit.name().trim_end_matches('s'))
    }
}

/// Maximum least count of merged tables, as a multiple of their total. The least count of one table is
/// at most the count of a slot, which PRECISION rounds up to less than twice as much. Each merge adds
/// the largest count that it discards. These counts have no packet in common, so that their sum is at
/// most the total, but with SpaceSaving, whose flows inherit packets: there each of them is at most
/// the mean of the slots, a 16th of the total, and 256 workers are 255 merges.
const MAX_LEAST_TOTALS: u64 = 16;

impl StoredTable {
    /// Returns the table of a row; `None` if it has none.
    fn of(row: &Row) -> Result<Option<Self>, RowDefect> {
        let Some(algorithm) = row.named("heavy_algorithm", &Algorithm::ALL, Algorithm::name)?
        else {
            return Ok(None);
        };
        let key = row.must_name("heavy_key", &KeyKind::ALL, KeyKind::name)?;
        let unit = row.must_name("heavy_unit", &CountUnit::ALL, CountUnit::name)?;
        let slots: usize = row.number("heavy_slots")?;
        let settings = Settings { algorithm, key, unit, slots_log2: slots.max(1).ilog2() as u8 };
        require(settings.slots() == slots, || format!("column heavy_slots has {slots}"))?;
        let table = row.table("heavy")?;
        let (counts, inherited) = (table.ints("count")?, table.ints("inherited")?);
        let keys = table.blobs("key")?;
        require(counts.len() <= slots, || {
            format!("column heavy has {} flows, and {slots} slots", counts.len())
        })?;
        let mut entries = Vec::with_capacity(counts.len());
        for ((count, inherited), bytes) in counts.iter().zip(inherited).zip(keys) {
            require(key.lengths().contains(&bytes.len()), || {
                format!("column heavy.key has {} bytes, which is no {}", bytes.len(), key.name())
            })?;
            entries.push(Entry {
                signature: 0,
                key: FlowKey::new(bytes),
                count: u64::try_from(*count).unwrap_or(u64::MAX),
                inherited: u64::try_from(*inherited).unwrap_or(u64::MAX),
            });
        }
        let total: u64 = row.number("heavy_total")?;
        // Rows of version 0.1 do not have them. A packet raises one count, if any, so the least
        // counts of all merged tables add up to no more than the share of a slot.
        let slot_share = total / settings.slots() as u64;
        let least = row.number_or("heavy_least", slot_share)?;
        let least_elsewhere = row.number_or("heavy_least_elsewhere", slot_share)?;
        Ok(Some(StoredTable { settings, total, least, least_elsewhere, entries }))
    }
}

/// Returns the 95 % interval of a flow. The upper end is absent if the algorithm has none.
fn interval(flow: &Flow) -> Datum {
    object([("low", flow.low.into()), ("high", flow.likely_high.into())])
}

/// Returns the unit of the figures of heavy flows.
pub(super) fn figure_unit(unit: CountUnit) -> figure::Unit {
    match unit {
        CountUnit::Packets => figure::Unit::Things,
        CountUnit::Bytes => figure::Unit::Bytes,
    }
}

impl Measurement for Heavy {
    type UnionState = estimate::Union;

    fn union_bytes(union: &Self::UnionState) -> usize {
        union.bytes()
    }

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        let settings = &reading.settings.heavy;
        let Settings { algorithm, key, unit, .. } = *settings;
        let most = reading.options.heavy.top;
        let top = || match reading.union_states {
            Some(union_states) => union_states.heavy.top(settings, most),
            None => estimate::top(&reading.bank.heavy, settings, most),
        };
        Ok((algorithm != Algorithm::Off).then(|| {
            let top = top();
            let truth = reading.exact_flows(key);
            let truth = truth.map(|exact| HeavyTruth::of(exact, unit, &top, most));
            Heavy { key, unit, algorithm, slots: settings.slots(), top, truth }
        }))
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        let heaviest = report.and_then(|it| Some((it, it.top.flows.first()?)));
        to.column(heaviest.map(|(it, flow)| it.text(flow))).csv(50, "heaviest");
        to.column(heaviest.map(|(_, flow)| flow.count)).csv(51, "heaviest_count");
        to.column(report.map(|it| it.unit.name())).csv(53, "heaviest_unit");
        to.column(heaviest.map(|(_, flow)| flow.low)).csv(54, "heaviest_low");
        to.column(heaviest.and_then(|(_, flow)| flow.likely_high)).csv(55, "heaviest_high");
        to.column(heaviest.map(|(_, flow)| flow.stands_out)).csv(56, "heaviest_stands_out");
        to.column(report.map(|it| it.top.rest)).csv(57, "heavy_rest");
        to.column(report.and_then(|it| it.truths().next()?)).csv(59, "heaviest_truth");
        let Some(it) = report else { return };
        let flow = |(flow, truth): (&Flow, Option<u64>)| {
            object([
                ("flow", it.text(flow).into()),
                ("count", flow.count.into()),
                ("low", flow.low.into()),
                ("high", flow.high.into()),
                ("interval", interval(flow)),
                ("stands_out", flow.stands_out.into()),
                ("truth", truth.into()),
            ])
        };
        to.field("key", it.key.name()).lake("heavy_key");
        to.field("unit", it.unit.name()).lake("heavy_unit");
        to.field("algorithm", it.algorithm.name()).lake("heavy_algorithm");
        to.field("slots", it.slots).lake("heavy_slots");
        to.field("total", it.top.total);
        to.field("absent", it.top.absent);
        to.field("rest", it.top.rest);
        let confidence = if estimate::admits_by_chance(it.algorithm) { 0.95 } else { 1.0 };
        to.field("confidence", confidence);
        to.field("truth", it.truth.datum(HeavyTruth::datum));
        to.field("flows", Datum::Array(it.top.flows.iter().zip(it.truths()).map(flow).collect()));

        let unit = figure_unit(it.unit);
        let flows = it.top.flows.iter().zip(it.truths()).map(|(flow, truth)| RankingItem {
            name: it.text(flow),
            number: flow.number(),
            more: [
                Some(format!("{:.2} %", it.share(flow))),
                (!flow.stands_out).then(|| "unsure".to_owned()),
                // Pages show rates: the unit says that this is the number of a window.
                truth.map(|truth| format!("truth {}", it.counted(truth))),
            ]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", "),
        });
        let labels = [("key", it.key.name()), ("by", it.unit.name())];
        to.ranking("heavy_flows", "heaviest flows", unit, &labels, flows);
        let rest = it.top.rest as f64;
        let rest = Number { value: rest, low: rest, high: rest };
        let title = "upper bound of the flows that are not listed";
        to.number("heavy_rest", title, unit, &labels, rest);
    }

    fn known(settings: &flowgauge_core::Settings, _: &Estimation) -> Vec<KnownFigure> {
        let Settings { algorithm, key, unit, .. } = settings.heavy;
        let known = |name| {
            KnownFigure::new(name, figure_unit(unit))
                .label("key", [key.name()])
                .label("by", [unit.name()])
        };
        let figures = ["heavy_flows", "heavy_rest"].into_iter();
        figures.filter(|_| algorithm != Algorithm::Off).map(known).collect()
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        let (table, settings) = (&counted.bank.heavy, &counted.settings.heavy);
        row.int("heavy_total", table.total());
        row.int("heavy_packets", table.packets().into());
        row.int("heavy_least", table.least(settings));
        row.int("heavy_least_elsewhere", table.least_elsewhere());
        // Store nothing that depends on a flow's hash: enough signatures, or parts of them such as
        // slot numbers, reveal the secret of the hash.
        let mut taken: Vec<Entry> = table.entries(settings).collect();
        taken.sort_unstable_by_key(|entry| (Reverse(entry.count), entry.key));
        let table = TableBuilder::new(&taken)
            .add("flow", Cells::Text, |it| KeyText { kind: self.key, key: &it.key }.to_string())
            .add("count", Cells::Int, |it| int(it.count))
            .add("inherited", Cells::Int, |it| int(it.inherited))
            .add("key", Cells::Bytes, |it| it.key.as_bytes().to_vec());
        row.put("heavy", table.into());
    }

    fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
        let Some(table) = StoredTable::of(row)? else { return Ok(()) };
        let StoredTable { settings, total, least, least_elsewhere, entries } = table;
        let unit = settings.unit.name();
        let most = match settings.unit {
            CountUnit::Packets => totals.flow_packets,
            CountUnit::Bytes => totals.bytes,
        };
        require(total <= most, || {
            format!("column heavy_total has {total} {unit}, and the window {most}")
        })?;
        let packets: u64 = row.number("heavy_packets")?;
        require(packets <= totals.flow_packets, || {
            let most = totals.flow_packets;
            format!("column heavy_packets has {packets}, and the window {most}")
        })?;
        for Entry { count, inherited, .. } in &entries {
            require(*count <= total && inherited <= count, || {
                format!(
                    "column heavy has a flow with {count} {unit}, {inherited} of them inherited, and the window {total}"
                )
            })?;
        }
        require(entries.is_sorted_by(|one, next| one.count >= next.count), || {
            "column heavy does not have the largest flow first".to_owned()
        })?;
        let sum = |value: fn(&Entry) -> u64| {
            entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(value(entry)))
        };
        // A flow inherits only what another one loses, and cores that count separately add up to no
        // more.
        let counted = sum(|entry| entry.count);
        require(counted <= total.saturating_mul(4), || {
            format!("column heavy has {counted} {unit} in all, and the window {total}")
        })?;
        let own = sum(|entry| entry.count - entry.inherited);
        require(own <= total, || {
            format!("column heavy has {own} {unit} of flows' own, and the window {total}")
        })?;
        require(least <= total.saturating_mul(MAX_LEAST_TOTALS), || {
            format!("column heavy_least has {least} {unit}, and the window {total}")
        })?;
        require(least_elsewhere <= least, || {
            format!("column heavy_least_elsewhere has {least_elsewhere} {unit} of {least}")
        })
    }

    fn restore(
        row: &Row,
        settings: &mut flowgauge_core::Settings,
        _: &mut WindowTotals,
        union: &mut Self::UnionState,
    ) -> Result<(), RowDefect> {
        let Some(table) = StoredTable::of(row)? else { return Ok(()) };
        union.add(&table);
        settings.heavy = table.settings;
        Ok(())
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        let rows = self.top.flows.iter().zip(self.truths()).map(|(flow, truth)| {
            let low = grouped(flow.low);
            text::DetailRow {
                name: self.text(flow),
                value: self.counted(flow.count),
                share: format!("{:.1} %", self.share(flow)),
                interval: match flow.likely_high {
                    Some(high) => format!("({low} … {})", grouped(high)),
                    None => format!("({low} or more)"),
                },
                notes: [(!flow.stands_out).then(|| UNSURE.to_owned()), truth.map(note)]
                    .into_iter()
                    .flatten()
                    .collect(),
            }
        });
        below.rows(&rows.collect::<Vec<_>>());
        if let Some(rest) = self.rest() {
            below.line(&[rest]);
        }
        if let Some(truth) = self.truth.note(HeavyTruth::text) {
            below.line(&[truth]);
        }
    }
}
