//! Middleware around a scripted dataplane.

use crate::common::lines;
use flowgauge_core::{HashIdentity, HashMode, Precision, Settings, WindowTotals, Zeroed};
use flowgauge_dataplane::middleware::{FaultInjector, Faults, Recorder};
use flowgauge_dataplane::{
    Adopted, Capabilities, Dataplane, Error, Event, LossCause, Losses, Poll, Snapshot, Tables,
};
use std::io::{self, Write};

/// Dataplane that numbers its answers, so that the test knows which one was delivered.
struct Numbered {
    capabilities: Capabilities,
    settings: Settings,
    samples: u64,
    rotations: u64,
    /// Rotations that time out before each one that works.
    slow: u64,
    left: u64,
}

impl Numbered {
    fn new(slow: u64) -> Self {
        let (_, ports) = flowgauge_dataplane::poll::port::frames(1);
        let capabilities = Poll::new(ports, Default::default()).capabilities().clone();
        let mut settings = Settings::default();
        settings.cardinality.precision = Precision::MIN;
        Numbered { capabilities, settings, samples: 0, rotations: 0, slow, left: slow }
    }
}

fn snapshot(packets: u64) -> Snapshot {
    let mut bank = WindowTotals::boxed();
    bank.counters.ipv4 = packets;
    let hash = HashIdentity::new(HashMode::Crc32, 0);
    Snapshot::of(bank, hash)
}

impl Dataplane for Numbered {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn install(&mut self, _: &Tables) -> Result<Option<Adopted>, Error> {
        Ok(None)
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        self.samples += 1;
        Ok(snapshot(self.samples))
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        if self.left > 0 {
            self.left -= 1;
            let (operation, target) = ("rotate", "numbered".to_owned());
            let waited = Default::default();
            return Err(Error::Timeout { operation, target, worker: 0, waited });
        }
        self.left = self.slow;
        self.rotations += 1;
        Ok(snapshot(self.rotations))
    }

    fn published(&mut self, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        Ok(vec![Event::TrafficEnded])
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        let mut losses = Losses::default();
        losses.add(LossCause::Capture, 3);
        Ok(losses)
    }
}

fn outcome(result: Result<Snapshot, Error>) -> Option<u64> {
    result.ok().map(|snapshot| snapshot.packets_after)
}

#[test]
fn every_window_is_delivered_once_and_in_order() {
    for slow in [0, 1, 3] {
        let faults = Faults { request_lost: 0.3, answer_lost: 0.3 };
        let mut dataplane = FaultInjector::new(Numbered::new(slow), faults, 5);
        let mut delivered = Vec::new();
        while delivered.len() < 300 {
            delivered.extend(outcome(dataplane.rotate()));
        }
        let each: Vec<u64> = (1..=300).collect();
        assert_eq!(delivered, each, "{slow} rotations time out before each");
    }
}

/// A lost answer is useless later: the state has changed.
#[test]
fn a_sample_is_never_an_older_one() {
    let mut dataplane =
        FaultInjector::new(Numbered::new(0), Faults { request_lost: 0.0, answer_lost: 0.5 }, 6);
    for call in 1..=300 {
        assert!(outcome(dataplane.sample()).is_none_or(|number| number == call));
    }
    assert_eq!(dataplane.inner_mut().samples, 300);
}

#[test]
fn faults_depend_on_the_seed_alone() {
    let run = |seed| {
        let faults = Faults { request_lost: 0.2, answer_lost: 0.2 };
        let mut dataplane = FaultInjector::new(Numbered::new(0), faults, seed);
        let calls: Vec<_> =
            (0..200).map(|_| (outcome(dataplane.rotate()), dataplane.losses().is_ok())).collect();
        (calls, dataplane.injected())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn no_and_certain_faults() {
    let mut sound = FaultInjector::new(Numbered::new(0), Faults::default(), 7);
    for _ in 0..100 {
        assert!(sound.rotate().is_ok() && sound.sample().is_ok() && sound.events().is_ok());
    }
    assert_eq!(sound.injected(), 0);
    let faults = Faults { request_lost: 1.0, answer_lost: 0.0 };
    let mut broken = FaultInjector::new(Numbered::new(0), faults, 8);
    assert!((0..100).all(|_| broken.rotate().is_err() && broken.losses().is_err()));
    assert!(broken.install(&Tables::new(&Settings::default(), 1)).is_err());
    assert_eq!((broken.injected(), broken.inner_mut().rotations), (201, 0));
}

/// Writer that accepts a number of bytes, then no more.
struct Full {
    written: Vec<u8>,
    room: usize,
    refused: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written.len() + bytes.len() > self.room {
            self.refused += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_that_is_full_does_not_stop_the_measurement() {
    let full = Full { written: Vec::new(), room: 10_000, refused: 0 };
    let mut dataplane = Recorder::new(Numbered::new(0), full);
    for number in 1..=100 {
        assert_eq!(outcome(dataplane.rotate()), Some(number));
    }
    let (_, log) = dataplane.into_parts();
    assert!(!log.written.is_empty());
    assert_eq!(log.refused, 1, "nothing is written behind a gap");
}

#[test]
fn a_record_has_errors_losses_and_events() {
    let mut dataplane = Recorder::new(Numbered::new(1), Vec::new());
    assert!(dataplane.rotate().is_err());
    dataplane.rotate().unwrap();
    dataplane.losses().unwrap();
    dataplane.events().unwrap();
    let (_, log) = dataplane.into_parts();
    let lines = lines(&log);
    let calls: Vec<_> = lines.iter().map(|line| line["call"].as_str().unwrap()).collect();
    assert_eq!(calls, ["rotate", "rotate", "losses", "events"]);
    assert_eq!(lines[0]["outcome"]["transient"], true);
    assert!(lines[0]["outcome"]["error"].as_str().unwrap().contains("numbered"));
    assert_eq!(lines[1]["outcome"]["ok"]["registers"], "00".repeat(16));
    assert_eq!(lines[1]["outcome"]["ok"]["packets_after"], 1);
    assert_eq!(lines[2]["outcome"]["ok"], serde_json::json!([{ "capture": 3 }]));
    assert_eq!(lines[3]["outcome"]["ok"], serde_json::json!(["TrafficEnded"]));
}
