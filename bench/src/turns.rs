//! Programs that take turns in one run, so that their ratio is stable although times are not.
//!
//! The best of the rounds counts, since other activity on the machine can only slow a round down.
//! The difference between the best of every other round and the best of the rest is the noise of
//! the run.

use crate::findings::{Figure, Limit, RATIO};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::time::Duration;

/// Best time of one program for each half of the rounds, in nanoseconds per packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Best(pub(crate) [f64; 2]);

impl Best {
    /// No measurement yet.
    pub(crate) const NONE: Best = Best([f64::MAX; 2]);

    /// Adds the time of a round.
    pub(crate) fn add(&mut self, round: usize, nanoseconds: f64) {
        let Best([even, odd]) = self;
        let half = if round.is_multiple_of(2) { even } else { odd };
        *half = half.min(nanoseconds);
    }

    /// Returns the nanoseconds per packet.
    pub(crate) fn nanoseconds(self) -> f64 {
        let Best([even, odd]) = self;
        even.min(odd)
    }

    /// Returns the time with that of `part` replaced by that of `base`.
    pub(crate) fn with_instead(self, base: Best, part: Best) -> Best {
        let (Best([even, odd]), Best([base_even, base_odd]), Best([part_even, part_odd])) =
            (self, base, part);
        Best([even - part_even + base_even, odd - part_odd + base_odd])
    }

    /// Returns the ratio to `other` as a figure, whose noise is the difference between the ratios of
    /// the two halves of the rounds.
    pub(crate) fn figure(
        self,
        name: impl Into<String>,
        other: Best,
        limit: Option<Limit>,
    ) -> Figure {
        let (Best([even, odd]), Best([other_even, other_odd])) = (self, other);
        Figure {
            name: name.into(),
            value: self.nanoseconds() / other.nanoseconds(),
            unit: RATIO,
            noise: (even / other_even - odd / other_odd).abs(),
            nanoseconds: Some(self.nanoseconds()),
            limit,
        }
    }
}

/// Function that takes turns: runs once over its packets and returns their number.
pub(crate) type Contestant<'a> = Box<dyn FnMut() -> u64 + 'a>;

/// Runs the contestants in turns, on one CPU and by its time.
pub(crate) fn take_turns(rounds: usize, contestants: &mut [Contestant<'_>]) -> Vec<Best> {
    let mut best = vec![Best::NONE; contestants.len()];
    on_one_cpu(|| {
        for round in 0..rounds.max(2) {
            for (contestant, best) in contestants.iter_mut().zip(&mut best) {
                let start = thread_time();
                let packets = contestant();
                best.add(round, (thread_time() - start).as_nanos() as f64 / packets.max(1) as f64);
            }
        }
    });
    best
}

/// Returns the CPU time of this thread.
pub(crate) fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Returns the CPUs on which this thread may run.
pub(crate) fn usable_cpus() -> Vec<usize> {
    let usable = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|cpu| usable.is_set(*cpu).unwrap_or(false)).collect()
}

/// Pins this thread to CPUs. If that fails, figures are only less stable.
pub(crate) fn stay_on(cpus: &[usize]) {
    let mut only = CpuSet::new();
    let set = cpus.iter().try_for_each(|cpu| only.set(*cpu));
    let _ = set.and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
}

/// Keeps this thread on its CPU, whose caches stay warm.
pub(crate) fn on_one_cpu<T>(body: impl FnOnce() -> T) -> T {
    let before = usable_cpus();
    if let Some(last) = before.last() {
        stay_on(&[*last]);
    }
    let result = body();
    stay_on(&before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_round_counts_and_halves_tell_the_noise() {
        let (mut slow, mut quick) = (Best::NONE, Best::NONE);
        for (round, (one, other)) in
            [(9.0, 3.0), (6.0, 2.0), (8.0, 2.0), (7.0, 4.0)].into_iter().enumerate()
        {
            slow.add(round, one);
            quick.add(round, other);
        }
        assert_eq!((slow, quick), (Best([8.0, 6.0]), Best([2.0, 2.0])));
        let figure = slow.figure("slow", quick, None);
        assert_eq!((figure.value, figure.noise, figure.nanoseconds), (3.0, 1.0, Some(6.0)));
    }

    #[test]
    fn everyone_has_a_turn_in_every_round() {
        let (mut first, mut second) = (0, 0);
        let best = take_turns(
            4,
            &mut [
                Box::new(|| {
                    first += 1;
                    1
                }),
                Box::new(|| {
                    second += 1;
                    2
                }),
            ],
        );
        assert_eq!((first, second, best.len()), (4, 4, 2));
    }
}
