//! Measurements as CSV.

use super::Findings;
use crate::numbers::csv;

/// Returns one line per run and table.
pub(super) fn runs(findings: &Findings) -> String {
    let results = findings
        .outcomes
        .iter()
        .flat_map(|outcome| outcome.results.iter().map(move |result| (outcome, result)));
    let lines = results.map(|(outcome, result)| {
        let (run, setup) = (outcome.run, result.setup);
        let [recall, precision, error] = [outcome.recall(result), result.precision(), result.error]
            .map(|value| value.map_or_else(String::new, |value| format!("{value:.5}")));
        format!(
            "{},{},{},{},{:.2},{:.1},{},{},{},{},{},{},{},{recall},{precision},{error},{},{}",
            run.traffic.name(),
            run.seed,
            outcome.heavy,
            outcome.meant,
            outcome.length,
            outcome.active,
            setup.algorithm.name(),
            1_u32 << setup.memory_log2,
            result.found,
            result.right,
            result.meant,
            result.light,
            result.unseen,
            result.followed,
            result.segments
        )
    });
    csv(
        "traffic,seed,heavy,meant,segments_per_flow,active_flows,algorithm,buckets,found,found_heavy,found_meant,found_light,heavy_unseen,\
         recall,precision,error,followed,segments",
        lines,
    )
}
