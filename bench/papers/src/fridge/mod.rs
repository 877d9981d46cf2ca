//! Round-trip delays without bias: the fridge of chapter 2 of the data-plane performance
//! dissertation compared with tables that overwrite requests or let them expire (figure 2.2), the
//! share of requests to admit, several fridges, and memory.
//!
//! The dissertation's trace of an Internet provider is not public, and of its synthetic ones only
//! the recipe is available. Its figure is therefore described in words.
//!
//! [`run`] executes the experiments of `experiment`, [`Findings`] aggregates them, and `page`
//! makes the report. `simulation` has tables that the dataplane lacks: of any size, in
//! stages, any number of fridges. `slots` compares the memory of all of them, and `trace` counts a
//! capture with them.

mod experiment;
mod page;
mod simulation;
mod slots;
#[cfg(test)]
mod tests;
mod trace;

use experiment::{
    ADMIT_LOG2, ADMITS_LOG2, Errors, MEMORIES_LOG2, MEMORY_LOG2, Method, Outcome, REQUESTS, Recipe,
    Run, Setup, TableResult,
};
use slots::{Kind, SizeErrors};
pub(crate) use trace::replay;

use crate::parallel::{self, Progress};
use crate::statistics::{Numbers, Spread};

/// Repetitions of every experiment, as in the dissertation.
pub(crate) const SEEDS: u64 = 10;

/// Repetitions with `--quick`.
pub(crate) const QUICK_SEEDS: u64 = 2;

/// Results of all experiments.
pub(crate) struct Findings {
    seeds: u64,
    outcomes: Vec<Outcome>,
    /// Errors of simulated tables by memory.
    sizes: Vec<SizeErrors>,
}

/// Runs all experiments with seeds 1 to `seeds`, one per processor at a time. Reports progress in
/// requests, and then in simulated tables.
pub(crate) fn run(seeds: u64, progress: &Progress<'_>) -> Findings {
    let findings = execute(seeds, REQUESTS, &Setup::all(), progress);
    let sizes = slots::measure(seeds, REQUESTS, parallel::processors(), progress);
    Findings { sizes, ..findings }
}

fn execute(seeds: u64, requests: u64, setups: &[Setup], progress: &Progress<'_>) -> Findings {
    let runs: Vec<Run> = Recipe::ALL
        .into_iter()
        .flat_map(|recipe| (1..=seeds).map(move |seed| Run { recipe, requests, seed }))
        .collect();
    let requests = |run: &Run| run.requests;
    let threads = parallel::processors();
    let outcomes = parallel::run(&runs, threads, requests, progress, |run| run.execute(setups));
    Findings { seeds, outcomes, sizes: Vec::new() }
}

/// Returns the results of short runs.
#[cfg(test)]
pub(crate) fn small() -> Findings {
    let findings = execute(1, 100_000, &Setup::all(), &|_, _| {});
    Findings { sizes: slots::measure(1, 20_000, 2, &|_, _| {}), ..findings }
}

impl Findings {
    fn outcomes(&self, recipe: Recipe) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(move |outcome| outcome.run.recipe == recipe)
    }

    fn results(&self, recipe: Recipe, setup: Setup) -> impl Iterator<Item = &TableResult> {
        self.outcomes(recipe)
            .filter_map(move |outcome| outcome.results.iter().find(|result| result.setup == setup))
    }

    /// Returns the true times of the compared shares, in nanoseconds.
    fn truth(&self, recipe: Recipe) -> &[f64] {
        self.outcomes(recipe).next().map_or(&[], |outcome| &outcome.truth)
    }

    /// Returns the times of the same shares, from all runs of a table combined.
    fn times(&self, recipe: Recipe, setup: Setup) -> Option<Vec<f64>> {
        let mut results = self.results(recipe, setup);
        let mut all = results.next()?.histograms.clone();
        for other in results {
            all.iter_mut()
                .zip(&other.histograms)
                .for_each(|((sum, _), (histogram, _))| sum.merge(histogram));
        }
        experiment::times(&all)
    }

    /// Returns the errors of all runs of a table combined: its bias, with little variance.
    pub(crate) fn combined(&self, recipe: Recipe, setup: Setup) -> Option<Errors> {
        Some(Errors::between(recipe, &self.times(recipe, setup)?, self.truth(recipe)))
    }

    /// Returns the errors of single runs.
    pub(crate) fn single(&self, recipe: Recipe, setup: Setup) -> Vec<Errors> {
        self.results(recipe, setup).filter_map(|result| result.errors).collect()
    }

    /// Returns the largest gaps of single runs that end with the last answer.
    fn gap_after_all(&self, recipe: Recipe, setup: Setup) -> Option<Spread> {
        let stopped = self
            .outcomes(recipe)
            .flat_map(|outcome| &outcome.stopped)
            .filter(|result| result.setup == setup);
        Spread::from_values(stopped.filter_map(|result| Some(result.errors?.gap)))
    }

    /// Returns the mean over runs of a function of their errors.
    fn mean(&self, recipe: Recipe, setup: Setup, what: impl Fn(&Errors) -> f64) -> Option<Spread> {
        Spread::from_values(self.single(recipe, setup).iter().map(what))
    }

    /// Returns all results by name. Errors are in percent, and gaps in doublings.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for recipe in Recipe::ALL {
            for setup in Setup::COMPARED {
                let name = format!("fridge/{}/{}", recipe.name(), setup.method.name());
                for (index, percentile) in recipe.percentiles().into_iter().enumerate() {
                    let error = self.mean(recipe, setup, |errors| errors.percentiles[index].abs());
                    numbers.add(format!("{name}/p{percentile}"), error);
                }
                let gap = self.mean(recipe, setup, |errors| errors.gap);
                numbers.add(format!("{name}/gap"), gap);
            }
        }
        for (longest_ms, index, percentile) in slots::cases() {
            let needed = |kind| slots::needed(&self.sizes, longest_ms, kind, index);
            let value = |kind| needed(kind).value();
            let name = format!("fridge/memory/{longest_ms}ms/p{percentile}");
            for kind in Kind::ALL {
                numbers.add_one(format!("{name}/{}", kind.name()), value(kind));
            }
            let saving = slots::saving(needed(Kind::Expiry), needed(Kind::Fridge));
            numbers.add_one(format!("{name}/saving"), saving);
        }
        let run = self.outcomes(Recipe::LogUniform).next().map(|outcome| outcome.run);
        let answered = run.map(|run| run.answered() as f64);
        numbers.add_one("fridge/answers", answered);
        let packets = run.zip(answered).map(|(run, answered)| run.requests as f64 + answered);
        numbers.add_one("fridge/packets", packets);
        numbers
    }
}
