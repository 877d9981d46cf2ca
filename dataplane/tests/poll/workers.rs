//! Workers that stall or die, through ports that do so on command, and events that the backend
//! reports.

use crate::common::{self, with_tables};
use crate::poll::capture::frame;
use flowgauge_core::delay::{DelayKind, Kinds};
use flowgauge_core::{Link, Settings};
use flowgauge_dataplane::poll::port::{
    OwnedFrame, Port, PortFrame, PortSource, Ports, Received, Worker, frames,
};
use flowgauge_dataplane::poll::{Advance, Gate, Options, Pace};
use flowgauge_dataplane::{Dataplane, Error, Event, Poll, Snapshot};
use flowgauge_testing::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Time that a call waits for a worker that will not answer. That worker is always the first, so
/// that on a slow machine no other times out before it.
const DEADLINE: Duration = Duration::from_millis(100);

/// Action of a port when it is asked for frames.
enum Order {
    /// Delivers frames.
    Frames(u32),
    /// Delivers frames, reports that it is stuck, waits to be released, and delivers more.
    Stall { before: u32, stuck: Sender<()>, release: Receiver<()>, after: u32 },
    /// Delivers frames and panics.
    Panic(u32),
    /// Starts a batch, ends the traffic, panics, and blocks in its drop until released.
    PanicInLastBatch { release: Receiver<()> },
}

struct Obedient {
    orders: Receiver<(Order, Sender<()>)>,
    gate: Arc<Gate>,
}

/// Guard that blocks when it is dropped.
struct Lingering<'a>(&'a Receiver<()>);

impl Drop for Lingering<'_> {
    fn drop(&mut self) {
        let _ = self.0.recv();
    }
}

impl Port for Obedient {
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let (order, done) = match self.orders.try_recv() {
            Ok(order) => order,
            Err(TryRecvError::Empty) => return Received::Idle,
            Err(TryRecvError::Disconnected) => return Received::Ended,
        };
        let mut hand_over = |frames| {
            for source in 0..frames {
                let (bytes, link) = (frame(source, 60), Link::Ethernet);
                sink(PortFrame { bytes: &bytes, wire_length: 60, timestamp: 0, link });
            }
        };
        match order {
            Order::Frames(frames) => hand_over(frames),
            Order::Stall { before, stuck, release, after } => {
                hand_over(before);
                stuck.send(()).unwrap();
                // Also released when the test fails and drops the other end.
                let _ = release.recv();
                hand_over(after);
            }
            Order::Panic(frames) => {
                hand_over(frames);
                panic!("as ordered");
            }
            Order::PanicInLastBatch { release } => {
                let _lingering = Lingering(&release);
                let _busy = self.gate.begin();
                self.gate.end();
                panic!("as ordered");
            }
        }
        // The end of a stall may have no receiver.
        let _ = done.send(());
        Received::Frames
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

struct Nothing;

impl PortSource for Nothing {}

fn sharing<P>(ports: Vec<P>, source: Arc<dyn PortSource>, gate: &Arc<Gate>) -> Ports<P> {
    Ports { ports, source, gate: Arc::clone(gate), interface: "obedient".to_owned() }
}

struct Rig {
    poll: Poll,
    orders: Vec<Sender<(Order, Sender<()>)>>,
    gate: Arc<Gate>,
}

impl Rig {
    fn new(workers: usize, pace: Pace, deadline: Duration) -> Self {
        Rig::measuring(Settings::default(), workers, pace, deadline)
    }

    fn measuring(settings: Settings, workers: usize, pace: Pace, deadline: Duration) -> Self {
        let gate = Arc::new(Gate::new(pace));
        let (orders, ports): (Vec<_>, Vec<_>) = (0..workers)
            .map(|_| {
                let (sender, orders) = channel();
                (sender, Obedient { orders, gate: Arc::clone(&gate) })
            })
            .unzip();
        let ports = sharing(ports, Arc::new(Nothing), &gate);
        let options = Options { settings, deadline, ..Options::default() };
        Rig { poll: with_tables(Poll::new(ports, options)), orders, gate }
    }

