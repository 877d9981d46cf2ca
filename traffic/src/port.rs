//! Port on generated packets.

use crate::generator::Generator;
use crate::profile::Profile;
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{self, MemoryPort, NumberedFrames, Ports};
use std::sync::Arc;

/// Creates ports that share the packets of one profile among `workers`.
#[must_use]
pub fn memory(profile: Profile, workers: usize, pace: Pace) -> Ports<MemoryPort> {
    port::memory(Arc::new(Generator::new(profile)), workers, pace)
}

impl NumberedFrames for Generator {
    fn name(&self) -> String {
        format!("memory:{}", self.profile())
    }

    fn packets(&self) -> Option<u64> {
        self.profile().packets
    }

    fn is_timed(&self) -> bool {
        self.profile().rate.is_some()
    }

    fn timestamp(&self, index: u64) -> u64 {
        self.profile().timestamp(index)
    }

    fn template(&self) -> &[u8] {
        Generator::template(self)
    }

    fn fill(&self, first: u64, frames: &mut [u8], timestamps: &mut [u64]) {
        self.fill_all(first, frames);
        (first..)
            .zip(timestamps)
            .for_each(|(index, timestamp)| *timestamp = self.profile().timestamp(index));
    }
}
