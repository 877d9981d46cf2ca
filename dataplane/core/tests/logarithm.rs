//! P4Log and P4Exp compared with floating point, and with a literal version of the paper's
//! algorithms.

use flowgauge_core::logarithm::{
    Logarithm, LogarithmEntry, MAX_BITS, MAX_DIGITS, PER_PACKET, PER_WINDOW, Power,
};
use proptest::prelude::*;

const AMPLIFICATION: f64 = 1024.0;

/// Returns the relative error of P4Log in percent.
fn log_error(logarithm: &Logarithm, x: u64) -> f64 {
    let exact = (x as f64).log2();
    (f64::from(logarithm.log2(x)) / AMPLIFICATION - exact).abs() / exact * 100.0
}

/// Returns the relative error of P4Exp in percent.
fn power_error(power: &Power, x: u64, d: u64) -> f64 {
    let exact = (x as f64).powf(d as f64);
    (power.of(x, d) as f64 - exact).abs() / exact * 100.0
}

/// Returns random numbers of 64 bits, by a method that the crate does not use.
fn random() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0x2545_f491_4f6c_dd1d_u64), |&x| {
        let x = x ^ (x << 13);
        let x = x ^ (x >> 7);
        Some(x ^ (x << 17))
    })
    .skip(1)
}

/// Algorithm 1 line by line, with the branches of figure 1 (those of the text are reversed).
fn algorithm_1(x: u64, bits: u32, digits: u32) -> u32 {
    let mut w = x | x >> 1;
    for i in 1..6 {
        w |= w >> (1 << i);
    }
    let n = w.count_ones() - 1;
    let mut below = 0;
    for j in 1..=bits {
        // Padded with zeros where the number has no more bits.
        let one = j <= n && x >= x ^ (x >> j);
        below = below << 1 | u32::from(one);
    }
    let unit = 10_f64.powi(digits as i32);
    let decimal = ((1.0 + f64::from(below) / f64::from(1_u32 << bits)).log2() * unit).round();
    (n << 10) + (decimal as u32 * 1024) / unit as u32
}

#[test]
fn the_worst_number_of_16_bits_is_67() {
    let errors = (2..=65_535).map(|x| (log_error(&PER_PACKET, x), x));
    let (error, x) = errors.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    assert_eq!(x, 67);
    assert!((error - 1.089).abs() <= 0.0005, "{error:.4} %");
}

#[test]
fn random_numbers_have_the_known_error() {
    let numbers = 1_000_000;
    let error =
        random().take(numbers).map(|x| log_error(&PER_PACKET, x)).sum::<f64>() / numbers as f64;
    assert!((error - 0.051).abs() <= 0.0005, "{error:.5} %");
}

/// The paper gives 0.322, 0.585 and 0.807 for the quarters with 3 digits. The authors' program has
/// the logarithms themselves, rounded to 1/1024.
#[test]
fn constants_are_cut_and_those_of_the_authors_are_rounded() {
    let logarithm = Logarithm::new(2, 3);
    let ours = [5, 6, 7].map(|x| logarithm.log2(x) - (2 << 10));
    let rounded = [1.25_f64, 1.5, 1.75].map(|x| (x.log2() * AMPLIFICATION).round() as u32);
    assert_eq!((ours, rounded), ([329, 599, 826], [330, 599, 827]));
}

#[test]
fn the_constant_is_the_first_term() {
    // 2^0.5 is 1 + 1/2 - 1/8 + 1/16 - ….
    for (terms, known) in [(2, 1024 + 512), (3, 1024 + 512 - 128)] {
        assert_eq!(Power::new(PER_WINDOW.clone(), terms).of_2(512), known, "{terms} terms");
    }
}

/// Largest error of the powers of figure 6a: 2.53 % with 5 terms, 0.88 % with 6, 1.62 % with 7.
#[test]
fn powers_have_the_known_errors_by_terms() {
    let largest = |terms| {
        let power = Power::new(PER_WINDOW.clone(), terms);
        [(3, 39), (5, 26), (7, 22), (9, 19), (11, 17)]
            .map(|(x, d)| power_error(&power, x, d))
            .into_iter()
            .fold(0.0, f64::max)
    };
    for (terms, known) in [(2, 4.851), (3, 4.193), (4, 1.684), (5, 2.530), (6, 0.882), (7, 1.624)] {
        let error = largest(terms);
        assert!((error - known).abs() <= 0.001, "{terms} terms: {error:.4} %, known {known}");
    }
}

