//! The main loop: runs a dataplane by a schedule on a clock.
//!
//! [`Controller::start`] installs the tables. [`Controller::run`] then waits for the next action of
//! the [`Schedule`], takes a sample or closes a window, computes the reports of all measurements
//! and passes the records to a [`Sink`]. Transient failures are retried; [`Summary`] counts what
//! was late, skipped or repeated.
//!
//! `reads` has samples and what moves the schedule, `records` the windows and their sums, `alerts`
//! events, the alarm and warnings.

mod alerts;
mod reads;
mod records;

pub use reads::Changes;

use crate::clock::{Clock, WakeReason, nanoseconds};
use crate::filter::MatchExpression;
use crate::measurement::alarm::Watch;
use crate::measurement::delay::tune::Tuner;
use crate::measurement::delay::{DelaySampleRecord, EndIdentifiers};
use crate::measurement::{Estimation, RowHash, has_windows};
use crate::record::Record;
use crate::schedule::{Action, Intervals, Schedule, ScheduledAction};
use flowgauge_core::KeyKind;
use flowgauge_core::delay::prefixes::PrefixOwner;
use flowgauge_dataplane::{Adopted, Dataplane, Error, HashKey, Tables};
use reads::LastSample;
use records::Total;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Pause before a failed call is first repeated; doubled for each retry.
const BACK_OFF: Duration = Duration::from_millis(10);
/// Retries of a failed call before the controller continues without its result.
const RETRIES: u32 = 8;
/// Difference from the wall clock that counts as a step, not as a gradual adjustment.
const CLOCK_STEP_NS: u64 = 50_000_000;
/// Interval at which a waiting live controller polls for events.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);

/// Destination of records.
pub trait Sink {
    /// Writes one record.
    ///
    /// # Errors
    /// If it cannot be written. The run ends, since its results would be lost.
    fn record(&mut self, record: &Record) -> io::Result<()>;

    /// Writes delay samples. Those of a window come before its record.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    fn delay_samples(&mut self, samples: &[DelaySampleRecord<'_>]) -> io::Result<()> {
        let _ = samples;
        Ok(())
    }

    /// Reports that the controller is running, and its progress. Called every 100 ms live, unless a
    /// call of the dataplane takes longer.
    fn heartbeat(&mut self, dataplane: &dyn Dataplane, summary: &Summary) {
        let _ = (dataplane, summary);
    }
}

/// Reason for the failure of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The dataplane failed permanently.
    #[error(transparent)]
    Dataplane(#[from] Error),
    /// A record could not be written.
    #[error("cannot write results: {0}")]
    Output(#[from] io::Error),
    /// The registers hold values that no hash can produce.
    #[error("the registers read from {interface} are damaged: {source}")]
    Registers {
        /// Interfaces or ports of the registers.
        interface: String,
        /// The defect.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A worker died.
    #[error(
        "{interface}: a worker has died and its counts with it; restart, and report this as a bug with the log above"
    )]
    TrafficFailed {
        /// Interfaces or ports of the worker.
        interface: String,
    },
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Times of windows, samples and the end. With staggered registers there are no windows.
    pub intervals: Intervals,
    /// Seed of hash tables and sample times.
    pub seed: u64,
    /// Secret of a keyed hash. Without one it is derived from the seed and not secret. Other hashes
    /// ignore it.
    pub hash_key: Option<HashKey>,
    /// Prefixes of address groups and of our own side: those whose fingerprints are in the
    /// dataplane's settings.
    pub prefixes: Vec<PrefixOwner>,
    /// Expression that counted packets match; `None` counts all.
    pub filter: Option<MatchExpression>,
    /// Estimators and the content of reports.
    pub options: Estimation,
}

