//! Heavy hitters: the flows with the most packets or bytes, in a table of few slots.
//!
//! A slot stores a flow and its count. A packet of a flow in the table raises the flow's count. A
//! packet of another flow takes a free slot if the flow may have one; else it may replace a flow
//! with a small count, and the new flow inherits that count. The algorithms differ in the slots
//! that a flow may have and in the condition for replacement:
//!
//! | algorithm | slots of a flow | the smallest of them is replaced | source |
//! | --- | --- | --- | --- |
//! | [`Rap`](Algorithm::Rap) | all | with probability w/(c + w) | Ben-Basat et al., INFOCOM 2017 |
//! | [`SpaceSaving`](Algorithm::SpaceSaving) | all | always | Metwally et al., ICDT 2005 |
//! | [`DWayRap`](Algorithm::DWayRap) | a set of 8 | with probability w/(c + w) | Ben-Basat et al., INFOCOM 2017 |
//! | [`HashPipe`](Algorithm::HashPipe) | one in each of 4 stages | in the first stage always; the replaced flow moves on, and the larger one stays | Sivaraman et al., SOSR 2017 |
//! | [`Precision`](Algorithm::Precision) | one in each of 2 stages | with about that probability, a power of two | Ben-Basat et al., ICNP 2018 |
//!
//! c is the smallest count and w the packet's weight: 1 if packets are counted, its length if bytes
//! are. The papers count packets. The probability w/(c + w) keeps the mean of counts correct with
//! other weights too: an admitted packet adds c + w to the count of its flow, one that is not
//! admitted adds nothing, and the mean is w. Packets that came as one frame count as one packet of
//! their total weight: a flow in the table gets the count that single packets would give it, and
//! another flow tosses one coin instead of many.
//!
//! A flow is identified by its *signature* alone, the CRC of its key: two flows with the same
//! signature count as one. IPv4 sources and destinations all have different signatures. With other
//! keys, each of n flows shares its signature with another one with a probability of n/2^32: one
//! flow in 4,295 among a million.
//!
//! All algorithms are deterministic: a packet's coin is a CRC of its signature and of the number of
//! packets that the table has seen, so that a run can be repeated, and a switch computes the same
//! table.
//!
//! [`HeavyTable::update`] counts a packet. `any_slot` and `few_slots` implement the algorithms,
//! `admission` the coin, and `host` clears and merges tables.

mod admission;
mod any_slot;
mod few_slots;
#[cfg(not(target_arch = "bpf"))]
mod host;

pub use admission::{AdmissionEntry, admission_table};
pub use few_slots::{PRECISION_STAGES, STAGE_POLYNOMIALS};

use crate::arrival::Packets;
use crate::flow_key::FlowKey;
use crate::key::KeyKind;
use crate::measurement::{MAX_KEYS, MeasureContext, Measurement, MeasurementMemory, UsedBytes};
use crate::observation::Observed;
use any_slot::Ranking;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Most slots of a [`Heavy`].
pub const MAX_SLOTS: usize = 1 << MAX_SLOTS_LOG2;
const MIN_SLOTS_LOG2: u8 = 4;
const MAX_SLOTS_LOG2: u8 = 12;

/// Policy by which flows enter the table and leave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(u8)]
pub enum Algorithm {
    /// Not measured.
    #[default]
    Off = 0,
    /// Randomized admission: the smallest of all counts is replaced, rarely if it is large.
    Rap = 1,
    /// The smallest of all counts is always replaced.
    SpaceSaving = 2,
    /// Randomized admission in a set of 8 slots.
    DWayRap = 3,
    /// Four stages; a new flow is always admitted, and the smaller flow moves on.
    HashPipe = 4,
    /// Two stages; randomized admission with powers of two.
    Precision = 5,
}

impl Algorithm {
    /// Every algorithm that measures.
    pub const ALL: [Algorithm; 5] = [
        Algorithm::Rap,
        Algorithm::SpaceSaving,
        Algorithm::DWayRap,
        Algorithm::HashPipe,
        Algorithm::Precision,
    ];

