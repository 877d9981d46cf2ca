//! Accuracy of P4Entropy: figure 7 of its paper, and the sources of the error.
//!
//! The paper's trace is not public. It is replaced by Zipf traffic: 200,000 flows, windows of 2^21
//! packets as in the paper.

mod lapolli;
#[cfg(test)]
mod tests;
mod trace;

pub(crate) use trace::replay;

use crate::documents::reproduction_table;
use crate::parallel::{self, Progress};
use crate::report::{Cell, Column, Part, Report, Table, mean_cell};
use crate::sensitivity::{Curve, Sensitivity, charts, csv, tables};
use crate::statistics::{self, Numbers, Spread, mean};
use flowgauge_core::entropy::{POWER, in_integers, in_integers_with};
use flowgauge_core::hash::crc32;
use flowgauge_core::logarithm::{PER_PACKET, PER_WINDOW};
use flowgauge_core::{Entropy, Grid, SharedSketch, Sharing, SketchKind, SketchTotals, Tabulation};
use flowgauge_ctl::measurement::entropy::estimate::estimate;
use flowgauge_traffic::{Generator, Profile, Sources};
use hashbrown::HashMap;

/// Windows of each kind of traffic. The paper has 10.
pub(crate) const SEEDS: u64 = 5;

/// Windows with `--quick`.
pub(crate) const QUICK_SEEDS: u64 = 1;

/// Exponents of Zipf's law.
const ALPHAS: [f64; 3] = [0.8, 1.0, 1.2];

/// Exponent of figure 7.
const FIGURE_ALPHA: f64 = 1.0;

/// Rows of the sketch in table III. Its 1000 columns are rounded to a power of two here.
const ROWS: usize = 10;
const COLUMNS: usize = 1024;

/// Rows and columns of figures 7a and 7b.
const SWEEP_ROWS: [usize; 6] = [2, 4, 6, 8, 10, 12];
const SWEEP_COLUMNS: [usize; 4] = [128, 256, 512, 1024];

/// Parameters of the reproduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Windows of each kind of traffic, with seeds 1, 2, ….
    pub seeds: u64,
    /// Packets of a window, as a power of two.
    pub packets_bits: u32,
    /// Number of sources.
    pub flows: u64,
    /// Whether to make figure 7.
    pub figures: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { seeds: SEEDS, packets_bits: 21, flows: 200_000, figures: true }
    }
}

/// Method that computes the entropy from a window's sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// P4Entropy with the last equation in floating point, as in the controller.
    Floating,
    /// P4Entropy in integers with 7 bits in the last logarithms, as in the dataplane.
    SevenBits,
    /// P4Entropy in integers with the paper's 4 bits.
    FourBits,
    /// Algorithm 3 as printed.
    Literal,
    /// Table of Lapolli et al.
    Lapolli,
}

impl Method {
    /// All methods, the best first.
    pub(crate) const ALL: [Method; 5] =
        [Method::Floating, Method::SevenBits, Method::FourBits, Method::Literal, Method::Lapolli];

    /// Returns the name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Method::Floating => "final in floating point",
            Method::SevenBits => "final logarithms with 7 bits",
            Method::FourBits => "final logarithms with 4 bits",
            Method::Literal => "algorithm 3 to the letter",
            Method::Lapolli => "Lapolli",
        }
    }

    /// Returns the name in names of results.
    const fn key(self) -> &'static str {
        match self {
            Method::Floating => "floating",
            Method::SevenBits => "7-bits",
            Method::FourBits => "4-bits",
            Method::Literal => "literal",
            Method::Lapolli => "lapolli",
        }
    }
}

/// Result of one method in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finding {
    /// Exponent of Zipf's law.
    pub alpha: f64,
    /// Seed of traffic and hashes.
    pub seed: u64,
    /// Kind of the sketch.
    pub kind: SketchKind,
    /// Shape of the sketch.
    pub shape: Grid,
    /// Method.
    pub method: Method,
    /// Estimated entropy, in bits.
    pub bits: f64,
    /// True entropy, in bits.
    pub truth: f64,
    /// Whether the 95 % interval contains it; only for [`Method::Floating`].
    pub held: Option<bool>,
}

