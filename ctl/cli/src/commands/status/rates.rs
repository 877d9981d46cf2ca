//! Test of the packet rate in a status: packets divided by the time in which they were counted,
//! however a run starts, adopts and stops, at any number of interfaces and directions. The time is
//! virtual.

use super::table;
use crate::output::status::{Publication, Publisher};
use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{HashIdentity, HashMode, Settings, WindowTotals, Zeroed};
use flowgauge_ctl::clock::{Clock, WakeReason};
use flowgauge_ctl::controller::{Controller, Plan, Sink, Summary};
use flowgauge_ctl::history::History;
use flowgauge_ctl::measurement::Estimation;
use flowgauge_ctl::record::{Record, RecordKind};
use flowgauge_ctl::schedule::Intervals;
use flowgauge_ctl::status::{Latest, StatusReport, StatusSource};
use flowgauge_dataplane::poll::port::frames;
use flowgauge_dataplane::{
    Adopted, Capabilities, CountingPoint, Dataplane, Direction, Error, Event, Losses, Part, Poll,
    Snapshot, Tables, poll,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
/// Time from which packets arrive, in nanoseconds since the Unix epoch.
const START_NS: u64 = 1_700_000_000 * SECOND;
/// Time between two packets of a place.
const PACKET_INTERVAL_NS: u64 = 100_000;
/// Packet rate of a place.
const PACKETS_PER_SECOND: f64 = 1e9 / PACKET_INTERVAL_NS as f64;

/// Time that passes while the controller waits. Clones share it.
#[derive(Clone)]
struct VirtualClock(Arc<AtomicU64>);

impl Clock for VirtualClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn wait_until(&mut self, deadline: u64) -> WakeReason {
        self.0.fetch_max(deadline, Ordering::Relaxed);
        WakeReason::Reached
    }

    fn back_off(&mut self, _: Duration) {}
}

/// Dataplane with a steady packet rate at each of its places, on the virtual clock.
struct SteadyDataplane {
    capabilities: Capabilities,
    settings: Settings,
    clock: VirtualClock,
    /// Packets of a place in all closed windows.
    closed: u64,
    /// State that an earlier process left.
    adopted: Option<Adopted>,
    /// Packets of a place in each of the windows that it left open.
    left: Vec<u64>,
}

impl SteadyDataplane {
    /// Returns the packets of a place since [`START_NS`].
    fn arrived(&self) -> u64 {
        (self.clock.now() - START_NS) / PACKET_INTERVAL_NS
    }

    /// Returns a bank with this many packets of each place.
    fn snapshot(&self, packets: u64) -> Snapshot {
        let bank = |packets: u64| {
            let mut bank = WindowTotals::counted();
            Arc::get_mut(&mut bank).unwrap().counters.ipv4 = packets;
            Snapshot::of(bank, HashIdentity::new(HashMode::Tabulated, 1))
        };
        let places = &self.capabilities.places;
        if places.len() == 1 {
            return bank(packets);
        }
        let of_place = bank(packets);
        let part = |place: &CountingPoint| Part {
            place: place.clone(),
            snapshot: of_place.clone(),
            losses: Losses::default(),
            received: None,
        };
        let parts = places.iter().map(part).collect();
        Snapshot { parts, ..bank(packets * places.len() as u64) }
    }
}

impl Dataplane for SteadyDataplane {
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
        Ok(self.snapshot(self.arrived() - self.closed))
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        if !self.left.is_empty() {
            let packets = self.left.remove(0);
            return Ok(self.snapshot(packets));
        }
        let arrived = self.arrived();
        let closed = std::mem::replace(&mut self.closed, arrived);
        Ok(self.snapshot(arrived - closed))
    }

    fn published(&mut self, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        Ok(Vec::new())
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        Ok(Losses::default())
    }
}

/// Sink that checks the status after each window.
struct Checker {
    publisher: Publisher,
    history: History,
    status: StatusSource,
    seed: u64,
    places: usize,
    /// Start of the first window, in nanoseconds.
    start_ns: Option<u64>,
    windows: usize,
}

impl Checker {
    /// Checks a rate. It may be off by 1 %, and by a packet of each place at the end of each
    /// window.
    #[track_caller]
    fn check(&self, what: &str, rate: f64, places: usize, windows: usize, seconds: f64) {
        let expected = PACKETS_PER_SECOND * places as f64;
        let tolerance = 0.01 * expected + (places * windows) as f64 / seconds;
        assert!(
            (rate - expected).abs() <= tolerance,
            "seed {}, {what}: {rate}/s for {expected}/s in {seconds} s",
            self.seed
        );
    }

    fn check_latest(&self, what: &str, latest: &Latest, places: usize) {
        let seconds = (latest.end_ns - latest.start_ns) as f64 / 1e9;
        self.check(what, latest.packets as f64 / seconds, places, 1, seconds);
    }

