//! Tables, charts and files of the report, whose text is `page.html`.

use super::{
    ALGORITHMS, BETA, Findings, MEMORIES_LOG2, MEMORY_LOG2, Outcome, Setup, TableResult, Traffic,
};
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Part, Report, Table, number_cell, runs};
use crate::statistics::{Spread, csv};
use flowgauge_core::reorder::Algorithm;
use flowgauge_ctl::measurement::reorder::estimate::{LEAST_LATE, MUCH};
use flowgauge_ctl::output::grouped;

/// "Our algorithms correctly identify 80% of the prefixes with heavy packet reordering using
/// moderate memory resources" (§1.4), in percent. Measured on traces of a campus and a backbone;
/// the number of buckets is in chapter 3, which is not at hand.
const RECALL_OF_PAPER: f64 = 80.0;

/// Target of this project for recall and precision with 2^8 buckets, in percent.
pub(super) const TARGET: f64 = 80.0;

/// Measure of a table: its name, its value, and the digits of its percentage.
#[derive(Clone, Copy)]
struct Measure(&'static str, fn(&Outcome, &TableResult) -> Option<f64>, usize);

const RECALL: Measure = Measure("recall", Outcome::recall, 1);
const MEANT_RECALL: Measure = Measure("meant", Outcome::recall_by_design, 1);
const PRECISION: Measure = Measure("precision", |_, result| result.precision(), 1);
const ERROR: Measure = Measure("error", |_, result| result.error, 2);
const FOLLOWED: Measure = Measure("followed", |_, result| Some(result.share_followed()), 1);
const MEASURES: [Measure; 5] = [RECALL, MEANT_RECALL, PRECISION, ERROR, FOLLOWED];

impl Measure {
    fn of(self, findings: &Findings, traffic: Traffic, setup: Setup) -> Option<Spread> {
        let Measure(_, of, _) = self;
        findings.spread(traffic, setup, of)
    }

    /// Formats the mean in percent.
    fn mean(self, findings: &Findings, traffic: Traffic, setup: Setup) -> Cell {
        let Measure(.., digits) = self;
        number_cell(self.of(findings, traffic, setup).map(|spread| spread.mean * 100.0), digits)
    }

    /// Formats the mean with the standard deviation of a run.
    fn with_spread(self, findings: &Findings, traffic: Traffic, setup: Setup) -> Cell {
        let Measure(.., digits) = self;
        match self.of(findings, traffic, setup) {
            Some(Spread { mean, deviation, count: 2.., .. }) => {
                Cell::new(format!("{:.digits$} ±{:.digits$}", mean * 100.0, deviation * 100.0))
            }
            _ => self.mean(findings, traffic, setup),
        }
    }
}

fn setup(algorithm: Algorithm, memory_log2: u8) -> Setup {
    Setup { algorithm, memory_log2 }
}

fn measure_columns() -> impl Iterator<Item = Column> {
    ALGORITHMS.into_iter().flat_map(|algorithm| {
        MEASURES.map(|Measure(name, ..)| Column::number(algorithm.name(), name))
    })
}

/// Returns the claim compared with our measurements.
fn claim_table(findings: &Findings) -> Table {
    let caption = format!(
        "Heavy prefixes with {} buckets, usual traffic, %, mean of {}",
        grouped(1 << MEMORY_LOG2),
        runs(findings.seeds)
    );
    let mut all = vec![
        Column::text("", ""),
        Column::number("dissertation", "some memory").from_source(),
        Column::number("target of this project", "at least"),
    ];
    all.extend(ALGORITHMS.map(|algorithm| Column::number("ours", algorithm.name())));
    let mut table = Table::new(caption, all);
    let rows = [
        ("heavy prefixes that are found (recall)", Some(RECALL_OF_PAPER), Some(TARGET)),
        ("heavy prefixes by design that are found (meant)", None, None),
        ("of those found, heavy ones (precision)", None, Some(TARGET)),
        ("mean |error| of the share out of order, points", None, None),
        ("segments that are followed", None, None),
    ];
    for ((name, dissertation, target), measure) in rows.into_iter().zip(MEASURES) {
        let known = [dissertation, target].map(|known| number_cell(known, 0));
        let ours = ALGORITHMS.map(|algorithm| {
            measure.with_spread(findings, Traffic::Usual, setup(algorithm, MEMORY_LOG2))
        });
        table.row([Cell::new(name)].into_iter().chain(known).chain(ours).collect());
    }
    table
}

/// Returns the results for the default traffic by memory.
fn memory_table(findings: &Findings) -> Table {
    let caption = format!(
        "Usual traffic by memory, %, mean of {} ± deviation of a run",
        runs(findings.seeds)
    );
    let mut all = vec![Column::number("", "buckets")];
    all.extend(measure_columns());
    let mut table = Table::new(caption, all);
    for memory_log2 in MEMORIES_LOG2 {
        let mut row = vec![Cell::new(grouped(1 << memory_log2))];
        row.extend(measures(findings, Traffic::Usual, memory_log2));
        table.row(row);
    }
    table
}

/// Returns the measures of both algorithms, with spreads for those in the claim.
fn measures(findings: &Findings, traffic: Traffic, memory_log2: u8) -> Vec<Cell> {
    let row = |algorithm| {
        let setup = setup(algorithm, memory_log2);
        [
            RECALL.with_spread(findings, traffic, setup),
            MEANT_RECALL.mean(findings, traffic, setup),
            PRECISION.with_spread(findings, traffic, setup),
            ERROR.mean(findings, traffic, setup),
            FOLLOWED.mean(findings, traffic, setup),
        ]
    };
    ALGORITHMS.into_iter().flat_map(row).collect()
}

/// Returns the results for all traffic at the size of the claim.
fn traffic_table(findings: &Findings) -> Table {
    let caption = format!(
        "Traffic and what is found with {} buckets, %, mean of {} ± deviation of a run",
        grouped(1 << MEMORY_LOG2),
        runs(findings.seeds)
    );
    let mut all = vec![Column::text("", "")];
    all.extend(
        ["heavy", "segments/flow", "active flows"].map(|name| Column::number("traffic", name)),
    );
    all.extend(measure_columns());
    let mut table = Table::new(caption, all);
    for traffic in Traffic::ALL {
        let mut row = vec![
            Cell::new(traffic.name()),
            Cell::new(format!("{:.1}", findings.mean(traffic, |outcome| outcome.heavy as f64))),
            Cell::new(format!(
                "{:.1}",
                findings.mean(traffic, |outcome| outcome.segments_per_flow)
            )),
            Cell::new(grouped(
                findings.mean(traffic, |outcome| outcome.active_flows).round() as u64
            )),
        ];
        row.extend(measures(findings, traffic, MEMORY_LOG2));
        table.row(row);
    }
    table
}

/// Returns recall and precision for other traffic by memory.
fn others_table(findings: &Findings) -> Table {
    let caption = format!(
        "Recall / precision of other traffic by memory, %, mean of {}",
        runs(findings.seeds)
    );
    let others = || Traffic::ALL.into_iter().filter(|traffic| *traffic != Traffic::Usual);
    let mut all = vec![Column::number("", "buckets")];
    others().for_each(|traffic| {
        all.extend(ALGORITHMS.map(|algorithm| Column::number(traffic.name(), algorithm.name())))
    });
    let mut table = Table::new(caption, all);
    for memory_log2 in MEMORIES_LOG2 {
        let mut row = vec![Cell::new(grouped(1 << memory_log2))];
        for traffic in others() {
            row.extend(ALGORITHMS.map(|algorithm| {
                let setup = setup(algorithm, memory_log2);
                let both = [RECALL, PRECISION].map(|measure| measure.of(findings, traffic, setup));
                let [recall, precision] = both.map(|spread| {
                    spread.map_or_else(
                        || "-".to_owned(),
                        |spread| format!("{:.0}", spread.mean * 100.0),
                    )
                });
                Cell::new(format!("{recall} / {precision}"))
            }));
        }
        table.row(row);
    }
    table
}

/// Returns a plot with recall as lines, and precision dashed.
fn chart(findings: &Findings, traffic: Traffic) -> Chart {
    let buckets = |log2: u8| f64::from(1_u32 << log2);
    let (first, last) = (MEMORIES_LOG2[0], MEMORIES_LOG2[MEMORIES_LOG2.len() - 1]);
    let (x, y) = (
        Axis::logarithmic("buckets", buckets(first), buckets(last)),
        Axis::linear("%", 0.0, 100.0),
    );
    let title = format!("Recall and precision, {} traffic", traffic.name());
    let chart = Chart::new(&title, x, y);
    ALGORITHMS.into_iter().zip(Tone::ALL).fold(chart, |chart, (algorithm, tone)| {
        let points = |measure: Measure| {
            MEMORIES_LOG2.into_iter().filter_map(move |log2| {
                Some((
                    buckets(log2),
                    measure.of(findings, traffic, setup(algorithm, log2))?.mean * 100.0,
                ))
            })
        };
        let name = algorithm.name();
        chart.line(&format!("{name}: recall"), tone, points(RECALL)).dashed(
            &format!("{name}: precision"),
            tone,
            points(PRECISION),
        )
    })
}

/// Describes at how many sizes the hybrid is better.
fn wins(findings: &Findings, traffic: Traffic, measure: Measure, more: bool) -> Part {
    let is_better = |log2| {
        let mean = |algorithm| Some(measure.of(findings, traffic, setup(algorithm, log2))?.mean);
        let (hybrid, sampling) = (mean(Algorithm::Hybrid)?, mean(Algorithm::Sampling)?);
        Some(if more { hybrid > sampling } else { hybrid < sampling })
    };
    let compared: Vec<bool> = MEMORIES_LOG2.into_iter().filter_map(is_better).collect();
    let wins = compared.iter().filter(|is_better| **is_better).count();
    Part::Text(format!("{wins} of {} sizes", compared.len()))
}

impl Findings {
    /// Returns the report, with `runs.csv`.
    pub(crate) fn report(&self) -> Report {
        let sampling = setup(Algorithm::Sampling, MEMORY_LOG2);
        let missed = |traffic| {
            self.sum(traffic, sampling, |outcome, result| outcome.heavy - result.found_heavy)
        };
        let by_chance = self.sum(Traffic::Usual, sampling, |outcome, result| {
            (outcome.heavy - outcome.heavy_by_design)
                - (result.found_heavy - result.found_by_design)
        });
        let unseen = self.sum(Traffic::SmallFlows, sampling, |_, result| result.unseen);
        let followed = |traffic| {
            let followed = FOLLOWED.of(self, traffic, sampling);
            followed.map_or_else(String::new, |spread| format!("{:.0}", spread.mean * 100.0))
        };
        let options = Traffic::ALL
            .map(|traffic| format!("<code>{}</code> ({})", traffic.options(), traffic.name()));
        let packets = self.outcomes.iter().map(|outcome| outcome.run.packets).sum();
        let tables = self.outcomes.first().map_or(0, |outcome| outcome.results.len());
        let parts = [
            ("buckets", Part::Text(grouped(1 << MEMORY_LOG2))),
            ("beta", Part::Text(BETA.to_string())),
            ("much", Part::Text(format!("{:.0}", MUCH * 100.0))),
            ("late", Part::Text(LEAST_LATE.to_string())),
            ("claim", Part::Tables(vec![claim_table(self)])),
            ("memory", Part::Tables(vec![memory_table(self)])),
            ("missed", Part::Text(missed(Traffic::Usual).to_string())),
            ("missed-by-chance", Part::Text(by_chance.to_string())),
            ("wins-followed", wins(self, Traffic::Usual, FOLLOWED, true)),
            ("wins-error", wins(self, Traffic::Usual, ERROR, false)),
            ("traffic", Part::Tables(vec![traffic_table(self)])),
            ("others", Part::Tables(vec![others_table(self)])),
            ("charts", Part::Charts(Traffic::ALL.map(|traffic| chart(self, traffic)).to_vec())),
            ("followed", Part::Text(followed(Traffic::Usual))),
            ("followed-small", Part::Text(followed(Traffic::SmallFlows))),
            ("missed-small", Part::Text(missed(Traffic::SmallFlows).to_string())),
            ("unseen-small", Part::Text(unseen.to_string())),
            ("wins-small", wins(self, Traffic::SmallFlows, RECALL, true)),
            ("packets", Part::Text(grouped(packets))),
            ("tables", Part::Text(tables.to_string())),
            ("options", Part::Text(options.join(", "))),
        ];
        let command = format!("flowgauge reproduce reorder --seeds {}", self.seeds);
        Report::new(
            include_str!("page.html"),
            &command,
            self.numbers(),
            &parts,
            [("runs.csv", runs_csv(self))],
        )
    }
}

/// Returns one line per run and table.
fn runs_csv(findings: &Findings) -> String {
    let results = findings
        .outcomes
        .iter()
        .flat_map(|outcome| outcome.results.iter().map(move |result| (outcome, result)));
    let lines = results.map(|(outcome, result)| {
        let (run, setup) = (outcome.run, result.setup);
        let [recall, precision, error] = [outcome.recall(result), result.precision(), result.error]
            .map(|value| value.map_or_else(String::new, |value| format!("{value:.5}")));
        format!(
            "{},{},{},{},{:.2},{:.1},{},{},{},{},{},{},{},{recall},{precision},{error},{},{}",
            run.traffic.name(),
            run.seed,
            outcome.heavy,
            outcome.heavy_by_design,
            outcome.segments_per_flow,
            outcome.active_flows,
            setup.algorithm.name(),
            1_u32 << setup.memory_log2,
            result.found,
            result.found_heavy,
            result.found_by_design,
            result.found_light,
            result.unseen,
            result.followed,
            result.segments
        )
    });
    csv(
        "traffic,seed,heavy,meant,segments_per_flow,active_flows,algorithm,buckets,found,found_heavy,found_meant,found_light,heavy_unseen,\
         recall,precision,error,followed,segments",
        lines,
    )
}
