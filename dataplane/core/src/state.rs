//! A core's whole state and what one frame does to it.

use crate::arrival::{Arrival, Packets};
use crate::cardinality::Cardinality;
use crate::counter::Sharing;
use crate::counters::Counters;
use crate::delay::{Delay, prefixes};
use crate::frame::Frame;
use crate::hash::{Crc32, HashMode, Tabulation};
use crate::heavy::Heavy;
use crate::key::{self, KeyKind};
use crate::link::Link;
use crate::list::{
    Bank, Lasting, Listed, Memory, Settings, SharedBank, SharedLasting, measure, measure_by,
};
use crate::measurement::{Parts, Pass};
use crate::needs::Needs;
use crate::observation::{Observation, Observed};
use crate::packet::{Packet, Transport, locate, ports};
use crate::parse;
use crate::reorder::Reorder;
use crate::segment::{Segment, Speaks};
use crate::sketch::FULL;
use crate::unopened::Unopened;
use core::borrow::Borrow;
use zerocopy::FromZeros;

/// Banks of every windowed measurement: one is written while the other is read and cleared.
pub const BANKS: usize = 2;

/// Settings and installed tables, as every update needs them.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a, S = Settings> {
    /// What to measure and how: the settings, where the compiler may know them, or a reference to
    /// them.
    pub settings: S,
    /// Which of a frame's headers say what its flow is, whatever `settings` say.
    pub headers: parse::Settings,
    /// How signatures become hashes of registers, whatever `settings` say.
    pub hash: HashMode,
    /// Tables of hashes.
    pub tabulation: &'a Tabulation,
    /// Whether other cores count in the same sketches.
    pub sharing: Sharing,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// What has to be known of packets.
    pub needs: Needs,
}

impl<'a> Context<'a> {
    /// Of settings and tables.
    #[inline(always)]
    #[must_use]
    pub fn new(settings: Settings, tabulation: &'a Tabulation, sharing: Sharing) -> Self {
        Context {
            settings,
            headers: settings.headers,
            hash: settings.hash,
            tabulation,
            sharing,
            slot_ns: 1,
            needs: settings.needs(),
        }
    }

    /// The same with slots of this length, in nanoseconds; of one nanosecond, if nobody says.
    #[inline(always)]
    #[must_use]
    pub fn with_slots(self, slot_ns: u64) -> Self {
        Context { slot_ns, ..self }
    }
}

impl<S> Context<'_, S> {
    /// A key's signature.
    #[inline(always)]
    pub(crate) fn signature<const KEYED: bool>(
        &self,
        key: KeyKind,
        packet: &Packet<'_>,
        transport: Transport,
    ) -> u32 {
        key.signature_of::<KEYED>(self.tabulation, packet, transport)
    }

    /// What all keys that are in use, and all measurements of conversations, have to know of the
    /// transport header. The segment stays as it was if nobody asks for it.
    #[inline(always)]
    pub(crate) fn transport<F: Frame + ?Sized>(
        &self,
        frame: &F,
        packet: &Packet<'_>,
        segment: &mut Segment,
    ) -> Transport {
        if !self.needs.has(Needs::SEGMENT.and(Needs::key(KeyKind::FiveTuple))) {
            return Transport::NONE;
        }
        let (protocol, offset) = locate(frame, packet);
        let transport = ports(frame, protocol, offset);
        if self.needs.has(Needs::SEGMENT) {
            segment.read(frame, packet, transport, offset, self.needs.has(Needs::TIMESTAMPS));
        }
        transport
    }

    /// Hashes of both ends of a conversation, source and destination.
    #[inline(always)]
    pub(crate) fn ends<const KEYED: bool>(
        &self,
        packet: &Packet<'_>,
        ports: [u8; 4],
    ) -> (u32, u32) {
        if KEYED {
            key::ends(packet, ports, self.tabulation.multilinear())
        } else {
            key::ends(packet, ports, Crc32::new())
        }
    }
}

impl<P: Packets> Observation<P> {
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
}

