//! Delays between requests and answers: requests are stored until their answers arrive
//! (dissertation, chapter 2).
//!
//! Requests and answers of a [`Kind`] are matched by a signature of both ends and of a token that
//! the answer repeats. Each kind has two tables, one per direction. A request is stored in one
//! table and answered from the other side, so that a packet that is both, data that acknowledges
//! data, reads one table and writes the other. The order of the ends' hashes selects the table, so
//! that every device selects the same one.
//!
//! Memory is small, so requests overwrite each other, and long delays are lost more often than
//! short ones. [`Algorithm::Fridge`] corrects for that: a delay is weighted by the reciprocal of
//! the probability that its request survived ([`weights`]). Admission of a request depends on its
//! hash alone, so that every backend admits the same requests.
//!
//! Per packet and kind, `kind` determines the packet's roles. An answer removes its request from
//! the slots in `table`; its delay is added to a [`histogram`] and, if requested, to an outbox of
//! single delays ([`sample`]). A request is then stored. [`prefixes`] maps addresses to groups and
//! to our own side; `host` clears and merges the results.

pub mod histogram;
#[cfg(not(target_arch = "bpf"))]
mod host;
mod kind;
pub mod prefixes;
pub mod sample;
mod table;
pub mod weights;

use kind::Roles;
pub use kind::{KINDS, Kind, Kinds};
pub use table::{Admission, MAX_SLOTS, Requests, Shares};

use crate::arrival::Packets;
use crate::counter::Sharing;
use crate::hash::{Crc32, Tabulation};
use crate::key::KeyKind;
use crate::measurement::{MAX_KEYS, Measurement, Parts, Pass, Used};
use crate::needs::Needs;
use crate::observation::{Observation, Observed};
use crate::segment::Speaks;
use histogram::Histogram;
use sample::Outbox;
use sample::Sample;
use table::{MAX_FRIDGES, Request, SHARES, Slot};
use weights::Weight;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Number of fridges of [`Algorithm::MultiFridge`].
pub const FRIDGES: usize = 4;

/// Most histograms, over all kinds, directions, groups and fridges.
pub const MAX_HISTOGRAMS: usize = 256;

/// Tables per kind: one for the requests of each direction.
const TABLES: usize = 2;

/// Range of the slots of a table, as powers of two.
pub const SLOT_BITS: core::ops::RangeInclusive<u8> = 6..=16;

/// Bits of the time of requests that expire. The time wraps every 137 s
/// ([durations](Kind::TcpDuration): every 2.4 hours). Requests from before a wrap count as expired,
/// whatever their age, because a switch has no third comparison for them. Their answers still match
/// until other requests take their slots.
pub const EXPIRING_BITS: u32 = 31;

/// Stages of a two-stage table; each has half of the slots.
const STAGES: usize = 2;

/// Smallest share of requests that may be admitted: one in two to this power.
pub const MAX_ADMIT_BITS: u8 = 16;

/// Treatment of the bias against long delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(u8)]
pub enum Algorithm {
    /// Requests overwrite each other; a delay is weighted by the reciprocal of its request's
    /// survival probability (dissertation, §2.2.2).
    #[default]
    Fridge = 0,
    /// Four fridges that admit ever smaller shares of requests, for ever longer delays
    /// (dissertation, §2.3.2).
    MultiFridge = 1,
    /// Requests overwrite each other; delays are not weighted (dissertation, §2.1.1).
    Overwrite = 2,
    /// A request stays until it expires; other requests go to a second stage or are refused (Chen
    /// et al. 2020). Times have [31 bits](EXPIRING_BITS).
    Expiry = 3,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Algorithm; 4] =
        [Algorithm::Fridge, Algorithm::MultiFridge, Algorithm::Overwrite, Algorithm::Expiry];

    /// Returns the name used in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Fridge => "fridge",
            Algorithm::MultiFridge => "multi-fridge",
            Algorithm::Overwrite => "overwrite",
            Algorithm::Expiry => "expiry",
        }
    }
}

/// Separation of delays by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(u8)]
pub enum Directions {
    /// No separation: it is unknown which packets leave.
    #[default]
    Together = 0,
    /// Delays of arriving requests are separate from those of leaving requests.
    Apart = 1,
    /// Delays of requests from our own addresses, which leave, are separate from those of other
    /// requests, wherever the packets were seen.
    Local = 2,
}

