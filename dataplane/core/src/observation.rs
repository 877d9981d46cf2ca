//! What measurements have to know of packets.

use crate::arrival::{Arrival, One, Packets};
use crate::delay::prefixes::{Owner, Ranges};
use crate::flow_key::FlowKey;
use crate::key::KeyKind;
use crate::segment::Segment;

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
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) src_dst: u32,
    pub(crate) five_tuple: u32,
    pub(crate) arrival: Arrival<P>,
    /// Bytes from the network header on, as it says.
    pub(crate) header_length: u32,
    /// The key of heavy hitters itself.
    pub(crate) heavy: FlowKey,
    /// Its part in a conversation, and the hashes of both ends, source and destination.
    pub(crate) segment: Segment,
    pub(crate) ends: (u32, u32),
    /// Their addresses, as [prefixes] have them, and whose these are.
    pub(crate) addresses: (u64, u64),
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
