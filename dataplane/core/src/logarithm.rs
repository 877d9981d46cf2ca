//! Integer logarithms and powers: P4Log and P4Exp (P4Entropy paper, section III).
//!
//! Fractions are stored as integers times 2^10 ("amplified").

use crate::bits::ilog2;

/// Binary logarithm of the amplification factor.
pub const AMPLIFICATION_BITS: u32 = 10;

/// Maximum number of bits below the leading one that a logarithm uses.
pub const MAX_BITS: u32 = 8;

/// Maximum number of decimal digits of constants.
pub const MAX_DIGITS: u32 = 5;

/// Logarithm for every packet (paper, table II): 4 bits, 3 digits. The maximum error is 1.1 % of
/// the logarithm, at 67; the mean over 64-bit numbers is 0.05 %.
pub static PER_PACKET: Logarithm = Logarithm::new(PER_PACKET_BITS, 3);

/// Logarithm for once a window, where cost does not matter: 7 bits, 3 digits.
pub static PER_WINDOW: Logarithm = Logarithm::new(7, 3);

/// Sums of [`PER_PACKET`], for packets counted many at once.
pub static SUMS_PER_PACKET: Sums = Sums::new();

/// P4Log: `log2(x)` from the position of the leading one and a constant for the bits below it
/// (paper, algorithm 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logarithm {
    bits: u32,
    constants: [u32; 1 << MAX_BITS],
}

impl Logarithm {
    /// Creates a logarithm that uses `bits` bits below the leading one, at most [`MAX_BITS`], with
    /// constants rounded to `digits` decimal digits, at most [`MAX_DIGITS`] (Nbits and Ndigits in
    /// the paper).
    #[must_use]
    #[allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "nearly always evaluated at compile time; indices and products are bounded by MAX_BITS and MAX_DIGITS"
    )]
    pub const fn new(bits: u32, digits: u32) -> Self {
        let bits = if bits > MAX_BITS { MAX_BITS } else { bits };
        let digits = if digits > MAX_DIGITS { MAX_DIGITS } else { digits };
        let unit = 10_u64.pow(digits);
        let mut constants = [0; 1 << MAX_BITS];
        let mut index = 0;
        while index < 1 << bits {
            let fraction = log2_of_fraction(index as u64, bits);
            // Cut to 1/1024: quarters are 329, 599, 826. The authors' program has 330, 599, 827.
            let decimal = ((fraction as u128 * unit as u128 + (1 << (FRACTION_BITS - 1)))
                >> FRACTION_BITS) as u64;
            constants[index] = ((decimal << AMPLIFICATION_BITS) / unit) as u32;
            index += 1;
        }
        Logarithm { bits, constants }
    }

    /// Returns `log2(x)`, amplified; 0 for 0.
    #[inline(always)]
    #[must_use]
    pub fn log2(&self, x: u64) -> u32 {
        let Some(leading) = x.checked_ilog2() else { return 0 };
        // With the leading one shifted out, the bits below it are the highest; missing bits are
        // zeros.
        let below = (x << ((63_u32 - leading) & 63)) << 1;
        let index = if self.bits == 0 { 0 } else { below >> ((64_u32 - self.bits) & 63) };
        let fraction = self.constants.get(index as usize).copied().unwrap_or(0);
        (leading << AMPLIFICATION_BITS) + fraction
    }

    /// Returns `log_d(x)`, amplified, given `log_d(2)`, amplified (paper, algorithm 1, line 10).
    #[must_use]
    pub fn log(&self, x: u64, log_of_2: u32) -> u64 {
        (u64::from(self.log2(x)) * u64::from(log_of_2)) >> AMPLIFICATION_BITS
    }

    /// Returns the logarithm of 32-bit numbers as a longest-prefix-match table, for switches, which
    /// can neither shift by a variable nor find a leading one: disjoint entries for 2 to 2^31 - 1.
    /// Larger numbers are negative in a Count Sketch.
    pub fn table(&self) -> impl Iterator<Item = LogarithmEntry> + '_ {
        (1..31_u32).flat_map(move |leading| {
            let looked_at = self.bits.min(leading);
            let prefix_length = 32_u32 - leading + looked_at;
            (0..1_u32 << looked_at).map(move |below| {
                let value = (1_u32 << leading) | (below << ((leading - looked_at) & 31));
                LogarithmEntry { value, prefix_length, log2: self.log2(u64::from(value)) }
            })
        })
    }
}

