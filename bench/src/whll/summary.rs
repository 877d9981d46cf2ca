//! Measurements as CSV.

use super::{Errors, Experiment, Findings, Read, Reading};
use flowgauge_ctl::measurement::cardinality::estimate::Estimator;
use std::io::{self, Write};

/// Writes one line per run, reading and estimator.
pub(super) fn summary(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    writeln!(
        file,
        "traffic,hash,read_s,reset_s,duration_s,read_skew_ms,estimator,seed,average_error_percent,median_error_percent,\
         bias_percent,samples,expected_samples,max_cardinality"
    )?;
    for (experiment, run) in findings.runs.iter().chain(&findings.sweep) {
        for (&reading, estimator) in pairs(readings(experiment)) {
            let Some(errors) = Errors::from_run(run, reading, estimator) else { continue };
            let Errors { average, median, bias, samples, max_cardinality } = errors;
            writeln!(
                file,
                "{},{},{estimator},{},{average:.4},{median:.4},{bias:.4},{samples},{},{max_cardinality}",
                columns(experiment),
                skew_ms(experiment, reading),
                experiment.seed,
                experiment.expected_reads(),
            )?;
        }
    }
    Ok(())
}

/// Writes one line per read, with the thesis' columns first (§4.2.4). Its `estimate` is that of its
/// estimator; the other two follow.
pub(super) fn reads(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    writeln!(
        file,
        "time,window_id,ground_truth,estimate,ertl,mle,traffic,hash,read_s,reset_s,duration_s,read_skew_ms,seed"
    )?;
    for (experiment, run) in findings.runs.iter().chain(&findings.sweep) {
        for &reading in readings(experiment) {
            let columns = format!(
                "{},{},{}",
                columns(experiment),
                skew_ms(experiment, reading),
                experiment.seed
            );
            for read in &run.reads {
                let Read { window, truth, .. } = read;
                let time = read.time_ns as f64 / 1e9;
                let [ertl, flajolet, mle] = [Estimator::Ertl, Estimator::Flajolet, Estimator::Mle]
                    .map(|estimator| read.estimate(reading, estimator));
                writeln!(
                    file,
                    "{time:.6},{window},{truth},{flajolet:.3},{ertl:.3},{mle:.3},{columns}"
                )?;
            }
        }
    }
    Ok(())
}

fn readings(experiment: &Experiment) -> &'static [Reading] {
    if experiment.read_skew.is_zero() {
        &[Reading::Instant]
    } else {
        &[Reading::Instant, Reading::Skewed]
    }
}

fn pairs(readings: &[Reading]) -> impl Iterator<Item = (&Reading, Estimator)> {
    readings
        .iter()
        .flat_map(|reading| Estimator::ALL.into_iter().map(move |estimator| (reading, estimator)))
}

fn columns(experiment: &Experiment) -> String {
    let Experiment { traffic, hash, configuration, duration, .. } = experiment;
    let (read, reset) = (configuration.read.as_secs_f64(), configuration.reset.as_secs_f64());
    format!("{},{},{read},{reset},{}", traffic.name(), hash.name(), duration.as_secs_f64())
}

fn skew_ms(experiment: &Experiment, reading: Reading) -> f64 {
    match reading {
        Reading::Instant => 0.0,
        Reading::Skewed => experiment.read_skew.as_secs_f64() * 1e3,
    }
}
