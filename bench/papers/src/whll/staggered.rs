//! Staggered HyperLogLog (Cornacchia et al. 2022), which the thesis names as future work: a rate of
//! flows that is current at every instant.
//!
//! Registers and estimators are those of the dataplane and the controller; sources arrive at a
//! constant rate, each of them once, with ideal hashes.

use super::{REGISTERS, STANDARD_ERROR};
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Table};
use crate::statistics::{mean, root_mean_square};
use flowgauge_core::cardinality::{Cardinality, Precision, Staggered};
use flowgauge_ctl::measurement::cardinality::estimate::{
    Estimator, StaggeredEstimator, estimate, staggered,
};
use flowgauge_ctl::output::grouped;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Sources in a window.
const SOURCES: [u64; 3] = [1_000, 5_000, 20_000];

/// Samples per window.
const SAMPLES: u64 = 20;

/// Windows from which samples are taken, and the step of the rate in the figure.
const FROM: u64 = 4;
const TO: u64 = 8;

/// Estimate at a time, in windows.
struct Sample {
    at: f64,
    /// Arrivals in the last window.
    truth: f64,
    mle: f64,
    harmonic: f64,
    /// Whether the interval of the first contains the truth.
    is_held: bool,
}

impl Sample {
    fn error(&self, estimate: f64) -> f64 {
        (estimate / self.truth - 1.0) * 100.0
    }
}

/// Returns the samples from the first to the last window. `before` sources arrive in each window
/// before `FROM`, and `after` in each later one.
fn run(before: u64, after: u64, seed: u64) -> Vec<Sample> {
    let precision = Precision::DEFAULT;
    // A slot is 2 / m windows long.
    let slots_per_window = precision.registers() as f64 / 2.0;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut registers = Box::new(Staggered::new());
    let (mut next, mut samples) = (0.0, Vec::new());
    let step = FROM as f64;
    for number in 1..=TO * SAMPLES {
        let now = number as f64 / SAMPLES as f64;
        while next < now {
            let slot = (next * slots_per_window) as u32;
            registers.update(random.random(), precision, slot);
            next += 1.0 / if next < step { before as f64 } else { after as f64 };
        }
        // Each register was reset once.
        if now < 2.0 {
            continue;
        }
        let (slot, part) =
            ((now * slots_per_window) as u32, (now * slots_per_window).fract().max(1e-6));
        let levels: Vec<u8> = registers.levels(precision, slot).collect();
        let age = |index: usize| {
            let slots = slot.wrapping_sub(index as u32) % precision.registers() as u32;
            f64::from(slots) + part
        };
        let ages: Vec<f64> = (0..levels.len()).map(age).collect();
        let share = (now - step).clamp(0.0, 1.0);
        let truth = share * after as f64 + (1.0 - share) * before as f64;
        let estimates = [StaggeredEstimator::Mle, StaggeredEstimator::Harmonic]
            .map(|estimator| staggered(&levels, &ages, estimator));
        if let [Ok(mle), Ok(harmonic)] = estimates {
            samples.push(Sample {
                at: now,
                truth,
                mle: mle.value,
                harmonic: harmonic.value,
                is_held: (mle.low..=mle.high).contains(&truth),
            });
        }
    }
    samples
}

/// Returns the errors of registers that are cleared at the end of each window, in percent.
fn windowed(sources: u64, windows: u64, seed: u64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let errors = (0..windows).filter_map(|_| {
        let mut registers = Box::new(Cardinality::new());
        (0..sources).for_each(|_| registers.update(random.random(), Precision::DEFAULT));
        let estimate = estimate(registers.levels(Precision::DEFAULT), Estimator::Ertl).ok()?;
        Some((estimate.value / sources as f64 - 1.0) * 100.0)
    });
    errors.collect()
}

