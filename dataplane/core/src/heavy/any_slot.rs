//! RAP and SpaceSaving: every flow may have any slot, and the smallest of all counts is replaced.
//!
//! Chains by a hash of the signature find a flow's slot; a binary heap finds the smallest count.
//! Among equal counts, the one in the lowest slot is the smallest, so that the state depends on the
//! packets alone and not on the data structure.

use super::admission::{admits, coin};
use super::few_slots::hash;
use super::{Algorithm, Entry, HeavyTable, Item, Settings};
use zerocopy::FromZeros;

/// Order of the slots; valid when zeroed.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub(super) struct Ranking<const N: usize> {
    /// Slots as a binary heap, the smallest count first.
    heap: [u16; N],
    /// Place of each slot in the heap.
    places: [u16; N],
    /// First slot of each chain, plus one; zero for an empty chain.
    heads: [u16; N],
    /// Next slot in the chain, plus one; zero for none.
    next: [u16; N],
}

impl<const N: usize> Ranking<N> {
    pub(super) const fn new() -> Self {
        Ranking { heap: [0; N], places: [0; N], heads: [0; N], next: [0; N] }
    }

    pub(super) fn clear(&mut self, slots: usize) {
        for array in [&mut self.heap, &mut self.places, &mut self.heads, &mut self.next] {
            array.iter_mut().take(slots).for_each(|link| *link = 0);
        }
    }

    #[inline(always)]
    fn slot_at(&self, place: usize) -> usize {
        get(&self.heap, place)
    }

    #[inline(always)]
    fn place(&mut self, slot: usize, place: usize) {
        set(&mut self.heap, place, slot);
        set(&mut self.places, slot, place);
    }
}

#[inline(always)]
#[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
fn get<const N: usize>(links: &[u16; N], index: usize) -> usize {
    usize::from(links[index & HeavyTable::<N>::MASK])
}

#[inline(always)]
#[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
fn set<const N: usize>(links: &mut [u16; N], index: usize, value: usize) {
    links[index & HeavyTable::<N>::MASK] = value as u16;
}

impl<const N: usize> HeavyTable<N> {
    pub(super) fn update_any_slot(&mut self, settings: &Settings, item: &Item<'_>, weight: u64) {
        let Item { signature, key, .. } = *item;
        if let Some(slot) = self.find_any_slot(settings, signature) {
            self.add(slot, weight);
            self.sink(get(&self.ranking.places, slot));
            return;
        }
        let entry =
            |inherited: u64| Entry { signature, key: *key, count: inherited + weight, inherited };
        if self.has_free_slot(settings) {
            self.take_slot(settings, &entry(0));
            return;
        }
        let smallest = self.count(self.ranking.slot_at(0));
        if settings.algorithm == Algorithm::SpaceSaving
            || admits(coin(signature, self.packets), smallest, weight)
        {
            self.replace_smallest(settings, &entry(smallest));
        }
    }

    /// Stores a flow of another table in a free slot, or replaces the smallest count if the flow's
    /// is larger. Returns the count that was discarded, the flow's or the other; zero for none.
    pub(super) fn place_any_slot(&mut self, settings: &Settings, entry: &Entry) -> u64 {
        if self.has_free_slot(settings) {
            self.take_slot(settings, entry);
            return 0;
        }
        let smallest = self.count(self.ranking.slot_at(0));
        if entry.count > smallest {
            self.replace_smallest(settings, entry);
        }
        smallest.min(entry.count)
    }

    /// Restores the heap after counts were changed at any place.
    pub(super) fn restore_heap(&mut self) {
        for place in (0..((self.taken as usize) >> 1)).rev() {
            self.sink(place);
        }
    }

    fn has_free_slot(&self, settings: &Settings) -> bool {
        (self.taken as usize) < Self::slots(settings)
    }

    /// Returns the most packets or bytes that a flow outside the table can have, with SpaceSaving:
    /// the smallest count of a full table, else zero.
    pub(super) fn smallest_if_full(&self, settings: &Settings) -> u64 {
        if self.has_free_slot(settings) { 0 } else { self.count(self.ranking.slot_at(0)) }
    }

    fn chain(settings: &Settings, signature: u32) -> usize {
        hash(signature) as usize & (Self::slots(settings) - 1)
    }

    pub(super) fn find_any_slot(&self, settings: &Settings, signature: u32) -> Option<usize> {
        let mut link = get(&self.ranking.heads, Self::chain(settings, signature));
        while link != 0 {
            let slot = link - 1;
            if self.signature(slot) == signature {
                return Some(slot);
            }
            link = get(&self.ranking.next, slot);
        }
        None
    }

    fn take_slot(&mut self, settings: &Settings, entry: &Entry) {
        let slot = self.taken as usize;
        self.taken += 1;
        self.ranking.place(slot, slot);
        self.set_slot(slot, entry);
        self.link(settings, slot);
        self.rise(slot);
    }

    fn replace_smallest(&mut self, settings: &Settings, entry: &Entry) {
        let slot = self.ranking.slot_at(0);
        self.unlink(settings, slot);
        self.set_slot(slot, entry);
        self.link(settings, slot);
        self.sink(0);
    }

    fn link(&mut self, settings: &Settings, slot: usize) {
        let chain = Self::chain(settings, self.signature(slot));
        let first = get(&self.ranking.heads, chain);
        set(&mut self.ranking.next, slot, first);
        set(&mut self.ranking.heads, chain, slot + 1);
    }

    fn unlink(&mut self, settings: &Settings, slot: usize) {
        let chain = Self::chain(settings, self.signature(slot));
        let after = get(&self.ranking.next, slot);
        let mut link = get(&self.ranking.heads, chain);
        if link == (slot + 1) {
            set(&mut self.ranking.heads, chain, after);
        }
        while link != 0 {
            let before = link - 1;
            link = get(&self.ranking.next, before);
            if link == (slot + 1) {
                set(&mut self.ranking.next, before, after);
                break;
            }
        }
    }

    /// Returns the sort key of a slot.
    fn rank(&self, slot: usize) -> (u64, usize) {
        (self.count(slot), slot)
    }

    /// Restores the heap after the count at a place became larger.
    fn sink(&mut self, mut place: usize) {
        let slot = self.ranking.slot_at(place);
        let rank = self.rank(slot);
        loop {
            let left = place * 2 + 1;
            if left >= self.taken as usize {
                break;
            }
            let mut child = self.ranking.slot_at(left);
            let mut below = left;
            if (left + 1) < self.taken as usize {
                let right = self.ranking.slot_at(left + 1);
                if self.rank(right) < self.rank(child) {
                    child = right;
                    below = left + 1;
                }
            }
            if rank < self.rank(child) {
                break;
            }
            self.ranking.place(child, place);
            place = below;
        }
        self.ranking.place(slot, place);
    }

    /// Restores the heap after a slot was appended at a place.
    fn rise(&mut self, mut place: usize) {
        let slot = self.ranking.slot_at(place);
        while place > 0 {
            let above = (place - 1) >> 1;
            let parent = self.ranking.slot_at(above);
            if self.rank(parent) < self.rank(slot) {
                break;
            }
            self.ranking.place(parent, place);
            place = above;
        }
        self.ranking.place(slot, place);
    }
}
