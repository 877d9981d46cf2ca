//! Tables, plots and text of the report.

use super::{ALGORITHMS, BETA, Findings, MEMORIES_LOG2, MEMORY_LOG2, Setup, Traffic, known};
use crate::report::html::Page;
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Table};
use crate::statistics::Spread;
use flowgauge_core::reorder::Algorithm;
use flowgauge_ctl::measurement::reorder::estimate::{LEAST_LATE, MUCH};
use flowgauge_ctl::output::grouped;

const HALF: (f64, f64) = (520.0, 340.0);

/// Measure of a table: its name, its value, and the digits of its percentage.
#[derive(Clone, Copy)]
struct Measure(&'static str, fn(&Findings, Traffic, Setup) -> Option<Spread>, usize);

const RECALL: Measure = Measure("recall", Findings::recall, 1);
const MEANT_RECALL: Measure = Measure("meant", Findings::meant_recall, 1);
const PRECISION: Measure = Measure("precision", Findings::precision, 1);
const ERROR: Measure = Measure("error", Findings::error, 2);
const FOLLOWED: Measure = Measure("followed", Findings::followed, 1);
const MEASURES: [Measure; 5] = [RECALL, MEANT_RECALL, PRECISION, ERROR, FOLLOWED];

impl Measure {
    fn of(self, findings: &Findings, traffic: Traffic, setup: Setup) -> Option<Spread> {
        let Measure(_, of, _) = self;
        of(findings, traffic, setup)
    }

    /// Formats the mean in percent.
    fn mean(self, findings: &Findings, traffic: Traffic, setup: Setup) -> Cell {
        let Measure(.., digits) = self;
        let spread = self.of(findings, traffic, setup);
        spread.map_or_else(Cell::default, |spread| {
            Cell::new(format!("{:.digits$}", spread.mean * 100.0))
        })
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

    fn column(self, algorithm: Algorithm) -> Column {
        let Measure(name, ..) = self;
        Column::number(algorithm.name(), name)
    }
}

fn runs(seeds: u64) -> String {
    format!("{seeds} run{}", if seeds == 1 { "" } else { "s" })
}

fn setup(algorithm: Algorithm, memory_log2: u8) -> Setup {
    Setup { algorithm, memory_log2 }
}

fn at_claim(algorithm: Algorithm) -> Setup {
    setup(algorithm, MEMORY_LOG2)
}

/// Returns the number of heavy prefixes that sampling did not find, over all runs.
fn missed(findings: &Findings, traffic: Traffic) -> u64 {
    findings
        .sum(traffic, at_claim(Algorithm::Sampling), |outcome, result| outcome.heavy - result.right)
}

fn mean_percent(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "none".to_owned(), |spread| format!("{:.0} %", spread.mean * 100.0))
}

/// Returns the claim compared with our measurements.
pub(super) fn claim_table(findings: &Findings) -> Table {
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
        ("heavy prefixes that are found (recall)", Some(known::RECALL), Some(known::TARGET)),
        ("heavy prefixes by design that are found (meant)", None, None),
        ("of those found, heavy ones (precision)", None, Some(known::TARGET)),
        ("mean |error| of the share out of order, points", None, None),
        ("segments that are followed", None, None),
    ];
    for ((name, dissertation, target), measure) in rows.into_iter().zip(MEASURES) {
        let known = [dissertation, target].map(|known| {
            known.map_or_else(Cell::default, |known| Cell::new(format!("{known:.0}")))
        });
        let ours = ALGORITHMS
            .map(|algorithm| measure.with_spread(findings, Traffic::Usual, at_claim(algorithm)));
        table.row([Cell::new(name)].into_iter().chain(known).chain(ours).collect());
    }
    table
}

