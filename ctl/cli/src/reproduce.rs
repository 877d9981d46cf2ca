//! Options of `flowgauge reproduce`, which repeats the experiments of papers.

use crate::value;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Repeat the experiments of a paper and compare its figures with ours.
///
/// Everything, generated traffic included, runs in the time of the packets, so that results are
/// identical in every run and 22 minutes of traffic take a fraction of a second. Prints tables, and
/// writes a page with plots (index.html), each plot as SVG and CSV with the command that made it,
/// and all results (CSV) to one directory per paper.
///
/// whll is the accuracy of windowed HyperLogLog: Tables 4.3 and 4.4 and Figures 4.4 to 4.19 of the
/// W-HLL thesis, with its hash and estimator and with ours. p4log, p4exp and p4entropy are the
/// P4Entropy paper: logarithms and powers in integers (Figures 3 to 6), and the entropy of a window
/// (Figure 7) with its Algorithm 3 corrected and as printed, compared with the table of Lapolli et
/// al.
///
/// rap is how many of the true top flows RAP, SpaceSaving, d-way RAP, HashPipe and PRECISION find
/// with few slots, and a simulation of the theorem on RAP in the data-plane performance
/// dissertation (chapter 4). fridge is its chapter 2, distributions of round-trip delays in little
/// memory: Figure 2.2, the share of requests to admit, several fridges, and memory. reorder is its
/// chapter 3: the share of reordering prefixes that flow sampling and the hybrid find, by memory
/// and traffic.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge reproduce
  flowgauge reproduce whll --quick --out /tmp/whll
  flowgauge reproduce whll --seeds 100 --read-skew 25ms
  flowgauge reproduce p4entropy --seeds 10")]
pub struct Reproduce {
    /// Paper to reproduce: whll, p4log, p4exp, p4entropy, rap, fridge, reorder, all
    #[arg(value_enum, value_name = "WHAT", default_value_t = Paper::All, hide_possible_values = true)]
    pub what: Paper,

    /// Repeat each experiment fewer times, for a first impression
    #[arg(long)]
    pub quick: bool,

    /// Number of runs of each experiment, with seeds 1 to N; half as many for the replacement of
    /// the campus trace [default: 10, 2 with --quick; p4entropy 5, 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), allow_hyphen_values = true)]
    pub seeds: Option<u64>,

    /// Time between reading the packet counter and the registers, a hypothesis about the thesis'
    /// errors; 'none' to omit such readings
    ///
    /// Here, a snapshot belongs to one instant. The thesis reads the counter, its ground truth, and
    /// then 2048 registers one by one, in about 245 ms, while packets keep arriving. The report
    /// shows both: readings of one instant, and readings with this skew. The default is fitted to
    /// Table 4.3. With 245 ms its errors would be ten times as large, and Table 4.4 needs about
    /// 70 ms: no skew explains both.
    #[arg(long, value_name = "TIME", value_parser = read_skew, default_value = "20ms", allow_hyphen_values = true)]
    pub read_skew: Duration,

    /// Directory of the report, replacing files of the same names; with several papers, one
    /// subdirectory for each [default: flowgauge-whll, flowgauge-p4log, …]
    ///
    /// With all, index.html in DIR links to each report [default: flowgauge-all].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Paper to reproduce.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Paper {
    /// All papers.
    All,
    /// Accuracy of windowed HyperLogLog.
    Whll,
    /// Logarithms in integers.
    P4log,
    /// Powers in integers.
    P4exp,
    /// Entropies.
    P4entropy,
    /// True top flows found with few slots.
    Rap,
    /// Round-trip delays.
    Fridge,
    /// Prefixes that reorder packets.
    Reorder,
}

impl Paper {
    /// All papers but `All`.
    pub const EACH: [Paper; 7] = [
        Paper::Whll,
        Paper::P4log,
        Paper::P4exp,
        Paper::P4entropy,
        Paper::Rap,
        Paper::Fridge,
        Paper::Reorder,
    ];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Paper::All => "all",
            Paper::Whll => "whll",
            Paper::P4log => "p4log",
            Paper::P4exp => "p4exp",
            Paper::P4entropy => "p4entropy",
            Paper::Rap => "rap",
            Paper::Fridge => "fridge",
            Paper::Reorder => "reorder",
        }
    }

    /// Returns a short description.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Paper::All => "everything there is",
            Paper::Whll => "the accuracy of windowed HyperLogLog",
            Paper::P4log => "logarithms in integers",
            Paper::P4exp => "powers in integers",
            Paper::P4entropy => "entropies",
            Paper::Rap => "the true top flows that few slots hold",
            Paper::Fridge => "round-trip delays",
            Paper::Reorder => "prefixes that reorder packets",
        }
    }
}

/// Parses a time, or `none`.
fn read_skew(text: &str) -> Result<Duration, String> {
    let zero = text == "none" || humantime::parse_duration(text).is_ok_and(|time| time.is_zero());
    if zero {
        Ok(Duration::ZERO)
    } else {
        value::duration(text).map_err(|problem| format!("{problem}, or none"))
    }
}
