//! Interface between backends and the suite.

pub use crate::common::SEED;
use crate::common::nothing;
use flowgauge_core::delay::prefixes::PrefixOwner;
use flowgauge_core::{Filter, HashMode, Precision, Settings, cardinality};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::{Capabilities, Dataplane, Snapshot, Tables};
use flowgauge_testing::definitions::{Expected, Model};
use flowgauge_testing::extent;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Factory of dataplanes of one kind.
pub trait Backend: Sync {
    /// Runs a case where this backend can run: here, unless it needs a network of its own.
    fn stage(&self, case: fn(&dyn Backend))
    where
        Self: Sized,
    {
        case(self);
    }

    /// Creates a dataplane without tables, and a way to feed it; `None` if this machine or this
    /// backend cannot, with a message.
    fn open(&self, setup: &Setup) -> Option<Rig>;

    /// Returns those of these frames that can reach this backend, in the form in which they arrive.
    /// Only captures have other link layers than Ethernet and truncated frames, and most interfaces
    /// reject very short frames.
    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame>;

    /// Returns whether a filter has conditions that this backend refuses to match.
    fn refuses(&self, _: &Filter) -> bool {
        false
    }

    /// Returns how many settings cases try.
    fn breadth(&self) -> Breadth {
        Breadth::Combinations
    }

    /// Returns how many dataplanes a case may use at a time. More than one where rotations wait for
    /// something other than a CPU.
    fn at_a_time(&self) -> usize {
        1
    }

    /// Returns the frames counted in each sketch of entropies: cores of this machine share one,
    /// pipes of a switch have their own.
    fn sharing(&self, frames: &[OwnedFrame]) -> Vec<Vec<OwnedFrame>> {
        vec![frames.to_vec()]
    }

    /// Returns the frames counted by each core or pipe.
    fn cores(&self, frames: &[OwnedFrame]) -> Vec<Vec<OwnedFrame>> {
        vec![frames.to_vec()]
    }

    /// Returns whether every core counts its frames in the order in which they are fed.
    fn in_order(&self) -> bool {
        true
    }

    /// Returns the number of cores that count frames of one feed at the same time.
    fn at_once(&self) -> usize {
        1
    }

    /// Returns the number of rotations under traffic that must lose nothing.
    fn rotations(&self) -> u64 {
        extent(2_000, 10_000)
    }

    /// Returns the longest slot that staggered registers can have, in nanoseconds.
    fn longest_slot(&self, _: Precision) -> u64 {
        u64::MAX
    }

    /// Creates a dataplane that will count these frames, sorted by timestamp, in trace time; `None`
    /// as in [`open`](Self::open).
    fn replay(&self, _: &Setup, _: &[OwnedFrame]) -> Option<Replay> {
        not_for_this_backend("trace time, which frames that arrive have not");
        None
    }
}

/// Number of settings that a case tries, each with its own dataplane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breadth {
    /// Just enough to check that settings are applied.
    Few,
    /// Every value of each setting, and every pair of values of two.
    Values,
    /// All combinations.
    Combinations,
}

/// Counting options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    pub settings: Settings,
    /// Whether to count exactly too; a backend without support has no exact counts in its
    /// snapshots.
    pub truth: bool,
    /// Length of a slot of staggered registers, in nanoseconds; 0 for the default.
    pub slot_ns: u64,
    /// Whether packets will be filtered.
    pub filters: bool,
    /// Owners of addresses; settings have the fingerprint.
    pub prefixes: &'static [PrefixOwner],
}

impl Setup {
    pub fn with(change: impl FnOnce(&mut cardinality::Settings)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup.settings.cardinality);
        setup
    }

    /// Measures only what `change` turns on, and no distinct flows.
    pub fn only(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = nothing();
        change(&mut settings);
        Setup { settings, ..Setup::default() }
    }

    pub fn with_hash(mut self, hash: HashMode) -> Self {
        self.settings.hash = hash;
        self
    }

    pub fn precision(&self) -> Precision {
        self.settings.cardinality.precision
    }

    pub fn tables(&self) -> Tables {
        Tables::new(&self.settings, SEED).with_prefixes(self.prefixes)
    }

    pub fn model(&self) -> Model {
        Model::new(&self.settings, SEED)
    }
}

/// A dataplane with its feeder.
pub struct Rig {
    pub dataplane: Box<dyn Dataplane>,
    pub feeder: Arc<dyn Feeder>,
}

/// Input of a dataplane. It must not lose frames: a feeder goes no faster than the dataplane
/// counts.
pub trait Feeder: Send + Sync {
    /// Sends frames, in order; they may be counted later.
    fn send(&self, frames: Arc<[OwnedFrame]>);

    /// Sends frames. Once it returns, they and all earlier ones are in the answer to the
    /// dataplane's next call.
    fn feed(&self, frames: Arc<[OwnedFrame]>);
}

/// A dataplane in trace time.
pub struct Replay {
    pub dataplane: Box<dyn Dataplane>,
    /// Function that returns when exactly the frames with an earlier timestamp were counted.
    pub advance: Box<dyn Fn(u64)>,
}

