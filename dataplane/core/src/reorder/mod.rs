//! Which source prefixes reorder TCP packets: some flows of each prefix are followed, and what they
//! do counts for the prefix.
//!
//! The dissertation's chapter 3 is missing; this is a reconstruction. Data segments count: payload,
//! and neither SYN nor RST. Of a followed flow, `next` is the highest end of a segment seen, and
//! `missing` says how many bytes before it were not seen. Comparisons are by the sign of a
//! difference.
//!
//! - A **gap** begins behind `next`: so many bytes more are missing.
//! - **Out of order** begins before `next`, and is no longer than what is missing: it fills that.
//! - **Retransmitted** begins before `next`, and nothing that long is missing.
//! - A keep-alive, one byte just before `next`, does not count.
//!
//! Bytes are counted, not remembered: data that was seen and is sent again while other data is
//! missing takes its place, and changes names with it. Data that was lost before the device and is
//! sent again is out of order: sequence numbers do not tell it from data that was late. The first
//! segment of a flow is in order.
//!
//! Flows are kept in slots that all cores share and that last. A core takes a slot by its first
//! word; a segment whose slot another core holds is not followed and counts as contended: it is in
//! no numerator and in no denominator, but the next one of its flow may count as a gap.
//!
//! What a switch's registers can do decides the rules: each is touched once by a packet, and
//! compares twice. So who gets a slot depends on when it was last used and on bits of a hash, not
//! on how much was counted there.

#[cfg(not(target_arch = "bpf"))]
mod host;

#[cfg(not(target_arch = "bpf"))]
pub use host::{Prefix, WideReorder};
#[cfg(not(target_arch = "bpf"))]
mod exact;

#[cfg(not(target_arch = "bpf"))]
pub use exact::ExactReorder;

use crate::arrival::Packets;
use crate::counter::Sharing;
use crate::counter::{SharedCounter, SharedWord};
use crate::hash::Crc32;
use crate::key::KeyKind;
use crate::measurement::{MAX_KEYS, Measurement, Parts, Pass, Used};
use crate::needs::Needs;
use crate::observation::Observed;
use crate::packet::Packet;
use crate::segment::{Segment, Speaks, flags};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Most slots, as a power of two.
pub const MAX_SLOTS_LOG2: u8 = 16;
const MAX_SLOTS: usize = 1 << MAX_SLOTS_LOG2;
/// Prefixes that have room in a bank.
pub const MAX_PREFIXES: usize = 1 << 14;
/// The first place of a prefix is in the first half, the second one in the other: a switch's
/// registers are touched once each.
const HALF: u32 = MAX_PREFIXES as u32 / 2;
/// Times are in steps of `2^16` ns: 32 of the 48 bits that a switch has.
const TICK_BITS: u32 = 16;
/// After how many steps without a packet anybody may take a slot: 1.07 s.
pub const IDLE_TICKS: u32 = 1 << 14;
/// One in so many segments of other flows gets into a bucket of flow sampling all the same, as a
/// power of two.
pub const SAMPLING_ADMITS_LOG2: u32 = 6;
/// As above, into a slot of large flows.
pub const LARGE_ADMITS_LOG2: u32 = 10;
/// Late segments of a flow and a window, from which on they are not told apart: squares have 32
/// bits.
pub const MOST_LATE: u32 = (1 << 14) - 1;
/// A slot that a core holds: no flow's, as signatures are odd.
const HELD: u64 = u64::MAX - (1 << 32);

/// Which flows are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(u8)]
pub enum Algorithm {
    /// None: not measured.
    #[default]
    Off = 0,
    /// One flow in each bucket, which prefixes share.
    Sampling = 1,
    /// Half of the slots follow large flows for long; the others sample the rest.
    Hybrid = 2,
}

impl Algorithm {
    /// All but none.
    pub const ALL: [Algorithm; 2] = [Algorithm::Sampling, Algorithm::Hybrid];

    /// The name used in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Off => "off",
            Algorithm::Sampling => "sampling",
            Algorithm::Hybrid => "hybrid",
        }
    }
}

/// What to measure and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C, align(4))]
pub struct Settings {
    /// Which flows are followed.
    pub algorithm: Algorithm,
    /// Slots of both tables together, as a power of two, 1 to [`MAX_SLOTS_LOG2`].
    pub slots_log2: u8,
    /// Length of a prefix over IPv4, 1 to 32.
    pub v4_bits: u8,
    /// Length of a prefix over IPv6, 1 to 56.
    pub v6_bits: u8,
}

impl Settings {
    /// Off; 4096 slots, /24 and /48.
    pub const DEFAULT: Settings =
        Settings { algorithm: Algorithm::Off, slots_log2: 12, v4_bits: 24, v6_bits: 48 };

    /// Why no device can measure so, if none can.
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

