//! Prefixes that reorder packets: flow sampling, and the hybrid that also tracks large flows.
//!
//! Both are in chapter 3 of the data-plane performance dissertation, which is not at hand: only the
//! abstract and the introduction describe them. The algorithms are therefore a reconstruction, the
//! traces are generated, and the reference is one sentence.

mod experiment;
mod page;
#[cfg(test)]
mod tests;
mod trace;

use experiment::{
    ALGORITHMS, BETA, MEMORIES_LOG2, MEMORY_LOG2, Outcome, PACKETS, Run, Setup, TableResult,
    Traffic,
};
pub(crate) use trace::replay;

use crate::parallel::{self, Progress};
use crate::statistics::{Numbers, Spread};

/// Repetitions of every experiment.
pub(crate) const SEEDS: u64 = 10;

/// Repetitions with `--quick`.
pub(crate) const QUICK_SEEDS: u64 = 2;

/// Results of all experiments.
pub(crate) struct Findings {
    seeds: u64,
    outcomes: Vec<Outcome>,
}

/// Runs all experiments with seeds 1 to `seeds`, one per processor at a time. Reports progress in
/// packets.
pub(crate) fn run(seeds: u64, progress: &Progress<'_>) -> Findings {
    execute(seeds, PACKETS, &Traffic::ALL, &Setup::all(), parallel::processors(), progress)
}

fn execute(
    seeds: u64,
    packets: u64,
    traffic: &[Traffic],
    setups: &[Setup],
    threads: usize,
    progress: &Progress<'_>,
) -> Findings {
    let runs: Vec<Run> = traffic
        .iter()
        .flat_map(|traffic| (1..=seeds).map(move |seed| Run { traffic: *traffic, packets, seed }))
        .collect();
    let packets = |run: &Run| run.packets;
    let outcomes = parallel::run(&runs, threads, packets, progress, |run| run.execute(setups));
    Findings { seeds, outcomes }
}

/// Returns the results of short runs.
#[cfg(test)]
pub(crate) fn small() -> Findings {
    execute(1, 400_000, &Traffic::ALL, &Setup::all(), 2, &|_, _| {})
}

impl Findings {
    fn outcomes(&self, traffic: Traffic) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(move |outcome| outcome.run.traffic == traffic)
    }

    /// Returns the results of a table, run by run.
    fn results(
        &self,
        traffic: Traffic,
        setup: Setup,
    ) -> impl Iterator<Item = (&Outcome, &TableResult)> {
        let of = move |outcome: &'_ Outcome| {
            outcome.results.iter().position(|result| result.setup == setup)
        };
        self.outcomes(traffic)
            .filter_map(move |outcome| Some((outcome, outcome.results.get(of(outcome)?)?)))
    }

    /// Returns the mean over all runs of a function of a table's result, and how much it varies.
    fn spread(
        &self,
        traffic: Traffic,
        setup: Setup,
        what: impl Fn(&Outcome, &TableResult) -> Option<f64>,
    ) -> Option<Spread> {
        let results = self.results(traffic, setup);
        Spread::from_values(results.filter_map(|(outcome, result)| what(outcome, result)))
    }

    /// Returns the sum over all runs of a function of a table's result.
    fn sum(
        &self,
        traffic: Traffic,
        setup: Setup,
        what: impl Fn(&Outcome, &TableResult) -> u64,
    ) -> u64 {
        self.results(traffic, setup).map(|(outcome, result)| what(outcome, result)).sum()
    }

    /// Returns the mean over all runs of a function of the traffic.
    fn mean(&self, traffic: Traffic, what: impl Fn(&Outcome) -> f64) -> f64 {
        Spread::from_values(self.outcomes(traffic).map(what)).map_or(0.0, |spread| spread.mean)
    }

    /// Returns all results by name, in percent.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for (traffic, setup) in Traffic::ALL
            .into_iter()
            .flat_map(|traffic| Setup::all().into_iter().map(move |setup| (traffic, setup)))
        {
            let name = format!(
                "reorder/{}/{}/{}",
                traffic.name(),
                setup.algorithm.name(),
                1_u32 << setup.memory_log2
            );
            let percent = |what: fn(&Outcome, &TableResult) -> Option<f64>| {
                self.spread(traffic, setup, |outcome, result| Some(what(outcome, result)? * 100.0))
            };
            numbers.add(format!("{name}/recall"), percent(Outcome::recall));
            numbers.add(format!("{name}/precision"), percent(|_, result| result.precision()));
        }
        numbers
    }
}
