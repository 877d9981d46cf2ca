//! Plots of the thesis, and some that explain them.

use super::{CONFIGURATIONS, Configuration, EXPECTED_AVERAGE, REGISTERS, STANDARD_ERROR};
use super::{Findings, Read, Reading, Traffic};
use crate::report::svg::{Axis, Chart, Tone};
use crate::statistics;
use flowgauge_core::hash::crc32;
use flowgauge_core::{Cardinality, HashMode, Precision, Tabulation};
use flowgauge_ctl::measurement::cardinality::estimate::{Estimator, estimate};
use flowgauge_ctl::output::grouped;
use std::ops::Range;

/// Returns estimates against the truth, linear and logarithmic (Figures 4.`number` and the next one),
/// of one seed with the hash and estimator of the thesis; nothing if that was not run.
pub(super) fn scatter(
    findings: &Findings,
    traffic: Traffic,
    configuration: Configuration,
    number: usize,
) -> Vec<Chart> {
    let Some(run) = findings.runs(traffic, HashMode::Crc32, configuration).next() else {
        return Vec::new();
    };
    let most = run
        .reads
        .iter()
        .map(|read| read.truth.max(read.skewed.by(Estimator::Flajolet) as u64))
        .max();
    let most = most.map_or(1.0, |most| most as f64 * 1.03);
    let title = |number: usize, scale: &str| {
        let Configuration { read, reset } = configuration;
        let (read, reset) = (read.as_secs_f64(), reset.as_secs_f64());
        format!("Figure 4.{number}: {}, {read} s reads, {reset} s windows, {scale}", traffic.name())
    };
    let points = |reading| {
        let point =
            move |read: &Read| (read.truth as f64, read.estimate(reading, Estimator::Flajolet));
        run.reads.iter().filter(|read| read.truth > 0).map(point)
    };
    let draw = |title: String, x: Axis, y: Axis| {
        let chart = Chart::new(&title, x, y);
        let chart = chart.dashed("", Tone::Neutral, [(1.0, 1.0), (most, most)]);
        findings.readings().iter().fold(chart, |chart, &reading| {
            let tone = if reading == Reading::Skewed { Tone::Second } else { Tone::First };
            chart.points(&reading_name(findings, reading), tone, points(reading))
        })
    };
    let (truth, estimate) = ("flows (truth)", "flows (estimate)");
    vec![
        draw(
            title(number, "linear"),
            Axis::linear(truth, 0.0, most),
            Axis::linear(estimate, 0.0, most),
        ),
        draw(
            title(number + 1, "logarithmic"),
            Axis::logarithmic(truth, 0.9, most),
            Axis::logarithmic(estimate, 0.9, most),
        ),
    ]
}

/// Formats the read skew.
pub(super) fn milliseconds(findings: &Findings) -> String {
    format!("{} ms", findings.options.read_skew.as_secs_f64() * 1e3)
}

pub(super) fn reading_name(findings: &Findings, reading: Reading) -> String {
    match reading {
        Reading::Instant => "registers of the same instant".to_owned(),
        Reading::Skewed => format!("registers {} later", milliseconds(findings)),
    }
}

/// Width of a bin of the number of flows.
const WIDTH: u64 = 200;
const MAX_FLOWS: u64 = 10_000;

/// Returns bins of the number of flows.
fn bins() -> impl Iterator<Item = Range<u64>> {
    (0..MAX_FLOWS / WIDTH).map(|bin| bin * WIDTH + 1..(bin + 1) * WIDTH + 1)
}

/// Returns the median relative bias of the raw estimate, with its correction and by `ertl` (Figure
/// 2.9).
pub(super) fn raw_bias(findings: &Findings) -> Chart {
    let reads: Vec<&Read> = findings.sweep.iter().flat_map(|(_, run)| &run.reads).collect();
    let (x, y) = (
        Axis::linear("flows (truth)", 0.0, MAX_FLOWS as f64),
        Axis::linear("median error, %", -5.0, 50.0),
    );
    let raw = |read: &Read| {
        let truth = read.truth as f64;
        (read.truth > 0).then(|| (read.instant.raw / truth - 1.0) * 100.0)
    };
    let by = |estimator| move |read: &Read| read.error(Reading::Instant, estimator);
    Chart::new("Figure 2.9: median relative bias", x, y)
        .dashed("", Tone::Neutral, [(0.0, 0.0), (MAX_FLOWS as f64, 0.0)])
        .line("raw", Tone::Fourth, curve(&reads, bins(), raw, statistics::median))
        .line(
            "flajolet: linear counting up to 2.5 m",
            Tone::Second,
            curve(&reads, bins(), by(Estimator::Flajolet), statistics::median),
        )
        .line("ertl", Tone::First, curve(&reads, bins(), by(Estimator::Ertl), statistics::median))
}

