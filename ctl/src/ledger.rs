//! The ledger of packets: what devices received is counted, or lost by a cause that is known, or
//! not accounted for.

use crate::text::counted;
use flowgauge_dataplane::Tally;
use serde::{Deserialize, Serialize};

/// What became of the packets that devices received. `received = counted + lost + unaccounted`, in
/// every window and in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Packets received, by the devices' own counters: between `low` and `high`, and as near to
    /// what is accounted for as they allow.
    pub received: u64,
    /// At least so many were received: a device counts on while it is asked.
    pub low: u64,
    /// At most so many were received.
    pub high: u64,
    /// Packets that were counted.
    pub counted: u64,
    /// Packets that were lost for certain, by causes that are known.
    pub lost: u64,
    /// Packets that are missing for no cause that is known; below zero if more were counted than
    /// the devices have told of so far.
    pub unaccounted: i64,
}

/// What is known of all windows so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Book {
    ledger: Ledger,
    /// Windows that are in it.
    windows: u64,
    /// Whether one is not.
    partial: bool,
}

impl Book {
    /// Books a window. Without a tally nothing is known of it, and the book begins anew with the
    /// next one.
    pub(crate) fn window(
        &mut self,
        counted: u64,
        lost: u64,
        tally: Option<Tally>,
    ) -> Option<Ledger> {
        let Some(Tally { least, most }) = tally else {
            *self = Book { partial: true, ..Book::default() };
            return None;
        };
        let before = self.ledger;
        let (all_counted, all_lost) = (before.counted + counted, before.lost + lost);
        let accounted = all_counted + all_lost;
        // What is missing is missing until the devices' counters say otherwise: no packet is told
        // twice.
        let unaccounted =
            before.unaccounted.max(between(least, accounted)).min(between(most, accounted));
        let received = accounted.saturating_add_signed(unaccounted);
        self.windows += 1;
        self.ledger = Ledger {
            received,
            low: least,
            high: most,
            counted: all_counted,
            lost: all_lost,
            unaccounted,
        };
        Some(Ledger {
            received: received.saturating_sub(before.received),
            low: least.saturating_sub(before.high),
            high: most.saturating_sub(before.low),
            counted,
            lost,
            unaccounted: unaccounted - before.unaccounted,
        })
    }

    /// All windows together, if all are in the book.
    pub(crate) fn total(&self) -> Option<Ledger> {
        Some(self.ledger).filter(|_| !self.partial && self.windows > 0)
    }
}

impl Ledger {
    /// This one and that of the window after it; bounds are those of both apart.
    #[must_use]
    pub fn plus(self, next: Ledger) -> Ledger {
        Ledger {
            received: self.received + next.received,
            low: self.low + next.low,
            high: self.high + next.high,
            counted: self.counted + next.counted,
            lost: self.lost + next.lost,
            unaccounted: self.unaccounted + next.unaccounted,
        }
    }

    /// What does not balance, for people; nothing if all is accounted for.
    #[must_use]
    pub fn told(&self) -> Option<String> {
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

/// How much the first is more than the second.
fn between(first: u64, second: u64) -> i64 {
    let difference = i128::from(first) - i128::from(second);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(packets: u64) -> Option<Tally> {
        Some(Tally { least: packets, most: packets })
    }

    fn balances(ledger: Option<Ledger>) -> i64 {
        let Some(ledger) = ledger else { panic!("no ledger") };
        let Ledger { received, counted, lost, unaccounted, .. } = ledger;
        assert_eq!(
            i128::from(received),
            i128::from(counted) + i128::from(lost) + i128::from(unaccounted),
            "{ledger:?}"
        );
        unaccounted
    }

    #[test]
    fn what_is_missing_is_told_once() {
        let mut book = Book::default();
        assert_eq!(balances(book.window(90, 10, exact(100))), 0);
        assert_eq!(balances(book.window(90, 3, exact(200))), 7);
        assert_eq!(balances(book.window(100, 0, exact(300))), 0);
        assert_eq!(balances(book.total()), 7);
    }

    #[test]
    fn packets_on_their_way_are_not_missing() {
        let mut book = Book::default();
        assert_eq!(balances(book.window(90, 0, Some(Tally { least: 80, most: 120 }))), 0);
        assert_eq!(balances(book.window(110, 0, Some(Tally { least: 195, most: 230 }))), 0);
        let last = book.window(0, 0, exact(203));
        assert_eq!(balances(last), 3);
        assert_eq!(last.map(|last| (last.low, last.high)), Some((0, 8)));
        assert_eq!(
            book.total().map(|all| (all.received, all.low, all.high)),
            Some((203, 203, 203))
        );
    }

    #[test]
    fn a_device_that_tells_late_is_caught_up_with() {
        let mut book = Book::default();
        assert_eq!(balances(book.window(100, 0, exact(60))), -40);
        assert_eq!(balances(book.window(0, 0, exact(100))), 40);
        assert_eq!(balances(book.total()), 0);
    }

    #[test]
    fn a_window_that_nothing_is_known_of_begins_it_anew() {
        let mut book = Book::default();
        assert_eq!(balances(book.window(10, 0, exact(10))), 0);
        assert_eq!(book.window(500, 0, None), None);
        assert_eq!(balances(book.window(20, 0, exact(21))), 1);
        assert_eq!(book.total(), None, "not of all windows");
    }
}
