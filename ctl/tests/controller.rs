//! Controller on a virtual clock, with a scripted dataplane, and with the poll backend in trace
//! time.

use crate::{Each, Hooked, Virtual, capture_of, replaying, start_in_trace_time};
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::delay::{self, DelayKind, Kinds};
use flowgauge_core::hash::crc32;
use flowgauge_core::sketch::{self, FULL, SLACK};
use flowgauge_core::{
    Filter, FlowKey, HashIdentity, HashMode, Link, Settings, Sketch, SketchKind, WindowTotals,
    Zeroed,
};
use flowgauge_ctl::clock::{Clock, Trace};
use flowgauge_ctl::controller::{Changes, ControlError, Controller, Plan, Sink, Summary};
use flowgauge_ctl::measurement::Estimation;
use flowgauge_ctl::measurement::cardinality::Options as Cardinality;
use flowgauge_ctl::measurement::cardinality::estimate::Estimator;
use flowgauge_ctl::measurement::delay::DelaySampleRecord;
use flowgauge_ctl::measurement::frequency::estimate::Frequency;
use flowgauge_ctl::output::{IdleWindows, Metrics};
use flowgauge_ctl::record::{Record, RecordKind};
use flowgauge_ctl::schedule::{Action, Intervals, Schedule};
use flowgauge_dataplane::middleware::{FaultInjector, Faults};
use flowgauge_dataplane::poll::port::{
    Port, PortFrame, PortSource, Ports, Received, Worker, frames,
};
use flowgauge_dataplane::poll::{self, Gate, Pace, Poll};
use flowgauge_dataplane::{
    Adopted, Capabilities, CountRange, CountingPoint, Dataplane, DelaySample, Direction, Error,
    Event, LossCause, Losses, Part, Snapshot, Tables, Tofino, tofino,
};
#[cfg(target_os = "linux")]
use flowgauge_dataplane::{Xdp, xdp};
use flowgauge_testing::chance::{binomial, poisson};
use flowgauge_testing::frames::uniques;
use flowgauge_testing::model::ServedSwitch;
use flowgauge_testing::skip;
use flowgauge_testing::wait::until;
use flowgauge_traffic::memory;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1000 * MILLISECOND;
pub(super) const START: u64 = 1_700_000_000 * SECOND + 123_456_789;
/// Time between packets.
pub(super) const PACKET_EVERY: u64 = 100_000;
/// Sum of all pauses between the calls of one attempt: 10 ms, doubled up to the eighth.
const ALL_BACK_OFFS: u64 = 2550 * MILLISECOND;
/// Calls of one attempt: the first and its eight retries.
const ATTEMPTS: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Sample,
    Rotate,
    Losses,
}

/// Function that returns whether the n-th call of its kind fails at a time.
type Script = Box<dyn FnMut(Call, usize, u64) -> bool + Send>;

/// Dataplane with a steady packet rate on the virtual clock. Calls take a fixed time and fail as
/// scripted.
pub(super) struct Scripted {
    pub(super) capabilities: Capabilities,
    settings: Settings,
    clock: Virtual,
    script: Script,
    /// Makes the error of a call that fails.
    error: fn() -> Error,
    sample_takes: u64,
    /// Time that the confirmation of a window takes.
    pub(super) confirmation_takes: u64,
    pub(super) closed: u64,
    made: [usize; 3],
    log: Arc<Mutex<Vec<(Call, u64)>>>,
    pub(super) events: Vec<(u64, Event)>,
    /// State that an earlier process left, and packets in each of its windows.
    pub(super) adopted: Option<Adopted>,
    pub(super) left: Vec<u64>,
    published: Arc<Mutex<Vec<u64>>>,
    /// Time at which packets stop.
    silent_from: Option<u64>,
    /// When packets come; `None` if they always do.
    bursts: Option<Bursts>,
    /// Packets that were lost for a known cause since the start, by time.
    lost: Box<dyn Fn(u64) -> u64 + Send>,
    /// Packets that the device received and did not account for, by time.
    unseen: Option<Box<dyn Fn(u64) -> i64 + Send>>,
    banks: Mutex<Vec<Arc<WindowTotals>>>,
    /// Whether the open window and the next one have a filter.
    is_filtered: [bool; 2],
    /// Counters of frequency of every window, as a switch or a long one may leave them.
    sketch: Option<Box<Sketch>>,
    /// Delays that were returned one by one, in chronological order; `None` without delays.
    delays: Option<u64>,
}

/// Bursts at regular intervals, in nanoseconds.
#[derive(Clone, Copy)]
struct Bursts {
    period: u64,
    length: u64,
    /// Time between the begin of a burst and the start of the run.
    shift: u64,
}

impl Bursts {
    fn is_busy(self, since_start: u64) -> bool {
        (since_start + self.shift) % self.period < self.length
    }

    /// Returns the length of all bursts from the start on.
    fn busy_before(self, since_start: u64) -> u64 {
        let from_first =
            |time: u64| time / self.period * self.length + (time % self.period).min(self.length);
        from_first(since_start + self.shift) - from_first(self.shift)
    }
}

impl Scripted {
    /// Creates a dataplane whose clock begins at [`START`].
    fn new() -> Self {
        Scripted::on(&Virtual::at(START))
    }

    pub(super) fn on(clock: &Virtual) -> Self {
        // Take the capabilities of another backend, since there is no public constructor.
        let profile = "unique".parse().unwrap();
        let capabilities = Poll::new(memory(profile, 1, Pace::Open), poll::Options::default())
            .capabilities()
            .clone();
        Scripted {
            capabilities,
            settings: settings(Mode::Off),
            clock: clock.clone(),
            script: Box::new(|_, _, _| false),
            error: transient,
            sample_takes: 0,
            confirmation_takes: 0,
            closed: 0,
            made: [0; 3],
            log: Arc::default(),
            events: Vec::new(),
            adopted: None,
            left: Vec::new(),
            published: Arc::default(),
            silent_from: None,
            bursts: None,
            lost: Box::new(|_| 0),
            unseen: None,
            banks: Mutex::default(),
            is_filtered: [false; 2],
            sketch: None,
            delays: None,
        }
    }

    fn failing(self, script: impl FnMut(Call, usize, u64) -> bool + Send + 'static) -> Self {
        Scripted { script: Box::new(script), ..self }
    }

    /// Fails in the calls of a kind that have these numbers, so that a repeated one may succeed.
    fn failing_in(self, calls: Call, numbers: impl RangeBounds<usize> + Send + 'static) -> Self {
        self.failing(move |call, number, _| call == calls && numbers.contains(&number))
    }

    /// Ends its traffic at a time after the start.
    fn ending(self, after: u64) -> Self {
        Scripted { events: vec![(START + after, Event::TrafficEnded)], ..self }
    }

    /// Loses one packet for ten that arrive.
    fn lossy(self) -> Self {
        Scripted { lost: Box::new(|now| (now - START) / PACKET_EVERY / 10), ..self }
    }

    fn arrived(&self) -> u64 {
        let now = self.clock.now().min(self.silent_from.unwrap_or(u64::MAX)).saturating_sub(START);
        self.bursts.map_or(now, |bursts| bursts.busy_before(now)) / PACKET_EVERY
    }

    fn snapshot(&self, packets: u64) -> Snapshot {
        let places = &self.capabilities.places;
        let part = |(index, place): (usize, &CountingPoint)| {
            let mut losses = Losses::default();
            losses.add(LossCause::Device, index as u64 * self.arrived() / 100);
            let share = packets / places.len() as u64
                + if index == 0 { packets % places.len() as u64 } else { 0 };
            Part { place: place.clone(), snapshot: self.whole(share), losses, received: None }
        };
        let divided = if places.len() > 1 { &places[..] } else { &[] };
        let parts = divided.iter().enumerate().map(part).collect();
        Snapshot { parts, ..self.whole(packets) }
    }

    fn whole(&self, packets: u64) -> Snapshot {
        // Creating all banks at once takes longer than the rest of a window.
        let mut banks = self.banks.lock().unwrap();
        let free = banks.iter_mut().position(|bank| Arc::get_mut(bank).is_some());
        let mut bank = free.map_or_else(WindowTotals::counted, |index| banks.swap_remove(index));
        let WindowTotals { counters, frequency, .. } = Arc::get_mut(&mut bank).unwrap();
        (counters.ipv4, counters.bytes) = (packets, packets * 64);
        counters.unmatched = u64::from(self.is_filtered[0]);
        if let Some(sketch) = &self.sketch {
            let sketch::Settings { mode, shape, .. } = self.settings.frequency;
            frequency.clear(shape);
            frequency.merge(sketch, mode.sketch().unwrap(), shape);
        }
        banks.push(Arc::clone(&bank));
        let hash = HashIdentity::new(HashMode::Tabulated, 1);
        Snapshot::of(bank, hash)
    }

    fn call(&mut self, call: Call) -> Result<(), Error> {
        let (now, number) = (self.clock.now(), self.made[call as usize]);
        self.log.lock().unwrap().push((call, now));
        self.made[call as usize] += 1;
        if (self.script)(call, number, now) { Err((self.error)()) } else { Ok(()) }
    }

    fn next_delays(&mut self) -> Vec<DelaySample> {
        let Some(passed) = &mut self.delays else { return Vec::new() };
        *passed += 1;
        vec![DelaySample { at: *passed, weight: 4096, ..DelaySample::EMPTY }]
    }
}

impl Dataplane for Scripted {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn install(&mut self, _: &Tables) -> Result<Option<Adopted>, Error> {
        Ok(self.adopted.clone())
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        self.call(Call::Sample)?;
        let snapshot = self.snapshot(self.arrived().saturating_sub(self.closed));
        self.clock.advance(self.sample_takes);
        Ok(snapshot)
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        self.call(Call::Rotate)?;
        if !self.left.is_empty() {
            let packets = self.left.remove(0);
            return Ok(self.snapshot(packets));
        }
        let snapshot = self.snapshot(self.arrived().saturating_sub(self.closed));
        self.closed = self.arrived();
        self.is_filtered[0] = self.is_filtered[1];
        Ok(Snapshot { delay_samples: self.next_delays(), ..snapshot })
    }