impl Finding {
    /// Returns the relative error in percent.
    pub(crate) fn error(&self) -> f64 {
        (self.bits - self.truth).abs() / self.truth * 100.0
    }
}

/// Results of all windows.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    options: Options,
    findings: Vec<Finding>,
    figures: Vec<Sensitivity>,
}

/// Window to generate and count by all methods.
#[derive(Clone, Copy, Debug)]
struct Job {
    alpha: f64,
    seed: u64,
    options: Options,
}

impl Job {
    fn shapes(&self) -> Vec<Grid> {
        let figures = self.options.figures && self.alpha == FIGURE_ALPHA;
        let rows = SWEEP_ROWS.into_iter().map(|rows| (rows, COLUMNS));
        let columns = SWEEP_COLUMNS
            .into_iter()
            .filter(|columns| *columns != COLUMNS)
            .map(|columns| (ROWS, columns));
        let sweep = rows.chain(columns).filter(|size| figures && *size != (ROWS, COLUMNS));
        [(ROWS, COLUMNS)]
            .into_iter()
            .chain(sweep)
            .filter_map(|(rows, columns)| Grid::of_counters(rows, columns))
            .collect()
    }

    /// Returns the number of passes over the packets.
    fn cost(&self) -> u64 {
        1 + self.shapes().len() as u64 * 4
    }

    fn run(&self) -> Vec<Finding> {
        let Job { alpha, seed, options } = *self;
        let sources = Sources::Zipf { flows: options.flows, alpha };
        let generator = Generator::new(Profile { seed, ..Profile::new(sources) });
        let keys: Vec<u32> =
            (0..1_u64 << options.packets_bits).map(|packet| generator.source(packet)).collect();
        let truth = exact(&keys);
        let crcs: Vec<u32> = keys.into_iter().map(|key| crc32(&key.to_be_bytes())).collect();
        let tabulation = Box::new(Tabulation::from_seed(seed));
        let terms = lapolli::Table::new();
        let mut findings = Vec::new();
        for (shape, kind) in
            self.shapes().into_iter().flat_map(|shape| SketchKind::ALL.map(|kind| (shape, kind)))
        {
            let finding = |method, bits, held| Finding {
                alpha,
                seed,
                kind,
                shape,
                method,
                bits,
                truth,
                held,
            };
            let (sketch, mut entropy) = (Box::new(SharedSketch::new()), Entropy::default());
            crcs.iter().for_each(|&crc| {
                entropy.update(&sketch, Sharing::Alone, kind, shape, crc, &tabulation)
            });
            let mut cells = Box::new(SketchTotals::new());
            sketch.merge_into(&mut cells, kind, shape);
            let (packets, sum) = (crcs.len() as u64, entropy.sum);
            let floating = estimate(packets, sum, &cells, shape, kind);
            let held = (floating.low..=floating.high).contains(&truth);
            let amplified = |bits: u64| bits as f64 / 1024.0;
            findings.extend([
                finding(Method::Floating, floating.bits, Some(held)),
                finding(Method::SevenBits, amplified(in_integers(packets, sum)), None),
                finding(
                    Method::FourBits,
                    amplified(in_integers_with(packets, sum, &PER_PACKET, &POWER)),
                    None,
                ),
                finding(Method::Literal, literally(packets, sum), None),
            ]);
            sketch.clear(shape);
            let count = |&crc| {
                terms.term(sketch.update_and_query(Sharing::Alone, kind, shape, crc, &tabulation))
            };
            let sum = crcs.iter().map(count).sum();
            findings.push(finding(
                Method::Lapolli,
                lapolli::entropy(options.packets_bits, sum),
                None,
            ));
        }
        findings
    }
}

fn exact(keys: &[u32]) -> f64 {
    let mut counts: HashMap<u32, u64> = HashMap::new();
    keys.iter().for_each(|key| *counts.entry(*key).or_default() += 1);
    let sum: f64 = counts.values().map(|&count| count as f64 * (count as f64).log2()).sum();
    (keys.len() as f64).log2() - sum / keys.len() as f64
}

