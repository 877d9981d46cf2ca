//! Measurements as CSV.

use super::{Attacked, Findings, Found, Method, Run, Score, TOPS};
use crate::numbers::csv;

/// Returns one line per window, size and method.
pub(super) fn found(findings: &Findings) -> String {
    let scores = findings
        .runs
        .iter()
        .flat_map(|run| Method::ALL.into_iter().zip(&run.outcome.scores).map(move |it| (run, it)));
    let lines = scores.map(|(Run { traffic, seed, size, outcome }, (method, score))| {
        let Score { found, error, intervals, inside } = score;
        let found: String = found
            .iter()
            .map(|Found { wanted, listed, right }| format!("{wanted},{listed},{right},"))
            .collect();
        let error = error.map_or_else(String::new, |error| format!("{error:.3}"));
        // Only the controller reports a rest.
        let rest = match method {
            Method::Likelihood => outcome.rest_holds.to_string(),
            Method::MinimumOfRows | Method::Table => String::new(),
        };
        format!(
            "{},{seed},{},{},{},{},{},{found}{error},{intervals},{inside},{rest}",
            traffic.name(),
            size.kib(),
            size.shape().rows(),
            size.shape().columns(),
            size.registers().registers(),
            method.name()
        )
    });
    let tops = TOPS.map(|top| format!("wanted_{top},listed_{top},right_{top},")).concat();
    let heading = format!(
        "traffic,seed,memory_kib,rows,columns,registers,method,{tops}error_percent,intervals,intervals_inside,rest_holds"
    );
    csv(&heading, lines)
}

/// Returns one line per attack and hash.
pub(super) fn attacks(findings: &Findings) -> String {
    let line = |attacked: &Attacked| {
        let Attacked { attack, hash, seed, truth, listed, rest } = attacked;
        let listed = listed.map_or_else(
            || ",,".to_owned(),
            |number| format!("{:.0},{:.0},{:.0}", number.value, number.low, number.high),
        );
        format!("{},{},{seed},{truth},{listed},{rest:.0}", attack.name(), hash.name())
    };
    csv("attack,hash,seed,truth,others,low,high,rest", findings.attacks.iter().map(line))
}
