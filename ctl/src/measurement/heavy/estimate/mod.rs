//! The heaviest flows of a table, with bounds on their counts.
//!
//! Of a flow's count in the table, what it did not inherit was counted while it had a slot and is its own: `low`. Take the own counts of
//! all flows in the table from the number of all packets: the rest is in no flow's own count. A flow can have missed no more than this rest,
//! and so `high` is `low` plus the rest. SpaceSaving counts too much and never too little (Metwally et al. 2005,
//! lemma 3), so there `high` is at most the count. HashPipe inherits nothing, so there `low` is the count.
//!
//! These bounds are certain, whatever the order of packets and with any number of cores. They hold for a signature: of two flows that share
//! one they hold for the sum.
//!
//! The counts of RAP and d-way RAP are as a rule much closer to the truth than `high`. A flow that takes a slot over a count of c inherits c, which
//! is how many of its packets were turned away in the mean if each was admitted with probability 1/(c + 1). As c never falls, each was
//! admitted with that probability at least, so that more than 3(c + 1) were turned away one after another in 5 % of cases at most. PRECISION
//! rounds down to a power of two and may turn twice as many away.

use flowgauge_core::FlowKey;
use flowgauge_core::heavy::{Algorithm, Entry, Settings, Table};
use std::cmp::Reverse;

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

/// The `most` heaviest flows of a table.
#[must_use]
pub fn top<const N: usize>(table: &Table<N>, settings: &Settings, most: usize) -> Top {
    let entries: Vec<Entry> = table.entries(settings).collect();
    let own = |entry: &Entry| entry.count.saturating_sub(entry.inherited);
    let total = table.total();
    let unattributed = total.saturating_sub(entries.iter().map(own).sum());
    let never_too_low = settings.algorithm == Algorithm::SpaceSaving;
    let mut flows: Vec<Flow> = entries
        .iter()
        .map(|entry| {
            let low = own(entry);
            let high = low.saturating_add(unattributed);
            let high = if never_too_low { high.min(entry.count) } else { high };
            Flow { key: entry.key, count: entry.count.clamp(low, high), low, high }
        })
        .collect();
    let free = entries.len() < Table::<N>::slots(settings);
    let smallest = if free { 0 } else { entries.iter().map(|entry| entry.count).min().unwrap_or(0) };
    let absent = if never_too_low { unattributed.min(smallest) } else { unattributed };
    flows.sort_unstable_by_key(|flow| (Reverse(flow.count), flow.key));
    flows.truncate(most);
    Top { flows, total, absent }
}

#[cfg(test)]
mod tests;
