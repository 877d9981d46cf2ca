//! Requests that wait for their answers, shared by all cores, and lasting: the answer may come on
//! another core and in another window.
//!
//! A slot is a word of 64 bits, the request's signature above its time, and beside it a stamp. The
//! word is all that says whose the slot is. It changes in one step, so that a request is answered
//! once, and never with the time of another one. Who writes a slot first makes the word zero; who
//! reads one takes the word away last. So a stamp that was read belongs to the word that was taken.

use super::Settings;
use super::prefixes::Ranges;
use super::weights::Weights;
use super::{KINDS, Kind};
use crate::counter::Sharing;
use crate::counter::{SharedCounter, SharedWord};
use crate::state::BANKS;
use zerocopy::FromZeros;

/// Slots of all tables together.
pub const MAX_SLOTS: usize = 1 << 18;

/// Fridges of all tables together, as a power of two.
pub(super) const MAX_FRIDGES: usize = 64;

/// Room for the shares of all kinds.
pub(super) const SHARES: usize = KINDS.next_power_of_two();

/// Which requests of a kind a window admits.
///
/// Requests are admitted by bits of their hash, so that a smaller share is a part of a larger one.
/// When the share becomes smaller, answers count of the new one only: of older requests as many, by
/// share, are in the table. When it becomes larger, too few of the older ones are there; until
/// these are answered, answers of the smaller share count, and others just take their requests
/// away. So each delay that counts stands for as many as any other of its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// One request in two to this power is put in a table.
    pub kept: u8,
    /// Answers to one request in two to this power count: at least `kept`.
    pub counted: u8,
}

/// What each bank admits, by number of kind.
#[derive(FromZeros)]
#[repr(C)]
pub struct Shares {
    /// Powers of two: the lower byte of what is kept, the next of what counts.
    banks: [[SharedCounter; SHARES]; BANKS],
}

impl Shares {
    /// Where they are among what all cores know, in bytes.
    pub const OFFSET: usize = core::mem::offset_of!(Requests, shares);

    /// Sets what a bank admits; of a bank that nobody counts in.
    pub fn set(&self, bank: usize, kind: Kind, admission: Admission) {
        let word = i32::from(admission.kept) | (i32::from(admission.counted) << 8);
        self.banks
            .get(bank)
            .and_then(|bank| bank.get(kind as usize))
            .into_iter()
            .for_each(|share| share.store(word));
    }

    /// The powers of two of what is kept, and of what counts.
    #[inline(always)]
    pub(super) fn of(&self, bank: usize, kind: Kind) -> (u32, u32) {
        #[allow(clippy::indexing_slicing, reason = "masked to the arrays' lengths")]
        let word = self.banks[bank & (BANKS - 1)][kind as usize & (SHARES - 1)].load() as u32;
        (word & 0x1f, (word >> 8) & 0x1f)
    }
}

/// One waiting request.
#[derive(FromZeros)]
#[repr(C)]
pub(super) struct Slot {
    word: SharedWord,
    stamp: SharedCounter,
    /// No padding.
    reserved: u32,
}

/// What all cores know of requests.
#[derive(FromZeros)]
#[repr(C)]
pub struct Requests {
    /// What delays count for.
    pub(super) weights: Weights,
    /// Requests that were put in each fridge, modulo 2^32.
    pub(super) inserted: [SharedCounter; MAX_FRIDGES],
    /// Which requests are put there, if that changes.
    pub shares: Shares,
    /// Whose addresses are, if anybody asks.
    pub ranges: Ranges,
    /// Slots, kind by kind, for each two tables.
    slots: [Slot; MAX_SLOTS],
}

impl Requests {
    /// Bytes that so many slots take.
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

    /// Writes what settings say.
    pub(super) fn prepare(&self, settings: &Settings) {
        self.weights.write(settings.fridge_slots_log2());
        let admission = Admission { kept: settings.admit_log2, counted: settings.admit_log2 };
        (0..BANKS).for_each(|bank| {
            Kind::ALL.into_iter().for_each(|kind| self.shares.set(bank, kind, admission))
        });
    }
}

/// A request as a slot's word. Nobody's is zero.
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

    /// Puts a request in, whoever's the slot is.
    #[inline(always)]
    pub(super) fn put(&self, request: Request, stamp: u32) {
        self.word.publish(0);
        self.stamp.publish(stamp as i32);
        self.word.publish(request.0);
    }

    /// Puts `next` in the place of `request`, if the slot still has it.
    #[inline(always)]
    pub(super) fn replace(&self, sharing: Sharing, request: Request, next: Request) -> bool {
        sharing.replace(&self.word, request.0, next.0)
    }

    /// Writes the stamp of a request that was put in the place of another one of its own.
    #[inline(always)]
    pub(super) fn restamp(&self, stamp: u32) {
        self.stamp.store(stamp as i32);
    }
}
