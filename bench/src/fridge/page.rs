//! Tables, plots and text of the report.

use super::equal::{self, Kind};
use super::experiment::{METHODS, shares};
use super::{
    ADMIT_LOG2, ADMITS_LOG2, Errors, Findings, MEMORIES_LOG2, MEMORY_LOG2, Method, REQUESTS,
    Recipe, Setup,
};
use crate::report::html::Page;
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Table};
use flowgauge_ctl::output::grouped;

const HALF: (f64, f64) = (520.0, 380.0);
const TONES: [Tone; 4] = [Tone::First, Tone::Second, Tone::Third, Tone::Fourth];

fn runs(seeds: u64) -> String {
    format!("{seeds} run{}", if seeds == 1 { "" } else { "s" })
}

/// Formats signed percentages and the gap.
fn signed(errors: Errors) -> Vec<Cell> {
    let percentiles = errors.percentiles.iter().map(|error| Cell::new(format!("{error:+.1}")));
    percentiles.chain([Cell::new(format!("{:.2}", errors.gap))]).collect()
}

/// Formats the mean absolute errors of single runs.
fn single(findings: &Findings, recipe: Recipe, setup: Setup) -> Vec<Cell> {
    let spreads = [0, 1, 2]
        .map(|index| findings.mean(recipe, setup, |errors| errors.percentiles[index].abs()));
    let gap = findings.mean(recipe, setup, |errors| errors.gap);
    let cell = |spread: Option<crate::statistics::Spread>, digits: usize| {
        spread.map_or_else(Cell::default, |spread| {
            let cell = Cell::new(format!("{:.digits$}", spread.mean));
            if spread.count > 1 {
                cell.detail(format!("±{:.digits$}", spread.deviation))
            } else {
                cell
            }
        })
    };
    spreads.into_iter().map(|spread| cell(spread, 1)).chain([cell(gap, 2)]).collect()
}

fn columns(recipe: Recipe, group: &str) -> Vec<Column> {
    let percentiles =
        recipe.percentiles().map(|percentile| Column::number(group, &format!("p{percentile}")));
    percentiles.into_iter().chain([Column::number(group, "gap")]).collect()
}

/// Returns figure 2.2 as a table.
pub(super) fn comparison_table(findings: &Findings, recipe: Recipe) -> Table {
    let caption = format!(
        "Delays {}: errors of percentiles with {} slots, % (gap: log2, from p5 to p95), {}",
        recipe.name(),
        grouped(1 << MEMORY_LOG2),
        runs(findings.seeds)
    );
    let mut all = vec![Column::text("", "")];
    all.extend(columns(recipe, "|error| of a run"));
    all.extend(columns(recipe, "all runs together"));
    let mut table = Table::new(caption, all);
    for setup in Setup::COMPARED {
        let mut row = vec![Cell::new(setup.name())];
        row.extend(single(findings, recipe, setup));
        let combined = findings.combined(recipe, setup);
        row.extend(combined.map_or_else(|| vec![Cell::default(); 4], signed));
        table.row(row);
    }
    table
}

/// Formats a share of two to a negative power.
fn share(log2: u8) -> String {
    if log2 == 0 { "1".to_owned() } else { format!("1/{}", grouped(1 << log2)) }
}

/// Returns the errors of a fridge by the share that it admits.
pub(super) fn admission_table(findings: &Findings) -> Table {
    let caption = format!(
        "|Error| of a run of a fridge of {} slots by the share of requests it admits",
        grouped(1 << MEMORY_LOG2)
    );
    let mut all = vec![Column::number("", "admitted"), Column::number("", "delays measured")];
    Recipe::ALL.into_iter().for_each(|recipe| all.extend(columns(recipe, recipe.name())));
    let mut table = Table::new(caption, all);
    for admit_log2 in ADMITS_LOG2 {
        let setup = Setup::admitting(admit_log2);
        let samples = findings
            .results(Recipe::LogUniform, setup)
            .map(|result| result.samples)
            .max()
            .unwrap_or(0);
        let mut row = vec![Cell::new(share(admit_log2)), Cell::new(grouped(samples))];
        Recipe::ALL.into_iter().for_each(|recipe| row.extend(single(findings, recipe, setup)));
        table.row(row);
    }
    table
}

