//! Per-core state, and the path of one frame through it.
//!
//! [`State`] is the memory of one core, and [`Shared`] the memory that all cores count in. Both are
//! plain integers without pointers, and empty when zeroed. [`State::active`] borrows the memory of
//! one bank as [`Active`], which implements [`Memory`]. A [`Context`] has the settings and hash
//! tables of a run.
//!
//! [`CountFrames::record`] counts one frame in two steps. [`CountFrames::observe`] parses the frame, counts
//! packets and bytes, and fills an [`Observation`] with the fields that measurements need.
//! [`CountFrames::measure`] then runs each measurement that is on. Workers that count packets in batches
//! call the two steps separately, and so do the eBPF programs, which have another [`Memory`].
//!
//! Where to look: [`parse`] for headers, [`list`](crate::list) for the loop over measurements,
//! [`kernel`](crate::kernel) for the kernel's memory layout.

use crate::arrival::{Arrival, Packets};
use crate::cardinality::Cardinality;
use crate::counter::Sharing;
use crate::counters::Counters;
use crate::delay::{Delay, prefixes};
use crate::filter::{EveryPacket, PacketFilter};
use crate::frame::Frame;
use crate::hash::{Crc32, HashMode, Tabulation};
use crate::heavy::Heavy;
use crate::key::{self, KeyKind};
use crate::link::Link;
use crate::list::{
    Bank, Listed, Memory, PersistentBank, Settings, SharedBank, SharedPersistentBank, measure,
    measure_by,
};
use crate::measurement::{MeasureContext, MeasurementMemory};
use crate::needs::RequiredFields;
use crate::observation::{Observation, Observed};
use crate::packet::{Packet, Transport, locate, ports};
use crate::parse;
use crate::reorder::Reorder;
use crate::requires;
use crate::segment::{Segment, SegmentProtocol};
use crate::sketch::FULL;
use crate::spread::Spread;
use crate::unopened::CommonEtherType;
use core::borrow::Borrow;
use zerocopy::FromZeros;

/// Banks of every banked measurement: packets are counted in one while the other is read and
/// cleared.
pub const BANKS: usize = 2;

/// Settings and hash tables that every update needs.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a, S = Settings> {
    /// Settings of all measurements: by value where the compiler may know them, else by reference.
    pub settings: S,
    /// Header of a frame that defines its flow; overrides `settings`.
    pub headers: parse::Settings,
    /// Mode by which signatures become register hashes; overrides `settings`.
    pub hash: HashMode,
    /// Hash tables.
    pub tabulation: &'a Tabulation,
    /// Whether other cores count in the same sketches at the same time.
    pub sharing: Sharing,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// Packet fields that measurements need.
    pub needs: RequiredFields,
}

impl<'a> Context<'a> {
    /// Creates a context from settings and hash tables, with slots of one nanosecond.
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

    /// Returns the context with slots of `slot_ns` nanoseconds.
    #[inline(always)]
    #[must_use]
    pub fn with_slots(self, slot_ns: u64) -> Self {
        Context { slot_ns, ..self }
    }
}

