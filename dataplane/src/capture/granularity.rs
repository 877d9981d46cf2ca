//! The step of a capture's clock, as timestamps show it.
//!
//! A file says in which unit its timestamps are, and the clock behind them may be coarser: that of
//! a virtual machine in steps of 10 ms, written in nanoseconds. All timestamps of such a clock are
//! whole steps apart, so the step divides the greatest common divisor of their differences.

/// Power of ten of captures, of which one with a finer clock shows the same step by chance, where a
/// step is certain.
const EVIDENCE: f64 = 6.0;

/// Greatest common divisor of the differences between timestamps, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granularity {
    last: Option<u64>,
    /// The difference before: the same one again, as between packets at a constant rate, shows
    /// nothing new.
    difference: u64,
    divisor: u64,
    differences: u32,
}

impl Granularity {
    /// Takes a timestamp, in nanoseconds.
    pub fn add(&mut self, timestamp: u64) {
        let difference = self.last.replace(timestamp).map_or(0, |last| timestamp.abs_diff(last));
        if difference == 0 || difference == self.difference {
            return;
        }
        self.difference = difference;
        self.differences = self.differences.saturating_add(1);
        // With a divisor of 1, the most frequent one, there is nothing left to find.
        if self.divisor != 1 && (self.divisor == 0 || !difference.is_multiple_of(self.divisor)) {
            self.divisor = greatest_common_divisor(difference, self.divisor);
        }
    }

    /// Returns the step in nanoseconds: that of the timestamps if it is certain, or the unit of the
    /// file.
    ///
    /// That `n` differences are multiples of `k` units by chance has a probability of `k^-n`, and
    /// of a `k` or more one of about `k^(1-n)`.
    #[must_use]
    pub fn step_ns(&self, unit_ns: u64) -> u64 {
        let unit_ns = unit_ns.max(1);
        let evidence = (self.divisor as f64 / unit_ns as f64).log10()
            * f64::from(self.differences.saturating_sub(1));
        if evidence >= EVIDENCE { self.divisor } else { unit_ns }
    }
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(timestamps: impl IntoIterator<Item = u64>, unit_ns: u64) -> u64 {
        let mut granularity = Granularity::default();
        timestamps.into_iter().for_each(|timestamp| granularity.add(timestamp));
        granularity.step_ns(unit_ns)
    }

    /// Timestamps with irregular gaps, in steps from an origin that is no multiple of them.
    fn coarse(step: u64, packets: u64) -> impl Iterator<Item = u64> {
        (0..packets)
            .map(move |packet| 1_700_000_000_000_000_007 + (packet + packet * packet % 7) * step)
    }

    #[test]
    fn a_coarse_clock_shows_its_step() {
        for clock in [64, 1000, 4_000_000, 10_000_000, 15_625_000] {
            assert_eq!(step(coarse(clock, 100), 1), clock);
            // Ten packets within a step, in no order.
            let busy = coarse(clock, 100).flat_map(|at| [at; 10]).chain(coarse(clock, 50));
            assert_eq!(step(busy, 1), clock);
        }
    }

    #[test]
    fn a_fine_clock_has_the_unit_of_the_file() {
        assert_eq!(step(coarse(1000, 100), 1000), 1000);
        assert_eq!(step(coarse(10_000_000, 100).chain([1_700_000_000_000_000_008]), 1), 1);
        // A unit of 2^-20 s shows as whole nanoseconds.
        assert_eq!(
            step((0..100).map(|ticks: u64| (ticks * ticks * 1_000_000_000) >> 20), 954),
            954
        );
    }

    #[test]
    fn a_step_is_not_taken_for_true_without_evidence() {
        assert_eq!(step([], 1000), 1000);
        assert_eq!(step([5_000_000], 1000), 1000);
        // One round trip of 30 ms, in a file of microseconds.
        assert_eq!(step([5_000_000, 35_000_000], 1000), 1000);
        // Packets at a constant rate.
        assert_eq!(step((0..1000).map(|packet| packet * 10_000_000), 1), 1);
        // A small step takes more than a large one.
        assert_eq!([10, 40].map(|packets| step(coarse(2, packets), 1)), [1, 2]);
        assert_eq!(
            [2, 6].map(|packets| step(coarse(10_000_000, packets), 1000)),
            [1000, 10_000_000]
        );
    }
}
