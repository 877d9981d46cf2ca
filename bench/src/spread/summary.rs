//! Measurements as CSV.

use super::{Attacked, Findings, Found, Method, Run, Score, TOPS};
use std::io::{self, Write};

/// Writes one line per window, size and method.
pub(super) fn found(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    write!(file, "traffic,seed,memory_kib,rows,columns,registers,method")?;
    for top in TOPS {
        write!(file, ",wanted_{top},listed_{top},right_{top}")?;
    }
    writeln!(file, ",error_percent,intervals,intervals_inside,rest_holds")?;
    for Run { traffic, seed, size, outcome } in &findings.runs {
        for (method, score) in Method::ALL.into_iter().zip(&outcome.scores) {
            let Score { found, error, intervals, inside } = score;
            write!(
                file,
                "{},{seed},{},{},{},{},{}",
                traffic.name(),
                size.kib(),
                size.shape().rows(),
                size.shape().columns(),
                size.registers().registers(),
                method.name()
            )?;
            for Found { wanted, listed, right } in found {
                write!(file, ",{wanted},{listed},{right}")?;
            }
            let error = error.map_or_else(String::new, |error| format!("{error:.3}"));
            // Only the controller reports a rest.
            let rest = match method {
                Method::Likelihood => outcome.rest_holds.to_string(),
                Method::MinimumOfRows | Method::Table => String::new(),
            };
            writeln!(file, ",{error},{intervals},{inside},{rest}")?;
        }
    }
    Ok(())
}

/// Writes one line per attack and hash.
pub(super) fn attacks(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    writeln!(file, "attack,hash,seed,truth,others,low,high,rest")?;
    for Attacked { attack, hash, seed, truth, listed, rest } in &findings.attacks {
        let listed = listed.map_or_else(
            || ",,".to_owned(),
            |number| format!("{:.0},{:.0},{:.0}", number.value, number.low, number.high),
        );
        writeln!(file, "{},{},{seed},{truth},{listed},{rest:.0}", attack.name(), hash.name())?;
    }
    Ok(())
}
