//! Tables, plots and text of the report.

use super::{
    ALPHAS, COMPARED, FLOWS, Findings, HEAVY_SHARES, PACKETS, PACKETS_PER_HEAVY_FLOW, SIZES_LOG2,
    SLOTS, Skewed, TableContent,
};
use crate::report::html::Page;
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Table};
use crate::statistics::{self, Spread};
use flowgauge_core::heavy::Algorithm;
use flowgauge_ctl::output::grouped;

const HALF: (f64, f64) = (520.0, 380.0);

fn runs(seeds: u64) -> String {
    format!("mean of {seeds} run{}", if seeds == 1 { "" } else { "s" })
}

fn spread_cell(spread: Spread) -> Cell {
    let Spread { mean, deviation, low, high, count } = spread;
    let cell = Cell::new(format!("{mean:.2}"));
    if count > 1 {
        cell.detail(format!("±{deviation:.2}")).detail(format!("{low:.2}…{high:.2}"))
    } else {
        cell
    }
}

/// Returns the shares of the true top flows, and the accuracy of their counts.
pub(super) fn share_table(findings: &Findings) -> Table {
    let caption = format!(
        "Share of the true top {SLOTS} flows in {SLOTS} slots after {} packets by Zipf's law, {}",
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
        cells.extend(
            ALPHAS.map(|alpha| {
                findings.share(alpha, algorithm).map_or_else(Cell::default, spread_cell)
            }),
        );
        cells.extend(ALPHAS.map(|alpha| {
            let errors: Vec<f64> =
                findings.held(alpha, algorithm).map(|held| held.count_error).collect();
            statistics::mean(&errors)
                .map_or_else(Cell::default, |mean| Cell::new(format!("{mean:.1}")))
        }));
        table.row(cells);
    }
    table
}

/// Returns the shares of heavy flows by table size.
pub(super) fn theorem_table(findings: &Findings) -> Table {
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
            let spread = Spread::from_values(&findings.heavy_held(share, algorithm, size_log2));
            cells.extend(spread.map_or_else(Default::default, |spread| {
                [spread.mean, spread.low].map(|share| Cell::new(format!("{share:.3}")))
            }));
        }
        table.row(cells);
    }
    table
}

fn cases() -> impl Iterator<Item = (f64, Algorithm)> {
    HEAVY_SHARES.into_iter().flat_map(|share| COMPARED.map(|algorithm| (share, algorithm)))
}

