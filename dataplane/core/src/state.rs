//! A core's whole state and what one frame does to it.

use crate::arrival::{Arrival, Packets};
use crate::counters::Counters;
use crate::frame::Frame;
use crate::hash::{HashMode, Tabulation};
use crate::key::KeyKind;
use crate::link::Link;
use crate::measurement::{
    Bank, Lasting, Listed, MeasurementKind, Memory, Parts, Pass, Settings, SharedBank, SharedLasting, empty, measure, used,
};
use crate::observation::{Observation, Observed};
use crate::parse::{self, Packet, Transport};
use crate::sketch::Sharing;
use crate::unopened::Unopened;

/// Banks of every windowed measurement: one is written while the other is read and cleared.
pub const BANKS: usize = 2;

/// Words of 32 bits in [`Settings`].
pub const SETTINGS_WORDS: usize = size_of::<Settings>() / size_of::<u32>();

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Settings {
    /// Nothing but distinct flows.
    #[must_use]
    pub const fn only(cardinality: crate::cardinality::Settings) -> Settings {
        Settings { cardinality, ..Settings::DEFAULT }
    }

    /// Whether anything is on beside distinct flows.
    #[must_use]
    pub fn beyond_cardinality(&self) -> bool {
        MeasurementKind::ALL.into_iter().any(|kind| kind != MeasurementKind::Cardinality && kind.is_on(self))
    }

    /// Whether any measurement uses memory that lasts beyond rotations.
    #[must_use]
    pub fn lasts(&self) -> bool {
        used(self).any(|used| used.lasting > 0)
    }

    /// Whether any measurement uses memory that cores share.
    #[must_use]
    pub fn shares(&self) -> bool {
        used(self).any(|used| used.shared > 0 || used.shared_lasting > 0)
    }

    /// A bit for every key that a measurement is by.
    #[inline(always)]
    fn keys(&self) -> u8 {
        self.bit(KeyKind::Src) | self.bit(KeyKind::Dst) | self.bit(KeyKind::SrcDst) | self.bit(KeyKind::FiveTuple)
    }

    #[inline(always)]
    fn bit(&self, key: KeyKind) -> u8 {
        u8::from(self.uses(key)).wrapping_shl(key as u32)
    }

    /// As words, for [`of_words`](Self::of_words).
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn words(&self) -> [u32; SETTINGS_WORDS] {
        let mut words = [0; SETTINGS_WORDS];
        words.iter_mut().zip(crate::words::of(self)).for_each(|(to, from)| *to = from);
        words
    }
}

/// Settings and installed tables, as every update needs them.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What to measure and how.
    pub settings: Settings,
    /// The words that hashes are made of.
    pub tabulation: &'a Tabulation,
    /// Whether other cores count in the same sketches.
    pub sharing: Sharing,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// A bit for every key that a measurement is by.
    keys: u8,
}

impl<'a> Context<'a> {
    /// Of settings and tables.
    #[inline(always)]
    #[must_use]
    pub fn new(settings: Settings, tabulation: &'a Tabulation, sharing: Sharing) -> Self {
        // The kernel's programs do not ask: they would keep the answers on the stack from here on.
        let keys = if cfg!(target_arch = "bpf") { 0 } else { settings.keys() };
        Context { settings, tabulation, sharing, slot_ns: 1, keys }
    }

    /// The same with slots of this length, in nanoseconds; of one nanosecond, if nobody says.
    #[inline(always)]
    #[must_use]
    pub fn with_slots(self, slot_ns: u64) -> Self {
        Context { slot_ns, ..self }
    }

    /// As [`Settings::uses`].
    #[inline(always)]
    fn uses(&self, key: KeyKind) -> bool {
        if cfg!(target_arch = "bpf") {
            // Constants, which the verifier sees through, and takes away what they say is not in use.
            self.settings.uses(key)
        } else {
            self.keys & 1_u8.wrapping_shl(key as u32) != 0
        }
    }

    /// A key's signature, or zero if nothing is by it.
    #[inline(always)]
    pub(crate) fn signature<const KEYED: bool>(&self, key: KeyKind, packet: &Packet<'_>, transport: Transport) -> u32 {
        if self.uses(key) { key.signature_of::<KEYED>(self.tabulation, packet, transport) } else { 0 }
    }

    /// What all keys that are in use have to know of the transport header.
    #[inline(always)]
    pub(crate) fn transport<F: Frame + ?Sized>(&self, frame: &F, packet: &Packet<'_>) -> Transport {
        if self.uses(KeyKind::FiveTuple) { parse::transport(frame, packet) } else { Transport::NONE }
    }
}

/// What all cores count in together.
#[repr(C)]
pub struct Shared {
    /// What rotates.
    pub banks: [SharedBank; BANKS],
    /// What lasts.
    pub lasting: SharedLasting,
}

