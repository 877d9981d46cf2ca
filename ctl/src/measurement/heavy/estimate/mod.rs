//! Heaviest flows of a table, with bounds and intervals on their counts.
//!
//! # Bounds, which are certain
//!
//! The part of a flow's count that was not inherited was counted while the flow had a slot: this is
//! `low`. The rest of all packets, beyond the sum of `low` over all flows in the table, is in no
//! flow's own count. A flow can have missed at most this rest, so `high` is `low` plus the rest.
//! SpaceSaving never counts too little (Metwally et al. 2005, lemma 3), so there `high` is at most
//! the count. HashPipe inherits nothing, so there `low` is the count.
//!
//! The bounds hold for any order of packets and any number of cores. They hold for a signature: if
//! two flows share one, for their sum.
//!
//! # Intervals of 95 %
//!
//! RAP, d-way RAP and PRECISION admit a packet of a flow without a slot over a least count of c with
//! the probability 1/(c + 1), or the power of two below it. The packets that the flow misses until
//! then have a geometric distribution. It is largest at zero, so the shortest interval of missed
//! packets begins at zero: the interval of the flow is from `low` to `low` plus a multiple of the
//! inverse probability.
//!
//! If the least count was c all the time, 95 % of flows miss up to ln 20 = 3.0 times c. But it
//! grows: each admission raises one of the least counts by one, so c grows with the root of the
//! number of packets. A flow with a steady share of the traffic met c/2 on average, and the
//! multiple is 1.5. Traffic in which flows begin at any time is in between; `MISSED` is calibrated for
//! both. A flow that appears when c hardly grows any more misses more than 1.75 c with a
//! probability of exp(-1.75) = 17 %.
//!
//! PRECISION also evicts flows that are not the smallest of others' slots, and forgets what they
//! counted; `MISSED_BY_PRECISION` allows for it. With bytes, c is in bytes, and the admission of
//! a packet of w bytes, w/(c + w), shows after at most one packet more.
//!
//! A flow of merged tables may have had no slot in some of them. What it can have missed there is
//! [`HeavyTable::least_elsewhere`] for tables of cores and windows, and is known for each flow in a
//! union of a lake's rows. A sum of geometric numbers is at most as wide as one with the sum of their
//! means (Bock et al., "Inequalities for linear combinations of gamma random variables", 1987), so
//! the intervals of merged tables are wider than they would have to be.
//!
//! HashPipe admits every packet, and forgets flows that are pushed out of its last stage: how much
//! depends on the order of packets, so there is no upper end. SpaceSaving admits every packet and
//! counts too much, by a number that depends on the order too: its interval is the bounds.
//!
//! # The rest
//!
//! `rest` is what no flow beyond the list exceeds, with a probability of 95 %. A flow of n packets
//! misses all of them with a probability of at most exp(-n/(c + 1)), whatever their order. Of u
//! packets that no flow counted as its own, at most u/n flows can have n; so all of them, and the
//! flows of the table that are not listed, missed less than x (c + 1) packets if the expected number
//! of exceptions, (u/(x (c + 1)) + flows) exp(-x), is below 5 %. A listed flow stands out if `low`
//! is at least the rest: no flow beyond the list is heavier.

use crate::figure::Number;
use flowgauge_core::FlowKey;
use flowgauge_core::heavy::{Algorithm, CountUnit, Entry, HeavyTable, Settings};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Upper 95 % limit of the count that a flow missed, for RAP and d-way RAP, as a multiple of the
/// inverse probability of admission over the least count.
const MISSED: f64 = 1.75;

/// The same for PRECISION.
const MISSED_BY_PRECISION: f64 = 3.5;

/// Bytes of a full packet: where bytes are counted, a flow may miss one more than its least count
/// says.
const FULL_PACKET_BYTES: f64 = 1500.0;

/// Probability that `rest` is too small.
const RISK: f64 = 0.05;

/// Heavy flow. All numbers are packets or bytes, as the settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Key; [`KeyText`](crate::flow::KeyText) formats it.
    pub key: FlowKey,
    /// Estimate: the table's count, limited to the bounds.
    pub count: u64,
    /// Certain lower bound, and the lower end of the 95 % interval.
    pub low: u64,
    /// Certain upper bound.
    pub high: u64,
    /// Upper end of the 95 % interval; `None` for HashPipe, which has none.
    pub likely_high: Option<u64>,
    /// Whether no flow beyond the list is heavier, as far as [`Top::rest`] holds.
    pub stands_out: bool,
}

impl Flow {
    /// Returns the count with its 95 % interval; up to the certain bound if it has no upper end.
    pub(crate) fn number(&self) -> Number {
        let high = self.likely_high.unwrap_or(self.high);
        Number { value: self.count as f64, low: self.low as f64, high: high as f64 }
    }
}

