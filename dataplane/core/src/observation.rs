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
    /// The key of heavy hitters itself.
    pub(crate) heavy: FlowKey,
}

impl Observation {
    /// Of no packet; to be overwritten.
    pub const EMPTY: Observation =
        Observation { src: 0, dst: 0, src_dst: 0, five_tuple: 0, arrival: Arrival::new(0, 0), heavy: FlowKey::EMPTY };
}

impl<P: Packets> Observation<P> {
    #[inline(always)]
    pub(crate) fn of<const KEYED: bool, F: Frame + ?Sized>(
        context: &Context<'_>,
        frame: &F,
        packet: &Packet<'_>,
        arrival: Arrival<P>,
    ) -> Self {
        let heavy = &context.settings.heavy;
        Observation {
            src: context.signature::<KEYED, F>(KeyKind::Src, frame, packet),
            dst: context.signature::<KEYED, F>(KeyKind::Dst, frame, packet),
            src_dst: context.signature::<KEYED, F>(KeyKind::SrcDst, frame, packet),
            five_tuple: context.signature::<KEYED, F>(KeyKind::FiveTuple, frame, packet),
            arrival,
            heavy: if heavy.algorithm == Algorithm::Off { FlowKey::EMPTY } else { heavy.key.extract(frame, packet) },
        }
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.arrival.packets.number()
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
