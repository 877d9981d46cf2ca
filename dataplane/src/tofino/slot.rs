//! Length of a slot of staggered registers on a switch.

use flowgauge_core::cardinality::Precision;

/// How long slots are if nothing says so, as a power of two of nanoseconds.
pub const SLOT_BITS: u32 = 23;
/// The shortest.
const LEAST_SLOT_BITS: u32 = 10;
/// The longest round, which has a slot for each register: of longer ones the clock has too few.
const MOST_ROUND_BITS: u32 = 44;

/// The length of a slot as a power of two of nanoseconds, if a switch can have such slots.
#[must_use]
pub fn slot_bits(precision: Precision, slot_ns: u64) -> Option<u32> {
    (slot_ns.is_power_of_two() && range(precision).contains(&slot_ns.trailing_zeros()))
        .then(|| slot_ns.trailing_zeros())
}

/// The nearest length of a slot that a switch can have.
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