/// Returns the errors at a constant rate as a table.
pub(super) fn table(seeds: u64) -> Table {
    let caption = format!(
        "Staggered HyperLogLog with {REGISTERS} registers at a constant rate: error in %, {} samples of {seeds} runs; standard error of a whole window \
         {STANDARD_ERROR} %",
        grouped(seeds * (TO - FROM) * SAMPLES)
    );
    let columns = vec![
        Column::number("", "sources a window"),
        Column::number("staggered, mle", "mean"),
        Column::number("staggered, mle", "root mean square"),
        Column::number("staggered, mle", "intervals hold"),
        Column::number("staggered, harmonic", "mean"),
        Column::number("staggered, harmonic", "root mean square"),
        Column::number("windows, ertl", "root mean square"),
    ];
    let mut table = Table::new(caption, columns);
    for sources in SOURCES {
        let runs = (1..=seeds).flat_map(|seed| run(sources, sources, seed));
        let samples: Vec<Sample> = runs.filter(|sample| sample.at > FROM as f64).collect();
        let errors = |value: fn(&Sample) -> f64| {
            samples.iter().map(|sample| sample.error(value(sample))).collect::<Vec<f64>>()
        };
        let (mle, harmonic) = (errors(|sample| sample.mle), errors(|sample| sample.harmonic));
        let held = samples.iter().filter(|sample| sample.is_held).count();
        let percent = |error: Option<f64>, has_sign: bool| {
            error.map_or_else(Cell::default, |error| {
                Cell::new(if has_sign { format!("{error:+.2}") } else { format!("{error:.2}") })
            })
        };
        table.row(vec![
            Cell::new(grouped(sources)),
            percent(mean(&mle), true),
            percent(root_mean_square(&mle), false),
            Cell::new(format!("{:.1} %", held as f64 / samples.len().max(1) as f64 * 100.0)),
            percent(mean(&harmonic), true),
            percent(root_mean_square(&harmonic), false),
            percent(root_mean_square(&windowed(sources, 10 * seeds, 1)), false),
        ]);
    }
    table
}

/// Returns the estimates of one run in which the rate doubles.
pub(super) fn chart() -> Chart {
    const RATE: u64 = 5_000;
    let samples = run(RATE, 2 * RATE, 1);
    let (x, y) = (
        Axis::linear("time, windows", 2.0, TO as f64),
        Axis::linear("sources a window", 0.0, 2.5 * RATE as f64),
    );
    let points = |value: fn(&Sample) -> f64| {
        samples.iter().map(move |sample| (sample.at, value(sample))).collect::<Vec<_>>()
    };
    Chart::new("Staggered HyperLogLog: the rate doubles", x, y)
        .dashed("arrivals in the last window", Tone::Neutral, points(|sample| sample.truth))
        .line("harmonic", Tone::Second, points(|sample| sample.harmonic))
        .line("mle", Tone::First, points(|sample| sample.mle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_testing::chance::of_mean;

    #[test]
    fn a_constant_rate_is_estimated_without_bias() {
        const SEEDS: u64 = 20;
        // Samples that are two windows apart have no register in common.
        let last: Vec<f64> = (1..=SEEDS)
            .map(|seed| {
                let samples = run(5_000, 5_000, seed);
                let sample = samples.last().unwrap();
                sample.error(sample.mle)
            })
            .collect();
        // Young registers have seen little: the error is larger than that of a whole window.
        let allowed = of_mean(2.0 * STANDARD_ERROR, SEEDS);
        let bias = mean(&last).unwrap();
        assert!(bias.abs() <= allowed, "{bias} of {allowed}");
        assert!(root_mean_square(&last).unwrap() <= 2.0 * STANDARD_ERROR, "{last:?}");
    }

    #[test]
    fn a_step_is_followed_within_two_windows() {
        let samples = run(5_000, 10_000, 1);
        let at = |time: f64| samples.iter().find(|sample| sample.at >= time).unwrap();
        let before = at(FROM as f64);
        assert!(before.error(before.mle).abs() < 4.0 * STANDARD_ERROR, "{}", before.mle);
        // All registers were reset since.
        let after = at(FROM as f64 + 2.1);
        assert_eq!(after.truth, 10_000.0);
        assert!(after.error(after.mle).abs() < 4.0 * STANDARD_ERROR, "{}", after.mle);
        let between = at(FROM as f64 + 0.5);
        assert!(before.mle < between.mle && between.mle < after.mle, "{}", between.mle);
    }

    #[test]
    fn a_report_has_both() {
        let text = table(1).to_string();
        assert!(text.contains("20,000") && !text.contains("NaN"), "{text}");
        assert!(chart().svg("").contains("harmonic"));
    }
}
