//! Accuracy of P4Exp: figures 4 to 6 of the P4Entropy paper.
//!
//! Every figure is computed twice. In decimals: the logarithm's constants are decimal numbers, as
//! the paper's text has them, and the series is not rounded. In integers: constants and products
//! are cut to 1/1024, as flowgauge and a switch compute them. Deviations that this arithmetic
//! causes are thus distinct from statements that do not hold in decimals either.

#[cfg(test)]
mod tests;

use crate::documents::reproduction_table;
use crate::parallel::{self, Progress};
use crate::report::{Cell, Column, Part, Report, Table};
use crate::sensitivity::{Curve, RANDOM, Sensitivity, charts, csv, percent, tables};
use crate::statistics::Numbers;
use flowgauge_core::logarithm::{Logarithm, MAX_BITS, MAX_DIGITS, Power};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Number of random powers in the average. The paper has 5 million.
pub(crate) const NUMBERS: u64 = 5_000_000;

/// Number of random powers with `--quick`.
pub(crate) const QUICK_NUMBERS: u64 = 200_000;

/// Selected bases, with the largest exponents of the paper.
const BASES: [(u64, u64); 5] = [(3, 39), (5, 26), (7, 22), (9, 19), (11, 17)];

/// Selected exponents, with the largest bases.
const EXPONENTS: [(u64, u64); 5] =
    [(1_448, 6), (6_208, 5), (55_109, 4), (2_097_153, 3), (3_037_000_500, 2)];

/// Bits of the logarithm in table II.
const BITS: u32 = 7;
const DIGITS: u32 = 3;
const TERMS: u32 = 7;

/// Command that makes the report.
const COMMAND: &str = "flowgauge reproduce p4exp";

/// Arithmetic in which powers are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// Decimal constants, and a series in real numbers.
    Decimals,
    /// Integers times 1024, as on a switch.
    Integers,
}

impl Arithmetic {
    /// Both.
    pub(crate) const ALL: [Arithmetic; 2] = [Arithmetic::Decimals, Arithmetic::Integers];

    /// Returns the name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Arithmetic::Decimals => "decimals",
            Arithmetic::Integers => "integers",
        }
    }
}

/// Results of all figures.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    numbers: u64,
    /// Figures 4a, 4b, 5a, 5b, 6a and 6b in each [`Arithmetic`].
    figures: [Vec<Sensitivity>; Arithmetic::ALL.len()],
}

/// Statement of the paper: an error is below 1 % from a value of the figure's parameter on.
struct Statement {
    figure: &'static str,
    from: u64,
    /// Whether it is about the average over random powers, not about the selected ones.
    random: bool,
}

const STATEMENTS: [Statement; 9] = [
    Statement { figure: "4a", from: 3, random: false },
    Statement { figure: "4b", from: 7, random: false },
    Statement { figure: "4a", from: 7, random: true },
    Statement { figure: "5a", from: 3, random: false },
    Statement { figure: "5b", from: 1, random: false },
    Statement { figure: "5a", from: 1, random: true },
    Statement { figure: "6a", from: 7, random: false },
    Statement { figure: "6b", from: 6, random: false },
    Statement { figure: "6a", from: 6, random: true },
];

/// Returns the relative errors in percent, in decimals and in integers.
fn errors(decimal: &Decimal, power: &Power, (x, d): (u64, u64)) -> (f64, f64) {
    let exact = (x as f64).powf(d as f64);
    let error = |value: f64| (value - exact).abs() / exact * 100.0;
    (error(decimal.of(x, d)), error(power.of(x, d) as f64))
}

/// Returns the average errors over random exponents from 2 to 32 and bases for which the power has
/// at most 64 bits. The paper's ranges, exponents up to 32 and bases up to 32 bits, exceed them.
fn averages(decimal: &Decimal, power: &Power, numbers: u64) -> (f64, f64) {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut draw = || {
        let d = random.random_range(2..=32_u64);
        let largest = (64.0 / d as f64).exp2().min(f64::from(u32::MAX)) as u64;
        (random.random_range(2..=largest), d)
    };
    let (decimals, integers) = (0..numbers)
        .map(|_| errors(decimal, power, draw()))
        .fold((0.0, 0.0), |sums, errors| (sums.0 + errors.0, sums.1 + errors.1));
    (decimals / numbers as f64, integers / numbers as f64)
}

