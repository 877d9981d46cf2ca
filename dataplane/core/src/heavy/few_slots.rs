//! d-way RAP, HashPipe and PRECISION: a flow has a few slots, selected by hashes of its signature.

use super::admission::{admits, admits_by_power, coin};
use super::{Algorithm, Entry, HeavyTable, Item, Settings};
use crate::hash::WordCrc32;

/// Polynomials, in normal form, of the CRCs of a signature that select slots: the index within
/// stage 0 is the lowest bits of the first CRC, within stage 1 those of the second.
///
/// Their Tofino form is
/// `CRCPolynomial<bit<32>>(polynomial, true, false, false, 32w0xFFFFFFFF, 32w0xFFFFFFFF)`, over the
/// signature's four bytes in network order.
pub const STAGE_POLYNOMIALS: [u32; 2] = [0x04c1_1db7, 0x6b8c_b0c5];

static FIRST: WordCrc32 = WordCrc32::new(STAGE_POLYNOMIALS[0]);
static SECOND: WordCrc32 = WordCrc32::new(STAGE_POLYNOMIALS[1]);

const WAYS_LOG2: u32 = 3;
const WAYS: usize = 1 << WAYS_LOG2;
const HASH_PIPE_STAGES_LOG2: u32 = 2;
const PRECISION_STAGES_LOG2: u32 = 1;

/// Stages of [`Precision`](super::Algorithm::Precision).
pub const PRECISION_STAGES: usize = 1 << PRECISION_STAGES_LOG2;

/// Returns the first CRC of a signature.
#[inline(always)]
pub(super) fn hash(signature: u32) -> u32 {
    FIRST.hash(signature)
}

impl<const N: usize> HeavyTable<N> {
    /// Returns the slots of a signature in the stages of HashPipe or PRECISION, in order of stage.
    #[inline(always)]
    pub(super) fn stage_slots(settings: &Settings, signature: u32) -> impl Iterator<Item = usize> {
        let stages_log2 = match settings.algorithm {
            Algorithm::Precision => PRECISION_STAGES_LOG2,
            _ => HASH_PIPE_STAGES_LOG2,
        };
        let stages = 1_usize << stages_log2;
        (0..stages).map(move |stage| Self::stage_slot(settings, stages_log2, stage, signature))
    }

    /// Returns the slot in a stage; stages are consecutive. Stages 2 and 3 use the upper halves of
    /// the two CRCs.
    #[inline(always)]
    fn stage_slot(settings: &Settings, stages_log2: u32, stage: usize, signature: u32) -> usize {
        let crc = if stage & 1 == 0 { FIRST.hash(signature) } else { SECOND.hash(signature) };
        let slice = if stage & 2 == 0 { crc } else { crc >> 16 };
        let bits = Self::slots_log2(settings) - stages_log2;
        let within = slice as usize & ((1_usize << bits) - 1);
        (stage << bits) | within
    }

    /// Returns the first of the 8 slots of a signature's set.
    #[inline(always)]
    fn set_start(settings: &Settings, signature: u32) -> usize {
        let sets = Self::slots(settings) >> WAYS_LOG2;
        (FIRST.hash(signature) as usize & (sets - 1)) << WAYS_LOG2
    }

    /// Returns the slots of a signature for any of these algorithms.
    pub(super) fn few_slots(settings: &Settings, signature: u32) -> impl Iterator<Item = usize> {
        let set = Self::set_start(settings, signature);
        let in_set = settings.algorithm == Algorithm::DWayRap;
        let set = (set..(set + (1 << WAYS_LOG2))).filter(move |_| in_set);
        set.chain(Self::stage_slots(settings, signature).filter(move |_| !in_set))
    }

    #[inline(always)]
    pub(super) fn update_d_way_rap(&mut self, settings: &Settings, item: &Item<'_>, weight: u64) {
        let first = Self::set_start(settings, item.signature);
        if let Some(slot) = self.in_set(first, item.signature) {
            return self.add(slot, weight);
        }
        if cfg!(target_arch = "bpf") {
            let (smallest, minimum) = self.smallest_in_set(first);
            if admits(coin(item.signature, self.packets), minimum, weight) {
                self.put(smallest, item.signature, item.key, minimum + weight, minimum);
            }
            return;
        }
        // Few packets are admitted: only they search for the slot.
        let (_, counts) = self.set(first);
        let minimum = counts.iter().fold(u64::MAX, |minimum, &count| minimum.min(count));
        if admits(coin(item.signature, self.packets), minimum, weight) {
            let (smallest, _) = self.smallest_in_set(first);
            self.put(smallest, item.signature, item.key, minimum + weight, minimum);
        }
    }