    fn delay_samples(&mut self) -> Result<Vec<DelaySample>, Error> {
        Ok(self.next_delays())
    }

    fn set_filter(&mut self, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        self.is_filtered[1] = filter.is_some();
        Ok(())
    }

    fn published(&mut self, window: u64) -> Result<(), Error> {
        self.published.lock().unwrap().push(window);
        self.clock.advance(self.confirmation_takes);
        Ok(())
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        let now = self.clock.now();
        let due = self.events.extract_if(.., |(at, _)| *at <= now);
        Ok(due.map(|(_, event)| event).collect())
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        self.call(Call::Losses)?;
        let mut losses = Losses::default();
        losses.add(LossCause::Capture, (self.lost)(self.clock.now()));
        Ok(losses)
    }

    fn received(&mut self) -> Result<Option<CountRange>, Error> {
        let Some(unseen) = &self.unseen else { return Ok(None) };
        let now = self.clock.now();
        let least = (self.closed + (self.lost)(now)).saturating_add_signed(unseen(now));
        Ok(Some(CountRange { least, most: least }))
    }
}

fn transient() -> Error {
    Error::Injected { operation: "answer", fault: "scripted" }
}

fn permanent() -> Error {
    Error::WorkerDied { operation: "answer", target: "scripted".to_owned(), worker: 0 }
}

/// Sink that stores every record.
#[derive(Default)]
pub(super) struct RecordSink(pub(super) Vec<Record>);

impl Sink for RecordSink {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        // The banks of many windows would take too much memory.
        self.0.push(Record { counted: None, ..record.clone() });
        Ok(())
    }
}

impl RecordSink {
    pub(super) fn of(&self, kind: RecordKind) -> impl Iterator<Item = &Record> {
        self.0.iter().filter(move |record| record.kind == kind)
    }

    fn windows(&self) -> Vec<&Record> {
        self.of(RecordKind::Window).collect()
    }

    /// Returns a value of each window.
    fn by_window<'a, T>(&'a self, value: impl Fn(&'a Record) -> T) -> Vec<T> {
        self.of(RecordKind::Window).map(value).collect()
    }

    /// Returns the packets of all windows.
    fn packets(&self) -> u64 {
        self.of(RecordKind::Window).map(|window| window.counters.packets()).sum()
    }

    fn samples(&self) -> Vec<&Record> {
        self.of(RecordKind::Sample).collect()
    }

    /// Returns the samples without those that repeat an earlier one.
    fn new_samples(&self) -> Vec<&Record> {
        self.of(RecordKind::Sample).filter(|sample| !sample.is_repeated()).collect()
    }

    /// Returns the number of samples in all records, and of those in records with a property.
    fn weights(&self, has: impl Fn(&Record) -> bool) -> (u64, u64) {
        let whole = || self.0.iter().filter(|record| !record.part);
        let with = whole().filter(|record| has(record)).map(|record| record.repeats).sum();
        (whole().map(|record| record.repeats).sum(), with)
    }
}

pub(super) fn intervals(window: u64, sample_every: u64, duration: u64) -> Intervals {
    let time = |nanoseconds: u64| (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds));
    let [window, sample_every, duration] = [window, sample_every, duration].map(time);
    Intervals { window, sample_every, duration, align: false }
}

pub(super) fn plan(intervals: Intervals) -> Plan {
    let cardinality = Cardinality { estimator: Estimator::Ertl, slot_ns: MILLISECOND };
    Plan {
        intervals,
        seed: 3,
        hash_key: None,
        prefixes: Vec::new(),
        filter: None,
        options: Estimation { cardinality, ..Estimation::default() },
    }
}

/// Starts the controller of a scripted dataplane on the clock that this was created with.
fn start(dataplane: Scripted, plan: Plan) -> Controller {
    let clock = dataplane.clock.clone();
    Controller::start(dataplane, plan, || clock).unwrap()
}

/// Runs to the end, and returns the records.
fn recorded(controller: Controller) -> (Summary, RecordSink) {
    let mut kept = RecordSink::default();
    (controller.run(&mut kept).unwrap(), kept)
}

/// Runs a scripted dataplane to the end. Returns the times at which samples are due as well.
fn sampled(dataplane: Scripted, intervals: Intervals) -> (Summary, RecordSink, Vec<u64>) {
    let (summary, kept) = done(dataplane, intervals);
    (summary, kept, reads_from(START, intervals))
}

/// Runs a scripted dataplane, without measurements, to the end.
fn done(dataplane: Scripted, intervals: Intervals) -> (Summary, RecordSink) {
    recorded(start(dataplane, plan(intervals)))
}

/// Returns settings that measure distinct flows in a mode, and nothing else.
pub(super) fn settings(mode: Mode) -> Settings {
    Settings::only(cardinality::Settings { mode, ..cardinality::Settings::DEFAULT })
}

/// Returns the times of the samples due in a run with these intervals from a time on.
fn reads_from(start: u64, intervals: Intervals) -> Vec<u64> {
    let mut schedule = Schedule::new(start, intervals, 3);
    let mut reads = Vec::new();
    while let Some(due) = schedule.peek() {
        match due.action {
            Action::Read => reads.push(due.at),
            Action::Rotate { .. } => {}
            Action::Stop => break,
        }
        schedule.pop();
    }
    reads
}

/// Checks that every window starts where the previous one ended, and that no packet is missing.
#[track_caller]
fn whole(kept: &RecordSink, end: u64) {
    let windows = kept.windows();
    assert_eq!(windows[0].start_ns, START);
    assert!(windows.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
    assert_eq!(kept.packets(), (end - START) / PACKET_EVERY);
    assert_eq!(windows.last().unwrap().end_ns, end);
}

/// Returns the packets that arrive while a record is counted.
fn arrived(record: &Record) -> u64 {
    (record.end_ns - START) / PACKET_EVERY - (record.start_ns - START) / PACKET_EVERY
}

/// Returns the times of the calls of a kind.
fn times_of(calls: Call, log: &Mutex<Vec<(Call, u64)>>) -> Vec<u64> {
    let log = log.lock().unwrap();
    log.iter().filter(|(call, _)| *call == calls).map(|(_, at)| *at).collect()
}

/// Kolmogorov-Smirnov statistic of the gaps between times against the exponential distribution,
/// times the root of their number.
fn ks(times: &[u64], mean: f64) -> f64 {
    let mut gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    gaps.sort_unstable_by(f64::total_cmp);
    let n = gaps.len() as f64;
    let distance = gaps.iter().enumerate().fold(0.0_f64, |worst, (i, gap)| {
        let cdf = 1.0 - (-gap / mean).exp();
        worst.max((cdf - i as f64 / n).abs()).max(((i + 1) as f64 / n - cdf).abs())
    });
    distance * n.sqrt()
}

const KS_1_PERCENT: f64 = 1.628;

#[test]
fn windows_end_at_exact_multiples_over_100_000_of_them() {
    // No multiple of the packet interval or of the controller's polling interval.
    let length = 333_333_333;
    let (summary, kept) = done(Scripted::new(), intervals(length, SECOND, 100_000 * length));
    assert_eq!((summary.windows, summary.late_rotations, summary.late_samples), (100_000, 0, 0));
    for (k, window) in kept.windows().into_iter().enumerate() {
        let k = k as u64;
        let expected = (k, START + k * length, START + (k + 1) * length, true);
        assert_eq!(reported(window), expected);
    }
    whole(&kept, START + 100_000 * length);
}

/// Draws losses, unaccounted packets and devices that report late, and compares the marks of windows
/// with what is missing in them.
#[test]
fn a_window_is_complete_if_no_packet_of_it_is_missing() {
    const WINDOWS: usize = 50;
    for seed in 0..20 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut rare = || -> Vec<i64> {
            (0..WINDOWS).map(|_| random.random_range(0i64..50).max(40) - 40).collect()
        };
        let lost = rare();
        // Packets that the device received and that were not counted, less those that it reports
        // with the next window, in all windows so far.
        let (came, held) = (rare(), rare());
        let sums = came.iter().scan(0_i64, |sum, unseen| {
            *sum += unseen;
            Some(*sum)
        });
        let unseen: Vec<i64> = sums.zip(held).map(|(sum, held)| sum - held).collect();
        let has_ledger = seed % 4 > 0;
        let window = |now: u64| (((now - START) / SECOND) as usize).min(WINDOWS);
        let (losses, unaccounted) = (lost.clone(), unseen.clone());
        let dataplane = Scripted {
            lost: Box::new(move |now| losses[..window(now)].iter().sum::<i64>() as u64),
            unseen: has_ledger.then(|| -> Box<dyn Fn(u64) -> i64 + Send> {
                Box::new(move |now| window(now).checked_sub(1).map_or(0, |it| unaccounted[it]))
            }),
            ..Scripted::new()
        };
        let (summary, kept) = done(dataplane, intervals(SECOND, 0, WINDOWS as u64 * SECOND));
        let missing = unseen.iter().map(|unseen| if has_ledger { *unseen.max(&0) } else { 0 });
        let before = std::iter::once(0).chain(missing.clone());
        let is_whole: Vec<bool> = (lost.iter().zip(missing.zip(before)))
            .map(|(lost, (missing, before))| *lost == 0 && missing <= before)
            .collect();
        assert_eq!(kept.by_window(|window| window.complete), is_whole, "seed {seed}");
        assert!(is_whole.contains(&true) && is_whole.contains(&false));
        assert!(!summary.total.unwrap().complete);
    }
}

