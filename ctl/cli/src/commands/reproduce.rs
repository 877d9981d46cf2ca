//! Options of `flowgauge reproduce`, which repeats the experiments of papers.

use crate::config::value;
use crate::error::{CommandFailure, refuse};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Repeat the experiments of a paper and compare its figures with ours.
///
/// Everything, generated traffic and captures included, runs in the time of the packets, so that results are
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
///
/// spread is how many of the keys with the most distinct others a sketch finds, and how well it
/// estimates them, by memory: as SpreadSketch (Tang, Huang and Lee, INFOCOM 2020) is evaluated, next
/// to its estimate and a table with a HyperLogLog for each key, with and without an adversary. The
/// traces and numbers of that paper are not at hand, so none is compared.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge reproduce
  flowgauge reproduce whll --quick --out /tmp/whll
  flowgauge reproduce whll --seeds 100 --read-skew 25ms
  flowgauge reproduce p4entropy --trace equinix-*.pcap.gz
  flowgauge reproduce fridge --trace campus.pcap --fridges 512:1/8,512:1/64
  flowgauge reproduce p4entropy --seeds 10")]
pub struct Reproduce {
    /// Paper to reproduce: whll, p4log, p4exp, p4entropy, rap, fridge, reorder, spread, all
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

    /// Captures to count in the place of generated traffic: whll, p4entropy, rap, fridge, reorder or
    /// spread
    ///
    /// Any format that replay reads; several are merged by the times of their packets. The truth is
    /// counted exactly. p4entropy, rap and spread count flows by source and destination, in windows
    /// of --window-packets; whll has windows of time, as the thesis; fridge and reorder take the
    /// packets of all windows as one.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub trace: Vec<PathBuf>,

    /// Packets of a window of a trace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..), default_value_t = 1 << 21, requires = "trace")]
    pub window_packets: u64,

    /// Windows to take from a trace, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 10, requires = "trace")]
    pub windows: u64,

    /// Rows and columns of the sketches that p4entropy simulates on a trace
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = sketch, default_value = "10x1000", requires = "trace")]
    pub sketch: (usize, usize),

    /// Fridges that fridge simulates together on a trace: the slots of each, and the share of
    /// requests that enter it; the other tables have as many slots as all of them
    #[arg(long, value_name = "SLOTS:SHARE", value_parser = fridge, value_delimiter = ',', default_value = "256:3/32,256:3/128,256:3/512,256:1/512", requires = "trace")]
    pub fridges: Vec<FridgeShape>,

    /// Write this page in Markdown too: all numbers that the documents print, next to ours
    ///
    /// Makes docs/reproductions.md. Runs all papers.
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,

    /// Directory of the report, replacing files of the same names; with several papers, one
    /// subdirectory for each [default: flowgauge-whll, flowgauge-p4log, …]
    ///
    /// With all, index.html in DIR links to each report [default: flowgauge-all].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Size of a simulated fridge, and the share of requests that enter it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FridgeShape {
    /// Number of slots, at least one.
    pub slots: usize,
    /// Share of requests that enter, over 0 and up to 1.
    pub admitted: f64,
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
    /// Keys with the most distinct others.
    Spread,
}

impl Paper {
    /// Returns all papers but `All`.
    #[must_use]
    pub fn each() -> &'static [Paper] {
        Paper::value_variants().get(1..).unwrap_or_default()
    }

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
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
            Paper::Spread => "keys with the most distinct others",
        }
    }
}

impl Reproduce {
    /// Checks options that depend on each other.
    ///
    /// # Errors
    /// [`CommandFailure::Usage`].
    pub fn check(&self) -> Result<(), CommandFailure> {
        let has_traffic = !matches!(self.what, Paper::All | Paper::P4log | Paper::P4exp);
        let admitted: f64 = self.fridges.iter().map(|fridge| fridge.admitted).sum();
        if self.page.is_some() && !matches!(self.what, Paper::All) {
            let name = self.what.name();
            let problem =
                format!("--page: the page has the numbers of all papers; leave out {name}");
            refuse(problem)
        } else if !self.trace.is_empty() && !has_traffic {
            let problem = "--trace: say what to count, as in reproduce p4entropy --trace FILE; whll, p4entropy, rap, fridge, reorder and spread count packets";
            refuse(problem)
        } else if admitted > 1.0 {
            let problem = format!(
                "--fridges: {admitted} of the requests enter a fridge; reduce the shares to 1 in all"
            );
            refuse(problem)
        } else {
            Ok(())
        }
    }