/// Statistics of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of windows published.
    pub windows: u64,
    /// Number of samples, with those that found nothing new: the sum of [`Record::repeats`], and
    /// samples that the schedule did not ask for.
    pub samples: u64,
    /// Number of samples that started more than a millisecond late.
    pub late_samples: u64,
    /// Number of samples skipped: the dataplane did not answer, a backlog built up, or the process
    /// was stopped.
    pub missed_samples: u64,
    /// Number of windows that ended late by more than a tenth of their length.
    pub late_windows: u64,
    /// Maximum lateness of a window, in nanoseconds.
    pub latest_ns: u64,
    /// Number of windows that were over when an earlier one ended late. Its record covers them.
    pub stalled_windows: u64,
    /// Number of empty windows of a trace that share a record.
    pub silent_windows: u64,
    /// Number of steps of the clock.
    pub clock_steps: u64,
    /// Number of rotations that failed at their time. Their windows were closed later; no packet
    /// was lost.
    pub late_rotations: u64,
    /// Number of repeated calls.
    pub retries: u64,
    /// Number of windows that raised the alarm.
    pub alarms: u64,
    /// Number of windows that the alarm judged.
    pub judged_windows: u64,
    /// Number of windows from which the alarm learned what is usual, before it judged any.
    pub learning_windows: u64,
    /// Reasons why the results are incomplete: faults of a source that ended, places that were not
    /// counted at the end, a last window that could not be closed. A live run that counts at its
    /// end has recovered from its faults, and their windows are marked as incomplete.
    pub warnings: Vec<String>,
    /// Record of the whole run; `None` if nothing was counted.
    pub total: Option<Record>,
    /// The same by place, if packets were counted at several.
    pub parts: Vec<Record>,
}

/// Main loop of one dataplane.
pub struct Controller {
    dataplane: Box<dyn Dataplane>,
    clock: Box<dyn Clock>,
    plan: Plan,
    rows: RowHash,
    /// Maps the ends of flows to the identifiers in single delays.
    ends: EndIdentifiers,
    watch: Option<Watch>,
    /// Tuner of the share of requests admitted to delay measurement, if it follows the traffic.
    tuner: Option<Tuner>,
    schedule: Schedule,
    /// Start of the current window, in nanoseconds: the actual end of the previous one.
    window_start: u64,
    /// Whether the current window began later than scheduled.
    is_short: bool,
    /// Step of the clock during the current window, in nanoseconds.
    stepped: Option<i64>,
    start: u64,
    /// Windows that an earlier process left open, until they are published.
    adopted: Adopted,
    /// Number of the first window of the schedule.
    first_window: u64,
    summary: Summary,
    total: Total,
    /// Sums by place, if there are several.
    parts: Vec<Total>,
    ended: bool,
    /// Faults of the dataplane so far.
    faults: Vec<String>,
    /// Last sample of this window.
    last_sample: Option<LastSample>,
    /// Time of the next packet of a trace, and a time since which none came.
    silence: Option<(u64, u64)>,
    /// Key of an entropy that left its bounds in the open window and was not reported yet.
    crossed: Option<KeyKind>,
    /// Whether the warning of full counters was logged.
    warned_of_full_counters: bool,
    /// Whether the warning of an EtherType that is not opened was logged.
    warned_of_unopened: bool,
    /// Filter of the open window, and of the windows after it.
    filter: Option<MatchExpression>,
    next_filter: Option<MatchExpression>,
    /// Whether the dataplane may have begun a rotation that it has not completed.
    is_rotating: bool,
    /// Name of the source, if the run has several.
    source: Option<Arc<str>>,
    changes: Changes,
    /// Rules that fire.
    firing: BTreeSet<String>,
}

