//! A core's whole state and what one frame does to it.

use crate::arrival::{Arrival, One, Packets};
use crate::cardinality::{self, Cardinality, Mode, Staggered};
use crate::counters::Counters;
use crate::entropy::{self, ENTROPIES, Entropy};
use crate::frame::Frame;
use crate::frequency::{self, Frequency};
use crate::hash::{HashMode, Tabulation};
use crate::heavy::{self, Algorithm, Heavy, Item};
use crate::key::{FlowKey, KeyKind};
use crate::link::Link;
use crate::membership::{self, Membership};
use crate::parse::{self, Packet, Reject};
#[cfg(not(target_arch = "bpf"))]
use crate::sketch::{Counts, WideSketch};
use crate::sketch::{SharedSketch, Sharing};
use crate::unopened::Unopened;
use core::mem::offset_of;
use core::ops::Range;

/// Banks of every windowed measurement: one is written while the other is read and cleared.
pub const BANKS: usize = 2;

/// What to measure and how, one field a measurement. Constant while a dataplane runs. Bytes without padding, and words, as which
/// programs in the kernel load them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Settings {
    /// Distinct flows.
    pub cardinality: cardinality::Settings,
    /// How traffic is spread over flows, each over a key of its own.
    pub entropy: [entropy::Settings; ENTROPIES],
    /// Packets of any flow.
    pub frequency: frequency::Settings,
    /// Which flows were seen.
    pub membership: membership::Settings,
    /// The flows with the most packets or bytes.
    pub heavy: heavy::Settings,
    /// Which of a frame's headers say what its flow is.
    pub headers: parse::Settings,
}

/// Words of 32 bits in [`Settings`], which have no padding.
pub const SETTINGS_WORDS: usize = size_of::<Settings>() / size_of::<u32>();

/// Settings and installed tables, as every update needs them.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What to measure and how.
    pub settings: Settings,
    /// The words that hashes are made of.
    pub tabulation: &'a Tabulation,
    /// Whether other cores count in the same sketches.
    pub sharing: Sharing,
    /// A bit for every key that a measurement is by.
    keys: u8,
}

impl<'a> Context<'a> {
    /// Of settings and tables.
    #[inline(always)]
    #[must_use]
    pub fn new(settings: Settings, tabulation: &'a Tabulation, sharing: Sharing) -> Self {
        let bit = |key| u8::from(settings.uses(key)).wrapping_shl(key as u32);
        let keys = bit(KeyKind::Src) | bit(KeyKind::Dst) | bit(KeyKind::SrcDst) | bit(KeyKind::FiveTuple);
        Context { settings, tabulation, sharing, keys }
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
    fn signature<const KEYED: bool, F: Frame + ?Sized>(&self, key: KeyKind, frame: &F, packet: &Packet<'_>) -> u32 {
        if self.uses(key) { key.signature_of::<KEYED, F>(self.tabulation, frame, packet) } else { 0 }
    }
}

impl Settings {
    /// As [`Default`], for statics.
    pub const DEFAULT: Settings = Settings {
        cardinality: cardinality::Settings::DEFAULT,
        entropy: [entropy::Settings::DEFAULT; ENTROPIES],
        frequency: frequency::Settings::DEFAULT,
        membership: membership::Settings::DEFAULT,
        heavy: heavy::Settings::DEFAULT,
        headers: parse::Settings::DEFAULT,
    };

    /// Nothing but distinct flows.
    #[must_use]
    pub const fn only(cardinality: cardinality::Settings) -> Settings {
        Settings { cardinality, ..Settings::DEFAULT }
    }

    /// Whether a measurement that is on is by this key.
    #[inline(always)]
    #[must_use]
    pub fn uses(&self, key: KeyKind) -> bool {
        // Without a loop, so that the compiler can follow constants, and the eBPF verifier words.
        let [first, second] = self.entropy;
        (self.cardinality.mode != Mode::Off && self.cardinality.key == key)
            || first.uses(key)
            || second.uses(key)
            || self.frequency.uses(key)
            || (self.membership.on && self.membership.key == key)
            || (self.heavy.algorithm != Algorithm::Off && self.heavy.key == key)
    }

    /// Whether anything is on beside distinct flows.
    #[must_use]
    pub fn beyond_cardinality(&self) -> bool {
        let rest = Settings { cardinality: cardinality::Settings { mode: Mode::Off, ..self.cardinality }, ..*self };
        KeyKind::ALL.iter().any(|&key| rest.uses(key))
    }
}

/// Everything counted between two rotations: by a core, or by several together in a [`WideBank`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Bank<F = Frequency> {
    /// Packets and bytes.
    pub counters: Counters,
    /// Sums of entropies; their sketches are [shared](Shared).
    pub entropy: [Entropy; ENTROPIES],
    /// Distinct flows.
    pub cardinality: Cardinality,
    /// Packets of any flow.
    pub frequency: F,
    /// Which flows were seen.
    pub membership: Membership,
    /// The flows with the most packets or bytes.
    pub heavy: Heavy,
    /// What most frames are that count as non-IP.
    pub unopened: Unopened,
}

