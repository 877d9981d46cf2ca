//! State of a worker.

use super::Options;
use super::batch::Batch;
use super::gap::LongestGaps;
use super::gate::Gate;
use super::handoff::SnapshotWriter;
use super::matcher::Matcher;
use super::meter::LoadMeter;
use super::passes::PacketBuffers;
use super::threads::lock;
use super::truth::{ExactFlows, PacketKey};
use crate::hash_key::HashWords;
use flowgauge_core::{BANKS, Observation, Shared, Sharing};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

/// State that the backend shares with all of its workers.
pub(super) struct WorkerShared {
    pub(super) options: Options,
    pub(super) sharing: Sharing,
    pub(super) gate: Arc<Gate>,
    /// Sketches that all workers count in.
    pub(super) sketches: Arc<Shared>,
    pub(super) filters: BankFilters,
    /// Whether workers are to end.
    pub(super) stop: AtomicBool,
    /// Packets that workers removed before the first window and that are not yet excluded from those
    /// received.
    pub(super) discarded: AtomicU64,
    /// Present if delays are measured by the workers' clock.
    pub(super) gaps: Option<Arc<LongestGaps>>,
    pub(super) truth: Option<ExactFlows>,
}

/// A worker that has not started, with its buffers.
pub struct Worker {
    pub(super) shared: Arc<WorkerShared>,
    pub(super) meter: Arc<LoadMeter>,
    pub(super) writer: SnapshotWriter,
    /// Filter of the bank that packets are counted in.
    pub(super) filter: Option<Arc<Matcher>>,
    pub(super) tabulation: HashWords,
    /// Present if only distinct flows in windows are measured.
    pub(super) batch: Option<Box<Batch>>,
    pub(super) passes: PacketBuffers,
    /// Packets not yet added to the exact counts.
    pub(super) keys: Vec<PacketKey>,
    pub(super) seen: Vec<Observation>,
}

/// Filters by bank, which all workers share, so that all packets of a window pass the same one. The
/// controller sets that of a bank before it requests the switch to it, and a worker reads it then:
/// the lock is taken only at a switch.
#[derive(Default)]
pub(super) struct BankFilters(Mutex<[Option<Arc<Matcher>>; BANKS]>);

impl BankFilters {
    /// Sets the filter of a bank that no worker counts in.
    pub(super) fn set(&self, bank: usize, filter: Option<Arc<Matcher>>) {
        lock(&self.0)[bank % BANKS] = filter;
    }

    /// Returns the filter of a bank.
    pub(super) fn of(&self, bank: usize) -> Option<Arc<Matcher>> {
        lock(&self.0)[bank % BANKS].clone()
    }
}
