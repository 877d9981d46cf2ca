//! Tables and text of the report.

use super::figures::{
    HALF, error_by_cardinality, milliseconds, raw_bias, reading_name, scatter, sequential,
    skew_by_cardinality,
};
use super::thesis::{
    CONFIGURATIONS, Configuration, DURATION, EXPECTED_AVERAGE, EXPECTED_MEDIAN, RATIOS, Row,
    STANDARD_ERROR, TABLE_4_3, TABLE_4_4,
};
use super::{Case, Errors, Findings, Read, Reading, SWEEP_DURATION, Traffic};
use super::{sampling, staggered, structured};
use crate::report::html::Page;
use crate::report::{Cell, Column, Table, escape};
use crate::statistics::Spread;
use flowgauge_core::HashMode;
use flowgauge_ctl::measurement::cardinality::estimate::{Estimator, flajolet_large_range};
use flowgauge_ctl::output::grouped;

fn printed(traffic: Traffic) -> &'static [Row; 4] {
    match traffic {
        Traffic::Unique | Traffic::Sequential => &TABLE_4_3,
        Traffic::Bursty => &TABLE_4_4,
    }
}

fn title(traffic: Traffic) -> &'static str {
    match traffic {
        Traffic::Unique => "Table 4.3, random unique sources",
        Traffic::Sequential => "Sequential sources",
        Traffic::Bursty => "Table 4.4, bursty Zipf traffic in the place of the campus trace",
    }
}

fn row_name(configuration: &Configuration) -> Cell {
    let Configuration { read, reset } = configuration;
    Cell::new(format!("{} / {} s", read.as_secs_f64(), reset.as_secs_f64()))
}

fn percent(spread: Spread) -> Cell {
    let Spread { mean, deviation, low, high, count } = spread;
    let cell = Cell::new(format!("{mean:.2}"));
    if count > 1 {
        cell.detail(format!("±{deviation:.2}")).detail(format!("{low:.2}…{high:.2}"))
    } else {
        cell
    }
}

/// Returns columns of average and median for every reading.
fn error_columns(groups: impl IntoIterator<Item = String>) -> impl Iterator<Item = Column> {
    groups
        .into_iter()
        .flat_map(|group| [Column::number(&group, "average"), Column::number(&group, "median")])
}

fn error_cells(findings: &Findings, case: &Case) -> [Cell; 2] {
    let accuracy = findings.accuracy(case);
    accuracy.map_or_else(Default::default, |accuracy| {
        [percent(accuracy.average), percent(accuracy.median)]
    })
}

