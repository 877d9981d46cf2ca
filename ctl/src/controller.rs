//! Runs a dataplane by a schedule on a clock.

use crate::alert::Rule;
use crate::clock::{Clock, Woken, nanoseconds};
use crate::ledger::Book;
use crate::measurement::alarm::{Alarm, Watch};
use crate::measurement::delay::tune::Tuner;
use crate::measurement::delay::{Ends, Sample};
use crate::measurement::{Counted, Damaged, Estimation, Reading, Reports, Rows, has_windows};
use crate::record::Drawn;
use crate::record::{Kind, Record};
use crate::schedule::{Action, Due, Intervals, Schedule};
use crate::text::{counted, stepped};
use crate::unopened;
use flowgauge_core::delay::prefixes::Owned;
use flowgauge_core::delay::{self, Admission};
use flowgauge_core::{Counters, HashIdentity, KeyKind, Settings, WideBank, Zeroed};
use flowgauge_dataplane::{
    Adopted, Dataplane, DelaySample, Error, Event, HashKey, LossCause, Losses, Part, Place,
    Snapshot, Tables, Truth,
};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A read that starts later than this after its time is counted as late. Waking up takes a live
/// clock about a tenth of it.
const LATE: Duration = Duration::from_millis(1);
/// Reads this many mean intervals overdue are given up, so that a dataplane slower than its reads
/// cannot build up a backlog.
const BACKLOG: u32 = 10;
/// Empty windows in a row of a trace that are still published each; of more there is one record.
const EMPTY_WINDOWS: u64 = 3;
/// A window that ends later than this part of its length is counted as late.
const LATE_PART: u64 = 10;
/// How long to wait before a failed call is repeated, at first; doubled each time.
const BACK_OFF: Duration = Duration::from_millis(10);
/// How often a failed call is repeated before the controller goes on without it.
const RETRIES: u32 = 8;
/// How far the wall clock may be from the controller's before it was set, and not just kept right.
const CLOCK_STEP_NS: u64 = 50_000_000;
/// How often a waiting live controller looks for events.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);
/// Delays one by one that are handed on at a time.
const DELAYS: usize = 1024;

/// Where records go.
pub trait Sink {
    /// Takes one record.
    ///
    /// # Errors
    /// If it cannot be written; the run ends, since nobody would see what it measures.
    fn record(&mut self, record: &Record) -> io::Result<()>;

    /// Takes delays one by one; those of a window come before its record.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    fn delays(&mut self, delays: &[Sample<'_>]) -> io::Result<()> {
        let _ = delays;
        Ok(())
    }

    /// The controller is at work, and this is how far it and its dataplane are. A live one says so
    /// every 100 ms, unless a call of its dataplane takes longer.
    fn heartbeat(&mut self, dataplane: &dyn Dataplane, summary: &Summary) {
        let _ = (dataplane, summary);
    }
}

/// Why a run broke off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The dataplane failed for good.
    #[error(transparent)]
    Dataplane(#[from] Error),
    /// Records cannot be written.
    #[error("cannot write results: {0}")]
    Output(#[from] io::Error),
    /// Registers that no hash can give.
    #[error("the registers read from {interface} are damaged: {source}")]
    Registers {
        /// Where they came from.
        interface: String,
        /// What is wrong with them.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The traffic broke off.
    #[error(
        "{interface}: a worker has died and its counts with it; restart, and report this as a bug with the log above"
    )]
    TrafficFailed {
        /// Where the packets came from.
        interface: String,
    },
}

/// What a controller is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// When windows end, reads happen and the run is over. With staggered registers there are no
    /// windows.
    pub intervals: Intervals,
    /// Seed of hash tables and read times.
    pub seed: u64,
    /// The secret of a keyed hash; without one the seed gives it, and it is no secret. Other hashes
    /// have no use for it.
    pub hash_key: Option<HashKey>,
    /// Prefixes of groups of addresses and of our own side; those whose fingerprint the dataplane's
    /// settings have.
    pub prefixes: Vec<Owned>,
    /// How registers become numbers, and what to tell of them.
    pub options: Estimation,
}

