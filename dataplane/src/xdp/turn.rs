//! Turns of sources that start: many load programs at once, and few attach them.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::available_parallelism;

/// Maximum number of attachments at once. More would not be faster: the kernel attaches programs one
/// after the other, each for a grace period, under the lock (`rtnl`) that queries for counters
/// take as well. With 150 attachments in that queue, the windows of sources that count already would
/// end after all of them.
const MAX_ATTACHMENTS: usize = 4;

/// A limited number of places, and how many of them are taken.
struct Places {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Places {
    const fn new() -> Self {
        Places { taken: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until fewer places than the maximum are taken, and takes one.
    fn take(&'static self, maximum: usize) -> Turn {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self
            .freed
            .wait_while(taken, |taken| *taken >= maximum)
            .unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        Turn(self)
    }
}

static STARTS: Places = Places::new();
static ATTACHMENTS: Places = Places::new();

/// Right to start or to attach, until it is dropped.
pub(super) struct Turn(&'static Places);

impl Turn {
    /// Waits until a source may load its programs. The verifier takes most of a start, and a CPU;
    /// sources that share programs wait for the kernel instead.
    pub(super) fn start(shares_programs: bool) -> Self {
        let cpus = available_parallelism().map_or(1, usize::from);
        STARTS.take(if shares_programs { MAX_STARTS } else { max_starts(cpus) })
    }

    /// Waits until a program may be attached.
    pub(super) fn attach() -> Self {
        ATTACHMENTS.take(MAX_ATTACHMENTS)
    }
}

/// Maximum number of starts at once. Each has some 15 files open.
const MAX_STARTS: usize = 16;

/// Returns the maximum number of starts at once that load programs: up to four CPUs or, of more
/// than eight, half of them.
fn max_starts(cpus: usize) -> usize {
    (cpus / 2).clamp(cpus.min(4), MAX_STARTS)
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Turn(places) = self;
        *places.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn turns_beyond_the_maximum_wait_for_others() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 * MAX_ATTACHMENTS {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _turn = Turn::attach();
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
        assert!((1..=MAX_ATTACHMENTS).contains(&most.into_inner()));
    }

    #[test]
    fn starts_leave_half_of_many_cpus_to_others() {
        let starts = [1, 2, 4, 6, 8, 16, 64].map(max_starts);
        assert_eq!(starts, [1, 2, 4, 4, 4, 8, 16]);
    }
}