/// Creates a dataplane with its tables installed, ready to count; `None` if the backend cannot be
/// opened or does not support the settings.
pub fn start(backend: &dyn Backend, setup: &Setup) -> Option<Rig> {
    let mut rig = backend.open(setup)?;
    if !can(rig.dataplane.capabilities(), &setup.settings) {
        return None;
    }
    rig.dataplane.install(&setup.tables()).unwrap();
    Some(rig)
}

/// Creates a dataplane that is ready to count these frames in trace time; `None` as in
/// [`Backend::open`].
pub fn start_replay(backend: &dyn Backend, setup: &Setup, frames: &[OwnedFrame]) -> Option<Replay> {
    let mut replay = backend.replay(setup, frames)?;
    replay.dataplane.install(&setup.tables()).unwrap();
    Some(replay)
}

/// Returns the Ethernet frames that can arrive, whole.
#[cfg(target_os = "linux")]
pub fn arriving(frames: Vec<OwnedFrame>, is_possible: impl Fn(&[u8]) -> bool) -> Vec<OwnedFrame> {
    let ethernet = flowgauge_core::Link::Ethernet;
    let possible = |frame: &OwnedFrame| frame.link == ethernet && is_possible(&frame.bytes);
    let arrived = |frame: OwnedFrame| OwnedFrame { wire_length: frame.bytes.len() as u32, ..frame };
    frames.into_iter().filter(possible).map(arrived).collect()
}

fn can(capabilities: &Capabilities, settings: &Settings) -> bool {
    let refused = capabilities.check(settings);
    if let Err(error) = &refused {
        println!("not for this backend: {error}");
    }
    refused.is_ok()
}

/// Prints what a backend lacks for a case or a part of one. It is not
/// [skipped](flowgauge_testing::skip), since no machine could change that.
pub fn not_for_this_backend(need: impl Display) {
    println!("not for this backend: needs {need}");
}

/// Returns whether packets are counted in the order in which they are fed, and samples are cuts
/// through that order.
pub fn counts_in_order(capabilities: &Capabilities) -> bool {
    capabilities.workers == 1 && capabilities.atomic_snapshots
}

impl Rig {
    pub fn feed(&self, frames: impl Into<Arc<[OwnedFrame]>>) {
        self.feeder.feed(frames.into());
    }

    pub fn rotate(&mut self) -> Snapshot {
        self.dataplane.rotate().unwrap()
    }

    pub fn sample(&mut self) -> Snapshot {
        self.dataplane.sample().unwrap()
    }

    /// Asserts that exactly these frames are in the window that ends.
    #[track_caller]
    pub fn assert_window(&mut self, setup: &Setup, frames: &[OwnedFrame], what: &str) {
        assert_same(&self.rotate(), &setup.model().expect(frames), what);
    }

    /// Feeds frames; a backend that may reorder them gets one at a time.
    pub fn feed_in_order(&mut self, backend: &dyn Backend, frames: &[OwnedFrame]) {
        if backend.in_order() {
            self.feed(frames);
            return;
        }
        for frame in frames {
            self.feed([frame.clone()]);
            self.sample();
        }
    }
}

/// Background traffic during calls of the dataplane.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
}

impl Traffic {
    /// Feeds `frames(0..a)`, `frames(a..b)`, … from another thread, in batches of all sizes up to
    /// 100.
    pub fn start(
        feeder: &Arc<dyn Feeder>,
        frames: impl Fn(std::ops::Range<u64>) -> Arc<[OwnedFrame]> + Send + 'static,
    ) -> Self {
        let (feeder, stop) = (Arc::clone(feeder), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            let mut sent = 0;
            for batch in 0_u64.. {
                let size = 1 + batch * 37 % 100;
                let stopping = stopped.load(Ordering::Relaxed);
                // The sender waits at times, so that there are idle workers as well as busy ones,
                // and the queue stays short.
                if stopping || batch % 16 == 15 {
                    feeder.feed(frames(sent..sent + size));
                } else {
                    feeder.send(frames(sent..sent + size));
                }
                sent += size;
                if stopping {
                    break;
                }
            }
            sent
        });
        Traffic { stop, sender }
    }

    /// Ends the traffic; returns the number of packets. The next call counts all of them.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap()
    }
}

/// Asserts that a snapshot equals the expected one.
#[track_caller]
pub fn assert_same(snapshot: &Snapshot, expected: &Expected, what: &str) {
    let precision = Precision::new(expected.levels.len().ilog2() as u8).unwrap();
    assert_eq!(snapshot.bank.counters, expected.counters, "counters: {what}");
    if snapshot.packets_before == snapshot.packets_after {
        assert_eq!(snapshot.packets_after, expected.packets(), "packet counter: {what}");
    }
    assert_levels(snapshot.bank.cardinality.levels(precision), &expected.levels, what);
}

#[track_caller]
pub fn assert_levels(levels: &[u8], expected: &[u8], what: &str) {
    assert_eq!(levels.len(), expected.len(), "number of registers: {what}");
    if let Some(index) = (0..levels.len()).find(|&index| levels[index] != expected[index]) {
        panic!("register {index} is {} and not {}: {what}", levels[index], expected[index]);
    }
}