    fn check_status(&self, record: &Record) {
        let report: StatusReport = (self.status)();
        let window = report.last_window.as_ref().unwrap();
        self.check_latest("window", window, self.places);
        let parts = if self.places > 1 { self.places } else { 0 };
        assert_eq!(report.parts.len(), parts, "seed {}", self.seed);
        report.parts.iter().for_each(|part| self.check_latest("part", &part.last_window, 1));
        let seconds = (record.end_ns - self.start_ns.unwrap()) as f64 / 1e9;
        let rate = report.packets as f64 / seconds;
        self.check("total", rate, self.places, self.windows, seconds);

        let mut text = Vec::new();
        table::run(&mut text, &report).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|line| line.starts_with("  window ")).unwrap();
        let (_, rate) = line.split_once(" (").unwrap();
        let (rate, unit) = rate.split_once(')').unwrap().0.split_once(' ').unwrap();
        let factor = match unit {
            "pps" => 1.0,
            "kpps" => 1e3,
            "Mpps" => 1e6,
            other => panic!("{other} in {line}"),
        };
        let seconds = (record.end_ns - record.start_ns) as f64 / 1e9;
        self.check("table", rate.parse::<f64>().unwrap() * factor, self.places, 1, seconds);
    }
}

impl Sink for Checker {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.history.record(record)?;
        self.publisher.record(record)?;
        if record.kind == RecordKind::Window && !record.part {
            self.start_ns.get_or_insert(record.start_ns);
            self.windows += 1;
            self.check_status(record);
        }
        Ok(())
    }

    fn heartbeat(&mut self, dataplane: &dyn Dataplane, summary: &Summary) {
        self.publisher.heartbeat(dataplane, summary);
    }
}

#[test]
fn a_status_has_the_rate_at_which_packets_were_sent() {
    let (mut windows, mut adopted_windows) = (0, 0);
    for seed in 0..50 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let start = START_NS + random.random_range(SECOND..20 * SECOND);
        let clock = VirtualClock(Arc::new(AtomicU64::new(start)));
        let (_injector, ports) = frames(1);
        let mut capabilities = Poll::new(ports, poll::Options::default()).capabilities().clone();
        let all = ["a", "b"].map(|interface| {
            [Direction::Ingress, Direction::Egress]
                .map(|direction| CountingPoint { interface: interface.to_owned(), direction })
        });
        let places = random.random_range(1..=4);
        capabilities.places = all.into_iter().flatten().take(places).collect();
        // Starts of the windows that earlier processes left open: each process began when the one
        // before was killed.
        let mut begun: Vec<u64> = (0..random.random_range(0_usize..3))
            .map(|_| start - random.random_range(MILLISECOND..SECOND))
            .collect();
        begun.sort_unstable();
        begun.dedup();
        let ends = begun.iter().skip(1).copied().chain([start]);
        let left = begun.iter().zip(ends).map(|(begin, end)| (end - begin) / PACKET_INTERVAL_NS);
        let left: Vec<u64> = left.collect();
        let adopted = (!begun.is_empty()).then(|| Adopted {
            runs: vec![None; begun.len()],
            open_windows: begun,
            next_window: 7,
        });
        adopted_windows += left.len();
        let closed = (start - START_NS) / PACKET_INTERVAL_NS;
        let settings = Settings::only(cardinality::Settings {
            mode: Mode::Off,
            ..cardinality::Settings::DEFAULT
        });
        let clock_of_dataplane = clock.clone();
        let dataplane = SteadyDataplane {
            capabilities,
            settings,
            clock: clock_of_dataplane,
            closed,
            adopted,
            left,
        };
        let window = random.random_range(1..=20) * 100 * MILLISECOND;
        let plan = Plan {
            intervals: Intervals {
                window: Some(Duration::from_nanos(window)),
                sample_every: None,
                duration: Some(Duration::from_nanos(random.random_range(MILLISECOND..10 * window))),
                align: random.random_bool(0.5),
            },
            seed,
            hash_key: None,
            prefixes: Vec::new(),
            filter: None,
            options: Estimation::default(),
        };
        let (publication, history) = (Publication::default(), History::default());
        let publisher = publication.publisher(None, &dataplane, &plan, history.clone());
        let status = publication.status();
        let mut checker =
            Checker { publisher, history, status, seed, places, start_ns: None, windows: 0 };
        let controller = Controller::start(dataplane, plan, || clock).unwrap();
        controller.run(&mut checker).unwrap();
        assert!(checker.windows > 0, "seed {seed}");
        windows += checker.windows;
    }
    assert!(windows > 100 && adopted_windows > 10, "{windows} windows, {adopted_windows} adopted");
}
