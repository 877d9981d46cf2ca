//! Memory layout for given settings, as the loader creates it.

use super::{Core, MemoryLayout, SharedBanks};
use crate::list::{Settings, SharedPersistentBank};
use crate::state::{BANKS, State};

impl MemoryLayout {
    /// Returns the bytes that the arrays take for `cpus` CPUs: with these settings, or at most if
    /// `None`.
    #[must_use]
    pub fn memory(settings: Option<&Settings>, cpus: usize) -> usize {
        let (core, shared, together) = match settings {
            Some(settings) => {
                let layout = Self::of(settings);
                (
                    layout.core as usize,
                    if settings.shares() { size_of::<SharedBanks>() } else { 0 },
                    layout.together as usize,
                )
            }
            None => (
                size_of::<State>() + size_of::<Core>(),
                size_of::<SharedBanks>(),
                size_of::<SharedPersistentBank>(),
            ),
        };
        (cpus * core + shared) + together
    }

    /// Returns the layout for these settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let mut layout = MemoryLayout::NONE;
        let mut end = Self::FIRST;
        for (offset, used) in layout.own.iter_mut().zip(settings.used()) {
            *offset = end as u32;
            end += used.own.next_multiple_of(8);
        }
        layout.bank = end as u32;
        end = Self::bank(0, 0) + (BANKS * end);
        for (offset, used) in layout.persistent.iter_mut().zip(settings.used()) {
            *offset = end as u32;
            end += used.persistent.next_multiple_of(8);
        }
        layout.core = end as u32;
        end = 0;
        for (offset, used) in layout.shared_persistent.iter_mut().zip(settings.used()) {
            *offset = end as u32;
            end += used.shared_persistent.next_multiple_of(8);
        }
        layout.together = end as u32;
        layout
    }
}
