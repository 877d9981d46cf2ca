//! Reordering of TCP packets by source prefix: some flows of each prefix are followed, and their
//! segments count for the prefix.
//!
//! A reconstruction: the dissertation's chapter 3 is not at hand. Data segments count: payload,
//! and neither SYN nor RST. For a followed flow, `next` is the highest end of a segment seen, and
//! `missing` is the number of bytes before it that were not seen. Sequence numbers are compared by
//! the sign of their difference.
//!
//! - **Gap**: begins after `next`. The bytes between are missing as well.
//! - **Out of order**: begins before `next` and is no longer than what is missing: it fills that.
//! - **Retransmitted**: begins before `next` and is longer than what is missing.
//! - A keep-alive, one byte just before `next`, does not count.
//!
//! Bytes are counted, not remembered: data that was seen and is sent again while other data is
//! missing counts as out of order, and the missing data as retransmitted when it comes. Data that
//! was lost before the device and is sent again is out of order: sequence numbers cannot
//! distinguish it from data that was late. The first segment of a flow is in order.
//!
//! Flows are stored in slots that all cores share and that persist across windows. A core locks a
//! slot by its first word. A segment whose slot another core has locked is not followed and counts
//! as contended: it is in no numerator and in no denominator, but the next one of its flow may
//! count as a gap.
//!
//! The rules are limited to what a switch's registers can do: each is accessed once per packet, and
//! compares twice. So a slot is given to a flow by the time of its last use and by bits of a hash,
//! not by how much was counted there.
//!
//! [`Totals::count`] processes a segment. `host` merges windows; `exact` follows all flows, for
//! comparison.

#[cfg(not(target_arch = "bpf"))]
mod host;

#[cfg(not(target_arch = "bpf"))]
pub use host::{PrefixCounts, ReorderTotals};
#[cfg(not(target_arch = "bpf"))]
mod exact;

#[cfg(not(target_arch = "bpf"))]
pub use exact::ExactReorder;

use crate::arrival::Packets;
use crate::counter::Sharing;
use crate::counter::{SharedCounter, SharedWord};
use crate::hash::Crc32;
use crate::key::KeyKind;
use crate::measurement::{MAX_KEYS, MeasureContext, Measurement, MeasurementMemory, UsedBytes};
use crate::needs::RequiredFields;
use crate::observation::Observed;
use crate::packet::Packet;
use crate::segment::{Segment, SegmentProtocol, flags};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Most slots, as a power of two.
pub const MAX_SLOTS_LOG2: u8 = 16;
const MAX_SLOTS: usize = 1 << MAX_SLOTS_LOG2;
/// Most prefixes in a bank.
pub const MAX_PREFIXES: usize = 1 << 14;
/// Half of the places for prefixes. A prefix has its first place in the first half and its second
/// one in the other, because a switch accesses each register once per packet.
const HALF: u32 = MAX_PREFIXES as u32 / 2;
/// Nanoseconds per tick, as a power of two: ticks of `2^16` ns are the upper 32 of the 48 bits of a
/// switch's time.
const TICK_BITS: u32 = 16;
/// Ticks without a packet after which any flow may take a slot: 1.07 s.
pub const IDLE_TICKS: u32 = 1 << 14;
/// Share of other flows' segments that may take a bucket of flow sampling that is in use: one in
/// two to this power.
pub const SAMPLING_ADMITS_LOG2: u32 = 6;
/// The same share for a slot of large flows.
pub const LARGE_ADMITS_LOG2: u32 = 10;
/// Most late segments that are counted for a flow in a window: squares have 32 bits.
pub const MOST_LATE: u32 = (1 << 14) - 1;
/// Word of a slot that a core has locked: no flow's, because signatures are odd.
const HELD: u64 = u64::MAX - (1 << 32);

/// Selection of the flows that are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(u8)]
pub enum Algorithm {
    /// Off: not measured.
    #[default]
    Off = 0,
    /// Flow sampling: one flow in each bucket; several prefixes share a bucket.
    Sampling = 1,
    /// Half of the slots follow large flows for long; the others sample the rest.
    Hybrid = 2,
}

