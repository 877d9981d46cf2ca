//! Measurements as CSV.

use super::{FLOWS, Findings, PACKETS, SLOTS, Skewed, Zipf};
use crate::numbers::csv;

/// Returns one line per run and algorithm.
pub(super) fn shares(findings: &Findings) -> String {
    let lines = findings.zipf.iter().flat_map(|(Zipf { alpha, seed }, runs)| {
        runs.iter().map(move |held| {
            let (algorithm, share, error) = (held.algorithm.name(), held.share(), held.count_error);
            format!("{alpha},{FLOWS},{PACKETS},{SLOTS},{algorithm},{seed},{share:.4},{error:.4}")
        })
    });
    csv("alpha,flows,packets,slots,algorithm,seed,share,count_error_percent", lines)
}

/// Returns one line per run.
pub(super) fn theorem(findings: &Findings) -> String {
    let lines = findings.skewed.iter().map(|(skewed, share)| {
        let Skewed { algorithm, heavy_share, seed, .. } = skewed;
        let (packets, size, name) = (skewed.packets(), skewed.size(), algorithm.name());
        format!("{heavy_share},{packets},{size},{name},{seed},{share:.4}")
    });
    csv("heavy_share,packets,slots,algorithm,seed,share", lines)
}
