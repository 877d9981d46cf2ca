//! Exact percentiles of delays beside estimates.

use super::by_percentile;
use super::estimate::PERCENTILES;
use crate::field::{Datum, object};
use flowgauge_core::delay::LabelDelays;

/// Exact requests, answers and percentiles of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayTruth {
    /// Number of requests, including repeated ones.
    pub requests: u64,
    /// Number of requests that were answered.
    pub answers: u64,
    /// Percentiles of their delays, in nanoseconds; `None` without an answer.
    pub percentiles: Option<[u64; PERCENTILES.len()]>,
}

impl DelayTruth {
    /// Returns the sum over labels.
    pub(super) fn of<'a>(labels: impl Iterator<Item = &'a LabelDelays>) -> Self {
        let (mut requests, mut delays) = (0, Vec::new());
        for label in labels {
            requests += label.requests;
            delays.extend_from_slice(&label.delays);
        }
        delays.sort_unstable();
        let number = delays.len();
        // In integers: a product of fractions may be just above a whole number.
        let percentile = |(share, _): (f64, &str)| {
            let rank = ((share * 1000.0).round() as usize * number).div_ceil(1000);
            delays.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        let percentiles = (number > 0).then(|| PERCENTILES.map(percentile));
        DelayTruth { requests, answers: number as u64, percentiles }
    }

    /// Returns the field beside the estimates.
    pub(super) fn datum(&self) -> Datum {
        let delays = self.percentiles.map(|all| by_percentile(all.map(Datum::from)));
        object([
            ("requests", self.requests.into()),
            ("answers", self.answers.into()),
            ("delays", delays.unwrap_or_else(|| None::<u64>.into())),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_least_delays_that_such_shares_do_not_exceed() {
        let even = LabelDelays { requests: 700, delays: (2..=1000).step_by(2).collect() };
        let odd = LabelDelays { requests: 600, delays: (1..1000).step_by(2).collect() };
        let both = DelayTruth::of([&even, &odd].into_iter());
        assert_eq!((both.requests, both.answers), (1300, 1000));
        assert_eq!(both.percentiles, Some([500, 900, 950, 990, 999]));
        let one = LabelDelays { requests: 1, delays: vec![7] };
        assert_eq!(DelayTruth::of([&one].into_iter()).percentiles, Some([7; PERCENTILES.len()]));
        let none = DelayTruth { requests: 0, answers: 0, percentiles: None };
        assert_eq!(DelayTruth::of(std::iter::empty()), none);
    }
}