/// Settings of the delay measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(C)]
pub struct Settings {
    /// Kinds to measure; the empty set turns the measurement off.
    pub kinds: Kinds,
    /// Treatment of the bias against long delays.
    pub algorithm: Algorithm,
    /// Slots per table, as a power of two in [`SLOT_BITS`]; all tables have at most [`MAX_SLOTS`]
    /// in total.
    pub slots_log2: u8,
    /// Admitted share: one request in two to this power, at most [`MAX_ADMIT_BITS`]; the initial
    /// share if it [follows](Self::follows) the traffic.
    pub admit_log2: u8,
    /// Separation by direction.
    pub directions: Directions,
    /// Whether each delay is also passed on as a single [sample].
    pub samples: bool,
    /// Whether each window has [its own shares](Shares) by kind, which follow the traffic
    /// ([`Algorithm::Fridge`] only).
    pub follows: bool,
    /// Number of groups of prefixes, as a power of two; at most [`prefixes::MAX_GROUPS`] groups.
    /// Group 0 has all addresses outside the prefixes. A delay belongs to the group of the
    /// answering address, because it arises there; for a [connection](Kind::TcpDuration), to the
    /// higher group of both ends.
    pub groups_log2: u8,
    /// Nanoseconds after which a request may be replaced ([`Algorithm::Expiry`]).
    pub expiry_ns: u32,
    /// [Fingerprint](prefixes::fingerprint) of the prefixes of groups and of our own side; zero
    /// without prefixes.
    pub prefixes: u32,
}

impl Settings {
    /// [`Default`] as a constant, for statics: off; fridges of 1024 slots that admit every request.
    pub const DEFAULT: Settings = Settings {
        kinds: Kinds::NONE,
        algorithm: Algorithm::Fridge,
        slots_log2: 10,
        admit_log2: 0,
        directions: Directions::Together,
        samples: false,
        follows: false,
        groups_log2: 0,
        expiry_ns: 50_000_000,
        prefixes: 0,
    };

