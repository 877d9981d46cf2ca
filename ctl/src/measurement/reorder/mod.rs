//! Prefixes whose segments arrive out of order.

pub mod estimate;

use super::laws::{self, MAX_COUNT, RowTotals, require};
use super::{
    ClosedBank, Damaged, Estimation, ExactValue, Measurement, Number, ReportInput, UnionStates,
};
use crate::field::{Datum, Fields, object};
use crate::figure::{KnownFigure, RankingItem, Unit};
use crate::row::{Cells, CounterColumn, Row, RowDefect, TableBuilder};
use crate::text::{self, IndentedLines, counted, grouped};
use estimate::DetectionQuality;
use flowgauge_core::WindowTotals;
use flowgauge_core::reorder::{Algorithm, MAX_PREFIXES, PrefixCounts, Settings};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Number of prefixes to list, by the lower bound of their rate.
pub type Options = super::ListOptions;

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
    /// Quality of detection, by the exact counts of all flows.
    pub truth: ExactValue<DetectionQuality>,
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

/// Counts of a prefix in a lake's table.
const COUNTS: [CounterColumn<PrefixCounts>; 6] = [
    ("packets", |it| &mut it.packets),
    ("out_of_order", |it| &mut it.out_of_order),
    ("retransmitted", |it| &mut it.retransmitted),
    ("gaps", |it| &mut it.gaps),
    ("flows", |it| &mut it.flows),
    ("squares", |it| &mut it.squares),
];

/// Prefixes of a lake row.
struct StoredPrefixes {
    settings: Settings,
    /// Segments that are of no prefix: unfollowed, contended, crowded.
    others: [u64; 3],
    prefixes: Vec<PrefixCounts>,
}

impl StoredPrefixes {
    /// Returns the prefixes of a row; `None` if it has none.
    fn of(row: &Row) -> Result<Option<Self>, RowDefect> {
        let Some(algorithm) = row.named("reorder_algorithm", &Algorithm::ALL, Algorithm::name)?
        else {
            return Ok(None);
        };
        let buckets: u32 = row.number("reorder_buckets")?;
        let (v4_bits, v6_bits) =
            (row.number("reorder_ipv4_bits")?, row.number("reorder_ipv6_bits")?);
        let settings =
            Settings { algorithm, slots_log2: buckets.max(1).ilog2() as u8, v4_bits, v6_bits };
        settings.problem().map_or(Ok(()), |problem| Err(problem.to_owned()))?;
        require(buckets == 1 << settings.slots_log2, || {
            format!("column reorder_buckets has {buckets}")
        })?;
        let table = row.table("reorder")?;
        for (column, _) in COUNTS {
            laws::sum(&format!("reorder.{column}"), table.ints(column)?, MAX_COUNT)?;
        }
        let bits = table.ints("bits")?.iter();
        let prefix =
            |bits: &i64| PrefixCounts { prefix: bits.cast_unsigned(), ..Default::default() };
        let mut prefixes: Vec<PrefixCounts> = bits.map(prefix).collect();
        table.counters(&COUNTS, &mut prefixes)?;
        let [unfollowed, contended, crowded] =
            ["reorder_unfollowed", "reorder_contended", "reorder_crowded"]
                .map(|column| laws::count(row, column));
        let others = [unfollowed?, contended?, crowded?];
        Ok(Some(StoredPrefixes { settings, others, prefixes }))
    }
}

/// Memory of a prefix in the map of a union, in bytes.
const PREFIX_BYTES: usize = 96;

/// Counts of prefixes in a union of lake rows, as many as a window has places for. Sums of segments
/// are no more than those of packets, which the union limits.
#[derive(Default)]
pub(crate) struct PrefixUnion {
    prefixes: BTreeMap<u64, PrefixCounts>,
    /// Segments that are of no prefix, as in a row.
    others: [u64; 3],
}

