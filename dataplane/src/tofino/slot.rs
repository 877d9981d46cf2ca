//! Length of a slot of staggered registers on a switch.

use flowgauge_core::cardinality::Precision;

/// Default slot length, as a power of two of nanoseconds.
pub const SLOT_BITS: u32 = 23;
/// Smallest slot length, as a power of two of nanoseconds.
const LEAST_SLOT_BITS: u32 = 10;
/// Longest round, with a slot for each register, as a power of two of nanoseconds: for longer ones
/// the clock has too few bits.
const MOST_ROUND_BITS: u32 = 44;

/// Returns the slot length as a power of two of nanoseconds; `None` if a switch cannot have such
/// slots.
#[must_use]
pub fn slot_bits(precision: Precision, slot_ns: u64) -> Option<u32> {
    (slot_ns.is_power_of_two() && range(precision).contains(&slot_ns.trailing_zeros()))
        .then(|| slot_ns.trailing_zeros())
}

/// Returns the nearest slot length that a switch can have.
#[must_use]
pub fn nearest_slot(precision: Precision, slot_ns: u64) -> u64 {
    let range = range(precision);
    let below = slot_ns.max(1).ilog2().clamp(*range.start(), *range.end());
    let above = (below + 1).min(*range.end());
    if slot_ns.abs_diff(1 << above) < slot_ns.abs_diff(1 << below) {
        1 << above
    } else {
        1 << below
    }
}

pub(super) fn range(precision: Precision) -> std::ops::RangeInclusive<u32> {
    LEAST_SLOT_BITS..=MOST_ROUND_BITS - precision.bits()
}