impl Algorithm {
    /// Every algorithm that measures.
    pub const ALL: [Algorithm; 2] = [Algorithm::Sampling, Algorithm::Hybrid];

    /// Returns the name used in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Off => "off",
            Algorithm::Sampling => "sampling",
            Algorithm::Hybrid => "hybrid",
        }
    }
}

/// Settings of the reordering measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C, align(4))]
pub struct Settings {
    /// Selection of the flows that are followed.
    pub algorithm: Algorithm,
    /// Slots of both tables in total, as a power of two, 1 to [`MAX_SLOTS_LOG2`].
    pub slots_log2: u8,
    /// Length of an IPv4 prefix in bits, 1 to 32.
    pub v4_bits: u8,
    /// Length of an IPv6 prefix in bits, 1 to 56.
    pub v6_bits: u8,
}

impl Settings {
    /// Default settings: off; 4096 slots, /24 and /48.
    pub const DEFAULT: Settings =
        Settings { algorithm: Algorithm::Off, slots_log2: 12, v4_bits: 24, v6_bits: 48 };

    /// Returns why no device can measure with these settings, or `None` if one can.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        if !(1..=MAX_SLOTS_LOG2).contains(&self.slots_log2) {
            Some("a table of reordering has 2 to 65536 buckets")
        } else if !(1..=32).contains(&self.v4_bits) || !(1..=56).contains(&self.v6_bits) {
            Some("prefixes have 1 to 32 bits over IPv4 and 1 to 56 over IPv6")
        } else {
            None
        }
    }

    /// Returns the source prefix of a packet: its upper bits, and 4 or 6 in the lowest byte, so
    /// that it is never zero.
    #[inline(always)]
    pub(crate) fn prefix(&self, packet: &Packet<'_>) -> u64 {
        match packet {
            Packet::V4(ip) => {
                let mask = u32::MAX << (32 - u32::from(self.v4_bits));
                (u64::from(u32::from_be_bytes(ip.src()) & mask) << 32) | 4
            }
            Packet::V6(ip) => {
                let [high, low, ..] = ip.src();
                let address = (u64::from(u32::from_be_bytes(high)) << 32)
                    | u64::from(u32::from_be_bytes(low));
                address & (u64::MAX << (64 - u32::from(self.v6_bits))) | 6
            }
        }
    }
}

/// Segment to count.
#[derive(Clone, Copy, Debug)]
pub struct DataSegment {
    /// Signature of the five-tuple.
    pub signature: u32,
    /// Source prefix: upper bits, and 4 or 6 in the lowest byte.
    pub prefix: u64,
    /// Fields of the transport header.
    pub segment: Segment,
    /// Time in nanoseconds.
    pub time: u64,
    /// Number of packets that the segment came in.
    pub packets: u32,
}

/// Slot of a followed flow.
#[derive(FromZeros)]
#[repr(C)]
struct Slot {
    /// Signature above `next`; zero if the slot is free.
    word: SharedWord,
    /// Tick from which any flow may take the slot.
    until: SharedCounter,
    /// Bytes before `next` that were not seen.
    missing: SharedCounter,
    /// Late segments in this window (lower 16 bits), below the number of the bank plus one; zero if
    /// no segment was counted yet.
    late: SharedCounter,
    /// Explicit padding.
    reserved: u32,
}

/// Followed flows, shared by all cores and persistent.
#[derive(FromZeros)]
#[repr(C)]
pub struct Flows {
    slots: [Slot; MAX_SLOTS],
}

/// Counts of the followed flows of a prefix, modulo 2^32.
#[derive(FromZeros)]
#[repr(C)]
struct Total {
    prefix: SharedWord,
    packets: SharedCounter,
    out_of_order: SharedCounter,
    retransmitted: SharedCounter,
    gaps: SharedCounter,
    flows: SharedCounter,
    /// Sum over all flows of the square of the number of out-of-order segments.
    squares: SharedCounter,
}