impl Controller {
    /// Installs the tables, which starts the dataplane, or takes over the counters of an earlier
    /// process. `clock` creates the clock once packets flow.
    ///
    /// # Errors
    /// Any error of [`Dataplane::install`], and if the system provides no random numbers for a
    /// keyed hash.
    pub fn start<C: Clock + 'static>(
        dataplane: impl Dataplane + 'static,
        plan: Plan,
        clock: impl FnOnce() -> C,
    ) -> Result<Self, ControlError> {
        Self::start_boxed(Box::new(dataplane), plan, Box::new(|| Box::new(clock())))
    }

    /// Does the same as [`start`](Self::start) with a dataplane that is boxed already.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_boxed(
        mut dataplane: Box<dyn Dataplane>,
        plan: Plan,
        clock: Box<dyn FnOnce() -> Box<dyn Clock> + '_>,
    ) -> Result<Self, ControlError> {
        let settings = dataplane.settings();
        let tables = match &plan.hash_key {
            Some(key) => Tables::keyed(settings, plan.seed, key),
            None => Tables::new(settings, plan.seed),
        };
        let filter = plan.filter.as_ref().map(|filter| Arc::clone(&filter.filter));
        let tables = tables.with_prefixes(&plan.prefixes).with_filter(filter);
        let ends = EndIdentifiers::new(tables.row_hash().mode)?;
        let adopted = dataplane.install(&tables)?;
        let mut clock = clock();
        let start = clock.now();
        // As soon as the time is known: nothing counts before it, and nothing that comes after it is
        // missing.
        dataplane.begin()?;
        let adopted = adopted.unwrap_or_default();
        let window = plan.intervals.window.filter(|_| has_windows(dataplane.settings()));
        let intervals = Intervals { window, ..plan.intervals };
        let places = dataplane.capabilities().places.len();
        let tuned = dataplane.settings().delay;
        if intervals.window.is_some() {
            clock.closed(start);
        }
        let schedule = Schedule::new(start, intervals, plan.seed);
        Ok(Controller {
            dataplane,
            clock,
            is_short: start > schedule.window_start(),
            stepped: None,
            schedule,
            rows: RowHash::new(&tables),
            ends,
            watch: plan.options.alarm.map(Watch::new),
            tuner: intervals.window.and_then(|window| Tuner::new(tuned, nanoseconds(window))),
            filter: plan.filter.clone(),
            next_filter: plan.filter.clone(),
            is_rotating: false,
            plan,
            window_start: start,
            start: adopted.open_windows.first().copied().unwrap_or(start),
            first_window: adopted.next_window + adopted.open_windows.len() as u64,
            adopted,
            summary: Summary::default(),
            total: Total::default(),
            parts: std::iter::repeat_with(Total::default)
                .take(if places > 1 { places } else { 0 })
                .collect(),
            ended: false,
            faults: Vec::new(),
            last_sample: None,
            silence: None,
            crossed: None,
            warned_of_full_counters: false,
            warned_of_unopened: false,
            source: None,
            changes: Changes::default(),
            firing: BTreeSet::new(),
        })
    }

    /// Sets the source that records name.
    #[must_use]
    pub fn of_source(self, source: Option<Arc<str>>) -> Self {
        Controller { source, ..self }
    }

    /// Sets the changes that are applied between windows.
    #[must_use]
    pub fn with(self, changes: Changes) -> Self {
        Controller { changes, ..self }
    }

    /// Runs until the schedule, the traffic or the operator ends it. Every packet counted by then
    /// is in a record.
    ///
    /// # Errors
    /// [`ControlError`]. Records published before it remain valid.
    pub fn run(mut self, sink: &mut dyn Sink) -> Result<Summary, ControlError> {
        self.close_open_windows(sink)?;
        loop {
            let skipped = self.skip_silence(sink)?;
            let due = self.schedule.peek();
            let Some(woken) = self.wait(due, sink)? else { continue };
            match woken {
                WakeReason::Reached => self.count_skipped(skipped),
                WakeReason::Ended => {
                    self.count_skipped(skipped);
                    self.ended = true;
                    break;
                }
                // In trace time, packets beyond the time reached last were counted. The samples
                // skipped are after the end.
                WakeReason::Interrupted => return self.finish(true, sink),
                WakeReason::Failed => {
                    return Err(ControlError::TrafficFailed { interface: self.interface() });
                }
            }
            let Some(due) = due else { break };
            let is_stalled = match due.action {
                Action::Read => {
                    self.read(due.at, sink)?;
                    false
                }
                Action::Rotate { window } => {
                    self.rotate(self.first_window + window, true, None, sink)?
                }
                Action::Stop => break,
            };
            self.schedule.pop();
            if is_stalled {
                let end = self.window_start.min(self.schedule.stop().unwrap_or(u64::MAX));
                let skipped = self.schedule.skip_to(end);
                self.summary.missed_samples += skipped.map_or(0, |skipped| skipped.number);
            }
            self.apply_changes(&due)?;
            // Packets that arrive while the last window is closed are beyond the end of the run.
            if let Some(ScheduledAction { at, action: Action::Stop }) = self.schedule.peek()
                && self.window_start >= at
                && self.summary.windows > 0
            {
                return self.conclude(sink);
            }
        }
        self.finish(false, sink)
    }

    /// Waits for the next action and handles events meanwhile. Returns `None` if the clock was set,
    /// which changes the next action.
    fn wait(
        &mut self,
        due: Option<ScheduledAction>,
        sink: &mut dyn Sink,
    ) -> Result<Option<WakeReason>, ControlError> {
        let deadline = due.map_or(u64::MAX, |due| due.at);
        loop {
            // Checked first: if actions are always overdue, the loop never waits.
            if self.ended {
                return Ok(Some(WakeReason::Ended));
            }
            let drift = self.clock.drift();
            if drift.unsigned_abs() >= CLOCK_STEP_NS {
                self.step(drift, sink)?;
                return Ok(None);
            }
            self.clock.shift(drift);
            let next = deadline.min(self.clock.now().saturating_add(nanoseconds(EVENT_INTERVAL)));
            let next = if self.clock.next_packet().is_some() { deadline } else { next };
            let woken = self.clock.wait_until(next);
            self.handle_events()?;
            self.report_crossing(sink)?;
            self.send_pending_delay_samples(sink)?;
            sink.heartbeat(&*self.dataplane, &self.summary);
            if woken != WakeReason::Reached || next == deadline {
                return Ok(Some(woken));
            }
        }
    }

    /// Closes the open window and publishes the totals. A window of zero length is open only if it
    /// `may_hold_packets`.
    fn finish(
        mut self,
        may_hold_packets: bool,
        sink: &mut dyn Sink,
    ) -> Result<Summary, ControlError> {
        self.handle_events()?;
        self.report_crossing(sink)?;
        self.publish_repeats(sink)?;
        if !self.has_windows() {
            self.finish_staggered(sink)?;
        } else {
            let open = self.clock.now() > self.window_start;
            if open || may_hold_packets || self.summary.windows == 0 {
                let late_rotations = self.summary.late_rotations;
                self.rotate(self.open_window(), false, None, sink)?;
                if self.summary.late_rotations > late_rotations {
                    let interface = self.interface();
                    let warning = format!(
                        "{interface}: the last window could not be closed, its packets are in no record"
                    );
                    tracing::warn!("{warning}");
                    self.summary.warnings.push(warning);
                }
            }
        }
        self.conclude(sink)
    }

    /// Publishes the totals.
    fn conclude(mut self, sink: &mut dyn Sink) -> Result<Summary, ControlError> {
        // Events of the last rotation.
        self.handle_events()?;
        if self.ended {
            self.summary.warnings.append(&mut self.faults);
        } else {
            let programs = self.dataplane.status().programs;
            let lost = programs.into_iter().filter(|program| !program.attached);
            self.summary
                .warnings
                .extend(lost.map(|program| format!("{}: not counted at the end", program.place)));
        }
        if self.has_windows() {
            let parts: Vec<Option<Record>> = (0..self.parts.len())
                .map(|part| self.sum_up(Some(part)))
                .collect::<Result<_, _>>()?;
            self.summary.parts = parts.into_iter().flatten().collect();
            self.summary.total = self.sum_up(None)?;
        }
        for total in self.summary.parts.iter().chain(&self.summary.total) {
            sink.record(total)?;
        }
        Ok(self.summary)
    }

    fn has_windows(&self) -> bool {
        has_windows(self.dataplane.settings())
    }

    /// Returns the number of the open window.
    fn open_window(&self) -> u64 {
        self.first_window + self.schedule.window()
    }

    /// Makes a call, and repeats it with growing pauses while it fails transiently. Returns the result
    /// and the time of the call that returned it; `None` if it was given up.
    fn attempt<T>(
        &mut self,
        operation: &str,
        call: impl Fn(&mut (dyn Dataplane + 'static)) -> Result<T, Error>,
    ) -> Result<Option<(T, u64)>, ControlError> {
        let mut delay = BACK_OFF;
        for retry in 0..=RETRIES {
            let called = self.clock.now();
            match call(&mut *self.dataplane) {
                Ok(answer) => return Ok(Some((answer, called))),
                Err(error) if !error.is_transient() => return Err(error.into()),
                Err(error) if retry == RETRIES => {
                    tracing::warn!("{error}; given up after {RETRIES} retries")
                }
                Err(error) => {
                    tracing::debug!("{operation} failed, trying again in {delay:?}: {error}");
                    self.summary.retries += 1;
                    self.clock.back_off(delay);
                    delay *= 2;
                }
            }
        }
        Ok(None)
    }

    fn interface(&self) -> String {
        self.dataplane.capabilities().interface.clone()
    }
}
