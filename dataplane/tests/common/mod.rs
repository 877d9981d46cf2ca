//! Settings, places, runs and traffic that the tests of several backends share.

#[cfg(target_os = "linux")]
pub mod delays;
#[cfg(target_os = "linux")]
pub mod devices;
#[cfg(target_os = "linux")]
pub mod kernel;

use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{Precision, Settings, delay};
use flowgauge_dataplane::{Dataplane, Error, Poll, Snapshot, Tables};

/// Seed of the tables.
pub const SEED: u64 = 1;

/// Installs tables: workers count from then on.
pub fn with_tables(mut poll: Poll) -> Poll {
    let tables = Tables::new(poll.settings(), SEED);
    poll.install(&tables).unwrap();
    poll
}

/// Returns settings without any measurement: only counters.
pub fn nothing() -> Settings {
    Settings::only(cardinality::Settings { mode: Mode::Off, ..cardinality::Settings::DEFAULT })
}

/// Returns settings that measure delays alone.
pub fn only_delays(delay: delay::Settings) -> Settings {
    Settings { delay, ..nothing() }
}

/// Returns the default settings, but for five-tuples.
#[cfg(target_os = "linux")]
pub fn five_tuples() -> Settings {
    let mut settings = Settings::default();
    settings.cardinality.key = flowgauge_core::KeyKind::FiveTuple;
    settings
}

/// Returns the values of staggered registers in a slot.
pub fn staggered_levels(sample: &Snapshot, precision: Precision, slot: u32) -> Vec<u8> {
    let registers = &sample.persistent.as_ref().unwrap().cardinality;
    registers.levels(precision, slot).collect()
}

/// Repeats a call while it fails transiently, like the controller.
pub fn persist<T>(mut call: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match call() {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}

/// Returns the lines of a log of JSON.
pub fn lines(log: &[u8]) -> Vec<serde_json::Value> {
    let lines = std::str::from_utf8(log).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks that a message contains all of these parts.
#[track_caller]
pub fn assert_contains(message: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| message.contains(part)), "{message}, not {parts:?}");
}