    /// Returns why no device can measure with these settings, or `None` if one can.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        let widest = if self.algorithm == Algorithm::MultiFridge { 10 } else { MAX_ADMIT_BITS };
        // The second stage's index is taken from the lower half of the hash and must not overlap
        // the admission bits.
        let is_narrow = self.algorithm == Algorithm::Expiry
            && self.admit_log2.saturating_add(self.slots_log2) > 17;
        if !SLOT_BITS.contains(&self.slots_log2) || self.fridge_slots_log2() < *SLOT_BITS.start() {
            Some("a table has 64 to 65536 slots, and for multi-fridge 256 at least")
        } else if is_narrow {
            Some(
                "expiry with so few requests admitted takes fewer slots: admit more, or halve the slots",
            )
        } else if self.admit_log2 > widest {
            Some("too few requests are admitted: 1/65536 is the least, and 1/1024 for multi-fridge")
        } else if self.follows && self.algorithm != Algorithm::Fridge {
            // Several fridges share requests out by the hash bits above the admission bits; the
            // other algorithms do not weight delays.
            Some(
                "--delay-admit auto is for --delay-algorithm fridge; give a share, or leave out the other algorithm",
            )
        } else if self.slots() > MAX_SLOTS {
            Some(
                "tables of all kinds together have at most 262144 slots; measure fewer kinds, or with fewer slots",
            )
        } else if self.groups_log2 > GROUP_BITS || self.histograms() > MAX_HISTOGRAMS {
            Some(
                "kinds of delays, times directions, times groups (the next power of two), times four for multi-fridge, are at most 256; measure fewer \
                 kinds, or fewer groups",
            )
        } else {
            None
        }
    }

    /// Returns the number of slots of all tables.
    #[inline(always)]
    #[must_use]
    pub const fn slots(&self) -> usize {
        (self.kinds.number() * TABLES) << (self.slots_log2 as u32)
    }

    /// Returns the number of slots that memory has room for: a power of two, so that a mask bounds
    /// an index (`BPF.md`, bounds).
    #[inline(always)]
    pub(crate) const fn padded_slots(&self) -> usize {
        (self.kinds.padded() * TABLES) << (self.slots_log2 as u32)
    }

    /// Returns the number of histograms that memory has room for, as
    /// [`padded_slots`](Self::padded_slots).
    #[inline(always)]
    const fn padded_histograms(&self) -> usize {
        self.kinds.padded() * self.labels() * self.fridges()
    }

    /// Returns the number of slots that a request's hash selects from, as a power of two: with
    /// several fridges, the slots of one.
    #[inline(always)]
    #[must_use]
    pub const fn fridge_slots_log2(&self) -> u8 {
        match self.algorithm {
            Algorithm::MultiFridge => self.slots_log2.saturating_sub(FRIDGE_BITS),
            Algorithm::Fridge | Algorithm::Overwrite | Algorithm::Expiry => self.slots_log2,
        }
    }

    /// Returns the number of fridges; each has its own histograms.
    #[inline(always)]
    #[must_use]
    pub const fn fridges(&self) -> usize {
        match self.algorithm {
            Algorithm::MultiFridge => FRIDGES,
            Algorithm::Fridge | Algorithm::Overwrite | Algorithm::Expiry => 1,
        }
    }

    /// Returns the number of directions with separate delays.
    #[inline(always)]
    #[must_use]
    pub const fn sides(&self) -> usize {
        match self.directions {
            Directions::Together => 1,
            Directions::Apart | Directions::Local => 2,
        }
    }

    /// Returns the number of groups, including the group of all other addresses; a power of two.
    #[inline(always)]
    #[must_use]
    pub const fn groups(&self) -> usize {
        1_usize << (self.groups_log2 as u32)
    }

    /// Returns the number of labels of a kind: groups times directions.
    #[inline(always)]
    #[must_use]
    pub const fn labels(&self) -> usize {
        self.sides() * self.groups()
    }

    /// Returns the index of a label among a kind's [labels](Self::labels).
    #[inline(always)]
    fn label(&self, label: Label) -> usize {
        let leaves = label.leaves as usize & (self.sides() - 1);
        let group = label.group as usize & (self.groups() - 1);
        group * self.sides() + leaves
    }

    /// Returns the label at an index of a kind's [labels](Self::labels).
    #[must_use]
    pub const fn labelled(&self, index: usize) -> Label {
        let sides = self.sides();
        Label { leaves: index & (sides - 1) == 1, group: (index >> sides.trailing_zeros()) as u8 }
    }

    /// Returns whether a kind's delays are separated by direction or group.
    #[inline(always)]
    const fn keeps_apart(&self) -> bool {
        self.groups_log2 > 0 || !matches!(self.directions, Directions::Together)
    }

    /// Returns whether the measurement needs the owners of a packet's addresses: for groups or for
    /// [`Directions::Local`].
    #[inline(always)]
    #[must_use]
    pub fn asks_addresses(&self) -> bool {
        self.groups_log2 > 0 || self.directions == Directions::Local
    }

    /// Returns the number of histograms in use, in order of kind, group, direction and fridge.
    #[inline(always)]
    #[must_use]
    pub const fn histograms(&self) -> usize {
        self.kinds.number() * self.labels() * self.fridges()
    }

    /// Returns the share of requests that a fridge admits: a numerator, and the denominator's power
    /// of two.
    #[must_use]
    pub fn admitted(&self, fridge: usize) -> (u32, u32) {
        let bits = u32::from(self.admit_log2);
        match self.algorithm {
            // Three quarters of the requests that the preceding fridges leave over: the next two
            // bits of their hash are not both zero.
            Algorithm::MultiFridge if fridge < FRIDGES - 1 => {
                (3, bits + 2 + ((fridge as u32) << 1))
            }
            Algorithm::MultiFridge => (1, bits + ((fridge as u32) << 1)),
            Algorithm::Fridge | Algorithm::Overwrite | Algorithm::Expiry => (1, bits),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Most groups, as a power of two.
const GROUP_BITS: u8 = prefixes::MAX_GROUPS.trailing_zeros() as u8;

/// Group and direction of a delay; each label of a kind has its own counts and histograms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Whether the request leaves; ignored without [directions](Directions).
    pub leaves: bool,
    /// Number of the [group](Settings::groups_log2).
    pub group: u8,
}

impl From<bool> for Label {
    fn from(leaves: bool) -> Self {
        Label { leaves, group: 0 }
    }
}

/// Number of fridges of [`Algorithm::MultiFridge`], as a power of two.
const FRIDGE_BITS: u8 = FRIDGES.trailing_zeros() as u8;

/// Counts of one kind, group and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Counts {
    /// Requests, admitted or not. For [timestamps](Kind::TcpTimestamps) and the
    /// [spin bit](Kind::QuicSpin) only those stored in a table, because others cannot be
    /// distinguished from repetitions; each of these represents others, as a delay does.
    pub requests: u64,
    /// Requests stored in a table, out of those whose answers [count](Admission::counted).
    pub admitted: u64,
    /// Requests that found no free slot ([`Algorithm::Expiry`]).
    pub refused: u64,
    /// Answers that came before their requests, or at least 2^31 ticks after them: a clock was set,
    /// or packets are out of order.
    pub backward: u64,
    /// Delays that should be passed on as single [samples](sample) and found no room.
    pub unsampled: u64,
}

impl Counts {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Counts) -> Counts {
        self.merge(other, 0);
        self
    }

    fn merge(&mut self, other: &Counts, raise: u32) {
        self.requests += other.requests << raise;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.backward += other.backward;
        self.unsampled += other.unsampled;
    }
}

/// Length of the array of [`Counts`] of all kinds, groups and directions.
const ROOM: usize = MAX_HISTOGRAMS;

