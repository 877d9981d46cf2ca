//! Experiment: tables of both algorithms and several sizes count the same traffic, of many prefixes
//! of which some reorder packets.

use flowgauge_core::filter::EveryPacket;
use flowgauge_core::measurement::{MeasureContext, MeasurementMemory};
use flowgauge_core::reorder::{Algorithm, IDLE_TICKS, PrefixCounts, Settings};
use flowgauge_core::{
    Arrival, Context, CountFrames, Link, Measurement, Observation, Reorder, Shared, Sharing, State,
    Tabulation, WindowTotals, Zeroed,
};
use flowgauge_core::{HashMode, HostMeasurement as _, Listed as _};
use flowgauge_ctl::measurement::reorder::estimate::{LEAST_LATE, MUCH, reorders, share};
use flowgauge_traffic::reorder::{PrefixTruth, ReorderProfile, ReorderTraffic};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

/// Packets of a trace.
pub(crate) const PACKETS: u64 = 1_000_000;

/// Buckets in the claim, as a power of two.
pub(crate) const MEMORY_LOG2: u8 = 8;

/// Compared sizes, as powers of two.
pub(crate) const MEMORIES_LOG2: [u8; 7] = [6, 7, 8, 9, 10, 11, 12];

/// Compared algorithms.
pub(crate) const ALGORITHMS: [Algorithm; 2] = [Algorithm::Sampling, Algorithm::Hybrid];

/// Time without a segment after which a bucket is free.
const IDLE_NS: u64 = (IDLE_TICKS as u64) << 16;

/// Bytes of the addresses and ports in an IPv4 frame without options and tags.
const ADDRESSES_AND_PORTS: Range<usize> = 26..38;

/// Minimum number of segments of a heavy prefix. With fewer, a share above [`MUCH`] can be fewer
/// than [`LEAST_LATE`] late segments.
pub(crate) const BETA: u64 = 300;

/// Packets read at a time.
const BATCH: usize = 512;

/// Kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Default traffic of `generate reorder`.
    Usual,
    /// Default traffic in a tenth of the time, with more concurrent flows.
    Fast,
    /// Small flows only.
    SmallFlows,
    /// One segment in a hundred is lost.
    Loss,
    /// Late segments are far behind.
    Deep,
}

impl Traffic {
    /// All kinds.
    pub(crate) const ALL: [Traffic; 5] =
        [Traffic::Usual, Traffic::Fast, Traffic::SmallFlows, Traffic::Loss, Traffic::Deep];

    /// Returns the name in tables and plots.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Traffic::Usual => "usual",
            Traffic::Fast => "fast",
            Traffic::SmallFlows => "small flows",
            Traffic::Loss => "loss",
            Traffic::Deep => "deep",
        }
    }

    /// Returns the options of `generate reorder`.
    pub(crate) fn options(self) -> &'static str {
        match self {
            Traffic::Usual => "reorder",
            Traffic::Fast => "reorder,rate=1M",
            Traffic::SmallFlows => "reorder,flows=100k,alpha=0.01",
            Traffic::Loss => "reorder,loss=0.01",
            Traffic::Deep => "reorder,depth=12",
        }
    }

    /// Returns the profile to generate.
    pub(crate) fn profile(self, packets: u64, seed: u64) -> ReorderProfile {
        let usual = ReorderProfile { packets, seed, ..ReorderProfile::default() };
        match self {
            Traffic::Usual => usual,
            Traffic::Fast => ReorderProfile { rate: 10.0 * usual.rate, ..usual },
            // All flows have one or two trains.
            Traffic::SmallFlows => ReorderProfile { flows: packets / 10, alpha: 0.01, ..usual },
            Traffic::Loss => ReorderProfile { loss: 0.01, ..usual },
            Traffic::Deep => ReorderProfile { depth: 12, ..usual },
        }
    }
}

/// Configuration of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Algorithm that selects the flows to follow.
    pub algorithm: Algorithm,
    /// Number of buckets, including the hybrid's slots for large flows, as a power of two.
    pub memory_log2: u8,
}

impl Setup {
    /// Returns all compared configurations.
    pub(crate) fn all() -> Vec<Setup> {
        let by_memory = |algorithm| {
            MEMORIES_LOG2.into_iter().map(move |memory_log2| Setup { algorithm, memory_log2 })
        };
        ALGORITHMS.into_iter().flat_map(by_memory).collect()
    }

    fn settings(&self) -> Settings {
        Settings { algorithm: self.algorithm, slots_log2: self.memory_log2, ..Settings::DEFAULT }
    }
}

/// Behaviour of a prefix; zero if the traffic does not have it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PrefixBehaviour {
    /// Share of its data segments that are out of order.
    share: f64,
    pub(super) is_heavy: bool,
    /// Whether it is heavy by design of the generator, not by chance.
    pub(super) is_heavy_by_design: bool,
}

