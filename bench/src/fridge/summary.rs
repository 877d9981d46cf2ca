//! Measurements as CSV.

use super::experiment::shares;
use super::{Findings, Recipe, Setup};
use std::io::{self, Write};

/// Writes one line per run and table.
pub(super) fn errors(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    // The first percentile is the median, or the 25th for a bimodal trace.
    writeln!(
        file,
        "recipe,until,seed,method,slots,admit,samples,low_error_percent,p95_error_percent,p99_error_percent,gap_log2"
    )?;
    for outcome in &findings.outcomes {
        let results = outcome.results.iter().map(|result| ("last request", result));
        for (until, result) in
            results.chain(outcome.stopped.iter().map(|result| ("last answer", result)))
        {
            let Setup { memory_log2, admit_log2, .. } = result.setup;
            let (recipe, seed, name) =
                (outcome.run.recipe.name(), outcome.run.seed, result.setup.name());
            let (slots, admit) = (1_u32 << memory_log2, 2_f64.powi(-i32::from(admit_log2)));
            write!(file, "{recipe},{until},{seed},{name},{slots},{admit},{}", result.samples)?;
            match result.errors {
                Some(errors) => {
                    let [low, p95, p99] = errors.percentiles;
                    writeln!(file, ",{low:.3},{p95:.3},{p99:.3},{:.4}", errors.gap)?;
                }
                None => writeln!(file, ",,,,")?,
            }
        }
    }
    Ok(())
}

/// Writes the percentiles of figure 2.2, of all runs combined.
pub(super) fn percentiles(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    writeln!(file, "recipe,method,share,truth_ns,estimate_ns")?;
    for recipe in Recipe::ALL {
        for setup in Setup::COMPARED {
            let times = findings.times(recipe, setup).unwrap_or_default();
            for ((share, truth), time) in
                shares().into_iter().zip(findings.truth(recipe)).zip(times)
            {
                writeln!(
                    file,
                    "{},{},{share:.2},{truth:.0},{time:.0}",
                    recipe.name(),
                    setup.name()
                )?;
            }
        }
    }
    Ok(())
}
