//! Time coverage of a place: missing time, and time counted by two runs.

use super::RowHeader;

/// Maximum difference between clocks: shorter gaps and overlaps do not count, nor do those of less
/// than half a window.
const MAX_CLOCK_DIFFERENCE_NS: u64 = 1_000_000_000;

/// Coverage of a place by its windows, which are added in order of time. Sums saturate.
pub(super) struct Coverage {
    begin: u64,
    reached: u64,
    /// Number of the run that counted the last window.
    run: u32,
    /// Number of the last window in that run.
    window: u64,
    /// Tolerance of the last window.
    tolerance: u64,
    missing: u64,
    doubled: u64,
}

impl Coverage {
    /// Returns the coverage by a row of the run with this number.
    pub(super) fn new(first: &RowHeader, run: u32) -> Self {
        Coverage {
            begin: first.begin,
            reached: first.end,
            run,
            window: first.windows.1,
            tolerance: tolerance(first),
            missing: 0,
            doubled: 0,
        }
    }

    pub(super) fn add(&mut self, row: &RowHeader, run: u32) {
        let is_next = run == self.run
            && row.windows.0 == self.window.saturating_add(row.silent).saturating_add(1);
        let gap = row.begin.saturating_sub(self.reached);
        let tolerance = tolerance(row);
        if !is_next && gap >= tolerance {
            self.missing = self.missing.saturating_add(gap);
        }
        let again = self.reached.min(row.end).saturating_sub(row.begin);
        if run != self.run && again >= tolerance {
            self.doubled = self.doubled.saturating_add(again);
        }
        self.reached = self.reached.max(row.end);
        (self.run, self.window, self.tolerance) = (run, row.windows.1, tolerance);
    }

    /// Returns the missing and the doubly counted nanoseconds of a range.
    pub(super) fn missing_and_doubled(&self, (begin, end): (u64, u64)) -> (u64, u64) {
        let ends = [self.begin.saturating_sub(begin), end.saturating_sub(self.reached)];
        let ends = ends.into_iter().filter(|gap| *gap >= self.tolerance);
        (ends.fold(self.missing, u64::saturating_add), self.doubled)
    }
}

/// Returns the length from which on a gap or overlap of a row's window counts.
fn tolerance(row: &RowHeader) -> u64 {
    let length = row.scheduled.1.saturating_sub(row.scheduled.0);
    MAX_CLOCK_DIFFERENCE_NS.min(length / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::union::tests::at;

    const MS: u64 = 1_000_000;

    /// Returns the header of a row of one window.
    fn header(begin: u64, end: u64, length: u64, window: u64, silent: u64) -> RowHeader {
        let header = RowHeader::parse(&at("a", window)).unwrap();
        RowHeader { begin, end, scheduled: (0, length), silent, ..header }
    }

    fn covered(length: u64, windows: &[(u32, u64)]) -> (u64, u64) {
        let row = |window| header(window * length, (window + 1) * length, length, window, 0);
        let (run, window) = windows[0];
        let mut coverage = Coverage::new(&row(window), run);
        windows[1..].iter().for_each(|(run, window)| coverage.add(&row(*window), *run));
        coverage.missing_and_doubled((0, 10 * length))
    }

    #[test]
    fn short_windows_are_missed_and_counted_twice_as_long_ones_are() {
        for length in [1, 100 * MS, 500 * MS, 900 * MS, 1000 * MS, 60_000 * MS] {
            let all: Vec<_> = (0..10).map(|window| (0, window)).collect();
            assert_eq!(covered(length, &all), (0, 0), "{length}");
            let some: Vec<_> =
                all.iter().copied().filter(|(_, window)| ![3, 4, 9].contains(window)).collect();
            assert_eq!(covered(length, &some), (3 * length, 0), "{length}");
            let twice: Vec<_> = (0..10).flat_map(|window| [(0, window), (1, window)]).collect();
            assert_eq!(covered(length, &twice), (0, 10 * length), "{length}");
        }
    }

    #[test]
    fn clocks_and_silence_leave_no_gap() {
        let row = |begin, end, window, silent| header(begin, end, 1000 * MS, window, silent);
        let mut coverage = Coverage::new(&row(0, 1000 * MS, 0, 0), 0);
        coverage.add(&row(1400 * MS, 2000 * MS, 5, 0), 0);
        coverage.add(&row(9000 * MS, 10_000 * MS, 13, 7), 0);
        assert_eq!(coverage.missing_and_doubled((0, 10_000 * MS)), (0, 0));
        coverage.add(&row(12_000 * MS, 13_000 * MS, 16, 1), 0);
        assert_eq!(coverage.missing_and_doubled((0, 13_000 * MS)), (2000 * MS, 0));
    }
}
