//! Configuration of a worker.

use super::delay_samples::DelaySampleSender;
use super::gate::WorkerBarrier;
use super::handoff::SnapshotWriter;
use super::meter::LoadMeter;
use super::truth::ExactFlows;
use crate::hash_key::HashWords;
use crate::poll_mode::PollMode;
use flowgauge_core::{Settings, Sharing};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Configuration of a worker, with the state that it shares with the backend.
pub struct WorkerConfig {
    pub(super) meter: Arc<LoadMeter>,
    pub(super) poll_mode: PollMode,
    pub(super) writer: SnapshotWriter,
    pub(super) delay_samples: Option<DelaySampleSender>,
    pub(super) sharing: Sharing,
    pub(super) settings: Settings,
    pub(super) tabulation: HashWords,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub(super) slot_ns: u64,
    pub(super) truth: Option<Arc<ExactFlows>>,
    pub(super) gate: Arc<WorkerBarrier>,
    pub(super) stop: Arc<AtomicBool>,
}