/// The state of one core: plain integers, valid and empty when zeroed, no pointers.
#[derive(Clone, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// What rotates.
    pub banks: [Bank; BANKS],
    /// What lasts.
    pub lasting: Lasting,
}

empty!(Shared { banks: [const { SharedBank::new() }; BANKS], lasting: SharedLasting::new() });
empty!(State { banks: [const { Bank::new() }; BANKS], lasting: Lasting::new() });

impl State {
    /// What a bank's packets are counted in.
    #[inline(always)]
    pub fn active<'a>(&'a mut self, shared: &'a Shared, bank: usize) -> Active<'a> {
        #[allow(clippy::indexing_slicing, reason = "masked to the number of banks")]
        let (bank, shared_bank) = (&mut self.banks[bank & (BANKS - 1)], &shared.banks[bank & (BANKS - 1)]);
        Active { bank, lasting: &mut self.lasting, shared: shared_bank, shared_lasting: &shared.lasting }
    }
}

/// What packets are counted in, where a core has a whole [`State`].
pub struct Active<'a> {
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
    fn parts<M: Listed>(&mut self, _: &M::Settings) -> Option<Parts<'_, M>> {
        Some(Parts {
            own: M::own(self.bank),
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
        Active { bank: self.bank, lasting: self.lasting, shared: self.shared, shared_lasting: self.shared_lasting }
    }

    /// Counts one frame, as [`Record::record`].
    #[inline(always)]
    pub fn record<F: Frame + ?Sized>(&mut self, context: &Context<'_>, link: Link, frame: &F, arrival: Arrival<impl Packets>) {
        Record::record(self, context, link, frame, arrival);
    }
}

/// Counting, wherever packets are counted.
pub trait Record: Memory {
    /// Counts one frame.
    #[inline(always)]
    fn record<F: Frame + ?Sized>(&mut self, context: &Context<'_>, link: Link, frame: &F, arrival: Arrival<impl Packets>)
    where
        Self: Sized,
    {
        let observation = match context.settings.cardinality.hash {
            HashMode::Crc32 | HashMode::Tabulated => self.observe::<false, F, _>(context, link, frame, &arrival),
            HashMode::Keyed => self.observe::<true, F, _>(context, link, frame, &arrival),
        };
        if let Some(observation) = observation {
            self.measure(context, &observation);
        }
    }

    /// The first half of [`record`](Self::record): packets and bytes, and what [`measure`](Self::measure) has to know of a packet. `KEYED` says
    /// whether the settings' hash is the keyed one: code for one kind of signature takes fewer registers, and no packet has to ask.
    #[inline(always)]
    fn observe<const KEYED: bool, F: Frame + ?Sized, P: Packets>(
        &mut self,
        context: &Context<'_>,
        link: Link,
        frame: &F,
        arrival: &Arrival<P>,
    ) -> Option<Observation<P>> {
        let packets = u64::from(arrival.packets.number());
        let counters = self.counters();
        counters.bytes = counters.bytes.wrapping_add(u64::from(arrival.wire_length));
        let packet = match parse::plain(frame, link, context.settings.headers) {
            Some(packet) => packet,
            None => match parse::any(frame, link, context.settings.headers) {
                Ok(packet) => packet,
                Err(reject) => {
                    self.reject(reject, arrival.packets.number());
                    return None;
                }
            },
        };
        // Keys are inlined for each family, so that nothing has to be told apart twice.
        Some(match packet {
            Packet::V4(_) => {
                let counters = self.counters();
                counters.ipv4 = counters.ipv4.wrapping_add(packets);
                Observation::of::<KEYED, _>(context, frame, &packet, arrival)
            }
            Packet::V6(_) => {
                let counters = self.counters();
                counters.ipv6 = counters.ipv6.wrapping_add(packets);
                Observation::of::<KEYED, _>(context, frame, &packet, arrival)
            }
        })
    }

    /// The second half of [`record`](Self::record), for packets in the order in which they came: one measurement after the other, so that
    /// each finds its own tables in the nearest cache. None of them looks at another, and so the result is that of packets one by one.
    #[inline(always)]
    fn measure<P: Packets>(&mut self, context: &Context<'_>, packets: &(impl Observed<P> + ?Sized))
    where
        Self: Sized,
    {
        let Context { settings, tabulation, sharing, slot_ns, .. } = *context;
        // No counter holds more than all packets of its bank, where one core counts.
        let counters = self.counters();
        let counted = counters.ipv4.wrapping_add(counters.ipv6);
        let pass = Pass { tabulation, sharing: sharing.of(counted), own: Sharing::Alone.of(counted), slot_ns };
        // By value: a reference to what may be constants would keep the compiler from seeing them.
        measure(self, settings, &pass, packets);
    }
}

impl<M: Memory> Record for M {}
