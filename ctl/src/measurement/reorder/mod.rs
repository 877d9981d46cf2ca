//! Which prefixes reorder packets.

pub mod estimate;

use super::{Cell, Damaged, Measurement, Number, Place, Rank, Reading};
use crate::text::{Below, counted, grouped, optional};
use estimate::Recall;
use flowgauge_core::reorder::{Algorithm, Prefix, Settings};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// How many prefixes to tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Those that surely reorder most, so many.
    pub top: usize,
}

impl Default for Options {
    /// Ten.
    fn default() -> Self {
        Options { top: 10 }
    }
}

/// Which prefixes reorder packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Reordering {
    /// How flows were followed.
    pub settings: Settings,
    /// Prefixes of which a flow was followed.
    pub number: usize,
    /// What the followed flows of all of them did.
    pub sum: Prefix,
    /// Those that surely reorder most.
    pub prefixes: Vec<Reordered>,
    /// Segments of flows that were not followed.
    pub unfollowed: u64,
    /// Segments that came while another core looked at their flow.
    pub contended: u64,
    /// Followed segments of prefixes that found no place.
    pub crowded: u64,
    /// How well prefixes were found, if all flows were counted.
    pub truth: Option<Recall>,
}

/// A prefix that reorders.
#[derive(Clone, Debug, PartialEq)]
pub struct Reordered {
    /// As text, `10.0.0.0/24`.
    pub name: String,
    /// What its followed flows did.
    pub counts: Prefix,
    /// The share of segments out of order.
    pub rate: Number,
    /// What all of its flows did, if that was counted.
    pub truth: Option<Prefix>,
}

