//! Matching of one packet with the stored requests of one kind.

use super::settings::{FRIDGE_BITS, TABLES};
use super::table::{MAX_FRIDGES, Request, Requests, Slot};
use super::{Algorithm, DelayKind, Directions, EXPIRING_BITS, FRIDGES, Label, Settings};
use crate::arrival::Packets;
use crate::counter::Sharing;
use crate::hash::{Crc32, Tabulation};
use crate::observation::Observation;

/// Stages of a two-stage table; each has half of the slots.
const STAGES: usize = 2;

/// Signature, hash and table that determine a request's slot.
#[derive(Clone, Copy)]
pub(super) struct RequestKey {
    pub(super) signature: u32,
    hash: u32,
    /// Index among all tables.
    table: usize,
}

impl RequestKey {
    /// Returns the key of a request from one end to the other, in one of a kind's tables.
    #[inline(always)]
    pub(super) fn of(
        (from, to): (u32, u32),
        token: u32,
        kind_rank: usize,
        table: usize,
        tabulation: &Tabulation,
    ) -> Self {
        // The token's CRC is rotated as well because CRCs are linear: otherwise the difference
        // between two ports would cancel the same difference between two tokens.
        let token = Crc32::of_number(token).rotate_left(24);
        let signature = from ^ to.rotate_left(16) ^ token;
        RequestKey {
            signature,
            hash: tabulation.hash(signature),
            table: kind_rank * TABLES + table,
        }
    }

    /// Returns whether the hash is within the share of one in `2^admit`.
    #[inline(always)]
    fn is_of(&self, admit: u32) -> bool {
        ((self.hash >> admit) << admit) == self.hash
    }

    /// Returns the fridge that admits the request, or `None` if the request is outside the share.
    #[inline(always)]
    pub(super) fn fridge(&self, settings: &Settings, admit: u32) -> Option<usize> {
        // Signature zero marks an empty slot.
        if self.signature == 0 || !self.is_of(admit) {
            return None;
        }
        if settings.fridges() == 1 {
            return Some(0);
        }
        let rest = self.hash >> admit;
        Some(match rest {
            _ if rest & 0x3 != 0 => 0,
            _ if rest & 0xf != 0 => 1,
            _ if rest & 0x3f != 0 => 2,
            _ => 3,
        })
    }

    /// Returns the cell among the recent requests of the kind, which its first table stores. The bits
    /// of the hash below those of the slot determine it, so that requests that share a slot rarely
    /// share a cell.
    #[inline(always)]
    fn cell(&self, settings: &Settings) -> usize {
        let bits = u32::from(settings.slots_log2);
        let first = self.table & !(TABLES - 1);
        (first << bits) + ((self.hash << bits) >> (u32::BITS - bits)) as usize
    }

    /// Returns the slot in a fridge, as an index among all slots. The upper bits of the hash
    /// determine it; admission uses the lower ones.
    #[inline(always)]
    fn slot(&self, settings: &Settings, fridge: usize) -> usize {
        let bits = u32::from(settings.slots_log2);
        let base = self.table << bits;
        let unused = u32::BITS - bits;
        if settings.fridges() == 1 {
            return base + ((self.hash >> unused) as usize);
        }
        let index = (self.hash as usize) >> (unused + u32::from(FRIDGE_BITS));
        base + ((fridge & (FRIDGES - 1)) << (bits - u32::from(FRIDGE_BITS))) + index
    }
}

/// Delay of an answered request, and the insertions since the request was stored.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub(super) delay: u32,
    pub(super) insertions: u32,
    pub(super) fridge: usize,
}

/// One packet and one kind that it is matched for.
pub(super) struct Exchange<'a, P> {
    pub(super) settings: &'a Settings,
    pub(super) kind: DelayKind,
    pub(super) requests: &'a Requests,
    pub(super) sharing: Sharing,
    pub(super) packet: &'a Observation<P>,
}