#[test]
fn what_is_not_accounted_for_is_told_in_the_window_in_which_it_came() {
    // Seven packets in the fourth second.
    let unseen = |now: u64| i64::from(now > START + 3 * SECOND) * 7;
    let dataplane = Scripted { unseen: Some(Box::new(unseen)), ..Scripted::new().lossy() };
    let (summary, kept) = done(dataplane, intervals(SECOND, 0, 6 * SECOND));
    let ledgers = kept.by_window(|window| window.ledger.unwrap());
    let unaccounted: Vec<_> = ledgers.iter().map(|ledger| ledger.unaccounted).collect();
    assert_eq!(unaccounted, [0, 0, 0, 7, 0, 0]);
    for (ledger, window) in ledgers.iter().zip(kept.windows()) {
        let counted = (window.counters.packets(), window.drops.total());
        assert_eq!((ledger.counted, ledger.lost), counted);
        assert_eq!(ledger.received, ledger.counted + ledger.lost + ledger.unaccounted as u64);
    }
    let total = summary.total.unwrap().ledger.unwrap();
    let received: u64 = ledgers.iter().map(|ledger| ledger.received).sum();
    assert_eq!((total.received, total.unaccounted), (received, 7));
    // Without counters of a device there is no ledger.
    let (summary, _) = done(Scripted::new(), intervals(SECOND, 0, 2 * SECOND));
    assert_eq!(summary.total.unwrap().ledger, None);
}

/// Runs with a plan, and with another one after the end of each of these windows.
fn changed<const N: usize>(
    controller: Controller,
    plans: [(u64, Plan); N],
) -> (Summary, RecordSink) {
    let changes = Changes::default();
    let (mut kept, mut plans) = (RecordSink::default(), BTreeMap::from(plans));
    let requests = changes.clone();
    let mut sink = Each(|record: &Record| {
        if record.kind == RecordKind::Window
            && let Some(plan) = plans.remove(&record.window)
        {
            requests.ask(plan);
        }
        kept.record(record)
    });
    (controller.with(changes).run(&mut sink).unwrap(), kept)
}

#[test]
fn changes_are_taken_up_between_two_windows_and_no_packet_is_lost() {
    let duration = 60 * SECOND;
    let longer = plan(intervals(10 * SECOND, 0, duration));
    let shorter = plan(intervals(3 * SECOND, SECOND, duration - 10 * SECOND));
    let controller = start(Scripted::new(), plan(intervals(SECOND, 0, duration)));
    let (_, kept) = changed(controller, [(1, longer), (3, shorter)]);
    let lengths = kept.by_window(|window| (window.end_ns - window.start_ns) / SECOND);
    assert_eq!(lengths[..6], [1, 1, 10, 10, 3, 3]);
    assert!(kept.by_window(|window| window.window).into_iter().eq(0..lengths.len() as u64));
    whole(&kept, START + 50 * SECOND);
    assert!(!kept.samples().is_empty());
}

/// Even if a rotation fails at first, a window has the expression that its packets passed.
#[test]
fn an_expression_changes_with_the_next_window_that_begins() {
    let dataplane =
        Scripted::new().failing(|call, number, _| call == Call::Rotate && number % 4 == 3);
    let with = |text: Option<&str>| Plan {
        filter: text.map(|text| text.parse().unwrap()),
        ..plan(intervals(SECOND, 0, 10 * SECOND))
    };
    let (tcp, udp) = (Some("tcp"), Some("udp"));
    let plans = [(1, with(tcp)), (3, with(udp)), (5, with(None))];
    let (summary, kept) = changed(start(dataplane, with(None)), plans);
    let texts = kept.by_window(|window| window.filter.as_deref());
    assert_eq!(texts, [None, None, None, tcp, tcp, udp, udp, None, None, None]);
    for window in kept.windows() {
        assert_eq!(window.filter.is_some(), window.counters.unmatched > 0, "{}", window.window);
    }
    let total = summary.total.unwrap();
    assert_eq!(total.filter.as_deref(), Some("all packets; then tcp; then udp; then all packets"));
    assert_eq!(total.counters.unmatched, 4);
}

#[test]
fn a_rule_that_certainly_holds_is_told_in_the_record() {
    let rules = ["packets > 0", "packets < 0", "lost_packets > 1M", "no_such_figure > 1"];
    let mut plan = plan(intervals(SECOND, 0, 3 * SECOND));
    plan.options.alerts = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let (_, kept) = recorded(start(Scripted::new(), plan));
    for window in kept.windows() {
        let alerts = window.alerts.iter().map(|alert| (alert.rule.as_str(), alert.firing));
        let expected =
            [("packets > 0", true), ("packets < 0", false), ("lost_packets > 1M", false)];
        assert_eq!(alerts.collect::<Vec<_>>(), expected);
    }
    let mut metrics = Metrics::default();
    kept.0.iter().for_each(|record| metrics.record(record).unwrap());
    let text = metrics.text();
    for (rule, windows) in [("packets > 0", " 3"), ("packets < 0", " 0")] {
        let rule = format!("rule=\"{rule}\"");
        let is_counter = |line: &&str| line.starts_with("flowgauge_alerts_total{");
        let line = text.lines().filter(is_counter).find(|line| line.contains(&rule)).unwrap();
        assert!(line.ends_with(windows), "{line}");
    }
}

/// Returns the windows of a run that starts at some time on a wall clock that is adjusted at
/// others.
fn on_the_wall(start: u64, steps: &[(u64, i64)], duration: u64) -> (Summary, RecordSink) {
    let clock = Virtual::at(start).stepping(steps);
    let intervals = intervals(10 * SECOND, 3 * SECOND, duration);
    done(Scripted::on(&clock), Intervals { align: true, ..intervals })
}

/// Returns the number and the times of a window, and whether it is complete.
fn reported(window: &Record) -> (u64, u64, u64, bool) {
    (window.window, window.start_ns, window.end_ns, window.complete)
}

#[test]
fn aligned_windows_of_runs_that_start_at_different_times_coincide() {
    let begin = START - START % (10 * SECOND);
    let (_, one) = on_the_wall(begin + 3 * SECOND + 7, &[], 40 * SECOND);
    let (_, other) = on_the_wall(begin + 19 * SECOND, &[], 40 * SECOND);
    let first = (0, begin + 3 * SECOND + 7, begin + 10 * SECOND, false);
    assert_eq!(reported(one.windows()[0]), first);
    let times = |kept: &RecordSink| {
        kept.by_window(|window| (window.start_ns, window.end_ns, window.complete))
    };
    let whole = |at: u64| (begin + at * SECOND, begin + (at + 10) * SECOND, true);
    assert_eq!(times(&one)[1..4], [whole(10), whole(20), whole(30)]);
    assert_eq!(times(&other)[1..4], [whole(20), whole(30), whole(40)]);
    // A window that starts at a multiple is whole.
    assert_eq!(times(&on_the_wall(begin, &[], 20 * SECOND).1), [whole(0), whole(10)]);
}

#[test]
fn a_clock_that_is_set_ends_the_window_and_the_next_one_goes_by_the_new_time() {
    let begin = START - START % (10 * SECOND);
    for by in [1, -1, 3600, -3600].map(|seconds: i64| seconds * SECOND as i64) {
        let at = begin + 24 * SECOND;
        let (summary, kept) = on_the_wall(begin, &[(at, by)], 60 * SECOND);
        let windows = kept.windows();
        // A live controller reads the clock ten times a second.
        let ended = windows[2].end_ns;
        assert!((at..at + 100 * MILLISECOND).contains(&ended), "{ended}");
        assert_eq!((windows[2].clock_step_ns, windows[2].complete), (Some(by), false));
        let next = ended.saturating_add_signed(by);
        let multiple = next - next % (10 * SECOND);
        let expected = [
            (3, next, multiple + 10 * SECOND, false),
            (4, multiple + 10 * SECOND, multiple + 20 * SECOND, true),
        ];
        assert_eq!(kept.by_window(reported)[3..5], expected, "{by}");
        assert!(windows.iter().all(|window| window.clock_step_ns.is_none() || window.window == 2));
        // The run takes as long as planned.
        let total = summary.total.unwrap();
        assert_eq!((summary.clock_steps, total.end_ns - total.start_ns), (1, 60 * SECOND));
        let lengths = kept.by_window(|window| window.end_ns - window.start_ns);
        assert_eq!(lengths.iter().sum::<u64>(), 60 * SECOND);
    }
}

#[test]
fn a_clock_that_is_kept_right_ends_no_window() {
    let begin = START - START % (10 * SECOND);
    let steps = [
        (begin + 12 * SECOND, 20 * MILLISECOND as i64),
        (begin + 27 * SECOND, -(30 * MILLISECOND as i64)),
    ];
    let (summary, kept) = on_the_wall(begin, &steps, 40 * SECOND);
    let ends = kept.by_window(|window| (window.end_ns - begin, window.complete));
    assert_eq!(summary.clock_steps, 0);
    assert_eq!(ends[..3], [10, 20, 30].map(|second| (second * SECOND, true)));
}

#[test]
fn slow_reads_delay_windows_but_do_not_let_them_drift() {
    let (length, mean) = (5 * SECOND, 500 * MILLISECOND);
    let dataplane = Scripted { sample_takes: mean / 2, ..Scripted::new() };
    let (_, kept) = done(dataplane, intervals(length, mean, 20_000 * length));
    let late: Vec<u64> =
        (1..).zip(kept.windows()).map(|(k, window)| window.end_ns - (START + k * length)).collect();
    assert_eq!(late.len(), 20_000);
    // A sample due before the end of a window starts at most ten intervals late and takes half of
    // one.
    assert!(late.iter().all(|late| *late <= 10 * mean + mean / 2), "{:?}", late.iter().max());
    // Half of the windows end without a sample in progress: those are exact, at the end of the run
    // as at its start.
    for part in late.chunks(1000) {
        let exact = part.iter().filter(|late| **late == 0).count();
        assert!(binomial(1000, 0.5).contains(&(exact as u64)), "{exact} of 1000");
    }
}

