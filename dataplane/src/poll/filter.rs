//! Filters of workers: one for each bank, so that all packets of a window pass the same one.
//!
//! The controller writes the filter of a bank before it requests the switch to it; a worker reads
//! it when it switches. The lock is taken only at a switch.

use super::port_frame::PortFrame;
use flowgauge_core::filter::Filter;
use flowgauge_core::{BANKS, Counters, parse};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Filters by bank, which all workers share.
#[derive(Default)]
pub(super) struct BankFilters(Mutex<[Option<Arc<Filter>>; BANKS]>);

impl BankFilters {
    fn filters(&self) -> MutexGuard<'_, [Option<Arc<Filter>>; BANKS]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the filter of a bank that no worker counts in.
    pub(super) fn set(&self, bank: usize, filter: Option<Arc<Filter>>) {
        self.filters()[bank % BANKS] = filter;
    }

    /// Returns the filter of a bank.
    pub(super) fn of(&self, bank: usize) -> Option<Arc<Filter>> {
        self.filters()[bank % BANKS].clone()
    }
}

/// Filter at work on a batch of frames, with the frames that it left out.
pub(super) struct FrameFilter<'a> {
    filter: Option<&'a Filter>,
    headers: parse::Settings,
    unmatched: u64,
    unmatched_bytes: u64,
}

impl<'a> FrameFilter<'a> {
    pub(super) fn new(filter: Option<&'a Filter>, headers: parse::Settings) -> Self {
        FrameFilter { filter, headers, unmatched: 0, unmatched_bytes: 0 }
    }

    /// Returns whether a frame is counted. Others are only added up here.
    #[inline(always)]
    pub(super) fn admits(&mut self, frame: &PortFrame<'_>) -> bool {
        let PortFrame { bytes, wire_length, link, .. } = *frame;
        let Some(filter) = self.filter else { return true };
        let is_match = filter.matches(self.headers, link, bytes, wire_length);
        if !is_match {
            self.unmatched += 1;
            self.unmatched_bytes += u64::from(wire_length);
        }
        is_match
    }

    /// Adds the frames that were left out to a bank.
    #[inline(always)]
    pub(super) fn finish(self, counters: &mut Counters) {
        counters.leave_out(self.unmatched, self.unmatched_bytes);
    }
}
