//! The main loop: runs a dataplane by a schedule on a clock.
//!
//! [`Controller::start`] installs the tables. [`Controller::run`] then waits for the next action of
//! the [`Schedule`], takes a sample or closes a window, computes the reports of all measurements
//! and passes the records to a [`Sink`]. Transient failures are retried; [`Summary`] counts what
//! was late, skipped or repeated.

use crate::clock::{Clock, WakeReason, nanoseconds};
use crate::filter::MatchExpression;
use crate::ledger::LedgerAccumulator;
use crate::measurement::alarm::judge::{self, Verdict};
use crate::measurement::alarm::{Alarm, Watch};
use crate::measurement::delay::tune::Tuner;
use crate::measurement::delay::{DelaySampleRecord, EndIdentifiers};
use crate::measurement::{ClosedBank, Estimation, ReportInput, Reports, RowHash, has_windows};
use crate::record::FieldCache;
use crate::record::{Adoption, Record, RecordKind};
use crate::schedule::{Action, Intervals, Schedule, ScheduledAction, SkippedSamples};
use crate::text::{counted, stepped};
use crate::unopened;
use flowgauge_core::delay::prefixes::PrefixOwner;
use flowgauge_core::delay::{self, Admission};
use flowgauge_core::{Counters, KeyKind, Settings, WindowTotals, Zeroed};
use flowgauge_dataplane::{
    Adopted, CountingPoint, Dataplane, DelaySample, Error, Event, HashKey, LossCause, Losses, Part,
    Snapshot, Tables, TimestampClock,
};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A sample that starts later than this counts as late. Waking up takes a live clock about a tenth
/// of it.
const LATE: Duration = Duration::from_millis(1);
/// Samples overdue by this many mean intervals are skipped, so that a dataplane slower than its
/// samples cannot build up a backlog.
const BACKLOG: u32 = 10;
/// Empty windows in a row of a trace that have a record each; longer silences have one record.
const EMPTY_WINDOWS: u64 = 3;
/// A window that ends later than this fraction of its length counts as late.
const LATE_PART: u64 = 10;
/// Pause before a failed call is first repeated; doubled for each retry.
const BACK_OFF: Duration = Duration::from_millis(10);
/// Retries of a failed call before the controller continues without its result.
const RETRIES: u32 = 8;
/// Difference from the wall clock that counts as a step, not as a gradual adjustment.
const CLOCK_STEP_NS: u64 = 50_000_000;
/// Interval at which a waiting live controller polls for events.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of delay samples passed to a sink at a time.
const MAX_DELAY_SAMPLES: usize = 1024;

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

/// Changes of a running plan, requested from another thread and applied between two windows without
/// losing a packet.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<Mutex<Option<Plan>>>);

impl Changes {
    /// Requests other intervals, another filter and another estimation, replacing a request that
    /// was not applied yet. Seed, hash key and prefixes were given to the dataplane at the start
    /// and do not change.
    pub fn ask(&self, plan: Plan) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
    }

    /// Returns the filter of a request that was not applied yet.
    fn filter(&self) -> Option<Option<MatchExpression>> {
        let plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plan.as_ref().map(|plan| plan.filter.clone())
    }

    fn take(&self) -> Option<Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
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

impl Summary {
    /// Counts what the alarm did in a window.
    fn count_alarm(&mut self, alarm: Option<&Alarm>) {
        let Some(alarm) = alarm else { return };
        self.alarms += u64::from(alarm.raised());
        self.judged_windows += u64::from(alarm.verdict.judged());
        self.learning_windows += u64::from(alarm.verdict == Verdict::Learning);
    }