impl<P: Packets> Exchange<'_, P> {
    /// Returns the packet's time in ticks of the kind. Called only where the time is used: in the
    /// kernel, reading the clock costs as much as all the rest.
    #[inline(always)]
    fn now(&self) -> u32 {
        (self.packet.time() >> self.kind.tick_bits()) as u32
    }

    /// Returns the powers of two of the stored and of the counted share. Looked up at each use: a
    /// kernel program has no room to store them.
    #[inline(always)]
    pub(super) fn shares(&self, bank: usize) -> (u32, u32) {
        if self.settings.follows {
            self.requests.shares.of(bank, self.kind)
        } else {
            let bits = u32::from(self.settings.admit_log2);
            (bits, bits)
        }
    }

    /// Returns the slot at an index among all slots.
    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot {
        self.requests.slot(index & (self.settings.padded_slots() - 1))
    }

    /// Returns the row of a request's label: the packet is the request (`asks`), or answers it.
    #[inline(always)]
    pub(super) fn row(&self, rank: usize, asks: bool) -> usize {
        if self.settings.keeps_apart() {
            rank * self.settings.labels() + self.label(asks)
        } else {
            rank
        }
    }

    /// Returns the index of the same request's label among the kind's labels.
    #[inline(always)]
    fn label(&self, asks: bool) -> usize {
        let Exchange { settings, kind, packet, .. } = self;
        let (source, destination) = packet.owners;
        let (asked, answers) = if asks { (source, destination) } else { (destination, source) };
        // The end that closes a connection is not necessarily the one that opened it.
        let has_sides = *kind != DelayKind::TcpDuration;
        let leaves = match settings.directions {
            Directions::Together => false,
            Directions::Apart => has_sides && packet.arrival.leaves == asks,
            Directions::Local => has_sides && asked.is_local,
        };
        let group = if has_sides { answers.group } else { answers.group.max(asked.group) };
        settings.label(Label { leaves, group })
    }

    /// Returns whether answers to an admitted request count.
    #[inline(always)]
    pub(super) fn counts(&self, key: &RequestKey, bank: usize) -> bool {
        !self.settings.follows || key.is_of(self.shares(bank).1)
    }

    #[inline(always)]
    fn inserted(&self, key: &RequestKey, fridge: usize) -> usize {
        let table = key.table;
        let inserted = if self.settings.fridges() == 1 { table } else { table * FRIDGES + fridge };
        inserted & (MAX_FRIDGES - 1)
    }

    /// Returns whether a request, admitted or not, differs from the recent ones of its kind.
    #[inline(always)]
    pub(super) fn is_new(&self, key: &RequestKey) -> bool {
        !self.settings.remembers(self.kind)
            || self.slot(key.cell(self.settings)).is_new(key.signature)
    }

    /// Stores a request and returns the outcome. A request that is not new is no insertion.
    #[inline(always)]
    pub(super) fn ask(&self, key: &RequestKey, fridge: usize, is_new: bool) -> RequestOutcome {
        if self.settings.algorithm == Algorithm::Expiry {
            return self.wait(key);
        }
        let slot = self.slot(key.slot(self.settings, fridge));
        let is_again = slot.request().signature() == key.signature;
        if self.kind.repeats() && is_again {
            return RequestOutcome::Again;
        }
        let inserted = self.requests.inserted(self.inserted(key, fridge));
        let stamp = if is_new {
            self.sharing.add(inserted, 1).wrapping_add(1) as u32
        } else {
            inserted.load() as u32
        };
        if self.kind.keeps_first() && is_again {
            return RequestOutcome::Repeated;
        }
        // If packets repeat tokens, time zero marks a request that was answered.
        let now = self.now();
        let time = if self.kind.repeats() && now == 0 { 1 } else { now };
        slot.put(Request::new(key.signature, time), stamp);
        if is_again { RequestOutcome::Repeated } else { RequestOutcome::Kept }
    }

    /// Stores a request as in Chen et al.: in a slot that is empty or whose request has expired, of
    /// the first stage or else of the second. An equal request that still waits stays as it is.
    #[inline(always)]
    fn wait(&self, key: &RequestKey) -> RequestOutcome {
        let now = self.expiring_now();
        let age = self.settings.expiry_ns >> self.kind.tick_bits();
        let mut stage = 0;
        while stage < STAGES {
            let slot = self.slot(self.stage(key, stage));
            let request = slot.request();
            let is_own = request.signature() == key.signature;
            if is_own && self.kind.repeats() {
                return RequestOutcome::Again;
            }
            let since = request.time();
            let waits = request.signature() != 0 && since <= now && (now - since) <= age;
            if !waits {
                slot.put(Request::new(key.signature, now), 0);
                return RequestOutcome::Kept;
            }
            if is_own {
                return RequestOutcome::Kept;
            }
            stage += 1;
        }
        RequestOutcome::Refused
    }

    /// Returns the time in ticks of requests that expire, never zero: a switch uses zero for a slot
    /// without an answer.
    #[inline(always)]
    fn expiring_now(&self) -> u32 {
        (self.now() & (u32::MAX >> (u32::BITS - EXPIRING_BITS))).max(1)
    }

    /// Returns the slot of an expiring request in a stage; each stage has half of the table.
    #[inline(always)]
    fn stage(&self, key: &RequestKey, stage: usize) -> usize {
        let bits = u32::from(self.settings.slots_log2) - 1;
        let hash = if stage == 0 { key.hash } else { key.hash.rotate_left(16) };
        let index = (hash >> (u32::BITS - bits)) as usize;
        let base = key.table << u32::from(self.settings.slots_log2);
        base + (stage << bits) + index
    }

    /// Finds the request that a packet answers and removes it.
    #[inline(always)]
    pub(super) fn answer(&self, key: &RequestKey, fridge: usize) -> Option<Answer> {
        let is_expiring = self.settings.algorithm == Algorithm::Expiry;
        let mut slot = self.slot(if is_expiring {
            self.stage(key, 0)
        } else {
            key.slot(self.settings, fridge)
        });
        let mut request = slot.request();
        if is_expiring && request.signature() != key.signature {
            slot = self.slot(self.stage(key, 1));
            request = slot.request();
        }
        if request.signature() != key.signature {
            return None;
        }
        let stamp = slot.stamp();
        // A token that packets repeat stays, without a time, so that a repetition is not stored
        // again.
        let rest =
            if self.kind.repeats() { Request::new(key.signature, 0) } else { Request::new(0, 0) };
        if request == rest || !slot.replace(self.sharing, request, rest) {
            return None;
        }
        if is_expiring {
            // Sign-extends the difference, which has only EXPIRING_BITS bits.
            let unused = u32::BITS - EXPIRING_BITS;
            let delay = (self.expiring_now().wrapping_sub(request.time()) << unused) as i32;
            return Some(Answer { delay: (delay >> unused) as u32, insertions: 0, fridge });
        }
        Some(self.found(request.time(), stamp, key, fridge))
    }

    #[inline(always)]
    fn found(&self, time: u32, stamp: u32, key: &RequestKey, fridge: usize) -> Answer {
        let inserted = self.requests.inserted(self.inserted(key, fridge)).load() as u32;
        Answer {
            delay: self.now().wrapping_sub(time),
            insertions: inserted.wrapping_sub(stamp),
            fridge,
        }
    }

    /// Measures a round that ends with an edge of the spin bit. The lowest bit of the signature is
    /// the spin bit itself; time zero means that the edge before its current value was not seen.
    #[inline(always)]
    pub(super) fn spin(
        &self,
        key: &RequestKey,
        fridge: usize,
        bit: u8,
    ) -> (RequestOutcome, Option<Answer>) {
        let slot = self.slot(key.slot(self.settings, fridge));
        let mine = key.signature & !1 | u32::from(bit);
        let request = slot.request();
        if request.signature() == mine {
            return (RequestOutcome::Again, None);
        }
        let counter = self.requests.inserted(self.inserted(key, fridge));
        if request.signature() ^ mine != 1 {
            let stamp = (self.sharing.add(counter, 1) as u32).wrapping_add(1);
            slot.put(Request::new(mine, 0), stamp);
            return (RequestOutcome::Again, None);
        }
        let (stamp, inserted) = (slot.stamp(), counter.load() as u32);
        let now = self.now().max(1);
        if !slot.replace(self.sharing, request, Request::new(mine, now)) {
            return (RequestOutcome::Again, None);
        }
        slot.restamp(inserted);
        let found = Answer {
            delay: now.wrapping_sub(request.time()),
            insertions: inserted.wrapping_sub(stamp),
            fridge,
        };
        (RequestOutcome::Kept, (request.time() != 0).then_some(found))
    }
}

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    Kept,
    /// A further request with the same token, which waited in its slot already.
    Repeated,
    Refused,
    /// No new request in the table: already stored, not admitted, or a spin bit without an edge.
    Again,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::crc32;
    extern crate std;
    use std::collections::HashSet;

    /// Queries of one resolver to another, with consecutive ids and ports: their signatures are
    /// distinct.
    #[test]
    fn tokens_and_ports_that_differ_alike_are_told_apart() {
        let tabulation = Tabulation::from_seed(1);
        let mut seen = HashSet::new();
        for number in 0..1_u32 << 20 {
            let (port, id) = ((number >> 10) as u16, number & 0x3ff);
            let [high, low] = port.to_be_bytes();
            let ends = (crc32(&[10, 0, 0, 1, high, low]), crc32(&[10, 0, 0, 2, 0, 53]));
            assert!(
                seen.insert(RequestKey::of(ends, id, 0, 0, &tabulation).signature),
                "port {port}, id {id}"
            );
        }
    }
}
