//! Clearing, merging and exact counts of packet lengths.

use super::{BUCKETS, Bucket, MAX_LENGTH, Settings, Sizes};
use crate::host::HostMeasurement;
use crate::observation::Observation;
use zerocopy::FromZeros;

/// Totals of packets and bytes by bucket.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct SizesTotals {
    /// Packets by bucket.
    pub packets: [u64; BUCKETS],
    /// Sums of [`Bucket::excess`].
    pub excess: [u64; BUCKETS],
    /// Number of full counters, over all buckets and cores. Full counters no longer count.
    pub full: u64,
}

impl SizesTotals {
    /// Adds the counters of a bucket.
    pub fn add(&mut self, index: usize, bucket: Bucket) {
        if let (Some(packets), Some(excess)) =
            (self.packets.get_mut(index), self.excess.get_mut(index))
        {
            *packets += u64::from(bucket.packets);
            *excess += u64::from(bucket.excess);
            let full = u64::from(bucket.packets == u32::MAX) + u64::from(bucket.excess == u32::MAX);
            self.full += full;
        }
    }
}

/// Exact number of packets by length.
#[derive(FromZeros)]
#[repr(C)]
pub struct ExactSizes {
    /// Packets by length, up to [`MAX_LENGTH`].
    pub packets: [u64; MAX_LENGTH as usize + 1],
}

impl ExactSizes {
    /// Counts packets of one length.
    pub fn add(&mut self, length: u32, packets: u32) {
        if let Some(counted) = self.packets.get_mut(length.min(MAX_LENGTH) as usize) {
            *counted += u64::from(packets);
        }
    }
}

impl HostMeasurement for Sizes {
    type Totals = SizesTotals;
    type Exact = ExactSizes;

    fn clear_core(sizes: &mut Sizes, _: &Settings) {
        sizes.zero();
    }

    fn clear_totals(totals: &mut SizesTotals, _: &Settings) {
        totals.zero();
    }

    fn merge_core(totals: &mut SizesTotals, sizes: &Sizes, _: &Settings) {
        sizes.buckets().iter().enumerate().for_each(|(index, bucket)| totals.add(index, *bucket));
    }

    fn merge_totals(totals: &mut SizesTotals, other: &SizesTotals, _: &Settings) {
        let add = |(mine, theirs): (&mut u64, &u64)| *mine += theirs;
        totals.packets.iter_mut().zip(&other.packets).for_each(add);
        totals.excess.iter_mut().zip(&other.excess).for_each(add);
        totals.full += other.full;
    }

    fn has_exact(_: &Settings) -> bool {
        true
    }

    fn measure_exactly(exact: &mut ExactSizes, packet: &Observation) {
        let (_, length) = packet.lengths();
        exact.add(length, 1);
    }

    fn for_each_counter(
        totals: &SizesTotals,
        _: &Settings,
        visit: &mut dyn FnMut(&'static str, &[u64]),
    ) {
        visit("packets", &totals.packets);
        visit("excess", &totals.excess);
    }
}
