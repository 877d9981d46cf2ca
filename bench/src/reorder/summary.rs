//! Measurements as CSV.

use super::Findings;
use std::io::{self, Write};

/// Writes one line per run and table.
pub(super) fn runs(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    write!(
        file,
        "traffic,seed,heavy,meant,segments_per_flow,active_flows,algorithm,buckets,found,found_heavy,found_meant,found_light,heavy_unseen"
    )?;
    writeln!(file, ",recall,precision,error,followed,segments")?;
    for outcome in &findings.outcomes {
        for result in &outcome.results {
            let (traffic, seed, heavy, meant) =
                (outcome.run.traffic.name(), outcome.run.seed, outcome.heavy, outcome.meant);
            let (algorithm, buckets) =
                (result.setup.algorithm.name(), 1_u32 << result.setup.memory_log2);
            write!(
                file,
                "{traffic},{seed},{heavy},{meant},{:.2},{:.1},{algorithm},{buckets}",
                outcome.length, outcome.active
            )?;
            write!(
                file,
                ",{},{},{},{},{}",
                result.found, result.right, result.meant, result.light, result.unseen
            )?;
            for value in [outcome.recall(result), result.precision(), result.error] {
                match value {
                    Some(value) => write!(file, ",{value:.5}")?,
                    None => write!(file, ",")?,
                }
            }
            writeln!(file, ",{},{}", result.followed, result.segments)?;
        }
    }
    Ok(())
}
