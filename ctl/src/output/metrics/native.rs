//! Distributions of a run, and native histograms of Prometheus: buckets that grow by a factor,
//! without empty ones.
//!
//! Bucket `i` ends at `2^(i / 16)`. All values of a range are counted in the bucket of the range's
//! middle: dividing them among buckets would be a guess, and after rounding, counts could decrease.

use super::proto::{BucketSpan, Histogram};
use crate::figure::{Distribution, Range};
use std::collections::BTreeMap;

/// Schema with `2^4` buckets per doubling, each 4.4 % wide. The next finer one, 2.2 %, has buckets
/// narrower than the ranges of delays, which are up to 3.1 % wide: some would always be empty.
const SCHEMA: i32 = 4;

/// Histogram of all values since the start of the run.
#[derive(Clone, Default)]
pub(crate) struct RunHistogram {
    ranges: Vec<Range>,
    pub(crate) sum: f64,
    /// Values up to this count as zero in native buckets.
    zero_threshold: f64,
    zero_count: u64,
    /// Numbers of larger values by native bucket.
    buckets: BTreeMap<i32, u64>,
}

impl RunHistogram {
    /// Adds the values of a window.
    pub(super) fn add(&mut self, window: &Distribution) {
        self.zero_threshold = window.zero_threshold;
        for range in &window.narrow {
            let middle = f64::midpoint(range.low, range.high);
            let count = if middle > self.zero_threshold {
                self.buckets.entry(bucket(middle)).or_default()
            } else {
                &mut self.zero_count
            };
            *count += range.count as u64;
        }
        self.sum += window.sum;
        if self.ranges.is_empty() {
            self.ranges.clone_from(&window.ranges);
        } else {
            let ranges = self.ranges.iter_mut().zip(&window.ranges);
            ranges.for_each(|(all, range)| all.count += range.count);
        }
    }

    /// Fills in the native fields of a histogram.
    pub(super) fn write_native(&self, histogram: &mut Histogram) {
        histogram.schema = Some(SCHEMA);
        histogram.zero_threshold = Some(self.zero_threshold);
        histogram.zero_count = Some(self.zero_count);
        let (mut next, mut before) = (0, 0);
        for (bucket, count) in &self.buckets {
            match histogram.positive_span.last_mut().filter(|_| *bucket == next) {
                Some(BucketSpan { length: Some(length), .. }) => *length += 1,
                _ => histogram
                    .positive_span
                    .push(BucketSpan { offset: Some(bucket - next), length: Some(1) }),
            }
            let count = *count as i64;
            histogram.positive_delta.push(count - before);
            (next, before) = (bucket + 1, count);
        }
        if histogram.positive_span.is_empty() {
            // Without a span, a histogram without a zero bucket and values would not be recognized
            // as native.
            histogram.positive_span.push(BucketSpan { offset: Some(0), length: Some(0) });
        }
    }

    /// Returns upper bounds with the numbers of values up to them. The running sum is rounded, so
    /// that the ranges add up to the total.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        self.ranges.iter().scan(0.0, |all, range| {
            *all += range.count;
            Some((range.high, *all as u64))
        })
    }

    /// Returns the number of values.
    pub(crate) fn count(&self) -> u64 {
        self.cumulative().last().map_or(0, |(_, count)| count)
    }
}

/// Returns the bucket of a positive value: the lower end is excluded, the upper end included.
fn bucket(value: f64) -> i32 {
    (value.log2() * f64::from(1 << SCHEMA)).ceil() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram_of(values: &RunHistogram) -> Histogram {
        let mut histogram = Histogram::default();
        values.write_native(&mut histogram);
        histogram
    }

    #[test]
    fn values_are_between_the_ends_of_their_buckets() {
        let end = |bucket: i32| 2_f64.powf(f64::from(bucket) / 16.0);
        for tenth in -3000..3000 {
            let value = 1.01_f64.powi(tenth);
            let bucket = bucket(value);
            assert!(end(bucket - 1) < value && value <= end(bucket), "{value} {bucket}");
        }
        // A bound belongs to the bucket that it ends.
        assert_eq!([0.25, 0.5, 1.0, 2.0, 64.0].map(bucket), [-32, -16, 0, 16, 96]);
    }

    #[test]
    fn gaps_begin_spans_and_counts_are_differences() {
        let range = |low, high, count| Range { low, high, count };
        let narrow = vec![
            range(0.0, 1.0, 7.0),
            range(1.0, 2.0, 5.0),
            range(2.0, 2.05, 1.0),
            range(2.05, 2.1, 2.0),
            range(64.0, 64.0, 3.0),
        ];
        let mut values = RunHistogram::default();
        let window = Distribution { ranges: Vec::new(), sum: 0.0, narrow, zero_threshold: 1.0 };
        values.add(&window);
        values.add(&window);
        let histogram = histogram_of(&values);
        assert_eq!(
            (histogram.schema, histogram.zero_threshold, histogram.zero_count),
            (Some(4), Some(1.0), Some(14))
        );
        // 1.5 is in the tenth bucket above 1, 2.025 and 2.075 in the 17th, 64 ends the 96th.
        let spans: Vec<_> =
            histogram.positive_span.iter().map(|span| (span.offset(), span.length())).collect();
        assert_eq!(
            (spans, histogram.positive_delta),
            (vec![(10, 1), (6, 1), (78, 1)], vec![10, -4, 0])
        );
        let mut adjacent = RunHistogram::default();
        adjacent.add(&Distribution {
            narrow: vec![range(2.02, 2.02, 1.0), range(2.1, 2.1, 4.0)],
            ..window
        });
        assert_eq!(
            histogram_of(&adjacent).positive_span,
            [BucketSpan { offset: Some(17), length: Some(2) }]
        );
        assert_eq!(histogram_of(&adjacent).positive_delta, [1, 3]);
    }

    #[test]
    fn what_has_no_values_is_native_all_the_same() {
        assert_eq!(
            histogram_of(&RunHistogram::default()).positive_span,
            [BucketSpan { offset: Some(0), length: Some(0) }]
        );
    }
}
