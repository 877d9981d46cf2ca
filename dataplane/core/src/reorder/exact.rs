//! Reordering of all flows, for comparison.

use super::{Expected, Means, PrefixCounts, SegmentClass};
use crate::key::KeyKind;
use crate::observation::Observation;
use crate::state::BANKS;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Counts of all flows by prefix. It follows every flow and takes memory for each.
#[derive(Debug, Default)]
pub struct ExactReorder {
    /// Expected continuation of a flow and the window of its last segment, by prefix and signature
    /// of the five-tuple.
    flows: BTreeMap<(u64, u32), (Expected, u32)>,
    banks: [BTreeMap<u64, PrefixCounts>; BANKS],
    /// Number of windows taken so far.
    windows: u32,
}

impl ExactReorder {
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

    /// Returns the counts of a bank in the order of prefixes, and clears it.
    pub fn take(&mut self, bank: usize) -> Vec<PrefixCounts> {
        self.windows += 1;
        self.banks.get_mut(bank).map(core::mem::take).unwrap_or_default().into_values().collect()
    }
}
