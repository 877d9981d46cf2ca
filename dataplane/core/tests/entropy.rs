//! Sums of entropies, and the entropies computed from them in integers.

use crate::common::tabulation;
use flowgauge_core::entropy::{DERIVATIVE_OF_LOG, POWER, in_integers, in_integers_with};
use flowgauge_core::logarithm::{Logarithm, PER_PACKET, PER_WINDOW};
use flowgauge_core::{Entropy, Grid, SharedSketch, Sharing, SketchKind};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A shape so wide that each of about twenty keys is alone in most rows.
fn wide() -> Grid {
    Grid::of_counters(12, 1024).unwrap()
}

/// Returns the sum for the packets of these flows, each counted exactly.
fn sum(keys: &[u8]) -> u64 {
    let mut counts: BTreeMap<u8, u64> = BTreeMap::new();
    let term = |key: &u8| {
        let count = counts.entry(*key).or_default();
        *count += 1;
        if *count > 1 {
            u64::from(PER_PACKET.log2(*count)) + u64::from(DERIVATIVE_OF_LOG)
        } else {
            0
        }
    };
    keys.iter().map(term).sum()
}

/// Returns `log2 S - sum / S`, not amplified.
fn in_floats(packets: u64, sum: u64) -> f64 {
    (packets as f64).log2() - sum as f64 / 1024.0 / packets as f64
}

/// Algorithm 3 taken literally: the exponent, which is already amplified, is treated as plain. A
/// value that exceeds 128 bits is zero in P4 (paper, section III-B).
fn literally(packets: u64, sum: u64) -> f64 {
    let difference = u64::from(PER_WINDOW.log2(sum >> 10) - PER_WINDOW.log2(packets));
    let power = if difference < 128 { POWER.of(2, difference) } else { 0 };
    (f64::from(PER_WINDOW.log2(packets)) - power as f64) / 1024.0
}

#[test]
fn the_constant_is_that_of_the_paper() {
    assert_eq!(DERIVATIVE_OF_LOG, (1.44 * 1024.0) as u32);
}

#[test]
fn known_windows() {
    // One flow of 4: log2 of 2, 3 and 4 with constants of three digits, and three times the
    // derivative.
    assert_eq!(sum(&[7; 4]), (1024 + 1474) + (1024 + 599 + 1474) + (2048 + 1474));
    // As many flows as packets: the sum is zero, and the entropy is the logarithm of the packets.
    for (sum, known, why) in [
        (0, 20 << 10, "as many flows as packets"),
        ((1 << 30) - 1, 20 << 10, "less than one bit a packet is neglected (paper, equation 2)"),
        (1 << 30, 19 << 10, "one bit a packet"),
        (10 << 30, (20 << 10) - 10_176, "P4Log of 10 is 3.32 and P4Exp of that 9.94"),
    ] {
        assert_eq!(in_integers(1 << 20, sum), known, "{why}");
    }
    assert_eq!((in_integers(0, 0), in_integers(1, 0)), (0, 0));
    assert_eq!(in_integers(1, u64::MAX), 0, "never below zero");
}

/// Returns the allowed difference between the entropy in integers and in floating point. A
/// logarithm of seven bits is too small by up to that of 1 + 1/128, and by the rounding of its
/// constants to three digits and to 1024ths. This error occurs once in the difference and once in
/// the exponent of the quotient. The quotient is a power within 1 %, of a sum truncated to whole
/// bits.
fn allowed(packets: u64, quotient: f64) -> f64 {
    let logarithm = (1.0 + 1.0_f64 / 128.0).log2() + 0.0005 + 1.0 / 1024.0;
    logarithm + quotient * (1.01 * logarithm.exp2() * (1.0 + 1.0 / packets as f64) - 1.0)
}

/// Compares floating point with integers: the former is exact except for the sum.
#[test]
fn integers_with_seven_bits_are_near_the_floats() {
    let mut worst: f64 = 0.0;
    for packets in (130..400).map(|step| 1.05_f64.powi(step) as u64) {
        for hundredths in (100..((packets as f64).log2() * 100.0) as u64).step_by(7) {
            let sum = packets * 1024 * hundredths / 100;
            let quotient = sum as f64 / 1024.0 / packets as f64;
            let error = in_integers(packets, sum) as f64 / 1024.0 - in_floats(packets, sum);
            let what = format!("{packets} packets, {quotient} a packet");
            let allowed = allowed(packets, quotient);
            assert!(error.abs() <= allowed, "{what}: {error:+.4} bits");
            worst = worst.max(error.abs() / allowed);
        }
    }
    assert!(worst > 0.5, "the bound above is no better than another: {worst}");
}

#[test]
fn seven_bits_are_better_than_four_and_the_literal_algorithm_is_no_use() {
    let (mut four, mut seven) = (0.0, 0.0);
    let cases =
        || (1..100_u64).flat_map(|step| (8..60_u64).map(move |tenths| (20_011 * step, tenths)));
    for (packets, tenths) in cases() {
        let sum = packets * 1024 * tenths / 10;
        let exact = in_floats(packets, sum);
        let by_four = in_integers_with(packets, sum, &Logarithm::new(4, 3), &POWER);
        four += (by_four as f64 / 1024.0 - exact).abs();
        seven += (in_integers(packets, sum) as f64 / 1024.0 - exact).abs();
    }
    assert!(seven < four, "4 bits {four}, 7 bits {seven}");
    // The power is dropped, and the result is the logarithm of the packets.
    for (tenths, wrong) in [(58, "38.2"), (128, "156.1")] {
        let (packets, sum) = (1 << 21, (1_u64 << 21) * 1024 * tenths / 10);
        let exact = in_floats(packets, sum);
        let error = (literally(packets, sum) - exact).abs() / exact * 100.0;
        assert_eq!(format!("{error:.1}"), wrong, "{tenths}");
        let error = (in_integers(packets, sum) as f64 / 1024.0 - exact).abs();
        assert!(error <= allowed(packets, tenths as f64 / 10.0), "{tenths}: {error}");
    }
}

proptest! {
    #[test]
    fn sums_are_those_of_exact_counts(keys in prop::collection::vec(0..20_u8, 0..400), shared: bool) {
        let sharing = if shared { Sharing::Shared } else { Sharing::Alone };
        for kind in SketchKind::ALL {
            let (sketch, mut entropy) = (Box::new(SharedSketch::new()), Entropy::default());
            for key in &keys {
                entropy.update(&sketch, sharing, kind, wide(), u32::from(*key) * 0x0123_4567, tabulation());
            }
            prop_assert_eq!(entropy.sum, sum(&keys));
        }
    }

    /// Packets of one flow on several cores: there is one sketch, and the sums add up to that of
    /// one core.
    #[test]
    fn cores_add_up(packets in prop::collection::vec((0..20_u8, 0..4_usize), 0..400)) {
        let (sketch, mut cores) = (Box::new(SharedSketch::new()), [Entropy::default(); 4]);
        for (key, core) in &packets {
            let crc = u32::from(*key) * 0x0123_4567;
            cores[*core].update(&sketch, Sharing::Shared, SketchKind::CountSketch, wide(), crc, tabulation());
        }
        let mut all = Entropy::default();
        cores.iter().for_each(|core| all.merge(core));
        let keys: Vec<u8> = packets.iter().map(|(key, _)| *key).collect();
        prop_assert_eq!(all.sum, sum(&keys));
    }

    #[test]
    fn entropies_stay_between_nothing_and_the_logarithm_of_the_packets(packets: u64, sum: u64) {
        prop_assert!(in_integers(packets, sum) <= u64::from(PER_WINDOW.log2(packets)));
    }
}
