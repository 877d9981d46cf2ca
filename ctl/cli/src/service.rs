//! What a service manager (systemd) is told: that the run is ready, reloads or stops, and, as long
//! as all controllers get on, that it lives.
//!
//! Nothing is told without `NOTIFY_SOCKET` in the environment. The watchdog is fed by the
//! controllers themselves, whenever all of them have got on since it was fed last: one that stands
//! still is not covered up by the others.

use flowgauge_ctl::Record;
use flowgauge_ctl::controller::{Sink, Summary};
use flowgauge_dataplane::Dataplane;
use sd_notify::{NotifyState, notify, watchdog_enabled};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The watchdog is fed this often in the time that it allows.
const FEEDS: u32 = 4;

struct State {
    /// Controllers, and whether they have got on since the watchdog was fed.
    controllers: BTreeMap<u64, bool>,
    next: u64,
    ready: bool,
    fed: Option<Instant>,
}

static STATE: Mutex<State> =
    Mutex::new(State { controllers: BTreeMap::new(), next: 0, ready: false, fed: None });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(states: &[NotifyState<'_>]) {
    // Said once: the next one will not work either.
    if let Err(error) = notify(states) {
        tracing::debug!("cannot tell the service manager: {error}");
    }
}

/// What is to get on, until it is dropped.
pub(crate) struct Controller(u64);

impl Controller {
    /// One more; the run is ready once all have got on.
    pub(crate) fn new() -> Self {
        let mut state = state();
        state.next += 1;
        let number = state.next;
        state.controllers.insert(number, false);
        Controller(number)
    }

    /// It gets on.
    pub(crate) fn beat(&self) {
        let mut state = state();
        if let Some(beaten) = state.controllers.get_mut(&self.0) {
            *beaten = true;
        }
        state.look(watchdog_enabled(), tell);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        state().controllers.remove(&self.0);
    }
}

impl Sink for Controller {
    fn record(&mut self, _: &Record) -> io::Result<()> {
        Ok(())
    }

    fn heartbeat(&mut self, _: &dyn Dataplane, _: &Summary) {
        self.beat();
    }
}

impl State {
    fn look(&mut self, watchdog: Option<Duration>, tell: impl Fn(&[NotifyState<'_>])) {
        if !self.controllers.values().all(|beaten| *beaten) {
            return;
        }
        if !std::mem::replace(&mut self.ready, true) {
            tell(&[NotifyState::Ready]);
        }
        let is_due = |within: Duration| self.fed.is_none_or(|fed| fed.elapsed() >= within / FEEDS);
        if watchdog.is_some_and(is_due) {
            tell(&[NotifyState::Watchdog]);
            self.fed = Some(Instant::now());
            self.controllers.values_mut().for_each(|beaten| *beaten = false);
        }
    }
}

/// The configuration is read again; [`reloaded`] says when that is over.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!("cannot tell the service manager the time: {error}"),
    }
}

/// The configuration was read again, whatever came of it.
pub(crate) fn reloaded() {
    tell(&[NotifyState::Ready]);
}

/// The run ends.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_watchdog_is_fed_only_when_all_get_on() {
        let told = RefCell::new(Vec::new());
        let tell = |states: &[NotifyState<'_>]| {
            told.borrow_mut().extend(states.iter().map(ToString::to_string))
        };
        let mut state = State {
            controllers: BTreeMap::from([(1, false), (2, false)]),
            next: 2,
            ready: false,
            fed: None,
        };
        // No time passes between two looks: it is fed whenever it may be.
        let mut look = |beaten: &[u64]| {
            beaten.iter().for_each(|number| _ = state.controllers.insert(*number, true));
            state.look(Some(Duration::ZERO), tell);
            std::mem::take(&mut *told.borrow_mut())
        };
        assert_eq!(look(&[1]), [""; 0], "one has not begun yet");
        assert_eq!(look(&[2]), ["READY=1", "WATCHDOG=1"]);
        assert_eq!(look(&[1]), [""; 0], "the other stands still");
        assert_eq!(look(&[1]), [""; 0]);
        assert_eq!(look(&[2]), ["WATCHDOG=1"]);
        state.controllers.remove(&2);
        state.controllers.insert(1, true);
        state.look(None, tell);
        assert_eq!(*told.borrow(), [""; 0], "nobody asks for it");
    }
}
