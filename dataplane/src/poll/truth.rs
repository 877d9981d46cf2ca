//! Exact counts, for comparison with registers and sketches.

use super::threads::lock;
use crate::flow_counts::FlowCounts;
use crate::snapshot::{KINDS, Snapshot};
use flowgauge_core::Zeroed;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::delay::ExactDelays;
use flowgauge_core::reorder::ExactReorder;
use flowgauge_core::spread::ExactSpread;
use flowgauge_core::{
    BANKS, ENTROPIES, Exact, FlowKey, KeyKind, MeasurementKind, Observation, Settings, Shared,
};
use hashbrown::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// Flows seen by all workers. Locked once per batch.
pub(super) struct ExactFlows {
    covered_ns: u64,
    settings: Settings,
    /// Maximum number of flows, requests, delays or pairs in each set.
    limit: usize,
    /// State of the measurements, with the owners of addresses.
    shared: Arc<Shared>,
    /// Keys that packets are counted by in each window.
    keys: Vec<KeyKind>,
    flows: Mutex<Flows>,
    /// Exact counts that need no table of flows, per bank, if enabled.
    counts: Option<Mutex<[Box<Exact>; BANKS]>>,
    /// Exact delays of all requests, if measured.
    delays: Option<Mutex<ExactDelays>>,
    /// Exact reordering of all flows, if measured.
    reorder: Option<Mutex<ExactReorder>>,
    /// Exact others of all keys, if measured.
    spread: Option<Mutex<ExactSpread>>,
    limits: Mutex<ReachedLimits>,
}

#[derive(Debug)]
struct Flows {
    /// Flows of each window, per bank and kind of key.
    banks: Box<[[FlowCounts; KINDS]; BANKS]>,
    /// Distinct flows of the closed windows; `None` if there were too many.
    total: Option<HashSet<FlowKey>>,
    /// Flows of the time that staggered registers cover, if distinct flows are counted by those.
    recent: Option<RecentFlows>,
}

#[derive(Debug, Default)]
struct RecentFlows {
    last_seen: HashMap<FlowKey, u64>,
    now: u64,
    /// Whether there were too many.
    is_over: bool,
}

impl RecentFlows {
    /// Adds a packet, and returns whether there are too many flows from now on.
    fn add(&mut self, key: FlowKey, timestamp: u64, covered_ns: u64, limit: usize) -> bool {
        if self.is_over {
            return false;
        }
        self.now = self.now.max(timestamp);
        if self.last_seen.len() >= limit {
            self.remove_before(self.now.saturating_sub(covered_ns));
            // If few are old, the next ones that are would be looked for too soon.
            if self.last_seen.len() > limit / 2 {
                (self.is_over, self.last_seen) = (true, HashMap::new());
                return true;
            }
        }
        // Workers progress at different rates.
        let latest = self.last_seen.entry(key).or_insert(timestamp);
        *latest = (*latest).max(timestamp);
        false
    }

    fn remove_before(&mut self, start: u64) {
        self.last_seen.retain(|_, timestamp| *timestamp >= start);
    }

    fn number(&self) -> Option<u64> {
        (!self.is_over).then(|| self.last_seen.len() as u64)
    }
}

/// Sets of exact counts that reached their limit.
#[derive(Debug, Default)]
struct ReachedLimits {
    reported: HashSet<String>,
    /// Messages that the controller has not taken.
    messages: Vec<String>,
}

/// A key of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketKey {
    pub(super) kind: KeyKind,
    pub(super) key: FlowKey,
    pub(super) bytes: u32,
    pub(super) timestamp: u64,
}

