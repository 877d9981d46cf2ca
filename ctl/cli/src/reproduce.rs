//! The options of `flowgauge reproduce`: a paper's experiments again.

use crate::value;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Repeat a paper's experiments and put its figures beside ours.
///
/// Everything runs in trace time on the software itself, generated traffic included, so that
/// results repeat to the bit and 22 minutes of traffic take a fraction of a second. The tables are
/// printed; a page with plots (index.html) and all measurements (as CSV) are written to a directory
/// each.
///
/// whll is the accuracy of windowed HyperLogLog: Tables 4.3 and 4.4 and Figures 4.4 to 4.19 of the
/// W-HLL thesis, with its hash and estimator and with ours. p4log, p4exp and p4entropy are the
/// P4Entropy paper: logarithms and powers in integers (Figures 3 to 6), and the entropy of a window
/// (Figure 7) with its Algorithm 3 corrected and to the letter, next to the table of Lapolli et al.
///
/// rap is how many of the true top flows RAP, SpaceSaving, d-way RAP, HashPipe and PRECISION hold
/// with few slots, and the theorem on RAP of the data-plane performance dissertation (chapter 4) by
/// simulation. fridge is its chapter 2, distributions of round-trip delays from little memory:
/// Figure 2.2, the share of requests to admit, several fridges, and memory. reorder is its chapter
/// 3: which share of the prefixes that reorder packets flow sampling and the hybrid find, by memory
/// and traffic.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge reproduce
  flowgauge reproduce whll --quick --out /tmp/whll
  flowgauge reproduce whll --seeds 100 --read-skew 25ms
  flowgauge reproduce p4entropy --seeds 10")]
pub struct Reproduce {
    /// What to reproduce: whll, p4log, p4exp, p4entropy, rap, fridge, reorder, or all there is
    #[arg(value_enum, value_name = "WHAT", default_value_t = What::All, hide_possible_values = true)]
    pub what: What,

    /// Fewer runs of every experiment, for a first look
    #[arg(long)]
    pub quick: bool,

    /// Runs of every experiment, with seeds 1 to N; half as many in the place of the campus trace
    /// [default: 10, or 2 with --quick; for p4entropy 5 or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), allow_hyphen_values = true)]
    pub seeds: Option<u64>,

    /// How long after the packet counter the registers are read, as on the thesis' switch; 'none'
    /// for no such readings
    ///
    /// A snapshot here belongs to one instant. The thesis reads the counter, its ground truth, and
    /// then 2048 registers one by one, while packets go on arriving. The report shows both:
    /// readings of one instant, and readings with this skew.
    #[arg(long, value_name = "TIME", value_parser = read_skew, default_value = "20ms", allow_hyphen_values = true)]
    pub read_skew: Duration,

    /// Where to write the report; files of the same names are replaced. Of several each has a
    /// directory of its own in it [default: flowgauge-whll, flowgauge-p4log, …]
    ///
    /// Of all, index.html in DIR leads to each [default: flowgauge-all].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// What to reproduce.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum What {
    /// Everything there is.
    All,
    /// The accuracy of windowed HyperLogLog.
    Whll,
    /// Logarithms in integers.
    P4log,
    /// Powers in integers.
    P4exp,
    /// Entropies.
    P4entropy,
    /// The true top flows that few slots hold.
    Rap,
    /// Round-trip delays.
    Fridge,
    /// Prefixes that reorder packets.
    Reorder,
}

impl What {
    /// Each by itself.
    pub const EACH: [What; 7] = [
        What::Whll,
        What::P4log,
        What::P4exp,
        What::P4entropy,
        What::Rap,
        What::Fridge,
        What::Reorder,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            What::All => "all",
            What::Whll => "whll",
            What::P4log => "p4log",
            What::P4exp => "p4exp",
            What::P4entropy => "p4entropy",
            What::Rap => "rap",
            What::Fridge => "fridge",
            What::Reorder => "reorder",
        }
    }

    /// What it is about, in a few words.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            What::All => "everything there is",
            What::Whll => "the accuracy of windowed HyperLogLog",
            What::P4log => "logarithms in integers",
            What::P4exp => "powers in integers",
            What::P4entropy => "entropies",
            What::Rap => "the true top flows that few slots hold",
            What::Fridge => "round-trip delays",
            What::Reorder => "prefixes that reorder packets",
        }
    }
}

/// A time, or none.
fn read_skew(text: &str) -> Result<Duration, String> {
    let zero = text == "none" || humantime::parse_duration(text).is_ok_and(|time| time.is_zero());
    if zero {
        Ok(Duration::ZERO)
    } else {
        value::duration(text).map_err(|problem| format!("{problem}, or none"))
    }
}