/// Counts of a window, shared by all cores, so that the result does not depend on their number. A
/// prefix takes the first of its two places that is free or already its own.
#[derive(FromZeros)]
#[repr(C)]
pub struct Totals {
    /// Segments of flows that were not followed.
    unfollowed: SharedCounter,
    /// Segments whose slot another core had locked.
    contended: SharedCounter,
    /// Followed segments of prefixes without a place.
    crowded: SharedCounter,
    /// Explicit padding.
    reserved: u32,
    prefixes: [Total; MAX_PREFIXES],
}

/// Class of a segment of a followed flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentClass {
    First,
    InOrder,
    Gap,
    OutOfOrder,
    Retransmitted,
    KeepAlive,
}

/// Outcome of a segment in a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentOutcome {
    Yes(SegmentClass),
    Contended,
    No,
}

/// Changes to a flow's counts in this window, besides the segment itself.
#[derive(Clone, Copy, Default)]
struct Cluster {
    /// Whether it is the flow's first segment in this window.
    is_new: bool,
    /// Increase of the square of the flow's late segments.
    square: u32,
}

/// Returns whether sequence number `a` is before `b`.
#[inline(always)]
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Expected continuation of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    /// Highest end of a segment.
    next: u32,
    /// Bytes before `next` that were not seen.
    missing: u32,
}

impl Expected {
    /// Returns the class of a segment, and the expected continuation after it. `is_known`: whether
    /// `self` belongs to the segment's flow.
    #[inline(always)]
    fn compare(self, segment: &Segment, is_known: bool) -> (SegmentClass, Expected) {
        let Expected { next, missing } = self;
        let (sequence, end) = (segment.sequence, segment.end());
        if !is_known {
            return (SegmentClass::First, Expected { next: end, missing: 0 });
        }
        let highest = if before(end, next) { next } else { end };
        let (seen, missing) = if sequence == next {
            (SegmentClass::InOrder, missing)
        } else if before(next, sequence) {
            (SegmentClass::Gap, missing.saturating_add(sequence.wrapping_sub(next)))
        } else if segment.payload <= 1 && sequence.wrapping_add(1) == next {
            (SegmentClass::KeepAlive, missing)
        } else if missing >= segment.payload {
            (SegmentClass::OutOfOrder, missing - segment.payload)
        } else {
            (SegmentClass::Retransmitted, missing)
        };
        (seen, Expected { next: highest, missing })
    }
}

/// Effect of a segment on a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// No effect: not TCP, no payload, or RST.
    Nothing,
    /// Start of a new connection: SYN.
    Begins,
    /// Data to count.
    Data,
}

impl Means {
    #[inline(always)]
    fn of(segment: &Segment) -> Self {
        if segment.speaks != SegmentProtocol::Tcp {
            Means::Nothing
        } else if segment.flags & flags::SYN != 0 {
            Means::Begins
        } else if segment.payload == 0 || segment.flags & flags::RST != 0 {
            Means::Nothing
        } else {
            Means::Data
        }
    }
}

impl Slot {
    /// Counts a segment of the flow, or takes the slot for it. If `admits` says so it may take the
    /// slot from a flow that is not idle, unless the segment is the last one of its own flow.
    #[inline(always)]
    fn follow(
        &self,
        mine: u32,
        data: &DataSegment,
        admits: impl FnOnce() -> bool,
        pass: &MeasureContext<'_>,
    ) -> (SegmentOutcome, Cluster) {
        let word = self.word.load();
        if word == HELD {
            return (SegmentOutcome::Contended, Cluster::default());
        }
        let now = (data.time >> TICK_BITS) as u32;
        // Compared without wrapping: whatever the clock does, the bits of a hash still admit flows.
        let is_idle = self.until.load() as u32 <= now;
        let is_mine = (word >> 32) as u32 == mine;
        let is_last = data.segment.flags & flags::FIN != 0;
        if !is_mine && !is_idle && (is_last || !admits()) {
            return (SegmentOutcome::No, Cluster::default());
        }
        if !pass.sharing.replace(&self.word, word, HELD) {
            return (SegmentOutcome::Contended, Cluster::default());
        }
        let known = Expected { next: word as u32, missing: self.missing.load() as u32 };
        let (seen, expected) = known.compare(&data.segment, is_mine);
        self.missing.store(expected.missing as i32);
        let cluster = self.count(!is_mine || is_idle, seen, data.packets, pass.bank);
        // After the last segment only late ones follow: any flow may take the slot.
        self.until.store(if is_last { 0 } else { now.wrapping_add(IDLE_TICKS) as i32 });
        self.word.publish((u64::from(mine) << 32) | u64::from(expected.next));
        (SegmentOutcome::Yes(seen), cluster)
    }

