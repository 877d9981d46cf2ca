//! What a delay counts for: the reciprocal of the probability that its request was still there
//! (dissertation, §2.2).
//!
//! Each request that is put in the table is put in one of `M` slots. One that was put there `x`
//! requests ago is still there with a probability of `(1 - 1/M)^x`. So its delay stands for
//! `(1 - 1/M)^-x` delays, most of whose requests were overwritten. The stamp counts requests that
//! were admitted; the dissertation's `(1 - p/M)^-x` belongs to one that counts all.
//!
//! A device looks weights up. A class is a range of `x` of a 64th of `M`, and its weight the mean
//! of those in it, to 12 binary places; that of the squares has 8. Classes end at `8 M`, which one
//! request in 3,000 survives: what is beyond weighs as much as the last class, and is counted
//! apart.

use crate::counter::SharedCounter;
use zerocopy::FromZeros;

/// Classes of survival.
pub const CLASSES: usize = 512;

/// Classes that `M` requests make, as a power of two: the fewest slots that a table can have.
pub const CLASS_BITS: u32 = 6;

/// Binary places of weights.
pub const WEIGHT_BITS: u32 = 12;

/// Binary places of squares of weights.
pub const SQUARE_BITS: u32 = 8;

/// What a delay counts for, and its square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// With [`WEIGHT_BITS`] binary places.
    pub weight: u32,
    /// With [`SQUARE_BITS`] binary places.
    pub square: u32,
}

impl Weight {
    /// That of a request that cannot have been overwritten.
    pub const ONE: Weight = Weight { weight: 1 << WEIGHT_BITS, square: 1 << SQUARE_BITS };
}

/// The weights of a table of `2^slots_log2` slots, class by class, in integers, so that they are
/// the same everywhere.
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

/// The weights, where whoever counts finds them.
#[derive(FromZeros)]
#[repr(C)]
pub struct Weights {
    /// Weight and square, class by class.
    classes: [[SharedCounter; 2]; CLASSES],
}

impl Weights {
    /// Writes those of a table of so many slots.
    pub(crate) fn write(&self, slots_log2: u8) {
        for ([weight, square], class) in self.classes.iter().zip(weights(slots_log2)) {
            weight.store(class.weight as i32);
            square.store(class.square as i32);
        }
    }

    /// The weight of a request since which so many others were put in the table, and whether it
    /// should be more.
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