/// Returns the results for the default traffic by memory.
pub(super) fn memory_table(findings: &Findings) -> Table {
    let caption = format!(
        "Usual traffic by memory, %, mean of {} ± deviation of a run",
        runs(findings.seeds)
    );
    let mut all = vec![Column::number("", "buckets")];
    ALGORITHMS
        .into_iter()
        .for_each(|algorithm| all.extend(MEASURES.map(|measure| measure.column(algorithm))));
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
pub(super) fn traffic_table(findings: &Findings) -> Table {
    let caption = format!(
        "Traffic and what is found with {} buckets, %, mean of {} ± deviation of a run",
        grouped(1 << MEMORY_LOG2),
        runs(findings.seeds)
    );
    let mut all = vec![Column::text("", "")];
    all.extend(
        ["heavy", "segments/flow", "active flows"].map(|name| Column::number("traffic", name)),
    );
    ALGORITHMS
        .into_iter()
        .for_each(|algorithm| all.extend(MEASURES.map(|measure| measure.column(algorithm))));
    let mut table = Table::new(caption, all);
    for traffic in Traffic::ALL {
        let mut row = vec![
            Cell::new(traffic.name()),
            Cell::new(format!("{:.1}", findings.mean(traffic, |outcome| outcome.heavy as f64))),
            Cell::new(format!("{:.1}", findings.mean(traffic, |outcome| outcome.length))),
            Cell::new(grouped(findings.mean(traffic, |outcome| outcome.active).round() as u64)),
        ];
        row.extend(measures(findings, traffic, MEMORY_LOG2));
        table.row(row);
    }
    table
}

/// Returns recall and precision for other traffic by memory.
pub(super) fn others_table(findings: &Findings) -> Table {
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
                let both = [findings.recall(traffic, setup), findings.precision(traffic, setup)];
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
    let chart = Chart::new(&title, x, y, HALF);
    ALGORITHMS.into_iter().zip([Tone::First, Tone::Second]).fold(
        chart,
        |chart, (algorithm, tone)| {
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
        },
    )
}

/// Returns the report.
pub(super) fn page(findings: &Findings) -> Page {
    let mut page = Page::new("Prefixes that reorder packets: flow sampling and the hybrid");
    let of = |measure: Measure, traffic, algorithm| {
        mean_percent(measure.of(findings, traffic, at_claim(algorithm)))
    };
    page.lead(&format!(
        "With {} buckets for 2,000 prefixes, flow sampling finds {} of the heavy prefixes of the usual traffic, and the hybrid {}. Of the prefixes \
         found, {} and {} are heavy. If all flows are small, sampling finds {} and the hybrid {}.",
        grouped(1 << MEMORY_LOG2),
        of(RECALL, Traffic::Usual, Algorithm::Sampling),
        of(RECALL, Traffic::Usual, Algorithm::Hybrid),
        of(PRECISION, Traffic::Usual, Algorithm::Sampling),
        of(PRECISION, Traffic::Usual, Algorithm::Hybrid),
        of(RECALL, Traffic::SmallFlows, Algorithm::Sampling),
        of(RECALL, Traffic::SmallFlows, Algorithm::Hybrid),
    ));
    claim(findings, &mut page);
    traffic(findings, &mut page);
    method(findings, &mut page);
    page
}

/// Returns the command that makes the report.
pub(super) fn command(findings: &Findings) -> String {
    format!("flowgauge reproduce reorder --seeds {}", findings.seeds)
}

/// Describes at how many sizes the hybrid is better.
fn wins(findings: &Findings, traffic: Traffic, measure: Measure, more: bool) -> String {
    let (wins, all) = findings.wins(|hybrid, sampling| {
        let [hybrid, sampling] =
            [hybrid, sampling].map(|setup| measure.of(findings, traffic, setup));
        let (hybrid, sampling) = (hybrid?.mean, sampling?.mean);
        Some(if more { hybrid > sampling } else { hybrid < sampling })
    });
    format!("{wins} of {all} sizes")
}

fn claim(findings: &Findings, page: &mut Page) {
    page.heading("Next to the dissertation (chapter 3)");
    page.paragraph(&format!(
        "A prefix is heavy if it has at least {BETA} data segments and more than {:.0} % of them are out of order. It is found if at least \
         {LEAST_LATE} followed segments, and more than {:.0} % of them, are out of order. The generator means 38 prefixes to be heavy: of their segments 5 % are late. Other prefixes are heavy by chance: of \
         their segments 0.5 % are late, or none.",
        MUCH * 100.0,
        MUCH * 100.0
    ));
    page.table(&claim_table(findings));
    page.table(&memory_table(findings));
    page.list([
        "<strong>The dissertation says</strong>: \u{201c}First, we sample as many flows as possible, regardless of their sizes, but only for a short period at \
         a time. Next, we separately monitor the large flows over long periods, in addition to the flow sampling.\u{201d} The algorithms \
         \u{201c}correctly identify 80% of the prefixes with heavy packet reordering using moderate memory resources\u{201d} (§1.4). Its chapter 3, with the algorithms, the \
         figures and the number of buckets, is not at hand. Its traces of a campus and a backbone are not public. The target of 80 % of recall and of \
         precision with 2<sup>8</sup> buckets is ours."
            .to_owned(),
        format!(
            "<strong>We agree</strong> on the usual traffic: both algorithms reach 80 % with few false positives, at all these sizes. Segments of a prefix \
             share their path, so that a few of its flows tell about all. Of {} heavy prefixes that sampling with {} buckets missed in these runs, {} are heavy by \
             chance: they have a few hundred segments, and a handful of these are late.",
            missed(findings, Traffic::Usual),
            grouped(1 << MEMORY_LOG2),
            findings.sum(Traffic::Usual, at_claim(Algorithm::Sampling), |outcome, result| {
                (outcome.heavy - outcome.meant) - (result.right - result.meant)
            }),
        ),
        format!(
            "<strong>We do not see</strong> that the hybrid finds more of the usual traffic's heavy prefixes: {} with {} buckets, next to {} by sampling. Both find nearly all \
             that can be found. One segment in 64 of other flows takes a bucket of sampling, so that large flows get buckets more often there as well.",
            mean_percent(findings.recall(Traffic::Usual, at_claim(Algorithm::Hybrid))),
            grouped(1 << MEMORY_LOG2),
            mean_percent(findings.recall(Traffic::Usual, at_claim(Algorithm::Sampling))),
        ),
        format!(
            "<strong>The hybrid is better</strong> in other ways: it follows more segments at {}, and its shares are closer to the truth at {}. If flows are small it \
             finds more, see below.",
            wins(findings, Traffic::Usual, FOLLOWED, true),
            wins(findings, Traffic::Usual, ERROR, false),
        ),
        format!(
            "<strong>Precision falls as memory grows</strong>, most of all with loss. With more flows followed, more small prefixes have {LEAST_LATE} late segments. \
             Some of them reorder as much as heavy ones and have fewer than {BETA} segments. In the others more of the followed segments \
             than of all are late, by chance."
        ),
    ]);
}

fn traffic(findings: &Findings, page: &mut Page) {
    page.heading("Which traffic is hard");
    page.paragraph(
        "Active flows are those with a segment within 1.07 s, after which a bucket is free: so many ask for buckets at a time. The usual traffic has \
         20,000 flows with Zipf-distributed sizes.",
    );
    page.table(&traffic_table(findings));
    page.table(&others_table(findings));
    let charts = Traffic::ALL.map(|traffic| chart(findings, traffic));
    page.figure(&charts, "Recall and, dashed, precision by memory; means of all runs.");
    let sampling = at_claim(Algorithm::Sampling);
    page.list([
        format!(
            "<strong>The size of flows decides.</strong> If every flow is small, {} buckets of sampling follow {} of the segments, next to {} of the usual \
             traffic. One segment in 64 takes a bucket from another flow. The bucket then follows the rest of its train, six segments on the average, and nothing \
             until the next one comes, as small flows have few further trains. More buckets help only when there are so many that some are idle. Of {} heavy \
             prefixes that were missed, {} had fewer than {LEAST_LATE} late segments among those followed.",
            grouped(1 << MEMORY_LOG2),
            mean_percent(findings.followed(Traffic::SmallFlows, sampling)),
            mean_percent(findings.followed(Traffic::Usual, sampling)),
            missed(findings, Traffic::SmallFlows),
            findings.sum(Traffic::SmallFlows, sampling, |_, result| result.unseen),
        ),
        format!(
            "<strong>The hybrid is better if flows are small</strong>: it finds more at {}. Places of its other half belong to flows, not to prefixes. A flow gets one whenever \
             one is idle, and need not compete with all flows of its prefix.",
            wins(findings, Traffic::SmallFlows, RECALL, true),
        ),
        "<strong>The number of flows at a time does not matter</strong>: in the fast traffic several times as many are active, and as much is found. Who takes a bucket \
         depends on segments more than on time."
            .to_owned(),
        format!(
            "<strong>Loss looks like reordering.</strong> What was lost before the point of measurement and is sent again comes behind later segments. \
             Sequence numbers do not tell why, so the truth counts these segments too: half a percent of all. It lifts prefixes that reorder lightly up to about {:.0} %. \
             Whether these are heavy, and whether they are found, is then a matter of chance. Those that are meant to be heavy are found as before.",
            MUCH * 100.0
        ),
        "<strong>The depth does not matter</strong>: a segment is late however far behind it comes.".to_owned(),
    ]);
}

fn method(findings: &Findings, page: &mut Page) {
    page.heading("Method");
    let options = Traffic::ALL
        .map(|traffic| format!("<code>{}</code> ({})", traffic.options(), traffic.name()));
    page.list([
        format!(
            "{} packets went through {} tables by the code that every software dataplane runs (<code>flowgauge_core::reorder</code>), flowgauge {}.",
            grouped(findings.outcomes.iter().map(|outcome| outcome.run.packets).sum()),
            findings.outcomes.first().map_or(0, |outcome| outcome.results.len()),
            env!("CARGO_PKG_VERSION")
        ),
        format!(
            "Traffic of <code>flowgauge generate</code>: {}. It has 2,000 prefixes. 38 of the 76 largest have 5 % of their segments late, and 162 of \
             the others 0.5 %. Traces and hashes have the seeds 1 to {}. Each trace is one window.",
            options.join(", "),
            findings.seeds
        ),
        format!(
            "With fewer than {BETA} segments, more than {:.0} % of them can be fewer than {LEAST_LATE}, and such a prefix could not be found. \
             The dissertation's bound is in chapter 3, which is not at hand.",
            MUCH * 100.0
        ),
        "The truth is the generator's: exact counts of every prefix. Prefixes found are judged by the sums of the core, without intervals.".to_owned(),
        "Buckets of the hybrid are those of both of its halves together.".to_owned(),
        "<code>runs.csv</code> has one line a run and table.".to_owned(),
        format!("To repeat: <code>{}</code>", command(findings)),
    ]);
}