#[test]
fn reads_are_a_poisson_process_whatever_time_a_read_takes() {
    let mean = 500 * MILLISECOND;
    let dataplane = Scripted { sample_takes: mean / 2, ..Scripted::new() };
    let (summary, kept, due) = sampled(dataplane, intervals(5 * SECOND, mean, 10_000 * SECOND));
    let samples = kept.samples();
    let scheduled: Vec<u64> = samples.iter().map(|sample| sample.at_ns.unwrap()).collect();
    assert_eq!(scheduled, due, "every read of the schedule, and at its time");
    assert_eq!((summary.samples, summary.missed_samples), (scheduled.len() as u64, 0));
    assert!(poisson(20_000.0).contains(&summary.samples), "{}", summary.samples);
    let statistic = ks(&scheduled, mean as f64);
    assert!(statistic < KS_1_PERCENT, "{statistic}");
    // Validity of the test: the samples were taken at least half the mean interval apart.
    let taken: Vec<u64> = samples.iter().map(|sample| sample.end_ns).collect();
    assert!(ks(&taken, mean as f64) > KS_1_PERCENT);
}

/// Returns how late samples are that take this long, one after the other, and are skipped if they
/// are later than `most`.
fn lateness(due: &[u64], takes: u64, most: u64) -> Vec<u64> {
    let mut free = START;
    let late = due.iter().map(|at| {
        let late = free.max(*at) - at;
        if late <= most {
            free = at + late + takes;
        }
        late
    });
    late.filter(|late| *late <= most).collect()
}

#[test]
fn late_samples_are_counted_with_their_lateness() {
    let mean = 500 * MILLISECOND;
    let dataplane = Scripted { sample_takes: mean / 2, ..Scripted::new() };
    let (summary, kept, due) = sampled(dataplane, intervals(5 * SECOND, mean, 1000 * SECOND));
    let expected = lateness(&due, mean / 2, u64::MAX);
    assert_eq!(kept.samples().iter().map(|sample| sample.late_ns).collect::<Vec<_>>(), expected);
    let late = expected.iter().filter(|late| **late > MILLISECOND).count() as u64;
    assert_eq!(summary.late_samples, late);
    assert!(late > 500 && late < expected.len() as u64, "{late} of {}", expected.len());
    for sample in kept.samples() {
        assert_eq!(sample.end_ns, sample.at_ns.unwrap() + sample.late_ns);
        // A sample shows what had arrived when it was taken, not when it was due.
        assert_eq!(sample.counters.packets(), arrived(sample));
    }
}

#[test]
fn overdue_reads_do_not_pile_up() {
    let mean = 100 * MILLISECOND;
    let dataplane = Scripted { sample_takes: 3 * mean, ..Scripted::new() };
    let (summary, kept, due) = sampled(dataplane, intervals(5 * SECOND, mean, 600 * SECOND));
    let counted = summary.samples + summary.missed_samples;
    assert_eq!(counted, due.len() as u64, "answered or counted as missed");
    let expected = lateness(&due, 3 * mean, 10 * mean);
    assert_eq!(kept.samples().iter().map(|sample| sample.late_ns).collect::<Vec<_>>(), expected);
    assert_eq!(summary.samples, expected.len() as u64);
    // The dataplane has time for one of three samples.
    assert!(summary.missed_samples > summary.samples, "{} missed", summary.missed_samples);
    assert_eq!(kept.windows().len(), 120);
    // A window waits for a sample due before its end, which starts at most ten intervals late and
    // takes three.
    let late = kept.by_window(|it| it.end_ns - (START + (it.window + 1) * 5 * SECOND));
    assert!(late.iter().all(|late| *late <= 13 * mean), "{late:?}");
}

#[test]
fn a_read_comes_before_a_rotation_and_a_rotation_before_the_end() {
    let first_read = reads_from(START, intervals(0, SECOND, 60 * SECOND))[0];
    let length = first_read - START;
    let dataplane = Scripted::new();
    let log = Arc::clone(&dataplane.log);
    let (_, kept) = done(dataplane, intervals(length, SECOND, length));
    let calls: Vec<_> =
        log.lock().unwrap().iter().copied().filter(|(call, _)| *call != Call::Losses).collect();
    assert_eq!(calls, [(Call::Sample, first_read), (Call::Rotate, first_read)]);
    let [sample, window, total] = &kept.0[..] else { panic!("{:?}", kept.0) };
    assert_eq!((sample.kind, sample.window, sample.start_ns), (RecordKind::Sample, 0, START));
    assert_eq!(sample.counters, window.counters);
    assert_eq!([window.kind, total.kind], [RecordKind::Window, RecordKind::Total]);
    assert!(window.complete);
}

#[test]
fn an_end_that_coincides_with_a_rotation_leaves_no_stub() {
    let (summary, kept) = done(Scripted::new(), intervals(10 * SECOND, 0, 30 * SECOND));
    assert_eq!(summary.windows, 3);
    assert!(kept.windows().iter().all(|window| window.complete));
    whole(&kept, START + 30 * SECOND);
    let total = summary.total.unwrap();
    assert_eq!((total.start_ns, total.end_ns), (START, START + 30 * SECOND));
    assert_eq!((total.counters.packets(), kept.0.last()), (300_000, Some(&total)));

    let (_, kept) = done(Scripted::new(), intervals(10 * SECOND, 0, 25 * SECOND));
    let lengths = kept.by_window(|it| ((it.end_ns - it.start_ns) / SECOND, it.complete));
    assert_eq!(lengths, [(10, true), (10, true), (5, false)]);
    whole(&kept, START + 25 * SECOND);
}

#[test]
fn a_read_that_fails_transiently_is_repeated_with_growing_pauses() {
    let dataplane = Scripted::new().failing_in(Call::Sample, ..3);
    let log = Arc::clone(&dataplane.log);
    let intervals = intervals(100 * SECOND, 10 * SECOND, 100 * SECOND);
    let (summary, kept, due) = sampled(dataplane, intervals);
    assert_eq!((summary.retries, summary.missed_samples, summary.late_samples), (3, 0, 1));
    let calls = times_of(Call::Sample, &log);
    assert_eq!(calls[..4], [0, 10, 30, 70].map(|pause| due[0] + pause * MILLISECOND));
    let samples = kept.samples();
    assert_eq!(samples.len(), due.len());
    let (first, late) = (samples[0], 70 * MILLISECOND);
    assert_eq!((first.at_ns, first.end_ns, first.late_ns), (Some(due[0]), due[0] + late, late));
    assert_eq!(first.counters.packets(), arrived(first));
}

#[test]
fn a_read_that_is_not_answered_is_missing_and_not_zero() {
    let dataplane = Scripted::new().failing_in(Call::Sample, ..ATTEMPTS);
    let intervals = intervals(100 * SECOND, 10 * SECOND, 100 * SECOND);
    let (summary, kept, due) = sampled(dataplane, intervals);
    assert_eq!((summary.retries, summary.missed_samples), (8, 1));
    assert_eq!(summary.samples, due.len() as u64 - 1);
    assert!(kept.samples().iter().all(|sample| sample.counters.packets() > 0));
    assert_eq!(kept.samples()[0].at_ns, Some(due[1]));
    whole(&kept, START + 100 * SECOND);
}

#[test]
fn a_rotation_that_fails_leaves_the_window_open_for_the_next() {
    // The second window cannot be closed.
    let dataplane = Scripted::new().failing_in(Call::Rotate, 1..=ATTEMPTS);
    let (summary, kept) = done(dataplane, intervals(10 * SECOND, SECOND, 50 * SECOND));
    assert_eq!((summary.windows, summary.late_rotations, summary.retries), (4, 1, 8));
    let second = |time: u64| (time - START) / SECOND;
    let windows = kept.by_window(|it| (it.window, second(it.start_ns), second(it.end_ns)));
    assert_eq!(windows, [(0, 0, 10), (2, 10, 30), (3, 30, 40), (4, 40, 50)]);
    whole(&kept, START + 50 * SECOND);
    // Samples in between belong to the window that is still open.
    let (begin, due) = (START + 10 * SECOND, START + 20 * SECOND);
    assert!(kept.samples().iter().any(|it| it.start_ns == begin && it.end_ns > due));
    assert_eq!(summary.total.unwrap().counters.packets(), 500_000);
}

#[test]
fn a_repeated_rotation_ends_the_window_when_it_succeeds() {
    let dataplane = Scripted::new().failing_in(Call::Rotate, ..2);
    let (summary, kept) = done(dataplane, intervals(10 * SECOND, 0, 30 * SECOND));
    assert_eq!((summary.late_rotations, summary.retries), (0, 2));
    let ends = kept.by_window(|window| window.end_ns - START);
    // The delay is part of the first window; the second ends on time.
    assert_eq!(ends, [10 * SECOND + 30 * MILLISECOND, 20 * SECOND, 30 * SECOND]);
    whole(&kept, START + 30 * SECOND);
}

#[test]
fn a_last_rotation_that_fails_is_tried_once_more_at_the_end() {
    let dataplane = Scripted::new().failing_in(Call::Rotate, 1..=ATTEMPTS);
    let (summary, kept) = done(dataplane, intervals(10 * SECOND, 0, 20 * SECOND));
    assert_eq!((summary.windows, summary.late_rotations), (2, 1));
    whole(&kept, START + 20 * SECOND + ALL_BACK_OFFS);
    assert!(!kept.windows()[1].complete);

    // If that fails too, the window is counted as missing, not replaced.
    let dataplane = Scripted::new().failing_in(Call::Rotate, 1..);
    let (summary, kept) = done(dataplane, intervals(10 * SECOND, 0, 20 * SECOND));
    assert_eq!((summary.windows, summary.late_rotations, kept.windows().len()), (1, 2, 1));
    assert_eq!(summary.total.unwrap().counters.packets(), 100_000);
}

#[test]
fn a_permanent_error_ends_the_run_and_keeps_what_was_published() {
    for broken in [Call::Sample, Call::Rotate, Call::Losses] {
        // Three windows succeed: the third rotation is call 2, and so on.
        let failing = move |call, _, now| call == broken && now > START + 31 * SECOND;
        let dataplane = Scripted { error: permanent, ..Scripted::new().failing(failing) };
        let plan = plan(intervals(10 * SECOND, SECOND, 60 * SECOND));
        let mut kept = RecordSink::default();
        let result = start(dataplane, plan).run(&mut kept);
        let is_dead = matches!(result, Err(ControlError::Dataplane(Error::WorkerDied { .. })));
        assert!(is_dead, "{broken:?}: {result:?}");
        assert_eq!(kept.windows().len(), 3, "{broken:?}");
        whole(&kept, START + 30 * SECOND);
        assert!(kept.of(RecordKind::Total).next().is_none());
    }
}

