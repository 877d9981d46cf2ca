//! The measurements as CSV.

use super::experiment::shares;
use super::{Findings, Recipe, Setup};
use std::io::{self, Write};

/// One line a run and table.
pub(super) fn errors(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    // The first percentile is the median, or of a bimodal trace the 25th.
    writeln!(
        file,
        "recipe,until,seed,method,slots,admit,samples,low_error_percent,p95_error_percent,p99_error_percent,gap_log2"
    )?;
    for outcome in &findings.outcomes {
        let seen = outcome.seen.iter().map(|seen| ("last request", seen));
        for (until, seen) in seen.chain(outcome.stopped.iter().map(|seen| ("last answer", seen))) {
            let Setup { memory_log2, admit_log2, .. } = seen.setup;
            let (recipe, seed, name) =
                (outcome.run.recipe.name(), outcome.run.seed, seen.setup.name());
            let (slots, admit) = (1_u32 << memory_log2, 2_f64.powi(-i32::from(admit_log2)));
            write!(file, "{recipe},{until},{seed},{name},{slots},{admit},{}", seen.samples)?;
            match seen.errors {
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

/// The percentiles of figure 2.2, of all runs together.
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
