//! Clearing and merging of counts by prefix.

use super::{MAX_PREFIXES, Reorder, Settings, Total, Totals};
use crate::counter::SharedCounter;
use crate::host::HostMeasurement;
use zerocopy::FromZeros;

/// Counts of the followed flows of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct PrefixCounts {
    /// Upper bits, and 4 or 6 in the lowest byte; zero if the entry is free.
    pub prefix: u64,
    /// Data segments, except keep-alives.
    pub packets: u64,
    /// Data segments that came late.
    pub out_of_order: u64,
    /// Data segments that were seen before.
    pub retransmitted: u64,
    /// Data segments with missing bytes before them.
    pub gaps: u64,
    /// Number of followed flows. A flow that was silent for [`IDLE_TICKS`](super::IDLE_TICKS)
    /// counts once more.
    pub flows: u64,
    /// Sum over all flows of the square of the number of out-of-order segments, modulo 2^32; a sum
    /// of squares as long as no flow has more than [`MOST_LATE`](super::MOST_LATE) of them.
    pub squares: u64,
}

impl PrefixCounts {
    /// Returns the sum of both.
    #[must_use]
    pub const fn plus(&self, other: &PrefixCounts) -> PrefixCounts {
        PrefixCounts {
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
pub struct ReorderTotals {
    /// Segments of flows that were not followed, as in [`Totals`].
    pub unfollowed: u64,
    /// Segments whose slot another core had locked, as in [`Totals`].
    pub contended: u64,
    /// Followed segments of prefixes without a place, in [`Totals`] or in this sum.
    pub crowded: u64,
    prefixes: [PrefixCounts; MAX_PREFIXES],
}

impl ReorderTotals {
    /// Returns the prefixes with at least one followed flow.
    pub fn prefixes(&self) -> impl Iterator<Item = &PrefixCounts> {
        self.prefixes.iter().filter(|prefix| prefix.prefix != 0)
    }

    /// Adds the counts of a prefix. It has the first free place from the one of its hash on.
    pub fn add(&mut self, other: &PrefixCounts) {
        let home =
            (other.prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize & (MAX_PREFIXES - 1);
        let (before, from) = self.prefixes.split_at_mut(home);
        let mut places = from.iter_mut().chain(before);
        match places.find(|place| place.prefix == other.prefix || place.prefix == 0) {
            Some(place) => *place = PrefixCounts { prefix: other.prefix, ..place.plus(other) },
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
    type Totals = ReorderTotals;
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

    fn clear_totals(totals: &mut ReorderTotals, _: &Settings) {
        totals.zero();
    }

    fn merge_core(_: &mut ReorderTotals, (): &(), _: &Settings) {}

    fn merge_shared(totals: &mut ReorderTotals, shared: &Totals, _: &Settings) {
        totals.unfollowed += wide(&shared.unfollowed);
        totals.contended += wide(&shared.contended);
        totals.crowded += wide(&shared.crowded);
        for total in shared.prefixes.iter().filter(|total| total.prefix.load() != 0) {
            let [packets, out_of_order, retransmitted, gaps, flows, squares] =
                total.counters().map(wide);
            let prefix = total.prefix.load();
            totals.add(&PrefixCounts {
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

    fn merge_totals(totals: &mut ReorderTotals, other: &ReorderTotals, _: &Settings) {
        totals.unfollowed += other.unfollowed;
        totals.contended += other.contended;
        totals.crowded += other.crowded;
        other.prefixes().for_each(|prefix| totals.add(prefix));
    }
}
