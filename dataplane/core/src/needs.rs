//! Packet fields that the measurements that are on need, as bits.
//!
//! Settings contain the same information, at the cost of one or two comparisons per measurement. In
//! the kernel that cost would remain: the verifier removes jumps that settings rule out, but not the
//! arithmetic that computes their conditions. A test of bits by [`requires!`](crate::requires) is a
//! jump alone.

use crate::bits::has_bits;
use crate::key::KeyKind;

/// Set of packet fields and of measurements that are on, one bit each. Computed from
/// [settings](crate::Settings::needs) once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct RequiredFields(u32);

impl RequiredFields {
    /// The empty set.
    pub const NONE: RequiredFields = RequiredFields(0);
    /// Arrival time.
    pub const TIME: RequiredFields = RequiredFields(1 << 4);
    /// Whether the packet arrives or leaves.
    pub const DIRECTION: RequiredFields = RequiredFields(1 << 5);
    /// Conversation fields of the transport header.
    pub const SEGMENT: RequiredFields = RequiredFields(1 << 6);
    /// Timestamps of a TCP segment.
    pub const TIMESTAMPS: RequiredFields = RequiredFields(1 << 7);
    /// Hashes of both endpoints of a conversation.
    pub const ENDS: RequiredFields = RequiredFields(1 << 8);
    /// Addresses of both endpoints.
    pub const ADDRESSES: RequiredFields = RequiredFields(1 << 9);
    /// Signatures of keys with the destination port.
    pub const PORT_PAIRS: RequiredFields = RequiredFields(1 << 10);
    /// Hashes of the rows of keys, one bit per [`KeyKind`] from this one on.
    const FIRST_ROWS: u32 = 11;
    /// Fails to compile unless there are bits for this number of keys and measurements.
    pub(crate) const fn check_room(keys: usize, measurements: usize) {
        assert!(keys <= 4 && measurements <= 16, "bits of their own");
    }

    /// Returns the bit of a key's signature.
    #[inline(always)]
    #[must_use]
    pub const fn key(key: KeyKind) -> RequiredFields {
        RequiredFields(1_u32 << (key as u32))
    }

    /// Returns the bit of the hashes of a key for the first rows of sketches.
    #[inline(always)]
    #[must_use]
    pub const fn rows(key: KeyKind) -> RequiredFields {
        RequiredFields(1_u32 << ((key as u32) + Self::FIRST_ROWS))
    }

    /// Returns the bit of the measurement at this position in the list.
    #[inline(always)]
    #[must_use]
    pub const fn measurement(index: usize) -> RequiredFields {
        RequiredFields(1_u32 << ((index as u32) + FIRST))
    }

    /// Adds `others` if `are_wanted`.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, others: RequiredFields, are_wanted: bool) -> RequiredFields {
        RequiredFields(self.0 | (others.0 * (are_wanted as u32)))
    }

    /// Returns the union of both sets.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, others: RequiredFields) -> RequiredFields {
        RequiredFields(self.0 | others.0)
    }

    /// Returns the bits of the set.
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// As [`has`](Self::has), for the macro [`requires!`](crate::requires).
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn has_bits<const BITS: u32>(self) -> bool {
        has_bits::<BITS>(self.0)
    }

    /// Returns whether the sets have a bit in common.
    #[inline(always)]
    #[must_use]
    pub const fn has(self, others: RequiredFields) -> bool {
        self.0 & others.0 != 0
    }
}

/// Bit of the first measurement.
const FIRST: u32 = 16;

/// Whether a set has one of the fields of a constant set: as [`RequiredFields::has`], for tests of
/// every packet.
#[macro_export]
macro_rules! requires {
    ($needs:expr, $fields:expr) => {
        $needs.has_bits::<{ $fields.bits() }>()
    };
}
