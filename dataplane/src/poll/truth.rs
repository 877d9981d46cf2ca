//! Exact distinct counts beside the registers, for comparison.

use flowgauge_core::cardinality::Mode;
use flowgauge_core::{BANKS, FlowKey};
use hashbrown::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The flows seen by all workers. Locked once per batch.
#[derive(Debug)]
pub(super) struct ExactFlows {
    covered_ns: u64,
    flows: Mutex<Flows>,
}

#[derive(Debug)]
enum Flows {
    Windowed { banks: [HashSet<FlowKey>; BANKS], total: HashSet<FlowKey> },
    Staggered { last_seen: HashMap<FlowKey, u64>, now: u64 },
}

impl ExactFlows {
    /// `covered_ns`: the time that staggered registers cover.
    pub(super) fn new(mode: Mode, covered_ns: u64) -> Self {
        let flows = match mode {
            Mode::Staggered => Flows::Staggered { last_seen: HashMap::new(), now: 0 },
            Mode::Windowed | Mode::Off => Flows::Windowed { banks: Default::default(), total: HashSet::new() },
        };
        ExactFlows { covered_ns, flows: Mutex::new(flows) }
    }

    /// Adds a batch of keys with their timestamps.
    pub(super) fn add(&self, bank: usize, batch: &mut Vec<(FlowKey, u64)>) {
        if batch.is_empty() {
            return;
        }
        match &mut *self.flows() {
            Flows::Windowed { banks, .. } => banks[bank].extend(batch.drain(..).map(|(key, _)| key)),
            Flows::Staggered { last_seen, now } => {
                for (key, timestamp) in batch.drain(..) {
                    *now = (*now).max(timestamp);
                    // Workers are not equally far.
                    let latest = last_seen.entry(key).or_insert(timestamp);
                    *latest = (*latest).max(timestamp);
                }
            }
        }
    }

    /// Distinct flows in a bank so far, or in the time that ends at `now`.
    pub(super) fn count(&self, bank: usize, at: Option<u64>) -> u64 {
        match &mut *self.flows() {
            Flows::Windowed { banks, .. } => banks[bank].len() as u64,
            Flows::Staggered { last_seen, now } => {
                let start = at.unwrap_or(*now).saturating_sub(self.covered_ns);
                last_seen.retain(|_, timestamp| *timestamp >= start);
                last_seen.len() as u64
            }
        }
    }

    /// Distinct flows since the start, up to the last closed window.
    pub(super) fn total(&self) -> u64 {
        match &*self.flows() {
            Flows::Windowed { total, .. } => total.len() as u64,
            Flows::Staggered { last_seen, .. } => last_seen.len() as u64,
        }
    }

    /// Closes a bank: its flows become part of the total.
    pub(super) fn close(&self, bank: usize) {
        if let Flows::Windowed { banks, total } = &mut *self.flows() {
            total.extend(banks[bank].drain());
        }
    }

    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