/// What all cores count in together.
#[derive(FromZeros)]
#[repr(C)]
pub struct Shared {
    /// What rotates.
    pub banks: [SharedBank; BANKS],
    /// What lasts.
    pub lasting: SharedLasting,
}

/// The state of one core: plain integers, valid and empty when zeroed, no pointers.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct State {
    /// What rotates.
    pub banks: [Bank; BANKS],
    /// What lasts.
    pub lasting: Lasting,
}

impl State {
    /// What a bank's packets are counted in.
    #[inline(always)]
    pub fn active<'a>(&'a mut self, shared: &'a Shared, bank: usize) -> Active<'a> {
        let index = bank & (BANKS - 1);
        #[allow(clippy::indexing_slicing, reason = "masked to the number of banks")]
        let (bank, shared_bank) = (&mut self.banks[index], &shared.banks[index]);
        Active {
            index,
            bank,
            lasting: &mut self.lasting,
            shared: shared_bank,
            shared_lasting: &shared.lasting,
        }
    }
}

/// What packets are counted in, where a core has a whole [`State`].
pub struct Active<'a> {
    /// Which bank it is.
    pub index: usize,
    /// The core's own bank.
    pub bank: &'a mut Bank,
    /// The core's own lasting memory.
    pub lasting: &'a mut Lasting,
    /// What all cores count in.
    pub shared: &'a SharedBank,
    /// What lasts of that.
    pub shared_lasting: &'a SharedLasting,
}

impl Memory for Active<'_> {
    #[inline(always)]
    fn counters(&mut self) -> &mut Counters {
        &mut self.bank.counters
    }

    #[inline(always)]
    fn unopened(&mut self) -> &mut Unopened {
        &mut self.bank.unopened
    }

    #[inline(always)]
    fn bank(&self) -> usize {
        self.index
    }

    #[inline(always)]
    fn parts<M: Listed>(&mut self, _: &M::Settings) -> Option<Parts<'_, M>> {
        Some(Parts {
            own: M::core(self.bank),
            lasting: M::lasting(self.lasting),
            shared: M::shared(self.shared),
            shared_lasting: M::shared_lasting(self.shared_lasting),
        })
    }
}

impl Active<'_> {
    /// The same, for code that is to keep where it counts in registers.
    #[inline(always)]
    pub fn reborrow(&mut self) -> Active<'_> {
        Active {
            index: self.index,
            bank: self.bank,
            lasting: self.lasting,
            shared: self.shared,
            shared_lasting: self.shared_lasting,
        }
    }

    /// Counts one frame, as [`Record::record`].
    #[inline(always)]
    pub fn record<F: Frame + ?Sized>(
        &mut self,
        context: &Context<'_>,
        link: Link,
        frame: &F,
        arrival: Arrival<impl Packets>,
    ) {
        Record::record(self, context, link, frame, arrival);
    }
}

/// Counting, wherever packets are counted.
pub trait Record: Memory {
    /// Counts one frame.
    #[inline(always)]
    fn record<F: Frame + ?Sized>(
        &mut self,
        context: &Context<'_>,
        link: Link,
        frame: &F,
        arrival: Arrival<impl Packets>,
    ) where
        Self: Sized,
    {
        let mut observation = Observation::of(&arrival);
        let is_counted = match context.settings.hash {
            HashMode::Crc32 | HashMode::Tabulated => {
                self.observe::<false, F, _>(context, link, frame, &mut observation)
            }
            HashMode::Keyed => self.observe::<true, F, _>(context, link, frame, &mut observation),
        };
        if is_counted {
            self.measure(context, &observation);
        }
    }