impl PrefixBehaviour {
    /// Returns the true behaviour. A segment that was lost earlier and is retransmitted counts as
    /// out of order, since sequence numbers do not distinguish it from a late one.
    pub(super) fn from_truth(truth: &PrefixTruth) -> PrefixBehaviour {
        let share = (truth.out_of_order + truth.filling) as f64 / truth.segments.max(1) as f64;
        let is_heavy = truth.segments >= BETA && share > MUCH;
        PrefixBehaviour { share, is_heavy, is_heavy_by_design: is_heavy && truth.heavy }
    }

    /// Returns the behaviour by exact counts of a trace, in which no prefix is heavy by design.
    pub(super) fn from_counts(counts: &PrefixCounts) -> PrefixBehaviour {
        let share = share(counts);
        let is_heavy = counts.packets >= BETA && share > MUCH;
        PrefixBehaviour { share, is_heavy, is_heavy_by_design: false }
    }
}

/// Encodes a prefix like the core.
fn key(prefix: IpAddr) -> u64 {
    match prefix {
        IpAddr::V4(address) => u64::from(address.to_bits()) << 32 | 4,
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64 | 6,
    }
}

/// Result of a table for one trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableResult {
    /// Configuration of the table.
    pub setup: Setup,
    /// Prefixes found, that is, reported as heavy.
    pub found: u64,
    /// Found prefixes that are heavy.
    pub found_heavy: u64,
    /// Found prefixes that are heavy by design.
    pub found_by_design: u64,
    /// Found prefixes that reorder as much, but have too few segments to be heavy.
    pub found_light: u64,
    /// Heavy prefixes with fewer than [`LEAST_LATE`] late segments in followed flows.
    pub unseen: u64,
    /// Mean absolute error of the share of late segments of the found prefixes; `None` without
    /// any.
    pub error: Option<f64>,
    /// Segments of followed flows.
    pub followed: u64,
    /// Segments of all flows.
    pub segments: u64,
}

/// Trace and the seed of the tables that count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Kind of traffic.
    pub traffic: Traffic,
    /// Packets of the trace.
    pub packets: u64,
    /// Seed of the trace and of the hashes.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// The run.
    pub run: Run,
    /// Number of heavy prefixes.
    pub heavy: u64,
    /// Prefixes that are heavy by design. The others reorder lightly, and are heavy by chance.
    pub heavy_by_design: u64,
    /// Mean number of segments per flow.
    pub segments_per_flow: f64,
    /// Mean number of flows with a segment within the time after which a bucket is free: those that
    /// compete for buckets.
    pub active_flows: f64,
    /// Results of the tables.
    pub results: Vec<TableResult>,
}

impl Outcome {
    /// Returns the share of heavy prefixes that a table found.
    pub(crate) fn recall(&self, result: &TableResult) -> Option<f64> {
        (self.heavy > 0).then(|| result.found_heavy as f64 / self.heavy as f64)
    }

    /// Returns the share of prefixes heavy by design that a table found.
    pub(crate) fn recall_by_design(&self, result: &TableResult) -> Option<f64> {
        (self.heavy_by_design > 0)
            .then(|| result.found_by_design as f64 / self.heavy_by_design as f64)
    }
}

impl TableResult {
    /// Returns the share of found prefixes that are heavy.
    pub(crate) fn precision(&self) -> Option<f64> {
        (self.found > 0).then(|| self.found_heavy as f64 / self.found as f64)
    }

    /// Returns the share of segments whose flow was followed.
    pub(crate) fn share_followed(&self) -> f64 {
        self.followed as f64 / self.segments.max(1) as f64
    }
}

/// Table while it counts.
pub(super) struct CountingTable {
    setup: Setup,
    shared: Box<Shared>,
}

impl CountingTable {
    pub(super) fn new(setup: Setup) -> Self {
        CountingTable { setup, shared: Shared::boxed() }
    }

    fn count(&mut self, context: &MeasureContext<'_>, packets: &[Observation]) {
        let [bank, _] = &self.shared.banks;
        let shared_persistent = Reorder::shared_persistent(&self.shared.persistent);
        let memory = MeasurementMemory {
            own: &mut (),
            persistent: &mut (),
            shared: Reorder::shared(bank),
            shared_persistent,
        };
        Reorder::measure(&self.setup.settings(), memory, context, packets);
    }

