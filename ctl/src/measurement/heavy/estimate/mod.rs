//! The heaviest flows of a table, with bounds on their counts.
//!
//! Of a flow's count in the table, what it did not inherit was counted while it had a slot and is
//! its own: `low`. Take the own counts of all flows in the table from the number of all packets:
//! the rest is in no flow's own count. A flow can have missed no more than this rest, and so `high`
//! is `low` plus the rest. SpaceSaving counts too much and never too little (Metwally et al. 2005,
//! lemma 3), so there `high` is at most the count. HashPipe inherits nothing, so there `low` is the
//! count.
//!
//! These bounds are certain, whatever the order of packets and with any number of cores. They hold
//! for a signature: of two flows that share one they hold for the sum.
//!
//! The counts of RAP and d-way RAP are as a rule much closer to the truth than `high`. A flow that
//! takes a slot over a count of c inherits c, which is how many of its packets were turned away in
//! the mean if each was admitted with probability 1/(c + 1). As c never falls, each was admitted
//! with that probability at least, so that more than 3(c + 1) were turned away one after another in
//! 5 % of cases at most. PRECISION rounds down to a power of two and may turn twice as many away.

use flowgauge_core::FlowKey;
use flowgauge_core::heavy::{Algorithm, Entry, Settings, Table};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A heavy flow. All numbers are packets or bytes, as the settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its key; [`KeyText`](crate::flow::KeyText) shows it.
    pub key: FlowKey,
    /// The estimate: the table's count, kept within the bounds.
    pub count: u64,
    /// The flow has certainly no less.
    pub low: u64,
    /// The flow has certainly no more.
    pub high: u64,
}

/// The heaviest flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top {
    /// The heaviest first; of equal counts the lower key first.
    pub flows: Vec<Flow>,
    /// Of all flows together.
    pub total: u64,
    /// A flow that has no slot in the table has certainly no more.
    pub absent: u64,
}

/// A flow as it was counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// What was counted while it had a slot.
    own: u64,
    /// With what it inherited.
    count: u64,
}

/// The `most` heaviest flows of a table.
#[must_use]
pub fn top<const N: usize>(table: &Table<N>, settings: &Settings, most: usize) -> Top {
    let entries: Vec<Entry> = table.entries(settings).collect();
    let flows =
        entries.iter().map(|entry| (entry.key, Counted { own: own(entry), count: entry.count }));
    ranked(flows.collect(), table.total(), smallest(&entries, settings), settings, most)
}

fn own(entry: &Entry) -> u64 {
    entry.count.saturating_sub(entry.inherited)
}

/// The smallest count, if no slot is free. Of SpaceSaving, no flow without a slot has more.
fn smallest(entries: &[Entry], settings: &Settings) -> u64 {
    if entries.len() < settings.slots() {
        0
    } else {
        entries.iter().map(|entry| entry.count).min().unwrap_or(0)
    }
}

fn ranked(
    flows: Vec<(FlowKey, Counted)>,
    total: u64,
    smallest: u64,
    settings: &Settings,
    most: usize,
) -> Top {
    let unattributed = total.saturating_sub(flows.iter().map(|(_, flow)| flow.own).sum());
    let never_too_low = settings.algorithm == Algorithm::SpaceSaving;
    let flow = |(key, Counted { own: low, count }): (FlowKey, Counted)| {
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

/// Flows of many tables together, by their keys: what they are hashed to is not needed, and not
/// told by a lake.
#[derive(Debug, Default)]
pub(crate) struct Union {
    /// Own counts, and how far counts are above the smallest of their tables.
    flows: BTreeMap<FlowKey, Counted>,
    /// Smallest counts of full tables, which with SpaceSaving a flow that one of them does not have
    /// may have had there (Agarwal et al., "Mergeable summaries", PODS 2012).
    smallest: u64,
    total: u64,
}

impl Union {
    /// Flows that are kept at least; beyond twice as many the lighter half goes.
    const KEPT: usize = 1 << 16;

    /// Adds a table: its flows and what it counted in all.
    pub(crate) fn add(&mut self, entries: &[Entry], total: u64, settings: &Settings) {
        let smallest = if settings.algorithm == Algorithm::SpaceSaving {
            smallest(entries, settings)
        } else {
            0
        };
        for entry in entries {
            let flow = self.flows.entry(entry.key).or_default();
            flow.own += own(entry);
            flow.count += entry.count - smallest;
        }
        self.smallest += smallest;
        self.total += total;
        if self.flows.len() > 2 * Self::KEPT {
            let mut counts: Vec<u64> = self.flows.values().map(|flow| flow.count).collect();
            let (_, least, _) = counts.select_nth_unstable(Self::KEPT);
            let least = *least;
            self.flows.retain(|_, flow| flow.count > least);
        }
    }

    /// The `most` heaviest flows.
    pub(crate) fn top(&self, settings: &Settings, most: usize) -> Top {
        let flow = |(key, flow): (&FlowKey, &Counted)| {
            (*key, Counted { count: flow.count + self.smallest, ..*flow })
        };
        // A flow that was given up may have had more than the smallest counts of tables.
        let smallest = if self.flows.len() > Self::KEPT { u64::MAX } else { self.smallest };
        ranked(self.flows.iter().map(flow).collect(), self.total, smallest, settings, most)
    }
}

#[cfg(test)]
mod tests;
