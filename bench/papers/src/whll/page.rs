//! Tables and files of the report, whose text is `page.html`.

use super::figures::{
    error_by_cardinality, milliseconds, raw_bias, reading_name, scatter, sequential,
    skew_by_cardinality,
};
use super::{
    CONFIGURATIONS, Configuration, DURATION, EXPECTED_AVERAGE, EXPECTED_MEDIAN, STANDARD_ERROR,
};
use super::{Case, Errors, Experiment, Findings, Options, Read, Reading, Run, Traffic};
use super::{figures, sampling, staggered};
use crate::documents::paper;
use crate::report::{Cell, Column, Part, Report, Table, escape, mean_cell, number_cell, runs};
use crate::statistics::{Spread, csv};
use flowgauge_core::HashMode;
use flowgauge_ctl::measurement::cardinality::estimate::{Estimator, flajolet_large_range};
use flowgauge_ctl::output::grouped;

/// Returns the number of the thesis' table with this traffic, and a title.
fn thesis_name(traffic: Traffic) -> (&'static str, &'static str) {
    match traffic {
        Traffic::Unique | Traffic::Sequential => ("4.3", "Table 4.3, random unique sources"),
        Traffic::Bursty => {
            ("4.4", "Table 4.4, bursty Zipf traffic in the place of the campus trace")
        }
    }
}

/// Returns a number that the thesis prints in a row of one of its tables.
fn printed(traffic: Traffic, Configuration { reset, .. }: &Configuration, what: &str) -> String {
    let (number, _) = thesis_name(traffic);
    paper(&format!("whll/{number}/{}s/{what}", reset.as_secs()))
}

fn row_name(configuration: &Configuration) -> Cell {
    let Configuration { read, reset } = configuration;
    Cell::new(format!("{} / {} s", read.as_secs_f64(), reset.as_secs_f64()))
}

/// Returns columns of average and median for every reading.
fn error_columns(groups: impl IntoIterator<Item = String>) -> impl Iterator<Item = Column> {
    groups
        .into_iter()
        .flat_map(|group| [Column::number(&group, "average"), Column::number(&group, "median")])
}

fn error_cells(findings: &Findings, case: &Case) -> [Cell; 2] {
    let accuracy = findings.accuracy(case);
    let [average, median] =
        accuracy.map_or([None; 2], |accuracy| [accuracy.average, accuracy.median].map(Some));
    [mean_cell(average, 2), mean_cell(median, 2)]
}

/// Returns a table of the thesis with our figures next to its own, with its hash and estimator.
fn thesis_table(findings: &Findings, traffic: Traffic) -> Table {
    let (_, title) = thesis_name(traffic);
    let seeds = findings.runs(traffic, HashMode::Crc32, CONFIGURATIONS[0]).count();
    let caption = format!(
        "{title}: |error| in %, mean of {} (hash {}, estimator {}). Expected: the standard error, with which the thesis \
         compares, and 0.80 and 0.67 of it, the mean and median of normal errors",
        runs(seeds as u64),
        HashMode::Crc32.name(),
        Estimator::Flajolet.name()
    );
    let mut columns = vec![
        Column::text("", "read / reset"),
        Column::number("thesis", "average").from_source(),
        Column::number("thesis", "median").from_source(),
    ];
    columns.extend(error_columns(
        findings.readings().iter().map(|reading| reading_name(findings, *reading)),
    ));
    columns.extend([
        Column::number("reads", "thesis").from_source(),
        Column::number("reads", "expected"),
        Column::number("reads", "ours"),
        Column::number("max. flows", "thesis").from_source(),
        Column::number("max. flows", "ours"),
    ]);
    let mut table = Table::new(caption, columns);
    for configuration in &CONFIGURATIONS {
        let thesis = |what| Cell::new(printed(traffic, configuration, what));
        let case = |reading| Case::of_thesis(traffic, *configuration, reading);
        let mut cells = vec![row_name(configuration), thesis("average"), thesis("median")];
        cells.extend(
            findings.readings().iter().flat_map(|reading| error_cells(findings, &case(*reading))),
        );
        let accuracy = findings.accuracy(&case(Reading::Instant));
        let expected = DURATION.as_secs_f64() / configuration.read.as_secs_f64();
        cells.extend([
            thesis("reads"),
            Cell::new(grouped(expected as u64)),
            Cell::new(accuracy.map_or_else(String::new, |accuracy| {
                grouped(accuracy.samples.mean.round() as u64)
            })),
            thesis("flows"),
            Cell::new(
                accuracy.map_or_else(String::new, |accuracy| grouped(accuracy.max_cardinality)),
            ),
        ]);
        table.row(cells);
    }
    let percent = |expected: f64| Cell::new(format!("{expected:.2}"));
    let mut expected =
        vec![Cell::new("expected"), percent(STANDARD_ERROR), percent(STANDARD_ERROR)];
    expected.extend(
        findings.readings().iter().flat_map(|_| [EXPECTED_AVERAGE, EXPECTED_MEDIAN].map(percent)),
    );
    // Reads and flows.
    expected.extend([(); 5].map(|()| Cell::default()));
    table.row(expected);
    table
}