    /// The source prefix of a packet: its upper bits, and in the lowest byte 4 or 6, so that none
    /// is zero.
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

/// A segment to count.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Signature of the five-tuple.
    pub signature: u32,
    /// Source prefix: upper bits, and in the lowest byte 4 or 6.
    pub prefix: u64,
    /// What the transport header says.
    pub segment: Segment,
    /// Nanoseconds.
    pub time: u64,
    /// Packets that it came in.
    pub packets: u32,
}

/// A followed flow.
#[derive(FromZeros)]
#[repr(C)]
struct Slot {
    /// Signature above `next`; zero if free.
    word: SharedWord,
    /// When anybody may take the slot.
    until: SharedCounter,
    /// Bytes before `next` that were not seen.
    missing: SharedCounter,
    /// Late segments in this window, below what says which bank that is; zero of none.
    late: SharedCounter,
    /// No padding.
    reserved: u32,
}

/// Flows that are followed, shared by all cores, and lasting.
#[derive(FromZeros)]
#[repr(C)]
pub struct Flows {
    slots: [Slot; MAX_SLOTS],
}

/// What the followed flows of a prefix did, modulo 2^32.
#[derive(FromZeros)]
#[repr(C)]
struct Total {
    prefix: SharedWord,
    packets: SharedCounter,
    out_of_order: SharedCounter,
    retransmitted: SharedCounter,
    gaps: SharedCounter,
    flows: SharedCounter,
    /// Of every flow, the square of how many of its segments were out of order.
    squares: SharedCounter,
}

/// What all cores count in a window: prefixes have one of two places each, the first to come. So it
/// does not depend on how many cores there are.
#[derive(FromZeros)]
#[repr(C)]
pub struct Totals {
    /// Segments of flows that were not followed.
    unfollowed: SharedCounter,
    /// Segments whose slot another core held.
    contended: SharedCounter,
    /// Followed segments of prefixes without a place.
    crowded: SharedCounter,
    /// No padding.
    reserved: u32,
    prefixes: [Total; MAX_PREFIXES],
}

/// What a segment was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    First,
    InOrder,
    Gap,
    OutOfOrder,
    Retransmitted,
    KeepAlive,
}

/// What a table made of a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Followed {
    Yes(Seen),
    Contended,
    No,
}

/// What the followed flow has in this window beside the segment.
#[derive(Clone, Copy, Default)]
struct Cluster {
    /// Whether it is the flow's first segment in this window.
    is_new: bool,
    /// By how much the square of its late segments grows.
    square: u32,
}

/// Whether sequence number `a` is before `b`.
#[inline(always)]
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// What is expected of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    /// The highest end of a segment.
    next: u32,
    /// Bytes before it that were not seen.
    missing: u32,
}

impl Expected {
    /// What a segment is to its flow, if that is known, and what is expected behind it.
    #[inline(always)]
    fn compare(self, segment: &Segment, is_known: bool) -> (Seen, Expected) {
        let Expected { next, missing } = self;
        let (sequence, end) = (segment.sequence, segment.end());
        if !is_known {
            return (Seen::First, Expected { next: end, missing: 0 });
        }
        let highest = if before(end, next) { next } else { end };
        let (seen, missing) = if sequence == next {
            (Seen::InOrder, missing)
        } else if before(next, sequence) {
            (Seen::Gap, missing.saturating_add(sequence.wrapping_sub(next)))
        } else if segment.payload <= 1 && sequence.wrapping_add(1) == next {
            (Seen::KeepAlive, missing)
        } else if missing >= segment.payload {
            (Seen::OutOfOrder, missing - segment.payload)
        } else {
            (Seen::Retransmitted, missing)
        };
        (seen, Expected { next: highest, missing })
    }
}

/// What a segment means to a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// Nothing.
    Nothing,
    /// That it begins anew.
    Begins,
    /// Data.
    Data,
}

