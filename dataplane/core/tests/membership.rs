//! The Bloom filter compared with a set, and with its theory.

use crate::common::{tabulation, words};
use flowgauge_core::Grid;
use flowgauge_core::hash::{MAX_ROWS, crc32};
use flowgauge_core::membership::{MAX_FILTER_BITS, Membership};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn shapes() -> impl Iterator<Item = Grid> {
    (1..=MAX_ROWS).flat_map(|rows| (6..=16).filter_map(move |bits| Grid::of_bits(rows, 1 << bits)))
}

fn shape() -> impl Strategy<Value = Grid> {
    prop::sample::select(shapes().collect::<Vec<_>>())
}

/// Returns the bits of a key, numbered through all rows, from the words of the tables.
fn bits(crc: u32, shape: Grid) -> impl Iterator<Item = u64> {
    (0..shape.rows()).map(move |row| {
        let hash = words(tabulation(), row / 4, crc) >> (16 * (row % 4)) & 0xffff;
        ((row as u64) << shape.column_bits()) + (hash >> (16 - shape.column_bits()))
    })
}

fn filled(shape: Grid, keys: &[u32]) -> Box<Membership> {
    let mut filter = Box::new(Membership::new());
    keys.iter().for_each(|&crc| filter.update(shape, crc, tabulation()));
    filter
}

#[test]
fn shapes_have_their_limits() {
    assert!(shapes().all(|shape| shape.cells() <= MAX_FILTER_BITS));
    assert_eq!(shapes().filter(|shape| shape.cells() == MAX_FILTER_BITS).count(), 1);
    for (rows, bits) in
        [(0, 64), (13, 64), (1, 32), (1, 100), (1, 1 << 17), (9, 1 << 16), (usize::MAX, 64)]
    {
        assert_eq!(Grid::of_bits(rows, bits), None, "{rows} x {bits}");
    }
    assert_eq!(Grid::of_bits(4, 1 << 16), Some(Grid::BITS));
}

/// The false-positive rate matches the theory: (1 - e^(-n/bits))^rows.
#[test]
fn false_positives_are_as_predicted() {
    const ASKED: u32 = 200_000;
    let wide = [(4, 16, 40_000), (4, 16, 10_000)];
    let narrow = [(1, 12, 3_000), (3, 10, 1_000), (8, 12, 3_000), (12, 10, 700)];
    for (rows, row_bits, keys) in wide.into_iter().chain(narrow) {
        let shape = Grid::of_bits(rows, 1 << row_bits).unwrap();
        let remembered: Vec<u32> = (0..keys).map(|key: u32| crc32(&key.to_be_bytes())).collect();
        let filter = filled(shape, &remembered);
        let wrong = (keys..keys + ASKED)
            .filter(|key| filter.contains(shape, crc32(&key.to_be_bytes()), tabulation()))
            .count();
        let columns = f64::from(1_u32 << row_bits);
        let each = 1.0 - (-f64::from(keys) / columns).exp();
        let expected = f64::from(ASKED) * each.powi(rows as i32);
        // Scatter of the queries, and of the bits that happened to be set.
        let scatter = expected.sqrt() + expected * rows as f64 / columns.sqrt();
        let difference = (wrong as f64 - expected).abs();
        let size = format!("{rows} x 2^{row_bits}, {keys} keys");
        assert!(difference < 4.0 * scatter, "{size}: {wrong}, {expected:.0} expected");
    }
}

proptest! {
    #[test]
    fn bits_are_those_of_the_model_and_nothing_is_forgotten(shape in shape(), keys: Vec<u32>, others: Vec<u32>) {
        let filter = filled(shape, &keys);
        let set: BTreeSet<u64> = keys.iter().flat_map(|&crc| bits(crc, shape)).collect();
        let words = filter.words(shape);
        let ours: BTreeSet<u64> = (0..shape.cells() as u64).filter(|bit| words[(bit / 64) as usize] >> (bit % 64) & 1 == 1).collect();
        prop_assert_eq!(&ours, &set);
        prop_assert!(keys.iter().all(|&crc| filter.contains(shape, crc, tabulation())));
        for crc in others {
            prop_assert_eq!(filter.contains(shape, crc, tabulation()), bits(crc, shape).all(|bit| set.contains(&bit)));
        }
    }

    #[test]
    fn merge_remembers_all(shape in shape(), a: Vec<u32>, b: Vec<u32>) {
        let mut merged = filled(shape, &a);
        merged.merge(&filled(shape, &b), shape);
        prop_assert!(merged == filled(shape, &[a, b].concat()));
        merged.clear(shape);
        prop_assert!(*merged == Membership::new());
    }
}
