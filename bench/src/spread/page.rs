//! Tables, plots and text of the report.

use super::{
    Attack, Attacked, CARPET, DEFAULT_SIZE, Findings, Found, HASHES, LEAST, Method, NOBODY,
    Outcome, SCANNED, SIZES, Score, Size, TOPS, TRIED_SOURCES, Traffic, USUAL_KEYS, USUAL_OTHERS,
    VICTIM_SOURCES, ZIPF_FIRST, ZIPF_KEYS, coverage, over,
};
use crate::report::html::Page;
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Table};
use flowgauge_core::HashMode;
use flowgauge_ctl::output::grouped;

const HALF: (f64, f64) = (520.0, 380.0);
const TONES: [Tone; Method::ALL.len()] = [Tone::First, Tone::Second, Tone::Third];

/// Returns traffic and sizes in the order of the tables.
pub(super) fn cases() -> impl Iterator<Item = (Traffic, Size)> {
    Traffic::ALL.into_iter().flat_map(|traffic| SIZES.map(|size| (traffic, size)))
}

/// Returns attacks and hashes in the order of the table.
pub(super) fn attacks() -> impl Iterator<Item = (Attack, HashMode)> {
    Attack::ALL.into_iter().flat_map(|attack| HASHES.map(|hash| (attack, hash)))
}

fn runs(seeds: u64) -> String {
    format!("mean of {seeds} run{}", if seeds == 1 { "" } else { "s" })
}

/// Returns a mean with this many decimals; an empty cell without values.
fn mean_cell(values: impl Iterator<Item = Option<f64>>, decimals: usize) -> Cell {
    over(values).map_or_else(Cell::default, |it| Cell::new(format!("{:.decimals$}", it.mean)))
}

fn percent_cell(values: impl Iterator<Item = Option<f64>>) -> Cell {
    mean_cell(values.map(|share| share.map(|share| share * 100.0)), 0)
}

/// Windows of a row of a table.
pub(super) struct Row<'a> {
    /// Traffic.
    pub(super) name: &'a str,
    /// Size of the sketch.
    pub(super) size: Size,
    /// Results.
    pub(super) outcomes: Vec<&'a Outcome>,
}

impl Row<'_> {
    fn scores(&self, method: usize) -> impl Iterator<Item = &Score> {
        self.outcomes.iter().filter_map(move |outcome| outcome.scores.get(method))
    }

    fn found(&self, method: usize, top: usize) -> impl Iterator<Item = &Found> {
        self.scores(method).filter_map(move |score| score.found.get(top))
    }

    fn labels(&self) -> Vec<Cell> {
        vec![Cell::new(self.name), Cell::new(self.size.kib())]
    }
}

fn labels() -> Vec<Column> {
    vec![Column::text("", "traffic"), Column::number("", "KiB")]
}