/// A prefix as text.
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
    fn of(reading: &Reading<'_>) -> Result<Option<Self>, Damaged> {
        let (settings, bank) = (reading.settings.reorder, &reading.bank.reorder);
        if settings.algorithm == Algorithm::Off {
            return Ok(None);
        }
        let truths = reading.snapshot.and_then(|snapshot| snapshot.prefixes.as_deref());
        // They are in the order of prefixes.
        let truth = |prefix: u64| truths.and_then(|all| Some(all[all.binary_search_by_key(&prefix, |it| it.prefix).ok()?]));
        let of = |counts: &Prefix| Reordered {
            name: Name(&settings, counts.prefix).to_string(),
            counts: *counts,
            rate: estimate::rate(counts),
            truth: truth(counts.prefix),
        };
        let mut prefixes: Vec<Reordered> = bank.prefixes().map(of).collect();
        let number = prefixes.len();
        let sum = bank.prefixes().fold(Prefix::default(), |sum, prefix| sum.plus(prefix));
        // Those that surely reorder, then those that may because much of them was seen; names, so that the order is always the same.
        let rank = |it: &Reordered| (it.rate.low, it.counts.out_of_order, it.counts.packets);
        prefixes.sort_by(|one, other| {
            rank(other)
                .partial_cmp(&rank(one))
                .unwrap_or(std::cmp::Ordering::Equal)
                .then_with(|| one.counts.prefix.cmp(&other.counts.prefix))
        });
        prefixes.truncate(reading.options.reorder.top);
        let (unfollowed, contended, crowded) = (bank.unfollowed, bank.contended, bank.crowded);
        let truth = truths.map(|truths| estimate::recall(bank.prefixes(), truths));
        Ok(Some(Reordering { settings, number, sum, prefixes, unfollowed, contended, crowded, truth }))
    }

    fn cells(report: Option<&Self>) -> Vec<Cell> {
        let Some(report) = report else { return Vec::new() };
        let worst = report.prefixes.first();
        let cell = |name, value: Option<String>| (Place::Last, name, value.unwrap_or_default());
        vec![
            cell("reorder_segments", Some(report.sum.packets.to_string())),
            cell("reorder_out_of_order", Some(report.sum.out_of_order.to_string())),
            cell("reorder_retransmitted", Some(report.sum.retransmitted.to_string())),
            cell("reorder_prefix", worst.map(|it| it.name.clone())),
            cell("reorder_rate", worst.map(|it| it.rate.value.to_string())),
            cell("reorder_rate_low", worst.map(|it| it.rate.low.to_string())),
            cell("reorder_rate_high", worst.map(|it| it.rate.high.to_string())),
        ]
    }

    fn rank(&self) -> Rank {
        Rank::Top
    }

    fn lines(&self, below: &mut Below<'_>) {
        let sum = &self.sum;
        let seen = sum.packets + self.unfollowed + self.contended + self.crowded;
        if sum.packets == 0 {
            let followed = (seen > 0).then(|| format!("none of {} followed", counted(seen, "segment")));
            below.line(&["reordering: nothing to tell".to_owned(), followed.unwrap_or_else(|| "no TCP data".to_owned())]);
            return;
        }
        let percent = |count: u64| format!("{:.2} %", count as f64 / sum.packets as f64 * 100.0);
        let mut phrases = vec![
            format!("reordering: {} of the followed segments out of order", percent(sum.out_of_order)),
            format!("{} retransmitted", percent(sum.retransmitted)),
            format!("{} followed of {}", grouped(sum.packets), counted(seen, "segment")),
            prefixes(self.number),
        ];
        phrases.extend(
            (self.contended > 0).then(|| format!("{} came too close behind others to be followed", grouped(self.contended))),
        );
        phrases.extend((self.crowded > 0).then(|| format!("{} of prefixes that found no place", counted(self.crowded, "segment"))));
        if let Some(Recall { reordering, found, wrongly }) = self.truth {
            phrases.push(format!("truth: {found} of {reordering} large ones that reorder were found, {wrongly} wrongly"));
        }
        below.line(&phrases);
        let rows = self.prefixes.iter().filter(|it| it.counts.out_of_order > 0).map(|it| {
            let share = |share: f64| format!("{:.2}", share * 100.0);
            let late = format!("{} of {}", grouped(it.counts.out_of_order), counted(it.counts.packets, "segment"));
            let flows = counted(it.counts.flows, "flow");
            let truth = it.truth.as_ref().map(|truth| format!(", truth {} %", share(estimate::share(truth)))).unwrap_or_default();
            let interval = format!("({} … {} %), {flows}{truth}", share(it.rate.low), share(it.rate.high));
            [it.name.clone(), late, format!("{} %", share(it.rate.value)), interval]
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

/// What all flows of a prefix did.
struct Exact<'a>(&'a Prefix);

impl Serialize for Exact<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        serialize_counts(&mut line, self.0)?;
        line.serialize_entry("rate", &estimate::share(self.0))?;
        line.serialize_entry("flows", &self.0.flows)?;
        line.end()
    }
}

fn serialize_counts<M: SerializeMap>(line: &mut M, counts: &Prefix) -> Result<(), M::Error> {
    line.serialize_entry("packets", &counts.packets)?;
    line.serialize_entry("out_of_order", &counts.out_of_order)?;
    line.serialize_entry("retransmitted", &counts.retransmitted)?;
    line.serialize_entry("gaps", &counts.gaps)
}

impl Serialize for Reordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("prefix", &self.name)?;
        serialize_counts(&mut line, &self.counts)?;
        line.serialize_entry("rate", &self.rate)?;
        line.serialize_entry("flows", &self.counts.flows)?;
        optional(&mut line, "truth", self.truth.as_ref().map(Exact))?;
        line.end()
    }
}

impl Serialize for Reordering {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("algorithm", self.settings.algorithm.name())?;
        line.serialize_entry("buckets", &(1_u32 << self.settings.slots_log2))?;
        serialize_counts(&mut line, &self.sum)?;
        line.serialize_entry("unfollowed", &self.unfollowed)?;
        optional(&mut line, "contended", (self.contended > 0).then_some(self.contended))?;
        optional(&mut line, "crowded", (self.crowded > 0).then_some(self.crowded))?;
        line.serialize_entry("number", &self.number)?;
        optional(&mut line, "truth", self.truth)?;
        line.serialize_entry("prefixes", &self.prefixes)?;
        line.end()
    }
}
