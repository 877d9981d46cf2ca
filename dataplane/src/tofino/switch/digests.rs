//! Digests that a switch sends: individual delays and alarms.

use super::{Counting, Rotation, Switch};
use crate::Event;
use crate::tofino::bank::Reading;
use crate::tofino::measurement::Samples;
use flowgauge_core::delay::DelaySample;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

impl Switch {
    /// Returns the delays received since the last call.
    pub(in crate::tofino) async fn delay_samples(&mut self) -> Vec<DelaySample> {
        if self.counting.is_some() && self.samples.is_some() {
            self.receive().await;
        }
        self.samples.as_mut().map_or_else(Vec::new, Samples::take)
    }

    /// Returns whether it receives digests.
    pub(super) fn learns(&self) -> bool {
        self.samples.is_some() || self.alarms.is_some()
    }

    /// Processes the digests that have arrived, for a limited time. Returns whether there were any.
    pub(super) async fn receive(&mut self) -> bool {
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        const MAX_DURATION: Duration = Duration::from_millis(50);
        if !self.learns() {
            return false;
        }
        // A window that is being closed is evaluated as a whole when it is.
        let is_open = |counting: &&Counting| matches!(counting.rotation, Rotation::None);
        let open = self.counting.as_ref().filter(is_open).map(|counting| counting.active);
        let Some(session) = &mut self.session else { return false };
        let began = Instant::now();
        let mut has_any = false;
        while began.elapsed() < MAX_DURATION
            && let Ok(Some(digests)) =
                tokio::time::timeout(POLL_INTERVAL, session.subscription.digests.recv()).await
        {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.samples
                .iter_mut()
                .for_each(|samples| samples.receive(&digests, now.as_nanos() as u64));
            if let Some(alarms) = &mut self.alarms
                && alarms.receive(&digests, open)
            {
                self.events.push(Event::Crossed(alarms.key));
            }
            has_any = true;
        }
        has_any
    }

    /// Returns the delays of a closed bank that were not taken before. Waits for missing ones as
    /// long as others arrive.
    pub(super) async fn close_samples(&mut self, reading: &mut Reading) -> Vec<DelaySample> {
        const MAX_WAIT: Duration = Duration::from_millis(100);
        let mut last = Instant::now();
        while self.samples.as_ref().is_some_and(|samples| !samples.are_all(&reading.bank))
            && last.elapsed() < MAX_WAIT
        {
            if self.receive().await {
                last = Instant::now();
            }
        }
        let Some(samples) = &mut self.samples else { return Vec::new() };
        // The bank is not shared yet.
        Arc::get_mut(&mut reading.bank).map_or_else(Vec::new, |bank| samples.close(bank))
    }
}
