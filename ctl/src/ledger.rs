//! The ledger of packets: every packet that a device received is counted, unmatched, lost for a
//! known cause, or unaccounted.

use crate::text::counted;
use flowgauge_dataplane::CountRange;
use serde::{Deserialize, Serialize};

/// Balance of the packets that devices received: `received = counted + unmatched + lost +
/// unaccounted`, in every window and in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Packets received, by the devices' own counters: the value between `low` and `high` that is
    /// closest to `counted + unmatched + lost`.
    pub received: u64,
    /// Lower bound of the packets received: a device counts on while its counters are read.
    pub low: u64,
    /// Upper bound of the packets received.
    pub high: u64,
    /// Packets counted.
    pub counted: u64,
    /// Packets that did not match the filter expression.
    #[serde(default)]
    pub unmatched: u64,
    /// Packets lost for a known cause.
    pub lost: u64,
    /// Packets received, but neither counted, unmatched nor known to be lost. Negative if more were
    /// counted than the devices have reported so far.
    pub unaccounted: i64,
}

/// Sum of all windows since the last one without a tally.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LedgerAccumulator {
    ledger: Ledger,
    /// Whether a window had no tally and is missing from the sum.
    partial: bool,
}

impl LedgerAccumulator {
    /// Adds a window and returns its ledger. A window without a tally has none; the sum restarts
    /// after it.
    pub(crate) fn add_window(
        &mut self,
        counted: u64,
        unmatched: u64,
        lost: u64,
        tally: Option<CountRange>,
    ) -> Option<Ledger> {
        let Some(CountRange { least, most }) = tally else {
            *self = LedgerAccumulator { partial: true, ..LedgerAccumulator::default() };
            return None;
        };
        let before = self.ledger;
        let (all_counted, all_lost) = (before.counted + counted, before.lost + lost);
        let all_unmatched = before.unmatched + unmatched;
        let accounted = all_counted + all_unmatched + all_lost;
        // A packet stays unaccounted until the devices' counters explain it, so that none is
        // reported twice.
        let unaccounted =
            before.unaccounted.max(between(least, accounted)).min(between(most, accounted));
        let received = accounted.saturating_add_signed(unaccounted);
        self.ledger = Ledger {
            received,
            low: least,
            high: most,
            counted: all_counted,
            unmatched: all_unmatched,
            lost: all_lost,
            unaccounted,
        };
        Some(Ledger {
            received: received.saturating_sub(before.received),
            low: least.saturating_sub(before.high),
            high: most.saturating_sub(before.low),
            counted,
            unmatched,
            lost,
            unaccounted: unaccounted - before.unaccounted,
        })
    }

    /// Returns the packets that the devices received, and that were neither counted nor lost for a
    /// known cause. A negative balance is zero missing packets: a device whose counters lag behind
    /// reports them later.
    pub(crate) fn missing(&self) -> i64 {
        self.ledger.unaccounted.max(0)
    }

    /// Returns the sum, if every window is in it. There must have been one.
    pub(crate) fn total(&self) -> Option<Ledger> {
        (!self.partial).then_some(self.ledger)
    }
}

impl Ledger {
    /// Adds the ledger of the next window. The bounds add up as well, and are wider than those of
    /// one window of both.
    #[must_use]
    pub fn plus(self, next: Ledger) -> Ledger {
        Ledger {
            received: self.received + next.received,
            low: self.low + next.low,
            high: self.high + next.high,
            counted: self.counted + next.counted,
            unmatched: self.unmatched + next.unmatched,
            lost: self.lost + next.lost,
            unaccounted: self.unaccounted + next.unaccounted,
        }
    }

    /// Describes an imbalance for people; `None` if every packet is accounted for.
    #[must_use]
    pub fn imbalance(&self) -> Option<String> {
        let packets = counted(self.unaccounted.unsigned_abs(), "packet");
        match self.unaccounted {
            0 => None,
            missing if missing > 0 => Some(format!(
                "{packets} UNACCOUNTED: received by the device, neither counted nor known to be lost"
            )),
            _ => Some(format!(
                "{packets} UNACCOUNTED: counted, and not among those that the device says it received"
            )),
        }
    }
}

/// Returns `first - second`, saturated.
fn between(first: u64, second: u64) -> i64 {
    let difference = i128::from(first) - i128::from(second);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(packets: u64) -> Option<CountRange> {
        Some(CountRange { least: packets, most: packets })
    }

    fn balances(ledger: Option<Ledger>) -> i64 {
        let Some(ledger) = ledger else { panic!("no ledger") };
        let Ledger { received, counted, unmatched, lost, unaccounted, .. } = ledger;
        assert_eq!(
            i128::from(received),
            i128::from(counted + unmatched) + i128::from(lost) + i128::from(unaccounted),
            "{ledger:?}"
        );
        unaccounted
    }

    #[test]
    fn an_unaccounted_packet_is_reported_once() {
        let mut accumulator = LedgerAccumulator::default();
        assert_eq!(balances(accumulator.add_window(90, 0, 10, exact(100))), 0);
        assert_eq!(balances(accumulator.add_window(90, 0, 3, exact(200))), 7);
        assert_eq!(balances(accumulator.add_window(100, 0, 0, exact(300))), 0);
        assert_eq!(balances(accumulator.total()), 7);
    }

    #[test]
    fn an_unmatched_packet_is_accounted_for() {
        let mut accumulator = LedgerAccumulator::default();
        assert_eq!(balances(accumulator.add_window(60, 30, 10, exact(100))), 0);
        assert_eq!(balances(accumulator.add_window(0, 99, 0, exact(200))), 1);
        assert_eq!(accumulator.total().map(|all| (all.counted, all.unmatched)), Some((60, 129)));
    }

    #[test]
    fn packets_on_their_way_are_not_missing() {
        let mut accumulator = LedgerAccumulator::default();
        assert_eq!(
            balances(accumulator.add_window(90, 0, 0, Some(CountRange { least: 80, most: 120 }))),
            0
        );
        assert_eq!(
            balances(accumulator.add_window(110, 0, 0, Some(CountRange { least: 195, most: 230 }))),
            0
        );
        let last = accumulator.add_window(0, 0, 0, exact(203));
        assert_eq!(balances(last), 3);
        assert_eq!(last.map(|last| (last.low, last.high)), Some((0, 8)));
        assert_eq!(
            accumulator.total().map(|all| (all.received, all.low, all.high)),
            Some((203, 203, 203))
        );
    }

    #[test]
    fn a_device_that_tells_late_is_caught_up_with() {
        let mut accumulator = LedgerAccumulator::default();
        assert_eq!(balances(accumulator.add_window(100, 0, 0, exact(60))), -40);
        assert_eq!(balances(accumulator.add_window(0, 0, 0, exact(100))), 40);
        assert_eq!(balances(accumulator.total()), 0);
    }

    #[test]
    fn a_window_that_nothing_is_known_of_begins_it_anew() {
        let mut accumulator = LedgerAccumulator::default();
        assert_eq!(balances(accumulator.add_window(10, 0, 0, exact(10))), 0);
        assert_eq!(accumulator.add_window(500, 0, 0, None), None);
        assert_eq!(balances(accumulator.add_window(20, 0, 0, exact(21))), 1);
        assert_eq!(accumulator.total(), None, "not of all windows");
    }
}