/// Request counts and delay histograms, of a bank or merged.
#[derive(Clone, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Delay {
    /// One plus the power of two of the share that [counts](Admission::counted), by number of kind,
    /// if shares [follow](Settings::follows) the traffic and anything was counted; else zero. After
    /// a merge the largest of the shares: delays counted with smaller ones are weighted up.
    counted: [u32; SHARES],
    /// Counts in order of kind, group and direction; those in use come first.
    pub counts: [Counts; ROOM],
    /// Histograms in the order of [`Settings::histograms`]; those in use come first.
    pub histograms: [Histogram; MAX_HISTOGRAMS],
}

impl Delay {
    /// Returns the counts of a kind and label. Without [directions](Directions) all requests
    /// arrive; without groups all are of group 0.
    #[must_use]
    pub fn counts(&self, settings: &Settings, kind: Kind, label: impl Into<Label>) -> Counts {
        self.counts.get(Self::row(settings, kind, label.into())).copied().unwrap_or_default()
    }

    /// Returns the delays of a kind, label and fridge.
    #[must_use]
    pub fn histogram(
        &self,
        settings: &Settings,
        kind: Kind,
        label: impl Into<Label>,
        fridge: usize,
    ) -> Option<&Histogram> {
        let row = Self::row(settings, kind, label.into());
        self.histograms.get(row * settings.fridges() + fridge)
    }

    /// Returns the delays of a kind, label and fridge, for the caller to fill.
    pub fn histogram_mut(
        &mut self,
        settings: &Settings,
        kind: Kind,
        label: Label,
        fridge: usize,
    ) -> Option<&mut Histogram> {
        let row = Self::row(settings, kind, label);
        self.histograms.get_mut(row * settings.fridges() + fridge)
    }

    /// Sets the counts of a kind and label.
    pub fn set_counts(&mut self, settings: &Settings, kind: Kind, label: Label, counts: Counts) {
        self.counts
            .get_mut(Self::row(settings, kind, label))
            .into_iter()
            .for_each(|it| *it = counts);
    }

    fn row(settings: &Settings, kind: Kind, label: Label) -> usize {
        settings.kinds.rank(kind) * settings.labels() + settings.label(label)
    }

    /// Returns the share of a kind's requests that its delays represent, as a power of two.
    #[must_use]
    pub fn admit_log2(&self, settings: &Settings, kind: Kind) -> u8 {
        let counted = self.counted.get(kind as usize).and_then(|counted| counted.checked_sub(1));
        counted.map_or(settings.admit_log2, |bits| bits as u8)
    }

    /// Returns the same share if shares follow the traffic and anything was counted with it.
    #[must_use]
    pub fn counted_admit_log2(&self, kind: Kind) -> Option<u8> {
        self.counted
            .get(kind as usize)
            .and_then(|counted| counted.checked_sub(1))
            .map(|bits| bits as u8)
    }

    /// Sets the share of a kind's requests that its delays represent, for a device that counted
    /// anything with it.
    pub fn set_admit_log2(&mut self, kind: Kind, admit_log2: u8) {
        self.counted
            .get_mut(kind as usize)
            .into_iter()
            .for_each(|counted| *counted = u32::from(admit_log2) + 1);
    }
}

/// Hash and table that determine a request's slot.
#[derive(Clone, Copy)]
struct Place {
    signature: u32,
    hash: u32,
    /// Index among all tables.
    table: usize,
}

impl Place {
    /// Returns the place of a request from one end to the other, in one of a kind's tables.
    #[inline(always)]
    fn of(
        (from, to): (u32, u32),
        token: u32,
        kind_rank: usize,
        table: usize,
        tabulation: &Tabulation,
    ) -> Self {
        // The token's CRC is rotated as well because CRCs are linear: otherwise the difference
        // between two ports would cancel the same difference between two tokens.
        let token = Crc32::of_number(token).rotate_left(24);
        let signature = from ^ to.rotate_left(16) ^ token;
        Place { signature, hash: tabulation.hash(signature), table: kind_rank * TABLES + table }
    }

    /// Returns whether the hash is within the share of one in `2^admit`.
    #[inline(always)]
    fn is_of(&self, admit: u32) -> bool {
        ((self.hash >> admit) << admit) == self.hash
    }

    /// Returns the fridge that admits the request, or `None` if the request is outside the share.
    #[inline(always)]
    fn fridge(&self, settings: &Settings, admit: u32) -> Option<usize> {
        // Signature zero marks an empty slot.
        if self.signature == 0 || !self.is_of(admit) {
            return None;
        }
        if settings.fridges() == 1 {
            return Some(0);
        }
        let rest = self.hash >> admit;
        Some(match rest {
            _ if rest & 0x3 != 0 => 0,
            _ if rest & 0xf != 0 => 1,
            _ if rest & 0x3f != 0 => 2,
            _ => 3,
        })
    }

