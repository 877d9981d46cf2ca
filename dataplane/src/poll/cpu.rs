//! CPUs and CPU time of workers.

use crate::error::Error;

/// Whether [`thread_time`] is supported here.
pub(super) const MEASURED: bool = cfg!(target_os = "linux");

/// Returns the CPU time of this thread, in nanoseconds.
#[cfg(target_os = "linux")]
pub(super) fn thread_time() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// Returns the CPU that this thread runs on.
#[cfg(target_os = "linux")]
pub(super) fn current() -> usize {
    rustix::thread::sched_getcpu()
}

/// Returns the ID of this thread.
#[cfg(target_os = "linux")]
pub(super) fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Checks that threads of this process can be pinned to these CPUs.
#[cfg(target_os = "linux")]
pub(super) fn check(cpus: &[usize]) -> Result<(), Error> {
    use rustix::thread::{CpuSet, sched_getaffinity};
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
#[cfg(target_os = "linux")]
pub(super) fn pin(cpu: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(cpu);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("cannot keep a worker on CPU {cpu}: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn thread_time() -> u64 {
    0
}

#[cfg(not(target_os = "linux"))]
pub(super) fn current() -> usize {
    0
}

#[cfg(not(target_os = "linux"))]
pub(super) fn thread_number() -> u32 {
    0
}

#[cfg(not(target_os = "linux"))]
pub(super) fn check(cpus: &[usize]) -> Result<(), Error> {
    let advice = "leave it out: only Linux pins threads".to_owned();
    let refused = |cpu: &usize| {
        Err(Error::Unsupported {
            backend: "poll",
            what: format!("run a worker on CPU {cpu}"),
            advice,
        })
    };
    cpus.first().map_or(Ok(()), refused)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn pin(_: usize) {}