impl ExactFlows {
    /// Creates the counts; `covered_ns` is the time that staggered registers cover, `limit` the
    /// maximum number of entries of each set.
    pub(super) fn new(
        settings: Settings,
        covered_ns: u64,
        limit: usize,
        shared: Arc<Shared>,
    ) -> Self {
        let is_staggered = settings.cardinality.mode == Mode::Staggered;
        let flows = Flows {
            banks: Default::default(),
            total: Some(HashSet::new()),
            recent: is_staggered.then(RecentFlows::default),
        };
        // Staggered registers count in no window.
        let by_flow = [
            MeasurementKind::Entropy,
            MeasurementKind::Frequency,
            MeasurementKind::Membership,
            MeasurementKind::Heavy,
        ];
        let mut keys: Vec<KeyKind> = by_flow
            .into_iter()
            .filter(|kind| kind.is_on(&settings))
            .flat_map(|kind| kind.keys(&settings))
            .chain((!is_staggered).then_some(settings.cardinality.key))
            .collect();
        keys.sort_unstable_by_key(|kind| *kind as usize);
        keys.dedup();
        let counts =
            Exact::is_on(&settings).then(|| Mutex::new([(); BANKS].map(|()| Exact::boxed())));
        let is_on = |kind: MeasurementKind| kind.is_on(&settings);
        ExactFlows {
            covered_ns,
            settings,
            limit,
            shared,
            keys,
            flows: Mutex::new(flows),
            counts,
            delays: is_on(MeasurementKind::Delay).then(|| Mutex::new(ExactDelays::new(limit))),
            reorder: is_on(MeasurementKind::Reorder).then(|| Mutex::new(ExactReorder::new(limit))),
            spread: is_on(MeasurementKind::Spread).then(|| Mutex::new(ExactSpread::new(limit))),
            limits: Mutex::default(),
        }
    }

