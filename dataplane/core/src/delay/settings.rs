//! Settings of the delay measurement, and the labels of delays that follow from them.

use super::table::MAX_SLOTS;
use super::{DelayKind, Kinds, prefixes};
use zerocopy::{Immutable, IntoBytes};

/// Number of fridges of [`Algorithm::MultiFridge`].
pub const FRIDGES: usize = 4;

/// Number of fridges of [`Algorithm::MultiFridge`], as a power of two.
pub(super) const FRIDGE_BITS: u8 = FRIDGES.trailing_zeros() as u8;

/// Most groups, as a power of two.
const GROUP_BITS: u8 = prefixes::MAX_GROUPS.trailing_zeros() as u8;

/// Most histograms, over all kinds, directions, groups and fridges.
pub const MAX_HISTOGRAMS: usize = 256;

/// Tables per kind: one for the requests of each direction.
pub(super) const TABLES: usize = 2;

/// Range of the slots of a table, as powers of two.
pub const SLOT_BITS: core::ops::RangeInclusive<u8> = 6..=16;

/// Bits of the time of requests that expire. The time wraps every 137 s
/// ([durations](super::DelayKind::TcpDuration): every 2.4 hours). Requests from before a wrap count as
/// expired, whatever their age, because a switch has no third comparison for them. Their answers
/// still match until other requests take their slots.
pub const EXPIRING_BITS: u32 = 31;

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
    /// Whether each delay is also reported as a [sample](super::DelaySample).
    pub samples: bool,
    /// Whether each window has [its own shares](super::Shares) by kind, which follow the traffic
    /// ([`Algorithm::Fridge`] only).
    pub follows: bool,
    /// Number of groups of prefixes, as a power of two; at most [`prefixes::MAX_GROUPS`] groups.
    /// Group 0 has all addresses outside the prefixes. A delay belongs to the group of the
    /// answering address, because it arises there; for a [connection](super::DelayKind::TcpDuration), to
    /// the higher group of both ends.
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
    pub(super) const fn padded_histograms(&self) -> usize {
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

    /// Returns whether delays have weights.
    #[inline(always)]
    #[must_use]
    pub const fn weighs(&self) -> bool {
        matches!(self.algorithm, Algorithm::Fridge | Algorithm::MultiFridge)
    }

    /// Returns whether the recent requests of a kind are remembered, because repeated ones are no
    /// insertions. Tokens of other kinds are repeated as a rule, and stored once.
    #[inline(always)]
    #[must_use]
    pub const fn remembers(&self, kind: DelayKind) -> bool {
        self.weighs() && !kind.is_known_if_kept()
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
    pub(super) fn label(&self, label: Label) -> usize {
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
    pub(super) const fn keeps_apart(&self) -> bool {
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