    /// Returns why the alarm judged no window, if there were windows and it judged none.
    #[must_use]
    pub fn unjudged(&self, alarm: &judge::Options) -> Option<String> {
        let Summary { windows, judged_windows, learning_windows, .. } = *self;
        let judge::Options { training, least, .. } = *alarm;
        if windows == 0 || judged_windows > 0 {
            return None;
        }
        let none = format!("the alarm judged none of {}", counted(windows, "window"));
        Some(if 2 * learning_windows >= windows {
            format!(
                "{none}: {training} are needed to learn what is usual; choose a shorter --window"
            )
        } else {
            format!(
                "{none}: {training} of at least {least} packets are needed to learn what is usual, and {learning_windows} had as many; \
                 choose another --window"
            )
        })
    }
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
    /// Starts of the windows that an earlier process left open.
    open_windows: Vec<u64>,
    /// Runs that began these windows.
    open_runs: Vec<Option<String>>,
    /// Run that began the open window, if it was an earlier one.
    adopted: Option<Adoption>,
    /// Number of the first window of the schedule.
    first_window: u64,
    summary: Summary,
    total: Total,
    /// Sums by place, if there are several.
    parts: Vec<Total>,
    ended: bool,
    /// Faults of the dataplane so far.
    faults: Vec<String>,
    /// Whether the last window ended so late that others were over.
    stalled: bool,
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

/// Last sample that was published in the open window, and those after it.
struct LastSample {
    /// Its records: of every place, if there are several, then of all.
    records: Vec<Record>,
    /// Time at which the dataplane was last seen in this state, in nanoseconds.
    taken_ns: u64,
    /// Later samples that found the same and are not published yet.
    repeats: Option<Repeats>,
}

/// Samples in a row that find the same.
#[derive(Clone, Copy)]
struct Repeats {
    number: u64,
    /// Scheduled time of the first, in nanoseconds.
    at_ns: u64,
    /// Lateness of the first, in nanoseconds.
    late_ns: u64,
    /// Time of the last, in nanoseconds.
    last_ns: u64,
}

/// Sums over all windows.
#[derive(Default)]
struct Total {
    counters: Counters,
    /// Filter expressions of all windows, with the last one.
    filters: Option<String>,
    filter: Option<Arc<str>>,
    drops: Losses,
    late: u64,
    /// Losses at the start of the current window.
    losses: Losses,
    ledger: LedgerAccumulator,
    /// Banks of all windows merged, except entropies and their sketches.
    merged: Option<Snapshot>,
    /// Whether a part of a window was lost.
    gap: bool,
    /// CPU time of the workers, in nanoseconds.
    cpu_ns: Option<u64>,
}

enum Attempt<T> {
    /// The result, and the time of the call that returned it.
    Done(T, u64),
    GivenUp,
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
        Self::install(Box::new(dataplane), plan, Box::new(|| Box::new(clock())))
    }

