//! Reordering of all flows, for comparison.

use super::{Expected, Means, PrefixCounts, SegmentClass};
use crate::key::KeyKind;
use crate::observation::Observation;
use crate::state::BANKS;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Counts of a window by prefix.
#[derive(Debug, Default)]
struct WindowPrefixes {
    prefixes: BTreeMap<u64, PrefixCounts>,
    /// Whether segments of flows beyond the limit came.
    is_over: bool,
}

/// Counts of all flows by prefix. It follows every flow, up to a limit.
#[derive(Debug)]
pub struct ExactReorder {
    /// Maximum number of flows.
    limit: usize,
    /// Expected continuation of a flow and the window of its last segment, by prefix and signature
    /// of the five-tuple.
    flows: BTreeMap<(u64, u32), (Expected, u32)>,
    banks: [WindowPrefixes; BANKS],
    /// Number of windows taken so far.
    windows: u32,
    /// Whether there were more flows, so that none is followed any more.
    has_ended: bool,
}

impl ExactReorder {
    /// Creates the counts; `limit` is the maximum number of flows.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        ExactReorder {
            limit,
            flows: BTreeMap::new(),
            banks: Default::default(),
            windows: 0,
            has_ended: false,
        }
    }

    /// Returns whether the limit was exceeded.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Counts a packet in a bank.
    pub fn count(&mut self, bank: usize, packet: &Observation) {
        let flow = (packet.prefix, packet.by(KeyKind::FiveTuple));
        match Means::of(&packet.segment) {
            Means::Nothing => {}
            Means::Begins => {
                self.flows.remove(&flow);
            }
            Means::Data => {
                let known = self.flows.get(&flow).copied();
                if known.is_none() && self.flows.len() >= self.limit {
                    self.has_ended = true;
                    self.flows.clear();
                }
                if self.has_ended {
                    self.banks.get_mut(bank).into_iter().for_each(|bank| bank.is_over = true);
                    return;
                }
                let (expected, window) = known.unwrap_or_default();
                let (seen, expected) = expected.compare(&packet.segment, known.is_some());
                let is_new = known.is_none() || window != self.windows;
                self.flows.insert(flow, (expected, self.windows));
                let Some(bank) =
                    self.banks.get_mut(bank).filter(|_| seen != SegmentClass::KeepAlive)
                else {
                    return;
                };
                let total = bank
                    .prefixes
                    .entry(packet.prefix)
                    .or_insert(PrefixCounts { prefix: packet.prefix, ..PrefixCounts::default() });
                let packets = u64::from(packet.number());
                let of = |kind| if seen == kind { packets } else { 0 };
                *total = total.plus(&PrefixCounts {
                    packets,
                    out_of_order: of(SegmentClass::OutOfOrder),
                    retransmitted: of(SegmentClass::Retransmitted),
                    gaps: u64::from(seen == SegmentClass::Gap),
                    flows: u64::from(is_new),
                    ..PrefixCounts::default()
                });
            }
        }
    }

    /// Returns the counts of a bank in the order of prefixes, and clears it. `None` if there were
    /// more flows than are followed.
    pub fn take(&mut self, bank: usize) -> Option<Vec<PrefixCounts>> {
        self.windows += 1;
        let taken = core::mem::take(self.banks.get_mut(bank)?);
        (!taken.is_over).then(|| taken.prefixes.into_values().collect())
    }
}
