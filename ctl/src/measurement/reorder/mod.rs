//! Prefixes whose segments arrive out of order.

pub mod estimate;

use super::{ClosedBank, Damaged, Measurement, Number, Rank, ReportInput};
use crate::field::{Datum, Fields, object};
use crate::figure::{RankingItem, Unit};
use crate::row::{Cells, Row, RowDefect, Value, int};
use crate::text::{self, IndentedLines, counted, grouped};
use estimate::DetectionQuality;
use flowgauge_core::WindowTotals;
use flowgauge_core::reorder::{Algorithm, PrefixCounts, Settings};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Options of the report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Maximum number of prefixes to list, by the lower bound of their rate.
    pub top: usize,
}

impl Default for Options {
    /// Lists ten prefixes.
    fn default() -> Self {
        Options { top: 10 }
    }
}

/// Reordering by prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct Reordering {
    /// Settings of the flow table.
    pub settings: Settings,
    /// Prefixes with at least one followed flow.
    pub number: usize,
    /// Counts of all followed flows.
    pub sum: PrefixCounts,
    /// Prefixes with the highest certain rates.
    pub prefixes: Vec<ReorderingPrefix>,
    /// Segments of flows that were not followed.
    pub unfollowed: u64,
    /// Segments skipped because another core was updating their flow.
    pub contended: u64,
    /// Followed segments of prefixes that did not fit into the table.
    pub crowded: u64,
    /// Quality of detection, if all flows were counted exactly.
    pub truth: Option<DetectionQuality>,
}

/// Prefix that reorders segments.
#[derive(Clone, Debug, PartialEq)]
pub struct ReorderingPrefix {
    /// Prefix as text, such as `10.0.0.0/24`.
    pub name: String,
    /// Counts of its followed flows.
    pub counts: PrefixCounts,
    /// Share of segments out of order.
    pub rate: Number,
    /// Exact counts of all its flows, if known.
    pub truth: Option<PrefixCounts>,
}

/// Prefix, formatted as text.
struct Name<'a>(&'a Settings, u64);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name(settings, prefix) = self;
        let bits = prefix & !0xff;
        match prefix & 0xff {
            4 => write!(f, "{}/{}", Ipv4Addr::from_bits((bits >> 32) as u32), settings.v4_bits),
            _ => write!(f, "{}/{}", Ipv6Addr::from_bits(u128::from(bits) << 64), settings.v6_bits),
        }
    }
}