#[test]
fn drops_are_those_of_the_window() {
    let (summary, kept) =
        done(Scripted::new().lossy(), intervals(10 * SECOND, SECOND, 45 * SECOND));
    // The dataplane counts drops since its start: a tenth of 100,000 packets in each window, and
    // half of that in the last.
    let drops = |record: &Record| record.drops.get(LossCause::Capture);
    assert_eq!(kept.by_window(drops), [10_000, 10_000, 10_000, 10_000, 5000]);
    assert_eq!(drops(&summary.total.unwrap()), 45_000);
    let lost = |at: u64| (at - START) / PACKET_EVERY / 10;
    for sample in kept.samples() {
        assert_eq!(drops(sample), lost(sample.end_ns) - lost(sample.start_ns));
    }
}

#[test]
fn drops_that_could_not_be_read_are_told_with_the_next_window() {
    let dataplane = Scripted::new().lossy().failing_in(Call::Losses, 1..=ATTEMPTS);
    let (_, kept) = done(dataplane, intervals(10 * SECOND, 0, 30 * SECOND));
    let drops = kept.by_window(|window| window.drops.get(LossCause::Capture));
    assert_eq!(drops, [10_000, 0, 20_000]);
}

#[test]
fn traffic_that_ends_closes_the_window_and_warnings_are_kept() {
    let mut dataplane = Scripted::new().ending(14 * SECOND);
    let warning = Event::Warning("the cable is loose".to_owned());
    dataplane.events.push((START + 12 * SECOND, warning));
    let (summary, kept) = done(dataplane, intervals(10 * SECOND, 0, 0));
    assert_eq!(summary.warnings, ["the cable is loose"]);
    let windows = kept.by_window(|it| (it.end_ns - it.start_ns, it.complete));
    // A live controller polls for events ten times a second.
    let [(10_000_000_000, true), (last, false)] = windows[..] else { panic!("{windows:?}") };
    assert!((4 * SECOND..=4 * SECOND + 100 * MILLISECOND).contains(&last), "{last}");
}

#[test]
fn a_live_run_that_recovered_from_a_fault_is_not_incomplete() {
    let events = vec![(START + 12 * SECOND, Event::Warning("the cable was loose".to_owned()))];
    let (summary, _) =
        done(Scripted { events, ..Scripted::new() }, intervals(10 * SECOND, 0, 30 * SECOND));
    assert!(summary.warnings.is_empty());
}

#[test]
fn a_run_ends_with_its_traffic_however_much_is_due() {
    for (window, sample_every) in
        [(50 * MILLISECOND, 0), (SECOND, MILLISECOND), (5 * MILLISECOND, 5 * MILLISECOND)]
    {
        let dataplane = Scripted::new().ending(SECOND);
        let (summary, kept) = done(dataplane, intervals(window, sample_every, 0));
        let end = summary.total.unwrap().end_ns;
        let length = end - START;
        assert!((SECOND..=SECOND + 100 * MILLISECOND).contains(&length), "{length} ns");
        whole(&kept, end);
    }
}

/// Runs a process that is stopped for some time. Returns the numbers of published windows as well.
fn stopped(at: u64, by: u64, intervals: Intervals) -> (Summary, RecordSink, Vec<u64>) {
    let dataplane = Scripted::new();
    let published = Arc::clone(&dataplane.published);
    let (at, mut by) = (START + at, by);
    let clock = Hooked(dataplane.clock.clone(), move |clock: &mut Virtual, deadline: u64| {
        if by > 0 && deadline >= at {
            clock.wait_until(at);
            clock.advance(std::mem::take(&mut by));
        }
        clock.wait_until(deadline)
    });
    let controller = Controller::start(dataplane, plan(intervals), || clock).unwrap();
    let (summary, kept) = recorded(controller);
    let published = published.lock().unwrap().clone();
    (summary, kept, published)
}

#[test]
fn a_stall_is_one_marked_window_and_those_after_it_end_at_their_times() {
    let (summary, kept, published) =
        stopped(3500 * MILLISECOND, 13_400 * MILLISECOND, intervals(SECOND, 0, 20 * SECOND));
    let reported = kept.by_window(|it| (it.window, it.last_window, it.late_ns, it.end_ns - START));
    let late = 12_900 * MILLISECOND;
    let on_time = |window: u64| (window, None, 0, (window + 1) * SECOND);
    // The stalled window ends when the process continues.
    let stalled = (3, Some(15), late, 16_900 * MILLISECOND);
    let (before, after) = ([0, 1, 2].map(on_time), [16, 17, 18, 19].map(on_time));
    assert_eq!(reported, [&before[..], &[stalled], &after].concat());
    whole(&kept, START + 20 * SECOND);
    let next = "the next process continues with the next number";
    assert_eq!(published, [0, 1, 2, 15, 16, 17, 18, 19], "{next}");
    assert_eq!((summary.windows, summary.late_windows, summary.stalled_windows), (8, 1, 12));
    assert_eq!(summary.latest_ns, late);
}

#[test]
fn a_short_stall_is_told_too() {
    let (summary, kept, _) =
        stopped(3500 * MILLISECOND, 1300 * MILLISECOND, intervals(SECOND, 0, 6 * SECOND));
    let reported = kept.by_window(|it| (it.window, it.last_window, it.late_ns));
    let expected = [(2, None, 0), (3, None, 800 * MILLISECOND), (4, None, 0), (5, None, 0)];
    assert_eq!(reported[2..], expected);
    assert_eq!((summary.late_windows, summary.stalled_windows), (1, 0));
    whole(&kept, START + 6 * SECOND);
}

#[test]
fn a_stall_beyond_the_end_of_a_run_leaves_no_stub() {
    let (summary, kept, published) =
        stopped(5200 * MILLISECOND, 30 * SECOND, intervals(SECOND, 500 * MILLISECOND, 10 * SECOND));
    let (last, end) = (kept.windows().pop().unwrap(), START + 35_200 * MILLISECOND);
    assert_eq!((last.window, last.last_window, last.end_ns), (5, Some(9), end));
    assert_eq!((summary.windows, published.last()), (6, Some(&9)));
    whole(&kept, end);
}

#[test]
fn live_samples_that_find_nothing_new_are_one_record() {
    let dataplane = Scripted { silent_from: Some(START + 15 * SECOND), ..Scripted::new() };
    let intervals = intervals(10 * SECOND, 500 * MILLISECOND, 60 * SECOND);
    let (summary, kept, due) = sampled(dataplane, intervals);
    let samples = |window: u64| -> Vec<(Option<u64>, u64, u64, Option<u64>)> {
        let samples = kept.samples().into_iter().filter(|sample| sample.window == window);
        samples.map(|it| (it.at_ns, it.end_ns, it.repeats, it.last_ns)).collect()
    };
    let due_in = |window: u64| -> Vec<u64> {
        let start = START + window * 10 * SECOND;
        due.iter().copied().filter(|at| (start + 1..=start + 10 * SECOND).contains(at)).collect()
    };
    let of_new = |at: u64| (Some(at), at, 1_u64, None::<u64>);
    assert_eq!(samples(0), due_in(0).into_iter().map(of_new).collect::<Vec<_>>());
    for window in 2..6 {
        let [first, second, .., last] = due_in(window)[..] else { panic!("{window}") };
        let further = due_in(window).len() as u64 - 1;
        // The first of a window shows that samples are read.
        let repeated = (Some(second), second, further, Some(last));
        assert_eq!(samples(window), [of_new(first), repeated], "{window}");
    }
    assert_eq!(kept.windows().len(), 6);
    assert_eq!((summary.samples, kept.weights(|_| true).0), (due.len() as u64, due.len() as u64));
    // A repeated sample comes before the record of its window.
    for (before, window) in kept.0.iter().zip(kept.0.iter().skip(1)) {
        if window.kind == RecordKind::Window && window.window > 1 {
            assert!(before.is_repeated() && before.window == window.window, "{}", window.window);
        }
    }
}

#[test]
fn a_repeated_sample_has_the_records_of_all_places() {
    let mut dataplane = Scripted { silent_from: Some(START + 5 * SECOND), ..Scripted::new() };
    dataplane.capabilities.places = vec![CountingPoint::ingress("a"), CountingPoint::ingress("b")];
    let intervals = intervals(60 * SECOND, 500 * MILLISECOND, 60 * SECOND);
    let (summary, kept) = done(dataplane, intervals);
    let repeated: Vec<&Record> =
        kept.of(RecordKind::Sample).filter(|sample| sample.is_repeated()).collect();
    let [a, b, whole] = repeated[..] else { panic!("{} records", repeated.len()) };
    assert_eq!((a.interface.as_str(), b.interface.as_str(), whole.part), ("a", "b", false));
    assert!([a, b].iter().all(|part| part.part
        && (part.repeats, part.end_ns, part.last_ns)
            == (whole.repeats, whole.end_ns, whole.last_ns)));
    let [a, b, whole] = [a, b, whole].map(|record| record.counters.packets());
    assert_eq!(a + b, whole, "the state of the sample before");
    assert_eq!(whole, 5 * SECOND / PACKET_EVERY);
    assert_eq!(summary.samples, kept.weights(|_| true).0);
}

/// Bursts of one, three and seven of ten seconds.
fn bursts() -> impl Iterator<Item = Bursts> {
    [SECOND, 3 * SECOND, 7 * SECOND].into_iter().flat_map(|length| {
        let shifts = [0, 2300 * MILLISECOND, 7900 * MILLISECOND];
        shifts.map(|shift| Bursts { period: 10 * SECOND, length, shift })
    })
}

