//! Threads of workers: their CPUs and CPU time, and locks that outlive a panic.

use crate::error::Error;
use nix::time::{ClockId, clock_gettime};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns the CPU time of this thread, in nanoseconds.
pub(super) fn cpu_time() -> u64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// Returns the ID of this thread.
pub(super) fn number() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Checks that threads of this process can be pinned to these CPUs.
pub(super) fn check_cpus(cpus: &[usize]) -> Result<(), Error> {
    let Ok(usable) = sched_getaffinity(None) else { return Ok(()) };
    let Some(cpu) = cpus.iter().find(|&&cpu| cpu >= CpuSet::MAX_CPU || !usable.is_set(cpu)) else {
        return Ok(());
    };
    let list: Vec<String> =
        (0..CpuSet::MAX_CPU).filter(|&cpu| usable.is_set(cpu)).map(|cpu| cpu.to_string()).collect();
    Err(Error::Unsupported {
        backend: "poll",
        what: format!("run a worker on CPU {cpu}"),
        advice: format!("this process may use CPU {}", list.join(",")),
    })
}

/// Pins this thread to a CPU.
pub(super) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("cannot keep a worker on CPU {cpu}: {error}");
    }
}

/// Locks a mutex, whether or not a thread has panicked while it held the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
