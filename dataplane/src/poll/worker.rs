//! State of a worker.

use super::PollMode;
use super::batch::Batch;
use super::gap::LongestGaps;
use super::gate::WorkerBarrier;
use super::handoff::SnapshotWriter;
use super::meter::LoadMeter;
use super::passes::PacketBuffers;
use super::truth::{ExactFlows, PacketKey};
use crate::hash_key::HashWords;
use crate::lock::lock;
use flowgauge_core::{BANKS, Filter, Observation, Settings, Sharing};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

/// A worker that has not started: the state that it shares with the backend, and its buffers.
pub struct Worker {
    pub(super) meter: Arc<LoadMeter>,
    /// Present if delays are measured by the worker's clock.
    pub(super) gaps: Option<Arc<LongestGaps>>,
    pub(super) poll_mode: PollMode,
    pub(super) writer: SnapshotWriter,
    pub(super) sharing: Sharing,
    pub(super) settings: Settings,
    /// Filter of the bank that packets are counted in, and those of all banks.
    pub(super) filter: Option<Arc<Filter>>,
    pub(super) filters: Arc<BankFilters>,
    pub(super) tabulation: HashWords,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub(super) slot_ns: u64,
    pub(super) gate: Arc<WorkerBarrier>,
    pub(super) stop: Arc<AtomicBool>,
    /// Packets that workers removed before the first window.
    pub(super) discarded: Arc<AtomicU64>,
    /// Present if only distinct flows in windows are measured.
    pub(super) batch: Option<Box<Batch>>,
    pub(super) passes: PacketBuffers,
    pub(super) truth: Option<Arc<ExactFlows>>,
    /// Packets not yet added to the exact counts.
    pub(super) keys: Vec<PacketKey>,
    pub(super) seen: Vec<Observation>,
}

/// Filters by bank, which all workers share, so that all packets of a window pass the same one. The
/// controller sets that of a bank before it requests the switch to it, and a worker reads it then:
/// the lock is taken only at a switch.
#[derive(Default)]
pub(super) struct BankFilters(Mutex<[Option<Arc<Filter>>; BANKS]>);

impl BankFilters {
    /// Sets the filter of a bank that no worker counts in.
    pub(super) fn set(&self, bank: usize, filter: Option<Arc<Filter>>) {
        lock(&self.0)[bank % BANKS] = filter;
    }

    /// Returns the filter of a bank.
    pub(super) fn of(&self, bank: usize) -> Option<Arc<Filter>> {
        lock(&self.0)[bank % BANKS].clone()
    }
}