    fn install(
        mut dataplane: Box<dyn Dataplane>,
        plan: Plan,
        clock: Box<dyn FnOnce() -> Box<dyn Clock> + '_>,
    ) -> Result<Self, ControlError> {
        let settings = dataplane.settings();
        let tables = match &plan.hash_key {
            Some(key) => Tables::keyed(settings, plan.seed, key),
            None => Tables::new(settings, plan.seed),
        };
        let filter = plan.filter.as_ref().map(|filter| Arc::clone(filter.filter()));
        let tables = tables.with_prefixes(&plan.prefixes).with_filter(filter);
        let ends = EndIdentifiers::new(tables.row_hash().mode)?;
        let adopted = dataplane.install(&tables)?;
        let mut clock = clock();
        let start = clock.now();
        let Adopted { open_windows, runs: open_runs, next_window } = adopted.unwrap_or_default();
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
            start: open_windows.first().copied().unwrap_or(start),
            first_window: next_window + open_windows.len() as u64,
            open_windows,
            open_runs,
            adopted: None,
            summary: Summary::default(),
            total: Total::default(),
            parts: std::iter::repeat_with(Total::default)
                .take(if places > 1 { places } else { 0 })
                .collect(),
            ended: false,
            faults: Vec::new(),
            stalled: false,
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
                WakeReason::Ended { .. } => {
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
            match due.action {
                Action::Read => self.read(due.at, sink)?,
                Action::Rotate { window } => {
                    self.rotate(self.first_window + window, true, None, sink)?
                }
                Action::Stop => break,
            }
            self.schedule.pop();
            if std::mem::take(&mut self.stalled) {
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

    /// Publishes the windows that an earlier process counted and did not publish.
    fn close_open_windows(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let open = std::mem::take(&mut self.open_windows);
        if !self.has_windows() {
            return Ok(());
        }
        let now = self.clock.now();
        let ends = open.iter().skip(1).copied().chain([now]);
        let first = self.first_window - open.len() as u64;
        let mut runs = std::mem::take(&mut self.open_runs).into_iter();
        for (window, (&start, end)) in (first..).zip(open.iter().zip(ends)) {
            self.window_start = start;
            self.adopted = Some(Adoption { run: runs.next().flatten().map(Arc::from) });
            self.rotate(window, false, Some(end), sink)?;
        }
        self.adopted = None;
        Ok(())
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
                return Ok(Some(WakeReason::Ended { at: self.clock.now() }));
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

    /// Handles a step of the clock: the open window ends by the old time and the next one begins by
    /// the new time. Each packet is counted once, and the record of the window states the step.
    fn step(&mut self, by: i64, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let window = self.first_window + self.schedule.window();
        tracing::warn!(
            "{}; window {window} ends here, and the next one begins at the new time",
            stepped(by)
        );
        self.summary.clock_steps += 1;
        self.stepped = Some(self.stepped.unwrap_or(0).saturating_add(by));
        self.publish_repeats(sink)?;
        if self.plan.intervals.window.is_some() && self.has_windows() {
            self.rotate(window, false, None, sink)?;
        }
        self.clock.shift(by);
        let now = self.clock.now();
        // A window that could not be closed continues.
        self.window_start =
            if self.stepped.is_none() { now } else { self.window_start.saturating_add_signed(by) };
        self.start = self.start.saturating_add_signed(by);
        self.schedule.step(now, by);
        self.is_short = self.window_start > self.schedule.window_start();
        Ok(())
    }

    fn handle_events(&mut self) -> Result<(), ControlError> {
        if let Attempt::Done(events, _) = self.attempt("events", Dataplane::events)? {
            for event in events {
                match event {
                    Event::TrafficEnded => self.ended = true,
                    Event::Warning(warning) => {
                        tracing::warn!("{warning}");
                        self.faults.push(warning);
                    }
                    Event::Notice(notice) => tracing::warn!("{notice}"),
                    Event::Choice(choice) => tracing::info!("{choice}"),
                    Event::Crossed(key) => {
                        let window = self.first_window + self.schedule.window();
                        if self.watch.as_mut().is_some_and(|watch| watch.cross(window)) {
                            self.crossed = Some(key);
                        }
                    }
                    other => tracing::info!("{other:?}"),
                }
            }
        }
        Ok(())
    }

    /// Reports that an entropy left its bounds in the open window, and takes a sample of it.
    fn report_crossing(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let Some(key) = self.crossed.take() else { return Ok(()) };
        self.publish_repeats(sink)?;
        let at = self.clock.now();
        let mut records = match self.attempt("sample", Dataplane::sample)? {
            Attempt::Done(snapshot, taken) => self.sample(&snapshot, at, 0, taken)?,
            Attempt::GivenUp => Vec::new(),
        };
        let window = self.first_window + self.schedule.window();
        let mut whole = records.iter_mut().find(|record| !record.part);
        if let Some(watch) = &self.watch {
            watch.log_crossing(window, key, whole.as_deref().map(|record| &record.reports));
            whole.iter_mut().for_each(|record| record.reports.alarm = Some(watch.crossed()));
        }
        self.summary.samples += u64::from(!records.is_empty());
        records.iter().try_for_each(|record| sink.record(record))?;
        Ok(())
    }

    /// Applies requested changes between two windows.
    fn apply_changes(&mut self, due: &ScheduledAction) -> Result<(), ControlError> {
        // Staggered registers have no windows: changes apply at any time.
        if matches!(due.action, Action::Read) && self.has_windows() {
            return Ok(());
        }
        let Some(plan) = self.changes.take() else { return Ok(()) };
        let before = self.read_losses()?;
        let window = plan.intervals.window.filter(|_| self.has_windows());
        let seed = self.plan.seed;
        self.schedule.change(self.window_start, Intervals { window, ..plan.intervals }, seed);
        self.is_short = self.window_start > self.schedule.window_start();
        if plan.options.alarm != self.plan.options.alarm {
            self.watch = plan.options.alarm.map(Watch::new);
        }
        self.plan = Plan {
            intervals: plan.intervals,
            filter: plan.filter,
            options: plan.options,
            ..self.plan.clone()
        };
        let lost = self.read_losses()?.since(&before).total();
        let number = self.first_window + self.schedule.window();
        tracing::warn!(
            "{}: changed between two windows, before window {number}; {} lost",
            self.interface(),
            counted(lost, "packet")
        );
        Ok(())
    }

    /// Passes delay samples to the sink, if they were asked for.
    fn send_pending_delay_samples(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        if self.dataplane.settings().delay.samples
            && let Attempt::Done(samples, _) = self.attempt("delays", Dataplane::delay_samples)?
        {
            self.send_delay_samples(self.first_window + self.schedule.window(), &samples, sink)?;
        }
        Ok(())
    }

    fn send_delay_samples(
        &self,
        window: u64,
        samples: &[DelaySample],
        sink: &mut dyn Sink,
    ) -> Result<(), ControlError> {
        let (settings, places) =
            (&self.dataplane.settings().delay, &self.dataplane.capabilities().places);
        let options = &self.plan.options.delay;
        for samples in samples.chunks(MAX_DELAY_SAMPLES) {
            let records: Vec<DelaySampleRecord<'_>> = samples
                .iter()
                .filter_map(|sample| {
                    DelaySampleRecord::of(window, settings, options, places, &self.ends, sample)
                })
                .collect();
            sink.delay_samples(&records)?;
        }
        Ok(())
    }

    /// Publishes one record for a long run of empty windows before the next packet of a trace, and
    /// skips the samples before that packet which would find the same as the last one. Returns
    /// them; they count once their time has come. Takes bounded time.
    fn skip_silence(
        &mut self,
        sink: &mut dyn Sink,
    ) -> Result<Option<SkippedSamples>, ControlError> {
        let Some(next) = self.clock.next_packet() else { return Ok(None) };
        let now = self.clock.now();
        let since = match self.silence {
            Some((packet, since)) if packet == next => since,
            _ => now,
        };
        self.silence = Some((next, since));
        let until = next.min(self.schedule.stop().unwrap_or(u64::MAX));
        if self.has_windows() {
            self.skip_empty_windows(until, sink)?;
        }
        let is_settled = self.has_windows() || now > since.saturating_add(self.round_ns());
        let is_known = self.last_sample.as_ref().is_some_and(|last| last.taken_ns == now);
        if !is_settled || !is_known {
            return Ok(None);
        }
        let window_end = self.schedule.slots(0).map_or(u64::MAX, |(_, end)| end);
        Ok(self.schedule.skip_reads(until.min(window_end)))
    }

    /// Publishes one record for the empty windows that end up to `until`, if there are many.
    fn skip_empty_windows(&mut self, until: u64, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let empty = self.schedule.windows_until(until);
        // Only between two windows: an open one is closed at its regular end.
        let between = self.summary.windows > 0 && self.clock.now() == self.window_start;
        if between && empty > EMPTY_WINDOWS {
            let window = self.first_window + self.schedule.window();
            let samples = self.schedule.skip_to(until);
            let end_ns = self.schedule.window_start();
            let start_ns = std::mem::replace(&mut self.window_start, end_ns);
            self.clock.closed(end_ns);
            self.summary.silent_windows += empty;
            let repeats = samples.map_or(0, |samples| samples.number);
            self.summary.samples += repeats;
            let last_window = Some(window + empty - 1);
            let kind = RecordKind::Silence;
            sink.record(&Record {
                kind,
                window,
                last_window,
                start_ns,
                end_ns,
                repeats,
                last_ns: samples.map(|samples| samples.last),
                complete: true,
                ..self.empty(None)
            })?;
        }
        Ok(())
    }

    /// Returns the time after which staggered registers have expired without packets.
    fn round_ns(&self) -> u64 {
        let registers = self.dataplane.settings().cardinality.precision.registers() as u64;
        self.plan.options.cardinality.slot_ns.saturating_mul(registers.saturating_add(1))
    }

    /// Counts samples that were skipped since they find the same as the last one.
    fn count_skipped(&mut self, skipped: Option<SkippedSamples>) {
        if let (Some(skipped), Some(last)) = (skipped, &mut self.last_sample) {
            let SkippedSamples { number, first, last: last_ns } = skipped;
            self.summary.samples += number;
            last.repeat(Repeats { number, at_ns: first, late_ns: 0, last_ns });
        }
    }

    /// Publishes the samples that found the same as the last one, as one record.
    fn publish_repeats(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let Some(last) = &mut self.last_sample else { return Ok(()) };
        let Some(repeats) = last.repeats.take() else { return Ok(()) };
        for record in &mut last.records {
            record.repeats = repeats.number;
            record.at_ns = Some(repeats.at_ns);
            record.late_ns = repeats.late_ns;
            record.end_ns = repeats.at_ns.saturating_add(repeats.late_ns);
            record.last_ns = Some(repeats.last_ns);
            sink.record(record)?;
        }
        Ok(())
    }

    fn read(&mut self, at: u64, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let overdue = self.clock.now().saturating_sub(at);
        let mean = self.plan.intervals.sample_every.unwrap_or_default();
        if overdue > nanoseconds(mean.saturating_mul(BACKLOG)) {
            self.summary.missed_samples += 1;
            return Ok(());
        }
        let Attempt::Done(snapshot, taken) = self.attempt("sample", Dataplane::sample)? else {
            self.summary.missed_samples += 1;
            tracing::warn!("the sample at {at} ns is missing: {} did not answer", self.interface());
            return Ok(());
        };
        if !snapshot.complete {
            self.summary.missed_samples += 1;
            tracing::warn!(
                "the sample at {at} ns is missing: {} lost a part of this window",
                self.interface()
            );
            return Ok(());
        }
        // Lateness counts from the call that succeeded: retries delay a sample as well.
        let late_ns = taken.saturating_sub(at);
        self.summary.samples += 1;
        self.summary.late_samples += u64::from(late_ns > nanoseconds(LATE));
        // Staggered registers change without packets: old ones expire.
        let has_windows = self.has_windows();
        if let Some(last) = self.last_sample.as_mut().filter(|_| has_windows)
            && last.is_same(&snapshot)
        {
            last.taken_ns = taken;
            last.repeat(Repeats { number: 1, at_ns: at, late_ns, last_ns: taken });
            return Ok(());
        }
        self.publish_repeats(sink)?;
        let mut records = self.sample(&snapshot, at, late_ns, taken)?;
        records.iter_mut().for_each(|record| record.repeats = 1);
        records.iter().try_for_each(|record| sink.record(record))?;
        self.last_sample = Some(LastSample { records, taken_ns: taken, repeats: None });
        Ok(())
    }

    /// Makes the records of a sample: of every place, if there are several, then of all.
    fn sample(
        &mut self,
        snapshot: &Snapshot,
        at: u64,
        late_ns: u64,
        taken: u64,
    ) -> Result<Vec<Record>, ControlError> {
        let losses = self.read_losses()?;
        let window = self.first_window + self.schedule.window();
        let mut records = Vec::new();
        for (part, snapshot, losses) in views(snapshot, &losses) {
            let mut drops = losses.since(&self.total_of(part).losses);
            records.push(Record {
                kind: RecordKind::Sample,
                window,
                start_ns: self.window_start,
                end_ns: taken,
                at_ns: Some(at),
                late_ns,
                late: drops.take(LossCause::Late),
                drops,
                reports: self.reports(RecordKind::Sample, part, snapshot, taken)?,
                ..self.counters_record(part, snapshot)
            });
        }
        Ok(records)
    }

    /// Sets the filter of the next window, if it differs from that of the open one. A rotation that
    /// may have begun keeps the filter that it began with.
    fn set_next_filter(&mut self) -> Result<(), ControlError> {
        let filter = self.changes.filter().unwrap_or_else(|| self.plan.filter.clone());
        if self.is_rotating || filter == self.next_filter {
            return Ok(());
        }
        let rules = filter.as_ref().map(|filter| Arc::clone(filter.filter()));
        let set = |dataplane: &mut Box<dyn Dataplane>| dataplane.set_filter(rules.as_ref());
        if let Attempt::Done((), _) = self.attempt("set the filter", set)? {
            self.next_filter = filter;
        }
        Ok(())
    }

    /// Closes a window and publishes it. `end` is its end if it is not now.
    fn rotate(
        &mut self,
        window: u64,
        complete: bool,
        end: Option<u64>,
        sink: &mut dyn Sink,
    ) -> Result<(), ControlError> {
        self.publish_repeats(sink)?;
        self.set_next_filter()?;
        self.is_rotating = true;
        let Attempt::Done(snapshot, called) = self.attempt("rotate", Dataplane::rotate)? else {
            self.summary.late_rotations += 1;
            tracing::warn!(
                "window {window} could not be closed on time; it stays open until the next rotation succeeds"
            );
            return Ok(());
        };
        self.send_delay_samples(window, &snapshot.delay_samples, sink)?;
        let end_ns = end.unwrap_or(called).max(self.window_start);
        let (late_ns, over) = if complete { self.lateness(called) } else { (0, 0) };
        let last_window = (over > 0).then_some(window + over);
        let losses = self.read_losses()?;
        let received = match self.attempt("received", Dataplane::received)? {
            Attempt::Done(received, _) => received,
            Attempt::GivenUp => None,
        };
        let mut admissions = Vec::new();
        let whole = &snapshot;
        for (part, snapshot, losses) in views(whole, &losses) {
            let mut drops = losses.since(&self.total_of(part).losses);
            let mut record = Record {
                kind: RecordKind::Window,
                window,
                last_window,
                start_ns: self.window_start,
                end_ns,
                scheduled: if end.is_none() { self.schedule.slots(over) } else { None },
                late_ns,
                clock_step_ns: self.stepped,
                adopted: self.adopted.clone(),
                late: drops.take(LossCause::Late),
                drops,
                reports: self.reports(RecordKind::Window, part, snapshot, end_ns)?,
                counted: Some(self.registers(snapshot)),
                ..self.counters_record(part, snapshot)
            };
            if let (None, Some(watch)) = (part, &mut self.watch) {
                let packets = record.counters.ipv4.wrapping_add(record.counters.ipv6);
                let is_short = self.is_short || self.stepped.is_some();
                let counted = record.counted.as_ref();
                record.reports.alarm =
                    watch.look(window, is_short, packets, &record.reports, counted);
                self.summary.count_alarm(record.reports.alarm.as_ref());
            }
            if let (None, Some(tuner), Some(delays)) =
                (part, &mut self.tuner, &record.reports.delay)
            {
                admissions = tuner.look(delays, end_ns.saturating_sub(self.window_start));
            }
            let total = match part {
                Some(index) => self.parts.get_mut(index),
                None => Some(&mut self.total),
            };
            if let Some(total) = total {
                let received = part.map_or(received, |index| {
                    whole.parts.get(index).and_then(|part| part.received)
                });
                let missing = total.ledger.missing();
                record.ledger = total.ledger.add_window(
                    record.counters.packets(),
                    record.counters.unmatched,
                    record.drops.total(),
                    received,
                );
                let is_whole = snapshot.complete
                    && record.drops.total() == 0
                    && total.ledger.missing() <= missing;
                record.complete = complete && is_whole && !self.is_short;
                total.gap |= !is_whole;
                total.add(&record, snapshot, self.dataplane.settings());
                total.losses = losses.clone();
            }
            record.judge(&self.plan.options.alerts);
            if part.is_none() {
                self.log_alerts(&record);
            }
            self.warn_of_full_counters(&record);
            sink.record(&record)?;
        }
        self.warn_of_unopened(&snapshot.bank);
        self.filter.clone_from(&self.next_filter);
        self.is_rotating = false;
        self.window_start = end_ns;
        (self.is_short, self.stepped) = (false, None);
        self.clock.closed(end_ns);
        self.last_sample = None;
        self.stalled = over > 0;
        self.summary.windows += 1;
        self.summary.stalled_windows += over;
        let last = last_window.unwrap_or(window);
        if let Attempt::GivenUp =
            self.attempt("published", |dataplane| dataplane.published(last))?
        {
            tracing::warn!(
                "{} could not record that window {window} is published; it is published again if this process is killed",
                self.interface()
            );
        }
        self.admit(&admissions)?;
        self.bound()
    }

    /// Passes the current usual range of each entropy to a dataplane that watches them itself.
    fn bound(&mut self) -> Result<(), ControlError> {
        let Some((watch, first)) =
            self.watch.as_ref().zip(self.dataplane.capabilities().watches_from)
        else {
            return Ok(());
        };
        let bounds = watch.bounds(first);
        if !bounds.is_empty()
            && let Attempt::GivenUp =
                self.attempt("bounds", |dataplane| dataplane.watch(&bounds))?
        {
            tracing::warn!(
                "{} did not accept the new range of usual entropies; it uses the previous one",
                self.interface()
            );
        }
        Ok(())
    }

    /// Sets the shares of requests that the window after the open one admits.
    fn admit(&mut self, admissions: &[(delay::DelayKind, Admission)]) -> Result<(), ControlError> {
        if !admissions.is_empty()
            && let Attempt::GivenUp =
                self.attempt("admit", |dataplane| dataplane.admit(admissions))?
        {
            tracing::warn!(
                "{} did not accept the shares of requests that fit the traffic; it uses the previous ones",
                self.interface()
            );
        }
        Ok(())
    }

    /// Returns how late the due window ends if it ends at `end`, in nanoseconds, and the number of
    /// later windows that are over by then.
    fn lateness(&mut self, end: u64) -> (u64, u64) {
        let Some(length) = self.plan.intervals.window.map(nanoseconds) else { return (0, 0) };
        let late_ns = end.saturating_sub(self.schedule.window_start().saturating_add(length));
        self.summary.late_windows += u64::from(late_ns > length / LATE_PART);
        self.summary.latest_ns = self.summary.latest_ns.max(late_ns);
        let end = end.min(self.schedule.stop().unwrap_or(u64::MAX));
        (late_ns, self.schedule.windows_until(end).saturating_sub(1))
    }

    /// Logs rules that start or stop firing.
    fn log_alerts(&mut self, record: &Record) {
        let (origin, window) = (record.origin(), record.window);
        for alert in &record.alerts {
            if alert.firing && self.firing.insert(alert.rule.clone()) {
                tracing::warn!("{origin}, window {window}: ALERT {alert}");
            } else if !alert.firing && self.firing.remove(&alert.rule) {
                tracing::warn!("{origin}, window {window}: no longer certain: {alert}");
            }
        }
    }

    /// Warns of full counters, once in a run: a window that is too long for its traffic is hardly
    /// the only one.
    fn warn_of_full_counters(&mut self, record: &Record) {
        let full: Vec<&str> = record
            .reports
            .all()
            .rev()
            .filter(|(_, report)| report.is_full())
            .map(|(name, _)| name)
            .collect();
        if full.is_empty() || std::mem::replace(&mut self.warned_of_full_counters, true) {
            return;
        }
        let names = full.join(" and ");
        let warning = format!(
            "{}, window {}: counters of {names} are full, since flows have 2 billion packets and more; intervals allow for it; \
             shorter windows (--window) give exact counts",
            record.interface, record.window
        );
        tracing::warn!("{warning}");
        self.faults.push(warning);
    }

    /// Warns once if most frames have one EtherType that is not opened.
    fn warn_of_unopened(&mut self, bank: &WindowTotals) {
        if self.warned_of_unopened {
            return;
        }
        if let Some(warning) = unopened::warning(bank) {
            self.warned_of_unopened = true;
            tracing::warn!("{warning}");
            self.faults.push(warning);
        }
    }

    fn total_of(&self, part: Option<usize>) -> &Total {
        part.and_then(|index| self.parts.get(index)).unwrap_or(&self.total)
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
                self.rotate(self.first_window + self.schedule.window(), false, None, sink)?;
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

    fn finish_staggered(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        self.send_pending_delay_samples(sink)?;
        let now = self.clock.now();
        let Attempt::Done(snapshot, _) = self.attempt("sample", Dataplane::sample)? else {
            return Ok(());
        };
        let records = self.sample(&snapshot, now, 0, now)?;
        records.iter().try_for_each(|record| sink.record(record))?;
        self.summary.samples += 1;
        let mut totals = Vec::new();
        for (record, (part, snapshot, _)) in
            records.into_iter().zip(views(&snapshot, &Losses::default()))
        {
            let reports = self.reports(RecordKind::Total, part, snapshot, now)?;
            totals.push(Record {
                kind: RecordKind::Total,
                start_ns: self.start,
                at_ns: None,
                complete: snapshot.complete && record.drops.total() + record.late == 0,
                reports,
                // The figures of the sample do not apply.
                drawn: FieldCache::default(),
                ..record
            });
        }
        self.summary.total = totals.pop();
        self.summary.parts = totals;
        Ok(())
    }

    fn sum_up(&self, part: Option<usize>) -> Result<Option<Record>, ControlError> {
        let total = self.total_of(part);
        let Some(merged) = &total.merged else { return Ok(None) };
        let packets = total.counters.packets();
        Ok(Some(Record {
            kind: RecordKind::Total,
            window: self.first_window + self.schedule.window(),
            start_ns: self.start,
            end_ns: self.clock.now(),
            complete: !total.gap && total.late == 0,
            counters: total.counters,
            filter: total.filters.as_deref().map(Arc::from),
            packets_before_after: (packets, packets),
            drops: total.drops.clone(),
            ledger: total.ledger.total(),
            late: total.late,
            cpu_ns: total.cpu_ns,
            reports: self.reports(RecordKind::Total, part, merged, self.window_start)?,
            ..self.empty(part)
        }))
    }

    /// Makes a record of a snapshot's counters.
    fn counters_record(&self, part: Option<usize>, snapshot: &Snapshot) -> Record {
        Record {
            counters: snapshot.bank.counters,
            packets_before_after: (snapshot.packets_before, snapshot.packets_after),
            cpu_ns: snapshot.cpu_ns,
            ..self.empty(part)
        }
    }

    /// Returns the clock of a snapshot's packets.
    fn clock_of(&self, snapshot: &Snapshot) -> TimestampClock {
        TimestampClock { gap_ns: snapshot.gap_ns, ..self.dataplane.capabilities().clock }
    }

    fn registers(&self, snapshot: &Snapshot) -> ClosedBank {
        ClosedBank {
            bank: Arc::clone(&snapshot.bank),
            settings: *self.dataplane.settings(),
            hash: snapshot.hash,
            row_hash: self.rows.hash,
            clock: self.clock_of(snapshot),
        }
    }

    /// Computes the reports of a record of packets up to `now_ns`.
    fn reports(
        &self,
        kind: RecordKind,
        part: Option<usize>,
        snapshot: &Snapshot,
        now_ns: u64,
    ) -> Result<Reports, ControlError> {
        let is_total = kind == RecordKind::Total;
        let begun = if is_total { self.start } else { self.window_start };
        Reports::of(&ReportInput {
            kind,
            is_part: part.is_some(),
            clock: self.clock_of(snapshot),
            settings: self.dataplane.settings(),
            options: &self.plan.options,
            rows: &self.rows,
            bank: &snapshot.bank,
            hash: snapshot.hash,
            truth: snapshot.truth,
            union_states: None,
            snapshot: Some(snapshot).filter(|_| !is_total),
            start_ns: self.start,
            now_ns,
            span_ns: now_ns.saturating_sub(begun),
        })
        .map_err(|source| ControlError::Registers { interface: self.interface(), source })
    }

    fn has_windows(&self) -> bool {
        has_windows(self.dataplane.settings())
    }

    /// Returns the kernel hooks that count at a place, or anywhere, without duplicates.
    fn hook(&self, place: Option<&CountingPoint>) -> Option<String> {
        let programs = self.dataplane.status().programs;
        let here = programs
            .into_iter()
            .filter(|program| place.is_none_or(|place| *place == program.place));
        let mut hooks: Vec<String> = here.filter_map(|program| program.hook).collect();
        hooks.sort();
        hooks.dedup();
        (!hooks.is_empty()).then(|| hooks.join(","))
    }

    fn empty(&self, part: Option<usize>) -> Record {
        let capabilities = self.dataplane.capabilities();
        let (interface, direction) =
            match (part.and_then(|index| capabilities.places.get(index)), &capabilities.places[..])
            {
                (Some(place), _) => (&place.interface, place.direction.name()),
                (None, [first, others @ ..])
                    if others.iter().all(|other| other.direction == first.direction) =>
                {
                    (&capabilities.interface, first.direction.name())
                }
                (None, _) => (&capabilities.interface, "both"),
            };
        Record {
            kind: RecordKind::Sample,
            window: 0,
            last_window: None,
            start_ns: 0,
            end_ns: 0,
            scheduled: None,
            at_ns: None,
            late_ns: 0,
            repeats: 0,
            last_ns: None,
            clock_step_ns: None,
            adopted: None,
            complete: false,
            backend: capabilities.backend,
            source: self.source.clone(),
            interface: interface.clone(),
            direction,
            hook: self.hook(part.and_then(|index| capabilities.places.get(index))),
            part: part.is_some(),
            inner: self.dataplane.settings().headers.inner,
            filter: self.filter.as_ref().map(|filter| Arc::clone(filter.text())),
            counters: Counters::default(),
            packets_before_after: (0, 0),
            drops: Losses::default(),
            ledger: None,
            alerts: Vec::new(),
            late: 0,
            cpu_ns: None,
            reports: Reports::default(),
            united: None,
            counted: None,
            drawn: FieldCache::default(),
        }
    }

    /// Reads the losses since the start; returns the last known ones on failure.
    fn read_losses(&mut self) -> Result<Losses, ControlError> {
        Ok(match self.attempt("losses", Dataplane::losses)? {
            Attempt::Done(losses, _) => losses,
            Attempt::GivenUp => self.total.losses.clone(),
        })
    }

    /// Makes a call, and repeats it with growing pauses while it fails transiently.
    fn attempt<T>(
        &mut self,
        operation: &str,
        call: impl Fn(&mut Box<dyn Dataplane>) -> Result<T, Error>,
    ) -> Result<Attempt<T>, ControlError> {
        let mut delay = BACK_OFF;
        for retry in 0..=RETRIES {
            let called = self.clock.now();
            match call(&mut self.dataplane) {
                Ok(answer) => return Ok(Attempt::Done(answer, called)),
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
        Ok(Attempt::GivenUp)
    }

    fn interface(&self) -> String {
        self.dataplane.capabilities().interface.clone()
    }
}

/// Returns the parts of a snapshot with their numbers, if there are any, then the whole snapshot,
/// each with its losses.
fn views<'a>(
    snapshot: &'a Snapshot,
    losses: &'a Losses,
) -> impl Iterator<Item = (Option<usize>, &'a Snapshot, &'a Losses)> {
    let parts = snapshot.parts.iter().enumerate();
    let parts = parts.map(|(index, Part { snapshot, losses, .. })| (Some(index), snapshot, losses));
    parts.chain([(None, snapshot, losses)])
}

/// Merges a bank into another. A bank that is shared with readers is copied first, on the heap:
/// banks are larger than stacks.
fn merge_bank(sum: &mut Arc<WindowTotals>, bank: &WindowTotals, settings: &Settings) {
    if Arc::get_mut(sum).is_none() {
        let held = std::mem::replace(sum, WindowTotals::counted());
        merge_bank(sum, &held, settings);
    }
    if let Some(sum) = Arc::get_mut(sum) {
        sum.unite(bank, settings);
    }
}

impl LastSample {
    /// Returns whether a later snapshot of the same window shows the same state.
    fn is_same(&self, snapshot: &Snapshot) -> bool {
        let now = (snapshot.packets_before, snapshot.packets_after);
        self.records.last().is_some_and(|whole| {
            whole.counters == snapshot.bank.counters && whole.packets_before_after == now
        })
    }

    /// Adds later samples that found the same.
    fn repeat(&mut self, further: Repeats) {
        self.repeats = Some(match self.repeats {
            None => further,
            Some(before) => Repeats {
                number: before.number.saturating_add(further.number),
                last_ns: further.last_ns,
                ..before
            },
        });
    }
}

impl Total {
    /// Adds the filter of a window to those of the windows before it.
    fn add_filter(&mut self, filter: Option<&Arc<str>>) {
        let is_first = self.merged.is_none();
        if !is_first && self.filter.as_ref() == filter {
            return;
        }
        let text = |filter: Option<&Arc<str>>| filter.map_or("all packets", |text| text).to_owned();
        self.filters = match self.filters.take() {
            None if is_first => filter.map(|text| text.to_string()),
            before => {
                Some(format!("{}; then {}", before.unwrap_or_else(|| text(None)), text(filter)))
            }
        };
        self.filter = filter.cloned();
    }

    fn add(&mut self, record: &Record, snapshot: &Snapshot, settings: &Settings) {
        self.counters.merge(&record.counters);
        self.add_filter(record.filter.as_ref());
        record.drops.iter().for_each(|(cause, packets)| self.drops.add(cause, packets));
        self.late += record.late;
        if let Some(used) = record.cpu_ns {
            *self.cpu_ns.get_or_insert(0) += used;
        }
        let Snapshot { bank, hash, truth, gap_ns, .. } = snapshot;
        match &mut self.merged {
            Some(merged) => {
                merge_bank(&mut merged.bank, bank, settings);
                (merged.hash, merged.truth) = (*hash, *truth);
                merged.gap_ns = merged.gap_ns.max(*gap_ns);
            }
            None => {
                let merged = Snapshot::of(Arc::clone(bank), *hash);
                self.merged = Some(Snapshot { truth: *truth, gap_ns: *gap_ns, ..merged });
            }
        }
    }
}