/// Computes Algorithm 3 as printed (lines 18 and 19): the difference of two amplified logarithms is
/// passed to P4Exp as if it were a plain exponent. A power that does not fit 128 bits is 0 in P4
/// (section III-B).
fn literally(packets: u64, sum: u64) -> f64 {
    let of_packets = PER_WINDOW.log2(packets);
    let difference = u64::from(PER_WINDOW.log2(sum >> 10).saturating_sub(of_packets));
    let power = if difference < 128 { POWER.of(2, difference) as f64 } else { 0.0 };
    (f64::from(of_packets) - power) / 1024.0
}

/// Generates and counts all windows, one per processor at a time. Reports progress in passes over
/// packets.
pub(crate) fn run(options: &Options, progress: &Progress<'_>) -> Findings {
    // Windows of the figure take longest; start with them.
    let mut alphas = ALPHAS;
    alphas.sort_by_key(|alpha| *alpha != FIGURE_ALPHA);
    let job = |alpha| (1..=options.seeds).map(move |seed| Job { alpha, seed, options: *options });
    let jobs: Vec<Job> = alphas.into_iter().flat_map(job).collect();
    let threads = parallel::processors();
    let findings = parallel::run(&jobs, threads, Job::cost, progress, Job::run);
    let mut findings = Findings {
        options: *options,
        findings: findings.into_iter().flatten().collect(),
        figures: Vec::new(),
    };
    if options.figures {
        let rows = SWEEP_ROWS.map(|rows| (rows as u64, Grid::of_counters(rows, COLUMNS)));
        let columns =
            SWEEP_COLUMNS.map(|columns| (columns as u64, Grid::of_counters(ROWS, columns)));
        findings.figures = vec![
            findings.figure("7a", format!("{COLUMNS} columns"), "Nh (rows)", &rows),
            findings.figure("7b", format!("{ROWS} rows"), "Ns (columns)", &columns),
        ];
    }
    findings
}

impl Findings {
    /// Returns the errors of a method on traffic with this exponent, with the sketch of table III.
    pub(crate) fn errors(&self, alpha: f64, kind: SketchKind, method: Method) -> Option<Spread> {
        let shape = Grid::of_counters(ROWS, COLUMNS)?;
        let wanted = |finding: &&Finding| {
            (finding.alpha, finding.shape, finding.kind, finding.method)
                == (alpha, shape, kind, method)
        };
        Spread::from_values(self.findings.iter().filter(wanted).map(Finding::error))
    }

    /// Returns the number of windows whose interval contains the truth, and of all windows.
    pub(crate) fn held(&self) -> (usize, usize) {
        let held = || self.findings.iter().filter_map(|finding| finding.held);
        (held().filter(|held| *held).count(), held().count())
    }

    fn figure(
        &self,
        figure: &'static str,
        title: String,
        parameter: &'static str,
        sizes: &[(u64, Option<Grid>)],
    ) -> Sensitivity {
        let curve = |name: &str, kind, method| {
            let error = |&(_, shape): &(u64, Option<Grid>)| {
                let wanted = |finding: &&Finding| {
                    Some(finding.shape) == shape
                        && finding.alpha == FIGURE_ALPHA
                        && (finding.kind, finding.method) == (kind, method)
                };
                let errors = self.findings.iter().filter(wanted).map(Finding::error);
                Spread::from_values(errors).map_or(f64::NAN, |errors| errors.mean)
            };
            Curve { name: name.to_owned(), errors: sizes.iter().map(error).collect() }
        };
        let curves = vec![
            curve("P4Entropy, Count Sketch", SketchKind::CountSketch, Method::FourBits),
            curve(
                "P4Entropy, Count Sketch, final in floating point",
                SketchKind::CountSketch,
                Method::Floating,
            ),
            curve("Lapolli, Count Sketch", SketchKind::CountSketch, Method::Lapolli),
            curve("P4Entropy, Count-Min", SketchKind::CountMin, Method::FourBits),
            curve("Lapolli, Count-Min", SketchKind::CountMin, Method::Lapolli),
        ];
        Sensitivity {
            figure,
            title,
            parameter,
            values: sizes.iter().map(|(value, _)| *value).collect(),
            curves,
        }
    }