/// Heaviest flows of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top {
    /// Flows, the heaviest first; for equal counts the lower key first.
    pub flows: Vec<Flow>,
    /// Total of all flows.
    pub total: u64,
    /// Certain upper bound for any flow without a slot in the table.
    pub absent: u64,
    /// Upper bound for all flows that are not listed: with a probability of 95 % if the algorithm
    /// [admits by chance](admits_by_chance), else certain.
    pub rest: u64,
}

impl Top {
    /// Returns the largest upper end of all flows: no flow is heavier, listed or not.
    #[must_use]
    pub fn heaviest(&self) -> u64 {
        let ends = self.flows.iter().map(|flow| flow.likely_high.unwrap_or(flow.high));
        ends.fold(self.rest, u64::max)
    }
}

/// Returns whether flows get slots by chance, so that what they missed has a known distribution.
#[must_use]
pub const fn admits_by_chance(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::Rap | Algorithm::DWayRap | Algorithm::Precision)
}

/// Counts of a flow in the table.
#[derive(Clone, Copy, Debug, Default)]
struct FlowCounts {
    /// Count while the flow had a slot.
    own: u64,
    /// Count including what was inherited.
    count: u64,
    /// Least counts that the flow met before it had its slots.
    met: u64,
}

/// Returns the `most` heaviest flows of a table.
#[must_use]
pub fn top<const N: usize>(table: &HeavyTable<N>, settings: &Settings, most: usize) -> Top {
    let entries: Vec<Entry> = table.entries(settings).collect();
    let flow = |entry: &Entry| {
        let met = entry.inherited.saturating_add(table.least_elsewhere());
        (entry.key, FlowCounts { own: own(entry), count: entry.count, met })
    };
    let outside = (smallest(&entries, settings), table.least(settings));
    ranked(entries.iter().map(flow).collect(), table.total(), outside, settings, most)
}

fn own(entry: &Entry) -> u64 {
    entry.count.saturating_sub(entry.inherited)
}

/// Returns the smallest count if no slot is free, else 0. With SpaceSaving, no flow without a slot
/// has more.
fn smallest(entries: &[Entry], settings: &Settings) -> u64 {
    if entries.len() < settings.slots() {
        0
    } else {
        entries.iter().map(|entry| entry.count).min().unwrap_or(0)
    }
}

/// Returns the inverse probability of admission over a least count, in packets or bytes.
fn rarity(least: u64, settings: &Settings) -> f64 {
    let packet = match settings.unit {
        CountUnit::Packets => 1.0,
        CountUnit::Bytes => FULL_PACKET_BYTES,
    };
    if least == 0 {
        0.0
    } else if settings.algorithm == Algorithm::Precision {
        // Counts of as many bits are replaced with the same probability.
        let bits = u64::BITS - least.leading_zeros();
        f64::from(bits).exp2() + packet - 1.0
    } else {
        least as f64 + packet
    }
}

/// Ranks flows. `smallest` and `least` bound flows without a slot: the smallest counts of full
/// tables, which with SpaceSaving no such flow exceeds, and [`HeavyTable::least`] of all tables.
fn ranked(
    flows: Vec<(FlowKey, FlowCounts)>,
    total: u64,
    (smallest, least): (u64, u64),
    settings: &Settings,
    most: usize,
) -> Top {
    let own = flows.iter().fold(0_u64, |sum, (_, flow)| sum.saturating_add(flow.own));
    let unattributed = total.saturating_sub(own);
    let never_too_low = settings.algorithm == Algorithm::SpaceSaving;
    let by_chance = admits_by_chance(settings.algorithm);
    let multiple = match settings.algorithm {
        Algorithm::Precision => MISSED_BY_PRECISION,
        _ => MISSED,
    };
    let flow = |(key, FlowCounts { own: low, count, met }): (FlowKey, FlowCounts)| {
        let high = low.saturating_add(unattributed);
        let high = if never_too_low { high.min(count) } else { high };
        let count = count.clamp(low, high);
        let rarity = rarity(met, settings);
        let likely = low.saturating_add((multiple * rarity).ceil() as u64).clamp(count, high);
        let likely_high = match settings.algorithm {
            Algorithm::HashPipe => None,
            _ => Some(if by_chance { likely } else { high }),
        };
        (Flow { key, count, low, high, likely_high, stands_out: false }, rarity)
    };
    let mut flows: Vec<(Flow, f64)> = flows.into_iter().map(flow).collect();
    flows.sort_unstable_by_key(|(flow, _)| (Reverse(flow.count), flow.key));
    let unlisted = flows.split_off(most.min(flows.len()));
    let absent = if never_too_low { unattributed.min(smallest) } else { unattributed };
    let rest = if by_chance {
        let rarity = rarity(least, settings);
        // The multiple is at least 3, which only makes the number of flows larger.
        let many = unattributed as f64 / (3.0 * rarity).max(1.0) + unlisted.len() as f64;
        let multiple = (many / RISK).ln().max(3.0);
        let missed = |rarity: f64| (multiple * rarity).ceil() as u64;
        // PRECISION rejects flows in full slots even if few flows meet any.
        let missed_by_absent = if rarity > 0.0 { missed(rarity).min(absent) } else { absent };
        let in_table = unlisted
            .iter()
            .map(|(flow, rarity)| flow.low.saturating_add(missed(*rarity)).min(flow.high));
        in_table.fold(missed_by_absent, u64::max)
    } else {
        unlisted.iter().map(|(flow, _)| flow.high).fold(absent, u64::max)
    };
    let stands_out = |(flow, _): (Flow, f64)| Flow { stands_out: flow.low >= rest, ..flow };
    Top { flows: flows.into_iter().map(stands_out).collect(), total, absent, rest }
}

