//! Clearing and merging of counts by prefix.

use super::{MAX_PREFIXES, Reorder, Settings, Total, Totals};
use crate::counter::SharedCounter;
use crate::host::HostMeasurement;
use zerocopy::FromZeros;

/// Counts of the followed flows of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Prefix {
    /// Upper bits, and in the lowest byte 4 or 6; zero if there is none.
    pub prefix: u64,
    /// Data segments, whatever they were.
    pub packets: u64,
    /// Of these, segments that came late.
    pub out_of_order: u64,
    /// Of these, segments that were seen before.
    pub retransmitted: u64,
    /// Of these, segments before which something was missing.
    pub gaps: u64,
    /// Flows that were followed; those that were silent for [`IDLE_TICKS`](super::IDLE_TICKS), once more.
    pub flows: u64,
    /// Of every flow, the square of how many of its segments were out of order, modulo 2^32; a sum
    /// of squares as long as no more than [`MOST_LATE`](super::MOST_LATE) are.
    pub squares: u64,
}

impl Prefix {
    /// Returns the sum of both.
    #[must_use]
    pub const fn plus(&self, other: &Prefix) -> Prefix {
        Prefix {
            prefix: self.prefix,
            packets: self.packets + other.packets,
            out_of_order: self.out_of_order + other.out_of_order,
            retransmitted: self.retransmitted + other.retransmitted,
            gaps: self.gaps + other.gaps,
            flows: self.flows + other.flows,
            squares: self.squares + other.squares,
        }
    }
}

/// Totals by prefix.
#[derive(PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct WideReorder {
    /// As [`Totals`].
    pub unfollowed: u64,
    /// As [`Totals`].
    pub contended: u64,
    /// As [`Totals`]; and of prefixes that had no place in the sum.
    pub crowded: u64,
    prefixes: [Prefix; MAX_PREFIXES],
}

impl WideReorder {
    /// Prefixes of which a flow was followed.
    pub fn prefixes(&self) -> impl Iterator<Item = &Prefix> {
        self.prefixes.iter().filter(|prefix| prefix.prefix != 0)
    }

    /// Adds what was counted of a prefix. A prefix is in the first free place from its own on.
    pub fn add(&mut self, other: &Prefix) {
        let home =
            (other.prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize & (MAX_PREFIXES - 1);
        let (before, from) = self.prefixes.split_at_mut(home);
        let mut places = from.iter_mut().chain(before);
        match places.find(|place| place.prefix == other.prefix || place.prefix == 0) {
            Some(place) => *place = Prefix { prefix: other.prefix, ..place.plus(other) },
            None => self.crowded += other.packets,
        }
    }
}

fn wide(counter: &SharedCounter) -> u64 {
    u64::from(counter.load() as u32)
}

impl Total {
    fn counters(&self) -> [&SharedCounter; 6] {
        [
            &self.packets,
            &self.out_of_order,
            &self.retransmitted,
            &self.gaps,
            &self.flows,
            &self.squares,
        ]
    }
}

impl HostMeasurement for Reorder {
    type Totals = WideReorder;
    type Exact = ();

    fn clear_core((): &mut (), _: &Settings) {}

    fn clear_shared(shared: &Totals, _: &Settings) {
        [&shared.unfollowed, &shared.contended, &shared.crowded]
            .into_iter()
            .for_each(|counter| counter.store(0));
        for total in &shared.prefixes {
            total.prefix.publish(0);
            total.counters().into_iter().for_each(|counter| counter.store(0));
        }
    }

    fn clear_totals(totals: &mut WideReorder, _: &Settings) {
        totals.zero();
    }

    fn merge_core(_: &mut WideReorder, (): &(), _: &Settings) {}

    fn merge_shared(totals: &mut WideReorder, shared: &Totals, _: &Settings) {
        totals.unfollowed += wide(&shared.unfollowed);
        totals.contended += wide(&shared.contended);
        totals.crowded += wide(&shared.crowded);
        for total in shared.prefixes.iter().filter(|total| total.prefix.load() != 0) {
            let [packets, out_of_order, retransmitted, gaps, flows, squares] =
                total.counters().map(wide);
            let prefix = total.prefix.load();
            totals.add(&Prefix {
                prefix,
                packets,
                out_of_order,
                retransmitted,
                gaps,
                flows,
                squares,
            });
        }
    }

    fn merge_totals(totals: &mut WideReorder, other: &WideReorder, _: &Settings) {
        totals.unfollowed += other.unfollowed;
        totals.contended += other.contended;
        totals.crowded += other.crowded;
        other.prefixes().for_each(|prefix| totals.add(prefix));
    }
}
