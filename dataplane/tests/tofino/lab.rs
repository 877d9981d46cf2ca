//! A switch, the faults before it, and a backend.

use flowgauge_bfruntime::proto::bf_runtime_server::BfRuntimeServer;
use flowgauge_bfruntime::server::{MAX_MESSAGE, RunningServer};
use flowgauge_core::{Precision, Settings};
use flowgauge_dataplane::tofino::{Failure, Options};
use flowgauge_dataplane::{Dataplane, Error, Event, Snapshot, Tables, Tofino};
use flowgauge_testing::definitions::Model;
pub use flowgauge_testing::faults::{Faulty, Proxy, Reads, Tampering, Writes};
use flowgauge_testing::frames::uniques;
use flowgauge_testing::switch::Switch;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

pub const SEED: u64 = 7;
/// Deadline long enough for any answer, on any machine.
pub const PATIENT: Duration = Duration::from_secs(30);

pub fn settings(p: u8) -> Settings {
    let mut settings = Settings::default();
    settings.cardinality.precision = Precision::new(p).unwrap();
    settings
}

pub fn options(address: SocketAddr) -> Options {
    let mut options = Options::new(address.to_string());
    options.deadline = PATIENT;
    options.back_off = Duration::ZERO;
    options.patience = Duration::ZERO;
    options.batch = 100;
    options.transit = Duration::ZERO;
    options
}

/// Connects, and starts to count.
pub fn counting(options: Options, settings: Settings) -> Tofino {
    let mut tofino = Tofino::connect(options, settings).unwrap();
    tofino.install(&Tables::new(&settings, SEED)).unwrap();
    tofino
}

/// A switch behind a service that can damage answers, behind a proxy that can cut connections.
pub struct Lab {
    pub switch: Switch,
    pub tampering: Tampering,
    pub proxy: Proxy,
    pub settings: Settings,
    running: Option<RunningServer>,
}

impl Lab {
    pub fn new(pipes: u32) -> Self {
        Self::with(settings(6), pipes)
    }

    pub fn with(settings: Settings, pipes: u32) -> Self {
        let switch = Switch::new(settings, pipes);
        let (tampering, proxy) = (Tampering::default(), Proxy::start());
        let mut lab = Lab { switch, tampering, proxy, settings, running: None };
        lab.power_on();
        lab
    }

    fn power_on(&mut self) {
        let service = Faulty::new(self.switch.server(), &self.tampering);
        let service = BfRuntimeServer::new(service).max_decoding_message_size(MAX_MESSAGE);
        let running =
            RunningServer::start_service(([127, 0, 0, 1], 0).into(), None, service).unwrap();
        self.proxy.lead_to(Some(running.address()));
        self.running = Some(running);
    }

    /// Removes the switch with its state; connections get no answer.
    pub fn power_off(&mut self) {
        self.proxy.lead_to(None);
        self.running = None;
        self.switch = self.switch.fresh();
    }

    pub fn restart(&mut self) {
        self.power_off();
        self.power_on();
    }

    pub fn options(&self) -> Options {
        options(self.proxy.address)
    }

    pub fn connect(&self) -> Tofino {
        Tofino::connect(self.options(), self.settings).unwrap()
    }

    pub fn tables(&self) -> Tables {
        Tables::new(&self.settings, SEED)
    }

    /// Returns the lab with a counting backend.
    pub fn started(self) -> (Self, Tofino) {
        let tofino = self.counting();
        (self, tofino)
    }

    /// Returns a counting backend.
    pub fn counting(&self) -> Tofino {
        counting(self.options(), self.settings)
    }

    pub fn count(&self, packets: Range<u64>) {
        self.switch.count(&uniques(packets));
    }

    /// Asserts that a snapshot is complete and contains exactly these packets.
    #[track_caller]
    pub fn assert_holds(&self, snapshot: &Snapshot, packets: Range<u64>) {
        assert!(snapshot.complete, "something is missing");
        self.assert_counted(snapshot, packets);
    }

    #[track_caller]
    pub fn assert_counted(&self, snapshot: &Snapshot, packets: Range<u64>) {
        let expected = Model::new(&self.settings, SEED).expect(uniques(packets).iter());
        assert_eq!(snapshot.bank.counters, expected.counters);
        let precision = self.settings.cardinality.precision;
        assert_eq!(snapshot.bank.cardinality.levels(precision), expected.levels);
        let packets = [snapshot.packets_before, snapshot.packets_after];
        assert_eq!(packets, [expected.packets(); 2]);
    }
}

/// Returns the failure inside an error.
#[track_caller]
pub fn failure<T>(result: Result<T, Error>) -> Failure {
    match result {
        Err(Error::Switch { failure, .. }) => failure,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it succeeded"),
    }
}

/// Asserts that a call fails, and that the error says this; returns the failure.
#[track_caller]
pub fn refused<T>(result: Result<T, Error>, expected: &str) -> Failure {
    let failed = failure(result);
    assert!(failed.to_string().contains(expected), "{failed}\nand not\n{expected}");
    failed
}

/// Returns the warnings and notices, without the address.
pub fn warnings(tofino: &mut Tofino) -> Vec<String> {
    let text = |event| match event {
        Event::Warning(text) | Event::Notice(text) => text.split_once(": ").unwrap().1.to_owned(),
        other => panic!("{other:?}"),
    };
    tofino.events().unwrap().into_iter().map(text).collect()
}