    #[inline(always)]
    pub(super) fn update_precision(&mut self, settings: &Settings, item: &Item<'_>, weight: u64) {
        let slot = |stage| Self::stage_slot(settings, PRECISION_STAGES_LOG2, stage, item.signature);
        let first = slot(0);
        if self.holds(first, item.signature) {
            return self.add(first, weight);
        }
        let second = slot(1);
        if self.holds(second, item.signature) {
            return self.add(second, weight);
        }
        let smallest = if self.count(second) < self.count(first) { second } else { first };
        let minimum = self.count(smallest);
        if admits_by_power(coin(item.signature, self.packets), minimum, weight) {
            self.put(smallest, item.signature, item.key, minimum + weight, minimum);
        }
    }

    #[inline(always)]
    pub(super) fn update_hash_pipe(&mut self, settings: &Settings, item: &Item<'_>, weight: u64) {
        let mut carried =
            Entry { signature: item.signature, key: *item.key, count: weight, inherited: 0 };
        for stage in 0..1 << HASH_PIPE_STAGES_LOG2 {
            let slot = Self::stage_slot(settings, HASH_PIPE_STAGES_LOG2, stage, carried.signature);
            if self.holds(slot, carried.signature) {
                return self.add(slot, carried.count);
            }
            let count = self.count(slot);
            if stage == 0 || count < carried.count {
                let replaced = self.entry(slot);
                self.set_slot(slot, &carried);
                carried = replaced;
            }
            if count == 0 {
                return;
            }
        }
    }

    /// Returns the slot of a signature in a set.
    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "by a way of the set")]
    fn in_set(&self, first: usize, signature: u32) -> Option<usize> {
        let (signatures, counts) = self.set(first);
        let is_equal = |of_way: &u32| *of_way == signature;
        // Compares all ways at once, and finds the way without a branch: which one has the flow is
        // unpredictable.
        if cfg!(not(target_arch = "bpf")) {
            if !signatures.iter().fold(false, |is_any, of_way| is_any | is_equal(of_way)) {
                return None;
            }
            let equal =
                signatures.iter().zip(0..).map(|(of_way, way)| u32::from(is_equal(of_way)) * way);
            let slot = first | equal.sum::<u32>() as usize & (WAYS - 1);
            if self.holds(slot, signature) {
                return Some(slot);
            }
        }
        // Free slots have signature 0 as well.
        let holds = |way: &usize| is_equal(&signatures[*way]) && counts[*way] != 0;
        (0..WAYS).find(holds).map(|way| first | way)
    }

    /// Returns signatures and counts of the set whose first slot is `first`: adjacent, so that
    /// vectors can compare them.
    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "masked to the number of sets")]
    fn set(&self, first: usize) -> (&[u32; WAYS], &[u64; WAYS]) {
        let set = (first & Self::MASK) >> WAYS_LOG2;
        (&self.signatures.as_chunks().0[set], &self.counts.as_chunks().0[set])
    }

    /// Returns the first slot of a set with the smallest count, and this count.
    #[inline(always)]
    fn smallest_in_set(&self, first: usize) -> (usize, u64) {
        let (mut smallest, mut minimum) = (first, u64::MAX);
        let (_, counts) = self.set(first);
        for (way, &count) in counts.iter().enumerate() {
            let slot = first | way;
            let is_smaller = count < minimum;
            smallest = if is_smaller { slot } else { smallest };
            minimum = count.min(minimum);
        }
        (smallest, minimum)
    }

    /// Stores a flow of another table in the smallest of its slots, if the flow's count is larger.
    /// Returns the count that was discarded, the flow's or the other; zero for none.
    pub(super) fn place_few_slots(&mut self, settings: &Settings, entry: &Entry) -> u64 {
        let slots = Self::few_slots(settings, entry.signature);
        let smallest = slots.map(|slot| (self.count(slot), slot)).min();
        let Some((count, slot)) = smallest else { return 0 };
        if count < entry.count {
            self.set_slot(slot, entry);
        }
        count.min(entry.count)
    }

    /// Returns [`least`](Self::least) of a table that was not merged.
    pub(super) fn least_of_few_slots(&self, settings: &Settings) -> u64 {
        let slots = Self::slots(settings);
        match settings.algorithm {
            Algorithm::DWayRap => {
                let sets = (0..slots).step_by(1 << WAYS_LOG2);
                sets.map(|first| self.smallest_in_set(first).1).max().unwrap_or(0)
            }
            Algorithm::Precision => {
                let stage = slots >> PRECISION_STAGES_LOG2;
                let with = |count: u64, first: usize| {
                    let slots = first..(first + stage);
                    slots.filter(|&slot| self.count(slot) >= count).count() as u64
                };
                // The slots of a flow are independent in the two stages.
                let pairs = (stage as u64) * (stage as u64);
                let is_met = |count: u64| (with(count, 0) * with(count, stage)) << 6 >= pairs;
                // Counts of as many bits are replaced with the same probability.
                let count =
                    (0..u64::BITS).rev().map(|bit| 1_u64 << bit).find(|count| is_met(*count));
                count.map_or(0, |count| count | (count - 1))
            }
            Algorithm::Off | Algorithm::Rap | Algorithm::SpaceSaving | Algorithm::HashPipe => 0,
        }
    }
}
