//! Waits for what no descriptor reports: a counter of a device, a process, a file.

use std::thread;
use std::time::{Duration, Instant};

/// Only ends a hang: no machine is this slow.
const LIMIT: Duration = Duration::from_secs(300);
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Attempts something until it has a result, with growing pauses that leave the processor to what
/// is waited for.
#[track_caller]
pub fn until_some<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(began.elapsed() < LIMIT, "still waiting after {LIMIT:?}");
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until a condition holds.
#[track_caller]
pub fn until(mut condition: impl FnMut() -> bool) {
    until_some(|| condition().then_some(()));
}