    /// Returns the slot in a fridge, as an index among all slots. The upper bits of the hash
    /// determine it; admission uses the lower ones.
    #[inline(always)]
    fn slot(&self, settings: &Settings, fridge: usize) -> usize {
        let bits = u32::from(settings.slots_log2);
        let base = self.table << bits;
        let unused = u32::BITS - bits;
        if settings.fridges() == 1 {
            return base + ((self.hash >> unused) as usize);
        }
        let index = (self.hash as usize) >> (unused + u32::from(FRIDGE_BITS));
        base + ((fridge & (FRIDGES - 1)) << (bits - u32::from(FRIDGE_BITS))) + index
    }
}

/// Delay of an answered request, and the insertions since the request was stored.
#[derive(Clone, Copy)]
struct Found {
    delay: u32,
    insertions: u32,
    fridge: usize,
}

/// One packet and one kind that it is matched for.
struct Exchange<'a, P> {
    settings: &'a Settings,
    kind: Kind,
    requests: &'a Requests,
    sharing: Sharing,
    packet: &'a Observation<P>,
}

impl<P: Packets> Exchange<'_, P> {
    /// Returns the packet's time in ticks of the kind. Called only where the time is used: in the
    /// kernel, reading the clock costs as much as all the rest.
    #[inline(always)]
    fn now(&self) -> u32 {
        (self.packet.time() >> self.kind.tick_bits()) as u32
    }

    /// Returns the powers of two of the stored and of the counted share. Looked up at each use: a
    /// kernel program has no room to store them.
    #[inline(always)]
    fn shares(&self, bank: usize) -> (u32, u32) {
        if self.settings.follows {
            self.requests.shares.of(bank, self.kind)
        } else {
            let bits = u32::from(self.settings.admit_log2);
            (bits, bits)
        }
    }

    /// Returns the slot at an index among all slots.
    #[inline(always)]
    fn slot(&self, index: usize) -> &Slot {
        self.requests.slot(index & (self.settings.padded_slots() - 1))
    }

    /// Returns the row of a request's label: the packet is the request (`asks`), or answers it.
    #[inline(always)]
    fn row(&self, rank: usize, asks: bool) -> usize {
        if self.settings.keeps_apart() {
            rank * self.settings.labels() + self.label(asks)
        } else {
            rank
        }
    }

    /// Returns the index of the same request's label among the kind's labels.
    #[inline(always)]
    fn label(&self, asks: bool) -> usize {
        let Exchange { settings, kind, packet, .. } = self;
        let (source, destination) = packet.owners;
        let (asked, answers) = if asks { (source, destination) } else { (destination, source) };
        // The end that closes a connection is not necessarily the one that opened it.
        let has_sides = *kind != Kind::TcpDuration;
        let leaves = match settings.directions {
            Directions::Together => false,
            Directions::Apart => has_sides && packet.arrival.leaves == asks,
            Directions::Local => has_sides && asked.is_local,
        };
        let group = if has_sides { answers.group } else { answers.group.max(asked.group) };
        settings.label(Label { leaves, group })
    }

    /// Returns whether answers to an admitted request count.
    #[inline(always)]
    fn counts(&self, place: &Place, bank: usize) -> bool {
        !self.settings.follows || place.is_of(self.shares(bank).1)
    }

    #[inline(always)]
    fn inserted(&self, place: &Place, fridge: usize) -> usize {
        let table = place.table;
        let inserted = if self.settings.fridges() == 1 { table } else { table * FRIDGES + fridge };
        inserted & (MAX_FRIDGES - 1)
    }

    /// Stores a request and returns the outcome.
    #[inline(always)]
    fn ask(&self, place: &Place, fridge: usize) -> Asked {
        if self.settings.algorithm == Algorithm::Expiry {
            return self.wait(place);
        }
        let slot = self.slot(place.slot(self.settings, fridge));
        let is_again = slot.request().signature() == place.signature;
        if self.kind.repeats() && is_again {
            return Asked::Again;
        }
        let stamp = (self.sharing.add(self.requests.inserted(self.inserted(place, fridge)), 1)
            as u32)
            .wrapping_add(1);
        if self.kind.keeps_first() && is_again {
            return Asked::Kept;
        }
        // If packets repeat tokens, time zero marks a request that was answered.
        let now = self.now();
        let time = if self.kind.repeats() && now == 0 { 1 } else { now };
        slot.put(Request::new(place.signature, time), stamp);
        Asked::Kept
    }

    /// Stores a request as in Chen et al.: in a slot that is empty or whose request has expired, of
    /// the first stage or else of the second. An equal request that still waits stays as it is.
    #[inline(always)]
    fn wait(&self, place: &Place) -> Asked {
        let now = self.expiring_now();
        let age = self.settings.expiry_ns >> self.kind.tick_bits();
        let mut stage = 0;
        while stage < STAGES {
            let slot = self.slot(self.stage(place, stage));
            let request = slot.request();
            let is_own = request.signature() == place.signature;
            if is_own && self.kind.repeats() {
                return Asked::Again;
            }
            let since = request.time();
            let waits = request.signature() != 0 && since <= now && (now - since) <= age;
            if !waits {
                slot.put(Request::new(place.signature, now), 0);
                return Asked::Kept;
            }
            if is_own {
                return Asked::Kept;
            }
            stage += 1;
        }
        Asked::Refused
    }

    /// Returns the time in ticks of requests that expire, never zero: a switch uses zero for a slot
    /// without an answer.
    #[inline(always)]
    fn expiring_now(&self) -> u32 {
        (self.now() & (u32::MAX >> (u32::BITS - EXPIRING_BITS))).max(1)
    }

    /// Returns the slot of an expiring request in a stage; each stage has half of the table.
    #[inline(always)]
    fn stage(&self, place: &Place, stage: usize) -> usize {
        let bits = u32::from(self.settings.slots_log2) - 1;
        let hash = if stage == 0 { place.hash } else { place.hash.rotate_left(16) };
        let index = (hash >> (u32::BITS - bits)) as usize;
        let base = place.table << u32::from(self.settings.slots_log2);
        base + (stage << bits) + index
    }

    /// Finds the request that a packet answers and removes it.
    #[inline(always)]
    fn answer(&self, place: &Place, fridge: usize) -> Option<Found> {
        let is_expiring = self.settings.algorithm == Algorithm::Expiry;
        let mut slot = self.slot(if is_expiring {
            self.stage(place, 0)
        } else {
            place.slot(self.settings, fridge)
        });
        let mut request = slot.request();
        if is_expiring && request.signature() != place.signature {
            slot = self.slot(self.stage(place, 1));
            request = slot.request();
        }
        if request.signature() != place.signature {
            return None;
        }
        let stamp = slot.stamp();
        // A token that packets repeat stays, without a time, so that a repetition is not stored
        // again.
        let rest =
            if self.kind.repeats() { Request::new(place.signature, 0) } else { Request::new(0, 0) };
        if request == rest || !slot.replace(self.sharing, request, rest) {
            return None;
        }
        if is_expiring {
            // Sign-extends the difference, which has only EXPIRING_BITS bits.
            let unused = u32::BITS - EXPIRING_BITS;
            let delay = (self.expiring_now().wrapping_sub(request.time()) << unused) as i32;
            return Some(Found { delay: (delay >> unused) as u32, insertions: 0, fridge });
        }
        Some(self.found(request.time(), stamp, place, fridge))
    }

    #[inline(always)]
    fn found(&self, time: u32, stamp: u32, place: &Place, fridge: usize) -> Found {
        let inserted = self.requests.inserted(self.inserted(place, fridge)).load() as u32;
        Found {
            delay: self.now().wrapping_sub(time),
            insertions: inserted.wrapping_sub(stamp),
            fridge,
        }
    }

    /// Measures a round that ends with an edge of the spin bit. The lowest bit of the signature is
    /// the spin bit itself; time zero means that the edge before its current value was not seen.
    #[inline(always)]
    fn spin(&self, place: &Place, fridge: usize, bit: u8) -> (Asked, Option<Found>) {
        let slot = self.slot(place.slot(self.settings, fridge));
        let mine = place.signature & !1 | u32::from(bit);
        let request = slot.request();
        if request.signature() == mine {
            return (Asked::Again, None);
        }
        let counter = self.requests.inserted(self.inserted(place, fridge));
        if request.signature() ^ mine != 1 {
            let stamp = (self.sharing.add(counter, 1) as u32).wrapping_add(1);
            slot.put(Request::new(mine, 0), stamp);
            return (Asked::Again, None);
        }
        let (stamp, inserted) = (slot.stamp(), counter.load() as u32);
        let now = self.now().max(1);
        if !slot.replace(self.sharing, request, Request::new(mine, now)) {
            return (Asked::Again, None);
        }
        slot.restamp(inserted);
        let found = Found {
            delay: now.wrapping_sub(request.time()),
            insertions: inserted.wrapping_sub(stamp),
            fridge,
        };
        (Asked::Kept, (request.time() != 0).then_some(found))
    }
}

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Kept,
    Refused,
    /// No new request in the table: already stored, not admitted, or a spin bit without an edge.
    Again,
}