    /// Returns the kinds of key to count packets by.
    pub(super) fn kinds(&self) -> impl Iterator<Item = KeyKind> + '_ {
        let distinct = self.settings.cardinality.key;
        let is_recent_alone =
            self.settings.cardinality.mode == Mode::Staggered && !self.keys.contains(&distinct);
        self.keys.iter().copied().chain(is_recent_alone.then_some(distinct))
    }

    /// Adds a batch of packets.
    pub(super) fn add(&self, bank: usize, batch: &mut Vec<PacketKey>) {
        if batch.is_empty() {
            return;
        }
        let (distinct, limit) = (self.settings.cardinality.key, self.limit);
        let Flows { banks, recent, .. } = &mut *lock(&self.flows);
        for PacketKey { kind, key, bytes, timestamp } in batch.drain(..) {
            if let Some(recent) = recent.as_mut().filter(|_| kind == distinct)
                && recent.add(key, timestamp, self.covered_ns, limit)
            {
                self.reached(format!("flows by {}", kind.name()));
            }
            if self.keys.contains(&kind) && banks[bank][kind as usize].add(key, bytes, limit) {
                self.reached(format!("flows by {} in a window", kind.name()));
            }
        }
    }

    /// Returns whether packets are to be [counted](Self::count_all) as observations.
    pub(super) fn counts(&self) -> bool {
        self.counts.is_some()
            || self.delays.is_some()
            || self.reorder.is_some()
            || self.spread.is_some()
    }

    /// Adds a batch of observations.
    pub(super) fn count_all(&self, bank: usize, batch: &mut Vec<Observation>) {
        if let Some(mut counts) = locked(self.counts.as_ref()) {
            batch.iter().for_each(|packet| counts[bank].measure(&self.settings, packet));
        }
        if let Some(mut delays) = locked(self.delays.as_ref()) {
            let (settings, requests) = (&self.settings.delay, &self.shared.persistent.delay);
            batch.iter().for_each(|packet| delays.count(bank, settings, requests, packet));
            if delays.has_ended() {
                self.reached("requests that wait for answers, or delays in a window".to_owned());
            }
        }
        if let Some(mut reorder) = locked(self.reorder.as_ref()) {
            batch.iter().for_each(|packet| reorder.count(bank, packet));
            if reorder.has_ended() {
                self.reached("TCP flows".to_owned());
            }
        }
        if let Some(mut spread) = locked(self.spread.as_ref()) {
            batch.iter().for_each(|packet| spread.count(bank, &self.settings.spread, packet));
            if spread.has_ended() {
                self.reached("pairs of a key and an other in a window".to_owned());
            }
        }
        batch.clear();
    }

    /// Notes that there are more things of a kind than are counted.
    fn reached(&self, what: String) {
        let ReachedLimits { reported, messages } = &mut *lock(&self.limits);
        if !reported.contains(&what) {
            messages.push(format!(
                "--truth counts up to {} {what}, and there are more: exact values are missing where they are needed",
                self.limit
            ));
            reported.insert(what);
        }
    }

    /// Returns messages about limits that were reached, one line each, each once.
    pub(super) fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.limits).messages)
    }

    /// Returns the distinct flows in a bank so far or, with staggered registers, in the covered
    /// time that ends at `at`; `None` if there were too many.
    pub(super) fn count(&self, bank: usize, at: Option<u64>) -> Option<u64> {
        let Flows { banks, recent, .. } = &mut *lock(&self.flows);
        match recent {
            None => Some(banks[bank][self.settings.cardinality.key as usize].known()?.number()),
            Some(recent) => {
                recent.remove_before(at.unwrap_or(recent.now).saturating_sub(self.covered_ns));
                recent.number()
            }
        }
    }

    /// Returns the entropies of a bank so far, in bits, for the measured keys.
    pub(super) fn entropy(&self, bank: usize) -> [Option<f64>; ENTROPIES] {
        let Flows { banks, .. } = &*lock(&self.flows);
        self.settings.entropy.map(|entropy| {
            let flows = banks[bank][entropy.key as usize].known().filter(|_| entropy.is_on());
            flows.map(bits)
        })
    }

    /// Returns the distinct flows since the start, up to the last closed window; `None` if there
    /// were too many.
    pub(super) fn total(&self) -> Option<u64> {
        let Flows { total, recent, .. } = &*lock(&self.flows);
        match recent {
            None => total.as_ref().map(|total| total.len() as u64),
            Some(recent) => recent.number(),
        }
    }

    /// Closes a bank, and moves its exact counts into the snapshot of the window. What there was too
    /// much of is missing there.
    pub(super) fn close(&self, bank: usize, snapshot: &mut Snapshot) {
        snapshot.flows = self.close_flows(bank);
        if let Some(truth) = &mut snapshot.truth {
            truth.total = self.total();
        }
        snapshot.exact = locked(self.counts.as_ref())
            .map(|mut counts| std::mem::replace(&mut counts[bank], Exact::boxed()).into());
        snapshot.delays =
            locked(self.delays.as_ref()).and_then(|mut delays| delays.take(bank)).map(Arc::new);
        snapshot.prefixes =
            locked(self.reorder.as_ref()).and_then(|mut reorder| reorder.take(bank)).map(Arc::from);
        snapshot.fan_outs =
            locked(self.spread.as_ref()).and_then(|mut spread| spread.take(bank)).map(Arc::new);
    }

    /// Makes the flows of a bank part of the total, and returns the counts by each kind of key.
    fn close_flows(&self, bank: usize) -> [Option<Arc<FlowCounts>>; KINDS] {
        let Flows { banks, total, recent } = &mut *lock(&self.flows);
        let closed = std::mem::take(&mut banks[bank]);
        if recent.is_none() {
            let flows = closed[self.settings.cardinality.key as usize].known();
            *total = total.take().zip(flows).and_then(|(mut total, flows)| {
                total.extend(flows.each().map(|(key, _)| *key));
                (total.len() <= self.limit).then_some(total)
            });
            if total.is_none() {
                self.reached("distinct flows in all".to_owned());
            }
        }
        let mut kinds = KeyKind::ALL.into_iter();
        closed.map(|counts| {
            let is_counted = kinds.next().is_some_and(|kind| self.keys.contains(&kind));
            (is_counted && counts.known().is_some()).then(|| Arc::new(counts))
        })
    }
}

fn locked<T>(mutex: Option<&Mutex<T>>) -> Option<MutexGuard<'_, T>> {
    mutex.map(lock)
}

/// Returns the Shannon entropy of packets over flows, in bits.
fn bits(flows: &FlowCounts) -> f64 {
    // In the order of counts, which is reproducible, unlike the order of the table.
    let mut counts: Vec<u64> = flows.each().map(|(_, flow)| flow.packets).collect();
    counts.sort_unstable();
    let total: u64 = counts.iter().sum();
    let share = |count: u64| count as f64 / total as f64;
    let sum: f64 = counts.into_iter().map(share).map(|share| -share * share.log2()).sum();
    sum.max(0.0)
}
