//! Tables, charts and files of the report, whose text is `page.html`.

use super::{
    ALPHAS, COMPARED, FLOWS, Findings, HEAVY_SHARES, PACKETS, PACKETS_PER_HEAVY_FLOW, SIZES_LOG2,
    SLOTS, Skewed, TableContent, Zipf,
};
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Part, Report, Table, mean_cell, number_cell, runs};
use crate::statistics::{Spread, csv};
use flowgauge_core::heavy::Algorithm;
use flowgauge_ctl::output::grouped;

/// Returns the shares of the true top flows, and the accuracy of their counts.
fn share_table(findings: &Findings) -> Table {
    let caption = format!(
        "Share of the true top {SLOTS} flows in {SLOTS} slots after {} packets by Zipf's law, mean of {}",
        grouped(PACKETS),
        runs(findings.seeds)
    );
    let mut columns = vec![Column::text("", "algorithm")];
    columns.extend(ALPHAS.map(|alpha| Column::number("share, exponent", &format!("{alpha:.1}"))));
    columns
        .extend(ALPHAS.map(|alpha| Column::number("error of counts, %", &format!("{alpha:.1}"))));
    let mut table = Table::new(caption, columns);
    for algorithm in Algorithm::ALL {
        let mut cells = vec![Cell::new(algorithm.name())];
        cells.extend(ALPHAS.map(|alpha| mean_cell(findings.share(alpha, algorithm), 2)));
        cells.extend(ALPHAS.map(|alpha| {
            let errors = findings.held(alpha, algorithm).map(|held| held.count_error);
            number_cell(Spread::from_values(errors).map(|errors| errors.mean), 1)
        }));
        table.row(cells);
    }
    table
}

/// Returns the shares of heavy flows by table size.
fn theorem_table(findings: &Findings) -> Table {
    let caption = format!(
        "Share of k equally heavy flows in k slots, all other flows of one packet: mean and lowest of {} runs",
        findings.seeds
    );
    let mut columns = vec![Column::number("", "k")];
    for (share, algorithm) in cases() {
        let group = format!("{}, heavy {:.0} %", algorithm.name(), share * 100.0);
        columns.extend([Column::number(&group, "mean"), Column::number(&group, "lowest")]);
    }
    let mut table = Table::new(caption, columns);
    for size_log2 in SIZES_LOG2 {
        let mut cells = vec![Cell::new(grouped(1 << size_log2))];
        for (share, algorithm) in cases() {
            let spread = Spread::from_values(findings.heavy_held(share, algorithm, size_log2));
            cells.extend(spread.map_or_else(Default::default, |spread| {
                [spread.mean, spread.low].map(|share| Cell::new(format!("{share:.3}")))
            }));
        }
        table.row(cells);
    }
    table
}

/// Returns the shares of packets in heavy flows, and for each the compared algorithms.
pub(super) fn cases() -> impl Iterator<Item = (f64, Algorithm)> {
    HEAVY_SHARES.into_iter().flat_map(|share| COMPARED.map(|algorithm| (share, algorithm)))
}

/// Returns how often the flow of a rank is found, in bins of growing size.
fn rank_chart(findings: &Findings, alpha: f64, slots: &str, algorithms: &[Algorithm]) -> Chart {
    let edges: Vec<usize> =
        [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256].to_vec();
    let (x, y) = (
        Axis::logarithmic("rank of the flow", 1.0, SLOTS as f64),
        Axis::linear("held, % of runs", 0.0, 100.0),
    );
    let chart = Chart::new(&format!("Zipf, exponent {alpha:.1}: flows of {slots}"), x, y);
    algorithms.iter().zip(Tone::ALL).fold(chart, |chart, (&algorithm, tone)| {
        let points = edges.windows(2).filter_map(|pair| {
            let &[low, high] = pair else { return None };
            let flows = findings
                .held(alpha, algorithm)
                .filter_map(|held: &TableContent| held.ranks.get(low..high))
                .flatten()
                .map(|held| if *held { 100.0 } else { 0.0 });
            // Middle of the bin, with ranks counted from one.
            Some(((low + high + 1) as f64 / 2.0, Spread::from_values(flows)?.mean))
        });
        chart.line(algorithm.name(), tone, points)
    })
}

