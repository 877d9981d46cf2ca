//! Runs of the XDP backend in a network of the test's own.

use super::devices::{device_counters, send};
use flowgauge_core::{Counters, Settings};
use flowgauge_dataplane::xdp::{DIRECTORY, Mode, Options, Retention, Xdp};
use flowgauge_dataplane::{
    Adopted, CountingPoint, Dataplane, Direction, Error, Event, Snapshot, Tables,
};
use flowgauge_testing::skip;
use flowgauge_testing::wait::{until, until_some};
use flowgauge_traffic::veth::{RECEIVER, SENDER};
use std::path::PathBuf;

/// Hooks that every interface has for arriving packets.
pub const MODES: [Mode; 4] = [Mode::Native, Mode::Skb, Mode::Tcx, Mode::Clsact];

pub fn ingress() -> CountingPoint {
    CountingPoint::ingress(RECEIVER.0)
}

pub fn egress() -> CountingPoint {
    leaving(SENDER.0)
}

pub fn leaving(interface: &str) -> CountingPoint {
    CountingPoint { interface: interface.to_owned(), direction: Direction::Egress }
}

/// Returns both directions of an interface, what arrives first.
pub fn both_ways(interface: &str) -> Vec<CountingPoint> {
    vec![CountingPoint::ingress(interface), leaving(interface)]
}

/// Returns options with the default measurements; without a mode the backend chooses one.
pub fn in_mode(mode: impl Into<Option<Mode>>) -> Options {
    Options { mode: mode.into(), ..Options::new(Settings::default()) }
}

/// Returns pins at the usual place. A run that leaves them ends in the same state as a killed
/// process.
pub fn pinned(adopt: bool, leave: bool) -> Option<Retention> {
    Some(Retention { directory: DIRECTORY.into(), adopt, leave })
}

/// Returns the directories of the pins, one for each counting point.
pub fn pins() -> Vec<PathBuf> {
    std::fs::read_dir(DIRECTORY)
        .map_or_else(|_| Vec::new(), |places| places.map(|place| place.unwrap().path()).collect())
}

pub fn installed(places: Vec<CountingPoint>, options: Options) -> (Xdp, Option<Adopted>) {
    let tables = Tables::new(&options.settings, 1);
    let mut xdp = Xdp::at(places, options);
    let adopted = xdp.install(&tables).unwrap();
    (xdp, adopted)
}

/// Starts a run that finds nothing to adopt.
#[track_caller]
pub fn started(places: Vec<CountingPoint>, options: Options) -> Xdp {
    let (xdp, adopted) = installed(places, options);
    assert_eq!(adopted, None);
    xdp
}

/// Returns why a run cannot start.
#[track_caller]
pub fn refusal(place: CountingPoint, options: Options) -> String {
    let tables = Tables::new(&options.settings, 1);
    match Xdp::at(vec![place], options).install(&tables) {
        Err(error @ (Error::Kernel { .. } | Error::Pins { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Starts a run without an interface, for injected frames. `None` if the kernel refuses programs.
#[track_caller]
pub fn detached(direction: Direction, options: Options) -> Option<Xdp> {
    let tables = Tables::new(&options.settings, 1);
    let mut xdp = Xdp::detached(direction, options);
    match xdp.install(&tables) {
        Err(Error::Kernel { problem, .. }) if problem.contains("it takes root") => {
            skip(format_args!("the right to load XDP programs: {problem}"));
            None
        }
        outcome => {
            assert_eq!(outcome.unwrap(), None);
            Some(xdp)
        }
    }
}

pub fn counted(snapshot: &Snapshot) -> u64 {
    snapshot.bank.counters.packets()
}

/// Returns the packets of each counting point.
pub fn counted_apart(snapshot: &Snapshot) -> Vec<u64> {
    snapshot.parts.iter().map(|part| counted(&part.snapshot)).collect()
}

/// Adds the packets of each counting point.
pub fn add_apart(all: &mut [u64], snapshot: &Snapshot) {
    all.iter_mut().zip(counted_apart(snapshot)).for_each(|(all, new)| *all += new);
}

/// Returns a window with at least `packets` packets: the kernel delivers them soon after they were
/// sent.
pub fn window(xdp: &mut Xdp, packets: u64) -> Snapshot {
    until(|| counted(&xdp.sample().unwrap()) >= packets);
    xdp.rotate().unwrap()
}

/// Closes a window with at least `packets` packets; returns how many it has, and whether it is
/// complete.
pub fn closed(xdp: &mut Xdp, packets: u64) -> (u64, bool) {
    let window = window(xdp, packets);
    (counted(&window), window.complete)
}

/// Sends packets; closes their window like [`closed`].
pub fn send_and_close(xdp: &mut Xdp, packets: u64) -> (u64, bool) {
    send(packets);
    closed(xdp, packets)
}

/// Adds up windows until at least `packets` packets were counted: the kernel delivers them soon
/// after they were sent.
pub fn counted_until(dataplane: &mut dyn Dataplane, packets: u64) -> Counters {
    let mut all = Counters::default();
    // Every rotation waits for a grace period, in which a CPU delivers its pending packets.
    for _ in 0..100 {
        if all.packets() >= packets {
            break;
        }
        all.merge(&dataplane.rotate().unwrap().bank.counters);
    }
    all
}

/// Returns whether each program is attached.
pub fn attached(xdp: &Xdp) -> Vec<bool> {
    xdp.status().programs.iter().map(|program| program.attached).collect()
}

/// Returns whether the window of each counting point is complete.
pub fn complete_apart(snapshot: &Snapshot) -> Vec<bool> {
    snapshot.parts.iter().map(|part| part.snapshot.complete).collect()
}

/// Returns the packets that an idle device has received, and those counted until it was idle.
pub fn received_exactly(dataplane: &mut dyn Dataplane) -> (u64, u64) {
    let mut counted = 0;
    let received = until_some(|| {
        dataplane.events().unwrap();
        counted += dataplane.rotate().unwrap().bank.counters.packets();
        dataplane.losses().unwrap();
        let range = dataplane.received().unwrap();
        range.filter(|range| range.least == range.most).map(|range| range.most)
    });
    (received, counted)
}

/// Returns the packets that the receiver has received.
pub fn received() -> u64 {
    device_counters(RECEIVER.0).received
}

/// Returns the packets that the sender dropped, for lack of room at the receiver.
pub fn dropped() -> u64 {
    device_counters(SENDER.0).send_dropped
}

/// Returns the only warning.
#[track_caller]
pub fn warning(xdp: &mut Xdp) -> String {
    let events = xdp.events().unwrap();
    let [Event::Warning(warning)] = &events[..] else { panic!("{events:?}") };
    warning.clone()
}

/// Returns whether a warning contains `part`.
pub fn warns(events: &[Event], part: &str) -> bool {
    events.iter().any(|event| matches!(event, Event::Warning(warning) if warning.contains(part)))
}