/// Measures the errors with this many random powers.
pub(crate) fn run(numbers: u64, progress: &Progress<'_>) -> Findings {
    let jobs: Vec<Parameters> = pairs().into_iter().flat_map(|pair| pair.powers).collect();
    let errors = |&(bits, digits, terms): &Parameters| -> (Vec<f64>, Vec<f64>) {
        let decimal = Decimal::new(bits, digits, terms);
        let power = Power::new(Logarithm::new(bits, digits), terms);
        let selected = BASES.iter().chain(&EXPONENTS);
        let selected = selected.map(|&case| errors(&decimal, &power, case));
        selected.chain([averages(&decimal, &power, numbers)]).unzip()
    };
    let threads = parallel::processors();
    let columns = parallel::run(&jobs, threads, parallel::equal_cost, progress, errors);
    let (decimals, integers): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let figures =
        [figures(Arithmetic::Decimals, &decimals), figures(Arithmetic::Integers, &integers)];
    Findings { numbers, figures }
}

/// Bits, digits and terms of a power.
type Parameters = (u32, u32, u32);

/// Two figures over the same parameter: of chosen bases and of chosen exponents.
struct Pair {
    figures: [&'static str; 2],
    parameter: &'static str,
    values: Vec<u64>,
    /// Parameters of the power for each value.
    powers: Vec<Parameters>,
}

fn pairs() -> [Pair; 3] {
    let pair = |figures, parameter, powers: Vec<Parameters>, value: fn(&Parameters) -> u32| Pair {
        figures,
        parameter,
        values: powers.iter().map(|power| u64::from(value(power))).collect(),
        powers,
    };
    let bits = (2..=MAX_BITS).map(|bits| (bits, DIGITS, TERMS)).collect();
    let digits = (1..=MAX_DIGITS).map(|digits| (BITS, digits, TERMS)).collect();
    let terms = (2..=10).map(|terms| (BITS, DIGITS, terms)).collect();
    [
        pair(["4a", "4b"], "Nbits", bits, |power| power.0),
        pair(["5a", "5b"], "Ndigits", digits, |power| power.1),
        pair(["6a", "6b"], "Nterms", terms, |power| power.2),
    ]
}

/// Returns the figures of one arithmetic from the errors of all powers, in the order of
/// [`pairs`].
fn figures(arithmetic: Arithmetic, mut columns: &[Vec<f64>]) -> Vec<Sensitivity> {
    let mut figures = Vec::new();
    for Pair { figures: numbers, parameter, values, .. } in pairs() {
        let Some((mine, rest)) = columns.split_at_checked(values.len()) else { break };
        columns = rest;
        for ((figure, cases), (first, title)) in numbers
            .into_iter()
            .zip([BASES, EXPONENTS])
            .zip([(0, "chosen bases"), (BASES.len(), "chosen exponents")])
        {
            let names = (first..).zip(cases.map(|(x, d)| format!("{x}^{d}")));
            let random = (BASES.len() + EXPONENTS.len(), RANDOM.to_owned());
            let curves = Curve::from_columns(mine, names.chain([random]));
            figures.push(Sensitivity {
                figure,
                title: format!("P4Exp in {}, {title}", arithmetic.name()),
                parameter,
                values: values.clone(),
                curves,
            });
        }
    }
    figures
}

impl Findings {
    fn figure(&self, arithmetic: Arithmetic, figure: &str) -> Option<&Sensitivity> {
        self.figures[arithmetic as usize].iter().find(|other| other.figure == figure)
    }

    /// Returns the largest error that a statement is about, in percent.
    fn worst(&self, arithmetic: Arithmetic, statement: &Statement) -> f64 {
        let Some(figure) = self.figure(arithmetic, statement.figure) else { return f64::NAN };
        let error = |value| {
            if statement.random { figure.error(RANDOM, value) } else { figure.largest(value) }
        };
        let values = figure.values.iter().copied().filter(|value| *value >= statement.from);
        values.filter_map(error).fold(f64::NAN, f64::max)
    }

