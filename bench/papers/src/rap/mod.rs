//! Heavy hitters with few slots: how many of the true top flows each algorithm finds, and a
//! simulation of the theorem on RAP in chapter 4 of the data-plane performance dissertation.
//!
//! The theorem: on a highly skewed stream of k heavy flows, RAP with k slots stores Ω(k) of them
//! with constant probability. The copy at hand reads O(k), which any table of k slots meets: a
//! bound from below is the statement with content. Chapter 4, with the definition of a highly
//! skewed stream, is not at hand, only the statement (abstract and §1.4); [`Skewed`] is a stream in
//! which the first packet of a flow does not reveal whether it is heavy.

mod experiment;
mod page;
#[cfg(test)]
mod tests;
mod trace;

use experiment::{
    ALPHAS, COMPARED, FLOWS, HEAVY_SHARES, PACKETS, PACKETS_PER_HEAVY_FLOW, SIZES_LOG2, SLOTS,
    Skewed, TableContent, Zipf,
};
pub(crate) use trace::replay;

use crate::parallel::{self, Progress};
use crate::statistics::{Numbers, Spread};
use flowgauge_core::heavy::Algorithm;

/// Repetitions of every experiment.
pub(crate) const SEEDS: u64 = 10;

/// Repetitions with `--quick`.
pub(crate) const QUICK_SEEDS: u64 = 2;

/// Results of all experiments.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    seeds: u64,
    zipf: Vec<(Zipf, Vec<TableContent>)>,
    skewed: Vec<(Skewed, f64)>,
}

/// Runs all experiments with seeds 1 to `seeds`, one per processor at a time. Reports progress in
/// counted packets, first of the Zipf streams and then of those of the theorem.
pub(crate) fn run(seeds: u64, progress: &Progress<'_>) -> Findings {
    execute(seeds, &SIZES_LOG2, progress)
}

fn execute(seeds: u64, sizes_log2: &[u8], progress: &Progress<'_>) -> Findings {
    let threads = parallel::processors();
    let zipf: Vec<Zipf> = ALPHAS
        .into_iter()
        .flat_map(|alpha| (1..=seeds).map(move |seed| Zipf { alpha, seed }))
        .collect();
    let packets = |_: &Zipf| PACKETS * Algorithm::ALL.len() as u64;
    let zipf = parallel::run(&zipf, threads, packets, progress, |zipf| (*zipf, zipf.run()));
    let mut skewed: Vec<Skewed> = page::cases()
        .flat_map(|case| sizes_log2.iter().map(move |size_log2| (case, *size_log2)))
        .flat_map(|((heavy_share, algorithm), size_log2)| {
            (1..=seeds).map(move |seed| Skewed { algorithm, size_log2, heavy_share, seed })
        })
        .collect();
    skewed.sort_by_key(|skewed| std::cmp::Reverse(skewed.packets()));
    let count = |skewed: &Skewed| (*skewed, skewed.run());
    let skewed = parallel::run(&skewed, threads, Skewed::packets, progress, count);
    Findings { seeds, zipf, skewed }
}

/// Returns results as of a run, made up: each algorithm holds three of four flows.
#[cfg(test)]
pub(crate) fn small() -> Findings {
    let held = |algorithm| TableContent {
        algorithm,
        ranks: (0..SLOTS).map(|rank| rank % 4 != 3).collect(),
        count_error: 1.5,
    };
    let skewed = page::cases().flat_map(|(heavy_share, algorithm)| {
        SIZES_LOG2.map(|size_log2| Skewed { algorithm, size_log2, heavy_share, seed: 1 })
    });
    Findings {
        seeds: 1,
        zipf: ALPHAS
            .map(|alpha| (Zipf { alpha, seed: 1 }, Algorithm::ALL.map(held).to_vec()))
            .to_vec(),
        skewed: skewed.map(|skewed| (skewed, 0.625)).collect(),
    }
}

impl Findings {
    /// Returns the results of all runs with this exponent and algorithm.
    pub(crate) fn held(
        &self,
        alpha: f64,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &TableContent> {
        let runs = self.zipf.iter().filter(move |(zipf, _)| zipf.alpha == alpha);
        runs.flat_map(|(_, held)| held).filter(move |held| held.algorithm == algorithm)
    }

    /// Returns the share of the true top flows that is found; `None` without runs.
    pub(crate) fn share(&self, alpha: f64, algorithm: Algorithm) -> Option<Spread> {
        Spread::from_values(self.held(alpha, algorithm).map(TableContent::share))
    }

    /// Returns the shares of heavy flows found after the theorem's streams, one per run.
    pub(crate) fn heavy_held(
        &self,
        heavy_share: f64,
        algorithm: Algorithm,
        size_log2: u8,
    ) -> Vec<f64> {
        let wanted = |skewed: &Skewed| {
            skewed.heavy_share == heavy_share
                && skewed.algorithm == algorithm
                && skewed.size_log2 == size_log2
        };
        self.skewed.iter().filter(|(skewed, _)| wanted(skewed)).map(|(_, share)| *share).collect()
    }

    /// Returns all results by name, in percent.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for (alpha, algorithm) in
            ALPHAS.into_iter().flat_map(|alpha| Algorithm::ALL.map(|algorithm| (alpha, algorithm)))
        {
            let held = self.held(alpha, algorithm).map(|held| held.share() * 100.0);
            let spread = Spread::from_values(held);
            numbers.add(format!("rap/{alpha:.1}/{}", algorithm.name()), spread);
        }
        for (share, algorithm) in page::cases() {
            let lowest = page::lowest(self, share, algorithm) * 100.0;
            numbers.add_one(format!("rap/theorem/{share:.1}/{}", algorithm.name()), Some(lowest));
        }
        numbers
    }
}
