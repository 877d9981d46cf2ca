//! State of a worker.

use super::PollMode;
use super::batch::Batch;
use super::filter::BankFilters;
use super::gap::LongestGaps;
use super::gate::WorkerBarrier;
use super::handoff::SnapshotWriter;
use super::meter::LoadMeter;
use super::passes::PacketBuffers;
use super::truth::{ExactFlows, PacketKey};
use crate::hash_key::HashWords;
use flowgauge_core::{Filter, Observation, Settings, Sharing};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    /// Present if only distinct flows in windows are measured.
    pub(super) batch: Option<Box<Batch>>,
    pub(super) passes: PacketBuffers,
    pub(super) truth: Option<Arc<ExactFlows>>,
    /// Packets not yet added to the exact counts.
    pub(super) keys: Vec<PacketKey>,
    pub(super) seen: Vec<Observation>,
}
