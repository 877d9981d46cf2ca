//! Signals that end a run, and signals that are ignored.
//!
//! They are blocked in all threads, and one thread waits for them, so that no system call is
//! interrupted.

use crate::error::{CommandFailure, cannot};
use crate::locked;
use crate::run::service;
use flowgauge_ctl::clock::Interrupt;
use flowgauge_dataplane::poll::Gate;
use nix::sys::signal::{SigSet, Signal};
use std::process;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Signals that end a run gracefully. SIGHUP does so only if there is no configuration to read
/// again.
const END_SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// Signals that kill the process by default and have no meaning here. A file at its size limit is a
/// failed write.
const IGNORED_SIGNALS: [Signal; 4] =
    [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGXFSZ];
/// Time within which repeated signals count as one: some senders, such as `timeout`, send every
/// signal twice.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a reader of the output has for the remaining records once the run is to end.
const READER_GRACE: Duration = Duration::from_secs(2);
/// Time that a run that is to end immediately has to detach its programs.
const DETACH_GRACE: Duration = Duration::from_secs(2);

struct SignalState {
    /// Functions that end the runs.
    runs: Vec<Box<dyn Fn() + Send>>,
    /// Action of SIGHUP instead of ending the run.
    reload: Option<Box<dyn Fn() + Send>>,
    /// Time of the first signal.
    first: Option<Instant>,
    /// Whether a second signal came later, so that the run ends immediately.
    urgent: bool,
}

static STATE: Mutex<SignalState> =
    Mutex::new(SignalState { runs: Vec::new(), reload: None, first: None, urgent: false });

/// Starts waiting for signals. Call it before any other thread is started. Until [`end_on_signal`]
/// is called, a signal ends the process.
pub(crate) fn listen() -> Result<(), CommandFailure> {
    let signals: SigSet = END_SIGNALS.into_iter().chain(IGNORED_SIGNALS).collect();
    signals.thread_block().map_err(cannot("wait for signals"))?;
    let wait = move || {
        let mut logged: Vec<Signal> = Vec::new();
        while let Ok(signal) = signals.wait() {
            if signal == Signal::SIGHUP && reloads() {
                // The reload was started.
            } else if END_SIGNALS.contains(&signal) {
                end(signal);
            } else if !logged.contains(&signal) {
                logged.push(signal);
                tracing::warn!("ignoring {signal}; SIGINT (Ctrl-C) or SIGTERM ends a run");
            }
        }
    };
    let started = thread::Builder::new().name("signals".to_owned()).spawn(wait);
    started.map_err(cannot("wait for signals"))?;
    Ok(())
}

/// Starts a reload of the configuration; returns `false` if the run has none to reload.
fn reloads() -> bool {
    let state = locked(&STATE);
    state.reload.iter().for_each(|reload| reload());
    state.reload.is_some()
}

fn end(signal: Signal) {
    let mut state = locked(&STATE);
    let now = Instant::now();
    match state.first {
        None if state.runs.is_empty() => process::exit(128 + signal as i32),
        None => {
            service::stopping();
            state.runs.iter().for_each(|end| end());
            state.first = Some(now);
        }
        Some(first) if now - first < REPEAT_INTERVAL => {}
        Some(_) => {
            state.urgent = true;
            drop(state);
            thread::sleep(DETACH_GRACE);
            tracing::warn!(
                "the run did not end gracefully; `flowgauge detach` removes programs that it may have left attached"
            );
            process::exit(128 + signal as i32);
        }
    }
}

/// Returns an interrupt that the first signal triggers. Another one, more than a second later, ends
/// the process immediately.
pub(crate) fn end_on_signal(gate: Option<&Arc<Gate>>) -> Interrupt {
    end_with(Interrupt::default(), gate)
}

/// Registers an interrupt that others may trigger too. A signal ends all registered runs.
pub(crate) fn end_with(interrupt: Interrupt, gate: Option<&Arc<Gate>>) -> Interrupt {
    let mut state = locked(&STATE);
    let (triggered, gate) = (interrupt.clone(), gate.cloned());
    let end = move || {
        triggered.trigger();
        gate.iter().for_each(|gate| gate.interrupt());
    };
    if state.first.is_some() {
        end();
    }
    state.runs.push(Box::new(end));
    interrupt
}

/// Sets the action of SIGHUP.
pub(crate) fn on_reload(reload: impl Fn() + Send + 'static) {
    locked(&STATE).reload = Some(Box::new(reload));
}

/// Returns whether the run is to end.
pub(crate) fn is_ending() -> bool {
    locked(&STATE).first.is_some()
}

/// Returns whether to stop waiting for readers of the output.
pub(crate) fn is_impatient() -> bool {
    let state = locked(&STATE);
    state.urgent || state.first.is_some_and(|first| first.elapsed() > READER_GRACE)
}