impl<S> Context<'_, S> {
    /// Returns the signature of a packet's key.
    #[inline(always)]
    pub(crate) fn signature<const KEYED: bool>(
        &self,
        key: KeyKind,
        packet: &Packet<'_>,
        transport: Transport,
    ) -> u32 {
        key.signature_of::<KEYED>(self.tabulation, packet, transport)
    }

    /// Reads the fields of the transport header that the keys in use and the conversation
    /// measurements need. Leaves `segment` unchanged unless a measurement needs it.
    #[inline(always)]
    pub(crate) fn transport<F: Frame + ?Sized>(
        &self,
        frame: &F,
        packet: &Packet<'_>,
        segment: &mut Segment,
    ) -> Transport {
        const OF_TRANSPORT: RequiredFields = RequiredFields::SEGMENT
            .and(RequiredFields::PORT_PAIRS)
            .and(RequiredFields::key(KeyKind::FiveTuple));
        if !requires!(self.needs, OF_TRANSPORT) {
            return Transport::NONE;
        }
        let (protocol, offset) = locate(frame, packet);
        let transport = ports(frame, protocol, offset);
        if requires!(self.needs, RequiredFields::SEGMENT) {
            segment.read(
                frame,
                packet,
                transport,
                offset,
                requires!(self.needs, RequiredFields::TIMESTAMPS),
            );
        }
        transport
    }

    /// Returns the signature of a packet's key with the destination port.
    #[inline(always)]
    pub(crate) fn port_pair<const KEYED: bool>(
        &self,
        key: KeyKind,
        packet: &Packet<'_>,
        transport: Transport,
    ) -> u32 {
        if KEYED {
            key.lay_out_with_port(packet, transport, self.tabulation.multilinear())
        } else {
            key.lay_out_with_port(packet, transport, Crc32::new())
        }
    }

    /// Returns the hashes of both endpoints of a conversation: source and destination.
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
    /// Fills the fields that measurements need from a parsed packet; the others keep their stale
    /// values. Works in place, because the stack of an eBPF program has no room for two
    /// observations.
    #[inline(always)]
    pub fn note<const KEYED: bool, F: Frame + ?Sized>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings>>,
        frame: &F,
        packet: &Packet<'_>,
    ) {
        self.header_length = packet.total_length();
        let transport = context.transport(frame, packet, &mut self.segment);
        if requires!(context.needs, RequiredFields::ENDS)
            && self.segment.speaks != SegmentProtocol::Nothing
        {
            self.ends = context.ends::<KEYED>(packet, transport.ports);
        }
        if requires!(context.needs, RequiredFields::key(KeyKind::Src)) {
            self.src = context.signature::<KEYED>(KeyKind::Src, packet, transport);
        }
        if requires!(context.needs, RequiredFields::key(KeyKind::Dst)) {
            self.dst = context.signature::<KEYED>(KeyKind::Dst, packet, transport);
        }
        if requires!(context.needs, RequiredFields::key(KeyKind::SrcDst)) {
            self.src_dst = context.signature::<KEYED>(KeyKind::SrcDst, packet, transport);
        }
        if requires!(context.needs, RequiredFields::key(KeyKind::FiveTuple)) {
            self.five_tuple = context.signature::<KEYED>(KeyKind::FiveTuple, packet, transport);
        }
        if requires!(context.needs, RequiredFields::ADDRESSES) {
            self.addresses = prefixes::addresses(packet);
        }
        if requires!(context.needs, RequiredFields::measurement(Heavy::INDEX)) {
            self.heavy = context.settings.borrow().heavy.key.extract(packet, transport);
        }
        if requires!(context.needs, RequiredFields::measurement(Spread::INDEX)) {
            self.spread = KeyKind::FiveTuple.extract(packet, transport);
        }
        if requires!(context.needs, RequiredFields::PORT_PAIRS) {
            let [first, second] = &context.settings.borrow().spread;
            if first.counts_ports() {
                self.port_pairs.0 = context.port_pair::<KEYED>(first.by, packet, transport);
            }
            if second.counts_ports() {
                self.port_pairs.1 = context.port_pair::<KEYED>(second.by, packet, transport);
            }
        }
        if requires!(context.needs, RequiredFields::measurement(Reorder::INDEX)) {
            self.prefix = context.settings.borrow().reorder.prefix(packet);
        }
    }

    /// Fills the fields that distinct flows need, where no other measurement is on: the signature
    /// of their key. It is stored for all keys, since no other key is in use.
    #[inline(always)]
    pub fn note_flow<const KEYED: bool, F: Frame + ?Sized>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings>>,
        frame: &F,
        packet: &Packet<'_>,
    ) {
        if context.needs.has(RequiredFields::measurement(Cardinality::INDEX)) {
            let key = context.settings.borrow().cardinality.key;
            let signature = context.signature::<KEYED>(key, packet, key.transport(frame, packet));
            (self.src, self.dst, self.src_dst, self.five_tuple) =
                (signature, signature, signature, signature);
        }
    }
}