/// What cores, interfaces and windows have counted together. Its other counters have 64 bits in every bank.
#[cfg(not(target_arch = "bpf"))]
pub type WideBank = Bank<WideSketch>;

#[cfg(not(target_arch = "bpf"))]
impl WideBank {
    /// Nothing counted.
    #[must_use]
    pub const fn empty() -> Self {
        let Bank { counters, entropy, cardinality, frequency: _, membership, heavy, unopened } = Bank::new();
        Bank { counters, entropy, cardinality, frequency: WideSketch::new(), membership, heavy, unopened }
    }

    /// Adds what another core counted in the same window, or what was counted elsewhere or in another window.
    pub fn merge<F: Counts>(&mut self, other: &Bank<F>, settings: &Settings) {
        self.counters.merge(&other.counters);
        self.entropy.iter_mut().zip(&other.entropy).for_each(|(mine, theirs)| mine.merge(theirs));
        if settings.cardinality.mode == Mode::Windowed {
            self.cardinality.merge(&other.cardinality, settings.cardinality.precision);
        }
        if let Some(kind) = settings.frequency.mode.sketch() {
            self.frequency.merge(&other.frequency, kind, settings.frequency.shape);
        }
        if settings.membership.on {
            self.membership.merge(&other.membership, settings.membership.shape);
        }
        self.heavy.merge(&other.heavy, &settings.heavy);
        self.unopened.merge(&other.unopened);
    }

    /// Makes it empty again.
    pub fn clear(&mut self, settings: &Settings) {
        self.clear_all_but_frequency(settings);
        if settings.frequency.mode != frequency::Mode::Off {
            self.frequency.clear(settings.frequency.shape);
        }
    }
}

impl Bank {
    /// An empty bank.
    #[must_use]
    pub const fn new() -> Self {
        Bank {
            counters: Counters { bytes: 0, ipv4: 0, ipv6: 0, non_ip: 0, truncated: 0, bad_header: 0 },
            entropy: [Entropy { sum: 0 }; ENTROPIES],
            cardinality: Cardinality::new(),
            frequency: Frequency::new(),
            membership: Membership::new(),
            heavy: Heavy::new(),
            unopened: Unopened::NONE,
        }
    }

    /// Counts packets that belong to no flow, but for their bytes.
    #[inline(always)]
    pub fn reject(&mut self, reject: Reject, packets: u32) {
        self.counters.reject(reject, u64::from(packets));
        // Not in the kernel: of other rejects the register of the EtherType holds whatever was there, which the verifier refuses to look at.
        #[cfg(not(target_arch = "bpf"))]
        if let Reject::NonIp(ethertype) = reject {
            self.unopened.vote(ethertype, packets);
        }
    }

    /// The parts of a bank that are in use, as ranges of its bytes, all of them whole words of 64 bits.
    pub fn used(settings: &Settings) -> impl Iterator<Item = Range<usize>> {
        let part = |on: bool, start: usize, bytes: usize| on.then(|| start..start.wrapping_add(bytes));
        let Settings { cardinality, frequency, membership, heavy, .. } = settings;
        let (windowed, frequencies) = (cardinality.mode == Mode::Windowed, frequency.mode != frequency::Mode::Off);
        let parts = [
            part(true, offset_of!(Bank, counters), size_of::<Counters>()),
            part(true, offset_of!(Bank, entropy), size_of::<[Entropy; ENTROPIES]>()),
            part(windowed, offset_of!(Bank, cardinality), cardinality.precision.registers()),
            part(frequencies, offset_of!(Bank, frequency), frequency.shape.cells().wrapping_mul(size_of::<i32>())),
            part(membership.on, offset_of!(Bank, membership), membership.shape.bits() >> 3),
            part(heavy.algorithm != Algorithm::Off, offset_of!(Bank, heavy), size_of::<Heavy>()),
            part(true, offset_of!(Bank, unopened), size_of::<Unopened>()),
        ];
        parts.into_iter().flatten()
    }

    /// Makes the bank empty again.
    pub fn clear(&mut self, settings: &Settings) {
        self.clear_all_but_frequency(settings);
        if settings.frequency.mode != frequency::Mode::Off {
            self.frequency.clear(settings.frequency.shape);
        }
    }
}