#[test]
fn terms_after_the_seventh_add_nothing() {
    let seven = Power::new(PER_WINDOW.clone(), 7);
    for terms in [8, 9, 10, 21, u32::MAX] {
        let more = Power::new(PER_WINDOW.clone(), terms);
        assert!((0..1 << 11).all(|y| more.of_2(y) == seven.of_2(y)), "{terms} terms");
    }
    let six = Power::new(PER_WINDOW.clone(), 6);
    assert!((0..1024).any(|y| six.of_2(y) != Power::new(PER_WINDOW.clone(), 5).of_2(y)));
}

#[test]
fn powers_of_two_are_exact_and_large_ones_saturate() {
    let power = Power::new(PER_WINDOW.clone(), 7);
    for whole in 0..96_u32 {
        assert_eq!(power.of_2(u64::from(whole) << 10), 1024 << whole);
    }
    for d in 0..96 {
        assert_eq!(power.of(2, d), 1 << d, "2^{d}");
    }
    assert_eq!(power.of_2(u64::MAX), u128::MAX);
    assert_eq!(power.of(u64::MAX, 1 << 20), u128::MAX);
    assert_eq!((power.of(1, 1000), power.of(0, 1000), power.of(7, 0)), (1, 1, 1));
}

#[test]
fn logarithms_to_other_bases() {
    let e = std::f64::consts::E;
    for (base, x) in [(10.0, 1_000_000), (e, 123_456), (4.0, 65_535), (1.5, 99_u64)] {
        let of_2 = (base.log(2.0).recip() * AMPLIFICATION).round() as u32;
        let (ours, exact) = (PER_WINDOW.log(x, of_2) as f64 / AMPLIFICATION, (x as f64).log(base));
        assert!((ours - exact).abs() <= 0.005 * exact, "log_{base} {x}: {ours}, {exact}");
    }
}

#[test]
fn nothing_and_one_have_no_logarithm_to_speak_of() {
    for bits in 0..=MAX_BITS {
        let logarithm = Logarithm::new(bits, 3);
        assert_eq!([0, 1, 2, 1 << 63].map(|x| logarithm.log2(x)), [0, 0, 1024, 63 << 10]);
    }
    assert_eq!(Logarithm::new(99, 99), Logarithm::new(MAX_BITS, MAX_DIGITS));
}

#[test]
fn tables_are_disjoint_complete_and_give_the_logarithm() {
    for bits in 0..=MAX_BITS {
        let logarithm = Logarithm::new(bits, 3);
        let mut next = 2_u64;
        for LogarithmEntry { value, prefix_length, log2 } in logarithm.table() {
            assert_eq!(u64::from(value), next, "entries follow one another, {bits} bits");
            let length = 1_u64 << (32 - prefix_length);
            assert_eq!(next % length, 0, "a prefix of {prefix_length} bits");
            next += length;
            // Every number of the short entries; of the long ones the ends and regular steps
            // between.
            let step = (length / 256).max(1) as usize;
            let numbers = (u64::from(value)..next).step_by(step).chain([next - 1]);
            for x in numbers {
                assert_eq!(logarithm.log2(x), log2, "{x} with {bits} bits");
            }
        }
        assert_eq!(next, 1 << 31, "{bits} bits");
    }
    assert_eq!(PER_PACKET.table().count(), 446);
}

proptest! {
    #[test]
    fn the_logarithm_is_algorithm_1(shift in 0..64_u32, x: u64, bits in 0..=MAX_BITS, digits in 0..=MAX_DIGITS) {
        let x = (x >> shift).max(1);
        prop_assert_eq!(Logarithm::new(bits, digits).log2(x), algorithm_1(x, bits, digits), "{}", x);
    }

    #[test]
    fn the_logarithm_never_falls(shift in 0..64_u32, x: u64, y: u64, bits in 0..=MAX_BITS) {
        let (low, high) = ((x >> shift).min(y >> shift), (x >> shift).max(y >> shift));
        let logarithm = Logarithm::new(bits, 3);
        prop_assert!(logarithm.log2(low) <= logarithm.log2(high));
    }

    /// A series of seven terms, each truncated, is within 1 % of the power between two integers.
    #[test]
    fn powers_of_two_are_near(y in 0..96_u64 << 10) {
        let power = Power::new(PER_WINDOW.clone(), 7).of_2(y) as f64 / AMPLIFICATION;
        let exact = (y as f64 / AMPLIFICATION).exp2();
        prop_assert!((power - exact).abs() <= 0.01 * exact, "2^{}: {power}, {exact}", y as f64 / AMPLIFICATION);
    }
}