    /// Counts late segments of the flow in this window. After silence, which may have been longer
    /// than a window, it starts from zero.
    #[inline(always)]
    fn count(&self, is_anew: bool, seen: SegmentClass, packets: u32, bank: usize) -> Cluster {
        let mark = ((bank as u32) + 1) << 16;
        let before = self.late.load() as u32;
        let is_new = is_anew || before & !0xffff != mark;
        let was = if is_new { 0 } else { before & 0xffff };
        let sum = was + if seen == SegmentClass::OutOfOrder { packets } else { 0 };
        let late = if sum > MOST_LATE { MOST_LATE } else { sum };
        self.late.store((mark | late) as i32);
        Cluster { is_new, square: late * late - (was * was) }
    }

    /// Frees the slot if the flow has it: a new connection starts, or another slot follows the
    /// flow.
    #[inline(always)]
    fn forget(&self, mine: u32, sharing: Sharing) {
        let word = self.word.load();
        if (word >> 32) as u32 == mine && sharing.replace(&self.word, word, HELD) {
            self.until.store(0);
            self.word.publish(0);
        }
    }
}

impl Flows {
    #[inline(always)]
    fn slot(&self, index: u32) -> &Slot {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        &self.slots[index as usize & (MAX_SLOTS - 1)]
    }
}

/// Returns whether a hash admits a segment: one in `2^log2`.
#[inline(always)]
fn admits(hash: u32, log2: u32) -> bool {
    (hash >> (32_u32 - log2)) == 0
}

impl Totals {
    /// Counts a segment.
    #[inline(always)]
    pub fn count(
        &self,
        settings: &Settings,
        flows: &Flows,
        pass: &MeasureContext<'_>,
        data: &DataSegment,
    ) {
        let segment = &data.segment;
        let means = Means::of(segment);
        if means == Means::Nothing {
            return;
        }
        let mine = data.signature | 1;
        let [high, low] = [(data.prefix >> 32) as u32, data.prefix as u32];
        let places = pass
            .tabulation
            .hash(Crc32::new().words([high.to_be_bytes(), low.to_be_bytes()]).finish());
        let is_hybrid = settings.algorithm == Algorithm::Hybrid;
        let size_log2 = u32::from(settings.slots_log2) - u32::from(is_hybrid);
        let size = 1_u32 << size_log2;
        let bucket = flows.slot((places >> 16) & (size - 1));
        // Hashes that few segments need are computed for these alone.
        let large = || flows.slot(size + (pass.tabulation.hash(data.signature) & (size - 1)));
        if means == Means::Begins {
            bucket.forget(mine, pass.sharing);
            if is_hybrid {
                large().forget(mine, pass.sharing);
            }
            return;
        }
        let random = || data.signature ^ Crc32::of_number(segment.sequence);
        let (mut followed, mut cluster) = (SegmentOutcome::No, Cluster::default());
        if is_hybrid {
            let is_admitted = || admits(random(), LARGE_ADMITS_LOG2);
            (followed, cluster) = large().follow(mine, data, is_admitted, pass);
            if followed == SegmentOutcome::Yes(SegmentClass::First) {
                bucket.forget(mine, pass.sharing);
            }
        }
        if followed == SegmentOutcome::No {
            let is_admitted = || admits(random() << LARGE_ADMITS_LOG2, SAMPLING_ADMITS_LOG2);
            (followed, cluster) = bucket.follow(mine, data, is_admitted, pass);
        }
        let packets = data.packets as i32;
        match followed {
            SegmentOutcome::Yes(SegmentClass::KeepAlive) => {}
            SegmentOutcome::Yes(seen) => {
                self.add(data.prefix, places, seen, cluster, packets, pass.sharing)
            }
            SegmentOutcome::Contended => {
                pass.sharing.add(&self.contended, packets);
            }
            SegmentOutcome::No => {
                pass.sharing.add(&self.unfollowed, packets);
            }
        }
    }

