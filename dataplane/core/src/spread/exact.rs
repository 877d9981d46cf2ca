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

/// Others of the keys of a window.
#[derive(Debug, Default)]
struct WindowPairs {
    sketches: [BTreeMap<FlowKey, BTreeSet<FlowKey>>; SPREADS],
    /// Number of pairs of all sketches.
    number: usize,
    /// Whether there were more than are counted.
    is_over: bool,
}

/// Others of every key, up to a limit.
#[derive(Debug)]
pub struct ExactSpread {
    /// Maximum number of pairs of a window.
    limit: usize,
    banks: [WindowPairs; BANKS],
    has_ended: bool,
}

impl ExactSpread {
    /// Creates the counts; `limit` is the maximum number of pairs of a window, over all sketches.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        ExactSpread { limit, banks: Default::default(), has_ended: false }
    }

    /// Returns whether the limit was exceeded so far.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Counts a packet in a bank.
    pub fn count(&mut self, bank: usize, settings: &[Settings; SPREADS], packet: &Observation) {
        let Some(window) = self.banks.get_mut(bank).filter(|window| !window.is_over) else {
            return;
        };
        let five_tuple = &packet.spread;
        let sketches = window.sketches.iter_mut().zip(settings);
        for (pairs, of_sketch) in sketches.filter(|(_, of_sketch)| of_sketch.on) {
            let key = of_sketch.by.within(five_tuple);
            let is_new = pairs.entry(key).or_default().insert(of_sketch.of.within(five_tuple));
            window.number += usize::from(is_new);
        }
        if window.number > self.limit {
            *window = WindowPairs { is_over: true, ..WindowPairs::default() };
            self.has_ended = true;
        }
    }

    /// Returns the keys of a bank for each sketch, those with the most others first and equal ones
    /// in the order of keys, and clears the bank. `None` if there were more pairs than are counted.
    pub fn take(&mut self, bank: usize) -> Option<[Vec<FanOut>; SPREADS]> {
        let WindowPairs { sketches, is_over, .. } = core::mem::take(self.banks.get_mut(bank)?);
        let fan_outs = sketches.map(|of_sketch| {
            let fan_out = |(key, others): (FlowKey, BTreeSet<FlowKey>)| FanOut {
                key,
                others: others.len() as u64,
            };
            let mut keys: Vec<FanOut> = of_sketch.into_iter().map(fan_out).collect();
            keys.sort_by_key(|key| core::cmp::Reverse(key.others));
            keys
        });
        (!is_over).then_some(fan_outs)
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
