//! Distinct others of every key, for comparison.

use super::{OtherKind, SPREADS, Settings};
use crate::flow_key::FlowKey;
use crate::key::KeyKind;
use crate::observation::Observation;
use crate::state::BANKS;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Key with its number of distinct others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanOut {
    /// The key.
    pub key: FlowKey,
    /// Distinct others.
    pub others: u64,
}

/// Others of every key. It takes memory for each pair.
#[derive(Debug, Default)]
pub struct ExactSpread {
    banks: [[BTreeMap<FlowKey, BTreeSet<FlowKey>>; SPREADS]; BANKS],
}

impl ExactSpread {
    /// Counts a packet in a bank.
    pub fn count(&mut self, bank: usize, settings: &[Settings; SPREADS], packet: &Observation) {
        let Some(bank) = self.banks.get_mut(bank) else { return };
        let five_tuple = &packet.spread;
        for (pairs, of_sketch) in bank.iter_mut().zip(settings).filter(|(_, sketch)| sketch.on) {
            let key = of_sketch.by.within(five_tuple);
            pairs.entry(key).or_default().insert(of_sketch.of.within(five_tuple));
        }
    }

    /// Returns the keys of a bank for each sketch, those with the most others first and equal ones
    /// in the order of keys, and clears the bank.
    pub fn take(&mut self, bank: usize) -> [Vec<FanOut>; SPREADS] {
        let pairs = self.banks.get_mut(bank).map(core::mem::take).unwrap_or_default();
        pairs.map(|of_sketch| {
            let fan_out = |(key, others): (FlowKey, BTreeSet<FlowKey>)| FanOut {
                key,
                others: others.len() as u64,
            };
            let mut keys: Vec<FanOut> = of_sketch.into_iter().map(fan_out).collect();
            keys.sort_by_key(|key| core::cmp::Reverse(key.others));
            keys
        })
    }
}

impl OtherKind {
    /// Returns the part of a five-tuple that is an other of this kind.
    #[must_use]
    pub fn within(self, five_tuple: &FlowKey) -> FlowKey {
        match (self, five_tuple.as_bytes()) {
            (OtherKind::Src, _) => KeyKind::Src.within(five_tuple),
            (OtherKind::Dst, _) => KeyKind::Dst.within(five_tuple),
            (OtherKind::DstPort, [.., high, low, protocol]) => {
                FlowKey::new(&[*high, *low, *protocol])
            }
            (OtherKind::DstPort | OtherKind::FiveTuple, _) => *five_tuple,
        }
    }
}