impl PrefixUnion {
    fn add(&mut self, stored: &StoredPrefixes) -> Result<(), RowDefect> {
        for (sum, others) in self.others.iter_mut().zip(stored.others) {
            *sum = sum.saturating_add(others);
        }
        let [.., crowded] = &mut self.others;
        for counts in &stored.prefixes {
            let number = self.prefixes.len();
            match self.prefixes.entry(counts.prefix) {
                Entry::Occupied(mut sum) => {
                    let both = plus(sum.get(), counts);
                    require(both.squares < u64::MAX, || {
                        "more squares of late segments in all than a number can hold".to_owned()
                    })?;
                    sum.insert(both);
                }
                Entry::Vacant(place) if number < MAX_PREFIXES => _ = place.insert(*counts),
                Entry::Vacant(_) => *crowded = crowded.saturating_add(counts.packets),
            }
        }
        Ok(())
    }
}

/// Returns the sum of both, saturated: counts of rows may be of any size.
fn plus(one: &PrefixCounts, other: &PrefixCounts) -> PrefixCounts {
    let (mut both, mut other) = (*one, *other);
    for (_, count) in COUNTS {
        let sum = count(&mut both);
        *sum = sum.saturating_add(*count(&mut other));
    }
    both
}

impl Measurement for Reordering {
    type UnionState = PrefixUnion;

    fn union_bytes(union: &Self::UnionState) -> usize {
        PREFIX_BYTES * union.prefixes.len()
    }

    fn of(reading: &ReportInput<'_>) -> Result<Option<Self>, Damaged> {
        let (settings, bank) = (reading.settings.reorder, &reading.bank.reorder);
        if settings.algorithm == Algorithm::Off {
            return Ok(None);
        }
        let truths = reading.exact(|snapshot| snapshot.prefixes.as_deref());
        // Exact counts are sorted by prefix.
        let truth = |prefix: u64| {
            let all = truths.known()?;
            all.get(all.binary_search_by_key(&prefix, |it| it.prefix).ok()?).copied()
        };
        let report = |counts: &PrefixCounts| ReorderingPrefix {
            name: Name(&settings, counts.prefix).to_string(),
            counts: *counts,
            rate: estimate::rate(counts),
            truth: truth(counts.prefix),
        };
        let (counts, others): (Vec<&PrefixCounts>, _) = match reading.union_states {
            Some(UnionStates { reorder, .. }) => {
                (reorder.prefixes.values().collect(), reorder.others)
            }
            None => (bank.prefixes().collect(), [bank.unfollowed, bank.contended, bank.crowded]),
        };
        let number = counts.len();
        let sum = counts.iter().fold(PrefixCounts::default(), |sum, prefix| plus(&sum, prefix));
        let mut prefixes: Vec<ReorderingPrefix> = counts.into_iter().map(report).collect();
        // By certain rate, then by the amount of evidence; the name makes the order deterministic.
        let rank = |it: &ReorderingPrefix| (it.rate.low, it.counts.out_of_order, it.counts.packets);
        prefixes.sort_by(|one, other| {
            rank(other)
                .partial_cmp(&rank(one))
                .unwrap_or(std::cmp::Ordering::Equal)
                .then_with(|| one.counts.prefix.cmp(&other.counts.prefix))
        });
        prefixes.truncate(reading.options.reorder.top);
        let [unfollowed, contended, crowded] = others;
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
        let quality = |&DetectionQuality { reordering, found, wrongly }: &DetectionQuality| {
            let (reordering, found) = (reordering.into(), found.into());
            object([("reordering", reordering), ("found", found), ("wrongly", wrongly.into())])
        };
        to.field("truth", it.truth.datum(quality));
        let prefixes = it.prefixes.iter().map(ReorderingPrefix::json);
        to.field("prefixes", Datum::Array(prefixes.collect()));
        let worst = it.prefixes.first();
        to.column(worst.map(|it| it.name.clone())).csv(183, "reorder_prefix");
        to.column(worst.map(|it| it.rate.value)).csv(184, "reorder_rate");
        to.column(worst.map(|it| it.rate.low)).csv(185, "reorder_rate_low");
        to.column(worst.map(|it| it.rate.high)).csv(186, "reorder_rate_high");
        let truth = worst.and_then(|it| it.truth.as_ref().map(estimate::share));
        to.column(truth).csv(187, "reorder_rate_truth");

        let PrefixCounts { packets, out_of_order, retransmitted, .. } = it.sum;
        let segments =
            [("all", packets), ("out-of-order", out_of_order), ("retransmitted", retransmitted)];
        let title = "TCP segments of prefixes that were followed";
        to.counts("tcp_segments", title, "what", segments);
        let prefixes = it.prefixes.iter().map(|prefix| RankingItem {
            name: prefix.name.clone(),
            number: prefix.rate,
            more: format!(
                "{} of {}{}",
                grouped(prefix.counts.out_of_order),
                counted(prefix.counts.packets, "segment"),
                prefix.truth.as_ref().map_or_else(String::new, |truth| {
                    format!(", truth {:.2} %", estimate::share(truth) * 100.0)
                })
            ),
        });
        let title = "share of segments out of order";
        to.ranking("reordering_prefixes", title, Unit::Ratio, &[], prefixes);
    }