    #[inline(always)]
    fn add(
        &self,
        prefix: u64,
        places: u32,
        seen: SegmentClass,
        cluster: Cluster,
        packets: i32,
        sharing: Sharing,
    ) {
        let first = self.place(places & (HALF - 1));
        let total = if first.is_of(prefix, sharing) {
            first
        } else {
            let second = self.place((places >> 14) & (HALF - 1) | HALF);
            if !second.is_of(prefix, sharing) {
                sharing.add(&self.crowded, packets);
                return;
            }
            second
        };
        sharing.add(&total.packets, packets);
        if cluster.is_new {
            sharing.add(&total.flows, 1);
        }
        match seen {
            SegmentClass::Gap => {
                sharing.add(&total.gaps, 1);
            }
            SegmentClass::OutOfOrder => {
                sharing.add(&total.out_of_order, packets);
                sharing.add(&total.squares, cluster.square as i32);
            }
            SegmentClass::Retransmitted => {
                sharing.add(&total.retransmitted, packets);
            }
            SegmentClass::First | SegmentClass::InOrder | SegmentClass::KeepAlive => {}
        }
    }

    #[inline(always)]
    fn place(&self, index: u32) -> &Total {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        &self.prefixes[index as usize & (MAX_PREFIXES - 1)]
    }
}

impl Total {
    /// Returns whether the place belongs to a prefix; a free place is assigned to it.
    #[inline(always)]
    fn is_of(&self, prefix: u64, sharing: Sharing) -> bool {
        let has = self.prefix.load();
        // A lost race may have been won by the same prefix.
        has == prefix
            || has == 0
                && (sharing.replace(&self.prefix, 0, prefix) || self.prefix.load() == prefix)
    }
}

/// Reordering measurement, without per-core state.
pub struct Reorder;

impl Measurement for Reorder {
    const NAME: &'static str = "reorder";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::DEFAULT;
    type PerCore = ();
    type Persistent = ();
    type Shared = Totals;
    type SharedPersistent = Flows;

    #[inline(always)]
    fn keys(settings: &Settings) -> [Option<KeyKind>; MAX_KEYS] {
        [Self::is_on(settings).then_some(KeyKind::FiveTuple), None]
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.algorithm != Algorithm::Off
    }

    #[inline(always)]
    fn needs(_: &Settings) -> RequiredFields {
        RequiredFields::TIME.and(RequiredFields::SEGMENT)
    }

    #[inline(always)]
    fn wants_order(settings: &Settings) -> bool {
        Self::is_on(settings)
    }

    #[inline(always)]
    fn used(settings: &Settings) -> UsedBytes {
        if !Self::is_on(settings) {
            return UsedBytes::default();
        }
        let slots = 1_usize << settings.slots_log2;
        UsedBytes {
            shared: size_of::<Totals>(),
            shared_persistent: slots * size_of::<Slot>(),
            ..UsedBytes::default()
        }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        settings: &Settings,
        parts: MeasurementMemory<'_, Self>,
        pass: &MeasureContext<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        let settings = *settings;
        for packet in packets.each() {
            let data = DataSegment {
                signature: packet.by(KeyKind::FiveTuple),
                prefix: packet.prefix,
                segment: packet.segment,
                time: packet.time(),
                packets: packet.number(),
            };
            parts.shared.count(&settings, parts.shared_persistent, pass, &data);
        }
    }
}
