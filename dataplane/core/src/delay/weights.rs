//! Weight of a delay: the reciprocal of the probability that its request was still stored
//! (dissertation, §2.2).
//!
//! Each insertion takes one of `M` slots. A request that was stored `x` insertions ago is
//! still there with a probability of `(1 - 1/M)^x`. So its delay represents `(1 - 1/M)^-x` delays,
//! most of whose requests were overwritten. The stamp counts admitted requests; the dissertation's
//! `(1 - p/M)^-x` belongs to a stamp that counts all requests.
//!
//! A device looks weights up in a table. A class covers `M`/64 values of `x`; its weight is the
//! mean over them, with 12 binary places, and its square has 8. Classes end at `8 M`, which one
//! request in 3,000 survives: a delay beyond has the weight of the last class and is also counted
//! separately.

use crate::counter::SharedCounter;
use zerocopy::FromZeros;

/// Number of classes of survival.
pub const CLASSES: usize = 512;

/// Classes per `M` insertions, as a power of two: equal to the fewest slots of a table.
pub const CLASS_BITS: u32 = 6;

/// Binary places of weights.
pub const WEIGHT_BITS: u32 = 12;

/// Binary places of squares of weights.
pub const SQUARE_BITS: u32 = 8;

/// Weight of a delay, and the weight's square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Weight with [`WEIGHT_BITS`] binary places.
    pub weight: u32,
    /// Square with [`SQUARE_BITS`] binary places.
    pub square: u32,
}

impl Weight {
    /// Weight of a request that cannot have been overwritten.
    pub const ONE: Weight = Weight { weight: 1 << WEIGHT_BITS, square: 1 << SQUARE_BITS };
}

/// Returns the weights of a table of `2^slots_log2` slots, in order of class. Computed in integers,
/// so that they are the same on every device.
pub fn weights(slots_log2: u8) -> impl Iterator<Item = Weight> {
    const ONE: u128 = 1 << 48;
    let slots = 1_u128 << slots_log2;
    let width = (slots >> CLASS_BITS).max(1);
    let mut weight = ONE;
    (0..CLASSES).map(move |_| {
        let (mut sum, mut squares) = (0_u128, 0_u128);
        for _ in 0..width {
            sum += weight;
            squares += (weight * weight) >> 48;
            weight = (weight * slots).checked_div(slots - 1).unwrap_or(u128::MAX);
        }
        let rounded = |sum: u128, bits: u32| {
            let unit = width << (48_u32 - bits);
            u32::try_from((sum + (unit >> 1)).checked_div(unit).unwrap_or(0)).unwrap_or(u32::MAX)
        };
        Weight { weight: rounded(sum, WEIGHT_BITS), square: rounded(squares, SQUARE_BITS) }
    })
}

/// Table of weights, in the memory of the code that counts.
#[derive(FromZeros)]
#[repr(C)]
pub struct Weights {
    /// Weight and square, by class.
    classes: [[SharedCounter; 2]; CLASSES],
}

impl Weights {
    /// Writes the weights of a table of `2^slots_log2` slots.
    pub(crate) fn write(&self, slots_log2: u8) {
        for ([weight, square], class) in self.classes.iter().zip(weights(slots_log2)) {
            weight.store(class.weight as i32);
            square.store(class.square as i32);
        }
    }

    /// Returns the weight of a request that is followed by `insertions` others in its table, and
    /// whether the weight should be larger.
    #[inline(always)]
    pub(crate) fn of(&self, insertions: u32, slots_log2: u8) -> (Weight, bool) {
        let class = insertions >> (u32::from(slots_log2) - CLASS_BITS);
        let last = const { CLASSES as u32 - 1 };
        let (class, is_beyond) = if class > last { (last, true) } else { (class, false) };
        #[allow(clippy::indexing_slicing, reason = "masked to the array's length")]
        let [weight, square] = &self.classes[class as usize & (CLASSES - 1)];
        (Weight { weight: weight.load() as u32, square: square.load() as u32 }, is_beyond)
    }
}
