//! Measurements as CSV.

use super::{FLOWS, Findings, PACKETS, SLOTS, Skewed, Zipf};
use std::io::{self, Write};

/// Writes one line per run and algorithm.
pub(super) fn shares(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    writeln!(file, "alpha,flows,packets,slots,algorithm,seed,share,count_error_percent")?;
    for (Zipf { alpha, seed }, runs) in &findings.zipf {
        for held in runs {
            let (algorithm, share, error) = (held.algorithm.name(), held.share(), held.count_error);
            writeln!(
                file,
                "{alpha},{FLOWS},{PACKETS},{SLOTS},{algorithm},{seed},{share:.4},{error:.4}"
            )?;
        }
    }
    Ok(())
}

/// Writes one line per run.
pub(super) fn theorem(findings: &Findings, file: &mut dyn Write) -> io::Result<()> {
    writeln!(file, "heavy_share,packets,slots,algorithm,seed,share")?;
    for (skewed, share) in &findings.skewed {
        let Skewed { algorithm, heavy_share, seed, .. } = skewed;
        writeln!(
            file,
            "{heavy_share},{},{},{},{seed},{share:.4}",
            skewed.packets(),
            skewed.size(),
            algorithm.name()
        )?;
    }
    Ok(())
}
