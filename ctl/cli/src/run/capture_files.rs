//! One pass over captures before they are counted, and the length of their windows if none is
//! given.

use crate::error::{CommandFailure, fail};
use crate::output::progress::ProgressWatch;
use crate::run::signals::is_ending;
use flowgauge_ctl::clock::nanoseconds;
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{Capture, Port, PortFrame, Ports, Received, captures};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of windows to aim for: a chart shows that many. Lengths follow each other by a
/// factor of three at most, so that there are at least 40: the alarm learns from 30.
const MAX_WINDOWS: u32 = 120;
/// Familiar lengths of windows, in milliseconds.
const LENGTHS: [u64; 24] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000,
    300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000,
];
/// Interval at which a reader without packets checks whether more of a capture was read.
const IDLE: Duration = Duration::from_millis(1);

/// Returns the shortest familiar length of a window that divides a time into at most
/// [`MAX_WINDOWS`] windows, or the longest one if none does.
pub(crate) fn window_for(length_ns: u64) -> Duration {
    let fits = |window: &u64| window * 1_000_000 * u64::from(MAX_WINDOWS) >= length_ns;
    let longest = LENGTHS.last().copied().unwrap_or_default();
    Duration::from_millis(LENGTHS.into_iter().find(fits).unwrap_or(longest))
}

/// Reads captures and returns the time from the first to the last packet, in nanoseconds; with
/// `duration` that of their first part.
pub(crate) fn length_ns(
    files: &[PathBuf],
    duration: Option<Duration>,
) -> Result<u64, CommandFailure> {
    let mut range: Option<(u64, u64)> = None;
    read(files, duration, |frame| {
        let time = frame.timestamp;
        let (first, last) = range.unwrap_or((time, time));
        range = Some((first.min(time), last.max(time)));
    })?;
    Ok(range.map_or(0, |(first, last)| last - first))
}

/// Reads the frames of captures; with `duration` those of their first part.
pub(crate) fn read(
    files: &[PathBuf],
    duration: Option<Duration>,
    mut take: impl FnMut(PortFrame<'_>),
) -> Result<(), CommandFailure> {
    let found = files.iter().map(|file| Capture::open(file)).collect::<Result<_, _>>()?;
    let Ports { ports, source, interface, .. } = captures(found, 1, Pace::Open)?;
    let _progress = ProgressWatch::start(source, interface);
    let mut end = None;
    let mut take_first = |frame: PortFrame<'_>| {
        let time = frame.timestamp;
        let end = *end.get_or_insert_with(|| {
            duration.map_or(u64::MAX, |it| time.saturating_add(nanoseconds(it)))
        });
        if time < end {
            take(frame);
        }
    };
    for mut port in ports {
        loop {
            if is_ending() {
                let problem = "interrupted while captures were read; nothing was written";
                return fail(problem);
            }
            match port.receive(&mut take_first) {
                Received::Frames => {}
                Received::Idle => port.wait(IDLE),
                Received::Ended => break,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_length_gives_enough_windows_to_learn_from_and_few_enough_to_draw() {
        for seconds in (1..100 * 86_400).step_by(97) {
            let length = Duration::from_secs(seconds);
            let windows = length.as_secs_f64() / window_for(nanoseconds(length)).as_secs_f64();
            assert!((40.0..=120.0).contains(&windows), "{windows} windows in {seconds} s");
        }
        assert_eq!(window_for(150_000_000_000), Duration::from_secs(2));
        assert_eq!(window_for(u64::MAX), Duration::from_secs(86_400));
    }
}
