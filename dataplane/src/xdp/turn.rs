//! Turns of sources that start.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::available_parallelism;

/// Maximum number of starts at once. More would not be faster: the kernel attaches programs one
/// after the other, each for a grace period, under the lock (`rtnl`) that queries for counters
/// take as well. With 150 starts in that queue, the windows of sources that count already would
/// end after all of them.
const MAX_STARTS: usize = 4;

/// Number of starts in progress.
static STARTS: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Right to load and attach programs, until it is dropped.
pub(super) struct Turn(());

impl Turn {
    /// Waits until fewer starts than CPUs, and than the maximum, are in progress.
    pub(super) fn wait() -> Self {
        let maximum = available_parallelism().map_or(1, usize::from).min(MAX_STARTS);
        let starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut starts = ENDED
            .wait_while(starts, |starts| *starts >= maximum)
            .unwrap_or_else(PoisonError::into_inner);
        *starts += 1;
        Turn(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *STARTS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn starts_beyond_the_maximum_wait_for_others() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 * MAX_STARTS {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _turn = Turn::wait();
                        most.fetch_max(
                            running.fetch_add(1, Ordering::Relaxed) + 1,
                            Ordering::Relaxed,
                        );
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(running.into_inner(), 0);
        assert!((1..=MAX_STARTS).contains(&most.into_inner()));
    }
}