impl<F> Bank<F> {
    fn clear_all_but_frequency(&mut self, settings: &Settings) {
        self.counters = Counters::default();
        self.entropy = [Entropy::default(); ENTROPIES];
        self.unopened = Unopened::NONE;
        if settings.cardinality.mode == Mode::Windowed {
            self.cardinality.clear(settings.cardinality.precision);
        }
        if settings.membership.on {
            self.membership.clear(settings.membership.shape);
        }
        if settings.heavy.algorithm != Algorithm::Off {
            self.heavy.clear(&settings.heavy);
        }
    }
}

/// What all cores count in together, by bank and entropy.
#[derive(Default)]
#[repr(C)]
pub struct Shared {
    /// The sketches of a bank.
    pub banks: [[SharedSketch; ENTROPIES]; BANKS],
}

impl Shared {
    /// Zeros.
    #[must_use]
    pub const fn new() -> Self {
        Shared { banks: [const { [const { SharedSketch::new() }; ENTROPIES] }; BANKS] }
    }

    /// Adds the sketches of a bank to others.
    #[cfg(not(target_arch = "bpf"))]
    pub fn merge_into(&self, bank: usize, settings: &Settings, sketches: &mut [WideSketch]) {
        for ((shared, entropy), sketch) in self.bank(bank).zip(&settings.entropy).zip(sketches) {
            if let Some(kind) = entropy.mode.sketch() {
                shared.merge_into(sketch, kind, entropy.shape);
            }
        }
    }

    /// Empties the sketches of a bank.
    #[cfg(not(target_arch = "bpf"))]
    pub fn clear(&self, bank: usize, settings: &Settings) {
        for (shared, entropy) in self.bank(bank).zip(&settings.entropy) {
            if entropy.mode != entropy::Mode::Off {
                shared.clear(entropy.shape);
            }
        }
    }

    #[cfg(not(target_arch = "bpf"))]
    fn bank(&self, bank: usize) -> impl Iterator<Item = &SharedSketch> {
        self.banks.get(bank & (BANKS - 1)).into_iter().flatten()
    }
}

/// The state of one core: plain integers, valid when zeroed, no pointers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// What rotates.
    pub banks: [Bank; BANKS],
    /// Distinct flows without windows.
    pub staggered: Staggered,
}

impl State {
    /// An empty state.
    #[must_use]
    pub const fn new() -> Self {
        State { banks: [Bank::new(), Bank::new()], staggered: Staggered::new() }
    }

    /// What a bank's packets are counted in.
    #[inline(always)]
    pub fn active<'a>(&'a mut self, shared: &'a Shared, bank: usize) -> Active<'a> {
        #[allow(clippy::indexing_slicing, reason = "masked to the number of banks")]
        let (bank, sketches) = (&mut self.banks[bank & (BANKS - 1)], &shared.banks[bank & (BANKS - 1)]);
        Active { bank, staggered: &mut self.staggered, sketches: Some(sketches) }
    }
}

/// Room for what a program in the kernel knows of a packet.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Scratch([u64; 12]);

/// A core's state together with what its reader tells it: one element of the array that the kernel's programs share with user
/// space.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Core {
    /// Index of the bank to count in.
    pub bank: u32,
    /// The program's own.
    pub scratch: Scratch,
    /// What is counted.
    pub state: State,
}

/// What packets are counted in.
pub struct Active<'a> {
    /// The core's own bank.
    pub bank: &'a mut Bank,
    /// The core's staggered registers.
    pub staggered: &'a mut Staggered,
    /// The bank's sketches, which all cores share; of no use without entropies.
    pub sketches: Option<&'a [SharedSketch; ENTROPIES]>,
}

