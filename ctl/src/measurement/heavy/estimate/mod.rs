//! Heaviest flows of a table, with bounds on their counts.
//!
//! The part of a flow's count that was not inherited was counted while the flow had a slot: this is
//! `low`. The rest of all packets, beyond the sum of `low` over all flows in the table, is in no
//! flow's own count. A flow can have missed at most this rest, so `high` is `low` plus the rest.
//! SpaceSaving never counts too little (Metwally et al. 2005, lemma 3), so there `high` is at most
//! the count. HashPipe inherits nothing, so there `low` is the count.
//!
//! The bounds are certain, for any order of packets and any number of cores. They hold for a
//! signature: if two flows share one, for their sum.
//!
//! The counts of RAP and d-way RAP are usually much closer to the truth than `high`. A flow that
//! takes a slot over a count of c inherits c, which is the expected number of its rejected packets
//! if each was admitted with probability 1/(c + 1). As c never falls, each was admitted with at
//! least that probability, so that more than 3(c + 1) consecutive packets were rejected in at most
//! 5 % of cases. PRECISION rounds down to a power of two and may reject twice as many.

use flowgauge_core::FlowKey;
use flowgauge_core::heavy::{Algorithm, Entry, HeavyTable, Settings};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Heavy flow. All numbers are packets or bytes, as the settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Key; [`KeyText`](crate::flow::KeyText) formats it.
    pub key: FlowKey,
    /// Estimate: the table's count, limited to the bounds.
    pub count: u64,
    /// Certain lower bound.
    pub low: u64,
    /// Certain upper bound.
    pub high: u64,
}

/// Heaviest flows of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top {
    /// Flows, the heaviest first; for equal counts the lower key first.
    pub flows: Vec<Flow>,
    /// Total of all flows.
    pub total: u64,
    /// Upper bound for any flow without a slot in the table.
    pub absent: u64,
}

/// Counts of a flow in the table.
#[derive(Clone, Copy, Debug, Default)]
struct FlowCounts {
    /// Count while the flow had a slot.
    own: u64,
    /// Count including what was inherited.
    count: u64,
}

/// Returns the `most` heaviest flows of a table.
#[must_use]
pub fn top<const N: usize>(table: &HeavyTable<N>, settings: &Settings, most: usize) -> Top {
    let entries: Vec<Entry> = table.entries(settings).collect();
    let flows =
        entries.iter().map(|entry| (entry.key, FlowCounts { own: own(entry), count: entry.count }));
    ranked(flows.collect(), table.total(), smallest(&entries, settings), settings, most)
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

fn ranked(
    flows: Vec<(FlowKey, FlowCounts)>,
    total: u64,
    smallest: u64,
    settings: &Settings,
    most: usize,
) -> Top {
    let own = flows.iter().fold(0_u64, |sum, (_, flow)| sum.saturating_add(flow.own));
    let unattributed = total.saturating_sub(own);
    let never_too_low = settings.algorithm == Algorithm::SpaceSaving;
    let flow = |(key, FlowCounts { own: low, count }): (FlowKey, FlowCounts)| {
        let high = low.saturating_add(unattributed);
        let high = if never_too_low { high.min(count) } else { high };
        Flow { key, count: count.clamp(low, high), low, high }
    };
    let mut flows: Vec<Flow> = flows.into_iter().map(flow).collect();
    let absent = if never_too_low { unattributed.min(smallest) } else { unattributed };
    flows.sort_unstable_by_key(|flow| (Reverse(flow.count), flow.key));
    flows.truncate(most);
    Top { flows, total, absent }
}

/// Flows of merged tables, by key. Their hashes are not needed, and a lake does not store them.
#[derive(Debug, Default)]
pub(crate) struct Union {
    /// Own counts, and the excess of counts over the smallest of their tables.
    flows: BTreeMap<FlowKey, FlowCounts>,
    /// Sum of the smallest counts of full tables: with SpaceSaving, the most that a flow can have
    /// had in tables that do not contain it (Agarwal et al., "Mergeable summaries", PODS 2012).
    smallest: u64,
    total: u64,
}

impl Union {
    /// Minimum number of stored flows; beyond twice as many the lighter half is dropped.
    const MIN_FLOWS: usize = 1 << 16;
    /// Memory of a flow in the map.
    const FLOW_BYTES: usize = 80;

    /// Returns the memory of the flows, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        Self::FLOW_BYTES * self.flows.len()
    }

    /// Merges a table: its flows and its total.
    pub(crate) fn add(&mut self, entries: &[Entry], total: u64, settings: &Settings) {
        let smallest = if settings.algorithm == Algorithm::SpaceSaving {
            smallest(entries, settings)
        } else {
            0
        };
        for entry in entries {
            let flow = self.flows.entry(entry.key).or_default();
            flow.own = flow.own.saturating_add(own(entry));
            flow.count = flow.count.saturating_add(entry.count.saturating_sub(smallest));
        }
        self.smallest = self.smallest.saturating_add(smallest);
        self.total = self.total.saturating_add(total);
        if self.flows.len() > 2 * Self::MIN_FLOWS {
            let mut counts: Vec<u64> = self.flows.values().map(|flow| flow.count).collect();
            let (_, least, _) = counts.select_nth_unstable(Self::MIN_FLOWS);
            let least = *least;
            self.flows.retain(|_, flow| flow.count > least);
        }
    }

    /// Returns the `most` heaviest flows.
    pub(crate) fn top(&self, settings: &Settings, most: usize) -> Top {
        let flow = |(key, flow): (&FlowKey, &FlowCounts)| {
            (*key, FlowCounts { count: flow.count.saturating_add(self.smallest), ..*flow })
        };
        // A dropped flow may have had more than the smallest counts of tables.
        let smallest = if self.flows.len() > Self::MIN_FLOWS { u64::MAX } else { self.smallest };
        ranked(self.flows.iter().map(flow).collect(), self.total, smallest, settings, most)
    }
}

#[cfg(test)]
mod tests;