const PER_PACKET_BITS: u32 = 4;
const SUBINTERVALS: usize = 1 << PER_PACKET_BITS;

/// Returns the logarithm of a packet's count by [`PER_PACKET`].
#[inline(always)]
pub(crate) fn of_packet(count: u32) -> u32 {
    // The same in 32 bits and without a branch, so that vectors compute it.
    let leading = ilog2(count);
    let below = (count << (u32::BITS - 1 - leading)) << 1;
    #[allow(clippy::indexing_slicing, reason = "a number of four bits")]
    let fraction = PER_PACKET.constants[(below >> (u32::BITS - PER_PACKET_BITS)) as usize];
    (leading << AMPLIFICATION_BITS) + fraction
}

/// Prefix sums of [`PER_PACKET`]'s logarithms, each exactly the sum of its terms: between two
/// powers of two there are 16 intervals of equal logarithms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Sums over the numbers up to the index.
    small: [u64; SUBINTERVALS],
    /// Sums over the numbers below 2 to the power of the index.
    below: [u64; 32],
    /// Sums of the constants before the index.
    constants: [u32; SUBINTERVALS],
}

impl Sums {
    #[allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "evaluated at compile time"
    )]
    const fn new() -> Self {
        let logarithm = Logarithm::new(PER_PACKET_BITS, 3);
        let (mut small, mut below, mut constants) = ([0; SUBINTERVALS], [0; 32], [0; SUBINTERVALS]);
        let mut index = 1;
        while index < SUBINTERVALS {
            constants[index] = constants[index - 1] + logarithm.constants[index - 1];
            let leading = index.ilog2();
            // Below the leading one there are fewer bits than the logarithm uses.
            let fraction =
                logarithm.constants[(index << (PER_PACKET_BITS - leading)) & (SUBINTERVALS - 1)];
            small[index] = small[index - 1] + ((leading << AMPLIFICATION_BITS) + fraction) as u64;
            index += 1;
        }
        let of_all = constants[SUBINTERVALS - 1] + logarithm.constants[SUBINTERVALS - 1];
        let mut leading = 0;
        while leading < 32 {
            below[leading] = if leading as u32 <= PER_PACKET_BITS {
                small[(1 << leading) - 1]
            } else {
                let before = leading - 1;
                let whole = (before as u64) << AMPLIFICATION_BITS << before;
                below[before] + whole + ((of_all as u64) << (before as u32 - PER_PACKET_BITS))
            };
            leading += 1;
        }
        Sums { small, below, constants }
    }

    /// Returns `log2(1) + … + log2(x)`, amplified.
    #[inline(always)]
    #[must_use]
    pub fn up_to(&self, x: u32) -> u64 {
        let leading = x.checked_ilog2().unwrap_or(0);
        let Some(width) = leading.checked_sub(PER_PACKET_BITS) else {
            return self.small.get(x as usize).copied().unwrap_or(0);
        };
        let width = width & 31;
        // Three parts for the numbers from the power of two on: whole part of all, constants of
        // whole intervals, constants of the interval of x.
        let numbers = u64::from(x - (1_u32 << leading)) + 1;
        let stretch = (x >> width) as usize & (SUBINTERVALS - 1);
        let within = u64::from(x & ((1_u32 << width) - 1)) + 1;
        let [below, before, constant] = [
            self.below.get(leading as usize & 31).copied().unwrap_or(0),
            self.constants.get(stretch).copied().map_or(0, u64::from),
            PER_PACKET.constants.get(stretch).copied().map_or(0, u64::from),
        ];
        let whole = u64::from(leading << AMPLIFICATION_BITS) * numbers;
        below + whole + (before << width) + (constant * within)
    }
}