    /// Returns the name used in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Off => "off",
            Algorithm::Rap => "rap",
            Algorithm::SpaceSaving => "space-saving",
            Algorithm::DWayRap => "d-way-rap",
            Algorithm::HashPipe => "hashpipe",
            Algorithm::Precision => "precision",
        }
    }

    /// Returns whether a flow may have any slot. Otherwise an update reads 8 slots at most, in
    /// loops that the kernel's verifier and a switch can follow.
    #[must_use]
    pub const fn takes_any_slot(self) -> bool {
        matches!(self, Algorithm::Rap | Algorithm::SpaceSaving)
    }
}

/// Unit of a flow's count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(u8)]
pub enum CountUnit {
    /// Packets.
    #[default]
    Packets = 0,
    /// Bytes on the wire.
    Bytes = 1,
}

impl CountUnit {
    /// Both units.
    pub const ALL: [CountUnit; 2] = [CountUnit::Packets, CountUnit::Bytes];

    /// Returns the name used in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CountUnit::Packets => "packets",
            CountUnit::Bytes => "bytes",
        }
    }
}

/// Settings of the heavy-hitter measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C)]
pub struct Settings {
    /// Algorithm, or off.
    pub algorithm: Algorithm,
    /// Key that identifies a flow.
    pub key: KeyKind,
    /// Unit of a flow's count.
    pub unit: CountUnit,
    /// Slots as a power of two, 4 to 12; other values are clamped.
    pub slots_log2: u8,
}

impl Settings {
    /// [`Default`] as a constant, for statics: off.
    pub const DEFAULT: Settings = Settings {
        algorithm: Algorithm::Off,
        key: KeyKind::Src,
        unit: CountUnit::Packets,
        slots_log2: 10,
    };

    /// Returns the number of slots in use, over all stages or sets.
    #[must_use]
    pub const fn slots(&self) -> usize {
        Heavy::slots(self)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Packet, or several consecutive ones that came as one frame.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Signature of the packet's flow key.
    pub signature: u32,
    /// Number of packets, at least 1.
    pub packets: u32,
    /// Bytes on the wire, of all packets.
    pub bytes: u32,
    /// Flow key; copied when the flow is given a slot.
    pub key: &'a FlowKey,
}

/// Flow in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Signature of the flow key.
    pub signature: u32,
    /// Flow key.
    pub key: FlowKey,
    /// Packets or bytes counted for the flow; zero for a free slot.
    pub count: u64,
    /// Part of the count that the flow inherited from others: `count - inherited` was counted while
    /// it had the slot, and certainly belongs to it.
    pub inherited: u64,
}

/// Heavy hitters of a bank.
pub type Heavy = HeavyTable<MAX_SLOTS>;

/// Table of at most `N` slots, a power of two in 16..=16384.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct HeavyTable<const N: usize> {
    /// Weight of all packets.
    total: u64,
    /// Number of all packets.
    packets: u32,
    /// Number of slots taken so far, for algorithms that take any slot.
    taken: u32,
    /// [`least`](Self::least) of merged tables; zero if none were merged.
    least: u64,
    least_elsewhere: u64,
    /// Count of each slot; zero if the slot is free.
    counts: [u64; N],
    inherited: [u64; N],
    signatures: [u32; N],
    ranking: Ranking<N>,
    keys: [FlowKey; N],
}

impl<const N: usize> HeavyTable<N> {
    const MASK: usize = {
        assert!(N.is_power_of_two() && N >= 1 << MIN_SLOTS_LOG2 && N <= 1 << 14);
        N - 1
    };

    /// Returns an empty table.
    #[must_use]
    pub const fn new() -> Self {
        HeavyTable {
            total: 0,
            packets: 0,
            taken: 0,
            least: 0,
            least_elsewhere: 0,
            counts: [0; N],
            inherited: [0; N],
            signatures: [0; N],
            ranking: Ranking::new(),
            keys: [FlowKey::EMPTY; N],
        }
    }