impl Measurement for Reordering {
    type UnionState = ();

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        let (settings, bank) = (reading.settings.reorder, &reading.bank.reorder);
        if settings.algorithm == Algorithm::Off {
            return Ok(None);
        }
        let truths = reading.snapshot.and_then(|snapshot| snapshot.prefixes.as_deref());
        // Exact counts are sorted by prefix.
        let truth = |prefix: u64| {
            truths
                .and_then(|all| Some(all[all.binary_search_by_key(&prefix, |it| it.prefix).ok()?]))
        };
        let of = |counts: &PrefixCounts| ReorderingPrefix {
            name: Name(&settings, counts.prefix).to_string(),
            counts: *counts,
            rate: estimate::rate(counts),
            truth: truth(counts.prefix),
        };
        let mut prefixes: Vec<ReorderingPrefix> = bank.prefixes().map(of).collect();
        let number = prefixes.len();
        let sum = bank.prefixes().fold(PrefixCounts::default(), |sum, prefix| sum.plus(prefix));
        // By certain rate, then by the amount of evidence; the name makes the order deterministic.
        let rank = |it: &ReorderingPrefix| (it.rate.low, it.counts.out_of_order, it.counts.packets);
        prefixes.sort_by(|one, other| {
            rank(other)
                .partial_cmp(&rank(one))
                .unwrap_or(std::cmp::Ordering::Equal)
                .then_with(|| one.counts.prefix.cmp(&other.counts.prefix))
        });
        prefixes.truncate(reading.options.reorder.top);
        let (unfollowed, contended, crowded) = (bank.unfollowed, bank.contended, bank.crowded);
        let truth = truths.map(|truths| estimate::recall(bank.prefixes(), truths));
        Ok(Some(Reordering {
            settings,
            number,
            sum,
            prefixes,
            unfollowed,
            contended,
            crowded,
            truth,
        }))
    }

    fn fields(report: Option<&Self>, _: Option<&ClosedBank>, to: &mut Fields) {
        let Some(it) = report else { return };
        let Settings { algorithm, slots_log2, v4_bits, v6_bits } = it.settings;
        to.field("algorithm", algorithm.name()).lake("reorder_algorithm");
        to.field("buckets", 1_u32 << slots_log2).lake("reorder_buckets");
        to.column(v4_bits).lake("reorder_ipv4_bits");
        to.column(v6_bits).lake("reorder_ipv6_bits");
        to.field("packets", it.sum.packets).csv(180, "reorder_segments");
        to.field("out_of_order", it.sum.out_of_order).csv(181, "reorder_out_of_order");
        to.field("retransmitted", it.sum.retransmitted).csv(182, "reorder_retransmitted");
        to.field("gaps", it.sum.gaps);
        to.field("unfollowed", it.unfollowed).lake("reorder_unfollowed");
        to.field("contended", Some(it.contended).filter(|segments| *segments > 0));
        to.column(it.contended).lake("reorder_contended");
        to.field("crowded", Some(it.crowded).filter(|segments| *segments > 0));
        to.column(it.crowded).lake("reorder_crowded");
        to.field("number", it.number);
        if let Some(DetectionQuality { reordering, found, wrongly }) = it.truth {
            let (reordering, found) = (reordering.into(), found.into());
            let wrongly = ("wrongly", wrongly.into());
            to.field("truth", object([("reordering", reordering), ("found", found), wrongly]));
        }
        to.field(
            "prefixes",
            Datum::Array(it.prefixes.iter().map(ReorderingPrefix::json).collect()),
        );
        let worst = it.prefixes.first();
        to.column(worst.map(|it| it.name.clone())).csv(183, "reorder_prefix");
        to.column(worst.map(|it| it.rate.value)).csv(184, "reorder_rate");
        to.column(worst.map(|it| it.rate.low)).csv(185, "reorder_rate_low");
        to.column(worst.map(|it| it.rate.high)).csv(186, "reorder_rate_high");

        let PrefixCounts { packets, out_of_order, retransmitted, .. } = it.sum;
        for (what, packets) in
            [("all", packets), ("out-of-order", out_of_order), ("retransmitted", retransmitted)]
        {
            let title = "TCP segments of prefixes that were followed";
            to.count("tcp_segments", title, Unit::Things, &[("what", what)], packets as f64);
        }
        let prefixes = it.prefixes.iter().map(|prefix| RankingItem {
            name: prefix.name.clone(),
            number: prefix.rate,
            more: format!(
                "{} of {}",
                grouped(prefix.counts.out_of_order),
                counted(prefix.counts.packets, "segment")
            ),
        });
        let title = "share of segments out of order";
        to.ranking("reordering_prefixes", title, Unit::Ratio, &[], prefixes);
    }

    fn columns() -> &'static [&'static str] {
        &["reorder"]
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        let prefixes = || counted.bank.reorder.prefixes();
        let ints = |value: fn(&PrefixCounts) -> u64| {
            Cells::Int(prefixes().map(|prefix| int(value(prefix))).collect())
        };
        let columns = vec![
            (
                "prefix".into(),
                Cells::Text(
                    prefixes().map(|it| Name(&self.settings, it.prefix).to_string()).collect(),
                ),
            ),
            ("packets".into(), ints(|it| it.packets)),
            ("out_of_order".into(), ints(|it| it.out_of_order)),
            ("retransmitted".into(), ints(|it| it.retransmitted)),
            ("gaps".into(), ints(|it| it.gaps)),
            ("flows".into(), ints(|it| it.flows)),
            ("squares".into(), ints(|it| it.squares)),
            // The value may have its top bit set.
            (
                "bits".into(),
                Cells::Int(prefixes().map(|prefix| prefix.prefix.cast_signed()).collect()),
            ),
        ];
        row.put("reorder", Value::Table(columns));
    }

    fn restore(
        row: &Row,
        settings: &mut flowgauge_core::Settings,
        bank: &mut WindowTotals,
        (): &mut (),
    ) -> Result<(), RowDefect> {
        let Some(algorithm) = row.named("reorder_algorithm", &Algorithm::ALL, Algorithm::name)?
        else {
            return Ok(());
        };
        let buckets: u32 = row.number("reorder_buckets")?;
        let (v4_bits, v6_bits) =
            (row.number("reorder_ipv4_bits")?, row.number("reorder_ipv6_bits")?);
        let reorder =
            Settings { algorithm, slots_log2: buckets.max(1).ilog2() as u8, v4_bits, v6_bits };
        if let Some(problem) = reorder.problem() {
            return Err(problem.to_owned());
        }
        let table = row.table("reorder")?;
        let columns =
            ["bits", "packets", "out_of_order", "retransmitted", "gaps", "flows", "squares"];
        let [bits, packets, out_of_order, retransmitted, gaps, flows, squares] =
            columns.map(|column| table.ints(column));
        let (bits, packets, out_of_order, retransmitted) =
            (bits?, packets?, out_of_order?, retransmitted?);
        let (gaps, flows, squares) = (gaps?, flows?, squares?);
        let at = |cells: &[i64], index: usize| cells.get(index).copied().unwrap_or(0);
        for index in 0..table.len() {
            let count = |cells| at(cells, index).unsigned_abs();
            bank.reorder.add(&PrefixCounts {
                prefix: at(bits, index).cast_unsigned(),
                packets: count(packets),
                out_of_order: count(out_of_order),
                retransmitted: count(retransmitted),
                gaps: count(gaps),
                flows: count(flows),
                squares: count(squares),
            });
        }
        bank.reorder.unfollowed = row.number("reorder_unfollowed")?;
        bank.reorder.contended = row.number("reorder_contended")?;
        bank.reorder.crowded = row.number("reorder_crowded")?;
        settings.reorder = reorder;
        Ok(())
    }

    fn rank(&self) -> Rank {
        Rank::Top
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        let sum = &self.sum;
        let seen = sum.packets + self.unfollowed + self.contended + self.crowded;
        if sum.packets == 0 {
            let followed =
                (seen > 0).then(|| format!("none of {} followed", counted(seen, "segment")));
            below.line(&[
                "reordering: nothing to tell".to_owned(),
                followed.unwrap_or_else(|| "no TCP data".to_owned()),
            ]);
            return;
        }
        let percent = |count: u64| format!("{:.2} %", count as f64 / sum.packets as f64 * 100.0);
        let mut phrases = vec![
            format!("reordering: {} out of order", percent(sum.out_of_order)),
            format!("{} retransmitted", percent(sum.retransmitted)),
            format!("{} of {} followed", grouped(sum.packets), counted(seen, "segment")),
            prefixes(self.number),
        ];
        phrases.extend((self.contended > 0).then(|| {
            format!("{} came too close behind others to be followed", grouped(self.contended))
        }));
        phrases.extend((self.crowded > 0).then(|| {
            format!("{} of prefixes that found no place", counted(self.crowded, "segment"))
        }));
        if let Some(DetectionQuality { reordering, found, wrongly }) = self.truth {
            phrases.push(format!("truth: {found} of {reordering} large ones that reorder were found, {wrongly} wrongly"));
        }
        below.line(&phrases);
        let rows = self.prefixes.iter().filter(|it| it.counts.out_of_order > 0).map(|it| {
            let share = |share: f64| format!("{:.2}", share * 100.0);
            let mut notes = vec![counted(it.counts.flows, "flow")];
            notes.extend(
                it.truth.as_ref().map(|truth| format!("truth {} %", share(estimate::share(truth)))),
            );
            text::DetailRow {
                name: it.name.clone(),
                value: format!(
                    "{} of {}",
                    grouped(it.counts.out_of_order),
                    counted(it.counts.packets, "segment")
                ),
                share: format!("{} %", share(it.rate.value)),
                interval: format!("({} … {} %)", share(it.rate.low), share(it.rate.high)),
                notes,
            }
        });
        below.rows(&rows.collect::<Vec<_>>());
    }
}

fn prefixes(number: usize) -> String {
    match number {
        1 => "1 prefix".to_owned(),
        _ => format!("{} prefixes", grouped(number as u64)),
    }
}

impl ReorderingPrefix {
    fn json(&self) -> Datum {
        let mut fields = Fields::default();
        fields.field("prefix", self.name.as_str());
        describe(&self.counts, self.rate.into(), &mut fields);
        if let Some(truth) = &self.truth {
            let mut exact = Fields::default();
            describe(truth, estimate::share(truth).into(), &mut exact);
            fields.field("truth", exact);
        }
        fields.into()
    }
}

/// Adds the counts of a prefix and its rate.
fn describe(counts: &PrefixCounts, rate: Datum, fields: &mut Fields) {
    fields.field("packets", counts.packets);
    fields.field("out_of_order", counts.out_of_order);
    fields.field("retransmitted", counts.retransmitted);
    fields.field("gaps", counts.gaps);
    fields.field("rate", rate);
    fields.field("flows", counts.flows);
}