/// Returns bias and root mean square error of the three estimators as functions of the number of
/// flows.
pub(super) fn error_by_cardinality(findings: &Findings) -> [Chart; 2] {
    let reads: Vec<&Read> = findings.sweep.iter().flat_map(|(_, run)| &run.reads).collect();
    let axis = || Axis::linear("flows (truth)", 0.0, MAX_FLOWS as f64);
    let lines = |chart: Chart, figure: fn(&[f64]) -> Option<f64>| {
        // Draw the default last, on top.
        let estimators = [
            (Estimator::Flajolet, Tone::Second),
            (Estimator::Mle, Tone::Third),
            (Estimator::Ertl, Tone::First),
        ];
        estimators.into_iter().fold(chart, |chart, (estimator, tone)| {
            let error = |read: &Read| read.error(Reading::Instant, estimator);
            chart.line(estimator.name(), tone, curve(&reads, bins(), error, figure))
        })
    };
    let switch = format!("2.5 m = {}", grouped((2.5 * REGISTERS) as u64));
    let edge = MAX_FLOWS as f64;
    let bias = Chart::new("Mean error (bias)", axis(), Axis::linear("mean error, %", -3.0, 3.0))
        .band(
            "±2.3 %",
            Tone::Neutral,
            [(0.0, -STANDARD_ERROR, STANDARD_ERROR), (edge, -STANDARD_ERROR, STANDARD_ERROR)],
        )
        .dashed(&switch, Tone::Neutral, [(2.5 * REGISTERS, -3.0), (2.5 * REGISTERS, 3.0)]);
    let rms = Chart::new(
        "Root mean square error",
        axis(),
        Axis::linear("root mean square error, %", 0.0, 4.0),
    )
    .band("up to 2.3 %", Tone::Neutral, [(0.0, 0.0, STANDARD_ERROR), (edge, 0.0, STANDARD_ERROR)])
    .dashed(&switch, Tone::Neutral, [(2.5 * REGISTERS, 0.0), (2.5 * REGISTERS, 4.0)]);
    [lines(bias, statistics::mean), lines(rms, statistics::root_mean_square)]
}

/// Returns a statistic of the errors by number of flows. Bins with few reads are omitted.
fn curve(
    reads: &[&Read],
    bins: impl Iterator<Item = Range<u64>>,
    error: impl Fn(&Read) -> Option<f64>,
    figure: fn(&[f64]) -> Option<f64>,
) -> Vec<(f64, f64)> {
    const FEW: usize = 5;
    let mut sorted: Vec<&Read> = reads.to_vec();
    sorted.sort_unstable_by_key(|read| read.truth);
    let below = |truth: u64| sorted.partition_point(|read| read.truth < truth);
    let point = |bin: Range<u64>| {
        let inside = sorted.get(below(bin.start)..below(bin.end)).unwrap_or_default();
        let errors: Vec<f64> = inside.iter().filter_map(|read| error(read)).collect();
        let centre = inside.iter().map(|read| read.truth as f64).sum::<f64>() / inside.len() as f64;
        figure(&errors).filter(|_| errors.len() >= FEW).map(|value| (centre, value))
    };
    bins.filter_map(point).collect()
}

/// Returns the mean absolute error by number of flows in the thesis' shortest windows, which
/// explains their average.
pub(super) fn skew_by_cardinality(findings: &Findings, traffic: Traffic) -> Chart {
    let configuration = CONFIGURATIONS[0];
    let reads: Vec<&Read> =
        findings.runs(traffic, HashMode::Crc32, configuration).flat_map(|run| &run.reads).collect();
    let most = reads.iter().map(|read| read.truth).max().unwrap_or(1).max(10) as f64;
    let edges: Vec<u64> = (0..=100)
        .map(|step| 1.15_f64.powi(step).round() as u64)
        .filter(|edge| *edge as f64 <= most)
        .collect();
    let bins = || {
        edges
            .windows(2)
            .filter_map(|pair| pair.first().zip(pair.last()))
            .map(|(low, high)| *low..*high)
    };
    let absolute: fn(&[f64]) -> Option<f64> = |errors| {
        statistics::mean(&errors.iter().map(|error| error.abs()).collect::<Vec<_>>())
            .filter(|mean| *mean > 0.0)
    };
    let name = match traffic {
        Traffic::Bursty => "Table 4.4's stand-in",
        Traffic::Unique | Traffic::Sequential => "Table 4.3",
    };
    let title = format!("{name}, windows of {} s", configuration.reset.as_secs_f64());
    let (x, y) = (
        Axis::logarithmic("flows (truth)", 1.0, most),
        Axis::logarithmic("mean absolute error, %", 0.01, 1_000.0),
    );
    let chart = Chart::new(&title, x, y).dashed(
        &format!("{EXPECTED_AVERAGE:.1} %"),
        Tone::Neutral,
        [(1.0, EXPECTED_AVERAGE), (most, EXPECTED_AVERAGE)],
    );
    findings.readings().iter().fold(chart, |chart, &reading| {
        let tone = if reading == Reading::Skewed { Tone::Second } else { Tone::First };
        let error = |read: &Read| read.error(reading, Estimator::Flajolet);
        let curve = curve(&reads, bins(), error, absolute);
        chart.line(&reading_name(findings, reading), tone, curve)
    })
}