impl Means {
    #[inline(always)]
    fn of(segment: &Segment) -> Self {
        if segment.speaks != Speaks::Tcp {
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
    /// `admits`: whether the segment may take the slot from another flow, unless it is the last one
    /// of its own.
    #[inline(always)]
    fn follow(&self, mine: u32, data: &Data, admits: bool, pass: &Pass<'_>) -> (Followed, Cluster) {
        let word = self.word.load();
        if word == HELD {
            return (Followed::Contended, Cluster::default());
        }
        let now = (data.time >> TICK_BITS) as u32;
        // Without wrapping: whatever clocks do, the bits of a hash let somebody in.
        let is_idle = self.until.load() as u32 <= now;
        let is_mine = (word >> 32) as u32 == mine;
        let is_last = data.segment.flags & flags::FIN != 0;
        if !is_mine && !is_idle && (is_last || !admits) {
            return (Followed::No, Cluster::default());
        }
        if !pass.sharing.replace(&self.word, word, HELD) {
            return (Followed::Contended, Cluster::default());
        }
        let known = Expected { next: word as u32, missing: self.missing.load() as u32 };
        let (seen, expected) = known.compare(&data.segment, is_mine);
        self.missing.store(expected.missing as i32);
        let cluster = self.count(!is_mine || is_idle, seen, data.packets, pass.bank);
        // Behind the last segment only late ones follow: anybody may take the slot.
        self.until.store(if is_last { 0 } else { now.wrapping_add(IDLE_TICKS) as i32 });
        self.word.publish((u64::from(mine) << 32) | u64::from(expected.next));
        (Followed::Yes(seen), cluster)
    }

    /// Counts late segments of the flow in this window. After silence, which may have been longer
    /// than a window, it counts anew.
    #[inline(always)]
    fn count(&self, is_anew: bool, seen: Seen, packets: u32, bank: usize) -> Cluster {
        let mark = ((bank as u32) + 1) << 16;
        let before = self.late.load() as u32;
        let is_new = is_anew || before & !0xffff != mark;
        let was = if is_new { 0 } else { before & 0xffff };
        let sum = was + if seen == Seen::OutOfOrder { packets } else { 0 };
        let late = if sum > MOST_LATE { MOST_LATE } else { sum };
        self.late.store((mark | late) as i32);
        Cluster { is_new, square: late * late - (was * was) }
    }

    /// A connection begins anew, or is followed elsewhere.
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

/// Whether a hash lets a segment in, once in `2^log2`.
#[inline(always)]
fn admits(hash: u32, log2: u32) -> bool {
    (hash >> (32_u32 - log2)) == 0
}

impl Totals {
    /// Counts a segment.
    #[inline(always)]
    pub fn count(&self, settings: &Settings, flows: &Flows, pass: &Pass<'_>, data: &Data) {
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
        let large = flows.slot(size + (pass.tabulation.hash(data.signature) & (size - 1)));
        if means == Means::Begins {
            bucket.forget(mine, pass.sharing);
            if is_hybrid {
                large.forget(mine, pass.sharing);
            }
            return;
        }
        let random = data.signature ^ Crc32::of_number(segment.sequence);
        let (mut followed, mut cluster) = (Followed::No, Cluster::default());
        if is_hybrid {
            (followed, cluster) = large.follow(mine, data, admits(random, LARGE_ADMITS_LOG2), pass);
            if followed == Followed::Yes(Seen::First) {
                bucket.forget(mine, pass.sharing);
            }
        }
        if followed == Followed::No {
            let random = random << LARGE_ADMITS_LOG2;
            (followed, cluster) =
                bucket.follow(mine, data, admits(random, SAMPLING_ADMITS_LOG2), pass);
        }
        let packets = data.packets as i32;
        match followed {
            Followed::Yes(Seen::KeepAlive) => {}
            Followed::Yes(seen) => {
                self.add(data.prefix, places, seen, cluster, packets, pass.sharing)
            }
            Followed::Contended => {
                pass.sharing.add(&self.contended, packets);
            }
            Followed::No => {
                pass.sharing.add(&self.unfollowed, packets);
            }
        }
    }

    #[inline(always)]
    fn add(
        &self,
        prefix: u64,
        places: u32,
        seen: Seen,
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
            Seen::Gap => {
                sharing.add(&total.gaps, 1);
            }
            Seen::OutOfOrder => {
                sharing.add(&total.out_of_order, packets);
                sharing.add(&total.squares, cluster.square as i32);
            }
            Seen::Retransmitted => {
                sharing.add(&total.retransmitted, packets);
            }
            Seen::First | Seen::InOrder | Seen::KeepAlive => {}
        }
    }

    #[inline(always)]
    fn place(&self, index: u32) -> &Total {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        &self.prefixes[index as usize & (MAX_PREFIXES - 1)]
    }
}

impl Total {
    /// Whether the place is a prefix's, or free and so becomes its.
    #[inline(always)]
    fn is_of(&self, prefix: u64, sharing: Sharing) -> bool {
        let has = self.prefix.load();
        // Who loses the race may have lost it to the same prefix.
        has == prefix
            || has == 0
                && (sharing.replace(&self.prefix, 0, prefix) || self.prefix.load() == prefix)
    }
}

/// The measurement; a core has nothing of its own.
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
    fn needs(_: &Settings) -> Needs {
        Needs::TIME.and(Needs::SEGMENT)
    }

    #[inline(always)]
    fn wants_order(settings: &Settings) -> bool {
        Self::is_on(settings)
    }

    #[inline(always)]
    fn used(settings: &Settings) -> Used {
        if !Self::is_on(settings) {
            return Used::default();
        }
        let slots = 1_usize << settings.slots_log2;
        Used {
            shared: size_of::<Totals>(),
            shared_lasting: slots * size_of::<Slot>(),
            ..Used::default()
        }
    }

    #[inline(always)]
    fn measure<P: Packets>(
        settings: &Settings,
        parts: Parts<'_, Self>,
        pass: &Pass<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        let settings = *settings;
        for packet in packets.each() {
            let data = Data {
                signature: packet.by(KeyKind::FiveTuple),
                prefix: packet.prefix,
                segment: packet.segment,
                time: packet.time(),
                packets: packet.number(),
            };
            parts.shared.count(&settings, parts.shared_lasting, pass, &data);
        }
    }
}