impl Delay {
    #[inline(always)]
    fn each<P: Packets>(
        settings: &Settings,
        parts: Parts<'_, Self>,
        pass: &Pass<'_>,
        packets: &(impl Observed<P> + ?Sized),
    ) {
        for packet in packets.each() {
            if packet.segment.speaks != Speaks::Nothing {
                let before = parts.lasting.length;
                parts.own.packet(settings, parts.shared_lasting, pass, packet, parts.lasting);
                if settings.samples {
                    // The fields that all delays of a packet have in common come last, when
                    // registers are free for them.
                    parts.lasting.address(before, packet, pass.bank);
                }
            }
        }
    }

    #[inline(always)]
    fn packet<P: Packets>(
        &mut self,
        settings: &Settings,
        requests: &Requests,
        pass: &Pass<'_>,
        packet: &Observation<P>,
        outbox: &mut Outbox,
    ) {
        // One copy of the code for all kinds: a kernel program has no room for more.
        let (mut number, end) = Kind::range(packet.segment.speaks);
        let other = Kind::other(&packet.segment);
        // TCP's kinds come first, so their rank needs no counting.
        let mut rank = if number == 0 { 0 } else { settings.kinds.before(number) };
        while number < end {
            if let Some(kind) = Kind::of(number)
                && settings.kinds.has(kind)
            {
                if number != other {
                    self.exchange(settings, (kind, rank), requests, pass, packet, outbox);
                }
                rank += 1;
            }
            number += 1;
        }
    }