/// Returns a table of the thesis with our figures next to its own, with its hash and estimator.
pub(super) fn thesis_table(findings: &Findings, traffic: Traffic) -> Table {
    let runs = findings.runs(traffic, HashMode::Crc32, CONFIGURATIONS[0]).count();
    let caption = format!(
        "{}: |error| in %, mean of {runs} run{} (hash {}, estimator {}). Expected: the standard error, with which the thesis \
         compares, and 0.80 and 0.67 of it, the mean and median of normal errors",
        title(traffic),
        if runs == 1 { "" } else { "s" },
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
    for (configuration, row) in CONFIGURATIONS.iter().zip(printed(traffic)) {
        let case = |reading| Case {
            traffic,
            hash: HashMode::Crc32,
            configuration: *configuration,
            reading,
            estimator: Estimator::Flajolet,
        };
        let mut cells = vec![
            row_name(configuration),
            Cell::new(format!("{:.2}", row.average)),
            Cell::new(format!("{:.2}", row.median)),
        ];
        cells.extend(
            findings.readings().iter().flat_map(|reading| error_cells(findings, &case(*reading))),
        );
        let accuracy = findings.accuracy(&case(Reading::Instant));
        let expected = DURATION.as_secs_f64() / configuration.read.as_secs_f64();
        cells.extend([
            Cell::new(grouped(row.samples)),
            Cell::new(grouped(expected as u64)),
            Cell::new(accuracy.map_or_else(String::new, |accuracy| {
                grouped(accuracy.samples.mean.round() as u64)
            })),
            Cell::new(grouped(row.max_cardinality)),
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
pub(super) fn ratio_table(findings: &Findings) -> Table {
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
    for (configuration, printed) in CONFIGURATIONS.into_iter().zip(RATIOS) {
        let mut cells = vec![row_name(&configuration), Cell::new(format!("{printed:.1}"))];
        cells.extend(findings.readings().iter().map(|reading| {
            let ratio = findings.ratio(configuration, *reading);
            ratio.map_or_else(Cell::default, |ratio| Cell::new(format!("{ratio:.2}")))
        }));
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
            let first: Vec<f64> =
                windows.iter().filter(|read| read.window == 0).filter_map(error).collect();
            let all: Vec<f64> = windows.iter().filter_map(error).collect();
            cells.extend(
                [first, all]
                    .map(|errors| Spread::from_values(&errors).map_or_else(Cell::default, signed)),
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

/// Formats the averages of the four rows as a list in a sentence.
fn averages(findings: &Findings, traffic: Traffic, reading: Reading) -> String {
    let average = |configuration| {
        findings
            .average(traffic, configuration, reading)
            .map_or_else(String::new, |mean| format!("{mean:.2}"))
    };
    CONFIGURATIONS.map(average).join(" / ")
}

fn printed_averages(traffic: Traffic) -> String {
    printed(traffic).map(|row| format!("{:.2}", row.average)).join(" / ")
}

/// Returns the report.
pub(super) fn page(findings: &Findings) -> Page {
    let mut page =
        Page::new("The accuracy of windowed HyperLogLog: Tables 4.3 and 4.4 of the W-HLL thesis");
    lead(findings, &mut page);
    table_4_3(findings, &mut page);
    estimators(findings, &mut page);
    ranges(findings, &mut page);
    times(findings, &mut page);
    sequential_addresses(findings, &mut page);
    table_4_4(findings, &mut page);
    method(findings, &mut page);
    page
}

fn lead(findings: &Findings, page: &mut Page) {
    let skewed = if findings.readings().contains(&Reading::Skewed) {
        format!(
            " With registers read {} after the packet counter, which is the ground truth, they give {} %. The skew is a hypothesis, \
             fitted to these averages.",
            milliseconds(findings),
            averages(findings, Traffic::Unique, Reading::Skewed)
        )
    } else {
        String::new()
    };
    page.lead(&format!(
        "The thesis prints average errors of {} % for windows of 5, 10, 50 and 100 s. Counter and registers taken at one instant \
         give {} %.{skewed}",
        printed_averages(Traffic::Unique),
        averages(findings, Traffic::Unique, Reading::Instant),
    ));
}

fn table_4_3(findings: &Findings, page: &mut Page) {
    page.heading("Table 4.3: one new source a packet");
    page.paragraph(
        "1,320 s at 100 packets a second, every packet from a source of its own at random in 10.0.0.0/8, 2048 registers. The \
         packet counter is the ground truth, as in the thesis (§4.4.1). Shaded columns are the thesis'; below each of our \
         figures are its standard deviation and its range over the runs.",
    );
    page.table(&thesis_table(findings, Traffic::Unique));
    page.paragraph(&format!(
        "<strong>What to expect.</strong> The thesis compares averages and medians of |error| with the standard error, {STANDARD_ERROR} %, and finds them \
         below it (§4.5.3). But the standard error is a root mean square. Of normal errors the mean is 0.80 of it, {EXPECTED_AVERAGE:.2} %, and the median 0.67 of \
         it, {EXPECTED_MEDIAN:.2} %: a median of 1.16 % is not half of what theory says but three quarters. Where linear counting estimates, up to 5,120 flows, errors \
         are smaller still.",
    ));
    if findings.readings().contains(&Reading::Skewed) {
        page.paragraph(
            "<strong>Why the thesis' short windows look worse: a hypothesis.</strong> Its monitor reads the packet counter and then, over some \
             245 ms, register after register (§4.2.4). Packets that arrive in between raise registers and are in no ground \
             truth. At 100 packets a second, 20 ms are two flows: nothing among 10,000, but +200 % when one flow has been \
             counted. In windows of 5 s such reads are frequent enough to rule the average; the median moves less. A read \
             that would take longer than its window is finished at the window's end, as the thesis' scheduler puts reads before \
             resets.",
        );
        page.paragraph(
            "<strong>What speaks against it.</strong> The skew of 20 ms is fitted to this table. The 245 ms of the thesis would make the averages of its shortest \
             windows about ten times as large as it printed, and Table 4.4 needs about 70 ms. Two tables of one switch need two skews, so that neither is \
             confirmed. The thesis itself names outliers at few flows (§4.5.1) and, for the campus trace, burstiness (§4.5.2).",
        );
        let charts = [Traffic::Unique, Traffic::Bursty]
            .map(|traffic| skew_by_cardinality(findings, traffic));
        page.figure(
            &charts,
            "Mean absolute error against the number of flows in the window so far, windows of 5 s, all runs (crc32, flajolet). The \
             falling branch is the skew: a fixed number of flows too many. The dashed line is the mean of normal errors. Both axes are logarithmic.",
        );
    }
    page.paragraph(
        "<strong>Number of reads.</strong> Poisson reads with mean interval μ come to 1320 s / μ. The thesis has 1,654 instead of \
         2,640 because it draws the next interval when a read is over: 1320 / 1654 is 0.5 s plus about 0.3 s for the read. Its \
         reads are then no Poisson process, and PASTA (§4.2.6) does not hold for them. Here each interval runs from the \
         scheduled read before.",
    );
    scatters(findings, Traffic::Unique, 4, page);
}

/// Adds the thesis' two figures per configuration, linear and logarithmic, from figure 4.`first` on.
fn scatters(findings: &Findings, traffic: Traffic, first: usize, page: &mut Page) {
    for (position, configuration) in CONFIGURATIONS.into_iter().enumerate() {
        let number = first + 2 * position;
        page.figure(
            &scatter(findings, traffic, configuration, number),
            &format!(
                "Figures 4.{number} and 4.{} of the thesis again: seed 1, crc32, flajolet. The dashed line is the truth.",
                number + 1
            ),
        );
    }
}

fn estimators(findings: &Findings, page: &mut Page) {
    page.heading("The three estimators");
    page.paragraph(
        "<code>flajolet</code> is the thesis' estimator (§3.5.1): linear counting up to 2.5 m, the harmonic mean beyond. \
         <code>ertl</code> (the default) and <code>mle</code> are Ertl's improved raw and maximum likelihood estimators. All three \
         are given the same registers at the same reads.",
    );
    page.table(&estimator_table(findings, Traffic::Unique, Reading::Instant));
    if findings.readings().contains(&Reading::Skewed) {
        page.table(&estimator_table(findings, Traffic::Unique, Reading::Skewed));
    }
    let charts = error_by_cardinality(findings);
    let windows = findings.sweep.iter().map(|(_, run)| run.windows.len()).sum::<usize>();
    page.figure(
        &charts,
        &format!(
            "Error against the number of flows over {} windows of 100 s (tabulated, {} reads in runs of {} s). The band is the theoretical standard error (equation 4.3). Above 2.5 m, where it \
             leaves linear counting, <code>flajolet</code> is biased upwards: in windows of 50 and 100 s its errors \
             are larger than those of the other two.",
            grouped(windows as u64),
            grouped(findings.sweep.iter().map(|(_, run)| run.reads.len() as u64).sum()),
            grouped(SWEEP_DURATION.as_secs()),
        ),
    );
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

fn ranges(findings: &Findings, page: &mut Page) {
    page.heading("Small and large numbers of flows");
    page.figure(
        &[raw_bias(findings)],
        "Median error of the raw estimate, with the thesis' correction for few flows, and by <code>ertl</code>, over the same reads. Below 2.5 m = 5,120 flows the raw \
         estimate is far too high: with no flow it is 0.72 m.",
    );
    page.table(&large_range_table());
    page.paragraph(
        "<strong>No large-range correction.</strong> Flajolet's correction begins at 2<sup>32</sup>/30 = 143 million flows. It undoes collisions of hashes: right for keys longer than 32 \
         bits, and wrong for addresses of IPv4 under <code>crc32</code>, a bijection, where it adds 14 % at a billion. The 95 % interval is ±4.5 %, which collisions reach at 400 million \
         flows. Estimates near 2<sup>32</sup> take nearly all hashes: so many long keys have 63 % of them. The thesis names the correction for more than 2<sup>32</sup> flows (§3.5), where it \
         has no finite value.",
    );
}

fn times(findings: &Findings, page: &mut Page) {
    let seeds = findings.options().seeds;
    page.heading("Fixed intervals and a Poisson process (§2.4)");
    page.table(&sampling::table(seeds));
    page.figure(
        &[sampling::chart(seeds, HALF)],
        "Share of samples that see a burst, by the phase at which fixed samples begin. A fixed interval of half the period sees two instants of it, again and again. Bands are the range \
         of the Poisson process over all runs, at the times of the controller's schedule.",
    );
    page.heading("Staggered registers (future work of the thesis)");
    page.table(&staggered::table(seeds));
    page.figure(
        &[staggered::chart(HALF)],
        "Estimates of one run in which the rate doubles after four windows. Registers have seen up to two windows, the youngest next to nothing: an estimate follows within two windows, at \
         any time, where a windowed sketch says nothing before a window's end.",
    );
}

fn sequential_addresses(findings: &Findings, page: &mut Page) {
    page.heading("Sequential addresses");
    page.paragraph(
        "The thesis draws addresses at random and so does not see that CRC32 is linear: over the structured addresses of a real \
         network its hashes are structured too. With 10.0.0.1, 10.0.0.2, … the registers of <code>crc32</code> fill evenly or not \
         at all, and the estimate is far off. <code>tabulated</code>, the default, passes the CRC's four bytes through tables of \
         random words; sequential addresses are then like random ones.",
    );
    page.table(&sequential_table(findings));
    page.figure(
        &sequential(findings),
        "Error at the reads of windows of 100 s with sequential addresses, all runs (ertl). The addresses are the same in every run.",
    );
    page.figure(
        &[structured::chart(HALF)],
        "Estimate over truth of one window, from 10.0.0.1 on. How wrong the linear hash is depends on how many addresses there are.",
    );
}

fn table_4_4(findings: &Findings, page: &mut Page) {
    page.heading("Table 4.4: a stand-in for the campus trace");
    let profile = Traffic::Bursty.profile(1);
    page.paragraph(&format!(
        "The campus trace is not public. In its place stand about 5 million packets at 3,769 a second over 1,320 s, in bursts of \
         half a second every second, from sources by Zipf's law: <code>memory:{}</code>. Number of sources and exponent were chosen so that \
         windows hold about as many flows as Table 4.4 says; nothing else about the trace is known. What follows shows the size \
         of an effect, not the thesis' figures again. Ground truth is an exact set of sources.",
        escape(&profile.to_string())
    ));
    page.table(&thesis_table(findings, Traffic::Bursty));
    page.table(&ratio_table(findings));
    page.paragraph(
        "<strong>Not reproduced.</strong> The thesis finds that campus traffic has 2.5 times the average error of synthetic traffic in windows of 5 s, and \
         1.2 times in windows of 100 s. The stand-in has about the same errors as unique sources in all windows, with the skew and without.",
    );
    page.table(&estimator_table(findings, Traffic::Bursty, Reading::Instant));
    if findings.readings().contains(&Reading::Skewed) {
        page.table(&estimator_table(findings, Traffic::Bursty, Reading::Skewed));
    }
    page.paragraph(&format!(
        "<strong>The difference.</strong> A sketch cannot tell how bursty its packets are: registers hold maxima, so neither order \
         nor repetition matters. With everything taken at one instant the averages are accordingly as good as for unique \
         sources, {} % against {} % in the thesis, which puts the difference down to burstiness and uneven addresses (§4.5.2).",
        averages(findings, Traffic::Bursty, Reading::Instant),
        printed_averages(Traffic::Bursty),
    ));
    if findings.readings().contains(&Reading::Skewed) {
        page.paragraph(&format!(
            "Rate and burstiness matter between two reads: at the start of a window and within a burst, many new flows come in {}. \
             With that skew the averages are {} %. The thesis' short windows are further off. Two more offsets of its monitor stay \
             for a whole window: registers are cleared in place while packets arrive, and they are cleared before the counter, so \
             that packets in between are in the registers and not in the counter by which the ground truth is looked up (§4.4.3). \
             All three act alike: registers and ground truth belong to different instants. Put into one number, the averages of \
             the thesis are about those of a skew of 60 to 80 ms (<code>--read-skew 70ms</code>), its medians those of more. With that, \
             Table 4.3 would begin at 10 %, not 3.42 %: the same switch has one skew, so this remains a hypothesis. Two banks and one flip, as here, leave none.",
            milliseconds(findings),
            averages(findings, Traffic::Bursty, Reading::Skewed),
        ));
    }
    scatters(findings, Traffic::Bursty, 12, page);
}

fn method(findings: &Findings, page: &mut Page) {
    let seeds = findings.options().seeds;
    let packets: u64 = findings
        .runs
        .iter()
        .chain(&findings.sweep)
        .map(|(experiment, _)| experiment.packets())
        .sum();
    let runs = findings.runs.len() + findings.sweep.len();
    let without = findings
        .runs
        .iter()
        .filter_map(|(_, run)| {
            Some(
                run.reads.len() - Errors::from_run(run, Reading::Instant, Estimator::Ertl)?.samples,
            )
        })
        .sum::<usize>();
    page.heading("Method");
    page.list([
        format!(
            "{} runs, {} packets, flowgauge {}. Each is a poll-mode dataplane with one worker, fed from memory in trace time: \
             waiting until t means counting every packet before t, so every run gives identical results.",
            grouped(runs as u64),
            grouped(packets),
            env!("CARGO_PKG_VERSION")
        ),
        format!(
            "Seeds 1 to {seeds}, of the stand-in for the campus trace half as many; a seed sets the sources, the tables of the \
             tabulated hash and the times of the reads."
        ),
        "Windows are closed by flipping banks at exact multiples of their length. Reads are a Poisson process.".to_owned(),
        format!(
            "The relative error of a read is (estimate − truth) / truth (equation 4.1). It has no value for an empty window: {} reads.",
            grouped(without as u64)
        ),
        "Average and median are taken over the reads of a run; the tables show their means over runs. “Max. flows” is the most at \
         any read; windows that end between two reads hold a few more."
            .to_owned(),
        "<code>summary.csv</code> has one line a run, reading and estimator; <code>reads.csv</code> has every read, the thesis’ \
         columns first (its <code>estimate</code> is by <code>flajolet</code>). <code>read_skew_ms</code> tells the readings apart."
            .to_owned(),
        format!("To repeat: <code>{}</code>", escape(&command(findings))),
    ]);
}

/// Returns the command that makes the report.
pub(super) fn command(findings: &Findings) -> String {
    let super::Options { seeds, read_skew } = findings.options();
    let skew = if read_skew.is_zero() { "none".to_owned() } else { format!("{read_skew:?}") };
    format!("flowgauge reproduce whll --seeds {seeds} --read-skew {skew}")
}
