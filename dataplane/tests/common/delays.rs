//! Delays of both ends of an exchange.

use super::devices::receive;
use flowgauge_core::WindowTotals;
use flowgauge_core::delay::histogram::least;
use flowgauge_core::delay::{self, DelayKind};
use flowgauge_traffic::frame::dns;
use std::net::UdpSocket;
use std::time::Duration;

/// Returns the buckets of all delays of a kind.
pub fn buckets(
    bank: &WindowTotals,
    settings: &delay::Settings,
    kind: DelayKind,
    leaves: bool,
) -> Vec<usize> {
    let histogram = bank.delay.histogram(settings, kind, leaves, 0).unwrap();
    let buckets = histogram.buckets().iter().enumerate();
    buckets
        .flat_map(|(index, bucket)| std::iter::repeat_n(index, bucket.samples as usize))
        .collect()
}

/// Returns bounds of the delays in a bucket: times in whole ticks are up to a tick off.
pub fn bounds(kind: DelayKind, bucket: usize) -> (Duration, Duration) {
    let tick = |ticks: u32| Duration::from_nanos(u64::from(ticks) << kind.tick_bits());
    (tick(least(bucket).saturating_sub(1)), tick(least(bucket + 1) + 1))
}

/// Returns the bounds of all delays of a kind.
pub fn found(
    bank: &WindowTotals,
    settings: &delay::Settings,
    kind: DelayKind,
    leaves: bool,
) -> Vec<(Duration, Duration)> {
    let buckets = buckets(bank, settings, kind, leaves).into_iter();
    buckets.map(|bucket| bounds(kind, bucket)).collect()
}

/// Requests that may be overwritten before their answers: one in thousands is, so more are missing
/// once in ten million runs.
pub const MISSING: usize = 2;

/// Checks that each delay is at least `least` and at most what a socket waited, in sorted order. A
/// few may be missing.
#[track_caller]
pub fn assert_between(
    found: &[(Duration, Duration)],
    mut least: Vec<Duration>,
    mut waited: Vec<Duration>,
) {
    least.sort_unstable();
    waited.sort_unstable();
    let missing = waited.len() - found.len();
    assert!(missing <= MISSING, "{missing} of {}", waited.len());
    for (((low, high), least), waited) in found.iter().zip(&least).zip(&waited[missing..]) {
        assert!(high >= least && low <= waited, "{low:?} to {high:?}, not {least:?} to {waited:?}");
    }
}

/// Sends a DNS question.
pub fn ask_dns(socket: &UdpSocket, server: &str, id: u16) {
    socket.send_to(&dns(id, false), (server, 53)).unwrap();
}

/// Asks a DNS question and waits for the answer.
pub fn resolve(socket: &UdpSocket, server: &str, id: u16) {
    ask_dns(socket, server, id);
    receive(socket, &mut [0; 64]);
}
