//! Accuracy of windowed HyperLogLog: Tables 4.3 and 4.4 and Figures 4.4 to 4.19 of the W-HLL
//! thesis.
//!
//! All figures are measured with the software that users run: a poll-mode dataplane with its two
//! banks, fed from memory in trace time, and the controller's schedule of Poisson reads and exact
//! rotations. Only the *read skew* is simulated. The thesis reads the packet counter, its ground
//! truth, and then 2048 registers one after another while packets keep arriving (§4.2.4); a
//! snapshot here belongs to one instant. So each experiment reads twice, at the instant and later,
//! and compares both with the counter of the first. That the skew makes the errors of the thesis is
//! a hypothesis: its tables need different skews, see [`READ_SKEW`].
//!
//! The constants below are parameters of the thesis (chapter 4); its results are in the list of
//! printed numbers. `experiment` is one run, `page` and `figures` make the report, and `trace` counts
//! a capture. `sampling` compares fixed intervals with the Poisson process, and `staggered` has the
//! staggered registers that the thesis names as future work.

mod experiment;
mod figures;
mod page;
mod sampling;
mod staggered;
#[cfg(test)]
mod tests;
mod trace;

use experiment::{Experiment, Read, Reading, Run, Traffic};
pub(crate) use trace::replay;

use crate::error::ReproduceError;
use crate::parallel::{self, Progress};
use crate::statistics::{self, Numbers, Spread};
use flowgauge_core::HashMode;
use flowgauge_core::cardinality::{Precision, rank_table};
use flowgauge_ctl::measurement::cardinality::estimate::Estimator;
use std::time::Duration;

/// Times of reads and windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// Mean time between reads.
    pub read: Duration,
    /// Length of a window.
    pub reset: Duration,
}

/// The four configurations (§4.5), in the order of the tables.
pub(crate) const CONFIGURATIONS: [Configuration; 4] = [
    Configuration { read: Duration::from_millis(500), reset: Duration::from_secs(5) },
    Configuration { read: Duration::from_millis(1_000), reset: Duration::from_secs(10) },
    Configuration { read: Duration::from_millis(5_000), reset: Duration::from_secs(50) },
    Configuration { read: Duration::from_millis(10_000), reset: Duration::from_secs(100) },
];

/// Length of an experiment (Table 4.1).
pub(crate) const DURATION: Duration = Duration::from_secs(1320);

/// Packets per second of synthetic traffic (Table 4.1).
pub(crate) const RATE: f64 = 100.0;

/// Packets per second of the campus trace (§4.5.2).
pub(crate) const TRACE_RATE: f64 = 3_769.0;

/// Registers of the sketch (Table 4.1).
pub(crate) const REGISTERS: f64 = 2048.0;

/// Constant of the raw estimate (equation 3.4).
pub(crate) const ALPHA: f64 = 0.7213 / (1.0 + 1.079 / REGISTERS);

/// The theoretical standard error with 2048 registers, in percent (equation 4.3). The thesis
/// compares averages and medians of |error| with it.
pub(crate) const STANDARD_ERROR: f64 = 2.3;

/// Mean |error| of normal errors with this standard error: sqrt(2 / π) of it.
pub(crate) const EXPECTED_AVERAGE: f64 = 0.797_885 * STANDARD_ERROR;

/// Median |error| of normal errors with this standard error.
pub(crate) const EXPECTED_MEDIAN: f64 = 0.674_490 * STANDARD_ERROR;

/// Fitted skew: with 20 ms, short windows of unique sources have the errors of Table 4.3.
///
/// The skew is a hypothesis. The thesis states about 245 ms for reading the registers (§4.2.4),
/// which would make the errors of the shortest windows ten times as large, and Table 4.4 needs
/// about 70 ms.
pub(crate) const READ_SKEW: Duration = Duration::from_millis(20);

/// Repetitions of every experiment.
pub(crate) const SEEDS: u64 = 10;

/// Repetitions with `--quick`.
pub(crate) const QUICK_SEEDS: u64 = 2;

/// Many long windows, for the error as a function of the number of flows.
const SWEEP: Configuration =
    Configuration { read: Duration::from_secs(2), reset: Duration::from_secs(100) };
const SWEEP_DURATION: Duration = Duration::from_secs(13_200);

/// Parameters of the reproduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Repetitions of every experiment, with seeds 1, 2, …; half as many for the replacement of the
    /// campus trace, which has 38 times the packets.
    pub seeds: u64,
    /// Time between reading the packet counter and the registers in skewed readings; zero for none.
    pub read_skew: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { seeds: SEEDS, read_skew: READ_SKEW }
    }
}

/// Case of the tables: everything but the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Traffic.
    pub traffic: Traffic,
    /// Hash of the addresses.
    pub hash: HashMode,
    /// Times of reads and windows.
    pub configuration: Configuration,
    /// Registers that are compared with the ground truth.
    pub reading: Reading,
    /// Estimator.
    pub estimator: Estimator,
}