    /// Returns the names of all powers, and their errors with the parameters of table II, in percent.
    fn powers(&self, arithmetic: Arithmetic) -> impl Iterator<Item = (String, Option<f64>)> {
        [("4a", BASES), ("4b", EXPONENTS)].into_iter().flat_map(move |(figure, cases)| {
            let figure = self.figure(arithmetic, figure);
            cases.map(|(x, d)| {
                let name = format!("{x}^{d}");
                let error = figure.and_then(|figure| figure.error(&name, u64::from(BITS)));
                (name, error)
            })
        })
    }

    /// Returns the errors with the parameters of table II.
    fn parameters(&self) -> Table {
        let mut columns = vec![Column::text("", "power")];
        columns.extend(
            Arithmetic::ALL.map(|arithmetic| Column::number("|error| in %", arithmetic.name())),
        );
        let caption = format!(
            "P4Exp with the parameters of table II: {BITS} bits, {DIGITS} digits, {TERMS} terms"
        );
        let mut table = Table::new(caption, columns);
        let [decimals, integers] = Arithmetic::ALL.map(|arithmetic| self.powers(arithmetic));
        for ((name, decimals), (_, integers)) in decimals.zip(integers) {
            let errors = [decimals, integers].map(|error| percent(error.unwrap_or(f64::NAN)));
            table.row([Cell::new(&name)].into_iter().chain(errors).collect());
        }
        table
    }

    /// Returns all results by name.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for arithmetic in Arithmetic::ALL {
            let prefix = format!("p4exp/{}", arithmetic.name());
            for statement in &STATEMENTS {
                let Statement { figure, from, random, .. } = statement;
                let ending = if *random { "/random" } else { "" };
                let name = format!("{prefix}/{figure}/{from}{ending}");
                numbers.add_one(name, Some(self.worst(arithmetic, statement)));
            }
            for (figure, value) in [("4a", 2), ("6a", 6)] {
                let largest = self.figure(arithmetic, figure);
                let largest = largest.and_then(|figure| figure.largest(value));
                numbers.add_one(format!("{prefix}/{figure}/at-{value}"), largest);
            }
            for (name, error) in self.powers(arithmetic) {
                numbers.add_one(format!("{prefix}/{name}"), error);
            }
        }
        numbers
    }

    /// Returns the report, with `decimals.csv` and `integers.csv`.
    pub(crate) fn report(&self) -> Report {
        let numbers = self.numbers();
        let [decimals, integers] = &self.figures;
        let parts = [
            ("numbers", Part::Text(flowgauge_ctl::output::grouped(self.numbers))),
            ("parameters", Part::Text(self.parameters().html())),
            ("decimals-charts", charts(decimals, 6.0)),
            ("decimals-tables", tables(decimals)),
            ("integers-charts", charts(integers, 6.0)),
            ("integers-tables", tables(integers)),
            ("compared", Part::Tables(vec![reproduction_table("p4exp", &numbers)])),
        ];
        Report::new(
            include_str!("page.html"),
            COMMAND,
            numbers,
            &parts,
            [("decimals.csv", csv(decimals)), ("integers.csv", csv(integers))],
        )
    }
}

/// P4Exp in real numbers: power from a logarithm whose constants are decimal numbers, and a
/// binomial series without rounding.
///
/// The paper evaluates P4Exp in Python (section V) and does not say in which numbers. This is the
/// reading by which its statements hold, and by which errors change with every term, as its text
/// on figure 6 describes. In integers no term after the seventh adds anything.
struct Decimal {
    bits: u32,
    constants: Vec<f64>,
    terms: u32,
}

impl Decimal {
    /// Creates a power from `bits` bits below the leading one, at least 1, constants of `digits`
    /// decimal digits, and `terms` terms of the series, the constant one counted.
    fn new(bits: u32, digits: u32, terms: u32) -> Self {
        let unit = f64::from(10_u32.pow(digits));
        let intervals = 1_u32 << bits;
        let constant = |interval: u32| {
            let logarithm = (1.0 + f64::from(interval) / f64::from(intervals)).log2();
            (logarithm * unit).round() / unit
        };
        Decimal { bits, constants: (0..intervals).map(constant).collect(), terms }
    }

    /// Returns `x^d`.
    fn of(&self, x: u64, d: u64) -> f64 {
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