/// What a run is to do from the next window on, from another thread: what can change without a
/// packet being lost.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<Mutex<Option<Plan>>>);

impl Changes {
    /// Asks for other intervals and another estimation. Of a plan that was not taken up yet nothing
    /// remains. What was given to the dataplane when it began stays: seed, hash key and prefixes.
    pub fn ask(&self, plan: Plan) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
    }

    fn take(&self) -> Option<Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Windows published.
    pub windows: u64,
    /// Reads published.
    pub samples: u64,
    /// Reads that started more than a millisecond late.
    pub late_reads: u64,
    /// Reads given up: the dataplane did not answer, or a backlog built up.
    pub missed_reads: u64,
    /// Windows that ended later than a tenth of their length after their time.
    pub late_windows: u64,
    /// How late the latest of them was, in nanoseconds.
    pub latest_ns: u64,
    /// Windows that were over when one before them ended late: they are in its record.
    pub stalled_windows: u64,
    /// Empty windows of a trace that are summed up.
    pub silent_windows: u64,
    /// How often the clock was set.
    pub clock_steps: u64,
    /// Rotations that failed at their time; their windows were closed later, no packet was lost.
    pub late_rotations: u64,
    /// Calls that were repeated.
    pub retries: u64,
    /// Windows that raised the alarm.
    pub alarms: u64,
    /// What the dataplane warned of.
    pub warnings: Vec<String>,
    /// Everything together; `None` if nothing was counted.
    pub total: Option<Record>,
    /// The same by place, when packets were counted at several.
    pub parts: Vec<Record>,
}

/// Drives one dataplane.
pub struct Controller {
    dataplane: Box<dyn Dataplane>,
    clock: Box<dyn Clock>,
    plan: Plan,
    rows: Rows,
    /// How delays one by one tell the ends of flows.
    ends: Ends,
    watch: Option<Watch>,
    /// What windows admit of the requests whose delays are measured, if that follows the traffic.
    tuner: Option<Tuner>,
    schedule: Schedule,
    /// Start of the current window, in nanoseconds: where the one before it really ended.
    window_start: u64,
    /// The current window began later than its schedule says.
    is_short: bool,
    /// By how much the clock was set while the current window was open.
    stepped: Option<i64>,
    start: u64,
    /// Windows that an earlier process left open.
    open_windows: Vec<u64>,
    /// Number of the first window of the schedule.
    first_window: u64,
    summary: Summary,
    total: Total,
    /// The same for every place, if there are several.
    parts: Vec<Total>,
    ended: bool,
    /// The last window ended so late that others were over.
    stalled: bool,
    /// Packets that the last read of this window found.
    last_read: Option<u64>,
    /// An entropy that has left its bounds in the open window, of which the operator is to be told.
    crossed: Option<KeyKind>,
    /// Whether the operator was told of counters that are full.
    told_of_full_counters: bool,
    /// Whether it was told what most frames are that are not opened.
    told_unopened: bool,
    /// The source's name, where a run has several.
    source: Option<Arc<str>>,
    changes: Changes,
    /// Rules that hold, and those about figures that there are none of.
    firing: BTreeSet<String>,
    told_idle: BTreeSet<String>,
}

/// What all windows have in common.
#[derive(Default)]
struct Total {
    counters: Counters,
    drops: Losses,
    late: u64,
    /// Losses when the current window began.
    losses: Losses,
    book: Book,
    together: Option<Together>,
    /// Whether a part of a window was lost.
    gap: bool,
    /// CPU time of the workers, in nanoseconds.
    cpu_ns: Option<u64>,
}

/// All windows together, entropies and their sketches excepted.
struct Together {
    bank: Arc<WideBank>,
    hash: HashIdentity,
    truth: Option<Truth>,
}

enum Attempt<T> {
    /// The answer, and when the call that brought it was made.
    Done(T, u64),
    GivenUp,
}

