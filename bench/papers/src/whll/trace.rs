//! The thesis' protocol on a capture: Table 4.4 on a trace of one's own.

use super::Errors;
use super::experiment::{Experiment, Reading, Run, Traffic};
use super::{CONFIGURATIONS, Configuration, DURATION, STANDARD_ERROR};
use crate::error::ReproduceError;
use crate::parallel::{self, Progress};
use crate::report::{Cell, Column, Table, number_cell};
use crate::statistics;
use crate::trace::Trace;
use flowgauge_core::HashMode;
use flowgauge_ctl::measurement::cardinality::estimate::Estimator;
use flowgauge_ctl::output::grouped;
use std::time::Duration;

/// Hash and estimator of the thesis, and the default ones.
const VARIANTS: [(HashMode, Estimator); 2] =
    [(HashMode::Crc32, Estimator::Flajolet), (HashMode::Tabulated, Estimator::Ertl)];

/// Counts a trace in windows of 5, 10, 50 and 100 s, up to the 22 minutes of the thesis, with
/// Poisson reads. The truth is the exact set of sources.
///
/// # Errors
/// As [`Experiment::replay`], and [`ReproduceError::NoPackets`] if no read saw a packet.
pub(crate) fn replay(
    trace: &Trace,
    seed: u64,
    progress: &Progress<'_>,
) -> Result<Vec<Table>, ReproduceError> {
    let jobs: Vec<(Configuration, HashMode)> = CONFIGURATIONS
        .into_iter()
        .flat_map(|configuration| VARIANTS.map(|(hash, _)| (configuration, hash)))
        .collect();
    let threads = parallel::processors();
    let runs = parallel::try_run(&jobs, threads, parallel::equal_cost, progress, |job| {
        let (configuration, hash) = *job;
        let experiment = Experiment {
            traffic: Traffic::Bursty,
            hash,
            configuration,
            duration: DURATION,
            read_skew: Duration::ZERO,
            seed,
        };
        experiment.replay(trace)
    })?;
    if runs.iter().all(|run| run.reads.iter().all(|read| read.truth == 0)) {
        return Err(trace.without("IPv4 or IPv6 packet at the time of a read"));
    }
    let caption = format!(
        "|error| of distinct sources in %, read as in the thesis (Table 4.4), seed {seed}; standard error {STANDARD_ERROR} %"
    );
    let mut columns = vec![
        Column::text("", "read / reset"),
        Column::number("", "whole windows"),
        Column::number("", "reads"),
        Column::number("", "max. flows"),
    ];
    for (hash, estimator) in VARIANTS {
        let group = format!("{}, {}", hash.name(), estimator.name());
        columns.extend(
            ["average", "median", "whole windows"].map(|name| Column::number(&group, name)),
        );
    }
    let mut table = Table::new(caption, columns);
    for (configuration, pair) in CONFIGURATIONS.into_iter().zip(runs.chunks(VARIANTS.len())) {
        let Configuration { read, reset } = configuration;
        let errors = |run: &Run, estimator| Errors::from_run(run, Reading::Instant, estimator);
        let first = pair.first().and_then(|run| errors(run, Estimator::Flajolet));
        let number = |number: Option<u64>| {
            number.map_or_else(Cell::default, |number| Cell::new(grouped(number)))
        };
        let mut row = vec![
            Cell::new(format!("{} / {} s", read.as_secs_f64(), reset.as_secs_f64())),
            number(pair.first().map(|run| run.windows.len() as u64)),
            number(first.map(|errors| errors.samples as u64)),
            number(first.map(|errors| errors.max_cardinality)),
        ];
        for (run, (_, estimator)) in pair.iter().zip(VARIANTS) {
            let reads = errors(run, estimator);
            let windows: Vec<f64> = run
                .windows
                .iter()
                .filter_map(|window| window.error(Reading::Instant, estimator))
                .map(f64::abs)
                .collect();
            let figures = [
                reads.map(|errors| errors.average),
                reads.map(|errors| errors.median),
                statistics::mean(&windows),
            ];
            row.extend(figures.map(|error| number_cell(error, 2)));
        }
        table.row(row);
    }
    Ok(vec![table])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::CaptureFile;

    #[test]
    fn a_capture_is_read_and_counted_as_generated_traffic_is() {
        // 20 s with 25 packets a second from 100 sources in turn.
        let file = CaptureFile::of_sources("whll", 500, 40_000_000, 100);
        let trace = file.trace(1 << 21, 10);
        let experiment = Experiment {
            traffic: Traffic::Bursty,
            hash: HashMode::Tabulated,
            configuration: CONFIGURATIONS[0],
            duration: DURATION,
            read_skew: Duration::ZERO,
            seed: 1,
        };
        let run = experiment.replay(&trace).unwrap();
        // The fourth window is not over when the trace is.
        assert_eq!(run.windows.len(), 3);
        for window in &run.windows {
            assert_eq!(window.truth, 100);
            // With 2,048 registers, 100 flows are counted by the registers that they take.
            assert!(window.error(Reading::Instant, Estimator::Ertl).unwrap().abs() < 10.0);
        }
        let expected = 20.0 / CONFIGURATIONS[0].read.as_secs_f64();
        let reads = flowgauge_testing::chance::poisson(expected);
        assert!(reads.contains(&(run.reads.len() as u64)), "{}", run.reads.len());
        let text = replay(&trace, 1, &|_, _| {}).unwrap()[0].to_string();
        assert!(text.contains("0.5 / 5 s") && text.contains("tabulated, ertl"), "{text}");
    }
}
