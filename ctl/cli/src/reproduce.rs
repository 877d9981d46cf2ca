//! `flowgauge reproduce`: a paper's experiments again.

use crate::error::Failure;
use crate::{progress, value};
use clap::{Args, ValueEnum};
use flowgauge_bench::parallel::Progress;
use flowgauge_bench::report::html::{Page, escape};
use flowgauge_bench::report::{Directory, Table};
use flowgauge_bench::{ReproduceError, fridge, p4entropy, p4exp, p4log, rap, reorder, whll};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Repeat a paper's experiments and put its figures beside ours.
///
/// Everything runs in trace time on the software itself, generated traffic included, so that results repeat to the bit and 22
/// minutes of traffic take a fraction of a second. The tables are printed; a page with plots (index.html) and all measurements
/// (as CSV) are written to a directory each.
///
/// whll is the accuracy of windowed HyperLogLog: Tables 4.3 and 4.4 and Figures 4.4 to 4.19 of the W-HLL thesis, with its hash
/// and estimator and with ours. p4log, p4exp and p4entropy are the P4Entropy paper: logarithms and powers in integers (Figures 3 to
/// 6), and the entropy of a window (Figure 7) with its Algorithm 3 corrected and to the letter, next to the table of Lapolli et al.
///
/// rap is how many of the true top flows RAP, SpaceSaving, d-way RAP, HashPipe and PRECISION hold with few slots, and the theorem on RAP of
/// the data-plane performance dissertation (chapter 4) by simulation. fridge is its chapter 2, distributions of round-trip delays from little memory:
/// Figure 2.2, the share of requests to admit, several fridges, and memory. reorder is its chapter 3: which share of the prefixes that reorder packets
/// flow sampling and the hybrid find, by memory and traffic.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge reproduce
  flowgauge reproduce whll --quick --out /tmp/whll
  flowgauge reproduce whll --seeds 100 --read-skew 25ms
  flowgauge reproduce p4entropy --seeds 10")]
pub(crate) struct Reproduce {
    /// What to reproduce: whll, p4log, p4exp, p4entropy, rap, fridge, reorder, or all there is
    #[arg(value_enum, value_name = "WHAT", default_value_t = What::All, hide_possible_values = true)]
    what: What,

    /// Fewer runs of every experiment, for a first look
    #[arg(long)]
    quick: bool,

    /// Runs of every experiment, with seeds 1 to N; half as many in the place of the campus trace [default: 10, or 2 with --quick; for
    /// p4entropy 5 or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), allow_hyphen_values = true)]
    seeds: Option<u64>,

    /// How long after the packet counter the registers are read, as on the thesis' switch; 'none' for no such readings
    ///
    /// A snapshot here belongs to one instant. The thesis reads the counter, its ground truth, and then 2048 registers one by
    /// one, while packets go on arriving. The report shows both: readings of one instant, and readings with this skew.
    #[arg(long, value_name = "TIME", value_parser = read_skew, default_value = "20ms", allow_hyphen_values = true)]
    read_skew: Duration,

    /// Where to write the report; files of the same names are replaced. Of several each has a directory of its own in it [default:
    /// flowgauge-whll, flowgauge-p4log, …]
    ///
    /// Of all, index.html in DIR leads to each [default: flowgauge-all].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
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
    const EACH: [What; 7] = [What::Whll, What::P4log, What::P4exp, What::P4entropy, What::Rap, What::Fridge, What::Reorder];

    fn name(self) -> &'static str {
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

    fn about(self) -> &'static str {
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
    if zero { Ok(Duration::ZERO) } else { value::duration(text).map_err(|problem| format!("{problem}, or none")) }
}