impl Case {
    /// Returns a case with the hash and the estimator of the thesis.
    pub(crate) fn of_thesis(
        traffic: Traffic,
        configuration: Configuration,
        reading: Reading,
    ) -> Case {
        let (hash, estimator) = (HashMode::Crc32, Estimator::Flajolet);
        Case { traffic, hash, configuration, reading, estimator }
    }
}

/// Errors of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Errors {
    /// Mean absolute relative error, in percent (equation 4.2).
    pub average: f64,
    /// Median absolute relative error, in percent.
    pub median: f64,
    /// Mean relative error, in percent: the bias.
    pub bias: f64,
    /// Number of reads with something to count.
    pub samples: usize,
    /// Largest number of flows at any read.
    pub max_cardinality: u64,
}

impl Errors {
    /// Returns the errors of a run; `None` without reads.
    pub(crate) fn from_run(run: &Run, reading: Reading, estimator: Estimator) -> Option<Self> {
        let signed: Vec<f64> =
            run.reads.iter().filter_map(|read| read.error(reading, estimator)).collect();
        let absolute: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        Some(Errors {
            average: statistics::mean(&absolute)?,
            median: statistics::median(&absolute)?,
            bias: statistics::mean(&signed)?,
            samples: signed.len(),
            max_cardinality: run.reads.iter().map(|read| read.truth).max()?,
        })
    }
}

/// Errors of a case over all seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Accuracy {
    /// Mean absolute relative error, in percent.
    pub average: Spread,
    /// Median absolute relative error, in percent.
    pub median: Spread,
    /// Number of reads.
    pub samples: Spread,
    /// Largest number of flows at any read of any seed.
    pub max_cardinality: u64,
}

/// Results of all experiments.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    options: Options,
    runs: Vec<(Experiment, Run)>,
    /// Long runs for the error as a function of the number of flows.
    sweep: Vec<(Experiment, Run)>,
}

/// Runs all experiments, one per processor at a time. Reports progress in counted packets.
///
/// # Errors
/// Any error of a dataplane.
pub(crate) fn run(options: &Options, progress: &Progress<'_>) -> Result<Findings, ReproduceError> {
    // The replacement of the trace comes first: its experiments take longest.
    let traffic = [Traffic::Bursty, Traffic::Unique, Traffic::Sequential];
    let mut experiments: Vec<Experiment> = traffic
        .into_iter()
        .flat_map(|traffic| experiments(options, traffic, &HashMode::PUBLIC))
        .collect();
    let tables = experiments.len();
    experiments.extend((1..=options.seeds).map(|seed| Experiment {
        traffic: Traffic::Unique,
        hash: HashMode::Tabulated,
        configuration: SWEEP,
        duration: SWEEP_DURATION,
        read_skew: Duration::ZERO,
        seed,
    }));
    let mut runs = execute(experiments, progress)?;
    let sweep = runs.split_off(tables);
    Ok(Findings { options: *options, runs, sweep })
}

/// Returns the experiments of the tables for this traffic.
fn experiments(options: &Options, traffic: Traffic, hashes: &[HashMode]) -> Vec<Experiment> {
    let Options { seeds, read_skew } = *options;
    let seeds = if traffic == Traffic::Bursty { seeds.div_ceil(2) } else { seeds };
    let per_hash = |hash| {
        CONFIGURATIONS.into_iter().flat_map(move |configuration| {
            (1..=seeds).map(move |seed| Experiment {
                traffic,
                hash,
                configuration,
                duration: DURATION,
                read_skew,
                seed,
            })
        })
    };
    hashes.iter().copied().flat_map(per_hash).collect()
}

/// Returns the results of short runs: those of all traffic in all configurations.
#[cfg(test)]
pub(crate) fn small() -> Findings {
    let options = Options { seeds: 1, read_skew: READ_SKEW };
    let short = |experiment| Experiment { duration: Duration::from_secs(60), ..experiment };
    let all = [Traffic::Bursty, Traffic::Unique]
        .into_iter()
        .flat_map(|traffic| experiments(&options, traffic, &[HashMode::Crc32]));
    let runs = execute(all.map(short).collect(), &|_, _| {}).unwrap();
    Findings { options, runs, sweep: Vec::new() }
}

fn execute(
    experiments: Vec<Experiment>,
    progress: &Progress<'_>,
) -> Result<Vec<(Experiment, Run)>, ReproduceError> {
    let threads = parallel::processors();
    let runs =
        parallel::try_run(&experiments, threads, Experiment::packets, progress, Experiment::run)?;
    Ok(experiments.into_iter().zip(runs).collect())
}