impl Controller {
    /// Installs the tables, which starts the dataplane, or takes over what an earlier process left
    /// counting; `clock` makes the clock once packets flow.
    ///
    /// # Errors
    /// Whatever [`Dataplane::install`] fails with.
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
        let tables = tables.with_prefixes(&plan.prefixes);
        let adopted = dataplane.install(&tables)?;
        let mut clock = clock();
        let start = clock.now();
        let Adopted { since_ns, open_windows, next_window } = adopted.unwrap_or(Adopted {
            since_ns: start,
            open_windows: Vec::new(),
            next_window: 0,
        });
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
            rows: Rows::new(&tables),
            ends: Ends::new(tables.row_hash().mode),
            watch: plan.options.alarm.map(Watch::new),
            tuner: intervals.window.and_then(|window| Tuner::new(tuned, nanoseconds(window))),
            plan,
            window_start: start,
            start: since_ns,
            first_window: next_window + open_windows.len() as u64,
            open_windows,
            summary: Summary::default(),
            total: Total::default(),
            parts: std::iter::repeat_with(Total::default)
                .take(if places > 1 { places } else { 0 })
                .collect(),
            ended: false,
            stalled: false,
            last_read: None,
            crossed: None,
            told_of_full_counters: false,
            told_unopened: false,
            source: None,
            changes: Changes::default(),
            firing: BTreeSet::new(),
            told_idle: BTreeSet::new(),
        })
    }

    /// Has its records say that they are of this source.
    #[must_use]
    pub fn of_source(self, source: Option<Arc<str>>) -> Self {
        Controller { source, ..self }
    }

    /// Takes up these changes between two windows.
    #[must_use]
    pub fn with(self, changes: Changes) -> Self {
        Controller { changes, ..self }
    }

    /// Runs until the schedule, the traffic or the operator ends it; every packet counted by then
    /// is in a record.
    ///
    /// # Errors
    /// [`ControlError`]; what was published before stays published.
    pub fn run(mut self, sink: &mut dyn Sink) -> Result<Summary, ControlError> {
        self.close_open_windows(sink)?;
        loop {
            self.skip_silence(sink)?;
            let due = self.schedule.peek();
            let Some(woken) = self.wait(due, sink)? else { continue };
            match woken {
                Woken::Reached => {}
                Woken::Ended { .. } => break,
                // In trace time packets were counted beyond the time reached last.
                Woken::Interrupted => return self.finish(true, sink),
                Woken::Failed => {
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
                self.schedule
                    .skip_to(self.window_start.min(self.schedule.stop().unwrap_or(u64::MAX)));
            }
            self.take_up_changes(&due)?;
            // Packets that arrive while the last window is closed are beyond the end of the run.
            if let Some(Due { at, action: Action::Stop }) = self.schedule.peek()
                && self.window_start >= at
                && self.summary.windows > 0
            {
                return self.conclude(sink);
            }
        }
        self.finish(false, sink)
    }

    /// Publishes what an earlier process counted and nobody has published.
    fn close_open_windows(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let open = std::mem::take(&mut self.open_windows);
        if !self.has_windows() {
            return Ok(());
        }
        let now = self.clock.now();
        let ends = open.iter().skip(1).copied().chain([now]);
        let first = self.first_window - open.len() as u64;
        for (window, (&start, end)) in (first..).zip(open.iter().zip(ends)) {
            self.window_start = start;
            self.rotate(window, false, Some(end), sink)?;
        }
        Ok(())
    }

    /// Waits until something is due, looking after events meanwhile. Says nothing if the clock was
    /// set, and other things are due.
    fn wait(
        &mut self,
        due: Option<Due>,
        sink: &mut dyn Sink,
    ) -> Result<Option<Woken>, ControlError> {
        let deadline = due.map_or(u64::MAX, |due| due.at);
        loop {
            // Asked first: something may always be due before there is time to look.
            if self.ended {
                return Ok(Some(Woken::Ended { at: self.clock.now() }));
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
            self.look_after_events()?;
            self.tell_crossing(sink)?;
            self.look_after_delays(sink)?;
            sink.heartbeat(&*self.dataplane, &self.summary);
            if woken != Woken::Reached || next == deadline {
                return Ok(Some(woken));
            }
        }
    }

    /// The clock was set. The open window ends by the old time, and the next one begins by the new
    /// time: what is counted is counted once, in a window that says so.
    fn step(&mut self, by: i64, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let window = self.first_window + self.schedule.window();
        tracing::warn!(
            "{}; window {window} ends here, and the next one begins at the new time",
            stepped(by)
        );
        self.summary.clock_steps += 1;
        self.stepped = Some(self.stepped.unwrap_or(0).saturating_add(by));
        if self.plan.intervals.window.is_some() && self.has_windows() {
            self.rotate(window, false, None, sink)?;
        }
        self.clock.shift(by);
        let now = self.clock.now();
        // If the window could not be closed, it goes on.
        self.window_start =
            if self.stepped.is_none() { now } else { self.window_start.saturating_add_signed(by) };
        self.start = self.start.saturating_add_signed(by);
        self.schedule.step(now, by);
        self.is_short = self.window_start > self.schedule.window_start();
        Ok(())
    }

    fn look_after_events(&mut self) -> Result<(), ControlError> {
        if let Attempt::Done(events, _) = self.attempt("events", Dataplane::events)? {
            for event in events {
                match event {
                    Event::TrafficEnded => self.ended = true,
                    Event::Warning(warning) => {
                        tracing::warn!("{warning}");
                        self.summary.warnings.push(warning);
                    }
                    Event::Notice(notice) => tracing::warn!("{notice}"),
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

    /// Tells that an entropy has left its bounds in the open window, and reads what that holds.
    fn tell_crossing(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let Some(key) = self.crossed.take() else { return Ok(()) };
        let at = self.clock.now();
        let mut records = match self.attempt("sample", Dataplane::sample)? {
            Attempt::Done(snapshot, taken) => self.sample(&snapshot, at, 0, taken)?,
            Attempt::GivenUp => Vec::new(),
        };
        let window = self.first_window + self.schedule.window();
        let mut whole = records.iter_mut().find(|record| !record.part);
        if let Some(watch) = &self.watch {
            watch.tell_crossing(window, key, whole.as_deref().map(|record| &record.reports));
            whole.iter_mut().for_each(|record| record.reports.alarm = Some(watch.crossed()));
        }
        self.summary.samples += u64::from(!records.is_empty());
        records.iter().try_for_each(|record| sink.record(record))?;
        Ok(())
    }

    /// Between two windows, goes on as was asked meanwhile.
    fn take_up_changes(&mut self, due: &Due) -> Result<(), ControlError> {
        // Staggered registers have no windows: any time is as good.
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
        self.plan = Plan { intervals: plan.intervals, options: plan.options, ..self.plan.clone() };
        let lost = self.read_losses()?.since(&before).total();
        let number = self.first_window + self.schedule.window();
        tracing::warn!(
            "{}: changed between two windows, before window {number}; {} lost",
            self.interface(),
            counted(lost, "packet")
        );
        Ok(())
    }

    /// Hands on the delays that have come one by one, if somebody asks for them.
    fn look_after_delays(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        if self.dataplane.settings().delay.samples
            && let Attempt::Done(delays, _) = self.attempt("delays", Dataplane::delays)?
        {
            self.tell_delays(self.first_window + self.schedule.window(), &delays, sink)?;
        }
        Ok(())
    }

    fn tell_delays(
        &self,
        window: u64,
        delays: &[DelaySample],
        sink: &mut dyn Sink,
    ) -> Result<(), ControlError> {
        let (settings, places) =
            (&self.dataplane.settings().delay, &self.dataplane.capabilities().places);
        let options = &self.plan.options.delay;
        for delays in delays.chunks(DELAYS) {
            let told: Vec<Sample<'_>> = delays
                .iter()
                .filter_map(|delay| {
                    Sample::of(window, settings, options, places, &self.ends, delay)
                })
                .collect();
            sink.delays(&told)?;
        }
        Ok(())
    }

    /// Leaves out reads that would find nothing new, and sums up the windows before the next packet
    /// when they are many. Takes the same time however long it is until then.
    fn skip_silence(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let Some(next) = self.clock.next_packet() else { return Ok(()) };
        self.schedule.skip_reads(next);
        if !self.has_windows() {
            return Ok(());
        }
        let next = next.min(self.schedule.stop().unwrap_or(u64::MAX));
        let empty = self.schedule.windows_until(next);
        // Only between two windows: one that was begun is closed at its regular end.
        let between = self.summary.windows > 0 && self.clock.now() == self.window_start;
        if between && empty > EMPTY_WINDOWS {
            let window = self.first_window + self.schedule.window();
            self.schedule.skip_to(next);
            let end_ns = self.schedule.window_start();
            let start_ns = std::mem::replace(&mut self.window_start, end_ns);
            self.clock.closed(end_ns);
            self.summary.silent_windows += empty;
            let last_window = Some(window + empty - 1);
            let kind = Kind::Silence;
            sink.record(&Record {
                kind,
                window,
                last_window,
                start_ns,
                end_ns,
                complete: true,
                ..self.empty(None)
            })?;
        }
        Ok(())
    }

    fn read(&mut self, at: u64, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let overdue = self.clock.now().saturating_sub(at);
        let mean = self.plan.intervals.read_every.unwrap_or_default();
        if overdue > nanoseconds(mean.saturating_mul(BACKLOG)) {
            self.summary.missed_reads += 1;
            return Ok(());
        }
        let Attempt::Done(snapshot, taken) = self.attempt("sample", Dataplane::sample)? else {
            self.summary.missed_reads += 1;
            tracing::warn!("the read at {at} ns is missing: {} did not answer", self.interface());
            return Ok(());
        };
        if !snapshot.complete {
            self.summary.missed_reads += 1;
            tracing::warn!(
                "the read at {at} ns is missing: {} lost a part of this window",
                self.interface()
            );
            return Ok(());
        }
        let last_read = self.last_read.replace(snapshot.packets_after);
        // Staggered registers tell something new without packets: old ones are forgotten.
        if self.has_windows() && last_read == Some(snapshot.packets_after) {
            return Ok(());
        }
        // Late counts from the call that was answered: repeated calls delay a read as well.
        let late_ns = taken.saturating_sub(at);
        self.summary.late_reads += u64::from(late_ns > nanoseconds(LATE));
        let records = self.sample(&snapshot, at, late_ns, taken)?;
        self.summary.samples += 1;
        records.iter().try_for_each(|record| sink.record(record))?;
        Ok(())
    }

    /// The records of a sample: of every place, if there are several, and of all together.
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
                kind: Kind::Sample,
                window,
                start_ns: self.window_start,
                end_ns: taken,
                at_ns: Some(at),
                late_ns,
                late: drops.take(LossCause::Late),
                drops,
                reports: self.reports(Kind::Sample, part, snapshot, taken)?,
                ..self.counted(part, snapshot)
            });
        }
        Ok(records)
    }

    /// Closes a window and publishes it. It ends now unless it ended at another time.
    fn rotate(
        &mut self,
        window: u64,
        complete: bool,
        end: Option<u64>,
        sink: &mut dyn Sink,
    ) -> Result<(), ControlError> {
        let Attempt::Done(snapshot, called) = self.attempt("rotate", Dataplane::rotate)? else {
            self.summary.late_rotations += 1;
            tracing::warn!(
                "window {window} could not be closed at its time; it goes on until the next rotation succeeds"
            );
            return Ok(());
        };
        self.tell_delays(window, &snapshot.delays, sink)?;
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
                kind: Kind::Window,
                window,
                last_window,
                start_ns: self.window_start,
                end_ns,
                scheduled: if end.is_none() { self.schedule.slots(over) } else { None },
                late_ns,
                clock_step_ns: self.stepped,
                complete: complete && snapshot.complete && !self.is_short,
                late: drops.take(LossCause::Late),
                drops,
                reports: self.reports(Kind::Window, part, snapshot, end_ns)?,
                counted: Some(self.registers(snapshot)),
                ..self.counted(part, snapshot)
            };
            if let (None, Some(watch)) = (part, &mut self.watch) {
                let packets = record.counters.ipv4.wrapping_add(record.counters.ipv6);
                let is_short = self.is_short || self.stepped.is_some();
                record.reports.alarm = watch.look(window, is_short, packets, &record.reports);
                self.summary.alarms +=
                    u64::from(record.reports.alarm.as_ref().is_some_and(Alarm::raised));
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
                record.ledger =
                    total.book.window(record.counters.packets(), record.drops.total(), received);
                total.add(&record, snapshot, self.dataplane.settings());
                total.losses = losses.clone();
            }
            record.judge(&self.plan.options.alerts);
            if part.is_none() {
                self.tell_alerts(&record);
            }
            self.warn_of_full_counters(&record);
            sink.record(&record)?;
        }
        self.tell_unopened(&snapshot.bank);
        self.window_start = end_ns;
        (self.is_short, self.stepped) = (false, None);
        self.clock.closed(end_ns);
        self.last_read = None;
        self.stalled = over > 0;
        self.summary.windows += 1;
        self.summary.stalled_windows += over;
        let last = last_window.unwrap_or(window);
        if let Attempt::GivenUp =
            self.attempt("published", |dataplane| dataplane.published(last))?
        {
            tracing::warn!(
                "{} was not told that window {window} is published; it is again if this process is killed",
                self.interface()
            );
        }
        self.admit(&admissions)?;
        self.bound()
    }

    /// Has a dataplane that watches an entropy itself know what is usual by now.
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
                "{} did not take what is usual by now; it goes by what was",
                self.interface()
            );
        }
        Ok(())
    }

    /// Has the window after the open one admit these requests.
    fn admit(&mut self, admissions: &[(delay::Kind, Admission)]) -> Result<(), ControlError> {
        if !admissions.is_empty()
            && let Attempt::GivenUp =
                self.attempt("admit", |dataplane| dataplane.admit(admissions))?
        {
            tracing::warn!(
                "{} did not take the shares of requests that fit the traffic; it goes on with others",
                self.interface()
            );
        }
        Ok(())
    }

    /// How late the window that is due ends if it ends at `end`, in nanoseconds, and how many of
    /// those after it are over by then.
    fn lateness(&mut self, end: u64) -> (u64, u64) {
        let Some(length) = self.plan.intervals.window.map(nanoseconds) else { return (0, 0) };
        let late_ns = end.saturating_sub(self.schedule.window_start().saturating_add(length));
        self.summary.late_windows += u64::from(late_ns > length / LATE_PART);
        self.summary.latest_ns = self.summary.latest_ns.max(late_ns);
        let end = end.min(self.schedule.stop().unwrap_or(u64::MAX));
        (late_ns, self.schedule.windows_until(end).saturating_sub(1))
    }

    /// Tells rules that begin to hold, those that do no longer, and, once, those that are about
    /// nothing.
    fn tell_alerts(&mut self, record: &Record) {
        let (origin, window) = (record.origin(), record.window);
        let is_judged = |rule: &Rule| record.alerts.iter().any(|alert| alert.rule == rule.text());
        for rule in self.plan.options.alerts.iter().filter(|rule| !is_judged(rule)) {
            if self.told_idle.insert(rule.text().to_owned()) {
                tracing::warn!("{}", idle_rule(rule, record));
            }
        }
        for alert in &record.alerts {
            if alert.firing && self.firing.insert(alert.rule.clone()) {
                tracing::warn!("{origin}, window {window}: ALERT {alert}");
            } else if !alert.firing && self.firing.remove(&alert.rule) {
                tracing::warn!("{origin}, window {window}: no longer certain: {alert}");
            }
        }
    }

    /// Once: a window that is too long for its traffic is hardly the only one.
    fn warn_of_full_counters(&mut self, record: &Record) {
        let full: Vec<&str> = record
            .reports
            .all()
            .rev()
            .filter(|(_, report)| report.is_full())
            .map(|(name, _)| name)
            .collect();
        if full.is_empty() || std::mem::replace(&mut self.told_of_full_counters, true) {
            return;
        }
        let of = full.join(" and ");
        let warning = format!(
            "{}, window {}: counters of {of} are full, since flows have 2 billion packets and more; intervals allow for it; \
             shorter windows (--window) give exact counts",
            record.interface, record.window
        );
        tracing::warn!("{warning}");
        self.summary.warnings.push(warning);
    }

    /// Once a run, says of what EtherType most frames are, if it is one that is not opened.
    fn tell_unopened(&mut self, bank: &WideBank) {
        if self.told_unopened {
            return;
        }
        if let Some(warning) = unopened::warning(bank) {
            self.told_unopened = true;
            tracing::warn!("{warning}");
            self.summary.warnings.push(warning);
        }
    }

    fn total_of(&self, part: Option<usize>) -> &Total {
        part.and_then(|index| self.parts.get(index)).unwrap_or(&self.total)
    }

    /// Closes what is open and sums up. A window that has lasted no time is open only if it
    /// `may_hold_packets`.
    fn finish(
        mut self,
        may_hold_packets: bool,
        sink: &mut dyn Sink,
    ) -> Result<Summary, ControlError> {
        self.look_after_events()?;
        self.tell_crossing(sink)?;
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

    /// Sums up.
    fn conclude(mut self, sink: &mut dyn Sink) -> Result<Summary, ControlError> {
        // What was noticed when the last window was closed.
        self.look_after_events()?;
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
        self.look_after_delays(sink)?;
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
            let reports = self.reports(Kind::Total, part, snapshot, now)?;
            totals.push(Record {
                kind: Kind::Total,
                start_ns: self.start,
                at_ns: None,
                complete: true,
                reports,
                // Not the figures of the sample.
                drawn: Drawn::default(),
                ..record
            });
        }
        self.summary.total = totals.pop();
        self.summary.parts = totals;
        Ok(())
    }

    fn sum_up(&self, part: Option<usize>) -> Result<Option<Record>, ControlError> {
        let total = self.total_of(part);
        let Some(Together { bank, hash, truth }) = &total.together else { return Ok(None) };
        let reading = self.reading(Kind::Total, part, bank, *hash, *truth);
        let reading = Reading { span_ns: self.window_start.saturating_sub(self.start), ..reading };
        let packets = total.counters.packets();
        Ok(Some(Record {
            kind: Kind::Total,
            window: self.first_window + self.schedule.window(),
            start_ns: self.start,
            end_ns: self.clock.now(),
            complete: !total.gap,
            counters: total.counters,
            packets_before_after: (packets, packets),
            drops: total.drops.clone(),
            ledger: total.book.total(),
            late: total.late,
            cpu_ns: total.cpu_ns,
            reports: self.told(&reading)?,
            ..self.empty(part)
        }))
    }

    /// Packets of a snapshot.
    fn counted(&self, part: Option<usize>, snapshot: &Snapshot) -> Record {
        Record {
            counters: snapshot.bank.counters,
            packets_before_after: (snapshot.packets_before, snapshot.packets_after),
            cpu_ns: snapshot.cpu_ns,
            ..self.empty(part)
        }
    }

    fn registers(&self, snapshot: &Snapshot) -> Counted {
        Counted {
            bank: Arc::clone(&snapshot.bank),
            settings: *self.dataplane.settings(),
            hash: snapshot.hash,
            row_hash: self.rows.hash,
            clock: self.dataplane.capabilities().clock,
        }
    }

    /// What was measured, for a record of this kind.
    fn reports(
        &self,
        kind: Kind,
        part: Option<usize>,
        snapshot: &Snapshot,
        now_ns: u64,
    ) -> Result<Reports, ControlError> {
        let reading = self.reading(kind, part, &snapshot.bank, snapshot.hash, snapshot.truth);
        let snapshot = Some(snapshot).filter(|_| kind != Kind::Total);
        let begun = if snapshot.is_some() { self.window_start } else { self.start };
        self.told(&Reading { snapshot, now_ns, span_ns: now_ns.saturating_sub(begun), ..reading })
    }

    /// A reading of what several windows have in common.
    fn reading<'a>(
        &'a self,
        kind: Kind,
        part: Option<usize>,
        bank: &'a WideBank,
        hash: HashIdentity,
        truth: Option<Truth>,
    ) -> Reading<'a> {
        let (settings, options) = (self.dataplane.settings(), &self.plan.options);
        let clock = self.dataplane.capabilities().clock;
        Reading {
            kind,
            is_part: part.is_some(),
            clock,
            settings,
            options,
            rows: &self.rows,
            bank,
            hash,
            truth,
            besides: None,
            snapshot: None,
            start_ns: self.start,
            now_ns: 0,
            span_ns: 0,
        }
    }

    fn told(&self, reading: &Reading<'_>) -> Result<Reports, ControlError> {
        let damaged =
            |source: Damaged| ControlError::Registers { interface: self.interface(), source };
        Reports::of(reading).map_err(damaged)
    }

    fn has_windows(&self) -> bool {
        has_windows(self.dataplane.settings())
    }

    /// The hooks of the kernel that count at a place, or at all, each once.
    fn hook(&self, place: Option<&Place>) -> Option<String> {
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
            kind: Kind::Sample,
            window: 0,
            last_window: None,
            start_ns: 0,
            end_ns: 0,
            scheduled: None,
            at_ns: None,
            late_ns: 0,
            clock_step_ns: None,
            complete: false,
            backend: capabilities.backend,
            source: self.source.clone(),
            interface: interface.clone(),
            direction,
            hook: self.hook(part.and_then(|index| capabilities.places.get(index))),
            part: part.is_some(),
            inner: self.dataplane.settings().headers.inner,
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
            drawn: Drawn::default(),
        }
    }

    /// Losses since the start; the last known ones if they cannot be read now.
    fn read_losses(&mut self) -> Result<Losses, ControlError> {
        Ok(match self.attempt("losses", Dataplane::losses)? {
            Attempt::Done(losses, _) => losses,
            Attempt::GivenUp => self.total.losses.clone(),
        })
    }

    /// Makes a call, repeating it with growing pauses while it fails transiently.
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