/// Returns how many times larger the averages of Table 4.4 are than those of Table 4.3 (§4.5.3).
fn ratio_table(findings: &Findings) -> Table {
    let caption = "Average of Table 4.4 over that of Table 4.3 (§4.5.3), which the stand-in for the \
                   campus trace does not reproduce";
    let mut columns =
        vec![Column::text("", "read / reset"), Column::number("", "thesis").from_source()];
    columns.extend(
        findings
            .readings()
            .iter()
            .map(|reading| Column::number("ours", &reading_name(findings, *reading))),
    );
    let mut table = Table::new(caption, columns);
    for configuration in CONFIGURATIONS {
        let printed = paper(&format!("whll/ratio/{}s", configuration.reset.as_secs()));
        let mut cells = vec![row_name(&configuration), Cell::new(printed)];
        cells.extend(
            findings
                .readings()
                .iter()
                .map(|reading| number_cell(findings.ratio(configuration, *reading), 2)),
        );
        table.row(cells);
    }
    table
}

/// Returns a table of all estimators on the same registers, with both hashes.
fn estimator_table(findings: &Findings, traffic: Traffic, reading: Reading) -> Table {
    let caption = format!(
        "The three estimators on the same registers, {}: |error| in %",
        reading_name(findings, reading)
    );
    let mut columns = vec![Column::text("", "read / reset"), Column::text("", "hash")];
    columns.extend(error_columns(Estimator::ALL.map(|estimator| estimator.name().to_owned())));
    let mut table = Table::new(caption, columns);
    for configuration in CONFIGURATIONS {
        for hash in HashMode::PUBLIC {
            let mut cells = vec![row_name(&configuration), Cell::new(hash.name())];
            cells.extend(Estimator::ALL.into_iter().flat_map(|estimator| {
                error_cells(findings, &Case { traffic, hash, configuration, reading, estimator })
            }));
            table.row(cells);
        }
    }
    table
}

/// Returns a table of signed errors at the ends of windows of sequential addresses.
fn sequential_table(findings: &Findings) -> Table {
    let columns = vec![
        Column::text("", "window"),
        Column::number("", "flows"),
        Column::number(HashMode::Crc32.name(), "first window"),
        Column::number(HashMode::Crc32.name(), "all windows"),
        Column::number(HashMode::Tabulated.name(), "first window"),
        Column::number(HashMode::Tabulated.name(), "all windows"),
    ];
    let caption =
        "Sequential addresses at the ends of windows: error in %, all seeds (estimator ertl)";
    let mut table = Table::new(caption, columns);
    for configuration in CONFIGURATIONS {
        let closed = |hash| -> Vec<&Read> {
            findings
                .runs(Traffic::Sequential, hash, configuration)
                .flat_map(|run| &run.windows)
                .collect()
        };
        let flows = closed(HashMode::Crc32).first().map_or(0, |read| read.truth);
        let mut cells = vec![
            Cell::new(format!("{} s", configuration.reset.as_secs_f64())),
            Cell::new(grouped(flows)),
        ];
        for hash in [HashMode::Crc32, HashMode::Tabulated] {
            let windows = closed(hash);
            let error = |read: &&Read| read.error(Reading::Instant, Estimator::Ertl);
            let first = windows.iter().filter(|read| read.window == 0).filter_map(error);
            let all = windows.iter().filter_map(error);
            cells.extend(
                [Spread::from_values(first), Spread::from_values(all)]
                    .map(|errors| errors.map_or_else(Cell::default, signed)),
            );
        }
        table.row(cells);
    }
    table
}