/// Run whose samples are to see time averages of bursts.
#[derive(Clone, Copy)]
struct SampledBursts {
    bursts: Bursts,
    /// Time between packets of a burst. The first is this much after its begin, the last at its
    /// end.
    packet_every: u64,
    window: u64,
    duration: u64,
}

impl SampledBursts {
    fn intervals(self) -> Intervals {
        intervals(self.window, 200 * MILLISECOND, self.duration)
    }

    /// Returns the number of packets that have arrived at a time after the start.
    fn arrived(self, since_start: u64) -> u64 {
        self.bursts.busy_before(since_start) / self.packet_every
    }

    /// Checks the samples of the run. Samples at Poisson times are independent and uniform in time,
    /// given their number. The mean of a value over `n` of them has an error of its standard
    /// deviation by the root of `n`.
    #[track_caller]
    fn check(self, what: &str, summary: &Summary, kept: &RecordSink) {
        let SampledBursts { bursts, packet_every, window, duration } = self;
        // The first packet of a burst ends the silence.
        let is_busy = |record: &Record| {
            let time = record.end_ns - START;
            bursts.is_busy(time) && bursts.is_busy(time + bursts.period - packet_every)
        };
        let (all, busy) = kept.weights(is_busy);
        let due = reads_from(START, self.intervals()).len() as u64;
        assert_eq!((all, summary.samples), (due, due), "{what}");
        let share = (bursts.length - packet_every) as f64 / bursts.period as f64;
        let error = 4.0 * (share * (1.0 - share) / all as f64).sqrt();
        let sampled = busy as f64 / all as f64;
        println!("{what}: busy for {share:.4} of the time, {sampled:.4} of {all} samples");
        let difference = (sampled - share).abs();
        assert!(difference < error, "{what}: {sampled} of samples, {share} of the time");
        // Validity of the test: without the repeated ones there are too few in silences.
        let new = kept.new_samples();
        let new_busy = new.iter().filter(|sample| is_busy(sample)).count();
        let alone = new_busy as f64 / new.len() as f64;
        assert!(alone - share > error, "{what}: {new_busy} of {}", new.len());

        // Packets of the open window.
        let at = |time: u64| (self.arrived(time) - self.arrived(time - time % window)) as f64;
        let times = (5 * MILLISECOND..duration).step_by(10 * MILLISECOND as usize);
        let values: Vec<f64> = times.map(at).collect();
        let steps = values.len() as f64;
        let mean = values.iter().sum::<f64>() / steps;
        let variance = values.iter().map(|packets| (packets - mean).powi(2)).sum::<f64>() / steps;
        let samples = kept.of(RecordKind::Sample);
        let sum: f64 = samples.map(|it| it.repeats as f64 * it.counters.packets() as f64).sum();
        let sampled = sum / all as f64;
        let error = 4.0 * (variance / all as f64).sqrt();
        assert!((sampled - mean).abs() < error, "{what}: {sampled} in samples, {mean} in time");
    }
}

#[test]
fn samples_see_time_averages_of_bursts() {
    for bursts in bursts() {
        let dataplane = Scripted { bursts: Some(bursts), ..Scripted::new() };
        let (packet_every, window, duration) = (PACKET_EVERY, 60 * SECOND, 1800 * SECOND);
        let run = SampledBursts { bursts, packet_every, window, duration };
        let (summary, kept) = done(dataplane, run.intervals());
        run.check("scripted", &summary, &kept);
    }
}

/// Function that lets a backend count this many packets.
type Feed = Box<dyn FnMut(u64)>;

/// Runs a backend with bursts of three lengths, and checks its samples. Packets that have arrived
/// by a time are counted when it is that time.
fn sees_time_averages(what: &str, open: impl Fn(Settings) -> (Box<dyn Dataplane>, Feed)) {
    for bursts in bursts().filter(|bursts| bursts.shift == 2300 * MILLISECOND) {
        let (packet_every, window, duration) = (10 * MILLISECOND, 20 * SECOND, 60 * SECOND);
        let run = SampledBursts { bursts, packet_every, window, duration };
        let (dataplane, mut feed) = open(settings(Mode::Off));
        let mut fed = 0;
        let clock = Hooked(Virtual::at(START), move |clock: &mut Virtual, deadline: u64| {
            let reason = clock.wait_until(deadline);
            let arrived = run.arrived(clock.now() - START);
            if arrived > fed {
                feed(arrived - fed);
                fed = arrived;
            }
            reason
        });
        let plan = plan(run.intervals());
        let started = Controller::start_boxed(dataplane, plan, Box::new(|| Box::new(clock)));
        if let Err(ControlError::Dataplane(Error::Kernel { problem, .. })) = &started
            && problem.contains("it takes root")
        {
            skip(format_args!("the right to load XDP programs: {problem}"));
            return;
        }
        let (summary, kept) = recorded(started.unwrap_or_else(|error| panic!("{what}: {error}")));
        run.check(what, &summary, &kept);
        assert_eq!(kept.packets(), run.arrived(run.duration), "{what}");
    }
}

#[test]
fn samples_of_workers_see_time_averages_of_bursts() {
    sees_time_averages("workers", |settings| {
        let (injector, ports) = frames(1);
        let poll = Poll::new(ports, poll::Options { settings, ..poll::Options::default() });
        (Box::new(poll), Box::new(move |packets| injector.feed(uniques(0..packets))))
    });
}

#[cfg(target_os = "linux")]
#[test]
fn samples_in_the_kernel_see_time_averages_of_bursts() {
    sees_time_averages("xdp", |settings| {
        let options = xdp::Options { mode: Some(xdp::Mode::Native), ..xdp::Options::new(settings) };
        let xdp = Xdp::detached(Direction::Ingress, options);
        let injector = xdp.injector();
        let feed = move |packets| {
            for frame in uniques(0..packets).iter() {
                injector.inject(&frame.bytes).unwrap();
            }
        };
        (Box::new(xdp), Box::new(feed))
    });
}

/// On a model of a switch of two pipes.
#[test]
fn samples_of_a_switch_see_time_averages_of_bursts() {
    sees_time_averages("switch", |settings| {
        let served = ServedSwitch::new(tofino::definitions(&settings).unwrap());
        let tofino = Tofino::connect(served.options(), settings).unwrap();
        let feed = move |packets| {
            // Captured as a whole, so that the server keeps running.
            let served = &served;
            let mut entrance = served.switch.enter();
            for (pipe, frame) in uniques(0..packets).iter().enumerate() {
                entrance.arrive(served.switch.port(pipe), &frame.bytes).unwrap();
            }
        };
        (Box::new(tofino), Box::new(feed))
    });
}

#[test]
fn samples_of_a_replay_see_time_averages_of_bursts() {
    for bursts in bursts() {
        let every = 10 * MILLISECOND;
        let times = (0..100 * bursts.period).step_by(every as usize);
        let times: Vec<u64> = times.filter(|time| bursts.is_busy(*time)).collect();
        let capture = capture_of(&times);
        // The last packet of a burst begins the silence.
        let is_busy = |time: u64| bursts.is_busy(time) && bursts.is_busy(time + every);
        let (first, last) = (times[0], *times.last().unwrap());
        let steps = (first..last).step_by(MILLISECOND as usize);
        let total = steps.clone().count() as f64;
        let share = steps.filter(|time| is_busy(time + MILLISECOND / 2)).count() as f64 / total;
        // Silences of whole windows, and within one.
        for window in [500 * MILLISECOND, 60 * SECOND] {
            let run = |workers: usize| {
                let settings = settings(Mode::Windowed);
                let options = poll::Options { settings, ..poll::Options::default() };
                let poll = replaying(&capture, workers, options);
                let plan = plan(intervals(window, 200 * MILLISECOND, 0));
                recorded(start_in_trace_time(poll, plan))
            };
            let (summary, kept) = run(1);
            let (all, busy) =
                kept.weights(|record| record.kind == RecordKind::Sample && is_busy(record.end_ns));
            assert_eq!(all, summary.samples);
            assert!(poisson((last - first) as f64 / 2e8).contains(&all), "{all} samples");
            let error = 4.0 * (share * (1.0 - share) / all as f64).sqrt();
            let sampled = busy as f64 / all as f64;
            assert!((sampled - share).abs() < error, "{sampled} of samples, {share} of the time");
            let reported = |kept: &RecordSink| -> Vec<_> {
                let records = kept.0.iter();
                records
                    .map(|it| (it.kind, it.window, it.end_ns, it.repeats, it.last_ns, it.counters))
                    .collect()
            };
            assert_eq!(reported(&run(3).1), reported(&kept), "whatever the number of workers");
        }
    }
}

#[test]
fn for_people_a_live_silence_is_one_line() {
    let dataplane = Scripted { silent_from: Some(START + 15 * SECOND), ..Scripted::new() };
    let plan = plan(intervals(10 * SECOND, 2 * SECOND, 3600 * SECOND));
    let mut kept = RecordSink::default();
    let sink = Box::new(Each(|record: &Record| kept.record(record)));
    start(dataplane, plan).run(&mut IdleWindows::new(sink)).unwrap();
    let records = kept.0;
    let shown = records.iter().filter(|record| record.kind != RecordKind::Sample);
    let reported: Vec<_> = shown.map(|record| (record.kind, record.window)).collect();
    let windows = [0_u64, 1, 2, 3, 4].map(|window| (RecordKind::Window, window));
    let others = [(RecordKind::Silence, 5), (RecordKind::Total, 360)];
    assert_eq!(reported, [&windows[..], &others].concat());
    let silence = &records[records.len() - 2];
    let expected = (Some(359), START + 50 * SECOND, START + 3600 * SECOND);
    assert_eq!((silence.last_window, silence.start_ns, silence.end_ns), expected);
    assert!(records.len() < 30, "{} records", records.len());
}