/// What to say of a rule about a figure that there is none of.
fn idle_rule(rule: &Rule, record: &Record) -> String {
    let names: BTreeSet<&str> = record.figures().iter().map(|figure| figure.name).collect();
    let names: Vec<&str> = names.into_iter().collect();
    format!(
        "the alert '{}' is about no figure of this run; those are {}",
        rule.text(),
        names.join(", ")
    )
}

/// The parts of a snapshot by their number, if there are any, and then the whole of it, each with
/// its losses.
fn views<'a>(
    snapshot: &'a Snapshot,
    losses: &'a Losses,
) -> impl Iterator<Item = (Option<usize>, &'a Snapshot, &'a Losses)> {
    let parts = snapshot.parts.iter().enumerate();
    let parts = parts.map(|(index, Part { snapshot, losses, .. })| (Some(index), snapshot, losses));
    parts.chain([(None, snapshot, losses)])
}

/// Adds a bank to another one, which others may hold: then to a new one in its place. Banks are
/// larger than stacks.
fn unite(sum: &mut Arc<WideBank>, bank: &WideBank, settings: &Settings) {
    if Arc::get_mut(sum).is_none() {
        let held = std::mem::replace(sum, WideBank::counted());
        unite(sum, &held, settings);
    }
    if let Some(sum) = Arc::get_mut(sum) {
        sum.unite(bank, settings);
    }
}

impl Total {
    fn add(&mut self, record: &Record, snapshot: &Snapshot, settings: &Settings) {
        self.counters.merge(&record.counters);
        record.drops.iter().for_each(|(cause, packets)| self.drops.add(cause, packets));
        self.late += record.late;
        self.gap |= !snapshot.complete;
        if let Some(used) = record.cpu_ns {
            *self.cpu_ns.get_or_insert(0) += used;
        }
        let Snapshot { hash, truth, .. } = *snapshot;
        match &mut self.together {
            Some(together) => {
                unite(&mut together.bank, &snapshot.bank, settings);
                (together.hash, together.truth) = (hash, truth);
            }
            None => {
                self.together = Some(Together { bank: Arc::clone(&snapshot.bank), hash, truth })
            }
        }
    }
}