/// Returns the largest gaps by memory.
pub(super) fn memory_table(findings: &Findings) -> Table {
    let caption = format!(
        "Largest gap from p5 to p95 of a run, log2, mean of {}, by memory",
        runs(findings.seeds)
    );
    let mut all = vec![Column::number("", "slots")];
    for recipe in Recipe::ALL {
        all.extend(METHODS.map(|method| Column::number(recipe.name(), &named(method))));
    }
    let mut table = Table::new(caption, all);
    for memory_log2 in MEMORIES_LOG2 {
        let mut row = vec![Cell::new(grouped(1 << memory_log2))];
        for recipe in Recipe::ALL {
            row.extend(METHODS.map(|method| {
                let spread = Setup::best(method, memory_log2)
                    .and_then(|setup| findings.mean(recipe, setup, |errors| errors.gap));
                spread.map_or_else(Cell::default, |spread| Cell::new(format!("{:.2}", spread.mean)))
            }));
        }
        table.row(row);
    }
    table
}

/// Returns the largest gaps if the trace ends with the last request or with the last answer.
pub(super) fn stopping_table(findings: &Findings) -> Table {
    let caption = format!(
        "Largest gap of a run with {} slots, log2, mean of {}, by the end of the trace",
        grouped(1 << MEMORY_LOG2),
        runs(findings.seeds)
    );
    let mut all = vec![Column::text("", "")];
    for recipe in Recipe::ALL {
        all.extend(
            ["last request", "last answer"].map(|until| Column::number(recipe.name(), until)),
        );
    }
    let mut table = Table::new(caption, all);
    for setup in Setup::stopping() {
        let mut row = vec![Cell::new(setup.name())];
        for recipe in Recipe::ALL {
            let gaps = [
                findings.mean(recipe, setup, |errors| errors.gap),
                findings.gap_after_all(recipe, setup),
            ];
            row.extend(gaps.map(|gap| {
                gap.map_or_else(Cell::default, |gap| Cell::new(format!("{:.2}", gap.mean)))
            }));
        }
        table.row(row);
    }
    table
}

fn named(method: Method) -> String {
    Setup { method, memory_log2: MEMORY_LOG2, admit_log2: 0 }.name()
}

/// Returns figure 2.2: distributions next to the true one.
fn distribution_chart(findings: &Findings, recipe: Recipe) -> Chart {
    let (x, y) =
        (Axis::logarithmic("delay, ms", 0.03, 100.0), Axis::linear("delays within, %", 0.0, 100.0));
    let points = |times: Vec<f64>| {
        times.into_iter().zip(shares()).map(|(time, share)| (time / 1e6, share * 100.0))
    };
    let truth = findings.truth(recipe).to_vec();
    let title = format!("Figure 2.2: distributions, {} delays", recipe.name());
    let chart = Chart::new(&title, x, y, HALF).dashed("truth", Tone::Neutral, points(truth));
    Setup::COMPARED.into_iter().zip(TONES).fold(chart, |chart, (setup, tone)| {
        chart.line(&setup.name(), tone, points(findings.times(recipe, setup).unwrap_or_default()))
    })
}

fn admission_chart(findings: &Findings, recipe: Recipe) -> Chart {
    let admitted = |log2: u8| 2_f64.powi(-i32::from(log2));
    let (x, y) = (
        Axis::logarithmic("share admitted", admitted(12), 1.0),
        Axis::logarithmic("|error| of a run, %", 0.1, 100.0),
    );
    let title = format!("Errors by the share admitted, {} delays", recipe.name());
    let chart = Chart::new(&title, x, y, HALF);
    recipe.percentiles().into_iter().enumerate().zip(TONES).fold(
        chart,
        |chart, ((index, percentile), tone)| {
            let points = ADMITS_LOG2.into_iter().rev().filter_map(|log2| {
                let spread = findings.mean(recipe, Setup::admitting(log2), |errors| {
                    errors.percentiles[index].abs()
                })?;
                Some((admitted(log2), spread.mean))
            });
            chart.line(&format!("p{percentile}"), tone, points)
        },
    )
}

fn memory_chart(findings: &Findings, recipe: Recipe) -> Chart {
    let slots = |log2: u8| f64::from(1_u32 << log2);
    let (first, last) = (MEMORIES_LOG2[0], MEMORIES_LOG2[MEMORIES_LOG2.len() - 1]);
    let (x, y) = (
        Axis::logarithmic("slots", slots(first), slots(last)),
        Axis::logarithmic("largest gap, log2", 0.01, 10.0),
    );
    let title = format!("Largest gap by memory, {} delays", recipe.name());
    let chart = Chart::new(&title, x, y, HALF);
    METHODS.into_iter().zip(TONES).fold(chart, |chart, (method, tone)| {
        let points = MEMORIES_LOG2.into_iter().filter_map(|log2| {
            let spread = findings.mean(recipe, Setup::best(method, log2)?, |errors| errors.gap)?;
            Some((slots(log2), spread.mean))
        });
        chart.line(&named(method), tone, points)
    })
}

