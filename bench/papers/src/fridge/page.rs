//! Tables, charts and files of the report, whose text is `page.html`.

use super::experiment::{METHODS, shares};
use super::slots::{self, Kind};
use super::{
    ADMIT_LOG2, ADMITS_LOG2, Errors, Findings, MEMORIES_LOG2, MEMORY_LOG2, Method, REQUESTS,
    Recipe, Setup,
};
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Part, Report, Table, mean_cell, number_cell, runs};
use crate::statistics::csv;
use flowgauge_ctl::output::grouped;

/// Formats signed percentages and the gap.
fn signed(errors: Errors) -> Vec<Cell> {
    let percentiles = errors.percentiles.iter().map(|error| Cell::new(format!("{error:+.1}")));
    percentiles.chain([Cell::new(format!("{:.2}", errors.gap))]).collect()
}

/// Formats the mean absolute errors of single runs.
fn single(findings: &Findings, recipe: Recipe, setup: Setup) -> Vec<Cell> {
    let percentile = |index: usize| {
        let error = |errors: &Errors| errors.percentiles[index].abs();
        mean_cell(findings.mean(recipe, setup, error), 1)
    };
    let gap = mean_cell(findings.mean(recipe, setup, |errors| errors.gap), 2);
    [0, 1, 2].map(percentile).into_iter().chain([gap]).collect()
}

/// Returns the mean of the largest gaps of single runs.
fn gap(findings: &Findings, recipe: Recipe, setup: Setup) -> Option<f64> {
    findings.mean(recipe, setup, |errors| errors.gap).map(|spread| spread.mean)
}

fn columns(recipe: Recipe, group: &str) -> Vec<Column> {
    let percentiles =
        recipe.percentiles().map(|percentile| Column::number(group, &format!("p{percentile}")));
    percentiles.into_iter().chain([Column::number(group, "gap")]).collect()
}

