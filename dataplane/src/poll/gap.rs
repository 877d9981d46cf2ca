//! Gaps between the polls of workers that timestamp packets themselves: a packet waits for the next
//! poll, so its timestamp is late by up to a gap.
//!
//! A packet that a poll finds arrived after the begin of the last poll that left none behind. The
//! time from then to the end of the poll that finds it is its gap. While a worker waits, a packet
//! wakes it, so that only the time until it runs counts: the kernel reports how long a thread was
//! ready and had no CPU. What is not in a gap is the time that the kernel takes to pass a packet to
//! the port, and an idle CPU to wake up.

use super::port_frame::Received;
use flowgauge_core::BANKS;
use flowgauge_core::delay::histogram::{Histogram, least};
use flowgauge_core::delay::{Delay, Settings};
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest gap of all workers in each bank.
#[derive(Debug)]
pub(super) struct LongestGaps {
    /// In nanoseconds.
    banks: [AtomicU64; BANKS],
    /// Time from which packets may wait in the ports, before the workers run.
    since: Instant,
}

impl LongestGaps {
    /// Creates gaps of ports that packets reach from now on.
    pub(super) fn new() -> Self {
        LongestGaps { banks: Default::default(), since: Instant::now() }
    }

    fn raise(&self, bank: usize, gap: Duration) {
        let gap = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
        if let Some(longest) = self.banks.get(bank)
            && gap > longest.load(Ordering::Relaxed)
        {
            longest.fetch_max(gap, Ordering::Relaxed);
        }
    }

    /// Returns the longest gap of an open bank so far.
    pub(super) fn open(&self, bank: usize) -> u64 {
        self.banks.get(bank).map_or(0, |longest| longest.load(Ordering::Relaxed))
    }

    /// Returns the longest gap of a bank that all workers have left, and clears it.
    pub(super) fn take(&self, bank: usize) -> u64 {
        self.banks.get(bank).map_or(0, |longest| longest.swap(0, Ordering::Relaxed))
    }
}

/// Measures the gaps of one worker.
pub(super) struct GapMeter {
    longest: Arc<LongestGaps>,
    /// `/proc/thread-self/schedstat` of the worker.
    schedstat: Option<File>,
    /// Time at or after which every packet arrived that was not found yet.
    since: Instant,
    /// End of the last poll or wait.
    ended: Instant,
    /// Time without a CPU at the begin of the wait.
    delayed: Duration,
}

impl GapMeter {
    /// Starts measuring, in the worker's thread.
    pub(super) fn start(longest: Arc<LongestGaps>) -> Self {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let since = longest.since;
        GapMeter { longest, schedstat, since, ended: Instant::now(), delayed: Duration::ZERO }
    }

    /// Accounts for a poll. `is_drained`: whether it left no packets behind.
    #[inline]
    pub(super) fn polled(&mut self, bank: usize, received: Received, is_drained: bool) {
        let now = Instant::now();
        if received == Received::Frames {
            self.longest.raise(bank, now.saturating_duration_since(self.since));
        }
        if is_drained {
            self.since = self.ended;
        }
        self.ended = now;
    }

    /// Prepares for a wait.
    pub(super) fn begin_wait(&mut self) {
        self.delayed = self.run_delay();
        self.ended = Instant::now();
    }

    /// Accounts for a wait of at most `most`. `is_prompt`: whether a packet would have ended it.
    pub(super) fn waited(&mut self, is_prompt: bool, most: Duration) {
        let now = Instant::now();
        if is_prompt {
            let delayed = self.run_delay().saturating_sub(self.delayed);
            self.woken(now, delayed, most);
        }
        self.ended = now;
    }

    /// Returns the total time that this thread was ready to run and had no CPU; zero if the kernel
    /// does not report it.
    fn run_delay(&self) -> Duration {
        let mut text = [0; 64];
        let length = self.schedstat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        // The time on a CPU, the time without one, and the number of time slices.
        let delay = length
            .and_then(|length| std::str::from_utf8(text.get(..length)?).ok())
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok());
        Duration::from_nanos(delay.unwrap_or(0))
    }

    /// Accounts for a wait that a packet would have ended, after `delayed` without a CPU.
    fn woken(&mut self, now: Instant, delayed: Duration, most: Duration) {
        let overdue = now.saturating_duration_since(self.ended).saturating_sub(most);
        // A packet that came before the wait has waited since.
        let before = self.ended.saturating_duration_since(self.since);
        let late = before.saturating_add(delayed.max(overdue));
        self.since = now.checked_sub(late).unwrap_or(self.since).max(self.since);
    }
}

/// Windows whose gaps are remembered one by one.
const REMEMBERED: usize = 1024;

/// Gaps of closed windows: a delay spans the windows from its request to its answer.
#[derive(Debug, Default)]
pub(super) struct GapHistory {
    /// End of each window, and its longest gap, in nanoseconds; oldest first.
    windows: VecDeque<(u64, u64)>,
    /// Longest gap of the windows before.
    older: u64,
}

