//! Notifications to the service manager (systemd): ready, reloading, stopping, and the watchdog.
//!
//! Notifications are sent only if `NOTIFY_SOCKET` is set. The watchdog is notified only while every
//! controller makes progress: each beats its [`Heartbeat`], and a notification is sent when all of
//! them have done so since the last one.

use crate::locked;
use flowgauge_ctl::Record;
use flowgauge_ctl::controller::{Sink, Summary};
use flowgauge_dataplane::Dataplane;
use sd_notify::{NotifyState, notify, watchdog_enabled};
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Notifications per timeout of the watchdog.
const NOTIFICATIONS_PER_TIMEOUT: u32 = 4;

struct HeartbeatState {
    /// Heartbeats by number, and whether each has beaten since the last notification.
    controllers: BTreeMap<u64, bool>,
    next: u64,
    ready: bool,
    fed: Option<Instant>,
}

static STATE: Mutex<HeartbeatState> =
    Mutex::new(HeartbeatState { controllers: BTreeMap::new(), next: 0, ready: false, fed: None });

fn notify_manager(states: &[NotifyState<'_>]) {
    // Debug level only: a service manager that is gone would repeat this forever.
    if let Err(error) = notify(states) {
        tracing::debug!("cannot notify the service manager: {error}");
    }
}

/// Heartbeat that the watchdog waits for, until it is dropped.
pub(crate) struct Heartbeat(u64);

impl Heartbeat {
    /// Adds a heartbeat. The run is ready once all have beaten.
    pub(crate) fn new() -> Self {
        let mut state = locked(&STATE);
        state.next += 1;
        let number = state.next;
        state.controllers.insert(number, false);
        Heartbeat(number)
    }

    /// Reports progress.
    pub(crate) fn beat(&self) {
        let mut state = locked(&STATE);
        if let Some(beaten) = state.controllers.get_mut(&self.0) {
            *beaten = true;
        }
        state.check(watchdog_enabled(), notify_manager);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        locked(&STATE).controllers.remove(&self.0);
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
    fn check(&mut self, watchdog: Option<Duration>, notify: impl Fn(&[NotifyState<'_>])) {
        if !self.controllers.values().all(|beaten| *beaten) {
            return;
        }
        if !std::mem::replace(&mut self.ready, true) {
            notify(&[NotifyState::Ready]);
        }
        let is_due = |within: Duration| {
            self.fed.is_none_or(|fed| fed.elapsed() >= within / NOTIFICATIONS_PER_TIMEOUT)
        };
        if watchdog.is_some_and(is_due) {
            notify(&[NotifyState::Watchdog]);
            self.fed = Some(Instant::now());
            self.controllers.values_mut().for_each(|beaten| *beaten = false);
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
    fn the_watchdog_is_fed_only_when_all_get_on() {
        let sent = RefCell::new(Vec::new());
        let notify = |states: &[NotifyState<'_>]| {
            sent.borrow_mut().extend(states.iter().map(ToString::to_string))
        };
        let mut state = HeartbeatState {
            controllers: BTreeMap::from([(1, false), (2, false)]),
            next: 2,
            ready: false,
            fed: None,
        };
        // With a timeout of zero, every check may notify.
        let mut check = |beaten: &[u64]| {
            beaten.iter().for_each(|number| _ = state.controllers.insert(*number, true));
            state.check(Some(Duration::ZERO), notify);
            std::mem::take(&mut *sent.borrow_mut())
        };
        assert_eq!(check(&[1]), [""; 0], "one has not begun yet");
        assert_eq!(check(&[2]), ["READY=1", "WATCHDOG=1"]);
        assert_eq!(check(&[1]), [""; 0], "the other stands still");
        assert_eq!(check(&[1]), [""; 0]);
        assert_eq!(check(&[2]), ["WATCHDOG=1"]);
        state.controllers.remove(&2);
        state.controllers.insert(1, true);
        state.check(None, notify);
        assert_eq!(*sent.borrow(), [""; 0], "no watchdog is set");
    }
}
