//! Accuracy of P4Exp: figures 4 to 6 of the P4Entropy paper.

use crate::error::ReproduceError;
use crate::parallel::{self, Progress};
use crate::report::html::Page;
use crate::report::{Cell, Column, Directory, Table};
use crate::sensitivity::{Curve, RANDOM, Sensitivity, csv, percent, statements};
use flowgauge_core::logarithm::{Logarithm, MAX_BITS, MAX_DIGITS, Power};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// Number of random powers in the average. The paper has 5 million.
pub const NUMBERS: u64 = 5_000_000;

/// Number of random powers with `--quick`.
pub const QUICK_NUMBERS: u64 = 200_000;

/// Selected bases, with the largest exponents of the paper.
const BASES: [(u64, u64); 5] = [(3, 39), (5, 26), (7, 22), (9, 19), (11, 17)];

/// Selected exponents, with the largest bases.
const EXPONENTS: [(u64, u64); 5] =
    [(1_448, 6), (6_208, 5), (55_109, 4), (2_097_153, 3), (3_037_000_500, 2)];

/// Bits of the logarithm in table II.
const BITS: u32 = 7;
const DIGITS: u32 = 3;
const TERMS: u32 = 7;

/// Results of all figures.
#[derive(Clone, Debug)]
pub struct Findings {
    numbers: u64,
    /// Figures 4a, 4b, 5a, 5b, 6a and 6b.
    figures: Vec<Sensitivity>,
}

/// Returns the relative error in percent.
fn error(power: &Power, (x, d): (u64, u64)) -> f64 {
    let exact = (x as f64).powf(d as f64);
    (power.of(x, d) as f64 - exact).abs() / exact * 100.0
}

/// Returns the average error over random exponents from 2 to 32 and bases for which the power has
/// at most 64 bits. The paper's ranges, exponents up to 32 and bases up to 32 bits, exceed them.
fn average(power: &Power, numbers: u64) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut draw = || {
        let d = random.random_range(2..=32_u64);
        let largest = (64.0 / d as f64).exp2().min(f64::from(u32::MAX)) as u64;
        (random.random_range(2..=largest), d)
    };
    (0..numbers).map(|_| error(power, draw())).sum::<f64>() / numbers as f64
}

/// Measures the errors with this many random powers.
///
/// # Errors
/// None; the signature is that of other reproductions.
pub fn run(numbers: u64, progress: &Progress<'_>) -> Result<Findings, ReproduceError> {
    let bits = (2..=MAX_BITS).map(|bits| (bits, DIGITS, TERMS));
    let digits = (1..=MAX_DIGITS).map(|digits| (BITS, digits, TERMS));
    let terms = (2..=10).map(|terms| (BITS, DIGITS, terms));
    let jobs: Vec<(u32, u32, u32)> =
        bits.clone().chain(digits.clone()).chain(terms.clone()).collect();
    let threads = available_parallelism().map_or(1, NonZero::get);
    let columns = parallel::run(
        &jobs,
        threads,
        |_| 1,
        progress,
        |&(bits, digits, terms)| {
            let power = Power::new(Logarithm::new(bits, digits), terms);
            let errors = BASES.iter().chain(&EXPONENTS).map(|&case| error(&power, case));
            Ok::<_, ReproduceError>(errors.chain([average(&power, numbers)]).collect::<Vec<f64>>())
        },
    )?;
    let mut figures = Vec::new();
    let mut columns = columns.as_slice();
    let parameters = [
        (["4a", "4b"], "Nbits", bits.map(|(bits, ..)| u64::from(bits)).collect::<Vec<u64>>()),
        (["5a", "5b"], "Ndigits", digits.map(|(_, digits, _)| u64::from(digits)).collect()),
        (["6a", "6b"], "Nterms", terms.map(|(.., terms)| u64::from(terms)).collect()),
    ];
    for (numbers, parameter, values) in parameters {
        let (mine, rest) = columns.split_at(values.len());
        columns = rest;
        for ((figure, cases), (first, title)) in numbers
            .into_iter()
            .zip([BASES, EXPONENTS])
            .zip([(0, "chosen bases"), (BASES.len(), "chosen exponents")])
        {
            let names =
                cases.iter().enumerate().map(|(index, (x, d))| (first + index, format!("{x}^{d}")));
            let curve = |(index, name)| Curve {
                name,
                errors: mine.iter().filter_map(|errors| errors.get(index).copied()).collect(),
            };
            let curves = names
                .chain([(BASES.len() + EXPONENTS.len(), RANDOM.to_owned())])
                .map(curve)
                .collect();
            figures.push(Sensitivity {
                figure,
                title: format!("P4Exp, {title}"),
                parameter,
                values: values.clone(),
                curves,
            });
        }
    }
    Ok(Findings { numbers, figures })
}

