//! Membership of a flow, from a Bloom filter.

use flowgauge_core::{Grid, Membership as Filter};

/// Returns the probability that a flow that was not seen finds its bit set in every row.
#[must_use]
pub fn false_positive(filter: &Filter, shape: Grid) -> f64 {
    let row = shape.columns();
    let set = |words: &[u64]| {
        words.iter().map(|word| f64::from(word.count_ones())).sum::<f64>() / row as f64
    };
    filter.words(shape).chunks(row / 64).map(set).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::Tabulation;
    use flowgauge_core::hash::crc32;
    use flowgauge_testing::chance::binomial;

    #[test]
    fn an_empty_filter_is_never_wrong_and_a_full_one_always() {
        let shape = Grid::BITS;
        let mut filter = Box::new(Filter::new());
        assert_eq!(false_positive(&filter, shape), 0.0);
        filter.words_mut(shape).fill(u64::MAX);
        assert_eq!(false_positive(&filter, shape), 1.0);
    }

    #[test]
    fn it_is_wrong_as_often_as_it_says() {
        const ASKED: u32 = 100_000;
        for (rows, bits, flows) in
            [(4, 1 << 16, 60_000_u32), (3, 1 << 12, 3_000), (1, 64, 20), (12, 1 << 10, 900)]
        {
            let shape = Grid::of_bits(rows, bits).unwrap();
            let tabulation = Box::new(Tabulation::from_seed(1));
            let mut filter = Box::new(Filter::new());
            (0..flows)
                .for_each(|flow| filter.update(shape, crc32(&flow.to_be_bytes()), &tabulation));
            let seen = |flow: u32| filter.contains(shape, crc32(&flow.to_be_bytes()), &tabulation);
            assert!((0..flows).all(seen));
            let wrong = (flows..flows + ASKED).filter(|&flow| seen(flow)).count() as u64;
            let expected = false_positive(&filter, shape);
            assert!(
                binomial(ASKED.into(), expected).contains(&wrong),
                "{rows} x {bits}: {wrong} of {ASKED}, {expected} expected"
            );
        }
    }
}