    /// Gives an order and returns the receiver that is notified when it was carried out.
    fn order(&self, worker: usize, order: Order) -> Receiver<()> {
        let (done, heard) = channel();
        self.orders[worker].send((order, done)).unwrap();
        self.gate.wake();
        heard
    }

    fn feed(&self, worker: usize, frames: u32) {
        self.order(worker, Order::Frames(frames)).recv().unwrap();
    }

    /// Makes a worker stall in the middle of a batch; dropping the result releases it.
    fn stall(&self, worker: usize, before: u32, after: u32) -> Sender<()> {
        let ((stuck, is_stuck), (release, released)) = (channel(), channel());
        let _ = self.order(worker, Order::Stall { before, stuck, release: released, after });
        is_stuck.recv().unwrap();
        release
    }
}

fn packets(snapshot: Snapshot) -> u64 {
    snapshot.packets_after
}

fn assert_timeout(result: Result<Snapshot, Error>, stalled: usize) {
    match result.map(packets) {
        Err(error @ Error::Timeout { worker, waited, .. }) => {
            assert_eq!((worker, waited, error.is_transient()), (stalled, DEADLINE, true));
        }
        other => panic!("{other:?} from a worker that stalls"),
    }
}

/// Repeats a call until the released worker has answered; returns the packets.
fn persist(call: impl FnMut() -> Result<Snapshot, Error>) -> u64 {
    packets(common::persist(call))
}

#[test]
fn a_rotation_that_timed_out_is_finished_not_begun_again() {
    for attempts in 1..=3 {
        let mut rig = Rig::new(2, Pace::Open, DEADLINE);
        rig.feed(0, 10);
        rig.feed(1, 100);
        let release = rig.stall(0, 3, 4);
        for _ in 0..attempts {
            assert_timeout(rig.poll.rotate(), 0);
        }
        // Between these two batches, if not before, the other worker leaves the old bank.
        rig.feed(1, 0);
        rig.feed(1, 1000);
        drop(release);
        assert_eq!(persist(|| rig.poll.rotate()), 117, "{attempts} attempts failed");
        rig.feed(1, 10_000);
        assert_eq!(persist(|| rig.poll.sample()), 11_000);
        assert_eq!(persist(|| rig.poll.rotate()), 11_000);
        assert_eq!(persist(|| rig.poll.rotate()), 0);
    }
}

#[test]
fn a_sample_that_timed_out_leaves_nothing_behind() {
    let mut rig = Rig::new(2, Pace::Open, DEADLINE);
    rig.feed(1, 10);
    let release = rig.stall(0, 3, 4);
    assert_timeout(rig.poll.sample(), 0);
    assert_timeout(rig.poll.sample(), 0);
    rig.feed(1, 100);
    drop(release);
    let what = "not what the other worker copied for the failed call";
    assert_eq!(persist(|| rig.poll.sample()), 117, "{what}");
    assert_eq!(persist(|| rig.poll.rotate()), 117);
}

#[test]
fn samples_and_rotations_that_time_out_in_turn() {
    let mut rig = Rig::new(1, Pace::Open, DEADLINE);
    rig.feed(0, 10);
    let release = rig.stall(0, 3, 4);
    assert_timeout(rig.poll.sample(), 0);
    assert_timeout(rig.poll.rotate(), 0);
    assert_timeout(rig.poll.sample(), 0);
    assert_timeout(rig.poll.rotate(), 0);
    assert_timeout(rig.poll.sample(), 0);
    drop(release);
    let what = "the rotation was carried out, so this is of the next window";
    assert_eq!(persist(|| rig.poll.sample()), 0, "{what}");
    rig.feed(0, 100);
    assert_eq!(persist(|| rig.poll.sample()), 100);
    assert_eq!(persist(|| rig.poll.rotate()), 17, "the rotation that had timed out");
    assert_eq!(persist(|| rig.poll.rotate()), 100);
}

/// A packet that came while a worker did not poll is late by as much, and so is the delay from or to
/// it.
#[test]
fn windows_with_delays_have_the_longest_gap_between_two_polls() {
    let mut delays = Settings::default();
    delays.delay.kinds = Kinds::NONE.with(DelayKind::Dns);
    for (settings, pace, is_measured) in [
        (delays, Pace::Open, true),
        (delays, Pace::Trace, false),
        (Settings::default(), Pace::Open, false),
    ] {
        let mut rig = Rig::measuring(settings, 2, pace, Duration::from_secs(3600));
        rig.feed(0, 10);
        let release = rig.stall(1, 3, 4);
        let stalled = Instant::now();
        rig.feed(0, 10);
        let gap = stalled.elapsed();
        drop(release);
        rig.feed(1, 1);
        let sample = rig.poll.sample().unwrap().gap_ns;
        let window = rig.poll.rotate().unwrap().gap_ns;
        // A request may have come in the window before.
        let next = rig.poll.rotate().unwrap().gap_ns;
        if is_measured {
            let least = gap.as_nanos() as u64;
            assert!(least <= sample && sample <= window && window <= next, "{gap:?} {sample}");
        } else {
            assert_eq!([sample, window, next], [0; 3], "{pace:?}");
        }
    }
}

fn assert_died(result: Result<Snapshot, Error>, dead: usize) {
    match result.map(packets) {
        Err(error @ Error::WorkerDied { worker, .. }) => {
            assert_eq!((worker, error.is_transient()), (dead, false));
        }
        other => panic!("{other:?} without the packets of the dead"),
    }
}

#[test]
fn a_dead_worker_is_an_error_and_never_a_smaller_count() {
    for dead in 0..2 {
        let mut rig = Rig::new(2, Pace::Open, Duration::from_secs(3600));
        rig.feed(0, 10);
        rig.feed(1, 10);
        assert_eq!(packets(rig.poll.rotate().unwrap()), 20);
        rig.feed(1 - dead, 10);
        // The other end hangs up when the port is dropped, without a notification that the order
        // was carried out.
        assert!(rig.order(dead, Order::Panic(5)).recv().is_err());
        for _ in 0..2 {
            assert_died(rig.poll.sample(), dead);
            assert_died(rig.poll.rotate(), dead);
        }
        assert_eq!(rig.poll.losses().unwrap().total(), 0);
    }
}

#[test]
fn a_worker_that_dies_during_a_rotation_ends_the_wait() {
    let mut rig = Rig::new(1, Pace::Open, Duration::from_secs(3600));
    rig.feed(0, 10);
    let release = rig.stall(0, 1, 1);
    let _heard = rig.order(0, Order::Panic(1));
    let releaser = std::thread::spawn(move || drop(release));
    // Served between the two orders or not at all; either way the call returns.
    match rig.poll.rotate() {
        Ok(window) => assert_eq!(packets(window), 12),
        died => assert_died(died, 0),
    }
    releaser.join().unwrap();
    assert_died(rig.poll.rotate(), 0);
}

#[test]
fn a_dead_worker_ends_the_wait_for_traffic() {
    let rig = Rig::new(2, Pace::Trace, DEADLINE);
    let _heard = rig.order(1, Order::Panic(1));
    assert_eq!(rig.gate.advance(1000), Advance::Failed);
    assert_eq!(rig.gate.advance(2000), Advance::Failed, "now and from now on");
}

/// The batch ends before the worker is gone; in between, it must not pass as counted.
#[test]
fn a_batch_of_a_dead_worker_does_not_count_as_done() {
    let rig = Rig::new(1, Pace::Trace, DEADLINE);
    let (release, released) = channel();
    let _heard = rig.order(0, Order::PanicInLastBatch { release: released });
    assert_eq!(rig.gate.advance(1000), Advance::Failed);
    drop(release);
}

#[test]
fn an_interrupt_ends_the_wait_for_traffic() {
    let rig = Rig::new(1, Pace::Trace, DEADLINE);
    let gate = Arc::clone(&rig.gate);
    let waiting = std::thread::spawn(move || gate.advance(1000));
    rig.gate.interrupt();
    assert_eq!(waiting.join().unwrap(), Advance::Interrupted { last: None });
    assert_eq!(rig.gate.advance(2000), Advance::Interrupted { last: None });
}

#[test]
fn dropping_the_backend_ends_its_workers() {
    let Rig { poll, orders, gate: _gate } = Rig::new(3, Pace::Trace, DEADLINE);
    drop(poll);
    for orders in orders {
        assert!(orders.send((Order::Frames(1), channel().0)).is_err(), "the port is gone");
    }
}

struct Silent;

impl Port for Silent {
    fn receive(&mut self, _: &mut impl FnMut(PortFrame<'_>)) -> Received {
        Received::Idle
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}

/// PortSource that finds a problem at the end of the traffic, just after it was asked for warnings.
struct EndsBadly {
    gate: Arc<Gate>,
    asked: AtomicUsize,
}

impl PortSource for EndsBadly {
    fn warnings(&self) -> Vec<String> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 => {
                self.gate.end();
                Vec::new()
            }
            1 => vec!["the end is damaged".to_owned()],
            _ => Vec::new(),
        }
    }
}

#[test]
fn no_warning_comes_after_the_end() {
    let gate = Arc::new(Gate::new(Pace::Trace));
    let source = Arc::new(EndsBadly { gate: Arc::clone(&gate), asked: AtomicUsize::new(0) });
    let mut poll = Poll::new(sharing(vec![Silent], source, &gate), Options::default());
    assert_eq!(poll.events().unwrap(), []);
    let warning = Event::Warning("the end is damaged".to_owned());
    assert_eq!(poll.events().unwrap(), [warning, Event::TrafficEnded]);
    assert_eq!(poll.events().unwrap(), []);
}

/// Source that has a gap in some windows.
#[derive(Default)]
struct Gapped(AtomicBool);

impl PortSource for Gapped {
    fn has_gap(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_window_in_which_the_source_has_a_gap_is_marked() {
    let (gate, gapped) = (Arc::new(Gate::new(Pace::Open)), Arc::new(Gapped::default()));
    let ports = sharing(vec![Silent], gapped.clone(), &gate);
    let mut poll = with_tables(Poll::new(ports, Options::default()));
    for has_gap in [false, true, true, false] {
        gapped.0.store(has_gap, Ordering::Relaxed);
        assert_eq!(poll.rotate().unwrap().complete, !has_gap);
    }
}

#[test]
fn injected_traffic_ends_with_its_injector() {
    for workers in 1..=2 {
        let (injector, ports) = frames(workers);
        let poll = Poll::new(ports, Options::default());
        // Sent before counting starts, counted after that.
        injector.send(vec![OwnedFrame::ethernet(vec![0; 60]); 1000]);
        let mut poll = with_tables(poll);
        injector.send(vec![OwnedFrame::ethernet(vec![0; 60]); 1000]);
        drop(injector);
        until(|| poll.events().unwrap() == [Event::TrafficEnded]);
        assert_eq!(poll.rotate().unwrap().packets_after, 2000);
    }
}

#[test]
fn feeding_a_backend_that_is_gone_does_not_hang() {
    let (injector, ports) = frames(2);
    let poll = Poll::new(ports, Options::default());
    injector.send(vec![OwnedFrame::ethernet(vec![0; 60])]);
    drop(poll);
    injector.feed(vec![OwnedFrame::ethernet(vec![0; 60])]);
}
