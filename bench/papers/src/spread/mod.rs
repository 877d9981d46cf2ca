//! Keys with the most distinct others in little memory: recall, precision, errors and intervals by
//! memory, which SpreadSketch (Tang, Huang and Lee, INFOCOM 2020; IEEE/ACM ToN 2022) evaluates too.
//!
//! The paper's traces and printed numbers are not at hand, so none is compared. Its estimate is here:
//! the minimum over the rows of the estimates of a key's cells. The cells are HyperLogLog registers
//! and not multiresolution bitmaps, so that one sketch has both estimates. A table with a HyperLogLog
//! for each key has the same memory.

mod attack;
mod count;
mod experiment;
mod page;
#[cfg(test)]
mod tests;
mod trace;

use attack::{Attack, Attacked, HASHES, TRIED_SOURCES};
use count::{DEFAULT_SIZE, Found, LEAST, Method, Outcome, SIZES, Score, Size, TOPS};
use experiment::{
    CARPET, EVEN, SCANNED, Traffic, USUAL_KEYS, USUAL_OTHERS, VICTIM_SOURCES, ZIPF_FIRST, ZIPF_KEYS,
};
pub(crate) use trace::replay;

use crate::error::ReproduceError;
use crate::parallel::{self, Progress};
use crate::statistics::{Numbers, Spread};
use count::EstimateError;
use flowgauge_core::HashMode;

/// Repetitions of every experiment.
pub(crate) const SEEDS: u64 = 10;

/// Repetitions with `--quick`.
pub(crate) const QUICK_SEEDS: u64 = 2;

/// Window that was counted in one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    /// Traffic.
    pub traffic: Traffic,
    /// Seed of addresses and hash.
    pub seed: u64,
    /// Size of the sketch.
    pub size: Size,
    /// Result.
    pub outcome: Outcome,
}

/// Results of all experiments.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    seeds: u64,
    runs: Vec<Run>,
    attacks: Vec<Attacked>,
}

/// Runs all experiments with seeds 1 to `seeds`, one per processor at a time. Reports progress in
/// counted windows, and then in attacks.
///
/// # Errors
/// [`ReproduceError::Registers`].
pub(crate) fn run(seeds: u64, progress: &Progress<'_>) -> Result<Findings, ReproduceError> {
    execute(seeds, 1, progress)
}

/// As [`run`]. `divisor` divides the numbers of keys and others.
fn execute(seeds: u64, divisor: u32, progress: &Progress<'_>) -> Result<Findings, ReproduceError> {
    let threads = parallel::processors();
    let windows: Vec<(u64, Traffic)> =
        (1..=seeds).flat_map(|seed| Traffic::ALL.map(|traffic| (seed, traffic))).collect();
    let sizes = |_: &(u64, Traffic)| SIZES.len() as u64;
    let runs = parallel::try_run(&windows, threads, sizes, progress, |&(seed, traffic)| {
        let outcomes = SIZES.into_iter().zip(experiment::run(traffic, seed, divisor)?);
        let run = |(size, outcome)| Run { traffic, seed, size, outcome };
        Ok::<Vec<Run>, EstimateError>(outcomes.map(run).collect())
    })?;
    let attacks: Vec<(u64, (Attack, HashMode))> =
        (1..=seeds).flat_map(|seed| page::attacks().map(move |attack| (seed, attack))).collect();
    let run = |&(seed, (attack, hash)): &(u64, (Attack, HashMode))| {
        attack::run(attack, hash, seed, divisor)
    };
    let attacks = parallel::try_run(&attacks, threads, parallel::equal_cost, progress, run)?;
    Ok(Findings { seeds, runs: runs.concat(), attacks })
}

/// Returns the results of one run with a twentieth of the keys and others.
#[cfg(test)]
pub(crate) fn small() -> Findings {
    execute(1, 20, &|_, _| {}).unwrap()
}

/// Returns the mean of the values that exist, and how much they vary.
fn over(values: impl Iterator<Item = Option<f64>>) -> Option<Spread> {
    Spread::from_values(values.flatten())
}

/// Returns the share of the intervals that contain the true number; `None` without intervals.
fn coverage<'a>(scores: impl Iterator<Item = &'a Score>) -> Option<f64> {
    let sum = |(inside, all): (usize, usize), score: &Score| {
        (inside + score.inside, all + score.intervals)
    };
    let (inside, all) = scores.fold((0, 0), sum);
    (all > 0).then(|| inside as f64 / all as f64)
}

impl Findings {
    /// Returns the results of all windows of this traffic in this size.
    pub(crate) fn outcomes(&self, traffic: Traffic, size: Size) -> impl Iterator<Item = &Outcome> {
        let runs = self.runs.iter().filter(move |run| (run.traffic, run.size) == (traffic, size));
        runs.map(|run| &run.outcome)
    }

    /// Returns the results of an attack on a hash.
    pub(crate) fn attacked(
        &self,
        attack: Attack,
        hash: HashMode,
    ) -> impl Iterator<Item = &Attacked> {
        self.attacks.iter().filter(move |it| (it.attack, it.hash) == (attack, hash))
    }

    /// Returns all results by name; shares and errors in percent.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for (traffic, size) in page::cases() {
            let place = format!("spread/{}/{}kib", traffic.name(), size.kib());
            let outcomes: Vec<&Outcome> = self.outcomes(traffic, size).collect();
            for (index, method) in Method::ALL.into_iter().enumerate() {
                let name = format!("{place}/{}", method.name());
                let scores =
                    || outcomes.iter().filter_map(move |outcome| outcome.scores.get(index));
                for (number, top) in TOPS.into_iter().enumerate() {
                    let found = || scores().filter_map(move |score| score.found.get(number));
                    let percent = |share: Option<f64>| share.map(|share| share * 100.0);
                    let recall = over(found().map(|found| percent(found.recall())));
                    let precision = over(found().map(|found| percent(found.precision())));
                    let listed = over(found().map(|found| Some(found.listed as f64)));
                    numbers.add(format!("{name}/recall-{top}"), recall);
                    numbers.add(format!("{name}/precision-{top}"), precision);
                    numbers.add(format!("{name}/listed-{top}"), listed);
                }
                numbers.add(format!("{name}/error"), over(scores().map(|score| score.error)));
                let coverage = coverage(scores()).map(|share| share * 100.0);
                numbers.add_one(format!("{name}/coverage"), coverage);
            }
            let rest = |outcome: &&Outcome| Some(f64::from(u8::from(outcome.rest_holds)) * 100.0);
            numbers.add(format!("{place}/rest"), over(outcomes.iter().map(rest)));
        }
        for (index, method) in Method::ALL.into_iter().enumerate() {
            let scores = self.runs.iter().filter_map(|run| run.outcome.scores.get(index));
            let coverage = coverage(scores).map(|share| share * 100.0);
            numbers.add_one(format!("spread/coverage/{}", method.name()), coverage);
        }
        for (attack, hash) in page::attacks() {
            let place = format!("spread/{}/{}", attack.name(), hash.name());
            let values = |value: fn(&Attacked) -> f64| {
                over(self.attacked(attack, hash).map(|attacked| Some(value(attacked))))
            };
            numbers.add(format!("{place}/truth"), values(|it| it.truth as f64));
            // A key that is not listed counts as none.
            let others = values(|it| it.listed.map_or(0.0, |number| number.value));
            numbers.add(format!("{place}/others"), others);
            numbers.add(format!("{place}/rest"), values(|it| it.rest));
            let is_true = values(|it| f64::from(u8::from(it.is_true())) * 100.0);
            numbers.add(format!("{place}/true"), is_true);
        }
        numbers
    }
}
