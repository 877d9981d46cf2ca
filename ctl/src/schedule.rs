//! The schedule of a run: samples at Poisson times inside windows of fixed length.
//!
//! Samples form a Poisson process so that they see time averages (PASTA; W-HLL thesis §2.4). Each
//! arrival is drawn from the *scheduled* one before it: the thesis re-arms after a sample has
//! finished, which yields 1,654 samples instead of 2,640. Windows end at exact multiples of their
//! length; re-arming relatively, as the thesis does, lets them drift. [Aligned](Intervals::align)
//! windows end at multiples since the Unix epoch, so that those of several machines coincide.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, OpenClosed01};
use std::time::Duration;

use crate::clock::nanoseconds;

/// Scheduled action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take a sample.
    Read,
    /// Close the window with this number.
    Rotate {
        /// Number of the window, counted from zero at the start.
        window: u64,
    },
    /// End the run.
    Stop,
}

/// An action with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledAction {
    /// The time, in nanoseconds.
    pub at: u64,
    /// The action.
    pub action: Action,
}

/// Settings of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// Length of a window; `None` without windows.
    pub window: Option<Duration>,
    /// Mean time between samples; `None` without samples.
    pub sample_every: Option<Duration>,
    /// Length of the run; `None` if it is unlimited.
    pub duration: Option<Duration>,
    /// Whether windows end at multiples of their length since the Unix epoch, which shortens the
    /// first one. Otherwise the first one begins at the start.
    pub align: bool,
}

/// Samples that are skipped one by one before the number of the others is drawn.
const STEPS: u64 = 1000;

/// Samples that were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedSamples {
    /// Their number, at least one.
    pub number: u64,
    /// Scheduled time of the first, in nanoseconds.
    pub first: u64,
    /// Scheduled time of the last, in nanoseconds.
    pub last: u64,
}

/// Sequence of scheduled actions. At equal times a sample comes first, then a rotation, then the
/// end.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Scheduled begin of the window with number `first`.
    start: u64,
    first: u64,
    align: bool,
    window_ns: Option<u64>,
    window: u64,
    reads: Option<Poisson>,
    stop: Option<u64>,
    /// Start of the run.
    begun: u64,
}

impl Schedule {
    /// Creates a schedule that starts at `start` nanoseconds. Sample times depend only on `start`,
    /// the mean and the seed.
    #[must_use]
    pub fn new(start: u64, intervals: Intervals, seed: u64) -> Self {
        let window_ns = intervals.window.map(nanoseconds);
        Schedule {
            start: if intervals.align { aligned(start, window_ns) } else { start },
            first: 0,
            align: intervals.align,
            window_ns,
            window: 0,
            reads: intervals.sample_every.map(|mean| Poisson::new(start, mean, seed)),
            stop: stop(start, intervals),
            begun: start,
        }
    }

    /// Returns the next action; `None` without windows, samples and end, and beyond the range of 64
    /// bits of nanoseconds.
    #[must_use]
    pub fn peek(&self) -> Option<ScheduledAction> {
        let read = self.reads.as_ref().map(|reads| (reads.next, Action::Read));
        let rotate = self.window_end().map(|at| (at, Action::Rotate { window: self.window }));
        let stop = self.stop.map(|at| (at, Action::Stop));
        // `min_by_key` returns the first of equals. Times saturate at the end of the range, where
        // an action would be due forever.
        let due = [read, rotate, stop].into_iter().flatten().filter(|(at, _)| *at < u64::MAX);
        due.min_by_key(|(at, _)| *at).map(|(at, action)| ScheduledAction { at, action })
    }

    /// Advances past the next action.
    pub fn pop(&mut self) {
        match self.peek().map(|due| due.action) {
            Some(Action::Read) => self.reads.iter_mut().for_each(Poisson::step),
            Some(Action::Rotate { .. }) => self.window += 1,
            Some(Action::Stop) => self.stop = None,
            None => {}
        }
    }

    /// Returns the start of the current window, in nanoseconds.
    #[must_use]
    pub fn window_start(&self) -> u64 {
        self.start.saturating_add(
            self.window_ns.unwrap_or(0).saturating_mul(self.window.saturating_sub(self.first)),
        )
    }