    fn known(settings: &flowgauge_core::Settings, _: &Estimation) -> Vec<KnownFigure> {
        if settings.reorder.algorithm == Algorithm::Off {
            return Vec::new();
        }
        let what = ["all", "out-of-order", "retransmitted"];
        vec![
            KnownFigure::new("tcp_segments", Unit::Things).label("what", what),
            KnownFigure::new("reordering_prefixes", Unit::Ratio),
        ]
    }

    fn store(&self, counted: &ClosedBank, row: &mut Row) {
        let prefixes: Vec<PrefixCounts> = counted.bank.reorder.prefixes().copied().collect();
        let table = TableBuilder::new(&prefixes)
            .add("prefix", Cells::Text, |it| Name(&self.settings, it.prefix).to_string())
            .counters(&COUNTS)
            // The value may have its top bit set.
            .add("bits", Cells::Int, |it| it.prefix.cast_signed());
        row.put("reorder", table.into());
    }

    fn check(row: &Row, totals: &RowTotals) -> Result<(), RowDefect> {
        let Some(StoredPrefixes { settings, others, prefixes }) = StoredPrefixes::of(row)? else {
            return Ok(());
        };
        let packets = totals.flow_packets;
        require(prefixes.len() <= MAX_PREFIXES, || {
            format!("column reorder has {} prefixes; at most {MAX_PREFIXES}", prefixes.len())
        })?;
        let mut sum = others.iter().fold(0_u64, |sum, others| sum.saturating_add(*others));
        let mut seen = BTreeSet::new();
        for counts in &prefixes {
            let PrefixCounts { prefix, packets: segments, flows, squares, .. } = *counts;
            let name = Name(&settings, prefix);
            let bits = match prefix & 0xff {
                4 => Some(settings.v4_bits),
                6 => Some(settings.v6_bits),
                _ => None,
            };
            let is_prefix = bits.is_some_and(|bits| (prefix & !0xff) << bits == 0);
            require(is_prefix && seen.insert(prefix), || {
                format!("column reorder.bits has {prefix:#018x}, which is no prefix, or twice")
            })?;
            let late = counts.out_of_order;
            let classes = late.saturating_add(counts.retransmitted).saturating_add(counts.gaps);
            require(classes <= segments, || {
                format!(
                    "column reorder has {classes} segments of {name} out of order, sent again or behind gaps, of {segments}"
                )
            })?;
            require(flows <= segments, || {
                format!("column reorder has {flows} flows of {name}, and {segments} segments")
            })?;
            require(u128::from(squares) <= u128::from(late) * u128::from(late), || {
                format!(
                    "column reorder has squares {squares} of {name}, too much for {late} out of order"
                )
            })?;
            sum = sum.saturating_add(segments);
        }
        require(sum <= packets, || {
            format!("column reorder has {sum} segments in all, and the window {packets} packets")
        })
    }

    fn restore(
        row: &Row,
        settings: &mut flowgauge_core::Settings,
        _: &mut WindowTotals,
        union: &mut PrefixUnion,
    ) -> Result<(), RowDefect> {
        let Some(stored) = StoredPrefixes::of(row)? else { return Ok(()) };
        union.add(&stored)?;
        settings.reorder = stored.settings;
        Ok(())
    }

    fn lines(&self, below: &mut IndentedLines<'_>) {
        let sum = &self.sum;
        let others = [self.unfollowed, self.contended, self.crowded];
        let seen = others.into_iter().fold(sum.packets, u64::saturating_add);
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
        phrases.extend(self.truth.note(|&DetectionQuality { reordering, found, wrongly }| {
            format!("truth: {found} of {reordering} large ones that reorder were found, {wrongly} wrongly")
        }));
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
