//! Requests that wait for their answers. Shared by all cores and persistent: the answer may come on
//! another core and in another window.
//!
//! A slot is a word of 64 bits, the request's signature above its time, and a separate stamp. The
//! word alone determines the request that has the slot. It changes in one step, so that a request
//! is answered once, and never with the time of another one. A writer first sets the word to zero;
//! a reader removes the word last. So a stamp that was read belongs to the word that was removed.
//!
//! The recent requests of a kind are remembered as well: as many signatures as a table has slots,
//! at indices of their own, in the first table. A request that is found there was repeated within
//! about as many requests as a table has slots. It takes its own slot again, so counting it as an
//! insertion would raise the weights of all others. A request that comes back later is an insertion
//! like any other. Where this decision and the slot disagree, weights are wrong; these requests are
//! [counted](super::Counts::miscounted).

use super::Settings;
use super::prefixes::Ranges;
use super::weights::Weights;
use super::{DelayKind, KINDS};
use crate::counter::Sharing;
use crate::counter::{SharedCounter, SharedWord};
use crate::state::BANKS;
use zerocopy::FromZeros;

/// Most slots of all tables in total.
pub const MAX_SLOTS: usize = 1 << 18;

/// Number of fridges of all tables, rounded up to a power of two.
pub(super) const MAX_FRIDGES: usize = 64;

/// Length of an array of all kinds' shares, a power of two.
pub(super) const SHARES: usize = KINDS.next_power_of_two();

/// Shares of a kind's requests that a window stores and counts.
///
/// Requests are admitted by bits of their hash, so that a smaller share is a part of a larger one.
/// When the share becomes smaller, only answers of the new share count; older requests of that
/// share are in the table in the same proportion. When it becomes larger, too few of the older
/// requests are there: until they are answered, only answers of the smaller share count, and other
/// answers just remove their requests. So each delay that counts represents as many as any other of
/// its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// One request in two to this power is stored in a table.
    pub kept: u8,
    /// Answers to one request in two to this power count: at least `kept`.
    pub counted: u8,
}

/// Admission of each bank, by number of kind.
#[derive(FromZeros)]
#[repr(C)]
pub struct Shares {
    /// Powers of two: the stored share in the lower byte, the counted share in the next.
    banks: [[SharedCounter; SHARES]; BANKS],
}

impl Shares {
    /// Offset in [`Requests`], in bytes.
    pub const OFFSET: usize = core::mem::offset_of!(Requests, shares);

    /// Sets the admission of a kind in a bank that no core counts in.
    pub fn set(&self, bank: usize, kind: DelayKind, admission: Admission) {
        let word = i32::from(admission.kept) | (i32::from(admission.counted) << 8);
        self.banks
            .get(bank)
            .and_then(|bank| bank.get(kind as usize))
            .into_iter()
            .for_each(|share| share.store(word));
    }

    /// Returns the powers of two of the stored and of the counted share.
    #[inline(always)]
    pub(super) fn of(&self, bank: usize, kind: DelayKind) -> (u32, u32) {
        #[allow(clippy::indexing_slicing, reason = "masked to the arrays' lengths")]
        let word = self.banks[bank & (BANKS - 1)][kind as usize & (SHARES - 1)].load() as u32;
        (word & 0x1f, (word >> 8) & 0x1f)
    }
}

/// Slot of one waiting request.
#[derive(FromZeros)]
#[repr(C)]
pub(super) struct Slot {
    word: SharedWord,
    stamp: SharedCounter,
    /// Signature of the last request with this [cell](Self::is_new), whether it waits or not.
    recent: SharedCounter,
}

/// Shared state of all cores: stored requests, weights, admission and owners of addresses.
#[derive(FromZeros)]
#[repr(C)]
pub struct Requests {
    /// Weights of delays.
    pub(super) weights: Weights,
    /// Insertions into each fridge, modulo 2^32.
    pub(super) inserted: [SharedCounter; MAX_FRIDGES],
    /// Admission of each bank; used only if shares follow the traffic.
    pub shares: Shares,
    /// Owners of addresses; used only if a measurement needs them.
    pub ranges: Ranges,
    /// Slots in order of kind, two tables each.
    slots: [Slot; MAX_SLOTS],
}

impl Requests {
    /// Returns the size in bytes with this number of slots.
    pub(super) const fn bytes(slots: usize) -> usize {
        core::mem::offset_of!(Requests, slots) + (slots * size_of::<Slot>())
    }

    #[inline(always)]
    pub(super) fn slot(&self, index: usize) -> &Slot {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        &self.slots[index & (MAX_SLOTS - 1)]
    }

    #[inline(always)]
    pub(super) fn inserted(&self, fridge: usize) -> &SharedCounter {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        &self.inserted[fridge & (MAX_FRIDGES - 1)]
    }

    /// Writes everything that depends on the settings alone.
    pub(super) fn prepare(&self, settings: &Settings) {
        self.weights.write(settings.fridge_slots_log2());
        let admission = Admission { kept: settings.admit_log2, counted: settings.admit_log2 };
        (0..BANKS).for_each(|bank| {
            DelayKind::ALL.into_iter().for_each(|kind| self.shares.set(bank, kind, admission))
        });
    }
}

/// Word of a slot: a request, or zero if the slot is free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Request(u64);

impl Request {
    #[inline(always)]
    pub(super) fn new(signature: u32, time: u32) -> Self {
        Request((u64::from(signature) << 32) | u64::from(time))
    }

    #[inline(always)]
    pub(super) fn signature(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(super) fn time(self) -> u32 {
        self.0 as u32
    }
}

impl Slot {
    #[inline(always)]
    pub(super) fn request(&self) -> Request {
        Request(self.word.load())
    }

    #[inline(always)]
    pub(super) fn stamp(&self) -> u32 {
        self.stamp.load() as u32
    }

    /// Stores a request, whatever is in the slot.
    #[inline(always)]
    pub(super) fn put(&self, request: Request, stamp: u32) {
        self.word.publish(0);
        self.stamp.publish(stamp as i32);
        self.word.publish(request.0);
    }

    /// Replaces `request` by `next` if it is still in the slot; returns whether it was.
    #[inline(always)]
    pub(super) fn replace(&self, sharing: Sharing, request: Request, next: Request) -> bool {
        sharing.replace(&self.word, request.0, next.0)
    }

    /// Returns whether the last request with this cell was another one, and remembers this one.
    #[inline(always)]
    pub(super) fn is_new(&self, signature: u32) -> bool {
        let is_new = self.recent.load() as u32 != signature;
        if is_new {
            self.recent.store(signature as i32);
        }
        is_new
    }

    /// Writes the stamp of a request that has replaced another one of the same flow.
    #[inline(always)]
    pub(super) fn restamp(&self, stamp: u32) {
        self.stamp.store(stamp as i32);
    }
}