    /// Returns the command line that counts a trace again.
    #[must_use]
    pub fn trace_command(&self) -> String {
        let files: Vec<String> = self.trace.iter().map(|file| file.display().to_string()).collect();
        let mut command = format!(
            "flowgauge reproduce {} --trace {} --window-packets {} --windows {}",
            self.what.name(),
            files.join(" "),
            self.window_packets,
            self.windows
        );
        let (rows, columns) = self.sketch;
        let fridges: Vec<String> = self
            .fridges
            .iter()
            .map(|FridgeShape { slots, admitted }| format!("{slots}:{admitted}"))
            .collect();
        match self.what {
            Paper::P4entropy => command += &format!(" --sketch {rows}x{columns}"),
            Paper::Fridge => command += &format!(" --fridges {}", fridges.join(",")),
            _ => {}
        }
        if let Some(seeds) = self.seeds {
            command += &format!(" --seeds {seeds}");
        }
        command
    }
}

/// Parses rows and columns of a simulated sketch.
fn sketch(text: &str) -> Result<(usize, usize), String> {
    let fits = |(rows, columns): &(usize, usize)| {
        (1..=64).contains(rows) && (1..=1 << 20).contains(columns)
    };
    value::rows_and_columns(text).filter(fits).ok_or_else(|| {
        "expected 1 to 64 rows and at most 1048576 columns, such as 10x1000".to_owned()
    })
}

/// Parses a fridge: its slots and the share of requests that enter it.
fn fridge(text: &str) -> Result<FridgeShape, String> {
    let parse = || {
        let (slots, share) = text.split_once(':')?;
        let admitted = match share.split_once('/') {
            Some((some, all)) => some.parse::<f64>().ok()? / all.parse::<f64>().ok()?,
            None => share.parse().ok()?,
        };
        Some(FridgeShape { slots: slots.parse().ok()?, admitted })
    };
    parse()
        .filter(|FridgeShape { slots, admitted }| {
            (1..=1 << 24).contains(slots) && *admitted > 0.0 && *admitted <= 1.0
        })
        .ok_or_else(|| {
            "expected slots and the share of requests that enter, such as 256:1/64".to_owned()
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        reproduce: Reproduce,
    }

    fn parsed(arguments: &[&str]) -> Result<Reproduce, clap::Error> {
        let arguments = std::iter::once(&"flowgauge").chain(arguments);
        Cli::try_parse_from(arguments).map(|cli| cli.reproduce)
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for arguments in [
            &["p4entropy", "--trace", "a.pcap", "b.pcap"][..],
            &["fridge", "--trace", "a.pcap", "--fridges", "8:1/2,8:1/2"],
            &["spread", "--trace", "a.pcap"],
            &["--page", "page.md"],
        ] {
            assert!(parsed(arguments).unwrap().check().is_ok(), "{arguments:?}");
        }
        for arguments in [
            &["p4log", "--trace", "a.pcap"][..],
            &["--trace", "a.pcap"],
            &["fridge", "--trace", "a.pcap", "--fridges", "8:1,8:1/2"],
            &["whll", "--page", "page.md"],
        ] {
            let failure = parsed(arguments).unwrap().check().unwrap_err();
            assert!(matches!(failure, CommandFailure::Usage(_)), "{arguments:?}");
            assert!(!failure.to_string().contains('\n'), "{failure}");
        }
        assert!(parsed(&["whll", "--windows", "3"]).is_err(), "windows of no trace");
    }

    #[test]
    fn a_trace_is_counted_again_by_its_command() {
        let arguments = ["fridge", "--trace", "a.pcap", "b.pcap", "--windows", "3"];
        let first = parsed(&arguments).unwrap();
        let command = first.trace_command();
        let words: Vec<&str> = command.split(' ').skip(2).collect();
        let again = parsed(&words).unwrap();
        assert_eq!(again.trace_command(), command);
        assert_eq!((again.windows, again.fridges), (3, first.fridges));
    }

    #[test]
    fn fridges_and_sketches_are_parsed_or_refused() {
        assert_eq!(fridge("256:3/32"), Ok(FridgeShape { slots: 256, admitted: 0.09375 }));
        assert_eq!(fridge("1:1"), Ok(FridgeShape { slots: 1, admitted: 1.0 }));
        for text in ["", "256", "0:1/2", "256:0", "256:2", "256:1/0", "256:x", "x:1", "256:NaN"] {
            assert!(fridge(text).is_err(), "{text}");
        }
        assert_eq!(sketch("10x1000"), Ok((10, 1000)));
        for text in ["10", "0x10", "65x10", "10x0", "10x1048577"] {
            assert!(sketch(text).is_err(), "{text}");
        }
    }
}
