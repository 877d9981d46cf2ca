//! Time coverage of a place: missing time, and time counted by two runs.

/// Maximum difference between clocks: shorter gaps and overlaps do not count, nor do those of less
/// than half a window.
const MAX_CLOCK_DIFFERENCE_NS: u64 = 1_000_000_000;

/// Time of one window at a place.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Scheduled length, in nanoseconds.
    pub(super) length: u64,
    /// Number of the run that counted it.
    pub(super) run: u32,
    /// Numbers of its first and last window in the run.
    pub(super) windows: (u64, u64),
    /// Number of windows without packets, and without rows, just before it.
    pub(super) silent: u64,
}

impl Span {
    fn tolerance(&self) -> u64 {
        MAX_CLOCK_DIFFERENCE_NS.min(self.length / 2).max(1)
    }
}

/// Coverage of a place by its windows, which are added in order of time. Sums saturate.
pub(super) struct Coverage {
    begin: u64,
    reached: u64,
    last: Span,
    missing: u64,
    doubled: u64,
}

impl Coverage {
    pub(super) fn new(first: Span) -> Self {
        Coverage { begin: first.begin, reached: first.end, last: first, missing: 0, doubled: 0 }
    }

    pub(super) fn add(&mut self, span: Span) {
        let is_next = span.run == self.last.run
            && span.windows.0 == self.last.windows.1.saturating_add(span.silent).saturating_add(1);
        let gap = span.begin.saturating_sub(self.reached);
        if !is_next && gap >= span.tolerance() {
            self.missing = self.missing.saturating_add(gap);
        }
        let again = self.reached.min(span.end).saturating_sub(span.begin);
        if span.run != self.last.run && again >= span.tolerance() {
            self.doubled = self.doubled.saturating_add(again);
        }
        self.reached = self.reached.max(span.end);
        self.last = span;
    }

    /// Returns the missing and the doubly counted nanoseconds of a range.
    pub(super) fn missing_and_doubled(&self, (begin, end): (u64, u64)) -> (u64, u64) {
        let tolerance = self.last.tolerance();
        let ends = [self.begin.saturating_sub(begin), end.saturating_sub(self.reached)];
        let ends = ends.into_iter().filter(|gap| *gap >= tolerance);
        (ends.fold(self.missing, u64::saturating_add), self.doubled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn covered(length: u64, spans: &[(u32, u64)]) -> (u64, u64) {
        let span = |(run, window): &(u32, u64)| {
            let begin = window * length;
            Span {
                begin,
                end: begin + length,
                length,
                run: *run,
                windows: (*window, *window),
                silent: 0,
            }
        };
        let mut coverage = Coverage::new(span(&spans[0]));
        spans[1..].iter().for_each(|it| coverage.add(span(it)));
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
        let span = |begin, end, windows, silent| Span {
            begin,
            end,
            length: 1000 * MS,
            run: 0,
            windows: (windows, windows),
            silent,
        };
        let mut coverage = Coverage::new(span(0, 1000 * MS, 0, 0));
        coverage.add(span(1400 * MS, 2000 * MS, 5, 0));
        coverage.add(span(9000 * MS, 10_000 * MS, 13, 7));
        assert_eq!(coverage.missing_and_doubled((0, 10_000 * MS)), (0, 0));
        coverage.add(span(12_000 * MS, 13_000 * MS, 16, 1));
        assert_eq!(coverage.missing_and_doubled((0, 13_000 * MS)), (2000 * MS, 0));
    }
}
