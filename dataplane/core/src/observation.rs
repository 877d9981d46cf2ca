//! What measurements have to know of packets.

use crate::arrival::{Arrival, One, Packets};
use crate::frame::Frame;
use crate::heavy::Algorithm;
use crate::key::{FlowKey, KeyKind};
use crate::parse::Packet;
use crate::state::Context;

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

/// What measurements have to know of a packet: of its keys those that are used, each made once, however many measurements are by it.
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
    };
}

impl<P: Packets> Observation<P> {
    /// Of a packet that was found in a frame.
    #[inline(always)]
    #[must_use]
    pub fn of<const KEYED: bool, F: Frame + ?Sized>(
        context: &Context<'_>,
        frame: &F,
        packet: &Packet<'_>,
        arrival: &Arrival<P>,
    ) -> Self {
        let heavy = &context.settings.heavy;
        let transport = context.transport(frame, packet);
        Observation {
            src: context.signature::<KEYED>(KeyKind::Src, packet, transport),
            dst: context.signature::<KEYED>(KeyKind::Dst, packet, transport),
            src_dst: context.signature::<KEYED>(KeyKind::SrcDst, packet, transport),
            five_tuple: context.signature::<KEYED>(KeyKind::FiveTuple, packet, transport),
            arrival: *arrival,
            header_length: packet.total_length(),
            heavy: if heavy.algorithm == Algorithm::Off { FlowKey::EMPTY } else { heavy.key.extract(packet, transport) },
        }
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