#[test]
fn a_silence_of_a_trace_is_read_once() {
    let year = 365 * 86_400 * SECOND;
    let seconds = |from: u64| (0..100).map(move |second| from + second * SECOND);
    let times: Vec<u64> = seconds(0).chain(seconds(year)).collect();
    let capture = capture_of(&times);
    for (window, mode) in
        [(10 * SECOND, Mode::Windowed), (10 * year, Mode::Windowed), (SECOND, Mode::Staggered)]
    {
        let settings = settings(mode);
        let options = poll::Options { settings, slot_ns: MILLISECOND, ..poll::Options::default() };
        let poll = replaying(&capture, 1, options);
        let plan = plan(intervals(window, SECOND / 10, 0));
        let (summary, kept) = recorded(start_in_trace_time(poll, plan));
        let samples = kept.new_samples();
        // Samples of the silence are counted by a single record.
        let all = kept.weights(|_| true).0;
        let mean = (year + 99 * SECOND) as f64 / 1e8;
        assert!((all as f64 - mean).abs() < 4.0 * mean.sqrt(), "{all} samples");
        let longest = kept.0.iter().filter(|record| record.repeats > 1_000_000).count();
        assert_eq!(longest, 1);
        if mode == Mode::Staggered {
            // All before the registers have expired, after 2,049 slots, and one in the state after
            // that. The last one, at the end, is not scheduled.
            assert_eq!(summary.samples, all + 1);
            let new = samples.iter().filter(|sample| sample.repeats == 1).count() as u64;
            assert_eq!((new + 1, kept.samples().len() as u64), (samples.len() as u64, new + 2));
            assert!(poisson((99.0 + 2.049 + 99.0) / 0.1).contains(&(new - 2)), "{new} samples");
            continue;
        }
        assert_eq!(summary.samples, all);
        // One between two packets, unless the process has none there: ten are due on average.
        let missing = 199_u64.checked_sub(samples.len() as u64).unwrap();
        let chance = binomial(199, (-10.0_f64).exp());
        assert!(chance.contains(&missing), "{} reads of 200 packets", samples.len());
        assert!(samples.windows(2).all(|pair| pair[0].window < pair[1].window || pair[0].counters != pair[1].counters));
    }
}

#[test]
fn results_that_cannot_be_written_end_the_run() {
    let dataplane = Scripted::new();
    let log = Arc::clone(&dataplane.log);
    let controller = start(dataplane, plan(intervals(SECOND, 0, 0)));
    // Like a full disk.
    let mut room = 3_usize;
    let mut sink = Each(|_: &Record| {
        room = room.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    });
    assert!(matches!(controller.run(&mut sink), Err(ControlError::Output(_))));
    assert_eq!(times_of(Call::Rotate, &log).len(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// For any failures, no packet is lost or counted twice, and no sample shows packets that had
    /// not arrived.
    #[test]
    fn no_failure_loses_a_packet(failures in proptest::collection::vec(0_u8..4, 1..400), window_ms in 500_u64..20_000) {
        let mut failures = failures.into_iter().cycle();
        // Calls succeed from time to time; the last rotation must.
        let end = START + 100 * SECOND;
        let failing = move |_, _, now| failures.next() != Some(0) && now < end;
        let (summary, kept) = done(Scripted::new().failing(failing), intervals(window_ms * MILLISECOND, SECOND, 100 * SECOND));
        let windows = kept.windows();
        prop_assert_eq!(windows.len() as u64, summary.windows);
        prop_assert!(windows.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns && pair[0].window < pair[1].window));
        let last = windows.last().unwrap().end_ns;
        prop_assert!(last >= end);
        prop_assert_eq!(kept.packets(), (last - START) / PACKET_EVERY);
        for sample in kept.samples() {
            prop_assert_eq!(sample.counters.packets(), arrived(sample));
        }
    }
}

const PACKETS: u64 = 20_000;

/// Returns the poll backend in trace time: 20,000 packets at 1000 per second.
fn traced(workers: usize) -> Poll {
    let profile = format!("zipf,flows=3000,rate=1000,packets={PACKETS}").parse().unwrap();
    let options = poll::Options { truth: true, ..poll::Options::default() };
    Poll::new(memory(profile, workers, Pace::Trace), options)
}

fn trace_plan(window: u64) -> Plan {
    plan(intervals(window, 250 * MILLISECOND, 0))
}

fn without_faults(window: u64) -> (Summary, RecordSink) {
    recorded(start_in_trace_time(traced(1), trace_plan(window)))
}

/// Runs with the first seed from `seed` on for which installing the tables succeeds, since that is
/// not retried.
fn with_faults(window: u64, workers: usize, faults: Faults, seed: u64) -> (Summary, RecordSink) {
    let controller = (seed..).find_map(|seed| {
        let poll = traced(workers);
        let (gate, injected) = (poll.gate(), FaultInjector::new(poll, faults, seed));
        Controller::start(injected, trace_plan(window), || Trace::new(gate)).ok()
    });
    recorded(controller.unwrap())
}

#[test]
fn in_trace_time_every_record_is_exact() {
    let (summary, kept) = without_faults(SECOND);
    assert_eq!((summary.windows, summary.retries), (20, 0));
    assert_eq!((summary.late_samples, summary.missed_samples), (0, 0));
    for (k, window) in kept.windows().into_iter().enumerate() {
        assert_eq!((window.start_ns, window.counters.packets()), (k as u64 * SECOND, 1000));
    }
    for sample in kept.samples() {
        let arrived = (sample.end_ns - sample.start_ns).div_ceil(MILLISECOND);
        assert_eq!((sample.late_ns, sample.counters.packets()), (0, arrived));
    }
    let due = intervals(SECOND, 250 * MILLISECOND, PACKETS * MILLISECOND);
    let reads = reads_from(0, due).into_iter().filter(|at| *at < (PACKETS - 1) * MILLISECOND);
    assert_eq!(summary.samples, reads.count() as u64);
}

#[test]
fn faults_that_retries_overcome_leave_no_trace_in_the_records() {
    let (_, expected) = without_faults(SECOND);
    for (seed, workers) in [(1, 1), (2, 1), (3, 3)] {
        let faults = Faults { request_lost: 0.1, answer_lost: 0.1 };
        let (summary, kept) = with_faults(SECOND, workers, faults, seed);
        assert!(summary.retries > 20, "{}", summary.retries);
        assert_eq!((summary.late_rotations, summary.missed_samples), (0, 0));
        assert_eq!(kept.0.len(), expected.0.len());
        for (kept, expected) in kept.0.iter().zip(&expected.0) {
            assert_eq!(kept, expected, "seed {seed}");
        }
    }
}

#[test]
fn faults_that_outlast_retries_move_packets_to_later_windows_and_lose_none() {
    let (expected, _) = without_faults(100 * MILLISECOND);
    let mut late = 0;
    for seed in 0..6 {
        let faults = Faults { request_lost: 0.5, answer_lost: 0.3 };
        let (summary, kept) = with_faults(100 * MILLISECOND, 2, faults, seed * 100);
        late += summary.late_rotations;
        let windows = kept.windows();
        assert_eq!(windows.len() as u64 + summary.late_rotations, 200, "seed {seed}");
        assert!(windows.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns), "seed {seed}");
        let (total, expected) = (summary.total.unwrap(), expected.total.as_ref().unwrap());
        assert_eq!(total.counters, expected.counters, "seed {seed}");
        // The merged registers of the windows are the same for any division into windows.
        assert_eq!(total.reports, expected.reports, "seed {seed}");
    }
    assert!(late > 5, "{late} late rotations: the faults were too few to try anything");
}

#[test]
fn an_interrupt_closes_the_open_window_in_trace_time() {
    for sample_every in [0, 300 * MILLISECOND] {
        for at in 1..12 {
            let poll = traced(2);
            let plan = plan(intervals(SECOND, sample_every, 0));
            let (gate, mut kept) = (poll.gate(), RecordSink::default());
            // Like an operator.
            let mut sink = Each(|record: &Record| {
                kept.record(record)?;
                if kept.0.len() == at {
                    gate.interrupt();
                }
                Ok(())
            });
            let summary = start_in_trace_time(poll, plan).run(&mut sink).unwrap();
            let [.., window, total] = &kept.0[..] else { panic!("{} records", kept.0.len()) };
            assert_eq!(kept.0.len(), at + 2);
            assert_eq!([window.kind, total.kind], [RecordKind::Window, RecordKind::Total]);
            assert!(!window.complete);
            let packets = kept.packets();
            assert_eq!(total.counters.packets(), packets);
            // At most what the controller had let through, and at least what it had shown.
            let closed = packets - window.counters.packets();
            let last = &kept.0[at - 1];
            let is_sample = last.kind == RecordKind::Sample;
            let open = if is_sample { last.counters.packets() } else { 0 };
            assert!(packets >= closed + open && packets <= PACKETS, "{packets}");
            assert_eq!(summary.windows, kept.windows().len() as u64);
        }
    }
}

#[test]
fn windows_that_an_earlier_process_left_are_published_first() {
    let began = [START - 3 * SECOND, START - SECOND];
    let runs = vec![Some("first".to_owned()), None];
    let adopted = Adopted { open_windows: began.to_vec(), runs, next_window: 57 };
    let dataplane = Scripted { adopted: Some(adopted), left: vec![20, 10], ..Scripted::new() };
    let published = Arc::clone(&dataplane.published);
    let (summary, kept) = done(dataplane, intervals(SECOND, 300 * MILLISECOND, 3 * SECOND));
    let windows = kept.windows();
    let expected = [
        (57, began[0], began[1], false),
        (58, began[1], START, false),
        (59, START, START + SECOND, true),
        (60, START + SECOND, START + 2 * SECOND, true),
        (61, START + 2 * SECOND, START + 3 * SECOND, true),
    ];
    assert_eq!(kept.by_window(reported), expected);
    assert_eq!((windows[0].counters.packets(), windows[1].counters.packets()), (20, 10));
    let adopted =
        kept.by_window(|window| window.adopted.as_ref().map(|adoption| adoption.run.as_deref()));
    assert_eq!(adopted, [Some(Some("first")), Some(None), None, None, None]);
    assert_eq!(*published.lock().unwrap(), [57, 58, 59, 60, 61]);
    assert!(kept.samples().iter().all(|sample| (59..62).contains(&sample.window)));
    let total = summary.total.unwrap();
    let packets = 30 + 3 * SECOND / PACKET_EVERY;
    assert_eq!((total.start_ns, total.counters.packets()), (began[0], packets));
}