    /// The first half of [`record`](Self::record): packets and bytes, and what
    /// [`measure`](Self::measure) has to know of a packet, if there is one: then it says so.
    /// `KEYED` says whether the settings' hash is the keyed one: code for one kind of signature
    /// takes fewer registers, and no packet has to ask.
    #[inline(always)]
    fn observe<const KEYED: bool, F: Frame + ?Sized, P: Packets>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings> + Copy>,
        link: Link,
        frame: &F,
        observation: &mut Observation<P>,
    ) -> bool {
        self.find::<false, KEYED, F, P>(context, link, frame, observation)
    }

    /// As [`observe`](Self::observe), where distinct flows alone are measured.
    #[inline(always)]
    fn observe_flow<const KEYED: bool, F: Frame + ?Sized, P: Packets>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings> + Copy>,
        link: Link,
        frame: &F,
        observation: &mut Observation<P>,
    ) -> bool {
        self.find::<true, KEYED, F, P>(context, link, frame, observation)
    }

    /// Counts a frame, and notes what is asked of the packet in it.
    #[doc(hidden)]
    #[inline(always)]
    fn find<const FLOW: bool, const KEYED: bool, F: Frame + ?Sized, P: Packets>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings> + Copy>,
        link: Link,
        frame: &F,
        observation: &mut Observation<P>,
    ) -> bool {
        let number = observation.number();
        let packets = u64::from(number);
        let counters = self.counters();
        counters.bytes += u64::from(observation.arrival.wire_length);
        let packet = match parse::plain(frame, link, context.headers) {
            Some(packet) => packet,
            None => match parse::any(frame, link, context.headers) {
                Ok(packet) => packet,
                Err(reject) => {
                    self.reject(reject, number);
                    return false;
                }
            },
        };
        // Keys are inlined for each family, so that nothing has to be told apart twice.
        match packet {
            Packet::V4(_) => {
                let counters = self.counters();
                counters.ipv4 += packets;
                if FLOW {
                    observation.note_flow::<KEYED, _>(context, frame, &packet);
                } else {
                    observation.note::<KEYED, _>(context, frame, &packet);
                }
            }
            Packet::V6(_) => {
                let counters = self.counters();
                counters.ipv6 += packets;
                if FLOW {
                    observation.note_flow::<KEYED, _>(context, frame, &packet);
                } else {
                    observation.note::<KEYED, _>(context, frame, &packet);
                }
            }
        }
        if !FLOW
            && context.needs.has(Needs::ADDRESSES)
            && let Some(parts) = self.parts::<Delay>(&context.settings.borrow().delay)
        {
            observation.find_owners(&parts.shared_lasting.ranges);
        }
        true
    }

    /// The second half of [`record`](Self::record), for packets in the order in which they came:
    /// one measurement after the other, so that each finds its own tables in the nearest cache.
    /// None of them looks at another, and so the result is that of packets one by one.
    #[inline(always)]
    fn measure<P: Packets>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings> + Copy>,
        packets: &(impl Observed<P> + ?Sized),
    ) where
        Self: Sized,
    {
        let pass = self.pass(context);
        // By value: a reference to what may be constants would keep the compiler from seeing them.
        measure(self, context.settings, context.needs, &pass, packets);
    }

    /// As [`measure`](Self::measure), by one measurement, which is on.
    #[inline(always)]
    fn measure_by<M: Listed, P: Packets>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings> + Copy>,
        packets: &(impl Observed<P> + ?Sized),
    ) where
        Self: Sized,
    {
        let pass = self.pass(context);
        measure_by::<M, P>(self, context.settings.borrow(), &pass, packets);
    }

    /// What measurements know beside their settings.
    #[doc(hidden)]
    #[inline(always)]
    fn pass<'a>(&mut self, context: &Context<'a, impl Copy>) -> Pass<'a> {
        let Context { hash, tabulation, sharing, slot_ns, .. } = *context;
        // No counter holds more than all packets of its bank, where one core counts.
        let counters = self.counters();
        let counted = counters.ipv4 + counters.ipv6;
        Pass {
            hash,
            tabulation,
            sharing: sharing.of(counted, FULL as u64),
            own: Sharing::Alone.of(counted, FULL as u64),
            slot_ns,
            bank: self.bank(),
        }
    }
}

impl<M: Memory> Record for M {}
