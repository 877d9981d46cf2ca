//! What a backend brings to the suite.

use crate::model::Model;
use flowgauge_core::delay::prefixes::Owned;
use flowgauge_core::{Precision, Settings};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::{Capabilities, Dataplane, Snapshot, Tables};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// A way to make dataplanes of one kind.
pub trait Backend: Sync {
    /// Runs a case where this backend can run: here, unless it needs a network of its own.
    fn stage(&self, case: fn(&dyn Backend))
    where
        Self: Sized,
    {
        case(self);
    }

    /// A dataplane without tables, and a way to give it frames; `None` if this machine or this
    /// backend cannot, and says why.
    fn open(&self, setup: &Setup) -> Option<Rig>;

    /// Of these frames those that can come to this backend, as they would come. Only captures have
    /// other link layers than Ethernet and frames that are shorter than they were on the wire, and
    /// most interfaces refuse very short frames.
    fn possible(&self, frames: Vec<OwnedFrame>) -> Vec<OwnedFrame>;

    /// How many settings cases go through.
    fn breadth(&self) -> Breadth {
        Breadth::Combinations
    }

    /// Dataplanes that a case may use at a time. More than one where rotations wait for something
    /// else than a CPU.
    fn at_a_time(&self) -> usize {
        1
    }

    /// What is counted of these frames in each sketch of entropies: cores of this machine share
    /// one, pipes of a switch have their own.
    fn sharing(&self, frames: &[OwnedFrame]) -> Vec<Vec<OwnedFrame>> {
        vec![frames.to_vec()]
    }

    /// What each core, or pipe, counts of these frames.
    fn cores(&self, frames: &[OwnedFrame]) -> Vec<Vec<OwnedFrame>> {
        vec![frames.to_vec()]
    }

    /// Whether every core counts its frames in the order in which they are fed.
    fn in_order(&self) -> bool {
        true
    }

    /// Cores that count frames of one feed at the same time.
    fn at_once(&self) -> usize {
        1
    }

    /// Rotations under traffic that must lose nothing.
    fn rotations(&self) -> u64 {
        10_000
    }

    /// The longest slot that staggered registers can have.
    fn longest_slot(&self, _: Precision) -> u64 {
        u64::MAX
    }

    /// A dataplane that will count these frames, sorted by timestamp, in the time of their
    /// timestamps; `None` likewise.
    fn replay(&self, setup: &Setup, frames: &[OwnedFrame]) -> Option<Replay>;
}

/// How many settings a case goes through, each with a dataplane of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breadth {
    /// No more than it takes to see that settings arrive.
    Few,
    /// Every value of each setting, and every pair of values of two.
    Values,
    /// All combinations.
    Combinations,
}

/// How to count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    pub settings: Settings,
    /// Exact counts as well; a backend without them just has none in its snapshots.
    pub truth: bool,
    /// Length of a slot of staggered registers, in nanoseconds; 0 for whatever is usual.
    pub slot_ns: u64,
    /// Whose addresses are; settings have the fingerprint.
    pub prefixes: &'static [Owned],
}

impl Setup {
    pub fn with(change: impl FnOnce(&mut flowgauge_core::cardinality::Settings)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup.settings.cardinality);
        setup
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

/// Seed of the tables.
pub const SEED: u64 = 1;

/// A dataplane that counts what its feeder feeds.
pub struct Rig {
    pub dataplane: Box<dyn Dataplane>,
    pub feeder: Arc<dyn Feeder>,
}

/// The way into a dataplane. No frame may get lost on it: a feeder goes no faster than the
/// dataplane counts.
pub trait Feeder: Send + Sync {
    /// Hands over frames, in order; they may be counted later.
    fn send(&self, frames: Arc<[OwnedFrame]>);

    /// Hands over frames. Once it returns, they and all that were sent before are in the answer to
    /// the dataplane's next call.
    fn feed(&self, frames: Arc<[OwnedFrame]>);
}

/// A dataplane in trace time.
pub struct Replay {
    pub dataplane: Box<dyn Dataplane>,
    /// Returns when every frame with a timestamp before the given one was counted, and no other.
    pub advance: Box<dyn Fn(u64)>,
}

/// A dataplane with its tables installed, ready to count; `None` if the backend cannot be opened or
/// cannot count this.
pub fn start(backend: &dyn Backend, setup: &Setup) -> Option<Rig> {
    let mut rig = backend.open(setup)?;
    if !can(rig.dataplane.capabilities(), &setup.settings) {
        return None;
    }
    rig.dataplane.install(&setup.tables()).unwrap();
    Some(rig)
}

fn can(capabilities: &Capabilities, settings: &Settings) -> bool {
    let refused = capabilities.check(settings);
    if let Err(error) = &refused {
        println!("not for this backend: {error}");
    }
    refused.is_ok()
}

/// Says what a backend lacks for a case, or a part of one. No machine could change that: it is not
/// [skipped](flowgauge_testing::skip).
pub fn not_for_this_backend(need: impl Display) {
    println!("not for this backend: needs {need}");
}

/// Whether packets are counted in the order in which they are fed, and samples are cuts through
/// that order.
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
}

/// Packets that come while the dataplane is asked.
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
                // Now and then the sender waits, so that there are idle workers as well as busy
                // ones, and no endless queue.
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

    /// Ends the traffic; gives the number of packets, all of which are counted by the next call.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap()
    }
}

/// Asserts that a snapshot holds exactly what it should.
#[track_caller]
pub fn assert_same(
    snapshot: &Snapshot,
    expected: &crate::model::Expected,
    precision: Precision,
    what: &str,
) {
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
