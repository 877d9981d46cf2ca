//! Tables, charts and files of the report, whose text is `page.html`.

use super::{
    Attack, Attacked, CARPET, DEFAULT_SIZE, EVEN, Findings, Found, HASHES, LEAST, Method, Outcome,
    Run, SCANNED, SIZES, Score, Size, TOPS, TRIED_SOURCES, Traffic, USUAL_KEYS, USUAL_OTHERS,
    VICTIM_SOURCES, ZIPF_FIRST, ZIPF_KEYS, coverage, over,
};
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Part, Report, Table, number_cell, runs};
use crate::statistics::csv;
use flowgauge_core::HashMode;
use flowgauge_ctl::output::grouped;

/// Returns traffic and sizes in the order of the tables.
pub(super) fn cases() -> impl Iterator<Item = (Traffic, Size)> {
    Traffic::ALL.into_iter().flat_map(|traffic| SIZES.map(|size| (traffic, size)))
}

/// Returns attacks and hashes in the order of the table.
pub(super) fn attacks() -> impl Iterator<Item = (Attack, HashMode)> {
    Attack::ALL.into_iter().flat_map(|attack| HASHES.map(|hash| (attack, hash)))
}

/// Returns a mean with this many decimals; an empty cell without values.
fn mean_cell(values: impl Iterator<Item = Option<f64>>, decimals: usize) -> Cell {
    number_cell(over(values).map(|spread| spread.mean), decimals)
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
fn found_table(findings: &Findings) -> Table {
    let caption = format!(
        "Keys with the most others: recall and precision in %, by memory, mean of {}",
        runs(findings.seeds)
    );
    found_rows(caption, &rows(findings))
}

/// Returns errors and intervals by traffic and memory.
fn error_table(findings: &Findings) -> Table {
    let [_, most] = TOPS;
    let caption = format!(
        "The first {most} listed keys: |error| of those that are right in %, intervals with the true number in %, and rests that no other key exceeds in %, mean of {}",
        runs(findings.seeds)
    );
    error_rows(caption, &rows(findings))
}

/// Returns what the controller reports of the keys of attacks.
fn attack_table(findings: &Findings) -> Table {
    let caption = format!(
        "Contacts chosen by known tables, {} KiB, mean of {}",
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
    let chart = Chart::new(&format!("{}: {title}", traffic.about()), x, y);
    Method::ALL.into_iter().zip(Tone::ALL).enumerate().fold(
        chart,
        |chart, (index, (method, tone))| {
            let points = SIZES.into_iter().filter_map(|size| {
                let outcomes = findings.outcomes(traffic, size);
                let values = outcomes.map(|outcome| outcome.scores.get(index).and_then(&value));
                over(values).map(|it| (size.kib() as f64, it.mean))
            });
            chart.line(method.name(), tone, points.collect::<Vec<_>>())
        },
    )
}

/// Returns the recall by memory.
fn recall_chart(findings: &Findings, traffic: Traffic, index: usize) -> Chart {
    let title = TOPS.get(index).map_or_else(String::new, |top| format!("top {top}"));
    chart(findings, traffic, &title, "recall, %", |score| {
        score.found.get(index)?.recall().map(|share| share * 100.0)
    })
}

impl Findings {
    /// Returns the report, with `found.csv` and `attacks.csv`.
    pub(crate) fn report(&self) -> Report {
        let recalls = |cases: [(Traffic, usize); 2]| {
            Part::Charts(cases.map(|(traffic, index)| recall_chart(self, traffic, index)).to_vec())
        };
        let error_charts = [Traffic::Zipf, Traffic::Carpet]
            .map(|traffic| chart(self, traffic, "error", "|error|, %", |score| score.error));
        let number = |number: u32| Part::Text(grouped(number.into()));
        let [addresses, sources] = CARPET;
        let [keys, others] = EVEN;
        let largest = SIZES.map(Size::kib).into_iter().max().unwrap_or(0);
        let parts = [
            ("kib", Part::Text(DEFAULT_SIZE.kib().to_string())),
            ("least", Part::Text(LEAST.to_string())),
            ("found", Part::Tables(vec![found_table(self)])),
            ("zipf", recalls([(Traffic::Zipf, 0), (Traffic::Zipf, 1)])),
            ("attacked", recalls([(Traffic::Victim, 0), (Traffic::Carpet, 1)])),
            ("errors", Part::Tables(vec![error_table(self)])),
            ("error-charts", Part::Charts(error_charts.to_vec())),
            ("scanned", number(SCANNED)),
            ("tried", number(TRIED_SOURCES)),
            ("attacks", Part::Tables(vec![attack_table(self)])),
            ("slots", Part::Text(grouped(DEFAULT_SIZE.slots() as u64))),
            ("largest", Part::Text(largest.to_string())),
            ("zipf-keys", number(ZIPF_KEYS)),
            ("zipf-first", number(ZIPF_FIRST)),
            ("victim", number(VICTIM_SOURCES)),
            ("carpet-addresses", number(addresses)),
            ("carpet-sources", number(sources)),
            ("usual-keys", number(USUAL_KEYS)),
            ("usual-others", number(USUAL_OTHERS)),
            ("even-keys", number(keys)),
            ("even-others", number(others)),
        ];
        let command = format!("flowgauge reproduce spread --seeds {}", self.seeds);
        Report::new(
            include_str!("page.html"),
            &command,
            self.numbers(),
            &parts,
            [("found.csv", found_csv(self)), ("attacks.csv", attacks_csv(self))],
        )
    }
}

/// Returns one line per window, size and method.
fn found_csv(findings: &Findings) -> String {
    let scores = findings
        .runs
        .iter()
        .flat_map(|run| Method::ALL.into_iter().zip(&run.outcome.scores).map(move |it| (run, it)));
    let lines = scores.map(|(Run { traffic, seed, size, outcome }, (method, score))| {
        let Score { found, error, intervals, inside } = score;
        let found: String = found
            .iter()
            .map(|Found { wanted, listed, right }| format!("{wanted},{listed},{right},"))
            .collect();
        let error = error.map_or_else(String::new, |error| format!("{error:.3}"));
        // Only the controller reports a rest.
        let rest = match method {
            Method::Likelihood => outcome.rest_holds.to_string(),
            Method::MinimumOfRows | Method::Table => String::new(),
        };
        format!(
            "{},{seed},{},{},{},{},{},{found}{error},{intervals},{inside},{rest}",
            traffic.name(),
            size.kib(),
            size.shape().rows(),
            size.shape().columns(),
            size.registers().registers(),
            method.name()
        )
    });
    let tops = TOPS.map(|top| format!("wanted_{top},listed_{top},right_{top},")).concat();
    let heading = format!(
        "traffic,seed,memory_kib,rows,columns,registers,method,{tops}error_percent,intervals,intervals_inside,rest_holds"
    );
    csv(&heading, lines)
}

/// Returns one line per attack and hash.
fn attacks_csv(findings: &Findings) -> String {
    let line = |attacked: &Attacked| {
        let Attacked { attack, hash, seed, truth, listed, rest } = attacked;
        let listed = listed.map_or_else(
            || ",,".to_owned(),
            |number| format!("{:.0},{:.0},{:.0}", number.value, number.low, number.high),
        );
        format!("{},{},{seed},{truth},{listed},{rest:.0}", attack.name(), hash.name())
    };
    csv("attack,hash,seed,truth,others,low,high,rest", findings.attacks.iter().map(line))
}