/// Memory that all cores count in.
#[derive(FromZeros)]
#[repr(C)]
pub struct Shared {
    /// Banked memory, which rotates with windows.
    pub banks: [SharedBank; BANKS],
    /// Persistent memory.
    pub persistent: SharedPersistentBank,
}

/// State of one core: plain integers without pointers, valid and empty when zeroed.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct State {
    /// Banked memory, which rotates with windows.
    pub banks: [Bank; BANKS],
    /// Persistent memory.
    pub persistent: PersistentBank,
}

impl State {
    /// Returns the memory in which packets of a bank are counted.
    #[inline(always)]
    pub fn active<'a>(&'a mut self, shared: &'a Shared, bank: usize) -> Active<'a> {
        let index = bank & (BANKS - 1);
        #[allow(clippy::indexing_slicing, reason = "masked to the number of banks")]
        let (bank, shared_bank) = (&mut self.banks[index], &shared.banks[index]);
        Active {
            index,
            bank,
            persistent: &mut self.persistent,
            shared: shared_bank,
            shared_persistent: &shared.persistent,
        }
    }
}

/// Memory of one bank, where a core has a whole [`State`].
pub struct Active<'a> {
    /// Index of the bank.
    pub index: usize,
    /// Per-core bank.
    pub bank: &'a mut Bank,
    /// Per-core persistent memory.
    pub persistent: &'a mut PersistentBank,
    /// Bank that all cores share.
    pub shared: &'a SharedBank,
    /// Persistent memory that all cores share.
    pub shared_persistent: &'a SharedPersistentBank,
}

impl Memory for Active<'_> {
    #[inline(always)]
    fn counters(&mut self) -> &mut Counters {
        &mut self.bank.counters
    }

    #[inline(always)]
    fn unopened(&mut self) -> &mut CommonEtherType {
        &mut self.bank.unopened
    }

    #[inline(always)]
    fn bank(&self) -> usize {
        self.index
    }

    #[inline(always)]
    fn parts<M: Listed>(&mut self, _: &M::Settings) -> Option<MeasurementMemory<'_, M>> {
        Some(MeasurementMemory {
            own: M::core(self.bank),
            persistent: M::persistent(self.persistent),
            shared: M::shared(self.shared),
            shared_persistent: M::shared_persistent(self.shared_persistent),
        })
    }
}

impl Active<'_> {
    /// Borrows the same memory for a shorter time, so that the caller's pointers stay in registers.
    #[inline(always)]
    pub fn reborrow(&mut self) -> Active<'_> {
        Active {
            index: self.index,
            bank: self.bank,
            persistent: self.persistent,
            shared: self.shared,
            shared_persistent: self.shared_persistent,
        }
    }

    /// Counts one frame, as [`CountFrames::record`].
    #[inline(always)]
    pub fn record<F: Frame + ?Sized>(
        &mut self,
        context: &Context<'_>,
        link: Link,
        frame: &F,
        arrival: Arrival<impl Packets>,
    ) {
        CountFrames::record(self, context, link, frame, arrival);
    }
}

