//! Samples, and the times that the schedule does not foresee: silence, steps of the clock, changes
//! of the plan.

use super::{ControlError, Controller, Plan, Sink};
use crate::clock::nanoseconds;
use crate::filter::MatchExpression;
use crate::measurement::alarm::Watch;
use crate::record::{Adoption, Record, RecordKind};
use crate::schedule::{Action, Intervals, ScheduledAction, SkippedSamples};
use crate::text::{counted, stepped};
use flowgauge_dataplane::{Adopted, Dataplane, Snapshot};
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
    pub(super) fn filter(&self) -> Option<Option<MatchExpression>> {
        let plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plan.as_ref().map(|plan| plan.filter.clone())
    }

    fn take(&self) -> Option<Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Last sample that was published in the open window, and those after it.
pub(super) struct LastSample {
    /// Its records: of every place, if there are several, then of all. Once later samples have found
    /// the same, they stand for those until they are published.
    records: Vec<Record>,
    /// Time at which the dataplane was last seen in this state, in nanoseconds.
    taken_ns: u64,
}

impl LastSample {
    /// Returns whether a later snapshot of the same window shows the same state.
    fn is_same(&self, snapshot: &Snapshot) -> bool {
        let now = (snapshot.packets_before, snapshot.packets_after);
        self.records.last().is_some_and(|whole| {
            whole.counters == snapshot.bank.counters && whole.packets_before_after == now
        })
    }

    /// Adds later samples that found the same. Lateness is that of the first.
    fn repeat(&mut self, SkippedSamples { number, first, last }: SkippedSamples, late_ns: u64) {
        for record in &mut self.records {
            if record.last_ns.is_none() {
                (record.repeats, record.at_ns, record.late_ns) = (0, Some(first), late_ns);
                record.end_ns = first.saturating_add(late_ns);
            }
            record.repeats = record.repeats.saturating_add(number);
            record.last_ns = Some(last);
        }
    }
}

impl Controller {
    /// Publishes the windows that an earlier process counted and did not publish.
    pub(super) fn close_open_windows(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let Adopted { open_windows, runs, next_window } = std::mem::take(&mut self.adopted);
        if !self.has_windows() {
            return Ok(());
        }
        let now = self.clock.now();
        let ends = open_windows.iter().skip(1).copied().chain([now]);
        let runs =
            runs.into_iter().map(|run| run.map(Arc::<str>::from)).chain(std::iter::repeat(None));
        let windows = (next_window..).zip(&open_windows).zip(ends).zip(runs);
        for (((window, start), end), run) in windows {
            self.window_start = *start;
            self.rotate(window, false, Some((end, Adoption { run })), sink)?;
        }
        Ok(())
    }

    /// Handles a step of the clock: the open window ends by the old time and the next one begins by
    /// the new time. Each packet is counted once, and the record of the window states the step.
    pub(super) fn step(&mut self, by: i64, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let window = self.open_window();
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

    /// Applies requested changes between two windows.
    pub(super) fn apply_changes(&mut self, due: &ScheduledAction) -> Result<(), ControlError> {
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
        let number = self.open_window();
        tracing::warn!(
            "{}: changed between two windows, before window {number}; {} lost",
            self.interface(),
            counted(lost, "packet")
        );
        Ok(())
    }

    /// Publishes one record for a long run of empty windows before the next packet of a trace, and
    /// skips the samples before that packet which would find the same as the last one. Returns
    /// them; they count once their time has come. Takes bounded time.
    pub(super) fn skip_silence(
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
            let window = self.open_window();
            let samples = self.schedule.skip_to(until);
            let end_ns = self.schedule.window_start();
            let start_ns = std::mem::replace(&mut self.window_start, end_ns);
            self.clock.closed(end_ns);
            self.summary.silent_windows += empty;
            let repeats = samples.map_or(0, |samples| samples.number);
            self.summary.samples += repeats;
            sink.record(&Record {
                kind: RecordKind::Silence,
                window,
                last_window: Some(window + empty - 1),
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
    pub(super) fn count_skipped(&mut self, skipped: Option<SkippedSamples>) {
        if let (Some(skipped), Some(last)) = (skipped, &mut self.last_sample) {
            self.summary.samples += skipped.number;
            last.repeat(skipped, 0);
        }
    }

    /// Publishes the samples that found the same as the last one, as one record.
    pub(super) fn publish_repeats(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let records = self.last_sample.iter_mut().flat_map(|last| &mut last.records);
        for record in records.filter(|record| record.last_ns.is_some()) {
            sink.record(record)?;
            record.last_ns = None;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, at: u64, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let overdue = self.clock.now().saturating_sub(at);
        let mean = self.plan.intervals.sample_every.unwrap_or_default();
        if overdue > nanoseconds(mean.saturating_mul(BACKLOG)) {
            self.summary.missed_samples += 1;
            return Ok(());
        }
        let sampled = self.attempt("sample", Dataplane::sample)?;
        let what = if sampled.is_some() { "lost a part of this window" } else { "did not answer" };
        let Some((snapshot, taken)) = sampled.filter(|(snapshot, _)| snapshot.complete) else {
            self.summary.missed_samples += 1;
            tracing::warn!("the sample at {at} ns is missing: {} {what}", self.interface());
            return Ok(());
        };
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
            last.repeat(SkippedSamples { number: 1, first: at, last: taken }, late_ns);
            return Ok(());
        }
        self.publish_repeats(sink)?;
        let mut records = self.sample(&snapshot, at, late_ns, taken)?;
        records.iter_mut().for_each(|record| record.repeats = 1);
        records.iter().try_for_each(|record| sink.record(record))?;
        self.last_sample = Some(LastSample { records, taken_ns: taken });
        Ok(())
    }

    /// Makes the records of a sample: of every place, if there are several, then of all.
    pub(super) fn sample(
        &mut self,
        snapshot: &Snapshot,
        at: u64,
        late_ns: u64,
        taken: u64,
    ) -> Result<Vec<Record>, ControlError> {
        let losses = self.read_losses()?;
        let window = self.open_window();
        let mut records = self.records(RecordKind::Sample, window, taken, snapshot, &losses)?;
        records.iter_mut().for_each(|record| (record.at_ns, record.late_ns) = (Some(at), late_ns));
        Ok(records)
    }

    /// Returns how late the due window ends if it ends at `end`, in nanoseconds, and the number of
    /// later windows that are over by then.
    pub(super) fn lateness(&mut self, end: u64) -> (u64, u64) {
        let Some(length) = self.plan.intervals.window.map(nanoseconds) else { return (0, 0) };
        let late_ns = end.saturating_sub(self.schedule.window_start().saturating_add(length));
        self.summary.late_windows += u64::from(late_ns > length / LATE_PART);
        self.summary.latest_ns = self.summary.latest_ns.max(late_ns);
        let end = end.min(self.schedule.stop().unwrap_or(u64::MAX));
        (late_ns, self.schedule.windows_until(end).saturating_sub(1))
    }
}
