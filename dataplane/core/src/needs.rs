//! What measurements that are on have to know of packets, as bits.
//!
//! Settings say so as well, but at a comparison or two for each measurement. In the kernel nothing
//! of that would go away: the verifier takes away branches that settings rule out, and leaves the
//! arithmetic by which they are found.

use crate::key::KeyKind;

/// Bits that say what has to be known of a packet, and which measurements count it. Made of
/// [settings](crate::Settings::needs) once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Needs(u32);

impl Needs {
    /// Nothing.
    pub const NONE: Needs = Needs(0);
    /// When it comes.
    pub const TIME: Needs = Needs(1 << 4);
    /// Where it comes or leaves.
    pub const PLACE: Needs = Needs(1 << 5);
    /// What its transport header says of a conversation.
    pub const SEGMENT: Needs = Needs(1 << 6);
    /// The timestamps of a TCP segment.
    pub const TIMESTAMPS: Needs = Needs(1 << 7);
    /// The hashes of both ends of a conversation.
    pub const ENDS: Needs = Needs(1 << 8);
    /// The addresses of both ends.
    pub const ADDRESSES: Needs = Needs(1 << 9);
    /// Of all that, what distinct flows have to know.
    pub const OF_FLOWS: Needs = Needs(0b1_1111 | 1 << FIRST);

    /// Fails to compile unless there are bits for so many keys and measurements.
    pub(crate) const fn check_room(keys: usize, measurements: usize) {
        assert!(keys <= 4 && measurements <= 16, "bits of their own");
    }

    /// Its signature by a key.
    #[inline(always)]
    #[must_use]
    pub const fn key(key: KeyKind) -> Needs {
        Needs(1_u32 << (key as u32))
    }

    /// What an entry of the list of measurements has to know to be on.
    #[inline(always)]
    #[must_use]
    pub const fn measurement(index: usize) -> Needs {
        Needs(1_u32 << ((index as u32) + FIRST))
    }

    /// These and those, if they are wanted.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, others: Needs, are_wanted: bool) -> Needs {
        Needs(self.0 | (others.0 * (are_wanted as u32)))
    }

    /// These and those.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, others: Needs) -> Needs {
        Needs(self.0 | others.0)
    }

    /// Those of them that are among the others.
    #[inline(always)]
    #[must_use]
    pub const fn among(self, others: Needs) -> Needs {
        Needs(self.0 & others.0)
    }

    /// Whether any of them is among the others.
    #[inline(always)]
    #[must_use]
    pub const fn has(self, others: Needs) -> bool {
        self.0 & others.0 != 0
    }
}

/// The bit of the first measurement.
const FIRST: u32 = 16;
