//! What measurements have to know of packets.

use crate::arrival::{Arrival, One, Packets};
use crate::cardinality::Cardinality;
use crate::delay::prefixes::{self, Owner, Ranges};
use crate::frame::Frame;
use crate::heavy::Heavy;
use crate::key::{FlowKey, KeyKind};
use crate::measurement::{Listed, Settings};
use crate::needs::Needs;
use crate::parse::Packet;
use crate::reorder::Reorder;
use crate::segment::{Segment, Speaks};
use crate::state::Context;
use core::borrow::Borrow;

/// One packet or many. One does not have to lie in memory, as a slice would have it.
pub trait Observed<P> {
    /// Every packet, in order.
    fn each<'a>(&'a self) -> impl Iterator<Item = &'a Observation<P>>
    where
        P: 'a;
}

impl<P> Observed<P> for Observation<P> {
    #[inline(always)]
    fn each<'a>(&'a self) -> impl Iterator<Item = &'a Observation<P>>
    where
        P: 'a,
    {
        core::iter::once(self)
    }
}

impl<P> Observed<P> for [Observation<P>] {
    #[inline(always)]
    fn each<'a>(&'a self) -> impl Iterator<Item = &'a Observation<P>>
    where
        P: 'a,
    {
        self.iter()
    }
}

/// What measurements have to know of a packet: of its keys those that are used, each made once,
/// however many measurements are by it.
#[derive(Clone, Copy)]
pub struct Observation<P = One> {
    /// Signatures of keys.
    src: u32,
    dst: u32,
    src_dst: u32,
    five_tuple: u32,
    pub(crate) arrival: Arrival<P>,
    /// Bytes from the network header on, as it says.
    header_length: u32,
    /// The key of heavy hitters itself.
    pub(crate) heavy: FlowKey,
    /// Its part in a conversation, and the hashes of both ends, source and destination.
    pub(crate) segment: Segment,
    pub(crate) ends: (u32, u32),
    /// Their addresses, as [prefixes] have them, and whose these are.
    addresses: (u64, u64),
    pub(crate) owners: (Owner, Owner),
    /// The source prefix of reordering; zero if nobody asks.
    pub(crate) prefix: u64,
}

impl Observation {
    /// Of no packet; to be overwritten.
    pub const EMPTY: Observation = Observation {
        src: 0,
        dst: 0,
        src_dst: 0,
        five_tuple: 0,
        arrival: Arrival::new(0, 0),
        header_length: 0,
        heavy: FlowKey::EMPTY,
        segment: Segment::NONE,
        ends: (0, 0),
        addresses: (0, 0),
        owners: (Owner::NONE, Owner::NONE),
        prefix: 0,
    };
}

impl<P: Packets> Observation<P> {
    /// Of a frame in which no packet was found yet.
    #[inline(always)]
    #[must_use]
    pub fn of(arrival: &Arrival<P>) -> Self {
        Observation {
            src: 0,
            dst: 0,
            src_dst: 0,
            five_tuple: 0,
            arrival: *arrival,
            header_length: 0,
            heavy: FlowKey::EMPTY,
            segment: Segment::NONE,
            ends: (0, 0),
            addresses: (0, 0),
            owners: (Owner::NONE, Owner::NONE),
            prefix: 0,
        }
    }

    /// Begins anew with another frame; what nobody asks for stays as it was.
    #[inline(always)]
    pub fn arrive(&mut self, arrival: Arrival<P>) {
        self.arrival = arrival;
    }

    /// Notes what is asked of a packet that was found in a frame. What nobody asks for stays as it
    /// was. In place, because there is no room for two on the stack of a program in the kernel.
    #[inline(always)]
    pub fn note<const KEYED: bool, F: Frame + ?Sized>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings>>,
        frame: &F,
        packet: &Packet<'_>,
    ) {
        self.header_length = packet.total_length();
        let transport = context.transport(frame, packet, &mut self.segment);
        if context.needs.has(Needs::ENDS) && self.segment.speaks != Speaks::Nothing {
            self.ends = context.ends::<KEYED>(packet, transport.ports);
        }
        if context.needs.has(Needs::key(KeyKind::Src)) {
            self.src = context.signature::<KEYED>(KeyKind::Src, packet, transport);
        }
        if context.needs.has(Needs::key(KeyKind::Dst)) {
            self.dst = context.signature::<KEYED>(KeyKind::Dst, packet, transport);
        }
        if context.needs.has(Needs::key(KeyKind::SrcDst)) {
            self.src_dst = context.signature::<KEYED>(KeyKind::SrcDst, packet, transport);
        }
        if context.needs.has(Needs::key(KeyKind::FiveTuple)) {
            self.five_tuple = context.signature::<KEYED>(KeyKind::FiveTuple, packet, transport);
        }
        if context.needs.has(Needs::ADDRESSES) {
            self.addresses = prefixes::addresses(packet);
        }
        if context.needs.has(Needs::measurement(Heavy::INDEX)) {
            self.heavy = context.settings.borrow().heavy.key.extract(packet, transport);
        }
        if context.needs.has(Needs::measurement(Reorder::INDEX)) {
            self.prefix = context.settings.borrow().reorder.prefix(packet);
        }
    }

    /// Notes what distinct flows have to know of a packet, where nothing else is measured: the
    /// signature of their key, which nobody asks for by another one.
    #[inline(always)]
    pub fn note_flow<const KEYED: bool, F: Frame + ?Sized>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings>>,
        frame: &F,
        packet: &Packet<'_>,
    ) {
        if context.needs.has(Needs::measurement(Cardinality::INDEX)) {
            let key = context.settings.borrow().cardinality.key;
            let signature = context.signature::<KEYED>(key, packet, key.transport(frame, packet));
            (self.src, self.dst, self.src_dst, self.five_tuple) =
                (signature, signature, signature, signature);
        }
    }

    /// Finds out whose the addresses are that were noted.
    #[inline(always)]
    pub(crate) fn find_owners(&mut self, ranges: &Ranges) {
        let (source, destination) = self.addresses;
        self.owners = (ranges.owner(source), ranges.owner(destination));
    }

    /// Notes a time as that of its arrival.
    #[inline(always)]
    pub fn note_time(&mut self, timestamp: u64) {
        self.arrival.timestamp = timestamp;
    }

    /// When it came, in nanoseconds since the Unix epoch.
    #[inline(always)]
    pub(crate) fn time(&self) -> u64 {
        self.arrival.packets.time(self.arrival.timestamp)
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.arrival.packets.number()
    }

    /// Lengths of all packets but the last, and of the last, from their network headers on.
    #[inline(always)]
    #[must_use]
    pub fn lengths(&self) -> (u32, u32) {
        self.arrival.packets.lengths(self.header_length)
    }

    #[inline(always)]
    pub(crate) fn by(&self, key: KeyKind) -> u32 {
        match key {
            KeyKind::Src => self.src,
            KeyKind::Dst => self.dst,
            KeyKind::SrcDst => self.src_dst,
            KeyKind::FiveTuple => self.five_tuple,
        }
    }
}