    fn methods(&self) -> Table {
        let Options { seeds, packets_bits, flows, .. } = self.options;
        let caption = format!(
            "|error| of the entropy in %, mean of {seeds} window{} of 2^{packets_bits} packets, {flows} flows, sketch {ROWS} x {COLUMNS}",
            if seeds == 1 { "" } else { "s" }
        );
        let mut columns = vec![Column::text("", "sketch"), Column::text("", "method")];
        columns.extend(ALPHAS.map(|alpha| Column::number("Zipf", &alpha.to_string())));
        columns.push(Column::text("", "the paper (CAIDA)").from_source());
        let mut table = Table::new(caption, columns);
        for (kind, method) in
            SketchKind::ALL.into_iter().flat_map(|kind| Method::ALL.map(|method| (kind, method)))
        {
            let mut cells = vec![Cell::new(kind.name()), Cell::new(method.name())];
            cells.extend(ALPHAS.map(|alpha| mean_cell(self.errors(alpha, kind, method), 2)));
            cells.push(Cell::new(match (kind, method) {
                (SketchKind::CountSketch, Method::FourBits) => "close to 3",
                (SketchKind::CountMin, Method::FourBits) => "around 20",
                (SketchKind::CountSketch, Method::Lapolli) => "slightly less",
                (SketchKind::CountMin, Method::Lapolli) => "slightly more",
                _ => "",
            }));
            table.row(cells);
        }
        table
    }

    /// Returns all results by name.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for (alpha, kind) in
            ALPHAS.into_iter().flat_map(|alpha| SketchKind::ALL.map(|kind| (alpha, kind)))
        {
            for method in Method::ALL {
                let name = format!("p4entropy/{alpha:.1}/{}/{}", kind.name(), method.key());
                numbers.add(name, self.errors(alpha, kind, method));
            }
            // Of the table of Lapolli et al. above P4Entropy.
            let error = |method| Some(self.errors(alpha, kind, method)?.mean);
            let more = error(Method::Lapolli).zip(error(Method::FourBits));
            let name = format!("p4entropy/{alpha:.1}/{}/lapolli-more", kind.name());
            numbers.add_one(name, more.map(|(lapolli, ours)| lapolli - ours));
        }
        for figure in &self.figures {
            for curve in &figure.curves {
                let name = format!("p4entropy/{}/{}", figure.figure, curve.name);
                numbers.add_one(name, mean(&curve.errors));
            }
        }
        let (held, all) = self.held();
        numbers.add_one("p4entropy/intervals-held", Some(held as f64));
        numbers.add_one("p4entropy/intervals", Some(all as f64));
        numbers.add_one("p4entropy/derivative", Some(std::f64::consts::LOG2_E));
        numbers
    }

    /// Returns one line per window, sketch and method.
    fn windows(&self) -> String {
        let line = |finding: &Finding| {
            let Finding { alpha, seed, kind, shape, method, bits, truth, held } = *finding;
            let (rows, columns) = (shape.rows(), shape.columns());
            let held = held.map_or_else(String::new, |held| held.to_string());
            let (kind, method, error) = (kind.name(), method.name(), finding.error());
            format!(
                "{alpha},{seed},{kind},{rows},{columns},{method},{bits:.6},{truth:.6},{error:.4},{held}"
            )
        };
        statistics::csv(
            "alpha,seed,sketch,rows,columns,method,bits,exact_bits,error_percent,interval_holds",
            self.findings.iter().map(line),
        )
    }

    /// Returns the report, with `figures.csv` and `windows.csv`.
    pub(crate) fn report(&self) -> Report {
        let numbers = self.numbers();
        let parts = [
            ("methods", Part::Tables(vec![self.methods()])),
            ("charts", charts(&self.figures, 60.0)),
            ("tables", tables(&self.figures)),
            ("compared", Part::Tables(vec![reproduction_table("p4entropy", &numbers)])),
        ];
        let command = format!("flowgauge reproduce p4entropy --seeds {}", self.options.seeds);
        Report::new(
            include_str!("page.html"),
            &command,
            numbers,
            &parts,
            [("figures.csv", csv(&self.figures)), ("windows.csv", self.windows())],
        )
    }
}
