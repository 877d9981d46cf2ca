//! Prefixes that reorder packets: flow sampling, and the hybrid that follows large flows as well.
//!
//! Both are in chapter 3 of the data-plane performance dissertation, which is not at hand. Its
//! abstract and introduction are. So the algorithms are a reconstruction, the traces are generated,
//! and the dissertation's figure is one sentence.

mod experiment;
mod known;
mod page;
mod summary;
#[cfg(test)]
mod tests;

pub use experiment::{
    ALGORITHMS, BETA, MEMORIES_LOG2, MEMORY_LOG2, Outcome, PACKETS, Run, Seen, Setup, Traffic,
};

use crate::error::ReproduceError;
use crate::parallel::{self, Progress};
use crate::report::{Directory, Table};
use crate::statistics::Spread;
use flowgauge_core::reorder::Algorithm;
use std::convert::Infallible;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// Repetitions of every experiment.
pub const SEEDS: u64 = 10;

/// Repetitions for a look in passing.
pub const QUICK_SEEDS: u64 = 2;

/// Everything measured.
pub struct Findings {
    seeds: u64,
    outcomes: Vec<Outcome>,
}

/// Runs all experiments with seeds 1 to `seeds`, as many at a time as there are processors.
/// Progress is in packets.
#[must_use]
pub fn run(seeds: u64, progress: &Progress<'_>) -> Findings {
    let threads = available_parallelism().map_or(1, NonZero::get);
    execute(seeds, PACKETS, &Traffic::ALL, &Setup::all(), threads, progress)
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
    let Ok(outcomes) = parallel::run(
        &runs,
        threads,
        |run| run.packets,
        progress,
        |run| Ok::<_, Infallible>(run.execute(setups)),
    );
    Findings { seeds, outcomes }
}

impl Findings {
    fn outcomes(&self, traffic: Traffic) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(move |outcome| outcome.run.traffic == traffic)
    }

    /// What tables of a kind have seen, run by run.
    fn seen(&self, traffic: Traffic, setup: Setup) -> impl Iterator<Item = (&Outcome, &Seen)> {
        let of =
            move |outcome: &'_ Outcome| outcome.seen.iter().position(|seen| seen.setup == setup);
        self.outcomes(traffic)
            .filter_map(move |outcome| Some((outcome, outcome.seen.get(of(outcome)?)?)))
    }

    /// Of heavy prefixes, the share that is found.
    #[must_use]
    pub fn recall(&self, traffic: Traffic, setup: Setup) -> Option<Spread> {
        self.spread(traffic, setup, |outcome, seen| outcome.recall(seen))
    }

    /// Of heavy prefixes that the generator means to be, the share that is found.
    #[must_use]
    pub fn meant_recall(&self, traffic: Traffic, setup: Setup) -> Option<Spread> {
        self.spread(traffic, setup, |outcome, seen| outcome.meant_recall(seen))
    }

    /// Of prefixes that are found, the share of heavy ones.
    #[must_use]
    pub fn precision(&self, traffic: Traffic, setup: Setup) -> Option<Spread> {
        self.spread(traffic, setup, |_, seen| seen.precision())
    }

    /// The mean absolute error of the share of late segments of the prefixes that are found.
    #[must_use]
    pub fn error(&self, traffic: Traffic, setup: Setup) -> Option<Spread> {
        self.spread(traffic, setup, |_, seen| seen.error)
    }

    /// The share of the segments that are followed.
    #[must_use]
    pub fn followed(&self, traffic: Traffic, setup: Setup) -> Option<Spread> {
        self.spread(traffic, setup, |_, seen| Some(seen.share_followed()))
    }

    fn spread(
        &self,
        traffic: Traffic,
        setup: Setup,
        what: impl Fn(&Outcome, &Seen) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(
            &self
                .seen(traffic, setup)
                .filter_map(|(outcome, seen)| what(outcome, seen))
                .collect::<Vec<_>>(),
        )
    }

    /// The sum over all runs of something about a table.
    fn sum(&self, traffic: Traffic, setup: Setup, what: impl Fn(&Outcome, &Seen) -> u64) -> u64 {
        self.seen(traffic, setup).map(|(outcome, seen)| what(outcome, seen)).sum()
    }

    /// The mean over all runs of something about the traffic.
    fn mean(&self, traffic: Traffic, what: impl Fn(&Outcome) -> f64) -> f64 {
        Spread::of(&self.outcomes(traffic).map(what).collect::<Vec<_>>())
            .map_or(0.0, |spread| spread.mean)
    }

    /// In how many sizes, of how many, the hybrid is better by some measure.
    fn wins(&self, is_better: impl Fn(Setup, Setup) -> Option<bool>) -> (usize, usize) {
        let of = |algorithm, memory_log2| Setup { algorithm, memory_log2 };
        let compared: Vec<bool> = MEMORIES_LOG2
            .into_iter()
            .filter_map(|log2| {
                is_better(of(Algorithm::Hybrid, log2), of(Algorithm::Sampling, log2))
            })
            .collect();
        (compared.iter().filter(|is_better| **is_better).count(), compared.len())
    }

    /// The claim, memory, and traffic, for a terminal.
    #[must_use]
    pub fn tables(&self) -> [Table; 4] {
        [
            page::claim_table(self),
            page::memory_table(self),
            page::traffic_table(self),
            page::others_table(self),
        ]
    }

    /// Writes `index.html` and `runs.csv` into a directory, which is made if need be; files with
    /// these names are replaced and all others left alone. Gives the path of the page.
    ///
    /// # Errors
    /// [`ReproduceError::File`].
    pub fn write(&self, directory: &Path) -> Result<PathBuf, ReproduceError> {
        let directory = Directory::create(directory)?;
        directory.write("runs.csv", |file| summary::runs(self, file))?;
        let page = page::page(self);
        directory.write("index.html", |file| file.write_all(page.as_bytes()))
    }
}