/// Counting of frames in any [`Memory`].
pub trait CountFrames: Memory {
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
        let seen = &mut observation;
        let is_counted = match context.settings.hash {
            HashMode::Crc32 | HashMode::Tabulated => {
                self.observe::<false, F, _>(context, EveryPacket, link, frame, seen)
            }
            HashMode::Keyed => self.observe::<true, F, _>(context, EveryPacket, link, frame, seen),
        };
        if is_counted {
            self.measure(context, &observation);
        }
    }

    /// Counts packets and bytes of a frame that the filter admits, and fills the fields that
    /// [`measure`](Self::measure) needs: the first half of [`record`](Self::record), which admits
    /// all. Returns whether the frame has a packet to measure. `KEYED`: whether the settings' hash
    /// is the keyed one; code for one kind of signature takes fewer registers, and no packet has to
    /// check.
    #[inline(always)]
    fn observe<const KEYED: bool, F: Frame + ?Sized, P: Packets>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings> + Copy>,
        filter: impl PacketFilter,
        link: Link,
        frame: &F,
        observation: &mut Observation<P>,
    ) -> bool {
        self.find::<false, KEYED, F, P>(context, filter, link, frame, observation)
    }

    /// As [`observe`](Self::observe), where only distinct flows are measured.
    #[inline(always)]
    fn observe_flow<const KEYED: bool, F: Frame + ?Sized, P: Packets>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings> + Copy>,
        filter: impl PacketFilter,
        link: Link,
        frame: &F,
        observation: &mut Observation<P>,
    ) -> bool {
        self.find::<true, KEYED, F, P>(context, filter, link, frame, observation)
    }

    /// Counts a frame, and fills the required fields from the packet in it.
    #[doc(hidden)]
    #[inline(always)]
    fn find<const FLOW: bool, const KEYED: bool, F: Frame + ?Sized, P: Packets>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings> + Copy>,
        filter: impl PacketFilter,
        link: Link,
        frame: &F,
        observation: &mut Observation<P>,
    ) -> bool {
        let number = observation.number();
        let packets = u64::from(number);
        let wire_length = observation.arrival.wire_length;
        let counters = self.counters();
        counters.bytes += u64::from(wire_length);
        counters.merged += packets - 1;
        let plain = parse::plain(frame, link, context.headers);
        let packet = match plain {
            Some(packet) => Ok(packet),
            None => parse::any(frame, link, context.headers),
        };
        let is_admitted = match plain {
            Some(Packet::V4(ip)) => filter.admits_plain(frame, ip, wire_length),
            _ => filter.admits(link, frame, &packet, wire_length),
        };
        if !is_admitted {
            // Added before the frame was parsed, where counters are at hand.
            let counters = self.counters();
            counters.bytes -= u64::from(wire_length);
            counters.leave_out(packets, wire_length.into());
            return false;
        }
        let packet = match packet {
            Ok(packet) => packet,
            Err(reject) => {
                self.reject(reject, number);
                return false;
            }
        };
        // Key code is inlined once per family, so that the family is tested only once.
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
        if !FLOW {
            observation.note_rows(context.needs, context.tabulation);
        }
        if !FLOW
            && requires!(context.needs, RequiredFields::ADDRESSES)
            && let Some(parts) = self.parts::<Delay>(&context.settings.borrow().delay)
        {
            observation.find_owners(&parts.shared_persistent.ranges);
        }
        true
    }

    /// Runs the measurements on packets in the order of their arrival: the second half of
    /// [`record`](Self::record). Runs one measurement after the other, so that each finds its
    /// tables in the nearest cache. Measurements are independent, so the result is the same as
    /// packet by packet.
    #[inline(always)]
    fn measure<P: Packets>(
        &mut self,
        context: &Context<'_, impl Borrow<Settings> + Copy>,
        packets: &(impl Observed<P> + ?Sized),
    ) where
        Self: Sized,
    {
        let pass = self.pass(context);
        // By value: a reference to settings that may be constants would hide them from the
        // compiler.
        measure(self, context.settings, context.needs, &pass, packets);
    }

    /// As [`measure`](Self::measure), for one measurement, which is on.
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

    /// Returns the inputs of measurements beside their settings.
    #[doc(hidden)]
    #[inline(always)]
    fn pass<'a>(&mut self, context: &Context<'a, impl Copy>) -> MeasureContext<'a> {
        let Context { hash, tabulation, sharing, slot_ns, .. } = *context;
        // Where one core counts, no counter exceeds the number of packets of its bank.
        let counters = self.counters();
        let counted = counters.ipv4 + counters.ipv6;
        MeasureContext {
            hash,
            tabulation,
            sharing: sharing.of(counted, FULL as u64),
            own: Sharing::Alone.of(counted, FULL as u64),
            slot_ns,
            bank: self.bank(),
        }
    }
}

impl<M: Memory> CountFrames for M {}
