//! Distributions accumulated over all windows.

use super::native::Native;
use crate::figure::{Distribution, Range};

/// Histogram of all values since the start of the run.
#[derive(Clone, Default)]
pub(crate) struct RunHistogram {
    ranges: Vec<Range>,
    pub(crate) sum: f64,
    pub(super) native: Native,
}

impl RunHistogram {
    /// Adds the values of a window.
    pub(super) fn add(&mut self, window: &Distribution) {
        self.native.add(window);
        self.sum += window.sum;
        if self.ranges.is_empty() {
            self.ranges.clone_from(&window.ranges);
        } else {
            self.ranges
                .iter_mut()
                .zip(&window.ranges)
                .for_each(|(all, range)| all.count += range.count);
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
