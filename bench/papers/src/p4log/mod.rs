//! Accuracy of P4Log: figure 3 of the P4Entropy paper, for the function that counts the entropy of
//! every packet.

use crate::documents::reproduction_table;
use crate::parallel::{self, Progress};
use crate::report::{Part, Report};
use crate::sensitivity::{Curve, RANDOM, Sensitivity, charts, csv, tables};
use crate::statistics::Numbers;
use flowgauge_core::logarithm::{Logarithm, MAX_BITS, MAX_DIGITS};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Number of random numbers in the average. The paper has 5 million.
pub(crate) const NUMBERS: u64 = 5_000_000;

/// Number of random numbers with `--quick`.
pub(crate) const QUICK_NUMBERS: u64 = 200_000;

/// Lengths in bits of the numbers that are all ones (paper, section V-A).
const LENGTHS: [u32; 5] = [4, 8, 16, 32, 64];

/// Command that makes the report.
const COMMAND: &str = "flowgauge reproduce p4log";

/// Bits of the logarithm in table II.
const BITS: u32 = 4;
const DIGITS: u32 = 3;

/// Results of all figures.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    numbers: u64,
    /// Figures 3a and 3b.
    figures: Vec<Sensitivity>,
}

/// Returns the relative error in percent.
fn error(logarithm: &Logarithm, x: u64) -> f64 {
    let exact = (x as f64).log2();
    (f64::from(logarithm.log2(x)) / 1024.0 - exact).abs() / exact * 100.0
}

fn average(logarithm: &Logarithm, numbers: u64) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    (0..numbers).map(|_| error(logarithm, random.random_range(2..=u64::MAX))).sum::<f64>()
        / numbers as f64
}

/// Measures the errors with this many random numbers.
pub(crate) fn run(numbers: u64, progress: &Progress<'_>) -> Findings {
    let bits = (1..=MAX_BITS).map(|bits| (bits, DIGITS));
    let digits = (1..=MAX_DIGITS).map(|digits| (BITS, digits));
    let jobs: Vec<(u32, u32)> = bits.chain(digits).collect();
    let errors = |&(bits, digits): &(u32, u32)| -> Vec<f64> {
        let logarithm = Logarithm::new(bits, digits);
        let ones = LENGTHS.map(|length| error(&logarithm, u64::MAX >> (64 - length)));
        ones.into_iter().chain([average(&logarithm, numbers)]).collect()
    };
    let threads = parallel::processors();
    let columns = parallel::run(&jobs, threads, parallel::equal_cost, progress, errors);
    let names = LENGTHS.iter().map(|length| format!("2^{length} - 1")).chain([RANDOM.to_owned()]);
    let figure = |figure, title, parameter, columns: &[Vec<f64>]| Sensitivity {
        figure,
        title,
        parameter,
        values: (1..=columns.len() as u64).collect(),
        curves: Curve::from_columns(columns, names.clone().enumerate()),
    };
    let (by_bits, by_digits) = columns.split_at(MAX_BITS as usize);
    let figures = vec![
        figure("3a", format!("P4Log with {DIGITS} digits"), "Nbits", by_bits),
        figure("3b", format!("P4Log with {BITS} bits"), "Ndigits", by_digits),
    ];
    Findings { numbers, figures }
}

/// Returns the digits with the smallest of the largest errors.
fn least_digits(by_digits: &Sensitivity) -> Option<f64> {
    let largest = |digits: u64| by_digits.largest(digits).unwrap_or(f64::NAN);
    let digits = by_digits.values.iter().copied();
    digits.min_by(|a, b| largest(*a).total_cmp(&largest(*b))).map(|digits| digits as f64)
}

impl Findings {
    /// Returns all results by name.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for figure in &self.figures {
            for value in figure.values.iter().copied() {
                let name = format!("p4log/{}/{value}", figure.figure);
                numbers.add_one(format!("{name}/random"), figure.error(RANDOM, value));
                numbers.add_one(name, figure.largest(value));
            }
        }
        let [by_bits, by_digits] = self.figures.as_slice() else { return numbers };
        for length in LENGTHS {
            let error = by_bits.error(&format!("2^{length} - 1"), u64::from(BITS));
            numbers.add_one(format!("p4log/ones/{length}"), error);
        }
        let all = || by_digits.values.iter().copied();
        let most = all().filter_map(|digits| by_digits.largest(digits)).max_by(f64::total_cmp);
        numbers.add_one("p4log/3b/most", most);
        numbers.add_one("p4log/3b/least-digits", least_digits(by_digits));
        let random = self.figures.iter().flat_map(|figure| {
            figure.values.iter().filter_map(move |value| figure.error(RANDOM, *value))
        });
        numbers.add_one("p4log/random-most", random.max_by(f64::total_cmp));
        numbers
    }

    /// Returns the report, with `figures.csv`.
    pub(crate) fn report(&self) -> Report {
        let numbers = self.numbers();
        let parts = [
            ("numbers", Part::Text(flowgauge_ctl::output::grouped(self.numbers))),
            ("charts", charts(&self.figures, 6.0)),
            ("tables", tables(&self.figures)),
            ("compared", Part::Tables(vec![reproduction_table("p4log", &numbers)])),
        ];
        Report::new(
            include_str!("page.html"),
            COMMAND,
            numbers,
            &parts,
            [("figures.csv", csv(&self.figures))],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::WrittenReport;

    #[test]
    fn figure_3_has_the_known_errors() {
        let findings = run(50_000, &|_, _| {});
        for (curve, known) in [
            ("2^4 - 1", 0.02),
            ("2^8 - 1", 0.52),
            ("2^16 - 1", 0.29),
            ("2^32 - 1", 0.15),
            ("2^64 - 1", 0.07),
            ("random", 0.051),
        ] {
            let error = findings.figures[0].error(curve, 4).unwrap();
            assert!((error - known).abs() <= 0.005, "{curve}: {error}");
            assert_eq!(
                findings.figures[1].error(curve, 3),
                Some(error),
                "both figures hold the paper's parameters"
            );
        }
        assert!(
            findings.figures[0].largest(4).unwrap() < 1.0
                && findings.figures[0].largest(6).unwrap() < 0.2
        );
        WrittenReport::new(&findings.report(), COMMAND, &["Figure 3a"]);
    }
}
