//! Settings, places, runs and traffic that the tests of several backends share.

#[cfg(target_os = "linux")]
pub mod delays;
#[cfg(target_os = "linux")]
pub mod devices;
#[cfg(target_os = "linux")]
pub mod kernel;

use flowgauge_core::cardinality::{self, Mode};
use flowgauge_core::{Settings, delay};

/// Returns settings without any measurement: only counters.
pub fn nothing() -> Settings {
    Settings::only(cardinality::Settings { mode: Mode::Off, ..cardinality::Settings::DEFAULT })
}

/// Returns settings that measure delays alone.
pub fn only_delays(delay: delay::Settings) -> Settings {
    Settings { delay, ..nothing() }
}

/// Checks that a message contains all of these parts.
#[track_caller]
pub fn assert_contains(message: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| message.contains(part)), "{message}, not {parts:?}");
}