/// Returns the report.
pub(super) fn page(findings: &Findings) -> Page {
    let mut page = Page::new("Round-trip delays without bias: the fridge and its relatives");
    let [fridge, overwrite, late, early] = Setup::COMPARED.map(|setup| {
        findings
            .mean(Recipe::LogUniform, setup, |errors| errors.gap)
            .map_or(0.0, |spread| spread.mean)
    });
    page.lead(&format!(
        "With {} slots and a million requests a second, the largest gap between the fridge's distribution and the true one is a factor of {:.2}. \
         If requests overwrite each other it is {:.0}. If they expire at the 99th percentile of the delays it is {:.2}, at the 80th {:.1}. The fridge needs \
         no threshold.",
        grouped(1 << MEMORY_LOG2),
        fridge.exp2(),
        overwrite.exp2(),
        late.exp2(),
        early.exp2(),
    ));
    comparison(findings, &mut page);
    admission(findings, &mut page);
    memory(findings, &mut page);
    method(findings, &mut page);
    page
}

/// Returns the command that makes the report.
pub(super) fn command(findings: &Findings) -> String {
    format!("flowgauge reproduce fridge --seeds {}", findings.seeds)
}

fn comparison(findings: &Findings, page: &mut Page) {
    page.heading("The fridge next to simple algorithms (figure 2.2)");
    page.paragraph(&format!(
        "All tables have {} slots. The fridge admits {} of the requests, the others all. Runs have the same trace and different hashes. All runs together, as in the dissertation, show bias without \
         variance.",
        grouped(1 << MEMORY_LOG2),
        share(ADMIT_LOG2)
    ));
    Recipe::ALL.into_iter().for_each(|recipe| page.table(&comparison_table(findings, recipe)));
    page.figure(
        &Recipe::ALL.map(|recipe| distribution_chart(findings, recipe)),
        "Distributions of all runs together, from p5 to p99.",
    );
    page.list([
        "<strong>The dissertation says</strong> that the fridge reproduces the true distribution closely, most of all near its tail, and that the simple algorithm \
         with a threshold near the true 99th percentile is biased against long delays (§2.4.1). Its trace of 10 million packets is not public. Its figure \
         is known in words only.",
        "<strong>We agree</strong> on the fridge, and on the bias of tables that lose requests before their answers come: by overwriting, or by a threshold that is \
         too low (p80).",
        "<strong>We disagree</strong> on a threshold at the 99th percentile: it costs a few percent here. A request that was put in the table stays until then, and a \
         request that finds no free slot is lost whatever its delay is. Only the last hundredth of the delays is cut off. We do not have the trace on which the bias was \
         large.",
        "<strong>A threshold has to be known</strong> before delays are. If it is too low, the tail is missing. If it is too high, unanswered requests fill the table, \
         and few delays are measured. The fridge needs the order of magnitude only, see below.",
        "<strong>Bimodal delays</strong>: the step between the two groups is left out of the gap (p45 to p55), as any error of the groups' sizes moves it by the distance \
         of the groups. Overwriting finds hardly any delay of the longer group.",
    ]);
}

fn admission(findings: &Findings, page: &mut Page) {
    page.heading("Which share of the requests to admit (§2.4.2)");
    page.paragraph(
        "A table that admits too much replaces requests before their answers come: the few that survive weigh a lot, and the error is large. One that \
         admits too little has few delays to tell from. In between, the life of a request in the table is about as long as the delays. Weights end at 8 \
         times the number of slots, so that a table that admits far too much is biased as well.",
    );
    page.table(&admission_table(findings));
    page.figure(
        &Recipe::ALL.map(|recipe| admission_chart(findings, recipe)),
        "Mean absolute errors of single runs.",
    );
}

