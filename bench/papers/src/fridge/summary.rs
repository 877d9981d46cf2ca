//! Measurements as CSV.

use super::experiment::shares;
use super::{Findings, Recipe, Setup};
use crate::numbers::csv;

/// Returns one line per run and table.
pub(super) fn errors(findings: &Findings) -> String {
    let mut lines = Vec::new();
    for outcome in &findings.outcomes {
        let results = outcome.results.iter().map(|result| ("last request", result));
        for (until, result) in
            results.chain(outcome.stopped.iter().map(|result| ("last answer", result)))
        {
            let Setup { memory_log2, admit_log2, .. } = result.setup;
            let (recipe, seed, name) =
                (outcome.run.recipe.name(), outcome.run.seed, result.setup.name());
            let (slots, admit) = (1_u32 << memory_log2, 2_f64.powi(-i32::from(admit_log2)));
            let errors = result.errors.map_or_else(
                || ",,,".to_owned(),
                |errors| {
                    let [low, p95, p99] = errors.percentiles;
                    format!("{low:.3},{p95:.3},{p99:.3},{:.4}", errors.gap)
                },
            );
            let samples = result.samples;
            lines
                .push(format!("{recipe},{until},{seed},{name},{slots},{admit},{samples},{errors}"));
        }
    }
    // The first percentile is the median, or the 25th for a bimodal trace.
    csv(
        "recipe,until,seed,method,slots,admit,samples,low_error_percent,p95_error_percent,p99_error_percent,gap_log2",
        lines,
    )
}

/// Returns the percentiles of figure 2.2, of all runs combined.
pub(super) fn percentiles(findings: &Findings) -> String {
    let cases =
        Recipe::ALL.into_iter().flat_map(|recipe| Setup::COMPARED.map(|setup| (recipe, setup)));
    let lines = cases.flat_map(|(recipe, setup)| {
        let times = findings.times(recipe, setup).unwrap_or_default();
        let points = shares().into_iter().zip(findings.truth(recipe)).zip(times);
        let (recipe, name) = (recipe.name(), setup.name());
        points.map(move |((share, truth), time)| {
            format!("{recipe},{name},{share:.2},{truth:.0},{time:.0}")
        })
    });
    csv("recipe,method,share,truth_ns,estimate_ns", lines)
}
