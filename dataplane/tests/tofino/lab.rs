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
        let mut lab = Lab {
            switch,
            tampering: Tampering::default(),
            proxy: Proxy::start(),
            settings,
            running: None,
        };
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

    /// Returns a counting backend.
    pub fn counting(&self) -> Tofino {
        let mut tofino = self.connect();
        tofino.install(&self.tables()).unwrap();
        tofino
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
        assert_eq!(
            snapshot.bank.cardinality.levels(self.settings.cardinality.precision),
            expected.levels
        );
        assert_eq!(
            (snapshot.packets_before, snapshot.packets_after),
            (expected.packets(), expected.packets())
        );
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

/// Returns the warnings and notices, without the address.
pub fn warnings(tofino: &mut Tofino) -> Vec<String> {
    let text = |event| match event {
        Event::Warning(text) | Event::Notice(text) => text.split_once(": ").unwrap().1.to_owned(),
        other => panic!("{other:?}"),
    };
    tofino.events().unwrap().into_iter().map(text).collect()
}