fn memory(findings: &Findings, page: &mut Page) {
    page.heading("Memory, and several fridges against one (§2.4.3)");
    page.paragraph(
        "One fridge admits the share that keeps a request in the table for 2<sup>16</sup> requests, whatever its size. Four fridges share the same slots: each \
         next one admits a quarter of what the one before admits, so that requests stay four times as long. They take 2<sup>9</sup> slots at least.",
    );
    page.table(&memory_table(findings));
    page.figure(&Recipe::ALL.map(|recipe| memory_chart(findings, recipe)), "Mean of single runs.");
    let better = Recipe::ALL.map(|recipe| {
        let gap = |method, log2| {
            findings
                .mean(recipe, Setup::best(method, log2)?, |errors| errors.gap)
                .map(|spread| spread.mean)
        };
        let sizes = MEMORIES_LOG2
            .into_iter()
            .filter_map(|log2| Some((gap(Method::Fridge, log2)?, gap(Method::MultiFridge, log2)?)));
        let (wins, all) =
            sizes.fold((0, 0), |(wins, all), (one, four)| (wins + u32::from(four < one), all + 1));
        format!("on {} traffic at {wins} of {all} sizes", recipe.name())
    });
    page.paragraph(&format!(
        "<strong>Found:</strong> four fridges have the smaller gap {}. The dissertation finds several fridges better where memory is small and delays are spread \
         wide (§2.3.2). Here one fridge is given the right share to admit, which nobody knows beforehand. Four serve a wider range of delays without.",
        better.join(", and ")
    ));
    equal_errors(findings, page);
    page.heading("When requests stop");
    page.table(&stopping_table(findings));
    page.paragraph(
        "All figures above end with the last request. If answers are counted until the last one, the requests that are in a table at the end stay there, and \
         each is answered. One fridge remains unbiased. Four fridges do not: the one that admits most has seen no long delay before, and now sees a few hundred that \
         nobody overwrites. Their weights are small, so that its estimate, which is far too low, looks precise and is trusted most. Weights that depend on \
         what was measured promise nothing about bias. Whenever the rate of requests falls at once, this happens.",
    );
}

fn equal_errors(findings: &Findings, page: &mut Page) {
    page.heading("Memory for an equal error (§1.4)");
    page.table(&equal::table(&findings.sizes));
    let less = |kind, other| {
        let (wins, all) = equal::wins(&findings.sizes, kind, other);
        format!("at {wins} of {all}")
    };
    page.paragraph(&format!(
        "<strong>The dissertation's headline</strong> is that fridges take two to four times less memory than hash-indexed arrays. One fridge needs fewer slots than \
         overwriting {}, fewer than expiry in two stages {}, and fewer than expiry in five stages {}, of three percentiles at three longest delays T. Four \
         fridges need fewer than one {}.",
        less(Kind::Fridge, Kind::Overwrite),
        less(Kind::Fridge, Kind::Expiry),
        less(Kind::Fridge, Kind::ExpiryInFive),
        less(Kind::FourFridges, Kind::Fridge),
    ));
    page.paragraph(
        "<strong>When it holds.</strong> Expiry has the true 99th percentile as its time here, which has to be known beforehand. While its table has room for the requests \
         of that time, it loses a percent of the delays. With T = 1,000 ms these are up to a million requests, most of the slots are taken by requests without an \
         answer, and few delays are measured. A fridge needs the order of magnitude of T only: its share admits a request every so often that it stays for 0.66 T.",
    );
    page.paragraph(&format!(
        "<strong>A fridge in stages</strong> (§2.3.1) moves a request that is overwritten on to the next stage. Equation 2.4 says that it is the worse for delays beyond its mean \
         lifetime. These traces end at 1.5 lifetimes: it needs fewer slots than one fridge {}. The simulated tables are of any size; weights and estimates are \
         those of the dataplane and the controller.",
        less(Kind::Staged, Kind::Fridge),
    ));
    page.paragraph(
        "<strong>Weights.</strong> Equation 2.1 has (1 − p/M)<sup>x</sup> as the probability that a request is still stored, where x counts insertions since. But an insertion takes its \
         slot with probability 1/M; p/M is that of a request of which a share p is inserted, so that x would have to count all requests. flowgauge counts insertions, \
         and weighs a delay by (1 − 1/M)<sup>−x</sup> / p.",
    );
}

fn method(findings: &Findings, page: &mut Page) {
    page.heading("Method");
    page.list([
        format!(
            "{} requests went through {} tables by the code that every software dataplane runs (<code>flowgauge_core::delay</code>), flowgauge {}.",
            grouped(findings.outcomes.iter().map(|outcome| outcome.run.requests).sum()),
            findings.outcomes.first().map_or(0, |outcome| outcome.results.len()),
            env!("CARGO_PKG_VERSION")
        ),
        format!(
            "Traces: <code>delay,requests={REQUESTS}</code> of <code>flowgauge generate</code> (§2.4: a million requests a second, 40 % of them answered \
             after 0.1 to 100 ms), with <code>shape=log-uniform</code> and <code>shape=bimodal</code>. Hashes have the seeds 1 to {}.",
            findings.seeds
        ),
        "Requests of either direction have a table of their own. Slots are those of both together: each half has half of the requests.".to_owned(),
        "Delays are counted in buckets, which adds up to 1.6 % to an error. The true percentiles are exact.".to_owned(),
        "<code>errors.csv</code> has one line a run and table, <code>percentiles.csv</code> the curves of figure 2.2.".to_owned(),
        format!("To repeat: <code>{}</code>", command(findings)),
    ]);
}