impl GapHistory {
    /// Returns the longest gap that matters to delays of up to `longest_ns` in a window with this
    /// gap, which follows the closed ones.
    pub(super) fn reaching(&self, gap_ns: u64, longest_ns: u64) -> u64 {
        let begun = self.windows.back().map_or(0, |(end, _)| *end);
        let from = begun.saturating_sub(longest_ns);
        let earlier = self.windows.iter().rev().take_while(|(end, _)| *end >= from);
        let earlier = earlier.map(|(_, gap)| *gap).max().unwrap_or(0);
        let reaches_all = self.windows.front().is_none_or(|(end, _)| *end >= from);
        gap_ns.max(earlier).max(if reaches_all { self.older } else { 0 })
    }

    /// Adds a closed window.
    pub(super) fn close(&mut self, end_ns: u64, gap_ns: u64) {
        self.windows.push_back((end_ns, gap_ns));
        if self.windows.len() > REMEMBERED
            && let Some((_, gap)) = self.windows.pop_front()
        {
            self.older = self.older.max(gap);
        }
    }
}

/// Returns an upper bound of the delays of a bank, in nanoseconds.
pub(super) fn longest_delay(settings: &Settings, bank: &Delay) -> u64 {
    let histograms = settings.kinds.each().flat_map(move |kind| {
        (0..settings.labels()).flat_map(move |label| {
            (0..settings.fridges()).filter_map(move |fridge| {
                let label = settings.labelled(label);
                Some((kind, bank.histogram(settings, kind, label, fridge)?))
            })
        })
    });
    let longest = |histogram: &Histogram| {
        let last = histogram.buckets().iter().rposition(|bucket| bucket.samples > 0);
        last.map_or(0, |last| u64::from(least(last + 1)))
    };
    histograms.map(|(kind, histogram)| longest(histogram) << kind.tick_bits()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns a meter whose last poll ended `ended` ago and left packets that may have come `since`.
    fn meter(since: Duration, ended: Duration) -> (GapMeter, Arc<LongestGaps>) {
        let longest = Arc::new(LongestGaps::new());
        let mut meter = GapMeter::start(Arc::clone(&longest));
        let now = Instant::now();
        (meter.since, meter.ended) = (now - since, now - ended);
        (meter, longest)
    }

    #[test]
    fn a_gap_begins_with_the_last_poll_that_left_nothing() {
        let (mut meter, longest) = meter(5 * MS, 2 * MS);
        meter.polled(0, Received::Idle, true);
        assert_eq!(longest.open(0), 0, "no packet was late");
        // A packet that came just after the begin of the poll, 2 ms ago.
        meter.polled(0, Received::Frames, false);
        let first = longest.open(0);
        assert!(first >= 2_000_000, "{first}");
        // Packets that were left behind have waited as long.
        meter.polled(1, Received::Frames, true);
        let second = longest.open(1);
        assert!(second >= first, "{second}");
        assert_eq!((longest.take(0), longest.take(0)), (first, 0));
        meter.polled(1, Received::Frames, true);
        assert_eq!(longest.take(1), second, "the longest");
    }

    #[test]
    fn packets_that_waited_for_the_worker_to_start_are_late() {
        let longest =
            Arc::new(LongestGaps { since: Instant::now() - 15 * MS, ..LongestGaps::new() });
        let mut meter = GapMeter::start(Arc::clone(&longest));
        meter.polled(0, Received::Frames, true);
        assert!(longest.open(0) >= 15_000_000, "{longest:?}");
    }

    #[test]
    fn a_wait_counts_only_if_packets_do_not_end_it() {
        for (delayed, most, gap) in [
            // The millisecond before the wait remains.
            (Duration::ZERO, 100 * MS, MS),
            (2 * MS, 100 * MS, 3 * MS),
            // It should have ended after five of the 30 milliseconds: the process was stopped.
            (2 * MS, 5 * MS, 26 * MS),
            // At most since the last poll that left nothing.
            (50 * MS, 5 * MS, 31 * MS),
        ] {
            let (mut meter, _) = meter(4 * MS, 3 * MS);
            let now = meter.ended + 30 * MS;
            meter.woken(now, delayed, most);
            assert_eq!(now - meter.since, gap, "{delayed:?} {most:?}");
        }
        let (mut blind, _) = meter(4 * MS, 3 * MS);
        let since = blind.since;
        blind.waited(false, 100 * MS);
        assert_eq!(blind.since, since);
    }

    #[test]
    fn a_window_has_the_gaps_of_the_windows_that_its_delays_reach() {
        let mut history = GapHistory::default();
        assert_eq!(history.reaching(7, 1_000), 7);
        for (end, gap) in [(1_000, 50), (2_000, 20), (3_000, 10)] {
            history.close(end, gap);
        }
        assert_eq!(history.reaching(7, 0), 10, "a request just before the end of the last window");
        assert_eq!(history.reaching(30, 999), 30);
        assert_eq!(history.reaching(7, 1_000), 20);
        assert_eq!(history.reaching(7, 2_000), 50);
        (0..REMEMBERED as u64).for_each(|window| history.close(4_000 + window, 1));
        assert_eq!(history.reaching(0, 100), 1);
        assert_eq!(history.reaching(0, 10_000), 50, "windows that are not remembered one by one");
    }
}