    /// Returns the number of slots in use, as a power of two.
    #[inline(always)]
    const fn slots_log2(settings: &Settings) -> u32 {
        let most = Self::MASK.trailing_ones();
        let wanted = settings.slots_log2 as u32;
        if wanted > most {
            most
        } else if wanted < MIN_SLOTS_LOG2 as u32 {
            MIN_SLOTS_LOG2 as u32
        } else {
            wanted
        }
    }

    /// Returns the number of slots in use, over all stages or sets.
    #[must_use]
    pub const fn slots(settings: &Settings) -> usize {
        1_usize << Self::slots_log2(settings)
    }

    /// Counts a packet.
    #[inline(always)]
    pub fn update(&mut self, settings: &Settings, item: Item<'_>) {
        // Kernel programs never use these algorithms, and the verifier would follow them.
        if settings.algorithm.takes_any_slot() && !cfg!(target_arch = "bpf") {
            let weight = self.weigh(settings, &item);
            self.update_any_slot(settings, &item, weight);
        } else {
            self.update_few_slots(settings, item);
        }
    }

    #[inline(always)]
    fn update_all<P: Packets>(
        &mut self,
        settings: &Settings,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        for packet in packets.each() {
            let (packets, bytes) = (packet.number(), packet.arrival.wire_length);
            let signature = packet.by(settings.key);
            self.update(settings, Item { signature, packets, bytes, key: &packet.heavy });
        }
    }

    /// Counts a packet by an algorithm that does not [take any slot](Algorithm::takes_any_slot);
    /// other algorithms count nothing. For dataplanes that cannot include them.
    #[inline(always)]
    pub fn update_few_slots(&mut self, settings: &Settings, item: Item<'_>) {
        match settings.algorithm {
            Algorithm::Off | Algorithm::Rap | Algorithm::SpaceSaving => {}
            Algorithm::DWayRap => {
                let weight = self.weigh(settings, &item);
                self.update_d_way_rap(settings, &item, weight);
            }
            Algorithm::HashPipe => {
                let weight = self.weigh(settings, &item);
                self.update_hash_pipe(settings, &item, weight);
            }
            Algorithm::Precision => {
                let weight = self.weigh(settings, &item);
                self.update_precision(settings, &item, weight);
            }
        }
    }

    /// Adds the packet to the totals and returns its weight, which is never zero: a count of zero
    /// means a free slot.
    #[inline(always)]
    fn weigh(&mut self, settings: &Settings, item: &Item<'_>) -> u64 {
        let weight = match settings.unit {
            CountUnit::Packets => u64::from(item.packets),
            CountUnit::Bytes => u64::from(item.bytes.max(1)),
        };
        self.packets = self.packets.wrapping_add(item.packets);
        self.total = self.total.wrapping_add(weight);
        weight
    }

    /// Returns the weight of all packets, of flows in the table and of others, including merged
    /// tables.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of all packets, modulo 2^32.
    #[must_use]
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// Returns the largest of the counts that a new flow may have to replace: a flow without a slot
    /// has missed about as many packets or bytes. Zero if each flow finds a free slot. For merged
    /// tables it is the sum over them, since a flow can have missed packets in each, and of the
    /// counts that merging discarded.
    ///
    /// PRECISION's largest count would be that of two heavy flows: it is the one that a flow meets
    /// with a probability of 1/64, rounded up to the inverse probability of admission less one.
    /// HashPipe has no such count, and the result is zero.
    #[must_use]
    pub fn least(&self, settings: &Settings) -> u64 {
        if self.least > 0 {
            self.least
        } else if settings.algorithm.takes_any_slot() {
            self.smallest_if_full(settings)
        } else {
            self.least_of_few_slots(settings)
        }
    }

    /// Returns the part of [`least`](Self::least) that is due to other tables than those that a
    /// flow in this table certainly had a slot in: zero if no tables were merged.
    #[must_use]
    pub const fn least_elsewhere(&self) -> u64 {
        self.least_elsewhere
    }