    pub(super) fn results(&self, truth: &HashMap<u64, PrefixBehaviour>) -> TableResult {
        let mut wide = WindowTotals::boxed();
        let sum = &mut wide.reorder;
        let [bank, _] = &self.shared.banks;
        Reorder::merge_shared(sum, Reorder::shared(bank), &self.setup.settings());
        let behaviour =
            |prefix: &PrefixCounts| truth.get(&prefix.prefix).copied().unwrap_or_default();
        let found: Vec<(&PrefixCounts, PrefixBehaviour)> = sum
            .prefixes()
            .filter(|prefix| reorders(prefix))
            .map(|prefix| (prefix, behaviour(prefix)))
            .collect();
        let late: HashMap<u64, u64> =
            sum.prefixes().map(|prefix| (prefix.prefix, prefix.out_of_order)).collect();
        let is_unseen = |prefix| late.get(prefix).is_none_or(|late| *late < LEAST_LATE);
        let errors: f64 =
            found.iter().map(|(prefix, truth)| (share(prefix) - truth.share).abs()).sum();
        let followed = sum.prefixes().map(|prefix| prefix.packets).sum();
        TableResult {
            setup: self.setup,
            found: found.len() as u64,
            found_heavy: found.iter().filter(|(_, truth)| truth.is_heavy).count() as u64,
            found_by_design: found.iter().filter(|(_, truth)| truth.is_heavy_by_design).count()
                as u64,
            found_light: found
                .iter()
                .filter(|(_, truth)| !truth.is_heavy && truth.share > MUCH)
                .count() as u64,
            unseen: truth
                .iter()
                .filter(|(prefix, truth)| truth.is_heavy && is_unseen(prefix))
                .count() as u64,
            error: (!found.is_empty()).then(|| errors / found.len() as f64),
            followed,
            segments: followed + sum.unfollowed + sum.contended + sum.crowded,
        }
    }
}

/// Counts frames with all tables. `frames` calls its argument with each frame, and `observe` is
/// called with each packet that counts. Returns the result of `frames`.
pub(super) fn count_frames<T>(
    tables: &mut [CountingTable],
    seed: u64,
    mut observe: impl FnMut(&Observation),
    frames: impl FnOnce(&mut dyn FnMut(Link, &[u8], Arrival)) -> T,
) -> T {
    let tabulation = Tabulation::from_seed(seed);
    let measure_context = MeasureContext {
        hash: HashMode::Tabulated,
        tabulation: &tabulation,
        sharing: Sharing::Alone,
        own: Sharing::Alone,
        slot_ns: 1,
        bank: 0,
    };
    // All tables need the same fields of a packet.
    let any = Settings { algorithm: Algorithm::Sampling, ..Settings::DEFAULT };
    let settings = flowgauge_core::Settings { reorder: any, ..flowgauge_core::Settings::DEFAULT };
    let context = Context::new(settings, &tabulation, Sharing::Alone);
    let (mut state, shared) = (State::boxed(), Shared::boxed());
    let mut packets = Vec::with_capacity(BATCH);
    let result = frames(&mut |link: Link, frame: &[u8], arrival: Arrival| {
        let mut packet = Observation::of(&arrival);
        if !state.active(&shared, 0).observe::<false, _, _>(
            &context,
            EveryPacket,
            link,
            frame,
            &mut packet,
        ) {
            return;
        }
        observe(&packet);
        packets.push(packet);
        if packets.len() == BATCH {
            tables.iter_mut().for_each(|table| table.count(&measure_context, &packets));
            packets.clear();
        }
    });
    tables.iter_mut().for_each(|table| table.count(&measure_context, &packets));
    result
}

impl Run {
    /// Counts the trace with all of these tables.
    pub(crate) fn execute(&self, setups: &[Setup]) -> Outcome {
        let mut tables: Vec<CountingTable> =
            setups.iter().map(|setup| CountingTable::new(*setup)).collect();
        let profile = self.traffic.profile(self.packets, self.seed);
        let size = profile.layout.size;
        let mut traffic = ReorderTraffic::new(profile);
        // Interval of each flow's last segment, active flows summed over intervals, number of
        // intervals. An interval is the time after which a bucket is free.
        let (mut last, mut active, mut intervals) = (HashMap::new(), 0_u64, 0_u64);
        let nothing = |_: &Observation| {};
        count_frames(&mut tables, self.seed, nothing, |count| {
            while let Some((at, frame)) = traffic.advance() {
                intervals = at / IDLE_NS + 1;
                // Frames with data are longer than others.
                if let Some(flow) = frame.get(ADDRESSES_AND_PORTS).filter(|_| frame.len() == size) {
                    let flow = <[u8; 12]>::try_from(flow).unwrap_or_default();
                    active += u64::from(last.insert(flow, intervals) != Some(intervals));
                }
                count(Link::Ethernet, frame, Arrival::new(frame.len() as u32, at));
            }
        });
        let truth: HashMap<u64, PrefixBehaviour> = traffic
            .truth()
            .iter()
            .map(|truth| (key(truth.prefix), PrefixBehaviour::from_truth(truth)))
            .collect();
        let sum = |count: fn(&PrefixTruth) -> u64| {
            traffic.truth().iter().map(count).sum::<u64>().max(1) as f64
        };
        Outcome {
            run: *self,
            heavy: truth.values().filter(|truth| truth.is_heavy).count() as u64,
            heavy_by_design: truth.values().filter(|truth| truth.is_heavy_by_design).count() as u64,
            segments_per_flow: sum(|truth| truth.segments) / sum(|truth| truth.flows),
            active_flows: active as f64 / intervals.max(1) as f64,
            results: tables.iter().map(|table| table.results(&truth)).collect(),
        }
    }
}
