//! Structured addresses under the linear CRC of the thesis: the estimate over the truth, by the number
//! of addresses.

use crate::report::svg::{Axis, Chart, Tone};
use flowgauge_core::hash::crc32;
use flowgauge_core::{Cardinality, HashMode, Precision, Tabulation};
use flowgauge_ctl::measurement::cardinality::estimate::{Estimator, estimate};

/// First address: 10.0.0.1.
const FIRST: u32 = 0x0a00_0001;

/// Range of the numbers of addresses, and points of a curve for each factor of ten.
const FEWEST: f64 = 100.0;
const MOST: f64 = 1e6;
const POINTS: u32 = 20;

/// Returns estimate over truth of addresses at a distance of each other, for each number of them.
fn ratios(step: u32, hash: HashMode, numbers: &[u32]) -> Vec<(f64, f64)> {
    let tabulation = Box::new(Tabulation::from_seed(1));
    let mut registers = Box::new(Cardinality::new());
    let (mut counted, mut ratios) = (0, Vec::new());
    for &number in numbers {
        for index in counted..number {
            let address = FIRST.wrapping_add(index.wrapping_mul(step));
            let hash = hash.hash(crc32(&address.to_be_bytes()), &tabulation);
            registers.update(hash, Precision::DEFAULT);
        }
        counted = number;
        if let Ok(found) = estimate(registers.levels(Precision::DEFAULT), Estimator::Ertl) {
            ratios.push((f64::from(number), found.value / f64::from(number)));
        }
    }
    ratios
}

/// Returns the ratios as a plot.
pub(super) fn chart() -> Chart {
    let decades = (MOST / FEWEST).log10().round() as u32;
    let numbers: Vec<u32> = (0..=decades * POINTS)
        .map(|point| (FEWEST * 10_f64.powf(f64::from(point) / f64::from(POINTS))).round() as u32)
        .collect();
    let (x, y) =
        (Axis::logarithmic("addresses", FEWEST, MOST), Axis::linear("estimate / truth", 0.0, 2.5));
    Chart::new("Structured addresses by their number", x, y)
        .dashed("", Tone::Neutral, [(FEWEST, 1.0), (MOST, 1.0)])
        .line(
            "crc32, one address of each /24",
            Tone::Third,
            ratios(1 << 8, HashMode::Crc32, &numbers),
        )
        .line("crc32, sequential", Tone::Second, ratios(1, HashMode::Crc32, &numbers))
        .line("tabulated, sequential", Tone::First, ratios(1, HashMode::Tabulated, &numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ratios of a program of its own, with two digits. `docs/accuracy.md` states some of them.
    #[test]
    fn ratios_are_the_known_ones() {
        let numbers = [100, 1_000, 2_000, 5_000, 20_000, 100_000];
        for (step, known) in [
            (1, [1.03, 1.35, 0.76, 1.99, 0.97, 1.92]),
            (1 << 8, [1.03, 0.60, 0.30, 0.71, 1.82, 1.92]),
        ] {
            for ((number, ratio), known) in
                ratios(step, HashMode::Crc32, &numbers).into_iter().zip(known)
            {
                assert!((ratio - known).abs() <= 0.005 + 1e-9, "{step} {number}: {ratio}");
            }
        }
        // The interval of 95 % is about 4.5 %; 3.72 deviations are 8.6 %.
        for (number, ratio) in ratios(1, HashMode::Tabulated, &numbers) {
            assert!((ratio - 1.0).abs() < 0.086, "{number}: {ratio}");
        }
    }
}
