//! Time accounting of a worker: what it writes, and the load that the controller reads.
//!
//! A worker reads the clock after empty polls and after the first poll with packets: one that never
//! runs out of packets never reads it.

use super::handoff::SnapshotReader;
use super::port_frame::Received;
use super::threads;
use crate::status::WorkerLoad;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Shortest interval of a [`WorkerLoad`], unless none has been that long yet.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerActivity {
    WithPackets,
    Polling,
    Asleep,
}

/// One worker's times, written by it alone. On cache lines of its own, including the adjacent line
/// that CPUs prefetch.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct LoadMeter {
    started: OnceLock<Instant>,
    thread: AtomicU32,
    /// Current activity, as an index into `times`; it started at the sum of all times.
    doing: AtomicU8,
    /// Nanoseconds per activity.
    times: [AtomicU64; 3],
    /// Polls that found packets.
    batches: AtomicU64,
}

impl Default for LoadMeter {
    fn default() -> Self {
        LoadMeter {
            started: OnceLock::new(),
            thread: AtomicU32::new(0),
            doing: AtomicU8::new(WorkerActivity::Polling as u8),
            times: Default::default(),
            batches: AtomicU64::new(0),
        }
    }
}

impl LoadMeter {
    fn begin(&self, doing: WorkerActivity) {
        self.doing.store(doing as u8, Ordering::Relaxed);
    }

    /// Returns nanoseconds per activity up to now.
    fn times(&self) -> [u64; 3] {
        let Some(started) = self.started.get() else { return [0; 3] };
        let mut times = [0, 1, 2].map(|doing: usize| self.times[doing].load(Ordering::Relaxed));
        let doing = usize::from(self.doing.load(Ordering::Relaxed));
        let now = started.elapsed().as_nanos() as u64;
        times[doing] += now.saturating_sub(times.iter().sum());
        times
    }
}