/// Entry of the table: 32-bit numbers that start with the upper `prefix_length` bits of `value`
/// have this logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogarithmEntry {
    /// Smallest number of the entry.
    pub value: u32,
    /// Length of the prefix in bits.
    pub prefix_length: u32,
    /// Binary logarithm, amplified.
    pub log2: u32,
}

/// P4Exp: powers of 2 and of any base from P4Log and a binomial series (paper, algorithm 2).
///
/// A power `x^d` multiplies the error of the logarithm by `d`. The constants of [`Logarithm`], cut
/// to 1/1024, add up to `d / 1024` to the exponent's error: 1.8 % of the power for d = 26. With the
/// decimal digits themselves as constants the powers of the paper's figures are within 1 %.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Power {
    logarithm: Logarithm,
    terms: u32,
}

impl Power {
    /// Creates a power from `terms` terms of the series (Nterms in the paper), at least 2: the
    /// constant one counts, as in algorithm 2, whose lines 5 to 7 have three. From the eighth on
    /// terms add nothing, since 1024 / 7! is less than one.
    #[must_use]
    pub const fn new(logarithm: Logarithm, terms: u32) -> Self {
        Power { logarithm, terms }
    }

    /// Returns `2^y`, amplified, for an amplified `y`; saturates.
    #[must_use]
    pub fn of_2(&self, y: u64) -> u128 {
        let (whole, factor) = self.split(y);
        u128::from(factor).checked_shl(whole).filter(|_| whole < 96).unwrap_or(u128::MAX)
    }

    /// Returns `x^d` (paper, algorithm 2), truncated to an integer; saturates.
    #[must_use]
    pub fn of(&self, x: u64, d: u64) -> u128 {
        let (whole, factor) = self.split(d.saturating_mul(self.logarithm.log2(x).into()));
        let factor = u128::from(factor);
        match whole.checked_sub(AMPLIFICATION_BITS) {
            None => (factor << whole) >> AMPLIFICATION_BITS,
            Some(rest) => factor.checked_shl(rest).filter(|_| rest < 96).unwrap_or(u128::MAX),
        }
    }

    /// Returns the whole part of an amplified exponent, and 2 to the power of its fraction,
    /// amplified.
    fn split(&self, exponent: u64) -> (u32, u64) {
        let whole = u32::try_from(exponent >> AMPLIFICATION_BITS).unwrap_or(u32::MAX);
        let fraction = (exponent & ((1 << AMPLIFICATION_BITS) - 1)) as i64;
        let one = 1_i64 << AMPLIFICATION_BITS;
        // (1 + 1)^e = 1 + e + e(e - 1)/2! + …; every product is scaled back to the amplification of
        // its factors.
        // `order` is the number of factors in a term; the first term, the constant, has none.
        let (mut sum, mut product, mut factorial, mut order) =
            (one + fraction, fraction, 1_i64, 2_u32);
        // Terms from the eighth on add nothing: 7! exceeds the amplification.
        while order < self.terms.min(7) {
            let factor = fraction - (i64::from(order - 1) * one);
            product = (product * factor) >> AMPLIFICATION_BITS;
            factorial *= i64::from(order);
            sum += (product * one.checked_div(factorial).unwrap_or(0)) >> AMPLIFICATION_BITS;
            order += 1;
        }
        (whole, sum.unsigned_abs())
    }
}

/// Fractional bits in the computation of constants.
const FRACTION_BITS: u32 = 40;

/// Returns `log2(1 + k / 2^bits)` with [`FRACTION_BITS`] bits, by squaring: a square of at least
/// two yields a one bit.
#[allow(
    clippy::arithmetic_side_effects,
    reason = "a number from one to two, times 2^62, and its square fit"
)]
const fn log2_of_fraction(k: u64, bits: u32) -> u64 {
    let mut x = (1_u128 << 62) + ((k as u128) << (62 - bits));
    let mut fraction = 0;
    let mut bit = 0;
    while bit < FRACTION_BITS {
        x = (x * x) >> 62;
        fraction <<= 1;
        if x >> 63 != 0 {
            fraction |= 1;
            x >>= 1;
        }
        bit += 1;
    }
    fraction
}
