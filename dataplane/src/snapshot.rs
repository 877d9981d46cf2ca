//! What a dataplane hands to the controller.

use crate::losses::Losses;
use crate::place::Place;
use crate::tally::Tally;
use flowgauge_core::delay::sample::Sample;
use flowgauge_core::reorder::Prefix;
use flowgauge_core::{ENTROPIES, Exact, HashIdentity, Lasting, WideBank};
use std::sync::Arc;

/// A bank, merged over all cores and places, as it was at one instant.
#[derive(Clone)]
pub struct Snapshot {
    /// Counters, registers and sketches.
    pub bank: Arc<WideBank>,
    /// What lasts beyond rotations, in samples of measurements that use it; staggered registers are
    /// read in the slot of the time of the sample, or of [`slot_time`](Self::slot_time).
    pub lasting: Option<Box<Lasting>>,
    /// The time of the sample by the clock that slots go by, in nanoseconds, where that is not the
    /// time since the Unix epoch.
    pub slot_time: Option<u64>,
    /// The packet counter read before the registers.
    pub packets_before: u64,
    /// The packet counter read after the registers; the same where [snapshots are
    /// atomic](crate::Capabilities::atomic_snapshots).
    pub packets_after: u64,
    /// How the registers were hashed.
    pub hash: HashIdentity,
    /// Exact counts, when they were asked for.
    pub truth: Option<Truth>,
    /// Those of them that need no flows, of a window that is closed.
    pub exact: Option<Arc<Exact>>,
    /// What all flows of each prefix did, counted exactly, of a window that is closed.
    pub prefixes: Option<Arc<[Prefix]>>,
    /// Of a window that is closed, delays one by one that were not
    /// [taken](crate::Dataplane::delays) before.
    pub delays: Vec<DelaySample>,
    /// Whether everything since the bank was opened is in it. It is not when a device was started
    /// anew in between.
    pub complete: bool,
    /// The same by place, when packets are counted at several; the places are those of
    /// [`Capabilities::places`](crate::Capabilities::places), in that order.
    pub parts: Vec<Part>,
    /// CPU time that the workers used since the rotation before, in nanoseconds. Unknown in
    /// samples, in trace time, and where the kernel or a switch counts.
    pub cpu_ns: Option<u64>,
}

impl Snapshot {
    /// A bank as it was at one instant, with nothing beside it.
    #[must_use]
    pub fn of(bank: impl Into<Arc<WideBank>>, hash: HashIdentity) -> Self {
        let bank = bank.into();
        let packets = bank.counters.packets();
        Snapshot {
            bank,
            lasting: None,
            slot_time: None,
            packets_before: packets,
            packets_after: packets,
            hash,
            truth: None,
            exact: None,
            prefixes: None,
            delays: Vec::new(),
            complete: true,
            parts: Vec::new(),
            cpu_ns: None,
        }
    }
}

/// A delay, and where its answer was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelaySample {
    /// Which of the [places](crate::Capabilities::places).
    pub place: usize,
    /// The delay.
    pub sample: Sample,
}

/// What was counted at one of several places.
#[derive(Clone)]
pub struct Part {
    /// Where.
    pub place: Place,
    /// What was counted there; has no parts of its own.
    pub snapshot: Snapshot,
    /// Packets lost there since the start.
    pub losses: Losses,
    /// Packets received there, as [`received`](crate::Dataplane::received) has it; of a window that
    /// is closed.
    pub received: Option<Tally>,
}

/// What an earlier process left counting, taken over by [`install`](crate::Dataplane::install).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// When counting began, in nanoseconds since the Unix epoch.
    pub since_ns: u64,
    /// When those windows began that nobody has published yet, oldest first, in nanoseconds since
    /// the Unix epoch. Each takes a rotation; the last one goes on until then.
    pub open_windows: Vec<u64>,
    /// Number of the first of them.
    pub next_window: u64,
}

/// Exact numbers, kept beside registers and sketches for comparison. Takes memory for every flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Truth {
    /// Distinct flows in this window so far; with staggered registers, in the time they cover.
    pub window: u64,
    /// Distinct flows since the start, up to the last closed window; with staggered registers as
    /// `window`.
    pub total: u64,
    /// Exact entropies of this window so far, in bits, of those that are measured.
    pub entropy: [Option<f64>; ENTROPIES],
}