fn signed(spread: Spread) -> Cell {
    let Spread { mean, deviation, low, high, .. } = spread;
    let minus = |text: String| text.replace('-', "\u{2212}");
    let cell = Cell::new(minus(format!("{mean:+.1}")));
    // The linear hash on the same addresses differs by rounding only.
    if high - low < 0.05 {
        return cell;
    }
    cell.detail(format!("±{deviation:.1}")).detail(minus(format!("{low:+.1}…{high:+.1}")))
}

fn printed_averages(traffic: Traffic) -> Part {
    Part::Text(CONFIGURATIONS.map(|it| printed(traffic, &it, "average")).join(" / "))
}

/// Numbers of flows for which collisions of hashes are shown.
const LARGE: [f64; 5] = [1e7, 1e8, 1.43e8, 1e9, 4e9];

/// Returns the errors that collisions of 32-bit hashes cause, and those of the correction.
fn large_range_table() -> Table {
    let caption = "Large numbers of flows: error in % by collisions of 32-bit hashes, without the error of the sketch, and with the large-range correction \
                   (Table 2.1, step 5). Keys longer than 32 bits share hashes; 32-bit addresses under crc32 do not";
    let columns = vec![
        Column::number("", "flows"),
        Column::number("long keys", "without"),
        Column::number("long keys", "with correction"),
        Column::number("addresses, crc32", "without"),
        Column::number("addresses, crc32", "with correction"),
    ];
    let mut table = Table::new(caption, columns);
    for flows in LARGE {
        let hashes = 2_f64.powi(32);
        let distinct = -hashes * (-flows / hashes).exp_m1();
        let error = |estimate: f64| Cell::new(format!("{:+.1}", (estimate / flows - 1.0) * 100.0));
        table.row(vec![
            Cell::new(grouped(flows as u64)),
            error(distinct),
            error(flajolet_large_range(distinct)),
            error(flows),
            error(flajolet_large_range(flows)),
        ]);
    }
    table
}

impl Findings {
    /// Returns the report, with `summary.csv` and `reads.csv`.
    pub(crate) fn report(&self) -> Report {
        let Options { seeds, read_skew } = self.options;
        let estimators = |traffic| {
            let tables = self.readings().iter().rev();
            Part::Text(tables.map(|it| estimator_table(self, traffic, *it).html()).collect())
        };
        let scatters = |traffic, first| {
            let configurations = CONFIGURATIONS.into_iter().enumerate();
            let charts = configurations
                .flat_map(|(index, it)| scatter(self, traffic, it, first + 2 * index));
            Part::Charts(charts.collect())
        };
        let skews = match self.readings() {
            [_] => Vec::new(),
            _ => [Traffic::Unique, Traffic::Bursty].map(|it| skew_by_cardinality(self, it)).into(),
        };
        let all = || self.runs.iter().chain(&self.sweep);
        let empty = self.runs.iter().filter_map(|(_, run)| {
            let errors = Errors::from_run(run, Reading::Instant, Estimator::Ertl)?;
            Some((run.reads.len() - errors.samples) as u64)
        });
        let parts = [
            ("printed-4.3", printed_averages(Traffic::Unique)),
            ("printed-4.4", printed_averages(Traffic::Bursty)),
            ("skew", Part::Text(milliseconds(self))),
            ("table-4.3", Part::Tables(vec![thesis_table(self, Traffic::Unique)])),
            ("table-4.4", Part::Tables(vec![thesis_table(self, Traffic::Bursty)])),
            ("ratios", Part::Tables(vec![ratio_table(self)])),
            ("skews", Part::Charts(skews)),
            ("scatters-4.3", scatters(Traffic::Unique, 4)),
            ("scatters-4.4", scatters(Traffic::Bursty, 12)),
            ("estimators-4.3", estimators(Traffic::Unique)),
            ("estimators-4.4", estimators(Traffic::Bursty)),
            ("errors", Part::Charts(error_by_cardinality(self).into())),
            ("raw", Part::Charts(vec![raw_bias(self)])),
            ("large-range", Part::Text(large_range_table().html())),
            ("sampling", Part::Text(sampling::table(seeds).html())),
            ("phases", Part::Charts(vec![sampling::chart(seeds)])),
            ("staggered", Part::Text(staggered::table(seeds).html())),
            ("step", Part::Charts(vec![staggered::chart()])),
            ("sequential", Part::Text(sequential_table(self).html())),
            ("sequential-charts", Part::Charts(sequential(self).into())),
            ("structured", Part::Charts(vec![figures::structured()])),
            ("profile", Part::Text(escape(&Traffic::Bursty.profile(1).to_string()))),
            ("runs", Part::Text(grouped(all().count() as u64))),
            (
                "packets",
                Part::Text(grouped(all().map(|(experiment, _)| experiment.packets()).sum())),
            ),
            ("empty", Part::Text(grouped(empty.sum()))),
        ];
        let skew = if read_skew.is_zero() { "none".to_owned() } else { format!("{read_skew:?}") };
        let command = format!("flowgauge reproduce whll --seeds {seeds} --read-skew {skew}");
        Report::new(
            include_str!("page.html"),
            &command,
            self.numbers(),
            &parts,
            [("summary.csv", summary_csv(self)), ("reads.csv", reads_csv(self))],
        )
    }
}

