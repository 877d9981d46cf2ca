//! Exact counts, for comparison with registers and sketches.

use flowgauge_core::Zeroed;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::reorder::{ExactReorder, PrefixCounts};
use flowgauge_core::spread::{ExactSpread, FanOut};
use flowgauge_core::{
    BANKS, ENTROPIES, Exact, FlowKey, KeyKind, MeasurementKind, Observation, SPREADS, Settings,
    sketch,
};
use hashbrown::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Flows seen by all workers. Locked once per batch.
pub(super) struct ExactFlows {
    covered_ns: u64,
    settings: Settings,
    flows: Mutex<Flows>,
    /// Exact counts that need no table of flows, per bank, if enabled.
    counts: Option<Mutex<[Box<Exact>; BANKS]>>,
    /// Exact reordering of all flows, if measured.
    reorder: Option<Mutex<ExactReorder>>,
    /// Exact others of all keys, if measured.
    spread: Option<Mutex<ExactSpread>>,
}

#[derive(Debug)]
enum Flows {
    /// Packets of every flow, per bank and kind of key.
    Windowed {
        banks: Box<[[HashMap<FlowKey, u64>; KEYS]; BANKS]>,
        total: HashSet<FlowKey>,
    },
    Staggered {
        last_seen: HashMap<FlowKey, u64>,
        now: u64,
    },
}

const KEYS: usize = KeyKind::ALL.len();

/// A key of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketKey {
    pub(super) kind: KeyKind,
    pub(super) key: FlowKey,
    pub(super) timestamp: u64,
}

impl ExactFlows {
    /// Creates the counts; `covered_ns` is the time that staggered registers cover.
    pub(super) fn new(settings: Settings, covered_ns: u64) -> Self {
        let flows = match settings.cardinality.mode {
            Mode::Staggered => Flows::Staggered { last_seen: HashMap::new(), now: 0 },
            Mode::Windowed | Mode::Off => {
                Flows::Windowed { banks: Default::default(), total: HashSet::new() }
            }
        };
        let counts =
            Exact::is_on(&settings).then(|| Mutex::new([(); BANKS].map(|()| Exact::boxed())));
        let reorder = MeasurementKind::Reorder.is_on(&settings).then(Mutex::default);
        let spread = MeasurementKind::Spread.is_on(&settings).then(Mutex::default);
        ExactFlows { covered_ns, settings, flows: Mutex::new(flows), counts, reorder, spread }
    }