    /// Returns the scheduled start of the current window and the end of the one `over` windows
    /// later, in nanoseconds; `None` without windows.
    #[must_use]
    pub fn slots(&self, over: u64) -> Option<(u64, u64)> {
        let length = self.window_ns?.saturating_mul(over.saturating_add(1));
        let start = self.window_start();
        Some((start, start.saturating_add(length)))
    }

    /// Follows a clock that was set to `now`, which is `by` nanoseconds later (or earlier) than it
    /// would have been: the open window is over, and the next one follows the new time.
    pub fn step(&mut self, now: u64, by: i64) {
        self.window += 1;
        self.first = self.window;
        self.start = if self.align { aligned(now, self.window_ns) } else { now };
        self.stop = self.stop.map(|stop| stop.saturating_add_signed(by));
        self.begun = self.begun.saturating_add_signed(by);
        if let Some(reads) = &mut self.reads {
            // The process has no memory: it restarts here.
            reads.next = now;
            reads.step();
        }
    }

    /// Changes the intervals at `now`, where a window begins. Window numbers continue, and windows
    /// of the same length keep their boundaries. The length of the run still counts from its start.
    pub fn change(&mut self, now: u64, intervals: Intervals, seed: u64) {
        let window_ns = intervals.window.map(nanoseconds);
        if (window_ns, intervals.align) != (self.window_ns, self.align) {
            self.first = self.window;
            (self.window_ns, self.align) = (window_ns, intervals.align);
            self.start = if self.align { aligned(now, window_ns) } else { now };
        }
        let mean_ns = intervals.sample_every.map(|mean| nanoseconds(mean) as f64);
        if self.reads.as_ref().map(|reads| reads.mean_ns) != mean_ns {
            self.reads = intervals.sample_every.map(|mean| Poisson::new(now, mean, seed));
        }
        self.stop = stop(self.begun, intervals);
    }

    /// Returns the number of the current window.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window
    }

    fn window_end(&self) -> Option<u64> {
        // Multiplied rather than accumulated, so that errors do not add up.
        let number = self.window.saturating_sub(self.first).saturating_add(1);
        self.window_ns.map(|length| self.start.saturating_add(length.saturating_mul(number)))
    }

    /// Returns the number of windows that end between now and `time`, if no packet arrives.
    #[must_use]
    pub fn windows_until(&self, time: u64) -> u64 {
        match (self.window_ns, self.window_end()) {
            (Some(length), Some(end)) if time >= end => (time - end) / length.max(1) + 1,
            _ => 0,
        }
    }

    /// Returns the end of the run.
    #[must_use]
    pub fn stop(&self) -> Option<u64> {
        self.stop
    }

    /// Skips the samples up to `time`, in bounded time. Returns those skipped; `None` if there are
    /// none.
    pub fn skip_reads(&mut self, time: u64) -> Option<SkippedSamples> {
        let reads = self.reads.as_mut()?;
        let first = reads.next;
        let (mut number, mut last) = (0_u64, first);
        // A short silence, the usual case, leaves the sequence of samples unchanged.
        while number < STEPS && reads.next <= time {
            last = reads.next;
            number += 1;
            reads.step();
        }
        if reads.next <= time {
            let (others, last_of_others) = reads.skip(time);
            number = number.saturating_add(others);
            last = last_of_others;
        }
        (number > 0).then_some(SkippedSamples { number, first, last })
    }

    /// Skips all actions before the window that contains `time`, or before `time` without windows.
    /// Returns the samples skipped.
    pub fn skip_to(&mut self, time: u64) -> Option<SkippedSamples> {
        self.window += self.windows_until(time);
        let start = if self.window_ns.is_some() { self.window_start() } else { time };
        self.skip_reads(start)
    }
}

fn stop(begun: u64, intervals: Intervals) -> Option<u64> {
    intervals.duration.map(|duration| begun.saturating_add(nanoseconds(duration)))
}

/// Rounds down to a multiple of the window length.
fn aligned(time: u64, window_ns: Option<u64>) -> u64 {
    window_ns.map_or(time, |length| time.wrapping_sub(time.checked_rem(length).unwrap_or(0)))
}

/// Poisson process of sample times.
#[derive(Clone, Debug)]
struct Poisson {
    mean_ns: f64,
    next: u64,
    random: ChaCha8Rng,
}

impl Poisson {
    fn new(start: u64, mean: Duration, seed: u64) -> Self {
        let mut process = Poisson {
            mean_ns: nanoseconds(mean) as f64,
            next: start,
            random: ChaCha8Rng::seed_from_u64(seed),
        };
        process.step();
        process
    }