impl Reproduce {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let directory = |what| match (self.what, &self.out) {
            (_, None) => default_directory(what),
            (What::All, Some(out)) => out.join(what.name()),
            (_, Some(out)) => out.clone(),
        };
        if !matches!(self.what, What::All) {
            return self.one(self.what, &directory(self.what)).map(drop);
        }
        let mut pages = Vec::new();
        for what in What::EACH {
            pages.push((what, self.one(what, &directory(what))?));
        }
        let index = self.index(&pages)?;
        writeln!(io::stdout(), "all reports: {}", index.display()).map_err(Failure::output)
    }

    /// Writes a page that leads to all reports; gives its path.
    fn index(&self, pages: &[(What, PathBuf)]) -> Result<PathBuf, Failure> {
        let mut index = Page::new("The papers' experiments again");
        index.lead("Each report has the paper's figures beside ours, with plots. All measurements are beside it, as CSV.");
        // Beside the reports, or in a directory beside theirs.
        let (directory, up) = match &self.out {
            Some(out) => (out.clone(), ""),
            None => (default_directory(What::All), "../"),
        };
        index.list(pages.iter().map(|(what, page)| {
            let place: Vec<_> = page.components().rev().take(2).map(|part| part.as_os_str().to_string_lossy()).collect();
            let place: Vec<&str> = place.iter().rev().map(AsRef::as_ref).collect();
            format!("<a href=\"{up}{}\">{}</a>: {}", escape(&place.join("/")), what.name(), escape(what.about()))
        }));
        let directory = Directory::create(&directory)?;
        Ok(directory.write("index.html", |file| file.write_all(index.html().as_bytes()))?)
    }

    /// Runs one reproduction and prints its tables; the path of its page.
    fn one(&self, what: What, directory: &Path) -> Result<PathBuf, Failure> {
        let bar = progress::bar(Some(1), what.name().to_owned());
        let report = self.report(what, directory, &|done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let (tables, page) = report?;
        let mut out = io::stdout().lock();
        let written = tables.iter().try_for_each(|table| writeln!(out, "{table}"));
        written.and_then(|()| writeln!(out, "report: {}", page.display())).map_err(Failure::output)?;
        Ok(page)
    }

    /// Runs one reproduction and writes its report; its tables and the path of its page.
    fn report(&self, what: What, directory: &Path, progress: &Progress<'_>) -> Result<(Vec<Table>, PathBuf), ReproduceError> {
        let seeds = |quick, default| self.seeds.unwrap_or(if self.quick { quick } else { default });
        match what {
            What::All | What::Whll => {
                let options = whll::Options { seeds: seeds(whll::QUICK_SEEDS, whll::SEEDS), read_skew: self.read_skew };
                let findings = whll::run(&options, progress)?;
                Ok((findings.tables().into(), findings.write(directory)?))
            }
            What::P4log => {
                let findings = p4log::run(if self.quick { p4log::QUICK_NUMBERS } else { p4log::NUMBERS }, progress)?;
                Ok((findings.tables(), findings.write(directory)?))
            }
            What::P4exp => {
                let findings = p4exp::run(if self.quick { p4exp::QUICK_NUMBERS } else { p4exp::NUMBERS }, progress)?;
                Ok((findings.tables(), findings.write(directory)?))
            }
            What::P4entropy => {
                let seeds = seeds(p4entropy::QUICK_SEEDS, p4entropy::SEEDS);
                let findings = p4entropy::run(&p4entropy::Options { seeds, ..p4entropy::Options::default() }, progress)?;
                Ok((findings.tables(), findings.write(directory)?))
            }
            What::Rap => {
                let findings = rap::run(seeds(rap::QUICK_SEEDS, rap::SEEDS), progress);
                Ok((findings.tables().into(), findings.write(directory)?))
            }
            What::Fridge => {
                let findings = fridge::run(seeds(fridge::QUICK_SEEDS, fridge::SEEDS), progress);
                Ok((findings.tables().into(), findings.write(directory)?))
            }
            What::Reorder => {
                let findings = reorder::run(seeds(reorder::QUICK_SEEDS, reorder::SEEDS), progress);
                Ok((findings.tables().into(), findings.write(directory)?))
            }
        }
    }
}

fn default_directory(what: What) -> PathBuf {
    PathBuf::from(format!("flowgauge-{}", what.name()))
}

impl From<ReproduceError> for Failure {
    fn from(error: ReproduceError) -> Self {
        Failure::Failed(error.to_string())
    }
}