/// Table of a lake row.
pub(crate) struct StoredTable {
    pub(crate) settings: Settings,
    pub(crate) entries: Vec<Entry>,
    pub(crate) total: u64,
    /// [`HeavyTable::least`].
    pub(crate) least: u64,
    /// [`HeavyTable::least_elsewhere`].
    pub(crate) least_elsewhere: u64,
}

/// Flows of merged tables, by key. Their hashes are not needed, and a lake does not store them.
#[derive(Debug, Default)]
pub(crate) struct Union {
    /// Own counts, the excess of counts over the smallest of their tables, least counts that were
    /// met, and the sum of `least` over the tables that have the flow.
    flows: BTreeMap<FlowKey, (FlowCounts, u64)>,
    /// Sum of the smallest counts of full tables, and of counts that were dropped: with SpaceSaving,
    /// the most that a flow can have had in tables that do not contain it (Agarwal et al.,
    /// "Mergeable summaries", PODS 2012).
    smallest: u64,
    /// Sum of `least` over all tables, and of counts that were dropped.
    least: u64,
    total: u64,
}

impl Union {
    /// Minimum number of stored flows; beyond twice as many the lighter half is dropped.
    const MIN_FLOWS: usize = 1 << 16;
    /// Memory of a flow in the map: 72 bytes, in nodes that are two thirds full.
    const FLOW_BYTES: usize = 104;

    /// Returns the memory of the flows, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        Self::FLOW_BYTES * self.flows.len()
    }

    /// Merges a table: its flows and its total.
    pub(crate) fn add(&mut self, table: &StoredTable) {
        let is_space_saving = table.settings.algorithm == Algorithm::SpaceSaving;
        let smallest = if is_space_saving { smallest(&table.entries, &table.settings) } else { 0 };
        for entry in &table.entries {
            let (flow, least) = self.flows.entry(entry.key).or_default();
            flow.own = flow.own.saturating_add(own(entry));
            flow.count = flow.count.saturating_add(entry.count.saturating_sub(smallest));
            let met = entry.inherited.saturating_add(table.least_elsewhere);
            flow.met = flow.met.saturating_add(met);
            *least = least.saturating_add(table.least);
        }
        self.smallest = self.smallest.saturating_add(smallest);
        self.least = self.least.saturating_add(table.least);
        self.total = self.total.saturating_add(table.total);
        if self.flows.len() > 2 * Self::MIN_FLOWS {
            let mut counts: Vec<u64> = self.flows.values().map(|(flow, _)| flow.count).collect();
            let (_, dropped, _) = counts.select_nth_unstable(Self::MIN_FLOWS);
            let dropped = *dropped;
            self.flows.retain(|_, (flow, _)| flow.count > dropped);
            self.least = self.least.saturating_add(dropped);
            if is_space_saving {
                // A flow that was dropped may have had as many, and may come again.
                self.flows.values_mut().for_each(|(flow, _)| flow.count -= dropped);
                self.smallest = self.smallest.saturating_add(dropped);
            }
        }
    }

    /// Returns the `most` heaviest flows.
    pub(crate) fn top(&self, settings: &Settings, most: usize) -> Top {
        let flow = |(key, (flow, least)): (&FlowKey, &(FlowCounts, u64))| {
            let count = flow.count.saturating_add(self.smallest);
            let met = flow.met.saturating_add(self.least.saturating_sub(*least));
            (*key, FlowCounts { own: flow.own, count, met })
        };
        let outside = (self.smallest, self.least);
        ranked(self.flows.iter().map(flow).collect(), self.total, outside, settings, most)
    }
}

#[cfg(test)]
mod tests;
