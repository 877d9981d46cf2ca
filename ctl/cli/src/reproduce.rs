//! `flowgauge reproduce`: a paper's experiments again.

use crate::error::Failure;
use crate::{progress, value};
use clap::{Args, ValueEnum};
use flowgauge_bench::{ReproduceError, whll};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Repeat a paper's experiments and put its figures beside ours.
///
/// Everything runs in trace time on the software itself, generated traffic included, so that results repeat to the bit and 22
/// minutes of traffic take a fraction of a second. The tables are printed; a page with plots (index.html) and all measurements
/// (summary.csv, reads.csv) are written to a directory.
///
/// whll is the accuracy of windowed HyperLogLog: Tables 4.3 and 4.4 and Figures 4.4 to 4.19 of the W-HLL thesis, with its hash
/// and estimator and with ours.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge reproduce
  flowgauge reproduce whll --quick --out /tmp/whll
  flowgauge reproduce whll --seeds 100 --read-skew 25ms")]
pub(crate) struct Reproduce {
    /// What to reproduce: whll, or all there is
    #[arg(value_enum, value_name = "WHAT", default_value_t = What::All, hide_possible_values = true)]
    what: What,

    /// Two runs of every experiment instead of ten, for a first look
    #[arg(long)]
    quick: bool,

    /// Runs of every experiment, with seeds 1 to N; half as many in the place of the campus trace [default: 10, or 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), allow_hyphen_values = true)]
    seeds: Option<u64>,

    /// How long after the packet counter the registers are read, as on the thesis' switch; 'none' for no such readings
    ///
    /// A snapshot here belongs to one instant. The thesis reads the counter, its ground truth, and then 2048 registers one by
    /// one, while packets go on arriving. The report shows both: readings of one instant, and readings with this skew.
    #[arg(long, value_name = "TIME", value_parser = read_skew, default_value = "20ms", allow_hyphen_values = true)]
    read_skew: Duration,

    /// Where to write the report; files of the same names are replaced [default: flowgauge-whll]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Everything there is.
    All,
    /// The accuracy of windowed HyperLogLog.
    Whll,
}

/// A time, or none.
fn read_skew(text: &str) -> Result<Duration, String> {
    let zero = text == "none" || humantime::parse_duration(text).is_ok_and(|time| time.is_zero());
    if zero { Ok(Duration::ZERO) } else { value::duration(text).map_err(|problem| format!("{problem}, or none")) }
}

impl Reproduce {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        match self.what {
            What::All | What::Whll => self.whll(),
        }
    }

    fn whll(&self) -> Result<(), Failure> {
        let seeds = self.seeds.unwrap_or(if self.quick { whll::QUICK_SEEDS } else { whll::SEEDS });
        let options = whll::Options { seeds, read_skew: self.read_skew };
        let directory = self.out.as_deref().unwrap_or(Path::new("flowgauge-whll"));
        let bar = progress::bar(Some(1), "whll".to_owned());
        let findings = whll::run(&options, &|done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let findings = findings?;
        let page = findings.write(directory)?;
        let [synthetic, trace] = findings.tables();
        writeln!(io::stdout(), "{synthetic}\n{trace}\nreport: {}", page.display()).map_err(Failure::output)
    }
}

impl From<ReproduceError> for Failure {
    fn from(error: ReproduceError) -> Self {
        Failure::Failed(error.to_string())
    }
}