    #[inline(always)]
    fn exchange<P: Packets>(
        &mut self,
        settings: &Settings,
        (kind, rank): (Kind, usize),
        requests: &Requests,
        pass: &Pass<'_>,
        packet: &Observation<P>,
        outbox: &mut Outbox,
    ) {
        let Roles { asks, request, answers, answer } = kind.roles(&packet.segment);
        if !asks && !answers {
            return;
        }
        let (exchange, tabulation) =
            (Exchange { settings, kind, requests, sharing: pass.sharing, packet }, pass.tabulation);
        let (source, destination) = packet.ends;
        // Either side may end a connection.
        let has_sides = kind != Kind::TcpDuration;
        let (forth, back) = (table(source, destination), table(destination, source));
        let ((from, to), table, (back_from, back_to), back_table) = match (has_sides, forth) {
            (true, _) => ((source, destination), forth, (destination, source), back),
            (false, 0) => ((source, destination), 0, (source, destination), 0),
            (false, _) => ((destination, source), 0, (destination, source), 0),
        };
        // If both ends are equal, request and answer are in one table, which a switch reads once:
        // the packet counts as a request.
        if answers && (!asks || forth != back) {
            let place = Place::of((back_from, back_to), answer, rank, back_table, tabulation);
            if let Some(fridge) = place.fridge(settings, exchange.shares(pass.bank).0)
                && let Some(found) = exchange.answer(&place, fridge)
                && exchange.counts(&place, pass.bank)
            {
                self.tell_share(&exchange, pass.bank);
                self.count(settings, exchange.row(rank, false), requests, found, outbox);
            }
        }
        if asks {
            let place = Place::of((from, to), request, rank, table, tabulation);
            let mut became = Asked::Again;
            // Some stored requests do not count yet. An answer removes them, so that a duplicate
            // answer finds nothing.
            let is_counted = exchange.counts(&place, pass.bank);
            if let Some(fridge) = place.fridge(settings, exchange.shares(pass.bank).0) {
                if kind == Kind::QuicSpin {
                    let (asked, found) = exchange.spin(&place, fridge, packet.segment.flags);
                    became = asked;
                    if let Some(found) = found
                        && is_counted
                    {
                        self.tell_share(&exchange, pass.bank);
                        self.count(settings, exchange.row(rank, true), requests, found, outbox);
                    }
                } else {
                    became = exchange.ask(&place, fridge);
                }
            }
            let index = exchange.row(rank, true) & (ROOM - 1);
            let is_kept = became == Asked::Kept && is_counted;
            let is_known = !kind.is_known_if_kept() || is_kept;
            if is_known {
                self.tell_share(&exchange, pass.bank);
            }
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let counts = &mut self.counts[index];
            counts.requests += u64::from(is_known);
            counts.admitted += u64::from(is_kept);
            if became == Asked::Refused {
                counts.refused += 1;
            }
        }
    }

    /// Records the share that something is counted with, if shares follow the traffic.
    #[inline(always)]
    fn tell_share<P>(&mut self, exchange: &Exchange<'_, P>, bank: usize) {
        let Exchange { settings, kind, requests, .. } = exchange;
        if settings.follows {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let told = &mut self.counted[*kind as usize & (SHARES - 1)];
            *told = requests.shares.of(bank, *kind).1 + 1;
        }
    }

