//! The listed flows beside exact counts of all flows.

use super::estimate::Top;
use crate::field::{Datum, object};
use flowgauge_core::heavy::CountUnit;
use flowgauge_dataplane::{FlowCounts, FlowTraffic};
use std::cmp::Reverse;

/// Exact counts of the listed flows, and how many of the heaviest flows are listed.
#[derive(Clone, Debug, PartialEq)]
pub struct HeavyTruth {
    /// Exact counts of the listed flows, in their order.
    pub counts: Vec<u64>,
    /// Number of flows that should be listed: as many of the heaviest as are listed at most.
    pub heaviest: usize,
    /// Number of the heaviest flows that are listed.
    pub listed: usize,
    /// Mean error of the listed counts, as a share of the exact ones; `None` without flows.
    pub error: Option<f64>,
}

impl HeavyTruth {
    /// Compares a list of at most `most` flows with the exact counts of all.
    #[must_use]
    pub fn of(exact: &FlowCounts, unit: CountUnit, top: &Top, most: usize) -> Self {
        let count = |flow: FlowTraffic| match unit {
            CountUnit::Packets => flow.packets,
            CountUnit::Bytes => flow.bytes,
        };
        let mut all: Vec<u64> = exact.each().map(|(_, flow)| count(*flow)).collect();
        let heaviest = most.min(all.len());
        // Of flows with the same count as the last of the heaviest, any may be listed.
        let least = heaviest.checked_sub(1).map(|last| {
            let (_, least, _) = all.select_nth_unstable_by_key(last, |count| Reverse(*count));
            *least
        });
        let counts: Vec<u64> = top.flows.iter().map(|flow| count(exact.of(&flow.key))).collect();
        let is_heavy = |count: &&u64| least.is_some_and(|least| **count >= least);
        let listed = counts.iter().filter(is_heavy).count().min(heaviest);
        let errors = top
            .flows
            .iter()
            .zip(&counts)
            .map(|(flow, exact)| flow.count.abs_diff(*exact) as f64 / (*exact).max(1) as f64);
        let error = (!counts.is_empty()).then(|| errors.sum::<f64>() / counts.len() as f64);
        HeavyTruth { counts, heaviest, listed, error }
    }

    /// Returns the field beside the flows.
    pub(super) fn datum(&self) -> Datum {
        object([
            ("heaviest", self.heaviest.into()),
            ("listed", self.listed.into()),
            ("error", self.error.into()),
        ])
    }

    /// Returns the line below the flows: what is listed, and the error of the counts.
    pub(super) fn text(&self) -> String {
        let HeavyTruth { heaviest, listed, error, .. } = self;
        let error = error
            .map(|error| format!(", counts off by {:.2} % on average", error * 100.0))
            .unwrap_or_default();
        format!("truth: {listed} of the {heaviest} heaviest are listed{error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::heavy::estimate::Flow;
    use flowgauge_core::FlowKey;

    fn flow(number: u32, count: u64) -> Flow {
        let (key, likely_high) = (FlowKey::new(&number.to_be_bytes()), Some(count));
        Flow { key, count, low: 0, high: count, likely_high, stands_out: false }
    }

    fn truth(listed: &[(u32, u64)], most: usize) -> HeavyTruth {
        // Flow k has 10 (9 - k) packets of 100 bytes.
        let traffic = (0..8_u32).map(|k| {
            let packets = 10 * u64::from(9 - k);
            (FlowKey::new(&k.to_be_bytes()), FlowTraffic { packets, bytes: 100 * packets })
        });
        let flows = listed.iter().map(|(number, count)| flow(*number, *count)).collect();
        let top = Top { flows, ..Top::default() };
        let exact: FlowCounts = traffic.collect();
        HeavyTruth::of(&exact, CountUnit::Packets, &top, most)
    }

    #[test]
    fn the_heaviest_flows_that_are_listed_are_counted_and_errors_are_relative() {
        // Flows 0, 1 and 2 are the heaviest; 0 and 1 are listed, and flow 4 wrongly.
        let HeavyTruth { counts, heaviest, listed, error } = truth(&[(0, 90), (1, 84), (4, 65)], 3);
        assert_eq!((counts, heaviest, listed), (vec![90, 80, 50], 3, 2));
        assert!((error.unwrap() - (0.05 + 0.3) / 3.0).abs() < 1e-12);
        // More may be listed than there are flows.
        assert_eq!((truth(&[(7, 20)], 10).heaviest, truth(&[(7, 20)], 10).listed), (8, 1));
        let none = truth(&[], 2);
        assert_eq!((none.heaviest, none.listed, none.error), (2, 0, None));
    }
}
