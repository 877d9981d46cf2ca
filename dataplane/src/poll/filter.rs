//! Filters of workers: one for each bank, so that all packets of a window pass the same one.
//!
//! The controller writes the filter of a bank before it requests the switch to it; a worker reads
//! it when it switches. The lock is taken only at a switch.

use flowgauge_core::{BANKS, Filter};
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
