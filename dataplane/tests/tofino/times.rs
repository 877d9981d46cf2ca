//! Time that a driver would be busy: the tests do not wait, but log it in a ledger.

use crate::common::persist;
use crate::tofino::lab::{SEED, counting, options, settings};
use crate::tofino::windows::connect_patiently;
use flowgauge_bfruntime::server::{Costs, Ledger, Pace, RunningServer, Server, Target};
use flowgauge_core::Settings;
use flowgauge_dataplane::tofino::definitions;
use flowgauge_dataplane::{Dataplane, Tables};
use flowgauge_testing::frames::uniques;
use flowgauge_testing::model;
use flowgauge_testing::switch::Switch;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Costs of a driver that takes 120 us to read an element from the chip, and 1 ms to copy a
/// register.
const COSTS: Costs = Costs::SWITCH;

fn serve(target: Arc<dyn Target>) -> (RunningServer, Arc<Mutex<Ledger>>) {
    let (server, ledger) = Server::driver_like(target, COSTS, Pace::Noted).unwrap();
    let loopback = ([127, 0, 0, 1], 0).into();
    (RunningServer::start_service(loopback, None, server.service()).unwrap(), ledger)
}

fn reset(ledger: &Mutex<Ledger>) {
    *ledger.lock().unwrap() = Ledger::default();
}

#[test]
fn costs_are_those_of_the_published_measurement() {
    assert_eq!((COSTS.index, COSTS.sync), (Duration::from_micros(120), Duration::from_millis(1)));
    // 245 ms for 2,048 registers.
    assert!((COSTS.index * 2048).abs_diff(Duration::from_millis(245)) < Duration::from_millis(1));
}

#[test]
fn a_rotation_of_2048_registers_takes_less_than_50_ms_even_if_all_are_raised() {
    let settings = settings(11);
    let switch = Switch::new(settings, 2);
    let (running, ledger) = serve(Arc::clone(&switch.memory) as Arc<dyn Target>);
    let mut tofino = counting(options(running.address()), settings);
    let mut first = 0;
    for packets in [0, 1_000, 30_000] {
        switch.count(&uniques(first..first + packets));
        first += packets;
        reset(&ledger);
        assert_eq!(tofino.rotate().unwrap().bank.counters.packets(), packets);
        let ledger = *ledger.lock().unwrap();
        assert!(ledger.total < Duration::from_millis(50), "{ledger}");
        // Counters before and after, and registers.
        assert_eq!((ledger.syncs, ledger.indices), (3, 0), "{ledger}");
    }
    reset(&ledger);
    tofino.sample().unwrap();
    let ledger = *ledger.lock().unwrap();
    assert!(ledger.total < Duration::from_millis(5), "{ledger}");
}

#[test]
fn sixty_five_thousand_registers_start_and_no_call_takes_a_tenth_of_the_deadline() {
    let settings = settings(16);
    let switch = model::switch(definitions(&settings).unwrap());
    let (running, ledger) = serve(Arc::clone(&switch) as Arc<dyn Target>);
    let mut tofino = counting(options(running.address()), settings);
    model::arrive(&switch, &uniques(0..20_000));
    assert_eq!(tofino.rotate().unwrap().bank.counters.packets(), 20_000);
    let deadline = flowgauge_dataplane::tofino::Options::new("").deadline;
    let ledger = *ledger.lock().unwrap();
    assert!(ledger.longest < deadline / 10, "{ledger}");
    assert_eq!(ledger.indices, 0, "{ledger}");
}

#[test]
fn a_rotation_of_all_measurements_takes_less_than_500_ms() {
    rotate_all_measurements(12);
}

#[test]
#[ignore = "takes 20 s of processor time; the one above does the same for a few windows"]
fn all_measurements_count_exactly_over_200_windows() {
    rotate_all_measurements(200);
}

/// Rotates all measurements except reordering, which does not fit on a chip together with delays,
/// as P4 that the model executes.
fn rotate_all_measurements(windows: u64) {
    let settings = everything();
    let switch = model::switch(definitions(&settings).unwrap());
    let (running, ledger) = serve(Arc::clone(&switch) as Arc<dyn Target>);
    let times = flowgauge_dataplane::tofino::read_times(&options(running.address())).unwrap();
    let measured = times.tables.len();
    // The measuring client is gone, but the switch may not have noticed yet.
    let mut tofino = connect_patiently(&options(running.address()), settings);
    tofino.install(&Tables::new(&settings, SEED)).unwrap();
    let (mut sent, mut counted) = (0, 0);
    for window in 0..windows {
        let packets = if window == 6 { 20_000 } else { window % 7 * 3 };
        model::arrive(&switch, &uniques(sent..sent + packets));
        sent += packets;
        reset(&ledger);
        let snapshot = persist(|| tofino.rotate());
        assert!(snapshot.complete);
        assert_eq!(snapshot.bank.counters.packets(), packets, "window {window}");
        counted += snapshot.bank.counters.packets();
        let ledger = *ledger.lock().unwrap();
        assert!(ledger.total < Duration::from_millis(500), "window {window}: {ledger}");
        // Counters are read once more than the tables that were measured.
        assert_eq!((ledger.syncs, ledger.indices), (measured as u64 + 1, 0));
    }
    assert_eq!(counted, sent);
}

fn everything() -> Settings {
    use flowgauge_core::{Grid, delay, heavy, membership, sizes, sketch};
    let mut settings = Settings::default();
    let key = settings.cardinality.key;
    let sketch = |mode| sketch::Settings { mode, key, shape: Grid::of_counters(3, 1024).unwrap() };
    settings.entropy[0] = sketch(sketch::Mode::CountSketch);
    settings.frequency = sketch(sketch::Mode::CountMin);
    settings.membership =
        membership::Settings { on: true, key, shape: Grid::of_bits(3, 65_536).unwrap() };
    settings.heavy =
        heavy::Settings { algorithm: heavy::Algorithm::Precision, key, ..heavy::Settings::DEFAULT };
    settings.sizes = sizes::Settings::ON;
    settings.delay.kinds = delay::Kinds::NONE.with(delay::DelayKind::TcpData);
    settings
}
