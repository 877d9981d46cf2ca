//! Known answers and algebraic laws of the flow hashes.

use crate::common::slow_crc;
use flowgauge_core::hash::{Crc32, POLYNOMIAL, crc32};
use flowgauge_core::{HashIdentity, HashMode, Tabulation};
use proptest::prelude::*;

#[test]
fn crc32_known_answers() {
    assert_eq!(crc32(b"123456789"), 0x76dc_f3a1);
    assert_eq!(crc32(&[10, 0, 0, 1]), 0xa757_b578);
}

#[test]
fn tabulation_of_a_seed_never_changes() {
    let tables = Tabulation::from_seed(1);
    let [t0, _, _, t3] = tables.tables();
    assert_eq!((t0[0], t0[1], t3[255]), (0x910a_2dec, 0xbeeb_8da1, 0x9d61_a03a));
    assert_eq!(tables.hash(0xa757_b578), 0x35bf_412a);
}

#[test]
fn tabulation_combines_bytes_from_the_most_significant() {
    let mut words = [[0; 256]; 4];
    for (table, byte) in [0x12, 0x34, 0x56, 0x78].into_iter().enumerate() {
        words[table][byte] = 1 << table;
    }
    assert_eq!(Tabulation::from_words(words, *Tabulation::ZERO.rows()).hash(0x1234_5678), 15);
}

#[test]
fn crc32_sketches_share_an_identity_whatever_the_seed() {
    let of_seeds = |mode| [1, 2].map(|seed| HashIdentity::new(mode, seed));
    let [linear, tabulated] = [HashMode::Crc32, HashMode::Tabulated].map(of_seeds);
    assert_eq!(linear[0], linear[1]);
    assert_ne!(tabulated[0], tabulated[1]);
}

#[test]
fn crc32_of_addresses_is_a_bijection() {
    let origin = crc32(&[10, 0, 0, 0]);
    // The function is affine, and so one-to-one exactly if its linear part is: the images of the 32
    // single bits must be independent.
    let mut basis: Vec<u32> =
        (0..32).map(|bit| crc32(&(0x0a00_0000_u32 ^ (1 << bit)).to_be_bytes()) ^ origin).collect();
    let mut rank = 0;
    for bit in (0..32).rev() {
        if let Some(pivot) = (rank..32).find(|&row| basis[row] >> bit & 1 == 1) {
            basis.swap(rank, pivot);
            let pivot = basis[rank];
            for row in (0..32).filter(|&row| row != rank) {
                if basis[row] >> bit & 1 == 1 {
                    basis[row] ^= pivot;
                }
            }
            rank += 1;
        }
    }
    assert_eq!(rank, 32);
}

proptest! {
    #[test]
    fn crc32_agrees_with_its_definition(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(crc32(&bytes), slow_crc(POLYNOMIAL, &bytes));
    }

    #[test]
    fn crc32_of_words_is_that_of_their_bytes(words: [[u8; 4]; 12], bytes in 0_usize..=48) {
        prop_assert_eq!(Crc32::new().of_words(&words, bytes), crc32(&words.as_flattened()[..bytes]));
    }

    #[test]
    fn crc32_of_a_number_is_that_of_its_bytes_in_network_order(number: u32) {
        prop_assert_eq!(Crc32::of_number(number), crc32(&number.to_be_bytes()));
    }

    #[test]
    fn crc32_is_affine(a: [u8; 13], b: [u8; 13]) {
        let both: Vec<u8> = a.iter().zip(&b).map(|(x, y)| x ^ y).collect();
        prop_assert_eq!(crc32(&both), crc32(&a) ^ crc32(&b) ^ crc32(&[0; 13]));
    }

    #[test]
    fn tabulation_is_not_linear_but_splits_by_byte(seed: u64, value: u32) {
        let tables = Tabulation::from_seed(seed);
        let bytes = [24, 16, 8, 0].map(|shift| tables.hash(value & (0xff << shift)));
        let folded = bytes.iter().fold(0, |all, part| all ^ part);
        // Each single-byte hash includes three entries of zero bytes; four of them include every
        // such entry three times.
        prop_assert_eq!(tables.hash(value), folded ^ tables.hash(0) ^ tables.hash(0) ^ tables.hash(0));
    }
}
