//! Parallel execution of independent experiments.

use std::convert::Infallible;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// Progress of a reproduction: work done and total work, in any unit.
pub(crate) type Progress<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// Returns the number of processors that this process may use.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Cost of a job among jobs that take about the same time.
pub(crate) fn equal_cost<J>(_: &J) -> u64 {
    1
}

/// Runs the jobs on `threads` threads and returns the results in the order of the jobs. `cost` is
/// the work of a job, for `progress`. Jobs are started in order, so put the longest first.
pub(crate) fn run<J: Sync, T: Send>(
    jobs: &[J],
    threads: usize,
    cost: impl Fn(&J) -> u64 + Sync,
    progress: &Progress<'_>,
    work: impl Fn(&J) -> T + Sync,
) -> Vec<T> {
    let Ok(results) = try_run(jobs, threads, cost, progress, |job| Ok::<_, Infallible>(work(job)));
    results
}

/// As [`run`], for jobs that can fail.
///
/// # Errors
/// The error of the first job that fails; no further job is started then.
pub(crate) fn try_run<J: Sync, T: Send, E: Send>(
    jobs: &[J],
    threads: usize,
    cost: impl Fn(&J) -> u64 + Sync,
    progress: &Progress<'_>,
    work: impl Fn(&J) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let total = jobs.iter().map(&cost).sum();
    let (next, done, failed) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Option<Result<T, E>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    progress(0, total);
    let worker = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let (Some(job), Some(slot)) = (jobs.get(index), results.get(index)) else { break };
            let result = work(job);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            progress(done.fetch_add(cost(job), Ordering::Relaxed) + cost(job), total);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads.clamp(1, jobs.len().max(1))).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            if let Err(panic) = worker.join() {
                resume_unwind(panic);
            }
        }
    });
    // A job that was not started comes after the failure at which collecting ends.
    results
        .into_iter()
        .filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        let last = AtomicU64::new(0);
        let progress = |done, total| {
            assert_eq!(total, 4950);
            last.fetch_max(done, Ordering::Relaxed);
        };
        let doubled = run(&jobs, 4, |job| *job, &progress, |job| job * 2);
        assert_eq!(doubled, jobs.iter().map(|job| job * 2).collect::<Vec<_>>());
        assert_eq!(last.into_inner(), 4950);
    }

    #[test]
    fn the_first_failure_ends_it() {
        let begun = AtomicUsize::new(0);
        let fail_at_3 = |job: &u64| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *job == 3 { Err("three") } else { Ok(()) }
        };
        let jobs: Vec<u64> = (0..1000).collect();
        assert_eq!(try_run(&jobs, 1, equal_cost, &|_, _| {}, fail_at_3), Err("three"));
        assert_eq!(begun.into_inner(), 4);
    }
}
