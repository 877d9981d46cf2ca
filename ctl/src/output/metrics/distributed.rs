//! Distributions of all windows so far.

use super::native::Native;
use crate::figure::{Distribution, Range};

/// How many values there were since the run began.
#[derive(Clone, Default)]
pub(crate) struct Distributed {
    ranges: Vec<Range>,
    pub(crate) sum: f64,
    pub(super) native: Native,
}

impl Distributed {
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

    /// Upper bounds, and how many values are not above them: rounded all together, so that ranges
    /// make up the whole.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        self.ranges.iter().scan(0.0, |all, range| {
            *all += range.count;
            Some((range.high, *all as u64))
        })
    }

    /// How many values there were.
    pub(crate) fn count(&self) -> u64 {
        self.cumulative().last().map_or(0, |(_, count)| count)
    }
}