#[test]
fn several_places_are_told_apart_and_together() {
    let mut dataplane = Scripted::new();
    let egress = CountingPoint { interface: "a".to_owned(), direction: Direction::Egress };
    dataplane.capabilities.places =
        vec![CountingPoint::ingress("a"), egress, CountingPoint::ingress("b")];
    let (summary, kept) = done(dataplane, intervals(SECOND, 300 * MILLISECOND, 10 * SECOND));
    assert_eq!((summary.windows, kept.windows().len()), (10, 40));
    assert_eq!(kept.samples().len() as u64, 4 * summary.samples);
    for together in kept.0.chunks(4) {
        let [parts @ .., whole] = together else { panic!("records of a time come together") };
        let places: Vec<_> =
            parts.iter().map(|part| (part.interface.as_str(), part.direction, part.part)).collect();
        assert_eq!(places, [("a", "ingress", true), ("a", "egress", true), ("b", "ingress", true)]);
        assert_eq!((whole.direction, whole.part), ("both", false));
        let packets = parts.iter().map(|part| part.counters.packets()).sum::<u64>();
        assert_eq!(packets, whole.counters.packets());
        assert!(parts.iter().all(|part| (part.kind, part.window, part.end_ns)
            == (whole.kind, whole.window, whole.end_ns)));
        if whole.kind == RecordKind::Window {
            // The whole has neither a ledger nor losses here, but two of its places lose packets.
            assert_eq!((whole.drops.total(), whole.ledger), (0, None));
            let complete = together.iter().map(|record| record.complete);
            assert_eq!(complete.collect::<Vec<_>>(), [true, false, false, false]);
        }
    }
    assert!(summary.parts[0].complete && !summary.total.as_ref().unwrap().complete);
    // The losses of each part add up to the total.
    for (index, total) in summary.parts.iter().enumerate() {
        let lost = |record: &Record| record.drops.get(LossCause::Device);
        let windows: u64 = kept.of(RecordKind::Window).skip(index).step_by(4).map(lost).sum();
        let expected = index as u64 * 10 * SECOND / PACKET_EVERY / 100;
        assert_eq!((windows, lost(total)), (expected, expected));
    }
}

/// Counts ten windows with this many packets of a flow in the sketch. Returns the frequency of the
/// total, and its warnings.
fn total_of_a_flow(kind: SketchKind, packets: u32) -> (Frequency, Vec<String>) {
    let flow = FlowKey::new(&[10, 0, 0, 1]);
    let mut plan = plan(intervals(SECOND, 0, 10 * SECOND));
    plan.options.queries = vec![flow];
    let frequency = sketch::Settings { mode: kind.into(), ..sketch::Settings::DEFAULT };
    let settings = Settings { frequency, ..settings(Mode::Off) };
    let (tables, mut sketch) = (Tables::new(&settings, plan.seed), Box::new(Sketch::new()));
    sketch.update(kind, frequency.shape, crc32(flow.as_bytes()), &tables.tabulation);
    let cells = sketch.cells_mut(frequency.shape).iter_mut();
    cells.for_each(|cell| *cell = cell.wrapping_mul(packets as i32));
    // A run that is ended from outside reports no warning in its summary.
    let ending = Scripted::new().ending(10 * SECOND);
    let (summary, _) = recorded(start(Scripted { settings, sketch: Some(sketch), ..ending }, plan));
    let total = summary.total.unwrap().reports.frequency.unwrap();
    (total.flows[0].answer.unwrap(), summary.warnings)
}

#[test]
fn totals_of_many_windows_do_not_wrap() {
    for kind in SketchKind::ALL {
        let (total, warnings) = total_of_a_flow(kind, 2_000_000_000);
        let found = (total.value, total.saturated, warnings.len());
        assert_eq!(found, (20e9, false, 0), "{kind:?}: {total:?}");
        assert!(total.low <= 20e9 && total.high >= 20e9, "{kind:?}: {total:?}");
    }
}

#[test]
fn counters_that_were_full_in_a_window_are_told_of_and_leave_the_total_open_upwards() {
    for (kind, full) in
        [(SketchKind::CountMin, u32::MAX - SLACK + 1), (SketchKind::CountSketch, FULL as u32)]
    {
        let (total, warnings) = total_of_a_flow(kind, full);
        assert_eq!((total.saturated, total.value), (true, 10.0 * f64::from(full)), "{kind:?}");
        assert!(total.high >= total.value, "{kind:?}: {total:?}");
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.contains("counters of frequency are full"), "{warning}");
    }
}

/// Delays since the last window, and all reported so far.
#[derive(Default)]
struct ReportedDelays {
    since: Vec<u64>,
    all: Vec<u64>,
    windows: u64,
}

impl Sink for ReportedDelays {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind == RecordKind::Window {
            let since = std::mem::take(&mut self.since);
            let is_of_it = |window: &u64| *window == record.window;
            assert!(since.len() > 1 && since.iter().all(is_of_it), "{since:?}");
            self.windows += 1;
        }
        Ok(())
    }

    fn delay_samples(&mut self, delays: &[DelaySampleRecord<'_>]) -> io::Result<()> {
        self.since.extend(delays.iter().map(|delay| delay.window));
        self.all.extend(delays.iter().map(|delay| delay.time_ns));
        Ok(())
    }
}

#[test]
fn delays_one_by_one_come_before_the_record_of_their_window() {
    for faults in [Faults::default(), Faults { request_lost: 0.2, answer_lost: 0.2 }] {
        let kinds = Kinds::NONE.with(DelayKind::Dns);
        let delay = delay::Settings { kinds, samples: true, ..delay::Settings::DEFAULT };
        let settings = Settings { delay, ..settings(Mode::Off) };
        let dataplane = Scripted { settings, delays: Some(0), ..Scripted::new() };
        let clock = dataplane.clock.clone();
        let mut reported = ReportedDelays::default();
        let injected = FaultInjector::new(dataplane, faults, 5);
        let controller =
            Controller::start(injected, plan(intervals(SECOND, 0, 10 * SECOND)), || clock);
        // A failed installation is not retried.
        let Ok(controller) = controller else { panic!("another seed") };
        controller.run(&mut reported).unwrap();
        let ReportedDelays { since, all, windows } = reported;
        // Each delay once and in order, whatever was retried.
        assert!(all.iter().copied().eq(1..=all.len() as u64), "{all:?}");
        assert!(windows >= 8 && all.len() > 60 && since.is_empty(), "{windows}, {since:?}");
    }
}

/// Counts of a source whose packets the test releases.
#[derive(Default)]
struct Releases {
    /// Packets that the port may deliver, and those that it has delivered.
    released: AtomicU64,
    delivered: AtomicU64,
    lost: AtomicU64,
    excluded: AtomicU64,
    /// Waits of the worker: it has then nothing more to do.
    waits: AtomicU64,
}

impl PortSource for Releases {
    fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        losses.add(LossCause::Device, self.lost.load(Ordering::Acquire));
        losses
    }

    fn received(&self) -> Option<CountRange> {
        let all = self.delivered.load(Ordering::Acquire) + self.lost.load(Ordering::Acquire);
        let packets = all - self.excluded.load(Ordering::Acquire);
        Some(CountRange { least: packets, most: packets })
    }

    fn exclude(&self, packets: u64) {
        self.excluded.fetch_add(packets, Ordering::AcqRel);
    }
}

struct ReleasedPackets {
    counts: Arc<Releases>,
    is_device: bool,
}

impl Port for ReleasedPackets {
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let Releases { released, delivered, .. } = &*self.counts;
        if delivered.load(Ordering::Acquire) == released.load(Ordering::Acquire) {
            return Received::Idle;
        }
        sink(PortFrame { bytes: &[0; 60], wire_length: 60, timestamp: 0, link: Link::Ethernet });
        delivered.fetch_add(1, Ordering::AcqRel);
        Received::Frames
    }

    fn wait(&mut self, most: Duration) {
        self.counts.waits.fetch_add(1, Ordering::AcqRel);
        thread::park_timeout(most);
    }

    fn is_device(&self) -> bool {
        self.is_device
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

/// Workers run before the controller knows the time. What a device delivers until then is in no
/// window and not in the ledger; what another port has waits for the window.
#[test]
fn workers_count_nothing_before_the_first_window_begins() {
    for is_device in [true, false] {
        let counts = Arc::new(Releases::default());
        let ports = Ports {
            ports: vec![ReleasedPackets { counts: Arc::clone(&counts), is_device }],
            source: counts.clone(),
            gate: Arc::new(Gate::new(Pace::Open)),
            interface: "released".to_owned(),
        };
        counts.released.store(5, Ordering::Release);
        counts.lost.store(2, Ordering::Release);
        let clock = || {
            until(|| counts.waits.load(Ordering::Acquire) > 0);
            let before = if is_device { 5 } else { 0 };
            assert_eq!(counts.delivered.load(Ordering::Acquire), before);
            Virtual::at(START)
        };
        let settings = settings(Mode::Windowed);
        let poll = Poll::new(ports, poll::Options { settings, ..poll::Options::default() }).held();
        let controller =
            Controller::start(poll, plan(intervals(SECOND, 0, SECOND)), clock).unwrap();
        counts.released.fetch_add(3, Ordering::AcqRel);
        counts.lost.fetch_add(1, Ordering::AcqRel);
        until(|| counts.delivered.load(Ordering::Acquire) == 8);
        let (_, kept) = recorded(controller);
        let [window] = kept.windows()[..] else { panic!("{} windows", kept.windows().len()) };
        let counted = if is_device { 3 } else { 8 };
        assert_eq!((window.start_ns, window.counters.packets()), (START, counted));
        let ledger = window.ledger.unwrap();
        assert_eq!((ledger.received, ledger.counted), (counted + 1, counted));
        assert_eq!((ledger.lost, ledger.unaccounted), (1, 0));
    }
}
