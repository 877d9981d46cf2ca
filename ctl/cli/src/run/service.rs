//! Notifications to the service manager (systemd): ready, reloading, stopping, and the watchdog.
//!
//! Notifications are sent only if `NOTIFY_SOCKET` is set. The watchdog is notified only while every
//! controller makes progress: each has a [`Heartbeat`], and a notification is sent once all of them
//! have beaten since the previous one.

use crate::locked;
use flowgauge_ctl::Record;
use flowgauge_ctl::controller::{Sink, Summary};
use flowgauge_dataplane::Dataplane;
use sd_notify::{NotifyState, notify, watchdog_enabled};
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum number of notifications per timeout of the watchdog.
const NOTIFICATIONS_PER_TIMEOUT: u32 = 4;

/// Heartbeats of all controllers, and notifications sent so far.
struct HeartbeatState {
    /// Heartbeats by number, and whether each has beaten since the watchdog was last notified.
    heartbeats: BTreeMap<u64, bool>,
    /// Number of the latest heartbeat.
    last_number: u64,
    /// Whether the service manager was notified that the run is ready.
    is_ready: bool,
    /// Time at which the watchdog was last notified.
    notified: Option<Instant>,
}

static STATE: Mutex<HeartbeatState> = Mutex::new(HeartbeatState {
    heartbeats: BTreeMap::new(),
    last_number: 0,
    is_ready: false,
    notified: None,
});

fn notify_manager(states: &[NotifyState<'_>]) {
    // Debug level only: a service manager that is gone would repeat this forever.
    if let Err(error) = notify(states) {
        tracing::debug!("cannot notify the service manager: {error}");
    }
}

/// Heartbeat of a controller, by its number. The watchdog waits for it until it is dropped.
pub(crate) struct Heartbeat(u64);

impl Heartbeat {
    /// Adds a heartbeat. The run is ready once all have beaten.
    pub(crate) fn new() -> Self {
        let mut state = locked(&STATE);
        state.last_number += 1;
        let number = state.last_number;
        state.heartbeats.insert(number, false);
        Heartbeat(number)
    }

    /// Reports progress of the controller.
    pub(crate) fn beat(&self) {
        let mut state = locked(&STATE);
        if let Some(has_beaten) = state.heartbeats.get_mut(&self.0) {
            *has_beaten = true;
        }
        state.notify_if_due(watchdog_enabled(), notify_manager);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        locked(&STATE).heartbeats.remove(&self.0);
    }
}

impl Sink for Heartbeat {
    fn record(&mut self, _: &Record) -> io::Result<()> {
        Ok(())
    }

    fn heartbeat(&mut self, _: &dyn Dataplane, _: &Summary) {
        self.beat();
    }
}

impl HeartbeatState {
    /// Sends the notifications that are due if all heartbeats have beaten. `watchdog` is the
    /// timeout of the watchdog, if there is one.
    fn notify_if_due(&mut self, watchdog: Option<Duration>, notify: impl Fn(&[NotifyState<'_>])) {
        if !self.heartbeats.values().all(|has_beaten| *has_beaten) {
            return;
        }
        if !std::mem::replace(&mut self.is_ready, true) {
            notify(&[NotifyState::Ready]);
        }
        let is_due = |timeout: Duration| {
            let interval = timeout / NOTIFICATIONS_PER_TIMEOUT;
            self.notified.is_none_or(|notified| notified.elapsed() >= interval)
        };
        if watchdog.is_some_and(is_due) {
            notify(&[NotifyState::Watchdog]);
            self.notified = Some(Instant::now());
            self.heartbeats.values_mut().for_each(|has_beaten| *has_beaten = false);
        }
    }
}

/// Reports that the configuration is being read again, until [`reloaded`] is called.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify_manager(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!("cannot notify the service manager of a reload: {error}"),
    }
}

/// Reports that the configuration was read again, successfully or not.
pub(crate) fn reloaded() {
    notify_manager(&[NotifyState::Ready]);
}

/// Reports that the run is ending.
pub(crate) fn stopping() {
    notify_manager(&[NotifyState::Stopping]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_watchdog_is_notified_only_while_all_controllers_progress() {
        let sent = RefCell::new(Vec::new());
        let notify = |states: &[NotifyState<'_>]| {
            sent.borrow_mut().extend(states.iter().map(ToString::to_string))
        };
        let mut state = HeartbeatState {
            heartbeats: BTreeMap::from([(1, false), (2, false)]),
            last_number: 2,
            is_ready: false,
            notified: None,
        };
        // With a timeout of zero, a notification is always due.
        let mut beat = |beaten: &[u64]| {
            beaten.iter().for_each(|number| _ = state.heartbeats.insert(*number, true));
            state.notify_if_due(Some(Duration::ZERO), notify);
            std::mem::take(&mut *sent.borrow_mut())
        };
        assert_eq!(beat(&[1]), [""; 0], "the second has not begun yet");
        assert_eq!(beat(&[2]), ["READY=1", "WATCHDOG=1"]);
        assert_eq!(beat(&[1]), [""; 0], "the second makes no progress");
        assert_eq!(beat(&[1]), [""; 0]);
        assert_eq!(beat(&[2]), ["WATCHDOG=1"]);
        state.heartbeats.remove(&2);
        state.heartbeats.insert(1, true);
        state.notify_if_due(None, notify);
        assert_eq!(*sent.borrow(), [""; 0], "no watchdog is set");
    }
}