    fn step(&mut self) {
        let interval: f64 = Exp1.sample(&mut self.random);
        self.next = self.next.saturating_add((interval * self.mean_ns).round() as u64);
    }

    /// Skips the next sample and the others up to `time`. Returns their number and the time of the
    /// last. Draws the number, since a silence may have any length.
    fn skip(&mut self, time: u64) -> (u64, u64) {
        let first = self.next;
        let span_ns = time.saturating_sub(first) as f64;
        let others: f64 = rand_distr::Poisson::new(span_ns / self.mean_ns)
            .map_or(0.0, |number| number.sample(&mut self.random));
        // Samples of a known number are uniform in time, and the last is the largest of them.
        let last = if others > 0.0 {
            let uniform: f64 = OpenClosed01.sample(&mut self.random);
            let after_ns = span_ns * uniform.powf(others.recip());
            first.saturating_add(after_ns.round() as u64).min(time)
        } else {
            first
        };
        // The process has no memory: it may restart here.
        self.next = time;
        self.step();
        ((others as u64).saturating_add(1), last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(window_ms: u64, read_ms: u64) -> Intervals {
        let time = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        Intervals {
            window: time(window_ms),
            sample_every: time(read_ms),
            duration: None,
            align: false,
        }
    }

    fn dues(schedule: &mut Schedule) -> impl Iterator<Item = ScheduledAction> {
        std::iter::from_fn(|| {
            let due = schedule.peek();
            schedule.pop();
            due
        })
    }

    #[test]
    fn rotations_stand_at_exact_multiples_over_100_000_windows() {
        // A length without an exact binary fraction, and frequent samples.
        let intervals =
            Intervals { window: Some(Duration::from_nanos(333_333_333)), ..intervals(0, 100) };
        let start = 1_700_000_000_123_456_789;
        let mut schedule = Schedule::new(start, intervals, 5);
        let rotations: Vec<ScheduledAction> =
            dues(&mut schedule).filter(|due| due.action != Action::Read).take(100_000).collect();
        for (k, due) in rotations.iter().enumerate() {
            assert_eq!(due.action, Action::Rotate { window: k as u64 });
            assert_eq!(due.at, start + (k as u64 + 1) * 333_333_333);
        }
    }

    #[test]
    fn aligned_windows_of_schedules_that_start_at_different_times_coincide() {
        let ends = |start: u64, window_ns: u64| {
            let window = Some(Duration::from_nanos(window_ns));
            let schedule =
                Schedule::new(start, Intervals { window, align: true, ..Intervals::default() }, 1);
            (
                schedule.window_start(),
                dues(&mut { schedule }).take(1000).map(|due| due.at).collect::<Vec<_>>(),
            )
        };
        for length in [1, 333_333_333, 60_000_000_000, 3_600_000_000_000] {
            let start = 1_800_000_000_123_456_789;
            let (begin, one) = ends(start, length);
            let (_, other) = ends(start + 7 * length / 3, length);
            assert!(begin <= start && one[0] > start && one[0] - begin == length);
            assert!(one.iter().all(|end| end.is_multiple_of(length)));
            let common = one.iter().filter(|end| other.contains(end)).count();
            assert!(common >= 997, "{common}");
        }
    }

    #[test]
    fn a_step_of_the_clock_ends_a_window_and_those_after_it_are_aligned_anew() {
        let second = 1_000_000_000;
        for by in [3600, -3600, 1, -1].map(|seconds: i64| seconds * second as i64) {
            let start = 1_800_000_000 * second + 300;
            let duration = Some(Duration::from_secs(30));
            let mut schedule = Schedule::new(
                start,
                Intervals { duration, align: true, ..intervals(10_000, 1000) },
                1,
            );
            assert_eq!((schedule.window(), schedule.window_start()), (0, start - 300));
            let now = (start + 4 * second).saturating_add_signed(by);
            schedule.step(now, by);
            assert_eq!(
                (schedule.window(), schedule.window_start()),
                (1, now - now % (10 * second))
            );
            let stop = (start + 30 * second).saturating_add_signed(by);
            let rest: Vec<ScheduledAction> =
                dues(&mut schedule).take_while(|due| due.action != Action::Stop).collect();
            assert!(rest.iter().all(|due| due.at > now && due.at <= stop), "{rest:?}");
            let rotations: Vec<u64> = rest
                .iter()
                .filter(|due| due.action != Action::Read)
                .map(|due| due.at % (10 * second))
                .collect();
            assert!(rotations.len() >= 2 && rotations.iter().all(|end| *end == 0), "{rotations:?}");
        }
    }

    #[test]
    fn other_intervals_go_on_where_those_before_ended() {
        let second = 1_000_000_000;
        let long = Intervals {
            duration: Some(Duration::from_secs(100)),
            align: true,
            ..intervals(10_000, 0)
        };
        let mut schedule = Schedule::new(3 * second, long, 1);
        assert_eq!(
            schedule.peek(),
            Some(ScheduledAction { at: 10 * second, action: Action::Rotate { window: 0 } })
        );
        schedule.pop();
        let short = Intervals {
            duration: Some(Duration::from_secs(40)),
            ..Intervals { window: Some(Duration::from_secs(4)), ..long }
        };
        schedule.change(10 * second, short, 1);
        // The first window is short: it ends at a multiple of the new length.
        assert_eq!((schedule.window(), schedule.window_start()), (1, 8 * second));
        let rest: Vec<(u64, Action)> =
            dues(&mut schedule).take(9).map(|due| (due.at / second, due.action)).collect();
        let windows =
            (12..).step_by(4).zip(1..).map(|(at, window)| (at, Action::Rotate { window }));
        assert_eq!(rest, windows.take(8).chain([(43, Action::Stop)]).collect::<Vec<_>>());
        // An identical change has no effect.
        let mut schedule = Schedule::new(3 * second, long, 1);
        schedule.pop();
        let before = schedule.peek();
        schedule.change(10 * second, long, 1);
        assert_eq!(schedule.peek(), before);
    }

    #[test]
    fn everything_comes_in_order_and_reads_before_rotations() {
        let mut schedule = Schedule::new(
            0,
            Intervals { duration: Some(Duration::from_secs(2)), ..intervals(1000, 0) },
            1,
        );
        schedule.reads = Some(Poisson {
            mean_ns: 0.0,
            next: 1_000_000_000,
            random: ChaCha8Rng::seed_from_u64(1),
        });
        let first = schedule.peek();
        schedule.reads = None;
        let rest: Vec<Action> = dues(&mut schedule).take(3).map(|due| due.action).collect();
        assert_eq!(first.map(|due| due.action), Some(Action::Read));
        assert_eq!(
            rest,
            [Action::Rotate { window: 0 }, Action::Rotate { window: 1 }, Action::Stop]
        );
    }

    /// Kolmogorov-Smirnov statistic against the exponential distribution, times the root of the
    /// sample size.
    fn ks(mut intervals: Vec<f64>, mean: f64) -> f64 {
        intervals.sort_unstable_by(f64::total_cmp);
        let n = intervals.len() as f64;
        let distance = intervals.iter().enumerate().fold(0.0_f64, |worst, (i, x)| {
            let cdf = 1.0 - (-x / mean).exp();
            worst.max((cdf - i as f64 / n).abs()).max(((i + 1) as f64 / n - cdf).abs())
        });
        distance * n.sqrt()
    }

    const KS_1_PERCENT: f64 = 1.628;

    #[test]
    fn reads_are_a_poisson_process() {
        for seed in 0..5 {
            let mut schedule = Schedule::new(77, intervals(5000, 500), seed);
            let reads: Vec<u64> = dues(&mut schedule)
                .filter(|due| due.action == Action::Read)
                .take(20_000)
                .map(|due| due.at)
                .collect();
            let gaps: Vec<f64> = reads.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
            let statistic = ks(gaps, 5e8);
            assert!(statistic < KS_1_PERCENT, "seed {seed}: {statistic}");
        }
        // The test must be able to fail: re-arming after reads of half the mean interval is what
        // the thesis does.
        let mut schedule = Schedule::new(0, intervals(0, 500), 1);
        let reads: Vec<u64> = dues(&mut schedule).take(20_000).map(|due| due.at).collect();
        let rearmed: Vec<f64> =
            reads.windows(2).map(|pair| (pair[1] - pair[0]) as f64 + 2.5e8).collect();
        assert!(ks(rearmed, 7.5e8) > KS_1_PERCENT);
    }

    #[test]
    fn long_silence_is_skipped_in_one_step() {
        let mut schedule = Schedule::new(0, intervals(10_000, 1000), 3);
        let year = 365 * 86_400 * 1_000_000_000_u64;
        let skipped = schedule.windows_until(year);
        schedule.skip_to(year);
        assert_eq!((skipped, schedule.window()), (3_153_600, 3_153_600));
        assert_eq!(schedule.window_start(), year);
        assert!(
            dues(&mut schedule)
                .take(20)
                .all(|due| due.at >= year && due.at < year + 40_000_000_000)
        );
    }

    #[test]
    fn without_windows_a_silence_leaves_out_reads() {
        let mut schedule = Schedule::new(0, intervals(0, 1000), 3);
        let year = 365 * 86_400 * 1_000_000_000_u64;
        assert_eq!(schedule.windows_until(year), 0);
        let skipped = schedule.skip_reads(year).unwrap();
        assert!(
            dues(&mut schedule).take(20).all(|due| due.at > year && due.at < year + 60_000_000_000)
        );
        // One a second: the number varies by the root of 31.5 million.
        assert!(skipped.number.abs_diff(31_536_000) < 4 * 5616, "{skipped:?}");
        assert!(skipped.first < 60_000_000_000 && skipped.last <= year, "{skipped:?}");
        assert!(year - skipped.last < 60_000_000_000, "{skipped:?}");
        let mut again = Schedule::new(0, intervals(0, 1000), 3);
        assert_eq!(again.skip_reads(year), Some(skipped), "the seed decides");
    }

    #[test]
    fn the_number_of_samples_in_a_long_silence_has_the_distribution_of_the_process() {
        // A mean of 2,000; the first 1,000 are counted one by one.
        let time = 2_000_000_000_000;
        let skipped: Vec<SkippedSamples> = (0..1000)
            .map(|seed| Schedule::new(0, intervals(0, 1000), seed).skip_reads(time).unwrap())
            .collect();
        let of = |value: &dyn Fn(&SkippedSamples) -> f64| {
            let values: Vec<f64> = skipped.iter().map(value).collect();
            let mean = values.iter().sum::<f64>() / 1000.0;
            let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            (mean, squares / 999.0)
        };
        // Four standard errors: of the mean, and of a variance, whose relative error is the root
        // of two thousandths.
        let (mean, variance) = of(&|it| it.number as f64);
        assert!((mean - 2000.0).abs() < 4.0 * (2000.0_f64 / 1000.0).sqrt(), "{mean}");
        assert!((variance / 2000.0 - 1.0).abs() < 4.0 * 0.002_f64.sqrt(), "{variance}");
        // The time since the last sample is exponential, as that to the next.
        let (since, _) = of(&|it| (time - it.last) as f64 / 1e9);
        assert!((since - 1.0).abs() < 4.0 / 1000.0_f64.sqrt(), "{since}");
    }

    #[test]
    fn a_short_silence_leaves_the_other_reads_where_they_are() {
        let [mut whole, mut skipping] = [(); 2].map(|()| Schedule::new(0, intervals(0, 1000), 3));
        let minute = 60_000_000_000;
        let skipped = skipping.skip_reads(minute).unwrap();
        let before: Vec<u64> =
            dues(&mut whole.clone()).map(|due| due.at).take_while(|at| *at <= minute).collect();
        assert_eq!(
            (skipped.number, Some(&skipped.first), Some(&skipped.last)),
            (before.len() as u64, before.first(), before.last())
        );
        assert_eq!(skipping.skip_reads(minute), None);
        let rest = dues(&mut whole).filter(|due| due.at > minute).take(50);
        assert!(rest.eq(dues(&mut skipping).take(50)));
    }

    #[test]
    fn nothing_is_due_at_the_end_of_the_clock() {
        let start = u64::MAX - 25_000_000_000;
        let mut schedule = Schedule::new(
            start,
            Intervals { duration: Some(Duration::MAX), ..intervals(10_000, 1000) },
            3,
        );
        let dues: Vec<ScheduledAction> = dues(&mut schedule).take(1000).collect();
        let windows =
            dues.iter().filter(|due| due.action != Action::Read).map(|due| due.at - start);
        assert_eq!(windows.collect::<Vec<_>>(), [10_000_000_000, 20_000_000_000]);
        assert!(dues.len() < 100, "{} are due in 25 s", dues.len());
    }
}