/// Returns recall and precision of rows.
pub(super) fn found_rows(caption: String, rows: &[Row<'_>]) -> Table {
    let mut columns = labels();
    for method in Method::ALL {
        columns.extend(TOPS.map(|top| Column::number(method.name(), &format!("recall {top}"))));
        columns.extend(TOPS.map(|top| Column::number(method.name(), &format!("precision {top}"))));
    }
    let mut table = Table::new(caption, columns);
    for row in rows {
        let mut cells = row.labels();
        for method in 0..Method::ALL.len() {
            for top in 0..TOPS.len() {
                cells.push(percent_cell(row.found(method, top).map(Found::recall)));
            }
            for top in 0..TOPS.len() {
                cells.push(percent_cell(row.found(method, top).map(Found::precision)));
            }
        }
        table.row(cells);
    }
    table
}

/// Returns errors, numbers of listed keys, and shares of intervals that contain the true number.
pub(super) fn error_rows(caption: String, rows: &[Row<'_>]) -> Table {
    let mut columns = labels();
    for method in Method::ALL {
        columns.extend(["listed", "error"].map(|name| Column::number(method.name(), name)));
        if method != Method::MinimumOfRows {
            columns.push(Column::number(method.name(), "intervals"));
        }
        if method == Method::Likelihood {
            columns.push(Column::number(method.name(), "rest"));
        }
    }
    let mut table = Table::new(caption, columns);
    for row in rows {
        let mut cells = row.labels();
        for (index, method) in Method::ALL.into_iter().enumerate() {
            let listed = row.found(index, TOPS.len() - 1).map(|found| Some(found.listed as f64));
            cells.push(mean_cell(listed, 0));
            cells.push(mean_cell(row.scores(index).map(|score| score.error), 1));
            if method != Method::MinimumOfRows {
                cells.push(percent_cell(std::iter::once(coverage(row.scores(index)))));
            }
            if method == Method::Likelihood {
                let holds = |outcome: &&Outcome| Some(f64::from(u8::from(outcome.rest_holds)));
                cells.push(percent_cell(row.outcomes.iter().map(holds)));
            }
        }
        table.row(cells);
    }
    table
}

fn rows(findings: &Findings) -> Vec<Row<'_>> {
    let row = |(traffic, size): (Traffic, Size)| Row {
        name: traffic.about(),
        size,
        outcomes: findings.outcomes(traffic, size).collect(),
    };
    cases().map(row).collect()
}

/// Returns recall and precision by traffic and memory.
pub(super) fn found_table(findings: &Findings) -> Table {
    let caption = format!(
        "Keys with the most others: recall and precision in %, by memory, {}",
        runs(findings.seeds)
    );
    found_rows(caption, &rows(findings))
}

/// Returns errors and intervals by traffic and memory.
pub(super) fn error_table(findings: &Findings) -> Table {
    let [_, most] = TOPS;
    let caption = format!(
        "The first {most} listed keys: |error| of those that are right in %, intervals with the true number in %, and rests that no other key exceeds in %, {}",
        runs(findings.seeds)
    );
    error_rows(caption, &rows(findings))
}

/// Returns what the controller reports of the keys of attacks.
pub(super) fn attack_table(findings: &Findings) -> Table {
    let caption = format!(
        "Contacts chosen by known tables, {} KiB, {}",
        DEFAULT_SIZE.kib(),
        runs(findings.seeds)
    );
    let columns = vec![
        Column::text("", "attack"),
        Column::text("", "hash"),
        Column::number("", "others"),
        Column::number("reported", "listed, %"),
        Column::number("reported", "others"),
        Column::number("reported", "rest"),
        Column::number("reported", "true, %"),
    ];
    let mut table = Table::new(caption, columns);
    for (attack, hash) in attacks() {
        let attacked: Vec<&Attacked> = findings.attacked(attack, hash).collect();
        let each = |value: fn(&Attacked) -> Option<f64>| attacked.iter().map(move |it| value(it));
        let share = |is: fn(&Attacked) -> bool| {
            attacked.iter().map(move |it| Some(f64::from(u8::from(is(it)))))
        };
        let number = |value: fn(&Attacked) -> Option<f64>| {
            over(each(value))
                .map_or_else(Cell::default, |it| Cell::new(grouped(it.mean.round() as u64)))
        };
        table.row(vec![
            Cell::new(attack.about()),
            Cell::new(hash.name()),
            number(|it| Some(it.truth as f64)),
            percent_cell(share(|it| it.listed.is_some())),
            number(|it| it.listed.map(|listed| listed.value)),
            number(|it| Some(it.rest)),
            percent_cell(share(Attacked::is_true)),
        ]);
    }
    table
}

/// Returns a value of each method by memory, in percent.
fn chart(
    findings: &Findings,
    traffic: Traffic,
    title: &str,
    label: &str,
    value: impl Fn(&Score) -> Option<f64>,
) -> Chart {
    let [first, .., last] = SIZES;
    let (x, y) = (
        Axis::logarithmic("memory, KiB", first.kib() as f64, last.kib() as f64),
        Axis::linear(label, 0.0, 100.0),
    );
    let chart = Chart::new(&format!("{}: {title}", traffic.about()), x, y, HALF);
    Method::ALL.into_iter().zip(TONES).enumerate().fold(chart, |chart, (index, (method, tone))| {
        let points = SIZES.into_iter().filter_map(|size| {
            let outcomes = findings.outcomes(traffic, size);
            let values = outcomes.map(|outcome| outcome.scores.get(index).and_then(&value));
            over(values).map(|it| (size.kib() as f64, it.mean))
        });
        chart.line(method.name(), tone, points.collect::<Vec<_>>())
    })
}

/// Returns the recall by memory.
fn recall_chart(findings: &Findings, traffic: Traffic, index: usize) -> Chart {
    let title = TOPS.get(index).map_or_else(String::new, |top| format!("top {top}"));
    chart(findings, traffic, &title, "recall, %", |score| {
        score.found.get(index)?.recall().map(|share| share * 100.0)
    })
}

/// Returns the report.
pub(super) fn page(findings: &Findings) -> Page {
    let mut page = Page::new("Keys with the most distinct others, in little memory");
    let recall = |method: usize, size: Size| {
        let outcomes = findings.outcomes(Traffic::Zipf, size);
        let found = outcomes
            .filter_map(|outcome| outcome.scores.get(method).and_then(|score| score.found.first()));
        over(found.map(Found::recall)).map_or(0.0, |it| it.mean * 100.0)
    };
    let scores = findings.runs.iter().filter_map(|run| run.outcome.scores.first());
    page.lead(&format!(
        "In {} KiB the sketch finds {:.0} % of the ten destinations with the most sources by Zipf's law; a table with a HyperLogLog for each \
         destination finds {:.0} %. Of all intervals {:.0} % contain the true number.",
        DEFAULT_SIZE.kib(),
        recall(0, DEFAULT_SIZE),
        recall(2, DEFAULT_SIZE),
        coverage(scores).unwrap_or(0.0) * 100.0
    ));
    found(findings, &mut page);
    errors(findings, &mut page);
    adversary(findings, &mut page);
    method(findings, &mut page);
    page
}

/// Returns the command that makes the report.
pub(super) fn command(findings: &Findings) -> String {
    format!("flowgauge reproduce spread --seeds {}", findings.seeds)
}

fn found(findings: &Findings, page: &mut Page) {
    page.heading("Which keys are found");
    page.paragraph(&format!(
        "A key is to be found among the first ten, or hundred, if no more than nine, or ninety-nine, have more others, and if it has at least {LEAST}. \
         Recall is the share of those to find among the first listed ones, precision the share of right ones among these. A list may be shorter: \
         flowgauge lists no key that it cannot tell from the noise of its cells."
    ));
    page.table(&found_table(findings));
    page.figure(
        &[recall_chart(findings, Traffic::Zipf, 0), recall_chart(findings, Traffic::Zipf, 1)],
        "Recall by memory. A candidate of the sketch has to have more others than its cells have noise: pairs divided by columns. \
         A table counts the keys that come first, and has no noise.",
    );
    page.figure(
        &[recall_chart(findings, Traffic::Victim, 0), recall_chart(findings, Traffic::Carpet, 1)],
        "The same of attacks that begin when half of the other pairs have come. A table is full by then.",
    );
}

fn errors(findings: &Findings, page: &mut Page) {
    page.heading("Errors and intervals");
    page.table(&error_table(findings));
    page.figure(
        &[Traffic::Zipf, Traffic::Carpet]
            .map(|traffic| chart(findings, traffic, "error", "|error|, %", |score| score.error)),
        "Mean absolute relative error of the listed keys that are right. The minimum of rows counts the noise of a cell as others of the key.",
    );
}

fn adversary(findings: &Findings, page: &mut Page) {
    page.heading("An adversary");
    page.paragraph(&format!(
        "An adversary who knows the tables of the hash chooses contacts. A hidden scan contacts {} destinations whose pairs have the lowest rank and level, \
         one of four. A forged victim has one source for each register, those with the greatest ranks of {}. With <code>crc32</code> and \
         <code>tabulated</code> the tables are known; <code>keyed</code> draws secret ones, and the same contacts are like any others. What is reported is \
         true if the interval contains the number of others, or if a key that is not listed does not exceed the rest.",
        grouped(SCANNED.into()),
        grouped(TRIED_SOURCES.into())
    ));
    page.table(&attack_table(findings));
}

fn method(findings: &Findings, page: &mut Page) {
    page.heading("Method");
    let [addresses, sources] = CARPET;
    let [keys, others] = NOBODY;
    page.list([
        format!(
            "Pairs are counted by the code that every software dataplane runs (<code>flowgauge_core::spread</code>) and estimated by the controller, \
             flowgauge {}. Truths are exact counts.",
            env!("CARGO_PKG_VERSION")
        ),
        "SpreadSketch (Tang, Huang and Lee, INFOCOM 2020) is evaluated by recall, precision and relative error too. Its traces and printed \
         numbers are not at hand: not comparable. \u{201c}Minimum of rows\u{201d} is its estimate on the candidates of the same sketch, with HyperLogLog \
         registers in the place of its multiresolution bitmaps."
            .to_owned(),
        format!(
            "\u{201c}HyperLogLogs\u{201d} is a table of the same memory that gives each new key the registers of a cell, until it is full: {} keys in {} KiB.",
            grouped(DEFAULT_SIZE.slots() as u64),
            DEFAULT_SIZE.kib()
        ),
        format!(
            "Sketches have three rows; {} KiB have twice the registers of a cell and are the largest sketch.",
            SIZES.map(Size::kib).into_iter().max().unwrap_or(0)
        ),
        format!(
            "Zipf: {} destinations, the first with {} sources, the n-th with an n-th of them. One victim: {} sources. Carpet bombing: {} addresses with the \
             same {} sources. With these, and with the scan of a /16, come {} keys with {} others each. Nobody: {} destinations with {} sources each.",
            grouped(ZIPF_KEYS.into()),
            grouped(ZIPF_FIRST.into()),
            grouped(VICTIM_SOURCES.into()),
            grouped(addresses.into()),
            grouped(sources.into()),
            grouped(USUAL_KEYS.into()),
            USUAL_OTHERS,
            grouped(keys.into()),
            others
        ),
        "<code>found.csv</code> has one line a window, size and method, <code>attacks.csv</code> one an attack and hash.".to_owned(),
        format!("To repeat: <code>{}</code>", command(findings)),
    ]);
}
