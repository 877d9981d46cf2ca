//! Measurements as CSV.

use super::{Errors, Experiment, Findings, Read, Reading, Run};
use crate::numbers::csv;
use flowgauge_ctl::measurement::cardinality::estimate::Estimator;

/// Returns one line per run, reading and estimator.
pub(super) fn summary(findings: &Findings) -> String {
    let cases = readings(findings)
        .flat_map(|case| Estimator::ALL.into_iter().map(move |estimator| (case, estimator)));
    let lines = cases.filter_map(|((experiment, run, reading), estimator)| {
        let Errors { average, median, bias, samples, max_cardinality } =
            Errors::from_run(run, reading, estimator)?;
        let (seed, expected) = (experiment.seed, experiment.expected_reads());
        Some(format!(
            "{},{estimator},{seed},{average:.4},{median:.4},{bias:.4},{samples},{expected},{max_cardinality}",
            columns(experiment, reading)
        ))
    });
    csv(
        "traffic,hash,read_s,reset_s,duration_s,read_skew_ms,estimator,seed,average_error_percent,median_error_percent,\
         bias_percent,samples,expected_samples,max_cardinality",
        lines,
    )
}

/// Returns one line per read, with the thesis' columns first (§4.2.4). Its `estimate` is that of its
/// estimator; the other two follow.
pub(super) fn reads(findings: &Findings) -> String {
    let lines = readings(findings).flat_map(|(experiment, run, reading)| {
        let columns = format!("{},{}", columns(experiment, reading), experiment.seed);
        run.reads.iter().map(move |read| {
            let Read { window, truth, .. } = read;
            let time = read.time_ns as f64 / 1e9;
            let [ertl, flajolet, mle] = [Estimator::Ertl, Estimator::Flajolet, Estimator::Mle]
                .map(|estimator| read.estimate(reading, estimator));
            format!("{time:.6},{window},{truth},{flajolet:.3},{ertl:.3},{mle:.3},{columns}")
        })
    });
    csv(
        "time,window_id,ground_truth,estimate,ertl,mle,traffic,hash,read_s,reset_s,duration_s,read_skew_ms,seed",
        lines,
    )
}

/// Returns all runs with each of their readings.
fn readings(findings: &Findings) -> impl Iterator<Item = (&Experiment, &Run, Reading)> {
    findings.runs.iter().chain(&findings.sweep).flat_map(|(experiment, run)| {
        let skewed = (!experiment.read_skew.is_zero()).then_some(Reading::Skewed);
        [Reading::Instant].into_iter().chain(skewed).map(move |reading| (experiment, run, reading))
    })
}

fn columns(experiment: &Experiment, reading: Reading) -> String {
    let Experiment { traffic, hash, configuration, duration, .. } = experiment;
    let (read, reset) = (configuration.read.as_secs_f64(), configuration.reset.as_secs_f64());
    let skew_ms = match reading {
        Reading::Instant => 0.0,
        Reading::Skewed => experiment.read_skew.as_secs_f64() * 1e3,
    };
    let (traffic, hash, duration) = (traffic.name(), hash.name(), duration.as_secs_f64());
    format!("{traffic},{hash},{read},{reset},{duration},{skew_ms}")
}