fn theorem_chart(findings: &Findings, heavy_share: f64) -> Chart {
    let size = |size_log2: u8| f64::from(1_u32 << size_log2);
    let (first, last) = (SIZES_LOG2[0], SIZES_LOG2[SIZES_LOG2.len() - 1]);
    let (x, y) = (
        Axis::logarithmic("k", size(first), size(last)),
        Axis::linear("heavy flows held, %", 0.0, 100.0),
    );
    let title = format!("Heavy flows have {:.0} % of the packets", heavy_share * 100.0);
    let chart = Chart::new(&title, x, y);
    COMPARED.into_iter().zip(Tone::ALL).fold(chart, |chart, (algorithm, tone)| {
        let spreads: Vec<(f64, Spread)> = SIZES_LOG2
            .into_iter()
            .filter_map(|log2| {
                let held = findings.heavy_held(heavy_share, algorithm, log2);
                Some((size(log2), Spread::from_values(held)?))
            })
            .collect();
        chart
            .band(
                "",
                tone,
                spreads.iter().map(|(k, spread)| (*k, spread.low * 100.0, spread.high * 100.0)),
            )
            .line(
                algorithm.name(),
                tone,
                spreads.iter().map(|(k, spread)| (*k, spread.mean * 100.0)),
            )
    })
}

/// Returns the lowest share of any run, at any size.
pub(super) fn lowest(findings: &Findings, heavy_share: f64, algorithm: Algorithm) -> f64 {
    let shares =
        SIZES_LOG2.into_iter().flat_map(|log2| findings.heavy_held(heavy_share, algorithm, log2));
    shares.fold(1.0, f64::min)
}

impl Findings {
    /// Returns the report, with `shares.csv` and `theorem.csv`.
    pub(crate) fn report(&self) -> Report {
        let ranks = |slots, algorithms: &[Algorithm]| {
            let ends = [ALPHAS[0], ALPHAS[ALPHAS.len() - 1]];
            Part::Charts(ends.map(|alpha| rank_chart(self, alpha, slots, algorithms)).to_vec())
        };
        let found = HEAVY_SHARES.map(|share| {
        let [rap, saving] = [Algorithm::Rap, Algorithm::SpaceSaving]
            .map(|algorithm| lowest(self, share, algorithm) * 100.0);
        format!(
            "with {:.0} % of the packets in heavy flows RAP stored at least {rap:.0} % of them in every run of every size, SpaceSaving {saving:.0} %",
            share * 100.0
        )
    });
        let zipf: u64 = self.zipf.iter().map(|(_, held)| PACKETS * held.len() as u64).sum();
        let skewed: u64 =
            self.skewed.iter().map(|(skewed, _): &(Skewed, f64)| skewed.packets()).sum();
        let parts = [
            ("slots", Part::Text(SLOTS.to_string())),
            ("shares", Part::Tables(vec![share_table(self)])),
            ("any", ranks("any slot", &[Algorithm::Rap, Algorithm::SpaceSaving])),
            (
                "few",
                ranks(
                    "few slots",
                    &[Algorithm::DWayRap, Algorithm::Precision, Algorithm::HashPipe],
                ),
            ),
            ("theorem", Part::Tables(vec![theorem_table(self)])),
            ("sizes", Part::Charts(HEAVY_SHARES.map(|share| theorem_chart(self, share)).to_vec())),
            ("lowest", Part::Text(found.join("; "))),
            ("packets", Part::Text(grouped(zipf + skewed))),
            ("flows", Part::Text(FLOWS.to_string())),
            ("stream", Part::Text(PACKETS.to_string())),
            ("heavy", Part::Text(PACKETS_PER_HEAVY_FLOW.to_string())),
        ];
        let command = format!("flowgauge reproduce rap --seeds {}", self.seeds);
        Report::new(
            include_str!("page.html"),
            &command,
            self.numbers(),
            &parts,
            [("shares.csv", shares_csv(self)), ("theorem.csv", theorem_csv(self))],
        )
    }
}

/// Returns one line per run and algorithm.
fn shares_csv(findings: &Findings) -> String {
    let lines = findings.zipf.iter().flat_map(|(Zipf { alpha, seed }, runs)| {
        runs.iter().map(move |held| {
            let (algorithm, share, error) = (held.algorithm.name(), held.share(), held.count_error);
            format!("{alpha},{FLOWS},{PACKETS},{SLOTS},{algorithm},{seed},{share:.4},{error:.4}")
        })
    });
    csv("alpha,flows,packets,slots,algorithm,seed,share,count_error_percent", lines)
}

/// Returns one line per run.
fn theorem_csv(findings: &Findings) -> String {
    let lines = findings.skewed.iter().map(|(skewed, share)| {
        let Skewed { algorithm, heavy_share, seed, .. } = skewed;
        let (packets, size, name) = (skewed.packets(), skewed.size(), algorithm.name());
        format!("{heavy_share},{packets},{size},{name},{seed},{share:.4}")
    });
    csv("heavy_share,packets,slots,algorithm,seed,share", lines)
}
