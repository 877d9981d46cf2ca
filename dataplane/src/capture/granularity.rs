//! Step of a capture's clock, derived from timestamps.
//!
//! A file specifies the unit of its timestamps, but the clock may be coarser: that of a virtual
//! machine in steps of 10 ms, written in nanoseconds. All timestamps of such a clock are whole
//! steps apart, so the step divides the greatest common divisor of their differences.

/// Required evidence for a step: one in ten to this power captures with a finer clock would show
/// the same step by chance.
const EVIDENCE: f64 = 6.0;

/// Greatest common divisor of the differences between consecutive timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granularity {
    last: Option<u64>,
    /// Previous difference: an equal one, as between packets at a constant rate, adds no evidence.
    difference: u64,
    divisor: u64,
    differences: u32,
}

impl Granularity {
    /// Adds a timestamp, in nanoseconds.
    pub fn add(&mut self, timestamp: u64) {
        let difference = self.last.replace(timestamp).map_or(0, |last| timestamp.abs_diff(last));
        if difference == 0 || difference == self.difference {
            return;
        }
        self.difference = difference;
        self.differences = self.differences.saturating_add(1);
        // With a divisor of 1, the most frequent one, the search is over.
        if self.divisor != 1 && (self.divisor == 0 || !difference.is_multiple_of(self.divisor)) {
            self.divisor = greatest_common_divisor(difference, self.divisor);
        }
    }

    /// Returns the step in nanoseconds: that of the timestamps if there is enough evidence,
    /// otherwise the unit of the file.
    ///
    /// The probability that `n` differences are multiples of `k` units by chance is `k^-n`, and of
    /// any `k` or larger about `k^(1-n)`.
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

    /// Generates timestamps with irregular gaps, in steps from an origin that is not a multiple of
    /// them.
    fn coarse(step: u64, packets: u64) -> impl Iterator<Item = u64> {
        (0..packets)
            .map(move |packet| 1_700_000_000_000_000_007 + (packet + packet * packet % 7) * step)
    }

    #[test]
    fn a_coarse_clock_shows_its_step() {
        for clock in [64, 1000, 4_000_000, 10_000_000, 15_625_000] {
            assert_eq!(step(coarse(clock, 100), 1), clock);
            // Ten packets within a step, out of order.
            let busy = coarse(clock, 100).flat_map(|at| [at; 10]).chain(coarse(clock, 50));
            assert_eq!(step(busy, 1), clock);
        }
    }

    #[test]
    fn a_fine_clock_has_the_unit_of_the_file() {
        assert_eq!(step(coarse(1000, 100), 1000), 1000);
        assert_eq!(step(coarse(10_000_000, 100).chain([1_700_000_000_000_000_008]), 1), 1);
        // A unit of 2^-20 s appears as whole nanoseconds.
        assert_eq!(
            step((0..100).map(|ticks: u64| (ticks * ticks * 1_000_000_000) >> 20), 954),
            954
        );
    }

    #[test]
    fn a_step_needs_evidence() {
        assert_eq!(step([], 1000), 1000);
        assert_eq!(step([5_000_000], 1000), 1000);
        // One round trip of 30 ms, in a file of microseconds.
        assert_eq!(step([5_000_000, 35_000_000], 1000), 1000);
        // Packets at a constant rate.
        assert_eq!(step((0..1000).map(|packet| packet * 10_000_000), 1), 1);
        // A small step needs more evidence than a large one.
        assert_eq!([10, 40].map(|packets| step(coarse(2, packets), 1)), [1, 2]);
        assert_eq!(
            [2, 6].map(|packets| step(coarse(10_000_000, packets), 1000)),
            [1000, 10_000_000]
        );
    }
}