/// Returns the errors on sequential addresses, with both hashes.
pub(super) fn sequential(findings: &Findings) -> [Chart; 2] {
    let configuration = CONFIGURATIONS[3];
    let points = |hash| {
        let runs = findings.runs(Traffic::Sequential, hash, configuration);
        runs.flat_map(|run| &run.reads).filter_map(|read| {
            Some((read.truth as f64, read.error(Reading::Instant, Estimator::Ertl)?))
        })
    };
    let draw = |title: &str, range: f64| {
        let (x, y) =
            (Axis::linear("flows (truth)", 0.0, 10_000.0), Axis::linear("error, %", -range, range));
        Chart::new(title, x, y)
            .band(
                "±2.3 %",
                Tone::Neutral,
                [
                    (0.0, -STANDARD_ERROR, STANDARD_ERROR),
                    (10_000.0, -STANDARD_ERROR, STANDARD_ERROR),
                ],
            )
            .points(HashMode::Crc32.name(), Tone::Second, points(HashMode::Crc32))
            .points(HashMode::Tabulated.name(), Tone::First, points(HashMode::Tabulated))
    };
    [
        draw("Sequential addresses: all errors", 140.0),
        draw("Sequential addresses: errors up to 10 %", 10.0),
    ]
}

/// First structured address: 10.0.0.1.
const FIRST: u32 = 0x0a00_0001;

/// Range of the numbers of addresses, and points of a curve for each factor of ten.
const MIN_ADDRESSES: f64 = 100.0;
const MAX_ADDRESSES: f64 = 1e6;
const POINTS_PER_DECADE: u32 = 20;

/// Returns estimate over truth of addresses at a distance of each other, for each number of them.
fn ratios(step: u32, hash: HashMode, numbers: &[u32]) -> Vec<(f64, f64)> {
    let tabulation = Box::new(Tabulation::from_seed(1));
    let mut registers = Box::new(Cardinality::new());
    let (mut counted, mut ratios) = (0, Vec::new());
    for &number in numbers {
        for index in counted..number {
            let address = FIRST.wrapping_add(index.wrapping_mul(step));
            let hash = hash.hash(crc32(&address.to_be_bytes()), &tabulation);
            registers.update(hash, Precision::DEFAULT);
        }
        counted = number;
        if let Ok(found) = estimate(registers.levels(Precision::DEFAULT), Estimator::Ertl) {
            ratios.push((f64::from(number), found.value / f64::from(number)));
        }
    }
    ratios
}

/// Returns the estimate over the truth of structured addresses under the linear CRC of the thesis,
/// by the number of addresses.
pub(super) fn structured() -> Chart {
    let decades = (MAX_ADDRESSES / MIN_ADDRESSES).log10().round() as u32;
    let numbers: Vec<u32> = (0..=decades * POINTS_PER_DECADE)
        .map(|point| {
            (MIN_ADDRESSES * 10_f64.powf(f64::from(point) / f64::from(POINTS_PER_DECADE))).round()
                as u32
        })
        .collect();
    let (x, y) = (
        Axis::logarithmic("addresses", MIN_ADDRESSES, MAX_ADDRESSES),
        Axis::linear("estimate / truth", 0.0, 2.5),
    );
    Chart::new("Structured addresses by their number", x, y)
        .dashed("", Tone::Neutral, [(MIN_ADDRESSES, 1.0), (MAX_ADDRESSES, 1.0)])
        .line(
            "crc32, one address of each /24",
            Tone::Third,
            ratios(1 << 8, HashMode::Crc32, &numbers),
        )
        .line("crc32, sequential", Tone::Second, ratios(1, HashMode::Crc32, &numbers))
        .line("tabulated, sequential", Tone::First, ratios(1, HashMode::Tabulated, &numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ratios of a program of its own, with two digits. `docs/accuracy.md` states some of them.
    #[test]
    fn ratios_are_the_known_ones() {
        let numbers = [100, 1_000, 2_000, 5_000, 20_000, 100_000];
        for (step, known) in [
            (1, [1.03, 1.35, 0.76, 1.99, 0.97, 1.92]),
            (1 << 8, [1.03, 0.60, 0.30, 0.71, 1.82, 1.92]),
        ] {
            for ((number, ratio), known) in
                ratios(step, HashMode::Crc32, &numbers).into_iter().zip(known)
            {
                assert!((ratio - known).abs() <= 0.005 + 1e-9, "{step} {number}: {ratio}");
            }
        }
        // The interval of 95 % is about 4.5 %; 3.72 deviations are 8.6 %.
        for (number, ratio) in ratios(1, HashMode::Tabulated, &numbers) {
            assert!((ratio - 1.0).abs() < 0.086, "{number}: {ratio}");
        }
    }
}
