//! P4Exp in real numbers, with the decimal digits of the paper's constants.

/// Power from a logarithm whose constants are decimal numbers, and a binomial series without
/// rounding.
///
/// The paper evaluates P4Exp in Python (section V) and does not say in which numbers. This is the
/// reading by which its statements hold, and by which errors change with every term, as its text
/// on figure 6 describes. In integers no term after the seventh adds anything.
pub(super) struct Decimal {
    bits: u32,
    constants: Vec<f64>,
    terms: u32,
}

impl Decimal {
    /// Creates a power from `bits` bits below the leading one, at least 1, constants of `digits`
    /// decimal digits, and `terms` terms of the series, the constant one counted.
    pub(super) fn new(bits: u32, digits: u32, terms: u32) -> Self {
        let unit = f64::from(10_u32.pow(digits));
        let intervals = 1_u32 << bits;
        let constant = |interval: u32| {
            let logarithm = (1.0 + f64::from(interval) / f64::from(intervals)).log2();
            (logarithm * unit).round() / unit
        };
        Decimal { bits, constants: (0..intervals).map(constant).collect(), terms }
    }

    /// Returns `x^d`.
    pub(super) fn of(&self, x: u64, d: u64) -> f64 {
        let leading = x.checked_ilog2().unwrap_or(0);
        let below = (x << (63 - leading)) << 1;
        let interval = (below >> (64 - self.bits)) as usize;
        let constant = self.constants.get(interval).copied().unwrap_or(0.0);
        let exponent = d as f64 * (f64::from(leading) + constant);
        let fraction = exponent.fract();
        let (mut sum, mut term) = (0.0, 1.0);
        for order in 0..self.terms {
            sum += term;
            term *= (fraction - f64::from(order)) / f64::from(order + 1);
        }
        sum * exponent.trunc().exp2()
    }
}