    /// Returns the kinds of key to count packets by: those of distinct flows and of entropies.
    pub(super) fn kinds(&self) -> impl Iterator<Item = KeyKind> + '_ {
        KeyKind::ALL.into_iter().filter(|kind| {
            let entropy = self
                .settings
                .entropy
                .iter()
                .any(|entropy| entropy.mode != sketch::Mode::Off && entropy.key == *kind);
            entropy || *kind == self.settings.cardinality.key
        })
    }

    /// Adds a batch of packets.
    pub(super) fn add(&self, bank: usize, batch: &mut Vec<PacketKey>) {
        if batch.is_empty() {
            return;
        }
        let distinct = self.settings.cardinality.key;
        match &mut *self.flows() {
            Flows::Windowed { banks, .. } => {
                let flows = &mut banks[bank];
                batch.drain(..).for_each(|PacketKey { kind, key, .. }| {
                    *flows[kind as usize].entry(key).or_default() += 1
                });
            }
            Flows::Staggered { last_seen, now } => {
                for PacketKey { key, timestamp, .. } in
                    batch.drain(..).filter(|seen| seen.kind == distinct)
                {
                    *now = (*now).max(timestamp);
                    // Workers progress at different rates.
                    let latest = last_seen.entry(key).or_insert(timestamp);
                    *latest = (*latest).max(timestamp);
                }
            }
        }
    }

    /// Returns whether packets are to be [counted](Self::count_all) as observations.
    pub(super) fn counts(&self) -> bool {
        self.counts.is_some() || self.reorder.is_some() || self.spread.is_some()
    }

    /// Adds a batch of observations.
    pub(super) fn count_all(&self, bank: usize, batch: &mut Vec<Observation>) {
        if let Some(mut counts) = self.locked_counts() {
            batch.iter().for_each(|packet| counts[bank].measure(&self.settings, packet));
        }
        if let Some(mut reorder) = self.locked_reorder() {
            batch.iter().for_each(|packet| reorder.count(bank, packet));
        }
        if let Some(mut spread) = self.locked_spread() {
            batch.iter().for_each(|packet| spread.count(bank, &self.settings.spread, packet));
        }
        batch.clear();
    }

    /// Takes the exact counts of a bank and leaves it empty.
    pub(super) fn take_exact(&self, bank: usize) -> Option<Box<Exact>> {
        let mut counts = self.locked_counts()?;
        Some(std::mem::replace(&mut counts[bank], Exact::boxed()))
    }

    /// Takes the exact counts per prefix of a bank.
    pub(super) fn take_prefixes(&self, bank: usize) -> Option<Vec<PrefixCounts>> {
        Some(self.locked_reorder()?.take(bank))
    }

    /// Takes the exact others of the keys of a bank.
    pub(super) fn take_fan_outs(&self, bank: usize) -> Option<[Vec<FanOut>; SPREADS]> {
        Some(self.locked_spread()?.take(bank))
    }

    fn locked_spread(&self) -> Option<MutexGuard<'_, ExactSpread>> {
        Some(self.spread.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn locked_reorder(&self) -> Option<MutexGuard<'_, ExactReorder>> {
        Some(self.reorder.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn locked_counts(&self) -> Option<MutexGuard<'_, [Box<Exact>; BANKS]>> {
        Some(self.counts.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the distinct flows in a bank so far or, with staggered registers, in the covered
    /// time that ends at `at`.
    pub(super) fn count(&self, bank: usize, at: Option<u64>) -> u64 {
        match &mut *self.flows() {
            Flows::Windowed { banks, .. } => {
                banks[bank][self.settings.cardinality.key as usize].len() as u64
            }
            Flows::Staggered { last_seen, now } => {
                let start = at.unwrap_or(*now).saturating_sub(self.covered_ns);
                last_seen.retain(|_, timestamp| *timestamp >= start);
                last_seen.len() as u64
            }
        }
    }

    /// Returns the entropies of a bank so far, in bits, for the measured keys.
    pub(super) fn entropy(&self, bank: usize) -> [Option<f64>; ENTROPIES] {
        let flows = self.flows();
        let Flows::Windowed { banks, .. } = &*flows else { return Default::default() };
        self.settings.entropy.map(|entropy| {
            (entropy.mode != sketch::Mode::Off).then(|| bits(&banks[bank][entropy.key as usize]))
        })
    }

    /// Returns the distinct flows since the start, up to the last closed window.
    pub(super) fn total(&self) -> u64 {
        match &*self.flows() {
            Flows::Windowed { total, .. } => total.len() as u64,
            Flows::Staggered { last_seen, .. } => last_seen.len() as u64,
        }
    }

    /// Closes a bank: its flows become part of the total.
    pub(super) fn close(&self, bank: usize) {
        if let Flows::Windowed { banks, total } = &mut *self.flows() {
            let distinct = &mut banks[bank][self.settings.cardinality.key as usize];
            total.extend(distinct.drain().map(|(key, _)| key));
            banks[bank].iter_mut().for_each(HashMap::clear);
        }
    }

    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the Shannon entropy of packets over flows, in bits.
fn bits(flows: &HashMap<FlowKey, u64>) -> f64 {
    let total: u64 = flows.values().sum();
    // In the order of counts, which is reproducible, unlike the order of the table.
    let mut counts: Vec<u64> = flows.values().copied().collect();
    counts.sort_unstable();
    let share = |count: u64| count as f64 / total as f64;
    let sum: f64 = counts.into_iter().map(share).map(|share| -share * share.log2()).sum();
    sum.max(0.0)
}