/// Adds to a counter that has no other writer.
#[inline(always)]
fn increase(sum: &AtomicU64, by: u64) {
    sum.store(sum.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// The worker's end of its [`LoadMeter`].
pub(super) struct ActivityTimer {
    meter: Arc<LoadMeter>,
    /// Time up to which time was accounted for.
    accounted: Instant,
    /// Consecutive polls that found packets, at most two.
    streak: u8,
}

impl ActivityTimer {
    /// Starts accounting, in the worker's thread.
    pub(super) fn start(meter: Arc<LoadMeter>) -> Self {
        let now = Instant::now();
        meter.thread.store(threads::number(), Ordering::Relaxed);
        let accounted = *meter.started.get_or_init(|| now);
        ActivityTimer { meter, accounted, streak: 0 }
    }

    /// Accounts for a poll.
    #[inline]
    pub(super) fn polled(&mut self, received: Received) {
        match received {
            Received::Frames => self.found_packets(),
            Received::Idle | Received::Ended => self.found_nothing(),
        }
    }

    /// Accounts for a wait.
    pub(super) fn asleep(&mut self, wait: impl FnOnce()) {
        self.meter.begin(WorkerActivity::Asleep);
        wait();
        self.account(WorkerActivity::Asleep);
        self.meter.begin(WorkerActivity::Polling);
    }

    fn account(&mut self, doing: WorkerActivity) {
        let now = Instant::now();
        let time = now - self.accounted;
        increase(&self.meter.times[doing as usize], time.as_nanos() as u64);
        self.accounted = now;
    }

    #[inline]
    fn found_packets(&mut self) {
        increase(&self.meter.batches, 1);
        if self.streak == 0 {
            self.account(WorkerActivity::WithPackets);
            self.meter.begin(WorkerActivity::WithPackets);
        }
        self.streak = 2.min(self.streak + 1);
    }

    fn found_nothing(&mut self) {
        // The first busy poll is already accounted for; only this one remains.
        self.account(if self.streak > 1 {
            WorkerActivity::WithPackets
        } else {
            WorkerActivity::Polling
        });
        if self.streak > 0 {
            self.meter.begin(WorkerActivity::Polling);
            self.streak = 0;
        }
    }
}

/// Counters of a worker at one time.
#[derive(Clone, Copy, Default)]
struct Reading {
    packets: u64,
    batches: u64,
    cpu_ns: u64,
    cpu: usize,
    times: [u64; 3],
}

/// The controller's view of one worker's time.
#[derive(Default)]
pub(super) struct LoadHistory {
    /// The meter that the worker writes.
    pub(super) meter: Arc<LoadMeter>,
    /// Packets in closed banks.
    closed: u64,
    /// Start of the next load.
    from: Reading,
    /// Whether `from` is later than the start.
    rolled: bool,
    /// The recent load.
    pub(super) load: Option<WorkerLoad>,
}

impl LoadHistory {
    /// Returns the worker's thread ID; 0 until it has started.
    pub(super) fn thread(&self) -> u32 {
        self.meter.thread.load(Ordering::Relaxed)
    }

    /// Updates the load after a sample; the open bank contains `packets` packets.
    pub(super) fn sampled(&mut self, packets: u64, worker: &SnapshotReader, now_ns: u64) {
        let (packets, times) = (self.closed + packets, self.meter.times());
        let batches = self.meter.batches.load(Ordering::Relaxed);
        self.read(
            Reading { packets, batches, cpu_ns: worker.cpu_ns(), cpu: worker.cpu(), times },
            now_ns,
        );
    }

    /// Updates the load after a rotation that closed a bank with `packets` packets.
    pub(super) fn rotated(&mut self, packets: u64, worker: &SnapshotReader, now_ns: u64) {
        self.closed += packets;
        self.sampled(0, worker, now_ns);
    }

    fn read(&mut self, reading: Reading, end_ns: u64) {
        let from = &self.from;
        // Only the worker knows its present activity; time attributed to one activity may later
        // move to another.
        let times: [u64; 3] =
            std::array::from_fn(|doing| reading.times[doing].saturating_sub(from.times[doing]));
        let load = WorkerLoad {
            end_ns,
            lasted_ns: times.iter().sum(),
            with_packets_ns: times[WorkerActivity::WithPackets as usize],
            polling_ns: times[WorkerActivity::Polling as usize],
            asleep_ns: times[WorkerActivity::Asleep as usize],
            cpu_ns: Some(reading.cpu_ns.saturating_sub(from.cpu_ns)),
            packets: reading.packets.saturating_sub(from.packets),
            batches: reading.batches.saturating_sub(from.batches),
            cpu: Some(reading.cpu),
        };
        let long_enough = u128::from(load.lasted_ns) >= MIN_INTERVAL.as_nanos();
        if long_enough || !self.rolled {
            self.load = Some(load);
        }
        if long_enough {
            (self.from, self.rolled) = (reading, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeros(times: [u64; 3]) -> [bool; 3] {
        times.map(|time| time == 0)
    }

    fn accounted(meter: &LoadMeter) -> [u64; 3] {
        [0, 1, 2].map(|doing: usize| meter.times[doing].load(Ordering::Relaxed))
    }

    #[test]
    fn time_goes_to_what_was_done() {
        let meter = Arc::new(LoadMeter::default());
        assert_eq!(meter.times(), [0; 3], "it has not started");
        let mut timer = ActivityTimer::start(Arc::clone(&meter));
        timer.polled(Received::Frames);
        let first = accounted(&meter);
        assert_eq!(zeros(first), [false, true, true]);
        // No time is written while packets arrive, but a reader includes the time since.
        timer.polled(Received::Frames);
        timer.polled(Received::Frames);
        assert_eq!(accounted(&meter), first);
        assert!(meter.times()[0] > first[0]);
        timer.polled(Received::Idle);
        assert_eq!(meter.batches.load(Ordering::Relaxed), 3);
        let streak = accounted(&meter);
        assert!(streak[0] > first[0]);
        assert_eq!(zeros(streak), [false, true, true]);
        timer.polled(Received::Ended);
        assert_eq!(
            (accounted(&meter)[0], zeros(accounted(&meter))),
            (streak[0], [false, false, true])
        );
        timer.asleep(|| {});
        assert_eq!(zeros(accounted(&meter)), [false; 3]);
    }

    #[test]
    fn a_poll_in_vain_after_a_single_batch_is_polling() {
        let meter = Arc::new(LoadMeter::default());
        let mut timer = ActivityTimer::start(Arc::clone(&meter));
        timer.polled(Received::Frames);
        let batch = accounted(&meter);
        timer.polled(Received::Idle);
        assert_eq!(accounted(&meter)[0], batch[0]);
        assert!(accounted(&meter)[1] > 0);
    }

    #[test]
    fn a_load_is_of_a_second_or_more_once_there_was_one() {
        let mut account = LoadHistory::default();
        let reading = |ms: u64| Reading {
            packets: ms * 10,
            batches: ms,
            cpu_ns: ms * 1_000,
            cpu: 0,
            times: [ms * 250_000, ms * 500_000, ms * 250_000],
        };
        let mut load = |ms| {
            account.read(reading(ms), ms);
            let load = account.load.unwrap_or_default();
            (load.end_ns, load.lasted_ns / 1_000_000, load.packets)
        };
        assert_eq!(load(300), (300, 300, 3_000));
        assert_eq!(load(1_200), (1_200, 1_200, 12_000));
        assert_eq!(load(1_300), (1_200, 1_200, 12_000), "a tenth of a second says little");
        assert_eq!(load(2_700), (2_700, 1_500, 15_000));
    }
}