impl Active<'_> {
    /// Counts one frame.
    #[inline(always)]
    pub fn record<F: Frame + ?Sized>(&mut self, context: &Context<'_>, link: Link, frame: &F, arrival: Arrival<impl Packets>) {
        let observation = match context.settings.cardinality.hash {
            HashMode::Crc32 | HashMode::Tabulated => self.observe::<false, F, _>(context, link, frame, arrival),
            HashMode::Keyed => self.observe::<true, F, _>(context, link, frame, arrival),
        };
        if let Some(observation) = observation {
            self.measure(context, &observation);
        }
    }

    /// The first half of [`record`](Self::record): packets and bytes, and what [`measure`](Self::measure) has to know of a packet. `KEYED` says
    /// whether the settings' hash is the keyed one: code for one kind of signature takes fewer registers, and no packet has to ask.
    #[inline(always)]
    pub fn observe<const KEYED: bool, F: Frame + ?Sized, P: Packets>(
        &mut self,
        context: &Context<'_>,
        link: Link,
        frame: &F,
        arrival: Arrival<P>,
    ) -> Option<Observation<P>> {
        let bank = &mut *self.bank;
        let packets = u64::from(arrival.packets.number());
        bank.counters.bytes = bank.counters.bytes.wrapping_add(u64::from(arrival.wire_length));
        let packet = match parse::plain(frame, link, context.settings.headers) {
            Some(packet) => packet,
            None => match parse::any(frame, link, context.settings.headers) {
                Ok(packet) => packet,
                Err(reject) => {
                    bank.reject(reject, arrival.packets.number());
                    return None;
                }
            },
        };
        // Keys are inlined for each family, so that nothing has to be told apart twice.
        Some(match packet {
            Packet::V4(_) => {
                bank.counters.ipv4 = bank.counters.ipv4.wrapping_add(packets);
                Observation::of::<KEYED, _>(context, frame, &packet, arrival)
            }
            Packet::V6(_) => {
                bank.counters.ipv6 = bank.counters.ipv6.wrapping_add(packets);
                Observation::of::<KEYED, _>(context, frame, &packet, arrival)
            }
        })
    }

    /// The second half of [`record`](Self::record), for packets in the order in which they came: one measurement after the other, so that
    /// each finds its own tables in the nearest cache. None of them looks at another, and so the result is that of packets one by one.
    #[inline(always)]
    pub fn measure<P: Packets>(&mut self, context: &Context<'_>, packets: &(impl Observed<P> + ?Sized)) {
        let Context { settings, tabulation, sharing, .. } = context;
        // No counter holds more than all packets of its bank, where one core counts.
        let counted = self.bank.counters.ipv4.wrapping_add(self.bank.counters.ipv6);
        let (sharing, own) = (sharing.of(counted), Sharing::Alone.of(counted));
        // By value: a reference to what may be constants would keep the compiler from seeing them.
        let Settings { cardinality, entropy, frequency, membership, heavy, .. } = *settings;
        let hash = |signature| cardinality.hash.hash(signature, tabulation);
        match cardinality.mode {
            Mode::Off => {}
            Mode::Windowed => {
                for packet in packets.each() {
                    self.bank.cardinality.update(hash(packet.by(cardinality.key)), cardinality.precision);
                }
            }
            Mode::Staggered => {
                for packet in packets.each() {
                    self.staggered.update(hash(packet.by(cardinality.key)), cardinality.precision, packet.arrival.slot);
                }
            }
        }
        if let Some([first_sketch, second_sketch]) = self.sketches {
            let ([first, second], [first_sum, second_sum]) = (entropy, &mut self.bank.entropy);
            if let Some(kind) = first.mode.sketch() {
                for packet in packets.each() {
                    let (crc, number) = (packet.by(first.key), packet.number());
                    first_sum.update_by(first_sketch, sharing, kind, first.shape, crc, tabulation, number);
                }
            }
            if let Some(kind) = second.mode.sketch() {
                for packet in packets.each() {
                    let (crc, number) = (packet.by(second.key), packet.number());
                    second_sum.update_by(second_sketch, sharing, kind, second.shape, crc, tabulation, number);
                }
            }
        }
        if let Some(kind) = frequency.mode.sketch() {
            if own == Sharing::AloneWithFew {
                for packet in packets.each() {
                    let (crc, number) = (packet.by(frequency.key), packet.number());
                    self.bank.frequency.update_few(kind, frequency.shape, crc, tabulation, number);
                }
            } else {
                for packet in packets.each() {
                    let (crc, number) = (packet.by(frequency.key), packet.number());
                    self.bank.frequency.update_by(kind, frequency.shape, crc, tabulation, number);
                }
            }
        }
        if membership.on {
            for packet in packets.each() {
                self.bank.membership.update(membership.shape, packet.by(membership.key), tabulation);
            }
        }
        if heavy.algorithm != Algorithm::Off {
            for packet in packets.each() {
                let (packets, bytes) = (packet.number(), packet.arrival.wire_length);
                let item = Item { signature: packet.by(heavy.key), packets, bytes, key: &packet.heavy };
                self.bank.heavy.update(&heavy, item);
            }
        }
    }
}

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
    arrival: Arrival<P>,
    /// The key of heavy hitters itself.
    heavy: FlowKey,
}

impl Observation {
    /// Of no packet; to be overwritten.
    pub const EMPTY: Observation =
        Observation { src: 0, dst: 0, src_dst: 0, five_tuple: 0, arrival: Arrival::new(0, 0), heavy: FlowKey::EMPTY };
}

impl<P: Packets> Observation<P> {
    #[inline(always)]
    fn of<const KEYED: bool, F: Frame + ?Sized>(
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
    fn number(&self) -> u32 {
        self.arrival.packets.number()
    }

    #[inline(always)]
    fn by(&self, key: KeyKind) -> u32 {
        match key {
            KeyKind::Src => self.src,
            KeyKind::Dst => self.dst,
            KeyKind::SrcDst => self.src_dst,
            KeyKind::FiveTuple => self.five_tuple,
        }
    }
}