/// Returns figure 2.2 as a table.
fn comparison_table(findings: &Findings, recipe: Recipe) -> Table {
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
        let mut row = vec![Cell::new(setup.method.name())];
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
fn admission_table(findings: &Findings) -> Table {
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
fn memory_table(findings: &Findings) -> Table {
    let caption = format!(
        "Largest gap from p5 to p95 of a run, log2, mean of {}, by memory",
        runs(findings.seeds)
    );
    let mut all = vec![Column::number("", "slots")];
    for recipe in Recipe::ALL {
        all.extend(METHODS.map(|method| Column::number(recipe.name(), &method.name())));
    }
    let mut table = Table::new(caption, all);
    for memory_log2 in MEMORIES_LOG2 {
        let mut row = vec![Cell::new(grouped(1 << memory_log2))];
        for recipe in Recipe::ALL {
            row.extend(METHODS.map(|method| {
                let gap =
                    Setup::best(method, memory_log2).and_then(|setup| gap(findings, recipe, setup));
                number_cell(gap, 2)
            }));
        }
        table.row(row);
    }
    table
}

/// Returns the largest gaps if the trace ends with the last request or with the last answer.
fn stopping_table(findings: &Findings) -> Table {
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
        let mut row = vec![Cell::new(setup.method.name())];
        for recipe in Recipe::ALL {
            let after_all = findings.gap_after_all(recipe, setup).map(|gap| gap.mean);
            row.extend([gap(findings, recipe, setup), after_all].map(|gap| number_cell(gap, 2)));
        }
        table.row(row);
    }
    table
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
    let chart = Chart::new(&title, x, y).dashed("truth", Tone::Neutral, points(truth));
    Setup::COMPARED.into_iter().zip(Tone::ALL).fold(chart, |chart, (setup, tone)| {
        chart.line(
            &setup.method.name(),
            tone,
            points(findings.times(recipe, setup).unwrap_or_default()),
        )
    })
}

fn admission_chart(findings: &Findings, recipe: Recipe) -> Chart {
    let admitted = |log2: u8| 2_f64.powi(-i32::from(log2));
    let (x, y) = (
        Axis::logarithmic("share admitted", admitted(12), 1.0),
        Axis::logarithmic("|error| of a run, %", 0.1, 100.0),
    );
    let title = format!("Errors by the share admitted, {} delays", recipe.name());
    let chart = Chart::new(&title, x, y);
    recipe.percentiles().into_iter().enumerate().zip(Tone::ALL).fold(
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
    let chart = Chart::new(&title, x, y);
    METHODS.into_iter().zip(Tone::ALL).fold(chart, |chart, (method, tone)| {
        let points = MEMORIES_LOG2.into_iter().filter_map(|log2| {
            Some((slots(log2), gap(findings, recipe, Setup::best(method, log2)?)?))
        });
        chart.line(&method.name(), tone, points)
    })
}

/// Describes at how many sizes four fridges are better than one.
fn better(findings: &Findings, recipe: Recipe) -> String {
    let gap = |method, log2| gap(findings, recipe, Setup::best(method, log2)?);
    let sizes = MEMORIES_LOG2
        .into_iter()
        .filter_map(|log2| Some((gap(Method::Fridge, log2)?, gap(Method::MultiFridge, log2)?)));
    let (wins, all) =
        sizes.fold((0, 0), |(wins, all), (one, four)| (wins + u32::from(four < one), all + 1));
    format!("on {} traffic at {wins} of {all} sizes", recipe.name())
}

impl Findings {
    /// Returns the report, with `errors.csv` and `percentiles.csv`.
    pub(crate) fn report(&self) -> Report {
        let [first, second] = Recipe::ALL.map(|recipe| comparison_table(self, recipe));
        let charts = |chart: fn(&Findings, Recipe) -> Chart| {
            Part::Charts(Recipe::ALL.map(|recipe| chart(self, recipe)).to_vec())
        };
        let [fridge, overwrite, late, early] =
            Setup::COMPARED.map(|setup| gap(self, Recipe::LogUniform, setup).unwrap_or(0.0).exp2());
        let less = |kind, other| {
            let (wins, all) = slots::wins(&self.sizes, kind, other);
            Part::Text(format!("at {wins} of {all}"))
        };
        let requests = self.outcomes.iter().map(|outcome| outcome.run.requests).sum();
        let tables = self.outcomes.first().map_or(0, |outcome| outcome.results.len());
        let parts = [
            ("slots", Part::Text(grouped(1 << MEMORY_LOG2))),
            ("admitted", Part::Text(share(ADMIT_LOG2))),
            ("gap", Part::Text(format!("{fridge:.2}"))),
            ("gap-overwrite", Part::Text(format!("{overwrite:.0}"))),
            ("gap-late", Part::Text(format!("{late:.2}"))),
            ("gap-early", Part::Text(format!("{early:.1}"))),
            ("comparison-1", Part::Tables(vec![first])),
            ("comparison-2", Part::Tables(vec![second])),
            ("distributions", charts(distribution_chart)),
            ("admission", Part::Tables(vec![admission_table(self)])),
            ("admissions", charts(admission_chart)),
            ("memory", Part::Tables(vec![memory_table(self)])),
            ("memories", charts(memory_chart)),
            ("better", Part::Text(Recipe::ALL.map(|recipe| better(self, recipe)).join(", and "))),
            ("stopping", Part::Tables(vec![stopping_table(self)])),
            ("equal", Part::Tables(vec![slots::table(&self.sizes)])),
            ("less-overwrite", less(Kind::Fridge, Kind::Overwrite)),
            ("less-expiry", less(Kind::Fridge, Kind::Expiry)),
            ("less-expiry-5", less(Kind::Fridge, Kind::ExpiryInFive)),
            ("less-four", less(Kind::FourFridges, Kind::Fridge)),
            ("less-staged", less(Kind::Staged, Kind::Fridge)),
            ("requests", Part::Text(grouped(requests))),
            ("tables", Part::Text(tables.to_string())),
            ("trace", Part::Text(REQUESTS.to_string())),
        ];
        let command = format!("flowgauge reproduce fridge --seeds {}", self.seeds);
        Report::new(
            include_str!("page.html"),
            &command,
            self.numbers(),
            &parts,
            [("errors.csv", errors_csv(self)), ("percentiles.csv", percentiles_csv(self))],
        )
    }
}

/// Returns one line per run and table.
fn errors_csv(findings: &Findings) -> String {
    let mut lines = Vec::new();
    for outcome in &findings.outcomes {
        let results = outcome.results.iter().map(|result| ("last request", result));
        for (until, result) in
            results.chain(outcome.stopped.iter().map(|result| ("last answer", result)))
        {
            let Setup { memory_log2, admit_log2, .. } = result.setup;
            let (recipe, seed, name) =
                (outcome.run.recipe.name(), outcome.run.seed, result.setup.method.name());
            let (slots, admit) = (1_u32 << memory_log2, 2_f64.powi(-i32::from(admit_log2)));
            let errors = result.errors.map_or_else(
                || ",,,".to_owned(),
                |errors| {
                    let [low, p95, p99] = errors.percentiles;
                    format!("{low:.3},{p95:.3},{p99:.3},{:.4}", errors.gap)
                },
            );
            let samples = result.samples;
            lines
                .push(format!("{recipe},{until},{seed},{name},{slots},{admit},{samples},{errors}"));
        }
    }
    // The first percentile is the median, or the 25th for a bimodal trace.
    csv(
        "recipe,until,seed,method,slots,admit,samples,low_error_percent,p95_error_percent,p99_error_percent,gap_log2",
        lines,
    )
}

/// Returns the percentiles of figure 2.2, of all runs combined.
fn percentiles_csv(findings: &Findings) -> String {
    let cases =
        Recipe::ALL.into_iter().flat_map(|recipe| Setup::COMPARED.map(|setup| (recipe, setup)));
    let lines = cases.flat_map(|(recipe, setup)| {
        let times = findings.times(recipe, setup).unwrap_or_default();
        let points = shares().into_iter().zip(findings.truth(recipe)).zip(times);
        let (recipe, name) = (recipe.name(), setup.method.name());
        points.map(move |((share, truth), time)| {
            format!("{recipe},{name},{share:.2},{truth:.0},{time:.0}")
        })
    });
    csv("recipe,method,share,truth_ns,estimate_ns", lines)
}