    /// Returns the flows of the table with their counts, in no particular order, each once.
    pub fn entries<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = Entry> + 'a {
        (0..Self::slots(settings)).filter_map(move |slot| self.whole_entry(settings, slot))
    }

    /// Returns the slots in use as they are stored, including free ones.
    pub fn slot_entries<'a>(&'a self, settings: &Settings) -> impl Iterator<Item = Entry> + 'a {
        (0..Self::slots(settings)).map(|slot| self.entry(slot))
    }

    /// Sets a slot to values read from a device. Only for an algorithm that does not
    /// [take any](Algorithm::takes_any_slot).
    pub fn set_slot(&mut self, slot: usize, entry: &Entry) {
        self.put(slot, entry.signature, &entry.key, entry.count, entry.inherited);
    }

    /// Restores a slot from its serialized value. The caller restores slots in order, into an empty
    /// table.
    pub fn restore(&mut self, settings: &Settings, slot: usize, entry: &Entry) {
        if settings.algorithm.takes_any_slot() {
            self.place_any_slot(settings, entry);
        } else if slot < Self::slots(settings) {
            self.set_slot(slot, entry);
        }
    }

    /// Sets the number and weight of all packets, as read from a device.
    pub fn set_totals(&mut self, packets: u32, total: u64) {
        self.packets = packets;
        self.total = total;
    }

    /// Merges what another core counted in the same window. Counts of equal flows are added; of
    /// flows that compete for a slot the larger one stays. The bounds that
    /// [`inherited`](Entry::inherited) and [`total`](Self::total) give hold for the packets of both
    /// cores.
    pub fn merge(&mut self, other: &Self, settings: &Settings) {
        if settings.algorithm == Algorithm::Off {
            return;
        }
        let (least, others_least) = (self.least(settings), other.least(settings));
        // A flow that only one table contains may have missed packets in the other.
        let elsewhere = [(&*self, others_least), (other, least)].into_iter();
        let elsewhere = elsewhere
            .filter(|(table, _)| table.total > 0)
            .map(|(table, missed)| table.least_elsewhere.saturating_add(missed))
            .max()
            .unwrap_or(0);
        self.packets = self.packets.wrapping_add(other.packets);
        self.total = self.total.wrapping_add(other.total);
        // With SpaceSaving, a flow that only one table contains may have had packets in the other,
        // up to its smallest count; they are in counts that other flows inherited there (Agarwal et
        // al., "Mergeable summaries", PODS 2012). With the other algorithms, packets that are not
        // admitted are in no count.
        let (mine, theirs) = match settings.algorithm {
            Algorithm::SpaceSaving => {
                (self.smallest_if_full(settings), other.smallest_if_full(settings))
            }
            _ => (0, 0),
        };
        for slot in 0..Self::slots(settings) {
            let Entry { signature, count, .. } = self.entry(slot);
            if count > 0 && theirs > 0 && other.find(settings, signature).is_none() {
                self.add_inherited(slot, theirs);
            }
        }
        // Flows in both tables come first: a flow that is replaced later then has its whole count.
        let mut placed = [false; N];
        for (slot, placed) in (0..Self::slots(settings)).zip(&mut placed) {
            let Entry { signature, count, inherited, .. } = other.entry(slot);
            if count == 0 {
                *placed = true;
            } else if let Some(slot) = self.find(settings, signature) {
                self.add(slot, count - inherited);
                self.add_inherited(slot, inherited);
                *placed = true;
            }
        }
        if settings.algorithm.takes_any_slot() {
            self.restore_heap();
        }
        let mut discarded = 0;
        for (slot, _) in (0..Self::slots(settings)).zip(&placed).filter(|(_, placed)| !**placed) {
            let mut entry = other.entry(slot);
            entry.count += mine;
            entry.inherited += mine;
            let count = if settings.algorithm.takes_any_slot() {
                self.place_any_slot(settings, &entry)
            } else {
                self.place_few_slots(settings, &entry)
            };
            discarded = discarded.max(count);
        }
        self.least = least.saturating_add(others_least).saturating_add(discarded);
        self.least_elsewhere = elsewhere.saturating_add(discarded);
    }

    /// Clears the table.
    pub fn clear(&mut self, settings: &Settings) {
        let slots = Self::slots(settings);
        self.set_totals(0, 0);
        (self.taken, self.least, self.least_elsewhere) = (0, 0, 0);
        self.counts.iter_mut().take(slots).for_each(|count| *count = 0);
        self.inherited.iter_mut().take(slots).for_each(|inherited| *inherited = 0);
        self.signatures.iter_mut().take(slots).for_each(|signature| *signature = 0);
        self.keys.iter_mut().take(slots).for_each(|key| *key = FlowKey::EMPTY);
        if settings.algorithm.takes_any_slot() {
            self.ranking.clear(slots);
        }
    }

    /// Returns the flow in a slot with everything that is counted for it; `None` if the slot is
    /// free or an earlier slot has the flow.
    fn whole_entry(&self, settings: &Settings, slot: usize) -> Option<Entry> {
        let mut entry = self.entry(slot);
        if entry.count == 0 {
            return None;
        }
        if matches!(settings.algorithm, Algorithm::HashPipe | Algorithm::Precision) {
            for other in Self::stage_slots(settings, entry.signature) {
                if other != slot && self.holds(other, entry.signature) {
                    if other < slot {
                        return None;
                    }
                    let Entry { count, inherited, .. } = self.entry(other);
                    entry.count += count;
                    entry.inherited += inherited;
                }
            }
        }
        Some(entry)
    }

    /// Returns the slot of a flow, the first one if it has several.
    fn find(&self, settings: &Settings, signature: u32) -> Option<usize> {
        if settings.algorithm.takes_any_slot() {
            self.find_any_slot(settings, signature)
        } else {
            Self::few_slots(settings, signature).find(|&slot| self.holds(slot, signature))
        }
    }

    fn entry(&self, slot: usize) -> Entry {
        Entry {
            signature: self.signature(slot),
            key: self.keys.get(slot & Self::MASK).copied().unwrap_or_default(),
            count: self.count(slot),
            inherited: self.inherited.get(slot & Self::MASK).copied().unwrap_or_default(),
        }
    }

    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
    fn count(&self, slot: usize) -> u64 {
        self.counts[slot & Self::MASK]
    }

    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
    fn signature(&self, slot: usize) -> u32 {
        self.signatures[slot & Self::MASK]
    }

    #[inline(always)]
    fn holds(&self, slot: usize, signature: u32) -> bool {
        self.signature(slot) == signature && self.count(slot) != 0
    }

    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
    fn add(&mut self, slot: usize, weight: u64) {
        let count = &mut self.counts[slot & Self::MASK];
        *count += weight;
    }

    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
    fn add_inherited(&mut self, slot: usize, weight: u64) {
        self.add(slot, weight);
        let inherited = &mut self.inherited[slot & Self::MASK];
        *inherited += weight;
    }

    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
    fn put(&mut self, slot: usize, signature: u32, key: &FlowKey, count: u64, inherited: u64) {
        let slot = slot & Self::MASK;
        self.signatures[slot] = signature;
        self.counts[slot] = count;
        self.inherited[slot] = inherited;
        self.keys[slot] = *key;
    }
}

impl<const N: usize> Default for HeavyTable<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl Measurement for Heavy {
    const NAME: &'static str = "heavy";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::DEFAULT;
    type PerCore = Heavy;
    type Persistent = ();
    type Shared = ();
    type SharedPersistent = ();

    #[inline(always)]
    fn keys(settings: &Settings) -> [Option<KeyKind>; MAX_KEYS] {
        [Self::is_on(settings).then_some(settings.key), None]
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.algorithm != Algorithm::Off
    }

    #[inline(always)]
    fn used(settings: &Settings) -> UsedBytes {
        UsedBytes {
            own: if Self::is_on(settings) { size_of::<Heavy>() } else { 0 },
            ..UsedBytes::default()
        }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        settings: &Settings,
        parts: MeasurementMemory<'_, Self>,
        _: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        // Code of its own for the default.
        match settings.algorithm {
            Algorithm::DWayRap if cfg!(not(target_arch = "bpf")) => {
                parts
                    .own
                    .update_all(&Settings { algorithm: Algorithm::DWayRap, ..*settings }, packets);
            }
            _ => parts.own.update_all(&{ *settings }, packets),
        }
    }
}