/// Returns one line per run, reading and estimator.
fn summary_csv(findings: &Findings) -> String {
    let cases = readings(findings)
        .flat_map(|case| Estimator::ALL.into_iter().map(move |estimator| (case, estimator)));
    let lines = cases.filter_map(|((experiment, run, reading), estimator)| {
        let Errors { average, median, bias, samples, max_cardinality } =
            Errors::from_run(run, reading, estimator)?;
        let (seed, expected) = (experiment.seed, experiment.expected_reads());
        Some(format!(
            "{},{estimator},{seed},{average:.4},{median:.4},{bias:.4},{samples},{expected},{max_cardinality}",
            columns(experiment, reading)
        ))
    });
    csv(
        "traffic,hash,read_s,reset_s,duration_s,read_skew_ms,estimator,seed,average_error_percent,median_error_percent,\
         bias_percent,samples,expected_samples,max_cardinality",
        lines,
    )
}

/// Returns one line per read, with the thesis' columns first (§4.2.4). Its `estimate` is that of its
/// estimator; the other two follow.
fn reads_csv(findings: &Findings) -> String {
    let lines = readings(findings).flat_map(|(experiment, run, reading)| {
        let columns = format!("{},{}", columns(experiment, reading), experiment.seed);
        run.reads.iter().map(move |read| {
            let Read { window, truth, .. } = read;
            let time = read.time_ns as f64 / 1e9;
            let [ertl, flajolet, mle] = [Estimator::Ertl, Estimator::Flajolet, Estimator::Mle]
                .map(|estimator| read.estimate(reading, estimator));
            format!("{time:.6},{window},{truth},{flajolet:.3},{ertl:.3},{mle:.3},{columns}")
        })
    });
    csv(
        "time,window_id,ground_truth,estimate,ertl,mle,traffic,hash,read_s,reset_s,duration_s,read_skew_ms,seed",
        lines,
    )
}

/// Returns all runs with each of their readings.
fn readings(findings: &Findings) -> impl Iterator<Item = (&Experiment, &Run, Reading)> {
    findings.runs.iter().chain(&findings.sweep).flat_map(|(experiment, run)| {
        let skewed = (!experiment.read_skew.is_zero()).then_some(Reading::Skewed);
        [Reading::Instant].into_iter().chain(skewed).map(move |reading| (experiment, run, reading))
    })
}

fn columns(experiment: &Experiment, reading: Reading) -> String {
    let Experiment { traffic, hash, configuration, duration, .. } = experiment;
    let (read, reset) = (configuration.read.as_secs_f64(), configuration.reset.as_secs_f64());
    let skew_ms = match reading {
        Reading::Instant => 0.0,
        Reading::Skewed => experiment.read_skew.as_secs_f64() * 1e3,
    };
    let (traffic, hash, duration) = (traffic.name(), hash.name(), duration.as_secs_f64());
    format!("{traffic},{hash},{read},{reset},{duration},{skew_ms}")
}