impl Findings {
    /// Returns the figures and the paper's statements as tables.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        self.figures.iter().map(Sensitivity::table).chain([self.statements()]).collect()
    }

    fn figure(&self, figure: &str) -> Option<&Sensitivity> {
        self.figures.iter().find(|other| other.figure == figure)
    }

    fn statements(&self) -> Table {
        let largest = |figure, value| {
            let error =
                self.figure(figure).and_then(|figure| figure.largest(value)).unwrap_or(f64::NAN);
            format!("largest {error:.2} %")
        };
        let random = |figure, value| {
            let error = self
                .figure(figure)
                .and_then(|figure| figure.error(RANDOM, value))
                .unwrap_or(f64::NAN);
            format!("{error:.2} %")
        };
        statements([
            ("4a, Nbits = 2: around 80 % for bases from 9", largest("4a", 2)),
            ("4a, Nbits from 3: all errors under 1 %", largest("4a", 3)),
            ("4b, Nbits = 7: all errors below 1 %", largest("4b", 7)),
            ("4, Nbits from 7: random powers below 1 % on the average", random("4a", 7)),
            ("5a, Ndigits from 3: below 1 %", largest("5a", 3)),
            ("5b: always under 1 %", largest("5b", 1)),
            ("6a, Nterms from 7: all errors under 1 %", largest("6a", 7)),
            ("6b, Nterms from 6: all errors below 1 %", largest("6b", 6)),
            ("6, Nterms from 6: random powers below 1 % on the average", random("6a", 6)),
        ])
    }

    /// Returns the errors with the parameters of table II.
    fn parameters(&self) -> Table {
        let columns = vec![Column::text("", "power"), Column::number("", "|error| in %")];
        let caption = format!(
            "P4Exp with the parameters of table II: {BITS} bits, {DIGITS} digits, {TERMS} terms"
        );
        let mut table = Table::new(caption, columns);
        for figure in ["4a", "4b"].into_iter().filter_map(|figure| self.figure(figure)) {
            for curve in figure.curves.iter().take(BASES.len()) {
                let error = figure.error(&curve.name, u64::from(BITS)).unwrap_or(f64::NAN);
                table.row(vec![Cell::new(&curve.name), percent(error)]);
            }
        }
        table
    }

    /// Writes `index.html` and `figures.csv` to a directory, which is created if necessary. Returns
    /// the path of the page.
    ///
    /// # Errors
    /// [`ReproduceError::File`].
    pub fn write(&self, directory: &Path) -> Result<PathBuf, ReproduceError> {
        let directory = Directory::create(directory)?;
        directory.write("figures.csv", |file| csv(&self.figures, file))?;
        let mut page = Page::new("P4Exp: powers without a floating-point unit");
        page.lead(&format!(
            "Powers of any base from P4Log and a binomial series (P4Entropy paper, algorithm 2), in integers. Errors against floating point; \
             the average is over {} random powers of at most 64 bits.",
            flowgauge_ctl::output::grouped(self.numbers)
        ));
        page.table(&self.parameters());
        page.table(&self.statements());
        for pair in self.figures.chunks(2) {
            let charts: Vec<_> = pair.iter().map(|figure| figure.chart(6.0)).collect();
            page.figure(
                &charts,
                "The paper's figures. Errors above 6 % are clipped; the tables below have them.",
            );
        }
        self.figures.iter().for_each(|figure| page.table(&figure.table()));
        page.heading("Deviations from the paper");
        page.paragraph(
            "Products in the series are signed: a binomial coefficient of a fraction is negative every other time. The exponents of the paper's \
             random powers, up to 32 for bases of up to 32 bits, leave 64 bits by far; here bases are drawn so that powers fit. From the seventh \
             term on the series does not change: the constant 1024 / 7! is 0.",
        );
        page.paragraph("To repeat: <code>flowgauge reproduce p4exp</code>");
        let page = page.html();
        directory.write("index.html", |file| file.write_all(page.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_4_to_6_have_the_known_errors() {
        let findings = run(20_000, &|_, _| {}).unwrap();
        for (curve, known) in
            [("3^39", 0.21), ("5^26", 1.62), ("7^22", 1.34), ("9^19", 0.57), ("11^17", 0.76)]
        {
            for (figure, value) in [("4a", 7), ("5a", 3), ("6a", 7)] {
                let error = findings.figure(figure).unwrap().error(curve, value).unwrap();
                assert!((error - known).abs() <= 0.005, "{figure}, {curve}: {error}");
            }
        }
        let terms = findings.figure("6b").unwrap();
        assert_eq!(terms.largest(7), terms.largest(10), "terms beyond the seventh add nothing");
        assert!(findings.figure("4a").unwrap().error("random", 7).unwrap() < 1.0);
        let directory =
            std::env::temp_dir().join(format!("flowgauge-p4exp-{}", std::process::id()));
        let page = std::fs::read_to_string(findings.write(&directory).unwrap()).unwrap();
        assert!(page.contains("Figure 6b") && !page.contains("NaN"));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
