//! Results that a dataplane returns to the controller.

use crate::flow_counts::FlowCounts;
use crate::losses::Losses;
use crate::place::CountingPoint;
use crate::tally::CountRange;
use flowgauge_core::delay::{DelaySample, WindowDelays};
use flowgauge_core::reorder::PrefixCounts;
use flowgauge_core::spread::FanOut;
use flowgauge_core::{
    ENTROPIES, Exact, HashIdentity, KeyKind, PersistentBank, SPREADS, WindowTotals,
};
use std::sync::Arc;

/// Number of kinds of keys.
pub(crate) const KINDS: usize = KeyKind::ALL.len();

/// State of a bank at one instant, merged over all cores and counting points.
#[derive(Clone)]
pub struct Snapshot {
    /// Counters, registers and sketches.
    pub bank: Arc<WindowTotals>,
    /// Persistent state that rotations do not clear; present in samples of measurements that use
    /// it. Staggered registers are read for the slot of the sample's time, or of
    /// [`slot_time`](Self::slot_time).
    pub persistent: Option<Box<PersistentBank>>,
    /// Time of the sample by the clock that defines slots, in nanoseconds, if that clock is not the
    /// time since the Unix epoch.
    pub slot_time: Option<u64>,
    /// Packet counter, read before the registers.
    pub packets_before: u64,
    /// Packet counter, read after the registers; equal to `packets_before` where [snapshots are
    /// atomic](crate::Capabilities::atomic_snapshots).
    pub packets_after: u64,
    /// Identity of the hash that filled the registers.
    pub hash: HashIdentity,
    /// Exact counts, if configured.
    pub truth: Option<Truth>,
    /// Exact counts that need no table of flows; set for a closed window.
    pub exact: Option<Arc<Exact>>,
    /// Exact counts of each flow by the keys of measurements, in the order of [`KeyKind::ALL`]; set
    /// for a closed window, unless there are [too many](crate::poll::Options::max_exact).
    pub flows: [Option<Arc<FlowCounts>>; KINDS],
    /// Exact delays of all requests; set as `flows`.
    pub delays: Option<Arc<WindowDelays>>,
    /// Exact counts of each prefix over all flows; set as `flows`.
    pub prefixes: Option<Arc<[PrefixCounts]>>,
    /// Exact numbers of distinct others of every key of each sketch of
    /// [`spread`](flowgauge_core::spread), the most first; set as `flows`.
    pub fan_outs: Option<Arc<[Vec<FanOut>; SPREADS]>>,
    /// Delay samples that were not [taken](crate::Dataplane::delay_samples) before; set for a
    /// closed window.
    pub delay_samples: Vec<DelaySample>,
    /// Whether the snapshot covers all packets since the bank was opened. False if a device was
    /// restarted in between.
    pub complete: bool,
    /// The same per counting point, if there are several; in the order of
    /// [`Capabilities::places`](crate::Capabilities::places).
    pub parts: Vec<Part>,
    /// CPU time that the workers used since the previous rotation, in nanoseconds. `None` in
    /// samples, in trace time, and where the kernel or a switch counts.
    pub cpu_ns: Option<u64>,
    /// Longest time by which the timestamps of this window's delays may be late, in nanoseconds: the
    /// longest gap between two polls of a worker, in this window or in one in which a request may
    /// have arrived. Zero without delays, and if packets are timestamped as they arrive.
    pub gap_ns: u64,
}

impl Snapshot {
    /// Creates a snapshot of a bank at one instant, with all other fields empty.
    #[must_use]
    pub fn of(bank: impl Into<Arc<WindowTotals>>, hash: HashIdentity) -> Self {
        let bank = bank.into();
        let packets = bank.counters.packets();
        Snapshot {
            bank,
            persistent: None,
            slot_time: None,
            packets_before: packets,
            packets_after: packets,
            hash,
            truth: None,
            exact: None,
            flows: Default::default(),
            delays: None,
            prefixes: None,
            fan_outs: None,
            delay_samples: Vec::new(),
            complete: true,
            parts: Vec::new(),
            cpu_ns: None,
            gap_ns: 0,
        }
    }

    /// Returns the exact counts of each flow by a key, if they are known.
    #[must_use]
    pub fn flows_by(&self, key: KeyKind) -> Option<&FlowCounts> {
        self.flows.get(key as usize)?.as_deref()
    }
}

/// Snapshot of one of several counting points.
#[derive(Clone)]
pub struct Part {
    /// The counting point.
    pub place: CountingPoint,
    /// Its snapshot; its own `parts` are empty.
    pub snapshot: Snapshot,
    /// Packets lost there since the start.
    pub losses: Losses,
    /// Packets received there, as in [`received`](crate::Dataplane::received); set for a closed
    /// window.
    pub received: Option<CountRange>,
}

/// Unfinished windows of an earlier process, taken over by [`install`](crate::Dataplane::install).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Start times of the windows not yet published, oldest first, in nanoseconds since the Unix
    /// epoch. Each takes one rotation; the last window stays open until then.
    pub open_windows: Vec<u64>,
    /// Run that began each of these windows and may have published it already; `None` if unknown.
    pub runs: Vec<Option<String>>,
    /// Number of the first of these windows.
    pub next_window: u64,
}

/// Exact numbers for comparison with registers and sketches. A number is `None` if there are
/// [too many](crate::poll::Options::max_exact) flows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Truth {
    /// Distinct flows in this window so far; with staggered registers, in the time they cover.
    pub window: Option<u64>,
    /// Distinct flows since the start, up to the last closed window; with staggered registers as
    /// `window`.
    pub total: Option<u64>,
    /// Exact entropies of this window so far, in bits, for the measured keys.
    pub entropy: [Option<f64>; ENTROPIES],
}