    /// Counts an answer, as backward if its request has a later time.
    #[inline(always)]
    fn count(
        &mut self,
        settings: &Settings,
        row: usize,
        requests: &Requests,
        found: Found,
        outbox: &mut Outbox,
    ) {
        if found.delay as i32 >= 0 {
            let (weight, is_beyond) = match settings.algorithm {
                Algorithm::Fridge | Algorithm::MultiFridge => {
                    requests.weights.of(found.insertions, settings.fridge_slots_log2())
                }
                Algorithm::Overwrite | Algorithm::Expiry => (Weight::ONE, false),
            };
            let fridge = if settings.fridges() == 1 { 0 } else { found.fridge & (FRIDGES - 1) };
            if settings.samples {
                if let Some(sample) = outbox.next() {
                    (sample.delay, sample.weight) = (found.delay, weight.weight);
                    (sample.row, sample.fridge, sample.beyond) =
                        (row as u8, fridge as u8, u8::from(is_beyond));
                } else {
                    self.miss(row);
                }
            }
            let index = if settings.fridges() == 1 { row } else { row * FRIDGES + fridge };
            let index = index & (settings.padded_histograms() - 1) & (MAX_HISTOGRAMS - 1);
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            self.histograms[index].add(found.delay, weight, is_beyond);
        } else {
            #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
            let counts = &mut self.counts[row & (ROOM - 1)];
            counts.backward += 1;
        }
    }
}

impl Delay {
    /// Passes on the samples of an outbox and counts those that `take` has no room for.
    pub fn pass_on(&mut self, outbox: &mut Outbox, mut take: impl FnMut(&Sample) -> bool) {
        for sample in outbox.take() {
            if !take(sample) {
                self.miss(usize::from(sample.row));
            }
        }
    }

    /// Counts a delay that is not passed on as a sample.
    #[inline(always)]
    pub fn miss(&mut self, row: usize) {
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let counts = &mut self.counts[row & (ROOM - 1)];
        counts.unsampled += 1;
    }
}

/// Returns the table of requests from one end to another; the opposite direction has the other
/// table.
#[inline(always)]
fn table(from: u32, to: u32) -> usize {
    (from.wrapping_sub(to) >> 31) as usize
}

impl Measurement for Delay {
    const NAME: &'static str = "delay";
    type Settings = Settings;
    const DEFAULT: Settings = Settings::DEFAULT;
    type PerCore = Delay;
    type Persistent = Outbox;
    type Shared = ();
    type SharedPersistent = Requests;

    #[inline(always)]
    fn keys(_: &Settings) -> [Option<KeyKind>; MAX_KEYS] {
        [None; MAX_KEYS]
    }

    #[inline(always)]
    fn is_on(settings: &Settings) -> bool {
        settings.kinds.any()
    }

    #[inline(always)]
    fn needs(settings: &Settings) -> Needs {
        let needs = Needs::TIME.and(Needs::SEGMENT).and(Needs::ENDS);
        needs
            .with(Needs::PLACE, settings.directions == Directions::Apart)
            .with(Needs::ADDRESSES, settings.asks_addresses())
            .with(Needs::TIMESTAMPS, settings.kinds.has(Kind::TcpTimestamps))
    }

    #[inline(always)]
    fn wants_order(settings: &Settings) -> bool {
        settings.kinds.any()
    }

    #[inline(always)]
    fn used(settings: &Settings) -> Used {
        if !settings.kinds.any() {
            return Used::default();
        }
        let histograms = settings.padded_histograms() * size_of::<Histogram>();
        Used {
            own: core::mem::offset_of!(Delay, histograms) + histograms,
            lasting: if settings.samples { Outbox::IN_KERNEL } else { 0 },
            shared_lasting: Requests::bytes(settings.padded_slots()),
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
        // The usual settings have their own copy of the code, in which the compiler knows most of
        // them. Kernel programs do not need it: they are verified with their settings.
        let is_usual =
            settings.algorithm == Algorithm::Fridge && !settings.follows && !settings.samples;
        if is_usual && !cfg!(target_arch = "bpf") {
            let usual = Settings {
                algorithm: Algorithm::Fridge,
                follows: false,
                samples: false,
                ..*settings
            };
            Self::each(&usual, parts, pass, packets);
        } else {
            Self::each(settings, parts, pass, packets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::crc32;
    extern crate std;
    use std::collections::HashSet;

    /// Queries of one resolver to another, with consecutive ids and ports: their signatures are
    /// distinct.
    #[test]
    fn tokens_and_ports_that_differ_alike_are_told_apart() {
        let tabulation = Tabulation::from_seed(1);
        let mut seen = HashSet::new();
        for number in 0..1_u32 << 20 {
            let (port, id) = ((number >> 10) as u16, number & 0x3ff);
            let [high, low] = port.to_be_bytes();
            let ends = (crc32(&[10, 0, 0, 1, high, low]), crc32(&[10, 0, 0, 2, 0, 53]));
            assert!(
                seen.insert(Place::of(ends, id, 0, 0, &tabulation).signature),
                "port {port}, id {id}"
            );
        }
    }
}
