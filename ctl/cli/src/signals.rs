//! Signals: those that end a run, and those that must not.
//!
//! They are blocked in every thread and waited for in one, so that none comes at a time when it
//! would do harm.

use crate::error::Failure;
use crate::service;
use flowgauge_ctl::clock::Interrupt;
use flowgauge_dataplane::poll::Gate;
use nix::sys::signal::{SigSet, Signal};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Signals that end a run in order; SIGHUP does so where there is no configuration to read again.
const ENDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// Signals that would kill the process by default and have no meaning here. A file that has its
/// largest size is a failed write.
const IGNORED: [Signal; 4] = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGXFSZ];
/// Within this time repeated signals are one: some senders, `timeout` among them, send every signal
/// twice.
const REPEATED: Duration = Duration::from_secs(1);
/// How long a reader of the output has to take what is left once the run is to end.
const READERS: Duration = Duration::from_secs(2);
/// How long a run that is to end at once may take to detach what it attached.
const AT_ONCE: Duration = Duration::from_secs(2);

struct State {
    runs: Vec<Run>,
    /// What SIGHUP does instead of ending the run.
    reload: Option<Box<dyn Fn() + Send>>,
    /// When the first signal came.
    first: Option<Instant>,
    /// Another one came later: the run ends at once.
    urgent: bool,
}

struct Run {
    interrupt: Interrupt,
    gate: Option<Arc<Gate>>,
}

static STATE: Mutex<State> =
    Mutex::new(State { runs: Vec::new(), reload: None, first: None, urgent: false });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for signals from now on, before any other thread is there. Until [`end_on_signal`] is
/// called they end the process.
pub(crate) fn listen() -> Result<(), Failure> {
    let signals: SigSet = ENDS.into_iter().chain(IGNORED).collect();
    let fail = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot wait for signals: {error}"))
    };
    signals.thread_block().map_err(|error| fail(&error))?;
    let wait = move || {
        let mut told: Vec<Signal> = Vec::new();
        while let Ok(signal) = signals.wait() {
            if signal == Signal::SIGHUP && reloads() {
                // Done.
            } else if ENDS.contains(&signal) {
                end(signal);
            } else if !told.contains(&signal) {
                told.push(signal);
                tracing::warn!("{signal} does nothing here; SIGINT (Ctrl-C) or SIGTERM ends a run");
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(|error| fail(&error))?;
    Ok(())
}

/// Has the configuration read again, if there is one.
fn reloads() -> bool {
    let state = state();
    state.reload.iter().for_each(|reload| reload());
    state.reload.is_some()
}

impl Run {
    fn end(&self) {
        self.interrupt.trigger();
        self.gate.iter().for_each(|gate| gate.interrupt());
    }
}

fn end(signal: Signal) {
    let mut state = state();
    let now = Instant::now();
    match state.first {
        None if state.runs.is_empty() => process::exit(128 + signal as i32),
        None => {
            service::stopping();
            state.runs.iter().for_each(Run::end);
            state.first = Some(now);
        }
        Some(first) if now - first < REPEATED => {}
        Some(_) => {
            state.urgent = true;
            drop(state);
            thread::sleep(AT_ONCE);
            tracing::warn!(
                "the run did not end in order; `flowgauge detach` takes off what it may have left on an interface"
            );
            process::exit(128 + signal as i32);
        }
    }
}

/// The first signal ends the run in order, and one that comes more than a second later at once.
pub(crate) fn end_on_signal(gate: Option<&Arc<Gate>>) -> Interrupt {
    end_with(Interrupt::default(), gate)
}

/// The same with a request to end that others may make as well. Of several runs all end.
pub(crate) fn end_with(interrupt: Interrupt, gate: Option<&Arc<Gate>>) -> Interrupt {
    let mut state = state();
    let run = Run { interrupt: interrupt.clone(), gate: gate.cloned() };
    if state.first.is_some() {
        run.end();
    }
    state.runs.push(run);
    interrupt
}

/// Has SIGHUP do this from now on.
pub(crate) fn on_reload(reload: impl Fn() + Send + 'static) {
    state().reload = Some(Box::new(reload));
}

/// Whether the run is to end.
pub(crate) fn is_ending() -> bool {
    state().first.is_some()
}

/// Whether readers of the output are no longer waited for.
pub(crate) fn is_impatient() -> bool {
    let state = state();
    state.urgent || state.first.is_some_and(|first| first.elapsed() > READERS)
}