/// Returns how often the flow of a rank is found, in bins of growing size.
fn rank_chart(
    findings: &Findings,
    alpha: f64,
    slots: &str,
    algorithms: &[(Algorithm, Tone)],
) -> Chart {
    let edges: Vec<usize> =
        [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256].to_vec();
    let (x, y) = (
        Axis::logarithmic("rank of the flow", 1.0, SLOTS as f64),
        Axis::linear("held, % of runs", 0.0, 100.0),
    );
    let chart = Chart::new(&format!("Zipf, exponent {alpha:.1}: flows of {slots}"), x, y, HALF);
    algorithms.iter().fold(chart, |chart, &(algorithm, tone)| {
        let points = edges.windows(2).filter_map(|pair| {
            let &[low, high] = pair else { return None };
            let flows: Vec<f64> = findings
                .held(alpha, algorithm)
                .filter_map(|held: &TableContent| held.ranks.get(low..high))
                .flatten()
                .map(|held| if *held { 100.0 } else { 0.0 })
                .collect();
            // Middle of the bin, with ranks counted from one.
            statistics::mean(&flows).map(|mean| ((low + high + 1) as f64 / 2.0, mean))
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
    let chart = Chart::new(
        &format!("Heavy flows have {:.0} % of the packets", heavy_share * 100.0),
        x,
        y,
        HALF,
    );
    COMPARED.into_iter().zip([Tone::First, Tone::Second]).fold(chart, |chart, (algorithm, tone)| {
        let spreads: Vec<(f64, Spread)> = SIZES_LOG2
            .into_iter()
            .filter_map(|log2| {
                Some((
                    size(log2),
                    Spread::from_values(&findings.heavy_held(heavy_share, algorithm, log2))?,
                ))
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

/// Returns the report.
pub(super) fn page(findings: &Findings) -> Page {
    let mut page = Page::new("Heavy hitters with few slots: RAP and its relatives");
    let share = |algorithm| {
        findings.share(ALPHAS[0], algorithm).map_or(f64::NAN, |spread| spread.mean * 100.0)
    };
    page.lead(&format!(
        "With as many slots as flows are wanted, RAP holds {:.0} % of the true top {SLOTS} at an exponent of {:.1}, SpaceSaving {:.0} %. Of \
         algorithms that a kernel or a switch can run, d-way RAP holds {:.0} %, HashPipe {:.0} % and PRECISION {:.0} %.",
        share(Algorithm::Rap),
        ALPHAS[0],
        share(Algorithm::SpaceSaving),
        share(Algorithm::DWayRap),
        share(Algorithm::HashPipe),
        share(Algorithm::Precision),
    ));
    shares(findings, &mut page);
    theorem(findings, &mut page);
    method(findings, &mut page);
    page
}

/// Returns the command that makes the report.
pub(super) fn command(findings: &Findings) -> String {
    format!("flowgauge reproduce rap --seeds {}", findings.seeds)
}

fn shares(findings: &Findings, page: &mut Page) {
    page.heading("How many of the true top flows are held");
    page.paragraph(
        "Below each share are the standard deviation of a run and the range. The errors are those of the counts of the top flows that are held: mean of \
         |count − truth| / truth.",
    );
    page.table(&share_table(findings));
    let few = [
        (Algorithm::HashPipe, Tone::Third),
        (Algorithm::Precision, Tone::Second),
        (Algorithm::DWayRap, Tone::First),
    ];
    let any = [(Algorithm::SpaceSaving, Tone::Second), (Algorithm::Rap, Tone::First)];
    for (slots, algorithms) in [("any slot", &any[..]), ("few slots", &few[..])] {
        page.figure(
            &[ALPHAS[0], ALPHAS[ALPHAS.len() - 1]]
                .map(|alpha| rank_chart(findings, alpha, slots, algorithms)),
            if algorithms.len() == any.len() {
                "How often the flow of a rank is held, algorithms by which a flow may have any slot. SpaceSaving gives a slot to every newcomer, and \
                 in the time between two of its packets a flow of the lower ranks has lost it again."
            } else {
                "The same of algorithms by which a flow has few slots: eight of a set, one in each of four stages, one in each of two. A flow whose \
                 slots are those of heavier ones is missing, whatever its rank."
            },
        );
    }
}

fn theorem(findings: &Findings, page: &mut Page) {
    page.heading("The theorem on RAP");
    page.paragraph(
        "For a highly skewed stream of packets with k heavy flows, RAP with k slots stores Ω(k) of them with constant probability \
         (data-plane performance dissertation, abstract and §1.4; chapter 4 itself is not at hand). The copy at hand reads O(k), a bound from above that \
         any table of k slots meets; the bound from below is the one with content. Here k flows are equally \
         heavy, and every other packet is the only one of its flow: a stream whose other flows are as many as can be. If the theorem holds for it, the \
         share of heavy flows that are stored does not fall towards zero as k grows.",
    );
    page.table(&theorem_table(findings));
    page.figure(
        &HEAVY_SHARES.map(|share| theorem_chart(findings, share)),
        "Lines are means, bands the range of all runs.",
    );
    let found = HEAVY_SHARES.map(|share| {
        format!(
            "with {:.0} % of the packets in heavy flows RAP stored at least {:.0} % of them in every run of every size, SpaceSaving {:.0} %",
            share * 100.0,
            lowest(findings, share, Algorithm::Rap) * 100.0,
            lowest(findings, share, Algorithm::SpaceSaving) * 100.0
        )
    });
    page.paragraph(&format!(
        "<strong>Found:</strong> {}. The share does not fall as k grows from 2<sup>6</sup> to 2<sup>14</sup>, and varies the less the larger k is: \
         what the theorem says, with a constant near one. SpaceSaving, which admits every newcomer, holds a constant share as well, but no more \
         than the heavy flows have of the packets. A simulation is no proof, and other streams are skewed in other ways.",
        found.join("; ")
    ));
}

fn method(findings: &Findings, page: &mut Page) {
    page.heading("Method");
    let packets: u64 = findings
        .zipf
        .iter()
        .map(|(_, held)| PACKETS * held.len() as u64)
        .sum::<u64>()
        + findings.skewed.iter().map(|(skewed, _): &(Skewed, f64)| skewed.packets()).sum::<u64>();
    page.list([
        format!(
            "{} packets counted by the code that every software dataplane runs (<code>flowgauge_core::heavy</code>), flowgauge {}. \
             Coins are CRCs of signature and packet number, so every run gives identical results.",
            grouped(packets),
            env!("CARGO_PKG_VERSION")
        ),
        format!(
            "Zipf streams: <code>zipf,flows={FLOWS},packets={PACKETS}</code> of <code>flowgauge generate</code>, seeds 1 to {}; flows are \
             sources. Of equal counts at the end of the true top the lower address is taken.",
            findings.seeds
        ),
        format!(
            "Streams of the theorem: every packet belongs to a heavy flow with the given probability, then to each of the k alike; heavy flows have \
             {PACKETS_PER_HEAVY_FLOW} packets in the mean."
        ),
        "<code>shares.csv</code> has one line a Zipf run and algorithm, <code>theorem.csv</code> one a run of the theorem's.".to_owned(),
        format!("To repeat: <code>{}</code>", command(findings)),
    ]);
}