impl Findings {
    /// Returns the available readings.
    pub(crate) fn readings(&self) -> &'static [Reading] {
        if self.options.read_skew.is_zero() {
            &[Reading::Instant]
        } else {
            &[Reading::Skewed, Reading::Instant]
        }
    }

    /// Returns the runs of all seeds with this traffic, hash and configuration.
    pub(crate) fn runs(
        &self,
        traffic: Traffic,
        hash: HashMode,
        configuration: Configuration,
    ) -> impl Iterator<Item = &Run> {
        let wanted = move |run: &&Experiment| {
            run.traffic == traffic && run.hash == hash && run.configuration == configuration
        };
        self.runs.iter().filter(move |(experiment, _)| wanted(&experiment)).map(|(_, run)| run)
    }

    /// Returns the errors of a case; `None` if it was not run.
    pub(crate) fn accuracy(&self, case: &Case) -> Option<Accuracy> {
        let runs = self.runs(case.traffic, case.hash, case.configuration);
        let errors: Vec<Errors> =
            runs.filter_map(|run| Errors::from_run(run, case.reading, case.estimator)).collect();
        let spread = |figure: fn(&Errors) -> f64| Spread::from_values(errors.iter().map(figure));
        Some(Accuracy {
            average: spread(|errors| errors.average)?,
            median: spread(|errors| errors.median)?,
            samples: spread(|errors| errors.samples as f64)?,
            max_cardinality: errors.iter().map(|errors| errors.max_cardinality).max()?,
        })
    }

    /// Returns the average of bursty traffic over that of unique sources (§4.5.3); `None` if either
    /// was not run.
    pub(crate) fn ratio(&self, configuration: Configuration, reading: Reading) -> Option<f64> {
        let average = |traffic| {
            let case = Case::of_thesis(traffic, configuration, reading);
            Some(self.accuracy(&case)?.average.mean)
        };
        Some(average(Traffic::Bursty)? / average(Traffic::Unique)?)
    }

    /// Returns all results by name.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for (table, traffic) in [("4.3", Traffic::Unique), ("4.4", Traffic::Bursty)] {
            for configuration in CONFIGURATIONS {
                let window = format!("whll/{table}/{}s", configuration.reset.as_secs());
                let case = |reading| Case::of_thesis(traffic, configuration, reading);
                let mut add = |ending: &str, case: Case| {
                    let accuracy = self.accuracy(&case);
                    let average = accuracy.map(|accuracy| accuracy.average);
                    numbers.add(format!("{window}/average{ending}"), average);
                    let median = accuracy.map(|accuracy| accuracy.median);
                    numbers.add(format!("{window}/median{ending}"), median);
                };
                add("", case(Reading::Instant));
                add("/ertl", Case { estimator: Estimator::Ertl, ..case(Reading::Instant) });
                if self.readings().contains(&Reading::Skewed) {
                    add("/skewed", case(Reading::Skewed));
                }
                let accuracy = self.accuracy(&case(Reading::Instant));
                numbers.add(format!("{window}/reads"), accuracy.map(|accuracy| accuracy.samples));
                let flows = accuracy.map(|accuracy| accuracy.max_cardinality as f64);
                numbers.add_one(format!("{window}/flows"), flows);
                let share = accuracy.map(|accuracy| accuracy.median.mean / STANDARD_ERROR * 100.0);
                numbers.add_one(format!("{window}/median-of-standard-error"), share);
            }
        }
        for configuration in CONFIGURATIONS {
            let seconds = configuration.reset.as_secs();
            let ratio = self.ratio(configuration, Reading::Instant);
            numbers.add_one(format!("whll/ratio/{seconds}s"), ratio);
            let ratio = self.ratio(configuration, Reading::Skewed);
            numbers.add_one(format!("whll/ratio/{seconds}s/skewed"), ratio);
            let median =
                |table: &str| Some(numbers.get(&format!("whll/{table}/{seconds}s/median"))?.mean);
            let ratio = median("4.4").zip(median("4.3")).map(|(real, unique)| real / unique);
            numbers.add_one(format!("whll/median-ratio/{seconds}s"), ratio);
        }
        let unique = self.runs.iter().find(|(run, _)| run.traffic == Traffic::Unique);
        numbers.add_one("whll/packets", unique.map(|(run, _)| run.packets() as f64));
        let registers = Precision::DEFAULT.registers() as f64;
        numbers.add_one("whll/standard-error", Some(104.0 / registers.sqrt()));
        numbers.add_one("whll/alpha", Some(ALPHA));
        numbers.add_one("whll/bytes", Some(registers));
        numbers.add_one("whll/match-entries", Some(rank_table(Precision::DEFAULT).count() as f64));
        // Packets that arrive while the registers are read (§4.2.4).
        numbers.add_one("whll/late-packets", Some(0.245 * RATE));
        numbers
    }
}
